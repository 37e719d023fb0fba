"""Class by class statistics of the features of one client's data: what prototype methods are made of."""

from __future__ import annotations

import torch
from torch import Tensor


def one_hot(y: Tensor, num_classes: int) -> Tensor:
    """bool [B, C]; also under vmap, where PyTorch's own does not work."""
    return y[:, None] == torch.arange(num_classes, device=y.device)


def class_statistics(model, theta: dict, data) -> tuple[Tensor, Tensor, Tensor]:
    """One pass over the training data in evaluation mode, with z = f(x): for every class its samples [C], its mean z
    [C, d] and its mean |z|^2 [C] (0 for classes without samples), all of theta's type."""
    weight = theta["head.weight"]
    C, d = weight.shape

    def step(totals, batch):
        z = model.features(theta, batch.x)
        own = one_hot(batch.y, C).to(z)  # [B, C]
        if batch.mask is not None:
            own = own * batch.mask[:, None]
        counts, sums, squares = totals
        return counts + own.sum(0), sums + own.T @ z, squares + own.T @ z.square().sum(1)

    counts, sums, squares = data.scan(step, (weight.new_zeros(C), weight.new_zeros(C, d), weight.new_zeros(C)))
    some = counts.clamp(min=1)
    return counts, sums / some[:, None], squares / some


def attraction(z: Tensor, y: Tensor, prototypes: Tensor, counts: Tensor) -> Tensor:
    """Mean over the components of (f(x) - P_y)^2 for every sample [B];
    0 where class y has no prototype (counts[y] = 0)."""
    return torch.where(counts[y] > 0, (z - prototypes[y]).square().mean(1), 0.0)
