"""Partitions drawn from the sizes of the classes alone, without any image: what the items about partitions share."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from itertools import product

import numpy as np
import pandas as pd

from fedlib.data.datasets import known_class_sizes
from fedlib.data.describe import statistics
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


def size_statistics(
    datasets: Iterable[str], num_clients: int, alphas: Sequence[float], seeds: int, min_size: int
) -> pd.DataFrame:
    """`drawn_statistics` of Dirichlet shares with and without a cap on the clients' sizes, `seeds` draws of each;
    besides `dataset`, `alpha`, `cap`, `cell` ("data set, alpha") and `relative`, the sizes' std by their mean."""
    cells = product(alphas, datasets, (True, False))
    drawn = pd.concat(_of_dirichlet(dataset, num_clients, alpha, seeds, cap, min_size) for alpha, dataset, cap in cells)
    return drawn.assign(relative=drawn["std_size"] / drawn["mean_size"])


@functools.cache  # two items show the same draws
def _of_dirichlet(dataset: str, num_clients: int, alpha: float, seeds: int, cap: bool, min_size: int) -> pd.DataFrame:
    drawn = drawn_statistics(dataset, num_clients, "dirichlet", range(seeds), alpha=alpha, cap=cap, min_size=min_size)
    return drawn.assign(dataset=dataset, alpha=alpha, cell=f"{dataset}, {alpha:g}", cap=cap)


def beside_draws(partitions: Mapping[str, dict], dataset: str, num_clients: int, draws: int) -> pd.DataFrame:
    """Is the first draw of each partition an ordinary one? One row a partition: ours, the percentage of all samples
    that belong to the most frequent class of their client; partition 1, of the second draw; mean and std over `draws`
    draws; z, how many stds ours is above the mean.

    Who has little else than one class is easy to serve with a model of its own.
    """
    drawn = statistics_by_title(partitions, dataset, num_clients, range(draws))
    share = 100 * drawn.pivot(index="partition", columns="seed", values="largest_class").loc[list(partitions)]
    over = {"mean": share.mean(1), "std": share.std(1, ddof=1)}
    found = pd.DataFrame({"ours": share[0], "partition 1": share[1], **over})
    return found.assign(z=(found["ours"] - found["mean"]) / found["std"])


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
