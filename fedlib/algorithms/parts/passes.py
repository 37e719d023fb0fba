"""Passes over one client's data that methods share: LocalSGD, means over a part of it, and statistics of the features
class by class, of which prototype methods are made."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional


def local_sgd(
    model, theta: dict, data, epochs: int | None = None, train=None, loss=None, noise: int = 0, lr=None, tie=None
) -> dict:
    """LocalSGD_i(theta; E, eta, A): E epochs of minibatch SGD on the client's training data,
    for the parameters `train`.

    epochs, lr: None stands for the run's; train: None for all that are trainable. loss, tie: as in
    `fedlib.models.Model.sgd_step`; noise: as in `fedlib.algorithms.api.ClientData.fold`.
    """
    rate = data.lr if lr is None else lr

    def step(theta, batch):
        return model.sgd_step(theta, batch, rate, train, loss, data.differentiate, tie)

    return data.fold(step, theta, epochs, noise=noise)


def part_mean(values: Callable[[Tensor, Tensor], Tensor], count: int, data, part: str = "val") -> Tensor:
    """Means over one part of a client's data of `count` numbers a sample, float64 [count]; 0 if the part is empty.

    values(x, y) -> [count, B] for images x [B, c, h, w] and labels y [B].
    """

    def step(totals, batch):
        found = values(batch.x, batch.y).double()
        rows = torch.ones_like(batch.y) if batch.mask is None else batch.mask.to(batch.y.dtype)
        if batch.mask is not None:
            found = torch.where(batch.mask, found, 0)
        return totals[0] + found.sum(1), totals[1] + rows.sum()

    device = data.device
    zeros = torch.zeros(count, dtype=torch.float64, device=device), torch.zeros((), dtype=torch.int64, device=device)
    sums, rows = data.scan(step, zeros, part)
    return sums / rows.clamp(min=1)


def mean_losses(model, thetas: Sequence[dict], data, part: str = "val") -> Tensor:
    """Mean cross-entropy of several models on one part of a client's data, float64 [models]; 0 if the part is empty."""

    def losses(x, y):
        return torch.stack([functional.cross_entropy(model.logits(t, x), y, reduction="none") for t in thetas])

    return part_mean(losses, len(thetas), data, part)


def count_correct(scores, data, num_classes: int):
    """Correct predictions per class int64 [C] and the summed cross-entropy on the client's test data; scores:
    minibatch -> [B, C]."""

    def step(totals, batch):
        logits = scores(batch)
        classes = torch.arange(num_classes, device=logits.device)
        hit = logits.argmax(1) == batch.y
        loss = functional.cross_entropy(logits, batch.y, reduction="none").double()
        if batch.mask is not None:
            hit, loss = hit & batch.mask, torch.where(batch.mask, loss, 0)
        per_class = (hit[:, None] & (batch.y[:, None] == classes)).sum(0)
        return totals[0] + per_class, totals[1] + loss.sum()

    device = data.device
    zeros = (
        torch.zeros(num_classes, dtype=torch.int64, device=device),
        torch.zeros((), dtype=torch.float64, device=device),
    )
    return data.scan(step, zeros, "test")


# class by class -------------------------------------------------------------------------------------------------------


def one_hot(y: Tensor, num_classes: int) -> Tensor:
    """bool [B, C]; also under vmap, where PyTorch's own does not work."""
    return y[:, None] == torch.arange(num_classes, device=y.device)


def class_statistics(model, theta: dict, data) -> tuple[Tensor, Tensor, Tensor]:
    """One pass over the training data in evaluation mode, with z = f(x): for every class its samples [C], its mean z
    [C, d] and its mean |z|^2 [C] (0 for classes without samples), all of theta's type."""
    weight = theta["head.weight"]
    C, d = weight.shape

    def step(totals, batch):
        z = model.features(theta, batch.x)
        own = one_hot(batch.y, C).to(z)  # [B, C]
        if batch.mask is not None:
            own = own * batch.mask[:, None]
        counts, sums, squares = totals
        return counts + own.sum(0), sums + own.T @ z, squares + own.T @ z.square().sum(1)

    counts, sums, squares = data.scan(step, (weight.new_zeros(C), weight.new_zeros(C, d), weight.new_zeros(C)))
    some = counts.clamp(min=1)
    return counts, sums / some[:, None], squares / some


def attraction(z: Tensor, y: Tensor, prototypes: Tensor, counts: Tensor) -> Tensor:
    """Mean over the components of (f(x) - P_y)^2 for every sample [B];
    0 where class y has no prototype (counts[y] = 0)."""
    return torch.where(counts[y] > 0, (z - prototypes[y]).square().mean(1), 0.0)
