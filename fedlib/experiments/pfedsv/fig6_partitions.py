"""Figure 6: Dirichlet partitions of MNIST."""

from math import log

from fedlib import figures
from fedlib.analysis.partitions import drawn_counts, panels, statistics_by_title
from fedlib.analysis.tables import described, span
from fedlib.claims import Claim, beyond, in_order, ours, over_seeds
from fedlib.experiments.item import Found, Item, Tables, per_profile

ALPHAS = {f"Dir({alpha:g})": alpha for alpha in (0.1, 0.5, 1.0, 10.0)}  # the paper names only 0.1, for its tables
PICTURED = ("Dir(0.1)", "Dir(1)", "Dir(10)")
CLIENTS = 10


def analyse(s: dict, found: Found) -> Tables:
    """tidy: the counts that are drawn; stats: one draw a row."""
    drawn = {title: {"scheme": "dirichlet", "alpha": a, "min_size": s["min_size"]} for title, a in ALPHAS.items()}
    stats = statistics_by_title(drawn, s["dataset"], CLIENTS, range(s["seeds"]))
    tidy = drawn_counts({title: drawn[title] for title in PICTURED}, s["dataset"], CLIENTS)
    compare = described(stats, "partition", **{
        "paper (in words; no numbers reported)": lambda t: "the smaller alpha, the more skew",
        "ours: classes per client": lambda t: span(t["mean_classes"], ".1f"),
        "label entropy, nats": lambda t: span(t["label_entropy"], ".2f"),
        "mean label cosine of two clients": lambda t: span(t["label_cosine"], ".2f"),
        "std of sizes": lambda t: span(t["std_size"]),
    })  # fmt: skip
    return {"tidy": tidy, "stats": stats.assign(evenness=stats["label_entropy"] / log(10)), "compare": compare}


def rises(value: str, form: str, what: str):
    """The mean over the draws rises from each alpha to the next larger one."""
    return over_seeds("stats", value, "partition", in_order(list(ALPHAS)[::-1], form, what))


ITEM = Item(
    title="pFedSV Figure 6: Dirichlet partitions of MNIST",
    claim="The smaller alpha, the more skewed are the clients' labels.",
    smaller="fewer partition seeds; nothing else, since a partition needs only the sizes of the classes",
    settings=per_profile(dataset="mnist", seeds=[3, 20, 100], min_size=[10, 40, 40]),
    minutes={"smoke": 0.1, "quick": 0.1, "paper": 0.1},
    analyse=analyse,
    figure=lambda tables: figures.partitions(panels(tables["tidy"])),
    claims=(
        Claim("The smaller alpha, the fewer classes per client.", rises("mean_classes", ".1f", "classes per client")),
        Claim("The smaller alpha, the more unequal are the class sizes of a client.",
              rises("label_entropy", ".2f", "entropy of labels")),
        ours("The smaller alpha, the less similar are two clients.", rises("label_cosine", ".2f", "label cosine")),
        ours("The smaller alpha, the more unequal are the clients' sizes.",
             over_seeds("stats", "std_size", "partition", in_order(list(ALPHAS), ".0f", "std of sizes"))),
        ours("At the largest alpha clients have nearly the same labels: 95 % of the largest possible entropy.",
             over_seeds("stats", "evenness", "partition", beyond("Dir(10)", 95, what="%"), 100)),
    ),
)  # fmt: skip
