"""FedPAC: a shared extractor aligned by class prototypes, and heads combined for each client by solving for its
weights.

J. Xu, X. Tong, S.-L. Huang. "Personalized Federated Learning with Feature Alignment and Classifier Collaboration."
ICLR 2023, arXiv:2306.11867. Algorithm 1.

| paper | here | meaning | default and its source |
|---|---|---|---|
| θ, c | server["f"], "prototypes" | shared extractor, global prototype of every class | |
| φ_i | server["heads"][i] | client i's combined head | |
| λ | lam | weight of the distance to the global prototypes | 1 (FedSimSup's baselines) |
| | head_epochs | epochs of the head, extractor frozen, before those of the extractor | 1 |
| | head_lr | their learning rate | None: the run's lr (authors' code: 0.1, with 0.01 for the extractor) |
| μ_i,c | upload["means"][c] | share of class c times its mean feature under the received extractor, u_i[c] | |
| V_i | upload["spread"] | variance of the features within the client, divided by its samples | |
| α_i | `combination` | weights of all participants' heads in client i's | |

α_i minimises, over weights that are >= 0 and sum to 1, a'(diag V + Γ^i)a with
Γ^i_jk = sum over c of <u_i[c] - u_j[c], u_i[c] - u_k[c]>.

Readings of what is left open:
- head_inside: the head's epochs are the first of the E local ones (FL-bench; at least one is left for the extractor),
  or come on top (the authors' order as in PFLlib).
- A class without prototype does not pull; one of which no participant has samples keeps its prototype.
- Γ is a Gram matrix; rounding is removed by clipping eigenvalues at 0. V_i < 0 is taken as 0. Weights below `drop` are
  left out.
- A client's head changes only when it takes part.

Differences from the paper: those above. In a client's first turn batch norm's running statistics are still 0 and 1 in
the pass of `statistics` and in the epochs of the head.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np
import torch
from scipy.optimize import nnls
from torch.nn import functional

from fedlib.algorithms.api import Algorithm, always
from fedlib.algorithms.fedproto import refreshed
from fedlib.algorithms.parts.passes import attraction, class_statistics, local_sgd
from fedlib.base import tree
from fedlib.base.options import option


@dataclass(frozen=True)
class FedPAC(Algorithm):
    lam: float = option(1.0, 0, inf)
    head_epochs: int = option(1, 0, inf)
    head_inside: bool = True
    head_lr: float | None = option(None, 1e-12, inf)
    drop: float = option(1e-3, 0, 0.5)
    points = ("recv", "post", "ft")
    eval_points = always("recv", "post")
    gone = {"prototype_weights": "samples"}
    unprotected = "uploads hold mean features of every class and their variance, without noise"

    def init(self, model, setting):
        weight, heads = model.theta0["head.weight"], tree.select(model.theta0, "head.")
        blank = {"prototypes": torch.zeros_like(weight), "counts": torch.zeros_like(weight[:, 0])}
        up_only = {"means": torch.zeros_like(weight), "spread": weight.new_zeros(())}
        f = tree.select(model.theta0, "extractor.")
        return {"f": f, "heads": tree.repeat(heads, setting.num_clients), "classes": blank, "up_only": up_only}, {}

    def download(self, server, i):
        theta = {**server["f"], **tree.rows(server["heads"], i)}
        return {"theta": theta, **server["classes"], **server["up_only"]}  # the last are zeros and do not travel

    def epochs_of_extractor(self, E):
        """What follows the head's, in a run of E local epochs."""
        return max(1, E - self.head_epochs) if self.head_inside else E

    def passes(self, T, t, E):
        return self.head_epochs + self.epochs_of_extractor(E)

    def client_update(self, model, message, client, data):
        theta, head = message["theta"], tree.select(message["theta"], "head.")
        means, spread = self.statistics(model, theta, data)

        def aligned(theta, batch, train):
            z, stats = model.training_features(theta, batch, train)
            entropy = functional.cross_entropy(model.classify(theta, z), batch.y, reduction="none")
            pull = attraction(z, batch.y, message["prototypes"], message["counts"])
            return batch.mean(entropy + self.lam * pull), stats

        theta = local_sgd(model, theta, data, self.head_epochs, train=tuple(head), lr=self.head_lr)
        rest = self.epochs_of_extractor(data.local_epochs)
        extractor = [name for name in model.trainable if name not in head]
        theta = local_sgd(model, theta, data, rest, train=extractor, loss=aligned)
        counts, prototypes, _ = class_statistics(model, theta, data)
        return {"theta": theta, "prototypes": prototypes, "counts": counts, "means": means, "spread": spread}, client

    def statistics(self, model, theta, data):
        """u_i [C, d] and V_i."""
        counts, mean, square = class_statistics(model, theta, data)
        share = counts / counts.sum()
        u = share[:, None] * mean
        return u, ((share * square).sum() - u.square().sum()) / counts.sum()

    def server_update(self, server, ids, uploads, n):
        heads = tree.select(uploads["theta"], "head.")
        u, V = uploads["means"].double().cpu().numpy(), uploads["spread"].double().cpu().numpy()
        weights = np.stack([self.combination(u, V, k) for k in range(len(ids))])
        return {
            **server,
            "f": tree.weighted_mean(tree.select(uploads["theta"], "extractor."), n),
            "heads": tree.put(server["heads"], ids, tree.weighted_sum(heads, weights)),
            "classes": refreshed(server["classes"], uploads, "samples"),
        }

    def combination(self, u, V, i):
        """alpha_i [K] of participant i; u: [K, C, d], V: [K].

        With Q = L'L the minimum of a'Qa over the simplex is that of |Ly|^2 + (sum y - 1)^2 over y >= 0, divided by sum
        y (for a given a the best sum y leaves q / (1 + q), q = a'Qa): a problem of non-negative least squares.
        """
        apart = (u[i] - u).reshape(len(u), -1)
        Q = np.diag(np.maximum(V, 0)) + apart @ apart.T
        if Q.max() <= 0:  # no difference at all
            return np.full(len(u), 1 / len(u))
        values, vectors = np.linalg.eigh(Q / Q.max())
        L = np.sqrt(np.maximum(values, 0))[:, None] * vectors.T
        y, _ = nnls(np.vstack([L, np.ones(len(u))]), np.append(np.zeros(len(u)), 1.0))
        weights = np.where(y / y.sum() < self.drop, 0, y)
        return weights / weights.sum()

    def floats_down(self, message):
        return {part: message[part] for part in ("theta", "prototypes")}

    def personal_model(self, model, message, client, data):
        return message["theta"]
