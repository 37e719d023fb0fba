"""Gaussian noise as explicit mechanisms, named in `RunSpec.privacy`. No method knows of them.

| name | what is released | σ is | ε |
|---|---|---|---|
| none | the upload | 0 | ∞ |
| record | θ after DP-SGD: steps along (Σ_s g_s min(1, G/‖g_s‖) + σ G z) / b | noise multiplier | of one record |
| client | ref + Δ min(1, G/‖Δ‖) + σ G z with Δ = θ - ref | noise multiplier | of one client's whole update |
| unclipped | θ + σ z | the noise itself | ∞: without a bound on Δ nothing is hidden |
| unclipped_relative | θ + σ rms(Δ) z | noise as a share of the update | ∞ |

θ: the parameters in an upload; g_s: gradient of the loss of record s alone, over the parameters that the step trains;
G: `clip`; z: standard normal, independent for every parameter, step, client and round; norms are Euclidean over all
parameters at once. What ε is: `fedlib.privacy.accounting`.

M. Abadi et al. "Deep Learning with Differential Privacy." CCS 2016, arXiv:1607.00133 (record). H. B. McMahan, D.
Ramage, K. Talwar, L. Zhang. "Learning Differentially Private Recurrent Language Models." ICLR 2018, arXiv:1710.06963
(client; there the server adds the noise once to the mean, here every client adds it, since others see its upload).

- record: batches are Poisson samples, as the accounting assumes: every record is in a batch with probability q = min(1,
  B/N_i), independently. b = q N_i is the expected size of a batch, an epoch has ⌈N_i/B⌉ steps, an empty batch is a step
  of noise alone. Gradients are those of the method's own loss, regularisers included. Batch norm mixes the records of a
  batch, so that there is no gradient of one record: models with batch norm are refused, and so are methods that compute
  gradients in another way than the client data's `differentiate`, or do not state how many they take (`passes`); a
  client that takes more than that is stopped. ε is of one training record. A method that learns from training records
  in other ways (class counts, prototypes, a choice by their loss: `unprotected`) has no finite one, for records as for
  clients; how many records a client has counts as known. Validation records, by which FedFomo and pFedSV rank models,
  are not protected; neither is fine-tuning, which never leaves the client.
- client: ref must be known without the client's data. It is what the server has just sent under the parameter's name (a
  function of released uploads), or else the client's last release (before the first one: the common initial values).
  Uploads of other numbers than parameters are refused, since nothing bounds them; integers pass, unprotected: pFedSV's
  server learns whom a client asks for, so its ε holds against other clients. The own model is kept without noise.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import inf

import numpy as np
import torch
from torch import Tensor

from fedlib.base import tree
from fedlib.base.draws import rng
from fedlib.base.errors import BadValue, choose, require
from fedlib.base.provenance import is_gpu
from fedlib.data.batch import Batch

UNCLIPPED = ("unclipped", "unclipped_relative")
KINDS = ("none", "record", "client", *UNCLIPPED)
# most numbers of one client's gradients held at a time; measured on a CPU, a guess for a GPU
HELD = {"cpu": 2**25, "cuda": 2**28}


def held(device: torch.device) -> int:
    """Most numbers of one client's gradients that are held at a time on a device."""
    return HELD["cuda" if is_gpu(device) else "cpu"]


@dataclass(frozen=True)
class Mechanism:
    """One mechanism: kind, σ and G. Raises BadValue for values that do not go together."""

    kind: str = "none"
    sigma: float = 0.0
    clip: float = 1.0

    def __post_init__(self):
        choose("privacy", self.kind, KINDS)
        require(0 <= self.sigma < inf, "noise_sigma", self.sigma, "a number from 0 up")
        require(self.clip > 0, "noise_clip", self.clip, "a positive number")
        if self.kind == "none":
            none = f"0 where privacy is 'none'; noise needs one of {KINDS[1:]}"
            require(self.sigma == 0, "noise_sigma", self.sigma, none)
        if self.kind not in ("record", "client"):
            require(self.clip == 1.0, "noise_clip", self.clip, f"its default 1.0, since {self.kind!r} does not clip")
        if self.sigma > 0:
            finite = "a finite number where sigma > 0: the noise is sigma * clip"
            require(self.clip < inf, "noise_clip", self.clip, finite)

    @property
    def active(self) -> bool:
        """Whether it changes anything."""
        return self.sigma > 0 or (self.kind in ("record", "client") and self.clip < inf)

    @property
    def in_steps(self) -> bool:
        """Whether it acts in every local step."""
        return self.active and self.kind == "record"

    @property
    def in_uploads(self) -> bool:
        """Whether it acts on what is uploaded."""
        return self.active and self.kind != "record"


# record level ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PrivateGradient:
    """How DP-SGD differentiates in one step, to be given to `Model.sgd_step`.

    size: expected records of a batch, b; normal(count): fresh standard normal numbers [count].
    """

    mechanism: Mechanism
    size: float | Tensor
    normal: Callable[[int], Tensor]

    def __call__(self, model, loss: Callable, theta: dict, part: dict, batch: Batch) -> tuple[dict, dict]:
        """(Σ_s clipped gradient of record s + σ G z) / b with respect to `part`, and no running statistics.

        loss: as in `Model.sgd_step`. Raises BadValue for a model with batch norm.
        """
        check_model(model)
        total = model.clipped_gradient(loss, theta, part, batch, self.mechanism.clip)
        if total is None:
            total = self._clipped_sum(model, loss, theta, part, batch)
        if self.mechanism.sigma > 0:
            total = self._noisy(total)
        return {name: value / self.size for name, value in total.items()}, {}

    def _clipped_sum(self, model, loss, theta, part, batch) -> dict:
        """Σ_s g_s min(1, G/‖g_s‖) over the real rows of a batch, as many at a time as memory allows."""
        total = {name: torch.zeros_like(value) for name, value in part.items()}
        together = max(1, held(batch.x.device) // sum(value.numel() for value in part.values()))
        with _stacked(model):
            for start in range(0, len(batch.y), together):
                rows = slice(start, start + together)
                total = tree.map(torch.add, total, self._some_clipped(loss, theta, part, batch, rows))
        return total

    def _some_clipped(self, loss, theta, part, batch, rows: slice) -> dict:

        def one(record):
            row = Batch(**{name: value[None] for name, value in record.items()})
            return torch.func.grad(lambda p: loss({**theta, **p}, row, part)[0])(part)

        records = {"images": batch.x, "y": batch.y, "noise": batch.noise}
        records = {name: value[rows] for name, value in records.items() if value is not None}
        grads = torch.func.vmap(one)(records)
        norms = torch.stack([torch.linalg.vector_norm(g.flatten(1), dim=1) for g in grads.values()]).norm(dim=0)
        factors = (self.mechanism.clip / norms).clamp(max=1)
        if batch.mask is not None:
            factors = torch.where(batch.mask[rows], factors, 0)
        return {name: torch.tensordot(factors, g, dims=1) for name, g in grads.items()}

    def _noisy(self, total: dict) -> dict:
        scale = self.mechanism.sigma * self.mechanism.clip
        numbers = self.normal(sum(value.numel() for value in total.values()))
        pieces = numbers.split([value.numel() for value in total.values()])
        return {name: value + scale * z.view_as(value) for (name, value), z in zip(total.items(), pieces)}


@dataclass(frozen=True)
class PrivateBatch(Batch):
    """A minibatch of a client that trains by DP-SGD: its records' losses may not be averaged but by
    `PrivateGradient`."""

    def mean(self, values: Tensor) -> Tensor:
        """Raises BadValue: a gradient of it would be neither clipped nor noisy."""
        raise other_gradient()


@dataclass(frozen=True)
class Stated:
    """What a method says of a client's round: passes, gradients of a minibatch, and what it leaves unprotected."""

    passes: int
    gradients: int = 1
    unprotected: str = ""

    def check(self, gradients: int) -> None:
        """Raise BadValue if a step took more gradients than stated."""
        if gradients > self.gradients:
            raise more_than_stated(f"{gradients} gradients of one minibatch, {self.gradients} are stated")


def stated_by(method, T: int, t: int, E: int) -> Stated:
    """What a method states of round t of T with E local epochs. Raises BadValue for one that states no `passes`."""
    if method.passes is None:
        raise BadValue(
            f"privacy = 'record' is not accepted for {type(method).__name__}, which does not state how often it takes "
            "a gradient by sgd_step with data.differentiate (`passes`)"
        )
    return Stated(method.passes(T, t, E), method.batch_gradients, method.unprotected)


def more_than_stated(what: str) -> BadValue:
    """The error of a method that uses records in ways that its ε does not know of."""
    return BadValue(f"privacy = 'record' is not accepted for a method that takes more than it states: {what}")


def other_gradient() -> BadValue:
    """The error of a method whose steps DP-SGD cannot make private."""
    return BadValue(
        "privacy = 'record' is not accepted for a method that computes gradients in another way than sgd_step "
        "with data.differentiate"
    )


def check_model(model) -> None:
    """Raise BadValue for a model with batch norm, which has no gradient of one record."""
    if model.norms:
        raise BadValue(
            "privacy = 'record' is not accepted for a model with batch norm, which mixes the records of a batch; "
            "expected a model without it, such as lenet5 or mcmahan_cnn"
        )


def poisson_batches(generator: np.random.Generator, count: int, size: int, steps: int) -> list[np.ndarray]:
    """Positions in 0..count-1 of `steps` Poisson samples, each record in each with probability min(1, size/count)."""
    return [np.flatnonzero(generator.random(count) < size / count) for _ in range(steps)]


@contextlib.contextmanager
def _stacked(model) -> Iterator[None]:
    """Within this context a model and its siblings use layers that torch.func can transform."""
    before = [(each, each.stacked) for each in (model, *model.siblings.values())]
    for each, _ in before:
        each.stacked = True
    try:
        yield
    finally:
        for each, was in before:
            each.stacked = was


# uploads --------------------------------------------------------------------------------------------------------------


def release(mechanism: Mechanism, seed: int, round: int, ids, uploads, sent, last: dict, passing: Iterable[str] = ()):
    """What K clients release in place of their uploads, and the parameters in it: (uploads, {name: [K, ...]}).

    uploads, sent: stacked trees [K, ...], what the clients want to send and what they had received; last: their last
    releases, {name: [K, ...]}; passing: floating-point entries that hold nothing of the client's.
    Raises BadValue for uploads of other floating-point numbers than parameters.
    """
    theta = _parameters(uploads, last, set(passing))
    received: dict[str, Tensor] = {}
    for name, leaf in tree.leaves(sent):
        if name in theta and leaf.shape == theta[name].shape:
            received.setdefault(name, leaf)
    known = {name: received.get(name, last[name]) for name in theta}
    released = {name: value.clone() for name, value in theta.items()}
    for k, i in enumerate(ids):
        generator = rng(seed, "privacy noise", round, int(i))
        own = _perturbed(mechanism, generator, tree.rows(theta, k), tree.rows(known, k))
        for name, value in own.items():
            released[name][k] = value
    return tree.replaced(uploads, released), released


def _perturbed(mechanism: Mechanism, generator: np.random.Generator, theta: dict, ref: dict) -> dict:
    """One client's parameters after clipping against `ref` and noise."""
    change = {name: theta[name] - ref[name] for name in theta}
    squares = sum(float(d.double().square().sum()) for d in change.values())
    count = sum(map(torch.numel, theta.values()))
    scale = mechanism.sigma
    if mechanism.kind == "client":
        scale *= mechanism.clip if mechanism.sigma else 0
        if squares > mechanism.clip**2:
            factor = mechanism.clip / squares**0.5
            theta = {name: ref[name] + factor * change[name] for name in theta}
    elif mechanism.kind == "unclipped_relative":
        scale *= (squares / max(count, 1)) ** 0.5
    if scale == 0:
        return theta
    noise = {name: torch.from_numpy(generator.standard_normal(tuple(theta[name].shape))) for name in sorted(theta)}
    return {name: value + scale * noise[name].to(value) for name, value in theta.items()}


def _parameters(uploads, last: dict, passing: set[str]) -> dict[str, Tensor]:
    """The parameters in stacked uploads, by name."""
    found: dict[str, Tensor] = {}
    for name, leaf in tree.leaves(uploads):
        if not leaf.is_floating_point() or name in passing:
            continue
        if name in found or name not in last or leaf.shape != last[name].shape:
            raise BadValue(
                f"noise on uploads is not accepted here: the upload holds {name!r} {list(leaf.shape[1:])}, expected "
                "the parameters "
                "of one model only (and integers); under bn_stats='local' running statistics stay with the clients"
            )
        found[name] = leaf
    return found
