"""What all pages have in common: templates, and how texts, tables and verdicts become HTML."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

import jinja2
import pandas as pd
from markdown_it import MarkdownIt
from markupsafe import Markup, escape

from fedlib import __version__
from fedlib.analysis.run_ids import DIGITS
from fedlib.base.files import shipped_notebooks
from fedlib.reports.site.facts import Saved, Shown
from fedlib.reports.site.links import heading

TEMPLATES = Path(__file__).parent / "templates"
SYMBOLS = {"good": "✓", "bad": "✗", "open": "?", "none": "–"}
TABLE = re.compile(r"<table.*?</table>", re.DOTALL)
RUNS, FEW_RUNS = "runs", 4  # the column of tables that names runs, and how many of a row's at most

Files = dict[str, bytes]


class Site:
    """What all pages have in common: the items, the notebooks that have pages, the templates."""

    def __init__(self, items: Mapping[str, Shown], notebooks: bool):
        folder = shipped_notebooks()
        found = sorted(folder.rglob("*.ipynb")) if notebooks else []
        paths = [path for path in found if ".ipynb_checkpoints" not in path.parts]
        self.items = items
        self.notebooks = {path.relative_to(folder).with_suffix("").as_posix(): path for path in paths}
        self.templates = jinja2.Environment(
            loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, undefined=jinja2.StrictUndefined,
            trim_blocks=True, lstrip_blocks=True,
        )  # fmt: skip
        self.templates.filters |= {"markdown": markdown, "code": code, "tone": tone, "path": quote, "grid": grid}
        self.templates.globals |= {"symbols": SYMBOLS, "version": __version__, "counts": counts, "heading": heading}

    def page(self, template: str, path: str, title: str, **facts) -> Files:
        """A page at a path in the site, whose own links are relative to `root`."""
        root = "../" * path.count("/")
        text = self.templates.get_template(template).render(root=root, title=title, site=self, **facts)
        return {path: text.encode()}


def markdown(text: str) -> Markup:
    """Markdown as HTML; tags in it are shown, not followed. Wide tables scroll in a box of their own."""
    return Markup(boxed(MarkdownIt("commonmark", {"html": False}).enable("table").render(text)))


def code(text: str) -> Markup:
    """A text with `names` in backticks as HTML."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def boxed(body: str) -> str:
    """HTML with every table in a box that scrolls, by keyboard too."""
    return TABLE.sub(r'<div class="scroll" tabindex="0">\g<0></div>', body)


def grid(frame: pd.DataFrame, place: str = "", listed: bool = False) -> Markup:
    """A table of texts as HTML, in a box of its own. The ids in its column RUNS lead to the rows of the table of runs
    of a place; listed: this is that table, whose first column has the ids."""
    cells = frame.astype(str).map(escape)
    if RUNS in cells and place:
        cells[RUNS] = [_to_runs(text.split(), place) for text in cells[RUNS]]
    if listed:
        cells.iloc[:, 0] = [_named(text, place) for text in cells.iloc[:, 0]]
    cells.columns = [escape(name) for name in cells.columns]
    return Markup(boxed(cells.to_html(index=False, border=0, escape=False, justify="left")))


def _to_runs(ids: list[str], place: str) -> Markup:
    """Links to the first runs of a row, and how many others it has."""
    shown = ids[: FEW_RUNS if len(ids) > FEW_RUNS + 1 else None]
    links = [Markup('<a class="run" href="#{}">{}</a>').format(anchor(place, id), id) for id in shown]
    more = [f"and {len(ids) - len(shown)} more"] if len(shown) < len(ids) else []
    return Markup(" ").join([*links, *more])


def _named(id: str, place: str) -> Markup:
    return Markup('<span id="{}">{}</span>').format(anchor(place, id), id)


def anchor(place: str, run: str) -> str:
    """What a run of a place is called on a page: runs of several scales may have one id."""
    return f"{place}-{run[:DIGITS]}"


def tone(verdict: str) -> str:
    """Which kind of verdict it is: one of `SYMBOLS`."""
    if verdict in ("not tested", "undecided"):
        return "none" if verdict == "not tested" else "open"
    return "bad" if verdict.startswith(("not", "does not", "failed")) else "good"


def counts(one: Saved) -> dict[str, int]:
    """How many of an item's claims have which verdict: of the paper's, or of ours where it makes none."""
    claims = one.summary["claims"]
    found = Counter(c["verdict"] for c in [c for c in claims if c.get("kind", "paper") == "paper"] or claims)
    return dict(sorted(found.items(), key=lambda pair: list(SYMBOLS).index(tone(pair[0]))))
