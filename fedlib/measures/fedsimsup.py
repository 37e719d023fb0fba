"""Rounds of FedSimSup taken apart: what the models on the server consist of, and the paper's equations done by hand.

Nothing here asks the method for a weight or a training step. What the server did is read off its models; what it should
have done follows from labels, in NumPy, and from minibatches, in plain PyTorch.
"""

from __future__ import annotations

import numpy as np
import torch
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from fedlib.algorithms.fedsimsup import FedSimSup
from fedlib.base import tree
from fedlib.base.errors import BadValue, require

# the paper's equations ------------------------------------------------------------------------------------------------


def cosines(counts: np.ndarray) -> np.ndarray:
    """Similarities s_ij of all clients' labels, float64 [N, N]; counts [N, C]. 0 for a client without samples."""
    unit = counts / np.maximum(np.linalg.norm(counts, axis=1, keepdims=True), 1)
    return unit @ unit.T


def shares_by_equation(sizes: np.ndarray, similarity: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Shares of all clients' models (columns) in those that the server holds after a round (rows), float64 [N, N].

    By Eqs. 7 to 9: participants keep their uploads, idle clients are mixed with them. Who is similar to no participant
    keeps its model (Eq. 8 is 0/0 there). Rows sum to 1. sizes [N]; similarity [N, N]; ids: the participants [K].
    """
    sizes, shares = np.asarray(sizes, dtype=float), np.eye(len(sizes))
    alpha = len(ids) * sizes / (sizes[ids].sum() + len(ids) * sizes)  # Eq. 9
    total = similarity[:, ids].sum(1)
    mixed = np.setdiff1d(np.flatnonzero(total > 0), ids)
    shares[mixed, mixed] = alpha[mixed]
    shares[np.ix_(mixed, ids)] = ((1 - alpha) / np.where(total > 0, total, 1))[mixed, None] * similarity[mixed][:, ids]
    return shares


def trained_by_hand(run, seen, k: int = 0) -> tuple[dict, dict]:
    """What Eqs. 10 and 11 make of the supervisor and the model of the round's k-th participant, in this order.

    Autograd and plain gradient steps on the engine's minibatches; the loss is that of the summed logits (Eq. 3).
    """
    client, method, kind = int(seen.ids[k]), run.method, run.method.supervisors
    networks = run.work.model.sibling(kind).module, run.work.model.module
    values = [dict(tree.rows(stacked, k)) for stacked in (seen.owned[kind], seen.messages)]
    for phase, epochs in enumerate((method.tau_s, method.tau_theta)):  # one is trained while the other is frozen
        for batch in run.minibatches(client, seen.t, epochs, phase):
            values[phase] = {name: value.detach().requires_grad_() for name, value in values[phase].items()}
            with torch.enable_grad():
                scores = sum(functional_call(net, theta, (batch.x,)) for net, theta in zip(networks, values))
                gradient = torch.autograd.grad(cross_entropy(scores, batch.y), list(values[phase].values()))
            steps = zip(values[phase].items(), gradient)
            values[phase] = {name: value.detach() - run.spec.lr * slope for (name, value), slope in steps}
    return tuple(values)


# measures -------------------------------------------------------------------------------------------------------------


def mixtures(run, state, seen) -> np.ndarray:
    """Shares of the clients' models in those that the server holds after the round, read off them, float64 [N, N].

    Row i, of an idle client: least squares of its model now on its model before and the participants' uploads. Rows of
    participants are those of the identity (Eq. 7, see `equations`).
    """
    before, uploads, after = map(_flat, (seen.server["personal"], seen.arrived, state.server["personal"]))
    shares = np.eye(len(after))
    for i in np.setdiff1d(range(len(after)), seen.ids):
        columns, parts = [i, *seen.ids], np.vstack([before[i], uploads])
        shares[i, columns] = np.linalg.lstsq(parts @ parts.T, parts @ after[i], rcond=None)[0]
    return shares


def equations(run, state, seen) -> np.ndarray:
    """Largest differences of any number from the paper's equations done by hand in this round, float64 [4].

    - Eq. 7: participants' models on the server, from what they sent
    - Eqs. 8 and 9: idle clients' models on the server
    - the same with equal similarities: so far off is another weighting
    - Eqs. 10 and 11: model and supervisor of the first participant, from `trained_by_hand`
    """
    counts, ids = np.asarray(run.setting.class_counts), seen.ids
    idle, models = np.setdiff1d(range(len(counts)), ids), _flat(seen.server["personal"])
    models[ids], after = _flat(seen.arrived), _flat(state.server["personal"])
    by_weights = [
        np.abs(shares_by_equation(counts.sum(1), similarity, ids)[idle] @ models - after[idle]).max(initial=0)
        for similarity in (cosines(counts), np.ones((len(counts),) * 2))
    ]
    supervisor, theta = trained_by_hand(run, seen)
    kept, sent = tree.rows(seen.clients[run.method.supervisors], 0), tree.rows(seen.uploads, 0)
    trained = max(float((by_hand[n] - own[n]).abs().max()) for by_hand, own in ((supervisor, kept), (theta, sent))
                  for n in own)  # fmt: skip
    return np.array([np.abs(after[ids] - models[ids]).max(), *by_weights, trained])


def supervisors(run, state, seen) -> np.ndarray:
    """Sums of squares of every client's supervisor before and after the round, float64 [N, 2]: different where it was
    trained."""
    followed, kind = state.followed.get("supervisors"), run.method.supervisors
    start = None if followed else run.method.first_supervisors(run.work.model, run.setting.num_clients)
    before = followed[-1][:, 1].numpy() if followed else _squares(start[kind])
    return np.stack([before, _squares(state.clients[kind])], 1)


def check_method(name: str, method) -> None:
    """Raise BadValue unless the method is FedSimSup as printed, with one kind of supervisor."""
    if not isinstance(method, FedSimSup):
        raise BadValue(f"measure {name!r} is not accepted for {type(method).__name__}; expected FedSimSup")
    printed = {"zero_sim": "keep", "scale_by_sim": False, "participants_mix": False, "order": "supervisor",
               "similarity": "labels", "combine": "logits", "learn": "sum"}  # fmt: skip
    reading = {option: getattr(method, option) for option in printed}
    require(reading == printed, f"measure {name!r} with", reading, f"the printed method, {printed}")
    require(len(method.siblings) == 1, f"measure {name!r} with supervisors", method.supervisors, "one kind")


def _flat(stacked: dict) -> np.ndarray:
    """All numbers of stacked models [N, ...] in a row for each, float64 [N, numbers]."""
    return torch.cat([stacked[name].double().flatten(1) for name in sorted(stacked)], 1).cpu().numpy()


def _squares(stacked: dict) -> np.ndarray:
    return (_flat(stacked) ** 2).sum(1)


MEASURES = {"mixtures": mixtures, "equations": equations, "supervisors": supervisors}
