"""A page for every item: verdict first, then how to check it, figure, paper beside ours, provenance."""

from __future__ import annotations

import shlex

import pandas as pd

from fedlib.analysis.run_ids import COLUMN, ORIGINS
from fedlib.base.files import home
from fedlib.reports.report import few_decimals, margin, origin
from fedlib.reports.site.facts import Saved
from fedlib.reports.site.frame import RUNS, Files, Site, counts
from fedlib.reports.site.links import lessons_of_item
from fedlib.reports.site.results import tested_at
from fedlib.reports.status import head

# what commands do
CHECKS = "checks the claims again on the runs that come with fedlib, and trains nothing"
MAKES = "trains what is missing, makes figure, tables and verdicts of your own, and says how they differ from these"
ASKS = (
    "says where these numbers come from; add a row's name, such as a method's, and it tells the settings, seeds, "
    "commit, partition and accuracy over the rounds of that row's runs"
)
# of the stored table of runs what the page shows, and what it calls it where the table's name says too little
ABOUT_RUNS = ("run", "label", "seed", "status", "commit", "date", "seconds", "partition", "client_mean")
CALLED = {"partition": "checksum of the partition", "client_mean": "% after a round, mean over clients"}


def item_pages(site: Site) -> Files:
    """A page for every item, and its figures."""
    files = {}
    for name, shown in site.items.items():
        files |= {one.figure: (home() / one.figure).read_bytes() for one in shown.saved.values()}
        facts = {
            "shown": shown, "best": shown.best, "parts": [_part(one) for one in shown.saved.values()],
            "lessons": lessons_of_item(site.notebooks, name),
            "paper_claims": any(claim.kind == "paper" for claim in shown.item.claims),
        }  # fmt: skip
        facts["parts"].sort(key=lambda part: part["one"] is not shown.best)
        files |= site.page("item.html", f"items/{name}.html", shown.item.title, **facts)
    return files


def _part(one: Saved) -> dict:
    """What the page of an item says of one scale."""
    extra = {caption: _with_runs(one.table(name)) for name, caption in one.summary.get("shown", {}).items()}
    compared = paper_beside_ours(one)
    return {
        "one": one, "head": head(one.summary), "answer": one.summary.get("answer", ""),
        "claims": [claim | {"margin": margin({"claims": [claim]})} for claim in one.summary["claims"]],
        "counts": counts(one), "cells": compared is not None,
        "compare": _with_runs(one.table("compare")) if compared is None else compared,
        "extra": {caption: frame for caption, frame in extra.items() if len(frame)},
        "commands": commands(one), "origins": [origin(p) for p in one.summary["provenance"]],
        "runs": each_run(one),
    }  # fmt: skip


def _with_runs(frame: pd.DataFrame) -> pd.DataFrame:
    """A saved table as it is shown, with the runs of every row."""
    return few_decimals(frame).assign(**{RUNS: frame[COLUMN]} if COLUMN in frame else {})


def each_run(one: Saved) -> pd.DataFrame:
    """The runs of an item at one scale, one a row, as far as it is known what they are."""
    if not one.has(ORIGINS):
        return pd.DataFrame({"run": one.summary["runs"]})
    runs, origins = one.table(ORIGINS), one.summary["provenance"]
    commits = [origins[int(number)]["commit"] for number in runs["origin"]] if "origin" in runs else ""
    runs = runs.assign(commit=commits)
    return runs[[name for name in ABOUT_RUNS if name in runs and runs[name].any()]].rename(columns=CALLED)


def paper_beside_ours(one: Saved) -> pd.DataFrame | None:
    """Paper | ours | difference | interval, one row a cell that was run; None where no table of accuracies was stored.

    Accuracies in percent. The interval is the 95 % one of `fedlib.analysis.uncertainty`, or "?" where it is not known.
    """
    if one.item.table is None or not one.has("cells"):
        return None
    cells = one.table("cells").to_dict("records")
    printed = {(cell["column"], cell["row"]): cell for cell in cells if cell["series"] == "paper"}
    tested, lines = tested_at(one.tidy), []
    for cell in cells:
        if cell["series"] == "paper":
            continue
        of_ours = cell["series"] == "ours"
        theirs = printed.get((cell["column"], cell["row"])) if of_ours else None
        lines.append({
            "setting": cell["column"], "method": cell["row"] + ("" if of_ours else f" ({cell['series']})"),
            "tested at": tested.get(cell["row"], ""), "paper": _printed(theirs) if theirs else "",
            "ours": f"{float(cell['mean']):.2f}",
            "difference": f"{float(cell['mean']) - float(theirs['mean']):+.2f}" if theirs else "",
            "95 % interval": _interval(cell), "seeds": cell["seeds"],
            RUNS: cell.get(COLUMN, ""),
        })  # fmt: skip
    return pd.DataFrame(lines) if lines else None


def _printed(cell: dict) -> str:
    return f"{float(cell['mean']):.2f}" + (f" ({float(cell['std']):.2f})" if cell["std"] else "")


def _interval(cell: dict) -> str:
    known = cell["low"] not in ("", "-inf")
    return f"{float(cell['low']):.1f} to {float(cell['high']):.1f}" if known else "?"


def commands(one: Saved) -> list[tuple[str, str]]:
    """Command lines that check an item at one scale, and what they do."""
    name, profile = one.item.name, one.summary["profile"]
    options = "" if profile == "quick" else f" --profile {profile}"
    for key, value in one.summary["changed"].items():
        text = ",".join(value) if isinstance(value, list) else value
        options += f" --set {shlex.quote(f'{key}={text}')}"
    made = f"fedlib reproduce {name}{options}"
    lines = [
        (made, f"{MAKES}; from nothing {duration(one.item.minutes[profile])} on 2 cores"),
        (f"fedlib why {name} --profile {one.place}", ASKS),
    ]
    if profile != "quick" and one.specs and one.opened.can_be_shown:
        lines.insert(0, (f"{made} --finished --no-notebooks", CHECKS))
    return lines


def duration(minutes: float) -> str:
    """A rough time in words."""
    units = (("days", 1440), ("hours", 60), ("minutes", 1))
    unit, size = next((pair for pair in units if minutes >= 1.5 * pair[1]), ("", 0))
    return f"about {minutes / size:.0f} {unit}" if unit else "about a minute"
