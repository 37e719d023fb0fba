"""Two groups of numbers: which of a client's distances to others are the small ones?

Each function takes distances float64 [K, n], one row for each question, and says who belongs to the nearer group, bool
[K, n].
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from fedlib.base.errors import choose

HOW = ("gmm", "kmeans", "hier", "fix")
ALIKE = 1e-9  # numbers that differ by no more are one group
RESTARTS, STEPS, FLOOR, TOLERANCE = 5, 200, 1e-6, 1e-8  # of the mixture: starts, iterations, least variance, last gain


def nearer_group(
    distances: np.ndarray, how: str, generators: Sequence[np.random.Generator], closure: bool = True
) -> np.ndarray:
    """Who is in the group with the smaller mean; everybody where all distances are alike or one group is empty.

    how: "gmm", a mixture of two Gaussians fitted by expectation-maximisation from 5 starts in the manner of k-means++,
    one generator for each row; "kmeans", the division with the least squares; "hier", average linkage cut into two
    clusters; "fix", at most 0.5 (then perhaps nobody). closure: whoever is as near as a member is a member.
    """
    choose("grouping", how, HOW)
    if how == "fix":
        return distances <= 0.5
    if distances.shape[1] < 2:
        return np.ones(distances.shape, dtype=bool)
    second = {"gmm": _mixture, "kmeans": _least_squares, "hier": _linkage}[how](distances, generators)
    sizes = np.stack([(~second).sum(1), second.sum(1)])
    sums = np.stack([np.where(second, 0, distances).sum(1), np.where(second, distances, 0).sum(1)])
    means = sums / np.maximum(sizes, 1)
    near = np.where((means[1] < means[0])[:, None], second, ~second)
    if closure:
        near = distances <= np.where(near, distances, -np.inf).max(1, keepdims=True)
    undivided = (sizes.min(0) == 0) | (np.ptp(distances, axis=1) <= ALIKE)
    return near | undivided[:, None]


def drawn_group(others: Tensor, size: int, generators: Sequence[np.random.Generator]) -> Tensor:
    """`size` of the others, bool [K, n], drawn for every row with a generator of its own;
    all of them where they are fewer."""
    noise = torch.from_numpy(np.stack([g.random(others.shape[1]) for g in generators])).masked_fill(~others, np.inf)
    return (noise.argsort(1).argsort(1) < size) & others


def _mixture(x: np.ndarray, generators) -> np.ndarray:
    """The more likely of two components of a one-dimensional Gaussian mixture. Axes: row, start, component, number."""
    K, n = x.shape
    draws = np.stack([g.random((RESTARTS, 2)) for g in generators])
    first = np.take_along_axis(x, (draws[..., 0] * n).astype(int), 1)
    squares = np.cumsum((x[:, None] - first[..., None]) ** 2, -1)
    pick = (squares < draws[..., 1:] * squares[..., -1:]).sum(-1).clip(max=n - 1)  # k-means++: far numbers more often
    centres = np.stack([first, np.take_along_axis(x, pick, 1)], -1)[..., None]
    x = x[:, None, None]
    share = (np.abs(x - centres).argmin(2)[:, :, None] == np.arange(2)[:, None]).astype(float)
    before = np.full((K, RESTARTS), -np.inf)
    for _ in range(STEPS):
        weight = share.sum(-1, keepdims=True) + 1e-15
        mean = (share * x).sum(-1, keepdims=True) / weight
        variance = (share * (x - mean) ** 2).sum(-1, keepdims=True) / weight + FLOOR
        log_p = np.log(weight / n) - 0.5 * (np.log(2 * np.pi * variance) + (x - mean) ** 2 / variance)
        total = np.logaddexp(log_p[:, :, 0], log_p[:, :, 1])
        share, likelihood = np.exp(log_p - total[:, :, None]), total.mean(-1)
        if (likelihood - before <= TOLERANCE).all():
            break
        before = likelihood
    best = share[np.arange(K), likelihood.argmax(1)]
    return best[:, 1] > best[:, 0]


def _least_squares(x: np.ndarray, _) -> np.ndarray:
    """k-means with two clusters, exactly: the best of all cuts of the sorted numbers."""
    ordered, n = np.sort(x, axis=1), x.shape[1]
    left, count = np.cumsum(ordered, 1)[:, :-1], np.arange(1, n)
    between = left**2 / count + (ordered.sum(1, keepdims=True) - left) ** 2 / (n - count)
    between = np.where(ordered[:, 1:] > ordered[:, :-1], between, -np.inf)  # equal numbers stay together
    return x > np.take_along_axis(ordered, between.argmax(1)[:, None], 1)


def _linkage(x: np.ndarray, _) -> np.ndarray:
    from scipy.cluster.hierarchy import fcluster, linkage  # here, because it is slow to load

    return np.stack([fcluster(linkage(row[:, None], "average"), 2, "maxclust") == 2 for row in x])
