"""What every backbone is made of: an extractor and a head, the check that an input is large enough for it, and batch
norm whose running statistics are explicit state, also for padded batches."""

from __future__ import annotations

from bisect import bisect_left

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from fedlib.base.errors import BadValue

LARGEST = 1024  # pixels; up to here the smallest accepted input is looked for
SMALL = 1_000_000  # parameters; up to here shapes are found by computing an image


class ExtractorHead(nn.Module):
    """theta = (f, h): f maps an image to a feature vector z, the linear head h maps z to logits."""

    def __init__(self, extractor: nn.Module, head: nn.Linear):
        super().__init__()
        self.extractor = extractor
        self.head = head

    def forward(self, x):
        return self.head(self.extractor(x))


def num_features(name: str, net: nn.Module, shape: tuple[int, int, int]) -> int:
    """How many numbers `net` makes of one image of `shape` (channels, height, width).

    Raises BadValue, naming the smallest square that is accepted, for an image that is too small. `name` is for the
    message. A small network computes a blank image. For others, and where the smallest square is looked for, shapes are
    followed on the meta device: there nothing is computed, but its first use costs a process two seconds of imports.
    """
    channels, height, width = shape
    small = sum(value.numel() for value in net.parameters()) <= SMALL
    found = _outputs(net, shape, "cpu" if small else "meta")
    if isinstance(found, int):
        return found
    sizes = range(1, LARGEST + 1)
    smaller = bisect_left(sizes, True, key=lambda size: isinstance(_outputs(net, (channels, size, size), "meta"), int))
    if smaller == LARGEST or min(height, width) > smaller:
        raise BadValue(f"input size {height}x{width} is not accepted by {name}: {found}")
    smallest = sizes[smaller]
    hint = "a table of features takes model=mlp; " if height == width == 1 else ""
    raise BadValue(
        f"input size {height}x{width} is too small for {name}; {hint}expected at least {smallest}x{smallest}"
    )


def _outputs(net: nn.Module, shape: tuple[int, int, int], device: str) -> int | Exception:
    """Numbers per image, or the error that the image caused; on `device`, wherever the network's own numbers are."""
    was_training = net.training
    try:
        values = (*net.named_parameters(), *net.named_buffers())
        theta = {name: torch.zeros(value.shape, dtype=value.dtype, device=device) for name, value in values}
        with torch.no_grad():
            return functional_call(net.eval(), theta, (torch.zeros(1, *shape, device=device),)).numel()
    except RuntimeError as error:
        return error
    finally:
        net.train(was_training)


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
