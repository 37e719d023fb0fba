"""Measurements after every round: functions (run, state, seen) -> one array. They change nothing.

run: `fedlib.engine.setup.Run`; state: what the engine keeps between rounds, `fedlib.engine.state.State`; seen: what
travelled in the round, `fedlib.engine.rounds.Round`. A result holds the rounds' arrays stacked [T, ...] under the
measure's name.
"""

from __future__ import annotations

import numpy as np
import torch

from fedlib.algorithms.api import Algorithm
from fedlib.algorithms.fedsimsup import FedSimSup
from fedlib.algorithms.pfedcs import PFedCS
from fedlib.algorithms.pfedsim import PFedSim
from fedlib.base import tree
from fedlib.base.errors import BadValue, require


def client_accuracy(run, state, seen) -> np.ndarray:
    """Accuracy of every client at the headline point, float64 [N]; NaN in a round without evaluation."""
    found = [h for h in state.history if h["round"] == state.round]
    if not found:
        return np.full(run.setting.num_clients, np.nan)
    return found[0]["correct"].numpy().sum(1) / run.tests.sum(1)


def relevance(run, state, seen) -> np.ndarray:
    """What client i (row) holds client j (column) to be worth, float64 [N, N]: pFedSV's relevance,
    FedFomo's affinity."""
    found = state.clients.get("relevance", state.server.get("affinity"))
    if found is None:
        raise BadValue(f"measure 'relevance' is not accepted for {run.spec.method!r}; it keeps no relevance of clients")
    return found.double().cpu().numpy().copy()


def downloads(run, state, seen) -> np.ndarray:
    """Whose models (column) client i (row) is sent next, now that the round's uploads are there, bool [N, N]."""
    sent = np.zeros((run.setting.num_clients,) * 2, dtype=bool)
    for i in range(run.setting.num_clients):
        whose, real = run.acting(state).chosen(state.server, i)
        sent[i, whose[real].numpy()] = True
    return sent


def traffic(run, state, seen) -> np.ndarray:
    """Numbers that a participant received and sent in the round, the mean over the participants, int64 [2]."""
    return np.array([seen.numbers[way] // len(seen.ids) for way in ("down", "up")])


# pFedSim --------------------------------------------------------------------------------------------------------------


def phi(run, state, seen) -> np.ndarray:
    """pFedSim's similarities of all clients' classifiers after the round, float64 [N, N];
    NaN in its generalisation phase."""
    if "phi" not in seen.server:
        return np.full((run.setting.num_clients,) * 2, np.nan)
    return state.server["phi"].cpu().numpy().copy()


def others(run, state, seen) -> np.ndarray:
    """The share of the other clients in an extractor that pFedSim sends (Eq. 4), the mean over the participants,
    float64 []; 0 in its generalisation phase."""
    if "phi" not in seen.server:
        return np.zeros(())
    weights = run.method.mixing_weights(seen.server, seen.ids)
    own = weights[range(len(seen.ids)), seen.ids] / weights.sum(1)
    return np.array(1 - float(own.mean()))


def heads_changed(run, state, seen) -> np.ndarray:
    """How many classifiers that pFedSim's server keeps have changed in the round, int64 []; 0 in its generalisation
    phase, which has a single one."""
    if "phi" not in seen.server:
        return np.zeros((), dtype=np.int64)
    before, after = (tree.select(kept["models"], "head.") for kept in (seen.server, state.server))
    return torch.stack([(before[name] != after[name]).flatten(1).any(1) for name in before]).any(0).sum().cpu().numpy()


# PFedCS: classifiers --------------------------------------------------------------------------------------------------


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


# FedSimSup: what the models on the server consist of ------------------------------------------------------------------


def mixtures(run, state, seen) -> np.ndarray:
    """Shares of the clients' models in those that the server holds after the round, read off them, float64 [N, N].

    Row i, of an idle client: least squares of its model now on its model before and the participants' uploads. Rows of
    participants are those of the identity (Eq. 7).
    """
    before, uploads, after = map(_flat, (seen.server["personal"], seen.arrived, state.server["personal"]))
    shares = np.eye(len(after))
    for i in np.setdiff1d(range(len(after)), seen.ids):
        columns, parts = [i, *seen.ids], np.vstack([before[i], uploads])
        shares[i, columns] = np.linalg.lstsq(parts @ parts.T, parts @ after[i], rcond=None)[0]
    return shares


def supervisors(run, state, seen) -> np.ndarray:
    """Sums of squares of every client's supervisor before and after the round, float64 [N, 2]: different where it was
    trained."""
    followed, kind = state.followed.get("supervisors"), run.method.supervisors
    start = None if followed else run.method.first_supervisors(run.work.model, run.setting.num_clients)
    before = followed[-1][:, 1].numpy() if followed else _squares(start[kind])
    return np.stack([before, _squares(state.clients[kind])], 1)


def _flat(stacked: dict) -> np.ndarray:
    """All numbers of stacked models [N, ...] in a row for each, float64 [N, numbers]."""
    return torch.cat([stacked[name].double().flatten(1) for name in sorted(stacked)], 1).cpu().numpy()


def _squares(stacked: dict) -> np.ndarray:
    return (_flat(stacked) ** 2).sum(1)


# all of them ----------------------------------------------------------------------------------------------------------


EVERY = (client_accuracy, relevance, downloads, traffic, phi, others, heads_changed, head_distances, head_moves,
         selection, mixtures, supervisors)  # fmt: skip
ROUND_MEASURES = {measure.__name__: measure for measure in EVERY}
OF_ONE = {"pFedSim": (PFedSim, (phi, others, heads_changed)), "PFedCS": (PFedCS, (selection,)),
          "FedSimSup": (FedSimSup, (mixtures, supervisors))}  # fmt: skip
AS_PRINTED = {"zero_sim": "keep", "scale_by_sim": False, "participants_mix": False, "order": "supervisor",
              "similarity": "labels", "combine": "logits", "learn": "sum"}  # fmt: skip


def check_round_measure(name: str, method: Algorithm) -> None:
    """Raise BadValue unless the method has what the measure looks at."""
    measure, refused = ROUND_MEASURES[name], f"measure {name!r} is not accepted for {type(method).__name__}; expected"
    if measure in (relevance, downloads) and method.chosen is None:
        raise BadValue(f"{refused} a method that sends models of chosen clients")
    for called, (kind, own) in OF_ONE.items():
        if measure in own and not isinstance(method, kind):
            raise BadValue(f"{refused} {called}")
    if measure in (mixtures, supervisors):
        reading = {option: getattr(method, option) for option in AS_PRINTED}
        require(reading == AS_PRINTED, f"measure {name!r} with", reading, f"the printed method, {AS_PRINTED}")
        require(len(method.siblings) == 1, f"measure {name!r} with supervisors", method.supervisors, "one kind")
