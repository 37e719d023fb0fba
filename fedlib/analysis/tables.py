"""Small tools for tables: selections of rows, means as text."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd


def only(frame: pd.DataFrame, **values) -> pd.DataFrame:
    """The rows whose columns have the given values."""
    for column, value in values.items():
        frame = frame[frame[column] == value]
    return frame


def mean_std(values: Iterable[float]) -> str:
    """ "mean (std)" over seeds, std with one degree of freedom less; the mean alone for one seed."""
    values = pd.Series(list(values), dtype=float)
    digits = ".3f" if values.abs().max() >= 0.01 else ".2g"
    spread = f" ({values.std(ddof=1):{digits}})" if len(values) > 1 else ""
    return f"{values.mean():{digits}}{spread}"


def span(values: Iterable[float], form: str = ".0f") -> str:
    """Mean and range over draws: "465 (430 to 512)"."""
    values = pd.Series(list(values), dtype=float)
    low, high = f"{values.min():{form}}", f"{values.max():{form}}"
    return f"{values.mean():{form}}" if low == high else f"{values.mean():{form}} ({low} to {high})"


def listed(series: pd.Series, form: str = ".1f") -> str:
    """ "a 12.3, b 4.5"."""
    return ", ".join(f"{name} {value:{form}}" for name, value in series.items())


def spearman(a, b) -> float:
    """Rank correlation."""
    from scipy.stats import spearmanr  # here, because it takes a second that most commands need not wait

    return float(spearmanr(a, b).statistic)
