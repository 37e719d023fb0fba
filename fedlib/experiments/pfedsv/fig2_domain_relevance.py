"""Figure 2: FedAvg of a client with those who share its labels, and with others as well."""

import numpy as np
import pandas as pd

from fedlib import figures
from fedlib.analysis.tables import described, mean_std, rows_of
from fedlib.claims import Claim, ours, over_seeds, under
from fedlib.engine.result import RunResult
from fedlib.experiments.item import Found, Item, Runs, Tables, per_profile, runs_of
from fedlib.experiments.pfedsv.task import ON_MNIST, SMALLER_ON_MNIST, ten_clients

LABELS = {"A": [0, 2, 4, 6, 8], "B": [0, 2, 4], "C": [6, 8], "D": [1, 3, 5], "E": [7, 9]}
RELEVANT = "A, B, C"
SCENARIOS = {"all five": ("fedavg", "ABCDE"), RELEVANT: ("fedavg", "ABC"), "Local": ("local", "ABC")}
PAPER = {"all five": "ends lower", RELEVANT: "rises within few rounds, ends higher", "Local": "not shown"}
TAIL = 5  # last rounds whose mean is compared


def runs(s: dict) -> Runs:
    """The runs by scenario and seed."""
    rows = {
        scenario: {"method": method, "num_clients": len(names), "partition": {"label_sets": [LABELS[n] for n in names]}}
        for scenario, (method, names) in SCENARIOS.items()
    }
    return runs_of(ten_clients(s, scheme="manual", eval_every=1, measures=("client_accuracy",)), rows, s["seeds"])


def of_a(r: RunResult) -> np.ndarray:
    """Client A's accuracy after every round."""
    return r.arrays["client_accuracy"][:, 0]


def end(r: RunResult) -> dict[str, float]:
    """The mean of the last TAIL rounds, the first round that has 95 % of it, and A's share of the average."""
    sizes, curve = r.arrays["counts"].sum(1), of_a(r)
    last = float(np.mean(curve[-TAIL:]))
    share = 1.0 if r.spec.method == "local" else sizes[0] / sizes.sum()
    return {"end": last, "fast": int(np.argmax(curve >= 0.95 * last)) + 1, "share": share}


def analyse(s: dict, found: Found) -> Tables:
    """tidy: client A's accuracy after every round; ends: one row a run, see `end`."""
    key, rounds = ("scenario", "seed"), range(1, s["rounds"] + 1)
    tidy = rows_of(found, key, lambda r: pd.DataFrame({"round": rounds, "accuracy": of_a(r)}))
    ends = rows_of(found, key, end)
    wide = 100 * ends.pivot(index="seed", columns="scenario", values="end")
    compare = described(ends, "scenario", **{
        "paper (no numbers reported)": lambda t: PAPER[t["scenario"].iloc[0]],
        f"ours: A's accuracy, %, last {TAIL} rounds": lambda t: mean_std(100 * t["end"]),
        f"difference from {RELEVANT}": lambda t: mean_std(wide[t["scenario"].iloc[0]] - wide[RELEVANT]),
        f"rounds to 95 % of the mean of the last {TAIL} rounds": lambda t: mean_std(t["fast"]),
        "A's share of the average": lambda t: f"{t['share'].iloc[0]:.2f}",
    }).rename(columns={"scenario": "clients averaged"})  # fmt: skip
    return {"tidy": tidy, "ends": ends, "compare": compare}


def ends(lower: str, upper: str, value: str = "end", scale: float = 100):
    return over_seeds("ends", value, "scenario", under([lower], [upper]), scale)


ITEM = Item(
    title="pFedSV Figure 2: irrelevant collaborators hurt",
    claim="Averaging with clients that share none of its labels slows a client down and costs it accuracy.",
    smaller="digits (16x16; paper: MNIST); LeNet-5 (paper: McMahan's CNN); 15 rounds (paper: 20); learning rate 0.1 "
    "(paper: 0.01); 1 local epoch (paper: 5)",
    smaller_reduced=SMALLER_ON_MNIST,
    settings=per_profile(
        ON_MNIST,
        rounds=[3, 15, None], local_epochs=[None, 1, None], seeds=[2, 5, 5],
        reduced={"seeds": 3},
    ),
    minutes={"smoke": 0.1, "quick": 0.3, "reduced": 15, "paper": 90},
    runs=runs,
    analyse=analyse,
    figure=lambda tables: figures.domain_curves(tables["tidy"], list(SCENARIOS)),
    claims=(
        Claim("Client A ends with a lower accuracy if D and E, which share no label with it, are averaged too.",
              ends("all five", RELEVANT)),
        Claim("Without D and E, client A's accuracy rises in fewer rounds.", ends(RELEVANT, "all five", "fast", 1)),
        ours("Averaging with B and C, client A outperforms local-only training.", ends("Local", RELEVANT)),
    ),
)  # fmt: skip
