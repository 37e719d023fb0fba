"""pFedMe: personalised models that stay near a global one, which is moved towards them (Moreau envelopes).

C. T. Dinh, N. H. Tran, T. D. Nguyen. "Personalized Federated Learning with Moreau Envelopes." NeurIPS 2020,
arXiv:2006.08848. Algorithm 1.

| paper | here | meaning |
|---|---|---|
| w | server["theta"] | global model |
| w_i | upload | client i's local copy of it |
| θ̃_i | client["theta"] | personal model |
| λ | lam | strength of the tie between θ̃_i and w_i |
| K | K | SGD steps for every θ̃_i (one minibatch each time) |
| η | eta | rate of w_i; None: the smaller of the run's lr and 0.5/λ, because ηλ must stay below 1 |
| (personal rate) | eta_p | rate of those K steps |
| β | beta | w ← (1 - β) w + β mean of w_i |
| R | E epochs | local rounds: one for every minibatch |

Readings of what is left open:
- The K steps start from the previous θ̃_i of the round (w at its beginning).
- weights: the mean over w_i is "uniform" (the paper) or by "samples".
- Tested is θ̃_i after its client's last training, w for clients that never trained ("post"); "glob" tests w.
- Batch norm: only θ̃_i is ever evaluated, so w_i is uploaded with its running statistics.

Differences from the paper: only participants train; there all clients do, and the server averages a sample of them. So
with r < 1 the θ̃_i tested here are older. The authors' code adds weight decay, which is left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import torch

from fedlib.algorithms.api import always, local_epochs
from fedlib.algorithms.fedavg import FedAvg
from fedlib.base import tree
from fedlib.base.options import option


@dataclass(frozen=True)
class PFedMe(FedAvg):
    lam: float = option(15.0, 1e-12, inf)
    K: int = option(5, 1, inf)
    eta_p: float = option(0.01, 0, inf)
    eta: float | None = option(None, 0, inf)
    beta: float = option(1.0, 0, inf)
    weights: str = option("uniform", "uniform", "samples")
    points = ("post", "glob")
    passes = local_epochs
    eval_points = always("post", "glob")
    gone = {"start": "previous"}

    def init(self, model, setting):
        N = setting.num_clients
        return {"theta": model.theta0}, {
            "theta": tree.repeat(model.theta0, N),
            "trained": torch.zeros(N, dtype=torch.bool, device=model.theta0["head.bias"].device),
        }

    @property
    def batch_gradients(self):
        return self.K

    def client_update(self, model, message, client, data):
        rate = self.lam * (min(data.lr, 0.5 / self.lam) if self.eta is None else self.eta)

        def step(state, batch):
            w, theta = state["w"], state["theta"]
            for _ in range(self.K):
                theta = model.sgd_step(theta, batch, self.eta_p, differentiate=data.differentiate, tie=(self.lam, w))
            return {"theta": theta, "w": {k: w[k] - rate * (w[k] - theta[k]) for k in w}}  # w_i - ηλ (w_i - θ̃)

        state = data.fold(step, {"theta": message, "w": {k: message[k] for k in model.trainable}})
        return {**state["theta"], **state["w"]}, {
            "theta": state["theta"],
            "trained": torch.ones_like(client["trained"]),
        }

    def server_update(self, server, ids, uploads, n):
        mean = tree.weighted_mean(uploads, n if self.weights == "samples" else torch.ones(len(ids)))
        return {"theta": tree.map(lambda w, m: (1 - self.beta) * w + self.beta * m, server["theta"], mean)}

    def stored_upload(self, server, i):
        return {"w": server["theta"]}  # w_i is not tested; see `personal_model`

    def personal_model(self, model, message, client, data):
        if "w" not in message:  # glob
            return message
        return tree.where(client["trained"], client["theta"], message["w"])
