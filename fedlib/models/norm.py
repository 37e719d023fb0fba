"""Batch norm whose running statistics are explicit state, also for padded batches."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class BatchNorm2d(nn.BatchNorm2d):
    """nn.BatchNorm2d that never writes into its buffers: in training mode the new running statistics are left in
    `new_stats`.

    mask: bool [B], the rows of a padded batch that hold real samples, or None if all do. Statistics are taken over the
    real rows only, so that a padded batch gives what the same batch without padding gives. A single value per channel
    has no unbiased variance: then the old running variance stays.
    """

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float = 0.1):
        super().__init__(num_features, eps, momentum)
        self.num_batches_tracked = None
        self.mask: Tensor | None = None
        self.new_stats: tuple[Tensor, Tensor] | None = None

    @classmethod
    def like(cls, layer: nn.BatchNorm2d) -> BatchNorm2d:
        """One of ours with the eps, momentum, weights and statistics of `layer`."""
        new = cls(layer.num_features, layer.eps, layer.momentum)
        new.weight, new.bias = layer.weight, layer.bias
        new.running_mean, new.running_var = layer.running_mean, layer.running_var
        return new

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            wide = x.to(self.weight.dtype)  # torch.func's gradient knows no batch norm of two types, as under autocast
            out = functional.batch_norm(
                wide, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps
            )
            return out.to(x.dtype)
        if self.mask is None and x.numel() > x.shape[1]:
            mean, var = self.running_mean.clone(), self.running_var.clone()
            out = functional.batch_norm(x, mean, var, self.weight, self.bias, True, self.momentum, self.eps)
            self.new_stats = mean, var
            return out
        x = x.to(self.weight.dtype)  # sums in full precision, also under autocast
        mask = x.new_ones(len(x), dtype=torch.bool) if self.mask is None else self.mask
        real = mask.view(-1, 1, 1, 1)
        count = mask.sum().to(x.dtype) * x.shape[2] * x.shape[3]
        mean = torch.where(real, x, 0).sum((0, 2, 3)) / count
        centred = torch.where(real, x - mean.view(1, -1, 1, 1), 0)  # other rows: 0, or they grow from layer to layer
        var = centred.square().sum((0, 2, 3)) / count
        unbiased = torch.where(count > 1, var * count / (count - 1), self.running_var)
        keep = 1 - self.momentum
        self.new_stats = (
            keep * self.running_mean + self.momentum * mean.detach(),
            keep * self.running_var + self.momentum * unbiased.detach(),
        )
        scale = self.weight * (var + self.eps).rsqrt()
        return centred * scale.view(1, -1, 1, 1) + self.bias.view(1, -1, 1, 1)
