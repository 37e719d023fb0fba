"""FedBABU: only the body is trained in the federation, below a head that stays as it was initialised;
clients fine-tune it.

J. Oh, S. Kim, S.-Y. Yun. "FedBABU: Toward Enhanced Representation for Federated Image Classification." ICLR 2022,
arXiv:2106.06042. Algorithm 1.

| paper | here | meaning | default and its source |
|---|---|---|---|
| θ_G,ext | server["f"], names "extractor.*" | the body, averaged over the participants | |
| θ_cls | client["h0"], names "head.*" | the initial head: the same on all clients, never trained, never sent | |
| τ_f | k | epochs of fine-tuning before a test | 5 (§5; PFLlib: 10) |

Readings of what is left open (each an option):
- ft_part, what is fine-tuned: "all" (the paper's "full"), "head" or "extractor" ("body").
- orthogonal: initial head with orthonormal rows (the paper's appendix), a function of the run's seed.

Differences from the paper: the same lr for fine-tuning as for training.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import torch

from fedlib.algorithms.api import Algorithm
from fedlib.algorithms.fedavg_ft import trained_part
from fedlib.algorithms.parts.passes import local_sgd
from fedlib.base import draws, tree
from fedlib.base.options import option


@dataclass(frozen=True)
class FedBABU(Algorithm):
    k: int = option(5, 1, inf)
    ft_part: str = option("all", "all", "head", "extractor")
    orthogonal: bool = False
    points = ("glob", "post", "ft")

    def init(self, model, setting):
        head = tree.select(model.theta0, "head.")
        if self.orthogonal:
            head = {**head, "head.weight": orthogonal_like(head["head.weight"], setting.seed)}
        return {"f": tree.select(model.theta0, "extractor.")}, {"h0": tree.repeat(head, setting.num_clients)}

    def download(self, server, i):
        return server["f"]

    def client_update(self, model, message, client, data):
        theta = local_sgd(model, {**message, **client["h0"]}, data, train=trained_part(model, "extractor"))
        return tree.select(theta, "extractor."), client

    def server_update(self, server, ids, uploads, n):
        return {"f": tree.weighted_mean(uploads, n)}

    def personal_model(self, model, message, client, data):
        return {**message, **client["h0"]}

    def fine_tune(self, model, theta, data, epochs):
        return local_sgd(model, theta, data, epochs, train=trained_part(model, self.ft_part))

    def eval_points(self, server):
        return (f"ft({self.k})", "glob")


def orthogonal_like(weight: torch.Tensor, seed: int) -> torch.Tensor:
    """Random orthonormal rows (columns, if there are more rows than columns) in the shape of `weight` [C, d]."""
    drawn = draws.torch_seeded(seed, "orthogonal head", lambda: torch.nn.init.orthogonal_(torch.empty(weight.shape)))
    return drawn.to(weight)
