"""Figure 3: what Dirichlet partitions look like, and the clients' sizes that Table 4 prints."""

from __future__ import annotations

import pandas as pd

from fedlib import figures
from fedlib.analysis.partitions import long_form, panels
from fedlib.analysis.tables import only
from fedlib.data.facts import class_sizes
from fedlib.data.partition import draw_counts
from fedlib.experiments.claims import Claim, Verdict, both, implementation, in_order, ours, over_seeds, verdict
from fedlib.experiments.item import Item
from fedlib.experiments.pfedsim.client_sizes import (
    more_classes_less_spread,
    printed_sizes,
    printed_std_inside,
    same_mean,
    size_statistics,
    std_shrinks,
)
from fedlib.experiments.pfedsim.task import ALPHAS, DIRICHLET

DATA = ("cifar10", "cinic10", "tiny_imagenet")  # the paper's data sets whose classes are equally large


def analyse(s: dict, results: list) -> dict[str, pd.DataFrame]:
    """tidy: the counts that are drawn; stats: `size_statistics`."""
    sizes, stats, lines = class_sizes("cifar10"), size_statistics(s["datasets"], s["seeds"], s["min_size"]), []
    drawn = {
        title: draw_counts(sizes, s["drawn_clients"], "dirichlet", 0, alpha=a, min_size=40)
        for title, a in DIRICHLET.items()
    }
    for cell in printed_sizes().query("dataset in @DATA").itertuples():
        line = {
            "data set": cell.dataset,
            "alpha": cell.alpha,
            "paper: mean (std)": f"{cell.value:.0f} ({cell.std:.0f})",
        }
        own = only(stats, dataset=cell.dataset, alpha=cell.alpha)
        for cap, label in ((True, "ours, cap"), (False, "ours, no cap")):
            mean, std = (only(own, cap=cap)[name] for name in ("mean_size", "std_size"))
            line[label] = f"{mean.mean():.0f} ({std.mean():.0f} ± {std.std(ddof=1):.0f})" if len(own) else "not drawn"
        line["difference of std (cap)"] = (
            f"{only(own, cap=True)['std_size'].mean() - cell.std:+.0f}" if len(own) else ""
        )
        lines.append(line)
    return {"tidy": long_form(drawn), "stats": stats, "compare": pd.DataFrame(lines)}


def fits_with_cap_only(tables) -> Verdict:
    inside = {cap: printed_std_inside(tables["stats"], cap) for cap in (True, False)}
    outside = ", ".join(cell for cell, fits in inside[False].items() if not fits)
    counts = (
        f"{sum(inside[True].values())} of {len(inside[True])} cells with the cap, {sum(inside[False].values())} without"
    )
    draws = tables["stats"]["seed"].nunique()
    holds = all(inside[True].values()) and not all(inside[False].values())
    return verdict(holds, f"inside the range of {draws} draws: {counts} (outside: {outside or 'none'})")


def fewer(value: str, form: str):
    order = in_order([f"cifar10, {alpha:g}" for alpha in reversed(ALPHAS)], form)
    return over_seeds("stats", value, "cell", order, cap=True, dataset="cifar10")


ITEM = Item(
    title="pFedSim Figure 3 and Table 4: Dirichlet partitions and their statistics",
    claim="The smaller alpha, the fewer classes a client has and the more unequal are the clients.",
    smaller="fewer draws of the partition; nothing else, since a partition needs only the sizes of the classes",
    settings={
        "smoke": {"datasets": ("cifar10",), "seeds": 3, "drawn_clients": 20, "min_size": 10},
        "quick": {"datasets": DATA, "seeds": 20, "drawn_clients": 20, "min_size": 40},
        "paper": {"datasets": DATA, "seeds": 100, "drawn_clients": 20, "min_size": 40},
    },
    minutes={"smoke": 0.1, "quick": 0.3, "paper": 1},
    specs=lambda s: [],
    analyse=analyse,
    figure=lambda tables: figures.partitions(panels(tables["tidy"])),
    claims=(
        Claim(
            "A smaller alpha gives clients fewer classes, more unequally.",
            both(fewer("classes_owned", ".1f"), fewer("label_entropy", ".2f")),
        ),
        implementation("The mean number of samples per client is the same for both alphas.", same_mean),
        Claim("Its std over clients shrinks from alpha 0.1 to 0.5.", std_shrinks),
        Claim("Relative to the mean, the std shrinks with the number of classes.", more_classes_less_spread),
        ours(
            "The printed stds fit a partitioner that caps the clients' sizes, and not one that does not.",
            fits_with_cap_only,
        ),
    ),
)
