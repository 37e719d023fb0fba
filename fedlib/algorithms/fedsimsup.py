"""FedSimSup: each client trains a personalised model with a supervisor;
while it does not participate, its model is averaged with those of clients with similar labels.

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

Logits are the sums of those of both networks. The run's local_epochs plays no part: a round has τ_s + τ_θ epochs.

Readings of what the paper leaves open (each an option):
- zero_sim: an idle client that is similar to no participant will "keep" its model, or mix "uniform"ly (by their
  samples).
- scale_by_sim: 1 - α_i is multiplied by the largest similarity to a participant.
- participants_mix: participants too mix with the other participants (Eq. 8) after their upload; by Eq. 7 they never do.
- order: "supervisor" or "model" is trained first.
- supervisors, shared_sup_init, combine, learn: which networks they are (the paper's Table 3 draws among three), whether
  all start equal, as all θ_i do, how scores are joined, and which of them are to be right
  (`fedlib.algorithms.parts.supervision.Supervised`).
- similarity: s_ij are cosines of "labels", as in the paper, or what they are to be compared with; the paper's Figure 3
  does not say what is without them (`WeightedPairs` in the same file).

Differences from the paper: none known in the algorithm. Label counts, which clients report once, are not in the
communication of the rounds. Statistics of batch norm in a supervisor would be its client's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import inf

import torch
from torch.nn import functional

from fedlib.algorithms.api import Algorithm, always
from fedlib.algorithms.parts.passes import local_sgd
from fedlib.algorithms.parts.supervision import Supervised, WeightedPairs
from fedlib.base import tree
from fedlib.base.options import option
from fedlib.data.describe import label_cosine


@dataclass(frozen=True)
class FedSimSup(Supervised, WeightedPairs, Algorithm):
    tau_s: int = option(2, 0, inf)
    tau_theta: int = option(3, 0, inf)
    zero_sim: str = option("keep", "keep", "uniform")
    scale_by_sim: bool = False
    participants_mix: bool = False
    order: str = option("supervisor", "supervisor", "model")
    added = ("similarity", "learn")  # came after the first stored results, see `fedlib.spec`
    points = ("agg", "post")
    eval_points = always("agg", "post")
    no_newcomers = "the server averages a non-participating client's model in every round, and a new client was in none"

    @property
    def unprotected(self):
        return "" if self.similarity in ("uniform", "none") else "the server knows how similar the clients' classes are"

    def init(self, model, setting):
        N, counts, models = setting.num_clients, setting.class_counts, tree.repeat(model.theta0, setting.num_clients)
        similarity = self.weights_of_pairs(torch.from_numpy(label_cosine(counts)), setting.seed)
        server = {"personal": models, "similarity": similarity, "sizes": counts.double().sum(1)}
        return server, self.first_supervisors(model, N)

    def messages(self, server, ids):
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
        """Weights of the participants `ids` [M, K], rows sum to 1, and of the own models [M],
        for the clients `mixing` (Eqs. 8-9)."""
        sizes = server["sizes"]
        own = len(ids) * sizes[mixing]
        alpha = own / (sizes[ids].sum() + own)
        shares = torch.where(mixing[:, None] == ids, 0, server["similarity"][mixing][:, ids])  # nobody counts twice
        if self.scale_by_sim:
            alpha = 1 - (1 - alpha) * shares.amax(1)
        shares = self.counted(shares)
        total = shares.sum(1, keepdim=True)
        if self.zero_sim == "uniform":
            fallback = torch.where(mixing[:, None] == ids, 0, sizes[ids])
            shares = torch.where(total > 0, shares, fallback)
            total = shares.sum(1, keepdim=True)
        return shares / torch.where(total > 0, total, 1), torch.where(total[:, 0] > 0, alpha, 1)

    # on a client; data.group names its supervisor's architecture

    def passes(self, T, t, E):
        return self.tau_s + self.tau_theta

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
        scores = model.classify(theta, z)
        if self.learn == "sum":
            scores = self.joint_scores(scores, frozen_model.logits(frozen, batch.x))
        return batch.mean(functional.cross_entropy(scores, batch.y, reduction="none")), stats

    def personal_model(self, model, message, client, data):
        return {**message, "supervisor": {data.group: client[data.group]}}

    def predict(self, model, personal, x):
        ((kind, u),) = personal["supervisor"].items()
        return self.joint_scores(model.logits(personal, x), model.sibling(kind).logits(u, x))
