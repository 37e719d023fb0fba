"""The running example of lessons 4 to 13: twenty clients share the digits in two ways. With Dir(10) each has few images
of many classes, and collaboration helps; with Dir(0.1) each has few classes, and it does not."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from fedlib.analysis.names import proper
from fedlib.analysis.uncertainty import Interval, draws
from fedlib.engine.simulate import simulate
from fedlib.spec import RunSpec

TRAINING = dict(num_clients=20, join_ratio=0.5, rounds=20, local_epochs=2, batch_size=16, lr=0.1, model="lenet5")
TASKS = {f"Dir({alpha:g})": {**TRAINING, "partition": {"alpha": alpha, "min_size": 20}} for alpha in (10.0, 0.1)}
BASELINES = {"Local": {"method": "local"}, "FedAvg": {"method": "fedavg"}}
BASELINES["FedAvg+FT"] = {"method": "fedavg_ft", "eval_points": ("ft(1)",)}


def played(methods: Mapping[str, dict], smoke: bool = False, tasks: Mapping[str, dict] = TASKS) -> pd.DataFrame:
    """Accuracy of every client in percent, of the baselines and these methods, with three seeds on each task.

    methods: by name, the fields of a RunSpec that are not the task's. smoke: two seeds and two rounds.
    """
    rows, short = [], {"rounds": 2} if smoke else {}
    for task, fields in tasks.items():
        for name, own in {**BASELINES, **methods}.items():
            for seed in range(2 if smoke else 3):
                spec = RunSpec(**{"eval_every": 100, **fields, **own, **short}, seed=seed, partition_seed=seed)
                run = simulate(spec)
                right, tests = run.by_client()
                sent = run.communication["up"]["floats"] / spec.rounds / round(spec.join_ratio * spec.num_clients)
                where = {"task": task, "method": name, "tested": run.point, "sends up": f"{sent:,.0f}", "seed": seed}
                rows.append(pd.DataFrame({"accuracy": 100 * right / tests}).assign(**where))
    return pd.concat(rows)


def table(found: pd.DataFrame, minus: str = "Local") -> pd.DataFrame:
    """Of what was played: where a method is tested, how many numbers a client sends up in a round, and by task its mean
    accuracy and its differences from one method on the same seeds with 95 % intervals."""
    methods = found.groupby("method", sort=False)
    heads = {"tested": "evaluated", "sends up": "parameters uploaded"}
    columns = {("", head): methods[name].first().map(proper) for name, head in heads.items()}
    for task, own in found.groupby("task", sort=False):
        means = draws(own, "accuracy", ["method"])
        columns[task, "accuracy, %"] = means.iloc[0].map("{:.1f}".format)
        columns[task, f"minus {minus}"] = {m: Interval.of(means[m] - means[minus]).text() for m in means if m != minus}
    return pd.DataFrame(columns).reindex(means.columns).fillna("")
