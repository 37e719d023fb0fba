"""Shared by the tests of methods, engine and store: tiny runs on digits,
and a toy client whose steps can be done on paper."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
from math import log
from pathlib import Path

import numpy as np
import torch
from typer.testing import CliRunner

from fedlib import algorithms, cli
from fedlib.base import tree
from fedlib.base.files import CHECKOUT
from fedlib.checks import plays
from fedlib.checks.contract import MANY, ROUNDING, backend_agrees
from fedlib.checks.plays import SIZES, exact, played, rounds_that_leave_inputs_alone, shorter, tiny, uneven
from fedlib.claims import EQUAL, INCONCLUSIVE, NOT_REPRODUCED, NOT_TESTED, ONE_SEED, REPRODUCED, UNDERPOWERED
from fedlib.data import load
from fedlib.engine import backends
from fedlib.engine.result import RunResult, array_name
from fedlib.experiments import OpenItem, find
from fedlib.lessons.toys import Parabola, ToyBatch, ToyData, ToyModel, point_classifier, theta
from fedlib.models.model import Model
from fedlib.runs.run import get_or_run_together
from fedlib.spec import RunSpec

__all__ = [  # what tests take from here as well
    "Parabola",
    "SIZES",
    "ToyBatch",
    "ToyData",
    "ToyModel",
    "exact",
    "played",
    "rounds_that_leave_inputs_alone",
    "shorter",
    "theta",
    "tiny",
    "uneven",
]
METHODS = tuple(algorithms.names())
LESSONS = sorted((CHECKOUT / "notebooks" / "lessons").glob("*.ipynb"))


def cells(path: Path, kind: str = "") -> list[dict]:
    """A notebook's cells, or those of one kind, "code" or "markdown"."""
    return [cell for cell in json.loads(path.read_text("utf-8"))["cells"] if kind in ("", cell["cell_type"])]


def text_of(some: list[dict]) -> str:
    """The text of those cells that are Markdown."""
    return "\n".join("".join(cell["source"]) for cell in some if cell["cell_type"] == "markdown")


def prose(path: Path) -> str:
    """The text of a page, or of a notebook's Markdown cells."""
    return text_of(cells(path)) if path.suffix == ".ipynb" else path.read_text("utf-8")


def many(examples: int):
    """Settings of a property test: explicit size, no clock, the same cases every time."""
    from hypothesis import settings  # here, because few tests need it

    return settings(max_examples=examples, deadline=None, derandomize=True, database=None)


def images_of(indices, dtype=torch.float64):
    """Some of the digits, in [0, 1], and their labels."""
    digits = load("digits")
    return digits.images[indices].to(dtype).div(255), digits.labels[indices]


def get_or_run(spec, store, **options):
    """The stored result of one run, or a new one."""
    return get_or_run_together([spec], store, **options)[0]


@functools.cache
def smoke_item(name: str) -> OpenItem:
    """An item in the smoke profile; its runs are done once, whichever tests or notebooks ask for them first."""
    return OpenItem(find(name), "smoke", jobs=1, root=Path(os.environ["FEDLIB_TEST_SHARED"]))


SIGNS = {REPRODUCED: "+", NOT_REPRODUCED: "-", EQUAL: "=", INCONCLUSIVE: "?", UNDERPOWERED: "?"}
SIGNS |= {ONE_SEED: "1", NOT_TESTED: "."}


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


def computed(run, name: str, fn, ids, *trees, draw=(0, 1), **options):
    """fn for these clients by the backend called `name`; draw = (purpose, round)."""
    backend = backends.BACKENDS[name](run.work.model, run.device, **options)
    with torch.no_grad():
        return backend(fn, [run.turn(int(i), *draw) for i in ids], *trees)


def call(*args):
    """What `fedlib ARGS` does in this process: exit_code, output, stdout and stderr."""
    return CliRunner().invoke(cli.app, [str(a) for a in args])


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


def f64(*values) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


W, LN3 = "extractor.0.weight", log(3)


def two(w=0.5, a0=LN3, a1=0.0, b0=0.0, b1=0.0) -> dict:
    """Parameters of `two_classes`."""
    return {W: f64([w]), "head.weight": f64([a0], [a1]), "head.bias": f64(b0, b1)}


def two_classes(*values) -> Model:
    """One feature z = w x and two classes with scores a_c z + b_c. With p the probabilities and g = p - onehot(y) the
    cross-entropy has da_c = g_c z, db_c = g_c, dw = x sum g_c a_c."""
    model = point_classifier(inputs=1, hidden=1, classes=2)
    model.theta0 = two(*values)
    return model


def labelled(*batches, **options) -> ToyData:
    """A client of `two_classes`: batches of ([x, ...], [class, ...])."""
    return ToyData([([[x] for x in xs], y) for xs, y in batches], classes=2, **options)


def changed_fields(spec, base) -> set[str]:
    """Names of the fields of a run, and of the method's, that differ."""
    pairs = {f.name: (getattr(spec, f.name), getattr(base, f.name)) for f in dataclasses.fields(spec)}
    own = {
        f"{name}.{key}"
        for name in ("hyper", "partition", "model_options")
        for key in pairs[name][0]
        if pairs[name][0][key] != pairs[name][1].get(key)
    }
    plain = {name for name, (a, b) in pairs.items() if a != b and not isinstance(a, dict)}
    return own | plain


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


def wide(method: str, **changes) -> RunSpec:
    """As in `fedlib.checks.plays`, with short options."""
    mixing = MANY if method in MIXING else {}
    return plays.wide(method, **{**mixing, **changes, "hyper": HYPER.get(method, {}) | changes.get("hyper", {})})


def outcome(spec: RunSpec, backend: str, device: str = "cpu") -> tuple:
    """Final states and the evaluation of uneven clients at all points, as one list of tensors; and who ever trained."""
    ends, trained = plays.ending(spec, backend, device)
    return tuple(tensors(ends)), trained


def backends_agree(spec: RunSpec, tolerance: float = ROUNDING) -> None:
    """vmap gives what serial gives: all states and every client's test, up to rounding."""
    trained = backend_agrees(spec, "vmap", tolerance)
    assert trained[4]  # the largest
    assert spec.join_ratio > 0.5 or not trained.all()  # so that statistics of one that never did are recalibrated
