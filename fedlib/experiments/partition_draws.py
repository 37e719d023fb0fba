"""Partitions drawn from the sizes of the classes alone, without any image: what the items about partitions share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from fedlib.base.errors import BadValue, choose
from fedlib.data import DATASETS, available, load
from fedlib.data.describe import label_cosine, label_entropy
from fedlib.data.partition import dirichlet_counts, make_partition

BALANCED = ("fmnist", "cifar10", "cifar100", "cinic10", "tiny_imagenet")  # equally many images of every class
# Counted in the public label files, training and test part together: 5,923 + 980 zeros, ..., 5,949 + 1,009 nines.
MNIST = (6903, 7877, 6990, 7141, 6824, 6313, 6876, 7293, 6825, 6958)


def class_sizes(dataset: str) -> list[int] | None:
    """Images of every class, both official parts together; None if they are unequal and the data set is not prepared here."""
    if dataset in BALANCED:
        about = DATASETS[dataset]
        return [about.images // about.classes] * about.classes
    if dataset == "mnist":
        return list(MNIST)
    here = dataset in available() or dataset.startswith("folder:")
    return np.bincount(load(dataset).labels.numpy()).tolist() if here else None


def known_class_sizes(dataset: str) -> list[int]:
    """Images of every class. Raises BadValue for an unknown data set, and for one whose classes can only be counted when it is prepared."""
    choose("dataset", dataset, [*dict.fromkeys([*DATASETS, *available()]), *[dataset] * dataset.startswith("folder:")])
    sizes = class_sizes(dataset)
    if sizes is None:
        raise BadValue(
            f"the classes of {dataset!r} are unequally large and it is not here; run `fedlib data {dataset}`"
        )
    return sizes


def draw(sizes: Sequence[int], num_clients: int, scheme: str, seed: int, **parameters) -> np.ndarray:
    """Samples per client and class, int64 [N, C], of a partition of classes of these sizes."""
    if scheme == "dirichlet":  # needs no labels, only how many there are
        return dirichlet_counts(sizes, num_clients, seed, **parameters)[0]
    labels = np.repeat(np.arange(len(sizes)), sizes)
    return make_partition(labels, num_clients, scheme, seed, **parameters).counts


def statistics(counts: np.ndarray) -> dict[str, float]:
    """How unequal clients are. counts: int [N, C]; entropies in nats; cosines of the label counts, over all pairs."""
    sizes, owned = counts.sum(1), (counts > 0).sum(1)
    cosines = label_cosine(counts)[np.triu_indices(len(counts), 1)]
    return {
        "samples": int(sizes.sum()),
        "mean_size": sizes.mean(),
        "std_size": sizes.std(),
        "smallest": int(sizes.min()),
        "largest": int(sizes.max()),
        "fewest_classes": int(owned.min()),
        "mean_classes": owned.mean(),
        "most_classes": int(owned.max()),
        "label_entropy": label_entropy(counts).mean(),
        "label_cosine": cosines.mean(),
        "distinct_cosines": len(np.unique(cosines.round(2))),
    }


def long_form(panels: dict[str, np.ndarray]) -> pd.DataFrame:
    """One row for each panel, client and class: the counts [N, C] that a figure shows, as a table."""
    rows = [
        (title, client, label, int(number))
        for title, counts in panels.items()
        for (client, label), number in np.ndenumerate(counts)
    ]
    return pd.DataFrame(rows, columns=["panel", "client", "class", "samples"])


def panels(tidy: pd.DataFrame) -> dict[str, np.ndarray]:
    """The inverse of `long_form`: counts [N, C] by title, in the order of the table."""
    wide = {
        title: rows.pivot(index="client", columns="class", values="samples")
        for title, rows in tidy.groupby("panel", sort=False)
    }
    return {title: table.to_numpy() for title, table in wide.items()}


def span(values: Iterable[float], form: str = ".0f") -> str:
    """Mean and range over draws: "465 (430 to 512)"."""
    values = list(values)
    low, mean, high = min(values), float(np.mean(values)), max(values)
    same = f"{low:{form}}" == f"{high:{form}}"
    return f"{mean:{form}}" if same else f"{mean:{form}} ({low:{form}} to {high:{form}})"
