"""FedEM: every client's data are a mixture of M distributions that all clients share;
the M models are learned together.

O. Marfoq, G. Neglia, A. Bellet, L. Kameni, R. Vidal. "Federated Multi-Task Learning under a Mixture of Distributions."
NeurIPS 2021, arXiv:2108.10252. Algorithm 1.

| paper | here | meaning |
|---|---|---|
| M | M | number of components |
| θ_m | server["theta"], leaves [M, ...] | the components |
| π_tm | client["mix"], [M] | client t's mixture weights, uniform at the start |
| q_s(m) | `responsibilities`, [M, B] | posterior of component m for sample s (E-step) |

A client's round: q from the received components and the old weights; the new weights are the mean of q; every component
is trained with q as sample weights, recomputed for each minibatch from the received components, so that q is fixed for
the round. Tested is Σ_m π_m softmax(θ_m(x)) with the stored weights.

Batch norm: every component has running statistics of its own; q is computed in evaluation mode.

Differences from the paper: none known. In a client's first turn the pass in evaluation mode, which has batch norm's
running statistics still at 0 and 1, makes its mixture nearly uniform; the authors average these statistics.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import torch
from torch.nn import functional

from fedlib.algorithms.api import always
from fedlib.algorithms.fedavg import FedAvg
from fedlib.base import tree
from fedlib.base.options import option

TINY = 1e-30  # least mixture weight in a logarithm


@dataclass(frozen=True)
class FedEM(FedAvg):
    M: int = option(3, 1, inf)
    points = ("recv", "post")
    eval_points = always("recv", "post")

    @property
    def num_models(self):
        return self.M

    def init(self, model, setting):
        thetas = tree.stack([model.theta0, *(model.independent(m) for m in range(1, self.M))])
        mix = model.theta0["head.bias"].new_full((setting.num_clients, self.M), 1 / self.M)
        return {"theta": thetas}, {"mix": mix}

    def client_update(self, model, message, client, data):
        received = self.components(message)

        def add_responsibilities(total, batch):
            q = self.responsibilities(model, received, client["mix"], batch)
            return total + (q if batch.mask is None else torch.where(batch.mask, q, 0)).sum(1)

        def step(thetas, batch):
            q = self.responsibilities(model, received, client["mix"], batch)
            return tuple(
                model.sgd_step(theta, batch, data.lr, None, weighted_loss(model, q[m]), data.differentiate)
                for m, theta in enumerate(thetas)
            )

        mix = data.scan(add_responsibilities, torch.zeros_like(client["mix"])) / data.num_samples
        return tree.stack(data.fold(step, received)), {"mix": mix}

    def components(self, stacked):
        """The M models one by one."""
        return tuple(tree.rows(stacked, m) for m in range(self.M))

    def responsibilities(self, model, thetas, mix, batch):
        """q_s(m) ∝ π_m exp(-loss of sample s under θ_m), [M, B]; in logarithms, so that nothing underflows."""
        losses = [functional.cross_entropy(model.logits(theta, batch.x), batch.y, reduction="none") for theta in thetas]
        return torch.softmax(mix.clamp(min=TINY).log()[:, None] - torch.stack(losses), 0)

    def personal_model(self, model, message, client, data):
        return {**message, "mix": client["mix"]}

    def predict(self, model, personal, x):
        thetas = self.components({name: leaf for name, leaf in personal.items() if name != "mix"})
        scores = torch.stack([torch.log_softmax(model.logits(theta, x), -1) for theta in thetas])  # [M, B, C]
        return torch.logsumexp(personal["mix"].clamp(min=TINY).log()[:, None, None] + scores, 0)


def weighted_loss(model, q):
    """The mean over a minibatch of q[s] times the cross-entropy of sample s, as a loss for `sgd_step`."""

    def loss(theta, batch, train):
        z, stats = model.training_features(theta, batch, train)
        losses = functional.cross_entropy(model.classify(theta, z), batch.y, reduction="none")
        return batch.mean(q * losses), stats

    return loss
