"""FedRoD: a generic model for balanced classes, and on its features a personalised head for the client's own classes.

H.-Y. Chen, W.-L. Chao. "On Bridging Generic and Personalized Federated Learning for Image Classification." ICLR 2022,
arXiv:2107.00778. Algorithm 1, Eqs. 7-9, linear personal heads.

| paper | here | meaning | default and its source |
|---|---|---|---|
| θ, ψ | server["theta"], message, upload | extractor and generic head ("G-head") | |
| φ_m | client, "personal.weight" and "personal.bias" | personal head ("P-head") of client m; starts as a copy of ψ | |
| N_m,c | data.class_counts | training samples of class c | |
| γ | gamma | exponent of the class counts in the balanced softmax | 1 (paper) |

A minibatch is used once for both: (θ, ψ) by the balanced softmax, the cross-entropy of ψ(z) + γ ln N_m, z = θ(x); φ_m
by the cross-entropy of ψ(z) + φ_m(z), both summands' other parameters held fixed (stop-gradient). A class that a client
lacks has ln 0 = −∞, here −1e9: it is never predicted in training. Prediction: argmax of ψ(z) + φ_m(z), at `glob` of
ψ(z).

Differences from the paper: the variant whose personal heads come from a hypernetwork is left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import torch
from torch.nn import functional

from fedlib.algorithms.api import always, local_epochs
from fedlib.algorithms.fedavg import FedAvg
from fedlib.algorithms.parts.passes import local_sgd
from fedlib.base import tree
from fedlib.base.options import option

ABSENT = -1e9  # ln of the number of samples of a class without samples


@dataclass(frozen=True)
class FedRoD(FedAvg):
    gamma: float = option(1.0, 0, inf)
    points = ("recv", "post", "glob")
    passes = local_epochs
    eval_points = always("recv", "post", "glob")
    gone = {"residual": True}
    unprotected = "a client's class counts are in the loss of each of its records"

    def init(self, model, setting):
        head = tree.select(model.theta0, "head.")
        personal = {f"personal{name.removeprefix('head')}": leaf for name, leaf in head.items()}
        return {"theta": model.theta0}, tree.repeat(personal, setting.num_clients)

    def client_update(self, model, message, client, data):
        counts = data.class_counts
        prior = self.gamma * counts.to(message["head.bias"]).clamp(min=1).log()
        prior = torch.where(counts > 0, prior, ABSENT if self.gamma else 0.0)

        def loss(theta, batch, train):
            z, stats = model.training_features(theta, batch)
            generic = model.classify(theta, z)
            balanced = functional.cross_entropy(generic + prior, batch.y, reduction="none")
            scores = generic.detach() + model.classify(personal_head(theta), z.detach())
            return batch.mean(balanced + functional.cross_entropy(scores, batch.y, reduction="none")), stats

        theta = local_sgd(model, {**message, **client}, data, train=(*model.trainable, *client), loss=loss)
        return {name: theta[name] for name in message}, {name: theta[name] for name in client}

    def generic_model(self, model, message):
        return message

    def personal_model(self, model, message, client, data):
        head = tree.map(torch.add, tree.select(message, "head."), personal_head(client))
        return {**message, **head}  # linear: the sum of both scores


def personal_head(theta: dict) -> dict:
    """The personal head under the names of the model's own."""
    return {"head.weight": theta["personal.weight"], "head.bias": theta["personal.bias"]}
