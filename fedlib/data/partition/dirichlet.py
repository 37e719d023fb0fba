"""Class-wise Dirichlet label skew, drawn until the smallest client is large enough."""

from __future__ import annotations

import functools
import math
import multiprocessing
from dataclasses import dataclass

import numpy as np
from tqdm import tqdm

from fedlib.base.draws import rng
from fedlib.base.errors import InfeasiblePartition, choose, require
from fedlib.data.partition.dealing import Scheme, deal

HOPELESS = 1e-8  # give up when a try is accepted with a smaller chance than this: one million would find none


@dataclass(frozen=True)
class Dirichlet(Scheme):
    """Class-wise Dirichlet label skew: p ~ Dir(alpha) divides each class over the clients.

    With `cap`, clients that already hold at least n/N samples get nothing more (FL-bench and PFLlib do so, and the
    client sizes that pFedSim prints fit it). A draw whose smallest client has fewer than `min_size` samples is
    rejected; after `max_tries` of them, or earlier if there is no hope (`acceptance_bound`), InfeasiblePartition names
    the best. With on_fail = "relax" all tries are used and the best is taken. The classes are divided in the order of
    their numbers, or with `shuffle_classes` in a random order: with the cap, the last ones go to fewer clients.
    """

    alpha: float = 0.1
    cap: bool = True
    min_size: int = 40
    max_tries: int = 1_000_000
    on_fail: str = "raise"
    shuffle_classes: bool = False

    added = ("shuffle_classes",)

    def __post_init__(self):
        require(1e-4 <= self.alpha < float("inf"), "alpha", self.alpha, "a positive number, at least 0.0001")
        require(self.min_size >= 0, "min_size", self.min_size, "0 or more")
        require(self.max_tries >= 1, "max_tries", self.max_tries, "1 or more")
        choose("on_fail", self.on_fail, ("raise", "relax"))

    def __call__(self, labels, num_clients, seed):
        counts, tries = self.counts(np.bincount(labels), num_clients, seed)
        return deal(labels, counts, seed), tries

    def counts(self, class_sizes, num_clients: int, seed: int) -> tuple[np.ndarray, int]:
        """Samples per client and class, int64 [N, C], and the number of tries."""
        class_sizes = np.asarray(class_sizes, dtype=np.int64)
        order = np.arange(len(class_sizes))
        if self.shuffle_classes:
            order = rng(seed, "class order").permutation(order)
        drawn, tries = _search(self, tuple(class_sizes[order].tolist()), num_clients, seed)
        counts = np.empty(drawn.shape, dtype=np.int64)
        counts[:, order] = drawn
        return counts, tries


def dirichlet_counts(class_sizes, num_clients: int, seed: int, alpha: float, **parameters) -> tuple[np.ndarray, int]:
    """Samples per client and class, int64 [N, C], and the number of tries, from the sizes of the classes alone.

    parameters: those of `Dirichlet`. Raises BadValue and InfeasiblePartition as `make_partition` does.
    """
    return Dirichlet(alpha, **parameters).counts(class_sizes, num_clients, seed)


@functools.lru_cache(maxsize=16)
def _search(scheme: Dirichlet, class_sizes: tuple[int, ...], num_clients: int, seed: int) -> tuple[np.ndarray, int]:
    """The first accepted draw of counts [N, C] and the number of tries; kept, since many runs share one partition.

    Only counts are drawn, many tries at a time: at N = 100, alpha = 0.1 fewer than 1 % are accepted.
    """
    class_sizes, strict = np.array(class_sizes), scheme.on_fail == "raise"
    total = int(class_sizes.sum())
    if scheme.min_size * num_clients > total and strict:
        raise InfeasiblePartition(
            f"min_size = {scheme.min_size} for {num_clients} clients needs {scheme.min_size * num_clients} samples; "
            f"the data set has {total}"
        )
    limit = total / num_clients if scheme.cap else np.inf
    best, best_counts, tries, batch, chance = -1, None, 0, 16, 1.0
    below = np.zeros(num_clients + 1, dtype=np.int64)  # tries by the number of clients that are too small
    most = max(16, 4_000_000 // (num_clients * len(class_sizes)))  # tries held in memory at a time
    with _progress(scheme.max_tries) as bar:
        while tries < scheme.max_tries and not (strict and chance < HOPELESS):
            batch = min(batch * 2, most)
            counts = dirichlet_tries(
                class_sizes, num_clients, scheme.alpha, limit, batch, rng(seed, "partition", tries)
            )
            counts = counts[:, : scheme.max_tries - tries]
            sizes = counts.sum(0)
            smallest = sizes.min(1)
            accepted = np.flatnonzero(smallest >= scheme.min_size)
            if len(accepted):
                return counts[:, accepted[0]].T.copy(), tries + int(accepted[0]) + 1
            if smallest.max() > best:
                best, best_counts = int(smallest.max()), counts[:, smallest.argmax()].T.copy()
            tries += len(smallest)
            bar.update(len(smallest))
            below += np.bincount((sizes < scheme.min_size).sum(1), minlength=num_clients + 1)
            chance = acceptance_bound(below)
    if not strict:
        return best_counts, tries
    hope = "" if tries == scheme.max_tries else f" (at most 1 try in {1 / max(chance, 1e-300):.0e} would be accepted)"
    way_out = f"lower min_size to {best}" if best > 1 else "use fewer clients or a larger alpha"
    raise InfeasiblePartition(
        f"no Dirichlet partition with alpha = {scheme.alpha}, {num_clients} clients and min_size = {scheme.min_size} "
        "in "
        f"{tries} tries{hope}; the best had a smallest client of {best} samples: {way_out}, or use on_fail='relax'"
    )


def acceptance_bound(below: np.ndarray) -> float:
    """An upper bound of the chance that a try is accepted, from rejected ones: below[k] tries had k clients too small.

    If clients were independent, the number of small ones would be a sum of independent indicators, and P(k) k! would be
    log-concave (Newton's inequalities). Then P(0) <= P(k) k! (r / k)^k for every k, where r = P(k-1) / P(k). Ratios are
    taken with four standard errors and the best k is used. Clients compete for the same samples, which makes the
    distribution narrower, not wider; that it stays log-concave is an observation, not a theorem: in simulations of
    5,100 settings (3 to 100 clients, 1 to 200 classes, equal or not, alpha .005 to 5, with and without cap) nothing
    speaks against it, and of 20,500 bounds from 500 to 33,000 tries none was below 0.7 of the true chance. A request is
    given up at a bound of 1e-8, so one that succeeds once in 1e5 tries is safe by a factor of about 1,000.
    """
    k = 1 + np.flatnonzero((below[:-1] >= 10) & (below[1:] >= 10))
    if not len(k):
        return 1.0
    fewer, here = below[k - 1], below[k]
    ratio = np.log(fewer / here) + 4 * np.sqrt(1 / fewer + 1 / here)
    factorial = np.array([math.lgamma(n + 1) for n in k])
    bounds = np.log(here / below.sum()) + factorial + k * (ratio - np.log(k))
    return float(np.exp(min(bounds.min(), 0.0)))


def dirichlet_tries(class_sizes, num_clients, alpha, limit, tries, generator) -> np.ndarray:
    """`tries` independent draws of the counts, int32 [C, tries, N]; `limit`:
    no more samples once a client has this many."""
    counts = np.empty((len(class_sizes), tries, num_clients), dtype=np.int32)
    sizes = np.zeros((tries, num_clients), dtype=np.int32)
    shares = np.empty((tries, num_clients))
    for c, class_size in enumerate(class_sizes):
        empty = np.full(tries, class_size > 0)
        while empty.any():  # a small alpha underflows, and the cap can leave nobody with a share: draw that class again
            drawn = generator.standard_gamma(alpha, size=(int(empty.sum()), num_clients))
            drawn *= sizes[empty] < limit
            shares[empty] = drawn
            empty[empty] = drawn.sum(1) <= 0
        if class_size == 0:
            shares[:] = 0
        shares /= np.maximum(shares.sum(1, keepdims=True), 1e-300)
        np.cumsum(shares, axis=1, out=shares)
        shares *= class_size
        shares += 1e-6
        cuts = np.minimum(shares, class_size, out=shares).astype(np.int32)
        cuts[:, -1] = class_size
        counts[c, :, 0] = cuts[:, 0]
        np.subtract(cuts[:, 1:], cuts[:, :-1], out=counts[c, :, 1:])
        sizes += counts[c]
    return counts


def _progress(total: int) -> tqdm:
    """A progress bar that appears after two seconds; none in worker processes, whose parent has its own."""
    worker = multiprocessing.parent_process() is not None
    return tqdm(total=total, desc="drawing a partition", unit="try", delay=2, leave=False, disable=worker or None)
