"""Measurements on clients' classifiers after every round (PFedCS): how far apart, what they betray, who is chosen.
Functions (run, state, seen) -> one array, as in `each_round`.
"""

from __future__ import annotations

import numpy as np
import torch

from fedlib.base import tree
from fedlib.base.errors import BadValue


def trained_heads(run, seen) -> tuple[torch.Tensor, torch.Tensor]:
    """Classifiers of all clients as trained in the round, on the CPU in float64: weights [N, C, d] and biases [N, C];
    NaN for who did not take part. Raises BadValue for a method whose clients have no classifier of their own."""
    for kept in (seen.clients, seen.uploads):
        leaves = {name.rpartition(".")[2]: leaf for name, leaf in tree.leaves(kept or {}) if name.startswith("head.")}
        if leaves:
            break
    else:
        raise BadValue(f"clients of {run.spec.method!r} train no classifier of their own")
    found = []
    for part in ("weight", "bias"):
        rows = leaves[part].detach().double().cpu()
        whole = torch.full((run.setting.num_clients, *rows.shape[1:]), torch.nan, dtype=torch.float64)
        whole[torch.as_tensor(seen.ids)] = rows
        found.append(whole)
    return found[0], found[1]


def head_distances(run, state, seen) -> np.ndarray:
    """Squared distances of the classifiers' weights as trained in the round, float64 [N, N]."""
    weight, _ = trained_heads(run, seen)
    flat = weight.flatten(1)
    return torch.cdist(flat, flat, compute_mode="donot_use_mm_for_euclid_dist").square().numpy()


def head_moves(run, state, seen) -> np.ndarray:
    """By how much every class vector of a client, with its bias, has moved since the initial classifier, summed over
    its components, float64 [N, C]. Features are not negative, so training on a class raises its number."""
    weight, bias = trained_heads(run, seen)
    first = {name: leaf.double().cpu() for name, leaf in run.work.model.theta0.items() if name.startswith("head.")}
    return ((weight - first["head.weight"]).sum(-1) + bias - first["head.bias"]).numpy()


def selection(run, state, seen) -> np.ndarray:
    """Whose classifiers PFedCS's server mixed for client i (row) in the round, int8 [N, N]: 2 for collaborators, 1 for
    candidates beyond the threshold, 0 for others, oneself, and all in stage 2."""
    server, N, method = seen.server, run.setting.num_clients, run.method
    found = np.zeros((N, N), dtype=np.int8)
    if server["round"] < server["last"] and method.select in ("adaptive", "random", "all"):
        ids = torch.as_tensor(seen.ids)
        pool = ids if method.pool == "active" else torch.arange(N)
        D, own = method.distances(server["heads"]["head.weight"], ids, pool), ids[:, None] == pool
        marks = method.candidates(D, ~own, method.generators(server, ids)).to(torch.int8)
        marks[method.collaborators(server, D, ids, own)] = 2
        found[np.ix_(seen.ids, pool.numpy())] = marks.numpy()
    return found
