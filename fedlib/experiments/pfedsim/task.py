"""The federated task that pFedSim's Tables 3, 6 and 7 share, in three sizes."""

from __future__ import annotations

import pandas as pd

from fedlib.spec import RunSpec

ALPHAS = (0.1, 0.5)

# What every profile says of the task; pools: max-pools of LeNet5-BN, 1 as the paper's Table 5 prints it, 2 as the authors' code has it.
SETTINGS = {
    "smoke": {
        "dataset": "digits", "num_clients": 6, "join_ratio": 0.5, "rounds": 2, "local_epochs": 1, "lr": 0.05,
        "min_size": 10, "pools": 1, "eval_every": 1,
    },
    "quick": {
        "dataset": "digits", "num_clients": 20, "join_ratio": 0.5, "rounds": 15, "local_epochs": 5, "lr": 0.05,
        "min_size": 10, "pools": 1, "eval_every": 5,
    },
    "paper": {
        "dataset": "cifar10", "num_clients": 100, "join_ratio": 0.1, "rounds": 200, "local_epochs": 5, "lr": 0.01,
        "min_size": 40, "pools": 2, "eval_every": 10,
    },
}  # fmt: skip
SMALLER = "digits (16x16) instead of CIFAR-10; 20 clients of which 10 take part, 15 rounds, instead of 100, 10 and 200; lr 0.05 instead of 0.01"


def presets(s: dict) -> dict[str, dict]:
    """Hyper-parameters that the paper's appendix sets and that are not a method's own defaults, by method.

    Per-FedAvg's beta is a tenth of the learning rate: 0.001 and 0.01.
    """
    return {"perfedavg": {"beta": round(s["lr"] / 10, 12)}}


def over_seeds(percent: pd.Series) -> str:
    """ "mean (std, n=seeds)", without the std for a single seed; "not run" for none."""
    if not len(percent):
        return "not run"
    spread = f"{percent.std(ddof=1):.2f}, " if len(percent) > 1 else ""
    return f"{percent.mean():.2f} ({spread}n={len(percent)})"


def run_spec(s: dict, method: str, alpha: float, seed: int, **hyper) -> RunSpec:
    """One run of a profile's task."""
    return RunSpec(
        method,
        hyper=hyper,
        seed=seed,
        partition={"alpha": alpha, "min_size": s["min_size"]},
        model_options={"pools": s["pools"]},
        **{
            name: s[name]
            for name in ("dataset", "num_clients", "join_ratio", "rounds", "local_epochs", "lr", "eval_every")
        },
    )
