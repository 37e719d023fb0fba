"""Do distances between classifiers show which clients have the same classes, and what else does a server see in them?
What do label counts, which clients of some methods report, tell an eavesdropper?

counts: samples by client and class, int [N, C]; distances: squared ones between classifiers, [N, N].
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from fedlib.analysis.relevance import mean_auc, others
from fedlib.analysis.uncertainty import Interval, draws
from fedlib.data.describe import same_classes
from fedlib.engine.result import RunResult


def groups_of(counts: np.ndarray) -> np.ndarray:
    """The number of every client's group, clients with the same set of classes, int [N]; in the clients' order."""
    return np.unique((same_classes(counts) | np.eye(len(counts), dtype=bool)).argmax(1), return_inverse=True)[1]


def row_scaled(distances: np.ndarray) -> np.ndarray:
    """The paper's D: every row divided by its maximum; rows of zeros stay."""
    largest = distances.max(1, keepdims=True)
    return np.divide(distances, largest, out=np.zeros_like(distances), where=largest > 0)


def clearness(distances: np.ndarray, counts: np.ndarray) -> dict[str, float]:
    """How clearly distances show the groups. silhouette: mean over clients of (b - a) / max(a, b), a and b the mean
    (not squared) distances to the own and to the nearest other group, in [-1, 1]; auc: chance that a twin is nearer
    than another client (0.5: guessing); nearest: share of the clients with twins whose nearest client is one."""
    from sklearn.metrics import silhouette_score  # here, because it takes a second that most need not wait

    groups, twins = groups_of(counts), same_classes(counts)
    silhouette = np.nan
    if 1 < len(np.unique(groups)) < len(groups):
        silhouette = float(silhouette_score(np.sqrt(distances), groups, metric="precomputed"))
    away = distances + np.diag(np.full(len(distances), np.inf))
    nearest = twins[np.arange(len(twins)), away.argmin(1)][twins.any(1)]
    return {"silhouette": silhouette, "auc": mean_auc(-distances, twins), "nearest": float(nearest.mean())}


def reconstructed(distances: np.ndarray, moves: np.ndarray, counts: np.ndarray) -> dict[str, float]:
    """What a curious server makes of the classifiers. rand: adjusted Rand index of the groups it finds by average
    linkage, cut where the silhouette is largest, with the true ones (1: all right, 0: guessing); class_auc: chance that
    a class which a client has moved up more than one that it has not (`fedlib.measures.each_round.head_moves`); sets:
    share of the clients whose set of classes is exactly that of the class vectors that moved up."""
    from scipy.cluster.hierarchy import fcluster, linkage
    from scipy.spatial.distance import squareform
    from sklearn.metrics import adjusted_rand_score, roc_auc_score, silhouette_score

    plain, owned = np.sqrt(distances), np.asarray(counts) > 0
    joined = linkage(squareform(plain, checks=False), "average")
    cuts = [fcluster(joined, k, "maxclust") for k in range(2, len(plain))]
    cuts = [cut for cut in cuts if 1 < len(np.unique(cut)) < len(plain)]
    guess = max(cuts, key=lambda cut: silhouette_score(plain, cut, metric="precomputed"))
    return {
        "rand": float(adjusted_rand_score(groups_of(counts), guess)),
        "class_auc": float(roc_auc_score(owned.ravel(), moves.ravel())),
        "sets": float(((moves > 0) == owned).all(1).mean()),
    }


# of a run -------------------------------------------------------------------------------------------------------------


def seen_by_round(r: RunResult) -> pd.DataFrame:
    """One row a round: `clearness` and `reconstructed` of a run that keeps head_distances and head_moves."""
    counts, lines = r.arrays["counts"], []
    for t, (distances, moves) in enumerate(zip(r.arrays["head_distances"], r.arrays["head_moves"]), 1):
        lines.append({"round": t, **clearness(distances, counts), **reconstructed(distances, moves, counts)})
    return pd.DataFrame(lines)


def size_effect(r: RunResult) -> float:
    """Rank correlation of a client's mean distance to the others after round 1 with its number of samples."""
    from fedlib.analysis.tables import spearman

    return spearman(others(r.arrays["head_distances"][0]).mean(1), r.arrays["counts"].sum(1))


def searched(r: RunResult) -> dict[str, float]:
    """Whom a run of PFedCS found, from its measure `selection`: means over clients and over the rounds of stage 1 from
    the second on (in the first all classifiers are equal); twins: clients with the same classes."""
    twins, rounds = same_classes(r.arrays["counts"]), r.arrays["selection"][1:]
    rounds = rounds[(rounds > 0).any((1, 2))]
    have = twins.any(1)
    found = {}
    for name, least in (("candidates", 1), ("collaborators", 2)):
        chosen = rounds >= least
        right = (chosen & twins).sum(-1)[:, have]
        number = chosen.sum(-1)[:, have]
        found[name] = float(number.mean()) if right.size else 0.0
        found[f"precision of {name}"] = float((right / np.maximum(number, 1)).mean()) if right.size else 0.0
        found[f"recall of {name}"] = float((right / twins.sum(1)[have]).mean()) if right.size else 0.0
    return found


# label counts ---------------------------------------------------------------------------------------------------------


def label_secrets(drawn: Sequence[np.ndarray]) -> pd.DataFrame:
    """How often a guess of the most frequent label is right, and how many bits of the label stay unknown, with the
    counts of all clients together and with the client's own: means over clients and draws of the partition, with
    intervals over draws; drawn: counts [N, C]."""
    known = {"the counts of all clients together": lambda c: c.sum(0, keepdims=True), "the client's own counts": None}
    lines = []
    for name, of in known.items() if len(drawn) else ():
        counts = [of(c) if of else c for c in drawn]
        shares = [c / c.sum(1, keepdims=True) for c in counts]
        right = [100 * p.max(1) for p in shares]
        bits = [-(p * np.log2(np.where(p > 0, p, 1))).sum(1) for p in shares]
        lines.append((name, over_clients(right, ".1f"), over_clients(bits, ".2f")))
    return pd.DataFrame(lines, columns=["what is known", "label guessed correctly, %", "remaining entropy, bits"])


def over_clients(values: Sequence[np.ndarray], form: str) -> str:
    """The mean of one number a client, [N] of every draw, with its interval; alone where all are the same."""
    if np.ptp(np.concatenate(values)) == 0:
        return f"{np.mean(values):{form}}"
    frame = pd.concat([pd.DataFrame({"seed": k, "value": v, "what": 0}) for k, v in enumerate(values)])
    return Interval.of(draws(frame, "value", ["what"])[0]).text(form)
