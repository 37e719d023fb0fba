"""All randomness of fedlib: every draw is a function of (seed, purpose, ids), never of a global state.

So a resumed run, another backend, another method or another number of workers sees the same draws.
"""

from __future__ import annotations

import zlib

import numpy as np
import torch


def rng(seed: int, purpose: str, *ids: int) -> np.random.Generator:
    """An independent generator for one purpose, e.g. rng(seed, "participants", round)."""
    return np.random.default_rng([zlib.crc32(purpose.encode()), seed, *ids])


def torch_seeded(seed: int, purpose: str, make):
    """Call `make()` with torch's CPU generator seeded for `purpose`; the global generator is restored."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(int(rng(seed, purpose).integers(2**63)))
        return make()


def num_participants(num_clients: int, join_ratio: float) -> int:
    """Clients that take part in a round: max(1, floor(r N))."""
    return max(1, int(join_ratio * num_clients + 1e-9))


def participants(seed: int, round: int, num_clients: int, join_ratio: float) -> np.ndarray:
    """S_t: the clients of round t, uniform without replacement, sorted. Same for every method."""
    size = num_participants(num_clients, join_ratio)
    return np.sort(rng(seed, "participants", round).choice(num_clients, size=size, replace=False))


def newcomers(seed: int, num_clients: int, count: int) -> np.ndarray:
    """Which of all clients come after the last round, int64 [count], sorted. Same for every method."""
    return np.sort(rng(seed, "newcomers").choice(num_clients, size=count, replace=False))
