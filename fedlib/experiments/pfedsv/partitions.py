"""Figure 6: Dirichlet partitions of MNIST."""

from __future__ import annotations

import pandas as pd

from fedlib import figures
from fedlib.engine.result import RunResult
from fedlib.experiments.items import Claim, Item, Verdict, only, verdict
from fedlib.experiments.partition_draws import draw, known_class_sizes, long_form, panels, span, statistics

ALPHAS = (0.1, 0.5, 1.0, 10.0)  # the paper names only 0.1, and that for its tables
PICTURED = (0.1, 1.0, 10.0)
CLIENTS = 10


def analyse_partitions(s: dict, results: list[RunResult]) -> dict[str, pd.DataFrame]:
    sizes = known_class_sizes(s["dataset"])
    drawn = {f"Dir({a:g})": draw(sizes, CLIENTS, "dirichlet", 0, alpha=a, min_size=s["min_size"]) for a in PICTURED}
    rows = [
        {
            "alpha": alpha,
            "seed": seed,
            **statistics(draw(sizes, CLIENTS, "dirichlet", seed, alpha=alpha, min_size=s["min_size"])),
        }
        for alpha in ALPHAS
        for seed in range(s["seeds"])
    ]
    stats = pd.DataFrame(rows)
    compare = [
        {
            "alpha": alpha,
            "paper (in words; no numbers printed)": "the smaller alpha, the more skew",
            "ours: classes per client": span(own["mean_classes"], ".1f"),
            "label entropy": span(own["label_entropy"], ".2f"),
            "mean label cosine of two clients": span(own["label_cosine"], ".2f"),
            "std of sizes": span(own["std_size"]),
        }
        for alpha, own in stats.groupby("alpha")
    ]
    return {"tidy": long_form(drawn), "stats": stats, "compare": pd.DataFrame(compare)}


def monotone(column: str, rising: bool, form: str):
    """A check that the mean over the draws of `column` rises (or falls) from each alpha to the next larger one."""

    def check(tables) -> Verdict:
        means = tables["stats"].groupby("alpha")[column].mean()
        listed = ", ".join(f"{value:{form}} at {alpha:g}" for alpha, value in means.items())
        wide = tables["stats"].pivot(index="seed", columns="alpha", values=column)
        steps = wide.diff(axis=1).iloc[:, 1:]
        every = (steps > 0).all(axis=1) if rising else (steps < 0).all(axis=1)
        holds = means.is_monotonic_increasing if rising else means.is_monotonic_decreasing
        return verdict(
            holds, f"mean over the draws: {listed}; in this order in {int(every.sum())} of {len(every)} draws"
        )

    return check


def check_almost_equal(tables) -> Verdict:
    from math import log

    own = only(tables["stats"], alpha=max(ALPHAS))
    share = own["label_entropy"].mean() / log(10)
    return verdict(
        share > 0.95, f"label entropy at alpha {max(ALPHAS):g}: {100 * share:.1f} % of ln 10, the largest possible"
    )


FIG6 = Item(
    name="pfedsv/fig6_partitions",
    title="pFedSV Figure 6: Dirichlet partitions of MNIST",
    claim="The smaller alpha, the more skewed are the clients' labels.",
    smaller="fewer draws of the partition; nothing else, since a partition needs only the sizes of the classes",
    settings={
        "smoke": {"dataset": "mnist", "seeds": 3, "min_size": 10},
        "quick": {"dataset": "mnist", "seeds": 20, "min_size": 40},
        "paper": {"dataset": "mnist", "seeds": 100, "min_size": 40},
    },
    minutes={"smoke": 0.1, "quick": 0.1, "paper": 0.1},
    specs=lambda s: [],
    analyse=analyse_partitions,
    figure=lambda tables: figures.partitions(panels(tables["tidy"])),
    claims=(
        Claim("The smaller alpha, the fewer classes a client has.", monotone("mean_classes", True, ".1f")),
        Claim("The smaller alpha, the less even are a client's classes.", monotone("label_entropy", True, ".2f")),
        Claim("(Ours) The smaller alpha, the less alike are two clients.", monotone("label_cosine", True, ".2f")),
        Claim("(Ours) The smaller alpha, the more unequal are the clients' sizes.", monotone("std_size", False, ".0f")),
        Claim("(Ours) At the largest alpha clients have nearly the same labels.", check_almost_equal),
    ),
)

ITEMS = (FIG6,)
