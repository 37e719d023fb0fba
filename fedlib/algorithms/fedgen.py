"""FedGen: FedAvg whose clients are regularised by a generator of features that the server learns from their heads.

Z. Zhu, J. Hong, J. Zhou. "Data-Free Knowledge Distillation for Heterogeneous Federated Learning." ICML 2021,
arXiv:2105.10056. Algorithm 1.

| paper | here | meaning | default and its source |
|---|---|---|---|
| θ = (θ^f, θ^p) | server["theta"] | global model: feature extractor and predictor (head) | |
| w, G_w(y, ε) | server["generator"] | generator: label and noise to a feature vector | 32 hidden units (pFedSim) |
| ε | noise | its dimension | 32 (pFedSim) |
| α, β | alpha, beta | weights of the generated features and of the head's answers to them | 10, 10 (pFedSim: "α_generative", printed twice) |
| | decay, floor | both are multiplied by decay every round, down to floor | 0.98, 1e-4 (pFedSim) |
| B_g / B | virtual | generated features for each sample of a minibatch | 1 (32 / 32, pFedSim) |
| T_g | steps | Adam steps on the generator a round, of 32 labels each | 5 (pFedSim) |
| | server_lr | their learning rate, times decay every round | 3e-4 (the authors' code; not in the paper) |

With h the head, a client's loss on (x, y) is, from the second round on, l(h(f(x)), y) + beta KL(h(G(y, ε)) || h(f(x))) +
alpha virtual l(h(G(y', ε')), y'), y' uniform on its own labels. The generator's is
sum over i of rho_iy l(h_i(G(y, ε)), y), rho_iy the share of client i in the participants' samples of class y, y uniform on
the labels of which a participant has more than one sample on average.

Readings of what is left open:
- teacher: "clients" (the uploaded heads, as in the paper) or "server" (the head of the global model sent in this round).
- diversity: weight of exp(- mean |ε_a - ε_b|^2 |z_a - z_b|_1), mean over pairs and components, that is added (authors' code).
- The label counts are told once (`Setting.class_counts`); they are not counted in the rounds.
- Clients use the generator in evaluation mode: its batch norm is sent as one scale and shift for each unit.
- A minibatch smaller than B comes with fewer generated features, `virtual` for each of its samples.

Differences from the paper: the last three readings; without labels to draw the generator keeps its weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar

import torch
from torch import nn
from torch.nn import functional

from fedlib import tree
from fedlib.draws import rng, torch_seeded
from fedlib.engine.moments import one_hot
from fedlib.errors import check_fields

LABELS, HIDDEN, EPS = 32, 32, 1e-5  # labels of a server step, hidden units, in batch norm's denominator


@dataclass(frozen=True)
class FedGen:
    alpha: float = 10.0
    beta: float = 10.0
    decay: float = 0.98
    floor: float = 1e-4
    noise: int = 32
    virtual: int = 1
    steps: int = 5
    server_lr: float = 3e-4
    teacher: str = "clients"
    diversity: float = 0.0
    points: ClassVar = ("glob", "post", "ft")

    def __post_init__(self):
        weights = dict(alpha=(0, inf), beta=(0, inf), floor=(0, inf), diversity=(0, inf), server_lr=(0, inf))
        counts = dict(noise=(1, 10_000), virtual=(1, 1000), steps=(0, inf))
        check_fields(self, decay=(0, 1), teacher=("clients", "server"), **weights, **counts)

    def init(self, model, setting):
        C, d = model.theta0["head.weight"].shape
        weights = initial_generator(setting.seed, self.noise + C, d, like=model.theta0["head.weight"])
        part = {name: weights[name] for name in TRAINED}
        zero = tree.map(torch.zeros_like, part)
        server = {"round": 0, "seed": setting.seed, "counts": setting.class_counts, "theta": model.theta0}
        return {**server, "generator": weights, "adam": {"first": zero, "second": zero, "step": 0}}, {}

    def download(self, server, i):
        first = server["round"] == 0  # both terms start in the second round
        fade = self.decay ** server["round"]
        weights = [0.0 if first or w == 0 else max(self.floor, w * fade) for w in (self.alpha, self.beta)]
        alpha, beta = server["theta"]["head.bias"].new_tensor(weights).unbind()
        generator = with_moments(server["generator"], server["generator"]["mean"], server["generator"]["var"])
        return {"theta": server["theta"], "generator": generator, "alpha": alpha, "beta": beta}

    def client_update(self, model, message, client, data):
        G, alpha, beta = message["generator"], message["alpha"], message["beta"]
        present = data.class_counts > 0

        def loss(theta, batch, train):
            z, stats = model.training_features(theta, batch, train)
            scores = model.classify(theta, z).log_softmax(1)
            eps, virtual = batch.noise[:, : self.noise], batch.noise[:, self.noise :].unflatten(1, (self.virtual, -1))
            own = one_hot(batch.y, len(present)).to(z)
            target = model.classify(theta, generated(G, own, eps)).log_softmax(1).detach()
            agreement = (target.exp() * (target - scores)).sum(1)  # KL(target || scores)
            drawn = uniform_labels(virtual[..., 0].flatten(), present).to(z)
            answers = model.classify(theta, generated(G, drawn, virtual[..., 1:].flatten(0, 1))).log_softmax(1)
            invented = -(drawn * answers).sum(1).unflatten(0, (-1, self.virtual)).sum(1)  # alpha (B_g/B) l
            return batch.mean(-(own * scores).sum(1) + beta * agreement + alpha * invented), stats

        numbers = self.noise + self.virtual * (1 + self.noise)
        theta = data.fold(
            lambda theta, batch: model.sgd_step(theta, batch, data.lr, loss=loss), message["theta"], noise=numbers
        )
        return {**message, "theta": theta}, client  # only theta travels

    def floats_down(self, message):
        return {part: message[part] for part in ("theta", "generator")}

    def floats_up(self, upload):
        return upload["theta"]

    def server_update(self, server, ids, uploads, n):
        teachers = uploads["theta"] if self.teacher == "clients" else tree.repeat(server["theta"], len(ids))
        generator, adam = self.taught(server, teachers, server["counts"][torch.as_tensor(ids)])
        server = {**server, "generator": generator, "adam": adam, "round": server["round"] + 1}
        return {**server, "theta": tree.weighted_mean(uploads["theta"], n)}

    def taught(self, server, teachers, counts):
        """The generator and Adam's state after this round's steps; teachers: K heads, stacked, counts: [K, C]."""
        W, b, G, adam = teachers["head.weight"], teachers["head.bias"], server["generator"], server["adam"]
        draw, labels = rng(server["seed"], "generator", server["round"]), (counts.double().mean(0) > 1).nonzero()[:, 0]
        share = (counts / counts.sum(0).clamp(min=1)).to(W)  # rho [K, C]
        for _ in range(self.steps if len(labels) else 0):
            y = labels[torch.from_numpy(draw.integers(len(labels), size=LABELS))].to(W.device)
            eps = torch.from_numpy(draw.standard_normal((LABELS, self.noise))).to(W)
            fn = _server_loss(self.diversity, W, b, share, y, eps, G)
            slopes, moments = torch.func.grad(fn, has_aux=True)({name: G[name] for name in TRAINED})
            part, adam = adam_step(G, slopes, adam, self.server_lr * self.decay ** server["round"])
            G = {**G, **part, **{name: 0.9 * G[name] + 0.1 * moments[name] for name in moments}}
        return G, adam

    def personal_model(self, model, message, client, data):
        return message["theta"]

    def eval_points(self, server):
        return ("glob",)


# the generator: linear, batch norm, ReLU, linear ----------------------------------------------------------------------

SENT = ("weight1", "bias1", "scale", "shift", "weight2", "bias2")
TRAINED = tuple(
    name for name in SENT if name != "bias1"
)  # batch norm takes the first bias away: no gradient but rounding


def initial_generator(seed, inputs, d, like):
    """Its weights as PyTorch initialises such layers, and batch norm's running mean and variance."""
    one, two = torch_seeded(seed, "generator", lambda: (nn.Linear(inputs, HIDDEN), nn.Linear(HIDDEN, d)))
    zero, unit = torch.zeros(HIDDEN), torch.ones(HIDDEN)
    norm = {"scale": unit, "shift": zero, "mean": zero, "var": unit}
    layers = {"weight1": one.weight, "bias1": one.bias, **norm, "weight2": two.weight, "bias2": two.bias}
    return {name: value.detach().to(like) for name, value in layers.items()}


def with_moments(G, mean, var):
    """The generator with batch norm by this mean and variance, written as a scale and a shift alone."""
    scale = G["scale"] * (var + EPS).rsqrt()
    return {**{name: G[name] for name in SENT}, "scale": scale, "shift": G["shift"] - mean * scale}


def first_layer(G, onehot, eps):
    return functional.linear(torch.cat([eps, onehot], dim=1), G["weight1"], G["bias1"])


def generated(G, onehot, eps):
    """z = G(y, eps) [B, d] of a generator as `with_moments` makes it; y one-hot [B, C], eps [B, noise]."""
    hidden = torch.relu(first_layer(G, onehot, eps) * G["scale"] + G["shift"])
    return functional.linear(hidden, G["weight2"], G["bias2"])


def uniform_labels(normal, present):
    """One-hot labels [B, C], uniform on the classes where `present` [C], from B standard normal numbers."""
    count = present.sum()
    place = (torch.special.ndtr(normal) * count).floor().clamp(max=count - 1)
    return present & (present.cumsum(0) - 1 == place[:, None])


def _server_loss(diversity, W, b, share, y, eps, G):
    def loss(part):
        part = {**G, **part}
        onehot = one_hot(y, W.shape[1]).to(eps)
        inner = first_layer(part, onehot, eps)
        mean, var = inner.mean(0), inner.var(0, correction=0)
        z = generated(with_moments(part, mean, var), onehot, eps)
        answers = (torch.einsum("kcd,bd->kbc", W, z) + b[:, None]).log_softmax(-1)
        right = answers.gather(-1, y.expand(len(W), -1)[..., None])[..., 0]  # [K, B]
        value = -(share[:, y] * right).sum(0).mean()
        if diversity:
            apart = (eps[:, None] - eps).square().mean(-1) * (z[:, None] - z).abs().mean(-1)
            value = value + diversity * torch.exp(-apart.mean())
        unbiased = var * len(y) / (len(y) - 1)
        return value, {"mean": mean.detach(), "var": unbiased.detach()}

    return loss


def adam_step(params, slopes, adam, lr):
    """Adam (Kingma and Ba 2015) with its usual constants 0.9, 0.999, 1e-8: the new parameters and the new state."""
    k = adam["step"] + 1
    first = tree.map(lambda m, g: 0.9 * m + 0.1 * g, adam["first"], slopes)
    second = tree.map(lambda v, g: 0.999 * v + 0.001 * g.square(), adam["second"], slopes)

    def step(p, m, v):
        return p - lr * (m / (1 - 0.9**k)) / ((v / (1 - 0.999**k)).sqrt() + 1e-8)

    part = {name: params[name] for name in slopes}
    return tree.map(step, part, first, second), {"first": first, "second": second, "step": k}
