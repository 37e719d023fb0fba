"""The site: every notebook and report has a page, every link leads somewhere, nothing comes from elsewhere."""

from __future__ import annotations

import importlib.util
import json
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import nbformat
import pytest
from helpers import call

from fedlib.base.files import CHECKOUT
from fedlib.reports import working_folder as site

needs_book = pytest.mark.skipif(
    importlib.util.find_spec("jupyter_book") is None,
    reason="JUPYTER BOOK IS NOT INSTALLED: the site was NOT built; pip install 'fedlib[site]'",
)


class Page(HTMLParser):
    """Links of a page, and what it loads."""

    def __init__(self, text: str):
        super().__init__()
        self.links, self.loads, self.formulas = [], [], 0
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.links += [values["href"]] if tag == "a" and "href" in values else []
        self.loads += [values[key] for key in ("src", "href") if tag in ("script", "link", "img") and key in values]
        self.formulas += "math" in values.get("class", "").split()


@pytest.fixture(scope="module")
def sources(tmp_path_factory) -> Path:
    site.write_sources(folder := tmp_path_factory.mktemp("book"))
    return folder


def test_every_notebook_and_report_is_in_one_part_of_the_contents(sources):
    contents = json.loads((sources / "_toc.yml").read_text())
    named = [contents["root"], *(page["file"] for part in contents["parts"] for page in part["chapters"])]
    notebooks = {p.relative_to(CHECKOUT).with_suffix("").as_posix() for p in (CHECKOUT / "notebooks").glob("*/*.ipynb")}
    reports = {f"results/{path.stem}" for path in (CHECKOUT / "results").glob("*.md")}
    assert sorted(named) == sorted(notebooks | reports)
    assert {"Lessons", "Labs", "pFedSim"} <= {part["caption"] for part in contents["parts"]}


def test_labs_come_without_solutions(sources):
    for path in (sources / "notebooks/labs").glob("lab*.ipynb"):
        code = "".join(cell.source for cell in nbformat.read(path, as_version=4).cells)
        assert "BEGIN SOLUTION" not in code and "NotImplementedError" in code


@needs_book
def test_links_lead_somewhere_and_nothing_is_loaded_from_elsewhere(tmp_path):
    number = site.build(tmp_path / "site")
    pages = {path: Page(path.read_text("utf-8")) for path in (tmp_path / "site").rglob("*.html")
             if "_static" not in path.parts}  # fmt: skip
    assert number > 90 and sum(page.formulas for page in pages.values()) > 100
    assert (tmp_path / "site/_static/mathjax/tex-chtml.js").exists()
    for path, page in pages.items():
        assert not [load for load in page.loads if urlsplit(load).netloc], path
        for link in [*page.links, *page.loads]:
            target = urlsplit(link)
            if not target.scheme and target.path:
                assert (path.parent / unquote(target.path)).exists(), f"{path}: {link}"


@pytest.mark.parametrize(("there", "said"), [(False, "pip install 'jupyter-book<2'"), (True, "notes.txt")])
def test_what_speaks_against_a_site_is_said_at_once(tmp_path, monkeypatch, there, said):
    """Jupyter Book is not installed, or the folder has other files."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object() if there else None)
    if there:
        (tmp_path / "notes.txt").touch()
    result = call("report", "--site", str(tmp_path))
    assert result.exit_code == 2 and said in result.stderr and len(result.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("arguments", [["pfedsim"], ["--scoreboard"]], ids=str)
def test_the_command_takes_nothing_else_with_a_site(tmp_path, arguments):
    result = call("report", *arguments, "--site", str(tmp_path / "site"))
    assert result.exit_code == 2 and "--site" in result.stderr and not (tmp_path / "site").exists()
