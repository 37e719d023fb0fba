"""Heart disease in four hospitals: a table of 920 patients, and its missing values filled in without looking at tests.

A. Janosi, W. Steinbrunn, M. Pfisterer, R. Detrano, Heart Disease, UCI Machine Learning Repository, 1989; CC BY 4.0.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

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
