"""Table 7: what pFedSim costs, in seconds and in numbers sent."""

from __future__ import annotations

import pandas as pd

from fedlib import figures
from fedlib.engine.result import RunResult
from fedlib.experiments.items import Claim, Item, Verdict, mean_std, only, paper_table, verdict
from fedlib.experiments.pfedsim.task import SETTINGS, run_spec
from fedlib.spec import RunSpec

METHODS = ("fedavg", "fedfomo", "fedgen", "pfedsim")
FORMULAS = {"fedavg": "ν", "fedfomo": "M ν", "fedgen": "ν + ν_g", "pfedsim": "ν"}  # down; ν is sent up by all of them
DATA = ("cifar10", "cinic10", "tiny_imagenet", "emnist")


def overhead_specs(s: dict) -> list[RunSpec]:
    return [run_spec(s, method, 0.1, seed) for seed in range(s["seeds"]) for method in METHODS]


def analyse_overhead(s: dict, results: list[RunResult]) -> dict[str, pd.DataFrame]:
    """tidy: seconds per training sample and epoch, its ratio to FedAvg's of the same seed, numbers per participant and round."""
    rows = []
    for r in results:
        turns = r.spec.rounds * max(1, int(r.spec.join_ratio * r.spec.num_clients + 1e-9))
        sent = [r.communication[way]["floats"] / turns for way in ("down", "up")]
        rows.append((r.spec.seed, r.spec.method, r.seconds["per_sample"], *sent))
    tidy = pd.DataFrame(rows, columns=["seed", "method", "seconds", "down", "up"])
    base = only(tidy, method="fedavg").set_index("seed")
    for name in ("seconds", "down", "up"):
        tidy[f"{name}_ratio"] = tidy[name] / tidy["seed"].map(base[name])
    paper = printed_ratios()
    compare = []
    for method in METHODS:
        own = only(tidy, method=method)
        compare.append(
            {
                "method": method,
                "time, paper (4 data sets)": f"{paper[method].min():.2f} to {paper[method].max():.2f}",
                f"time, ours, {s['dataset']}": mean_std(own["seconds_ratio"]),
                "difference from CIFAR-10": f"{own['seconds_ratio'].mean() - paper.loc['cifar10', method]:+.2f}",
                "down, paper": FORMULAS[method],
                "down, ours (models)": f"{own['down_ratio'].mean():.2f}",
                "up, ours (models)": f"{own['up_ratio'].mean():.2f}",
            }
        )
    return {"tidy": tidy, "compare": pd.DataFrame(compare)}


def printed_ratios() -> pd.DataFrame:
    """The paper's seconds per sample as ratios to FedAvg's, data sets by methods."""
    cells = only(paper_table("pfedsim", "7"), metric="seconds_per_sample")
    wide = cells.pivot(index="dataset", columns="method", values="value").loc[list(DATA)]
    return wide.div(wide["fedavg"], axis=0)


def _ratio(tables, method: str, name: str = "seconds") -> pd.Series:
    return only(tables["tidy"], method=method)[f"{name}_ratio"]


def check_as_cheap(tables) -> Verdict:
    ratio = _ratio(tables, "pfedsim")
    return verdict(
        abs(ratio.median() - 1) <= 0.05,
        f"median {ratio.median():.3f} of FedAvg's time, from {ratio.min():.3f} to {ratio.max():.3f} in {len(ratio)} repetitions",
    )


def dearer(method: str):
    def check(tables) -> Verdict:
        ratio = _ratio(tables, method)
        return verdict(
            ratio.median() > 1.05,
            f"median {ratio.median():.2f} of FedAvg's time, from {ratio.min():.2f} to {ratio.max():.2f}",
        )

    return check


def check_traffic(tables) -> Verdict:
    down = {method: _ratio(tables, method, "down").mean() for method in METHODS}
    up = {method: _ratio(tables, method, "up").mean() for method in METHODS}
    holds = down["pfedsim"] == up["pfedsim"] == 1 and down["fedfomo"] > 2 and 1 < down["fedgen"] < 2
    listed = ", ".join(f"{method} {down[method]:.2f} down and {up[method]:.2f} up" for method in METHODS)
    return verdict(holds, f"in models per participant and round: {listed}")


TABLE7 = Item(
    name="pfedsim/table7_overhead",
    title="pFedSim Table 7: the cost of personalisation",
    claim="pFedSim costs a client what FedAvg costs it, in time and in traffic; FedFomo and FedGen cost more.",
    smaller="digits (16x16) instead of CIFAR-10, 20 clients of which 10 take part instead of 100 and 10",
    settings={
        "smoke": {**SETTINGS["smoke"], "seeds": 1},
        "quick": {**SETTINGS["quick"], "rounds": 5, "eval_every": 5, "seeds": 3},
        "paper": {**SETTINGS["paper"], "rounds": 20, "eval_every": 20, "seeds": 5},
    },
    minutes={"smoke": 0.1, "quick": 0.5, "paper": 30},
    specs=overhead_specs,
    analyse=analyse_overhead,
    figure=lambda tables: figures.overhead(tables["tidy"], printed_ratios()),
    timed=True,
    claims=(
        Claim("pFedSim takes a client as long as FedAvg (within 5 %).", check_as_cheap),
        Claim(
            "FedFomo takes longer than FedAvg, because clients test the models that they receive.", dearer("fedfomo")
        ),
        Claim("FedGen takes longer than FedAvg, because clients train on generated features too.", dearer("fedgen")),
        Claim(
            "pFedSim sends what FedAvg sends, FedFomo M models down, FedGen a generator besides the model.",
            check_traffic,
        ),
    ),
)

ITEMS = (TABLE7,)
