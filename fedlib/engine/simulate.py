"""The round loop: RunSpec in, RunResult out."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from fedlib.algorithms.api import Setting
from fedlib.base import draws, tree
from fedlib.base.errors import BadValue, Diverged, require
from fedlib.base.provenance import provenance
from fedlib.data import Partition, load
from fedlib.engine import backends
from fedlib.engine.batches import TRAIN, Source, Training, Turn
from fedlib.engine.checkpoint import Checkpoint, checkpoint_name, group_id
from fedlib.engine.client_data import PlainData
from fedlib.engine.evaluate import FINETUNE, evaluate, personal_models, summarise
from fedlib.engine.result import RunResult
from fedlib.engine.shared_beginnings import beginning, prefix_id
from fedlib.engine.transport import Transport
from fedlib.measures import FINAL_MEASURES, ROUND_MEASURES
from fedlib.models import Model, build
from fedlib.privacy import noise
from fedlib.spec import RunSpec

SURVEY = 2  # first number of a draw; training uses 0, evaluation 1
DTYPES = {"float32": torch.float32, "float64": torch.float64, "tf32": torch.float32, "bf16": torch.float32}


@dataclass(frozen=True)
class Workload:
    """The model, the data on its device, the local training settings, and who owns what."""

    model: Model
    source: Source
    training: Training
    parts: Sequence[dict[str, np.ndarray]]  # per client: sample indices by part ("train", "test", maybe "val")


@dataclass(frozen=True)
class Run:
    """What does not change during a run."""

    spec: RunSpec
    method: object
    warm_up: tuple[object, int]  # the method of the first rounds, and how many
    setting: Setting
    partition: Partition
    work: Workload
    transport: Transport
    backend: backends.Serial
    device: torch.device
    tests: np.ndarray  # test samples by client and class, int64 [N, C]
    data_checksum: str
    groups: Sequence[str] = ()  # by client, where the method has `groups`

    @property
    def sizes(self) -> np.ndarray:
        """Training samples of every client, int64 [N]."""
        return np.array([len(parts["train"]) for parts in self.work.parts])

    def turn(self, client: int, purpose: int, round: int) -> Turn:
        """What a backend needs to compute with one client."""
        group = self.groups[client] if self.groups else ""
        return Turn(self.work.source, self.work.training, self.work.parts[client], (purpose, round, client), group)

    def data_of(self, client: int, **parts: np.ndarray) -> PlainData:
        """One client's data, to look at outside of training; parts: sample indices in place of its own."""
        turn = self.turn(client, FINETUNE, 0)
        return PlainData(replace(turn, parts={**turn.parts, **parts}))

    def acting(self, state: dict):
        """The method whose state this is: that of the warm-up, or the run's own."""
        return self.warm_up[0] if state["warming_up"] else self.method

    def points(self, state: dict) -> tuple[str, ...]:
        """The evaluation points now."""
        return self.spec.eval_points or self.acting(state).eval_points(state["server"])


def simulate(spec: RunSpec, **options) -> RunResult:
    """Train and evaluate one run; options as in `simulate_together`. Raises Diverged besides."""
    (result,) = simulate_together([spec], **options)
    if isinstance(result, Diverged):
        raise result
    return result


def simulate_together(
    specs: Sequence[RunSpec],
    *,
    backend: str = "auto",
    device: str = "cpu",
    workers: int | None = None,
    progress: Callable[[int], None] | None = None,
    checkpoint_every: float | None = None,
    milestones: Sequence[int] = (),
    trace: Path | None = None,
) -> list[RunResult | Diverged]:
    """Train and evaluate runs that differ in their seeds only, round by round, all their clients in one stack.

    backend: auto, serial, vmap or process (`fedlib.engine.backends`), process with `workers` processes. device: "cpu",
    "cuda", "cuda:1", ... or "auto". progress: called with the number of rounds done. checkpoint_every: seconds between
    checkpoints, None for none; a run that was killed continues from its last checkpoint and ends with the numbers of an
    uninterrupted one. milestones: rounds whose state is kept for other runs that begin alike (`fedlib.engine.shared_beginnings`); where such
    a state is there it is used. trace: write a PyTorch profiler trace of the second round to this file.

    Raises BadValue for values that do not fit the data, DataError, InfeasiblePartition.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(_arithmetic(specs[0].precision))
        started = time.monotonic()
        runs = set_up_together(specs, backend, device, workers)
        stack.callback(runs[0].backend.close)
        checkpoint = None
        if checkpoint_every is not None:
            checkpoint = saved_as(runs[0], group_id(specs), checkpoint_every)
        states = (checkpoint and checkpoint.load()) or from_prefix(runs) or [first_state(run) for run in runs]
        first = max(state["round"] for state in states) + 1
        for t in range(first, specs[0].rounds + 1):
            if all(state["diverged"] for state in states):
                break
            if progress:
                progress(t - 1)
            with traced(trace) if trace and t == first + 1 else contextlib.nullcontext():
                play_round(runs, states, t)
            if t in milestones:
                keep_milestone(runs, states)
            end_round(runs, states)
            if checkpoint and t < specs[0].rounds:
                started = book_wall_time(states, started)
                checkpoint.save(states)
        arrays = [measured(run, state) for run, state in zip(runs, states)]
        book_wall_time(states, started)
        if progress:
            progress(specs[0].rounds)
        return [finished(*each) for each in zip(runs, states, arrays)]


def set_up_together(specs: Sequence[RunSpec], backend: str, device: str, workers: int | None = None) -> list[Run]:
    """Runs that share a backend and the data on their device."""
    require(
        len({spec.but(seed=0, partition_seed=0).id for spec in specs}) == 1,
        "specs",
        [spec.label for spec in specs],
        "runs that differ in seed and partition_seed only",
    )
    first = set_up(specs[0], backend, device, workers)
    return [first, *(set_up(spec, backend, device, workers, beside=first) for spec in specs[1:])]


def set_up(
    spec: RunSpec, backend: str = "auto", device: str = "cpu", workers: int | None = None, beside: Run | None = None
) -> Run:
    """Load the data, divide it, build the model. `beside` gives a run whose data and backend are used as well."""
    where = find_device(device)
    dataset, dtype = load(spec.dataset), DTYPES[spec.precision]
    require(spec.precision != "tf32" or where.type == "cuda", "precision", "tf32", "float32, float64 or bf16 on a CPU")
    num_classes = len(dataset.classes)
    model = build(spec.model, dataset.shape, num_classes, seed=spec.seed, **spec.model_options).to(where, dtype)
    model.autocast = torch.bfloat16 if spec.precision == "bf16" else None
    partition, parts = spec.divide(dataset)
    labels = dataset.labels.numpy()
    tests = np.stack([np.bincount(labels[own["test"]], minlength=num_classes) for own in parts])
    if spec.mechanism.in_steps:
        noise.check_model(model)
    smallest = 2 if model.norms else 1
    training = Training(spec.local_epochs, spec.batch_size, spec.lr, spec.seed, smallest, spec.mechanism)
    method = spec.algorithm
    for name in method.siblings:
        model.sibling(name)
    counts = np.stack([np.bincount(labels[own["train"]], minlength=num_classes) for own in parts])
    setting = Setting(spec.num_clients, spec.rounds, num_classes, spec.seed, torch.from_numpy(counts))
    name, _ = backends.pick(backend, where)
    return Run(
        spec=spec,
        method=method,
        warm_up=method.warm_up(setting),
        setting=setting,
        partition=partition,
        work=Workload(model, beside.work.source if beside else Source(dataset, where, dtype), training, parts),
        transport=Transport(spec.bn_stats, model.running, model.theta0),
        backend=beside.backend if beside else backends.make(name, model, where, workers),
        device=where,
        tests=tests,
        data_checksum=dataset.sha256,
        groups=method.groups(setting),
    )


def first_state(run: Run) -> dict:
    """The state before round 1: a dict of trees and numbers, all that a checkpoint needs."""
    warming_up = run.warm_up[1] > 0
    method = run.warm_up[0] if warming_up else run.method
    server, clients = method.init(run.work.model, run.setting)
    state = {
        "round": 0,
        "warming_up": warming_up,
        "server": server,
        "clients": clients,
        "uploads": None,
        "stats": run.transport.initial_stats(run.setting.num_clients, method.num_models),
        "trained": torch.zeros(run.setting.num_clients, dtype=torch.bool),
        "floats": {"down": 0, "up": 0, "once": 0},
        "samples": 0,
        "seconds": dict.fromkeys(("data", "step", "train", "server", "evaluate", "wall"), 0.0),
        "history": [],
        "followed": {},
        "diverged": None,
        "shared_rounds": 0,
    }
    if run.spec.mechanism.in_uploads:
        trained = {name: run.work.model.theta0[name] for name in run.work.model.trainable}
        state["released"] = tree.repeat(trained, run.setting.num_clients)
    remember_uploads(run, state)
    return state


def remember_uploads(run: Run, state: dict) -> None:
    """Begin to keep every client's last upload, if it is evaluated and the server does not keep it itself."""
    if run.acting(state).stored_upload is not None:
        state["uploads"] = None
    elif "post" in run.points(state) and state["uploads"] is None:
        messages = run.acting(state).messages(state["server"], range(run.setting.num_clients))
        state["uploads"] = tree.map(torch.clone, messages)


def take_over(run: Run, state: dict) -> None:
    """At the end of the warm-up, unless the run ends with it: the run's own method continues from its state."""
    if state["warming_up"] and state["round"] == run.warm_up[1] < run.spec.rounds:
        reports = survey(run, state) if run.method.survey is not None else None
        server, clients = run.method.take_over(run.work.model, run.setting, state["server"], state["clients"], reports)
        state |= {"server": server, "clients": clients, "warming_up": False}
        remember_uploads(run, state)


def saved_as(run: Run, id: str, every: float = 0) -> Checkpoint:
    """The checkpoint called `id` of a run's backend and device."""
    return Checkpoint(checkpoint_name(id, run.backend.name, run.device), every)


def survey(run: Run, state: dict):
    """What all N clients report once, stacked; counted apart from the rounds."""
    everyone = range(run.setting.num_clients)
    messages = run.acting(state).messages(state["server"], everyone)
    received = run.transport.received(messages, state["stats"], training=False)
    reports = run.backend(
        run.method.survey, [run.turn(i, SURVEY, state["round"]) for i in everyone], received, state["clients"]
    )
    state["floats"]["once"] += len(everyone) * run.transport.floats(tree.rows(reports, 0))
    return reports


def from_prefix(runs: Sequence[Run]) -> list[dict] | None:
    """The states after the common beginning, if other runs that begin alike have left them."""
    rounds = beginning(runs[0].spec)[1]
    places = [saved_as(run, prefix_id(run.spec, rounds)) for run in runs]
    states = [place.load() for place in places] if rounds else [None]
    if any(state is None for state in states):
        return None
    for run, state in zip(runs, states):
        state |= {"warming_up": run.warm_up[1] > 0, "shared_rounds": rounds}
    end_round(runs, states)
    return states


def keep_milestone(runs: Sequence[Run], states: Sequence[dict]) -> None:
    """Leave the states of this round to other runs."""
    for run, state in zip(runs, states):
        if not state["diverged"]:
            saved_as(run, prefix_id(run.spec, state["round"])).save(state)


def end_round(runs: Sequence[Run], states: Sequence[dict]) -> None:
    """What follows a round: the change from warm-up to the run's own method, the evaluation where it is due, and measures."""
    for run, state in zip(runs, states):
        if not state["diverged"]:
            take_over(run, state)
            if state["round"] % run.spec.eval_every == 0 or state["round"] == run.spec.rounds:
                record(run, state)
            follow(run, state)


def play_round(runs: Sequence[Run], states: Sequence[dict], t: int) -> None:
    """Round t of all runs: sample clients, send, train everyone's clients at once, receive, aggregate. Changes `states`.

    A run whose training diverges notes it in its state and takes no further part.
    """
    active = [(run, state, send(run, state, t)) for run, state in zip(runs, states) if not state["diverged"]]
    if not active:
        return
    clock, run = time.monotonic(), active[0][0]
    busy = dict(run.backend.seconds)
    turns = [run.turn(int(i), TRAIN, t) for run, _, (ids, *_) in active for i in ids]
    received, owned = (tree.joined([out[part] for _, _, out in active]) for part in (1, 2))
    uploads, clients = run.backend(run.acting(active[0][1]).client_update, turns, received, owned)
    seconds = {"train": time.monotonic() - clock}
    seconds |= {name: run.backend.seconds[name] - busy.get(name, 0.0) for name in ("data", "step")}
    start = 0
    for run, state, out in active:
        for name, value in seconds.items():
            state["seconds"][name] += value / len(active)
        mine = slice(start, start + len(out[0]))
        receive(run, state, t, *out, tree.rows(uploads, mine), tree.rows(clients, mine))
        start = mine.stop


@dataclass(frozen=True)
class Round:
    """What travelled in a round: the participants, what they received and what they returned, stacked [K, ...]."""

    ids: np.ndarray
    messages: dict
    uploads: dict
    clients: dict  # what they keep now


def watched_round(run: Run, state: dict, t: int) -> Round:
    """Round t of a single run, for looking at; `play_round` and what follows it, without the evaluation. Changes `state`."""
    with _arithmetic(run.spec.precision):
        ids, messages, owned = send(run, state, t)
        turns = [run.turn(int(i), TRAIN, t) for i in ids]
        uploads, clients = run.backend(run.acting(state).client_update, turns, messages, owned)
        receive(run, state, t, ids, messages, owned, uploads, clients)
        take_over(run, state)
    return Round(ids, messages, uploads, clients)


def watched(spec: RunSpec) -> Iterator[tuple[Run, dict]]:
    """Play a run and yield (run, state) before round 1 and after every round: what its server and its clients keep.

    The state is the run's own, not a copy: what is changed in it takes part from there on, and what is to be kept of it must
    be copied. `finished(run, state, {})` is the result at the end, that of `simulate(spec)` if nothing was changed.
    """
    run = set_up(spec, "serial")
    state = first_state(run)
    yield run, state
    for t in range(1, spec.rounds + 1):
        with _arithmetic(spec.precision):
            play_round([run], [state], t)
            end_round([run], [state])
        yield run, state


def send(run: Run, state: dict, t: int):
    """The participants of round t (ids), what they receive, and what they own; both stacked."""
    clock = time.monotonic()
    ids = draws.participants(run.spec.seed, t, run.setting.num_clients, run.spec.join_ratio)
    messages = run.acting(state).messages(state["server"], ids)
    state["floats"]["down"] += travelled(run, run.acting(state).floats_down, messages, len(ids))
    received = run.transport.received(messages, tree.rows(state["stats"], ids), training=True)
    owned = run.transport.before_training(tree.rows(state["clients"], ids))
    state["seconds"]["server"] += time.monotonic() - clock
    return ids, received, owned


def travelled(run: Run, count: Callable, stacked, clients: int) -> int:
    """Numbers in the messages of a round; `count`: the method's `floats_down` or `floats_up`."""
    stacked = run.transport.travelling(stacked)
    return sum(run.transport.floats(count(tree.rows(stacked, k))) for k in range(clients))


def receive(run: Run, state: dict, t: int, ids, received, owned, uploads, clients) -> None:
    """Keep what the participants keep, count and aggregate what they send. Replaces the entries of `state`."""
    clock = time.monotonic()
    try:
        check_finite(run, run.acting(state), t, ids, received, owned, (uploads, clients))
    except Diverged as error:
        state["diverged"] = (error.client, error.round, error.step)
        return
    uploads, stats = run.transport.sent(uploads)
    if run.spec.mechanism.in_uploads:
        uploads = released(run, state, t, ids, received, uploads)
    state["samples"] += int(run.sizes[ids].sum()) * run.spec.local_epochs
    state["floats"]["up"] += travelled(run, run.acting(state).floats_up, uploads, len(ids))
    write_rows(state["clients"], ids, clients)
    write_rows({name: state["stats"][name] for name in stats}, ids, stats)
    if state["uploads"] is not None:
        write_rows(state["uploads"], ids, uploads)
    state["server"] = run.acting(state).server_update(state["server"], ids, uploads, run.sizes[ids])
    state["trained"][ids] = True
    state["round"] = t
    state["seconds"]["server"] += time.monotonic() - clock


def released(run: Run, state: dict, t: int, ids, received, uploads):
    """What the participants let out in place of their uploads, which is remembered."""
    last = tree.rows(state["released"], ids)
    passing = run.work.model.running if run.transport.keeps_stats else ()
    uploads, theta = noise.release(run.spec.mechanism, run.spec.seed, t, ids, uploads, received, last, passing)
    write_rows({name: state["released"][name] for name in theta}, ids, theta)
    return uploads


def check_finite(run: Run, method, t: int, ids, messages, clients, results) -> None:
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

    again = backends.Serial(run.work.model, run.device, watch)
    again(method.client_update, [run.turn(int(ids[k]), TRAIN, t)], tree.rows(messages, [k]), tree.rows(clients, [k]))
    raise Diverged(int(ids[k]), t, None)


def write_rows(table, ids, rows) -> None:
    """Overwrite rows of a stacked tree that the engine owns."""
    for (_, old), (_, new) in zip(tree.leaves(table), tree.leaves(rows), strict=True):
        old[torch.as_tensor(ids, device=old.device)] = new


def record(run: Run, state: dict) -> None:
    """Evaluate all clients now, at the spec's points or the method's own, and append to the history."""
    clock = time.monotonic()
    for point in run.points(state):
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


def follow(run: Run, state: dict) -> None:
    """Keep what the spec's measures of every round say now."""
    for name in run.spec.measures:
        if name in ROUND_MEASURES:
            state["followed"].setdefault(name, []).append(torch.from_numpy(ROUND_MEASURES[name](run, state)))


def measured(run: Run, state: dict) -> dict[str, np.ndarray]:
    """Arrays of the spec's measures: those of every round stacked [T, ...], and those of the final models (headline point)."""
    if state["diverged"]:
        return {}
    arrays = {name: torch.stack(rounds).numpy() for name, rounds in state["followed"].items()}
    final = [FINAL_MEASURES[name] for name in run.spec.measures if name in FINAL_MEASURES]
    if not final:
        return arrays
    chunks = list(personal_models(run, state, run.points(state)[0]))
    order = np.argsort(np.concatenate([ids for ids, _ in chunks]))
    thetas = tree.rows(tree.concat([thetas for _, thetas in chunks]), order)
    return arrays | {name: array for measure in final for name, array in measure(run, thetas).items()}


def finished(run: Run, state: dict, arrays: dict[str, np.ndarray]) -> RunResult | Diverged:
    """The result of a completed run."""
    if state["diverged"]:
        return Diverged(*state["diverged"])
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
            if floats or direction != "once"
        },
        seconds={
            **seconds,
            "per_sample": (state["seconds"]["data"] + state["seconds"]["step"]) / max(state["samples"], 1),
        },
        provenance=provenance(run.device, run.backend.name) | {"shared_rounds": state["shared_rounds"]},
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


def book_wall_time(states: Sequence[dict], started: float) -> float:
    """Add the time since `started` to the runs, in equal parts; returns the time now."""
    now = time.monotonic()
    for state in states:
        state["seconds"]["wall"] += (now - started) / len(states)
    return now


@contextlib.contextmanager
def traced(path: Path):
    """Write what PyTorch does meanwhile to `path`, for chrome://tracing or Perfetto."""
    with torch.profiler.profile() as profiler:
        yield
    profiler.export_chrome_trace(str(path))


@contextlib.contextmanager
def _arithmetic(precision: str):
    """No gradients, TF32 only where asked, and one operator thread: small convolutions gain little from more, and numbers
    do not depend on the machine's cores."""
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
