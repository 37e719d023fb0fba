"""FedPer: a shared feature extractor below a personal classifier.

M. G. Arivazhagan, V. Aggarwal, A. K. Singh, S. Choudhary. "Federated Learning with Personalization Layers."
arXiv:1912.00818, 2019.

| paper | here | meaning |
|---|---|---|
| W_B (base layers) | server["f"], names "extractor.*" | averaged over the participants |
| W_P (personalization layers) | client["h"], names "head.*" | the last linear layer; stays on the client |

Two options that the paper does not have, for a fair comparison with methods that spend epochs on classifiers alone:
head_epochs, so many epochs on the head below the received extractor before both are trained; ft_part, what `ft(k)`
fine-tunes before a test: "all", "head" or "extractor".

Differences from the paper: the head has one layer (as in pFedSim's and PFedCS's tables); all heads start equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from fedlib.algorithms.api import Algorithm, always
from fedlib.algorithms.fedavg_ft import FedAvgFT, trained_part
from fedlib.algorithms.parts.passes import local_sgd
from fedlib.base import tree
from fedlib.base.options import option


@dataclass(frozen=True)
class FedPer(Algorithm):
    head_epochs: int = option(0, 0, inf)
    ft_part: str = option("all", "all", "head", "extractor")
    points = ("recv", "post", "ft")
    eval_points = always("recv", "post")
    fine_tune = FedAvgFT.fine_tune
    added = ("head_epochs", "ft_part")

    def init(self, model, setting):
        head = tree.select(model.theta0, "head.")
        return {"f": tree.select(model.theta0, "extractor.")}, {"h": tree.repeat(head, setting.num_clients)}

    def download(self, server, i):
        return server["f"]

    def passes(self, T, t, E):
        return self.head_epochs + E

    def client_update(self, model, message, client, data):
        theta = {**message, **client["h"]}
        if self.head_epochs:
            theta = local_sgd(model, theta, data, self.head_epochs, train=trained_part(model, "head"))
        theta = local_sgd(model, theta, data)  # both parts jointly
        return tree.select(theta, "extractor."), {"h": tree.select(theta, "head.")}

    def server_update(self, server, ids, uploads, n):
        return {"f": tree.weighted_mean(uploads, n)}

    def personal_model(self, model, message, client, data):
        return {**message, **client["h"]}
