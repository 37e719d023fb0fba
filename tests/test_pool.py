"""The quick 2x2 max-pooling is PyTorch's, bit for bit."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from fedlib.models import pool
from fedlib.models.pool import MaxPool2x2


@pytest.fixture(autouse=True)
def at_any_size(monkeypatch):
    monkeypatch.setattr(pool, "WORTH_IT", 0)


def both(x, function):
    """Output and gradient of a pooling function, for a gradient that differs from place to place."""
    x = x.clone().requires_grad_()
    out = function(x)
    weights = torch.arange(out.numel(), dtype=x.dtype).view(out.shape).sin()
    return out.detach(), torch.autograd.grad(out, x, weights)[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "shape", [(8, 6, 28, 28), (3, 2, 4, 10), (1, 1, 2, 2), (2, 3, 5, 8), (2, 3, 8, 5), (0, 3, 4, 4)]
)
def test_outputs_and_gradients_are_pytorchs(shape, dtype):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=dtype)
    for ours, theirs in zip(both(x, MaxPool2x2()), both(x, lambda x: functional.max_pool2d(x, 2))):
        assert torch.equal(ours, theirs)


def test_of_equal_numbers_the_same_one_gets_the_gradient():
    """All 3^4 windows of the numbers -1, 0, 1, so every pattern of ties."""
    values = torch.tensor([-1.0, 0.0, 1.0])
    windows = torch.cartesian_prod(values, values, values, values).view(81, 1, 2, 2)
    for ours, theirs in zip(both(windows, MaxPool2x2()), both(windows, lambda x: functional.max_pool2d(x, 2))):
        assert torch.equal(ours, theirs)


def test_second_derivatives():
    """Reconstructing images from gradients differentiates twice."""
    x = torch.randn(2, 2, 4, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(MaxPool2x2(), x) and torch.autograd.gradgradcheck(MaxPool2x2(), x)


def test_not_a_number_stays_one():
    x = torch.ones(1, 1, 2, 4)
    x[0, 0, 1, 2] = float("nan")
    assert MaxPool2x2()(x).isnan().tolist() == [[[[False, True]]]]
