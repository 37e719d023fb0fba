"""The paper's "for each minibatch": one client's data, in a plain form and in a form for clients stacked under vmap."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedlib import tree
from fedlib.data.datasets import Dataset
from fedlib.draws import rng

SCAN_BATCH = 512  # rows of a batch where nothing is trained


@dataclass(frozen=True)
class Batch:
    """x: standardised images [B, c, h, w]; y: int64 [B]; mask: bool [B], real rows of a padded batch, or None if all are."""

    x: Tensor
    y: Tensor
    mask: Tensor | None = None


class Source:
    """The whole data set on one device; a batch is an index look-up, scaled to [0, 1] and standardised per channel on the fly."""

    def __init__(self, dataset: Dataset, device: torch.device, dtype: torch.dtype):
        self.images, self.labels = dataset.images.to(device), dataset.labels.to(device)
        mean, std = dataset.channel_stats
        self.scale = (1 / (255 * std)).to(device, dtype)
        self.shift = (-mean / std).to(device, dtype)

    def batch(self, index: Tensor, mask: Tensor | None = None) -> Batch:
        """The samples `index` int64 [B] as a Batch."""
        return Batch(self.images[index].to(self.scale.dtype) * self.scale + self.shift, self.labels[index], mask)


@dataclass(frozen=True)
class Training:
    """What every client of a run shares: E local epochs, B batch size, lr, the run's seed, smallest batch that is trained on."""

    local_epochs: int
    batch_size: int
    lr: float
    seed: int
    min_batch: int  # 2 for models with batch norm: a batch of one sample is skipped


def training_batches(indices: np.ndarray, epochs: int, training: Training, *ids: int) -> list[np.ndarray]:
    """Index arrays of all minibatches: shuffled anew every epoch, the last partial one kept. `ids` names the draw."""
    generator = rng(training.seed, "batches", *ids)
    size, batches = training.batch_size, []
    for _ in range(epochs):
        order = generator.permutation(indices)
        batches += [order[start : start + size] for start in range(0, len(order), size)]
    return [batch for batch in batches if len(batch) >= training.min_batch]


class PlainData:
    """One client's data for the serial backend (contract: `fedlib.algorithms.api.ClientData`)."""

    def __init__(
        self,
        source: Source,
        training: Training,
        parts: dict[str, np.ndarray],
        draw: tuple[int, ...],
        watch: Callable | None = None,
    ):
        self.source, self.training, self.parts = source, training, parts
        self.local_epochs, self.lr, self.num_samples = training.local_epochs, training.lr, len(parts["train"])
        self.draw, self.phase, self.watch = draw, 0, watch

    def fold(self, step, state, epochs: int | None = None):
        batches = training_batches(
            self.parts["train"], self.local_epochs if epochs is None else epochs, self.training, *self.draw, self.phase
        )
        self.phase += 1
        for number, index in enumerate(batches):
            state = step(state, self.source.batch(torch.from_numpy(index)))
            if self.watch:
                self.watch(number, state)
        return state

    def scan(self, step, state, part: str = "train"):
        for index in np.split(self.parts[part], range(SCAN_BATCH, len(self.parts[part]), SCAN_BATCH)):
            state = step(state, self.source.batch(torch.from_numpy(index)))
        return state


class StackedData:
    """K clients' data, used inside torch.func.vmap with `slot` (0..K-1, batched) saying which client is meant.

    Minibatches are padded to the longest and masked. Where a client has no minibatch left, its old state is selected.
    """

    def __init__(
        self,
        source: Source,
        training: Training,
        clients: Sequence[dict[str, np.ndarray]],
        draws: Sequence[tuple[int, ...]],
        slot: Tensor,
    ):
        self.source, self.training, self.clients, self.draws, self.slot = source, training, clients, draws, slot
        self.local_epochs, self.lr, self.phase = training.local_epochs, training.lr, 0

    @property
    def num_samples(self) -> Tensor:
        return self._mine(torch.tensor([len(parts["train"]) for parts in self.clients]))

    def fold(self, step, state, epochs: int | None = None):
        epochs = self.local_epochs if epochs is None else epochs
        plans = [
            training_batches(parts["train"], epochs, self.training, *draw, self.phase)
            for parts, draw in zip(self.clients, self.draws)
        ]
        self.phase += 1
        return self._run(step, state, plans, self.training.batch_size)

    def scan(self, step, state, part: str = "train"):
        plans = [np.split(parts[part], range(SCAN_BATCH, len(parts[part]), SCAN_BATCH)) for parts in self.clients]
        return self._run(step, state, plans, min(SCAN_BATCH, max(len(batch) for plan in plans for batch in plan)))

    def _run(self, step, state, plans: list[list[np.ndarray]], width: int):
        index, real = padded(plans, width)
        index, real = self._mine(index), self._mine(real)  # [S, B] each
        for s in range(len(index)):
            new = step(state, self.source.batch(index[s], real[s]))
            state = tree.where(real[s].any(), new, state)
        return state

    def _mine(self, table: Tensor) -> Tensor:
        """This client's row of a table [K, ...]."""
        return table.to(self.slot.device).index_select(0, self.slot.reshape(1))[0]


def padded(plans: list[list[np.ndarray]], width: int) -> tuple[Tensor, Tensor]:
    """Plans of K clients -> sample indices int64 [K, S, B] and real rows bool [K, S, B], S the most steps of a client."""
    steps = max((len(plan) for plan in plans), default=0)
    index = np.zeros((len(plans), steps, width), dtype=np.int64)
    real = np.zeros((len(plans), steps, width), dtype=bool)
    for k, plan in enumerate(plans):
        for s, batch in enumerate(plan):
            index[k, s, : len(batch)], real[k, s, : len(batch)] = batch, True
    return torch.from_numpy(index), torch.from_numpy(real)


def local_sgd(model, theta: dict, data, epochs: int | None = None, train=None) -> dict:
    """LocalSGD_i(theta; E, eta, A): E epochs of minibatch SGD on the client's training data, for the parameters `train` (default all)."""
    return data.fold(lambda theta, batch: model.sgd_step(theta, batch, data.lr, train), theta, epochs)
