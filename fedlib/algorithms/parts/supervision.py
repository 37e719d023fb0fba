"""The two halves of FedSimSup: networks beside a client's model that score together with it (whose is which, how they
start, how scores are joined), and with what weight a client's model reaches another client."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from math import log

import torch
from torch import Tensor

from fedlib.base import tree
from fedlib.base.draws import rng
from fedlib.base.errors import require
from fedlib.base.options import Options, option
from fedlib.models import check_model


@dataclass(frozen=True)
class Supervised(Options):
    """Every client has a supervisor, a network of its own, as options of a method.

    supervisors: name of the supervisor's network; several joined by "+" are drawn for the clients with equal chances,
    and every client keeps one of each, of which it uses its own. shared_sup_init: all of one kind start equal; by
    default each is a draw of its own. combine: "logits" are added, or class probabilities averaged ("prob"). learn:
    every network is trained so that the joint scores ("sum") are right, or its own ("alone"), as in an ensemble.
    """

    supervisors: str = "supervisor_sixth"
    shared_sup_init: bool = False
    combine: str = option("logits", "logits", "prob")
    learn: str = option("sum", "sum", "alone")

    def __post_init__(self):
        super().__post_init__()
        different = len(set(self.siblings)) == len(self.siblings) and all(self.siblings)
        require(different, "supervisors", self.supervisors, "different names of models, joined by +")
        for name in self.siblings:
            check_model(name)

    @property
    def siblings(self) -> list[str]:
        """Architectures of supervisors."""
        return self.supervisors.split("+")

    def groups(self, setting) -> list[str]:
        """The architecture of each client's supervisor."""
        draw = rng(setting.seed, "supervisors").integers(len(self.siblings), size=setting.num_clients)
        return [self.siblings[k] for k in draw]

    def first_supervisors(self, model, N: int) -> dict:
        """Initial values by architecture, for all clients, stacked [N, ...]."""
        networks, own = {kind: model.sibling(kind) for kind in self.siblings}, model.num_parameters["model"]
        for kind, network in networks.items():
            if (size := network.num_parameters["model"]) > own:
                warnings.warn(f"the supervisor {kind} has {size:,} parameters, the model {own:,}", stacklevel=2)
        if self.shared_sup_init:
            return {kind: tree.repeat(network.theta0, N) for kind, network in networks.items()}
        return {kind: tree.stack([network.independent(i + 1) for i in range(N)]) for kind, network in networks.items()}

    def joint_scores(self, a: Tensor, b: Tensor) -> Tensor:
        """Scores [B, C] of two networks as those of one: their sum,
        or with "prob" the log of the mean of their probabilities."""
        if self.combine == "logits":
            return a + b
        return torch.logaddexp(a.log_softmax(-1), b.log_softmax(-1)) - log(2)


@dataclass(frozen=True)
class WeightedPairs(Options):
    """Weights of pairs of clients, as an option of a method.

    similarity: cosines of "labels" as they are (the method); to see what they are worth "uniform" weights, "shuffled"
    ones (those of every client given to others at random), "nearest" (of the participants only the most similar one
    counts) or "none" (no client is similar to another).
    """

    similarity: str = option("labels", "labels", "uniform", "shuffled", "nearest", "none")

    def weights_of_pairs(self, cosines: Tensor, seed: int) -> Tensor:
        """Weights [N, N] in place of the cosines of all pairs."""
        if self.similarity == "uniform":
            return torch.ones_like(cosines)
        if self.similarity == "none":
            return torch.zeros_like(cosines)
        if self.similarity == "shuffled":
            draw, cosines = rng(seed, "shuffled similarities"), cosines.clone()
            for i in range(len(cosines)):
                others = torch.arange(len(cosines)) != i
                cosines[i, others] = cosines[i, others][torch.from_numpy(draw.permutation(len(cosines) - 1))]
        return cosines

    def counted(self, weights: Tensor) -> Tensor:
        """The weights of participants [M, K] that count for each of M clients; 0 elsewhere."""
        if self.similarity == "nearest":
            return torch.where(weights == weights.amax(1, keepdim=True), weights, 0)
        return weights
