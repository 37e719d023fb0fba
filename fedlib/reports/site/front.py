"""The first page: what this is, the papers, every claim, and how to get the numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable

from markupsafe import Markup

from fedlib.experiments import about
from fedlib.reports.report import SCALES, margin, summed_up
from fedlib.reports.site.facts import Saved, Shown
from fedlib.reports.site.frame import TEMPLATES, Files, Site
from fedlib.reports.site.results import COLUMNS
from fedlib.reports.status import IN

FILTERS = {
    "paper": "paper", "method": "method", "alpha": "alpha, or classes", "point": "test point", "scale": "scale",
    "verdict": "verdict",
}  # fmt: skip
LARGEST = "the largest that was run"


def front_page(site: Site, count: int) -> Files:
    """index.html: what this is, the papers, every claim; and the style sheet. count: of the numbers in results.csv."""
    rows = [row for shown in site.items.values() for one in shown.saved.values() for row in _claims(shown, one)]
    facts = {
        "papers": _papers(site),
        "rows": rows,
        "filters": {name: _values(rows, name) for name in FILTERS},
        "labels": FILTERS,
        "largest": LARGEST,
        "columns": COLUMNS,
        "count": count,
        "script": Markup((TEMPLATES / "filters.js").read_text("utf-8")),
    }
    style = _code_style() + "\n" + (TEMPLATES / "style.css").read_text("utf-8")
    return {"style.css": style.encode()} | site.page("index.html", "index.html", "fedlib", **facts)


def _code_style() -> str:
    """The colours of source code, dark enough on white for all readers."""
    from pygments.formatters import HtmlFormatter

    return HtmlFormatter(style="xcode").get_style_defs(".highlight")


def _papers(site: Site) -> list[dict]:
    """The papers, those with most claims tested at their own settings first."""
    found = []
    for paper in dict.fromkeys(shown.paper for shown in site.items.values()):
        own = [shown for shown in site.items.values() if shown.paper == paper]
        best = [shown.best.summary for shown in own if shown.best]
        notes = next((shown.best for shown in own if shown.item.name.endswith("/notes") and shown.best), None)
        name, title, place = about(paper)
        found.append({
            "name": name, "title": title, "place": place, "items": own,
            "summed_up": summed_up(best) if best else "Nothing was run yet.",
            "answer": _first_sentences(notes.summary.get("answer", "")) if notes else "", "notes": notes,
            "claims": sum(len(item["claims"]) for item in best if item["profile"] == "paper"),
        })  # fmt: skip
    return sorted(found, key=lambda paper: -paper["claims"])


def _first_sentences(text: str, number: int = 2) -> str:
    return " ".join(re.split(r"(?<=\.) (?=[A-Z])", text)[:number])


def _claims(shown: Shown, one: Saved) -> list[dict]:
    """One row a claim for the scoreboard, with what it can be filtered by."""
    scale = [one.scale] + ([LARGEST] if one is shown.best else [])
    return [
        {
            "shown": shown, "one": one, "claim": claim["claim"], "verdict": claim["verdict"],
            "margin": margin({"claims": [claim]}),
            "keys": {
                "paper": [shown.paper], "scale": scale, "verdict": [claim["verdict"]], "point": one.points,
                "method": _named([claim["claim"], claim["evidence"]], one.methods),
                "alpha": _named([claim["claim"], claim["evidence"]], one.mixes),
            },
        }
        for claim in one.summary["claims"]
    ]  # fmt: skip


def _named(texts: Iterable[str], among: Iterable[str]) -> list[str]:
    """Those of these names that the texts mention as whole words; all of them, if they mention none."""
    text, among = " ".join(texts), list(among)
    return [name for name in among if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text, re.I)] or among


def _values(rows: list[dict], name: str) -> list[str]:
    """What a filter can be set to: scales from large to small, everything else in the order of names."""
    found = dict.fromkeys(value for row in rows for value in row["keys"][name])
    if name != "scale":
        return sorted(found)
    order = [LARGEST, *(f"{profile}: {IN[profile]}" for profile in reversed(SCALES))]
    return [value for value in order if value in found] + [value for value in found if value not in order]
