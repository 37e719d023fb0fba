"""How fast is fedlib? Client-samples per second of its backends beside plain PyTorch loops on the same clients.

The plain loops stand below and use nothing of fedlib's engine: stock modules, stock optimiser, float images indexed
from one tensor, no server. Every variant has processes of its own, all of which are started, set up and warmed up by
one round before anything is measured; then the variants take turns (A B C A B C ...), so that a machine whose speed
drifts is slow for all of them. A ratio is the median over the repeats of the ratio within one repeat, in which all
variants train the same clients. Nothing is evaluated, but in the rows that say so: there a round ends with a new model
of the server and the test of every client.

On a GPU the plain loop trains one client after the other on the card; fedlib stacks all clients of one run, and those
of five seeds. That part was written without a GPU at hand: it was never run on CUDA.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn
from tqdm import tqdm

from fedlib.base.draws import participants, rng
from fedlib.base.errors import require
from fedlib.base.files import home, write_atomically
from fedlib.base.provenance import provenance
from fedlib.data import available, load
from fedlib.data.datasets import Dataset
from fedlib.engine.batches import SCAN_BATCH
from fedlib.engine.evaluate import record
from fedlib.engine.setup import Run, find_device, first_state, set_up, set_up_together
from fedlib.engine.simulate import play_round
from fedlib.engine.worker_processes import WorkerProcesses, context
from fedlib.spec import RunSpec

SEEDS = 5  # runs in one stack on a GPU
HORIZON = 200  # rounds to which times are extrapolated: pFedSim's T
PATIENCE = 600  # seconds that side-by-side processes wait for each other to be set up
TASK = dict(model_options={"pools": 2}, bn_stats="local")
FULL = TASK | dict(num_clients=100, join_ratio=0.1, local_epochs=5, partition={"alpha": 0.1})
QUICK = TASK | dict(num_clients=4, join_ratio=0.5, local_epochs=1, partition={"alpha": 1.0, "min_size": 10})


# plain loops ----------------------------------------------------------------------------------------------------------


def plain_net(shape: Sequence[int], num_classes: int) -> nn.Module:
    """LeNet5 with batch norm and two pools from stock modules; shape: (channels, height, width)."""
    channels, height, width = shape
    flat = 16 * (((height - 4) // 2 - 4) // 2) * (((width - 4) // 2 - 4) // 2)
    return nn.Sequential(
        nn.Conv2d(channels, 6, 5), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(flat, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, num_classes),
    )  # fmt: skip


def plain_batches(own: Tensor, epochs: int, size: int) -> Iterator[Tensor]:
    """Minibatches of a client with the samples `own` int64 [n]: shuffled anew every epoch,
    the last partial one kept."""
    for _ in range(epochs):
        for index in own[torch.randperm(len(own), device=own.device)].split(size):
            if len(index) > 1:  # batch norm cannot train on one sample
                yield index


def plain_training(net: nn.Module, images: Tensor, labels: Tensor, batches: Iterable[Tensor], lr: float) -> int:
    """Minibatch SGD on `net`, in place. Returns how many samples it trained on."""
    loss_function, optimiser, samples = nn.CrossEntropyLoss(), torch.optim.SGD(net.parameters(), lr=lr), 0
    net.train()
    for index in batches:
        loss = loss_function(net(images[index]), labels[index])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        samples += len(index)
    return samples


class PlainLoop:
    """The local training of a round's clients, one after the other, all from the same initial weights."""

    def __init__(self, folder: str, spec: RunSpec, clients: dict[int, list[np.ndarray]], device: torch.device):
        """folder: images and labels as `write_plain_data` leaves them; clients: their training samples by round."""
        images, labels = (np.load(Path(folder) / f"{name}.npy", mmap_mode="c") for name in ("floats", "labels"))
        self.images, self.labels = torch.from_numpy(images).to(device), torch.from_numpy(labels).to(device)
        self.clients = {t: [torch.from_numpy(own).to(device) for own in each] for t, each in clients.items()}
        self.spec, self.net = spec, plain_net(images.shape[1:], int(labels.max()) + 1).to(device)
        self.initial = {name: value.clone() for name, value in self.net.state_dict().items()}

    def __call__(self, t: int) -> int:
        """Train the clients of round t; returns the number of samples."""
        return sum(samples for _, samples in self.trained(t))

    def trained(self, t: int) -> Iterator[tuple[int, int]]:
        """Train one client of round t after the other, and yield how many samples it has and how many it trained on."""
        for own in self.clients[t]:
            self.net.load_state_dict(self.initial)
            batches = plain_batches(own, self.spec.local_epochs, self.spec.batch_size)
            yield len(own), plain_training(self.net, self.images, self.labels, batches, self.spec.lr)


class PlainRounds(PlainLoop):
    """Whole rounds of FedAvg: local training, the mean of the weights, and the test of all clients."""

    def __init__(self, *given, tests: Sequence[np.ndarray]):
        """tests: the test samples of every client; the rest as for `PlainLoop`."""
        super().__init__(*given)
        self.tests = [torch.from_numpy(own).to(self.images.device) for own in tests]

    def __call__(self, t: int) -> int:
        """Play round t; returns the number of samples trained on."""
        total, samples = sum(map(len, self.clients[t])), 0
        mean = {name: torch.zeros_like(value) for name, value in self.initial.items()}
        for size, trained in self.trained(t):
            samples += trained
            for name, value in self.net.state_dict().items():
                mean[name] += (value * (size / total)).to(value.dtype)
        self.initial = mean
        self.net.load_state_dict(mean)
        self.net.eval()
        with torch.no_grad():
            self.hits = [sum(self._hits(rows) for rows in own.split(SCAN_BATCH)) for own in self.tests]
        return samples

    def _hits(self, rows: Tensor) -> int:
        return int((self.net(self.images[rows]).argmax(1) == self.labels[rows]).sum())


def write_plain_data(folder: Path, dataset: Dataset) -> None:
    """What the plain loops read, memory-mapped: standardised float images [n, c, h, w] and labels [n]."""
    mean, std = dataset.channel_stats
    shape = tuple(dataset.images.shape)
    floats = np.lib.format.open_memmap(folder / "floats.npy", mode="w+", dtype=np.float32, shape=shape)
    for start in range(0, len(floats), 4096):
        rows = slice(start, start + 4096)
        floats[rows] = ((dataset.images[rows] / 255 - mean) / std).numpy()
    np.save(folder / "labels.npy", dataset.labels.numpy())


# fedlib ---------------------------------------------------------------------------------------------------------------


class FedlibRuns:
    """Rounds of runs that differ in their seeds only, as `simulate_together` plays them; `evaluated`: with the test of
    all clients at the end of each."""

    def __init__(
        self,
        specs: Sequence[RunSpec],
        backend: str,
        device: torch.device,
        workers: int | None = None,
        step: str = "auto",
        evaluated: bool = False,
    ):
        self.evaluated = evaluated
        self.runs = set_up_together(specs, backend, str(device), workers, step)
        self.states = [first_state(run) for run in self.runs]

    def __call__(self, t: int) -> int:
        """Play round t; returns the number of samples trained on."""
        with torch.no_grad():
            play_round(self.runs, self.states, t)
            for run, state in zip(self.runs if self.evaluated else (), self.states):
                record(run, state)
        return sum(trained_samples(run, t) for run in self.runs)


def trained_samples(run: Run, t: int) -> int:
    """Samples on which the clients of round t train, each counted in every epoch;
    batches that are skipped are left out."""
    sizes = run.sizes[participants(run.spec.seed, t, run.spec.num_clients, run.spec.join_ratio)]
    last = sizes % run.spec.batch_size
    return run.spec.local_epochs * int((sizes - np.where(last < run.work.training.min_batch, last, 0)).sum())


# variants, each in processes of its own -------------------------------------------------------------------------------


@dataclass
class Variant:
    """One row of the table: `copies` processes that do the same work side by side,
    with `threads` operator threads each.

    player: makes, in the process, what plays a round: a function of its number that returns the samples trained on.
    ratio: the name of the column in which all others are divided by this variant, if there is one.
    """

    name: str
    player: Callable[[], Callable[[int], int]]
    copies: int = 1
    threads: int = 1
    ratio: str = ""
    workers: WorkerProcesses = field(init=False)

    def __post_init__(self):
        together = context().Barrier(self.copies)
        self.workers = WorkerProcesses(self.copies, _prepare, self.threads, together)

    def play(self, rounds: Iterable[int]) -> tuple[int, float]:
        """Samples that all copies trained on, and the seconds from their common start until the last was done."""
        jobs = {copy: (self.player, tuple(rounds)) for copy in range(self.copies)}
        samples, seconds = zip(*self.workers.map(_play, jobs).values())
        return sum(samples), max(seconds)

    def close(self) -> None:
        """End the processes; those that still answer first end what they have started themselves."""
        if self.workers.pool is not None:
            with contextlib.suppress(Exception):
                self.workers.map(_close, dict.fromkeys(range(self.copies), ()))
        self.workers.stop()


_here: dict = {}  # in a worker: the barrier of its variant, and its player


def _prepare(threads: int, together) -> None:
    torch.set_num_threads(threads)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    _here["together"] = together


def _play(make: Callable, rounds: tuple[int, ...]) -> tuple[int, float]:
    if "player" not in _here:
        _here["player"] = make()
    _here["together"].wait(PATIENCE)
    start = time.perf_counter()
    samples = sum(_here["player"](t) for t in rounds)
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
    return samples, time.perf_counter() - start


def _close() -> None:
    _here["together"].wait(PATIENCE)
    for run in getattr(_here.pop("player", None), "runs", ()):
        run.backend.close()


def cpu_variants(spec: RunSpec, plain: Callable, rounds: Callable, cores: int) -> list[Variant]:
    """The rows on a CPU with `cores` cores."""

    def runs(backend: str, workers: int | None = None, step: str = "auto", evaluated: bool = False, spec=spec):
        return functools.partial(FedlibRuns, [spec], backend, torch.device("cpu"), workers, step, evaluated)

    pfedsim = spec.but(method="pfedsim", hyper={"rho": 0.0})
    whole = functools.partial(runs, "serial", evaluated=True)
    return [
        Variant("plain loop, 1 thread", plain, ratio="x plain, 1 thread"),
        Variant(f"plain loop, {cores} threads", plain, threads=cores),
        Variant(f"{cores} plain loops side by side", plain, copies=cores, ratio="x plain, side by side"),
        Variant("fedlib serial, PyTorch's steps", runs("serial", step="torch")),
        Variant("fedlib serial", runs("serial"), ratio="x FedAvg"),
        Variant("fedlib serial, pFedSim", runs("serial", spec=pfedsim)),
        Variant(f"fedlib process, {cores} workers", runs("process", cores)),
        Variant(f"{cores} fedlib runs side by side", runs("serial"), copies=cores),
        Variant("fedlib vmap", runs("vmap")),
        Variant("plain rounds, evaluated", rounds, ratio="x plain, evaluated"),
        Variant("fedlib serial, evaluated", whole(spec=spec.but(bn_stats="global"))),
        Variant("fedlib serial, evaluated, own statistics", whole()),
        Variant("fedlib serial, evaluated, pFedSim", whole(spec=pfedsim)),
    ]


def gpu_variants(spec: RunSpec, plain: Callable, device: torch.device) -> list[Variant]:
    """The rows on a GPU."""

    def runs(count: int):
        return functools.partial(FedlibRuns, [spec.but(seed=seed) for seed in range(count)], "vmap", device)

    return [
        Variant("plain loop on the card", plain, ratio="x plain"),
        Variant("fedlib vmap, 1 run", runs(1)),
        Variant(f"fedlib vmap, {SEEDS} seeds in one stack", runs(SEEDS)),
    ]


# measuring ------------------------------------------------------------------------------------------------------------


def measure(variants: Sequence[Variant], rounds: int, repeats: int) -> pd.DataFrame:
    """One row for each repeat and variant: repeat, variant, rounds, samples, seconds.
    Round 1 warms up and is left out."""
    rows = []
    with contextlib.ExitStack() as stack:
        bar = stack.enter_context(tqdm(total=len(variants) * (1 + repeats), unit="turn", leave=False))
        for variant in variants:
            stack.callback(variant.close)
        for repeat in range(1 + repeats):
            chosen = (1,) if repeat == 0 else range(2 + (repeat - 1) * rounds, 2 + repeat * rounds)
            for variant in variants:
                bar.set_description_str(("warm-up: " if repeat == 0 else "") + variant.name)
                samples, seconds = variant.play(chosen)
                bar.update()
                if repeat:
                    rows.append((repeat, variant.name, len(chosen), samples, seconds))
    return pd.DataFrame(rows, columns=["repeat", "variant", "rounds", "samples", "seconds"])


def summary(tidy: pd.DataFrame, variants: Sequence[Variant]) -> pd.DataFrame:
    """One row for each variant: samples per second (median, min, max over repeats), ratios, seconds per round."""
    tidy = tidy.assign(rate=tidy["samples"] / tidy["seconds"], each=tidy["seconds"] / tidy["rounds"])
    rates, each = (
        tidy.pivot(index="repeat", columns="variant", values=column)[[v.name for v in variants]]
        for column in ("rate", "each")
    )
    table = pd.DataFrame({"samples/s": rates.median(), "min": rates.min(), "max": rates.max()})
    for variant in variants:
        if variant.ratio:
            table[variant.ratio] = rates.div(rates[variant.name], axis=0).median()
    table["s/round"] = each.median()
    table[f"s/{HORIZON} rounds (extrapolated)"] = HORIZON * each.median()
    return table.reset_index(names="variant")


def bench(
    rounds: int = 1, repeats: int = 5, device: str = "auto", dataset: str = "", quick: bool = False, cores: int = 0
) -> tuple[str, pd.DataFrame]:
    """Measure all variants; returns what was measured, in words, and the table. Writes results/bench/bench.{csv,json}.

    rounds: in one turn of a variant. repeats: turns of every variant. dataset: "" is CIFAR-10 if it is prepared, else
    random images of its shape. quick: a tiny task, which only shows that everything runs; written to
    results/bench+quick/. Raises BadValue, DataError, InfeasiblePartition.
    """
    require(rounds >= 1, "rounds", rounds, "an integer of at least 1")
    require(repeats >= 1, "repeats", repeats, "an integer of at least 1")
    where, cores = find_device(device), cores or os.cpu_count() or 1
    with workplace() as folder, task_data(folder, dataset, quick) as (name, note):
        total = 1 + rounds * repeats
        spec = RunSpec("fedavg", dataset=name, rounds=total, eval_every=total, **(QUICK if quick else FULL))
        run, numbers = set_up(spec, "serial"), range(1, total + 1)
        who = {t: participants(spec.seed, t, spec.num_clients, spec.join_ratio) for t in numbers}
        clients = {t: [run.work.parts[i]["train"] for i in ids] for t, ids in who.items()}
        write_plain_data(folder, load(name))
        plain = functools.partial(PlainLoop, str(folder), spec, clients, where)
        if where.type == "cpu":
            tests = [parts["test"] for parts in run.work.parts]
            whole = functools.partial(PlainRounds, str(folder), spec, clients, where, tests=tests)
            variants = cpu_variants(spec, plain, whole, cores)
        else:
            variants = gpu_variants(spec, plain, where)
        tidy = measure(variants, rounds, repeats)
    table, origin = summary(tidy, variants), provenance(where, "bench")
    words = (
        f"{note}, {spec.num_clients} clients, Dir({spec.partition['alpha']:g}), join ratio {spec.join_ratio:g}, "
        f"{spec.local_epochs} local epochs of batches of {spec.batch_size}, SGD with lr {spec.lr:g}, LeNet5-BN with "
        "two pools, FedAvg if not said otherwise; rows that say evaluated: with the test of all clients, pFedSim's at "
        "two points. With own statistics of batch norm (pFedSim, and where it is said) they are computed first for "
        "every client that has never trained, which the plain rounds spare themselves.\n"
        f"{origin['device']}, {cores} cores, torch {origin['versions']['torch']}. Medians of {repeats} "
        f"turns of {rounds} round(s) each, after a warm-up round; set-up and start of workers are left out."
    )
    save(table, "bench", quick, {"work": words, "spec": spec.to_dict(), "cores": cores, "turns": tidy, **origin})
    return words, table


def save(table: pd.DataFrame, name: str, quick: bool, about: dict) -> Path:
    """Write results/bench/<name>.csv, and beside it as JSON what it is about; returns the place of the table."""
    path = home() / "results" / ("bench+quick" if quick else "bench") / f"{name}.csv"
    about = {k: json.loads(v.to_json(orient="records")) if isinstance(v, pd.DataFrame) else v for k, v in about.items()}
    write_atomically(path, table.to_csv(index=False, float_format="%.5g").encode())
    write_atomically(path.with_suffix(".json"), (json.dumps(about, indent=1) + "\n").encode())
    return path


# data -----------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def workplace() -> Iterator[Path]:
    """A folder for temporary files of this process and those it starts, removed at the end however they end."""
    with tempfile.TemporaryDirectory(prefix="fedlib-bench-") as folder, changed_environment(TMPDIR=folder):
        yield Path(folder)


@contextlib.contextmanager
def changed_environment(**values: str) -> Iterator[None]:
    """Environment variables, for this process and those it starts."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


@contextlib.contextmanager
def task_data(folder: Path, dataset: str, quick: bool) -> Iterator[tuple[str, str]]:
    """The data set that is asked for, or CIFAR-10, or random images in its place: (name to load it by, description)."""
    if dataset or (not quick and "cifar10" in available()):
        name = dataset or "cifar10"
        yield name, f"{name}, {len(load(name).labels):,} images"
    else:
        count = 400 if quick else 60_000
        with random_data(folder, "random", count, (32, 32, 3), num_classes=10):
            yield "random", f"SYNTHETIC data (CIFAR-10 is not prepared here): {count:,} random images of its shape"


@contextlib.contextmanager
def random_data(folder: Path, name: str, count: int, shape: tuple[int, int, int], num_classes: int) -> Iterator[None]:
    """A prepared data set of random pixels (height, width, channels) with balanced labels,
    which `load` finds meanwhile."""
    place, draw = folder / name, rng(0, "random data")
    place.mkdir()
    images = draw.integers(256, size=(count, *shape), dtype=np.uint8)
    np.save(place / "images.npy", images)
    np.save(place / "labels.npy", draw.permutation(np.arange(count) % num_classes))
    np.save(place / "is_test.npy", np.zeros(count, dtype=bool))
    meta = {"name": name, "classes": [str(c) for c in range(num_classes)], "sha256": hashlib.sha256(images).hexdigest()}
    (place / "meta.json").write_text(json.dumps(meta), "utf-8")
    with changed_environment(FEDLIB_DATA=str(folder)):
        yield


def table_text(table: pd.DataFrame) -> str:
    """The table as aligned text: names to the left, numbers to the right."""
    short = {
        column: (lambda v: f"{v:.2f}" if abs(v) < 10 else f"{v:,.0f}")
        if pd.api.types.is_numeric_dtype(table[column])
        else f"{{:<{table[column].str.len().max()}}}".format
        for column in table
    }
    return table.to_string(index=False, formatters=short)
