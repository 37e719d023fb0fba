"""What the schemes share: their form, and the step from "how many of each class" to "which samples"; and schemes
without much structure: equal parts, sorted shards, and label subsets made by hand."""

from __future__ import annotations

import numbers
from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedlib.base.draws import rng
from fedlib.base.errors import InfeasiblePartition, require


class Scheme:
    """Form of a partition scheme: a frozen dataclass whose fields are its parameters, checked when it is made.

    Calling it with (labels, num_clients, seed) gives N index arrays and the number of tries. A scheme `by` "groups" is
    called with the data set's groups in place of its labels. Parameters that came after the first stored results are
    `added`: at their default they are left out of run ids. With `halves` the first half of a client's samples, rounded
    down and in the order in which they are given, is for training, and the rest for testing.
    """

    by: ClassVar[str] = "labels"
    halves: ClassVar[bool] = False
    added: ClassVar[tuple[str, ...]] = ()


def deal(labels: np.ndarray, counts: np.ndarray, seed: int) -> list[np.ndarray]:
    """Give every client as many samples of each class as `counts` [N, C] says, at random and without overlap."""
    clients = [[] for _ in counts]
    for c in range(counts.shape[1]):
        members = rng(seed, "deal", c).permutation(np.flatnonzero(labels == c))
        for client, part in zip(clients, np.split(members, np.cumsum(counts[:, c]))):
            client.append(part)
    return [np.concatenate(parts) for parts in clients]


def even_parts(total: int, parts: int) -> np.ndarray:
    """Sizes of `parts` parts of `total` that differ by at most 1, the larger ones first."""
    return total // parts + (np.arange(parts) < total % parts)


def uneven_parts(total: int, parts: int, least: int, generator: np.random.Generator) -> np.ndarray:
    """Sizes of `parts` parts of `total`: all but the last uniform integers in [max(total / (10 parts), least), total /
    parts).

    The last part is the remainder, so always the largest. Raises InfeasiblePartition if there is no such integer.
    """
    low, high = max(-(-total // (10 * parts)), least), -(-total // parts)
    if parts > 1 and low >= high:
        raise InfeasiblePartition(
            f"a class of {total} samples cannot be divided unequally over {parts} clients with at least {low} each; "
            "use fewer clients, fewer classes per client, or equal shares"
        )
    drawn = generator.integers(low, high, size=parts - 1) if parts > 1 else np.zeros(0, dtype=np.int64)
    return np.append(drawn, total - drawn.sum())


def divided(labels: np.ndarray, owners: np.ndarray, share) -> np.ndarray:
    """Samples per client and class, int64 [N, C]: class c is cut into `share(total, number of owners)` for its owners.

    owners: bool [N, C]. Raises InfeasiblePartition for a class with fewer samples than owners; classes without owners
    are nobody's.
    """
    counts = np.zeros(owners.shape, dtype=np.int64)
    for c, total in enumerate(np.bincount(labels, minlength=owners.shape[1])):
        owning = np.flatnonzero(owners[:, c])
        if len(owning) > total:
            raise InfeasiblePartition(f"class {c} has {total} samples for {len(owning)} clients; use fewer clients")
        if len(owning):
            counts[owning, c] = share(int(total), len(owning))
    return counts


# schemes --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Iid(Scheme):
    """Shuffle and cut into parts whose sizes differ by at most 1; `stratified`: so do the counts of every class."""

    stratified: bool = False

    added = ("stratified",)

    def __call__(self, labels, num_clients, seed):
        order = rng(seed, "partition").permutation(len(labels))
        if not self.stratified:
            return np.array_split(order, num_clients), 1
        order = order[np.argsort(labels[order], kind="stable")]
        return [order[i::num_clients] for i in range(num_clients)], 1  # dealt one by one, class after class


@dataclass(frozen=True)
class Shards(Scheme):
    """Sort by label, cut into s shards per client, and give every client s of them at random (McMahan et al. 2017).

    Shards differ in size by at most 1 and nothing is left over. A shard no larger than the smallest class has at most
    two labels, so a client at most 2s.
    """

    s: int = 2  # shards per client

    def __post_init__(self):
        require(self.s >= 1, "s", self.s, "an integer of at least 1")

    def __call__(self, labels, num_clients, seed):
        if num_clients * self.s > len(labels):
            raise InfeasiblePartition(
                f"{num_clients} clients with s = {self.s} shards need {num_clients * self.s} samples; "
                f"the data set has {len(labels)}"
            )
        generator = rng(seed, "partition")
        order = generator.permutation(len(labels))
        order = order[np.argsort(labels[order], kind="stable")]
        shards = np.array_split(order, num_clients * self.s)
        dealt = generator.permutation(len(shards)).reshape(num_clients, self.s)
        return [np.concatenate([shards[k] for k in mine]) for mine in dealt], 1


@dataclass(frozen=True)
class Manual(Scheme):
    """Hand-made label subsets: `label_sets[i]` are the classes of client i; a class is divided among its owners.

    Equally (sizes differ by at most 1, the first owners get the larger parts), or in proportion to `weights[i]`.
    Classes that nobody owns are left out.
    """

    label_sets: list | None = None
    weights: list | None = None

    def __post_init__(self):
        sets = self.label_sets
        require(isinstance(sets, (list, tuple)), "label_sets", sets, "one set of labels for each client")
        for owned in sets:
            listed = isinstance(owned, Collection) and not isinstance(owned, str)
            require(listed, "label_sets", owned, "a list of labels for each client")
        lists = [sorted(owned) if isinstance(owned, (set, frozenset)) else owned for owned in sets]  # for JSON
        object.__setattr__(self, "label_sets", [np.array(owned).tolist() for owned in lists])

    def __call__(self, labels, num_clients, seed):
        weights = self._checked(labels, num_clients)
        counts = np.zeros((num_clients, int(labels.max()) + 1), dtype=np.int64)
        for c, total in enumerate(np.bincount(labels)):
            owners = [i for i, owned in enumerate(self.label_sets) if c in owned]
            if owners:
                exact = weights[owners] / weights[owners].sum() * int(total)
                part = np.floor(exact + 1e-9).astype(np.int64)
                part[np.argsort(part - exact, kind="stable")[: total - part.sum()]] += 1  # largest remainders first
                counts[owners, c] = part
        return deal(labels, counts, seed), 1

    def _checked(self, labels, num_clients) -> np.ndarray:
        """The weights, float64 [N], all 1 if none are given."""
        sets, last = self.label_sets, int(labels.max())
        require(
            len(sets) == num_clients, "label_sets", sets, f"one set of labels for each of the {num_clients} clients"
        )
        for owned in sets:
            fine = len(owned) > 0 and len(set(owned)) == len(owned) and set(owned) <= set(range(last + 1))
            require(fine, "label_sets", list(owned), f"distinct labels from 0..{last}, at least one")
        weights = [1.0] * num_clients if self.weights is None else list(self.weights)
        positive = all(isinstance(w, numbers.Real) and 0 < w < float("inf") for w in weights)
        require(len(weights) == num_clients and positive, "weights", weights, f"{num_clients} positive numbers")
        return np.array(weights)
