"""Worker processes of one thread each, that survive Ctrl-C in the parent, leave with it, and are replaced when killed.

On Linux they are forked by a server process that has loaded PyTorch once (`multiprocessing`'s "forkserver"), so that
starting one costs no imports; elsewhere they are started afresh ("spawn"; macOS's libraries do not survive a fork).
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import spawn, util

import torch

from fedlib.base.errors import FedlibError
from fedlib.base.files import for_sockets

PATIENCE = 5  # seconds without a result after which it is asked whether a worker is dead
DEATHS = 3  # so many times in a row may workers die without anything being finished
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
    """`count` processes for functions of picklable arguments."""

    def __init__(self, count: int, setup: Callable | None = None, *setup_arguments):
        """setup(*setup_arguments) is called once in every new worker."""
        self.count, self.setup, self.setup_arguments = count, setup, setup_arguments
        self.pool = None

    def map(self, fn: Callable, jobs: dict[Hashable, tuple]) -> dict:
        """Results of fn(*arguments) by key, jobs started in their order.

        A job whose worker was killed is done again. Raises FedlibError if workers keep dying.
        """
        results, deaths = {}, 0
        while left := {key: arguments for key, arguments in jobs.items() if key not in results}:
            before = len(results)
            try:
                with without_main():
                    futures = {self._pool().submit(fn, *arguments): key for key, arguments in left.items()}
                for future in self._as_completed(futures):
                    results[futures[future]] = future.result()
            except BrokenProcessPool:
                self._kill_pool()
                deaths = 1 if len(results) > before else deaths + 1
                if deaths == DEATHS:
                    raise FedlibError(
                        f"worker processes died {DEATHS} times in a row (killed, or out of memory?); not finished: "
                        f"{len(left)} jobs"
                    ) from None
            except BaseException:
                self._kill_pool()
                raise
        return results

    def stop(self) -> None:
        """End the workers, which have nothing to do any more."""
        if self.pool is not None:
            pool, self.pool = self.pool, None
            pool.shutdown(wait=True, cancel_futures=True)

    def _pool(self) -> ProcessPoolExecutor:
        if self.pool is None:
            self.pool = ProcessPoolExecutor(
                self.count,
                mp_context=context(),
                initializer=_start,
                initargs=(dict(os.environ), self.setup, self.setup_arguments),
            )
        return self.pool

    def _as_completed(self, futures: Iterable[Future]) -> Iterator[Future]:
        """The futures as they are done. The pool notices a dead worker, unless that was killed while it sent a result:
        then it waits for the other half, and nobody else may send anything."""
        left, workers = set(futures), list((self.pool._processes or {}).values())
        while left:
            done, left = wait(left, PATIENCE, FIRST_COMPLETED)
            yield from done
            if not done and not all(process.is_alive() for process in workers):
                for process in workers:
                    process.kill()
                self.pool._result_queue._writer.close()  # the last one that could have sent the other half
                raise BrokenProcessPool

    def _kill_pool(self) -> None:
        """End the workers at once, whatever they do."""
        if self.pool is None:
            return
        pool, self.pool = self.pool, None
        for process in list((pool._processes or {}).values()):
            with contextlib.suppress(OSError, ValueError):
                process.kill()
        if sys.version_info < (3, 11, 5):  # who still writes a job for them would wait for ever (CPython's gh-94777)
            reader = pool._call_queue._reader
            handle, reader._handle = reader._handle, None  # taken first: the queue's own thread closes it as well
            with contextlib.suppress(OSError, TypeError):  # which it may just have done
                os.close(handle)
        pool.shutdown(wait=True, cancel_futures=True)


def _start(environment: dict[str, str], setup: Callable | None, setup_arguments: tuple) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    os.environ.clear()  # it was the server's, as it was when that began
    os.environ.update(environment)
    torch.set_num_threads(1)
    if setup:
        setup(*setup_arguments)


def _leave_with_parent() -> None:
    multiprocessing.parent_process().join()  # not the server, but the process that asked for this one
    os._exit(1)
