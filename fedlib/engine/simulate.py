"""The round loop: RunSpec in, RunResult out."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from fedlib import algorithms, draws, tree
from fedlib.algorithms.api import Setting
from fedlib.data import Dataset, Partition, load, make_partition, split_client
from fedlib.engine import backends
from fedlib.engine.backends import Workload
from fedlib.engine.checkpoint import Checkpoint
from fedlib.engine.evaluate import evaluate, personal_models, summarise
from fedlib.engine.fold import Source, Training
from fedlib.engine.transport import Transport
from fedlib.errors import BadValue, Diverged
from fedlib.measures import MEASURES
from fedlib.models import build
from fedlib.provenance import provenance
from fedlib.results import RunResult
from fedlib.spec import RunSpec

TRAIN = 0  # first number of a draw; evaluation uses 1


@dataclass(frozen=True)
class Run:
    """What does not change during a run."""

    spec: RunSpec
    method: object
    setting: Setting
    partition: Partition
    work: Workload
    transport: Transport
    backend: Callable
    backend_name: str
    device: torch.device
    tests: np.ndarray  # test samples by client and class, int64 [N, C]
    data_checksum: str

    @property
    def sizes(self) -> np.ndarray:
        """Training samples of every client, int64 [N]."""
        return np.array([len(parts["train"]) for parts in self.work.parts])


def simulate(
    spec: RunSpec,
    *,
    backend: str = "auto",
    device: str = "cpu",
    progress: Callable[[int], None] | None = None,
    checkpoint_every: float | None = None,
) -> RunResult:
    """Train and evaluate one run.

    backend: auto, serial or vmap. device: "cpu", "cuda", "cuda:1", ... or "auto". progress: called with the number of
    rounds done. checkpoint_every: seconds between checkpoints, None for none; a run that was killed continues from its
    last checkpoint and ends with the numbers of an uninterrupted one.

    Raises BadValue for values that do not fit the data, DataError, InfeasiblePartition, and Diverged.
    """
    with _one_thread(), torch.no_grad():
        started = time.monotonic()
        run = set_up(spec, backend, device)
        checkpoint = None
        if checkpoint_every is not None:
            place = str(run.device).replace(":", "")
            checkpoint = Checkpoint(f"{spec.id}-{run.backend_name}-{place}", checkpoint_every)
        state = (checkpoint and checkpoint.load()) or first_state(run)
        for t in range(state["round"] + 1, spec.rounds + 1):
            if progress:
                progress(t - 1)
            play_round(run, state, t)
            if t % spec.eval_every == 0 or t == spec.rounds:
                record(run, state)
            if checkpoint and t < spec.rounds:
                state["seconds"]["wall"] += time.monotonic() - started
                started = time.monotonic()
                checkpoint.save(state)
        arrays = measured(run, state)
        state["seconds"]["wall"] += time.monotonic() - started
        result = finished(run, state, arrays)
        if progress:
            progress(spec.rounds)
        return result


def set_up(spec: RunSpec, backend: str = "auto", device: str = "cpu", dataset: Dataset | None = None) -> Run:
    """Load the data, divide it, build the model. `dataset` replaces the one that the spec names."""
    where = find_device(device)
    backend_name, compute = backends.pick(backend, where)
    dataset = load(spec.dataset) if dataset is None else dataset
    dtype = getattr(torch, spec.precision)
    num_classes = len(dataset.classes)
    model = build(spec.model, dataset.shape, num_classes, seed=spec.seed, **spec.model_options).to(where, dtype)
    labels = dataset.labels.numpy()
    partition = make_partition(labels, spec.num_clients, spec.scheme, spec.partition_seed, **spec.partition)
    parts = [
        dict(zip(("train", "test"), split_client(own, spec.test_fraction, spec.partition_seed, i)))
        for i, own in enumerate(partition.clients)
    ]
    tests = np.stack([np.bincount(labels[own["test"]], minlength=num_classes) for own in parts])
    training = Training(spec.local_epochs, spec.batch_size, spec.lr, spec.seed, min_batch=2 if model.norms else 1)
    return Run(
        spec=spec,
        method=algorithms.make(spec.method, **spec.hyper),
        setting=Setting(spec.num_clients, spec.rounds, num_classes),
        partition=partition,
        work=Workload(model, Source(dataset, where, dtype), training, parts),
        transport=Transport(spec.bn_stats, model.running, model.theta0),
        backend=compute,
        backend_name=backend_name,
        device=where,
        tests=tests,
        data_checksum=dataset.sha256,
    )


def first_state(run: Run) -> dict:
    """The state before round 1: a dict of trees and numbers, all that a checkpoint needs."""
    server, clients = run.method.init(run.work.model, run.setting)
    state = {
        "round": 0,
        "server": server,
        "clients": clients,
        "uploads": None,
        "stats": run.transport.initial_stats(run.setting.num_clients),
        "trained": torch.zeros(run.setting.num_clients, dtype=torch.bool),
        "floats": {"down": 0, "up": 0},
        "samples": 0,
        "seconds": {"train": 0.0, "server": 0.0, "evaluate": 0.0, "wall": 0.0},
        "history": [],
    }
    points = run.spec.eval_points or run.method.eval_points(server)
    if "post" in points and (run.spec.eval_points or not hasattr(run.method, "stored_upload")):
        state["uploads"] = tree.stack([run.method.download(server, i) for i in range(run.setting.num_clients)])
    return state


def play_round(run: Run, state: dict, t: int) -> None:
    """Round t: sample clients, send, train, receive, aggregate. Replaces the entries of `state`."""
    ids = draws.participants(run.spec.seed, t, run.setting.num_clients, run.spec.join_ratio)
    clock = time.monotonic()
    messages = tree.stack([run.method.download(state["server"], int(i)) for i in ids])
    state["floats"]["down"] += len(ids) * run.transport.floats(tree.rows(messages, 0))
    received = run.transport.received(messages, tree.rows(state["stats"], ids), training=True)
    owned = run.transport.before_training(tree.rows(state["clients"], ids))
    state["seconds"]["server"] += time.monotonic() - clock

    clock = time.monotonic()
    uploads, clients = run.backend(run.work, run.method.client_update, ids, received, owned, draw=(TRAIN, t))
    check_finite(run, t, ids, received, owned, (uploads, clients))
    state["seconds"]["train"] += time.monotonic() - clock
    state["samples"] += int(run.sizes[ids].sum()) * run.spec.local_epochs

    clock = time.monotonic()
    uploads, stats = run.transport.sent(uploads)
    state["floats"]["up"] += len(ids) * run.transport.floats(tree.rows(uploads, 0))
    write_rows(state["clients"], ids, clients)
    write_rows({name: state["stats"][name] for name in stats}, ids, stats)
    if state["uploads"] is not None:
        write_rows(state["uploads"], ids, uploads)
    state["server"] = run.method.server_update(state["server"], ids, uploads, run.sizes[ids])
    state["trained"][ids] = True
    state["round"] = t
    state["seconds"]["server"] += time.monotonic() - clock


def check_finite(run: Run, t: int, ids, messages, clients, results) -> None:
    """Raise Diverged, naming client, round and step, if a client's result is not finite. The step is found by a second, watched run."""
    finite = torch.ones(len(ids), dtype=torch.bool, device=run.device)
    for _, leaf in tree.leaves(results):
        finite &= torch.isfinite(leaf).reshape(len(ids), -1).all(1)
    if finite.all():
        return
    k = int((~finite).nonzero()[0])

    def watch(step, state):
        if not all(torch.isfinite(leaf).all() for _, leaf in tree.leaves((state,))):
            raise Diverged(int(ids[k]), t, step)

    backends.serial(
        run.work,
        run.method.client_update,
        ids[k : k + 1],
        tree.rows(messages, [k]),
        tree.rows(clients, [k]),
        draw=(TRAIN, t),
        watch=watch,
    )
    raise Diverged(int(ids[k]), t, None)


def write_rows(table, ids, rows) -> None:
    """Overwrite rows of a stacked tree that the engine owns."""
    for (_, old), (_, new) in zip(tree.leaves(table), tree.leaves(rows), strict=True):
        old[torch.as_tensor(ids, device=old.device)] = new


def record(run: Run, state: dict) -> None:
    """Evaluate all clients now, at the spec's points or the method's own, and append to the history."""
    clock = time.monotonic()
    for point in run.spec.eval_points or run.method.eval_points(state["server"]):
        correct, loss = evaluate(run, state, point)
        state["history"].append(
            {
                "round": state["round"],
                "point": point,
                "correct": torch.from_numpy(correct),
                "loss": torch.from_numpy(loss),
            }
        )
    state["seconds"]["evaluate"] += time.monotonic() - clock


def measured(run: Run, state: dict) -> dict[str, np.ndarray]:
    """Arrays of the spec's measures on the final models (headline point)."""
    if not run.spec.measures:
        return {}
    point = (run.spec.eval_points or run.method.eval_points(state["server"]))[0]
    chunks = list(personal_models(run, state, point))
    order = np.argsort(np.concatenate([ids for ids, _ in chunks]))
    thetas = tree.rows(tree.concat([thetas for _, thetas in chunks]), order)
    return {name: array for measure in run.spec.measures for name, array in MEASURES[measure](run, thetas).items()}


def finished(run: Run, state: dict, arrays: dict[str, np.ndarray]) -> RunResult:
    """The result of a completed run."""
    bytes_per_float = 8 if run.spec.precision == "float64" else 4
    history = [
        {"round": h["round"], "point": h["point"], **summarise(h["correct"].numpy(), h["loss"].numpy(), run.tests)}
        for h in state["history"]
    ]
    for h in history:  # the first point of a round is its headline
        h["headline"] = h is next(g for g in history if g["round"] == h["round"])
    headline = next(h["point"] for h in history if h["round"] == run.spec.rounds and h["headline"])
    final = {h["point"]: h["correct"].numpy() for h in state["history"] if h["round"] == run.spec.rounds}
    seconds = {name: round(value, 3) for name, value in state["seconds"].items()}
    return RunResult(
        spec=run.spec,
        status="finished",
        history=history,
        partition={
            "data": run.data_checksum[:16],
            "checksum": run.partition.checksum,
            "tries": run.partition.tries,
            "never_trained": int((~state["trained"]).sum()),
            "smallest_client": int(run.partition.sizes.min()),
        },
        communication={
            direction: {"floats": floats, "bytes": floats * bytes_per_float}
            for direction, floats in state["floats"].items()
        },
        seconds={**seconds, "per_sample": seconds["train"] / max(state["samples"], 1)},
        provenance=provenance(run.device, run.backend_name),
        arrays={"correct": final[headline], "tests": run.tests, "counts": run.partition.counts, **arrays},
    )


def find_device(name: str) -> torch.device:
    """A torch device by name; "auto" is CUDA if there is one. Raises BadValue if the device is not there: never a silent CPU run."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise BadValue(f"device = {name!r} is not accepted; expected auto, cpu, cuda or cuda:N") from None
    if device.type == "cuda" and (not torch.cuda.is_available() or (device.index or 0) >= torch.cuda.device_count()):
        raise BadValue(
            f"device = {name!r} is not there; CUDA devices found: {torch.cuda.device_count()}. Accepted here: auto, cpu"
        )
    if device.type not in ("cpu", "cuda"):
        raise BadValue(f"device = {name!r} is not accepted; expected auto, cpu, cuda or cuda:N")
    return device


@contextlib.contextmanager
def _one_thread():
    """One operator thread: small convolutions gain little from more, and the numbers do not depend on the machine's cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
