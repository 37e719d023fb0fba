"""Many runs: shared ones once, side by side in processes of one thread each or on a cluster, resumable,
with one progress bar."""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from functools import partial

from tqdm import tqdm

from fedlib.attacks.spec import AttackSpec
from fedlib.base.errors import FedlibError, OutOfTime, choose, require
from fedlib.data import load
from fedlib.engine.backends import pick
from fedlib.engine.result import RunResult
from fedlib.engine.setup import find_device
from fedlib.engine.worker_processes import WorkerProcesses, context
from fedlib.measures import check_packages
from fedlib.models.model import STEPS
from fedlib.runs.cluster import run_on_cluster
from fedlib.runs.run import get_or_attack, get_or_run_together
from fedlib.runs.store import Spec, Store
from fedlib.spec import RunSpec

Done = dict[str, RunResult | FedlibError]


def run_all(
    specs: Sequence[Spec],
    store: Store,
    *,
    jobs: int | None = None,
    device: str = "cpu",
    backend: str = "auto",
    step: str = "auto",
    engine: str = "",
    until: float | None = None,
) -> Done:
    """Results by run id. Finished runs are read, the others computed; a run that fails is reported as its error.

    jobs: processes (default: one per core, one for a GPU). step: as in `simulate_together`.
    engine: address of a Dask scheduler, on whose workers the runs are done (`fedlib.runs.cluster`); attacks are done
    here then, on the CPU. until: as in `simulate_together`; runs that are left then are reported as OutOfTime.
    Interrupted, killed or out of time, the next call continues.
    """
    unique = {spec.id: spec for spec in specs}
    where = find_device("cpu" if engine else device)
    jobs = (os.cpu_count() or 1 if where.type == "cpu" else 1) if jobs is None else jobs
    require(jobs >= 1, "jobs", jobs, "an integer of at least 1")
    choose("step", step, STEPS)
    done: Done = {key: found for key, spec in unique.items() if (found := store.get(spec)) is not None}
    pending = [spec for key, spec in unique.items() if key not in done]
    if not pending:
        return done
    store.check_writable()
    check_inputs(pending)
    attacks = [spec for spec in pending if isinstance(spec, AttackSpec)]
    trained = [spec for spec in pending if isinstance(spec, RunSpec)]
    with tqdm(
        total=sum(spec.rounds for spec in pending),
        unit="round", desc=f"{len(pending)} run{'s'[: len(pending) - 1]}", leave=False, file=sys.stderr,
        mininterval=0.5,
    ) as bar:  # fmt: skip
        if engine and trained:
            options = {"device": device, "backend": backend, "step": step}
            run_on_cluster(trained, store, engine, options, bar, done)
        elif trained:
            alone = len(trained) == 1 and jobs > 1
            name, why = pick(backend, where, training_samples(trained[0]) if alone else 0, jobs if alone else 1)
            groups = same_but_seed(trained) if name == "vmap" else [[spec] for spec in trained]
            count = 1 if name == "process" else min(jobs, len(groups))
            runs = f"{len(trained)} run{'s' * (len(trained) > 1)}, {count} at a time"
            bar.write(f"backend {name} on {where} ({why}); {runs}", file=sys.stderr)
            options = dict(store=store, device=device, backend=name, step=step, until=until)
            train = partial(get_or_run_together, **options | ({"workers": jobs} if count == 1 else {}))
            _side_by_side({group[0].id: (group, train) for group in groups}, count, bar, done)
        attack = partial(_attack, store=store, device=str(where), until=until)
        _side_by_side({spec.id: ([spec], attack) for spec in attacks}, min(jobs, len(attacks)), bar, done)
    return done


def _side_by_side(todo: dict[str, tuple], count: int, bar, done: Done) -> None:
    """Do groups of runs, so many at a time; todo: by id the group, and what does it."""
    if count > 1:
        done |= _in_processes(todo, count, bar)
        return
    for group, how in todo.values():
        bar.set_postfix_str(group[0].label)
        done |= _do(_advance(bar.update, len(group)), group, how)


def _attack(group: list[AttackSpec], store: Store, device: str, until: float | None, progress) -> list[RunResult]:
    if until is not None and time.time() >= until:
        raise OutOfTime("not begun")
    results = [get_or_attack(spec, store, device) for spec in group]
    progress(AttackSpec.rounds)
    return results


def _do(progress, group: list[Spec], how) -> Done:
    """Results of runs that are done together by how(group, progress=...), or the error that each of them met."""
    try:
        return {spec.id: result for spec, result in zip(group, how(group, progress=progress))}
    except FedlibError as error:
        return {spec.id: error for spec in group}
    except Exception as error:  # the other runs go on: memory or disk may suffice for them
        if not isinstance(error, OSError):  # a disk that is full, or can only be read, is no fault of the program
            traceback.print_exc()
        return {spec.id: FedlibError(f"{type(error).__name__}: {error}") for spec in group}


def _advance(update, runs: int = 1):
    """A progress callback (rounds done in a group of runs) that moves a bar shared by all runs."""
    last = [0]

    def progress(rounds: int) -> None:
        update(runs * (rounds - last[0]))
        last[0] = rounds

    return progress


def _in_processes(jobs: dict[str, tuple], count: int, bar) -> Done:
    """Do groups of runs in `count` processes, which report the rounds that they have done.

    They report through a pipe, and not a queue, whose lock a worker that is killed at the wrong moment would keep for
    ever: a number is so short that it is written whole or not at all.
    """
    reader, writer = context().Pipe(duplex=False)
    listener = threading.Thread(target=lambda: [bar.update(n) for n in iter(reader.recv, None)], daemon=True)
    listener.start()
    workers = WorkerProcesses(count, _connect, writer)
    try:
        results = workers.map(_job, jobs, lambda key, error: {spec.id: error for spec in jobs[key][0]})
    finally:
        workers.stop()
        writer.send(None)
        listener.join(timeout=5)
    return {id: result for group in results.values() for id, result in group.items()}


_report = None  # in a worker: the pipe into which rounds done are written


def _connect(writer) -> None:
    global _report
    _report = writer


def _job(group: list[Spec], *what) -> Done:
    return _do(_advance(_report.send, len(group)), group, *what)


def check_inputs(specs: Sequence[Spec]) -> None:
    """Load every data set, draw every partition once and look for packages, so that what is missing or infeasible is
    said before any training."""
    seen = set()
    for spec in specs:
        if isinstance(spec, AttackSpec):
            spec.check()
            continue
        check_packages(spec.measures)
        if (key := (spec.dataset, str(spec.division))) not in seen:
            spec.divide(load(spec.dataset))
            seen.add(key)


def same_but_seed(specs: Sequence[RunSpec]) -> list[list[RunSpec]]:
    """Runs grouped by everything but their seeds: they can be trained in one stack."""
    groups: dict[str, list[RunSpec]] = {}
    for spec in specs:
        groups.setdefault(spec.but(seed=0, partition_seed=0).id, []).append(spec)
    return list(groups.values())


def training_samples(spec: RunSpec) -> int:
    """About how many samples a run trains on, every epoch counted."""
    per_epoch = (spec.images or len(load(spec.dataset).labels)) * (1 - spec.test_fraction) * spec.join_ratio
    return int(per_epoch * spec.local_epochs * spec.rounds)
