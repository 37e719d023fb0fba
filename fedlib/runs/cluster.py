"""Runs on a Dask cluster that is there: its scheduler places runs, and does those of lost workers again. This process
stores what workers return, so that no disk is shared."""

from __future__ import annotations

import asyncio
import re
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from fedlib.base.errors import BadValue, FedlibError, choose, require

if TYPE_CHECKING:  # what loads PyTorch is imported where it is used: the scheduler imports this file too
    from fedlib.engine.result import RunResult
    from fedlib.runs.store import Store
    from fedlib.spec import RunSpec

CONNECT = 10  # seconds to wait for the scheduler


def run_on_cluster(specs: Sequence[RunSpec], store: Store, address: str, options: dict, bar, done: dict) -> None:
    """Do runs on the workers of a Dask scheduler, store their results, and add these, or errors, to `done`.

    options: device, of every worker, backend and step; on CUDA a run takes one of its worker's resource "GPU".
    """
    from fedlib.algorithms import registered

    kind = choose("device on a cluster", options["device"].partition(":")[0], ("cpu", "cuda"))
    choose("backend on a cluster", options["backend"], ("auto", "serial", "vmap"))
    datasets = sorted({spec.dataset for spec in specs})
    here = facts(datasets, "cpu") | {"device": kind, "threads": "1"}
    with connect(address) as client, client.as_current():
        if not client.nthreads():
            bar.write("waiting for the first worker (Ctrl-C to stop)", file=sys.stderr)
        client.wait_for_workers(1)
        answers = client.run(inspect, here, datasets, options["device"], on_error="return")
        if wrong := [f"{name}: {first_line(why)}" for name, why in sorted(answers.items()) if why]:
            raise FedlibError(f"{len(wrong)} of {len(answers)} workers cannot do these runs: {'; '.join(wrong[:5])}")
        share = {"resources": {"GPU": 1} if kind == "cuda" else None, "pure": False}
        own = {spec.method: registered.carried(spec.method) for spec in specs}
        jobs = {client.submit(train, s.to_dict(), own[s.method], options, here, datasets, **share): s for s in specs}
        try:
            _collect(jobs, store, bar, done)
        finally:
            with suppress(Exception):  # the scheduler may be gone
                client.cancel(list(jobs), force=True)


def _collect(jobs: dict, store: Store, bar, done: dict) -> None:
    """Store results as they come."""
    from distributed import as_completed

    from fedlib.engine.checkpoint import remove_checkpoints

    for future in as_completed(list(jobs)):
        if future.cancelled():  # not by us
            raise FedlibError("the scheduler was lost; finished runs are kept, and the same command continues")
        spec = jobs.pop(future)
        try:
            outcome = done[spec.id] = future.result()
            if not isinstance(outcome, FedlibError):
                store.put(outcome)
                remove_checkpoints([spec])  # of an earlier try without a cluster
        except Exception as error:  # the other runs go on
            traceback.print_exception(error)
            done[spec.id] = FedlibError(f"{type(error).__name__}: {first_line(error)}")
        bar.update(spec.rounds)


def connect(address: str):
    """A client of the scheduler. Raises BadValue if Dask is not installed, or if no scheduler answers."""
    try:
        from distributed import Client
    except ImportError:
        raise BadValue("--engine needs Dask (the extra 'cluster'): pip install distributed") from None
    expected = "the address of a running Dask scheduler, tcp://HOST:PORT"
    require(re.fullmatch(r"(tcp|tls)://[^/]+:\d+", address) is not None, "engine", address, expected)
    try:
        return Client(address, timeout=CONNECT, set_as_default=False)
    except OSError as error:
        raise BadValue(f"engine = {address!r} does not answer; expected {expected} ({first_line(error)})") from None


def first_line(error: BaseException | str) -> str:
    """An error of another library in one line."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def facts(datasets: Sequence[str], device: str) -> dict[str, str]:
    """What has to be the same here and on the workers, by name; what is missing is told by its error."""
    from fedlib.base.files import source_hash
    from fedlib.base.same_bits import arithmetic
    from fedlib.data import load
    from fedlib.engine.setup import find_device

    found = {"fedlib's source": source_hash(), "arithmetic": arithmetic()}
    asked = {f"data set {name!r}": lambda name=name: f"checksum {load(name).sha256[:12]}" for name in datasets}
    for what, ask in (asked | {"device": lambda: find_device(device).type}).items():
        try:
            found[what] = ask()
        except FedlibError as error:
            found[what] = str(error)
    return found


def objection(here: dict[str, str], datasets: Sequence[str], device: str, worker) -> str:
    """On a worker: how it differs from the process that asks, whose facts are `here`; "" for not at all."""
    there = facts(datasets, device) | {"threads": str(worker.state.nthreads)}  # a run needs a process of its own
    return ", ".join(f"{what} is {there[what]}, here {own}" for what, own in here.items() if there[what] != own)


async def inspect(*what, dask_worker) -> str:
    """`objection`, beside what the worker does."""
    return await asyncio.to_thread(objection, *what, dask_worker)


def train(fields: dict, method: tuple | None, options: dict, here: dict, datasets) -> RunResult | FedlibError:
    """On a worker, which may have come late: the result of one run, or its error; method: the user's own."""
    from distributed import get_worker

    from fedlib.algorithms import registered
    from fedlib.engine.checkpoint import remove_checkpoints
    from fedlib.engine.simulate import simulate_together
    from fedlib.runs.run import to_store
    from fedlib.spec import RunSpec

    worker = get_worker()
    task = worker.state.tasks[worker.get_current_task()]

    def progress(_) -> None:
        if task.state == "cancelled":  # Dask cannot stop a thread
            raise FedlibError("cancelled")

    try:
        if why := objection(here, datasets, options["device"], worker):
            raise FedlibError(f"worker {worker.address} cannot do it: {why}")
        registered.accept(method)
        spec = RunSpec.from_dict(fields)
        (result,) = simulate_together([spec], checkpoint_every=15.0, progress=progress, **options)
        remove_checkpoints([spec])
        return to_store(spec, result, options["device"], options["backend"])
    except FedlibError as error:
        return error
