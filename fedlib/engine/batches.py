"""Which samples a client sees when: the data set on its device, and the plan of a client's minibatches."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from fedlib.base.draws import rng
from fedlib.base.errors import require
from fedlib.data.batch import Batch, StoredImages
from fedlib.data.datasets import Dataset
from fedlib.privacy.noise import Mechanism, Stated, poisson_batches

SCAN_BATCH = 512  # rows of a batch where nothing is trained
KEPT = 2**26  # most numbers of one client's scaled images that are kept from one epoch to the next
TRAIN, EVALUATE, SURVEY = 0, 1, 2  # what a client's turn is for: the first number of its draws


class DeviceData:
    """The whole data set on one device; a batch is an index look-up, scaled to [0, 1] where it holds bytes, and
    standardised per channel on the fly. With pixels = "reference" bytes are standardised as they are, 0 to 255, with
    the statistics of the scaled ones, as pFedSim's reference code does: inputs of CIFAR-10 have a mean of about 480
    then, and a std of about 255 (the reference's: 600 and 320, for its std of CIFAR-10 is too small by a fifth). With
    pixels = "symmetric" they go from -1 (black) to 1 (white): CIFAR-10's have a mean of -0.05 and a std of 0.5."""

    def __init__(self, dataset: Dataset, device: torch.device, dtype: torch.dtype, pixels: str = "standardised"):
        self.dataset, self.device, self.dtype, self.pixels = dataset, device, dtype, pixels
        self.images, self.labels = dataset.images, dataset.labels.to(device)
        if device.type != "cpu":
            self.images = self.images.contiguous().to(device)
        pixels_first = self.images.permute(0, 2, 3, 1)  # as they are stored on disk
        self.stored = device.type == "cpu" and dataset.largest == 255 and pixels_first.is_contiguous()
        mean, std = dataset.channel_stats
        if pixels == "symmetric":
            mean, std = torch.full_like(mean, 0.5), torch.full_like(std, 0.5)
        require(pixels == "standardised" or dataset.largest == 255, "pixels", pixels, "standardised for a data set of "
                "numbers that are no bytes")  # fmt: skip
        self.scale = (1 / ((1 if pixels == "reference" else dataset.largest) * std)).to(device, dtype)
        self.shift = (-mean / std).to(device, dtype)

    def __reduce__(self):
        return DeviceData, (self.dataset, self.device, self.dtype, self.pixels)

    def batch(self, index: Tensor, mask: Tensor | None = None) -> Batch:
        """The samples `index` int64 [B] as a Batch. One without padding holds bytes, where they lie well for that,
        until its `x` is asked for."""
        if self.stored and mask is None:
            images = StoredImages(self.images.permute(0, 2, 3, 1), index, self.scale, self.shift)
            return Batch(images, self.labels[index])
        rows = index.to(self.images.device)  # `index_select` is half as long as indexing, but wants them there
        x = self.images.index_select(0, rows).to(self.dtype, memory_format=torch.contiguous_format)
        return Batch(x.mul_(self.scale).add_(self.shift), self.labels[index], mask)

    def copied(self, index: Tensor) -> Batch:
        """The same samples with images of their own, one after the other in memory."""
        batch = self.batch(index)
        return replace(batch, images=batch.images.copied()) if self.stored else batch


@dataclass(frozen=True)
class Training:
    """What every client of a run shares: E local epochs, B batch size, lr, the run's seed,
    smallest batch that is trained on."""

    local_epochs: int
    batch_size: int
    lr: float
    seed: int
    min_batch: int  # 2 for models with batch norm: a batch of one sample is skipped
    privacy: Mechanism = Mechanism()
    batch_order: str = "shuffled"  # or "fixed"


@dataclass(frozen=True)
class ClientTurn:
    """One client's turn to compute: its samples by part ("train", "test"), the run's training settings,
    the name of its draws."""

    source: DeviceData
    training: Training
    parts: dict[str, np.ndarray]
    draw: tuple[int, ...]  # (purpose, round, client)
    group: str = ""  # clients of different groups are never stacked together
    stated: Stated = Stated(0)  # what the method says of its gradients, where these are private

    def plan(
        self, phase: int, epochs: int, steps: int | None = None, together: int = 1
    ) -> list[tuple[np.ndarray, ...]]:
        """Positions in the client's training part of all minibatches, `together` at a time.

        Shuffled anew every epoch, or always in the order of the part; the last partial batch is kept. An epoch of b
        batches makes max(1, b // together) steps; `steps` says how many there are in all, with as many epochs as that
        takes. No steps without a batch to train on. Where training is DP-SGD batches are Poisson samples, as many as
        the epoch has otherwise.
        """
        generator = rng(self.training.seed, "batches", *self.draw, phase)
        size, count, plan = self.training.batch_size, len(self.parts["train"]), []
        while (epochs > 0) if steps is None else (len(plan) < steps):
            if self.private:
                batches = poisson_batches(generator, count, size, -(-count // size))
            else:
                order = generator.permutation(count) if self.training.batch_order == "shuffled" else np.arange(count)
                batches = [order[start : start + size] for start in range(0, count, size)]
                batches = [batch for batch in batches if len(batch) >= self.training.min_batch]
            if not batches:
                return []
            for first in range(0, max(1, len(batches) // together) * together, together):
                plan.append(tuple(batches[k % len(batches)] for k in range(first, first + together)))
            epochs -= 1
        return plan[:steps]

    def noise(
        self, phase: int, plan: list[tuple[np.ndarray, ...]], numbers: int
    ) -> list[tuple[np.ndarray | None, ...]]:
        """Standard normal numbers [B, numbers] for every minibatch of a plan; None if `numbers` is 0."""
        if not numbers:
            return [(None,) * len(batches) for batches in plan]
        generator = rng(self.training.seed, "noise", *self.draw, phase)
        return [tuple(generator.standard_normal((len(batch), numbers)) for batch in batches) for batches in plan]

    @property
    def private(self) -> bool:
        """Whether this turn's steps are DP-SGD."""
        return self.training.privacy.in_steps and self.draw[0] == TRAIN

    @property
    def stated_steps(self) -> int:
        """The most private steps of this turn."""
        return self.stated.passes * -(-len(self.parts["train"]) // self.training.batch_size)

    @property
    def expected_batch(self) -> float:
        """Mean size of a Poisson sample."""
        return float(min(self.training.batch_size, len(self.parts["train"])))

    def step_noise(self, phase: int, step: int) -> np.random.Generator:
        """The stream of DP-SGD's noise in one step."""
        return rng(self.training.seed, "privacy noise", *self.draw, phase, step)

    @property
    def class_counts(self) -> Tensor:
        """Training samples of every class, int64 [C]."""
        labels = self.source.dataset.labels[torch.from_numpy(self.parts["train"])]
        return labels.bincount(minlength=len(self.source.dataset.classes))
