"""FedRep: a shared representation; every client first learns its head on it, then improves it.

L. Collins, H. Hassani, A. Mokhtari, S. Shakkottai. "Exploiting Shared Representations for Personalized Federated
Learning." ICML 2021, arXiv:2102.07078. Algorithm 1.

| paper | here | meaning | default and its source |
|---|---|---|---|
| φ^t | server["f"], names "extractor.*" | shared representation, averaged over the participants | |
| h_i | client["h"], names "head.*" | stays on the client | |
| τ (head) | E_h | epochs on h_i with φ fixed, first | None: E − E_f, at least 1 (pFedSim: 4 of 5) |
| τ (representation) | E_f | epochs on φ with h_i fixed, second | 1 (pFedSim A.5); FedSimSup: E_h = 2, E_f = 3 |

Readings of what is left open (each an option):
- frozen_bn: batch norm inside the fixed representation runs in evaluation mode ("eval") or goes on to use and to update
  statistics while only the head learns ("train", as FL-bench does).
- weights of the average: "samples", or "uniform" as in Algorithm 1 and the authors' code.

Differences from the paper: the average is by samples unless weights="uniform"; local epochs where it counts updates;
all heads start equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import torch

from fedlib.algorithms.api import Algorithm
from fedlib.algorithms.fedavg_ft import trained_part
from fedlib.algorithms.parts.passes import local_sgd
from fedlib.base import tree
from fedlib.base.options import option


@dataclass(frozen=True)
class FedRep(Algorithm):
    E_h: int | None = option(None, 0, inf)
    E_f: int = option(1, 0, inf)
    frozen_bn: str = option("eval", "eval", "train")
    weights: str = option("samples", "samples", "uniform")
    points = ("recv", "post", "ft")

    def init(self, model, setting):
        head = tree.select(model.theta0, "head.")
        return {"f": tree.select(model.theta0, "extractor.")}, {"h": tree.repeat(head, setting.num_clients)}

    def download(self, server, i):
        return server["f"]

    def client_update(self, model, message, client, data):
        E_h = max(1, data.local_epochs - self.E_f) if self.E_h is None else self.E_h
        loss = None if self.frozen_bn == "eval" else self.loss_in_training_mode(model)
        theta = {**message, **client["h"]}
        theta = local_sgd(model, theta, data, E_h, train=trained_part(model, "head"), loss=loss)
        theta = local_sgd(model, theta, data, self.E_f, train=trained_part(model, "extractor"))
        return tree.select(theta, "extractor."), {"h": tree.select(theta, "head.")}

    def loss_in_training_mode(self, model):
        """The cross-entropy with every batch-norm layer in training mode, whatever is being trained."""
        return lambda theta, batch, train: model.loss(theta, batch)

    def server_update(self, server, ids, uploads, n):
        return {"f": tree.weighted_mean(uploads, n if self.weights == "samples" else torch.ones(len(ids)))}

    def personal_model(self, model, message, client, data):
        return {**message, **client["h"]}

    def eval_points(self, server):
        return ("recv", "post")
