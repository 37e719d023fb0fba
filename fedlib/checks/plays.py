"""Short runs on digits that show what a method does: uneven clients, rounds one by one, states at the end."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator

import numpy as np
import torch

from fedlib.base import draws, tree
from fedlib.engine.client_data import PlainData
from fedlib.engine.evaluate import evaluate, record
from fedlib.engine.rounds import switch_phase
from fedlib.engine.setup import Run, first_state, set_up
from fedlib.engine.simulate import run_round, simulate
from fedlib.engine.state import State
from fedlib.spec import RunSpec

TINY = dict(
    partition=dict(alpha=0.5, min_size=2),
    num_clients=4,
    join_ratio=0.5,
    test_fraction=0.75,
    rounds=3,
    local_epochs=1,
    lr=0.05,
    eval_every=1,
)
# Very uneven clients. Minibatches of 32: none, 1, 1 and a single sample, 1, 5, 2.
SIZES = {"train": (1, 2, 33, 3, 130, 64), "test": (1, 5, 2, 40, 100, 1), "val": (1, 1, 9, 2, 80, 16)}
SENT = 1e-6  # how far `messages` may be from `download`: they may sum in another order


class Broken(AssertionError):
    """The contract is not kept; the message says how, in one line."""


def tiny(method: str, **changes) -> RunSpec:
    """A run of well under a second."""
    return RunSpec(method, **{**TINY, **changes})


def wide(method: str, **changes) -> RunSpec:
    """Six clients, in float64, evaluated at all points; for `uneven`."""
    fields = {"rounds": 2, "num_clients": 6, "precision": "float64", "seed": 1, **changes}
    points = tuple("ft(1)" if p == "ft" else p for p in tiny(method, hyper=fields.get("hyper", {})).algorithm.points)
    return tiny(method, **{"eval_points": points, **fields})


def uneven(run: Run) -> Run:
    """The run with clients of SIZES, drawn without overlap from digits in place of its partition."""
    order, parts = np.random.default_rng(5).permutation(1797), []
    for sizes in zip(*SIZES.values()):
        cuts, order = np.split(order[: sum(sizes)], np.cumsum(sizes)[:-1]), order[sum(sizes) :]
        parts.append({name: np.sort(own) for name, own in zip(SIZES, cuts)})
    labels = run.work.source.labels.cpu()
    counts, tests = (torch.stack([labels[own[p]].bincount(minlength=10) for own in parts]) for p in ("train", "test"))
    work, setting = dataclasses.replace(run.work, parts=parts), dataclasses.replace(run.setting, class_counts=counts)
    return dataclasses.replace(run, work=work, tests=tests.numpy(), setting=setting)


def shorter(run: Run, most: int = 50) -> Run:
    """The run with at most so many samples in every part of a client, where their number does not matter."""
    parts = [{name: own[:most] for name, own in parts.items()} for parts in run.work.parts]
    labels = run.work.source.labels.cpu()
    tests = np.stack([labels[own["test"]].bincount(minlength=10).numpy() for own in parts])
    return dataclasses.replace(run, work=dataclasses.replace(run.work, parts=parts), tests=tests)


def played(
    spec: RunSpec, backend: str = "serial", change: Callable[[Run], Run] | None = None, device: str = "cpu"
) -> Iterator[tuple[Run, State, np.ndarray]]:
    """Yield (run, state, participants) before round 1 (participants empty) and after every round;
    `change(run)` adapts the run first."""
    run = set_up(spec, backend, device)
    run = change(run) if change else run
    state = first_state(run)
    yield run, state, np.array([], dtype=int)
    for t in range(1, spec.rounds + 1):
        run_round([run], [state], t)
        switch_phase(run, state)
        yield run, state, draws.participants(spec.seed, t, spec.num_clients, spec.join_ratio)


def ending(spec: RunSpec, backend: str, device: str = "cpu") -> tuple[dict, np.ndarray]:
    """Of uneven clients: the final states and the tests at all points, by name; and who ever trained, bool [N]."""
    with torch.no_grad():
        *_, (run, state, _) = played(spec, backend, uneven, device)
        tested = {
            f"test at {point}": tuple(map(torch.from_numpy, evaluate(run, state, point))) for point in spec.eval_points
        }
        run.backend.close()
    owned = {key: vars(state)[key] or {} for key in ("server", "clients", "stats", "uploads")}
    return owned | tested, state.trained.numpy()


def rounds_with_tests(spec: RunSpec, change: Callable[[Run], Run] | None = None) -> Iterator[tuple]:
    """(run, state, participants) before round 1 and after every round, each evaluated at all points afterwards.

    Raises Broken if testing changes something, now or in a later round.
    """
    for run, state, ids in played(spec, change=change):
        yield run, state, ids
        if len(ids):
            kept = copy.deepcopy({k: v for k, v in vars(state).items() if k not in ("history", "seconds")})
            with torch.no_grad():
                record(run, state)
            if found := difference({k: vars(state)[k] for k in kept}, kept):
                raise Broken(f"testing changes what is kept: {found}")
    *_, (run, rarely, _) = played(spec, change=change)
    with torch.no_grad():
        record(run, rarely)
    if found := difference(state.history[-len(rarely.history) :], rarely.history):
        raise Broken(f"testing after every round changes the last test: {found}")


def rounds_that_leave_inputs_alone(run: Run, rounds: int) -> Iterator[tuple[dict, dict]]:
    """Yield the server's state before and after every round that all clients play by the method's functions alone.

    Everything that a function is given is compared bit for bit with a deep copy taken before, theta0 too; messages to
    many with those to each. Raises Broken, naming the function and the argument.
    """
    method, model, everyone = run.method, run.work.model, range(run.setting.num_clients)
    with torch.no_grad(), Watched("init", theta0=model.theta0):
        server, clients = method.init(model, run.setting)
    for t in range(1, rounds + 1):
        with torch.no_grad():
            with Watched("download", server=server):
                messages = [method.download(server, i) for i in everyone]
            with Watched("messages", server=server):
                many = method.messages(server, everyone)
            if found := difference(many, tree.stack(messages), SENT):
                raise Broken(f"messages is not what download is for each client: {found}")
            after = [_turn(run, t, i, messages[i], clients) for i in everyone]
            uploads, kept = (tree.stack(each) for each in zip(*after))
            with Watched("server_update", server=server, uploads=uploads, theta0=model.theta0):
                new = method.server_update(server, np.arange(len(everyone)), uploads, run.sizes)
        yield server, new
        server, clients = new, kept


def _turn(run: Run, t: int, i: int, message: dict, clients: dict) -> tuple[dict, dict]:
    """What client i sends and keeps, trained and tested."""
    method, model, own = run.method, run.work.model, tree.rows(clients, i)
    given = dict(message=message, client=own, theta0=model.theta0)
    with Watched("client_update", **given):
        upload, kept = method.client_update(model, message, own, PlainData(run.turn(i, 0, t)))
    with Watched("personal_model", **given):
        tested = method.personal_model(model, message, own, PlainData(run.turn(i, 1, t)))
    if "ft" in method.points:
        with Watched("fine_tune", theta=tested, **given):
            method.fine_tune(model, tested, PlainData(run.turn(i, 1, t)), 1)
    return upload, kept


class Watched:
    """Within it a function is called; raises Broken if one of its arguments is another one afterwards."""

    def __init__(self, function: str, **given):
        self.function, self.given, self.before = function, given, copy.deepcopy(given)

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace) -> None:
        if kind is None:
            for name, value in self.given.items():
                if found := difference(value, self.before[name]):
                    raise Broken(f"{self.function} changes its argument {name}: {found}")


class _Stop(Exception):
    """The run is stopped here."""


def stop(spec: RunSpec, after: int, **options) -> None:
    """Play a run up to round `after` and leave its checkpoint; options of `simulate`."""

    def progress(done: int) -> None:
        if done == after:
            raise _Stop

    try:
        simulate(spec, checkpoint_every=0, progress=progress, **options)
    except _Stop:
        return
    raise Broken(f"the run was not stopped after round {after}")


def exact(result) -> dict:
    """Everything in a result that must not depend on how it was computed."""
    return {
        "status": result.status,
        "history": result.history,
        "partition": result.partition,
        "communication": result.communication,
        "arrays": {name: array.tolist() for name, array in result.arrays.items()},
    }


def difference(a, b, tolerance: float = 0.0, where: str = "") -> str:
    """The first place where two trees, lists or values differ by more than `tolerance`, absolutely and relatively, in
    words; "" if there is none."""
    if isinstance(a, dict) and isinstance(b, dict):
        if a.keys() != b.keys():
            return f"{where or 'it'} has {sorted(map(str, a))}, expected {sorted(map(str, b))}"
        pairs = [(a[key], b[key], f"{where} {key}".strip()) for key in a]
    elif isinstance(a, (tuple, list)) and isinstance(b, (tuple, list)):
        if len(a) != len(b):
            return f"{where or 'it'} has {len(a)} entries, expected {len(b)}"
        pairs = [(x, y, f"{where} [{k}]".strip()) for k, (x, y) in enumerate(zip(a, b))]
    else:
        return _of_leaves(a, b, tolerance, where or "it")
    return next((found for x, y, place in pairs if (found := difference(x, y, tolerance, place))), "")


def _of_leaves(a, b, tolerance: float, where: str) -> str:
    if not (isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)):
        near = isinstance(a, float) and isinstance(b, float) and abs(a - b) <= tolerance * max(1, abs(b))
        return "" if a == b or near or (a != a and b != b) else f"{where} is {a!r}, expected {b!r}"[:200]
    a, b = a.detach().cpu(), b.detach().cpu()
    if a.shape != b.shape or a.dtype != b.dtype:
        return f"{where} is {a.dtype} {list(a.shape)}, expected {b.dtype} {list(b.shape)}"
    if torch.equal(a, b) or torch.allclose(a.double(), b.double(), tolerance, tolerance, equal_nan=True):
        return ""
    return f"{where} differs by {float((a.double() - b.double()).abs().max()):.1e}"
