"""What the schemes share: their form, and the step from "how many of each class" to "which samples"."""

from __future__ import annotations

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


def classes_present(labels: np.ndarray, classes_per_client: int) -> np.ndarray:
    """The classes that have samples, int64, ascending. Raises BadValue if they are fewer than `classes_per_client`."""
    classes = np.unique(labels)
    accepted = f"a number from 1 to the {len(classes)} classes"
    require(1 <= classes_per_client <= len(classes), "classes_per_client", classes_per_client, accepted)
    return classes


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
