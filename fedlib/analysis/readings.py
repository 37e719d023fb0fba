"""How an accuracy is read off a run: at which round, which average, which evaluation point; and the clients' own, where
it has them. One table of accuracies, read off the same runs in several ways, beside the paper's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from fedlib.analysis.tables import spearman
from fedlib.analysis.uncertainty import Interval
from fedlib.engine.result import RunResult


@dataclass(frozen=True)
class Reading:
    """An accuracy read off a run's last round, a fraction. about: more columns of "tidy".

    values, weights: the clients' own and what each counts, [N], for readings of some clients only; None where they are
    not asked for, or the run does not hold them.
    """

    point: str
    headline: bool
    accuracy: float
    values: np.ndarray | None = None
    weights: np.ndarray | None = None
    about: dict = field(default_factory=dict)


BESIDE = {"client_mean": "client mean", "best": "best round"}  # what is read beside the headline, as a point


def last_round(metric: str = "pooled", beside: str = "") -> Callable[..., list[Reading]]:
    """The accuracy at every point that was evaluated: "pooled" over all test samples, or "client_mean". beside: what
    else is read at the headline, "client_mean" or "best", the highest of all evaluated rounds (`BESIDE`)."""

    def read(r: RunResult, column: str = "") -> list[Reading]:
        found = [Reading(h["point"], h["headline"], h[metric], *by_client(r, h["point"], metric)) for h in r.last]
        if beside == "best":
            found.append(Reading(BESIDE[beside], False, max(r.curve(metric)[1])))
        elif beside:
            found.append(Reading(BESIDE[beside], False, r.final(beside), *by_client(r, r.point, beside)))
        return found

    return read


def by_client(r: RunResult, point: str, metric: str) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Accuracies of the clients at a point and their weights in the metric, [N] each, or None twice."""
    found = r.by_client(point)
    if found is None:
        return None, None
    correct, tests = found
    return correct / tests, tests if metric == "pooled" else np.ones(len(tests))


Read = Callable[[RunResult, str], list[Reading]]  # of a run, for a column of a table


def at(metric: str, point: str | None = None) -> Read:
    """A metric after the last round, at the headline point, or at another one where the run has it."""

    def read(r: RunResult, column: str) -> list[Reading]:
        chosen = point if point and r.final(metric, point) == r.final(metric, point) else r.point
        return [Reading(chosen, True, r.final(metric, chosen))]

    return read


def of_curve(number: Callable[[list[float]], float]) -> Read:
    """A number of the accuracies over the rounds."""
    return lambda r, column: [Reading(r.point, True, float(number(r.curve()[1])))]


RULES: dict[str, Read] = {
    "primary: pooled, last round": at("pooled"),
    "client mean": at("client_mean"),
    "class-balanced accuracy, client mean": at("balanced"),
    "best round": of_curve(max),
    "mean of the last 2 evaluations": of_curve(lambda curve: np.mean(curve[-2:])),
    "after local training, where possible": at("pooled", "post"),
}


def reached(results: Sequence[RunResult], percent: float) -> float:
    """The first evaluated round in which the runs' mean accuracy is at least so many percent, NaN for none."""
    rounds, accuracy = results[0].curve()[0], np.mean([r.curve()[1] for r in results], 0)
    there = np.flatnonzero(100 * accuracy >= percent)
    return float(rounds[there[0]]) if len(there) else np.nan


# a table, read in several ways ----------------------------------------------------------------------------------------

FAR = 3.0  # points between a printed cell and ours from which it is looked into; a line of ours


def leads(rules: Mapping[str, pd.DataFrame], row: str, needs: Iterable[str]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """A row's place and its lead over the other one with the highest mean, one line a rule and column where all that
    are needed were run; and the margins over each other row, as draws."""
    lines, margins, needs = [], {}, {row, *needs}
    for rule, every in rules.items():
        for column in every.columns.unique(0):
            m = every[column]
            if needs - set(m):
                continue
            others = m.drop(columns=row)
            best = others.iloc[0].idxmax()
            place = int((others.iloc[0] > m[row].iloc[0]).sum()) + 1
            lines.append((rule, column, place, m[row].iloc[0], best, *Interval.of(m[row] - m[best]).row))
            margins |= {f"{rule}, {column}: {other}": m[row] - m[other] for other in others}
    columns = ["metric", "column", "rank", row, "best competitor", "lead", "low", "high"]
    return pd.DataFrame(lines, columns=columns), pd.DataFrame(margins)


def fit(rules: Mapping[str, pd.DataFrame], printed: pd.DataFrame) -> pd.DataFrame:
    """How near every rule comes to the printed cells: mean difference, mean distance, cells within FAR,
    Spearman's correlation."""
    paper, lines = printed.set_index(["column", "row"])["value"], []
    for rule, every in rules.items():
        for column in every.columns.unique(0):
            ours = every[column].iloc[0]
            known = [row for row in ours.index if (column, row) in paper.index]
            apart, theirs = ours[known] - paper[column][known], paper[column][known]
            rank = spearman(ours[known], theirs) if len(known) > 2 else np.nan
            lines.append((rule, column, len(known), apart.mean(), apart.abs().mean(), (apart.abs() <= FAR).sum(), rank))
    columns = ["metric", "column", "cells", "mean difference", "mean distance", "within 3 points", "rank correlation"]
    return pd.DataFrame(lines, columns=columns)


def far_cells(
    printed: pd.DataFrame, found: Mapping[tuple, RunResult], changed: Mapping[tuple, RunResult]
) -> pd.DataFrame:
    """Cells more than FAR points from the printed ones, and which way of reading the runs off comes closest to them.

    printed: row, column, value; found: runs by (row, column, seed); changed:
    by (what, row, column, seed), runs with one thing changed, which are read off as well. reached: see `reached`.
    """
    lines = []
    for cell in printed.itertuples():
        place = (cell.row, cell.column)
        own = [r for key, r in found.items() if key[:2] == place]
        ours = _mean(own)
        if not abs(ours - cell.value) > FAR:
            continue
        values = {point: _mean(own, "pooled", point) for point in sorted(h["point"] for h in own[0].last)}
        values["client mean"] = _mean(own, "client_mean")
        for what in dict.fromkeys(name for name, *where, _ in changed if tuple(where) == place):
            values[what] = _mean([r for key, r in changed.items() if key[:3] == (what, *place)])
        nearest = min(values, key=lambda name: abs(values[name] - cell.value))
        known = ", ".join(f"{name} {value:.2f}" for name, value in values.items())
        numbers = (cell.value, ours, ours - cell.value, known, nearest, reached(own, cell.value))
        lines.append((cell.column, cell.row, *numbers))
    columns = ["column", "method", "paper", "ours", "difference", "by other metrics", "closest", "reached in round"]
    return pd.DataFrame(lines, columns=columns)


def _mean(results: list[RunResult], *reading: str) -> float:
    """The mean accuracy of these runs in percent, NaN of none."""
    return 100 * float(np.mean([r.final(*reading) for r in results])) if results else np.nan
