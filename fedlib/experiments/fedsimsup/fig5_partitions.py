"""Figure 5: pathological and Dirichlet partitions of CIFAR-10, with the settings of Tables 1 and 2."""

import pandas as pd

from fedlib import figures
from fedlib.analysis.partitions import drawn_counts, panels, statistics_by_title
from fedlib.analysis.tables import described, only, span
from fedlib.claims import Check, Claim, Verdict, every_row, implementation, verdict
from fedlib.experiments.item import Found, Item, Tables, per_profile

CLASSES = {"2 classes": 2, "5 classes": 5}  # of a client
CLIENTS = (50, 100)


def schemes(min_size: int) -> dict[str, dict]:
    """The paper's four partitions, by title."""
    pathological = {title: {"scheme": "pat_balanced", "classes_per_client": c} for title, c in CLASSES.items()}
    return pathological | {f"Dir({a:g})": {"scheme": "dirichlet", "alpha": a, "min_size": min_size} for a in (0.1, 0.5)}


def analyse(s: dict, found: Found) -> Tables:
    """tidy: the counts that are drawn; stats: one draw a row; promised: its classes per client."""
    kinds = schemes(s["min_size"])
    stats = pd.concat(statistics_by_title(kinds, s["dataset"], clients, range(s["seeds"])) for clients in CLIENTS)
    names = stats["partition"]
    stats = stats.assign(scheme=names.map(lambda name: kinds[name]["scheme"]), promised=names.map(CLASSES).fillna(0))
    compare = described(stats.sort_values("partition", key=lambda p: p.map(list(kinds).index), kind="stable"),
                        ["partition", "clients"], **{
        "paper (in words; no numbers reported)": in_words,
        "ours: classes per client": lambda t: f"{t['fewest_classes'].min()} to {t['most_classes'].max()}",
        "smallest client": lambda t: span(t["smallest"]),
        "largest": lambda t: span(t["largest"]),
        "std of sizes": lambda t: span(t["std_size"]),
        "label entropy, nats": lambda t: span(t["label_entropy"], ".2f"),
        "distinct label cosines": lambda t: span(t["distinct_cosines"]),
    })  # fmt: skip
    return {"tidy": drawn_counts(kinds, s["dataset"], s["drawn_clients"]), "stats": stats, "compare": compare}


def in_words(t: pd.DataFrame) -> str:
    title = t["partition"].iloc[0]
    return f"{title} for every client" if title in CLASSES else "unequal classes and sizes"


def in_every_draw(scheme: str, holds, say) -> Check:
    """A check that something holds in every draw of a scheme; say: of one partition's draws."""
    return every_row("stats", holds, "partitions", say, "partition", scheme=scheme)


def class_range(t: pd.DataFrame) -> str:
    return f"{t['fewest_classes'].min()} to {t['most_classes'].max()} classes"


def times(t: pd.DataFrame) -> str:
    ratio = t["largest"] / t["smallest"]
    return f"{class_range(t)}, largest client {ratio.min():.1f} to {ratio.max():.1f} times the smallest"


def unequal(t: pd.DataFrame) -> pd.Series:
    return (t["fewest_classes"] < t["most_classes"]) & (t["largest"] > 2 * t["smallest"])


def few_cosines(tables) -> Verdict:
    stats = tables["stats"]
    pathological, dirichlet = (only(stats, scheme=scheme) for scheme in ("pat_balanced", "dirichlet"))
    few = (pathological["distinct_cosines"] <= pathological["promised"] + 1).all()
    fewer = pathological["distinct_cosines"].max() < dirichlet["distinct_cosines"].min()
    listing = "; ".join(
        f"{title}: {span(own)}" for title, own in stats.groupby("partition", sort=False)["distinct_cosines"]
    )
    return verdict(few and fewer, f"distinct values, rounded to 0.01: {listing}")


ITEM = Item(
    title="FedSimSup Figure 5: pathological and Dirichlet partitions",
    claim="Pathological: every client has equally many classes. Dirichlet: classes and sizes are unequal.",
    smaller="fewer partition seeds; nothing else, since a partition needs only the sizes of the classes",
    settings=per_profile(dataset="cifar10", seeds=[2, 10, 50], drawn_clients=20, min_size=[10, 40, 40]),
    minutes={"smoke": 0.1, "quick": 0.1, "paper": 0.5},
    analyse=analyse,
    figure=lambda tables: figures.partitions(panels(tables["tidy"])),
    claims=(
        implementation("(a) Pathological: every client has the same number of classes.",
                       in_every_draw("pat_balanced", lambda t: (t["fewest_classes"] == t["promised"])
                                     & (t["most_classes"] == t["promised"]), class_range)),
        implementation("Pathological: all samples are used.",
                       in_every_draw("pat_balanced", lambda t: t["samples"] == t["available"],
                                     lambda t: f"{t['samples'].min():,} of {t['available'].max():,}")),
        Claim("(b) Dirichlet: clients have unequal numbers of classes and unequal sizes (the largest more than twice "
              "the smallest).", in_every_draw("dirichlet", unequal, times)),
        Claim("Label cosines take only a few distinct values under the pathological partition (the paper's explanation "
              "of Table 2).", few_cosines),
    ),
)  # fmt: skip
