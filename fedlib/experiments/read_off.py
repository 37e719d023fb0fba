"""One table of accuracies, read off the same runs in several ways, beside the paper's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from fedlib.analysis.readings import RULES, reached
from fedlib.analysis.tables import spearman
from fedlib.analysis.uncertainty import Interval
from fedlib.engine.result import RunResult
from fedlib.experiments.accuracy_table import AccuracyTable
from fedlib.experiments.claims import means

FAR = 3.0  # points between a printed cell and ours from which it is looked into; a line of ours


def by_rule(table: AccuracyTable, s: dict, results: Sequence[RunResult]) -> dict[str, pd.DataFrame]:
    """The accuracies in percent of every rule, as draws (`claims.means`)."""
    return {rule: means(replace(table, read=read).analyse(s, results)) for rule, read in RULES.items()}


def leads(
    found: Mapping[str, pd.DataFrame], row: str, needs: Iterable[str]
) -> tuple[pd.DataFrame, dict[str, pd.Series]]:
    """A row's place and its lead over the best other one, one line a rule and column where all that are needed were run; and the
    margins over each other row, as draws."""
    lines, margins, needs = [], {}, set(needs)
    for rule, every in found.items():
        for column in every.columns.unique(0):
            m = every[column]
            if needs - set(m):
                continue
            others = m.drop(columns=row)
            best, lead = others.iloc[0].idxmax(), Interval.of(m[row] - others.max(axis=1))
            place = int((others.iloc[0] > m[row].iloc[0]).sum()) + 1
            lines.append((rule, column, place, m[row].iloc[0], best, lead.value, lead.low, lead.high))
            margins |= {f"{rule}, {column}: {other}": m[row] - m[other] for other in others}
    columns = ["rule", "column", "place", row, "best other", "lead", "low", "high"]
    return pd.DataFrame(lines, columns=columns), margins


def fit(found: Mapping[str, pd.DataFrame], printed: pd.DataFrame) -> pd.DataFrame:
    """How near every rule comes to the printed cells: mean difference, mean distance, cells within FAR, Spearman's rank correlation."""
    paper, lines = printed.set_index(["column", "row"])["value"], []
    for rule, every in found.items():
        for column in every.columns.unique(0):
            ours = every[column].iloc[0]
            known = [row for row in ours.index if (column, row) in paper.index]
            apart, theirs = ours[known] - paper[column][known], paper[column][known]
            rank = spearman(ours[known], theirs) if len(known) > 2 else np.nan
            lines.append((rule, column, len(known), apart.mean(), apart.abs().mean(), (apart.abs() <= FAR).sum(), rank))
    columns = ["rule", "column", "cells", "mean difference", "mean distance", "within 3", "rank correlation"]
    return pd.DataFrame(lines, columns=columns)


def far_cells(
    table: AccuracyTable, s: dict, results: dict[str, RunResult], changed: Sequence[tuple[str, str, str, RunResult]]
) -> pd.DataFrame:
    """Cells more than FAR points from the printed ones, and which way of reading the runs off comes closest to them.

    changed: (what, column, row, run) of runs with one thing changed, which are read off as well. reached: see `reached`.
    """
    lines, runs = [], table.runs(s)
    for cell in table.printed(s).itertuples():
        own = [
            results[spec.id]
            for (row, column, _), spec in runs.items()
            if (row, column) == (cell.row, cell.column) and spec.id in results
        ]
        ours = 100 * np.mean([r.final() for r in own]) if own else np.nan
        if not abs(ours - cell.value) > FAR:
            continue
        points = sorted({h["point"] for h in own[0].history if h["round"] == own[0].spec.rounds})
        values = {point: 100 * np.mean([r.final("pooled", point) for r in own]) for point in points}
        values["mean over clients"] = 100 * np.mean([r.final("client_mean") for r in own])
        for what in dict.fromkeys(name for name, *where, _ in changed if where == [cell.column, cell.row]):
            values[what] = 100 * np.mean(
                [r.final() for name, *where, r in changed if (name, *where) == (what, cell.column, cell.row)]
            )
        nearest = min(values, key=lambda name: abs(values[name] - cell.value))
        known = ", ".join(f"{name} {value:.2f}" for name, value in values.items())
        lines.append(
            (cell.column, cell.row, cell.value, ours, ours - cell.value, known, nearest, reached(own, cell.value))
        )
    columns = ["column", "method", "paper", "ours", "difference", "read off", "nearest", "reached"]
    return pd.DataFrame(lines, columns=columns)
