"""Who takes part, who meets whom, and who was never drawn: what sampling some clients a round entails."""

from __future__ import annotations

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
    N, drawn = spec.num_members, np.zeros(spec.num_members, dtype=bool)
    for t in range(rounds + 1, spec.rounds + 1):
        drawn[participants(spec.seed, t, N, spec.join_ratio)] = True
    return drawn, 1 - (1 - num_participants(N, spec.join_ratio) / N) ** (spec.rounds - rounds)


def after_warm_up(r: RunResult) -> pd.DataFrame:
    """Clients of a run with a warm-up: whether they took part after it, or still have its model.

    One row a client: client, drawn, expected (the share of clients), accuracy (headline), weight.
    """
    drawn, expected = drawn_since(r.spec, beginning(r.spec)[1])
    correct, tests = r.by_client()
    own = {"client": range(len(drawn)), "drawn": drawn, "accuracy": correct / tests, "weight": tests}
    return pd.DataFrame(own).assign(expected=expected)


def shares(clients: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """By group, in percent: the clients that took part after the warm-up and that should have; their accuracy, that of
    the others (NaN if there are none), and what it would be if as many had taken part as expected. clients: see
    `after_warm_up`."""
    lines = []
    for key, own in clients.groupby(by, sort=False):
        took_part = own["drawn"].astype(bool)
        drawn, others = (
            100 * np.average(g["accuracy"], weights=g["weight"]) if len(g) else np.nan
            for g in (own[took_part], own[~took_part])
        )
        expected = own["expected"].iloc[0]
        usual = expected * drawn + (1 - expected) * others
        lines.append((*key, 100 * took_part.mean(), 100 * expected, drawn, others, usual))
    columns = ["drawn", "expected to be", "accuracy, drawn", "accuracy, others", "if as expected"]
    return pd.DataFrame(lines, columns=[*by, *columns])
