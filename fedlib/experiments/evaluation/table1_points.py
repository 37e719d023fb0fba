"""Table 1: every method at every evaluation point, from the same runs. Does the order of methods depend on it?"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pandas as pd

from fedlib import algorithms, figures
from fedlib.analysis import points
from fedlib.analysis.names import proper
from fedlib.analysis.points import POINTS, RECEIVED, TRAINED, TUNED1, TUNED5, at_points, changes, codes
from fedlib.analysis.tables import only
from fedlib.analysis.uncertainty import Interval, in_seeds, shared_seeds, units
from fedlib.claims import apart, below, decided, in_columns, not_tested, of_all, ours, under, verdict
from fedlib.claims.judges import each_apart
from fedlib.engine.result import RunResult
from fedlib.experiments.evaluation.task import MANY, TABLE, TABLE_1, another_is_first, changes_little
from fedlib.experiments.item import Found, Tables

GAIN, SHARE, NEAR = 10.0, 0.1, 2.0  # thresholds of ours: points, share of the pairs, points
CODES = ("pFedSim's code (2023)", "PFLlib (d832e76)", "FL-bench (06e658b)")  # of autumn 2025
ELSEWHERE = {  # the point at which each of them evaluates a method at the end, read in its code; "": it does not have
    # the method, or tests another model than it means to (pFedMe in both libraries, FedRoD in FL-bench) or than is
    # tested here (FedProto in FL-bench, by the clients' heads)
    **dict.fromkeys(("fedavg", "fedprox", "feddyn", "fedgen"), ("glob", "glob", "glob")),
    **dict.fromkeys(("fedbn", "fedper", "fedrep"), ("recv", "recv", "recv")),
    "fedpac": ("", "recv", "recv"), "fedrod": ("", "recv", ""), "fedproto": ("", "post", ""),
    **dict.fromkeys(("local", "fedfomo"), ("post", "post", "post")),
    "fedbabu": ("", "fine-tuned", "fine-tuned"), "perfedavg": ("", "fine-tuned for one step", "fine-tuned"),
    "fedamp": ("", "post", ""), "fedgh": ("", "recv", ""), "ffedap": ("agg", "", "post"),
    "clusterfl": ("", "", "glob"), "fedem": ("", "", "recv"), "pfedhn": ("", "", "glob"),
    "pfedsim": ("post", "", "post"),
}  # fmt: skip
OWN = "client's own"
STATISTICS = (OWN, OWN, f"by default averaged for models that are shared, for all else {OWN}")  # of batch norm


def nearest(tables) -> Tables:
    """The tables with only those methods of a column that have the most seeds, so that leaders are told by all."""
    tidy = tables["tidy"]
    seeds = tidy.groupby(["column", "row"])["seed"].transform("nunique")
    return {**tables, "tidy": tidy[seeds == seeds.groupby(tidy["column"]).transform("max")]}


def first_at(tables) -> pd.DataFrame:
    """The most accurate method at every point: column, point, method, accuracy, and its lead over the next one."""
    lines = []
    for point, found in at_points(nearest(tables)).items():
        for column in found.columns.unique(0):
            m = found[column].dropna(axis=1, how="all")
            order = m.iloc[0].sort_values(ascending=False).index
            lead = apart(m[order[0]] - m[order[1]]) if len(order) > 1 else ""
            lines.append((column, point, proper(order[0]), round(m[order[0]].iloc[0], 1), lead))
    return pd.DataFrame(lines, columns=["column", "point", "first", "accuracy", "lead over the runner-up"])


def label_prior(r: RunResult) -> float:
    """What always predicting a client's most frequent class in training would get right, in percent."""
    tests, train = r.arrays["tests"], r.arrays["counts"] - r.arrays["tests"]
    return round(100 * tests[np.arange(len(tests)), train.argmax(1)].sum() / tests.sum(), 1)


def by_protocol(tables) -> pd.DataFrame:
    """One row a method, for reviewers: the point at which its own paper or code tests it, its accuracy there, and what
    it would gain or lose if it were evaluated like the others."""
    found, lines = at_points(tables), []
    for row in dict.fromkeys(tables["tidy"]["row"]):
        own = {code: name for name, code in codes(row).items()}
        usual = algorithms.make(row).eval_points({})[0]
        line = {"method": proper(row), "primary evaluation point": usual}
        for column in dict.fromkeys(tables["tidy"]["column"]):
            cell = {point: m[column, row].iloc[0] for point, m in found.items() if (column, row) in m}
            base = cell.get(own.get(usual))
            line |= {f"{column}: accuracy there": "" if base is None else f"{base:.1f}"}
            gains = {p: f"{cell[p] - base:+.1f}" for p in POINTS if p in cell and base is not None}
            line |= {f"{column}: {point}": gains.get(point, "") for point in POINTS}
        lines.append(line)
    return pd.DataFrame(lines)


def elsewhere(rows: Iterable[str]) -> pd.DataFrame:
    """Where others' code evaluates these methods, and with which batch-norm statistics."""
    lines = [(row, *ELSEWHERE[row]) for row in rows if row in ELSEWHERE]
    return pd.DataFrame([*lines, ("batch-norm statistics", *STATISTICS)], columns=["method", *CODES])


def analyse(s: dict, found: Found) -> Tables:
    """Besides the table's: first, who leads at each point; flips, how many pairs reverse their order; protocols, by
    method; elsewhere, the same in others' code; _pairs: every pair."""
    tables = TABLE.analyse(s, found)
    changed = points.pairs(tables)
    more = {"flips": points.flips(changed), "protocols": by_protocol(tables), "_pairs": changed}
    more |= {"elsewhere": elsewhere(dict.fromkeys(tables["tidy"]["row"]))}
    first, prior = first_at(tables), {column: label_prior(r) for (_, column, _), r in found.items()}
    first = first.assign(**{"most frequent class": first["column"].map(prior)})  # of the partition, which all share
    return {**tables, "first": first, **more}


def shown(tables) -> pd.DataFrame:
    """What the figure shows: the accuracies, the methods in the order of the means after local training."""
    lines = [
        (column, row, point, *Interval.of(m).drawn)
        for point, found in at_points(tables).items() if point in POINTS for (column, row), m in found.items()
    ]  # fmt: skip
    found = pd.DataFrame(lines, columns=["task", "row", "kind", "mean", "low", "high"])
    trained = found["mean"].where(found["kind"] == TRAINED).groupby(found["row"]).transform("mean")
    return found.iloc[(-trained).argsort(kind="stable")]


# checks ---------------------------------------------------------------------------------------------------------------


def another_leads(tables):
    """In every column the best method before local training is below another one after local training."""
    found = at_points(nearest(tables))
    if lacks := [point for point in (RECEIVED, TRAINED) if point not in found]:
        return not_tested(f"missing runs: {', '.join(lacks)}")
    before, then = ({c: found[point][c] for c in found[RECEIVED].columns.unique(0)} for point in (RECEIVED, TRAINED))
    return another_is_first(before, then, " before local training; after local training")


def one_model_gains(tables):
    """Methods with a single global model gain more than GAIN points at Dir(0.1) by local training before the test."""
    found = changes(tables, "point", RECEIVED, TRAINED)
    gains = {row: gain for (column, row), gain in found.items() if column == "Dir(0.1)" and row in MANY}
    text = f"{each_apart(gains)}; threshold of {GAIN:g} points, set by us"
    return decided({row: gain - GAIN for row, gain in gains.items()}, text, unit="points")


def epochs_matter_little(tables):
    """Fine-tuning for five epochs in place of one changes no method by more than NEAR points."""
    found = {f"{column}: {row}": gain for (column, row), gain in changes(tables, "point", TUNED1, TUNED5).items()}
    if len(found) < 2:
        return not_tested("needs two methods that can be fine-tuned")
    counts = only(tables["tidy"], point=TUNED5).groupby(["column", "row"])["seed"].nunique()
    v = changes_little(found, NEAR, unit="points")
    return v if in_seeds(counts) == units(tables) else replace(v, over=in_seeds(counts))


def pairs_change(least: float):
    """A check that more than this share of all pairs reverse their order between before and after local training,
    significantly at both, in every column."""

    def check(tables):
        counted = before_and_after(tables["flips"])
        if counted.empty or len(shared_seeds(tables["tidy"], "row")) < 2:
            return not_tested("needs two seeds" if len(counted) else "nothing was run")
        texts = [f"{r.column}: {r.significantly} of {r.pairs} pairs" for r in counted.itertuples()]
        return verdict((counted["significantly"] > least * counted["pairs"]).all(), "; ".join(texts))

    return of_all(check)


def before_and_after(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of a table of moves on before local training and after local training."""
    return table[(table["from"] == RECEIVED) & (table["to"] == TRAINED)]


ITEM = TABLE.item(
    title="Evaluation, Table 1: every method at every evaluation point",
    claim="Which method is the best depends on when it is tested.",
    **TABLE_1,
    analyse=analyse,
    figure=lambda tables: figures.dots(
        shown(tables), POINTS, "accuracy, % (bars: 95 % CI)", figures.largest_move,
        prior=dict(zip(tables["first"]["column"], tables["first"]["most frequent class"])),
    ),  # fmt: skip
    shown={
        "first": "The best method at each point, its lead, and what predicting a client's most frequent class gives, %",
        "flips": "Pairs of methods that reverse their order from one evaluation point to another, and how many of them "
        "are significantly apart at both, on the seeds that all methods share",
        "protocols": "Accuracy where a method's own paper or code tests it, %, and the change in points elsewhere, on "
        "the seeds that all methods share",
        "elsewhere": "Where others' code evaluates a method (read by us at these commits), and with which statistics",
    },
    claims=(
        ours("The best method before local training is not the best after it, at either alpha.", of_all(another_leads)),
        ours("FedAvg, FedProx, FedDyn and FedGen, with a single global model, gain more than 10 points at Dir(0.1) by "
             "local training before the test.", of_all(one_model_gains)),
        ours("All fine-tuned for five epochs, no method is more than 2 points above FedAvg.",
             in_columns(lambda m: under(m.columns.drop("fedavg"), ["fedavg"], -NEAR)(m), ("fedavg",), point=TUNED5)),
        ours("More than a tenth of all pairs reverse their order between before and after local training, "
             "significantly at both.", pairs_change(SHARE)),
        ours("Fine-tuning for five epochs in place of one changes no method by more than 2 points.",
             of_all(epochs_matter_little)),
        ours("Both evaluated after local training, pFedSim is less than a point above FedPer.",
             below(["pfedsim"], ["fedper"], by=-1, point=TRAINED)),
    ),
)  # fmt: skip
