"""The data sets that come with fedlib, beside the digits: the digits in six looks, and heart disease in four hospitals.

Looks are feature skew that needs no download. Clients that write the same digits in different looks have equal labels
and unequal images, which is what DomainNet's clipart, paintings and sketches are for. Every image is in one look only.
The looks are as unequally large as DomainNet's domains.

The hospitals' table has 920 patients, and missing values, which are filled in without looking at tests. A. Janosi, W.
Steinbrunn, M. Pfisterer, R. Detrano, Heart Disease, UCI Machine Learning Repository, 1989; CC BY 4.0.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

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


# four hospitals -------------------------------------------------------------------------------------------------------

HOSPITALS = ("Cleveland", "Budapest", "Zurich and Basel", "Long Beach")
NEVER_ZERO = ("trestbps", "chol")  # blood pressure and cholesterol: a 0 in the source stands for "not measured"


class Patients(NamedTuple):
    """x: float32 [920, 13], NaN where a value is missing; y: int64 [920], 1 for heart disease (the source's 1 to 4);
    hospital: int64 [920], index into HOSPITALS; is_test: bool [920], a fifth of every hospital; features: 13 names."""

    x: np.ndarray
    y: np.ndarray
    hospital: np.ndarray
    is_test: np.ndarray
    features: tuple[str, ...]


def patients() -> Patients:
    """The table as the hospitals recorded it."""
    with np.load(Path(__file__).with_name("heart.npz"), allow_pickle=False) as table:
        features, x = tuple(table["feature"].tolist()), table["x"]
        zero = (x == 0) & np.isin(features, NEVER_ZERO)
        x = np.where(zero, np.float32("nan"), x)
        return Patients(x, table["y_binary"], table["client"], table["is_test"], features)


def filled(x: np.ndarray, hospital: np.ndarray, is_test: np.ndarray) -> np.ndarray:
    """x, float32 [n, d], with the mean of the hospital's own training patients in place of each missing value.

    A feature that none of them has gets the mean over the training patients of the other hospitals, which is 0 when
    inputs are standardised. Test patients have no part in any mean.
    """
    x = x.astype(np.float64)
    for own in (hospital == h for h in np.unique(hospital)):
        training = x[own & ~is_test]
        count = (~np.isnan(training)).sum(0)
        mean = np.where(count > 0, np.nansum(training, 0) / np.maximum(count, 1), np.nan)
        x[own] = np.where(np.isnan(x[own]), mean, x[own])
    return np.where(np.isnan(x), np.nanmean(x[~is_test], 0), x).astype(np.float32)
