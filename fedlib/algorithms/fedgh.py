"""FedGH: extractors stay on the clients; the server trains one head on the class means of their features.

L. Yi, G. Wang, X. Liu, Z. Shi, H. Yu. "FedGH: Heterogeneous Federated Learning with Generalized Global Header." ACM
Multimedia 2023, arXiv:2303.13137. Algorithm 1.

| paper | here | meaning | default and its source |
|---|---|---|---|
| θ | server["h"] | the global header | |
| φ_k | client["f"], names "extractor.*" | client k's extractor, its own | |
| θ_k | upload["h"] | its head after training; does not travel, kept for the test at "post" | |
| R̄_k^s | upload["prototypes"][s] | mean of its features of class s, from a pass in evaluation mode after training | |
| η_θ | server_lr | learning rate of the header | 0.01 (unpublished; PFLlib: 1.0) |
| | server_batch | prototypes in a minibatch of the server | 32 |

Readings of what is left open: the server makes one pass over all prototypes of the round in shuffled minibatches of
`server_batch`. Tested is "post", the client's own trained model (authors' code), and "recv", its extractor below the
new header.

Differences from the paper: the authors' script applies the server's gradient to the clients' optimiser, so that their
header never moves; here it does.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import torch
from torch.nn import functional

from fedlib.algorithms.api import Algorithm, always, local_epochs
from fedlib.algorithms.parts.passes import class_statistics, local_sgd
from fedlib.base import tree
from fedlib.base.draws import rng
from fedlib.base.options import option


@dataclass(frozen=True)
class FedGH(Algorithm):
    server_lr: float = option(0.01, 0, inf)
    server_batch: int = option(32, 1, inf)
    points = ("post", "recv", "ft")
    passes = local_epochs
    eval_points = always("post", "recv")
    unprotected = "uploads hold mean features of every class, without noise"

    def init(self, model, setting):
        h, f = (tree.select(model.theta0, part) for part in ("head.", "extractor."))
        blank = {"prototypes": torch.zeros_like(h["head.weight"]), "counts": torch.zeros_like(h["head.bias"])}
        server = {"h": h, "up_only": blank, "round": 0, "seed": setting.seed}
        return server, {"f": tree.repeat(f, setting.num_clients)}

    def download(self, server, i):
        return {"h": server["h"], **server["up_only"]}

    def client_update(self, model, message, client, data):
        theta = local_sgd(model, {**client["f"], **message["h"]}, data)
        counts, prototypes, _ = class_statistics(model, theta, data)
        upload = {"h": tree.select(theta, "head."), "prototypes": prototypes, "counts": counts}
        return upload, {"f": tree.select(theta, "extractor.")}

    def server_update(self, server, ids, uploads, n):
        """One pass of SGD on the header over all pairs (mean feature, class)."""
        k, y = (uploads["counts"] > 0).nonzero(as_tuple=True)
        z, h = uploads["prototypes"][k, y], server["h"]

        def loss(h, rows):
            return functional.cross_entropy(functional.linear(z[rows], h["head.weight"], h["head.bias"]), y[rows])

        order = rng(server["seed"], "header", server["round"]).permutation(len(y))
        for rows in torch.from_numpy(order).to(y.device).split(self.server_batch):
            slope = torch.func.grad(loss)(h, rows)
            h = tree.map(lambda p, g: p - self.server_lr * g, h, slope)
        return {**server, "h": h, "round": server["round"] + 1}

    def floats_down(self, message):
        return message["h"]

    def floats_up(self, upload):
        owned = (upload["counts"] > 0).nonzero()[:, 0]
        return {"prototypes": upload["prototypes"][owned], "classes": owned}

    def personal_model(self, model, message, client, data):
        return {**client["f"], **message["h"]}
