"""Figure 2: FedAvg of a client with those who share its labels, and with others as well."""

from __future__ import annotations

import numpy as np
import pandas as pd

from fedlib import figures
from fedlib.analysis.tables import mean_std, only
from fedlib.engine.result import RunResult
from fedlib.experiments.claims import Claim, ours, over_seeds, under
from fedlib.experiments.item import Item
from fedlib.experiments.pfedsv.ring import MNIST, SETTINGS, task_spec
from fedlib.spec import RunSpec

LABELS = {"A": [0, 2, 4, 6, 8], "B": [0, 2, 4], "C": [6, 8], "D": [1, 3, 5], "E": [7, 9]}
SCENARIOS = {"all five": ("fedavg", "ABCDE"), "A, B, C": ("fedavg", "ABC"), "A alone": ("local", "ABC")}
PAPER = {"all five": "ends lower", "A, B, C": "rises within few rounds, ends higher", "A alone": "not shown"}
TAIL = 5  # last rounds whose mean is compared


def specs(s: dict) -> list[RunSpec]:
    task = {"scheme": "manual", "eval_every": 1, "measures": ("client_accuracy",)}
    return [
        task_spec(s, method, seed, **task, label_sets=[LABELS[name] for name in clients], num_clients=len(clients))
        for seed in range(s["seeds"])
        for method, clients in SCENARIOS.values()
    ]


def analyse(s: dict, results: list[RunResult]) -> dict[str, pd.DataFrame]:
    """tidy: client A's accuracy after every round; ends: by run, the mean of the last TAIL rounds and the round that is `fast`."""
    names, lines, ends = {value: name for name, value in SCENARIOS.items()}, [], []
    for r in results:
        scenario, accuracy = names[r.spec.method, "ABCDE"[: r.spec.num_clients]], r.arrays["client_accuracy"][:, 0]
        lines += [(scenario, r.spec.seed, t, value) for t, value in enumerate(accuracy, 1)]
        sizes = r.arrays["counts"].sum(1)
        share = 1.0 if r.spec.method == "local" else sizes[0] / sizes.sum()
        ends.append((scenario, r.spec.seed, tail(accuracy), rounds_to(accuracy), share))
    ends, compare = pd.DataFrame(ends, columns=["scenario", "seed", "end", "fast", "share"]), []
    wide = 100 * ends.pivot(index="seed", columns="scenario", values="end")
    for scenario in SCENARIOS:
        own = only(ends, scenario=scenario)
        compare.append(
            {
                "averaged": scenario,
                "paper (no numbers printed)": PAPER[scenario],
                f"ours: A's accuracy, %, last {TAIL} rounds": mean_std(wide[scenario]),
                "difference from A, B, C": mean_std(wide[scenario] - wide["A, B, C"]),
                "rounds to 95 % of it": mean_std(own["fast"]),
                "A's share of the average": f"{own['share'].iloc[0]:.2f}",
            }
        )
    tidy = pd.DataFrame(lines, columns=["scenario", "seed", "round", "accuracy"])
    return {"tidy": tidy, "ends": ends, "compare": pd.DataFrame(compare)}


def tail(curve: np.ndarray) -> float:
    """Mean of the last TAIL rounds."""
    return float(np.mean(curve[-TAIL:]))


def rounds_to(curve: np.ndarray, share: float = 0.95) -> int:
    """First round (from 1) in which a curve reaches this share of its own end (`tail`), after which it may fall again."""
    return int(np.argmax(curve >= share * tail(curve))) + 1


def ends(lower: str, upper: str, value: str = "end", scale: float = 100):
    return over_seeds("ends", value, "scenario", under([lower], [upper]), scale)


ITEM = Item(
    title="pFedSV Figure 2: irrelevant collaborators hurt",
    claim="Averaging with clients that share none of its labels slows a client down and costs it accuracy.",
    smaller="digits (16x16) and LeNet-5 instead of MNIST and a larger network; 15 rounds; lr 0.1 and 1 local epoch instead of 0.01 and 5",
    settings={
        "smoke": {**SETTINGS["smoke"], "rounds": 3, "seeds": 2},
        "quick": {**SETTINGS["quick"], "rounds": 15, "local_epochs": 1, "seeds": 5},
        "paper": {**MNIST, "seeds": 5},
    },
    minutes={"smoke": 0.1, "quick": 0.3, "paper": 90},
    specs=specs,
    analyse=analyse,
    figure=lambda tables: figures.domain_curves(tables["tidy"], list(SCENARIOS)),
    claims=(
        Claim(
            "A ends with a lower accuracy if D and E, which share no label with it, are averaged too.",
            ends("all five", "A, B, C"),
        ),
        Claim("Without D and E, A's accuracy rises in fewer rounds.", ends("A, B, C", "all five", "fast", 1)),
        ours("Averaging with B and C, A does better than alone.", ends("A alone", "A, B, C")),
    ),
)
