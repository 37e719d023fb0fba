"""FeSEM: K centres in the space of models; every client trains from the centre nearest to its own last model.

G. Long, M. Xie, T. Shen, T. Zhou, X. Wang, J. Jiang. "Multi-center federated learning: clients clustering for better
personalization." World Wide Web 26, 2023, arXiv:2005.01026. Algorithm 1.

| paper | here | meaning |
|---|---|---|
| K | K | number of centres; unpublished in PFedCS, 4 here |
| W̃^(k) | server["centres"], leaves [K, ...] | the centres μ_k |
| W_i | server["models"][i] | client i's model as last uploaded |
| r_i^(k) | server["cluster"][i] | the number of the centre nearest to W_i |

Readings of what is left open:
- The centres are seeded (k-means++) with the clients' models after their first local training, as soon as K clients
  have trained (the first round, if K or more take part); until then there is one.
- members: a centre is the mean over "all" clients assigned to it that ever trained, with their last uploads, or over
  this round's "participants". weights: "uniform" or by "samples". A centre without members stays.
- Distances are over trainable parameters; a client that never trained keeps its first cluster.

Differences from the paper: one E- and one M-step a round; no proximal term.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import torch

from fedlib.algorithms.api import Algorithm, always, last_upload, local_epochs
from fedlib.algorithms.fedavg import FedAvg
from fedlib.algorithms.parts.similarity import squared_distances
from fedlib.base import tree
from fedlib.base.draws import rng
from fedlib.base.options import option


@dataclass(frozen=True)
class FeSEM(Algorithm):
    K: int = option(4, 1, inf)
    members: str = option("all", "all", "participants")
    weights: str = option("uniform", "uniform", "samples")
    points = ("glob", "post", "ft")
    passes = local_epochs
    client_update = FedAvg.client_update  # local training from the message
    personal_model = FedAvg.personal_model
    eval_points = always("post", "glob")
    stored_upload = last_upload
    gone = {"seeding": "k-means++"}
    no_newcomers = "a client is sent the centre nearest to its last upload, and a new client has none"

    def init(self, model, setting):
        N = setting.num_clients
        return {
            "centres": tree.repeat(model.theta0, self.K),
            "models": tree.repeat(model.theta0, N),
            "cluster": torch.zeros(N, dtype=torch.int64),
            "sizes": torch.zeros(N, dtype=torch.float64),  # N_i of those that ever trained, else 0
            "seeded": False,
            "seed": setting.seed,
            "trainable": model.trainable,
        }, {}

    def messages(self, server, ids):
        return tree.rows(server["centres"], server["cluster"][torch.as_tensor(ids)])

    def server_update(self, server, ids, uploads, n):
        ids = torch.as_tensor(ids)
        models = tree.put(server["models"], ids, uploads)
        sizes = server["sizes"].index_copy(0, ids, torch.as_tensor(n).double())
        trained, names = sizes > 0, server["trainable"]
        centres, cluster, seeded = server["centres"], server["cluster"], server["seeded"]
        if not seeded and trained.sum() >= self.K:
            known = tree.rows(models, trained.nonzero()[:, 0])
            centres, seeded = tree.rows(known, k_means_plus_plus(known, names, self.K, server["seed"])), True
        if seeded:  # E-step
            nearest = squared_distances(models, centres, names).argmin(1).cpu()
            cluster = torch.where(trained, nearest, cluster)
        here = trained if self.members == "all" else torch.zeros_like(trained).index_fill(0, ids, True)
        shares = (cluster == torch.arange(self.K)[:, None]) * here * (sizes if self.weights == "samples" else 1.0)
        occupied = shares.sum(1).nonzero()[:, 0]
        centres = tree.put(centres, occupied, tree.weighted_mean(models, shares[occupied]))  # M-step
        return {**server, "centres": centres, "models": models, "cluster": cluster, "sizes": sizes, "seeded": seeded}


def k_means_plus_plus(models, names, count: int, seed: int) -> list[int]:
    """Positions of `count` models: the first uniformly, each further one in proportion to its squared distance to the
    nearest so far.

    D. Arthur, S. Vassilvitskii, SODA 2007. Models are drawn in order of their distance to all others, so that the draw
    does not depend on how clients are numbered.
    """
    distances, generator = squared_distances(models, models, names).cpu(), rng(seed, "k-means++")
    order = distances.sum(1).argsort(stable=True)
    chosen = [int(order[generator.integers(len(order))])]
    while len(chosen) < count:
        mass = distances[order][:, chosen].amin(1).cumsum(0)
        drawn = torch.searchsorted(mass, generator.random() * mass[-1], right=True)
        chosen.append(int(order[drawn.clamp(max=len(order) - 1)]))
    return chosen
