"""How time and memory grow: with the samples that a round trains on, and with the number of clients.

Random images of FEMNIST's shape (1x28x28, 62 classes), LeNet5-BN with two pools, backend serial, one thread. Times are
seconds of the processor, so that other programs matter little. Of two rounds the second is timed, the first warms up.
In the first part all clients are of one size. In the second, sizes follow from Dir(1) over the classes, 40 samples on
average, half of them for testing; 36 clients take part in a round, all are evaluated once, and every number of clients
has a process of its own, so that its peak memory is its own. The more clients, the more of them have not trained yet;
evaluating those takes another pass, over their training data, for batch norm's statistics.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from tqdm import tqdm

from fedlib.base.files import home
from fedlib.base.provenance import provenance
from fedlib.benchmarks.speed import random_data, save, trained_samples, workplace
from fedlib.engine.evaluate import record
from fedlib.engine.setup import first_state, set_up
from fedlib.engine.simulate import play_round
from fedlib.engine.worker_processes import WorkerProcesses
from fedlib.spec import RunSpec

SHAPE, NUM_CLASSES = (28, 28, 1), 62
AVERAGE = 40  # samples of a client in the second part
TASK = dict(model_options={"pools": 2}, rounds=2, eval_every=2)
METHODS = {"fedavg": {}, "pfedsim": {"rho": 0.0}}  # a server with one model, and a server with a model of every client
FULL = dict(sizes=(20, 80, 320), together=(4, 8, 16, 32), clients=(100, 400, 1600, 3597), sampled=36)  # 3,597: FEMNIST
QUICK = dict(sizes=(8, 16), together=(2, 4), clients=(20, 30), sampled=4)


def scaling(quick: bool = False) -> tuple[str, pd.DataFrame]:
    """Measure, write results/bench/scaling.{csv,json} and figures/bench/scaling.png;
    returns what was measured and exponents.

    quick: tiny sizes in one process, which only show that everything runs; written to folders called bench+quick. About
    5 minutes on one core otherwise.
    """
    from fedlib import figures  # here, because the processes that measure need no plotting

    sizes = QUICK if quick else FULL
    rounds = round_specs(sizes["together"], sizes["sizes"])
    clients = client_specs(sizes["clients"], sizes["sampled"])
    with workplace() as folder, contextlib.ExitStack() as stack:
        for name, count in {spec.dataset: int(spec.dataset[1:]) for spec in (*rounds, *clients)}.items():
            stack.enter_context(random_data(folder, name, count, SHAPE, NUM_CLASSES))
        bar = stack.enter_context(tqdm(total=len(rounds) + len(clients), unit="point", leave=False))
        table = pd.DataFrame([*measurements(rounds, bar), *measurements(clients, bar, evaluated=True, fresh=not quick)])
    fits = exponents(table)
    origin = provenance(torch.device("cpu"), "serial")
    words = (
        f"Random images 1x28x28, {NUM_CLASSES} classes, LeNet5-BN with two pools, 5 local epochs of batches of 32; "
        f"{origin['device']}, "
        "one thread, seconds of the processor.\n"
        "Exponent p of the fit y = c x^p, over all sizes and between the two largest."
    )
    path = save(table, "scaling", quick, {"work": words, "exponents": fits, **origin})
    picture = home() / "figures" / path.parent.name / "scaling.png"
    picture.parent.mkdir(parents=True, exist_ok=True)
    figures.scaling(table).savefig(picture, dpi=110, bbox_inches="tight", metadata={"Software": None})
    return words, fits


def round_specs(together: Sequence[int], sizes: Sequence[int]) -> list[RunSpec]:
    """Rounds of `together` clients with `sizes` training samples each, for all pairs, from one data set."""
    count = 2 * max(together) * max(sizes)
    return [
        RunSpec(
            "fedavg", dataset=f"r{count}", scheme="iid", num_clients=count // (2 * size),
            join_ratio=taking_part * 2 * size / count, **TASK,
        )
        for size in sizes for taking_part in together
    ]  # fmt: skip


def client_specs(counts: Sequence[int], sampled: int) -> list[RunSpec]:
    """Runs of every method with more and more clients, of which `sampled` take part in a round."""
    partition = {"alpha": 1.0, "cap": False, "min_size": 4}
    return [
        RunSpec(
            method, hyper=hyper, dataset=f"c{AVERAGE * count}", num_clients=count, join_ratio=sampled / count,
            partition=partition, **TASK,
        )
        for count in counts for method, hyper in METHODS.items()
    ]  # fmt: skip


def measurements(specs: Sequence[RunSpec], bar: tqdm, evaluated: bool = False, fresh: bool = False) -> list[dict]:
    """Measurements of runs one after the other, in another process; `fresh`: in one of its own for each run."""
    rows, workers = [], WorkerProcesses(1)
    try:
        for spec in specs:
            bar.set_description_str(f"{spec.method}, {spec.num_clients} clients")
            row = workers.map(measure, {0: (spec, evaluated)})[0]
            if fresh:
                workers.stop()
            else:  # its peak memory may be another run's
                row |= {"peak_bytes": np.nan, "before_bytes": np.nan}
            rows.append(row)
            bar.update()
    finally:
        workers.stop()
    return rows


def measure(spec: RunSpec, evaluated: bool) -> dict:
    """In a worker: one run. Processor seconds of the second round and of one evaluation at the method's points; most
    memory in bytes, and the part of it that was there before the run was set up."""
    before = peak_memory()
    with torch.no_grad():
        run = set_up(spec, "serial")
        state, sizes = first_state(run), run.sizes
        play_round([run], [state], 1)
        start = time.process_time()
        play_round([run], [state], 2)
        played = time.process_time()
        if evaluated:
            record(run, state)
        end = time.process_time()
    return {
        "part": "clients" if evaluated else "samples",
        "method": spec.method,
        "num_clients": spec.num_clients,
        "smallest": int(sizes.min()),
        "mean": float(sizes.mean()),
        "largest": int(sizes.max()),
        "samples": trained_samples(run, 2),
        "round_s": played - start,
        "evaluation_s": end - played if evaluated else np.nan,
        "peak_bytes": peak_memory(),
        "before_bytes": before,
    }


def peak_memory() -> int:
    """Most memory that this process has held, in bytes.

    Linux's own counter for the process is read where there is one: getrusage also counts what its parent held.
    """
    status = Path("/proc/self/status")
    if status.exists():
        found = [line.split()[1] for line in status.read_text().splitlines() if line.startswith("VmHWM")]
        if found:
            return 1024 * int(found[0])
    try:
        import resource
    except ImportError:  # Windows
        import psutil

        return psutil.Process().memory_info().peak_wset
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def exponents(table: pd.DataFrame) -> pd.DataFrame:
    """Slopes in log-log: time against samples, and time and memory (beyond what an idle process holds)
    against clients."""
    table = table.assign(memory=table["peak_bytes"] - table["before_bytes"])
    by_samples, by_clients = table[table["part"] == "samples"], table[table["part"] == "clients"]
    rows = [
        ("round_s", f"samples of a round, {size:g} a client", "fedavg", mine["samples"], mine["round_s"])
        for size, mine in by_samples.groupby("mean")
    ]
    for method, mine in by_clients.groupby("method"):
        for quantity in ("round_s", "evaluation_s", "memory"):
            rows.append((quantity, "number of clients", method, mine["num_clients"], mine[quantity]))
    return pd.DataFrame(
        [(*row, slope(x, y), slope(x, y, last=2)) for *row, x, y in rows],
        columns=["quantity", "against", "method", "exponent", "two largest"],
    )


def slope(x, y, last: int | None = None) -> float:
    """Exponent p of the least-squares fit y = c x^p, for the `last` distinct x only if given;
    NaN without numbers above 0."""
    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    kept = (y > 0) & np.isin(x, np.unique(x)[-last:] if last else x)
    return float(np.polyfit(np.log(x[kept]), np.log(y[kept]), 1)[0]) if len(np.unique(x[kept])) > 1 else float("nan")
