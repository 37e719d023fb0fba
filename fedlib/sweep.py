"""Many runs: shared ones once, side by side in processes of one thread each, resumable, with one progress bar."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

from tqdm import tqdm

from fedlib.data import load, make_partition
from fedlib.errors import FedlibError, require
from fedlib.results import RunResult, Store
from fedlib.spec import RunSpec


def run_all(
    specs: Sequence[RunSpec], store: Store, *, jobs: int | None = None, device: str = "cpu", backend: str = "auto"
) -> dict[str, RunResult | FedlibError]:
    """Results by run id. Finished runs are read, the others computed; a run that fails is reported as its error.

    jobs: processes (default: one per core, one for a GPU). Interrupted by Ctrl-C or killed, the next call continues.
    """
    from fedlib.engine.simulate import find_device

    unique = {spec.id: spec for spec in specs}
    on_cpu = find_device(device).type == "cpu"
    jobs = (os.cpu_count() or 1 if on_cpu else 1) if jobs is None else jobs
    require(jobs >= 1, "jobs", jobs, "an integer of at least 1")
    done: dict[str, RunResult | FedlibError] = {
        key: found for key, spec in unique.items() if (found := store.get(spec)) is not None
    }
    pending = {key: spec for key, spec in unique.items() if key not in done}
    if not pending:
        return done
    check_inputs(list(pending.values()))
    total = sum(spec.rounds for spec in pending.values())
    with tqdm(
        total=total, unit="round", desc=f"{len(pending)} runs", leave=False, file=sys.stderr, mininterval=0.5
    ) as bar:
        if min(jobs, len(pending)) == 1:
            for key, spec in pending.items():
                bar.set_postfix_str(spec.label)
                done[key] = _one(spec, store, device, backend, _advance(bar))
        else:
            _in_processes(pending, store, min(jobs, len(pending)), device, backend, bar, done)
    return done


def check_inputs(specs: Sequence[RunSpec]) -> None:
    """Load every data set and draw every partition once, so that what is missing or infeasible is said before any training."""
    seen = set()
    for spec in specs:
        key = (spec.dataset, spec.scheme, str(spec.partition), spec.num_clients, spec.partition_seed)
        if key not in seen:
            make_partition(
                load(spec.dataset).labels, spec.num_clients, spec.scheme, spec.partition_seed, **spec.partition
            )
            seen.add(key)


def _one(spec: RunSpec, store: Store, device: str, backend: str, progress) -> RunResult | FedlibError:
    try:
        return store.get_or_run(spec, device=device, backend=backend, progress=progress)
    except FedlibError as error:
        return error


def _advance(bar):
    """A progress callback (rounds done in one run) that moves a bar shared by all runs."""
    last = [0]

    def progress(rounds: int) -> None:
        bar.update(rounds - last[0])
        last[0] = rounds

    return progress


def _in_processes(
    pending: dict[str, RunSpec], store: Store, jobs: int, device: str, backend: str, bar, done: dict
) -> None:
    """Fill `done` from a pool of processes; if one of them is killed, start a new pool for what is left, at most three times in a row."""
    context = multiprocessing.get_context("spawn")
    failures = 0
    while left := {key: spec for key, spec in pending.items() if key not in done}:
        before, queue = len(done), context.SimpleQueue()
        listener = threading.Thread(
            target=lambda queue=queue: [bar.update(n) for n in iter(queue.get, None)], daemon=True
        )
        listener.start()
        pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=_start_worker, initargs=(queue, os.getpid()))
        try:
            futures = {pool.submit(_job, spec, store.folder, device, backend): key for key, spec in left.items()}
            for future in as_completed(futures):
                done[futures[future]] = future.result()
        except BrokenProcessPool:
            failures = 0 if len(done) > before else failures + 1
            if failures == 3:
                raise FedlibError(
                    f"worker processes died three times in a row; not finished: {', '.join(s.label for s in left.values())}"
                ) from None
        except KeyboardInterrupt:
            for process in list(pool._processes.values()):
                process.kill()  # their checkpoints are kept
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
            queue.put(None)
            listener.join(timeout=5)


_queue = None  # in a worker: where rounds done are sent


def _start_worker(queue, parent: int) -> None:
    global _queue
    _queue = queue
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle

    def leave_with_parent():
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=leave_with_parent, daemon=True).start()


def _job(spec: RunSpec, folder: Path, device: str, backend: str) -> RunResult | FedlibError:
    class Remote:
        def update(self, rounds: int) -> None:
            _queue.put(rounds)

    return _one(spec, Store(folder.parent.name, folder.parent.parent), device, backend, _advance(Remote()))
