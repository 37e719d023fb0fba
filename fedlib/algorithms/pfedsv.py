"""pFedSV: Shapley values of a game between downloaded models tell each client whose models to aggregate and to request.

L. Wu, S. Guo, Y. Ding, J. Wang, W. Xu, Y. Zhan, A.-M. Kermarrec. "Rethinking Personalized Client Collaboration in
Federated Learning." IEEE Transactions on Mobile Computing, 2024, doi 10.1109/TMC.2024.3396218. Equations 2-7,
Algorithms 1-2.

| paper | here | meaning | default and its source |
|---|---|---|---|
| k | k | most models that a client downloads | 5 (§6.1.4) |
| S_i,k | own model and the filled places of the message | players of client i's game | |
| v(X) | `ModelGame.worth` | accuracy on the validation part of the mean of X's models (Eq. 4) | |
| φ_j (of the game) | psi | Shapley values (Eq. 2, Algorithm 2) | |
| φ^i (of the client) | client["relevance"] | relevance of all others to client i, [N] (Eq. 5) | |
| α | alpha | share of the old relevance in Eq. 5 | 0.5 (unpublished; ours) |
| R | samples | permutations; 0 means 3 for each place in S | 0 (§6.1.4) |
| θ_i^* | `aggregated` | where the next local training starts (Eqs. 6-7) | |

variant: "D" (the method), "W" (k is fixed and nobody is discarded, the ablation), "D+C" (only classifiers are
downloaded and play; the extractor is one for all, averaged by the server).

A round of the paper is training, upload, download, game. Here download and game come first in the round that follows:
between full rounds nothing happens, so the same is computed, and evaluation plays the same game. What a client wants
next, a ranking of the others, goes up with its model.

Readings of what the paper leaves open (each an option):
- sv, samples, val_fraction, v_empty, utility, utility_part: how the game is played and its values are found
  (`fedlib.algorithms.parts.model_game.ModelGame`). An estimate of up to 12 players asks each of their 2^|S| - 1
  coalitions once, if that is not more than the permutations have beginnings.
- k_max, download_rule, reexplore_prob: whom a client asks for next (`fedlib.algorithms.parts.peers.Asking`). "literal"
  is the paper's sentence that as many are asked for as have a positive relevance; "rule" keeps k, so that unseen ones
  get their turn.
- self_distance, d_ii of Eq. 6, which is 0: "min_other", the smallest distance to a received model; "mean_other";
  "prev", the distance to the last θ_i^*; "eps", 1e-5, which is almost local training; "none", no distances at all;
  "exclude_self", no own model in the aggregate.
- pool: "last", everybody's last upload, however old; or "round", this round's uploads.
- extractor_weights (D+C): "samples" or "uniform".

Differences from the paper: with partial participation a client plays when it takes part again, with the uploads there
are by then. Differential privacy is not part of this file.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from fedlib.algorithms.api import Algorithm, always, last_upload, local_epochs
from fedlib.algorithms.parts import peers
from fedlib.algorithms.parts.model_game import ModelGame
from fedlib.algorithms.parts.passes import local_sgd
from fedlib.algorithms.parts.peers import ZERO, Asking
from fedlib.algorithms.parts.shapley import ENUMERATED
from fedlib.base import tree
from fedlib.base.draws import rng
from fedlib.base.errors import require
from fedlib.base.options import option


@dataclass(frozen=True)
class PFedSV(ModelGame, Asking, Algorithm):
    variant: str = option("D", "W", "D", "D+C")
    alpha: float = option(0.5, 0, 1)
    self_distance: str = option("min_other", *peers.OWN_DISTANCES)
    pool: str = option("last", "last", "round")
    extractor_weights: str = option("samples", "samples", "uniform")
    points = ("agg", "post", "ft")
    passes = local_epochs
    eval_points = always("agg", "post")
    stored_upload = last_upload

    def __post_init__(self):
        super().__post_init__()
        few = self.sv == "mc" or self.places < ENUMERATED
        require(few, "k", self.k, f"less than {ENUMERATED} where sv is 'exact'")

    @property
    def asks_by(self) -> str:
        return "fixed" if self.variant == "W" else self.download_rule

    def init(self, model, setting):
        N, f = setting.num_clients, tree.select(model.theta0, "extractor.") if self.variant == "D+C" else {}
        pool = {"models": tree.repeat(model.theta0, N), "there": torch.zeros(N, dtype=torch.bool)}
        server = {"round": 0, "seed": setting.seed, "f": f, **pool, **self.nothing_asked(N)}
        relevance = torch.zeros(N, N, dtype=torch.float64, device=model.theta0["head.bias"].device)
        clients = {"theta": tree.repeat(model.theta0, N), "relevance": relevance, "seen": relevance > 0}
        return server, clients | ({"start": tree.repeat(model.theta0, N)} if self.self_distance == "prev" else {})

    # on the server

    def messages(self, server, ids):
        players = tree.select(server["models"], "head." if self.variant == "D+C" else "")
        models, whose, real = peers.sent(players, [self.chosen(server, int(i)) for i in ids])
        chance = tree.stack([self.draws(server, int(i)) for i in ids])  # not a message, but the client's own chance
        chance = tree.map(lambda leaf: leaf.to(real.device), chance)
        f = tree.map(lambda leaf: leaf.expand(len(ids), *leaf.shape), server["f"])
        return {"models": models, "f": f, "ids": whose, "real": real, **chance}

    def draws(self, server, i):
        """Client i's number and its random numbers of the coming round: permutations of its game,
        and luck in `request`, [2, N]."""
        generator = rng(server["seed"], "shapley", server["round"], i)
        permutations = self.permutations(generator, self.places + 1)
        luck = torch.from_numpy(generator.random((2, len(server["there"]))))
        return {"me": torch.tensor(i), "permutations": permutations, "luck": luck}

    def server_update(self, server, ids, uploads, n):
        weights = n if self.extractor_weights == "samples" else np.ones(len(ids))
        kept = {part: server[part] for part in ("wanted", "most")}
        return {
            **server,
            "round": server["round"] + 1,
            "f": tree.weighted_mean({name: uploads[name] for name in server["f"]}, weights),
            "models": tree.put(server["models"], ids, {name: uploads[name] for name in server["models"]}),
            "there": peers.present(server["there"], ids, keep=self.pool == "last"),
            **tree.put(kept, ids, {part: uploads[part].cpu() for part in kept}),
        }

    def floats_down(self, message):
        return {"models": tree.map(lambda leaf: leaf[message["real"]], message["models"]), "f": message["f"]}

    def floats_up(self, upload):
        return {name: leaf for name, leaf in upload.items() if name not in ("wanted", "most")}

    # on a client

    def client_update(self, model, message, client, data):
        theta, psi = self.aggregated(model, message, client, data)
        relevance, seen = self.remembered(message, client, psi)
        trained = local_sgd(model, theta, data)
        kept = {"theta": trained, "relevance": relevance, "seen": seen}
        kept |= {"start": theta} if self.self_distance == "prev" else {}
        return {**trained, **self.request(message, relevance, seen)}, kept

    def aggregated(self, model, message, client, data):
        """θ_i^* (Eqs. 6-7), and the Shapley values of the received models [places], 0 in empty places."""
        own = {**client["theta"], **message.get("f", {})}
        mine = {name: own[name] for name in message["models"]}
        models, there = peers.own_first(mine, message["models"], message["real"])
        psi = self.values(model, own, models, there, message["permutations"], data)
        names = [name for name in models if name in model.trainable]
        d = peers.distances_with_own(models, there, names, self.self_distance, client.get("start"))
        gains = torch.where(there & (psi > ZERO), psi, 0) / d  # Eq. 6
        return {**own, **peers.aggregate(models, gains)}, psi[1:]  # Eq. 7

    def remembered(self, message, client, psi):
        """Relevance (Eq. 5) and who was ever seen, both [N], after a game."""
        everyone, real = torch.arange(len(client["seen"]), device=psi.device), message["real"]
        hit = (message["ids"][:, None] == everyone) & real[:, None]  # [places, N]
        now = torch.where(hit, psi[:, None], 0).sum(0)
        blended = self.alpha * client["relevance"] + (1 - self.alpha) * now
        return torch.where(hit.any(0), blended, client["relevance"]), client["seen"] | hit.any(0)

    def personal_model(self, model, message, client, data):
        return self.aggregated(model, message, client, data)[0] if "models" in message else message
