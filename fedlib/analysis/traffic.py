"""How many numbers travel: those of real runs, and what the same downloads would be with larger networks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import pandas as pd

from fedlib import models
from fedlib.data.datasets import shape_and_classes
from fedlib.engine.result import RunResult
from fedlib.spec import RunSpec


def network_size(spec: RunSpec) -> dict[str, int]:
    """Parameters of a run's network, see `fedlib.models.sizes`; counted without the run."""
    return models.sizes(spec.model, *shape_and_classes(spec.dataset), **spec.model_options)


def counted_down(r: RunResult) -> int:
    """Numbers sent down in a run, from its downloads and the parameters of its network:
    what the engine's counter should say.

    In the engine a round begins with the download, so that the first has no models of others yet, and those chosen
    after the last round do not travel. Where everybody gets one model there are no `downloads`. pFedSV's D+C sends one
    extractor and heads.
    """
    size, turns = network_size(r.spec), r.spec.rounds * r.spec.num_members
    if "downloads" not in r.arrays:
        return turns * size["model"]
    sent = int(r.arrays["downloads"][:-1].sum())
    if r.spec.hyper.get("variant") == "D+C":
        return turns * size["extractor"] + sent * size["head"]
    return sent * size["model"]


def models_by_round(r: RunResult, rounds: int) -> pd.DataFrame:
    """Models that a client gets in each of so many rounds, mean over clients: round, models. One, where the run has no
    `downloads`: there everybody gets the same."""
    sent = r.arrays["downloads"].sum((1, 2)) / r.spec.num_clients if "downloads" in r.arrays else [1.0] * rounds
    return pd.DataFrame({"round": range(1, rounds + 1), "models": sent})


def sent_by_network(
    per_round: pd.DataFrame, clients: int, networks: pd.DataFrame, readings: Sequence[str], split: str
) -> pd.DataFrame:
    """Numbers up, down and in total over a run, by network, reading, method and seed;
    and total and down as multiples of what they would be with a single global model (total_ratio, down_ratio).

    per_round: `models_by_round` of methods and seeds; clients: how many train, upload and then download in a round, all
    of them as in the paper; networks: network, parameters, and under each reading the share of its parameters that is
    personal; split: the method whose clients download only the personal part of others, where the rest is one for all.
    """
    groups = per_round.groupby(["method", "seed"], sort=False)["models"]
    runs, lines = groups.agg(["sum", "size"]).mul(clients).reset_index(), []
    for network in networks.to_dict("records"):
        size = network["parameters"]
        for reading, run in product(readings, runs.to_dict("records")):
            up, down = run["size"] * size, run["sum"] * size
            if run["method"] == split:
                down = up * (1 - network[reading]) + down * network[reading]
            sent = {"up": up, "down": down, "total": up + down}
            ratios = {"total_ratio": (up + down) / (2 * up), "down_ratio": down / up}
            about = {"network": network["network"], "reading": reading, "method": run["method"], "seed": run["seed"]}
            lines.append({**about, **sent, **ratios})
    return pd.DataFrame(lines)


def classifier_shares(name: str, shape: tuple[int, int, int], classes: int, **options) -> dict[str, float]:
    """Parameters of a network, and which share of them is in the last layer and in all linear layers."""
    size = models.sizes(name, shape, classes, **options)
    whole = size["model"]
    return {"parameters": whole, "last layer": size["head"] / whole, "all linear layers": size["linear"] / whole}
