"""IFCA: K models; every client trains the one that fits its data best.

A. Ghosh, J. Chung, D. Yin, K. Ramchandran. "An Efficient Framework for Clustered Federated Learning." NeurIPS 2020,
arXiv:2006.04088. Algorithm 1 with model averaging.

| paper | here | meaning |
|---|---|---|
| k | K | number of clusters; unpublished in pFedSV, 4 here |
| θ_j | server["theta"], leaves [K, ...] | the clusters' models |
| ĵ | upload["cluster"], client["cluster"] | number of the model with the least loss on its training data; -1 at first |
| S_j | server["occupancy"], [K] | participants of the last round by cluster |

Readings of what is left open (each an option):
- weights: a cluster's model is the "uniform" mean of its participants' or weighted by "samples". A cluster that nobody
  chose keeps its model.
- The initial models are drawn independently (equal ones would never separate); there are no restarts.
- Batch norm: clusters are compared in training mode, on the statistics of the client's own data, so that the model
  trained last has no advantage. A client that keeps its running statistics has one set, of the model it trained last.
- Clusters are chosen anew before every test, on training data.

Differences from the paper: none known.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import torch

from fedlib.algorithms.api import Algorithm, always, local_epochs
from fedlib.algorithms.parts.passes import local_sgd
from fedlib.base import tree
from fedlib.base.options import option


@dataclass(frozen=True)
class IFCA(Algorithm):
    K: int = option(4, 1, inf)
    weights: str = option("uniform", "uniform", "samples")
    points = ("glob", "ft")
    passes = local_epochs
    eval_points = always("glob")
    unprotected = "a client chooses its cluster by the loss on its training records, without noise"

    def init(self, model, setting):
        thetas = [model.theta0, *(model.independent(k) for k in range(1, self.K))]
        server = {"theta": tree.stack(thetas), "occupancy": torch.zeros(self.K, dtype=torch.int64)}
        first = torch.full((setting.num_clients,), -1, device=model.theta0["head.bias"].device)
        return server, {"cluster": first}

    def download(self, server, i):
        return server["theta"]  # all K models

    def client_update(self, model, message, client, data):
        theta, j = self.best_model(model, message, data)
        return {**local_sgd(model, theta, data), "cluster": j}, {"cluster": j}

    def best_model(self, model, message, data):
        """The model with the least loss on the client's training data, and its number."""

        def add_losses(totals, batch):
            rows = len(batch.y) if batch.mask is None else batch.mask.sum()
            losses = [model.loss(tree.rows(thetas, k), batch)[0] for k in range(self.K)]
            return totals + rows * torch.stack(losses)

        own = {name: message[name].expand(self.K, -1) for name in model.running}  # [K, ...]; the client's own are [...]
        thetas = {**message, **own}
        j = data.scan(add_losses, message["head.bias"].new_zeros(self.K)).argmin()
        return tree.map(lambda leaf: leaf.index_select(0, j.reshape(1))[0], thetas), j

    def server_update(self, server, ids, uploads, n):
        j = uploads["cluster"].cpu()
        members = (j == torch.arange(self.K)[:, None]).double()  # [K, participants]
        occupied = members.any(1).nonzero()[:, 0]
        shares = members * torch.as_tensor(n) if self.weights == "samples" else members
        trained = {name: uploads[name] for name in server["theta"]}
        means = tree.weighted_mean(trained, shares[occupied])
        return {"theta": tree.put(server["theta"], occupied, means), "occupancy": members.sum(1).long()}

    def personal_model(self, model, message, client, data):
        return self.best_model(model, message, data)[0]
