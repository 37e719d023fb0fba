"""Small tools for tables: from runs to rows, selections of rows, means as text."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

import numpy as np
import pandas as pd

from fedlib.engine.result import RunResult

Rows = pd.DataFrame | Mapping[str, object]  # a table, or one row


class Found(dict[Hashable, RunResult]):
    """Results by what an item calls a run. diverged: the keys of runs that did, which have none."""

    diverged: frozenset = frozenset()


def why_none(found: Mapping, keys: Sequence[Hashable], applies: bool = True) -> str:
    """Why a table has no number of these runs: one of three words. What was run, but has none, does not apply."""
    ends = {found[key].status for key in keys if key in found}
    ends |= {"diverged" for key in keys if key in getattr(found, "diverged", ())}
    if not applies or "finished" in ends:
        return "does not apply"
    return "diverged" if ends else "not run"


def rows_of(found: Mapping[tuple, RunResult], names: Sequence[str], of: Callable[[RunResult], Rows]) -> pd.DataFrame:
    """What `of` makes of every run, below each other; the parts of a run's key stand in the columns `names`, which come
    first."""
    made = ((key, of(r)) for key, r in found.items())
    frames = [
        (rows if isinstance(rows, pd.DataFrame) else pd.DataFrame([rows])).assign(**dict(zip(names, key)))
        for key, rows in made
    ]
    frame = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=list(names))
    return frame[[*names, *frame.columns.drop(list(names))]]


def by_pair(**matrices: np.ndarray) -> pd.DataFrame:
    """One row an ordered pair of clients: client, other, and each matrix's number; matrices [N, N]."""
    i, j = np.nonzero(~np.eye(len(next(iter(matrices.values()))), dtype=bool))
    return pd.DataFrame({"client": i, "other": j, **{name: matrix[i, j] for name, matrix in matrices.items()}})


def described(
    frame: pd.DataFrame, by: str | Sequence[str], **columns: Callable[[pd.DataFrame], object]
) -> pd.DataFrame:
    """One row a group, in the order of the frame: its name or names,
    and what each function makes of the group's rows."""
    names = [by] if isinstance(by, str) else list(by)
    lines = [(*key, *(of(own) for of in columns.values())) for key, own in frame.groupby(names, sort=False)]
    return pd.DataFrame(lines, columns=[*names, *columns])


def mean_stds(titles: Mapping[str, str]) -> dict[str, Callable[[pd.DataFrame], str]]:
    """For `described`: `mean_std` of columns; titles: what they are to be called, by name."""
    return {title: (lambda own, name=name: mean_std(own[name])) for name, title in titles.items()}


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


def named(series: pd.Series, form: str = ".1f") -> str:
    """ "12.3 (a), 4.5 (b)"."""
    return ", ".join(f"{value:{form}} ({name})" for name, value in series.items())


def spearman(a, b) -> float:
    """Rank correlation."""
    from scipy.stats import spearmanr  # here, because it takes a second that most commands need not wait

    return float(spearmanr(a, b).statistic)
