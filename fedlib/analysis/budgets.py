"""Privacy budgets of tables of runs, and how a budget grows with the rounds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pandas as pd

from fedlib.analysis.tables import only
from fedlib.engine.privacy_budget import budgets
from fedlib.engine.result import RunResult
from fedlib.privacy.accounting import epsilon


def spent(runs: Mapping[tuple[str, str, int], RunResult], delta: float) -> pd.DataFrame:
    """ε of runs by row, column and seed: column, row, seed, epsilon (mean over clients), epsilon_max.

    Local training releases nothing. Needs no data set: finished runs know how many samples their clients have.
    """
    lines = []
    for (row, column, seed), r in runs.items():
        local = r.spec.method == "local"
        each = np.zeros(1) if local else budgets(r.spec, delta, samples=r.arrays["counts"].sum(1))
        lines.append((column, row, seed, float(each.mean()), float(each.max())))
    return pd.DataFrame(lines, columns=["column", "row", "seed", "epsilon", "epsilon_max"])


def largest(budgets: pd.DataFrame) -> pd.Series:
    """The largest ε of a client, by row of a table."""
    return budgets.groupby("row", sort=False)["epsilon_max"].max()


def in_words(budgets: pd.DataFrame, **where) -> str:
    """ε as text: mean over clients and seeds, and the largest; "" where no run has one."""
    own = only(budgets, **where)
    if own.empty:
        return ""
    mean, most = own["epsilon"].mean(), own["epsilon_max"].max()
    return "∞" if np.isinf(most) else f"{mean:.2f} (max {most:.2f})"


def by_round(
    ways: Mapping[str, tuple[float, int, str]], sigmas: Iterable[float], rounds: Iterable[int], delta: float
) -> pd.DataFrame:
    """ε after so many rounds: setting, sigma, round, epsilon. ways: by name sampling rate, steps a round, and bound."""
    lines = [
        (name, sigma, t, epsilon(sigma, rate, t * steps, delta, bound))
        for name, (rate, steps, bound) in ways.items()
        for sigma in sigmas
        for t in rounds
    ]
    return pd.DataFrame(lines, columns=["setting", "sigma", "round", "epsilon"])
