"""Local: local-only training ("Local-Only", "Separate"), the baseline of every table; clients never communicate.

All clients start from the same theta^0 and train when they are sampled, so that a client does as much work as under a
federated method with the same join ratio.

Differences from the papers: none known.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedlib.algorithms.api import Algorithm, always, local_epochs
from fedlib.algorithms.parts.passes import local_sgd
from fedlib.base import tree


@dataclass(frozen=True)
class Local(Algorithm):
    points = ("post",)
    passes = local_epochs
    eval_points = always("post")

    def init(self, model, setting):
        return {}, {"theta": tree.repeat(model.theta0, setting.num_clients)}

    def download(self, server, i):
        return {}  # nothing is sent

    def client_update(self, model, message, client, data):
        return {}, {"theta": local_sgd(model, client["theta"], data)}

    def server_update(self, server, ids, uploads, n):
        return server

    def personal_model(self, model, message, client, data):
        return client["theta"]
