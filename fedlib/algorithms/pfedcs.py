"""PFedCS: the server averages the classifiers of similar clients into a teacher of each client's own classifier.

S. Wu, Y. Jia, B. Liu, H. Xiang, X. Xu, W. Dou. "PFedCS: A Personalized Federated Learning Method for Enhancing
Collaboration among Similar Classifiers." AAAI 2025, vol. 39(20), pp. 21572-21580. Equations 4-13.

| paper | here | meaning | default and its source |
|---|---|---|---|
| w_f | server["f"], names "extractor.*" | shared feature extractor, averaged as in FedAvg | |
| w_g^(k) | client["h"], names "head.*"; server["heads"][k] as last uploaded | personal classifier | |
| v_g^(k) | message, names "head.*" | customised classifier, the teacher after fine-tuning | |
| D^t | D of `ByDistance.distances` | distances between classifiers, each row divided by its maximum | |
| C_k,c (bar) | chosen | collaborators Q of client k | |
| β | beta | share of the rounds in stage 1, ⌊βT⌋; stage 2 is FedPer | 0.5 (unpublished; ours) |
| λ | lam | weight of similarity against numbers of samples (Eq. 7) | 0.5 (unpublished; ours) |
| ρ | E_ft | epochs of fine-tuning the teacher, besides the E of training | 1 (Table 5) |
| η_v | eta_v | its learning rate | None: the run's lr (as in the paper) |

Readings of what the paper leaves open (each an option):
- select, random_size, group, closure, most: who may collaborate (`fedlib.algorithms.parts.collaborators.Choosing`).
- dist_power, norm, weights, tie: what D is, which sets Eqs. 6-8 run over and what happens where Eq. 7 divides by zero
  (`ByDistance` in the same file).
- role: the aggregate is the "teacher", or the "start" from which the client's own classifier is trained without one.
- teacher_feat: the teacher sees features of the "current" extractor, or of the one "received"; detach: no gradient goes
  through it; kd_weight: factor of the KL term; temperature: both classifiers' scores are divided by it in the KL term,
  which is multiplied by its square.
- pool: with partial participation Q is looked for among the "active" clients of the round or in "all_last" uploads.
- extractor_weights: "samples" or "uniform".

Differences from the paper: round β belongs to stage 1 only. w_f is the mean of the latest round's uploads, which with
full participation is the mean over the active clients. A threshold below the smallest distance, by rounding, still
chooses the nearest client. There is no normalisation between classifier and softmax.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import floor, inf

import numpy as np
import torch
from torch.nn import functional

from fedlib.algorithms.api import Algorithm, always
from fedlib.algorithms.parts.collaborators import TIE, TOLD, ByDistance, Choosing
from fedlib.algorithms.parts.passes import local_sgd
from fedlib.base import tree
from fedlib.base.draws import rng
from fedlib.base.options import option
from fedlib.data.describe import same_classes


@dataclass(frozen=True)
class PFedCS(ByDistance, Choosing, Algorithm):
    beta: float = option(0.5, 0, 1)
    E_ft: int = option(1, 0, inf)
    eta_v: float | None = option(None, 1e-12, inf)
    teacher_feat: str = option("current", "current", "received")
    detach: bool = True
    kd_weight: float = option(1.0, 0, inf)
    pool: str = option("active", "active", "all_last")
    extractor_weights: str = option("samples", "samples", "uniform")
    temperature: float = option(1.0, 1e-6, inf)
    role: str = option("teacher", "teacher", "start")
    points = ("recv", "post", "ft")
    eval_points = always("recv", "post")
    added = ("temperature", "most", "role")

    @property
    def unprotected(self):
        return "the server knows the clients' classes" if self.select in TOLD else ""

    def init(self, model, setting):
        N, f, head = setting.num_clients, *(tree.select(model.theta0, part) for part in ("extractor.", "head."))
        last = self.last_with_teachers(setting.rounds)
        uploads = {"extractors": tree.repeat(f, N), "heads": tree.repeat(head, N)}
        server = {"round": 0, "last": last, "seed": setting.seed, "sizes": setting.class_counts.sum(1), "f": f}
        if self.select in TOLD:
            server["twins"] = torch.from_numpy(same_classes(setting.class_counts))
        return {**server, **uploads}, {"h": tree.repeat(head, N)}

    def download(self, server, i):
        return tree.rows(self.customised(server, [i], range(len(server["sizes"]))), 0)

    def messages(self, server, ids):
        return self.customised(server, ids, ids if self.pool == "active" else range(len(server["sizes"])))

    def customised(self, server, ids, pool):
        """Messages to the clients `ids`, stacked; collaborators are looked for in `pool`."""
        f = tree.map(lambda leaf: leaf.expand(len(ids), *leaf.shape), server["f"])
        if server["round"] >= server["last"]:
            return f
        heads = tree.rows(server["heads"], list(pool))
        return {**f, **tree.weighted_mean(heads, self.mixing_weights(server, ids, pool))}  # Eq. 6, for all k at once

    # on the server, stage 1; K clients are asked for, n are in the pool

    def mixing_weights(self, server, ids, pool):
        """p of Eq. 7 for clients `ids` and collaborators from `pool`, float64 [K, n]; rows sum to 1."""
        ids, pool = torch.as_tensor(np.asarray(ids)), torch.as_tensor(np.asarray(pool))
        own = ids[:, None] == pool
        if self.select == "self":
            return own.double()
        D = self.distances(server["heads"]["head.weight"], ids, pool)
        if self.select in TOLD:
            chosen = self.nearest(D, self.told(server["twins"][ids][:, pool], self.generators(server, ids)))
        else:
            chosen = self.collaborators(server, D, ids, own)
        return self.weights_of(D, server["sizes"][pool], chosen, own)

    def collaborators(self, server, D, ids, own):
        """Q of every client, bool [K, n]: candidates within the threshold of Eq. 4."""
        others = ~own
        chosen = self.candidates(D, others, self.generators(server, ids))
        if self.select == "adaptive" and others.any(1).all():  # else there is nobody else
            apart = D[others].reshape(len(D), -1)  # the row without its own entry
            s, least = min((server["round"] + 1) / server["last"], 1), apart.amin(1, keepdim=True)
            threshold = (1 - s) * apart.mean(1, keepdim=True) + s * least  # Eq. 4
            chosen = chosen & (threshold + TIE >= D)  # Eq. 5
            chosen = torch.where(chosen.any(1, keepdim=True), chosen, others & (least >= D))
        return self.nearest(D, chosen)

    def generators(self, server, ids):
        """One for each of these clients, in this round."""
        return [rng(server["seed"], "collaborators", server["round"] + 1, int(k)) for k in ids]

    def server_update(self, server, ids, uploads, n):
        f, head = (tree.select(uploads, part) for part in ("extractor.", "head."))
        weights = n if self.extractor_weights == "samples" else np.ones(len(ids))
        return {
            **server,
            "round": server["round"] + 1,
            "f": tree.weighted_mean(f, weights),
            "extractors": tree.put(server["extractors"], ids, f),
            "heads": tree.put(server["heads"], ids, head) if head else server["heads"],
        }

    # on a client

    def last_with_teachers(self, T):
        """The last round of stage 1."""
        return 0 if self.select == "none" else floor(self.beta * T + 1e-9)

    def passes(self, T, t, E):
        return E + (self.E_ft if t <= self.last_with_teachers(T) else 0)

    def client_update(self, model, message, client, data):
        f, v = (tree.select(message, part) for part in ("extractor.", "head."))
        if v and self.E_ft:
            v = self.tuned_teacher(model, f, v, data)
        teaches = bool(v) and self.role == "teacher"  # only stage 1 has teachers
        loss = partial(self.guided, model, f, v) if teaches else None
        start = v if v and not teaches else client["h"]
        theta = local_sgd(model, {**f, **start}, data, loss=loss)
        f, h = (tree.select(theta, part) for part in ("extractor.", "head."))
        return {**f, **h} if v else f, {"h": h}

    def tuned_teacher(self, model, f, v, data):
        """E_ft epochs on the teacher alone (Eq. 9)."""
        return tree.select(local_sgd(model, {**f, **v}, data, self.E_ft, train=tuple(v), lr=self.eta_v), "head.")

    def guided(self, model, f, v, theta, batch, train):
        """Eq. 12: cross-entropy + KL(teacher || student), and the new running statistics."""
        z, stats = model.training_features(theta, batch, train)
        scores = model.classify(theta, z)
        student = scores.log_softmax(-1)
        seen = z if self.teacher_feat == "current" else model.features({**theta, **f}, batch.x)
        asked = model.classify(v, seen)
        asked = asked.detach() if self.detach else asked
        softer = student if self.temperature == 1 else (scores / self.temperature).log_softmax(-1)
        teacher = (asked / self.temperature).log_softmax(-1)
        divergence = self.temperature**2 * (teacher.exp() * (teacher - softer)).sum(-1)
        entropy = functional.nll_loss(student, batch.y, reduction="none")
        return batch.mean(entropy + self.kd_weight * divergence), stats

    def stored_upload(self, server, i):
        return tree.rows(server["extractors"], i)

    def personal_model(self, model, message, client, data):
        return {**tree.select(message, "extractor."), **client["h"]}
