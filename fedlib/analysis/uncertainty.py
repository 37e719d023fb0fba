"""How certain a mean or a difference is: 95 % confidence intervals over seeds.

What is estimated. The unit that is repeated is the run: one seed, with its own initial parameters, batches and
participants. Where the seed draws the partition, too, an interval says what other seeds *and new partitions* would
give; where all seeds have the same clients (the paper's own), what other seeds would give *on these clients*. The
accuracies of the clients of one run are averaged first: they share a network, so their spread says nothing of another
run, and one seed gives a number without an interval. What ranges over tasks says so.

How. Methods are compared on the same seeds, and what a seed does to all of them cancels in their difference: the
interval of a difference is that of a paired t test. With three seeds a variance has two degrees of freedom and is
hardly known, so in columns of five rows and more it borrows strength from the table's others, as in G. K. Smyth,
"Linear models and empirical Bayes methods", Stat. Appl. Genet. Mol. Biol. 3(1), 2004 (a moderated t test): the variance
is a mean of the pair's own and of the table's, by their degrees of freedom. How many the table's has follows from how
alike the variances of its rows are.

Intervals are handed on as draws: the estimates, then what they could be off by, jointly for all groups. Differences,
means and maxima of draws have intervals, too, and several of them a common one (`simultaneous`).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np
import pandas as pd

DRAWS = 4096
LEVEL = 0.95
LENDERS = 5  # groups of several seeds that a column needs before they lend each other their variances


@dataclass(frozen=True)
class Interval:
    """A number and its interval, -inf to inf where nothing is known; exact: there is nothing to be uncertain about."""

    value: float
    low: float
    high: float
    exact: bool = False

    @classmethod
    def of(cls, draws: pd.Series) -> Interval:
        """The estimate is the first number, the others are its draws; without any it is exact."""
        value, rest = float(draws.iloc[0]), draws.iloc[1:].to_numpy(dtype=float)
        if not len(rest):
            return cls(value, value, value, exact=True)
        if np.isnan(rest).any():
            return cls(value, -inf, inf)
        low, high = np.quantile(rest, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        return cls(value, float(low), float(high))

    @property
    def known(self) -> bool:
        """Whether there is an interval: more than one seed."""
        return self.low > -inf

    @property
    def row(self) -> tuple[float, float, float]:
        """Value, low and high: the numbers of a row of a table."""
        return self.value, self.low, self.high

    @property
    def drawn(self) -> tuple[float, float, float]:
        """The same for a figure, in which what is not known has no length."""
        return self.row if self.known else (self.value,) * 3

    def text(self, form: str = "+.1f") -> str:
        """ "+1.3 [-0.2, +2.8]", "+1.3 (one seed)"."""
        if self.exact:
            return f"{self.value:{form}}"
        ends = f"[{self.low:{form}}, {self.high:{form}}]" if self.known else "(one seed)"
        return f"{self.value:{form}} {ends}"


def draws(frame: pd.DataFrame, value: str, by: Sequence[str], weight: str = "") -> pd.DataFrame:
    """Means over seeds of `value` by group, [1 + DRAWS, groups]: the estimates, then draws of what they could be.

    frame: rows of a group and seed are averaged, but NaN; weight: the column of their weights (default: equal). Groups
    that differ in the first of several `by` (columns of a table) have errors of their own, and lend each other their
    variances. A group of one seed has draws of NaN.
    """
    known = frame[[*by, "seed"]].assign(weight=frame[weight] if weight else 1.0, value=frame[value])
    known["weight"] = known["weight"].where(known["value"].notna())
    known["value"] *= known["weight"]
    sums = known.groupby([*by, "seed"], sort=False)[["value", "weight"]].sum()
    means = (sums["value"] / sums["weight"]).unstack("seed")
    order = frame[list(by)].drop_duplicates()
    means = means.loc[pd.MultiIndex.from_frame(order) if len(by) > 1 else order[by[0]]]
    there = means.dropna(how="all")
    parts = [own for _, own in there.groupby(by[0], sort=False)] if len(by) > 1 else [there]
    parts = [own.loc[:, own.notna().any()] for own in parts if len(own)]  # a column's own seeds
    prior = _prior([own.to_numpy() for own in parts])
    found = [pd.DataFrame(_drawn(own.to_numpy(), prior, k), columns=own.index) for k, own in enumerate(parts)]
    drawn = pd.concat([*found, pd.DataFrame(index=range(1 + DRAWS))], axis=1).reindex(columns=means.index)
    return drawn if len(by) > 1 else drawn.rename_axis(columns=None)


def _shared(away: np.ndarray) -> np.ndarray:
    """What seeds do to all groups, [S]: the median of those that have every seed, whatever one wild group does. away:
    deviations from the groups' means, [G, S]; NaN where a group was not run."""
    whole = away[~np.isnan(away).any(1)]
    return np.median(whole, 0) if len(whole) else np.zeros(away.shape[1])


def _prior(columns: Sequence[np.ndarray]) -> tuple[float, float]:
    """Variance of a group's own deviations that a table's columns share, and its degrees of freedom, 0 if they cannot
    be known: the scaled inverse chi-squared distribution whose logarithm has the moments of the observed ones. A
    deviation is one from the median of the other groups, whose own variance is about 1.4 / their number of it."""
    from scipy.optimize import brentq
    from scipy.special import digamma, polygamma  # here, because most commands need not wait for SciPy

    variances, freedoms, most = [], [], 0.0
    for y in columns:
        away, whole, d = y - np.nanmean(y, 1, keepdims=True), ~np.isnan(y).any(1), (~np.isnan(y)).sum(1) - 1.0
        if (d > 0).sum() < LENDERS:
            continue
        own = np.array([deviation - _shared(np.delete(away, g, 0)) for g, deviation in enumerate(away)])
        others = whole.sum() - whole
        s2 = np.nanvar(own, 1) * (d + 1) / np.maximum(d, 1) / np.where(others, 1 + 1.4 / np.maximum(others, 1), 1)
        at_least_two = (d > 0) & (s2 > 1e-18)
        variances.append(s2[at_least_two])
        freedoms.append(d[at_least_two])
        most += d[at_least_two].mean() * (at_least_two.sum() - 1) if at_least_two.any() else 0
    if not variances or most < 1:
        return 0.0, 0.0
    s2, d = np.concatenate(variances), np.concatenate(freedoms)
    e = np.log(s2) - digamma(d / 2) + np.log(d / 2)
    excess = e.var(ddof=1) - polygamma(1, d / 2).mean()
    freedom = most  # the variances differ no more than chance makes them: all of them are one
    if excess > polygamma(1, most / 2):
        freedom = brentq(lambda f: polygamma(1, f / 2) - excess, 1e-3, most)
    return float(np.exp(e.mean() + digamma(freedom / 2) - np.log(freedom / 2))), float(freedom)


def _drawn(y: np.ndarray, prior: tuple[float, float], column: int) -> np.ndarray:
    """The groups' means and draws of them, [1 + DRAWS, G]; y: by group and seed; column: which errors they get."""
    mean, run = np.nanmean(y, 1), ~np.isnan(y)
    n = run.sum(1)
    found = np.full((1 + DRAWS, len(y)), np.nan)
    found[0] = mean
    if n.max() < 2:
        return found
    shared, (s2, borrowed), (G, S) = _shared(away := y - mean[:, None]), prior, y.shape
    own = away - shared
    own -= np.nanmean(own, 1, keepdims=True)
    if (n > 1).sum() < LENDERS:
        borrowed = 0.0
    of_seeds = run * (shared - (run @ shared / n)[:, None])  # what a group's own seeds share with the others
    for several in np.unique(n[n > 1]):  # groups of as many seeds
        these, d = np.flatnonzero(n == several), several - 1.0
        freedom, root = d + borrowed, np.sqrt(several * d)
        z, spread, own_spread = _errors(S + G, d, freedom, column)
        common = z[:, :S] @ of_seeds[these].T / root * spread[:, None]
        paired = z[:, :S] @ np.nan_to_num(own[these]).T / root
        pooled = z[:, S + these] * np.sqrt(s2 / several)
        error = (np.sqrt(d / freedom) * paired + np.sqrt(borrowed / freedom) * pooled) * own_spread[:, None]
        found[1:, these] = mean[these] + common + error
    return found


@functools.lru_cache(256)
def _errors(width: int, d: float, freedom: float, column: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Standard normal numbers [DRAWS, width], and what makes t distributions with d and with `freedom` degrees of
    freedom of them, [DRAWS] each; evenly spread (scrambled Sobol points), with both signs, others for every column."""
    from scipy.special import chdtri, ndtri
    from scipy.stats import qmc

    u = qmc.Sobol(width + 1, rng=column).random(DRAWS // 2).clip(1e-9, 1 - 1e-9)
    u = np.random.default_rng(column).permutation(u)  # points of two columns have nothing to do with each other
    z, spreads = ndtri(u[:, 1:]), [np.sqrt(f / chdtri(f, u[:, 0])) for f in (d, freedom)]
    return np.concatenate([z, -z]), *(np.concatenate([spread, spread]) for spread in spreads)


def simultaneous(draws: Mapping[object, pd.Series]) -> float:
    """By what the half-widths of several intervals are to be multiplied so that all of them together cover what they
    are of in 95 % (max-T); 1 for one, or where nothing is known.

    One-sided, as claims look at one end of each: at level 97.5 % per side.
    """
    known = [one.to_numpy(dtype=float) for one in draws.values() if len(one) > 1 and not one.isna().any()]
    if not known:
        return 1.0
    values = np.column_stack(known)
    away = values[1:] - values[0]
    half = np.quantile(away, (1 + LEVEL) / 2, axis=0)
    farthest = (away[:, half > 0] / half[half > 0]).max(1, initial=0.0)
    return max(1.0, float(np.quantile(farthest, (1 + LEVEL) / 2)))


def shared_seeds(frame: pd.DataFrame, by: str) -> set:
    """The seeds that all groups have."""
    return set.intersection(*(set(own) for _, own in frame.groupby(by)["seed"])) if len(frame) else set()


def intervals(frame: pd.DataFrame, value: str, by: Sequence[str]) -> pd.DataFrame:
    """Means over seeds of a column by group, with their intervals and numbers of seeds: `by`, mean, low, high, seeds.

    Without an interval (one seed) the ends are infinite.
    """
    lines, seeds = [], frame.groupby(list(by), sort=False)["seed"].nunique()
    for key, m in draws(frame, value, list(by)).items():
        lines.append((*(key if len(by) > 1 else [key]), *Interval.of(m).row, seeds[key]))
    return pd.DataFrame(lines, columns=[*by, "mean", "low", "high", "seeds"])


def units(tables: Mapping[str, pd.DataFrame]) -> str:
    """What an item's intervals are over, in words: "3 seeds", "1 to 3 seeds" where columns differ, "one seed"; empty if
    it has no seeds, or nothing was run."""
    frame = tables["tidy"]
    if "seed" not in frame or frame.empty:
        return ""
    by_column = frame.groupby("column") if "column" in frame else frame.assign(column="").groupby("column")
    return in_seeds(by_column["seed"].nunique())


def in_seeds(counts: pd.Series) -> str:
    """ "3 seeds", "1 to 3 seeds", "one seed"; empty of none."""
    low, high = counts.min(), counts.max()
    if low < high:
        return f"{low} to {high} seeds"
    return f"{high} seeds" if high > 1 else "one seed" if high == 1 else ""
