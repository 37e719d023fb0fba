"""Figure 3: does the distance of two models tell whether their clients share a label?"""

import pandas as pd
from scipy.stats import binomtest

from fedlib import figures
from fedlib.analysis.relevance import mean_auc, ranks_of_others, relevant_of
from fedlib.analysis.tables import by_pair, described, mean_std, named, only, rows_of
from fedlib.claims import (
    INCONCLUSIVE,
    NOT_REPRODUCED,
    REPRODUCED,
    Claim,
    Verdict,
    beyond,
    not_tested,
    ours,
    over_seeds,
    under,
)
from fedlib.engine.result import RunResult
from fedlib.experiments.item import Found, Item, Runs, Tables, per_profile, runs_of
from fedlib.experiments.pfedsv.task import RING, RING_REDUCED, ten_clients

# A, B and C as printed; the others' labels are unstated and continue the ring, in which each label has two owners.
LABELS = ([0, 1], [1, 2], [0, 3], [2, 4], [4, 5], [5, 6], [6, 7], [7, 8], [8, 9], [9, 3])
NAMES = dict(enumerate("ABCDEFGHIJ"))
TRAININGS = {"local": "local-only training", "fedavg": "FedAvg"}  # the paper does not say how the models were trained
EARLIER = (1, 5)  # rounds after which is measured, besides the last; each is a run of its own
MEASURES = {
    "squared_distance": "distance between models",
    "squared_distance_head": "distance between classifiers",
    "classifier_cosine": "cosine between classifiers",
}
DISTANCE, _, COSINE = MEASURES.values()
KEY = ["training", "rounds", "seed"]


def runs(s: dict) -> Runs:
    """The runs by training, rounds and seed."""
    after = sorted({*(t for t in EARLIER if t < s["rounds"]), s["rounds"]})
    task = {"scheme": "manual", "label_sets": list(LABELS), "eval_points": ("post",), "measures": ("model_distances",)}
    rows = {
        (training, rounds): {"method": method, "rounds": rounds, "eval_every": rounds}
        for method, training in TRAININGS.items()
        for rounds in after
    }
    return runs_of(ten_clients(s, **task), rows, s["seeds"])


def pairs(r: RunResult) -> pd.DataFrame:
    """One row an ordered pair of clients; rank 1 is the nearest of a client's nine others."""
    squared = r.arrays["squared_distance"]
    ranks = ranks_of_others(squared)
    return by_pair(relevant=relevant_of(r), squared_distance=squared, rank=ranks)


def aucs_of(r: RunResult) -> pd.DataFrame:
    """One row a measure: how well it tells who shares a label."""
    relevant = relevant_of(r)
    nearness = {label: (1 if label == COSINE else -1) * r.arrays[name] for name, label in MEASURES.items()}
    lines = [(label, mean_auc(near, relevant)) for label, near in nearness.items()]
    return pd.DataFrame(lines, columns=["measure", "auc"])


def analyse(s: dict, found: Found) -> Tables:
    """tidy: `pairs`; aucs: one row a run and measure; nearest: one row a run and client:
    whether its two relevant others are its two nearest; of the last round `last`."""
    tidy = rows_of(found, KEY, pairs).replace({"client": NAMES, "other": NAMES})
    worst = only(tidy, relevant=True).groupby([*KEY, "client"], sort=False)["rank"].max()
    nearest = (worst <= 2).reset_index(name="nearest")
    last = {"last": lambda frame: frame["rounds"] == s["rounds"]}
    aucs, nearest = rows_of(found, KEY, aucs_of).assign(**last), nearest.assign(**last, of="share of clients")
    return {"tidy": tidy, "aucs": aucs, "nearest": nearest, "compare": compared(tidy, nearest)}


def compared(tidy: pd.DataFrame, nearest: pd.DataFrame) -> pd.DataFrame:
    """How near A's other clients are: paper in words, ours in numbers."""

    def clients(t: pd.DataFrame, **where) -> pd.Series:
        return only(nearest, training=t["training"].iloc[0], rounds=t["rounds"].iloc[0], **where)["nearest"]

    def from_a(t: pd.DataFrame) -> pd.Series:
        return only(t, client="A").groupby("other")["squared_distance"].mean()

    return described(tidy, KEY[:2], **{
        "paper (no numbers reported)": lambda t: "B and C are not the two nearest to A",
        "ours: B and C are the two nearest in":
            lambda t: "{} of {} seeds".format(*clients(t, client="A").agg(["sum", "size"])),
        "squared distance to B, C": lambda t: f"{from_a(t)['B']:.3g}, {from_a(t)['C']:.3g}",
        "to the seven others": lambda t: "{:.3g} to {:.3g}".format(*from_a(t).drop(["B", "C"]).agg(["min", "max"])),
        "any client: its relevant clients are its two nearest (chance: 3 %)": lambda t: f"{clients(t).mean():.0%}",
        "mean rank of a relevant client (chance: 5)":
            lambda t: mean_std(only(t, relevant=True).groupby("seed")["rank"].mean()),
    })  # fmt: skip


def auc(judge, **measure):
    return over_seeds("aucs", "auc", "measure", judge, each="training", last=True, **measure)


def a_is_nearest_to_others(tables) -> Verdict:
    """In less than half of the seeds the two relevant clients are the two nearest to A, whatever the training: of one
    client a seed there is no mean with a t interval, but a binomial test."""
    own = only(tables["nearest"], client="A", last=True).groupby("training", sort=False)["nearest"]
    counts = [(training, int(hits.sum()), len(hits)) for training, hits in own]
    if not counts:
        return not_tested("nothing was run")
    text = "; ".join(f"{training}: the two nearest in {hits} of {seeds} seeds" for training, hits, seeds in counts)
    less, more = (
        [binomtest(hits, seeds, 0.5, side).pvalue for _, hits, seeds in counts] for side in ("less", "greater")
    )
    status = REPRODUCED if max(less) < 0.025 else NOT_REPRODUCED if min(more) < 0.025 / len(counts) else INCONCLUSIVE
    holds = all(2 * hits < seeds for _, hits, seeds in counts)
    return Verdict(status, f"{text} (binomial tests against one half)", holds)


def answer(tables) -> str:
    """How well models' distances and classifiers' cosines find those who share a label, from the numbers."""
    last, parts = only(tables["aucs"], last=True), []
    for measure in (DISTANCE, COSINE):
        means = only(last, measure=measure).groupby("training", sort=False)["auc"].mean()
        parts.append(f"{measure}: {named(means, '.2f')}")
    return f"AUC (chance: 0.5) for identifying clients that share a label, by {'; by '.join(parts)}."


ITEM = Item(
    title="pFedSV Figure 3: the distance between models and shared labels",
    claim="The clients that share a label with A are not those whose models are nearest to A's.",
    smaller="digits (16x16; paper: CIFAR-10); LeNet-5 (paper: McMahan's CNN); 5 rounds of 3 epochs (paper: 20 of 5); "
    "90 training images per client (paper: 4,800)",
    smaller_reduced=RING_REDUCED,
    settings=per_profile(
        RING, rounds=[None, 5, None], seeds=[1, 3, 5], reduced={"seeds": 3},
    ),
    minutes={"smoke": 0.1, "quick": 0.3, "reduced": 40, "paper": 120},
    runs=runs,
    analyse=analyse,
    answer=answer,
    figure=lambda tables: figures.distances_to_a(tables["tidy"], tables["aucs"], dict(zip(NAMES.values(), LABELS))),
    claims=(
        Claim("Clients B and C, who share a label with A, are not the two clients whose models are nearest to A's.",
              a_is_nearest_to_others),
        ours("For most clients, the two that share a label with them are not the two with the nearest models.",
             over_seeds("nearest", "nearest", "of", beyond("share of clients", 50, -1, what="%"), 100, each="training",
                        last=True)),
        ours("The distance hardly identifies shared labels: AUC below 0.6.",
             auc(beyond(DISTANCE, 0.6, -1, ".2f"), measure=DISTANCE)),
        ours("The cosine between classifiers (pFedSim's measure) identifies them better than the distance between "
             "models.",
             auc(under([DISTANCE], [COSINE], form=".2f"))),
    ),
)  # fmt: skip
