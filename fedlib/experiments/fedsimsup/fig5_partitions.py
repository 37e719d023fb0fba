"""Figure 5: pathological and Dirichlet partitions of CIFAR-10, with the settings of Tables 1 and 2."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pandas as pd

from fedlib import figures
from fedlib.analysis.partitions import drawn_statistics, long_form, panels
from fedlib.analysis.tables import only, span
from fedlib.data.facts import known_class_sizes
from fedlib.data.partition import draw_counts
from fedlib.experiments.claims import Check, Claim, Verdict, implementation, verdict
from fedlib.experiments.item import Item

CLASSES = {"2 classes": 2, "5 classes": 5}  # of a client
CLIENTS = (50, 100)


def schemes(min_size: int) -> dict[str, dict]:
    """The paper's four partitions, by title."""
    pathological = {title: {"scheme": "pat_balanced", "classes_per_client": c} for title, c in CLASSES.items()}
    return pathological | {f"Dir({a:g})": {"scheme": "dirichlet", "alpha": a, "min_size": min_size} for a in (0.1, 0.5)}


def analyse(s: dict, results: list) -> dict[str, pd.DataFrame]:
    """tidy: the counts that are drawn; stats: one draw a row."""
    sizes, kinds = known_class_sizes(s["dataset"]), schemes(s["min_size"])
    drawn = {title: draw_counts(sizes, s["drawn_clients"], seed=0, **kind) for title, kind in kinds.items()}
    stats = pd.concat(
        drawn_statistics(s["dataset"], clients, seeds=range(s["seeds"]), **kind).assign(
            partition=title, scheme=kind["scheme"], clients=clients, promised=CLASSES.get(title, 0)
        )
        for (title, kind), clients in product(kinds.items(), CLIENTS)
    )
    compare = [
        {
            "partition": title,
            "clients": clients,
            "paper (in words; no numbers printed)": f"{title} for every client"
            if title in CLASSES
            else "unequal classes and sizes",
            "ours: classes per client": f"{own['fewest_classes'].min()} to {own['most_classes'].max()}",
            "smallest client": span(own["smallest"]),
            "largest": span(own["largest"]),
            "std of sizes": span(own["std_size"]),
            "label entropy": span(own["label_entropy"], ".2f"),
            "distinct label cosines": span(own["distinct_cosines"]),
        }
        for (title, clients), own in stats.groupby(["partition", "clients"], sort=False)
    ]
    return {"tidy": long_form(drawn), "stats": stats, "compare": pd.DataFrame(compare)}


def in_every_draw(scheme: str, holds: Callable[[pd.DataFrame], pd.Series], say: Callable[[pd.DataFrame], str]) -> Check:
    """A check that something holds in every draw of a scheme; say: of one partition's draws."""

    def check(tables) -> Verdict:
        own = only(tables["stats"], scheme=scheme)
        listing = "; ".join(f"{title}: {say(draws)}" for title, draws in own.groupby("partition", sort=False))
        return verdict(holds(own).all(), f"in {int(holds(own).sum())} of {len(own)} draws; {listing}")

    return check


def class_range(own: pd.DataFrame) -> str:
    return f"{own['fewest_classes'].min()} to {own['most_classes'].max()} classes"


def times(own: pd.DataFrame) -> str:
    ratio = own["largest"] / own["smallest"]
    return f"{class_range(own)}, largest client {ratio.min():.1f} to {ratio.max():.1f} times the smallest"


def few_cosines(tables) -> Verdict:
    pathological, dirichlet = (only(tables["stats"], scheme=scheme) for scheme in ("pat_balanced", "dirichlet"))
    few = (pathological["distinct_cosines"] <= pathological["promised"] + 1).all()
    fewer = pathological["distinct_cosines"].max() < dirichlet["distinct_cosines"].min()
    listing = "; ".join(
        f"{t}: {span(own['distinct_cosines'])}" for t, own in tables["stats"].groupby("partition", sort=False)
    )
    return verdict(few and fewer, f"distinct values, rounded to 0.01: {listing}")


ITEM = Item(
    title="FedSimSup Figure 5: pathological and Dirichlet partitions",
    claim="Pathological: every client has equally many classes. Dirichlet: classes and sizes are unequal.",
    smaller="fewer draws of the partition; nothing else, since a partition needs only the sizes of the classes",
    settings={
        "smoke": {"dataset": "cifar10", "seeds": 2, "drawn_clients": 20, "min_size": 10},
        "quick": {"dataset": "cifar10", "seeds": 10, "drawn_clients": 20, "min_size": 40},
        "paper": {"dataset": "cifar10", "seeds": 50, "drawn_clients": 20, "min_size": 40},
    },
    minutes={"smoke": 0.1, "quick": 0.1, "paper": 0.5},
    specs=lambda s: [],
    analyse=analyse,
    figure=lambda tables: figures.partitions(panels(tables["tidy"])),
    claims=(
        implementation(
            "(a) Pathological: every client has the same number of classes.",
            in_every_draw(
                "pat_balanced",
                lambda t: (t["fewest_classes"] == t["promised"]) & (t["most_classes"] == t["promised"]),
                class_range,
            ),
        ),
        implementation(
            "Pathological: all samples are used.",
            in_every_draw(
                "pat_balanced",
                lambda t: t["samples"] == t["available"],
                lambda t: f"{t['samples'].min():,} of {t['available'].max():,}",
            ),
        ),
        Claim(
            "(b) Dirichlet: clients have unequal numbers of classes and unequal sizes (the largest more than twice the smallest).",
            in_every_draw(
                "dirichlet",
                lambda t: (t["fewest_classes"] < t["most_classes"]) & (t["largest"] > 2 * t["smallest"]),
                times,
            ),
        ),
        Claim(
            "Label cosines take only a few distinct values under the pathological partition (the paper's explanation of Table 2).",
            few_cosines,
        ),
    ),
)
