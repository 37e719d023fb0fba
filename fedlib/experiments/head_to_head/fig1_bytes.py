"""Figure 1: accuracy against what travels: the curves, and what every method reaches with FedAvg's bytes."""

from dataclasses import replace

import numpy as np
import pandas as pd

from fedlib import figures
from fedlib.analysis.readings import Reading
from fedlib.analysis.tables import rows_of
from fedlib.analysis.traffic import network_size
from fedlib.base.draws import num_participants
from fedlib.claims import below, in_columns, ours
from fedlib.engine.result import RunResult
from fedlib.experiments.head_to_head import task
from fedlib.experiments.head_to_head.table2_accuracy import BYTES, best_of
from fedlib.experiments.head_to_head.task import CLASSIFIERS_ONLY, FOUR
from fedlib.experiments.item import Found, Tables

CURVE = ("round", "MB", "share", "accuracy")


def sent(r: RunResult) -> np.ndarray:
    """Megabytes that a client has received and sent after every round, [T]: the mean over all clients."""
    turns = num_participants(r.spec.num_members, r.spec.join_ratio) / r.spec.num_members  # of a client in a round
    return np.cumsum(r.arrays["traffic"].sum(1)) * turns * BYTES / 1e6


def of_fedavg(r: RunResult) -> float:
    """Megabytes of a client in a whole run of FedAvg: its network down and up in every turn."""
    turns = r.spec.rounds * num_participants(r.spec.num_members, r.spec.join_ratio) / r.spec.num_members
    return 2 * network_size(r.spec)["model"] * turns * BYTES / 1e6


def within_fedavgs_bytes(r: RunResult, column: str = "") -> list[Reading]:
    """The last accuracy that was measured before a client had sent and received more than FedAvg's whole run does."""
    values = r.arrays["client_accuracy"]
    there = np.flatnonzero(~np.isnan(values[:, 0]) & (sent(r) <= of_fedavg(r) * (1 + 1e-9)))
    if not len(there):
        return []
    return [Reading(r.point, True, float(values[there[-1]].mean()), about={"round": int(there[-1]) + 1})]


def curve(r: RunResult) -> pd.DataFrame:
    """One row an evaluated round: round, MB so far, its share of the MB of FedAvg's whole run, accuracy in percent."""
    values = r.arrays["client_accuracy"].mean(1)
    there = np.flatnonzero(~np.isnan(values))
    megabytes = sent(r)[there]
    share = megabytes / of_fedavg(r)
    return pd.DataFrame(dict(zip(CURVE, (there + 1, megabytes, share, 100 * values[there]))))


TABLE = replace(task.TABLE, numbers=(), read=lambda s: within_fedavgs_bytes, ours="within FedAvg's byte budget")


def analyse(s: dict, found: Found) -> Tables:
    """Besides the accuracies with FedAvg's bytes: curves, the mean over seeds by task, method and round."""
    every = rows_of(found, ("method", "task", "seed"), curve).reindex(columns=["method", "task", "seed", *CURVE])
    curves = every.groupby(["task", "method", "round"], sort=False)[[*CURVE[1:]]].mean().reset_index()
    return {**TABLE.analyse(s, found), "curves": curves}


ITEM = TABLE.item(
    title="Head to head, Figure 1: accuracy versus communication",
    claim="At equal communication cost, the methods that download several models are behind.",
    **task.COMMON,
    minutes={"smoke": 0.1, "quick": 0.5, "reduced": 180, "paper": 15000},
    analyse=analyse,
    figure=lambda tables: figures.by_bytes(tables["curves"]),
    claims=(
        ours("At equal communication cost (FedAvg's), pFedSV and FedFomo, which download several models, are less "
             "accurate than FedAvg+FT on every task.", below(["pfedsv", "fedfomo"], ["fedavg_ft"])),
        ours("At equal communication cost, pFedSV with a shared extractor (D+C) outperforms pFedSV with full models on "
             "every task.", below(["pfedsv"], [CLASSIFIERS_ONLY])),
        ours("At equal communication cost, the best of the four papers' methods outperforms FedAvg+FT on every task.",
             in_columns(best_of(FOUR, ["fedavg_ft"]), (*FOUR, "fedavg_ft"))),
    ),
)  # fmt: skip
