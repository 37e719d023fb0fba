"""Table 2: which batch-norm statistics? Each client's own, averaged ones, recomputed ones, or no batch norm at all."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pandas as pd

from fedlib import figures
from fedlib.analysis.accuracies import in_common
from fedlib.analysis.names import proper
from fedlib.analysis.points import ANEW, RECEIVED, TRAINED, changes
from fedlib.analysis.uncertainty import Interval, draws
from fedlib.claims import apart, decided, not_tested, of_all, ours
from fedlib.experiments.evaluation import task
from fedlib.experiments.evaluation.task import SETTINGS
from fedlib.experiments.item import Found, Tables, leaving_out, per_profile
from fedlib.experiments.pfedsim import task as pfedsim
from fedlib.experiments.pfedsim.task import DIRICHLET

OWN, AVERAGED, RECOMPUTED, NONE = KINDS = (
    "client's own", "averaged over participants", "recomputed on the client's data", "no batch norm")  # fmt: skip
RUNS = {OWN: {}, AVERAGED: {"bn_stats": "global"}, NONE: {"model": "lenet5", "linear_layers": 3}}
COLUMNS = {f"{title}, {kind}": (title, kind) for title in DIRICHLET for kind in RUNS}
METHODS = ("local", "fedavg", "fedbn", "fedper", "fedrep", "fedfomo", "ffedap", "pfedsim")
MIXED = ("fedavg", "fedper", "pfedsim")  # whose clients receive what others have trained
FEW = (*MIXED, "fedbn")
NEAR = 1.0  # point, a threshold of ours


def of_column(s: dict, column: str) -> dict:
    """A column's runs are Table 1's, but for whose statistics."""
    return task.of_column(s, column, **RUNS[COLUMNS[column][1]])


def seeds(s: dict, row: str, column: str) -> int:
    """FedBN without batch norm is FedAvg."""
    return 0 if row == "fedbn" and COLUMNS[column][1] == NONE else s["seeds"]


TABLE = replace(task.TABLE, columns=tuple(COLUMNS), task=of_column, seeds=seeds)


def at(tables, point: str) -> dict[str, pd.DataFrame]:
    """ "tidy" at a point, with task and kind of statistics; recomputed ones are of what clients received."""
    tidy = in_common(tables)["tidy"]
    kinds, tasks = (tidy["column"].map(lambda column, k=k: COLUMNS[column][k]) for k in (1, 0))
    anew = (tidy["point"] == ANEW) & (kinds == OWN) & (point == RECEIVED)
    named = tidy.assign(task=tasks, kind=kinds.mask(anew, RECOMPUTED))
    return {"tidy": named[anew | (named["point"] == point)]}


def by_statistics(tables, point: str = RECEIVED) -> pd.DataFrame:
    """Draws in percent by (task, row, statistics), at a point."""
    frame, found = at(tables, point)["tidy"], {}
    for kind, own in frame.groupby("kind", sort=False):
        drawn = 100 * draws(own, "accuracy", ["task", "row"])
        found |= {(where, row, kind): m for (where, row), m in drawn.items()}
    return pd.DataFrame(found)


def shown(tables, point: str = RECEIVED) -> pd.DataFrame:
    """task, row, kind of statistics, mean, low, high in percent."""
    lines = [(*key, *Interval.of(m).drawn) for key, m in by_statistics(tables, point).items()]
    return pd.DataFrame(lines, columns=["task", "row", "kind", "mean", "low", "high"])


def analyse(s: dict, found: Found) -> Tables:
    """Besides the table's: received and trained, accuracy by statistics at the two points."""
    tables = TABLE.analyse(s, found)
    wide = {}
    for name, point in (("received", RECEIVED), ("trained", TRAINED)):
        long = shown(tables, point)
        wide[name] = long.pivot_table(index="row", columns=["task", "kind"], values="mean", sort=False).round(1)
        wide[name] = wide[name].set_axis([f"{a}, {b}" for a, b in wide[name]], axis=1).reset_index()
    return {**tables, **wide, "_shown": shown(tables)}


def gains(tables, of: str, over: str, rows, point: str = RECEIVED):
    """By task and row (of these, or of all that were run): what statistics `of` one kind add to those of another, in
    points; and which rows are missing."""
    m = changes(at(tables, point), "kind", over, of, ("task", "row"))
    lacks = [row for row in rows if not any((where, row) in m for where in DIRICHLET)]
    return {f"{where}: {row}": gain for (where, row), gain in m.items() if row in (rows or (row,))}, lacks


def judged(judge, of: str, over: str, rows, point: str = RECEIVED):
    """A check by what statistics of one kind add to those of another for all of these rows."""

    def check(tables):
        found, lacks = gains(tables, of, over, rows, point)
        if lacks or not found:
            return not_tested(f"missing runs: {', '.join(lacks)}" if lacks else "nothing was run")
        return judge(found)

    return of_all(check)


def better(found):
    """All of these gains are above 0."""
    return decided(found, ", ".join(f"{name} {apart(gap)}" for name, gap in found.items()), equal=NEAR, unit="points")


alike = partial(task.changes_little, near=NEAR)


def answer(tables) -> str:
    """What the models that clients receive, with averaged statistics, are relative to FedAvg after local training."""
    before, after = at(tables, RECEIVED)["tidy"], at(tables, TRAINED)["tidy"]
    fedavg = after[(after["row"] == "fedavg") & (after["kind"] == OWN)]
    rivals = [fedavg.assign(row=row, kind=TRAINED) for row in ("fedper", "pfedsim")]
    leads = changes({"tidy": pd.concat([before, *rivals])}, "kind", TRAINED, AVERAGED, ("task", "row"))
    if leads.empty:
        return ""
    said = "Not among the claims: before local training with averaged statistics, minus FedAvg after local training"
    texts = [f"{where}: {proper(row)} {apart(lead)}" for (where, row), lead in leads.items()]
    return f"{said}, in points: {', '.join(texts)}."


def another_is_first(tables):
    """The best method before local training with own statistics is not the best with averaged ones, at both alphas."""
    m = by_statistics(tables)
    by_kind = [{where: pd.DataFrame({row: m[at, row, own] for at, row, own in m if (at, own) == (where, kind)})
                for where in DIRICHLET} for kind in (OWN, AVERAGED)]  # fmt: skip
    return task.another_is_first(*by_kind, "; with averaged ones")


ITEM = TABLE.item(
    title="Evaluation, Table 2: which batch-norm statistics",
    claim="Whose batch-norm statistics a model has changes its accuracy before local training.",
    smaller=f"{pfedsim.SMALLER}; four methods (`paper`: {len(METHODS)})",
    settings=per_profile(leaving_out(SETTINGS, "more_seeds"), methods=[None, FEW, METHODS]),
    minutes={"smoke": 0.2, "quick": 1, "paper": 180},
    analyse=analyse,
    answer=answer,
    figure=lambda tables: figures.dots(
        tables["_shown"], KINDS, "accuracy before local training, % (bars: 95 % CI)", figures.largest_gap
    ),
    shown={
        "received": "Accuracy before local training, by statistics, %",
        "trained": "Accuracy after local training, by statistics, %",
    },
    claims=(
        ours("Averaged batch-norm statistics improve the received model: FedAvg, FedPer and pFedSim are more accurate "
             "with them than with each client's own statistics, at both alphas.", judged(better, AVERAGED, OWN, MIXED)),
        ours("Statistics recomputed on a client's training data do as well: with them FedAvg, FedPer and "
             "pFedSim are within a point of their accuracy with averaged ones.",
             judged(alike, RECOMPUTED, AVERAGED, MIXED)),
        ours("After local training it makes no difference: own and averaged ones are within a point for every method.",
             judged(alike, OWN, AVERAGED, (), TRAINED)),
        ours("Without batch norm FedAvg's model is more accurate before local training than with clients' own "
             "statistics.", judged(better, NONE, OWN, ("fedavg",))),
        ours("The best method before local training with clients' own statistics is not the best with averaged ones.",
             of_all(another_is_first)),
    ),
)  # fmt: skip
