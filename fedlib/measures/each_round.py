"""Measurements after every round: functions (run, state) -> one array. They change nothing.

run: `fedlib.engine.simulate.Run`; state: what the engine keeps between rounds. A result holds the rounds' arrays stacked
[T, ...] under the measure's name.
"""

from __future__ import annotations

import numpy as np

from fedlib.base.errors import BadValue


def client_accuracy(run, state: dict) -> np.ndarray:
    """Accuracy of every client at the headline point, float64 [N]; NaN in a round without evaluation."""
    found = [h for h in state["history"] if h["round"] == state["round"]]
    if not found:
        return np.full(run.setting.num_clients, np.nan)
    return found[0]["correct"].numpy().sum(1) / run.tests.sum(1)


def relevance(run, state: dict) -> np.ndarray:
    """What client i (row) holds client j (column) to be worth, float64 [N, N]: pFedSV's relevance or FedFomo's affinity."""
    found = state["clients"].get("relevance", state["server"].get("affinity"))
    if found is None:
        raise BadValue(f"measure 'relevance' is not accepted for {run.spec.method!r}; it keeps no relevance of clients")
    return found.double().cpu().numpy().copy()


def downloads(run, state: dict) -> np.ndarray:
    """Whose models (column) client i (row) is sent next, now that the round's uploads are there, bool [N, N]."""
    sent = np.zeros((run.setting.num_clients,) * 2, dtype=bool)
    for i in range(run.setting.num_clients):
        whose, real = run.acting(state).chosen(state["server"], i)
        sent[i, whose[real].numpy()] = True
    return sent


ROUND_MEASURES = {"client_accuracy": client_accuracy, "relevance": relevance, "downloads": downloads}
NEED_CHOICE = ("relevance", "downloads")  # only for methods whose server chooses models of others for a client
