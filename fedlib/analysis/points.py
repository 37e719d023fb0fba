"""Accuracies by evaluation point: what a method's points are called, and which pairs of methods reverse their order."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pandas as pd

from fedlib import algorithms
from fedlib.analysis.accuracies import in_common, means
from fedlib.analysis.readings import Reading
from fedlib.analysis.uncertainty import Interval, draws
from fedlib.engine.result import RunResult
from fedlib.spec import RECOMPUTED

RECEIVED, TRAINED = "before local training", "after local training"
TUNED1, TUNED5 = "fine-tuned for 1 epoch", "fine-tuned for 5 epochs"
POINTS = (RECEIVED, TRAINED, TUNED1, TUNED5)
ANEW = "before local training, statistics recomputed"
EPOCHS = {TUNED1: "ft(1)", TUNED5: "ft(5)"}
ANCHORED = ("fedamp",)  # a client trains its own model; what the server sends pulls at it, and is not tested
MOVES = ((RECEIVED, TRAINED), (RECEIVED, TUNED1), (TRAINED, TUNED1), (TUNED1, TUNED5))  # from one point to another


def first_point(method: str) -> str:
    """The code of the point before local training: the client's aggregate, its share of the model, or the global model;
    empty where the server sends no model."""
    points = algorithms.find(method).points
    return next((code for code in ("agg", "recv", "glob") if code in points), "")


def codes(method: str) -> dict[str, str]:
    """The method's evaluation points by what they are called here."""
    own, first = algorithms.find(method).points, first_point(method)
    found = {RECEIVED: first} if first else {}
    found |= {TRAINED: "post"} if "post" in own else {}
    return found | (EPOCHS if "ft" in own else {})


def named(r: RunResult, row: str, read: list[Reading]) -> list[Reading]:
    """What was read, with points as they are called here."""
    names = {code: name for name, code in codes(r.spec.method).items()}
    names |= {f"{code}{RECOMPUTED}": ANEW for code, name in names.items() if name == RECEIVED}
    shown = (TRAINED,) if r.spec.method in ANCHORED else (*POINTS, ANEW)
    return [replace(one, point=names[one.point]) for one in read if names[one.point] in shown]


def at_points(tables) -> dict[str, pd.DataFrame]:
    """Draws of the accuracies in percent by (column, row), at every point that was evaluated; of shared seeds."""
    shared = in_common(tables)
    return {point: means(shared, point=point) for point in (*POINTS, ANEW) if (shared["tidy"]["point"] == point).any()}


def changes(tables, by: str, here, there, parts=("column", "row"), share: float = 1.0) -> pd.DataFrame:
    """Draws of what one value of the column `by` of "tidy" adds to another one, or to a share of it, in points, by
    `parts`: of differences within a run or a seed, so that what a seed does to both cancels."""
    frame = tables["tidy"][tables["tidy"][by].isin((here, there))]
    wide = frame.pivot_table(index=[*parts, "seed"], columns=by, values="accuracy", sort=False)
    if wide.shape[1] < 2 or (wide := wide.dropna()).empty:
        return pd.DataFrame()
    return 100 * draws((wide[there] - share * wide[here]).rename("change").reset_index(), "change", list(parts))


def pairs(tables) -> pd.DataFrame:
    """What changing the point does to every pair of methods: column, from, to, a, b, the difference a - b at both
    points, whether its sign changes, and whether both differences are significant (their 95 % intervals exclude 0)."""
    found, lines = at_points(tables), []
    for here, there in MOVES:
        if here not in found or there not in found:
            continue
        for column in found[here].columns.unique(0):
            m, n = found[here][column], found[there].get(column, pd.DataFrame())
            for a, b in combinations([row for row in m if row in n], 2):
                i, j = Interval.of(m[a] - m[b]), Interval.of(n[a] - n[b])
                sure = all(one.known and one.low * one.high > 0 for one in (i, j))
                lines.append((column, here, there, a, b, i.value, j.value, i.value * j.value < 0, sure))
    names = ["column", "from", "to", "a", "b", "difference", "difference then", "changes", "significant"]
    return pd.DataFrame(lines, columns=names)


def flips(changed: pd.DataFrame) -> pd.DataFrame:
    """How many pairs reverse their order from one point to another, and how many of them significantly at both."""
    known = changed.assign(both=changed["changes"] & changed["significant"])
    counted = known.groupby(["column", "from", "to"], sort=False).agg(
        pairs=("changes", "size"), change=("changes", "sum"), significantly=("both", "sum")
    )
    return counted.reset_index()
