"""FedRep: a shared representation; every client first learns its head on it, then improves it.

L. Collins, H. Hassani, A. Mokhtari, S. Shakkottai. "Exploiting Shared Representations for Personalized Federated
Learning." ICML 2021, arXiv:2102.07078. Algorithm 1.

| paper | here | meaning | default and its source |
|---|---|---|---|
| φ^t | server["f"], names "extractor.*" | shared representation, averaged over the participants | |
| h_i | client["h"], names "head.*" | stays on the client | |
| τ (head) | E_h | epochs on h_i with φ fixed, first | None: E − E_f, at least 1 (pFedSim: 4 of 5) |
| τ (representation) | E_f | epochs on φ with h_i fixed, second | 1 (pFedSim A.5); FedSimSup: E_h = 2, E_f = 3 |

Readings of what is left open:
- Batch norm inside the fixed representation runs in evaluation mode.
- weights of the average: "samples", or "uniform" as in Algorithm 1 and the authors' code.

Differences from the paper: the average is by samples unless weights="uniform"; local epochs where it counts updates;
all heads start equal. In a client's first turn the head is trained with batch norm's running statistics of 0 and 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import torch

from fedlib.algorithms.api import Algorithm, always
from fedlib.algorithms.fedavg_ft import trained_part
from fedlib.algorithms.fedper import FedPer
from fedlib.algorithms.parts.passes import local_sgd
from fedlib.base import tree
from fedlib.base.options import option


@dataclass(frozen=True)
class FedRep(Algorithm):
    E_h: int | None = option(None, 0, inf)
    E_f: int = option(1, 0, inf)
    weights: str = option("samples", "samples", "uniform")
    points = ("recv", "post", "ft")
    eval_points = always("recv", "post")
    init, download, personal_model = FedPer.init, FedPer.download, FedPer.personal_model
    gone = {"frozen_bn": "eval"}

    def epochs_of_head(self, E):
        """E_h in a run of E local epochs."""
        return max(1, E - self.E_f) if self.E_h is None else self.E_h

    def passes(self, T, t, E):
        return self.epochs_of_head(E) + self.E_f

    def client_update(self, model, message, client, data):
        theta = {**message, **client["h"]}
        theta = local_sgd(model, theta, data, self.epochs_of_head(data.local_epochs), train=trained_part(model, "head"))
        theta = local_sgd(model, theta, data, self.E_f, train=trained_part(model, "extractor"))
        return tree.select(theta, "extractor."), {"h": tree.select(theta, "head.")}

    def server_update(self, server, ids, uploads, n):
        return {"f": tree.weighted_mean(uploads, n if self.weights == "samples" else torch.ones(len(ids)))}
