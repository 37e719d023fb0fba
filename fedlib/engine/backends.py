"""How many clients are computed: one after the other, or stacked. Every backend returns what `serial` returns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from fedlib import tree
from fedlib.engine.fold import PlainData, Source, StackedData, Training
from fedlib.errors import choose
from fedlib.models import Model

STACK = 32  # most clients in one stack; bounds memory, changes no number


@dataclass(frozen=True)
class Workload:
    """What a backend needs to reach any client: the model, the data on its device, and who owns what."""

    model: Model
    source: Source
    training: Training
    parts: Sequence[dict[str, np.ndarray]]  # per client: sample indices by part ("train", "test")


def serial(
    work: Workload, fn: Callable, ids: Sequence[int], *trees, draw: tuple[int, ...], watch: Callable | None = None
):
    """fn(model, *trees of client k, data of client k) for every client of `ids`, results stacked [K, ...]. The reference.

    trees are stacked [K, ...]; `draw` names the round's random draws; `watch(step, state)` is called after every step.
    """
    results = []
    for k, i in enumerate(ids):
        data = PlainData(work.source, work.training, work.parts[i], (*draw, int(i)), watch)
        results.append(fn(work.model, *(tree.rows(t, k) for t in trees), data))
    return tree.stack(results)


def vmap(work: Workload, fn: Callable, ids: Sequence[int], *trees, draw: tuple[int, ...]):
    """Like `serial`, all clients in one stacked program (torch.func.vmap), at most STACK at a time."""
    model, results = work.model.for_stack(), []
    for start in range(0, len(ids), STACK):
        chunk = [int(i) for i in ids[start : start + STACK]]
        parts, draws = [work.parts[i] for i in chunk], [(*draw, i) for i in chunk]

        def one(slot, *mine, parts=parts, draws=draws):
            return fn(model, *mine, StackedData(work.source, work.training, parts, draws, slot))

        slots = torch.arange(len(chunk), device=work.source.labels.device)
        mine = [tree.map(lambda leaf: leaf[start : start + STACK], t) for t in trees]  # noqa: B023
        results.append(torch.func.vmap(one)(slots, *mine))
    return tree.concat(results)


BACKENDS = {"serial": serial, "vmap": vmap}


def pick(name: str, device: torch.device) -> tuple[str, Callable]:
    """The backend called `name`; "auto" is vmap on a GPU and serial on a CPU, where stacking small convolutions gains nothing."""
    choose("backend", name, ("auto", *BACKENDS))
    if name == "auto":
        name = "serial" if device.type == "cpu" else "vmap"
    return name, BACKENDS[name]
