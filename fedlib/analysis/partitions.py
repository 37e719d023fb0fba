"""Partitions drawn from the sizes of the classes alone, without any image: what the items about partitions share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pandas as pd

from fedlib.data.describe import statistics
from fedlib.data.facts import known_class_sizes
from fedlib.data.partition import draw_counts


def drawn_statistics(dataset: str, num_clients: int, scheme: str, seeds: Iterable[int], **parameters) -> pd.DataFrame:
    """How unequal clients are (`fedlib.data.describe.statistics`), one draw a row;
    besides `seed` and `available` images."""
    sizes, lines = known_class_sizes(dataset), []
    for seed in seeds:
        counts = draw_counts(sizes, num_clients, scheme, seed, **parameters)
        lines.append({"seed": seed, **statistics(counts), "available": sum(sizes)})
    return pd.DataFrame(lines)


def statistics_by_title(
    partitions: Mapping[str, dict], dataset: str, num_clients: int, seeds: Iterable[int]
) -> pd.DataFrame:
    """`drawn_statistics` of several partitions, scheme and parameters by title; besides `partition` and `clients`."""
    drawn = {title: drawn_statistics(dataset, num_clients, seeds=seeds, **how) for title, how in partitions.items()}
    return pd.concat(own.assign(partition=title, clients=num_clients) for title, own in drawn.items())


def drawn_counts(partitions: Mapping[str, dict], dataset: str, num_clients: int) -> pd.DataFrame:
    """What a figure of partitions shows, the draws with seed 0: one row a panel, client and class."""
    sizes, lines = known_class_sizes(dataset), []
    for title, how in partitions.items():
        counts = draw_counts(sizes, num_clients, seed=0, **how)
        lines += [(title, client, label, int(number)) for (client, label), number in np.ndenumerate(counts)]
    return pd.DataFrame(lines, columns=["panel", "client", "class", "samples"])


def panels(tidy: pd.DataFrame) -> dict[str, np.ndarray]:
    """Counts [N, C] by title of what `drawn_counts` gives."""
    groups = tidy.groupby("panel", sort=False)
    return {title: own.pivot(index="client", columns="class", values="samples").to_numpy() for title, own in groups}
