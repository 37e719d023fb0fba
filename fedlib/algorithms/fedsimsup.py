"""FedSimSup: a supervisor on every client assists its personalised model, which learns from clients with similar labels while idle.

Anonymous. "Personalized Federated Learning with Similarity Information Supervisor." Submitted to ICLR 2025 (OpenReview
7rq2OzkJg3). Algorithm 1, Equations 3-9.

| paper | here | meaning | default and its source |
|---|---|---|---|
| θ_i | server["personal"][i] | personalised model, kept by the server and mixed there | |
| s_i | client[architecture] | supervisor, which never leaves its client (called u in the code) | |
| s_ij | server["similarity"] | cosine of the clients' label counts (training part) | |
| α_i | α of `server_update` | weight of an idle client's own model (Eq. 9) | |
| τ_s | tau_s | epochs on the supervisor, θ_i frozen; they come first | 2 (experimental settings) |
| τ_θ | tau_theta | epochs on θ_i, the supervisor frozen | 3 (experimental settings) |

Class scores are the sum of those of both networks. The run's local_epochs plays no part: a round has τ_s + τ_θ epochs.

supervisors: name of the supervisor's network; several joined by "+" are drawn for the clients with equal chances (the
paper's Table 3), and every client keeps one of each, of which it uses its own.

Readings of what the paper leaves open (each an option):
- zero_sim: an idle client that is similar to no participant will "keep" its model, or mix "uniform"ly (by their samples).
- scale_by_sim: 1 - α_i is multiplied by the largest similarity to a participant.
- participants_mix: participants too mix with the other participants (Eq. 8) after their upload; by Eq. 7 they never do.
- shared_sup_init: all supervisors start equal; by default each is a draw of its own. All θ_i start equal.
- order: "supervisor" or "model" is trained first. combine: "logits" are added, or class probabilities averaged ("prob").

Differences from the paper: none known in the algorithm. Label counts, which clients report once, are not in the
communication of the rounds. Statistics of batch norm in a supervisor would be its client's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import inf
from typing import ClassVar

import torch
from torch.nn import functional

from fedlib import tree
from fedlib.draws import rng
from fedlib.engine.fold import local_sgd
from fedlib.errors import require
from fedlib.models import check_model
from fedlib.models.supervisors import joint_scores
from fedlib.options import Options, option
from fedlib.similarity import label_cosines


@dataclass(frozen=True)
class FedSimSup(Options):
    tau_s: int = option(2, 0, inf)
    tau_theta: int = option(3, 0, inf)
    supervisors: str = "supervisor_sixth"
    zero_sim: str = option("keep", "keep", "uniform")
    scale_by_sim: bool = False
    participants_mix: bool = False
    shared_sup_init: bool = False
    order: str = option("supervisor", "supervisor", "model")
    combine: str = option("logits", "logits", "prob")
    points: ClassVar = ("agg", "post")

    def __post_init__(self):
        super().__post_init__()
        different = len(set(self.siblings)) == len(self.siblings) and all(self.siblings)
        require(different, "supervisors", self.supervisors, "different names of models, joined by +")
        for name in self.siblings:
            check_model(name)

    @property
    def siblings(self) -> list[str]:
        """Architectures of supervisors."""
        return self.supervisors.split("+")

    def groups(self, setting):
        draw = rng(setting.seed, "supervisors").integers(len(self.siblings), size=setting.num_clients)
        return [self.siblings[k] for k in draw]

    def init(self, model, setting):
        N, counts, models = setting.num_clients, setting.class_counts, tree.repeat(model.theta0, setting.num_clients)
        server = {"personal": models, "similarity": label_cosines(counts), "sizes": counts.double().sum(1)}
        return server, {kind: self.first_supervisors(model.sibling(kind), N) for kind in self.siblings}

    def first_supervisors(self, supervisor, N):
        """Initial values of one architecture for all clients, stacked [N, ...]."""
        if self.shared_sup_init:
            return tree.repeat(supervisor.theta0, N)
        return tree.stack([supervisor.independent(i + 1) for i in range(N)])

    def download(self, server, i):
        return tree.rows(server["personal"], i)

    def downloads(self, server, ids):
        return tree.rows(server["personal"], torch.as_tensor(list(ids)))

    # on the server

    def server_update(self, server, ids, uploads, n):
        models = tree.put(server["personal"], ids, uploads)  # Eq. 7
        ids = torch.as_tensor(ids)
        idle = torch.ones(len(server["sizes"]), dtype=torch.bool).index_fill(0, ids, False)
        mixing = torch.arange(len(idle)) if self.participants_mix else torch.nonzero(idle)[:, 0]
        if not len(mixing):
            return {**server, "personal": models}
        weights, alpha = self.mixing_weights(server, mixing, ids)
        own, others = tree.rows(models, mixing), tree.weighted_sum(uploads, weights * (1 - alpha)[:, None])
        mixed = tree.map(torch.add, tree.scaled(own, alpha), others)
        return {**server, "personal": tree.put(models, mixing, mixed)}

    def mixing_weights(self, server, mixing, ids):
        """Weights of the participants `ids` [M, K], rows sum to 1, and of the own models [M], for the clients `mixing` (Eqs. 8-9)."""
        sizes = server["sizes"]
        own = len(ids) * sizes[mixing]
        alpha = own / (sizes[ids].sum() + own)
        shares = torch.where(mixing[:, None] == ids, 0, server["similarity"][mixing][:, ids])  # nobody counts twice
        if self.scale_by_sim:
            alpha = 1 - (1 - alpha) * shares.amax(1)
        total = shares.sum(1, keepdim=True)
        if self.zero_sim == "uniform":
            fallback = torch.where(mixing[:, None] == ids, 0, sizes[ids])
            shares = torch.where(total > 0, shares, fallback)
            total = shares.sum(1, keepdim=True)
        return shares / torch.where(total > 0, total, 1), torch.where(total[:, 0] > 0, alpha, 1)

    # on a client; data.group names its supervisor's architecture

    def client_update(self, model, message, client, data):
        supervisor, theta, u = model.sibling(data.group), message, client[data.group]
        for step in ("supervisor", "model") if self.order == "supervisor" else ("model", "supervisor"):
            if step == "supervisor" and self.tau_s:  # Eq. 4: u learns what theta lacks
                u = local_sgd(supervisor, u, data, self.tau_s, loss=partial(self.beside, supervisor, model, theta))
            elif step == "model" and self.tau_theta:  # Eq. 5
                theta = local_sgd(model, theta, data, self.tau_theta, loss=partial(self.beside, model, supervisor, u))
        return theta, {**client, data.group: u}

    def beside(self, model, frozen_model, frozen, theta, batch, train):
        """Loss of theta beside another network that is not trained, and theta's new running statistics."""
        z, stats = model.training_features(theta, batch, train)
        scores = joint_scores(model.classify(theta, z), frozen_model.logits(frozen, batch.x), self.combine)
        return batch.mean(functional.cross_entropy(scores, batch.y, reduction="none")), stats

    def personal_model(self, model, message, client, data):
        return {**message, "supervisor": {data.group: client[data.group]}}

    def predict(self, model, personal, x):
        ((kind, u),) = personal["supervisor"].items()
        return joint_scores(model.logits(personal, x), model.sibling(kind).logits(u, x), self.combine)

    def eval_points(self, server):
        return ("agg", "post")
