"""2x2 max-pooling that is quick on a CPU, where PyTorch's own kernel takes a sixth of a training step of LeNet5."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

WORTH_IT = 40_000  # fewest numbers for which it pays, with its gradient (measured)


class MaxPool2x2(nn.Module):
    """nn.MaxPool2d(2): the same outputs and gradients, also where several numbers of a window are the largest.

    PyTorch goes through a window number by number. Here neighbouring columns are compared as whole tensors, then rows.
    Used on a CPU, for even sizes, outside of torch.func's transforms; elsewhere, and for small inputs, this is
    PyTorch's function.
    """

    kernel_size, stride, padding = 2, 2, 0  # what nn.MaxPool2d calls them

    def __init__(self):
        super().__init__()
        self.stacked = False  # set by `fedlib.models.Model`: True inside torch.func.vmap

    def forward(self, x: Tensor) -> Tensor:
        even = x.shape[-1] % 2 == 0 and x.shape[-2] % 2 == 0
        fits = x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64) and x.is_contiguous()
        if even and fits and x.numel() >= WORTH_IT and not self.stacked:
            return _ColumnsThenRows.apply(x)
        return functional.max_pool2d(x, 2)


class _ColumnsThenRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        wider = torch.maximum(*_columns(x))
        ctx.save_for_backward(x, wider)
        return torch.maximum(*_rows(wider))

    @staticmethod
    def backward(ctx, gradient: Tensor) -> Tensor:
        x, wider = ctx.saved_tensors
        upper, lower = _to_larger(gradient, *_rows(wider))
        gradient = torch.stack((upper, lower), -2).view(wider.shape)
        left, right = _to_larger(gradient, *_columns(x))
        return torch.view_as_real(torch.complex(left, right)).view(x.shape)  # left and right numbers in turn


def _columns(x: Tensor) -> tuple[Tensor, Tensor]:
    """The left and the right numbers of all pairs of neighbours in a row."""
    *rest, width = x.shape
    return x.view(*rest, width // 2, 2).unbind(-1)


def _rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """The upper and the lower rows of all pairs of rows."""
    *rest, height, width = x.shape
    return x.view(*rest, height // 2, 2, width).unbind(-2)


def _to_larger(gradient: Tensor, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient of maximum(first, second) with respect to both; of equal numbers the first one gets it."""
    to_second = torch.ops.aten.threshold_backward(gradient, second - first, 0)
    return gradient - to_second, to_second
