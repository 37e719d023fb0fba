"""A network without convolutions, for tables of features; it takes images as well."""

from __future__ import annotations

from collections import OrderedDict
from math import prod

from torch import nn

from fedlib.base.errors import require
from fedlib.models.parts import ExtractorHead


def mlp(shape: tuple[int, int, int], num_classes: int, hidden: int = 100, depth: int = 1) -> ExtractorHead:
    """`depth` linear layers of `hidden` units, each with ReLU, and a linear classifier; depth 0: logistic regression.

    shape: (features, 1, 1) of a table; the pixels of an image are its features. No batch norm. With 30 features and 2
    classes: 3,302 parameters.
    """
    require(hidden >= 1, "hidden", hidden, "an integer of at least 1")
    require(depth >= 0, "depth", depth, "an integer of at least 0")
    layers, width = OrderedDict(flatten=nn.Flatten()), prod(shape)
    for k in range(1, depth + 1):
        layers |= {f"fc{k}": nn.Linear(width, hidden), f"relu{k}": nn.ReLU()}
        width = hidden
    return ExtractorHead(nn.Sequential(layers), nn.Linear(width, num_classes))
