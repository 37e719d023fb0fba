"""Partitions drawn from the sizes of the classes alone, without any image: what the items about partitions share."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd

from fedlib.data.describe import statistics
from fedlib.data.facts import known_class_sizes
from fedlib.data.partition import draw_counts


def drawn_statistics(dataset: str, num_clients: int, scheme: str, seeds: Iterable[int], **parameters) -> pd.DataFrame:
    """How unequal clients are (`fedlib.data.describe.statistics`), one draw a row; besides `seed` and `available` images."""
    sizes = known_class_sizes(dataset)
    lines = [
        {"seed": seed, **statistics(draw_counts(sizes, num_clients, scheme, seed, **parameters))} for seed in seeds
    ]
    return pd.DataFrame(lines).assign(available=sum(sizes))


def long_form(panels: dict[str, np.ndarray]) -> pd.DataFrame:
    """One row for each panel, client and class: the counts [N, C] that a figure shows, as a table."""
    lines = [
        (title, client, label, int(number))
        for title, counts in panels.items()
        for (client, label), number in np.ndenumerate(counts)
    ]
    return pd.DataFrame(lines, columns=["panel", "client", "class", "samples"])


def panels(tidy: pd.DataFrame) -> dict[str, np.ndarray]:
    """The inverse of `long_form`: counts [N, C] by title, in the order of the table."""
    wide = {
        title: own.pivot(index="client", columns="class", values="samples")
        for title, own in tidy.groupby("panel", sort=False)
    }
    return {title: table.to_numpy() for title, table in wide.items()}
