"""The digits in six styles: feature skew that needs no download.

Clients that write the same digits in different looks have equal labels and unequal images, which is what DomainNet's
clipart, paintings and sketches are for. Every image is in one look only. The looks are as unequally large as
DomainNet's domains.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from fedlib.base.draws import rng

SHARES = (2464, 3414, 5006, 10000, 10609, 5056)  # images of DomainNet's domains in pFedSim's Figure 5(b)
TILT = 25  # degrees


def outline(x: Tensor) -> Tensor:
    """Bright where the brightest neighbour is much brighter."""
    return functional.max_pool2d(x, 3, stride=1, padding=1) - x


def tilted(x: Tensor) -> Tensor:
    """Turned by TILT degrees about the centre."""
    angle = np.deg2rad(TILT)
    turn = torch.tensor([[np.cos(angle), -np.sin(angle), 0.0], [np.sin(angle), np.cos(angle), 0.0]], dtype=x.dtype)
    grid = functional.affine_grid(turn.expand(len(x), 2, 3), list(x.shape), align_corners=False)
    return functional.grid_sample(x, grid, align_corners=False)


def on_checks(x: Tensor) -> Tensor:
    """On a checkerboard of grey fields, 2 pixels wide."""
    row = torch.arange(x.shape[-1]) // 2
    board = 110.0 * ((row[:, None] + row) % 2)
    return torch.maximum(x, board.to(x))


LOOKS: dict[str, Callable[[Tensor], Tensor]] = {
    "plain": lambda x: x,
    "negative": lambda x: 255 - x,
    "outline": outline,
    "faint": lambda x: 110 + 0.3 * x,
    "tilted": tilted,
    "checks": on_checks,
}


def in_looks(images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Images uint8 [n, 1, h, w], each in its look, and the look of each, int64 [n], as index into LOOKS.

    Every class is dealt to the looks in proportion to SHARES, so that the looks do not differ in their labels.
    """
    edges = np.cumsum(SHARES) / sum(SHARES)
    look = np.empty(len(labels), dtype=np.int64)
    for c in labels.unique().tolist():
        own = rng(0, "looks", c).permutation(np.flatnonzero(labels.numpy() == c))
        look[own] = np.searchsorted(edges, (np.arange(len(own)) + 0.5) / len(own))
    drawn = images.double()
    for k, draw in enumerate(LOOKS.values()):
        drawn[look == k] = draw(images[look == k].double())
    return drawn.round().clamp(0, 255).to(torch.uint8), torch.from_numpy(look)
