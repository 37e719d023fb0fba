"""What pFedSV's Figures 2, 3, 4 and 7 to 10 and the notes share: ten clients with two labels each, and how well a score finds those
who share one."""

from __future__ import annotations

import numpy as np

from fedlib.experiments.accuracy_table import run_spec
from fedlib.spec import RunSpec

CLIENTS = 10

# What every profile says of the task. Shares of test samples and batch sizes are unstated in the paper.
SETTINGS = {
    "smoke": {
        "dataset": "digits", "model": "lenet5", "rounds": 2, "local_epochs": 1, "batch_size": 32, "lr": 0.1,
        "test_fraction": 0.5,
    },
    "quick": {
        "dataset": "digits", "model": "lenet5", "rounds": 10, "local_epochs": 3, "batch_size": 16, "lr": 0.1,
        "test_fraction": 0.5,
    },
    "paper": {
        "dataset": "cifar10", "model": "mcmahan_cnn", "rounds": 20, "local_epochs": 5, "batch_size": 32, "lr": 0.1,
        "test_fraction": 0.2,
    },
}  # fmt: skip
MNIST = {**SETTINGS["paper"], "dataset": "mnist", "lr": 0.01}  # the paper profile of the figures that use MNIST


def task_spec(s: dict, method: str, seed: int, hyper: dict | None = None, **fields) -> RunSpec:
    """One run of a profile's settings; partition, weights and batches vary with the seed. McMahan's CNN is padded as its authors have it."""
    task = {"num_clients": CLIENTS, "join_ratio": 1.0, "stratified": True, "padding": "same", **s, **fields}
    return run_spec({**task, "seed": seed, "partition_seed": seed}, method, **hyper or {})


def ring_spec(s: dict, method: str, seed: int, **fields) -> RunSpec:
    """One run in which every client shares one label with each of two others; evaluated at the end unless told otherwise."""
    return task_spec(
        s, method, seed, **{"scheme": "ring", "classes_per_client": 2, "eval_every": s["rounds"], **fields}
    )


def share_a_label(counts: np.ndarray) -> np.ndarray:
    """Who shares a label with whom, bool [N, N] without the diagonal; counts: samples by client and class [N, C]."""
    owned = (np.asarray(counts) > 0).astype(int)
    return (owned @ owned.T > 0) & ~np.eye(len(owned), dtype=bool)


def others(matrix: np.ndarray) -> np.ndarray:
    """A matrix [N, N] without its diagonal, [N, N - 1]."""
    return matrix[~np.eye(len(matrix), dtype=bool)].reshape(len(matrix), -1)


def mean_auc(scores: np.ndarray, relevant: np.ndarray) -> float:
    """Chance that a client scores a relevant other higher than an irrelevant one (ties count half), mean over clients; both [N, N].

    1 is perfect, 0.5 is guessing. Clients to whom all others are relevant, or none, are left out; NaN if nobody is left.
    """
    rows = [(truth, row) for truth, row in zip(others(relevant), others(scores)) if truth.any() and not truth.all()]
    return float(np.mean([_auc(row[truth], row[~truth]) for truth, row in rows])) if rows else float("nan")


def _auc(above: np.ndarray, below: np.ndarray) -> float:
    """Share of the pairs in which a number of the first kind is higher than one of the second."""
    gaps = above[:, None] - below
    return float(((gaps > 0) + 0.5 * (gaps == 0)).mean())
