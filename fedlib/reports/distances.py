"""How far the stored accuracies are from the reported ones, and how similar the methods' orders are: one row per table
and scale. Everything is computed from the stored runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pandas as pd

from fedlib.analysis.accuracies import in_common, means, ranks
from fedlib.analysis.names import proper
from fedlib.engine.result import RunResult
from fedlib.experiments import OpenItem, about, find, names
from fedlib.experiments.accuracy_table import AccuracyTable
from fedlib.experiments.paper_numbers import paper_table
from fedlib.reports.report import markdown

LARGER = ("reduced", "paper")  # scales whose accuracies can be put beside the printed ones
MEASURED = ("ours", "distance", "mean", "ranks, personalised", "ranks, all")
CORES = 2  # for which an item's minutes are
TEXT = """# Distances from the papers

Each row is a reported table of accuracies, in a profile whose numbers can be compared with it. *Reported*: how many of
its cells have a number, over all data sets. *Ours*: how many of them we have on the same data. *Distance*: the median
absolute difference from the reported cell, in points of accuracy; *mean*: the mean difference, ours minus reported.
*Ranks*: Spearman's rank correlation with the reported order, of the methods not evaluated with a server's model
(*personalised*; Local is among them) and of all: the median over the columns that have at least three methods, with the
lowest and the highest. *Runs*: finished, of those planned. A run that diverged counts as an accuracy of 0 in the ranks,
on the seeds that the methods of a column have in common; it has no number, and is left out of the distances.
*Core-hours*: an estimate for all runs of the row. *Not run*: data sets with reported cells but no stored run.

Tables that hold no accuracies (pFedSim's 2, 4, 5, 7 and 9) are compared in [the report on pFedSim](pfedsim.md).
`fedlib report --scoreboard` writes this page from the stored runs."""


def page() -> str:
    """The distances of all items that are tables of the papers' accuracies, in Markdown, as results/distances.md."""
    items = [item for name in names() if about(name.split("/")[0])[2] and (item := find(name)).table]
    rows = [line(OpenItem(item, scale)) for item in items for scale in LARGER if scale in item.settings]
    return f"{TEXT}\n\n{markdown(pd.DataFrame(rows))}\n"


def line(opened: OpenItem) -> dict[str, str]:
    """The row of an open item, as texts; only stored runs are read."""
    item, table, s = opened.item, opened.item.table, opened.settings
    table = replace(table, numbers=table.numbers[:1])  # whose distances these are; others are shown beside
    by_id = {spec.id: opened.store.get(spec) for spec in opened.specs}
    stored = {key: r for key, spec in opened.runs.items() if (r := by_id[spec.id])}
    done = [r.status == "finished" for r in by_id.values() if r]
    printed = paper_table(table.paper, *table.numbers).dropna(subset=["value"])
    there = {spec.dataset for spec in opened.specs if by_id[spec.id]}
    not_run = [name for name in printed["dataset"].dropna().unique() if name not in there]
    found = measured(table, s, {key: r for key, r in stored.items() if len(key) == 3})
    return {
        "table": f"[`{item.name}`](../notebooks/{item.name}.ipynb)",
        "scale": opened.profile,
        "reported": str(len(printed)),
        **found,
        "runs": f"{sum(done)} of {len(by_id)}" if done else f"not run (0 of {len(by_id)})",
        "diverged": str(len(done) - sum(done)),
        "core-hours": f"{item.minutes[opened.profile] * CORES / 60:,.1f}",
        "not run": proper(", ".join(not_run)),
        "smaller than in the paper": item.smaller_at(opened.profile) or ("data sets not run" if not_run else "nothing"),
    }


def measured(table: AccuracyTable, s: dict, stored: Mapping[tuple, RunResult]) -> dict[str, str]:
    """ours, distance, mean, ranks of the personalised methods and of all methods, as texts, "" where there is nothing
    to compare; stored: the runs by row, column and seed, those that diverged among them."""
    finished = {key: r for key, r in stored.items() if r.status == "finished"}
    lost = pd.DataFrame([key for key in stored if key not in finished], columns=["row", "column", "seed"])
    tables = {"_printed": table.printed(s), "tidy": table.read_off(s, finished)["tidy"]}
    theirs, ours = table.data(s)
    if ours not in (theirs, ""):
        on = f" ({ours}{theirs and ', not '}{theirs})" if stored else ""
        return dict.fromkeys(MEASURED, "") | {"ours": proper(f"0{on}")}
    ours = means(_exact(tables, table), **table.where).iloc[0]
    printed = tables["_printed"].set_index(["column", "row"])["value"]
    gaps = (ours - printed).dropna() if len(ours) else pd.Series(dtype=float)
    one_model = set(tables["tidy"].query("headline and point == 'glob'")["row"])
    gone = {row: r.spec for (row, *_), r in stored.items() if r.status != "finished"}
    one_model |= {row for row, s in gone.items() if (s.eval_points or s.algorithm.eval_points({}))[0] == "glob"}
    tidy = pd.concat([tables["tidy"], lost.assign(accuracy=0.0, headline=True, point="", **table.where)])
    every = {**tables, "tidy": tidy}
    personal = {name: frame[~frame["row"].isin(one_model)] for name, frame in every.items()}
    distance, mean = (f"{gaps.abs().median():.1f}", f"{gaps.mean():+.1f}") if len(gaps) else ("", "")
    return dict(zip(MEASURED, (str(len(gaps)), distance, mean, _ranks(personal, table), _ranks(every, table))))


def _exact(tables: dict[str, pd.DataFrame], table: AccuracyTable) -> dict[str, pd.DataFrame]:
    """The means over seeds at the headline, as exact numbers."""
    by = ["column", "row", "headline", *table.where]
    own = tables["tidy"][tables["tidy"]["headline"].astype(bool)]
    return {**tables, "tidy": own.groupby(by, sort=False)["accuracy"].mean().reset_index()}


def _ranks(tables: dict[str, pd.DataFrame], table: AccuracyTable) -> str:
    """ "0.86 (0.60 to 0.98)": the median over columns, the lowest and the highest; "" without any."""
    found = ranks(_exact(in_common(tables), table), table.where)["rank_correlation"].dropna()
    if not len(found):
        return ""
    ends = f" ({found.min():.2f} to {found.max():.2f})" if len(found) > 1 else ""
    return f"{found.median():.2f}{ends}"
