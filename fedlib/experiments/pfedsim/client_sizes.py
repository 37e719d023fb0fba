"""Table 4's sizes of clients, drawn again: what Figure 3 and Tables 4, 5 and 9 share. Nothing is trained."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from itertools import product

import numpy as np
import pandas as pd

from fedlib.analysis.tables import only
from fedlib.data.describe import label_entropy
from fedlib.data.facts import class_sizes
from fedlib.data.partition import dirichlet_counts
from fedlib.experiments.claims import Verdict, not_tested, over_seeds, verdict
from fedlib.experiments.paper_numbers import paper_table
from fedlib.experiments.pfedsim.task import ALPHAS

CLIENTS = 100


def printed_sizes() -> pd.DataFrame:
    """Table 4's means and stds of the clients' sizes: dataset, alpha, value, std."""
    cells = only(paper_table("pfedsim", "4"), metric="samples_per_client")
    return cells.rename(columns={"partition_param": "alpha"})[["dataset", "alpha", "value", "std"]]


def size_statistics(datasets: Iterable[str], seeds: int, min_size: int) -> pd.DataFrame:
    """Clients' sizes and classes in `seeds` draws for every alpha, with and without cap, one draw a row."""
    lines = [
        (dataset, alpha, f"{dataset}, {alpha:g}", seed, cap, *_drawn(dataset, alpha, seed, cap, min_size))
        for alpha, dataset, seed, cap in product(ALPHAS, datasets, range(seeds), (True, False))
    ]
    columns = ["mean_size", "std_size", "classes_owned", "label_entropy", "tries"]
    frame = pd.DataFrame(lines, columns=["dataset", "alpha", "cell", "seed", "cap", *columns])
    return frame.assign(relative=frame["std_size"] / frame["mean_size"])


@functools.cache  # two items show the same draws
def _drawn(dataset: str, alpha: float, seed: int, cap: bool, min_size: int) -> tuple[float, ...]:
    """Mean and std of the clients' sizes, their mean number of classes and label entropy, and the tries."""
    counts, tries = dirichlet_counts(class_sizes(dataset), CLIENTS, seed, alpha, cap=cap, min_size=min_size)
    size, owned = counts.sum(1), (counts > 0).sum(1)
    return size.mean(), size.std(), owned.mean(), label_entropy(counts).mean(), tries


def printed_std_inside(stats: pd.DataFrame, cap: bool) -> dict[str, bool]:
    """Per cell of Table 4: does the printed std lie within the range of our draws? By "data set, alpha"."""
    printed, inside = printed_sizes(), {}
    for (dataset, alpha, cell), own in only(stats, cap=cap).groupby(["dataset", "alpha", "cell"]):
        (paper,) = only(printed, dataset=dataset, alpha=alpha)["std"]
        inside[cell] = bool(own["std_size"].min() <= paper <= own["std_size"].max())
    return inside


# claims of both items, about the table "stats" ----------------------------------------------------------------------------


def same_mean(tables) -> Verdict:
    means = tables["stats"].groupby(["dataset", "alpha"])["mean_size"].mean().unstack()
    listing = ", ".join(f"{dataset} {row[0.1]:.0f} and {row[0.5]:.0f}" for dataset, row in means.iterrows())
    return verdict(bool(np.allclose(means[0.1], means[0.5])), listing)


def _shrinks(m: pd.DataFrame):
    small, large = ({cell.split(",")[0]: m[cell] for cell in m if cell.endswith(f", {alpha:g}")} for alpha in ALPHAS)
    listing = ", ".join(f"{dataset} {small[dataset].iloc[0]:.0f} to {large[dataset].iloc[0]:.0f}" for dataset in small)
    return {dataset: small[dataset] - large[dataset] for dataset in small}, listing


def _less_spread(m: pd.DataFrame):
    ends = {alpha: (m[f"cifar10, {alpha:g}"], m[f"tiny_imagenet, {alpha:g}"]) for alpha in ALPHAS}
    listing = (
        f"alpha {a:g}: {ten.iloc[0]:.2f} with 10 classes, {many.iloc[0]:.2f} with 200"
        for a, (ten, many) in ends.items()
    )
    return {f"alpha {a:g}": ten - many for a, (ten, many) in ends.items()}, f"std/mean, {'; '.join(listing)}"


std_shrinks = over_seeds("stats", "std_size", "cell", _shrinks, cap=True)


def more_classes_less_spread(tables) -> Verdict:
    if "tiny_imagenet" not in set(tables["stats"]["dataset"]):
        return not_tested("needs Tiny-ImageNet's 200 classes, which this profile leaves out")
    return over_seeds("stats", "relative", "cell", _less_spread, cap=True)(tables)
