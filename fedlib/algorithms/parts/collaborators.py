"""Clients whose classifiers are near each other (PFedCS): how far apart, who collaborates, and with what weight.

K clients are asked for, n are in the pool that they choose from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np
import torch
from torch import Tensor

from fedlib.algorithms.parts.grouping import HOW, drawn_group, nearer_group
from fedlib.base.options import Options, option

TIE = 1e-12  # distances that differ by no more are equal
TOLD = ("oracle", "twin")  # selections by someone who knows the clients' classes


def class_distances(a: Tensor, b: Tensor, power: int = 2, norm: str = "row") -> Tensor:
    """D of PFedCS: sum over classes of the distances of class vectors to this power; a [K, C, d],
    b [L, C, d] -> float64 [K, L].

    Divided by the largest of its "row" or of all ("global"), so that it is in [0, 1]; zeros stay zeros.
    """
    a, b = (vectors.double().transpose(0, 1) for vectors in (a, b))  # [C, K, d]
    D = torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist")
    D = (D**power).sum(0).cpu()
    largest = D.max() if norm == "global" else D.amax(1, keepdim=True)
    return torch.where(largest > 0, D / largest.clamp(min=1e-300), 0)


def weights_by_distance(
    D: Tensor, sizes: Tensor, basis: Tensor, mixed: Tensor, lam: float, tie: str = "uniform"
) -> Tensor:
    """p of PFedCS's Eq. 7 for K clients and n others, float64 [K, n], rows sum to 1.

    p_j = lam (D_max - D_kj) / (|P| (D_max - D_avg)) + (1 - lam) N_j / sum of N over P, then divided by its sum over
    `mixed`. D: distances [K, n]; sizes: N [n]; basis, mixed: bool [K, n], P and the set that Eq. 6 sums over. Where
    D_max = D_avg the first term is 1 / |P| ("uniform"), or all weight goes to the second ("drop").
    """
    count, sizes = basis.sum(1, keepdim=True), sizes.double()
    largest = torch.where(basis, D, 0).amax(1, keepdim=True)
    gap = largest - (D * basis).sum(1, keepdim=True) / count
    near = largest - D
    alike = torch.where(gap > TIE, near / (count * gap.clamp(min=TIE)), 1 / count)
    lam = torch.where(gap > TIE, lam, lam if tie == "uniform" else 0.0)
    p = lam * alike + (1 - lam) * sizes / (sizes * basis).sum(1, keepdim=True)
    p = torch.where(mixed, p, 0)
    return p / p.sum(1, keepdim=True)


@dataclass(frozen=True)
class ByDistance(Options):
    """How far classifiers are apart in PFedCS, and what they weigh for it, as options of a method.

    dist_power: 2 sums squared distances of class vectors as in the formula, 1 distances as in the text. norm: D is
    divided by its row's maximum, or by the "global" one. A row of zeros, as in round 1 when all classifiers are equal,
    stays zero. lam: λ of Eq. 7, the share of similarity. weights: Eqs. 6-8 run over different sets. "closed" takes the
    collaborators and the client itself throughout, so that weights sum to 1; "literal_renorm" is Eq. 7 as printed, with
    D_kk = 0, divided by its sum; "no_self" leaves the client out; "uniform" does without Eq. 7: the client and all of
    its collaborators count alike. tie: if D_max = D_avg, Eq. 7 divides by zero: its
    first term is "uniform", or all weight goes to the second ("drop").
    """

    lam: float = option(0.5, 0, 1)
    dist_power: int = option(2, 1, 2)
    norm: str = option("row", "row", "global")
    weights: str = option("closed", "closed", "literal_renorm", "no_self", "uniform")
    tie: str = option("uniform", "uniform", "drop")

    def distances(self, weight: Tensor, ids: Tensor, pool: Tensor) -> Tensor:
        """D of the clients `ids` and those of `pool`, for classifiers of all [N, C, d]; float64 [K, n] in [0, 1]."""
        return class_distances(weight[ids], weight[pool], self.dist_power, self.norm)

    def weights_of(self, D: Tensor, sizes: Tensor, chosen: Tensor, own: Tensor) -> Tensor:
        """p of Eq. 7 for the collaborators `chosen`, float64 [K, n]; rows sum to 1. own: who is the client itself;
        both bool [K, n]."""
        if self.weights == "uniform":
            return (chosen | own).double() / (chosen | own).sum(1, keepdim=True)
        basis = chosen if self.weights != "closed" else chosen | own  # the set of Eq. 8
        mixed = chosen if self.weights == "no_self" else chosen | own  # the set of Eq. 6
        basis, mixed = (torch.where(some.any(1, keepdim=True), some, own) for some in (basis, mixed))
        return weights_by_distance(D, sizes, basis, mixed, self.lam, self.tie)


@dataclass(frozen=True)
class Choosing(Options):
    """Who may collaborate in PFedCS, as options of a method.

    select: "adaptive", the nearer of two groups, within the threshold of Eq. 4 (the method); for comparison "random"
    (`random_size` others), "all", "none" (no teacher, which is FedPer) or "self" (the fine-tuned own classifier
    teaches); and, told by someone who knows the labels, "oracle" (all clients with the same set of classes) or "twin"
    (one of them, drawn every round): where there is none, "self". group: the two groups are made by "gmm", "kmeans",
    "hier" or "fix" (Table 4). closure: whoever is no farther than a candidate is one, too. most: at most so many
    collaborators, the nearest (None: no bound).
    """

    select: str = option("adaptive", "adaptive", "random", "all", "none", "self", *TOLD)
    random_size: int = option(3, 1, inf)
    group: str = option("gmm", *HOW)
    closure: bool = True
    most: int | None = option(None, 1, inf)

    def candidates(self, D: Tensor, others: Tensor, generators: Sequence[np.random.Generator]) -> Tensor:
        """Who is looked at, bool [K, n]: the nearer of two groups of the others, or the comparison's choice.

        D: distances [K, n]; others: bool [K, n], everybody but the client itself; generators: one for each client.
        """
        if self.select == "random":
            return drawn_group(others, self.random_size, generators)
        if self.select == "all" or not others.any(1).all():
            return others
        apart = D[others].reshape(len(D), -1)
        near = nearer_group(apart.numpy(), self.group, generators, self.closure)
        return others.masked_scatter(others, torch.from_numpy(near))

    def told(self, twins: Tensor, generators: Sequence[np.random.Generator]) -> Tensor:
        """The collaborators, bool [K, n], if the clients with the same classes are known; twins: bool [K, n]."""
        return twins if self.select == "oracle" else drawn_group(twins, 1, generators)

    def nearest(self, D: Tensor, chosen: Tensor) -> Tensor:
        """The chosen ones, bool [K, n], at most `most` of each client's."""
        if self.most is None:
            return chosen
        places = D.masked_fill(~chosen, inf).argsort(dim=1, stable=True).argsort(1)
        return chosen & (places < self.most)
