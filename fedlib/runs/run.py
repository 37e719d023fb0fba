"""A run that is asked for: read from the store if it is there, done and put there if it is not."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import replace

import torch

from fedlib.attacks.spec import AttackSpec
from fedlib.base.errors import Diverged
from fedlib.base.load import OtherPrograms
from fedlib.base.provenance import provenance
from fedlib.engine.backends import pick
from fedlib.engine.checkpoint import remove_checkpoints
from fedlib.engine.result import RunResult
from fedlib.engine.setup import find_device
from fedlib.engine.simulate import simulate_together
from fedlib.runs.store import Store
from fedlib.spec import RunSpec


def get_or_run(spec: RunSpec, store: Store, **options) -> RunResult:
    """The stored result, or a new one; options as in `get_or_run_together`."""
    return get_or_run_together([spec], store, **options)[0]


def get_or_run_together(
    specs: Sequence[RunSpec], store: Store, *, device: str = "cpu", checkpoint_every: float = 15.0, **options
) -> list[RunResult]:
    """Stored results, and new ones of what is missing, trained together (options of `simulate_together`).

    Two processes that ask for the same run do it once; a killed run is continued. `provenance["load"]` of a new result:
    the share of the machine that other programs took meanwhile.
    """
    find_device(device)
    with contextlib.ExitStack() as stack:
        for id in sorted({spec.id for spec in specs}):  # in one order everywhere, so that nobody waits in a circle
            stack.enter_context(store.lock(id))
        found = {spec.id: store.get(spec) for spec in specs}
        missing = [spec for spec in specs if found[spec.id] is None]
        if not missing:
            return [found[spec.id] for spec in specs]
        with OtherPrograms() as others:
            results = simulate_together(missing, device=device, checkpoint_every=checkpoint_every, **options)
        for spec, result in zip(missing, results):
            result = to_store(spec, result, device, options.get("backend", "auto"))
            found[spec.id] = replace(result, provenance=result.provenance | {"load": others.share})
            store.put(found[spec.id])
        remove_checkpoints(missing)
    return [found[spec.id] for spec in specs]


def get_or_attack(spec: AttackSpec, store: Store, device: str = "cpu") -> RunResult:
    """The stored result of an attack, or a new one; its history has a row for each image and defence.

    With one thread on a CPU: the pixels that are found depend on it.
    """
    where = find_device(device)
    with store.lock(spec.id):
        if (found := store.get(spec)) is None:
            started, threads = time.perf_counter(), torch.get_num_threads()
            torch.set_num_threads(1)
            try:
                rows, arrays = spec.carry_out(where)
                origin = provenance(where, "attack")
            finally:
                torch.set_num_threads(threads)
            seconds = {"wall": round(time.perf_counter() - started, 3)}
            found = RunResult(spec, "finished", rows, seconds=seconds, provenance=origin, arrays=arrays)
            store.put(found)
        return found


def to_store(spec: RunSpec, result: RunResult | Diverged, device: str, backend: str) -> RunResult:
    """What is stored of a run that ended: its result, or that it diverged on this device."""
    if not isinstance(result, Diverged):
        return result
    where = find_device(device)
    return RunResult(spec, "diverged", error=str(result), provenance=provenance(where, pick(backend, where)[0]))
