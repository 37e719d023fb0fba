"""Per-FedAvg: a global model that is a good start for a few steps on a client's own data (model-agnostic
meta-learning).

A. Fallah, A. Mokhtari, A. Ozdaglar. "Personalized Federated Learning with Theoretical Guarantees: A Model-Agnostic
Meta-Learning Approach." NeurIPS 2020, arXiv:2002.07948. Algorithm 1, Eqs. 8-9; FO and HF as in its Section 5.

| paper | here | meaning |
|---|---|---|
| w | server["theta"] | the meta-model |
| α | alpha | rate of the inner step, and of the adaptation that is tested |
| β | beta | rate of the meta-step; None: the run's lr |
| τ | tau | meta-steps a round; None: E epochs |
| δ | delta | step of the finite difference that stands for a Hessian-vector product (HF) |
| D, D', D'' | b, b', b'' | independent minibatches of one meta-step |

Readings of what is left open (each an option):
- With tau=None an epoch of b minibatches makes ⌊b/2⌋ meta-steps (FO) or ⌊b/3⌋ (HF), at least one. A client with fewer
  minibatches than a meta-step needs uses the same ones again.
- ft(k) is k epochs at rate alpha. ft_epochs is the k of the headline.
- Batch norm: all passes are in training mode. w's running statistics follow its own pass over b; those of the passes at
  w - α∇ and w ± δg are dropped.

Differences from the paper: none known.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import torch

from fedlib.algorithms.fedavg import FedAvg
from fedlib.base import tree
from fedlib.base.options import option


@dataclass(frozen=True)
class PerFedAvg(FedAvg):
    variant: str = option("FO", "FO", "HF")
    alpha: float = option(0.01, 0, inf)
    beta: float | None = option(None, 0, inf)
    tau: int | None = option(None, 1, inf)
    delta: float = option(1e-3, 1e-12, inf)
    ft_epochs: int = option(1, 1, inf)
    points = ("glob", "post", "ft")
    gone = {"adapt_steps": None, "restore_stats": False}

    def client_update(self, model, message, client, data):
        beta = data.lr if self.beta is None else self.beta

        def meta_step(w, b, b_outer, b_hessian=None):
            adapted = model.sgd_step(w, b, self.alpha)  # w' = w - α ∇L(w; b)
            g = self.gradient(model, adapted, b_outer)  # ∇L(w'; b')
            if self.variant == "HF":  # g - α ∇²L(w; b'') g
                curvature = self.curvature(model, w, g, b_hessian)
                g = {name: g[name] - self.alpha * curvature[name] for name in g}
            stats = {name: adapted[name] for name in model.running}
            return {**w, **stats, **model.descended({name: w[name] for name in g}, g, beta)}  # applied to w, not to w'

        batches = 3 if self.variant == "HF" else 2
        return data.fold(meta_step, message, steps=self.tau, together=batches), client

    def gradient(self, model, theta, batch):
        """∇L(theta; batch) for all trainable parameters."""
        params = {name: theta[name] for name in model.trainable}
        return model.gradient(lambda p: model.loss({**theta, **p}, batch), params)[0]

    def curvature(self, model, w, g, batch):
        """∇²L(w; batch) g, as (∇L(w + δg) - ∇L(w - δg)) / 2δ."""

        def shifted(by):
            return {**w, **{name: w[name] + by * g[name] for name in g}}

        plus, minus = (self.gradient(model, shifted(by), batch) for by in (self.delta, -self.delta))
        return {name: (plus[name] - minus[name]) / (2 * self.delta) for name in g}

    def server_update(self, server, ids, uploads, n):
        return {"theta": tree.weighted_mean(uploads, torch.ones(len(ids)))}

    def fine_tune(self, model, theta, data, epochs):
        return data.fold(lambda theta, batch: model.sgd_step(theta, batch, self.alpha), theta, epochs)

    def eval_points(self, server):
        return (f"ft({self.ft_epochs})", "glob")
