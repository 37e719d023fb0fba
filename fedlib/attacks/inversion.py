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

- DLG: l2, soft labels found along with the image, L-BFGS. L. Zhu, Z. Liu, S. Han, NeurIPS 2019, arXiv:1906.08935.
- iDLG: the label is read off first (`infer_labels`). B. Zhao, K. R. Mopuri, H. Bilen 2020, arXiv:2001.02610.
- COSINE: cosine with total variation, Adam on the sign of the gradient, step decay, box constraint. J. Geiping, H.
  Bauermeister, H. Dröge, M. Moeller, NeurIPS 2020, arXiv:2003.14053. Adam's attacks run stacked (vmap), L-BFGS's one
  after the other.

Of several restarts the one with the least objective is kept, which the attacker can see; how good it is, it cannot.
Letters in shapes: A attacks, b images behind each, c channels, h, w; R restarts.

Scores: PSNR = 10 log10(1/MSE) in dB, and SSIM (11x11 Gaussian window, σ 1.5) by scikit-image, both on pixels in [0, 1],
each recovered image matched to its original by least total MSE. How alike pictures look to people is in
`fedlib.attacks.perceptual`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from fedlib.base import tree
from fedlib.base.draws import rng
from fedlib.base.errors import BadValue, check_fields, require
from fedlib.data.batch import Batch
from fedlib.models import Model
from fedlib.privacy.noise import Mechanism, PrivateGradient, release

SUCCESS = 20.0  # dB of PSNR from which an image counts as recovered
AT_ONCE = 2**26  # numbers in the gradients of the attacks that are computed as one program, which bounds the memory


@dataclass(frozen=True)
class Attack:
    """How images are looked for. labels: "joint" (soft, optimised too), "inferred" (one image only) or "known"; lr:
    Adam's step in pixels of [0, 1]. Raises BadValue for values out of range."""

    match: str = "cosine"
    labels: str = "inferred"
    optimiser: str = "adam"
    iterations: int = 400
    lr: float = 0.1
    tv: float = 0.02
    restarts: int = 1

    def __post_init__(self):
        names = dict(match=("l2", "cosine"), labels=("joint", "inferred", "known"), optimiser=("adam", "lbfgs"))
        check_fields(self, **names, iterations=(1, inf), lr=(0, inf), tv=(0, inf), restarts=(1, inf))


DLG = Attack("l2", "joint", "lbfgs", iterations=300, tv=0.0, restarts=3)
IDLG = Attack("l2", "inferred", "lbfgs", iterations=300, tv=0.0, restarts=3)
COSINE = Attack()


@dataclass(frozen=True)
class Victim:
    """What is attacked: theta before training, mean and std of the channels, η,
    and which of the b images are in which local step."""

    model: Model
    theta: dict
    mean: Tensor
    std: Tensor
    lr: float
    plan: tuple[tuple[int, ...], ...]

    @property
    def images(self) -> int:
        """b."""
        return 1 + max(max(rows) for rows in self.plan)

    def steps(self, u: Tensor, labels: Tensor) -> dict:
        """(θ_before - θ_after)/η of LocalSGD on images u [b, c, h, w] in [0, 1]; labels: probabilities [b, C].
        Differentiable."""
        x, start = (u - self.mean) / self.std, {name: self.theta[name] for name in self.model.trainable}
        theta, total = start, None
        for rows in map(list, self.plan):
            if total is not None:
                theta = {name: start[name] - self.lr * total[name] for name in start}

            def loss(theta, rows=rows):
                return functional.cross_entropy(self.model.logits({**self.theta, **theta}, x[rows]), labels[rows])

            grads = torch.func.grad(loss)(theta)
            total = grads if total is None else tree.map(torch.add, total, grads)
        return total


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
    return Victim(model.for_stack(), theta, mean, std, lr, steps)


# what the attacker sees -----------------------------------------------------------------------------------------------


def signal(
    victim: Victim, u: Tensor, y: Tensor, mechanism: Mechanism | None = None, seed: int = 0, number: int = 0
) -> dict:
    """g of a client with images u [b, c, h, w] in [0, 1] and labels y int64 [b],
    which trains or uploads under `mechanism`.

    The noise is a function of (seed, number). Record level: every step is one of DP-SGD on the images that `plan`
    lists.
    """
    theta, mechanism = victim.theta, mechanism or Mechanism()
    x, generator = (u - victim.mean) / victim.std, rng(seed, "attacked noise", number)

    def normal(count: int) -> Tensor:
        return torch.from_numpy(generator.standard_normal(count)).to(u)

    with torch.no_grad():
        for rows in map(list, victim.plan):
            gradient = PrivateGradient(mechanism, float(len(rows)), normal) if mechanism.in_steps else None
            theta = victim.model.sgd_step(theta, Batch(x[rows], y[rows]), victim.lr, differentiate=gradient)
        before, after = ({name: t[name][None] for name in victim.model.trainable} for t in (victim.theta, theta))
        if mechanism.in_uploads:
            after, _ = release(mechanism, seed, number, [0], after, before, before)
        return {name: (before[name][0] - after[name][0]) / victim.lr for name in after}


def infer_labels(g: dict) -> Tensor:
    """The labels of single images from signals stacked [A, ...]: the gradient of the head's bias, p - e_y,
    is negative at y alone. int64 [A]."""
    return g["head.bias"].argmin(-1)


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
) -> Recovered:
    """Attack A signals, stacked [A, ...]. labels: int64 [A, b] for an attacker who knows them.
    Starts are functions of (seed, number, restart).

    numbers: the attacks' names in their draws, default 0..A-1.
    Raises BadValue where labels are missing, or to be inferred for more than one image.
    """
    A, b, classes = len(g["head.bias"]), victim.images, g["head.bias"].shape[-1]
    require(
        attack.labels != "inferred" or b == 1, "labels", attack.labels, f"joint or known for {b} images behind a signal"
    )
    if attack.labels == "known":
        require(labels is not None and tuple(labels.shape) == (A, b), "labels", labels, f"int64 [{A}, {b}]")
    elif attack.labels == "inferred":
        labels = infer_labels(g)[:, None]
    likelihoods = torch.zeros(A, b, classes).to(g["head.bias"])
    if attack.labels != "joint":
        likelihoods = torch.where(functional.one_hot(labels, classes) > 0, 0.0, -inf).to(g["head.bias"])
    best: Recovered | None = None
    for restart in range(attack.restarts):
        names = range(A) if numbers is None else numbers
        u = np.stack([rng(seed, "attack", int(i), restart).random((b, *shape)) for i in names])
        tried = SEARCH[attack.optimiser](victim, attack, g, torch.from_numpy(u).to(likelihoods), likelihoods)
        best = tried if best is None else _better(best, tried)
    return best


def objective(victim: Victim, attack: Attack, u: Tensor, scores: Tensor, g: dict) -> Tensor:
    """What is minimised for one attack. u [b, c, h, w]; scores: logarithms of the labels' probabilities [b, C],
    up to a constant."""
    h = victim.steps(u, scores.softmax(-1))
    if attack.match == "l2":
        value = sum((h[name] - g[name]).square().sum() for name in h) / tree.dot(g, g)
    else:
        value = 1 - _inner(h, g) / (_norm(h) * _norm(g)).clamp(min=1e-15)
    if attack.tv:
        value = value + attack.tv * (u.diff(dim=-1).abs().mean() + u.diff(dim=-2).abs().mean())
    return value


def _inner(a: dict, b: dict) -> Tensor:
    """<a, b>, without a product as long as the signals, which would take most of an attack on a large network."""
    return sum(torch.linalg.vecdot(a[name], b[name]).sum() for name in a)


def _norm(a: dict) -> Tensor:
    """‖a‖, for the same reason."""
    return torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(leaf) for leaf in a.values()]))


def _slopes(victim: Victim, attack: Attack):
    """(u, scores, g) -> gradients with respect to u and scores, and the objective; for A attacks at once."""

    def one(u, scores, g):
        return objective(victim, attack, u, scores, g)

    together = max(1, AT_ONCE // victim.model.num_parameters["model"])
    return torch.func.vmap(torch.func.grad_and_value(one, argnums=(0, 1)), chunk_size=together)


def _adam(victim: Victim, attack: Attack, g: dict, u: Tensor, scores: Tensor) -> Recovered:
    """Adam on the sign of the gradient, a tenth of the step after 3/8, 5/8 and 7/8 of the iterations,
    pixels kept in [0, 1].

    What is returned is the best point seen.
    """
    slopes, joint = _slopes(victim, attack), attack.labels == "joint"
    u, scores = u.clone(), scores.clone()
    adam = torch.optim.Adam([u, scores] if joint else [u], lr=attack.lr)
    marks = [attack.iterations * k // 8 for k in (3, 5, 7)]
    decay = torch.optim.lr_scheduler.MultiStepLR(adam, marks, gamma=0.1)
    best = Recovered(u.clone(), scores.argmax(-1), torch.full((len(u),), inf).to(u))
    for _ in range(attack.iterations):
        (du, dscores), value = slopes(u, scores, g)
        best = _better(best, Recovered(u.clone(), scores.argmax(-1), value))
        u.grad, scores.grad = du.sign(), dscores if joint else None
        adam.step()
        decay.step()
        u.clamp_(0, 1)
    return _better(best, Recovered(u, scores.argmax(-1), slopes(u, scores, g)[1]))


def _lbfgs(victim: Victim, attack: Attack, g: dict, u: Tensor, scores: Tensor) -> Recovered:
    """SciPy's L-BFGS-B in float64, pixels kept in [0, 1], one attack after the other."""
    each = [_one_lbfgs(victim, attack, tree.rows(g, k), u[k], scores[k]) for k in range(len(u))]
    return Recovered(*(torch.stack([getattr(own, name) for own in each]) for name in ("images", "labels", "objective")))


def _one_lbfgs(victim: Victim, attack: Attack, g: dict, u: Tensor, scores: Tensor) -> Recovered:
    from scipy.optimize import minimize

    joint, pixels = attack.labels == "joint", u.numel()

    def flat(u, scores):
        return torch.cat([u.flatten(), *([scores.flatten()] if joint else [])]).double().cpu().numpy()

    def split(z):
        z = torch.from_numpy(z).to(u)
        return z[:pixels].view_as(u), (z[pixels:].view_as(scores) if joint else scores)

    def value_and_slope(z):
        at = [part.detach().requires_grad_() for part in split(z)]
        value = objective(victim, attack, *at, g)
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


# how good it is -------------------------------------------------------------------------------------------------------


def score(originals: Tensor, recovered: Tensor) -> dict[str, np.ndarray]:
    """mse, psnr (dB), ssim of every original, float64 [A, b], and `order` int64 [A, b]:
    which recovered image is matched to it.

    originals, recovered: [A, b, c, h, w] in [0, 1]. ssim is nan for images smaller than its window of 11 pixels.
    """
    from scipy.optimize import linear_sum_assignment
    from skimage.metrics import structural_similarity

    true, ours = (images.double().cpu().numpy().clip(0, 1) for images in (originals, recovered))
    A, b = true.shape[:2]
    out = {name: np.full((A, b), np.nan) for name in ("mse", "psnr", "ssim")} | {
        "order": np.zeros((A, b), dtype=np.int64)
    }
    large = min(true.shape[-2:]) >= 11
    for k in range(A):
        costs = ((true[k][:, None] - ours[k][None]) ** 2).mean((2, 3, 4))
        out["order"][k] = linear_sum_assignment(costs)[1]
        for i, j in enumerate(out["order"][k]):
            out["mse"][k, i] = costs[i, j]
            if large:
                kind = dict(
                    channel_axis=0, data_range=1.0, gaussian_weights=True, sigma=1.5, use_sample_covariance=False
                )
                out["ssim"][k, i] = structural_similarity(true[k, i], ours[k, j], **kind)
    with np.errstate(divide="ignore"):
        out["psnr"] = -10 * np.log10(out["mse"])
    return out


def attack_clients(
    victim: Victim,
    dataset,
    indices: np.ndarray,
    attack: Attack = COSINE,
    mechanisms: Sequence[Mechanism] = (Mechanism(),),
    seed: int = 0,
) -> tuple[Recovered, Tensor, list[dict]]:
    """Attack clients that hold the images `indices` int64 [K, b] of a data set, each under every one of M mechanisms.

    All A = M K attacks, mechanism by mechanism, are one stack. Returns what was recovered, the originals [A, b, c, h,
    w], and one row for each image: image, seed, sigma, privacy, psnr, ssim, mse, objective, success (PSNR of at least
    SUCCESS dB), label_right.
    """
    index = torch.as_tensor(np.asarray(indices))
    require(index.ndim == 2 and index.shape[1] == victim.images, "indices", tuple(index.shape), f"[K, {victim.images}]")
    index, under = index.repeat(len(mechanisms), 1), [mechanism for mechanism in mechanisms for _ in index]
    originals = dataset.images[index.flatten()].to(victim.mean.dtype).div(255).to(victim.mean.device)
    originals = originals.view(*index.shape, *dataset.shape)
    labels = dataset.labels[index].to(victim.mean.device)
    names = [int(row[0]) for row in index]
    clients = zip(originals, labels, under, names)
    signals = [signal(victim, u, y, mechanism, seed, name) for u, y, mechanism, name in clients]
    found = invert(victim, tree.stack(signals), dataset.shape, attack, labels, seed, names)
    scores = score(originals, found.images)
    rows = []
    for k, i in np.ndindex(*index.shape):
        rows.append(
            {
                "image": int(index[k, i]),
                "seed": seed,
                "privacy": under[k].kind,
                "sigma": under[k].sigma,
                **{name: float(scores[name][k, i]) for name in ("psnr", "ssim", "mse")},
                "objective": float(found.objective[k]),
                "success": bool(scores["psnr"][k, i] >= SUCCESS),
                "label_right": bool(found.labels[k, scores["order"][k, i]] == labels[k, i]),
            }
        )
    return found, originals, rows
