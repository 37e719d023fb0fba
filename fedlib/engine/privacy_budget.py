"""What the noise of a run guarantees its clients."""

from __future__ import annotations

from math import ceil, inf, sqrt

import numpy as np

from fedlib.algorithms.api import Algorithm
from fedlib.base import draws
from fedlib.data import load
from fedlib.data.partition import SCHEMES
from fedlib.data.split import cut_size
from fedlib.privacy.accounting import epsilon
from fedlib.privacy.noise import Stated, stated_by
from fedlib.spec import RunSpec


def budgets(spec: RunSpec, delta: float = 1e-5, samples: np.ndarray | None = None) -> np.ndarray:
    """ε of every member of a run, float64 [N], for what it releases in the rounds in which it takes part, else 0.

    record: the steps that the method states (`Algorithm.passes`), at rate min(1, B/N_i); k gradients of the same
    minibatch are one step with σ/√k. client: one release a round, `exact`. Clients' ε are those of an observer who
    knows who takes part and how many samples they have. Without noise or without clipping all are ∞, and so they are
    where `not_protected` says why. δ: as in `epsilon`. samples: int [N], all samples of every member, as a finished run
    has them; None: the data set is loaded and divided for them. Raises BadValue as `epsilon`, as loading and dividing
    the data does, and for record noise in a method that does not state its steps.
    """
    mechanism, takes_part = spec.mechanism, np.zeros((spec.rounds, spec.num_members), dtype=bool)
    for t, row in enumerate(takes_part, 1):
        row[draws.participants(spec.seed, t, len(row), spec.join_ratio)] = True
    if mechanism.kind == "record":
        gradients = max(each.gradients for each in _stated(spec))
    if mechanism.kind not in ("record", "client") or mechanism.sigma == 0 or not_protected(spec):
        return np.where(takes_part.any(0), inf, 0.0)
    if mechanism.kind == "client":
        return np.array([epsilon(mechanism.sigma, 1, int(count), delta, "exact") for count in takes_part.sum(0)])
    known: dict[tuple, float] = {}
    passes_of = np.array([each.passes for each in _stated(spec)]) @ takes_part  # through its training samples
    keys = list(zip(_training_sizes(spec, samples), passes_of.tolist()))
    for size, passes in keys:
        if (size, passes) not in known:
            rate, steps = min(1.0, spec.batch_size / max(1, size)), passes * ceil(size / spec.batch_size)
            known[size, passes] = epsilon(mechanism.sigma / sqrt(gradients), rate, steps, delta)
    return np.array([known[key] for key in keys])


def not_protected(spec: RunSpec) -> str:
    """Why a run with clipping and noise has no finite ε, in words; "" where it has one, or is without noise."""
    if not spec.mechanism.sigma or spec.privacy not in ("record", "client"):
        return ""
    return next((method.unprotected for method in _methods(spec) if method.unprotected), "")


def _methods(spec: RunSpec) -> list[Algorithm]:
    """Whose rounds they are, from round 1 on."""
    own, (first, last) = spec.algorithm, spec.warm_up
    return [first if t <= last else own for t in range(1, spec.rounds + 1)]


def _stated(spec: RunSpec) -> list[Stated]:
    """What these say of their rounds."""
    rounds = enumerate(_methods(spec), 1)
    return [stated_by(method, spec.rounds, t, spec.local_epochs) for t, method in rounds]


def _training_sizes(spec: RunSpec, samples: np.ndarray | None) -> list[int]:
    """Training samples of every member."""
    if samples is None or SCHEMES[spec.scheme].halves or spec.test_part == "official":
        parts = spec.divide(load(spec.dataset))[1]
        return [len(parts[i]["train"]) for i in spec.arrival[: spec.num_members]]
    left = [int(n) - cut_size(int(n), spec.test_fraction) for n in samples]
    return [n - cut_size(n, spec.validation) for n in left] if spec.validation else left
