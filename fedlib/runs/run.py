"""A run that is asked for: read from the store if it is there, done and put there if it is not; and done again to keep
its clients' models, since results are stored without them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from fedlib.attacks.spec import AttackSpec
from fedlib.base.errors import Diverged, FedlibError, require
from fedlib.base.files import home
from fedlib.base.provenance import provenance
from fedlib.engine.backends import pick
from fedlib.engine.checkpoint import remove_checkpoints
from fedlib.engine.export import checked_folder, export
from fedlib.engine.result import RunResult
from fedlib.engine.setup import find_device
from fedlib.engine.simulate import simulate, simulate_together
from fedlib.runs.store import Store
from fedlib.spec import RunSpec

try:
    import psutil
except ImportError:  # on a bare PyTorch machine
    psutil = None


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


# how busy the machine is meanwhile ------------------------------------------------------------------------------------


class OtherPrograms:
    """The share of a machine's processor time that other programs take while a block runs.

    `with OtherPrograms() as others: ...`, and then `others.share`, from 0 (nothing else runs) to 1 (all cores are
    taken); None where psutil is not installed. Processes that this one has started count as its own.
    """

    share: float | None = None

    def __enter__(self) -> OtherPrograms:
        self._before = _taken() if psutil else None
        return self

    def __exit__(self, *_) -> None:
        if self._before is None:
            return
        others, seconds = (now - then for now, then in zip(_taken(), self._before))
        self.share = round(min(max(others / max(seconds, 1e-3), 0.0), 1.0), 3)


def _taken() -> tuple[float, float]:
    """Seconds of processor time that others have taken since the machine was started, and seconds that there were."""
    times, me = psutil.cpu_times(), psutil.Process()
    own = me.cpu_times()
    mine = own.user + own.system + own.children_user + own.children_system
    for child in me.children(recursive=True):
        try:
            mine += sum(child.cpu_times()[:2])
        except psutil.Error:  # it has ended meanwhile, and is among this one's children's
            continue
    free = times.idle + getattr(times, "iowait", 0.0)
    busy = sum(times) - free - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)  # guests are in user
    return busy - mine, time.monotonic() * (psutil.cpu_count() or 1)


# again, to keep its models --------------------------------------------------------------------------------------------


def find_run(name: str) -> RunResult:
    """A stored run by its file, or by its id or the beginning of it, looked for under results/*/runs.

    Raises BadValue for a name that is no run's, or several runs', FedlibError for one that is damaged or has no models.
    """
    path = Path(name).expanduser()
    given = [path] if path.suffix == ".json" and path.is_file() else []
    known = len(name) >= 4 and name.isalnum()
    found = {p.stem: p for p in given or (sorted(home().glob(f"results/**/runs/{name}*.json")) if known else ())}
    which = f"{len(found)} runs begin so: {', '.join(found)}" if found else "there is none"
    require(len(found) == 1, "run", name, f"a run's file, or at least 4 of its id's 16 hex digits; {which}")
    (path,) = found.values()
    try:
        result = Store("", path.parent).read(path)
    except (ValueError, KeyError, OSError, TypeError) as error:
        raise FedlibError(f"stored run {path} is damaged: {error}") from None
    if not isinstance(result.spec, RunSpec) or result.status != "finished":
        raise FedlibError(f"run {path.stem} has no models: {result.error or 'it is an attack'}")
    return result


def train_and_export(stored: RunResult, folder: Path | str, point: str | None = None, **options) -> RunResult:
    """Train a stored run again and export its clients' models; the new result. options: as in `simulate_together`.

    Raises BadValue as `export`, the folder's before training.
    """
    folder = checked_folder(folder)
    points = [h["point"] for h in stored.last]
    known = point is None or point in points
    require(known, "point", point, f"one at which this run was evaluated: {', '.join(points)}")
    again = simulate(stored.spec, at_end=lambda run, state: export(run, state, folder, point), **options)
    remove_checkpoints([stored.spec])
    return again


def differing(stored: RunResult, again: RunResult) -> int:
    """Of how many clients the number of right answers differs, at the headline point."""
    return int((stored.arrays["correct"].sum(1) != again.arrays["correct"].sum(1)).sum())
