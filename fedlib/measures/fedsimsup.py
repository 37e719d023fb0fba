"""Rounds of FedSimSup taken apart: what the models on the server consist of, read off these models without asking the
method for a weight, and whose supervisor was trained."""

from __future__ import annotations

import numpy as np
import torch

from fedlib.algorithms.fedsimsup import FedSimSup
from fedlib.base.errors import BadValue, require


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


MEASURES = {"mixtures": mixtures, "supervisors": supervisors}
