"""Table 7: what pFedSim costs, in seconds and in numbers sent."""

import pandas as pd

from fedlib import figures
from fedlib.analysis.tables import listed, mean_std, only, rows_of
from fedlib.analysis.traffic import network_size
from fedlib.base.draws import num_participants
from fedlib.claims import Claim, Verdict, beyond, both, implementation, over_seeds, under, verdict
from fedlib.engine.result import RunResult
from fedlib.experiments.item import Found, Item, Runs, Tables, per_profile
from fedlib.experiments.paper_numbers import paper_table
from fedlib.experiments.pfedsim.task import SETTINGS, of_column
from fedlib.spec import RunSpec

FORMULAS = {"fedavg": "ν", "fedfomo": "M ν", "fedgen": "ν + ν_g", "pfedsim": "ν"}  # download; all of them upload ν
DATA = ("cifar10", "cinic10", "tiny_imagenet", "emnist")


def runs(s: dict) -> Runs:
    task = of_column(s, "Dir(0.1)")
    return {(seed, m): RunSpec.of_task({**task, "seed": seed}, m) for seed in range(s["seeds"]) for m in FORMULAS}


def cost(r: RunResult) -> dict[str, float]:
    """Seconds per training sample and epoch, and numbers per participant and round."""
    turns = r.spec.rounds * num_participants(r.spec.num_members, r.spec.join_ratio)
    return {
        "seconds": r.seconds["per_sample"],
        **{way: r.communication[way]["floats"] / turns for way in ("down", "up")},
    }


def analyse(s: dict, found: Found) -> Tables:
    """tidy: one row a run: `cost`, and each of its numbers as a ratio to FedAvg's of the same seed."""
    tidy = rows_of(found, ("seed", "method"), cost)
    base = only(tidy, method="fedavg").set_index("seed")
    for name in ("seconds", "down", "up"):
        tidy[f"{name}_ratio"] = tidy[name] / tidy["seed"].map(base[name])
    paper, compare = printed_ratios(), []
    for method, formula in FORMULAS.items():
        own, printed = only(tidy, method=method), paper[method]
        line = {
            "method": method,
            "time, paper (4 data sets)": f"{printed.min():.2f} to {printed.max():.2f}",
            f"time, ours, {s['dataset']}": mean_std(own["seconds_ratio"]),
        }
        if s["dataset"] == "cifar10":
            line["difference from the paper's CIFAR-10"] = f"{own['seconds_ratio'].mean() - printed['cifar10']:+.2f}"
        line["download, paper (ν: a model, M: models downloaded, ν_g: a generator)"] = formula
        compare.append(line | {f"{to}load, ours (models)": f"{own[f'{to}_ratio'].mean():.2f}" for to in ("down", "up")})
    size = network_size(found[0, "fedavg"].spec)["model"]
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
    return verdict(holds, f"models of {size:,} parameters: download {listed(down, '.2f')}; upload {listed(up, '.2f')}")


def time(judge):
    """A check of the seconds per sample in units of FedAvg's, over repetitions."""
    return over_seeds("tidy", "seconds_ratio", "method", judge)


ITEM = Item(
    title="pFedSim Table 7: the cost of personalisation",
    claim="pFedSim's cost per client equals FedAvg's, in time and in communication; FedFomo and FedGen cost more.",
    smaller="digits (16x16) instead of CIFAR-10, 20 clients of which 10 take part and 5 rounds instead of 100, 10 and "
    "200; lr 0.05 instead of 0.01",
    smaller_paper="20 rounds (paper: 200); costs are per sample, or per participant and round",
    settings=per_profile(SETTINGS, rounds=[None, 5, 20], eval_every=[None, 5, 20], seeds=[1, 3, 5]),
    minutes={"smoke": 0.1, "quick": 0.5, "paper": 30},
    runs=runs,
    analyse=analyse,
    figure=lambda tables: figures.overhead(tables["tidy"], printed_ratios(), "pfedsim"),
    timed=True,
    claims=(
        Claim("pFedSim's training time per client equals FedAvg's (within 5 %).",
              both(time(beyond("pfedsim", 1.05, -1, ".2f")), time(beyond("pfedsim", 0.95, 1, ".2f")))),
        Claim("FedFomo takes longer than FedAvg, because clients test the models that they receive.",
              time(under(["fedavg"], ["fedfomo"], form=".2f"))),
        Claim("FedGen takes longer than FedAvg, because clients train on generated features too.",
              time(under(["fedavg"], ["fedgen"], form=".2f"))),
        implementation("pFedSim sends what FedAvg sends; in FedFomo a client downloads up to M models, in FedGen a "
                       "generator besides the model.",
                       traffic),
    ),
)  # fmt: skip
