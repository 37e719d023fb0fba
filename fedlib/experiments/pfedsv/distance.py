"""Figure 3: does the distance of two models tell whether their clients share a label?"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

from fedlib import figures
from fedlib.engine.result import RunResult
from fedlib.experiments.items import Claim, Item, Verdict, mean_std, only, verdict
from fedlib.experiments.pfedsv.ring import CLIENTS, SETTINGS, mean_auc, share_a_label, task_spec
from fedlib.spec import RunSpec

# A, B and C as printed; the others' labels are unstated and continue the ring, in which each label has two owners.
LABELS = ([0, 1], [1, 2], [0, 3], [2, 4], [4, 5], [5, 6], [6, 7], [7, 8], [8, 9], [9, 3])
NAMES = "ABCDEFGHIJ"
TRAININGS = {"local": "each client alone", "fedavg": "FedAvg"}  # the paper does not say how the models were trained
MOMENTS = (1, 5)  # rounds after which is measured, besides the last
MEASURES = {
    "squared_distance": "distance of models",
    "squared_distance_head": "distance of classifiers",
    "classifier_cosine": "cosine of classifiers",
}


def distance_specs(s: dict) -> list[RunSpec]:
    return [
        task_spec(
            s,
            method,
            seed,
            scheme="manual",
            partition={"label_sets": [list(own) for own in LABELS]},
            rounds=rounds,
            eval_every=rounds,
            eval_points=("post",),
            measures=("model_distances",),
        )
        for seed in range(s["seeds"])
        for method in TRAININGS
        for rounds in moments(s)
    ]


def moments(s: dict) -> list[int]:
    """The rounds after which is measured: each is a run of its own, of which only the end is looked at."""
    return sorted({*(t for t in MOMENTS if t < s["rounds"]), s["rounds"]})


def analyse_distance(s: dict, results: list[RunResult]) -> dict[str, pd.DataFrame]:
    """tidy: one row an ordered pair of clients; rank 1 is the nearest of a client's nine others. aucs: one row a run and measure."""
    rows, aucs = [], []
    for r in results:
        relevant, squared = share_a_label(r.arrays["counts"]), r.arrays["squared_distance"]
        ranks = np.where(np.eye(CLIENTS, dtype=bool), -1.0, squared).argsort(1).argsort(1)  # oneself has rank 0
        for i, j in zip(*np.nonzero(~np.eye(CLIENTS, dtype=bool))):
            pair = (NAMES[i], NAMES[j], bool(relevant[i, j]), squared[i, j], int(ranks[i, j]))
            rows.append((TRAININGS[r.spec.method], r.spec.rounds, r.spec.seed, *pair))
        for measure, label in MEASURES.items():
            nearness = r.arrays[measure] if measure == "classifier_cosine" else -r.arrays[measure]
            aucs.append((TRAININGS[r.spec.method], r.spec.rounds, r.spec.seed, label, mean_auc(nearness, relevant)))
    run = ["training", "rounds", "seed"]
    tidy = pd.DataFrame(rows, columns=[*run, "client", "other", "relevant", "squared_distance", "rank"])
    aucs = pd.DataFrame(aucs, columns=[*run, "measure", "auc"])
    return {"tidy": tidy, "aucs": aucs, "compare": compared(tidy)}


def compared(tidy: pd.DataFrame) -> pd.DataFrame:
    """How near A's other clients are: paper in words, ours in numbers."""
    rows = []
    for (training, rounds), own in tidy.groupby(["training", "rounds"], sort=False):
        found, mean = nearest_two(own), only(own, client="A").groupby("other")["squared_distance"].mean()
        rows.append(
            {
                "training": training,
                "rounds": rounds,
                "paper (no numbers printed)": "B and C are not the two nearest to A",
                "ours: B and C are": f"in {int(found['A'].sum())} of {len(found)} seeds",
                "squared distance to B, C": f"{mean['B']:.3g}, {mean['C']:.3g}",
                "to the seven others": f"{mean.drop(['B', 'C']).min():.3g} to {mean.drop(['B', 'C']).max():.3g}",
                "any client: its two relevant are its two nearest (guessing: 3 %)": f"{found.to_numpy().mean():.0%}",
                "mean rank of a relevant client (guessing: 5)": mean_std(
                    only(own, relevant=True).groupby("seed")["rank"].mean()
                ),
            }
        )
    return pd.DataFrame(rows)


def nearest_two(tidy: pd.DataFrame) -> pd.DataFrame:
    """Whether the two relevant clients are the two nearest, bool, seeds by clients; of one training and number of rounds."""
    near = only(tidy, relevant=True).groupby(["seed", "client"])["rank"].max()
    return (near <= 2).unstack()


def by_training(frame: pd.DataFrame, of: Callable[[pd.DataFrame], pd.Series]) -> tuple[dict, dict]:
    """of(rows) for each training: after the last round, {training: value}, and before, {"training, t rounds": value}."""
    last, before = {}, {}
    for (training, rounds), rows in frame.groupby(["training", "rounds"], sort=False):
        if rounds == frame["rounds"].max():
            last[training] = of(rows)
        else:
            before[f"{training}, {rounds} round{'s' * (rounds > 1)}"] = of(rows)
    return last, before


def nearest_in_few(clients: Callable[[pd.DataFrame], pd.DataFrame], what: str):
    """A check that in less than half of the cases the two relevant clients are the two nearest, whatever the training."""

    def check(tables) -> Verdict:
        last, before = by_training(tables["tidy"], lambda rows: clients(nearest_two(rows)).to_numpy())
        listed = "; ".join(f"{name}: in {int(f.sum())} of {f.size} cases" for name, f in {**last, **before}.items())
        return verdict(all(f.mean() < 0.5 for f in last.values()), f"{what} are the two nearest, {listed}")

    return check


def _aucs(tables, measure: str) -> tuple[dict, dict]:
    return by_training(only(tables["aucs"], measure=MEASURES[measure]), lambda rows: rows["auc"])


def check_no_information(tables) -> Verdict:
    last, before = _aucs(tables, "squared_distance")
    listed = "; ".join(f"{name} {mean_std(auc)}" for name, auc in {**last, **before}.items())
    return verdict(all(auc.mean() < 0.6 for auc in last.values()), f"AUC (guessing: 0.5): {listed}")


def check_classifier_better(tables) -> Verdict:
    (whole, _), (heads, _) = _aucs(tables, "squared_distance"), _aucs(tables, "classifier_cosine")
    listed = "; ".join(f"{t}: cosine {mean_std(heads[t])}, distance {mean_std(whole[t])}" for t in whole)
    return verdict(all(heads[t].mean() > whole[t].mean() for t in whole), f"AUC after the last round, {listed}")


def answer(tables) -> str:
    """How well models' distances and classifiers' cosines find those who share a label, in a sentence from the numbers."""
    parts = []
    for measure in ("squared_distance", "classifier_cosine"):
        last, _ = _aucs(tables, measure)
        listed = ", ".join(f"{auc.mean():.2f} ({training})" for training, auc in last.items())
        parts.append(f"the {MEASURES[measure]} with {listed}")
    return f"Who shares a label is found by {' and by '.join(parts)}, in AUC (guessing: 0.5)."


FIG3 = Item(
    name="pfedsv/fig3_model_difference",
    title="pFedSV Figure 3: the distance of models and shared labels",
    claim="The clients that share a label with A are not those whose models are nearest to A's.",
    smaller="digits (16x16) and LeNet-5 instead of CIFAR-10 and a larger network; 5 rounds of 3 epochs; 90 training images per client instead of 4,800",
    settings={
        "smoke": {**SETTINGS["smoke"], "seeds": 1},
        "quick": {**SETTINGS["quick"], "rounds": 5, "seeds": 3},
        "paper": {**SETTINGS["paper"], "seeds": 5},
    },
    minutes={"smoke": 0.1, "quick": 0.3, "paper": 120},
    specs=distance_specs,
    analyse=analyse_distance,
    answer=answer,
    figure=lambda tables: figures.distances_to_a(tables["tidy"], tables["aucs"], dict(zip(NAMES, LABELS))),
    claims=(
        Claim(
            "B and C, who share a label with A, are not the two clients whose models are nearest to A's.",
            nearest_in_few(lambda found: found["A"], "B and C"),
        ),
        Claim(
            "(Ours) The same is true of most clients in A's place.",
            nearest_in_few(lambda found: found, "the two who share a label"),
        ),
        Claim("(Ours) The distance hardly tells shared labels at all: AUC below 0.6.", check_no_information),
        Claim(
            "(Ours) The cosine of the classifiers (pFedSim's measure) tells them better than the distance of the models.",
            check_classifier_better,
        ),
    ),
)

ITEMS = (FIG3,)
