"""FedFomo: each client averages others' models, weighted by how much they lower its validation loss per distance.

M. Zhang, K. Sapra, S. Fidler, S. Yeung, J. M. Alvarez. "Personalized Federated Learning with First Order Model
Optimization." ICLR 2021, arXiv:2012.08565.

| paper | here | meaning | default and its source |
|---|---|---|---|
| M | M | models that a client downloads, at most | 5 (tables of pFedSim) |
| P | server["affinity"] | sums of the scores, N x N; starts as the identity | |
| θ_i | client["theta"] | the client's model as last trained; server["models"][i] as uploaded | |
| θ_i^{l(t-1)} | client["reference"], names "start.*" | parameters that its last local training started from (q_i) | |

A client's score for a model is (L(q_i) - L(θ_j))/(‖θ_j - q_i‖ + 1e-5), L the mean cross-entropy on its validation part.
Its next start is q_i + sum over w_j (θ_j - q_i), w the positive scores divided by their sum, over the received models
and its own; it keeps θ_i if no score is positive.

Readings of what the paper leaves open:
- reference: "start", q_i as above; "current", θ_i, so that the own model gets no weight as soon as another one helps.
- Candidates are the previous round's participants, with their last uploads.
- Candidates of equal affinity are taken in an order drawn for the client and round. The own model is never downloaded.
- Nothing is received in the first round: plain local training.
- Batch norm's running statistics, where they stay on the client, are its own ones of now for all models it tests.

Differences from the paper: it explores, with an ε-greedy choice of the models that are sent; as in public code, only
the best are. The validation part is fixed for each client.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import torch

from fedlib.algorithms.api import Algorithm, always, last_upload, local_epochs
from fedlib.algorithms.parts import peers
from fedlib.algorithms.parts.passes import local_sgd, mean_losses
from fedlib.base import tree
from fedlib.base.draws import rng
from fedlib.base.options import option


@dataclass(frozen=True)
class FedFomo(Algorithm):
    M: int = option(5, 1, inf)
    val_fraction: float = option(0.2, 1e-6, 0.99)
    reference: str = option("start", "start", "current")
    points = ("post", "agg", "ft")
    passes = local_epochs
    eval_points = always("post")
    stored_upload = last_upload
    gone = {"explore": 0.0, "candidates": "previous"}

    def init(self, model, setting):
        N, thetas = setting.num_clients, tree.repeat(model.theta0, setting.num_clients)
        pool = {"models": thetas, "candidates": torch.zeros(N, dtype=torch.bool)}  # whose models are sent next
        server = {"round": 0, "seed": setting.seed, "affinity": torch.eye(N, dtype=torch.float64), **pool}
        return server, self.kept(model, tree.repeat(model.theta0, N), tree.repeat(model.theta0, N))

    def kept(self, model, theta, start):
        """What a client keeps of its model and of what the training started from."""
        if self.reference == "current":
            return {"theta": theta}
        return {"theta": theta, "reference": {f"start.{name}": start[name] for name in model.trainable}}

    def messages(self, server, ids):
        models, _, real = peers.sent(server["models"], [self.chosen(server, int(i)) for i in ids])
        return {"models": models, "real": real}

    def chosen(self, server, i):
        """Whose models client i gets next, int64 [M], and which of these places are filled, bool [M]."""
        generator, there = rng(server["seed"], "fomo", server["round"], i), server["candidates"].tolist()
        possible = [int(j) for j in generator.permutation(len(there)) if there[j] and j != i]
        best = sorted(possible, key=lambda j: -float(server["affinity"][i, j]))
        return peers.in_places(best[: self.M], self.M, i)

    def client_update(self, model, message, client, data):
        theta, scores = self.mixed(model, message, client, data)
        trained = local_sgd(model, theta, data)
        return {**trained, "scores": scores, "real": message["real"]}, self.kept(model, trained, theta)

    def mixed(self, model, message, client, data):
        """The start of the next local training, and the scores of the received models [M], 0 in empty places."""
        own, start = client["theta"], client.get("reference", {})
        reference = {**own, **{name.removeprefix("start."): leaf for name, leaf in start.items()}}  # q_i
        models, real = peers.own_first(own, message["models"], message["real"])
        thetas = [reference, *(tree.rows(models, k) for k in range(self.M + 1))]
        before, *after = mean_losses(model, thetas, data)
        apart = peers.distances(models, reference, model.trainable)
        scores = torch.where(real, (before - torch.stack(after)) / (apart + 1e-5), 0)
        return peers.aggregate(models, scores.clamp(min=0)), scores[1:]

    def server_update(self, server, ids, uploads, n):
        affinity = server["affinity"].clone()
        for k, i in enumerate(ids):
            chosen, real = self.chosen(server, int(i))
            affinity[i, chosen[real]] += uploads["scores"][k][real].to(affinity)
        return {
            **server,
            "round": server["round"] + 1,
            "models": tree.put(server["models"], ids, {name: uploads[name] for name in server["models"]}),
            "affinity": affinity,
            "candidates": peers.present(server["candidates"], ids, keep=False),
        }

    def floats_down(self, message):
        return tree.map(lambda leaf: leaf[message["real"]], message["models"])

    def floats_up(self, upload):
        return {**{k: v for k, v in upload.items() if k != "real"}, "scores": upload["scores"][upload["real"]]}

    def personal_model(self, model, message, client, data):
        return self.mixed(model, message, client, data)[0] if "models" in message else message
