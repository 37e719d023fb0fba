"""Figure 3: does the distance of two models tell whether their clients share a label?"""

from __future__ import annotations

import numpy as np
import pandas as pd

from fedlib import figures
from fedlib.analysis.tables import mean_std, only
from fedlib.engine.result import RunResult
from fedlib.experiments.claims import Claim, beyond, both, ours, over_seeds, under
from fedlib.experiments.item import Item
from fedlib.experiments.pfedsv.ring import CLIENTS, SETTINGS, mean_auc, share_a_label, task_spec
from fedlib.spec import RunSpec

# A, B and C as printed; the others' labels are unstated and continue the ring, in which each label has two owners.
LABELS = ([0, 1], [1, 2], [0, 3], [2, 4], [4, 5], [5, 6], [6, 7], [7, 8], [8, 9], [9, 3])
NAMES = "ABCDEFGHIJ"
TRAININGS = {"local": "each client alone", "fedavg": "FedAvg"}  # the paper does not say how the models were trained
MOMENTS = (1, 5)  # rounds after which is measured, besides the last; each is a run of its own
MEASURES = {
    "squared_distance": "distance of models",
    "squared_distance_head": "distance of classifiers",
    "classifier_cosine": "cosine of classifiers",
}
DISTANCE, _, COSINE = MEASURES.values()


def specs(s: dict) -> list[RunSpec]:
    moments = sorted({*(t for t in MOMENTS if t < s["rounds"]), s["rounds"]})
    task = {
        "scheme": "manual",
        "label_sets": [list(own) for own in LABELS],
        "eval_points": ("post",),
        "measures": ("model_distances",),
    }
    return [
        task_spec(s, method, seed, **task, rounds=rounds, eval_every=rounds)
        for seed in range(s["seeds"])
        for method in TRAININGS
        for rounds in moments
    ]


def analyse(s: dict, results: list[RunResult]) -> dict[str, pd.DataFrame]:
    """tidy: one row an ordered pair of clients; rank 1 is the nearest of a client's nine others. aucs: one row a run and measure.

    nearest: one row a run and client: whether its two relevant others are its two nearest; of the last round `last`.
    """
    lines, aucs, others = [], [], ~np.eye(CLIENTS, dtype=bool)
    for r in results:
        relevant, squared = share_a_label(r.arrays["counts"]), r.arrays["squared_distance"]
        ranks = np.where(others, squared, -1.0).argsort(1).argsort(1)  # oneself has rank 0
        about = (TRAININGS[r.spec.method], r.spec.rounds, r.spec.seed)
        for i, j in zip(*np.nonzero(others)):
            lines.append((*about, NAMES[i], NAMES[j], bool(relevant[i, j]), squared[i, j], int(ranks[i, j])))
        for measure, label in MEASURES.items():
            nearness = r.arrays[measure] if label == COSINE else -r.arrays[measure]
            aucs.append((*about, label, mean_auc(nearness, relevant)))
    run = ["training", "rounds", "seed"]
    tidy = pd.DataFrame(lines, columns=[*run, "client", "other", "relevant", "squared_distance", "rank"])
    found = (
        only(tidy, relevant=True).groupby([*run, "client"], sort=False)["rank"].max().le(2).reset_index(name="nearest")
    )
    aucs = pd.DataFrame(aucs, columns=[*run, "measure", "auc"])
    last = {"last": lambda frame: frame["rounds"] == s["rounds"]}
    return {
        "tidy": tidy,
        "aucs": aucs.assign(**last),
        "nearest": found.assign(**last),
        "compare": compared(tidy, found),
    }


def compared(tidy: pd.DataFrame, found: pd.DataFrame) -> pd.DataFrame:
    """How near A's other clients are: paper in words, ours in numbers."""
    lines = []
    for (training, rounds), own in tidy.groupby(["training", "rounds"], sort=False):
        near, mean = (
            only(found, training=training, rounds=rounds),
            only(own, client="A").groupby("other")["squared_distance"].mean(),
        )
        of_a, ranks = only(near, client="A")["nearest"], only(own, relevant=True).groupby("seed")["rank"].mean()
        lines.append(
            {
                "training": training,
                "rounds": rounds,
                "paper (no numbers printed)": "B and C are not the two nearest to A",
                "ours: B and C are": f"in {int(of_a.sum())} of {len(of_a)} seeds",
                "squared distance to B, C": f"{mean['B']:.3g}, {mean['C']:.3g}",
                "to the seven others": f"{mean.drop(['B', 'C']).min():.3g} to {mean.drop(['B', 'C']).max():.3g}",
                "any client: its two relevant are its two nearest (guessing: 3 %)": f"{near['nearest'].mean():.0%}",
                "mean rank of a relevant client (guessing: 5)": mean_std(ranks),
            }
        )
    return pd.DataFrame(lines)


def each_training(check_of):
    """A check for both trainings, after the last round."""
    return both(*(check_of({"training": training, "last": True}) for training in TRAININGS.values()))


def auc_below(measure: str, line: float):
    return each_training(
        lambda where: over_seeds("aucs", "auc", "measure", beyond(measure, line, -1, ".2f"), measure=measure, **where)
    )


def nearest_in_few(**client):
    """In less than half of the cases the two relevant clients are the two nearest, whatever the training."""
    return each_training(
        lambda where: over_seeds(
            "nearest",
            "nearest",
            "training",
            beyond(where["training"], 50, -1, what=" % of the cases"),
            100,
            **client,
            **where,
        )
    )


def answer(tables) -> str:
    """How well models' distances and classifiers' cosines find those who share a label, in a sentence from the numbers."""
    last, parts = only(tables["aucs"], last=True), []
    for measure in (DISTANCE, COSINE):
        means = only(last, measure=measure).groupby("training", sort=False)["auc"].mean()
        parts.append(f"the {measure} with {', '.join(f'{auc:.2f} ({training})' for training, auc in means.items())}")
    return f"Who shares a label is found by {' and by '.join(parts)}, in AUC (guessing: 0.5)."


ITEM = Item(
    title="pFedSV Figure 3: the distance of models and shared labels",
    claim="The clients that share a label with A are not those whose models are nearest to A's.",
    smaller="digits (16x16) and LeNet-5 instead of CIFAR-10 and a larger network; 5 rounds of 3 epochs; 90 training images per client instead of 4,800",
    settings={
        "smoke": {**SETTINGS["smoke"], "seeds": 1},
        "quick": {**SETTINGS["quick"], "rounds": 5, "seeds": 3},
        "paper": {**SETTINGS["paper"], "seeds": 5},
    },
    minutes={"smoke": 0.1, "quick": 0.3, "paper": 120},
    specs=specs,
    analyse=analyse,
    answer=answer,
    figure=lambda tables: figures.distances_to_a(tables["tidy"], tables["aucs"], dict(zip(NAMES, LABELS))),
    claims=(
        Claim(
            "B and C, who share a label with A, are not the two clients whose models are nearest to A's.",
            nearest_in_few(client="A"),
        ),
        ours("The same is true of most clients in A's place.", nearest_in_few()),
        ours("The distance hardly tells shared labels at all: AUC below 0.6.", auc_below(DISTANCE, 0.6)),
        ours(
            "The cosine of the classifiers (pFedSim's measure) tells them better than the distance of the models.",
            each_training(
                lambda where: over_seeds("aucs", "auc", "measure", under([DISTANCE], [COSINE], form=".2f"), **where)
            ),
        ),
    ),
)
