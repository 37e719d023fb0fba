"""Worker processes of one thread each, that survive Ctrl-C in the parent, leave with it, and are replaced when killed.

On Linux they are forked by a server process that has loaded PyTorch once (`multiprocessing`'s "forkserver"), so that
starting one costs no imports; elsewhere they are started afresh ("spawn"; macOS's libraries do not survive a fork).
"""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing
import os
import pickle
import signal
import sys
import tempfile
import threading
import traceback
import weakref
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterator
from multiprocessing import spawn, util
from multiprocessing.connection import Connection, wait

import torch

from fedlib.base.errors import FedlibError
from fedlib.base.files import for_sockets

DEATHS = 3  # so many workers may die of one job
# What the server loads, as far as this process has it; sklearn.datasets holds the digits. Nothing of fedlib: the server
# may find another copy of it than this process. Loading these touches no GPU.
PRELOADED = ("torch", "sklearn.datasets")


def context() -> multiprocessing.context.BaseContext:
    """How worker processes, and what they share, are made on this platform."""
    if not sys.platform.startswith("linux"):
        return multiprocessing.get_context("spawn")
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload([name for name in PRELOADED if name in sys.modules])
    usual, tempfile.tempdir = tempfile.gettempdir(), for_sockets()
    try:
        util.get_temp_dir()  # makes the one that this process's sockets are in from now on
    finally:
        tempfile.tempdir = usual
    return server


@contextlib.contextmanager
def without_main() -> Iterator[None]:
    """Processes that are started meanwhile do not run the user's script first, which need not be guarded by its
    `__name__`: what they need of it travels by value (`fedlib.base.carry`)."""
    whole = spawn.get_preparation_data
    spawn.get_preparation_data = lambda name: {k: v for k, v in whole(name).items() if not k.startswith("init_main")}
    try:
        yield
    finally:
        spawn.get_preparation_data = whole


class WorkerProcesses:
    """`count` processes for functions of picklable arguments. Each has a pipe of its own, so that what a worker sends
    when it is killed holds up nobody else."""

    def __init__(self, count: int, setup: Callable | None = None, *setup_arguments):
        """setup(*setup_arguments) is called once in every new worker."""
        self.count, self.setup, self.setup_arguments = count, setup, setup_arguments
        self.running: dict[Connection, multiprocessing.process.BaseProcess] = {}
        ALL.add(self)

    def map(self, fn: Callable, jobs: dict[Hashable, tuple], lost: Callable | None = None) -> dict:
        """Results of fn(*arguments) by key, jobs started in their order.

        A job whose worker was killed is done again. Where DEATHS workers die of it, a FedlibError is raised, or given
        to lost(key, error) for a result.
        """
        left, busy, deaths, results = deque(jobs), {}, Counter(), {}
        try:
            while left or busy:
                while left and len(busy) < self.count:
                    worker = next((worker for worker in self.running if worker not in busy), None) or self._started()
                    busy[worker] = key = left.popleft()
                    with contextlib.suppress(ConnectionError):  # it is dead, and so there will be no answer
                        worker.send((fn, *jobs[key]))
                for worker in wait(busy):
                    key = busy.pop(worker)
                    try:
                        done, result = worker.recv()
                    except (EOFError, OSError):
                        self._end(worker)
                        deaths[key] += 1
                        if deaths[key] < DEATHS:
                            left.appendleft(key)
                            continue
                        error = FedlibError(f"its worker process died {DEATHS} times (killed, or out of memory?)")
                        done, result = (True, lost(key, error)) if lost else (False, error)
                    if not done:
                        raise result
                    results[key] = result
        except BaseException:
            for worker, process in [*self.running.items()]:
                process.kill()
                self._end(worker)
            raise
        return results

    def stop(self) -> None:
        """End the workers, which have nothing to do any more."""
        for worker in [*self.running]:
            self._end(worker)

    def _started(self) -> Connection:
        """A new worker, by our end of its pipe."""
        how = context()
        ours, its = how.Pipe()
        worker = how.Process(target=_work, args=(its, dict(os.environ), self.setup, self.setup_arguments))
        with without_main():
            worker.start()
        its.close()  # the worker's is the only one now, and ends with it
        self.running[ours] = worker
        return ours

    def _end(self, worker: Connection) -> None:
        """Nothing more comes through its pipe, and it leaves."""
        worker.close()
        self.running.pop(worker).join()


ALL: weakref.WeakSet[WorkerProcesses] = weakref.WeakSet()


@atexit.register  # before multiprocessing waits for them
def _stop_all() -> None:
    for workers in ALL:
        workers.stop()


def _work(parent: Connection, environment: dict[str, str], setup: Callable | None, setup_arguments: tuple) -> None:
    """In a worker: do what comes and answer whether it went well, and the result or the error, until nothing comes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    os.environ.clear()  # it was the server's, as it was when that began
    os.environ.update(environment)
    torch.set_num_threads(1)
    if setup:
        setup(*setup_arguments)
    while True:
        try:
            job = parent.recv_bytes()
        except EOFError:
            return _stop_all()  # those of its own
        try:
            fn, *arguments = pickle.loads(job)
            parent.send((True, fn(*arguments)))
        except BaseException as error:
            error.add_note(f"in a worker process:\n{traceback.format_exc()}")
            parent.send((False, error))


def _leave_with_parent() -> None:
    multiprocessing.parent_process().join()  # not the server, but the process that asked for this one
    os._exit(1)
