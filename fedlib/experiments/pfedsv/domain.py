"""Figure 2: FedAvg of a client with those who share its labels, and with others as well."""

from __future__ import annotations

import numpy as np
import pandas as pd

from fedlib import figures
from fedlib.engine.result import RunResult
from fedlib.experiments.items import Claim, Item, Verdict, mean_std, only, verdict
from fedlib.experiments.pfedsv.ring import MNIST, SETTINGS, task_spec
from fedlib.spec import RunSpec

LABELS = {"A": [0, 2, 4, 6, 8], "B": [0, 2, 4], "C": [6, 8], "D": [1, 3, 5], "E": [7, 9]}
SCENARIOS = {"all five": ("fedavg", "ABCDE"), "A, B, C": ("fedavg", "ABC"), "A alone": ("local", "ABC")}
PAPER = {"all five": "ends lower", "A, B, C": "rises within few rounds, ends higher", "A alone": "not shown"}
TAIL = 5  # last rounds whose mean is compared


def domain_specs(s: dict) -> list[RunSpec]:
    return [
        task_spec(
            s,
            method,
            seed,
            scheme="manual",
            partition={"label_sets": [LABELS[name] for name in clients]},
            num_clients=len(clients),
            eval_every=1,
            measures=("client_accuracy",),
        )
        for seed in range(s["seeds"])
        for method, clients in SCENARIOS.values()
    ]


def analyse_domain(s: dict, results: list[RunResult]) -> dict[str, pd.DataFrame]:
    """tidy: client A's accuracy after every round; ends: by run, the mean of the last TAIL rounds and the round that is `fast`."""
    names = {value: name for name, value in SCENARIOS.items()}
    rows, shares = [], []
    for r in results:
        scenario = names[r.spec.method, "ABCDE"[: r.spec.num_clients]]
        accuracy = r.arrays["client_accuracy"][:, 0]
        rows += [(scenario, r.spec.seed, t, value) for t, value in enumerate(accuracy, 1)]
        sizes = r.arrays["counts"].sum(1)
        shares.append((scenario, 1.0 if r.spec.method == "local" else sizes[0] / sizes.sum()))
    tidy = pd.DataFrame(rows, columns=["scenario", "seed", "round", "accuracy"])
    curves = tidy.groupby(["scenario", "seed"], sort=False)["accuracy"]
    ends = pd.DataFrame({"end": curves.apply(tail), "fast": curves.apply(lambda c: rounds_to(c.to_numpy()))})
    ends = ends.reset_index().merge(pd.DataFrame(shares, columns=["scenario", "share"]).drop_duplicates("scenario"))
    return {"tidy": tidy, "ends": ends, "compare": compared(ends)}


def tail(curve) -> float:
    """Mean of the last TAIL rounds."""
    return float(np.mean(np.asarray(curve)[-TAIL:]))


def rounds_to(curve: np.ndarray, share: float = 0.95) -> int:
    """First round (from 1) in which a curve reaches this share of its own end (`tail`), after which it may fall again."""
    return int(np.argmax(curve >= share * tail(curve))) + 1


def compared(ends: pd.DataFrame) -> pd.DataFrame:
    wide = 100 * ends.pivot(index="seed", columns="scenario", values="end")
    rows = []
    for scenario in SCENARIOS:
        own = only(ends, scenario=scenario)
        rows.append(
            {
                "averaged": scenario,
                "paper (no numbers printed)": PAPER[scenario],
                f"ours: A's accuracy, %, last {TAIL} rounds": mean_std(wide[scenario]),
                "difference from A, B, C": mean_std(wide[scenario] - wide["A, B, C"]),
                "rounds to 95 % of it": mean_std(own["fast"]),
                "A's share of the average": f"{own['share'].iloc[0]:.2f}",
            }
        )
    return pd.DataFrame(rows)


def _ends(tables, column: str = "end") -> pd.DataFrame:
    return tables["ends"].pivot(index="seed", columns="scenario", values=column)


def check_ends_lower(tables) -> Verdict:
    ends = 100 * _ends(tables)
    lost = ends["A, B, C"] - ends["all five"]
    evidence = f"A, B, C {mean_std(ends['A, B, C'])} %, all five {mean_std(ends['all five'])} %; lower with D and E in {int((lost > 0).sum())} of {len(lost)} seeds, by {mean_std(lost)}"
    return verdict(bool((lost > 0).all()), evidence)


def check_faster(tables) -> Verdict:
    fast, curves = _ends(tables, "fast"), tables["tidy"].groupby(["scenario", "round"])["accuracy"].mean()
    ahead = (curves["A, B, C"] > curves["all five"]).mean()
    evidence = f"rounds to 95 % of the own end: A, B, C {mean_std(fast['A, B, C'])}, all five {mean_std(fast['all five'])}; A, B, C is ahead in {ahead:.0%} of the rounds (mean of the seeds)"
    return verdict(bool(fast["A, B, C"].mean() < fast["all five"].mean()), evidence)


def check_better_than_alone(tables) -> Verdict:
    ends = 100 * _ends(tables)
    gain = ends["A, B, C"] - ends["A alone"]
    return verdict(
        bool(gain.mean() > 0),
        f"A, B, C {mean_std(ends['A, B, C'])} %, A alone {mean_std(ends['A alone'])} %; better in {int((gain > 0).sum())} of {len(gain)} seeds, by {mean_std(gain)}",
    )


FIG2 = Item(
    name="pfedsv/fig2_domain_relevance",
    title="pFedSV Figure 2: irrelevant collaborators hurt",
    claim="Averaging with clients that share none of its labels slows a client down and costs it accuracy.",
    smaller="digits (16x16) and LeNet-5 instead of MNIST and a larger network; 15 rounds; lr 0.1 and 1 local epoch instead of 0.01 and 5",
    settings={
        "smoke": {**SETTINGS["smoke"], "rounds": 3, "seeds": 2},
        "quick": {**SETTINGS["quick"], "rounds": 15, "local_epochs": 1, "seeds": 5},
        "paper": {**MNIST, "seeds": 5},
    },
    minutes={"smoke": 0.1, "quick": 0.3, "paper": 90},
    specs=domain_specs,
    analyse=analyse_domain,
    figure=lambda tables: figures.domain_curves(tables["tidy"], list(SCENARIOS)),
    claims=(
        Claim(
            "A ends with a lower accuracy if D and E, which share no label with it, are averaged too.", check_ends_lower
        ),
        Claim("Without D and E, A's accuracy rises in fewer rounds.", check_faster),
        Claim("(Ours) Averaging with B and C, A does better than alone.", check_better_than_alone),
    ),
)

ITEMS = (FIG2,)
