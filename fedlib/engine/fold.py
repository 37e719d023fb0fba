"""The paper's "for each minibatch": one client's data, in a plain form and in a form for clients stacked under vmap.

Time is booked on a clock, seconds by purpose: "data" (which samples, look-up, scaling) and "step" (everything else in a
pass). On a GPU, where work is only queued, both are the time it takes to queue it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedlib import tree
from fedlib.data.datasets import Dataset
from fedlib.draws import rng
from fedlib.engine.capture import repeated

SCAN_BATCH = 512  # rows of a batch where nothing is trained
KEPT = 2**26  # most numbers of one client's scaled images that are kept from one epoch to the next


@dataclass(frozen=True)
class Batch:
    """x: standardised images [B, c, h, w]; y: int64 [B]; mask: bool [B], real rows of a padded batch, or None if all are."""

    x: Tensor
    y: Tensor
    mask: Tensor | None = None


class Source:
    """The whole data set on one device; a batch is an index look-up, scaled to [0, 1] and standardised per channel on the fly."""

    def __init__(self, dataset: Dataset, device: torch.device, dtype: torch.dtype):
        self.dataset, self.device, self.dtype = dataset, device, dtype
        self.images, self.labels = dataset.images, dataset.labels.to(device)
        if device.type != "cpu":
            self.images = self.images.contiguous().to(device)
        mean, std = dataset.channel_stats
        self.scale = (1 / (255 * std)).to(device, dtype)
        self.shift = (-mean / std).to(device, dtype)

    def __reduce__(self):
        return Source, (self.dataset, self.device, self.dtype)

    def batch(self, index: Tensor, mask: Tensor | None = None) -> Batch:
        """The samples `index` int64 [B] as a Batch."""
        x = self.images[index].to(self.dtype, memory_format=torch.contiguous_format)
        return Batch(x.mul_(self.scale).add_(self.shift), self.labels[index], mask)


@dataclass(frozen=True)
class Training:
    """What every client of a run shares: E local epochs, B batch size, lr, the run's seed, smallest batch that is trained on."""

    local_epochs: int
    batch_size: int
    lr: float
    seed: int
    min_batch: int  # 2 for models with batch norm: a batch of one sample is skipped


@dataclass(frozen=True)
class Turn:
    """One client's turn to compute: its samples by part ("train", "test"), the run's training settings, the name of its draws."""

    source: Source
    training: Training
    parts: dict[str, np.ndarray]
    draw: tuple[int, ...]  # (purpose, round, client)

    def batches(self, epochs: int, phase: int) -> list[np.ndarray]:
        """Positions in the client's training part of all minibatches: shuffled anew every epoch, the last partial one kept."""
        generator = rng(self.training.seed, "batches", *self.draw, phase)
        size, count, batches = self.training.batch_size, len(self.parts["train"]), []
        for _ in range(epochs):
            order = generator.permutation(count)
            batches += [order[start : start + size] for start in range(0, count, size)]
        return [batch for batch in batches if len(batch) >= self.training.min_batch]


class PlainData:
    """One client's data, one minibatch after the other (contract: `fedlib.algorithms.api.ClientData`)."""

    def __init__(self, turn: Turn, clock: Counter | None = None, watch: Callable | None = None):
        self.turn, self.clock, self.watch = turn, Counter() if clock is None else clock, watch
        self.local_epochs, self.lr = turn.training.local_epochs, turn.training.lr
        self.num_samples, self.phase, self.kept = len(turn.parts["train"]), 0, None

    def fold(self, step, state, epochs: int | None = None):
        start = time.perf_counter()
        epochs = self.local_epochs if epochs is None else epochs
        plan = self.turn.batches(epochs, self.phase)
        self.phase += 1
        look_up = self._training_samples(keep=epochs > 1)
        return self._run(step, state, [torch.from_numpy(positions) for positions in plan], look_up, start, self.watch)

    def scan(self, step, state, part: str = "train"):
        start, indices = time.perf_counter(), self.turn.parts[part]
        plan = [torch.from_numpy(index) for index in np.split(indices, range(SCAN_BATCH, len(indices), SCAN_BATCH))]
        return self._run(step, state, plan, self.turn.source.batch, start)

    def _training_samples(self, keep: bool) -> Callable[[Tensor], Batch]:
        """Positions -> Batch. For several passes the client's scaled images are kept, if they are not too many."""
        source, own = self.turn.source, torch.from_numpy(self.turn.parts["train"])
        if self.kept is None and keep and source.images[0].numel() * len(own) <= KEPT:
            self.kept = source.batch(own)
        if self.kept is None:
            return lambda positions: source.batch(own[positions])
        x, y = self.kept.x, self.kept.y
        return lambda positions: Batch(x.index_select(0, positions), y.index_select(0, positions))

    def _run(self, step, state, plan: list[Tensor], look_up, start: float, watch: Callable | None = None):
        for number, chosen in enumerate(plan):
            batch = look_up(chosen)
            ready = time.perf_counter()
            self.clock["data"] += ready - start
            state = step(state, batch)
            start = time.perf_counter()
            self.clock["step"] += start - ready
            if watch:
                watch(number, state)
        return state


class StackedData:
    """K clients' data, used inside torch.func.vmap with `slot` (0..K-1, batched) saying which client is meant.

    Minibatches are padded to the longest and masked. Where a client has no minibatch left, its old state is selected.
    """

    def __init__(self, turns: Sequence[Turn], slot: Tensor, clock: Counter, capture: bool | None = None):
        self.turns, self.slot, self.clock, self.capture = turns, slot, clock, capture
        training = turns[0].training
        self.local_epochs, self.lr, self.batch_size, self.phase = (
            training.local_epochs,
            training.lr,
            training.batch_size,
            0,
        )

    @property
    def num_samples(self) -> Tensor:
        return self._mine(torch.tensor([len(turn.parts["train"]) for turn in self.turns]))

    def fold(self, step, state, epochs: int | None = None):
        start = time.perf_counter()
        epochs = self.local_epochs if epochs is None else epochs
        plans = [[turn.parts["train"][batch] for batch in turn.batches(epochs, self.phase)] for turn in self.turns]
        self.phase += 1
        return self._run(step, state, plans, self.batch_size, start)

    def scan(self, step, state, part: str = "train"):
        start, own = time.perf_counter(), [turn.parts[part] for turn in self.turns]
        plans = [np.split(indices, range(SCAN_BATCH, len(indices), SCAN_BATCH)) for indices in own]
        return self._run(step, state, plans, min(SCAN_BATCH, max(map(len, own))), start)

    def _run(self, step, state, plans: list[list[np.ndarray]], width: int, start: float):
        index, real = padded(plans, width)
        index, real = self._mine(index), self._mine(real)  # [S, B] each, for all steps on the device at once
        source, ready = self.turns[0].source, time.perf_counter()
        self.clock["data"] += ready - start

        def padded_step(state, s):
            rows, mask = index.index_select(0, s)[0], real.index_select(0, s)[0]
            return tree.where(mask.any(), step(state, source.batch(rows, mask)), state)

        state = repeated(padded_step, state, len(index), self.slot.device, self.capture)
        self.clock["step"] += time.perf_counter() - ready
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
