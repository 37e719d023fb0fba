"""The quick 2x2 max-pooling is PyTorch's, bit for bit; the convolution of stacked clients is up to rounding."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from fedlib.base import devices
from fedlib.models import faster
from fedlib.models.faster import Conv2d, MaxPool2x2


@pytest.fixture(autouse=True)
def at_any_size(monkeypatch):
    monkeypatch.setattr(faster, "WORTH_IT", 0)


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


@pytest.mark.parametrize("padding", [0, 2])
@pytest.mark.parametrize("order", [1, 2])
def test_stacked_convolutions_are_pytorchs(padding, order, monkeypatch):
    """Three clients, weights and images of their own: outputs, and gradients up to second order."""
    monkeypatch.setattr(devices, "GPUS", {"cpu"})
    torch.manual_seed(0)
    layer = Conv2d(2, 4, 3, padding=padding).double()
    thetas = [torch.randn(3, *value.shape, dtype=torch.float64) for value in (layer.weight, layer.bias)]
    images = torch.randn(3, 5, 2, 6, 7, dtype=torch.float64)

    def loss(weight, bias, x):
        return torch.func.functional_call(layer, {"weight": weight, "bias": bias}, x).sin().square().sum()

    def slope(*given):
        return sum(part.square().sum() for part in torch.func.grad(loss, (0, 1, 2))(*given))

    wanted = torch.func.vmap(torch.func.grad(loss if order == 1 else slope, (0, 1, 2)))
    seen = []
    monkeypatch.setattr(
        faster.functional, "fold", lambda *a, of=faster.functional.fold, **k: seen.append(1) or of(*a, **k)
    )
    theirs = wanted(*thetas, images)
    assert not seen  # PyTorch's own, where it is not stacked
    layer.stacked = True
    for mine, its in zip(wanted(*thetas, images), theirs, strict=True):
        torch.testing.assert_close(mine, its)
    assert seen
