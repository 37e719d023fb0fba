"""pFedSV: clients play a coalition game with the models they download; Shapley values say whose models to mix and to ask for.

L. Wu, S. Guo, Y. Ding, J. Wang, W. Xu, Y. Zhan, A.-M. Kermarrec. "Rethinking Personalized Client Collaboration in Federated
Learning." IEEE Transactions on Mobile Computing, 2024, doi 10.1109/TMC.2024.3396218. Equations 2-7, Algorithms 1-2.

| paper | here | meaning | default and its source |
|---|---|---|---|
| k | k | most models that a client downloads | 5 (§6.1.4) |
| S_i,k | own model and the filled places of the message | players of client i's game | |
| v(X) | `worth` | accuracy on the validation part of the mean of X's models (Eq. 4) | |
| φ_j (of the game) | psi | Shapley values (Eq. 2, Algorithm 2) | |
| φ^i (of the client) | client["relevance"] | relevance of all others to client i, [N] (Eq. 5) | |
| α | alpha | share of the old relevance in Eq. 5 | 0.5 (unpublished; ours) |
| R | samples | permutations; 0 means 3 for each place in S | 0 (§6.1.4) |
| θ_i^* | `aggregated` | where the next local training starts (Eqs. 6-7) | |

variant: "D" (the method), "W" (k is fixed and nobody is discarded, the ablation), "D+C" (only classifiers are downloaded
and play; the extractor is one for all, averaged by the server).

A round of the paper is training, upload, download, game. Here download and game come first in the round that follows:
between full rounds nothing happens, so the same is computed, and evaluation plays the same game. What a client wants
next, a ranking of the others, goes up with its model.

Readings of what the paper leaves open (each an option):
- sv: "mc" or "exact". An estimate of up to 12 players asks each of their 2^|S| - 1 coalitions once, if that is not more
  than the permutations have beginnings.
- v_empty: the empty coalition is worth "zero", or "chance": the share of the most frequent label. utility: "accuracy", or
  "loss": ln C - mean cross-entropy, which is 0 for a uniform guess. utility_part: "val" or "train" samples.
- self_distance, d_ii of Eq. 6, which is 0: "min_other", the smallest distance to a received model; "mean_other"; "prev",
  the distance to the last θ_i^*; "eps", 1e-5, which is almost local training; "none", no distances at all;
  "exclude_self", no own model in the mixture.
- download_rule: "rule": others that were seen and have no positive relevance are discarded; of the rest the k with the largest
  relevance, unseen ones (0) last, ties drawn. "literal": as many as have a positive relevance, at least 1. k_max: as many
  positive ones as this (None: k). reexplore_prob: a discarded one is considered again with this chance.
- pool: "last", everybody's last upload, however old; or "round", this round's uploads.
- extractor_weights (D+C): "samples" or "uniform".

Differences from the paper: with partial participation a client plays when it takes part again, with the uploads there
are by then. Differential privacy is not part of this file.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, log
from typing import ClassVar

import numpy as np
import torch
from torch.nn import functional

from fedlib import tree
from fedlib.draws import rng
from fedlib.engine.fold import local_sgd, part_mean
from fedlib.errors import check_fields, require
from fedlib.shapley import ENUMERATED, draw_permutations, each_once, exact, from_permutations

ZERO = 1e-9  # what rounding may leave of a value that is 0
NEAR = 1e-5  # least distance of two models


@dataclass(frozen=True)
class PFedSV:
    variant: str = "D"
    k: int = 5
    alpha: float = 0.5
    sv: str = "mc"
    samples: int = 0
    val_fraction: float = 0.2
    v_empty: str = "zero"
    utility: str = "accuracy"
    utility_part: str = "val"
    self_distance: str = "min_other"
    download_rule: str = "rule"
    k_max: int | None = None
    reexplore_prob: float = 0.0
    pool: str = "last"
    extractor_weights: str = "samples"
    points: ClassVar = ("agg", "post", "ft")

    def __post_init__(self):
        numbers = dict(k=(1, inf), alpha=(0, 1), samples=(0, inf), val_fraction=(0, 0.99), reexplore_prob=(0, 1))
        names = dict(
            variant=("W", "D", "D+C"),
            sv=("mc", "exact"),
            v_empty=("zero", "chance"),
            utility=("accuracy", "loss"),
            utility_part=("val", "train"),
            self_distance=("min_other", "mean_other", "prev", "eps", "none", "exclude_self"),
            download_rule=("rule", "literal"),
            pool=("last", "round"),
            extractor_weights=("samples", "uniform"),
        )
        check_fields(self, **numbers, **names, k_max=(self.k, inf))
        require(self.utility_part == "train" or self.val_fraction > 0, "val_fraction", self.val_fraction, "more than 0")
        few = self.sv == "mc" or self.places < ENUMERATED
        require(few, "k", self.k, f"less than {ENUMERATED} where sv is 'exact'")

    @property
    def places(self) -> int:
        """Models that fit into a message."""
        return self.k if self.k_max is None else self.k_max

    def init(self, model, setting):
        N = setting.num_clients
        server = {
            "round": 0,
            "seed": setting.seed,
            "models": tree.repeat(model.theta0, N),  # the pool
            "there": torch.zeros(N, dtype=torch.bool),  # who is in it
            "wanted": torch.full((N, N), -1),  # every client's ranking of the others
            "most": torch.zeros(N, dtype=torch.int64),  # k_i, how many of them it wants
        }
        if self.variant == "D+C":
            server["f"] = tree.select(model.theta0, "extractor.")
        theta, device = tree.repeat(model.theta0, N), model.theta0["head.bias"].device
        relevance = torch.zeros(N, N, dtype=torch.float64, device=device)
        clients = {"theta": theta, "relevance": relevance, "seen": relevance > 0}
        if self.self_distance == "prev":
            clients["start"] = tree.repeat(model.theta0, N)
        return server, clients

    # on the server

    def download(self, server, i):
        return tree.rows(self.downloads(server, [i]), 0)

    def downloads(self, server, ids):
        ids = [int(i) for i in ids]
        chosen, real = (torch.stack(part) for part in zip(*(self.chosen(server, i) for i in ids)))
        shared = self.variant == "D+C"
        models = tree.select(server["models"], "head.") if shared else server["models"]
        drawn = [self.draws(server, i) for i in ids]  # not a message, but the client's own chance
        small = {"ids": chosen, "real": real, "me": torch.tensor(ids), **tree.stack(drawn)}
        device = server["models"]["head.bias"].device
        message = {"models": tree.rows(models, chosen), **tree.map(lambda leaf: leaf.to(device), small)}
        if shared:
            message["f"] = tree.map(lambda leaf: leaf.expand(len(ids), *leaf.shape), server["f"])
        return message

    def chosen(self, server, i):
        """Whose models client i gets, int64 [places], and which of these places are filled, bool [places]."""
        wanted = [j for j in server["wanted"][i].tolist() if j >= 0 and server["there"][j]][: int(server["most"][i])]
        padding = self.places - len(wanted)
        return torch.tensor(wanted + [i] * padding), torch.arange(self.places) < len(wanted)

    def draws(self, server, i):
        """Random numbers of client i in the coming round: permutations of its game, ties [N] and second looks [N]."""
        generator, players = rng(server["seed"], "shapley", server["round"], i), self.places + 1
        permutations = draw_permutations(generator, self.samples or 3 * players, players)
        return {"permutations": permutations, "luck": torch.from_numpy(generator.random((2, len(server["there"]))))}

    def server_update(self, server, ids, uploads, n):
        ids = torch.as_tensor(np.asarray(ids))
        there = server["there"] if self.pool == "last" else torch.zeros_like(server["there"])
        theta = {name: leaf for name, leaf in uploads.items() if name in server["models"]}
        after = {
            **server,
            "round": server["round"] + 1,
            "models": tree.put(server["models"], ids, theta),
            "there": there.index_fill(0, ids, True),
            "wanted": tree.put(server["wanted"], ids, uploads["wanted"].cpu()),
            "most": tree.put(server["most"], ids, uploads["most"].cpu()),
        }
        if self.variant == "D+C":
            weights = n if self.extractor_weights == "samples" else np.ones(len(ids))
            after["f"] = tree.weighted_mean(tree.select(theta, "extractor."), weights)
        return after

    def floats_down(self, message):
        models = tree.map(lambda leaf: leaf[message["real"]], message["models"])
        return {"models": models, "f": message["f"]} if "f" in message else models

    def floats_up(self, upload):
        return {name: leaf for name, leaf in upload.items() if name not in ("wanted", "most")}

    # on a client

    def client_update(self, model, message, client, data):
        theta, psi = self.aggregated(model, message, client, data)
        relevance, seen = self.remembered(message, client, psi)
        trained = local_sgd(model, theta, data)
        kept = {"theta": trained, "relevance": relevance, "seen": seen}
        if self.self_distance == "prev":
            kept["start"] = theta
        return {**trained, **self.request(message, relevance, seen)}, kept

    def aggregated(self, model, message, client, data):
        """θ_i^* (Eqs. 6-7), and the Shapley values of the received models [places], 0 in empty places."""
        own = {**client["theta"], **message.get("f", {})}
        mine = {name: own[name] for name in message["models"]}
        models = tree.map(lambda one, others: torch.cat([one[None], others]), mine, message["models"])
        there = torch.cat([message["real"].new_ones(1), message["real"]])
        psi = self.values(model, own, models, there, message["permutations"], data)
        gains = torch.where(there & (psi > ZERO), psi, 0) / self.distances_to(model, mine, models, there, client)
        if self.self_distance == "exclude_self":
            gains = torch.cat([torch.zeros_like(gains[:1]), gains[1:]])
        weights = gains / torch.where(gains.sum() > 0, gains.sum(), 1)
        mixture = tree.map(lambda leaf: torch.tensordot(weights.to(leaf.dtype), leaf, dims=1), models)
        return {**own, **tree.where(gains.sum() > 0, mixture, mine)}, psi[1:]

    def distances_to(self, model, mine, models, there, client):
        """d_ij of Eq. 6 for the own model (see self_distance) and the received ones, float64 [1 + places]."""

        def squares(theta):
            names = [name for name in models if name in model.trainable]
            return sum((models[name] - theta[name]).double().square().flatten(1).sum(1) for name in names)

        others, received = squares(mine)[1:].sqrt().clamp(min=NEAR), there[1:]
        if self.self_distance == "none":
            return torch.ones_like(torch.cat([others[:1], others]))
        if self.self_distance == "mean_other":
            mean = torch.where(received, others, 0).sum() / received.sum().clamp(min=1)
            own = torch.where(received.any(), mean, 1)
        elif self.self_distance == "prev":
            own = squares(client["start"])[0].sqrt().clamp(min=NEAR)
        elif self.self_distance == "eps":
            own = torch.full_like(others[0], NEAR)
        else:
            own = torch.where(received.any(), torch.where(received, others, inf).amin(), 1)
        return torch.cat([own[None], others])

    def values(self, model, own, models, there, permutations, data):
        """Shapley values of the own and the received models in the client's game, float64 [1 + places]."""

        def game(members):
            return self.worth(model, own, models, members, data)

        game = game if model.stacked else each_once(game)  # one client at a time: absent players need no evaluations
        if self.sv == "exact":
            return exact(game, self.places + 1, there)
        return from_permutations(game, permutations, present=there)[0]

    def worth(self, model, own, models, members, data):
        """v of coalitions, bool [m, players] -> float64 [m]: how good the mean of their models is on the client's own samples."""
        sizes = members.sum(1, keepdim=True)
        shares = members.double() / sizes.clamp(min=1)

        def right(x, y):
            scores = self.scores(model, own, models, shares, x)  # [m, B, C]
            if self.utility == "accuracy":
                return scores.argmax(-1) == y
            labels = y.expand(len(scores), len(y))
            loss = functional.cross_entropy(scores.flatten(0, 1), labels.flatten(), reduction="none")
            return log(scores.shape[-1]) - loss.reshape(labels.shape)

        found, empty = part_mean(right, len(members), data, self.utility_part), 0.0
        if self.v_empty == "chance" and self.utility == "accuracy":
            C = len(own["head.bias"])
            empty = part_mean(lambda x, y: functional.one_hot(y, C).T, C, data, self.utility_part).amax()
        return torch.where(sizes[:, 0] > 0, found, empty)

    def scores(self, model, own, models, shares, x):
        """Class scores of the means of models with these shares [m, players]: [m, B, C]."""
        if self.variant == "D+C":  # only the heads differ
            z, dtype = model.features(own, x), x.dtype
            means = {name: torch.tensordot(shares.to(dtype), leaf, dims=1) for name, leaf in models.items()}
            return torch.einsum("bd,mcd->mbc", z, means["head.weight"]) + means["head.bias"][:, None]
        means = ({n: torch.tensordot(row.to(leaf.dtype), leaf, dims=1) for n, leaf in models.items()} for row in shares)
        return torch.stack([model.logits({**own, **theta}, x) for theta in means])

    def remembered(self, message, client, psi):
        """Relevance (Eq. 5) and who was ever seen, both [N], after a game."""
        hit = (message["ids"][:, None] == torch.arange(len(client["seen"]), device=psi.device)) & message["real"][
            :, None
        ]
        now = torch.where(hit, psi[:, None], 0).sum(0)
        blended = self.alpha * client["relevance"] + (1 - self.alpha) * now
        return torch.where(hit.any(0), blended, client["relevance"]), client["seen"] | hit.any(0)

    def request(self, message, relevance, seen):
        """What the client wants next: "wanted", the others in order [N] (-1: not at all), and "most", how many of them."""
        ties, second_look = message["luck"]
        positive, me = relevance > ZERO, torch.arange(len(seen), device=seen.device) == message["me"]
        refused = seen & ~positive & (second_look >= self.reexplore_prob)
        first, places = ~seen.any(), torch.tensor(self.places, device=seen.device)
        least = 1 if self.download_rule == "literal" else self.k
        most = torch.where(first, self.k, positive.sum().clamp(min=least).minimum(places))
        if self.variant == "W" or self.download_rule == "literal":
            refused = torch.zeros_like(refused)  # fixed k; or "most" alone decides
        if self.variant == "W":
            most = torch.full_like(most, self.k)
        order = torch.where(me | refused, -inf, (relevance / ZERO).round() + ties).argsort(descending=True)
        return {"wanted": torch.where((me | refused)[order], -1, order), "most": most}

    def stored_upload(self, server, i):
        return tree.rows(server["models"], i)

    def personal_model(self, model, message, client, data):
        return self.aggregated(model, message, client, data)[0] if "models" in message else message

    def eval_points(self, server):
        return ("agg", "post")
