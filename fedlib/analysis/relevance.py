"""Do clients find those who share their labels? Scores, searches and games of methods that choose whose models they
get.

The functions of a run need its arrays `counts`, `relevance` and `downloads`, which the measures of these names keep.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from fedlib.algorithms.parts.peers import ZERO
from fedlib.algorithms.parts.shapley import coalitions_asked
from fedlib.analysis.tables import by_pair, spearman
from fedlib.data.describe import label_cosine
from fedlib.engine.result import RunResult


def share_a_label(counts: np.ndarray) -> np.ndarray:
    """Who shares a label with whom, bool [N, N] without the diagonal; counts: samples by client and class [N, C]."""
    owned = (np.asarray(counts) > 0).astype(int)
    return (owned @ owned.T > 0) & ~np.eye(len(owned), dtype=bool)


def others(matrix: np.ndarray) -> np.ndarray:
    """A matrix [N, N] without its diagonal, [N, N - 1]."""
    return matrix[~np.eye(len(matrix), dtype=bool)].reshape(len(matrix), -1)


def mean_auc(scores: np.ndarray, relevant: np.ndarray) -> float:
    """Chance that a client scores a relevant other higher than an irrelevant one (ties count half), mean over clients.

    Both [N, N]. 1 is perfect, 0.5 is guessing. Clients to whom all others are relevant, or none, are left out;
    NaN if nobody is left.
    """
    from sklearn.metrics import roc_auc_score  # here, because it takes a second that most commands need not wait

    rows = [(truth, row) for truth, row in zip(others(relevant), others(scores)) if truth.any() and not truth.all()]
    return float(np.mean([roc_auc_score(truth, row) for truth, row in rows])) if rows else float("nan")


def signs(score: np.ndarray, relevant: np.ndarray) -> dict[str, int]:
    """Ordered pairs whose sign is "wrong"; of these the relevant ones "missed";
    pairs positive on one side only ("one_sided")."""
    positive = score > ZERO
    return {
        "wrong": int(others(positive != relevant).sum()),
        "missed": int(others(relevant & ~positive).sum()),
        "one_sided": int(np.triu(positive != positive.T, 1).sum()),
    }


def first_complete(downloads: np.ndarray, relevant: np.ndarray) -> np.ndarray:
    """Round (from 1) by whose end each client has downloaded all of its relevant others, float [N]; NaN if never.

    downloads: bool [T, N, N].
    """
    complete = (np.logical_or.accumulate(downloads, 0) | ~relevant).all(-1)  # [T, N]
    return np.where(complete.any(0), complete.argmax(0) + 1, np.nan)


def search_bound(n: int, m: int, k: int) -> int:
    """Rounds after which a client has downloaded its m relevant others among n clients,
    k models a round (pFedSV §4.2)."""
    return -(-(n - m - 1) // k) + (1 if m < k else -(-m // k))


def ranks_of_others(distances: np.ndarray) -> np.ndarray:
    """Rank of every other client by its distance, 1 for the nearest, int [N, N]; oneself has 0."""
    return np.where(np.eye(len(distances), dtype=bool), -np.inf, distances).argsort(1).argsort(1)


def game_costs(most: int = 10) -> pd.DataFrame:
    """Coalitions that a game asks for, by its players: for exact values,
    and for an estimate from 3 permutations a player."""
    lines = [(p, 3 * p, coalitions_asked(p), coalitions_asked(p, 3 * p)) for p in range(2, most + 1)]
    return pd.DataFrame(lines, columns=["players", "permutations", "exact", "estimate"])


# of a run ------------------------------------------------------------------------------------------------------------


def relevant_of(r: RunResult) -> np.ndarray:
    """Who shares a label with whom in a run, bool [N, N]."""
    return share_a_label(r.arrays["counts"])


def pairs(r: RunResult) -> pd.DataFrame:
    """One row an ordered pair of clients: do they share a label (relevant), and the relevance after the last round."""
    return by_pair(relevant=relevant_of(r), relevance=r.arrays["relevance"][-1])


def judged(r: RunResult) -> dict[str, float]:
    """How well the relevance of a run tells who shares a label (`mean_auc`, `signs`); its accuracy and seconds."""
    score, relevant = r.arrays["relevance"][-1], relevant_of(r)
    about = {"client_mean": r.final("client_mean"), "seconds": r.seconds["train"]}
    return {"auc": mean_auc(score, relevant), **signs(score, relevant), **about}


def searched(r: RunResult, k: int) -> pd.DataFrame:
    """One row a client: the round by whose end it has downloaded all relevant others (found; NaN: never), pFedSV's
    bound for k downloads a round, whether that was late, and whether in the end it downloads them and nobody else
    (only_relevant)."""
    relevant, downloads = relevant_of(r), r.arrays["downloads"]
    n, found = len(relevant), first_complete(downloads, relevant)
    bounds = [search_bound(n, m, k) for m in relevant.sum(1)]
    own = {"client": range(n), "found": found, "bound": bounds, "only_relevant": (downloads[-1] == relevant).all(1)}
    return pd.DataFrame(own).assign(late=~(found <= bounds))


def alike_by_rank(score: np.ndarray, counts: np.ndarray) -> float:
    """Rank correlation of a score [N, N] with the cosine of label counts [N, C], mean over clients; 0 is guessing.

    For clients that all share something; those to whom all others score the same count 0.
    """
    rows = zip(others(score), others(label_cosine(counts)))
    return float(np.mean([spearman(a, b) if np.ptp(a) > 0 else 0.0 for a, b in rows]))
