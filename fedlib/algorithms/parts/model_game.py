"""The game of pFedSV: players are models, a coalition is worth what the mean of its models is to a client (Eq. 4).

Shapley values of such a game come from `fedlib.algorithms.parts.shapley`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import inf, log

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from fedlib.algorithms.parts.passes import part_mean
from fedlib.algorithms.parts.shapley import draw_permutations, values_of_present
from fedlib.base.errors import require
from fedlib.base.options import Options, option

UTILITIES, EMPTY = ("accuracy", "loss"), ("zero", "chance")
AT_ONCE = 2**24  # numbers that coalitions which are evaluated as one program may take together
ACTIVATIONS = 16  # numbers in a network's layers for each of an image, about


@dataclass(frozen=True)
class ModelGame(Options):
    """The game of pFedSV, as options of a method: players are models, and a coalition is worth what the mean of its
    models is on one part of a client's samples (Eq. 4).

    sv: values are estimated ("mc") or "exact". samples: permutations of an estimate, 0 for 3 for each player.
    val_fraction: share of a client's training samples in its validation part; utility_part: the samples that count.
    utility: "accuracy", or "loss", ln C - mean cross-entropy, which is 0 for a uniform guess. v_empty: the empty
    coalition is worth "zero", or "chance", the share of the most frequent label (for accuracy).
    """

    sv: str = option("mc", "mc", "exact")
    samples: int = option(0, 0, inf)
    val_fraction: float = option(0.2, 0, 0.99)
    utility: str = option("accuracy", *UTILITIES)
    utility_part: str = option("val", "val", "train")
    v_empty: str = option("zero", *EMPTY)

    def __post_init__(self):
        super().__post_init__()
        require(self.utility_part == "train" or self.val_fraction > 0, "val_fraction", self.val_fraction, "more than 0")

    def permutations(self, generator: np.random.Generator, players: int) -> Tensor:
        """The permutations of an estimate, int64 [Q, players]."""
        return draw_permutations(generator, self.samples or 3 * players, players)

    def values(self, model, own: dict, models: dict, there: Tensor, permutations: Tensor, data) -> Tensor:
        """Shapley values of the models that are there, float64 [p]; 0 for the others.

        models: stacked [p, ...]; entries that they do not have are those of `own`. there: bool [p]; permutations: [Q,
        p].
        """
        game = partial(self.worth, model, own, models, data=data)
        return values_of_present(game, there, permutations if self.sv == "mc" else None, model.stacked)

    def worth(self, model, own: dict, models: dict, members: Tensor, data) -> Tensor:
        """v of coalitions, bool [m, p] -> float64 [m]."""
        sizes, C = members.sum(1, keepdim=True), len(own["head.bias"])
        shares = members.double() / sizes.clamp(min=1)

        def goodness(x, y):
            return sample_utility(scores_of_means(model, own, models, shares, x), y, self.utility)

        found, nobody = part_mean(goodness, len(members), data, self.utility_part), 0.0
        if self.v_empty == "chance" and self.utility == "accuracy":
            nobody = part_mean(lambda x, y: functional.one_hot(y, C).T, C, data, self.utility_part).amax()
        return torch.where(sizes[:, 0] > 0, found, nobody)


def sample_utility(scores: Tensor, y: Tensor, utility: str) -> Tensor:
    """Of m models with scores [m, B, C] for every sample [m, B]: whether it is right, or ln C - its cross-entropy."""
    if utility == "accuracy":
        return scores.argmax(-1) == y
    labels = y.expand(len(scores), len(y))
    loss = functional.cross_entropy(scores.flatten(0, 1), labels.flatten(), reduction="none")
    return log(scores.shape[-1]) - loss.reshape(labels.shape)


def scores_of_means(model, theta: dict, models: dict, shares: Tensor, x: Tensor) -> Tensor:
    """Logits of the means of models [p, ...] with these shares [m, p]: [m, B, C]. If models are heads,
    theta has the extractor."""
    if len(models) < len(theta):  # only the heads differ
        z = model.features(theta, x)
        means = means_of(models, shares)
        return torch.einsum("bd,mcd->mbc", z, means["head.weight"]) + means["head.bias"][:, None]
    size = sum(leaf[0].numel() for leaf in models.values()) + ACTIVATIONS * x.numel()
    together = max(1, AT_ONCE // size)
    if together == 1 or model.stacked:  # no copies of large models, nor of a whole stack's
        means = (means_of(models, row) for row in shares)
        return torch.stack([model.logits({**theta, **mean}, x) for mean in means])
    return torch.cat([model.logits_of_many(theta, means_of(models, rows), x) for rows in shares.split(together)])


def means_of(models: dict, shares: Tensor) -> dict:
    """Means of models [p, ...] with shares [m, p]: [m, ...]; or one, with shares [p]."""
    return {name: torch.tensordot(shares.to(leaf.dtype), leaf, dims=1) for name, leaf in models.items()}
