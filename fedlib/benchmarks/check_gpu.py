"""Does fedlib compute on this GPU what it computes on a CPU, and how fast? Two minutes, without a test runner.

Samples per second for two networks; memory over many rounds; all methods against the CPU, the papers' own first, and
whether their steps are recorded.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch

from fedlib import algorithms
from fedlib.base.errors import require
from fedlib.base.provenance import is_gpu, provenance
from fedlib.benchmarks.speed import FedlibRuns, random_data
from fedlib.engine.cuda_graph import UNRECORDED, give_back, recorder
from fedlib.engine.setup import arithmetic, find_device
from fedlib.engine.simulate import simulate
from fedlib.spec import RunSpec

TOLERANCE = 1e-6  # of the mean loss per test sample, in float64: rounding is far below, a wrong step far above
GROWTH = 64 * 2**20  # bytes that may be reserved more after all rounds than after a tenth of them
SMALL = dict(
    dataset="digits",
    partition=dict(alpha=0.5, min_size=12),
    num_clients=6,
    join_ratio=0.5,
    rounds=2,
    local_epochs=2,
    batch_size=8,
    precision="float64",
    eval_every=1,
)
TIMED = dict(num_clients=100, join_ratio=0.5, local_epochs=2, partition=dict(alpha=100.0, min_size=10))
NETWORKS = ("lenet5_bn", "mcmahan_cnn")
FIRST = ("pfedsim", "pfedsv", "fedsimsup", "pfedcs", "fedavg")  # methods that are checked before the time is over
GRACE = 30  # seconds beyond the limit until a check that does not return is cut short


class Table:
    """What was found: rows (check, of, found, ok); ok is None where nothing was checked."""

    def __init__(self, seconds: float):
        self.started, self.rows = time.monotonic(), []
        self.end = self.started + seconds

    def check(self, name: str, of: str, look: Callable[[], tuple[bool, str]]) -> None:
        """Add what look() returns, (ok, found), or its error; once the time is over only that it was not checked."""
        if time.monotonic() > self.end:
            self.rows.append((name, of, "not checked, the time is over", None))
            return
        try:
            ok, found = look()
        except Exception as error:  # one failure must not hide the others
            ok, found = False, f"{type(error).__name__}: {str(error).splitlines()[0][:90] if str(error) else ''}"
        self.rows.append((name, of, found, ok))

    def text(self) -> str:
        """Aligned, with a verdict for each row."""
        words = {True: "ok", False: "FAILED", None: "-"}
        lines = [("check", "of", "", "found"), *((n, of, words[ok], found) for n, of, found, ok in self.rows)]
        widths = [max(map(len, column)) for column in zip(*lines)]
        return "\n".join("  ".join(f"{cell:<{w}}" for cell, w in zip(line, widths)).rstrip() for line in lines)

    def report(self, device: str) -> str:
        """The table below a line on the device, the software and the time."""
        origin = provenance(find_device(device), "vmap")
        spent = time.monotonic() - self.started
        return f"{origin['device']}, torch {origin['versions']['torch']}, {spent:.0f} s\n\n{self.text()}"

    @property
    def problems(self) -> list[str]:
        """What keeps all from being well, in sentences."""
        said = [f"{self.failed} of {len(self.rows)} checks failed"] if self.failed else []
        left = f"{self.unchecked} of {len(self.rows)} checks were not made in time; --seconds gives more"
        return [*said, left] if self.unchecked else said

    @property
    def failed(self) -> int:
        return sum(ok is False for *_, ok in self.rows)

    @property
    def unchecked(self) -> int:
        return sum(ok is None for *_, ok in self.rows)


def check_gpu(
    device: str = "cuda", seconds: float = 120.0, methods: Sequence[str] = (), rounds: int = 100, images: int = 20_000
) -> Table:
    """Check a GPU; `methods`: all by default. Raises BadValue where there is none.

    After `seconds` no further check is begun, and one that does not return ends the process `GRACE` seconds later.
    rounds: of the memory's check; images: of the random data that speed is measured on.
    """
    where = find_device(device)
    require(is_gpu(where), "device", device, "a GPU")
    table = Table(seconds)
    with stopped_after(seconds + GRACE, table), arithmetic("float32"):
        for network in NETWORKS:  # first, so that they are measured whatever else takes its time
            table.check("speed", network, lambda n=network: speed(n, where, images))
        table.check("memory stays", f"{rounds} rounds", lambda: memory(where, rounds))
        for method in methods or dict.fromkeys((*FIRST, *algorithms.names())):
            table.check("agrees with the CPU", method, lambda m=method: agreement(m, where))
    return table


@contextlib.contextmanager
def stopped_after(seconds: float, table: Table) -> Iterator[None]:
    """End the process, with the table so far, if what is within takes longer: a GPU that hangs cannot be asked."""

    def give_up():
        print(f"{table.text()}\n\na check did not return; stopped after {seconds:.0f} s", flush=True)
        os._exit(1)

    watch = threading.Timer(seconds, give_up)
    watch.daemon = True
    watch.start()
    try:
        yield
    finally:
        watch.cancel()


def agreement(method: str, where: torch.device) -> tuple[bool, str]:
    """Whether a short run in float64, stacked and recorded on the GPU, ends as it does one by one on the CPU."""
    warms_up = "rho" in algorithms.find(method).__dataclass_fields__  # then of two rounds one is the method's own
    spec = RunSpec(method, hyper={"rho": 0.5} if warms_up else {}, **SMALL)
    expected, before = simulate(spec, backend="serial").history, recorder(where).made
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = simulate(spec, backend="vmap", device=str(where)).history
    off = max(abs(a["loss"] - b["loss"]) for a, b in zip(found, expected, strict=True))
    refused = [str(w.message) for w in caught if UNRECORDED in str(w.message)]
    recorded = recorder(where).made - before
    if refused or not recorded:
        return False, f"steps are not recorded: {(refused or ['no loop was long enough'])[0][:100]}"
    return off <= TOLERANCE, f"loss differs by {off:.1e}; {recorded} recordings"


def memory(where: torch.device, rounds: int) -> tuple[bool, str]:
    """Whether memory is the same after all rounds as after a tenth of them, every client's number of batches another
    one."""
    play = FedlibRuns([RunSpec("fedavg", **{**SMALL, "rounds": rounds, "precision": "float32"})], "vmap", where)
    first = max(1, rounds // 10)
    for t in range(1, rounds + 1):
        play(t)
        if t == first:
            before = torch.cuda.memory_reserved(where)
    after = torch.cuda.memory_reserved(where)
    return after - before <= GROWTH, f"{before / 1e6:.0f} MB after {first}, {after / 1e6:.0f} MB after {rounds} rounds"


def speed(network: str, where: torch.device, images: int) -> tuple[bool, str]:
    """Samples per second of FedAvg's local training of 50 clients, in float32, on random images."""
    with tempfile.TemporaryDirectory(prefix="fedlib-check-") as folder:
        with random_data(Path(folder), "random", images, (32, 32, 3), num_classes=10):
            spec = RunSpec("fedavg", dataset="random", model=network, rounds=100, **TIMED)
            play = FedlibRuns([spec], "vmap", where, step="torch")
            torch.cuda.reset_peak_memory_stats(where)
            play(1)
            torch.cuda.synchronize(where)
            start, samples = time.perf_counter(), 0
            for t in range(2, 12):
                samples += play(t)
                torch.cuda.synchronize(where)
                spent = time.perf_counter() - start
                if spent > 3:
                    break
        peak = torch.cuda.max_memory_allocated(where)
        give_back(where)
    return True, f"{samples / spent:,.0f} samples/s, {t - 1} rounds, at most {peak / 1e9:.1f} GB"
