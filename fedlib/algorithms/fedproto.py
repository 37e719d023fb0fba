"""FedProto: clients exchange the mean feature vector of every class, the prototypes, and no parameters.

Y. Tan, G. Long, L. Liu, T. Zhou, Q. Lu, J. Jiang, C. Zhang. "FedProto: Federated Prototype Learning across
Heterogeneous Clients." AAAI 2022, arXiv:2105.00243. Algorithm 1.

| paper | here | meaning | default and its source |
|---|---|---|---|
| λ | lam | weight of the distance to the global prototypes | 1 (FedSimSup's and PFedCS's baselines) |
| C̄^(j) | server["prototypes"][j] | global prototype of class j, P_j | |
| C_i^(j) | upload["prototypes"][j] | client i's mean feature of class j | |
| D_i,j | upload["counts"][j] | client i's training samples of class j; 0: no such prototype | |
| ω_i | client["theta"] | the whole model stays on the client | |

Readings of what is left open:
- predict_by: "prototypes" (the paper: the class of the nearest global prototype; the local head while there are none)
  or "head". The nearest one is that of any class; in the authors' code, of the client's own classes.
- weights of the global prototypes: "uniform" over the clients that own the class (the authors' code) or "samples" (the
  paper's Eq. 6, but for its factor 1/|N_j|, N_j the clients that own class j: weights that already sum to 1 are divided
  by their number once more, so that prototypes would shrink).
- A class of which no participant has samples keeps its prototype.
- Local prototypes come from one pass in evaluation mode after training (the authors' code averages them during
  training).
- The distance is taken sample by sample: the mean over the components of f(x) - P_y, squared (the authors' code). The
  paper's is that of the client's own prototype, the mean of f(x), to P_y.

Tested is the model as last trained with the prototypes of now, so that "post" and "recv" are the same.
Differences from the paper: those above; by default the global prototypes are not weighted by samples.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import torch
from torch.nn import functional

from fedlib.algorithms.api import Algorithm, always, local_epochs
from fedlib.algorithms.parts.passes import attraction, class_statistics, local_sgd
from fedlib.base import tree
from fedlib.base.options import option


@dataclass(frozen=True)
class FedProto(Algorithm):
    lam: float = option(1.0, 0, inf)
    predict_by: str = option("prototypes", "prototypes", "head")
    weights: str = option("uniform", "uniform", "samples")
    points = ("post",)
    passes = local_epochs
    eval_points = always("post")
    unprotected = "uploads hold mean features of every class, without noise"

    def init(self, model, setting):
        weight = model.theta0["head.weight"]
        server = {"prototypes": torch.zeros_like(weight), "counts": torch.zeros_like(weight[:, 0])}
        return server, {"theta": tree.repeat(model.theta0, setting.num_clients)}

    def download(self, server, i):
        return server

    def client_update(self, model, message, client, data):
        def loss(theta, batch, train):
            z, stats = model.training_features(theta, batch, train)
            entropy = functional.cross_entropy(model.classify(theta, z), batch.y, reduction="none")
            return batch.mean(entropy + self.lam * attraction(z, batch.y, **message)), stats

        theta = local_sgd(model, client["theta"], data, loss=loss)
        counts, prototypes, _ = class_statistics(model, theta, data)
        return {"prototypes": prototypes, "counts": counts}, {"theta": theta}

    def server_update(self, server, ids, uploads, n):
        return refreshed(server, uploads, self.weights)

    def floats_down(self, message):
        return {"prototypes": message["prototypes"][message["counts"] > 0]}

    def floats_up(self, upload):
        owned = upload["counts"] > 0
        sent = {"prototypes": upload["prototypes"][owned]}
        return {**sent, "counts": upload["counts"][owned]} if self.weights == "samples" else sent

    def stored_upload(self, server, i):
        return server

    def personal_model(self, model, message, client, data):
        return {**client["theta"], **message}

    def predict(self, model, personal, x):
        """Scores whose largest is the nearest prototype's: |f(x)|^2 - |f(x) - P_c|^2. A class without one counts as
        farther away than the others."""
        z, P, known = model.features(personal, x), personal["prototypes"], personal["counts"] > 0
        own = model.classify(personal, z)
        if self.predict_by == "head":
            return own
        near = 2 * z @ P.T - P.square().sum(1)
        least = torch.where(known, near, inf).amin(1, keepdim=True)
        return torch.where(known.any(), torch.where(known, near, least - least.abs() - 1), own)


def refreshed(server, uploads, weights):
    """Global prototypes [C, d] and how much they rest on [C], from uploads [K, C, d] and [K, C];
    others stay as they are."""
    counts = uploads["counts"] if weights == "samples" else (uploads["counts"] > 0).to(uploads["counts"].dtype)
    total = counts.sum(0)
    mean = torch.einsum("kc,kcd->cd", counts / total.clamp(min=1), uploads["prototypes"])
    return {
        "prototypes": torch.where(total[:, None] > 0, mean, server["prototypes"]),
        "counts": torch.where(total > 0, total, server["counts"]),
    }
