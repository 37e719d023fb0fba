"""With what weight a client's model reaches another client: similarity of labels, or what that is to be compared with
(FedSimSup)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedlib.base.draws import rng
from fedlib.base.options import Options, option


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
