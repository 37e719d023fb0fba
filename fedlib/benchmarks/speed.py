"""How fast is fedlib? Client-samples per second of its backends beside plain PyTorch loops on the same clients.

The plain loops stand below and use nothing of fedlib's engine: stock modules, stock optimiser, float images indexed
from one tensor, no server. Every variant has processes of its own, all of which are started, set up and warmed up by
one round before anything is measured; then the variants take turns (A B C A B C ...), so that a machine whose speed
drifts is slow for all of them. A ratio is the median over the repeats of the ratio within one repeat, in which all
variants train the same clients. Nothing is evaluated, but in the rows that say so: there a round ends with a new model
of the server and the test of every client.

On a GPU the plain loop trains one client after the other, fedlib stacks all clients of one run, or of five seeds.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn
from tqdm import tqdm

from fedlib.analysis.names import counted
from fedlib.base.draws import participants, rng
from fedlib.base.errors import require
from fedlib.base.files import home, write_atomically
from fedlib.base.provenance import provenance
from fedlib.data import Dataset, load
from fedlib.data.prepare import build
from fedlib.data.readers import Content
from fedlib.engine.batches import SCAN_BATCH
from fedlib.engine.evaluate import record
from fedlib.engine.setup import Run, find_device, first_state, set_up, set_up_together
from fedlib.engine.simulate import run_round
from fedlib.engine.worker_processes import WorkerProcesses, context
from fedlib.spec import RunSpec

CIFAR10 = ((32, 32, 3), 10)  # shape of an image, classes
SEEDS = 5  # runs in one stack on a GPU
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
    """The local training of a round's clients, one after the other, all from the same initial parameters. With the test
    samples of every client, `tests`, whole rounds of FedAvg: also the mean of the weights, and the tests."""

    def __init__(self, folder, spec: RunSpec, clients: dict[int, list[np.ndarray]], device: torch.device, tests=()):
        """folder: images and labels as `write_plain_data` leaves them; clients: their training samples by round."""
        images, labels = (np.load(Path(folder) / f"{name}.npy", mmap_mode="c") for name in ("floats", "labels"))
        self.images, self.labels = torch.from_numpy(images).to(device), torch.from_numpy(labels).to(device)
        self.clients = {t: [torch.from_numpy(own).to(device) for own in each] for t, each in clients.items()}
        self.tests = [torch.from_numpy(own).to(device) for own in tests]
        self.spec, self.net = spec, plain_net(images.shape[1:], int(labels.max()) + 1).to(device)
        self.initial = {name: value.clone() for name, value in self.net.state_dict().items()}

    def __call__(self, t: int) -> int:
        """Train the clients of round t; returns the number of samples trained on."""
        total, samples = sum(map(len, self.clients[t])), 0
        mean = {name: torch.zeros_like(value) for name, value in self.initial.items()}
        for own in self.clients[t]:
            self.net.load_state_dict(self.initial)
            batches = plain_batches(own, self.spec.local_epochs, self.spec.batch_size)
            samples += plain_training(self.net, self.images, self.labels, batches, self.spec.lr)
            for name, value in self.net.state_dict().items() if self.tests else ():
                mean[name] += (value * (len(own) / total)).to(value.dtype)
        if self.tests:
            self.initial, x, y, net = mean, self.images, self.labels, self.net.eval()
            net.load_state_dict(mean)
            with torch.no_grad():
                each = (own.split(SCAN_BATCH) for own in self.tests)
                self.hits = [sum(int((net(x[k]).argmax(1) == y[k]).sum()) for k in rows) for rows in each]
        return samples


def write_plain_data(folder: Path, dataset: Dataset) -> None:
    """What the plain loops read, memory-mapped: standardised float images [n, c, h, w] and labels [n]."""
    mean, std = (value.float() for value in dataset.channel_stats)
    np.save(folder / "floats.npy", ((dataset.images / 255 - mean) / std).numpy())
    np.save(folder / "labels.npy", dataset.labels.numpy())


# fedlib ---------------------------------------------------------------------------------------------------------------


class FedlibRuns:
    """Rounds of runs that differ in their seeds only, as `simulate_together` runs them; `evaluated`: with the test of
    all clients at the end of each."""

    def __init__(
        self, specs: Sequence[RunSpec], backend: str, device: torch.device, workers: int | None = None,
        step: str = "auto", evaluated: bool = False,
    ):  # fmt: skip
        self.evaluated = evaluated
        self.runs = set_up_together(specs, backend, str(device), workers, step)
        self.states = [first_state(run) for run in self.runs]

    def __call__(self, t: int) -> int:
        """Do round t; returns the number of samples trained on."""
        with torch.no_grad():
            run_round(self.runs, self.states, t)
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

    player: makes, in the process, what does a round: a function of its number that returns the samples trained on.
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
        if self.workers.running:
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
        return partial(FedlibRuns, [spec], backend, torch.device("cpu"), workers, step, evaluated)

    pfedsim = spec.but(method="pfedsim", hyper={"rho": 0.0})
    whole = partial(runs, "serial", evaluated=True)
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
        return partial(FedlibRuns, [spec.but(seed=seed) for seed in range(count)], "vmap", device)

    return [
        Variant("plain loop on the card", plain, ratio="x plain"),
        Variant("fedlib vmap, 1 run", runs(1)),
        Variant(f"fedlib vmap, {SEEDS} seeds in one stack", runs(SEEDS)),
    ]


# measuring ------------------------------------------------------------------------------------------------------------


def measure(variants: Sequence[Variant], rounds: int, repeats: int) -> pd.DataFrame:
    """One row for each repeat and variant: repeat, variant, rounds, samples, seconds. Round 1 is left out."""
    rows = []
    with contextlib.ExitStack() as stack:
        for variant in variants:
            stack.callback(variant.close)
        for repeat, variant in tqdm([*product(range(1 + repeats), variants)], unit="turn", leave=False):
            chosen = (1,) if repeat == 0 else range(2 + (repeat - 1) * rounds, 2 + repeat * rounds)
            rows.append((repeat, variant.name, len(chosen), *variant.play(chosen)))
    rows = rows[len(variants) :]
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
    return table.assign(**{"s/round": each.median()}).reset_index(names="variant")


def bench(rounds: int = 1, repeats: int = 5, device: str = "auto", quick: bool = False) -> tuple[str, pd.DataFrame]:
    """Measure all variants; returns what was measured, in words, and the table. Writes results/bench/bench.{csv,json}.

    The images are random, of CIFAR-10's number and shape: what they show takes no time. rounds: in one turn of a
    variant. repeats: turns of every variant. quick: a tiny task, which only shows that everything runs; written to
    results/bench+quick/. Raises BadValue.
    """
    require(rounds >= 1, "rounds", rounds, "an integer of at least 1")
    require(repeats >= 1, "repeats", repeats, "an integer of at least 1")
    where, cores = find_device(device), os.cpu_count() or 1
    count = 400 if quick else 60_000
    with tempfile.TemporaryDirectory(prefix="fedlib-") as place, random_data(Path(place), "random", count, *CIFAR10):
        total = 1 + rounds * repeats
        spec = RunSpec("fedavg", dataset="random", rounds=total, eval_every=total, **(QUICK if quick else FULL))
        parts, numbers = set_up(spec, "serial").work.parts, range(1, total + 1)
        who = {t: participants(spec.seed, t, spec.num_clients, spec.join_ratio) for t in numbers}
        clients = {t: [parts[i]["train"] for i in ids] for t, ids in who.items()}
        write_plain_data(Path(place), load("random"))
        plain = partial(PlainLoop, place, spec, clients, where)
        whole = partial(plain, tests=[own["test"] for own in parts])
        on_cpu = where.type == "cpu"
        variants = cpu_variants(spec, plain, whole, cores) if on_cpu else gpu_variants(spec, plain, where)
        tidy = measure(variants, rounds, repeats)
    table, origin = summary(tidy, variants), provenance(where, "bench")
    words = (
        f"{count:,} random images of CIFAR-10's shape, {spec.num_clients} clients, Dir({spec.partition['alpha']:g}), "
        f"participation rate {spec.join_ratio:g}, {spec.local_epochs} local epochs of batches of {spec.batch_size}, "
        f"SGD with lr {spec.lr:g}, LeNet5-BN with "
        "two max-pool layers, FedAvg unless a row names another method. Rows that say evaluated also test all clients, "
        "pFedSim at two points; batch-norm statistics of clients that never trained are computed first.\n"
        f"{origin['device']}, {cores} cores, torch {origin['versions']['torch']}. Medians of {repeats} "
        f"repetitions of {counted(rounds, 'round')} each, after a warm-up round, without set-up and start of workers."
    )
    about = {"work": words, "spec": spec.to_dict(), "cores": cores, **origin}
    about["turns"] = json.loads(tidy.to_json(orient="records"))
    path = home() / "results" / ("bench+quick" if quick else "bench") / "bench.csv"
    write_atomically(path, table.to_csv(index=False, float_format="%.5g").encode())
    write_atomically(path.with_suffix(".json"), (json.dumps(about, indent=1) + "\n").encode())
    return words, table


# data -----------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def random_data(folder: Path, name: str, count: int, shape: tuple[int, int, int], num_classes: int) -> Iterator[None]:
    """A prepared data set of random pixels (height, width, channels) with balanced labels,
    which `load` finds meanwhile, in worker processes too."""
    draw = rng(0, "random data")

    def read(allocate: Callable) -> Content:
        allocate(count, *shape)[:] = draw.integers(256, size=(count, *shape), dtype=np.uint8)
        labels = draw.permutation(np.arange(count) % num_classes)
        return Content(labels, np.zeros(count, dtype=bool), tuple(map(str, range(num_classes))))

    build(folder / name, name, read)
    with mock.patch.dict(os.environ, FEDLIB_DATA=str(folder)):
        yield
