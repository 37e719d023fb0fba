"""The split of one client's samples into a training and a test part."""

from __future__ import annotations

import numpy as np

from fedlib.draws import rng
from fedlib.errors import BadValue, require


def split_client(indices: np.ndarray, test_fraction: float, seed: int, client: int) -> tuple[np.ndarray, np.ndarray]:
    """Shuffle one client's indices with its own stream and cut them into (train, test), at least one sample each.

    Raises BadValue for a test fraction outside (0, 1) and for a client with fewer than two samples.
    """
    require(0 < test_fraction < 1, "test_fraction", test_fraction, "a number between 0 and 1, both excluded")
    if len(indices) < 2:
        raise BadValue(
            f"client {client} has {len(indices)} sample(s); a train/test split needs at least 2 (raise min_size)"
        )
    shuffled = rng(seed, "split", client).permutation(indices)
    tests = min(max(1, round(test_fraction * len(indices))), len(indices) - 1)
    return np.sort(shuffled[tests:]), np.sort(shuffled[:tests])
