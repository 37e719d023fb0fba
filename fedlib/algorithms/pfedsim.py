"""pFedSim: personalised feature extractors, aggregated by the similarity of the clients' classifiers.

J. Tan, Y. Zhou, G. Liu, J. H. Wang, S. Yu. "pFedSim: Similarity-Aware Model Aggregation Towards Personalized Federated
Learning." arXiv:2305.15706, 2023. Algorithm 2, Eqs. 2-4.

| paper | here | meaning | default and its source |
|---|---|---|---|
| ρ | rho | share of the rounds spent on FedAvg | 0.5 (§5.1) |
| T_g | warm_up | rounds of phase 1 (FedAvg), ⌊ρT⌋ | |
| ω_i, φ_i | extractor and head of server["models"][i] | client i's model as last uploaded | |
| Φ | server["phi"] | similarity of classifiers, N x N, starts as the identity | |
| ϵ | eps | guards the cosine's denominator | 1e-8 (Eq. 3) |

Readings of what the paper leaves open (each an option):
- phi="eq3" is Eq. 3 as printed, the mean over classes of -ln(1 - max(0, cos)); phi="reference", the default, is what
  the authors' code does: the mean cosine, cut off at 0, is stored, and -ln(1 - Φ) is taken when aggregating, 1 - Φ
  never below phi_cap. Only the second keeps Φ in [0, 1] as the text says.
- phi_self, the weight of the own extractor: None is the identity's 1 under the chosen phi's transform (1 for
  "eq3", -ln(phi_cap) = 9.21 for "reference"); "eq3" is Eq. 3 at i = j, about -ln(eps) = 18.4 (for class
  vectors of norm 1); or a number.
- phi_refresh: the pairs whose similarity is renewed after a round: "cosampled" (Alg. 2: both took part), "one_fresh"
  (at least one took part) or "all" (the server has every classifier anyway).
- max_age: leave out clients that last trained more than this many rounds ago (None: none, 0: all others).
- phi_bias: count the bias as one more component of a class vector.
- A client that does not take part keeps ω_i, its last upload (the phase's ω if there is none), as it keeps φ_i.
- Which θ_i is evaluated: "post", after local training (primary); "agg", Eq. 4 applied once more.
- Batch norm's weights and biases are aggregated with ω; its running statistics follow the run's bn_stats (default:
  they stay on the client).

Differences from the paper: exactly T rounds (the reported loop T_g..T is one round longer).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import floor, inf, log

import torch

from fedlib.algorithms.api import Algorithm, always, last_upload, local_epochs
from fedlib.algorithms.fedavg import FedAvg
from fedlib.algorithms.parts.passes import local_sgd
from fedlib.algorithms.parts.similarity import class_cosines, class_vectors
from fedlib.base import tree
from fedlib.base.options import option


@dataclass(frozen=True)
class PFedSim(Algorithm):
    rho: float = option(0.5, 0, 1)
    phi: str = option("reference", "reference", "eq3")
    phi_self: float | str | None = option(None, 1e-12, inf, "eq3")
    phi_cap: float = option(1e-4, 1e-12, 0.99)
    phi_refresh: str = option("cosampled", "cosampled", "one_fresh", "all")
    max_age: int | None = option(None, 0, inf)
    phi_bias: bool = False
    eps: float = option(1e-8, 1e-16, 0.99)
    points = ("glob", "agg", "post", "ft")
    passes = local_epochs
    eval_points = always("post", "agg")
    personal_model = FedAvg.personal_model
    stored_upload = last_upload

    def warm_up(self, setting):
        return FedAvg(), floor(self.rho * setting.rounds + 1e-9)  # phase 1; 1e-9 against rounding errors

    def init(self, model, setting):
        return self.personalisation_phase(model.theta0, setting), {}

    def switch_phase(self, model, setting, server, clients, reports):  # Algorithm 2: decouples ω and φ from θ
        return self.personalisation_phase(server["theta"], setting), {}

    def personalisation_phase(self, theta, setting):
        """The server before round T_g + 1: every ω_i, φ_i := ω, φ and Φ := I."""
        N, T_g = setting.num_clients, self.warm_up(setting)[1]
        trained = torch.full((N,), T_g)  # round in which a client last trained its own model, for max_age
        return {
            "round": T_g,
            "models": tree.repeat(theta, N),
            "phi": torch.eye(N, dtype=torch.float64),
            "trained": trained,
        }

    def messages(self, server, ids):
        own = tree.rows(server["models"], ids)  # φ_i stays as it is
        weights = self.mixing_weights(server, ids)
        shares = weights / weights.sum(1, keepdim=True)
        partners = weights.any(0).nonzero()[:, 0]  # the others, most of them among many clients, add nothing
        theirs = tree.rows(tree.select(server["models"], "extractor."), partners)
        return {**own, **tree.weighted_sum(theirs, shares[:, partners])}  # Eq. 4, for all i at once

    def client_update(self, model, message, client, data):
        return local_sgd(model, message, data), client  # ω_i and φ_i jointly

    def server_update(self, server, ids, uploads, n):  # Φ anew; Eq. 4 mixes what it keeps at the next `messages`
        t = server["round"] + 1
        models = tree.put(server["models"], ids, uploads)
        phi = self.refreshed(server["phi"], models, ids)
        trained = server["trained"].index_fill(0, torch.as_tensor(ids), t)
        return {"round": t, "models": models, "phi": phi, "trained": trained}

    def refreshed(self, phi, models, ids):
        """Φ with the entries of this round's pairs computed anew; symmetric, and the diagonal stays 1."""
        ids, everyone = torch.as_tensor(ids).sort().values, torch.arange(len(phi))
        pairs = {"cosampled": (ids, ids), "one_fresh": (ids, everyone), "all": (everyone, everyone)}
        rows, cols = pairs[self.phi_refresh]
        heads = class_vectors(models, bias=self.phi_bias)  # [N, C, d]
        cos = class_cosines(heads[rows], heads[cols], self.eps).cpu()  # [rows, cols, C], float64
        if self.phi == "eq3":
            fresh = -torch.log(1 - cos.clamp(0, 1 - self.eps)).mean(-1)  # Eq. 3
        else:
            fresh = cos.mean(-1).clamp(min=0)  # Eq. 2, negative similarity cut off
        phi = phi.clone()
        phi[cols[:, None], rows] = fresh.T
        phi[rows[:, None], cols] = fresh
        upper = phi[rows[:, None], rows].triu(1)  # of pairs within: symmetric to the last bit
        phi[rows[:, None], rows] = upper + upper.T + torch.eye(len(rows), dtype=phi.dtype)
        return phi

    def mixing_weights(self, server, ids):
        """Φ_ij of Eq. 4 for i in ids and all j [len(ids), N], before their sum is divided out."""
        ids = torch.as_tensor(ids)
        weights = server["phi"][ids]
        if self.phi == "reference":
            weights = -torch.log(1 - weights.clamp(max=1 - self.phi_cap))
        if self.max_age is not None:
            weights = torch.where(server["round"] + 1 - server["trained"] > self.max_age, 0.0, weights)
        identity = -log(self.phi_cap) if self.phi == "reference" else 1.0
        own = {None: identity, "eq3": -log(self.eps)}.get(self.phi_self, self.phi_self)
        return weights.scatter(1, ids[:, None], own)
