"""Figure 1: distances of the clients' classifiers after rounds 1 and 10, and how clearly they show the groups."""

import pandas as pd

from fedlib import figures
from fedlib.analysis.groups import groups_of, row_scaled, same_classes, seen_by_round, size_effect
from fedlib.analysis.tables import by_pair, described, mean_stds, only, rows_of
from fedlib.claims import Claim, beyond, ours, over_seeds, under
from fedlib.experiments.item import Found, Item, Tables, per_profile, runs_of
from fedlib.experiments.pfedcs import task

KEPT = ("head_distances", "head_moves")
TRAININGS = {  # the paper does not say which
    "PFedCS": {"method": "pfedcs", "beta": 1.0, "measures": KEPT},
    "FedPer": {"method": "fedper", "measures": KEPT},
    "FedAvg": {"method": "fedavg", "measures": KEPT},
    "local-only training": {"method": "local", "measures": KEPT},
}

NUMBERS = {"silhouette": "ours: silhouette", "auc": "ours: AUC", "nearest": "ours: nearest client has the same classes"}


def runs(s: dict) -> dict:
    """By training and seed."""
    rows = {name: how for name, how in TRAININGS.items() if how["method"] in s["methods"]}
    return runs_of({**s, "scheme": "pat_grouped", "classes_per_client": 2}, rows, s["seeds"])


def analyse(s: dict, found: Found) -> Tables:
    """tidy: one row a run and round; ends: of the first and the last round; sizes: one row a run; pairs: D of the first
    run, in these rounds."""
    shown = dict.fromkeys((1, s["rounds"]))
    (name, _), first = next(iter(found.items()))
    pairs = [
        by_pair(D=row_scaled(first.arrays["head_distances"][t - 1]), same_classes=same_classes(first.arrays["counts"]))
        .assign(training=name, round=t)
        for t in shown
    ]  # fmt: skip
    rounds = rows_of(found, ("training", "seed"), seen_by_round)
    ends = rounds[rounds["round"].isin(list(shown))].assign(after=lambda t: t["round"].map("round {}".format))
    compare = described(ends, ["training", "after"], **{"paper (no numbers)": in_words, **mean_stds(NUMBERS)})
    groups = pd.DataFrame({"group": groups_of(first.arrays["counts"])}).rename_axis("client").reset_index()
    effect = rows_of(found, ("training", "seed"), lambda r: {"size_effect": size_effect(r)})
    return {
        "tidy": rounds, "pairs": pd.concat(pairs, ignore_index=True), "ends": ends, "compare": compare,
        "sizes": effect, "groups": groups,
    }  # fmt: skip


def in_words(own: pd.DataFrame) -> str:
    if own["training"].iloc[0] != next(iter(TRAININGS)):  # the paper does not say which its picture shows
        return ""
    return "dark blocks" if own["round"].iloc[0] == 1 else "clearer dark blocks"


def clearer(value: str, training: str = "PFedCS"):
    """A check that a number is larger in the last round than in the first."""

    def check(tables):
        ends = only(tables["ends"], training=training)
        last = f"round {ends['round'].max()}"
        return over_seeds("ends", value, "after", under(["round 1"], [last], form=".2f"), training=training)(tables)

    return check


def answer(tables) -> str:
    """How clear the groups are, in numbers."""
    m = tables["ends"].groupby(["training", "round"], sort=False)[["silhouette", "auc"]].mean()
    texts = [
        f"{name}: {own['silhouette'].iloc[0]:.2f} after round 1 and {own['silhouette'].iloc[-1]:.2f} after round "
        f"{own.index[-1][1]} (AUC {own['auc'].iloc[0]:.2f} and {own['auc'].iloc[-1]:.2f})"
        for name, own in m.groupby(level=0, sort=False)
    ]
    return f"Silhouettes of the groups with the same classes (AUC: finding their members). {'; '.join(texts)}."


ITEM = Item(
    title="PFedCS Figure 1: distances between classifiers",
    claim="Clients with the same classes have close classifiers, and after ten rounds more clearly than after one.",
    smaller="digits (16x16) and LeNet-5 instead of CIFAR-10 and the 4-layer CNN, batches of 16 at ten times the "
    "learning rate; three seeds",
    smaller_reduced="LeNet-5 instead of the 4-layer CNN; three seeds (`paper`: five)",
    settings=per_profile(
        task.SETTINGS, reduced=dict(seeds=3),
        dataset=["digits", "digits", "cifar10"], rounds=[2, 10, 10],
        eval_every=[2, 10, 10], seeds=[1, 3, 5], methods=("pfedcs", "fedper", "fedavg", "local"),
    ),
    minutes={"smoke": 0.2, "quick": 0.4, "reduced": 20, "paper": 400},
    runs=runs,
    analyse=analyse,
    figure=lambda tables: figures.classifier_distances(tables["pairs"], tables["groups"], tables["tidy"]),
    answer=answer,
    claims=(
        Claim("After ten rounds the groups are visible: clients with the same classes are nearer than others, with "
              "an AUC above 0.9.",
              lambda t: over_seeds("ends", "auc", "training", beyond("PFedCS", 0.9, form=".3f"), needs=["PFedCS"],
                                   round=t["ends"]["round"].max())(t)),
        Claim("The groups are clearer after round 10 than after round 1 (silhouette).", clearer("silhouette")),
        ours("With local-only training, too, the groups are clearer after round 10 than after round 1 (silhouette).",
             clearer("silhouette", training="local-only training")),
        ours("Distance also reveals the amount of training: after round 1, clients with more samples are farther "
             "from all others (rank correlation above 0.5).",
             over_seeds("sizes", "size_effect", "training", beyond("PFedCS", 0.5, form=".2f"), needs=["PFedCS"])),
    ),
)  # fmt: skip
