"""FedBN: average everything but batch norm.

X. Li, M. Jiang, X. Zhang, M. Kamp, Q. Dou. "FedBN: Federated Learning on Non-IID Features via Local Batch Normalization."
ICLR 2021, arXiv:2102.07623. Algorithm 1.

| paper | here | meaning |
|---|---|---|
| w^l, l not a BN layer | server["shared"] | averaged over the participants |
| BN layers of client k | client["bn"] | scale, shift and running statistics; never leave the client |

Differences from the paper: the mean is weighted by samples, as FedAvg's. A model without batch norm makes this FedAvg (warned).
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import ClassVar

from fedlib import tree
from fedlib.engine.fold import local_sgd


@dataclass(frozen=True)
class FedBN:
    points: ClassVar = ("recv", "post", "ft")

    def init(self, model, setting):
        if not model.norm_names:
            warnings.warn("the model has no batch norm: FedBN is FedAvg", stacklevel=2)
        shared, bn = self.divided(model, model.theta0)
        return {"shared": shared}, {"bn": tree.repeat(bn, setting.num_clients)}

    def divided(self, model, theta):
        """(all but batch norm, batch norm)."""
        bn = {name: theta[name] for name in model.norm_names}
        return {name: leaf for name, leaf in theta.items() if name not in bn}, bn

    def download(self, server, i):
        return server["shared"]

    def client_update(self, model, message, client, data):
        shared, bn = self.divided(model, local_sgd(model, {**message, **client["bn"]}, data))
        return shared, {"bn": bn}

    def server_update(self, server, ids, uploads, n):
        return {"shared": tree.weighted_mean(uploads, n)}

    def personal_model(self, model, message, client, data):
        return {**message, **client["bn"]}

    def eval_points(self, server):
        return ("recv", "post")
