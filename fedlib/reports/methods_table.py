"""The table of all methods, read off the code: what travels, what stays on a client,
where a method is tested, who published it."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from fedlib.algorithms import citation
from fedlib.base import tree
from fedlib.engine.setup import first_state, set_up
from fedlib.engine.simulate import watched_round
from fedlib.models import MODELS
from fedlib.models.fused import calls
from fedlib.spec import RunSpec

# Everybody takes part. In the second round every warm-up is over (half of the rounds at most), and there is something
# to send for methods that send nothing in the first.
TASK = dict(
    num_clients=6, join_ratio=1.0, rounds=2, local_epochs=1, batch_size=128, test_fraction=0.8,
    partition={"alpha": 1.0, "min_size": 50},
)  # fmt: skip


def methods_table(names: Iterable[str]) -> pd.DataFrame:
    """One row for each of these methods, in the order of publication;
    read off two rounds that six clients play on digits.

    | column | |
    |---|---|
    | method | its name here |
    | down, up | what a client's message holds, and its numbers in units of a model's parameters |
    | kept | what a client keeps from round to round |
    | tested | evaluation points after training, the headline first |
    | step | what `--step auto` computes its training steps by on a CPU: "fused", "torch", or the share that is |
    | published | place and year; empty for local training, which nobody invented |
    | title | of the paper |
    """
    return pd.DataFrame(sorted(map(_row, names), key=lambda row: row["published"][-4:]))


def _row(name: str) -> dict:
    run = set_up(RunSpec(name, **TASK), "serial", step="auto")
    state = first_state(run)
    calls.clear()
    for t in range(1, run.spec.rounds + 1):
        acting = run.acting(state)
        seen = watched_round(run, state, t)
    place, title = citation(name)
    return {
        "method": name,
        "down": _amount(run, acting.floats_down, seen.messages),
        "up": _amount(run, acting.floats_up, seen.uploads),
        "kept": contents(run, seen.clients),
        "tested": ", ".join(run.points(state)),
        "step": _step(),
        "published": place,
        "title": title,
    }


def _step() -> str:
    """Which passes of training steps were computed since the last count, in words."""
    if 0 in (calls["fused"], calls["torch"]):
        return "fused" if calls["fused"] else "torch"
    return f"{calls['fused'] / calls.total():.0%} fused"


def _amount(run, count, stacked) -> str:
    """How many models as numbers the first participant's message is counted as, and what it holds."""
    message = count(run.transport.travelling(tree.rows(stacked, 0)))
    models = run.transport.floats(message) / run.work.model.num_parameters["model"]
    return f"{models:.2f} ({contents(run, message)})" if models else "nothing"


def contents(run, node) -> str:
    """What a tree holds, in words: model, extractor, head, batch norm, and everything else by its own name."""
    model = run.work.model
    weights, others = set(), {}
    for key, part in run.transport.travelling(node).items():
        names = {name for name, _ in tree.leaves(part)} if isinstance(part, (dict, tuple)) else {key}
        if names <= model.theta0.keys() and key not in (*MODELS, "g"):  # another backbone besides; FedDyn's gradient
            weights |= names
        else:
            others[key.split(".")[0]] = None
    return ", ".join([*_parts(model, weights), *others]) or "nothing"


def _parts(model, weights: set[str]) -> list[str]:
    """Which parts of a model these weights are."""
    norms = weights & set(model.norm_names)
    parts = [part for part in ("extractor", "head") if any(name.startswith(f"{part}.") for name in weights - norms)]
    if norms and "extractor" not in parts:
        return [*parts, "batch norm"]
    names = ["model"] if len(parts) == 2 else parts
    return [f"{names[0]} without batch norm"] if "extractor" in parts and model.norms and not norms else names
