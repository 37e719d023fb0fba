"""A minibatch: what a model is trained on in one step."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedlib.base.errors import BadValue


@dataclass(frozen=True)
class Batch:
    """x: standardised images [B, c, h, w]; y: int64 [B]; mask: bool [B], real rows of a padded batch, or None if all
    are; noise: independent standard normal numbers [B, k], where `fold` was asked for them."""

    x: Tensor
    y: Tensor
    mask: Tensor | None = None
    noise: Tensor | None = None

    def mean(self, values: Tensor) -> Tensor:
        """Mean of one number a sample, [B], over the real rows."""
        if self.mask is None:
            if values.shape != self.y.shape:
                found, expected = list(values.shape), len(self.y)
                raise BadValue(f"mean of {found} numbers is not accepted; expected one for each of {expected} samples")
            return values.mean()
        return torch.where(self.mask, values, 0).sum() / self.mask.sum()
