"""Networks for an attack that have learnt something: the common model after some rounds of FedAvg.

As plain as FedAvg can be (H. B. McMahan et al., AISTATS 2017, arXiv:1602.05629): CLIENTS clients with equal shares of
IMAGES images, drawn without regard to labels, all of them in every round, one local epoch in batches of BATCH, and the
mean of their parameters. The attacked images come first, so that they are among those that it is trained on, as a
client's own images would be. Everything is a function of the seed.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from fedlib.base.draws import rng
from fedlib.data import load
from fedlib.data.batch import Batch
from fedlib.models import build
from fedlib.models.model import Model

CLIENTS, IMAGES, BATCH = 10, 4000, 32


def shares(number: int, attacked: np.ndarray, seed: int) -> list[np.ndarray]:
    """Which of a data set's `number` images the clients have, int64 [CLIENTS][about IMAGES/CLIENTS]: the attacked ones
    [n] dealt out first, then others, at random."""
    others = np.setdiff1d(np.arange(number), attacked)
    drawn = rng(seed, "images of a trained network").permutation(others)
    every = np.concatenate([attacked, drawn])[: max(IMAGES, len(attacked))]
    return [every[k::CLIENTS] for k in range(CLIENTS)]


def rounds_of_fedavg(model: Model, dataset, attacked: np.ndarray, lr: float, seed: int) -> Iterator[dict]:
    """The common parameters before round 1, after round 1, after round 2, and so on; lr: of all clients."""
    parts, theta = shares(len(dataset.labels), attacked, seed), model.theta0
    x, y = standardised(model, dataset), dataset.labels.to(model.theta0["head.bias"].device)
    sizes = torch.tensor([len(part) for part in parts], dtype=torch.float64)
    weights = (sizes / sizes.sum()).tolist()
    for round in itertools.count(1):
        yield theta
        locals = [one_epoch(model, theta, x, y, part, lr, seed, round, k) for k, part in enumerate(parts)]
        theta = {name: sum(w * own[name] for w, own in zip(weights, locals)) for name in theta}


def one_epoch(model: Model, theta: dict, x, y: Tensor, part: np.ndarray, lr: float, seed: int, round: int, client: int):
    """Parameters of a client after one epoch over its images, in an order of its own for every round."""
    order = rng(seed, "batches of a trained network", round, client).permutation(part)
    for start in range(0, len(order), BATCH):
        rows = order[start : start + BATCH].tolist()
        theta = model.sgd_step(theta, Batch(x(rows), y[rows]), lr)
    return theta


def standardised(model: Model, dataset) -> Callable[[list[int]], Tensor]:
    """A function from numbers of images to these images [B, c, h, w] as the network takes them, on its device."""
    mean, std = (value.to(model.theta0["head.bias"]) for value in dataset.channel_stats)
    return lambda rows: (dataset.images[rows].to(mean).div(255) - mean) / std


@functools.lru_cache(maxsize=8)
def after_rounds(
    network: str, options: tuple, dataset: str, attacked: tuple[int, ...], rounds: tuple[int, ...], lr: float,
    seed: int, device: torch.device,
) -> tuple[Model, list[dict], list[float]]:  # fmt: skip
    """A network, its parameters after these rounds of FedAvg (0: untrained), and how many of the attacked images it
    gets right then, as a share. rounds: rising; options: pairs of name and value."""
    data = load(dataset)
    model = build(network, data.shape, len(data.classes), seed=seed, **dict(options)).to(device, torch.float32)
    every = rounds_of_fedavg(model, data, np.array(attacked), lr, seed)
    thetas = [theta for t, theta in enumerate(itertools.islice(every, rounds[-1] + 1)) if t in rounds]
    x, y = standardised(model, data)(list(attacked)), data.labels[list(attacked)].to(device)
    with torch.no_grad():
        right = [float((model.logits(theta, x).argmax(1) == y).float().mean()) for theta in thetas]
    return model, thetas, right
