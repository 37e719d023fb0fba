"""Figure 3: what Dirichlet partitions look like, and the clients' sizes that Table 4 prints."""

import pandas as pd

from fedlib import figures
from fedlib.analysis.partitions import drawn_counts, panels, size_statistics
from fedlib.analysis.tables import only
from fedlib.claims import Claim, Verdict, both, fact, in_order, ours, over_seeds, verdict
from fedlib.data.datasets import known_class_sizes
from fedlib.data.partition import draw_counts
from fedlib.experiments.item import Found, Item, Tables, per_profile
from fedlib.experiments.pfedsim.tables4_5_9 import CLIENTS, printed_sizes, printed_std_inside
from fedlib.experiments.pfedsim.task import ALPHAS, DIRICHLET, SEED

AGAIN = "the paper's partition, reconstructed"
DATA = ("cifar10", "cinic10", "tiny_imagenet")  # the paper's data sets whose classes are equally large


def analyse(s: dict, found: Found) -> Tables:
    """tidy: the counts that are drawn; stats: `size_statistics`; again: stds of the paper's own clients."""
    stats, lines, again = size_statistics(s["datasets"], CLIENTS, ALPHAS, s["seeds"], s["min_size"]), [], []
    kinds = {title: {"scheme": "dirichlet", "alpha": alpha, "min_size": 40} for title, alpha in DIRICHLET.items()}
    for cell in printed_sizes().query("dataset in @DATA").itertuples():
        line = {
            "data set": cell.dataset,
            "alpha": cell.alpha,
            "paper: mean (std)": f"{cell.value:.0f} ({cell.std:.0f})",
        }
        own = only(stats, dataset=cell.dataset, alpha=cell.alpha)
        sizes = known_class_sizes(cell.dataset)
        drawn = draw_counts(sizes, CLIENTS, "dirichlet_reference", SEED, alpha=cell.alpha).sum(1).std()
        line[AGAIN] = f"{drawn:.1f}" if len(own) else "not run"
        again += [(cell.dataset, cell.alpha, cell.std, drawn)] if len(own) else []
        for cap, label in ((True, "ours, size cap"), (False, "ours, no size cap")):
            mean, std = (only(own, cap=cap)[name] for name in ("mean_size", "std_size"))
            line[label] = f"{mean.mean():.0f} ({std.mean():.0f} ± {std.std(ddof=1):.0f})" if len(own) else "not run"
        gap = only(own, cap=True)["std_size"].mean() - cell.std
        lines.append({**line, "difference of std (size cap)": f"{gap:+.0f}" if len(own) else ""})
    tidy = drawn_counts(kinds, "cifar10", s["drawn_clients"])
    return {"tidy": tidy, "stats": stats, "compare": pd.DataFrame(lines),
            "again": pd.DataFrame(again, columns=["dataset", "alpha", "printed", "drawn"])}  # fmt: skip


def is_the_papers_draw(tables) -> Verdict:
    """The paper cuts what is behind the point."""
    again = tables["again"]
    shown = ", ".join(f"{cell.drawn:.1f} for {cell.printed:.0f}" for cell in again.itertuples())
    return fact((again["drawn"].astype(int) == again["printed"]).all(), f"std reconstructed for reported: {shown}")


def fits_with_cap_only(tables) -> Verdict:
    capped, free = (printed_std_inside(tables["stats"], cap) for cap in (True, False))
    outside = ", ".join(cell for cell, fits in free.items() if not fits)
    counts = f"{sum(capped.values())} of {len(capped)} cells with the size cap, {sum(free.values())} without"
    evidence = (
        f"inside the range of {tables['stats']['seed'].nunique()} partitions: {counts} (outside: {outside or 'none'})"
    )
    return verdict(all(capped.values()) and not all(free.values()), evidence)


def fewer(value: str, form: str, what: str):
    order = in_order([f"cifar10, {alpha:g}" for alpha in reversed(ALPHAS)], form, what)
    return over_seeds("stats", value, "cell", order, cap=True, dataset="cifar10")


ITEM = Item(
    title="pFedSim Figure 3 and Table 4: Dirichlet partitions and their statistics",
    claim="The smaller alpha, the fewer classes per client, and the more the client sizes differ.",
    smaller="fewer partition seeds; nothing else, since a partition needs only the sizes of the classes",
    settings=per_profile(
        datasets=[("cifar10",), DATA, DATA], seeds=[3, 20, 100], drawn_clients=20, min_size=[10, 40, 40]
    ),
    minutes={"smoke": 0.1, "quick": 0.3, "paper": 1},
    analyse=analyse,
    figure=lambda tables: figures.partitions(panels(tables["tidy"])),
    claims=(
        Claim("A smaller alpha gives clients fewer classes, more unequally.",
              both(fewer("mean_classes", ".1f", "classes per client"),
                   fewer("label_entropy", ".2f", "entropy of labels"))),
        ours("The reported standard deviations fit a Dirichlet sampler with a client-size cap, and not one without.",
             fits_with_cap_only),
        ours("The paper's partition can be reconstructed: the authors' public code with seed 42 gives every "
             "reported std, decimals cut off.", is_the_papers_draw),
    ),
)  # fmt: skip
