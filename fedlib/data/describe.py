"""How unequal are the clients of a partition: tables of sizes, classes, entropies, and how alike their labels are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from fedlib.base.errors import require

if TYPE_CHECKING:
    import pandas as pd

    from fedlib.data.partition import Partition


def describe(partition: Partition, classes: Sequence[str] = ()) -> dict[str, pd.DataFrame]:
    """Tables of a partition, indexed by client. classes: names of the C classes, their numbers if not given.

    clients: size, classes (how many it has), entropy (nats) of its labels, largest_share (of one class), and group
    where the data set has groups. counts: samples by class [N, C]. similarity: cosine of the counts [N, N].
    """
    import pandas as pd  # here, so that training does not load it

    counts = partition.counts
    names = list(classes) or list(range(counts.shape[1]))
    require(len(names) >= counts.shape[1], "classes", names, f"at least {counts.shape[1]} names")
    index = pd.RangeIndex(len(counts), name="client")
    table = {
        "size": partition.sizes,
        "classes": (counts > 0).sum(1),
        "entropy": label_entropy(counts),
        "largest_share": counts.max(1) / np.maximum(partition.sizes, 1),
    }
    if partition.groups is not None:
        table["group"] = partition.groups
    missing = np.zeros((len(counts), len(names) - counts.shape[1]), dtype=np.int64)  # classes without any sample
    return {
        "clients": pd.DataFrame(table, index=index),
        "counts": pd.DataFrame(np.hstack([counts, missing]), index=index, columns=pd.Index(names, name="class")),
        "similarity": pd.DataFrame(label_cosine(counts), index=index, columns=index),
    }


def label_entropy(counts: np.ndarray) -> np.ndarray:
    """Entropy in nats of every client's label distribution; counts [N, C] -> float64 [N]."""
    share = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    return -(share * np.log(np.where(share > 0, share, 1))).sum(1)


def label_cosine(counts) -> np.ndarray:
    """Cosines of all clients' label counts; counts [N, C] -> float64 [N, N], at most 1,
    0 for a client without samples."""
    unit = torch.nn.functional.normalize(torch.tensor(np.asarray(counts, dtype=np.float64)), dim=1)
    return (unit @ unit.T).clamp(max=1).numpy()


def same_classes(counts) -> np.ndarray:
    """Who has the same set of classes as whom: twins; counts [N, C] -> bool [N, N], False on the diagonal."""
    owned = np.asarray(counts) > 0
    return (owned[:, None] == owned).all(-1) & ~np.eye(len(owned), dtype=bool)


def statistics(counts: np.ndarray) -> dict[str, float]:
    """How unequal clients are, in one row. counts: int [N, C]; entropies in nats; cosines of labels over all pairs."""
    sizes, owned = counts.sum(1), (counts > 0).sum(1)
    cosines = label_cosine(counts)[np.triu_indices(len(counts), 1)]
    return {
        "samples": int(sizes.sum()),
        "mean_size": sizes.mean(),
        "std_size": sizes.std(),
        "smallest": int(sizes.min()),
        "largest": int(sizes.max()),
        "largest_class": counts.max(1).sum() / sizes.sum(),
        "fewest_classes": int(owned.min()),
        "mean_classes": owned.mean(),
        "most_classes": int(owned.max()),
        "label_entropy": label_entropy(counts).mean(),
        "label_cosine": cosines.mean(),
        "distinct_cosines": len(np.unique(cosines.round(2))),
    }
