"""Class-wise Dirichlet label skew, drawn until the smallest client is large enough; and the clients of pFedSim's
experiments, drawn again as its first author's public code does it."""

from __future__ import annotations

import functools
import math
import multiprocessing
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from tqdm import tqdm

from fedlib.base.draws import rng
from fedlib.base.errors import InfeasiblePartition, choose, require
from fedlib.data.partition.basic import Scheme, deal

HOPELESS = 1e-8  # give up when a try is accepted with a smaller chance than this: one million would find none
LONGEST = 5e8  # numbers that are drawn at most, tries * clients * classes: about a minute


@dataclass(frozen=True)
class Dirichlet(Scheme):
    """Class-wise Dirichlet label skew: p ~ Dir(alpha) divides each class over the clients.

    With `cap`, clients that already hold at least n/N samples get nothing more (FL-bench and PFLlib do so, and the
    client sizes that pFedSim prints fit it). A draw whose smallest client has fewer than `min_size` samples is
    rejected; after `max_tries` of them, or earlier if there is no hope (`acceptance_bound`) or LONGEST is over,
    InfeasiblePartition names the best. With on_fail = "relax" all tries are used and the best is taken, if all its
    clients have the two samples that a split needs. The classes are divided in the order of their numbers, or with
    `shuffle_classes` in a random order: with the cap, the last ones go to fewer clients.
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
    """The first accepted draw of counts [N, C] and the number of tries; kept, since many runs share one partition."""
    total = sum(class_sizes)
    asked = f"alpha = {scheme.alpha:g}, {num_clients} clients and min_size = {scheme.min_size}"
    if scheme.min_size * num_clients > total and scheme.on_fail == "raise":
        raise InfeasiblePartition(
            f"min_size = {scheme.min_size} for {num_clients} clients needs {scheme.min_size * num_clients} samples; "
            f"the data set has {total}"
        )
    least = scheme.min_size if scheme.on_fail == "raise" else min(scheme.min_size, 2)
    with _progress(scheme.max_tries) as bar:
        best, counts, tries, chance = _tried(scheme, class_sizes, num_clients, seed, least, bar.update)
    if best >= least:
        return counts, tries
    hope = f" (at most 1 try in {1 / max(chance, 1e-300):.0e} would be accepted)" if chance < HOPELESS else ""
    ways = _ways_out(scheme, class_sizes, num_clients, seed, best)
    raise InfeasiblePartition(
        f"no Dirichlet partition with {asked} in {tries} tries{hope}; the best had a smallest client of {best} "
        f"samples: use {', or '.join(ways) or 'other data'}"
    )


def _tried(scheme, class_sizes, num_clients: int, seed: int, least: int, done=lambda n: None) -> tuple:
    """The smallest client of the best draw, its counts [N, C], the number of tries, and a bound of the chance of one
    with `least` samples for all.

    Only counts are drawn, many tries at a time: at N = 100, alpha = 0.1 fewer than 1 % are accepted.
    """
    class_sizes = np.array(class_sizes)
    limit = class_sizes.sum() / num_clients if scheme.cap else np.inf
    best, best_counts, tries, batch, chance = -1, None, 0, 16, 1.0
    below = np.zeros(num_clients + 1, dtype=np.int64)  # tries by the number of clients that are too small
    numbers = num_clients * len(class_sizes)  # of a try
    most = max(16, 4_000_000 // numbers)  # tries held in memory at a time
    while tries < scheme.max_tries and tries * numbers < LONGEST and chance >= HOPELESS:
        batch = min(batch * 2, most)
        counts = dirichlet_tries(class_sizes, num_clients, scheme.alpha, limit, batch, rng(seed, "partition", tries))
        counts = counts[:, : scheme.max_tries - tries]
        sizes = counts.sum(0)
        smallest = sizes.min(1)
        accepted = np.flatnonzero(smallest >= scheme.min_size)
        chosen = int(accepted[0] if len(accepted) else smallest.argmax())
        if smallest[chosen] > best:
            best, best_counts = int(smallest[chosen]), counts[:, chosen].T.copy()
        if len(accepted):
            return best, counts[:, chosen].T.copy(), tries + chosen + 1, 1.0
        tries += len(smallest)
        done(len(smallest))
        below += np.bincount((sizes < least).sum(1), minlength=num_clients + 1)
        chance = acceptance_bound(below)
    return best, best_counts, tries, chance


def _ways_out(scheme: Dirichlet, class_sizes: tuple, num_clients: int, seed: int, best: int) -> list[str]:
    """Settings near the ones that were asked for, with which a partition is found."""
    ways = [f"min_size = {best}"] if best >= 2 else []
    for name, settings in {
        "alpha": ((10.0**k * scheme.alpha, num_clients) for k in (1, 2, 3)),
        "num_clients": ((scheme.alpha, num_clients >> k) for k in range(1, num_clients.bit_length())),
    }.items():
        for alpha, clients in settings:
            tried = replace(scheme, alpha=alpha, max_tries=min(scheme.max_tries, 1000))
            if _tried(tried, class_sizes, clients, seed, scheme.min_size)[0] >= scheme.min_size:
                ways.append(f"alpha = {alpha:g}" if name == "alpha" else f"{clients} clients")
                break
    return ways


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
    k = 2 + np.flatnonzero(below[2:] >= 10)
    if not len(k):
        return 1.0
    fewer, here = np.maximum(below[k - 1], 10), below[k]  # of what is rare, a number that is not too small
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
            empty[empty] = drawn.sum(1) < 1e-300
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


# pFedSim's own clients ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DirichletReference(Scheme):
    """Class-wise Dirichlet label skew as pFedSim's own clients were drawn: with partition seed 42 they are the paper's.

    Of class sizes alone it gives the standard deviations that the paper's Table 4 prints. It differs from `dirichlet`
    in where chance comes from: NumPy's legacy generator, one stream for everything, started with the partition seed.
    Again and again, until the smallest client has `min_size` samples: every class in turn is shuffled (and stays so for
    the next try), shares of it are drawn from Dir(alpha), clients that hold n/N samples already get nothing, and it is
    cut where the accumulated shares, rounded down, end. With the stream as it is then, every client's samples are
    shuffled; the first half, rounded down, is for training, in this order, and the rest for testing. It has no other
    split. Samples of a class count in the order of the data set; class_order: 0, or the number of another order, which
    gives every client as many samples of a class, but other ones. Raises InfeasiblePartition after `max_tries`.
    """

    alpha: float = 0.1
    min_size: int = 40
    max_tries: int = 10_000
    class_order: int = 0

    halves: ClassVar[bool] = True

    def __post_init__(self):
        require(1e-3 <= self.alpha < float("inf"), "alpha", self.alpha, "a positive number, at least 0.001")
        require(self.min_size >= 2, "min_size", self.min_size, "2 or more: a sample in each half")
        require(self.max_tries >= 1, "max_tries", self.max_tries, "1 or more")
        require(0 <= self.class_order < 2**32, "class_order", self.class_order, "an integer from 0 to 2^32 - 1")

    def __call__(self, labels, num_clients, seed):
        require(seed < 2**32, "seed", seed, "an integer below 2^32, which the legacy generator takes")
        generator = np.random.RandomState(seed)
        classes = [np.flatnonzero(labels == c) for c in np.unique(labels)]
        if self.class_order:
            reorder = np.random.default_rng(self.class_order)
            classes = [reorder.permutation(members) for members in classes]
        best = 0
        for tries in range(1, self.max_tries + 1):
            clients = self.dealt(classes, num_clients, len(labels) / num_clients, generator)
            smallest = min(map(len, clients)) if clients else -1
            best = max(best, smallest)
            if smallest >= self.min_size:
                for own in clients:
                    generator.shuffle(own)
                return clients, tries
        raise InfeasiblePartition(
            f"no draw in {self.max_tries} tries whose {num_clients} clients all have {self.min_size} samples at "
            f"alpha = {self.alpha}; the best had a smallest client of {best}: "
            + (f"lower min_size to {best}, or use fewer clients" if best >= 2 else "use fewer clients")
        )

    def dealt(self, classes, num_clients: int, cap: float, generator) -> list[np.ndarray] | None:
        """One try: every client's samples, class by class; the classes' index arrays are shuffled in place. None if all
        who have a share of a class hold enough already."""
        clients, sizes = [[] for _ in range(num_clients)], np.zeros(num_clients, dtype=np.int64)
        for members in classes:
            generator.shuffle(members)
            shares = generator.dirichlet(np.repeat(self.alpha, num_clients)) * (sizes < cap)
            if not shares.sum() > 0:  # nor NaN, which a small alpha gives
                return None
            cuts = (np.cumsum(shares / shares.sum()) * len(members)).astype(np.int64)[:-1]
            pieces = np.split(members, cuts)
            sizes += [len(piece) for piece in pieces]
            for own, piece in zip(clients, pieces):
                own.append(piece)
        return [np.concatenate(own) for own in clients]
