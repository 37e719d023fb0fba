"""FedDyn: a dynamic regulariser aligns the minima of the local objectives with that of the global one.

D. A. E. Acar, Y. Zhao, R. Matas Navarro, M. Mattina, P. N. Whatmough, V. Saligrama. "Federated Learning Based on
Dynamic Regularization." ICLR 2021, arXiv:2111.04263. Algorithm 1, Eqs. 1-2.

| paper | here | meaning | default and its source |
|---|---|---|---|
| θ^t | server["theta"], message | server model after round t | |
| θ_k^t | upload | client k's model | |
| ∇L_k(θ_k^t) | client["g"] | client k's last gradient, starts as 0 | |
| h^t | server["h"] | mean of all N clients' g, starts as 0 | |
| α | alpha | strength of the regulariser | 0.01 (pFedSim A.5) |
| | grad_clip | largest norm of a minibatch's gradient of the whole local objective; 0: no limit | 10 (authors' code) |

g and h cover the trainable parameters; running statistics, where they are sent, are averaged.

Readings (feddyn_variant): "paper", L_k(w) − ⟨g, w⟩ + α/2 ‖w − θ‖²; "pfllib", the norm not squared, as in PFLlib;
"flbench2023", not squared and without the linear term, as in FL-bench of 2023, where that term was a constant.

Differences from the paper: the local problem is solved approximately, by E epochs of SGD; gradients are clipped. The
authors' code clips too, but before αw is added to the gradient, as weight decay; here the limit is for the whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import torch

from fedlib.algorithms.fedavg import FedAvg
from fedlib.base import tree
from fedlib.base.options import option
from fedlib.base.same_bits import square_root


@dataclass(frozen=True)
class FedDyn(FedAvg):
    alpha: float = option(0.01, 1e-12, inf)
    grad_clip: float = option(10.0, 0, inf)
    feddyn_variant: str = option("paper", "paper", "pfllib", "flbench2023")
    points = ("glob", "post", "ft")

    def init(self, model, setting):
        zero = {name: torch.zeros_like(model.theta0[name]) for name in model.trainable}
        N = torch.tensor(setting.num_clients)
        return {"theta": model.theta0, "h": zero, "N": N}, {"g": tree.repeat(zero, setting.num_clients)}

    def client_update(self, model, message, client, data):
        def objective(w, batch):
            loss, stats = model.loss(w, batch)
            mine = {name: w[name] for name in model.trainable}
            if self.feddyn_variant != "flbench2023":
                loss = loss - tree.dot(client["g"], mine)
            away = tree.dot(moved := moved_from(message, mine), moved)
            return loss + self.alpha / 2 * (away if self.feddyn_variant == "paper" else root(away)), stats

        def step(theta, batch):
            part = {name: theta[name] for name in model.trainable}
            grads, stats = model.gradient(lambda p: objective({**theta, **p}, batch), part)
            return {**theta, **stats, **model.descended(part, self.clipped(grads), data.lr)}

        theta = data.fold(step, message)
        moved = moved_from(message, {name: theta[name] for name in model.trainable})
        return theta, {"g": tree.map(lambda g, d: g - self.alpha * d, client["g"], moved)}

    def clipped(self, grads):
        """grads, scaled down together where their norm is above grad_clip."""
        if self.grad_clip == 0:
            return grads
        scale = (self.grad_clip / (square_root(tree.dot(grads, grads)) + 1e-6)).clamp(max=1)
        return tree.map(lambda grad: scale * grad, grads)

    def server_update(self, server, ids, uploads, n):
        ones = torch.ones(len(ids))
        mean = tree.weighted_mean(uploads, ones)
        moved = moved_from(server["theta"], {name: mean[name] for name in server["h"]})  # on average
        share = self.alpha * len(ids) / int(server["N"])  # the sum over S_t is divided by N, not by |S_t|
        h = tree.map(lambda h, d: h - share * d, server["h"], moved)
        return {**server, "theta": {**mean, **{name: mean[name] - h[name] / self.alpha for name in h}}, "h": h}


def moved_from(start: dict, end: dict) -> dict:
    """end - start, for the names in `end`."""
    return {name: value - start[name] for name, value in end.items()}


def root(square: torch.Tensor) -> torch.Tensor:
    """The square root, with derivative 0 at 0."""
    positive = square > 0
    return torch.where(positive, square_root(torch.where(positive, square, 1.0)), 0.0)
