"""FedBABU: clients train and share the body only, below a head that keeps its initial values;
then they fine-tune the model.

J. Oh, S. Kim, S.-Y. Yun. "FedBABU: Toward Enhanced Representation for Federated Image Classification." ICLR 2022,
arXiv:2106.06042. Algorithm 1.

| paper | here | meaning | default and its source |
|---|---|---|---|
| θ_G,ext | server["f"], names "extractor.*" | the body, averaged over the participants | |
| θ_cls | client["h0"], names "head.*" | the initial head: the same on all clients, never trained, never sent | |
| τ_f | k | epochs of fine-tuning before a test | 5 (§5; PFLlib: 10) |

Reading of what is left open:
- ft_part, what is fine-tuned: "all" (the paper's "full"), "head" or "extractor" ("body").

Differences from the paper: the same lr for fine-tuning as for training.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from fedlib.algorithms.api import Algorithm, local_epochs
from fedlib.algorithms.fedavg_ft import FedAvgFT, trained_part
from fedlib.algorithms.fedper import FedPer
from fedlib.algorithms.parts.passes import local_sgd
from fedlib.base import tree
from fedlib.base.options import option


@dataclass(frozen=True)
class FedBABU(Algorithm):
    k: int = option(5, 1, inf)
    ft_part: str = option("all", "all", "head", "extractor")
    points = ("glob", "post", "ft")
    passes = local_epochs
    download, server_update = FedPer.download, FedPer.server_update
    fine_tune, eval_points = FedAvgFT.fine_tune, FedAvgFT.eval_points
    gone = {"orthogonal": False}

    def init(self, model, setting):
        head = tree.select(model.theta0, "head.")
        return {"f": tree.select(model.theta0, "extractor.")}, {"h0": tree.repeat(head, setting.num_clients)}

    def client_update(self, model, message, client, data):
        theta = local_sgd(model, {**message, **client["h0"]}, data, train=trained_part(model, "extractor"))
        return tree.select(theta, "extractor."), client

    def personal_model(self, model, message, client, data):
        return {**message, **client["h0"]}
