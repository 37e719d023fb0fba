"""How many numbers travel: those of real runs, and what the same downloads would be with larger networks."""

from __future__ import annotations

from fedlib import models
from fedlib.data.facts import shape_and_classes
from fedlib.engine.result import RunResult
from fedlib.spec import RunSpec


def network_size(spec: RunSpec) -> dict[str, int]:
    """Parameters of a run's network, see `fedlib.models.sizes`; counted without the run."""
    return models.sizes(spec.model, *shape_and_classes(spec.dataset), **spec.model_options)


def counted_down(r: RunResult) -> int:
    """Numbers sent down in a run, from its downloads and the parameters of its network: what the engine's counter should say.

    In the engine a round begins with the download, so that the first has no models of others yet, and those chosen after the last
    round do not travel. Where everybody gets one model there are no `downloads`. pFedSV's D+C sends one extractor and heads.
    """
    size, turns = network_size(r.spec), r.spec.rounds * r.spec.num_clients
    if "downloads" not in r.arrays:
        return turns * size["model"]
    sent = int(r.arrays["downloads"][:-1].sum())
    return turns * size["extractor"] + sent * size["head"] if r.spec.hyper.get("variant") == "D+C" else sent * size["model"]


def totals(models_sent: float, turns: int, size: int, personal: float | None = None) -> dict[str, float]:
    """Numbers up, down and in total of a network of `size` parameters. models_sent: downloads over a run; turns: clients times rounds.

    personal: the share of the network that is downloaded from others where the rest is one for all; None if whole models are.
    """
    up = turns * size
    down = models_sent * size if personal is None else up * (1 - personal) + models_sent * size * personal
    return {"up": up, "down": down, "total": up + down}


def classifier_shares(name: str, shape: tuple[int, int, int], classes: int, **options) -> dict[str, float]:
    """Parameters of a network, and which share of them is in the last layer and in all linear layers."""
    size = models.sizes(name, shape, classes, **options)
    whole = size["model"]
    return {"parameters": whole, "last layer": size["head"] / whole, "all linear layers": size["linear"] / whole}
