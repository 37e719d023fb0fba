"""The pages to read: methods beside their source, notebooks and lessons."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterable

from markupsafe import Markup
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer
from tqdm import tqdm

from fedlib import algorithms
from fedlib.reports.methods_table import methods_table
from fedlib.reports.site.facts import Saved, Shown
from fedlib.reports.site.frame import Files, Site, boxed
from fedlib.reports.site.links import heading, lesson_of_method, proper_name

KINDS = {
    "guides": "Guides",
    "lessons": "Lessons",
    "labs": "Labs",
    "solutions": "Solutions of the lessons' exercises",
}  # folders of notebooks in the order in which they are listed; the others are papers


def method_pages(site: Site, travels: bool) -> Files:
    """methods/index.html and a page for every method; travels: with what is sent, which takes a while to find out."""
    names = algorithms.of_fedlib()
    table = methods_table(_shown(names, "method")).set_index("method") if travels else None
    rows = {name: {} if table is None else table.loc[name].to_dict() for name in names}
    order = names if table is None else list(table.index)
    titles = {name: proper_name(name) for name in names}
    files = site.page("methods.html", "methods/index.html", "Methods", rows=rows, order=order, titles=titles)
    for name in names:
        text, source = parts_of(name)
        facts = {"name": name, "row": rows[name], "text": text, "source": source, "where": _where(site, name)}
        facts["lesson"] = lesson_of_method(site.notebooks, name)
        files |= site.page("method.html", f"methods/{name}.html", titles[name], **facts)
    return files


def _shown(names: Iterable[str], unit: str) -> Iterable[str]:
    return tqdm(names, leave=False, file=sys.stderr, unit=unit, disable=None)


def parts_of(method: str) -> tuple[str, Markup]:
    """A method's file in two parts: its docstring, and its source after it with colours and line numbers."""
    module = sys.modules[algorithms.find(method).__module__]
    source = inspect.getsource(module)
    begin = ast.parse(source).body[0].end_lineno
    code = "\n".join(source.splitlines()[begin:])
    skipped = len(code) - len(code.lstrip("\n"))
    formatter = HtmlFormatter(linenos="inline", linenostart=begin + skipped + 1)
    return inspect.cleandoc(module.__doc__), Markup(highlight(code.lstrip("\n"), PythonLexer(), formatter))


def _where(site: Site, method: str) -> list[tuple[Shown, list[Saved]]]:
    """The items that a method was run for, each with what was saved of it."""
    found = [(shown, [one for one in shown.saved.values() if method in one.methods]) for shown in site.items.values()]
    return [(shown, saved) for shown, saved in found if saved]


def lesson_pages(site: Site) -> Files:
    """lessons.html, which lists all notebooks, and a page for each."""
    if not site.notebooks:
        return {}
    from fedlib.reports.site.notebook import body

    titles = {name: heading(path) for name, path in site.notebooks.items()}
    papers = sorted({name.split("/")[0] for name in titles} - KINDS.keys())
    listed = {kind: [name for name in titles if name.split("/")[0] == kind] for kind in [*KINDS, *papers]}
    facts = {"listed": listed, "titles": titles, "kinds": KINDS}
    files = site.page("lessons.html", "lessons.html", "Lessons and notebooks", **facts)
    for name in _shown(site.notebooks, "notebook"):
        made = Markup(boxed(body(site.notebooks[name])))
        facts = {"name": name, "body": made, "kind": name.split("/")[0], "near": _near(listed, name), "titles": titles}
        files |= site.page("notebook.html", f"notebooks/{name}.html", titles[name], **facts)
    return files


def _near(listed: dict[str, list[str]], name: str) -> dict[str, str]:
    """The lesson before and the one after, where there are."""
    own = listed[name.split("/")[0]]
    k = own.index(name)
    found = {"before": own[k - 1] if k else "", "next": own[k + 1] if k + 1 < len(own) else ""}
    return {which: other for which, other in found.items() if other} if name.startswith("lessons/") else {}
