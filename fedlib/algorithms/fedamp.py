"""FedAMP: each client's model is pulled towards an average of all clients' models, in which similar models weigh more.

Y. Huang, L. Chu, Z. Zhou, L. Wang, J. Liu, J. Pei, Y. Zhang. "Personalized Cross-Silo Federated Learning on Non-IID
Data." AAAI 2021, arXiv:2007.03797. Eqs. 3-6, HeurFedAMP Eq. 10.

| paper | here | meaning |
|---|---|---|
| w_i | client["theta"], server["models"][i] | client i's model, and as last uploaded |
| ξ_ij | server["xi"], [N, N] | weight of client j in client i's cloud model |
| u_i | download | cloud model, Σ_j ξ_ij w_j |
| α_k | alpha | step towards similar models |
| λ | lam | weight of the penalty λ/(2α) ‖w - u_i‖² |
| σ | sigma | scale of A(d²) = 1 - exp(-d²/σ), or of the cosine |

Readings of what is left open:
- ξ_ij = α exp(-‖w_i - w_j‖²/σ)/σ for j ≠ i; where these sum to more than 1 they are divided by their sum, so that
  ξ_ii = 1 minus the sum is never negative.
- sigma_mode="absolute": sigma as it is. Where squared distances of networks are much larger than 1, sigma=1 gives ξ_ij
  near 0, local training with a penalty; after few rounds of small networks they are not, and ξ_ii is near 0 instead
  (lesson 6). "median": sigma times the median squared distance of different models.
- variant="cosine" is HeurFedAMP: ξ_ij ∝ exp(σ cos(w_i, w_j)), ξ_ii too.
- A client that does not take part stays in the aggregates with its last upload, or as initialised if there is none.
  Distances are over trainable parameters.

Differences from the paper: SGD for E epochs in place of the exact proximal step. In the paper all take part. With
K of N clients in a round models that were never trained are in the aggregates too: as long as all models are near each
other, they are (N - K)/(N - 1) of a participant's after the first round, 92 % with 4 of 40.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import torch

from fedlib.algorithms.api import Algorithm, always, last_upload, local_epochs
from fedlib.algorithms.fedavg import FedAvg
from fedlib.algorithms.parts.passes import local_sgd
from fedlib.algorithms.parts.similarity import products, squared_distances
from fedlib.base import tree
from fedlib.base.options import option
from fedlib.base.same_bits import square_root


@dataclass(frozen=True)
class FedAMP(Algorithm):
    alpha: float = option(1.0, 1e-12, inf)
    lam: float = option(1.0, 0, inf)
    sigma: float = option(1.0, 1e-12, inf)
    sigma_mode: str = option("absolute", "absolute", "median")
    variant: str = option("distance", "distance", "cosine")
    points = ("post", "agg", "ft")
    passes = local_epochs
    eval_points = always("post", "agg")
    personal_model = FedAvg.personal_model  # post: w_i as uploaded; agg: u_i
    stored_upload = last_upload
    gone = {"xi_self": None, "start": "own"}

    def init(self, model, setting):
        models = tree.repeat(model.theta0, setting.num_clients)
        xi = torch.eye(setting.num_clients, dtype=torch.float64)
        return {"models": models, "xi": xi, "trainable": model.trainable}, {"theta": tree.map(torch.clone, models)}

    def messages(self, server, ids):
        return tree.weighted_sum(server["models"], server["xi"][torch.as_tensor(ids)])

    def client_update(self, model, message, client, data):
        theta = local_sgd(model, client["theta"], data, tie=(self.lam / self.alpha, message))  # from w_i, tied to u_i
        return theta, {"theta": theta}

    def server_update(self, server, ids, uploads, n):
        models = tree.put(server["models"], ids, uploads)
        return {**server, "models": models, "xi": self.weights(models, server["trainable"]).cpu()}

    def weights(self, models, names):
        """ξ of all pairs of clients, float64 [N, N], rows sum to 1."""
        N = len(models[names[0]])
        if N == 1:
            return torch.ones(1, 1, dtype=torch.float64)
        own = torch.eye(N, dtype=torch.bool, device=models[names[0]].device)
        if self.variant == "cosine":
            cos = products(models, models, names)
            norms = square_root(cos.diagonal())
            similarity = torch.exp(self.sigma * (cos / (norms[:, None] * norms).clamp(min=1e-30) - 1))
            return similarity / similarity.sum(1, keepdim=True)
        distances = squared_distances(models, models, names)
        apart = distances[~own & (distances > 0)]
        unit = apart.median() if self.sigma_mode == "median" and len(apart) else 1.0
        sigma = self.sigma * unit
        xi = torch.where(own, 0.0, self.alpha / sigma * torch.exp(-distances / sigma))
        xi = xi / xi.sum(1, keepdim=True).clamp(min=1)
        return xi + torch.diag(1 - xi.sum(1))
