"""The clients of pFedSim's experiments, drawn again: the draw of its first author's public code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedlib.base.errors import InfeasiblePartition, require
from fedlib.data.partition.dealing import Scheme


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
            f"alpha = {self.alpha}; the best had a smallest client of {best}: lower min_size, or use fewer clients"
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
