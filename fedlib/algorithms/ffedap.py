"""f-FedAP: local batch norm; each client gets an average weighted by the similarity of clients' batch-norm inputs.

W. Lu, J. Wang, Y. Chen, X. Qin, R. Xu, D. Dimitriadis, T. Qin. "Personalized Federated Learning with Adaptive Batchnorm
for Healthcare." IEEE Transactions on Big Data 2022, arXiv:2112.00734. The variant f-FedAP: similarities from a
federated, not a pre-trained model.

| paper | here | meaning | default and its source |
|---|---|---|---|
| | rho | share of the rounds spent on FedBN | 0.5 (pFedSim's baselines) |
| | mu | weight of the own model | 0.5 (pFedSim: "model momentum μ") |
| μ_i^l, σ_i^l | report["mean"], report["var"] | per channel, of the input of batch-norm layer l, over D_i; σ² = var | |
| W_ij | server["weights"] | weight of model j in client i's aggregate, N x N, rows sum to 1 | |
| ψ_j | server["models"][j] | all but batch norm, as last uploaded | |
| φ_j | client["bn"] | batch-norm layers; never leave the client | |

d_ij = sum over l of the 2-Wasserstein distance of the Gaussians N(μ_i^l, diag σ_i^l²) and N(μ_j^l, diag σ_j^l²). W_ii =
mu and W_ij = (1 - mu) d_ij^-1 / sum over k != i of d_ik^-1. Distances below 1e-12 count as 1e-12, so that clients with
identical data share (almost) all of 1 - mu.

Readings of what is left open: a layer's statistics pool samples and positions over the whole training set; they are
taken in evaluation mode with the model that a client would hold after the last FedBN round, for a client that was never
sampled with batch norm as initialised. Phase 1 has the local epochs of phase 2. After it every ψ_j is FedBN's shared
part. Tested is "post", the model as last trained (the headline), and "agg", freshly mixed (as in pFedSim's code).

Differences from the paper: the similarities are computed once, after FedBN rounds, and not from a pre-trained model
(that is its other variant).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import floor

import torch

from fedlib.algorithms.api import Algorithm, always, last_upload, local_epochs
from fedlib.algorithms.fedbn import FedBN
from fedlib.base import tree
from fedlib.base.options import option
from fedlib.base.same_bits import square_root


@dataclass(frozen=True)
class FFedAP(Algorithm):
    rho: float = option(0.5, 0, 1)
    mu: float = option(0.5, 0, 1)
    points = ("recv", "agg", "post", "ft")
    passes = local_epochs
    eval_points = always("post", "agg")
    stored_upload = last_upload
    client_update, personal_model = FedBN.client_update, FedBN.personal_model
    unprotected = "clients report means and variances of their training records' features, without noise"

    def warm_up(self, setting):
        return FedBN(), floor(self.rho * setting.rounds + 1e-9)

    def init(self, model, setting):
        """Without a first phase nothing is known of the clients: all others weigh the same."""
        shared, clients = FedBN().init(model, setting)
        alike = torch.zeros(setting.num_clients, setting.num_clients, dtype=torch.float64)
        return self.second_phase(FedBN().download(shared, 0), alike), clients

    def survey(self, model, message, client, data):
        """Mean and variance of every channel of every batch-norm layer's input over the client's training samples."""
        theta = self.personal_model(model, message, client, data)

        def step(totals, batch):
            inputs = model.norm_inputs(theta, batch.x)
            real = torch.ones_like(batch.y, dtype=torch.bool) if batch.mask is None else batch.mask
            sums = {name: channel_sums(z, real) for name, z in inputs.items()}
            return {name: totals[name] + sums[name] for name in totals}

        zero = {
            name: torch.zeros(3, theta[f"{name}.weight"].numel(), dtype=torch.float64, device=data.device)
            for name in model.norms
        }
        mean, var = {}, {}
        for name, (count, total, squares) in data.scan(step, zero).items():
            mean[name] = total / count
            var[name] = (squares / count - mean[name].square()).clamp(min=0)
        return {"mean": mean, "var": var}

    def switch_phase(self, model, setting, server, clients, reports):
        distances = wasserstein_distances(reports, setting.num_clients)
        return self.second_phase(FedBN().download(server, 0), distances), clients

    def second_phase(self, shared, distances):
        """The server before phase 2; distances: d [N, N]."""
        near = 1 / distances.clamp(min=1e-12)
        near.fill_diagonal_(0)
        weights = (1 - self.mu) * near / near.sum(1, keepdim=True).clamp(min=1e-300)
        weights.fill_diagonal_(self.mu if len(near) > 1 else 1.0)
        return {"models": tree.repeat(shared, len(near)), "weights": weights}

    def messages(self, server, ids):
        return tree.weighted_sum(server["models"], server["weights"][torch.as_tensor(ids)])

    def server_update(self, server, ids, uploads, n):
        return {**server, "models": tree.put(server["models"], ids, uploads)}


def channel_sums(z, real):
    """Number of values, their sum and their sum of squares by channel, float64 [3, c]; z: [B, c, h, w], real:
    bool [B]."""
    z = torch.where(real[:, None, None, None], z, 0).double()
    count = real.sum() * z.shape[2] * z.shape[3]
    return torch.stack([count.expand(z.shape[1]).double(), z.sum((0, 2, 3)), z.square().sum((0, 2, 3))])


def wasserstein_distances(reports, num_clients):
    """d [N, N], float64, from means and variances by layer, leaves [N, c]; 0 for a model without batch norm."""
    total = torch.zeros(num_clients, num_clients, dtype=torch.float64)
    for name, mean in reports["mean"].items():
        both = torch.cat([mean, square_root(reports["var"][name])], dim=1).cpu()
        total += square_root((both[:, None] - both[None]).square().sum(-1))
    return total
