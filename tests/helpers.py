"""Shared by the tests of methods, engine and store: tiny runs on digits,
and a toy client whose steps can be done on paper."""

from __future__ import annotations

import copy
import dataclasses
import functools
import os
from pathlib import Path

import numpy as np
import torch

from fedlib import algorithms
from fedlib.base import draws, tree
from fedlib.claims import NOT_REPRODUCED, NOT_TESTED, REPRODUCED, UNDECIDED
from fedlib.engine import backends
from fedlib.engine.client_data import PlainData
from fedlib.engine.evaluate import evaluate
from fedlib.engine.result import RunResult, array_name
from fedlib.engine.rounds import take_over
from fedlib.engine.setup import first_state, set_up
from fedlib.engine.simulate import play_round
from fedlib.experiments import OpenItem, find
from fedlib.lessons.toys import Parabola, ToyBatch, ToyData, ToyModel, theta
from fedlib.spec import RunSpec

__all__ = ["Parabola", "ToyBatch", "ToyData", "ToyModel", "theta"]  # what tests take from here as well
METHODS = tuple(algorithms.names())
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


@functools.cache
def smoke_item(name: str) -> OpenItem:
    """An item in the smoke profile; its runs are done once, whichever tests or notebooks ask for them first."""
    return OpenItem(find(name), "smoke", jobs=1, root=Path(os.environ["FEDLIB_TEST_SHARED"]))


SIGNS = {REPRODUCED: "+", NOT_REPRODUCED: "-", UNDECIDED: "?", NOT_TESTED: "."}


def signs(name: str, tables: dict) -> str:
    """What becomes of an item's claims on these tables, a character each."""
    return "".join(SIGNS[claim.check(tables).status] for claim in find(name).claims)


def analysed(name: str, make, profile: str = "quick", **changes) -> dict:
    """An item's tables of results that are made up: make(key, spec), or None for a run that is missing."""
    item = find(name)
    settings = {**item.settings[profile], **changes}
    made = {key: make(key, spec) for key, spec in item.runs(settings).items()}
    return item.analyse(settings, {key: r for key, r in made.items() if r is not None})


def made_up(spec: RunSpec, accuracy: float | dict[str, float], everywhere: float | None = None, **arrays) -> RunResult:
    """A finished run in which this is the accuracy by every metric, of clients 2 points above and below it in turn.

    accuracy: a number, or one by evaluation point, the headline first; everywhere: on the test parts of all clients.
    """
    by_point, N = accuracy if isinstance(accuracy, dict) else {"post": accuracy}, spec.num_clients
    tests, swing = np.full((N, 2), 10**6), 0.02 * (-1) ** np.arange(N)
    swing[N - N % 2 :] = 0
    correct = {point: np.rint((value + swing)[:, None] * tests).astype(int) for point, value in by_point.items()}
    first = next(iter(by_point))
    made = {array_name(point, first): right for point, right in correct.items()} | {"tests": tests, "counts": tests}
    if "common_test" in spec.measures:
        on_all = by_point[first] if everywhere is None else everywhere
        made |= {"common_correct": correct[first] + round((on_all - by_point[first]) * 10**6), "common_tests": tests[0]}
    metrics = ("pooled", "client_mean", "balanced")
    history = [
        {"round": spec.rounds, "point": point, "headline": point == first, **dict.fromkeys(metrics, value)}
        for point, value in by_point.items()
    ]
    division = {"checksum": str((spec.scheme, spec.partition, spec.num_clients, spec.partition_seed))}
    return RunResult(spec, "finished", history, division, seconds={"train": 1.0}, arrays=made | arrays)


def tiny(method: str, **changes) -> RunSpec:
    """A run of well under a second."""
    return RunSpec(method, **{**TINY, **changes})


def played(spec: RunSpec, backend: str = "serial", change=None, device: str = "cpu"):
    """Yield (run, state, participants) before round 1 (participants empty) and after every round;
    `change(run)` adapts the run first."""
    run = set_up(spec, backend, device)
    run = change(run) if change else run
    state = first_state(run)
    yield run, state, np.array([], dtype=int)
    for t in range(1, spec.rounds + 1):
        play_round([run], [state], t)
        take_over(run, state)
        yield run, state, draws.participants(spec.seed, t, spec.num_clients, spec.join_ratio)


def computed(run, name: str, fn, ids, *trees, draw=(0, 1), **options):
    """fn for these clients by the backend called `name`; draw = (purpose, round)."""
    backend = backends.BACKENDS[name](run.work.model, run.device, **options)
    with torch.no_grad():
        return backend(fn, [run.turn(int(i), *draw) for i in ids], *trees)


def tensors(node) -> list[torch.Tensor]:
    """All tensors in a state, in order, on the CPU; server states also hold numbers and None."""
    return [leaf.detach().cpu() for _, leaf in tree.leaves(node) if isinstance(leaf, torch.Tensor)]


def same(a, b) -> bool:
    """Bit for bit, structure included."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(map(same, a, b))
    return torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b


def close(a, b, tolerance: float = 1e-12) -> None:
    for left, right in zip(tensors(a), tensors(b), strict=True):
        torch.testing.assert_close(left, right, rtol=tolerance, atol=tolerance)


def exact(result) -> dict:
    """Everything in a result that must not depend on how it was computed."""
    return {
        "status": result.status,
        "history": result.history,
        "partition": result.partition,
        "communication": result.communication,
        "arrays": {name: array.tolist() for name, array in result.arrays.items()},
    }


def servers_of_rounds_that_leave_inputs_alone(run, rounds: int) -> list:
    """Server states before and after every round that three clients play by the method's functions alone,
    all taking part.

    Everything that a function is given is compared bit for bit with a deep copy taken before; theta0 too.
    """
    model, theta0, states = run.work.model, copy.deepcopy(run.work.model.theta0), []
    with torch.no_grad():
        server, clients = run.method.init(model, run.setting)
        for t in range(1, rounds + 1):
            inputs, everyone = copy.deepcopy((server, clients)), range(run.setting.num_clients)
            messages, uploads, kept = [run.method.download(server, i) for i in everyone], [], []
            close(run.method.messages(server, everyone), tree.stack(messages), 1e-6)
            assert same((server, clients), inputs)
            for i in everyone:
                own = tree.rows(clients, i)
                given = copy.deepcopy((messages[i], own))
                upload, new = run.method.client_update(model, messages[i], own, PlainData(run.turn(i, 0, t)))
                tested = run.method.personal_model(model, messages[i], own, PlainData(run.turn(i, 1, t)))
                if "ft" in run.method.points:
                    run.method.fine_tune(model, tested, PlainData(run.turn(i, 1, t)), 1)
                assert same((messages[i], own), given)
                uploads.append(upload)
                kept.append(new)
            assert same((server, clients), inputs) and same(model.theta0, theta0)
            stacked = tree.stack(uploads)
            given = copy.deepcopy(stacked)
            after = run.method.server_update(server, np.arange(len(everyone)), stacked, run.sizes)
            assert same((server, clients), inputs) and same(stacked, given) and same(model.theta0, theta0)
            states.append((server, after))
            server, clients = after, tree.stack(kept)
    return states


def changed_fields(spec, base) -> set[str]:
    """Names of the fields of a run, and of the method's, that differ."""
    pairs = {f.name: (getattr(spec, f.name), getattr(base, f.name)) for f in dataclasses.fields(spec)}
    own = {
        f"{name}.{key}"
        for name in ("hyper", "partition", "model_options")
        for key in pairs[name][0]
        if pairs[name][0][key] != pairs[name][1][key]
    }
    plain = {name for name, (a, b) in pairs.items() if a != b and not isinstance(a, dict)}
    return own | plain


# very uneven clients -------------------------------------------------------------------------------------------------

# short options; others have their defaults
HYPER = {
    "pfedsim": {"rho": 0.5},
    "clusterfl": dict(eps_mode="relative", eps1=1.1, eps2=0.1, t0=1),  # splits whenever it may
    "pfedhn": dict(hidden=8, depth=1),
    "pfedsv": {"k": 2},
    "fedsimsup": {"tau_s": 1, "tau_theta": 1},
    "fedfomo": {"M": 2},
    "fesem": {"K": 2},
    "fedem": {"M": 2},
    "pfedme": {"K": 2},
}
MIXING = ("pfedcs", "pfedsv", "fedsimsup", "fedfomo")  # what they do begins when several clients have trained before
POINTS = {name: tuple("ft(1)" if p == "ft" else p for p in algorithms.find(name).points) for name in METHODS}
# Minibatches of 32: none, 1, 1 and a single sample, 1, 5, 2. A test of 100 takes two of `small_scans`.
SIZES = {"train": (1, 2, 33, 3, 130, 64), "test": (1, 5, 2, 40, 100, 1), "val": (1, 1, 9, 2, 80, 16)}


def wide(method: str, **changes) -> RunSpec:
    """Six clients, in float64, tested at all points; for `uneven`."""
    mixing = {"join_ratio": 0.84, "rounds": 3} if method in MIXING else {}
    fields = {"rounds": 2, "num_clients": 6, "precision": "float64", "eval_points": POINTS[method], "seed": 1} | mixing
    return tiny(method, **{**fields, **changes, "hyper": HYPER.get(method, {}) | changes.get("hyper", {})})


def uneven(run):
    """The run with clients of SIZES, drawn without overlap from digits in place of its partition."""
    order, parts = np.random.default_rng(5).permutation(1797), []
    for sizes in zip(*SIZES.values()):
        cuts, order = np.split(order[: sum(sizes)], np.cumsum(sizes)[:-1]), order[sum(sizes) :]
        parts.append({name: np.sort(own) for name, own in zip(SIZES, cuts)})
    labels = run.work.source.labels.cpu()
    counts, tests = (torch.stack([labels[own[p]].bincount(minlength=10) for own in parts]) for p in ("train", "test"))
    work, setting = dataclasses.replace(run.work, parts=parts), dataclasses.replace(run.setting, class_counts=counts)
    return dataclasses.replace(run, work=work, tests=tests.numpy(), setting=setting)


def shorter(run, most: int = 50):
    """The run with at most so many samples in every part of a client, where their number does not matter."""
    parts = [{name: own[:most] for name, own in parts.items()} for parts in run.work.parts]
    labels = run.work.source.labels.cpu()
    tests = np.stack([labels[own["test"]].bincount(minlength=10).numpy() for own in parts])
    return dataclasses.replace(run, work=dataclasses.replace(run.work, parts=parts), tests=tests)


def outcome(spec: RunSpec, backend: str, device: str = "cpu") -> tuple:
    """Final states and the evaluation of uneven clients at all points, as one list of tensors; and who ever trained."""
    with torch.no_grad():
        *_, (run, state, _) = played(spec, backend, uneven, device)
        tested = [torch.from_numpy(part) for point in spec.eval_points for part in evaluate(run, state, point)]
        run.backend.close()
    owned = [leaf for key in ("server", "clients", "stats", "uploads") for leaf in tensors(vars(state)[key] or {})]
    return (*owned, *tested), state.trained


def backends_agree(spec: RunSpec, tolerance: float = 1e-12) -> None:
    """vmap gives what serial gives: all states and every client's test, up to rounding."""
    (serial, trained), (stacked, _) = (outcome(spec, backend) for backend in ("serial", "vmap"))
    close(stacked, serial, tolerance)
    assert trained[4]  # the largest
    assert spec.join_ratio > 0.5 or not trained.all()  # so that statistics of one that never did are recalibrated
