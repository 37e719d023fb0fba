"""Schemes that keep clients as the data have them: by domain, or by the writer (user, device) of a sample."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedlib.base.draws import rng
from fedlib.base.errors import InfeasiblePartition, require
from fedlib.data.partition.dealing import Scheme


@dataclass(frozen=True)
class Domain(Scheme):
    """Every domain (group of the data set) cut at random into `clients_per_domain` equal clients,
    the last of which gets the rest.

    Clients are ordered by domain. num_clients must be the number of domains times clients_per_domain.
    """

    clients_per_domain: int = 20

    by = "groups"

    def __post_init__(self):
        require(self.clients_per_domain >= 1, "clients_per_domain", self.clients_per_domain, "an integer of at least 1")

    def __call__(self, groups, num_clients, seed):
        domains, sizes = np.unique(groups, return_counts=True)
        each = self.clients_per_domain
        accepted = f"{len(domains) * each} ({len(domains)} domains times clients_per_domain = {each})"
        require(num_clients == len(domains) * each, "num_clients", num_clients, accepted)
        if sizes.min() < each:
            raise InfeasiblePartition(
                f"domain {domains[sizes.argmin()]} has {sizes.min()} samples for {each} clients; lower "
                "clients_per_domain"
            )
        clients = []
        for domain, size in zip(domains, sizes):
            members = rng(seed, "deal", int(domain)).permutation(np.flatnonzero(groups == domain))
            clients += np.split(members, size // each * np.arange(1, each))
        return clients, 1


@dataclass(frozen=True)
class Writer(Scheme):
    """One client for each writer (group of the data set) with at least `min_samples` samples; the others are left out.

    The data decide how many clients there are: num_clients must be that number. With `pick`, it may be smaller, and
    that many writers are drawn at random. Any mapping from samples to clients is a scheme of this kind: give it as the
    groups of the data set. Clients are in the order of their group numbers.
    """

    min_samples: int = 2  # a training and a test sample
    pick: bool = False

    by = "groups"

    def __post_init__(self):
        require(self.min_samples >= 1, "min_samples", self.min_samples, "an integer of at least 1")

    def __call__(self, groups, num_clients, seed):
        writers, sizes = np.unique(groups, return_counts=True)
        found = writers[sizes >= self.min_samples]
        if not len(found):
            raise InfeasiblePartition(
                f"no writer has min_samples = {self.min_samples} samples; the largest of {len(writers)} has "
                f"{sizes.max()}"
            )
        kept = f"{len(found)} (the writers with at least {self.min_samples} samples)"
        if self.pick:
            require(num_clients <= len(found), "num_clients", num_clients, f"at most {kept}")
            found = np.sort(rng(seed, "partition").choice(found, num_clients, replace=False))
        require(num_clients == len(found), "num_clients", num_clients, f"{kept}, or fewer with pick = true")
        order = np.argsort(groups, kind="stable")
        starts, ends = (np.searchsorted(groups[order], found, side) for side in ("left", "right"))
        return [order[start:end] for start, end in zip(starts, ends)], 1
