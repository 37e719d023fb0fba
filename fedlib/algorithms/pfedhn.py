"""pFedHN: a hypernetwork on the server makes every client's model from the client's embedding.

A. Shamsian, A. Navon, E. Fetaya, G. Chechik. "Personalized Federated Learning using Hypernetworks." ICML 2021,
arXiv:2103.04628. Algorithm 1.

| paper | here | meaning | default and its source |
|---|---|---|---|
| φ, h(·; φ) | server["phi"] | hypernetwork: embedding to parameters | |
| v_i | server["v"][i] | embedding of client i, floor(1 + N/4) numbers, standard normal at first | (authors' code) |
| θ_i, θ̃_i | message, upload | model sent, and after local training | |
| Δθ_i | | θ̃_i - θ_i; here its opposite, with the sign of a gradient | |
| α | server_lr | with momentum, weight_decay and norms of at most `clip` | 1e-2, 0.9, 1e-3, 50 (authors' code) |
| | hidden, depth | layers of `hidden` units: one from the embedding, `depth` more, ReLU between them | 100, 3 |

On top of the last layer one linear map makes each tensor of the model. The server descends <θ_i - θ̃_i, h(v_i; φ)>.

Readings of what is left open:
- The server makes one step for each participant, in the order of their numbers, with h(v_i; φ) taken anew each time;
  the original has one participant a round.
- A step moves φ and the embeddings of its clients; the others' embeddings do not decay.
- Running statistics are not made by h; they follow the run's bn_stats.
- Local training is the run's own (E epochs at lr); the original takes 50 steps.

Differences from the paper: the clients of a round train side by side from one φ; θ̃_i travels, of which the server, who
knows θ_i, forms Δθ_i.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import torch
from torch import nn
from torch.nn import functional

from fedlib.algorithms.api import Algorithm, always, local_epochs
from fedlib.algorithms.fedavg import FedAvg
from fedlib.base import tree
from fedlib.base.draws import rng, torch_seeded
from fedlib.base.options import option


@dataclass(frozen=True)
class PFedHN(Algorithm):
    server_lr: float = option(1e-2, 0, inf)
    momentum: float = option(0.9, 0, 1)
    weight_decay: float = option(1e-3, 0, inf)
    clip: float = option(50.0, 0, inf)
    hidden: int = option(100, 1, inf)
    depth: int = option(3, 0, inf)
    points = ("glob", "post", "ft")
    passes = local_epochs
    client_update = FedAvg.client_update  # local training from the message
    personal_model = FedAvg.personal_model
    eval_points = always("glob", "post")
    gone = {"server_steps": "sequential", "personal_head": False}
    no_newcomers = "a client's model is made from an embedding that the rounds learn, and a new client's is random"

    def init(self, model, setting):
        sent = model.theta0
        like, size = model.theta0["head.bias"], 1 + setting.num_clients // 4
        v = rng(setting.seed, "embeddings").standard_normal((setting.num_clients, size))
        made = {name: sent[name] for name in model.trainable}
        phi = torch_seeded(setting.seed, "hypernetwork", lambda: self.initial_phi(size, made))
        learned = {"phi": tree.map(lambda leaf: leaf.to(like), phi), "v": torch.from_numpy(v).to(like)}
        rest = {name: leaf for name, leaf in sent.items() if name not in made}
        velocity = tree.map(torch.zeros_like, learned)
        server = {**learned, "velocity": velocity, "shapes": tree.map(torch.zeros_like, made), "rest": rest}
        return server, {}

    def initial_phi(self, size, made):
        """Weights and biases as PyTorch initialises linear layers: "trunk" 0 to depth,
        and one for each tensor of `made`."""
        sizes = [size, *[self.hidden] * (self.depth + 1)]
        layers = {f"trunk.{k}": nn.Linear(*pair) for k, pair in enumerate(zip(sizes, sizes[1:]))}
        layers |= {name: nn.Linear(self.hidden, leaf.numel()) for name, leaf in made.items()}
        return {name: {k: p.detach() for k, p in layer.named_parameters()} for name, layer in layers.items()}

    def generated(self, phi, v, shapes):
        """h(v; phi) for R embeddings [R, size]: one tensor for each name in `shapes`, stacked [R, ...]."""
        x = functional.linear(v, **phi["trunk.0"])
        for k in range(1, self.depth + 1):
            x = functional.linear(x.relu(), **phi[f"trunk.{k}"])
        return {name: functional.linear(x, **phi[name]).unflatten(1, leaf.shape) for name, leaf in shapes.items()}

    def messages(self, server, ids):
        theta = self.generated(server["phi"], server["v"][torch.as_tensor(ids)], server["shapes"])
        return {**theta, **tree.repeat(server["rest"], len(ids))}

    def server_update(self, server, ids, uploads, n):
        sent, ids = self.messages(server, ids), torch.as_tensor(ids)
        delta = {name: sent[name] - uploads[name] for name in server["shapes"]}
        for k in range(len(ids)):
            server = self.descended(server, ids[[k]], tree.rows(delta, [k]))
        return {**server, "rest": tree.weighted_mean({name: uploads[name] for name in server["rest"]}, n)}

    def descended(self, server, ids, delta):
        """One step of SGD on phi and the embeddings of `ids`; delta [R, ...]: theta_i - their trained model."""

        def product(part):
            theta = self.generated(part["phi"], part["v"], server["shapes"])
            return sum((delta[name] * theta[name]).sum() for name in theta) / len(ids)

        part = {"phi": server["phi"], "v": server["v"][ids]}
        velocity = {"phi": server["velocity"]["phi"], "v": server["velocity"]["v"][ids]}
        slopes = torch.func.grad(product)(part)
        norm = torch.stack([leaf.norm() for _, leaf in tree.leaves(slopes)]).norm()
        shrink = (self.clip / norm.clamp(min=self.clip)).item() if self.clip else 1.0
        velocity = tree.map(
            lambda u, g, p: self.momentum * u + (shrink * g + self.weight_decay * p), velocity, slopes, part
        )
        part = tree.map(lambda p, u: p - self.server_lr * u, part, velocity)

        def whole(old, new):
            return {"phi": new["phi"], "v": tree.put(old["v"], ids, new["v"])}

        return {**server, **whole(server, part), "velocity": whole(server["velocity"], velocity)}
