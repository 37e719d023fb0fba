"""Table 7: what pFedSim costs, in seconds and in numbers sent."""

from __future__ import annotations

import pandas as pd

from fedlib import figures
from fedlib.analysis.tables import listed, mean_std, only
from fedlib.base.draws import num_participants
from fedlib.data.facts import shape_and_classes
from fedlib.engine.result import RunResult
from fedlib.experiments.accuracy_table import run_spec
from fedlib.experiments.claims import Claim, Verdict, beyond, both, implementation, over_seeds, under, verdict
from fedlib.experiments.item import Item
from fedlib.experiments.paper_numbers import paper_table
from fedlib.experiments.pfedsim.task import SETTINGS, task
from fedlib.models import sizes
from fedlib.spec import RunSpec

FORMULAS = {"fedavg": "ν", "fedfomo": "M ν", "fedgen": "ν + ν_g", "pfedsim": "ν"}  # down; ν is sent up by all of them
METHODS = tuple(FORMULAS)
DATA = ("cifar10", "cinic10", "tiny_imagenet", "emnist")


def specs(s: dict) -> list[RunSpec]:
    return [run_spec({**task(s, "Dir(0.1)"), "seed": seed}, method) for seed in range(s["seeds"]) for method in METHODS]


def analyse(s: dict, results: list[RunResult]) -> dict[str, pd.DataFrame]:
    """tidy: one row a run: seconds per training sample and epoch, its ratio to FedAvg's of the same seed, numbers per participant and round."""
    lines = []
    for r in results:
        turns = r.spec.rounds * num_participants(r.spec.num_clients, r.spec.join_ratio)
        sent = [r.communication[way]["floats"] / turns for way in ("down", "up")]
        lines.append((r.spec.seed, r.spec.method, r.seconds["per_sample"], *sent))
    tidy = pd.DataFrame(lines, columns=["seed", "method", "seconds", "down", "up"])
    base = only(tidy, method="fedavg").set_index("seed")
    for name in ("seconds", "down", "up"):
        tidy[f"{name}_ratio"] = tidy[name] / tidy["seed"].map(base[name])
    paper, compare = printed_ratios(), []
    for method in METHODS:
        own = only(tidy, method=method)
        line = {
            "method": method,
            "time, paper (4 data sets)": f"{paper[method].min():.2f} to {paper[method].max():.2f}",
            f"time, ours, {s['dataset']}": mean_std(own["seconds_ratio"]),
            "difference from CIFAR-10": f"{own['seconds_ratio'].mean() - paper.loc['cifar10', method]:+.2f}",
            "down, paper": FORMULAS[method],
        }
        compare.append(line | {f"{way}, ours (models)": f"{own[f'{way}_ratio'].mean():.2f}" for way in ("down", "up")})
    spec = results[0].spec
    size = sizes(spec.model, *shape_and_classes(spec.dataset), **spec.model_options)["model"]
    return {"tidy": tidy, "compare": pd.DataFrame(compare), "_network": pd.DataFrame({"parameters": [size]})}


def printed_ratios() -> pd.DataFrame:
    """The paper's seconds per sample as ratios to FedAvg's, data sets by methods."""
    cells = only(paper_table("pfedsim", "7"), metric="seconds_per_sample")
    wide = cells.pivot(index="dataset", columns="method", values="value").loc[list(DATA)]
    return wide.div(wide["fedavg"], axis=0)


def traffic(tables) -> Verdict:
    size, tidy = tables["_network"]["parameters"].iloc[0], tables["tidy"]
    down, up = (tidy.groupby("method", sort=False)[way].mean() / size for way in ("down", "up"))
    holds = down["fedavg"] == up["fedavg"] == down["pfedsim"] == up["pfedsim"] == 1
    holds &= 2 < down["fedfomo"] <= 5 and 1 < down["fedgen"] < 2
    return verdict(bool(holds), f"models of {size:,} parameters down: {listed(down, '.2f')}; up: {listed(up, '.2f')}")


def time(judge):
    """A check of the seconds per sample in units of FedAvg's, over repetitions."""
    return over_seeds("tidy", "seconds_ratio", "method", judge)


ITEM = Item(
    title="pFedSim Table 7: the cost of personalisation",
    claim="pFedSim costs a client what FedAvg costs it, in time and in traffic; FedFomo and FedGen cost more.",
    smaller="digits (16x16) instead of CIFAR-10, 20 clients of which 10 take part instead of 100 and 10",
    settings={
        "smoke": {**SETTINGS["smoke"], "seeds": 1},
        "quick": {**SETTINGS["quick"], "rounds": 5, "eval_every": 5, "seeds": 3},
        "paper": {**SETTINGS["paper"], "rounds": 20, "eval_every": 20, "seeds": 5},
    },
    minutes={"smoke": 0.1, "quick": 0.5, "paper": 30},
    specs=specs,
    analyse=analyse,
    figure=lambda tables: figures.overhead(tables["tidy"], printed_ratios()),
    timed=True,
    claims=(
        Claim(
            "pFedSim takes a client as long as FedAvg (within 5 %).",
            both(time(beyond("pfedsim", 1.05, -1, ".2f")), time(beyond("pfedsim", 0.95, 1, ".2f"))),
        ),
        Claim(
            "FedFomo takes longer than FedAvg, because clients test the models that they receive.",
            time(under(["fedavg"], ["fedfomo"], form=".2f")),
        ),
        Claim(
            "FedGen takes longer than FedAvg, because clients train on generated features too.",
            time(under(["fedavg"], ["fedgen"], form=".2f")),
        ),
        implementation(
            "pFedSim sends what FedAvg sends, FedFomo up to M models down, FedGen a generator besides the model.",
            traffic,
        ),
    ),
)
