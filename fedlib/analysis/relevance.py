"""Do clients find those who share their labels? Scores, searches and games of methods that choose whose models they get."""

from __future__ import annotations

import numpy as np
import pandas as pd

from fedlib.algorithms.parts.peers import ZERO
from fedlib.algorithms.parts.shapley import coalitions_asked


def share_a_label(counts: np.ndarray) -> np.ndarray:
    """Who shares a label with whom, bool [N, N] without the diagonal; counts: samples by client and class [N, C]."""
    owned = (np.asarray(counts) > 0).astype(int)
    return (owned @ owned.T > 0) & ~np.eye(len(owned), dtype=bool)


def others(matrix: np.ndarray) -> np.ndarray:
    """A matrix [N, N] without its diagonal, [N, N - 1]."""
    return matrix[~np.eye(len(matrix), dtype=bool)].reshape(len(matrix), -1)


def mean_auc(scores: np.ndarray, relevant: np.ndarray) -> float:
    """Chance that a client scores a relevant other higher than an irrelevant one (ties count half), mean over clients; both [N, N].

    1 is perfect, 0.5 is guessing. Clients to whom all others are relevant, or none, are left out; NaN if nobody is left.
    """
    rows = [(truth, row) for truth, row in zip(others(relevant), others(scores)) if truth.any() and not truth.all()]
    return float(np.mean([_auc(row[truth], row[~truth]) for truth, row in rows])) if rows else float("nan")


def _auc(above: np.ndarray, below: np.ndarray) -> float:
    """Share of the pairs in which a number of the first kind is higher than one of the second."""
    gaps = above[:, None] - below
    return float(((gaps > 0) + 0.5 * (gaps == 0)).mean())


def signs(score: np.ndarray, relevant: np.ndarray) -> dict[str, int]:
    """Ordered pairs whose sign is "wrong"; of these the relevant ones that were "missed"; pairs positive on "one_sided" only."""
    positive = score > ZERO
    return {
        "wrong": int(others(positive != relevant).sum()),
        "missed": int(others(relevant & ~positive).sum()),
        "one_sided": int(np.triu(positive != positive.T, 1).sum()),
    }


def first_complete(downloads: np.ndarray, relevant: np.ndarray) -> np.ndarray:
    """Round (from 1) by whose end each client has downloaded all of its relevant others, float [N]; NaN if never. downloads: bool [T, N, N]."""
    complete = (np.logical_or.accumulate(downloads, 0) | ~relevant).all(-1)  # [T, N]
    return np.where(complete.any(0), complete.argmax(0) + 1, np.nan)


def search_bound(n: int, m: int, k: int) -> int:
    """Rounds after which a client has downloaded its m relevant others among n clients, k models a round (pFedSV §4.2)."""
    return -(-(n - m - 1) // k) + (1 if m < k else -(-m // k))


def ranks_of_others(distances: np.ndarray) -> np.ndarray:
    """Rank of every other client by its distance, 1 for the nearest, int [N, N]; oneself has 0."""
    return np.where(np.eye(len(distances), dtype=bool), -np.inf, distances).argsort(1).argsort(1)


def game_costs(most: int = 10) -> pd.DataFrame:
    """Coalitions that a game of so many players asks for: exact values, and an estimate from 3 permutations a player; counted."""
    lines = [(p, 3 * p, coalitions_asked(p), coalitions_asked(p, 3 * p)) for p in range(2, most + 1)]
    return pd.DataFrame(lines, columns=["players", "permutations", "exact", "estimate"])
