"""The paper's "for each minibatch": one client's data, in a plain form and in a form for clients stacked under vmap.

Seconds are kept by purpose: "data" (which samples, look-up, scaling) and "step" (everything else in a
pass). On a GPU, where work is only queued, both are the time it takes to queue it.
"""

from __future__ import annotations

import functools
import itertools
import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from fedlib.base import tree
from fedlib.base.provenance import is_gpu
from fedlib.data.batch import Batch
from fedlib.engine.batches import KEPT, SCAN_BATCH, ClientTurn, DeviceData
from fedlib.engine.cuda_graph import repeated
from fedlib.models import Model
from fedlib.privacy.noise import PrivateBatch, PrivateGradient, more_than_stated, other_gradient


@functools.cache
def drawers() -> ThreadPoolExecutor:
    """Threads that draw noise for a GPU's many clients, started once."""
    return ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="noise")


def drawn(generators: Sequence[np.random.Generator], count: int, source: DeviceData) -> Tensor:
    """Standard normal numbers [generators, count], on the source's device. A GPU fetches them from pinned memory, and
    nobody waits for it."""
    gpu = is_gpu(source.device)
    numbers = torch.empty(len(generators), count, dtype=torch.float32, pin_memory=gpu)
    side_by_side = drawers().map if gpu else map
    list(side_by_side(lambda g, row: g.standard_normal(dtype=np.float32, out=row), generators, numbers.numpy()))
    return numbers.to(source.device, non_blocking=True).to(source.dtype)  # converted there, since a copy is not pinned


class Differentiating:
    """How a client's training steps differentiate: as the model does, or under privacy = "record" clipped and noisy."""

    protects = False  # whether steps are to be private
    private: PrivateGradient | None = None  # of the step that is being taken, where it is to be private
    asked = 0  # how often it was
    steps = 0  # private ones so far, by client

    @property
    def differentiate(self) -> Callable:
        return self._differentiate if self.protects else Model.differentiate

    def _differentiate(self, model, loss, theta, part, batch):
        if self.private is None:
            return model.differentiate(loss, theta, part, batch)
        self.asked += 1
        return self.private(model, loss, theta, part, batch)

    def private_step(self, private: PrivateGradient, step: Callable, state, *batches: Batch):
        """step(state, *batches) with `private` as the gradient. Raises BadValue where the step takes another one, or
        more than stated."""
        self.private, self.asked = private, 0
        try:
            state = step(state, *(PrivateBatch(batch.images, batch.y, batch.mask, batch.noise) for batch in batches))
        finally:
            self.private = None
        if not self.asked:
            raise other_gradient()
        self.stated.check(self.asked)
        return state

    def book_steps(self, turns: Sequence[ClientTurn], plans: Sequence[list], together: int) -> None:
        """Raise BadValue where steps that are to be private are more than the method states, or mix minibatches."""
        if not self.protects:
            return
        if together > 1:
            raise other_gradient()
        self.steps = self.steps + np.array([len(plan) for plan in plans])
        for turn, steps in zip(turns, self.steps):
            if steps > turn.stated_steps:
                raise more_than_stated(f"{steps} steps, {turn.stated_steps} are stated (`passes`)")

    def book_reading(self, what: str) -> None:
        """Raise BadValue where training records that are to be protected are read, and the method does not say so."""
        if self.protects and not self.stated.unprotected:
            raise more_than_stated(f"it reads {what} without noise and does not state it (`unprotected`)")


class PlainData(Differentiating):
    """One client's data, one minibatch after the other (contract: `fedlib.algorithms.api.ClientData`)."""

    def __init__(self, turn: ClientTurn, clock: Counter | None = None, watch: Callable | None = None):
        self.turn, self.clock, self.watch = turn, Counter() if clock is None else clock, watch
        self.local_epochs, self.lr = turn.training.local_epochs, turn.training.lr
        self.num_samples, self.phase, self.kept = len(turn.parts["train"]), 0, None
        self.group, self.device, self.protects = turn.group, turn.source.device, turn.private
        self.stated = turn.stated

    @property
    def class_counts(self) -> Tensor:
        self.book_reading("class counts")
        return self.turn.class_counts.to(self.turn.source.device)

    def fold(self, step, state, epochs=None, *, steps=None, together: int = 1, noise: int = 0):
        start = time.perf_counter()
        epochs = self.local_epochs if epochs is None else epochs
        plan = self.turn.plan(self.phase, epochs, steps, together)
        self.book_steps([self.turn], [plan], together)
        noises = self.turn.noise(self.phase, plan, noise)
        private = functools.partial(self._private_gradient, self.phase) if self.protects else None
        self.phase += 1
        look_up = self._training_samples(keep=epochs > 1 or steps is not None)
        return self._run(step, state, plan, noises, look_up, start, self.watch, private)

    def scan(self, step, state, part: str = "train"):
        if part == "train":
            self.book_reading("training records")
        start, indices = time.perf_counter(), self.turn.parts[part]
        plan = [(index,) for index in np.split(indices, range(SCAN_BATCH, len(indices), SCAN_BATCH))]
        return self._run(step, state, plan, [(None,)] * len(plan), self.turn.source.batch, start)

    def _training_samples(self, keep: bool) -> Callable[[Tensor], Batch]:
        """Positions -> Batch. For several passes a copy of the client's images is kept, if they are not too many."""
        source, own = self.turn.source, torch.from_numpy(self.turn.parts["train"])
        if self.kept is None and keep and source.images[0].numel() * len(own) <= KEPT:
            self.kept = source.copied(own)
        if self.kept is None:
            return lambda positions: source.batch(own[positions])
        images, y = self.kept.images, self.kept.y

        def look_up(positions: Tensor) -> Batch:
            rows = positions.to(y.device)  # the plan is drawn on the CPU
            return Batch(images.index_select(0, rows), y.index_select(0, rows))

        return look_up

    def _private_gradient(self, phase: int, step: int) -> PrivateGradient:
        generator, source = self.turn.step_noise(phase, step), self.turn.source

        def normal(count: int) -> Tensor:
            return drawn([generator], count, source)[0]

        return PrivateGradient(self.turn.training.privacy, self.turn.expected_batch, normal)

    def _run(self, step, state, plan, noises, look_up, start: float, watch: Callable | None = None, private=None):
        for number, (chosen, noise) in enumerate(zip(plan, noises)):
            batches = [look_up(torch.from_numpy(rows)) for rows in chosen]
            batches = [self._with_noise(batch, numbers) for batch, numbers in zip(batches, noise)]
            ready = time.perf_counter()
            self.clock["data"] += ready - start
            if private:
                state = self.private_step(private(number), step, state, *batches)
            else:
                state = step(state, *batches)
            start = time.perf_counter()
            self.clock["step"] += start - ready
            if watch:
                watch(number, state)
        return state

    def _with_noise(self, batch: Batch, numbers: np.ndarray | None) -> Batch:
        if numbers is None:
            return batch
        return replace(batch, noise=torch.from_numpy(numbers).to(self.turn.source.device, self.turn.source.dtype))


class StackedData(Differentiating):
    """K clients' data, used inside torch.func.vmap with `slot` (0..K-1, batched) saying which client is meant.

    Minibatches are padded to the longest and masked. Where a client has no minibatch left, its old state is selected.
    """

    def __init__(self, turns: Sequence[ClientTurn], slot: Tensor, clock: Counter, cuda_graph: bool | None = None):
        self.turns, self.slot, self.clock, self.cuda_graph = turns, slot, clock, cuda_graph
        training = turns[0].training
        self.local_epochs, self.lr, self.batch_size = training.local_epochs, training.lr, training.batch_size
        self.phase, self.group, self.device, self.protects = 0, turns[0].group, slot.device, turns[0].private
        self.stated = turns[0].stated

    @property
    def num_samples(self) -> Tensor:
        return self._mine(torch.tensor([len(turn.parts["train"]) for turn in self.turns]))

    @property
    def class_counts(self) -> Tensor:
        self.book_reading("class counts")
        return self._mine(torch.stack([turn.class_counts for turn in self.turns]))

    def fold(self, step, state, epochs=None, *, steps=None, together: int = 1, noise: int = 0):
        start = time.perf_counter()
        epochs = self.local_epochs if epochs is None else epochs
        plans = [turn.plan(self.phase, epochs, steps, together) for turn in self.turns]
        self.book_steps(self.turns, plans, together)
        noises = [turn.noise(self.phase, plan, noise) for turn, plan in zip(self.turns, plans)]
        own = [turn.parts["train"] for turn in self.turns]
        plans = [[tuple(mine[rows] for rows in batches) for batches in plan] for mine, plan in zip(own, plans)]
        private, width = None, self.batch_size
        if self.protects:
            sizes = torch.tensor([turn.expected_batch for turn in self.turns], dtype=self.turns[0].source.dtype)
            private = functools.partial(self._private_gradient, self.phase, self._mine(sizes))
            width = max((len(batch) for plan in plans for batches in plan for batch in batches), default=1) or 1
        self.phase += 1
        return self._run(step, state, plans, width, together, start, noises if noise and any(plans) else None, private)

    def scan(self, step, state, part: str = "train"):
        if part == "train":
            self.book_reading("training records")
        start, own = time.perf_counter(), [turn.parts[part] for turn in self.turns]
        plans = [[(rows,) for rows in np.split(mine, range(SCAN_BATCH, len(mine), SCAN_BATCH))] for mine in own]
        return self._run(step, state, plans, min(SCAN_BATCH, max(map(len, own))), 1, start)

    def _private_gradient(self, phase: int, size: Tensor, step: int) -> PrivateGradient:
        generators, source = [turn.step_noise(phase, step) for turn in self.turns], self.turns[0].source

        def normal(count: int) -> Tensor:
            return self._mine(drawn(generators, count, source))

        return PrivateGradient(self.turns[0].training.privacy, size, normal)

    def _run(self, step, state, plans, width: int, together: int, start: float, noises=None, private=None):
        shape, source, noise = (max(map(len, plans), default=0), together, width), self.turns[0].source, None
        table = filled(plans, shape, -1)
        index, real = (self._mine(torch.from_numpy(each)) for each in (table.clip(0), table >= 0))  # for all steps
        if noises is not None:
            numbers = next(batch.shape[1] for plan in noises for batches in plan for batch in batches)
            noise = self._mine(torch.from_numpy(filled(noises, (*shape, numbers), 0.0))).to(source.dtype)
        lengths = self._mine(torch.tensor([len(plan) for plan in plans]))
        ready = time.perf_counter()
        self.clock["data"] += ready - start
        numbers_of_steps = itertools.count()

        def padded_step(state, s):
            rows, mask = index.index_select(0, s)[0], real.index_select(0, s)[0]
            batches = [source.batch(rows[k], mask[k]) for k in range(together)]
            if noise is not None:
                numbers = noise.index_select(0, s)[0]
                batches = [replace(batch, noise=numbers[k]) for k, batch in enumerate(batches)]
            if private is None:
                return tree.where(mask[0].any(), step(state, *batches), state)
            new = self.private_step(private(next(numbers_of_steps)), step, state, *batches)  # int(s) would be a sync
            return tree.where(s[0] < lengths, new, state)

        cuda_graph = self.cuda_graph if private is None else False  # NumPy draws the noise, which no graph can record
        state = repeated(padded_step, state, len(index), self.slot.device, cuda_graph)
        self.clock["step"] += time.perf_counter() - ready
        return state

    def _mine(self, table: Tensor) -> Tensor:
        """This client's row of a table [K, ...]."""
        return table.to(self.slot.device).index_select(0, self.slot.reshape(1))[0]


def filled(plans: list[list[tuple[np.ndarray, ...]]], shape: tuple[int, ...], value: float) -> np.ndarray:
    """What K clients' plans hold for minibatches, [K, *shape]; shape: (S, together, B, ...), S the most steps; `value`
    where there is nothing."""
    table = np.full((len(plans), *shape), value)
    for k, plan in enumerate(plans):
        for s, batches in enumerate(plan):
            for g, batch in enumerate(batches):
                table[k, s, g, : len(batch)] = batch
    return table
