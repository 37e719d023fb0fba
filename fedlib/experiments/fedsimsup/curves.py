"""Accuracy over the rounds, for the figures that show it: tables of curves, and their picture."""

from collections.abc import Mapping

import pandas as pd

from fedlib import figures
from fedlib.engine.result import RunResult


def over_rounds(found: Mapping[tuple[str, str, int], RunResult]) -> pd.DataFrame:
    """One row a run and evaluated round: column, row, seed, round, accuracy (mean over clients); found: by row, column
    and seed."""
    lines = [
        (column, row, seed, round, accuracy)
        for (row, column, seed), r in found.items()
        for round, accuracy in zip(*r.curve("client_mean"))
    ]
    return pd.DataFrame(lines, columns=["column", "row", "seed", "round", "accuracy"])


def by_round(tidy: pd.DataFrame, rounds: Mapping[str, int]) -> pd.DataFrame:
    """Mean over seeds, in percent, after some rounds (by title), one row a column and row of the table."""
    means = 100 * tidy.groupby(["column", "row", "round"], sort=False)["accuracy"].mean()
    shown = {title: means.xs(t, level="round") for title, t in rounds.items()}
    return pd.DataFrame(shown).round(2).reset_index().rename(columns={"column": "task"})


def picture(tables: Mapping[str, pd.DataFrame]):
    """One panel a column, one line a row."""
    panels: dict = {}
    for (column, row, _), own in tables["tidy"].groupby(["column", "row", "seed"], sort=False):
        curve = (own["round"].tolist(), own["accuracy"].tolist())
        panels.setdefault(column, {}).setdefault(row, []).append(curve)
    return figures.accuracy_by_round(panels)
