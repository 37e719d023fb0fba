"""How certain a mean or a difference is: 95 % intervals by a bootstrap over seeds and clients.

Accuracies are averages over seeds (runs that differ in seed or partition) and over clients. Both are resampled, with
the same draw for everything that is compared: what all methods have in common, such as a client that is easy for
everybody, cancels in their differences (a paired bootstrap). Of several seeds one fewer is drawn than there are, which
makes the variance of their mean unbiased. With a single seed only clients are resampled: such an interval does not know
what another seed would do, and the text beside it says n = 1. Without clients there is then no interval at all.

Resampled are seeds and clients independently of each other, as in A. B. Owen, "The pigeonhole bootstrap", Annals of
Applied Statistics 1(2), 2007, on the right side of caution. Of few seeds percentiles know little: with three, an
interval is about as wide as their range.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np
import pandas as pd

RESAMPLES = 2000
LEVEL = 0.95


@dataclass(frozen=True)
class Interval:
    """A number and its interval, -inf to inf where nothing is known; exact: there is nothing to be uncertain about."""

    value: float
    low: float
    high: float
    exact: bool = False

    @classmethod
    def of(cls, draws: pd.Series) -> Interval:
        """The estimate is the first number, what resampling made of it are the others; without any it is exact."""
        value, rest = float(draws.iloc[0]), draws.iloc[1:].to_numpy(dtype=float)
        if not len(rest):
            return cls(value, value, value, exact=True)
        if np.isnan(rest).all():
            return cls(value, -inf, inf)
        low, high = np.nanquantile(rest, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        return cls(value, float(low), float(high))

    def text(self, form: str = "+.1f") -> str:
        """ "+1.3 [-0.2, +2.8]"."""
        if self.exact:
            return f"{self.value:{form}}"
        ends = "?" if self.low == -inf else f"{self.low:{form}}, {self.high:{form}}"
        return f"{self.value:{form}} [{ends}]"


def draws(frame: pd.DataFrame, value: str, by: Sequence[str], client: str = "", weight: str = "") -> pd.DataFrame:
    """Means of `value` by group, [1 + RESAMPLES, groups]: the estimate first, then the resampled ones.

    frame: one row a group, seed and, where `client` names their column, client; NaN for the client where only the mean
    over all clients is known. weight: the column of the clients' weights (default: all equal). Groups that differ in
    the first of several `by` have clients of their own; seeds and clients of equal numbers are drawn together there
    too. Where nothing can be resampled (one seed, and no clients, or clients that are all alike) the resampled means
    are NaN.
    """
    parts = [own for _, own in frame.groupby(by[0], sort=False)] if len(by) > 1 else [frame]
    return pd.concat([_draws(own, value, list(by), client, weight) for own in parts], axis=1)


def _draws(frame: pd.DataFrame, value: str, by: list[str], client: str, weight: str) -> pd.DataFrame:
    groups, names = frame.groupby(by, sort=False).ngroup().to_numpy(), frame[by].drop_duplicates()
    seeds = pd.factorize(frame["seed"])[0]
    clients = pd.factorize(frame[client])[0] if client else np.zeros(len(frame), dtype=int)  # -1: of all together
    values = np.zeros((len(names), seeds.max() + 1, max(0, clients.max()) + 1))
    weights = np.zeros_like(values)
    values[groups, seeds, clients] = frame[value]
    weights[groups, seeds, clients] = frame[weight] if weight else 1.0
    together = np.isin(np.arange(len(names)), groups[clients < 0])
    values[together], weights[together] = values[together][:, :, -1:], (weights[together] > 0).any(-1, keepdims=True)
    found = _resampled(values, weights)
    if (
        values.shape[1] == 1
    ):  # one seed: what clients share, such as one model tested on the same images, says nothing of chance
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of groups of which nothing was drawn
            alike = np.nanmax(found, axis=0) - np.nanmin(found, axis=0) < 1e-12  # or there is only one client
        found[1:, together | alike] = np.nan
    return pd.DataFrame(found, columns=pd.MultiIndex.from_frame(names) if len(by) > 1 else pd.Index(names[by[0]]))


def _resampled(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Means over seeds of the weighted means over clients, of G groups [G, S, N]:
    first the estimate, [1 + RESAMPLES, G].

    A seed whose weights are 0 was not run for the group.
    """
    from scipy.stats import bootstrap  # here, because it takes a second that most commands need not wait

    (G, S, N), sums = values.shape, values * weights

    def means(
        seeds: np.ndarray, clients: np.ndarray
    ) -> np.ndarray:  # how often each is drawn, [B, S], [B, N] -> [G, B]
        total = weights @ clients.T  # [G, S, B]
        drawn = (total > 0) * seeds.T
        with np.errstate(invalid="ignore"):  # nothing of a group was drawn
            return (sums @ clients.T / np.where(total > 0, total, 1) * drawn).sum(1) / drawn.sum(1)

    def counted(rows: np.ndarray) -> np.ndarray:  # numbers of the drawn, [B, n - 1] -> how often each was, [B, n]
        B, n = len(rows), rows.shape[1] + 1
        return np.bincount((rows + n * np.arange(B)[:, None]).ravel(), minlength=B * n).reshape(B, n)

    def statistic(*drawn: np.ndarray, axis: int) -> np.ndarray:
        counts, one = dict(zip(units, (counted(rows[0, :, 1:]) for rows in drawn))), np.ones((drawn[0].shape[1], 1))
        return means(counts.get("seeds", one), counts.get("clients", one))

    estimate = means(np.ones((1, S)), np.ones((1, N)))
    units = {name: n for name, n in (("seeds", S), ("clients", N)) if n > 1}
    if not units:
        return np.concatenate([estimate, np.full((G, RESAMPLES), np.nan)], 1).T
    data = [np.tile(np.arange(n), (G, 1)) for n in units.values()]
    options = dict(n_resamples=RESAMPLES, batch=max(1, 2**22 // (G * max(S, N))), method="percentile", rng=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of intervals of its own, which are not used
        found = bootstrap(data, statistic, vectorized=True, axis=-1, **options).bootstrap_distribution
    return np.concatenate([estimate, found], 1).T


def shared_seeds(frame: pd.DataFrame, by: str) -> set:
    """The seeds that all groups have."""
    return set.intersection(*(set(own) for _, own in frame.groupby(by)["seed"])) if len(frame) else set()


def intervals(frame: pd.DataFrame, value: str, by: Sequence[str]) -> pd.DataFrame:
    """Means over seeds of a column by group, with their intervals and numbers of seeds: `by`, mean, low, high, seeds.

    Without an interval (one seed) the ends are infinite.
    """
    lines, seeds = [], frame.groupby(list(by), sort=False)["seed"].nunique()
    for key, m in draws(frame, value, list(by)).items():
        i = Interval.of(m)
        lines.append((*(key if len(by) > 1 else [key]), i.value, i.low, i.high, seeds[key]))
    return pd.DataFrame(lines, columns=[*by, "mean", "low", "high", "seeds"])


def units(tables: dict[str, pd.DataFrame]) -> str:
    """What an item's intervals are over, in words: "3 seeds and 20 clients", "20 clients (1 seed)", "1 to 3 seeds and
    50 to 100 clients" where columns differ; empty if it has no seeds, or nothing was run."""
    frame = tables.get("_clients", tables["tidy"])
    if "seed" not in frame or frame.empty:
        return ""
    by_column = frame.groupby("column") if "column" in frame else frame.assign(column="").groupby("column")
    most, seeds = frame["seed"].nunique(), _range(by_column["seed"].nunique(), "seed")
    clients = by_column["client"].nunique() if "_clients" in tables else pd.Series([0])
    if not clients.max():
        return seeds if most > 1 else "one seed alone, which gives none"
    return f"{seeds} and {_range(clients, 'client')}" if most > 1 else f"{_range(clients, 'client')} (1 seed)"


def _range(counts: pd.Series, what: str) -> str:
    """ "3 seeds", or "1 to 3 seeds" where they differ."""
    low, high = counts.min(), counts.max()
    if low < high:
        return f"{low} to {high} {what}s"
    return f"{high} {what}" if high == 1 else f"{high} {what}s"
