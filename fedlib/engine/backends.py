"""How clients are computed: one after the other, stacked in one program, or side by side in worker processes.

A backend is called as backend(fn, turns, *trees): fn(model, *trees of client k, data of client k) for every turn k, the
results stacked [K, ...]; trees are stacked [K, ...]. Every backend returns what `Serial`, the reference, returns:
`Process` bit for bit, `Vmap` up to rounding. `seconds` adds up the time spent on data and on steps.
"""

from __future__ import annotations

import os
import pickle
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch

from fedlib.base import tree
from fedlib.base.errors import choose, require
from fedlib.base.provenance import is_gpu
from fedlib.engine.batches import SCAN_BATCH, TRAIN, ClientTurn
from fedlib.engine.client_data import PlainData, StackedData
from fedlib.engine.cuda_graph import give_back
from fedlib.engine.worker_processes import WorkerProcesses
from fedlib.models import Model
from fedlib.privacy.noise import held

STACK = 32  # most clients in one stack on a CPU; on a GPU its memory decides
LAUNCH = {"cpu": 0.5}  # cost of a stacked step beyond its clients', in client-steps; decides how stacks are cut
FILLING = 4e7  # on a GPU: numbers that a step can read and write while it is launched, a guess; see `launch_cost`
WORTH_WORKERS = 60_000  # fewest client-samples of a run for which starting worker processes pays (about half a minute)


class Serial:
    """One client after the other."""

    name = "serial"

    def __init__(self, model: Model, device: torch.device, watch: Callable | None = None):
        self.model, self.seconds, self.watch = model, Counter(), watch

    def __call__(self, fn: Callable, turns: Sequence[ClientTurn], *trees):
        """`watch(step, state)`, if given, is called after every training step."""
        results = []
        for k, turn in enumerate(turns):
            data = PlainData(turn, self.seconds, self.watch)
            # copies, at addresses like those in a worker process: last bits of PyTorch's products depend on them
            own = [tree.map(torch.clone, tree.rows(t, k)) for t in trees]
            results.append(fn(self.model, *own, data))
        return tree.stack(results)

    def close(self) -> None:
        """Give back what the backend holds."""


class Vmap(Serial):
    """All clients in one program (torch.func.vmap), in stacks of clients of similar size.

    Results go back into the order of `turns`. A stack that does not fit into the GPU's memory is tried once more with
    all that is held for later given back, then halved.
    """

    name = "vmap"

    def __init__(self, model: Model, device: torch.device, cuda_graph: bool | None = None):
        super().__init__(model.for_stack(), device)
        self.device, self.cuda_graph = device, cuda_graph
        self.most: dict[bool, int] = {}  # clients in one stack, where they train and where they are tested

    def __call__(self, fn: Callable, turns: Sequence[ClientTurn], *trees):
        training = turns[0].draw[0] == TRAIN
        if training not in self.most:
            fit = clients_that_fit(self.model, turns[0], self.device) if is_gpu(self.device) else STACK
            self.most[training] = fit
        launch, stacks = launch_cost(self.model, turns[0], self.device), []
        for group in dict.fromkeys(turn.group for turn in turns):
            members = np.array([k for k, turn in enumerate(turns) if turn.group == group])
            sizes = [len(turns[k].parts["train"]) for k in members]
            stacks += [members[chosen] for chosen in cut(sizes, self.most[training], launch)]
        results = [
            self._halving(fn, [turns[k] for k in chosen], [tree.rows(t, chosen) for t in trees]) for chosen in stacks
        ]
        order = np.argsort(np.concatenate(stacks))
        return tree.rows(tree.concat(results), order)

    def _halving(self, fn, turns, trees, again: bool = True):
        try:
            return self._stacked(fn, turns, trees)
        except torch.OutOfMemoryError:
            if len(turns) == 1 and not again:
                raise
        give_back(self.device)
        if again:  # what earlier stacks left may have been in the way
            return self._halving(fn, turns, trees, again=False)
        self.most[turns[0].draw[0] == TRAIN] = half = (len(turns) + 1) // 2
        parts = [
            self._halving(fn, turns[a : a + half], [tree.rows(t, slice(a, a + half)) for t in trees]) for a in (0, half)
        ]
        return tree.concat(parts)

    def _stacked(self, fn, turns, trees):
        def one(slot, *mine):
            return fn(self.model, *mine, StackedData(turns, slot, self.seconds, self.cuda_graph))

        slots = torch.arange(len(turns), device=self.device)
        return torch.func.vmap(one)(slots, *trees)


class Process(Serial):
    """Clients side by side in worker processes of one thread each, the largest first."""

    name = "process"

    def __init__(self, model: Model, device: torch.device, count: int | None = None):
        super().__init__(model, device)
        require(
            device.type == "cpu", "backend", "process", "serial or vmap on a GPU, which workers would have to share"
        )
        self.workers, self.source = WorkerProcesses(count or os.cpu_count() or 1, hold), None

    def __call__(self, fn: Callable, turns: Sequence[ClientTurn], *trees):
        if len(turns) == 1:
            return super().__call__(fn, turns, *trees)
        if self.source is not turns[0].source:
            self.source = turns[0].source
            self.workers.stop()  # new ones get it; pickled here, since multiprocessing gives tensors a shared memory
            self.workers.setup_arguments = (pickle.dumps((self.model, self.source), protocol=5),)
        order = np.argsort([-sum(map(len, turn.parts.values())) for turn in turns], kind="stable")
        jobs = {
            int(k): (fn, replace(turns[k], source=None), *(as_arrays(tree.rows(t, int(k))) for t in trees))
            for k in order
        }
        done = self.workers.map(one_turn, jobs)
        for _, seconds in done.values():
            self.seconds.update(seconds)
        return tree.stack([tree.map(torch.from_numpy, done[k][0]) for k in range(len(turns))])

    def close(self) -> None:
        self.workers.stop()


_held: list = []  # in a worker: the model and the data


def hold(pickled: bytes) -> None:
    """In a worker: keep the model and the data, which travel once."""
    _held.extend(pickle.loads(pickled))


def one_turn(fn, turn, *trees):
    """In a worker: the result of one client and the seconds it took, by purpose."""
    model, source = _held
    seconds = Counter()
    data = PlainData(replace(turn, source=source), seconds)
    with torch.no_grad():
        result = fn(model, *(tree.map(torch.from_numpy, t) for t in trees), data)
    return as_arrays(result), seconds


def as_arrays(node):
    """A tree of tensors as a tree of NumPy arrays, which travel between processes without shared memory."""
    return tree.map(lambda leaf: torch.as_tensor(leaf).contiguous().numpy(), node)


def cut(sizes: Sequence[int], most: int, launch: float) -> list[np.ndarray]:
    """Divide clients into stacks of at most `most`, each as long as its largest client, at the least cost.

    A stacked step costs launch + its clients, so a stack costs size of its largest client * (launch + clients). Returns
    the positions in every stack, largest clients first.
    """
    order = np.argsort(-np.asarray(sizes), kind="stable")
    best, start = [0.0], []
    for end in range(1, len(order) + 1):
        first = np.arange(max(0, end - most), end)
        costs = np.array(best)[first] + (np.asarray(sizes)[order[first]] + 1) * (launch + end - first)
        start.append(int(first[costs.argmin()]))
        best.append(float(costs.min()))
    stacks, end = [], len(order)
    while end:
        stacks.insert(0, order[start[end - 1] : end])
        end = start[end - 1]
    return stacks


def clients_that_fit(model: Model, turn: ClientTurn, device: torch.device) -> int:
    """How many clients fit into a GPU's memory at a time: an estimate, corrected by halving.

    A client that trains needs its parameters several times, and its activations with their gradients; with DP-SGD also
    the gradients of single records. One that is tested has larger batches, though their activations go as they come.
    """
    size = torch.empty((), dtype=turn.source.dtype).element_size()
    parameters, activations, rows = *sizes(model, turn), turn.training.batch_size
    numbers = 8 * parameters + 4 * activations * rows
    if turn.private:
        numbers += 2 * min(held(device), parameters * rows)
    if turn.draw[0] != TRAIN:
        numbers = max(numbers, 2 * parameters + activations * SCAN_BATCH)
    return max(1, int(0.6 * free_memory(device) / (size * numbers)))


def sizes(model: Model, turn: ClientTurn) -> tuple[int, int]:
    """Numbers in a model, and in what its layers make of one image."""
    return sum(leaf.numel() for leaf in model.theta0.values()), model.activations(turn.source.images.shape[1:])


def free_memory(device: torch.device) -> int:
    """Bytes of a GPU that nothing uses: those that PyTorch only holds for later count as free."""
    free, _ = torch.cuda.mem_get_info(device)
    return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)


def launch_cost(model: Model, turn: ClientTurn, device: torch.device) -> float:
    """What a stacked step costs beyond its clients', in steps of one client.

    On a GPU the kernels of small networks take as long to start as several clients take to compute, those of large ones
    do not; a rule rather than a measurement, so that stacks, and with them roundings, are the same every time.
    """
    if not is_gpu(device):
        return LAUNCH["cpu"]
    parameters, activations = sizes(model, turn)
    numbers = 8 * parameters + 4 * activations * turn.training.batch_size
    return min(10.0, max(1.0, FILLING / numbers))


def make(name: str, model: Model, device: torch.device, workers: int | None = None) -> Serial:
    """The backend called `name`; `workers`: processes of "process" (default: one per core)."""
    return Process(model, device, workers) if name == "process" else BACKENDS[name](model, device)


BACKENDS = {"serial": Serial, "vmap": Vmap, "process": Process}


def check(name: str) -> None:
    """Raise BadValue unless `name` is a backend or "auto"."""
    choose("backend", name, ("auto", *BACKENDS))


def pick(name: str, device: torch.device, samples: int = 0, cores: int = 1) -> tuple[str, str]:
    """The backend to use for `name`, and why.

    "auto" is vmap on a GPU. On a CPU, where stacking small convolutions gains nothing, it is process for one run alone
    on several cores (`cores` > 1) that trains on `samples` >= WORTH_WORKERS samples, and serial otherwise: runs side by
    side use the cores better than the clients of one run, because no run waits for its slowest client.
    """
    check(name)
    if name != "auto":
        return name, "as asked"
    if device.type != "cpu":
        return "vmap", "a GPU is kept busy by many clients at once"
    if cores > 1 and samples >= WORTH_WORKERS:
        return "process", f"one run alone on {cores} cores, {samples:,} samples to train on"
    return "serial", "a short run, or parallel runs already use the cores"
