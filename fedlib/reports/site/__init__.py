"""A site that needs no network: what `fedlib reproduce` saved, the methods, notebooks and lessons as static pages.

Nothing is computed here but what travels in each method (`fedlib.reports.methods_table`), and nothing is written by
hand that is known elsewhere: every file below makes one kind of page from stored results, declarations or docstrings.
"""

from __future__ import annotations

from pathlib import Path

from fedlib.base.errors import FedlibError
from fedlib.reports.site.facts import read_all
from fedlib.reports.site.folder import check, write
from fedlib.reports.site.frame import Site
from fedlib.reports.site.front import front_page
from fedlib.reports.site.items import item_pages
from fedlib.reports.site.reading import lesson_pages, method_pages
from fedlib.reports.site.results import numbers, results_csv, results_json


def build(folder: Path, travels: bool = True, notebooks: bool = True) -> list[str]:
    """Write the site to a folder that is new, empty or holds an earlier site; returns the files' names in it.

    travels: let the methods play two rounds, to say what they send; notebooks: with the notebooks' pages. Both take
    most of the time. Raises BadValue for a folder with anything else in it, and where nothing was reproduced yet;
    FedlibError for damaged results, a formula that MathML cannot say, or without latex2mathml.
    """
    old = check(folder)
    try:
        items = read_all()
        site, rows = Site(items, notebooks), numbers(items)
        files = front_page(site, len(rows)) | item_pages(site) | method_pages(site, travels) | lesson_pages(site)
    except FileNotFoundError as error:
        raise FedlibError(f"{error.filename} is missing; `fedlib reproduce` makes it again") from error
    files |= {"results.csv": results_csv(rows), "results.json": results_json(rows)}
    write(folder, files, old)
    return sorted(files)
