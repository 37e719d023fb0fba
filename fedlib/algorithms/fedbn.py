"""FedBN: FedAvg in which every client keeps its own batch-norm layers.

X. Li, M. Jiang, X. Zhang, M. Kamp, Q. Dou. "FedBN: Federated Learning on Non-IID Features via Local Batch
Normalization." ICLR 2021, arXiv:2102.07623. Algorithm 1.

| paper | here | meaning |
|---|---|---|
| w^(l)_k, l not a BN layer | server["theta"], message, upload | averaged over the participants |
| w^(l)_k, l a BN layer | client | scale, shift and running statistics; never leave it, whatever the run's bn_stats |

Batch-norm layers are found by their type, not by their names. Under bn_stats="local" FedAvg differs from FedBN by scale
and shift alone. A model without batch norm is trained as by FedAvg, with a warning.

Differences from the paper: the average is weighted by training samples, the paper's Algorithm 1 averages uniformly.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

from fedlib.algorithms.api import always, local_epochs
from fedlib.algorithms.fedavg import FedAvg
from fedlib.algorithms.parts.passes import local_sgd
from fedlib.base import tree


@dataclass(frozen=True)
class FedBN(FedAvg):
    points = ("recv", "post", "ft")
    passes = local_epochs
    eval_points = always("recv", "post")

    def init(self, model, setting):
        if not model.norm_names:
            warnings.warn("the model has no batch-norm layers: FedBN is FedAvg here", stacklevel=2)
        norms = {name: model.theta0[name] for name in model.norm_names}
        shared = {name: leaf for name, leaf in model.theta0.items() if name not in norms}
        return {"theta": shared}, tree.repeat(norms, setting.num_clients)

    def client_update(self, model, message, client, data):
        theta = local_sgd(model, {**message, **client}, data)
        return {name: theta[name] for name in message}, {name: theta[name] for name in client}

    def personal_model(self, model, message, client, data):
        return {**message, **client}
