"""Toys whose every step can be redone with pencil and paper: what lessons build methods on by hand,
and tests check them with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedlib.algorithms.api import Setting
from fedlib.base import tree
from fedlib.data.batch import Batch as ToyBatch
from fedlib.models.model import Model
from fedlib.models.parts import ExtractorHead


def theta(w: float, v: float, b: float) -> dict:
    """Parameters of `ToyModel` in float64."""
    values = {"extractor.w": [w], "head.weight": [[v]], "head.bias": [b]}
    return {name: torch.tensor(value, dtype=torch.float64) for name, value in values.items()}


class ToyModel(Model):
    """y = v w x + b, loss = mean of e²/2 with e = v w x + b - y, so that dw = e v x, dv = e w x,
    db = e (means over the batch).

    w is the feature extractor, (v, b) the head. It is a model without a module: all passes are written here.
    """

    trainable = ("extractor.w", "head.weight", "head.bias")
    running = ()
    norm_names = ()
    stacked = False
    step = "torch"

    def __init__(self, w: float = 2.0, v: float = -1.0, b: float = 0.5):
        self.theta0 = theta(w, v, b)

    def sgd_step(self, theta, batch, lr, train=None, loss=None, differentiate=None, tie=None):
        """By the formulas above; with a loss of its own by automatic differentiation. `differentiate` is not asked."""
        if loss is not None:
            return super().sgd_step(theta, batch, lr, train, loss, tie=tie)
        w, v, b = theta["extractor.w"], theta["head.weight"][0], theta["head.bias"]
        e = v * w * batch.x + b - batch.y
        slope = {
            "extractor.w": (e * v * batch.x).mean(),
            "head.weight": (e * w * batch.x).mean(),
            "head.bias": e.mean(),
        }
        part = {name: theta[name] for name in (self.trainable if train is None else train)}
        new = {name: theta[name] - lr * slope[name] for name in part}
        return {**theta, **(self.pulled(new, part, tie, lr) if tie else new)}

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


class Parabola(ToyModel):
    """One parameter w, loss mean x/2 (w - y)²: a client with curvature x and its minimum at y."""

    trainable = ("extractor.w",)
    sgd_step = Model.sgd_step

    def __init__(self, w: float = 5.0):
        self.theta0 = {"extractor.w": torch.tensor([w], dtype=torch.float64)}

    def loss(self, theta, batch, train=None):
        return batch.mean(batch.x / 2 * (theta["extractor.w"] - batch.y).square()), {}


def point_classifier(inputs: int = 2, hidden: int = 0, classes: int = 2) -> Model:
    """A Model in float64 that classifies points [B, inputs]: W A x + b, A without bias (absent if hidden = 0).

    Small seeded initial values, rounded to two digits so that they fit on the page.
    """
    extractor = nn.Sequential(nn.Linear(inputs, hidden, bias=False)) if hidden else nn.Sequential()
    net = ExtractorHead(extractor, nn.Linear(hidden or inputs, classes)).double()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weights in net.parameters():
            drawn = torch.randn(weights.shape, generator=generator, dtype=torch.float64)
            weights.copy_(drawn.mul(0.5).round(decimals=2))
    return Model(net)


class ToyData:
    """One client's minibatches in a fixed order, instead of shuffled ones: batches = [([x, ...], [y, ...]), ...].

    y are numbers for `ToyModel`, and classes for `point_classifier` if `classes` says how many there are. val and test
    are lists of batches as well; what is not given has the training batches. The interface is that of
    `fedlib.algorithms.api.ClientData`.
    """

    group, device = "", torch.device("cpu")

    def __init__(self, batches: Sequence, lr=0.1, epochs=1, val: Sequence = (), test: Sequence = (), classes: int = 0):
        made = [[_batch(*batch, classes) for batch in part] for part in (batches, val, test)]
        self.batches, self.held_out = made[0], {"val": made[1], "test": made[2]}
        self.lr, self.local_epochs, self.classes = lr, epochs, classes
        self.num_samples = sum(len(batch.x) for batch in self.batches)

    @cached_property
    def class_counts(self) -> Tensor:
        """Training samples of every class, int64 [classes]."""
        return functional.one_hot(torch.cat([batch.y for batch in self.batches]), self.classes).sum(0)

    def fold(self, step, state, epochs=None, *, steps=None, together=1, noise=0):
        """`together` batches at a time, cyclically; `steps` of them, or as many as `epochs` passes have.
        Noise is all zeros."""
        batches = [replace(b, noise=b.x.new_zeros(len(b.x), noise)) if noise else b for b in self.batches]
        if steps is None:
            steps = max(1, len(batches) // together) * (self.local_epochs if epochs is None else epochs)
        for s in range(steps):
            state = step(state, *(batches[(s * together + k) % len(batches)] for k in range(together)))
        return state

    def differentiate(self, model, loss, theta, part, batch):
        return model.differentiate(loss, theta, part, batch)

    def scan(self, step, state, part="train"):
        for batch in self.held_out.get(part) or self.batches:
            state = step(state, batch)
        return state


def _batch(x, y, classes: int) -> ToyBatch:
    kind = torch.int64 if classes else torch.float64
    return ToyBatch(torch.as_tensor(x, dtype=torch.float64), torch.as_tensor(y, dtype=kind))


def play(method, model, clients: Sequence[ToyData], rounds: int) -> Iterator[tuple[dict, dict]]:
    """A method's own functions without an engine, everybody taking part: (server, the clients' states stacked)
    at first and after every round."""
    classes = clients[0].classes
    counts = torch.stack([data.class_counts for data in clients]) if classes else None
    server, states = method.init(model, Setting(len(clients), rounds, classes or 1, class_counts=counts))
    yield server, states
    n = np.array([data.num_samples for data in clients])
    for _ in range(rounds):
        out = [
            method.client_update(model, method.download(server, i), tree.rows(states, i), data)
            for i, data in enumerate(clients)
        ]
        uploads, states = map(tree.stack, zip(*out))
        server = method.server_update(server, np.arange(len(clients)), uploads, n)
        yield server, states
