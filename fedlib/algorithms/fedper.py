"""FedPer: a shared feature extractor below a personal classifier.

M. G. Arivazhagan, V. Aggarwal, A. K. Singh, S. Choudhary. "Federated Learning with Personalization Layers."
arXiv:1912.00818, 2019.

| paper | here | meaning |
|---|---|---|
| W_B (base layers) | server["f"], names "extractor.*" | averaged over the participants |
| W_P (personalization layers) | client["h"], names "head.*" | the last linear layer; stays on the client |

Differences from the paper: the head has one layer (as in pFedSim's and PFedCS's tables); all heads start equal.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedlib.algorithms.api import Algorithm
from fedlib.algorithms.parts.passes import local_sgd
from fedlib.base import tree


@dataclass(frozen=True)
class FedPer(Algorithm):
    points = ("recv", "post", "ft")

    def init(self, model, setting):
        head = tree.select(model.theta0, "head.")
        return {"f": tree.select(model.theta0, "extractor.")}, {"h": tree.repeat(head, setting.num_clients)}

    def download(self, server, i):
        return server["f"]

    def client_update(self, model, message, client, data):
        theta = local_sgd(model, {**message, **client["h"]}, data)  # both parts jointly
        return tree.select(theta, "extractor."), {"h": tree.select(theta, "head.")}

    def server_update(self, server, ids, uploads, n):
        return {"f": tree.weighted_mean(uploads, n)}

    def personal_model(self, model, message, client, data):
        return {**message, **client["h"]}

    def eval_points(self, server):
        return ("recv", "post")
