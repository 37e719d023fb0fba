"""pFedSV with known relevance: clients get the models of those that share a label with them.

L. Wu, S. Guo, Y. Ding, J. Wang, W. Xu, Y. Zhan, A.-M. Kermarrec. "Rethinking Personalized Client Collaboration in
Federated Learning." IEEE Transactions on Mobile Computing, 2024, doi 10.1109/TMC.2024.3396218. Section 3.3, Figure 4.

Not a method that could be used, for its server is told all clients' labels; an experiment in which only the weights
of the aggregate differ. Everything else is pFedSV (`fedlib.algorithms.pfedsv`): S_i are the client's own model and
those it receives, v(X) the accuracy of the mean of X's models on the client's validation part, and
w_j ∝ max(value_j, 0) / d_ij.

| rule | value of model j for client i | |
|---|---|---|
| multiwise | Shapley value in the game of all of S_i | pFedSV, Eqs. 2 and 6 |
| gain | v({i, j}) - v({i}); its own model: v({i}) | pairwise: one other model at a time |
| alone | v({j}) | pairwise: every model by itself |
| fomo | FedFomo's: fall of the loss by the distance, both from where its last training started | pairwise |
| equal | 1, and d_ij = 1 where self_distance is "none": the plain mean | nobody is compared |

Readings of what the paper leaves open: it does not say what its pairwise rule is, and names FedFomo and FedAMP as
methods that collaborate pairwise. The server sends at most k models, those of the clients whose label counts have the
largest cosine with the client's own, equal ones in the order of their numbers.

Differences from the paper: none known.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from fedlib.algorithms.fedfomo import FedFomo
from fedlib.algorithms.pfedsv import PFedSV
from fedlib.base.errors import require
from fedlib.base.options import option
from fedlib.data.describe import label_cosine

RULES = ("multiwise", "gain", "alone", "fomo", "equal")


@dataclass(frozen=True)
class PFedSVKnown(PFedSV):
    rule: str = option("multiwise", *RULES)
    unprotected = "the server knows how alike the clients' classes are"

    def __post_init__(self):
        super().__post_init__()
        if self.rule == "fomo":
            require(self.self_distance == "prev", "self_distance", self.self_distance, "'prev' where rule is 'fomo'")
            require(self.variant != "D+C", "variant", self.variant, "'D' or 'W' where rule is 'fomo'")
            require(self.utility_part == "val", "utility_part", self.utility_part, "'val' where rule is 'fomo'")

    def init(self, model, setting):
        server, clients = super().init(model, setting)
        wanted, most = relevant_peers(setting.class_counts, self.places)
        return {**server, "wanted": wanted, "most": most}, clients

    def server_update(self, server, ids, uploads, n):
        told = {name: server[name] for name in ("wanted", "most")}  # whatever clients ask for
        return {**super().server_update(server, ids, uploads, n), **told}

    def aggregated(self, model, message, client, data):
        if self.rule != "fomo":
            return super().aggregated(model, message, client, data)
        reference = {f"start.{name}": client["start"][name] for name in model.trainable}
        fomo = FedFomo(M=self.places, val_fraction=self.val_fraction)
        theta, scores = fomo.mixed(model, message, {"theta": client["theta"], "reference": reference}, data)
        return theta, scores.double()

    def values(self, model, own, models, there, permutations, data):
        if self.rule == "multiwise":
            return super().values(model, own, models, there, permutations, data)
        if self.rule == "equal":
            return there.double()
        alone = torch.eye(len(there), dtype=torch.bool, device=there.device)
        me = alone[:1]  # the own model is the first
        v = self.worth(model, own, models, alone if self.rule == "alone" else alone | me, data)
        values = v if self.rule == "alone" else torch.cat([v[:1], v[1:] - v[0]])
        return torch.where(there, values, 0)


def relevant_peers(counts, places: int):
    """For class counts [N, C]: the clients that share a label with each, nearest first, int64 [N, N] (-1: none),
    and how many [N]."""
    cosines = torch.from_numpy(label_cosine(counts)).fill_diagonal_(0)
    order = cosines.argsort(dim=1, descending=True, stable=True)
    wanted = torch.where(cosines.gather(1, order) > 0, order, -1)
    return wanted, (wanted >= 0).sum(1).clamp(max=places)
