"""A run before its first round: the data on its device, who owns what, the model, the method, the backend."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from fedlib.algorithms.api import Algorithm, Setting
from fedlib.base import draws, tree
from fedlib.base.errors import BadValue, require
from fedlib.base.provenance import is_gpu
from fedlib.data import Partition, load
from fedlib.data.batch import Batch
from fedlib.engine import backends
from fedlib.engine.batches import EVALUATE, TRAIN, ClientTurn, DeviceData, Training
from fedlib.engine.client_data import PlainData
from fedlib.engine.privacy_budget import not_protected
from fedlib.engine.state import State, Transport
from fedlib.measures import check_final_measures
from fedlib.models import Model, build
from fedlib.privacy import noise
from fedlib.spec import RECOMPUTED, RunSpec

DTYPES = {"float32": torch.float32, "float64": torch.float64, "tf32": torch.float32, "bf16": torch.float32}


@dataclass(frozen=True)
class Workload:
    """The model, the data on its device, the local training settings, and who owns what."""

    model: Model
    source: DeviceData
    training: Training
    parts: Sequence[dict[str, np.ndarray]]  # per client: sample indices by part ("train", "test", maybe "val")


@dataclass(frozen=True)
class Run:
    """What does not change during a run."""

    spec: RunSpec
    method: Algorithm
    warm_up: tuple[Algorithm | None, int]  # the method of the first rounds, and how many
    setting: Setting
    partition: Partition
    work: Workload
    transport: Transport
    backend: backends.Serial
    device: torch.device
    tests: np.ndarray  # test samples by client and class, int64 [N, C]
    data_checksum: str
    groups: Sequence[str] = ()  # by client, where the method has `groups`
    joined: Run | None = None  # where there are newcomers: the run with them, who are the last clients (engine.join)

    @property
    def sizes(self) -> np.ndarray:
        """Training samples of every client, int64 [N]."""
        return np.array([len(parts["train"]) for parts in self.work.parts])

    def turn(self, client: int, purpose: int, round: int) -> ClientTurn:
        """What a backend needs to compute with one client."""
        group, work = self.groups[client] if self.groups else "", self.work
        turn = ClientTurn(work.source, work.training, work.parts[client], (purpose, round, client), group)
        return replace(turn, stated=self.stated(round)) if turn.private else turn

    def stated(self, t: int) -> noise.Stated:
        """What the method of round t says of its noisy gradients. Raises BadValue if it says nothing."""
        method = self.warm_up[0] if t <= self.warm_up[1] else self.method
        return noise.stated_by(method, self.spec.rounds, t, self.work.training.local_epochs)

    def data_of(self, client: int, **parts: np.ndarray) -> PlainData:
        """One client's data, to look at outside of training; parts: sample indices in place of its own."""
        turn = self.turn(client, EVALUATE, 0)
        return PlainData(replace(turn, parts={**turn.parts, **parts}))

    def minibatches(self, client: int, t: int, epochs: int, phase: int = 0) -> Iterator[Batch]:
        """What a client trains on in round t, to look at or to train by hand: the minibatches of its pass number
        `phase` (0, 1, ...) over so many epochs."""
        own = torch.from_numpy(self.work.parts[client]["train"])
        for (rows,) in self.turn(client, TRAIN, t).plan(phase, epochs):
            yield self.work.source.batch(own[torch.from_numpy(rows)])

    def acting(self, state: State) -> Algorithm:
        """The method whose state this is: that of the warm-up, or the run's own."""
        return self.warm_up[0] if state.warming_up else self.method

    def points(self, state: State) -> tuple[str, ...]:
        """The evaluation points now."""
        return self.spec.eval_points or self.acting(state).eval_points(state.server)


def set_up_together(
    specs: Sequence[RunSpec], backend: str, device: str, workers: int | None = None, step: str = "auto"
) -> list[Run]:
    """Runs that share a backend and the data on their device."""
    alike = len({spec.but(seed=0, partition_seed=0).id for spec in specs}) == 1
    require(alike, "specs", [spec.label for spec in specs], "runs that differ in seed and partition_seed only")
    first = set_up(specs[0], backend, device, workers, step=step)
    return [first, *(set_up(spec, backend, device, workers, beside=first, step=step) for spec in specs[1:])]


def set_up(
    spec: RunSpec,
    backend: str = "auto",
    device: str = "cpu",
    workers: int | None = None,
    beside: Run | None = None,
    step: str = "auto",
) -> Run:
    """Load the data, divide it, build the model. `beside` gives a run whose data and backend are used as well; step: as
    in `fedlib.models.Model`."""
    where = find_device(device)
    dataset, dtype = load(spec.dataset), DTYPES[spec.precision]
    require(spec.precision != "tf32" or is_gpu(where), "precision", "tf32", "float32, float64 or bf16 on a CPU")
    num_classes = len(dataset.classes)
    model = build(spec.model, dataset.shape, num_classes, seed=spec.seed, **spec.model_options).to(where, dtype)
    model.autocast = torch.bfloat16 if spec.precision == "bf16" else None
    model.step = step
    partition, parts = spec.divide(dataset)
    partition, parts = partition.of(spec.arrival), [parts[i] for i in spec.arrival]
    labels = dataset.labels.numpy()
    tests, counts = (
        np.stack([np.bincount(labels[own[part]], minlength=num_classes) for own in parts]) for part in ("test", "train")
    )
    if spec.mechanism.in_steps:
        noise.check_model(model)
    smallest = 2 if model.norms else 1
    source = beside.work.source if beside else DeviceData(dataset, where, dtype, spec.pixels)
    each = (spec.local_epochs, spec.batch_size, spec.lr, spec.seed)
    training = Training(*each, smallest, spec.mechanism, spec.batch_order)
    for point in spec.eval_points:
        known = bool(model.running) or not point.endswith(RECOMPUTED)
        require(known, "eval_points", point, f"a point without {RECOMPUTED}, for {spec.model} has no batch norm")
    method = spec.algorithm
    for name in method.siblings:
        model.sibling(name)  # which builds it, before backends copy the model
    setting = Setting(spec.num_clients, spec.rounds, num_classes, spec.seed, torch.from_numpy(counts))
    groups = method.groups(setting)
    check_final_measures(spec, model, dataset, groups)
    name, _ = backends.pick(backend, where)
    in_use = beside.backend if beside else backends.make(name, model, where, workers)
    in_use.model.insist(step)
    run = Run(
        spec=spec,
        method=method,
        warm_up=method.warm_up(setting),
        setting=setting,
        partition=partition,
        work=Workload(model, source, training, parts),
        transport=Transport(spec.bn_stats, model.running, model.theta0),
        backend=in_use,
        device=where,
        tests=tests,
        data_checksum=dataset.sha256,
        groups=groups,
    )
    check_privacy(run)
    check_steps(run)
    if not spec.unseen:
        return run
    joining = replace(run.work, training=replace(training, local_epochs=spec.join_epochs))
    return replace(without_newcomers(run), joined=replace(run, work=joining))


def check_privacy(run: Run) -> None:
    """Raise BadValue for a method that does not state its noisy gradients; warn where there is no finite ε for it."""
    spec = run.spec
    if spec.mechanism.in_steps:
        run.stated(1), run.stated(spec.rounds)
    if reason := not_protected(spec):
        warnings.warn(f"privacy = {spec.privacy!r} gives {spec.method} no finite epsilon: {reason}", stacklevel=3)


def check_steps(run: Run) -> None:
    """Raise BadValue for a run in which nobody who takes part, or less than half of the members, or its method, takes a
    training step; warn of fewer such clients."""
    spec, training, N = run.spec, run.work.training, run.spec.num_members
    trains = np.minimum(run.sizes, training.batch_size) >= training.min_batch
    rounds, idle = range(1, spec.rounds + 1), np.flatnonzero(~trains)
    some = ", ".join(f"client {i}: {run.sizes[i]}" for i in idle[:5]) + (", ..." if len(idle) > 5 else "")
    why = f"{len(idle)} of {spec.num_clients} clients have no minibatch of {training.min_batch} or more samples to "
    why += f"train on ({some}; batch_size = {training.batch_size})"
    taking_part = (draws.participants(spec.seed, t, N, spec.join_ratio) for t in rounds)
    if trains[:N].mean() < 0.5 or not any(trains[ids].any() for ids in taking_part):
        advice = "more samples a client" if training.batch_size >= training.min_batch else "a larger batch_size"
        advice += ", or a model without batch norm" if training.min_batch > 1 else ""
        raise BadValue(f"{why}: no client, or fewer than half, would train; expected {advice}")
    if len(idle):
        warnings.warn(f"{why}; they keep what they have", stacklevel=3)
    methods = [run.warm_up[0] if t <= run.warm_up[1] else run.method for t in rounds]
    passes = [method.passes and method.passes(spec.rounds, t, spec.local_epochs) for t, method in zip(rounds, methods)]
    if not any(each is None or each for each in passes):
        raise BadValue(f"{spec.method} with {spec.hyper} takes no training step; expected at least one epoch of it")


def without_newcomers(run: Run) -> Run:
    """A run of all clients as one of the members alone: nothing in it is the newcomers' or knows of them."""
    N = run.spec.num_members
    setting = replace(run.setting, num_clients=N, class_counts=run.setting.class_counts[:N])
    own = {"work": replace(run.work, parts=run.work.parts[:N]), "partition": run.partition.of(range(N))}
    return replace(run, setting=setting, tests=run.tests[:N], groups=run.groups[:N], **own)


def first_state(run: Run) -> State:
    """The state before round 1."""
    N, warming_up = run.setting.num_clients, run.warm_up[1] > 0
    method = run.warm_up[0] if warming_up else run.method
    server, clients = method.init(run.work.model, run.setting)
    state = State(
        server=server,
        clients=clients,
        stats=run.transport.initial_stats(N, method.num_models),
        trained=torch.zeros(N, dtype=torch.bool),
        warming_up=warming_up,
    )
    if run.spec.mechanism.in_uploads:
        state.released = tree.repeat({name: run.work.model.theta0[name] for name in run.work.model.trainable}, N)
    remember_uploads(run, state)
    return state


def remember_uploads(run: Run, state: State) -> None:
    """Begin to keep every client's last upload, if it is evaluated and the server does not keep it itself."""
    if run.acting(state).stored_upload is not None:
        state.uploads = None
    elif any(point.startswith("post") for point in run.points(state)) and state.uploads is None:
        messages = run.acting(state).messages(state.server, range(run.setting.num_clients))
        state.uploads = tree.map(torch.clone, messages)


def find_device(name: str) -> torch.device:
    """A torch device by name; "auto" is CUDA if there is one. Raises BadValue if it is missing:
    never a silent CPU run."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    device = None
    with contextlib.suppress(RuntimeError):
        device = torch.device(name)
    known = device is not None and (device.type == "cpu" or is_gpu(device))
    require(known, "device", name, "auto, cpu, cuda or cuda:N")
    found = torch.cuda.device_count()
    if device.type == "cuda" and (not torch.cuda.is_available() or (device.index or 0) >= found):
        raise BadValue(f"device = {name!r} is not available; CUDA devices found: {found}; accepted: auto, cpu")
    if device.type == "cuda" and device.index is None:  # what tensors call it, and what recordings are kept under
        return torch.device("cuda", torch.cuda.current_device())
    return device


@contextlib.contextmanager
def arithmetic(precision: str) -> Iterator[None]:
    """No gradients, TF32 only where asked, and one operator thread: small convolutions gain little from more, and
    numbers do not depend on the machine's cores."""
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = torch.get_num_threads(), matmul.allow_tf32, cudnn.allow_tf32
    torch.set_num_threads(1)
    matmul.allow_tf32 = cudnn.allow_tf32 = precision == "tf32"
    try:
        with torch.no_grad():
            yield
    finally:
        torch.set_num_threads(before[0])
        matmul.allow_tf32, cudnn.allow_tf32 = before[1:]
