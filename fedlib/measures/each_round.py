"""Measurements after every round: functions (run, state, seen) -> one array. They change nothing.

run: `fedlib.engine.setup.Run`; state: what the engine keeps between rounds, `fedlib.engine.state.State`; seen: what
travelled in the round, `fedlib.engine.rounds.Round`. A result holds the rounds' arrays stacked [T, ...] under the
measure's name.
"""

from __future__ import annotations

import numpy as np
import torch

from fedlib.algorithms.api import Algorithm
from fedlib.algorithms.pfedcs import PFedCS
from fedlib.algorithms.pfedsim import PFedSim
from fedlib.base import tree
from fedlib.base.errors import BadValue
from fedlib.measures import fedsimsup
from fedlib.measures.classifiers import head_distances, head_moves, selection


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


OF_PFEDSIM, OF_PFEDCS = (phi, others, heads_changed), (head_distances, head_moves, selection)
EVERY = (client_accuracy, relevance, downloads, traffic, *OF_PFEDSIM, *OF_PFEDCS)
ROUND_MEASURES = {measure.__name__: measure for measure in EVERY} | fedsimsup.MEASURES


def check_round_measure(name: str, method: Algorithm) -> None:
    """Raise BadValue unless the method has what the measure looks at."""
    kind = type(method).__name__
    if name in ("relevance", "downloads") and method.chosen is None:
        raise BadValue(
            f"measure {name!r} is not accepted for {kind}; expected a method that sends models of chosen clients"
        )
    if name in fedsimsup.MEASURES:
        fedsimsup.check_method(name, method)
    if ROUND_MEASURES[name] in OF_PFEDSIM and not isinstance(method, PFedSim):
        raise BadValue(f"measure {name!r} is not accepted for {kind}; expected pFedSim, which keeps similarities phi")
    if name == "selection" and not isinstance(method, PFedCS):
        raise BadValue(f"measure {name!r} is not accepted for {kind}; expected PFedCS")
