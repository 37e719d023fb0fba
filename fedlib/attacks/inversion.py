"""Gradient inversion: what an attacker recovers of the images behind a client's upload.

The attacker knows the model before the client's training (in round 1 the common initial one; later only an attacker who
sees everything does), the upload, the architecture, the learning rate, the channel means and stds of the data, how many
images were in which local step, and, where `labels` is "known", the labels. From the upload it computes the signal
g = (θ_before - θ_after)/η, which after a single step is the gradient of the batch. It then looks for images u in [0, 1]
(and labels) whose own signal h(u), simulated with the same steps, is like g:

| `match` | what is minimised |
|---|---|
| l2 | ‖h(u) - g‖²/‖g‖² + tv TV(u) |
| cosine | 1 - <h(u), g>/(‖h(u)‖ ‖g‖) + tv TV(u), TV the mean absolute difference of neighbouring pixels |
| likelihood | ‖h(u) - g‖²/(2 s²) + tv n TV(u)/TV(data), less what does not depend on u, over n/TV(data) |

- DLG: l2, soft labels found along with the image, L-BFGS. L. Zhu, Z. Liu, S. Han, NeurIPS 2019, arXiv:1906.08935.
- iDLG: the label is read off first (`infer_labels`). B. Zhao, K. R. Mopuri, H. Bilen 2020, arXiv:2001.02610.
- COSINE: cosine with total variation, Adam on the sign of the gradient, step decay, box constraint. J. Geiping, H.
  Bauermeister, H. Dröge, M. Moeller, NeurIPS 2020, arXiv:2003.14053. Adam's attacks run stacked (vmap), L-BFGS's one
  after the other.
- LIKELIHOOD: of one who knows the noise level of DP-SGD, too. Its clipping G and its σ are public, so he simulates the
  clipping, record by record, and knows that what is left of g - h(u) at the true images is Gaussian with std s in every
  number: s² = Σ over local steps of (σ G/records in the step)². Minus the logarithm of that density is the first term
  (noise of early steps also moves the weights of later ones, which it leaves out). The second is the same of his prior:
  densities exp(-c TV) have the mean TV = n/c, n pixels in an image, so that c = n/TV(data) gives images as rough as the
  data's; he needs ordinary images of the kind for it, no others. So the noise decides how much he smooths, and nothing
  is tuned: tv is 1. No layer weighs more than another, because the noise is the same in all. Where an image's gradient
  is clipped, ‖h(u)‖ = G, the first term is, up to a constant, the cosine times -G ‖g‖/s².

Who has seen several uploads from the same images either averages them, where the weights were the same, which divides s
by the root of their number; or, where the weights were others, adds up what is minimised.

Of several restarts the one with the least objective is kept, which the attacker can see; how good it is, it cannot.
Letters in shapes: A attacks, b images behind each, c channels, h, w; R restarts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import inf

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from fedlib.algorithms.parts.generator import adam_step
from fedlib.base import tree
from fedlib.base.draws import rng
from fedlib.base.errors import BadValue, check_fields, require
from fedlib.data.batch import Batch
from fedlib.models import Model
from fedlib.privacy.noise import Mechanism, PrivateGradient, release

SAMPLE = 1000  # first images of a data set, of which its roughness is taken
AT_ONCE = 2**26  # numbers in the gradients of the attacks that are computed as one program, which bounds the memory


@dataclass(frozen=True)
class Attack:
    """How images are looked for. match: l2, cosine or likelihood (of DP-SGD's noise). labels: "joint" (soft, optimised
    too), "inferred" (one image only) or "known"; lr: Adam's step in pixels of [0, 1]. Raises BadValue for values out of
    range."""

    match: str = "cosine"
    labels: str = "inferred"
    optimiser: str = "adam"
    iterations: int = 400
    lr: float = 0.1
    tv: float = 0.02
    restarts: int = 1

    def __post_init__(self):
        names = dict(
            match=("l2", "cosine", "likelihood"), labels=("joint", "inferred", "known"), optimiser=("adam", "lbfgs")
        )
        check_fields(self, **names, iterations=(1, inf), lr=(0, inf), tv=(0, inf), restarts=(1, inf))


DLG = Attack("l2", "joint", "lbfgs", iterations=300, tv=0.0, restarts=3)
IDLG = Attack("l2", "inferred", "lbfgs", iterations=300, tv=0.0, restarts=3)
COSINE = Attack()
LIKELIHOOD = Attack("likelihood", tv=1.0)


@dataclass(frozen=True)
class Victim:
    """What is attacked: theta before training, mean and std of the channels, η, which of the b images are in which
    local step, and how rough the data's images are (`roughness`)."""

    model: Model
    theta: dict
    mean: Tensor
    std: Tensor
    lr: float
    plan: tuple[tuple[int, ...], ...]
    rough: float = 1.0

    @property
    def images(self) -> int:
        """b."""
        return 1 + max(max(rows) for rows in self.plan)

    def steps(self, u: Tensor, labels: Tensor, clip: Tensor | None = None) -> dict:
        """(θ_before - θ_after)/η of LocalSGD on images u [b, c, h, w] in [0, 1]; labels: probabilities [b, C]; clip: G
        of DP-SGD, whose noise is left out. Differentiable."""
        x, start = (u - self.mean) / self.std, {name: self.theta[name] for name in self.model.trainable}
        theta, total = start, None
        for rows in map(list, self.plan):
            if total is not None:
                theta = {name: start[name] - self.lr * total[name] for name in start}
            grads = self._gradient(theta, x[rows], labels[rows], clip)
            total = grads if total is None else tree.map(torch.add, total, grads)
        return total

    def _gradient(self, theta: dict, x: Tensor, labels: Tensor, clip: Tensor | None) -> dict:
        """Gradient of the mean cross-entropy of a batch; with `clip` the mean of the records' clipped gradients."""

        def loss(theta, x, labels):
            return functional.cross_entropy(self.model.logits({**self.theta, **theta}, x), labels)

        if clip is None:
            return torch.func.grad(loss)(theta, x, labels)
        each = [torch.func.grad(loss)(theta, x[[k]], labels[[k]]) for k in range(len(x))]
        factors = [(clip / _norm(own).clamp(min=1e-15)).clamp(max=1) / len(x) for own in each]
        return {name: sum(factor * own[name] for factor, own in zip(factors, each)) for name in theta}


def victim(
    model: Model, dataset, theta: dict | None = None, lr: float = 0.1, plan: Sequence[Sequence[int]] = ((0,),)
) -> Victim:
    """A client that trains `theta` (default: the initial values) on images of `dataset`,
    each step of `plan` on the images it lists.

    Raises BadValue for a model with batch norm, whose statistics an attacker would have to guess, and for an empty
    step.
    """
    if model.norms:
        raise BadValue(
            "a model with batch norm is not accepted by the attack; expected one without, such as lenet5 or mcmahan_cnn"
        )
    steps = tuple(tuple(map(int, rows)) for rows in plan)
    require(bool(steps) and all(steps), "plan", plan, "one step at least, each with the numbers of its images")
    require(lr > 0, "lr", lr, "a positive number")
    theta = model.theta0 if theta is None else theta
    mean, std = (value.to(theta["head.bias"]) for value in dataset.channel_stats)
    rough = float(roughness(dataset.images[:SAMPLE].float().div(255)))
    return Victim(model.for_stack(), theta, mean, std, lr, steps, rough)


def roughness(u: Tensor) -> Tensor:
    """TV: mean absolute difference of neighbouring pixels, across and down, of images [..., h, w]."""
    return u.diff(dim=-1).abs().mean() + u.diff(dim=-2).abs().mean()


# what the attacker sees -----------------------------------------------------------------------------------------------


def signal(
    victim: Victim,
    u: Tensor,
    y: Tensor,
    mechanism: Mechanism | None = None,
    seed: int = 0,
    number: int = 0,
    upload: int = 0,
) -> dict:
    """g of a client with images u [b, c, h, w] in [0, 1] and labels y int64 [b],
    which trains or uploads under `mechanism`.

    The noise is a function of (seed, number, upload), upload: which of the client's. Record level: every step is one of
    DP-SGD on the images that `plan` lists.
    """
    theta, mechanism = victim.theta, mechanism or Mechanism()
    x, generator = (u - victim.mean) / victim.std, rng(seed, "attacked noise", number, *[upload] * (upload > 0))

    def normal(count: int) -> Tensor:
        return torch.from_numpy(generator.standard_normal(count)).to(u)

    with torch.no_grad():
        for rows in map(list, victim.plan):
            gradient = PrivateGradient(mechanism, float(len(rows)), normal) if mechanism.in_steps else None
            theta = victim.model.sgd_step(theta, Batch(x[rows], y[rows]), victim.lr, differentiate=gradient)
        before, after = ({name: t[name][None] for name in victim.model.trainable} for t in (victim.theta, theta))
        if mechanism.in_uploads:
            after, _ = release(mechanism, seed, number, [upload], after, before, before)
        return {name: (before[name][0] - after[name][0]) / victim.lr for name in after}


def infer_labels(g: dict) -> Tensor:
    """The labels of single images from signals stacked [A, ...]: the gradient of the head's bias, p - e_y,
    is negative at y alone. int64 [A]."""
    return g["head.bias"].argmin(-1)


def noise_of(victim: Victim, mechanisms: Sequence[Mechanism], uploads: int = 1) -> dict:
    """What is known of DP-SGD's noise in signals that are each the mean of several uploads: `std` in each number, and
    the bound on norms `clip`, both [len(mechanisms)]."""
    steps = sum(len(rows) ** -2.0 for rows in victim.plan) / uploads
    std = [mechanism.sigma * mechanism.clip * steps**0.5 for mechanism in mechanisms]
    clips = [mechanism.clip for mechanism in mechanisms]
    return {name: victim.mean.new_tensor(values) for name, values in (("std", std), ("clip", clips))}


# the attack -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Recovered:
    """images [A, b, c, h, w] in [0, 1], labels int64 [A, b], and the objective that was reached, [A]."""

    images: Tensor
    labels: Tensor
    objective: Tensor


def invert(
    victim: Victim,
    g: dict,
    shape: tuple[int, int, int],
    attack: Attack = COSINE,
    labels: Tensor | None = None,
    seed: int = 0,
    numbers: Sequence[int] | None = None,
    noise: dict | None = None,
    later: Sequence[tuple[Victim, dict]] = (),
) -> Recovered:
    """Attack A signals, stacked [A, ...]. labels: int64 [A, b] for an attacker who knows them.
    Starts are functions of (seed, number, restart).

    numbers: the attacks' names in their draws, default 0..A-1. noise: for a likelihood, DP-SGD's `std` in each number
    of a signal and its bound on norms `clip`, both [A] (`noise_of`). later: the client's other uploads from these
    images, each the victim with other weights and the signals.
    Raises BadValue where labels are missing, or to be inferred for more than one image, and a likelihood's noise.
    """
    A, b, classes = len(g["head.bias"]), victim.images, g["head.bias"].shape[-1]
    require(
        attack.labels != "inferred" or b == 1, "labels", attack.labels, f"joint or known for {b} images behind a signal"
    )
    if attack.labels == "known":
        require(labels is not None and tuple(labels.shape) == (A, b), "labels", labels, f"int64 [{A}, {b}]")
    elif attack.labels == "inferred":
        labels = infer_labels({"head.bias": sum(seen["head.bias"] for _, seen in ((victim, g), *later))})[:, None]
    known = attack.match != "likelihood" or (bool(noise) and bool((noise["std"] > 0).all()))
    require(known, "noise", noise, "clip and a std above 0 for the match 'likelihood'; without noise use 'cosine'")
    victims = (victim, *(own for own, _ in later))
    seen = {"g": g, "noise": noise or {}, "later": tuple(own for _, own in later)}
    likelihoods = torch.zeros(A, b, classes).to(g["head.bias"])
    if attack.labels != "joint":
        likelihoods = torch.where(functional.one_hot(labels, classes) > 0, 0.0, -inf).to(g["head.bias"])
    best: Recovered | None = None
    for restart in range(attack.restarts):
        names = range(A) if numbers is None else numbers
        u = np.stack([rng(seed, "attack", int(i), restart).random((b, *shape)) for i in names])
        tried = SEARCH[attack.optimiser](victims, attack, seen, torch.from_numpy(u).to(likelihoods), likelihoods)
        best = tried if best is None else _better(best, tried)
    return best


def objective(
    victim: Victim,
    attack: Attack,
    u: Tensor,
    scores: Tensor,
    g: dict,
    noise: dict | None = None,
    later: Sequence[tuple[Victim, dict]] = (),
) -> Tensor:
    """What is minimised for one attack. u [b, c, h, w]; scores: logarithms of the labels' probabilities [b, C],
    up to a constant; noise and later as in `invert`, of one attack."""
    probabilities, uploads = scores.softmax(-1), ((victim, g), *later)
    value = sum(_mismatch(own, attack, u, probabilities, seen, noise) for own, seen in uploads)
    if attack.match == "likelihood":
        value = value * victim.rough / u.numel()
    else:
        value = value / len(uploads)
    return value + attack.tv * roughness(u) if attack.tv else value


def _mismatch(victim: Victim, attack: Attack, u: Tensor, labels: Tensor, g: dict, noise: dict | None) -> Tensor:
    """How unlike an upload is to that of images u with these labels [b, C]: the first term of what is minimised."""
    if attack.match == "likelihood":
        h = victim.steps(u, labels, noise["clip"])
        return (_inner(h, h) / 2 - _inner(h, g)) / noise["std"].square()
    h = victim.steps(u, labels)
    if attack.match == "l2":
        return sum((h[name] - g[name]).square().sum() for name in h) / tree.dot(g, g)
    return 1 - _inner(h, g) / (_norm(h) * _norm(g)).clamp(min=1e-15)


def _inner(a: dict, b: dict) -> Tensor:
    """<a, b>, without a product as long as the signals, which would take most of an attack on a large network."""
    return sum(torch.linalg.vecdot(a[name], b[name]).sum() for name in a)


def _norm(a: dict) -> Tensor:
    """‖a‖, for the same reason."""
    return torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(leaf) for leaf in a.values()]))


def _of_all(victims: tuple[Victim, ...], attack: Attack, u: Tensor, scores: Tensor, seen: dict) -> Tensor:
    """`objective` of one attack. seen: what was uploaded first, g, and later, by each victim; the noise."""
    later = list(zip(victims[1:], seen["later"]))
    return objective(victims[0], attack, u, scores, seen["g"], seen["noise"], later)


def _slopes(victims: tuple[Victim, ...], attack: Attack):
    """(u, scores, seen) -> gradients with respect to u and scores, and the objective; for A attacks at once."""
    together, one = max(1, AT_ONCE // victims[0].model.num_parameters["model"]), partial(_of_all, victims, attack)
    return torch.func.vmap(torch.func.grad_and_value(one, argnums=(0, 1)), chunk_size=together)


def _adam(victims: tuple[Victim, ...], attack: Attack, seen: dict, u: Tensor, scores: Tensor) -> Recovered:
    """Adam on the sign of the gradient, a tenth of the step after 3/8, 5/8 and 7/8 of the iterations,
    pixels kept in [0, 1].

    What is returned is the best point seen.
    """
    slopes, joint = _slopes(victims, attack), attack.labels == "joint"
    marks = [attack.iterations * k // 8 for k in (3, 5, 7)]
    state = {"first": {"u": torch.zeros_like(u), "scores": torch.zeros_like(scores)}, "step": 0}
    state["second"] = state["first"]
    best = Recovered(u, scores.argmax(-1), torch.full((len(u),), inf).to(u))
    for k in range(attack.iterations):
        (du, dscores), value = slopes(u, scores, seen)
        best = _better(best, Recovered(u, scores.argmax(-1), value))
        lr = attack.lr * 0.1 ** sum(k >= mark for mark in marks)
        moved, state = adam_step({"u": u, "scores": scores}, {"u": du.sign(), "scores": dscores}, state, lr)
        u, scores = moved["u"].clamp(0, 1), moved["scores"] if joint else scores
    return _better(best, Recovered(u, scores.argmax(-1), slopes(u, scores, seen)[1]))


def _lbfgs(victims: tuple[Victim, ...], attack: Attack, seen: dict, u: Tensor, scores: Tensor) -> Recovered:
    """SciPy's L-BFGS-B in float64, pixels kept in [0, 1], one attack after the other."""
    each = [_one_lbfgs(victims, attack, tree.rows(seen, k), u[k], scores[k]) for k in range(len(u))]
    return Recovered(*(torch.stack([getattr(own, name) for own in each]) for name in ("images", "labels", "objective")))


def _one_lbfgs(victims: tuple[Victim, ...], attack: Attack, seen: dict, u: Tensor, scores: Tensor) -> Recovered:
    from scipy.optimize import minimize

    joint, pixels = attack.labels == "joint", u.numel()

    def flat(u, scores):
        return torch.cat([u.flatten(), *([scores.flatten()] if joint else [])]).double().cpu().numpy()

    def split(z):
        z = torch.from_numpy(z).to(u)
        return z[:pixels].view_as(u), (z[pixels:].view_as(scores) if joint else scores)

    def value_and_slope(z):
        at = [part.detach().requires_grad_() for part in split(z)]
        value = _of_all(victims, attack, *at, seen)
        return float(value.detach()), flat(*torch.autograd.grad(value, at, materialize_grads=True))

    start, most = flat(u, scores), attack.iterations
    bounds = [(0, 1)] * pixels + [(None, None)] * (len(start) - pixels)
    options = {"maxiter": most, "maxfun": 2 * most, "maxcor": 50, "ftol": 1e-14, "gtol": 1e-12}
    done = minimize(value_and_slope, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    image, logs = split(done.x)
    return Recovered(image, logs.argmax(-1), torch.tensor(done.fun).to(u))


SEARCH = {"adam": _adam, "lbfgs": _lbfgs}


def _better(old: Recovered, new: Recovered) -> Recovered:
    """Of every attack the result with the lower objective."""
    wins = new.objective < old.objective

    def pick(a: Tensor, b: Tensor) -> Tensor:
        return torch.where(wins.view(-1, *[1] * (a.ndim - 1)), b, a)

    return Recovered(*(pick(getattr(old, name), getattr(new, name)) for name in ("images", "labels", "objective")))
