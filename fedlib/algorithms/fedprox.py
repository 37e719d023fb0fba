"""FedProx: FedAvg with a proximal term that keeps the local model near the received one.

T. Li, A. K. Sahu, M. Zaheer, M. Sanjabi, A. Talwalkar, V. Smith. "Federated Optimization in Heterogeneous Networks."
MLSys 2020, arXiv:1812.06127. Algorithm 2.

| paper | here | meaning | default and its source |
|---|---|---|---|
| w^t | server["theta"], message | global model after round t | |
| w | upload | argument of h_i(w; w^t) = F_i(w) + μ/2 ‖w − w^t‖² | |
| μ | mu | strength of the proximal term; lr·μ must stay below 2 | 1 (pFedSim A.5, FedSimSup; others do not say) |
| | weights | uploads weigh by "samples", or all alike, as in Algorithm 2: "uniform" | samples (ours) |

The proximal term covers all trainable parameters, batch norm's scale and shift included, and no running statistics.

Differences from the paper: every client does E epochs (no stragglers, hence no γ-inexact solutions); clients are drawn
with equal probability, where the paper draws them in proportion to their samples and therefore averages uniformly.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np

from fedlib.algorithms.api import local_epochs
from fedlib.algorithms.fedavg import FedAvg
from fedlib.algorithms.parts.passes import local_sgd
from fedlib.base.options import option


@dataclass(frozen=True)
class FedProx(FedAvg):
    mu: float = option(1.0, 0, inf)
    weights: str = option("samples", "samples", "uniform")
    added = ("weights",)
    passes = local_epochs

    def client_update(self, model, message, client, data):
        return local_sgd(model, message, data, tie=(self.mu, message)), client  # h_i(w; w^t)

    def server_update(self, server, ids, uploads, n):
        return super().server_update(server, ids, uploads, n if self.weights == "samples" else np.ones(len(ids)))
