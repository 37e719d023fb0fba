"""Runs on a Dask cluster that is already there; this process stores what its workers return, so that no disk is shared.

Dask's scheduler places runs, notices lost workers and tries their runs again on others. Added here is what it cannot
know: workers are examined before they get a run, a run that another process is doing here is left to it, and no more
runs are handed over than there are workers. A run that kills its worker then takes no other with it, which would only
have waited there. Beginnings are not shared (`fedlib.engine.shared_beginnings`): they would have to travel.
"""

from __future__ import annotations

import asyncio
import queue
import re
import secrets
import signal
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from filelock import Timeout

from fedlib.base.errors import BadValue, FedlibError, choose, require

if TYPE_CHECKING:  # what loads PyTorch is imported where it is used: the scheduler imports this file too
    from fedlib.algorithms.registered import Carried
    from fedlib.engine.result import RunResult
    from fedlib.runs.store import Store
    from fedlib.spec import RunSpec

CONNECT = 10  # seconds to wait for the scheduler
LOOK = 1.0  # seconds between two looks at the workers
TELL = 2.0  # seconds between two reports of a run's progress
TRIES = 2  # so often a run is handed over, if every worker that could do it is lost


def run_on_cluster(
    specs: Sequence[RunSpec],
    store: Store,
    address: str,
    device: str,
    backend: str,
    step: str,
    gpu_share: float,
    bar,
    done: dict,
) -> None:
    """Do runs on the workers of the Dask scheduler at `address` and put the results into the store.

    device: cpu, cuda or cuda:N, of every worker; on CUDA only workers that offer at least `gpu_share` of the resource
    "GPU" are used. Adds results by run id to `done`, and for a run that fails, or always loses its worker, a
    FedlibError.

    Raises BadValue if a value does not fit, if Dask is not installed or if nothing answers, FedlibError if workers
    differ from this process in source or data, or if the scheduler is lost.
    """
    kind = device.partition(":")[0]
    choose("device on a cluster", kind, ("cpu", "cuda"))
    choose("backend on a cluster", backend, ("auto", "serial", "vmap"))
    require(0 < gpu_share <= 1, "gpu_share", gpu_share, "a number above 0 and up to 1")
    with connected(address) as client:
        workers = ClusterWorkers(client, specs, device, gpu_share if kind == "cuda" else 0.0)
        workers.wait_for_the_first(bar)
        sweep = Sweep(client, workers, store, {"device": device, "backend": backend, "step": step}, bar, done)
        sweep.run(specs)


@contextmanager
def remembered_interrupt() -> Iterator[list]:
    """Ctrl-C raises KeyboardInterrupt as always, and its number is kept in the list that this gives: Python ignores
    what is raised within a destructor, and dropped futures have one that takes its time."""
    interrupted, before = [], signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield interrupted  # then nothing is interrupted here
        return

    def interrupt(number, frame):
        interrupted.append(number)
        before(number, frame)

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def connected(address: str) -> Iterator:
    """A client of the scheduler. Raises BadValue where there is none, FedlibError if it is lost later."""
    client = connect(address)
    try:
        yield client
    except (OSError, CancelledError) as error:
        if getattr(error, "filename", None):  # a file's, not the connection's
            raise
        why = getattr(error, "reason", first_line(error))
        raise FedlibError(
            f"the scheduler {address} was lost ({why}); finished runs are kept, and the same command continues"
        ) from None
    finally:
        client.close(timeout=CONNECT)


def connect(address: str):
    """A new client of the scheduler. Raises BadValue if Dask is not installed, or if no scheduler answers in time."""
    try:
        from distributed import Client
    except ImportError:
        raise BadValue("--engine needs Dask (the extra 'cluster'): pip install distributed") from None
    expected = "the address of a running Dask scheduler, tcp://HOST:PORT"
    require(re.fullmatch(r"(tcp|tls)://[^/]+:\d+", address) is not None, "engine", address, expected)
    answers: queue.SimpleQueue = queue.SimpleQueue()

    def ask() -> None:
        try:
            answers.put(Client(address, timeout=CONNECT, set_as_default=False))
        except Exception as error:
            answers.put(error)

    # in a thread, for where something else listens Dask waits without end
    threading.Thread(target=ask, daemon=True).start()
    try:
        answer = answers.get(timeout=1.5 * CONNECT)
    except queue.Empty:
        answer = TimeoutError("something listens there, but it says nothing")
    if isinstance(answer, Exception):
        raise BadValue(f"engine = {address!r} does not answer; expected {expected} ({first_line(answer)})")
    return answer


def first_line(error: BaseException) -> str:
    """An error of another library in one line."""
    return (str(error).splitlines() or [type(error).__name__])[0]


# on a worker ----------------------------------------------------------------------------------------------------------


def facts(datasets: Sequence[str], device: str) -> dict[str, str]:
    """What has to be the same in this process and on the workers, by name; what is missing is told by its error."""
    from fedlib.base.files import source_hash
    from fedlib.data import load
    from fedlib.engine.setup import find_device

    found = {"fedlib's source": source_hash()}
    for name in datasets:
        try:
            found[f"data set {name!r}"] = f"checksum {load(name).sha256[:12]}"
        except FedlibError as error:
            found[f"data set {name!r}"] = str(error)
    try:
        found["device"] = find_device(device).type
    except FedlibError as error:
        found["device"] = str(error)
    return found


async def inspect(datasets: Sequence[str], device: str, dask_worker) -> tuple[dict[str, str], int, float]:
    """On a worker: its facts, its threads, and the share of a GPU that it offers."""
    state = dask_worker.state
    found = await asyncio.to_thread(facts, datasets, device)
    return found, state.nthreads, float(state.total_resources.get("GPU", 0))


def train(fields: dict, method: Carried | None, options: dict, topic: str) -> RunResult | FedlibError:
    """On a worker: the result of one run, or its error; method: the run's, where it is the user's own. Checkpoints are
    in the worker's own cache."""
    from fedlib.algorithms import registered
    from fedlib.engine.checkpoint import remove_checkpoints
    from fedlib.engine.simulate import simulate_together
    from fedlib.runs.run import to_store
    from fedlib.spec import RunSpec

    try:
        registered.accept(method)
        spec = RunSpec.from_dict(fields)
        (result,) = simulate_together([spec], checkpoint_every=15.0, progress=report(topic), **options)
        remove_checkpoints([spec])
        return to_store(spec, result, options["device"], options["backend"])
    except FedlibError as error:
        return error
    except Exception as cause:  # sent as text: not every exception survives the way
        error = FedlibError(f"{type(cause).__name__}: {cause}")
        error.add_note(traceback.format_exc())
        return error


def report(topic: str) -> Callable[[int], None]:
    """On a worker: a progress callback that tells the rounds of this task,
    and ends it when nobody wants it any more."""
    from distributed import get_worker

    worker = get_worker()
    key, told = worker.get_current_task(), time.monotonic()

    def progress(rounds: int) -> None:
        nonlocal told
        task = worker.state.tasks.get(key)
        if task is None or task.state == "cancelled":  # Dask cannot stop a thread
            raise FedlibError("cancelled")
        if time.monotonic() - told >= TELL:
            worker.log_event(topic, [key, rounds])
            told = time.monotonic()

    return progress


# here -----------------------------------------------------------------------------------------------------------------


class ClusterWorkers:
    """Those workers of a cluster that can do the runs; each is examined once, when it is first seen."""

    def __init__(self, client, specs: Sequence[RunSpec], device: str, gpu_share: float):
        self.client, self.device, self.gpu_share = client, device, gpu_share
        self.datasets = sorted({spec.dataset for spec in specs})
        self.here = facts(self.datasets, "cpu") | {"device": device.partition(":")[0]}
        self.there: set[str] = set()  # addresses
        self.objections: dict[str, str | None] = {}  # by address, as `_objection` returns them

    def look(self) -> tuple[set[str], list[str]]:
        """Addresses of the workers that are there and fit, and objections to those seen for the first time."""
        self.there = self._addresses()
        new = sorted(self.there - self.objections.keys())
        if new:
            answers = self.client.run(inspect, self.datasets, self.device, workers=new, on_error="return")
            for worker, answer in answers.items():
                if not isinstance(answer, OSError):  # else it was lost meanwhile
                    self.objections[worker] = self._objection(answer)
        fit = {worker for worker in self.there if self.objections.get(worker) == ""}
        return fit, [f"{worker}: {why}" for worker in new if (why := self.objections.get(worker))]

    def _addresses(self) -> set[str]:
        if self.client.status != "running":
            raise ConnectionError("it does not answer")
        return set(self.client.nthreads())

    def wait_for_the_first(self, bar) -> None:
        """Return when there is a worker that fits. Raises FedlibError if those that are there do not."""
        told = False
        while True:
            fit, objections = self.look()
            if objections:
                raise FedlibError(
                    f"{len(objections)} of {len(self.objections)} workers cannot do these runs: "
                    f"{'; '.join(objections[:5])}" + ("; …" if len(objections) > 5 else "")
                )
            if fit:
                return
            if not told:
                wanted = f"offers GPU={self.gpu_share:g} or more" if self.gpu_share else "is there"
                bar.write(f"waiting for a worker: none {wanted} yet (Ctrl-C to stop)", file=sys.stderr)
            told = True
            time.sleep(LOOK)

    def _objection(self, answer) -> str | None:
        """What speaks against a worker; "" for nothing, None if it is not meant."""
        if isinstance(answer, Exception):
            return f"fedlib does not work there ({type(answer).__name__}: {first_line(answer)})"
        found, threads, gpu = answer
        if gpu < self.gpu_share:
            return None
        if threads != 1:
            return (
                f"it has {threads} threads, but a run needs a process of its own; "
                f"start --nworkers {threads} with --nthreads 1"
            )
        return ", ".join(
            f"{what} is {found.get(what)}, here {mine}" for what, mine in self.here.items() if found.get(what) != mine
        )


@dataclass(frozen=True)
class Job:
    """A run that was handed over: to whom it could go, and its lock."""

    spec: RunSpec
    future: object
    workers: set[str]
    lock: object


class Sweep:
    """Runs that wait, runs that were handed over, and what came back."""

    def __init__(self, client, workers: ClusterWorkers, store: Store, options: dict, bar, done: dict):
        self.client, self.workers, self.store, self.options = client, workers, store, options
        self.bar, self.done = bar, done
        self.waiting: list[RunSpec] = []
        self.jobs: dict[str, Job] = {}  # by key of their future
        self.ended: queue.SimpleQueue = queue.SimpleQueue()  # keys and what came back
        self.rounds, self.tries = Counter(), Counter()  # by run id

    def run(self, specs: Sequence[RunSpec]) -> None:
        """Do all runs. What is not finished when this ends, by Ctrl-C for example, is cancelled."""
        self.waiting = list(specs)
        topic = f"fedlib-{secrets.token_hex(8)}"
        self.client.subscribe_topic(topic, self._hear)
        try:
            with remembered_interrupt() as interrupted:
                self._work(topic, interrupted)
        finally:
            with suppress(Exception):  # the scheduler may be gone
                self.client.cancel([job.future for job in self.jobs.values()], force=True)
                self.client.unsubscribe_topic(topic)
            for job in self.jobs.values():
                job.lock.release()

    def _work(self, topic: str, interrupted: list) -> None:
        while self.waiting or self.jobs:
            if interrupted:
                raise KeyboardInterrupt
            fit, objections = self.workers.look()
            for objection in objections:
                self.bar.write(f"worker left out: {objection}", file=sys.stderr)
            self.bar.set_postfix_str(f"{len(fit)} workers", refresh=False)
            self._take_back(self.workers.there)
            self._hand_over(fit, topic)
            self._collect()

    def _hear(self, event) -> None:
        """A worker has done rounds of a run."""
        _, (key, rounds) = event
        if key in self.jobs:
            self._advance(self.jobs[key].spec, rounds)

    def _advance(self, spec: RunSpec, rounds: int) -> None:
        self.bar.update(rounds - self.rounds[spec.id])
        self.rounds[spec.id] = rounds

    def _hand_over(self, fit: set[str], topic: str) -> None:
        """Give as many runs to the cluster as it has workers, but none that another process here is doing."""
        for spec in list(self.waiting):
            if len(self.jobs) >= len(fit):
                return
            lock = self.store.lock(spec.id)
            try:
                lock.acquire(timeout=0)
            except Timeout:
                continue
            self.waiting.remove(spec)
            found = self.store.get(spec)
            if found is not None:
                lock.release()
                self._end(spec, found)
            else:
                self._submit(spec, fit, lock, topic)

    def _submit(self, spec: RunSpec, fit: set[str], lock, topic: str) -> None:
        from fedlib.algorithms import registered

        key = f"{spec.label}-{spec.id}-{secrets.token_hex(4)}"
        share = self.workers.gpu_share
        future = self.client.submit(
            train, spec.to_dict(), registered.carried(spec.method), self.options, topic, key=key, workers=sorted(fit),
            pure=False, resources={"GPU": share} if share else None,
        )  # fmt: skip
        self.jobs[key] = Job(spec, future, fit, lock)
        threading.Thread(target=self._fetch, args=(key, future), daemon=True).start()

    def _fetch(self, key: str, future) -> None:
        """Wait until a run has ended and its result is here; lost before that, Dask does the run again."""
        try:
            self.ended.put((key, future.result()))
        except Exception as error:
            self.ended.put((key, error))

    def _take_back(self, there: set[str]) -> None:
        """Hand a run over again when every worker that it could go to is lost: Dask would wait for them to return."""
        for key, job in list(self.jobs.items()):
            if job.workers & there or job.future.done():
                continue
            job.future.cancel()
            del self.jobs[key]
            job.lock.release()
            self.tries[job.spec.id] += 1
            if self.tries[job.spec.id] < TRIES:
                self.waiting.insert(0, job.spec)
            else:
                self._end(
                    job.spec, FedlibError("all workers that it was given to were lost (killed, or out of memory?)")
                )

    def _collect(self) -> None:
        """Wait for a run to end, but not for long, and store its result."""
        try:
            key, outcome = self.ended.get(timeout=LOOK)
        except queue.Empty:
            return
        job = self.jobs.pop(key, None)
        if job is None:  # taken back
            return
        try:
            self._end(job.spec, self._stored(outcome))
        finally:
            job.lock.release()

    def _stored(self, outcome) -> RunResult | FedlibError:
        """Put a result into the store; an error of any kind becomes a FedlibError."""
        from distributed import KilledWorker

        from fedlib.engine.checkpoint import remove_checkpoints

        if isinstance(outcome, CancelledError):
            raise outcome  # not by us: the scheduler is lost
        if isinstance(outcome, KilledWorker):
            times, last = outcome.allowed_failures + 1, outcome.last_worker.address
            return FedlibError(f"its worker was lost {times} times (killed, or out of memory?), the last was {last}")
        if isinstance(outcome, FedlibError):
            if hasattr(outcome, "__notes__"):
                traceback.print_exception(outcome)
            return outcome
        if isinstance(outcome, Exception):
            return FedlibError(f"{type(outcome).__name__}: {first_line(outcome)}")
        try:
            self.store.put(outcome)
        except OSError as error:
            return FedlibError(f"its result could not be stored: {error}")
        remove_checkpoints([outcome.spec])  # of an earlier try without a cluster
        return outcome

    def _end(self, spec: RunSpec, outcome: RunResult | FedlibError) -> None:
        self.done[spec.id] = outcome
        self._advance(spec, spec.rounds)
