"""Partitioners: which client owns which sample.

`make_partition(labels, num_clients, scheme, seed, **parameters)` returns a `Partition`: disjoint index arrays over the
pooled data set (official training and test parts together). Every scheme depends on (labels, parameters, seed) alone.
"""

from __future__ import annotations

import hashlib
import inspect
import numbers
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from fedlib.draws import rng
from fedlib.errors import InfeasiblePartition, choose, like, require


@dataclass(frozen=True)
class Partition:
    """clients: N sorted int64 arrays of sample indices; counts: int64 [N, C], samples per client and class."""

    scheme: str
    clients: tuple[np.ndarray, ...]
    counts: np.ndarray
    tries: int = 1

    @property
    def sizes(self) -> np.ndarray:
        """Samples per client, int64 [N]."""
        return self.counts.sum(1)

    @property
    def checksum(self) -> str:
        """Hash of who owns what; stored with every run, so that compared methods are known to share one partition."""
        digest = hashlib.sha256()
        for indices in self.clients:
            digest.update(np.int64(len(indices)).tobytes())
            digest.update(indices.astype(np.int64).tobytes())
        return digest.hexdigest()[:16]


def make_partition(labels, num_clients: int, scheme: str, seed: int, **parameters) -> Partition:
    """Divide samples over clients.

    labels: int64 [n]; scheme: a key of SCHEMES; parameters: the keyword arguments of that scheme.
    Raises BadValue for unknown schemes and parameters and values out of range, InfeasiblePartition if none is found.
    """
    labels = np.asarray(labels, dtype=np.int64)
    make = SCHEMES[choose("partition scheme", scheme, SCHEMES)]
    parameters = checked_parameters(scheme, parameters)
    require(
        labels.ndim == 1 and len(labels) > 0 and labels.min() >= 0, "labels", labels.shape, "one label >= 0 per sample"
    )
    whole = isinstance(num_clients, numbers.Integral) and 1 <= num_clients <= len(labels)
    require(whole, "num_clients", num_clients, f"an integer from 1 to the {len(labels)} samples")
    require(isinstance(seed, numbers.Integral) and seed >= 0, "seed", seed, "an integer of at least 0")
    clients, tries = make(labels, num_clients, seed, **parameters)
    num_classes = int(labels.max()) + 1
    counts = np.stack([np.bincount(labels[indices], minlength=num_classes) for indices in clients])
    return Partition(scheme, tuple(np.sort(indices) for indices in clients), counts, tries)


def checked_parameters(scheme: str, given: dict) -> dict:
    """`given` completed by the scheme's defaults. Raises BadValue for an unknown name or a value out of range."""
    defaults = parameters_of(scheme)
    for name in given:
        choose(f"parameter of partition scheme {scheme!r}", name, defaults)
    full = {name: like(default, name, given.get(name, default)) for name, default in defaults.items()}
    if scheme == "dirichlet":
        check_dirichlet(**full)
    return full


def check_dirichlet(alpha: float, cap: bool, min_size: int, max_tries: int, on_fail: str) -> None:
    """Raise BadValue for a parameter of Dirichlet partitions that is out of range."""
    require(1e-4 <= alpha < float("inf"), "alpha", alpha, "a positive number, at least 0.0001")
    require(min_size >= 0, "min_size", min_size, "0 or more")
    require(max_tries >= 1, "max_tries", max_tries, "1 or more")
    choose("on_fail", on_fail, ("raise", "relax"))


def parameters_of(scheme: str) -> dict[str, object]:
    """The keyword arguments of a scheme and their defaults."""
    return {p.name: p.default for p in list(inspect.signature(SCHEMES[scheme]).parameters.values())[3:]}


def dirichlet_counts(
    class_sizes: np.ndarray,
    num_clients: int,
    seed: int,
    alpha: float,
    cap: bool = True,
    min_size: int = 40,
    max_tries: int = 1_000_000,
    on_fail: str = "raise",
) -> tuple[np.ndarray, int]:
    """Samples per client and class, int64 [N, C], for class-wise Dirichlet label skew; and the number of tries.

    Class by class, p ~ Dir(alpha 1_N) divides the class over the clients. With `cap`, clients that already hold at
    least n/N samples get nothing more. A draw whose smallest client has fewer than `min_size` samples is rejected.
    Only counts are drawn here, many tries at a time: at N = 100, alpha = 0.1 fewer than 1 % are accepted.
    """
    check_dirichlet(alpha, cap, min_size, max_tries, on_fail)
    class_sizes = np.asarray(class_sizes, dtype=np.int64)
    total = int(class_sizes.sum())
    if min_size * num_clients > total and on_fail == "raise":
        raise InfeasiblePartition(
            f"min_size = {min_size} for {num_clients} clients needs {min_size * num_clients} samples; the data set has {total}"
        )
    limit = total / num_clients if cap else np.inf
    best, best_counts, tries, batch = -1, None, 0, 16
    most = max(16, 4_000_000 // (num_clients * len(class_sizes)))  # tries held in memory at a time
    while tries < max_tries:
        batch = min(batch * 2, most)
        draw = rng(seed, "partition", tries)
        counts = _dirichlet_tries(class_sizes, num_clients, alpha, limit, batch, draw)[: max_tries - tries]
        smallest = counts.sum(2).min(1)
        accepted = np.flatnonzero(smallest >= min_size)
        if len(accepted):
            return counts[accepted[0]], tries + int(accepted[0]) + 1
        if smallest.max() > best:
            best, best_counts = int(smallest.max()), counts[smallest.argmax()]
        tries += len(counts)
    if on_fail == "relax":
        return best_counts, tries
    raise InfeasiblePartition(
        f"no Dirichlet partition with alpha = {alpha}, {num_clients} clients and min_size = {min_size} in {tries} tries; "
        f"the best had a smallest client of {best} samples: lower min_size to {best}, or use on_fail='relax'"
    )


def _dirichlet_tries(class_sizes, num_clients, alpha, limit, tries, generator) -> np.ndarray:
    """`tries` independent draws of the counts, int64 [tries, N, C]; `limit`: no more samples once a client has this many."""
    counts = np.zeros((tries, num_clients, len(class_sizes)), dtype=np.int64)
    sizes = np.zeros((tries, num_clients), dtype=np.int64)
    for c, class_size in enumerate(class_sizes):
        shares = np.zeros((tries, num_clients))
        empty = np.full(tries, class_size > 0)
        while empty.any():  # a small alpha underflows, and the cap can leave nobody with a share: draw that class again
            drawn = generator.standard_gamma(alpha, size=(int(empty.sum()), num_clients))
            shares[empty] = np.where(sizes[empty] < limit, drawn, 0.0)
            empty = shares.sum(1) <= 0
        shares /= np.maximum(shares.sum(1, keepdims=True), 1e-300)
        cuts = np.floor(np.cumsum(shares, axis=1) * class_size + 1e-6).astype(np.int64)
        cuts[:, -1] = class_size
        counts[:, :, c] = np.diff(np.minimum(cuts, class_size), prepend=0, axis=1)
        sizes += counts[:, :, c]
    return counts


def _deal(labels: np.ndarray, counts: np.ndarray, seed: int) -> list[np.ndarray]:
    """Give every client as many samples of each class as `counts` [N, C] says, at random and without overlap."""
    clients = [[] for _ in counts]
    for c in range(counts.shape[1]):
        members = rng(seed, "deal", c).permutation(np.flatnonzero(labels == c))
        for client, part in zip(clients, np.split(members, np.cumsum(counts[:, c]))):
            client.append(part)
    return [np.concatenate(parts) for parts in clients]


def dirichlet(
    labels,
    num_clients,
    seed,
    alpha: float = 0.1,
    cap: bool = True,
    min_size: int = 40,
    max_tries: int = 1_000_000,
    on_fail: str = "raise",
):
    """Class-wise Dirichlet label skew, see `dirichlet_counts`."""
    class_sizes = np.bincount(labels)
    counts, tries = dirichlet_counts(class_sizes, num_clients, seed, alpha, cap, min_size, max_tries, on_fail)
    return _deal(labels, counts, seed), tries


def manual(labels, num_clients, seed, label_sets=None, weights=None):
    """Hand-made label subsets: `label_sets[i]` are the classes of client i; a class is divided among its owners.

    Equally (sizes differ by at most 1, the first owners get the larger parts), or in proportion to `weights[i]`.
    Classes that nobody owns are left out.
    """
    classes = set(range(int(labels.max()) + 1))
    require(
        label_sets is not None and len(label_sets) == num_clients,
        "label_sets",
        label_sets,
        f"one set of labels for each of the {num_clients} clients",
    )
    for owned in label_sets:
        require(
            isinstance(owned, Collection) and not isinstance(owned, str),
            "label_sets",
            owned,
            "a list of labels for each client",
        )
        fine = len(owned) > 0 and len(set(owned)) == len(owned) and set(owned) <= classes
        require(fine, "label_sets", list(owned), f"distinct labels from 0..{max(classes)}, at least one")
    weights = [1.0] * num_clients if weights is None else list(weights)
    positive = all(isinstance(w, numbers.Real) and 0 < w < float("inf") for w in weights)
    require(len(weights) == num_clients and positive, "weights", weights, f"{num_clients} positive numbers")
    counts = np.zeros((num_clients, max(classes) + 1), dtype=np.int64)
    for c in classes:
        owners = [i for i, owned in enumerate(label_sets) if c in owned]
        if owners:
            share = np.array([weights[i] for i in owners])
            exact = share / share.sum() * int((labels == c).sum())
            part = np.floor(exact + 1e-9).astype(np.int64)
            remainder = int((labels == c).sum()) - part.sum()
            part[np.argsort(part - exact, kind="stable")[:remainder]] += 1  # largest remainders first
            counts[owners, c] = part
    return _deal(labels, counts, seed), 1


def iid(labels, num_clients, seed):
    """Shuffle and cut into parts whose sizes differ by at most 1."""
    return np.array_split(rng(seed, "partition").permutation(len(labels)), num_clients), 1


SCHEMES = {"dirichlet": dirichlet, "manual": manual, "iid": iid}


def label_entropy(counts: np.ndarray) -> np.ndarray:
    """Entropy in nats of every client's label distribution; counts [N, C] -> float64 [N]."""
    share = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    return -(share * np.log(np.where(share > 0, share, 1))).sum(1)
