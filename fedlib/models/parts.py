"""What every backbone is made of: an extractor and a head, and the check that an input is large enough for it."""

from __future__ import annotations

from bisect import bisect_left

import torch
from torch import nn
from torch.func import functional_call

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
