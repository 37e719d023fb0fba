"""Shared by the tests of methods, engine and store: tiny runs on digits, and a toy client whose steps can be done on paper."""

from __future__ import annotations

import dataclasses

import numpy as np
import torch

from fedlib import algorithms, draws, tree
from fedlib.engine import backends
from fedlib.engine.simulate import first_state, play_round, set_up, take_over
from fedlib.models.model import Model
from fedlib.spec import RunSpec

METHODS = tuple(algorithms.names())
TINY = dict(partition=dict(alpha=0.5, min_size=2), num_clients=4, join_ratio=0.5, test_fraction=0.75, rounds=3, local_epochs=1, lr=0.05, eval_every=1)


def tiny(method: str, **changes) -> RunSpec:
    """A run of well under a second."""
    return RunSpec(method, **{**TINY, **changes})


def played(spec: RunSpec, backend: str = "serial", change=None, device: str = "cpu"):
    """Yield (run, state, participants) before round 1 (participants empty) and after every round; `change(run)` adapts the run first."""
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
        "status": result.status, "history": result.history, "partition": result.partition, "communication": result.communication,
        "arrays": {name: array.tolist() for name, array in result.arrays.items()},
    }


def theta(w: float, v: float, b: float) -> dict:
    """Parameters of the toy model y = v w x + b."""
    values = {"extractor.w": [w], "head.weight": [[v]], "head.bias": [b]}
    return {name: torch.tensor(value, dtype=torch.float64) for name, value in values.items()}


class ToyModel:
    """y = v w x + b, loss = mean of e²/2 with e = v w x + b - y, so that dw = e v x, dv = e w x, db = e (means over the batch)."""

    trainable = ("extractor.w", "head.weight", "head.bias")
    running = ()

    def __init__(self, w: float = 2.0, v: float = -1.0, b: float = 0.5):
        self.theta0 = theta(w, v, b)

    norm_names = ()
    descended = Model.descended
    gradient = Model.gradient
    stacked = False

    def sgd_step(self, theta, batch, lr, train=None, loss=None):
        """By the formulas above; with a loss of its own by automatic differentiation."""
        names = self.trainable if train is None else tuple(train)
        if loss is not None:
            part = {name: theta[name] for name in names}
            slope, _ = self.gradient(lambda p: loss({**theta, **p}, batch, names), part)
        else:
            w, v, b = theta["extractor.w"], theta["head.weight"][0], theta["head.bias"]
            e = v * w * batch.x + b - batch.y
            slope = {"extractor.w": (e * v * batch.x).mean(), "head.weight": (e * w * batch.x).mean(), "head.bias": e.mean()}
        return {**theta, **{name: theta[name] - lr * slope[name] for name in names}}

    def features(self, theta, x):
        """z = w x, [B, 1]."""
        return (theta["extractor.w"] * x)[:, None]

    def training_features(self, theta, batch, train=None):
        return self.features(theta, batch.x), {}

    def classify(self, theta, z):
        """v z + b, [B]."""
        return (z @ theta["head.weight"].T + theta["head.bias"])[:, 0]

    def logits(self, theta, x):
        return self.classify(theta, self.features(theta, x))

    def loss(self, theta, batch, train=None):
        return 0.5 * batch.mean((self.logits(theta, batch.x) - batch.y).square()), {}


@dataclasses.dataclass(frozen=True)
class ToyBatch:
    x: torch.Tensor
    y: torch.Tensor
    mask: None = None
    noise: torch.Tensor | None = None

    def mean(self, values):
        return values.mean()


class ToyData:
    """Minibatches in a fixed order: batches = [([x, ...], [y, ...]), ...]."""

    def __init__(self, batches, lr: float = 0.1, epochs: int = 1):
        self.batches = [ToyBatch(*(torch.tensor(part, dtype=torch.float64) for part in batch)) for batch in batches]
        self.lr, self.local_epochs, self.num_samples = lr, epochs, sum(len(batch.x) for batch in self.batches)

    def fold(self, step, state, epochs=None, *, steps=None, together=1, noise=0):
        """`together` batches at a time, cyclically; `steps` of them, or as many as `epochs` passes have."""
        count = len(self.batches)
        if steps is None:
            steps = max(1, count // together) * (self.local_epochs if epochs is None else epochs)
        for s in range(steps):
            state = step(state, *(self.batches[(s * together + k) % count] for k in range(together)))
        return state

    def scan(self, step, state, part="train"):
        """All parts ("train", "val", "test") hold the same batches."""
        for batch in self.batches:
            state = step(state, batch)
        return state
