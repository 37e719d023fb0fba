"""The split of every client's samples into a training, a test and, for methods that need it, a validation part.

The test part is drawn first and the validation part is carved from the rest with a draw of its own, so that the test
part is the same for all methods, with and without validation.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedlib.base.draws import rng
from fedlib.base.errors import BadValue, choose, require

TEST_DISTRIBUTIONS = ("matched", "global", "owned_uniform")


def split_clients(
    clients: Sequence[np.ndarray],
    labels: np.ndarray,
    seed: int,
    test_fraction: float,
    *,
    val_fraction: float = 0.0,
    stratified: bool = False,
    test_distribution: str = "matched",
    halves: Sequence[tuple[np.ndarray, np.ndarray]] | None = None,
) -> list[dict[str, np.ndarray]]:
    """The parts of all N clients: train, test and, if val_fraction > 0, val, each sorted int64 sample indices.

    clients: N arrays of sample indices; labels: int64 [n]; val_fraction: of what is left after the test part.
    test_distribution says on what a client is tested. matched: its own test part. global: the test parts of all clients
    together, the same for everyone. owned_uniform: of that pool, equally many samples of every class that the client
    has outside its test part. Training parts do not depend on it. halves: every client's training and test part, where
    the partition says what they are; training parts keep their order unless a validation part is carved from them.

    Raises BadValue for values out of range and for a client with too few samples.
    """
    check_split(test_fraction, val_fraction, test_distribution)
    labels = np.asarray(labels)
    strata = labels if stratified else None
    cuts = [(train, np.sort(test)) for train, test in halves] if halves is not None else [
        split_client(own, test_fraction, seed, i, strata) for i, own in enumerate(clients)
    ]  # fmt: skip
    parts = [{"train": train, "test": test} for train, test in cuts]
    if test_distribution != "matched":
        pool = np.sort(np.concatenate([own["test"] for own in parts]))
        for i, own in enumerate(parts):
            is_global = test_distribution == "global"
            own["test"] = pool if is_global else _equally_many(pool, labels, np.unique(labels[own["train"]]), seed, i)
    if val_fraction > 0:
        for i, own in enumerate(parts):
            own["train"], own["val"] = carve_validation(own["train"], val_fraction, seed, i, strata)
    return parts


def official_halves(clients: Sequence[np.ndarray], is_test: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Every client's (training, test) part as the data set has them; is_test: bool [n], of the whole data set.

    Raises BadValue where a client has none of one of them.
    """
    halves = [(own[~is_test[own]], own[is_test[own]]) for own in clients]
    for i, (train, test) in enumerate(halves):
        if not (len(train) and len(test)):
            raise BadValue(
                f"test_part = 'official' is not accepted: of client {i}'s samples {len(train)} are in the official "
                f"training part and {len(test)} in the test part; expected at least one in each, or test_part = 'drawn'"
            )
    return halves


def some_of_each(labels: np.ndarray, count: int, seed: int) -> np.ndarray:
    """`count` samples of a data set, every class with its share (rounded, the largest remainders up): sorted int64
    indices.

    Raises BadValue for more than there are.
    """
    labels = np.asarray(labels)
    require(0 < count <= len(labels), "images", count, f"a number from 1 to the {len(labels)} of the data set")
    if count == len(labels):
        return np.arange(count)
    shares = np.bincount(labels) * count / len(labels)
    wanted = shares.astype(int)
    wanted[np.argsort(wanted - shares, kind="stable")[: count - wanted.sum()]] += 1
    draw = rng(seed, "some of each")
    chosen = [draw.choice(np.flatnonzero(labels == c), size, replace=False) for c, size in enumerate(wanted)]
    return np.sort(np.concatenate(chosen))


def check_split(test_fraction: float, val_fraction: float = 0.0, test_distribution: str = "matched") -> None:
    """Raise BadValue for a parameter of `split_clients` that is out of range."""
    require(0 < test_fraction < 1, "test_fraction", test_fraction, "a number between 0 and 1, both excluded")
    require(0 <= val_fraction < 1, "val_fraction", val_fraction, "a number from 0 to below 1")
    choose("test_distribution", test_distribution, TEST_DISTRIBUTIONS)


def split_client(
    indices: np.ndarray, test_fraction: float, seed: int, client: int, labels: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Shuffle one client's indices with its own stream and cut them into (train, test), at least one sample each.

    labels: int64 [n] of the whole data set, for a split that is stratified by them; None for a plain one.
    Raises BadValue for a test fraction outside (0, 1) and for a client with fewer than two samples.
    """
    check_split(test_fraction)
    if len(indices) < 2:
        raise BadValue(
            f"client {client} has {len(indices)} sample(s); a train/test split needs at least 2; use fewer clients"
        )
    return _cut(indices, test_fraction, rng(seed, "split", client), labels)


def carve_validation(
    train: np.ndarray, val_fraction: float, seed: int, client: int, labels: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Cut one client's training part into (train, val), at least one sample each; arguments as in `split_client`."""
    require(0 < val_fraction < 1, "val_fraction", val_fraction, "a number between 0 and 1, both excluded")
    if len(train) < 2:
        raise BadValue(
            f"client {client} has {len(train)} training sample(s); a validation part needs 2; use fewer clients"
        )
    return _cut(train, val_fraction, rng(seed, "validation", client), labels)


def cut_size(count: int, fraction: float) -> int:
    """How many of `count` samples a part gets that is cut off: round(fraction * count), but both have at least one."""
    return min(max(1, round(fraction * count)), count - 1)


def _cut(indices, fraction: float, generator, labels) -> tuple[np.ndarray, np.ndarray]:
    """(rest, part), both sorted; `part` has `cut_size` of the indices."""
    shuffled = generator.permutation(indices)
    size = cut_size(len(indices), fraction)
    if labels is not None:
        shuffled = shuffled[_stratified_order(labels[shuffled], size, fraction)]
    return np.sort(shuffled[size:]), np.sort(shuffled[:size])


def _stratified_order(labels: np.ndarray, size: int, fraction: float) -> np.ndarray:
    """An order of shuffled samples whose first `size` hold `fraction` of every class, to the nearest integers that fit.

    A class with one sample cannot be divided: all such samples together count as one class.
    """
    _, stratum, members = np.unique(labels, return_inverse=True, return_counts=True)
    stratum = np.where(members == 1, -1, np.arange(len(members)))[stratum]
    groups = [
        np.flatnonzero(stratum == s) for s in dict.fromkeys(stratum.tolist())
    ]  # in shuffled order: ties at random
    exact = fraction * np.array([len(group) for group in groups])
    quota = np.floor(exact).astype(np.int64)
    quota[np.argsort(quota - exact, kind="stable")[: size - quota.sum()]] += 1  # largest remainders first
    first = [group[:q] for group, q in zip(groups, quota)]
    return np.concatenate([*first, *(group[q:] for group, q in zip(groups, quota))])


def _equally_many(pool: np.ndarray, labels: np.ndarray, classes: np.ndarray, seed: int, client: int) -> np.ndarray:
    """Of the indices `pool`, as many of each of `classes` as the rarest of them has there,
    at random for each client."""
    shuffled = rng(seed, "owned test", client).permutation(pool)
    by_class = [shuffled[labels[shuffled] == c] for c in classes]
    by_class = [own for own in by_class if len(own)]  # a class may be in no test part at all
    require(by_class, "test_distribution", "owned_uniform", f"another: no test image is of a class of client {client}")
    return np.sort(np.concatenate([own[: min(map(len, by_class))] for own in by_class]))
