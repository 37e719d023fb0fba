"""Figure 3: what Dirichlet partitions look like, and the clients' sizes that Table 4 prints."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from itertools import product

import numpy as np
import pandas as pd

from fedlib import figures
from fedlib.data.partition import dirichlet_counts, label_entropy
from fedlib.engine.result import RunResult
from fedlib.experiments.items import NOT_TESTED, Claim, Item, Verdict, only, paper_table, verdict
from fedlib.experiments.partition_draws import class_sizes

DATA = ("cifar10", "cinic10", "tiny_imagenet")  # the paper's data sets whose classes are equally large
ALPHAS = (0.1, 0.5)
CLIENTS = 100


def size_statistics(datasets: Iterable[str], seeds: int, min_size: int) -> pd.DataFrame:
    """Clients' sizes and classes in `seeds` draws for every alpha, with and without cap, one draw a row."""
    rows = [
        (dataset, alpha, seed, cap, *_drawn(dataset, alpha, seed, cap, min_size))
        for alpha, dataset, seed, cap in product(ALPHAS, datasets, range(seeds), (True, False))
    ]
    columns = ["dataset", "alpha", "seed", "cap", "mean_size", "std_size", "classes_owned", "label_entropy", "tries"]
    return pd.DataFrame(rows, columns=columns)


@functools.cache  # two items show the same draws
def _drawn(dataset: str, alpha: float, seed: int, cap: bool, min_size: int) -> tuple[float, ...]:
    """Mean and std of the clients' sizes, their mean number of classes and label entropy, and the tries."""
    counts, tries = dirichlet_counts(class_sizes(dataset), CLIENTS, seed, alpha, cap=cap, min_size=min_size)
    size, owned = counts.sum(1), (counts > 0).sum(1)
    return size.mean(), size.std(), owned.mean(), label_entropy(counts).mean(), tries


def analyse_partitions(s: dict, results: list[RunResult]) -> dict[str, pd.DataFrame]:
    rows = []
    for alpha in ALPHAS:
        counts, _ = dirichlet_counts(class_sizes("cifar10"), s["drawn_clients"], seed=0, alpha=alpha, min_size=40)
        rows += [(alpha, i, c, int(n)) for i, row in enumerate(counts) for c, n in enumerate(row)]
    tidy = pd.DataFrame(rows, columns=["alpha", "client", "class", "samples"])
    stats = size_statistics(s["datasets"], s["seeds"], s["min_size"])
    printed = only(paper_table("pfedsim", "4"), metric="samples_per_client")
    compare = []
    for dataset in DATA:
        for alpha in ALPHAS:
            (paper,) = only(printed, dataset=dataset, partition_param=alpha).itertuples()
            row = {"data set": dataset, "alpha": alpha, "paper: mean (std)": f"{paper.value:.0f} ({paper.std:.0f})"}
            for cap, label in ((True, "ours, cap"), (False, "ours, no cap")):
                ours = only(stats, dataset=dataset, alpha=alpha, cap=cap)
                row[label] = (
                    f"{ours['mean_size'].mean():.0f} ({ours['std_size'].mean():.0f} ± {ours['std_size'].std(ddof=1):.0f})"
                    if len(ours)
                    else "not drawn"
                )
            ours = only(stats, dataset=dataset, alpha=alpha, cap=True)
            row["difference of std (cap)"] = f"{ours['std_size'].mean() - paper.std:+.0f}" if len(ours) else ""
            compare.append(row)
    return {"tidy": tidy, "stats": stats, "compare": pd.DataFrame(compare)}


def drawn_counts(tidy: pd.DataFrame) -> dict[str, np.ndarray]:
    """Counts [N, C] of the drawn partitions, by title."""
    return {
        f"Dir({alpha:g})": rows.pivot(index="client", columns="class", values="samples").to_numpy()
        for alpha, rows in tidy.groupby("alpha")
    }


def check_fewer_classes(tables) -> Verdict:
    means = (
        only(tables["stats"], dataset="cifar10", cap=True).groupby("alpha")[["classes_owned", "label_entropy"]].mean()
    )
    small, large = means.loc[0.1], means.loc[0.5]
    evidence = f"classes per client {small['classes_owned']:.1f} against {large['classes_owned']:.1f}, label entropy {small['label_entropy']:.2f} against {large['label_entropy']:.2f}"
    return verdict(bool((small < large).all()), f"CIFAR-10, alpha 0.1 against 0.5: {evidence}")


def check_same_mean(tables) -> Verdict:
    means = tables["stats"].groupby(["dataset", "alpha"])["mean_size"].mean().unstack()
    return verdict(
        bool(np.allclose(means[0.1], means[0.5])),
        ", ".join(f"{d} {row[0.1]:.0f} and {row[0.5]:.0f}" for d, row in means.iterrows()),
    )


def check_std_shrinks(tables) -> Verdict:
    means = only(tables["stats"], cap=True).groupby(["dataset", "alpha"])["std_size"].mean().unstack()
    return verdict(
        bool((means[0.1] > means[0.5]).all()),
        ", ".join(f"{d} {row[0.1]:.0f} to {row[0.5]:.0f}" for d, row in means.iterrows()),
    )


def printed_std_inside(tables, cap: bool) -> dict[str, bool]:
    """Per cell of Table 4: does the printed std lie within the range of our draws? By "data set alpha"."""
    printed = only(paper_table("pfedsim", "4"), metric="samples_per_client")
    inside = {}
    for (dataset, alpha), ours in only(tables["stats"], cap=cap).groupby(["dataset", "alpha"]):
        (paper,) = only(printed, dataset=dataset, partition_param=alpha)["std"]
        inside[f"{dataset} {alpha:g}"] = bool(ours["std_size"].min() <= paper <= ours["std_size"].max())
    return inside


def check_printed_std(tables) -> Verdict:
    with_cap, without = printed_std_inside(tables, cap=True), printed_std_inside(tables, cap=False)
    draws, cells = tables["stats"]["seed"].nunique(), len(with_cap)
    outside = ", ".join(cell for cell, fits in without.items() if not fits)
    counts = f"{sum(with_cap.values())} of {cells} cells with the cap, {sum(without.values())} without"
    holds = all(with_cap.values()) and not all(without.values())
    return verdict(holds, f"inside the range of {draws} draws: {counts} (outside: {outside or 'none'})")


def check_more_classes_less_spread(tables) -> Verdict:
    stats = (
        only(tables["stats"], cap=True)
        .assign(relative=lambda t: t["std_size"] / t["mean_size"])
        .groupby(["alpha", "dataset"])["relative"]
        .mean()
        .unstack()
    )
    if "tiny_imagenet" not in stats:
        return Verdict(NOT_TESTED, "needs Tiny-ImageNet's 200 classes, which this profile leaves out")
    return verdict(
        bool((stats["tiny_imagenet"] < stats["cifar10"]).all()),
        "; ".join(
            f"alpha {a}: std/mean {row['cifar10']:.2f} with 10 classes, {row['tiny_imagenet']:.2f} with 200"
            for a, row in stats.iterrows()
        ),
    )


FIG3 = Item(
    name="pfedsim/fig3_partitions",
    title="pFedSim Figure 3 and Table 4: Dirichlet partitions and their statistics",
    claim="The smaller alpha, the fewer classes a client has and the more unequal are the clients.",
    smaller="fewer draws of the partition; nothing else, since a partition needs only the sizes of the classes",
    settings={
        "smoke": {"datasets": ("cifar10",), "seeds": 3, "drawn_clients": 20, "min_size": 10},
        "quick": {
            "datasets": ("cifar10", "cinic10", "tiny_imagenet"),
            "seeds": 20,
            "drawn_clients": 20,
            "min_size": 40,
        },
        "paper": {
            "datasets": ("cifar10", "cinic10", "tiny_imagenet"),
            "seeds": 100,
            "drawn_clients": 20,
            "min_size": 40,
        },
    },
    minutes={"smoke": 0.1, "quick": 0.3, "paper": 1},
    specs=lambda s: [],
    analyse=analyse_partitions,
    figure=lambda tables: figures.partitions(drawn_counts(tables["tidy"])),
    claims=(
        Claim("A smaller alpha gives clients fewer classes, more unequally.", check_fewer_classes),
        Claim("The mean number of samples per client is the same for both alphas.", check_same_mean),
        Claim("Its std over clients shrinks from alpha 0.1 to 0.5.", check_std_shrinks),
        Claim("Relative to the mean, the std shrinks with the number of classes.", check_more_classes_less_spread),
        Claim(
            "(Ours) The printed stds fit a partitioner that caps the clients' sizes, and not one that does not.",
            check_printed_std,
        ),
    ),
)

ITEMS = (FIG3,)
