"""FedAvg: average the locally trained models, weighted by their numbers of training samples.

B. McMahan, E. Moore, D. Ramage, S. Hampson, B. Agüera y Arcas. "Communication-Efficient Learning of Deep Networks from
Decentralized Data." AISTATS 2017, arXiv:1602.05629. Pseudo-code as in pFedSim, Algorithm 1.

| paper | here | meaning |
|---|---|---|
| θ^t | server["theta"] | global model after round t |
| θ_i^t | upload | client i's model after its local epochs |
| \\|D_i\\| | n[i] | training samples of client i |

Differences from the paper: none in the algorithm. Under the run's default bn_stats="local" every client keeps its own
batch-norm running statistics, so the tested models are not quite the same for all; "global" averages them too.
pFedSim's Algorithm 1 hands θ_i^{t-1} to ClientUpdate; it means the global model.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedlib.algorithms.api import Algorithm, local_epochs
from fedlib.algorithms.parts.passes import local_sgd
from fedlib.base import tree


@dataclass(frozen=True)
class FedAvg(Algorithm):
    points = ("glob", "post", "ft")
    passes = local_epochs

    def init(self, model, setting):
        return {"theta": model.theta0}, {}

    def download(self, server, i):
        return server["theta"]

    def client_update(self, model, message, client, data):
        return local_sgd(model, message, data), client  # E epochs of SGD on D_i

    def server_update(self, server, ids, uploads, n):
        return {"theta": tree.weighted_mean(uploads, n)}  # sum over S_t of |D_i|/|D| theta_i

    def personal_model(self, model, message, client, data):
        return message

    def eval_points(self, server):
        return ("glob",)
