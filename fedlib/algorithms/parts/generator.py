"""FedGen's generator of features: linear, batch norm, ReLU, linear;
its weights are a dict of tensors like those of a model.

Z. Zhu, J. Hong, J. Zhou. "Data-Free Knowledge Distillation for Heterogeneous Federated Learning." ICML 2021.
y: labels, one-hot [B, C]; eps: standard normal numbers [B, noise]; z = G(y, eps): feature vectors [B, d].
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedlib.base import tree
from fedlib.base.draws import torch_seeded
from fedlib.base.same_bits import square_root

HIDDEN, EPS = 32, 1e-5  # hidden units, in batch norm's denominator
SENT = ("weight1", "bias1", "scale", "shift", "weight2", "bias2")
# batch norm takes the first bias away: no gradient but rounding
TRAINED = tuple(name for name in SENT if name != "bias1")


def initial_generator(seed: int, inputs: int, d: int, like: Tensor) -> dict:
    """Its weights as PyTorch initialises such layers, and batch norm's running mean and variance."""
    one, two = torch_seeded(seed, "generator", lambda: (nn.Linear(inputs, HIDDEN), nn.Linear(HIDDEN, d)))
    zero, unit = torch.zeros(HIDDEN), torch.ones(HIDDEN)
    norm = {"scale": unit, "shift": zero, "mean": zero, "var": unit}
    layers = {"weight1": one.weight, "bias1": one.bias, **norm, "weight2": two.weight, "bias2": two.bias}
    return {name: value.detach().to(like) for name, value in layers.items()}


def with_statistics(G: dict, mean: Tensor, var: Tensor) -> dict:
    """The generator with batch norm by this mean and variance, written as a scale and a shift alone."""
    scale = G["scale"] * (var + EPS).rsqrt()
    return {**{name: G[name] for name in SENT}, "scale": scale, "shift": G["shift"] - mean * scale}


def first_layer(G: dict, onehot: Tensor, eps: Tensor) -> Tensor:
    return functional.linear(torch.cat([eps, onehot], dim=1), G["weight1"], G["bias1"])


def generated(G: dict, onehot: Tensor, eps: Tensor) -> Tensor:
    """z = G(y, eps) [B, d] of a generator as `with_statistics` makes it."""
    hidden = torch.relu(first_layer(G, onehot, eps) * G["scale"] + G["shift"])
    return functional.linear(hidden, G["weight2"], G["bias2"])


def generated_in_training(G: dict, onehot: Tensor, eps: Tensor) -> tuple[Tensor, dict]:
    """z = G(y, eps) [B, d] with batch norm by the batch's own mean and variance, and these, the variance unbiased."""
    inner = first_layer(G, onehot, eps)
    mean, var = inner.mean(0), inner.var(0, correction=0)
    z = generated(with_statistics(G, mean, var), onehot, eps)
    unbiased = var * len(eps) / (len(eps) - 1)
    return z, {"mean": mean.detach(), "var": unbiased.detach()}


def drawn_labels(normal: Tensor, wanted: Tensor) -> Tensor:
    """One-hot labels, bool [B, C], from B standard normal numbers; class c has the probability wanted[c] / their sum.

    wanted: whole numbers or bool, [C], at least one of them above 0.
    """
    upto = wanted.cumsum(0)
    place = (torch.special.ndtr(normal) * upto[-1]).floor().clamp(max=upto[-1] - 1)[:, None]
    return (place >= upto - wanted.to(upto)) & (place < upto)


# training -------------------------------------------------------------------------------------------------------------


def first_adam_state(G: dict) -> dict:
    zero = {name: torch.zeros_like(G[name]) for name in TRAINED}
    return {"first": zero, "second": zero, "step": 0}


def taught_loss(teachers: dict, share: Tensor, y: Tensor, eps: Tensor, ensemble: str, G: dict) -> tuple[Tensor, dict]:
    """Mean over the labels y [B] of the ensemble's loss on G(y, eps), and G's statistics of batch norm.

    teachers: K heads, stacked; share: rho [K, C], client i's share of the samples of class y; ensemble: "losses", the
    sum over clients i of rho_iy l(h_i(z), y), or "logits", l(mean over i of h_i(z), y).
    """
    W, b = teachers["head.weight"], teachers["head.bias"]
    z, stats = generated_in_training(G, functional.one_hot(y, W.shape[1]).to(eps), eps)
    scores, weights = torch.einsum("kcd,bd->kbc", W, z) + b[:, None], share[:, y]
    if ensemble == "logits":
        scores, weights = scores.mean(0, keepdim=True), torch.ones_like(weights[:1])
    right = scores.log_softmax(-1).gather(-1, y.expand(len(scores), -1)[..., None])[..., 0]  # [K, B]
    return -(weights * right).sum(0).mean(), stats


def trained_step(G: dict, adam: dict, loss, lr: float) -> tuple[dict, dict]:
    """The generator and Adam's state after one step.

    loss(G) -> (value, the batch's mean and variance), which enter the running ones by a tenth.
    """
    part = {name: G[name] for name in TRAINED}
    slopes, stats = torch.func.grad(lambda part: loss({**G, **part}), has_aux=True)(part)
    part, adam = adam_step(G, slopes, adam, lr)
    return {**G, **part, **{name: 0.9 * G[name] + 0.1 * stats[name] for name in stats}}, adam


def adam_step(params: dict, slopes: dict, adam: dict, lr: float) -> tuple[dict, dict]:
    """Adam (Kingma and Ba 2015) with its usual constants 0.9, 0.999, 1e-8: the new parameters and the new state."""
    k = adam["step"] + 1
    first = tree.map(lambda m, g: 0.9 * m + 0.1 * g, adam["first"], slopes)
    second = tree.map(lambda v, g: 0.999 * v + 0.001 * g.square(), adam["second"], slopes)

    def step(p, m, v):
        return p - lr * (m / (1 - 0.9**k)) / (square_root(v / (1 - 0.999**k)) + 1e-8)

    part = {name: params[name] for name in slopes}
    return tree.map(step, part, first, second), {"first": first, "second": second, "step": k}
