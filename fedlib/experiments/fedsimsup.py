"""FedSimSup, "Personalized Federated Learning with Similarity Information Supervisor": the partitions (Fig. 5)."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd

from fedlib import figures
from fedlib.engine.result import RunResult
from fedlib.experiments.items import Claim, Item, Verdict, only, verdict
from fedlib.experiments.partition_draws import draw, known_class_sizes, long_form, panels, span, statistics

# Figure 5: partitions of CIFAR-10 with the settings of Tables 1 and 2 ------------------------------------------------

CLASSES_PER_CLIENT, ALPHAS = (2, 5), (0.1, 0.5)
CLIENTS = (50, 100)


def schemes(min_size: int) -> dict[str, tuple[str, dict]]:
    """(scheme, parameters) of the paper's four partitions, by title."""
    pathological = {f"{c} classes": ("pat_balanced", {"classes_per_client": c}) for c in CLASSES_PER_CLIENT}
    return pathological | {f"Dir({a:g})": ("dirichlet", {"alpha": a, "min_size": min_size}) for a in ALPHAS}


def analyse_partitions(s: dict, results: list[RunResult]) -> dict[str, pd.DataFrame]:
    sizes, rows = known_class_sizes(s["dataset"]), []
    drawn = {
        title: draw(sizes, s["drawn_clients"], scheme, 0, **parameters)
        for title, (scheme, parameters) in schemes(s["min_size"]).items()
    }
    for title, (scheme, parameters) in schemes(s["min_size"]).items():
        for clients in CLIENTS:
            for seed in range(s["seeds"]):
                about = statistics(draw(sizes, clients, scheme, seed, **parameters))
                rows.append(
                    {
                        "partition": title,
                        "scheme": scheme,
                        "clients": clients,
                        "seed": seed,
                        **about,
                        "available": sum(sizes),
                    }
                )
    stats = pd.DataFrame(rows)
    compare = [_compared(*key, own) for key, own in stats.groupby(["partition", "clients"], sort=False)]
    return {"tidy": long_form(drawn), "stats": stats, "compare": pd.DataFrame(compare)}


def _compared(partition: str, clients: int, own: pd.DataFrame) -> dict:
    pathological = own["scheme"].iloc[0] == "pat_balanced"
    return {
        "partition": partition,
        "clients": clients,
        "paper (in words; no numbers printed)": f"{partition} for every client"
        if pathological
        else "unequal classes and sizes",
        "ours: classes per client": f"{own['fewest_classes'].min()} to {own['most_classes'].max()}",
        "smallest client": span(own["smallest"]),
        "largest": span(own["largest"]),
        "std of sizes": span(own["std_size"]),
        "label entropy": span(own["label_entropy"], ".2f"),
        "distinct label cosines": span(own["distinct_cosines"]),
    }


def _in_draws(holds: pd.Series) -> str:
    return f"in {int(holds.sum())} of {len(holds)} draws"


def of_scheme(scheme: str, holds: Callable[[pd.DataFrame], pd.Series], say: Callable[[pd.DataFrame], str]):
    """A check that something holds in every draw of a scheme."""

    def check(tables) -> Verdict:
        own = only(tables["stats"], scheme=scheme)
        return verdict(bool(holds(own).all()), f"{_in_draws(holds(own))}; {say(own)}")

    return check


def wanted(own: pd.DataFrame) -> pd.Series:
    """Classes per client that the title of a pathological partition promises."""
    return own["partition"].str.extract(r"(\d+) classes", expand=False).astype(int)


check_fixed_number = of_scheme(
    "pat_balanced",
    lambda t: (t["fewest_classes"] == wanted(t)) & (t["most_classes"] == wanted(t)),
    lambda t: "; ".join(
        f"{title}: {own['fewest_classes'].min()} to {own['most_classes'].max()}"
        for title, own in t.groupby("partition", sort=False)
    ),
)

check_all_used = of_scheme(
    "pat_balanced",
    lambda t: t["samples"] == t["available"],
    lambda t: (
        f"{t['samples'].min():,} of {t['available'].max():,} samples; clients differ by at most "
        f"{(t['largest'] - t['smallest']).max()} samples in size"
    ),
)

check_unequal = of_scheme(
    "dirichlet",
    lambda t: (t["fewest_classes"] < t["most_classes"]) & (t["largest"] > 2 * t["smallest"]),
    lambda t: "; ".join(
        f"{title}: {own['fewest_classes'].min()} to {own['most_classes'].max()} classes, largest client "
        f"{(own['largest'] / own['smallest']).min():.1f} to {(own['largest'] / own['smallest']).max():.1f} times the smallest"
        for title, own in t.groupby("partition", sort=False)
    ),
)


def check_few_cosines(tables) -> Verdict:
    stats = tables["stats"].assign(promised=lambda t: t["partition"].str.extract(r"(\d+) classes", expand=False))
    pathological, dirichlet = only(stats, scheme="pat_balanced"), only(stats, scheme="dirichlet")
    holds = (pathological["distinct_cosines"] <= pathological["promised"].astype(int) + 1).all()
    listed = "; ".join(
        f"{title}: {span(own['distinct_cosines'])}" for title, own in stats.groupby("partition", sort=False)
    )
    fewer = pathological["distinct_cosines"].max() < dirichlet["distinct_cosines"].min()
    return verdict(bool(holds and fewer), f"distinct values, rounded to 0.01: {listed}")


FIG5 = Item(
    name="fedsimsup/fig5_partitions",
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
    analyse=analyse_partitions,
    figure=lambda tables: figures.partitions(panels(tables["tidy"])),
    claims=(
        Claim("(a) Pathological: every client has the same number of classes.", check_fixed_number),
        Claim("Pathological: all samples are used.", check_all_used),
        Claim(
            "(b) Dirichlet: clients have unequal numbers of classes and unequal sizes (the largest more than twice the smallest).",
            check_unequal,
        ),
        Claim(
            "Label cosines take only a few distinct values under the pathological partition (the paper's explanation of Table 2).",
            check_few_cosines,
        ),
    ),
)

ITEMS = (FIG5,)
