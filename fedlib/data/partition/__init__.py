"""Partitioners: which client owns which sample.

`make_partition(labels, num_clients, scheme, seed, **parameters)` returns a `Partition`: disjoint index arrays over the
pooled data set (official training and test parts together). Every scheme depends on (labels, parameters, seed) alone.
A scheme is a small dataclass in one of the files here; its docstring says what it does and what it leaves out.
"""

from __future__ import annotations

import dataclasses
import hashlib
import numbers
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedlib.base.errors import choose, require
from fedlib.base.options import made
from fedlib.data.describe import label_entropy
from fedlib.data.partition.basic import Iid, Manual, Scheme, Shards
from fedlib.data.partition.dirichlet import Dirichlet, DirichletReference, dirichlet_counts, dirichlet_tries
from fedlib.data.partition.natural import Domain, Owners, Writer
from fedlib.data.partition.pathological import PatBalanced, PatGrouped, RandomClasses, Ring

SCHEMES: dict[str, type[Scheme]] = {
    "dirichlet": Dirichlet,
    "dirichlet_reference": DirichletReference,
    "manual": Manual,
    "iid": Iid,
    "pat_grouped": PatGrouped,
    "pat_balanced": PatBalanced,
    "random_classes": RandomClasses,
    "ring": Ring,
    "shards": Shards,
    "domain": Domain,
    "writer": Writer,
    "owners": Owners,
}


@dataclass(frozen=True)
class Partition:
    """clients: N sorted int64 arrays of sample indices; counts: int64 [N, C], samples per client and class.

    groups: int64 [N], the group (domain, writer) that all samples of a client are from, -1 if there are several; None
    if the data set has no groups. halves: by client its samples for training, in an order of their own, and those for
    testing, where the scheme says so; else None, and a split is drawn (`fedlib.data.split`).
    """

    scheme: str
    clients: tuple[np.ndarray, ...]
    counts: np.ndarray
    tries: int = 1
    groups: np.ndarray | None = None
    halves: tuple[tuple[np.ndarray, np.ndarray], ...] | None = None

    @property
    def sizes(self) -> np.ndarray:
        """Samples per client, int64 [N]."""
        return self.counts.sum(1)

    def among(self, used: np.ndarray) -> Partition:
        """The same of samples that are some of a larger data set's; used: int64, their indices there."""
        clients = tuple(used[own] for own in self.clients)
        halves = self.halves and tuple((used[train], used[test]) for train, test in self.halves)
        return dataclasses.replace(self, clients=clients, halves=halves)

    def of(self, chosen: Sequence[int]) -> Partition:
        """The same of some of the clients, int64 [n], in this order."""
        clients, halves = (own and tuple(own[i] for i in chosen) for own in (self.clients, self.halves))
        groups = None if self.groups is None else self.groups[chosen]
        return dataclasses.replace(self, clients=clients, halves=halves, counts=self.counts[chosen], groups=groups)

    @property
    def checksum(self) -> str:
        """Hash of who owns what; stored with every run, so that compared methods are known to share one partition."""
        digest = hashlib.sha256()
        for indices in self.clients:
            digest.update(np.int64(len(indices)).tobytes())
            digest.update(indices.astype(np.int64).tobytes())
        return digest.hexdigest()[:16]


def make_partition(labels, num_clients: int, scheme: str, seed: int, *, groups=None, **parameters) -> Partition:
    """Divide samples over clients.

    labels: int64 [n]; scheme: a key of SCHEMES; groups: int64 [n], the domain or writer of every sample, which the
    schemes `domain` and `writer` need; parameters: the fields of that scheme.
    Raises BadValue for unknown schemes and parameters and values out of range, InfeasiblePartition if none is found.
    """
    divide = find_scheme(scheme, parameters)
    labels = np.asarray(labels, dtype=np.int64)
    require(
        labels.ndim == 1 and len(labels) > 0 and labels.min() >= 0, "labels", labels.shape, "one label >= 0 per sample"
    )
    whole = isinstance(num_clients, numbers.Integral) and 1 <= num_clients <= len(labels)
    require(whole, "num_clients", num_clients, f"an integer from 1 to the {len(labels)} samples")
    require(isinstance(seed, numbers.Integral) and seed >= 0, "seed", seed, "an integer of at least 0")
    if groups is not None:
        groups = np.asarray(groups, dtype=np.int64)
        fits = groups.shape == labels.shape and groups.min() >= 0
        require(fits, "groups", groups.shape, f"one group >= 0 for each of the {len(labels)} samples")
    elif divide.by == "groups":
        named = ", ".join(name for name, other in SCHEMES.items() if other.by != "groups")
        require(False, "scheme", scheme, f"a data set with groups (domains or writers) for it, or one of {named}")
    clients, tries = divide(labels if divide.by == "labels" else groups, int(num_clients), int(seed))
    num_classes = int(labels.max()) + 1
    counts = np.stack([np.bincount(labels[indices], minlength=num_classes) for indices in clients])
    halves = tuple((own[: len(own) // 2], own[len(own) // 2 :]) for own in clients) if divide.halves else None
    clients = tuple(np.sort(indices) for indices in clients)
    if groups is not None:
        owned = [np.unique(groups[indices]) for indices in clients]
        groups = np.array([own[0] if len(own) == 1 else -1 for own in owned], dtype=np.int64)
    return Partition(scheme, clients, counts, tries, groups, halves)


def draw_counts(sizes: Sequence[int], num_clients: int, scheme: str, seed: int, **parameters) -> np.ndarray:
    """Samples per client and class, int64 [N, C], of a partition of classes of these sizes.
    Raises as `make_partition`."""
    if scheme == "dirichlet":  # needs no labels, only how many there are
        return dirichlet_counts(sizes, num_clients, seed, **parameters)[0]
    return make_partition(np.repeat(np.arange(len(sizes)), sizes), num_clients, scheme, seed, **parameters).counts


def find_scheme(scheme: str, parameters: dict) -> Scheme:
    """The scheme of that name with these parameters. Raises BadValue for an unknown name or a value out of range."""
    kind = SCHEMES[choose("partition scheme", scheme, SCHEMES)]
    return made(kind, parameters, f"parameter of partition scheme {scheme!r}")


def checked_parameters(scheme: str, given: dict) -> dict:
    """`given` completed by the scheme's defaults. Raises BadValue for an unknown name or a value out of range."""
    return dataclasses.asdict(find_scheme(scheme, given))


def parameters_of(scheme: str) -> dict[str, object]:
    """The parameters of a scheme and their defaults."""
    return {f.name: f.default for f in dataclasses.fields(SCHEMES[scheme])}


__all__ = [
    "SCHEMES",
    "Partition",
    "checked_parameters",
    "dirichlet_counts",
    "draw_counts",
    "dirichlet_tries",
    "find_scheme",
    "label_entropy",
    "make_partition",
    "parameters_of",
]
