"""What the noise of a run guarantees its clients."""

from __future__ import annotations

from math import ceil, inf

import numpy as np

from fedlib.base import draws
from fedlib.data import load
from fedlib.data.partition import SCHEMES
from fedlib.data.split import cut_size
from fedlib.privacy.accounting import epsilon
from fedlib.spec import RunSpec


def budgets(spec: RunSpec, delta: float = 1e-5, bound: str = "rdp", samples: np.ndarray | None = None) -> np.ndarray:
    """ε of every member of a run, float64 [N], for what it releases in the rounds in which it takes part, else 0.

    record: E ⌈N_i/B⌉ steps a round at rate min(1, B/N_i), the steps of a method that goes E times through the data.
    client: one release a round, `exact`. Clients' ε are those of an observer who knows who takes part. Without noise or
    without clipping all are ∞. δ: as in `epsilon`. samples: int [N], all samples of every member, as a finished run has
    them; None: the data set is loaded and divided for them. Raises BadValue as `epsilon`, and as loading and dividing
    the data does.
    """
    N, mechanism = spec.num_members, spec.mechanism
    takes_part = np.zeros(N, dtype=int)
    for t in range(1, spec.rounds + 1):
        takes_part[draws.participants(spec.seed, t, N, spec.join_ratio)] += 1
    if mechanism.kind not in ("record", "client") or mechanism.sigma == 0:
        return np.where(takes_part > 0, inf, 0.0)
    if mechanism.kind == "client":
        return np.array([epsilon(mechanism.sigma, 1, int(count), delta, "exact") for count in takes_part])
    known: dict[tuple, float] = {}
    sizes = _training_sizes(spec, samples)
    for key in zip(sizes, takes_part.tolist()):
        size, count = key
        if key not in known:
            steps = count * spec.local_epochs * ceil(size / spec.batch_size)
            known[key] = epsilon(mechanism.sigma, min(1.0, spec.batch_size / max(1, size)), steps, delta, bound)
    return np.array([known[key] for key in zip(sizes, takes_part.tolist())])


def _training_sizes(spec: RunSpec, samples: np.ndarray | None) -> list[int]:
    """Training samples of every member."""
    if samples is None or SCHEMES[spec.scheme].halves:
        parts = spec.divide(load(spec.dataset))[1]
        return [len(parts[i]["train"]) for i in spec.arrival[: spec.num_members]]
    left = [int(n) - cut_size(int(n), spec.test_fraction) for n in samples]
    return [n - cut_size(n, spec.validation) for n in left] if spec.validation else left
