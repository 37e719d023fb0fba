"""Who takes part, who meets whom, and who was never drawn: what sampling some clients a round entails."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd

from fedlib.base.draws import num_participants, participants
from fedlib.engine.result import RunResult
from fedlib.engine.shared_beginnings import beginning
from fedlib.spec import RunSpec


def meetings(num_clients: int, join_ratio: float, rounds: int, seed: int = 0) -> pd.DataFrame:
    """After every round: the share of pairs of clients that have taken part together at least once, drawn and expected.

    With m of n clients in a round a pair meets with probability m(m-1)/(n(n-1)).
    """
    met, upper, lines = np.zeros((num_clients, num_clients), dtype=bool), np.triu_indices(num_clients, 1), []
    for t in range(1, rounds + 1):
        ids = participants(seed, t, num_clients, join_ratio)
        met[np.ix_(ids, ids)] = True
        m, n = len(ids), num_clients
        lines.append((t, met[upper].mean(), 1 - (1 - m * (m - 1) / (n * (n - 1))) ** t))
    return pd.DataFrame(lines, columns=["rounds", "drawn", "expected"])


def drawn_since(spec: RunSpec, rounds: int) -> tuple[np.ndarray, float]:
    """Which clients take part after so many rounds, bool [N], and the share that is expected to."""
    N, drawn = spec.num_clients, np.zeros(spec.num_clients, dtype=bool)
    for t in range(rounds + 1, spec.rounds + 1):
        drawn[participants(spec.seed, t, N, spec.join_ratio)] = True
    return drawn, 1 - (1 - num_participants(N, spec.join_ratio) / N) ** (spec.rounds - rounds)


def after_warm_up(results: Iterable[RunResult]) -> pd.DataFrame:
    """Clients of runs with a warm-up: whether they took part after it, or still have its model.

    One row a run and client: id, seed, client, drawn, expected (the share of clients), accuracy (headline), weight.
    """
    frames = []
    for r in results:
        drawn, expected = drawn_since(r.spec, beginning(r.spec)[1])
        correct, tests = r.by_client()
        own = {"client": range(len(drawn)), "drawn": drawn, "accuracy": correct / tests, "weight": tests}
        frames.append(pd.DataFrame(own).assign(id=r.spec.id, seed=r.spec.seed, expected=expected))
    columns = ["client", "drawn", "accuracy", "weight", "id", "seed", "expected"]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=columns)
