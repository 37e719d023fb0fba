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
from fedlib.base.errors import BadValue, require
from fedlib.measures import fedsimsup
from fedlib.measures.classifiers import by_equations, head_distances, head_moves, selection


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


def mixing(run, state, seen) -> np.ndarray:
    """What pFedSim did in the round, checked by hand, float64 [3]; 0 in its generalisation phase.

    - the share of the other clients in a participant's extractor by Eq. 4, the mean over the participants
    - the largest difference of any parameter between a received extractor and Eq. 4
    - how many classifiers on the server have changed
    """
    if "phi" not in seen.server:
        return np.zeros(3)
    weights = eq4_shares(seen.server["phi"].cpu().numpy(), seen.ids, run.method.phi_cap)
    before, after = seen.server["models"], state.server["models"]
    others = 1 - weights[range(len(seen.ids)), seen.ids].mean()
    names = [name for name in run.work.model.trainable if name.startswith("extractor.")]
    shares = torch.from_numpy(weights).to(run.device)
    errors = [torch.einsum("kn,n...->k...", shares, before[name].double()) - seen.messages[name] for name in names]
    error = max(float(each.abs().max()) for each in errors)
    heads = [name for name in before if name.startswith("head.")]
    changed = torch.stack([(before[name] != after[name]).flatten(1).any(1) for name in heads]).any(0)
    return np.array([others, error, float(changed.sum())])


def eq4_shares(phi: np.ndarray, ids: np.ndarray, phi_cap: float) -> np.ndarray:
    """Weights of all extractors in those of clients `ids` by pFedSim's Eq. 4, [K, N], rows sum to 1; phi: Φ, [N, N].

    From the formulas in the head of `fedlib.algorithms.pfedsim` alone, for phi="reference":
    -ln(1 - min(Φ, 1 - phi_cap)), and -ln(phi_cap) for the own one.
    """
    weights = -np.log(1 - np.minimum(phi[ids], 1 - phi_cap))
    weights[range(len(ids)), ids] = -np.log(phi_cap)
    return weights / weights.sum(1, keepdims=True)


OWN = (client_accuracy, relevance, downloads, traffic, phi, mixing)
OF_PFEDCS = (head_distances, head_moves, selection, by_equations)
ROUND_MEASURES = {measure.__name__: measure for measure in (*OWN, *OF_PFEDCS)} | fedsimsup.MEASURES


def check_round_measure(name: str, method: Algorithm) -> None:
    """Raise BadValue unless the method has what the measure looks at."""
    kind = type(method).__name__
    if name in ("relevance", "downloads") and method.chosen is None:
        raise BadValue(
            f"measure {name!r} is not accepted for {kind}; expected a method that sends models of chosen clients"
        )
    if name in fedsimsup.MEASURES:
        fedsimsup.check_method(name, method)
    if name in ("phi", "mixing") and not isinstance(method, PFedSim):
        raise BadValue(f"measure {name!r} is not accepted for {kind}; expected pFedSim, which keeps similarities phi")
    if name in ("selection", "by_equations") and not isinstance(method, PFedCS):
        raise BadValue(f"measure {name!r} is not accepted for {kind}; expected PFedCS")
    if name == "by_equations":
        require(method == PFedCS(), "measure 'by_equations' with", method, "the method's defaults")
    if name == "mixing":
        reading = {"phi": method.phi, "phi_self": method.phi_self, "max_age": method.max_age}
        known = {"phi": "reference", "phi_self": None, "max_age": None}
        require(reading == known, "measure 'mixing' with", reading, f"the reading {known}")
