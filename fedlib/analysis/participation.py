"""What sampling some clients a round entails: who takes part, who meets whom, who was never drawn; and of FedSimSup's
clients that wait for their turn, how long, what is left of their own models, and who is in them.

A round is a pair (ids, shares): the participants [K], sorted, and the shares of all clients' models (columns) in those
that the server holds after it (rows), [N, N], rows sum to 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pandas as pd
import torch

from fedlib import models
from fedlib.algorithms.fedsimsup import FedSimSup
from fedlib.analysis.traffic import network_size
from fedlib.base.draws import num_participants, participants
from fedlib.data.datasets import known_class_sizes, shape_and_classes
from fedlib.data.describe import label_cosine
from fedlib.data.partition import draw_counts
from fedlib.engine.result import RunResult

Round = tuple[np.ndarray, np.ndarray]
TAKES = 1e-6  # smaller shares are rounding


def meetings(num_clients: int, join_ratio: float, rounds: int) -> pd.DataFrame:
    """After every round: the share of pairs of clients that have taken part together at least once, drawn and expected.

    With m of n clients in a round a pair meets with probability m(m-1)/(n(n-1)).
    """
    met, upper, lines = np.zeros((num_clients, num_clients), dtype=bool), np.triu_indices(num_clients, 1), []
    for t in range(1, rounds + 1):
        ids = participants(0, t, num_clients, join_ratio)
        met[np.ix_(ids, ids)] = True
        m, n = len(ids), num_clients
        lines.append((t, met[upper].mean(), 1 - (1 - m * (m - 1) / (n * (n - 1))) ** t))
    return pd.DataFrame(lines, columns=["rounds", "drawn", "expected"])


def after_warm_up(r: RunResult) -> pd.DataFrame:
    """Clients of a run with a warm-up: whether they took part after it, or still have its model.

    One row a client: client, drawn, expected (the share of clients), accuracy (headline), weight.
    """
    spec, N, first = r.spec, r.spec.num_members, r.spec.warm_up[1] + 1
    drawn = np.zeros(N, dtype=bool)
    for t in range(first, spec.rounds + 1):
        drawn[participants(spec.seed, t, N, spec.join_ratio)] = True
    expected = 1 - (1 - num_participants(N, spec.join_ratio) / N) ** (spec.rounds + 1 - first)
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
    columns = ["sampled", "expected share", "accuracy, sampled", "accuracy, never sampled", "accuracy at that share"]
    return pd.DataFrame(lines, columns=[*by, *columns])


# a run of FedSimSup ---------------------------------------------------------------------------------------------------


def training_counts(r: RunResult) -> np.ndarray:
    """Training samples of a run's clients by class, int64 [N, C]."""
    return r.arrays["counts"] - r.arrays["tests"]


def shares_in(sizes: np.ndarray, similarity: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Shares of all clients' models (columns) in those that FedSimSup's server holds after a round with the
    participants `ids` (rows), as the method weights them, float64 [N, N]; sizes [N], similarity [N, N]."""
    shares, idle = np.eye(len(sizes)), np.setdiff1d(range(len(sizes)), ids)
    server = {"sizes": torch.tensor(sizes, dtype=torch.float64), "similarity": torch.from_numpy(similarity)}
    weights, alpha = FedSimSup().mixing_weights(server, torch.from_numpy(idle), torch.as_tensor(ids))
    shares[idle, idle], shares[np.ix_(idle, ids)] = alpha, (1 - alpha)[:, None] * weights
    return shares


def rounds_of(r: RunResult) -> list[Round]:
    """A run's rounds, the shares as they were read off its models (the measure `mixtures`)."""
    spec, mixtures = r.spec, r.arrays["mixtures"]
    drawn = (participants(spec.seed, t, spec.num_members, spec.join_ratio) for t in range(1, len(mixtures) + 1))
    return list(zip(drawn, mixtures))


def walk(r: RunResult) -> pd.DataFrame:
    """One row a round of a run with the measures traffic, mixtures and supervisors.

    participants: how many; down, up: numbers sent to and by one of them; model, supervisor: numbers in a network;
    trained, disturbed: participants and idle clients whose supervisor has changed; weight_error: largest difference
    between shares read off the models and `shares_in`. Of the idle clients: own, the mean share of their own models;
    alike, see `from_alike`; lonely, how many are similar to no participant.
    """
    counts, before_and_after, lines = training_counts(r), r.arrays["supervisors"], []
    for (ids, shares), moved in zip(rounds_of(r), before_and_after[..., 0] != before_and_after[..., 1]):
        idle, right = np.setdiff1d(range(len(counts)), ids), shares_in(counts.sum(1), label_cosine(counts), ids)
        lines.append({
            "participants": len(ids), "trained": moved[ids].sum(), "disturbed": moved[idle].sum(),
            "weight_error": np.abs(shares - right).max(), "own": shares[idle, idle].mean(),
            "alike": from_alike(counts, ids, shares), "lonely": (right[idle, idle] == 1).sum(),
        })  # fmt: skip
    supervisor = models.sizes(r.spec.hyper["supervisors"], *shape_and_classes(r.spec.dataset))["model"]
    tidy = pd.DataFrame(lines).assign(model=network_size(r.spec)["model"], supervisor=supervisor)
    tidy.insert(0, "round", range(1, len(lines) + 1))
    tidy[["down", "up"]] = r.arrays["traffic"]
    return tidy


def weights_of(r: RunResult, t: int) -> pd.DataFrame:
    """The weights of Eq. 8 in round t as they were read off the models: one row an idle client and participant, with
    the most frequent label of each. Columns: round, client, label, other, other_label, weight (a client's sum to 1)."""
    (ids, shares), label = rounds_of(r)[t - 1], training_counts(r).argmax(1)
    taking = [i for i in np.setdiff1d(range(len(shares)), ids) if shares[i, ids].sum() > TAKES]
    lines = [(t, i, label[i], j, label[j], shares[i, j] / shares[i, ids].sum()) for i in taking for j in ids]
    return pd.DataFrame(lines, columns=["round", "client", "label", "other", "other_label", "weight"])


# rounds without training ----------------------------------------------------------------------------------------------


def drawn_rounds(counts: np.ndarray, join_ratio: float, rounds: int, seed: int, equal: bool = False) -> Iterator[Round]:
    """Rounds as they follow from label counts [N, C] by Eqs. 7 to 9: nobody trains. equal: all similarities are 1."""
    similarity = np.ones((len(counts),) * 2) if equal else label_cosine(counts)
    for t in range(1, rounds + 1):
        ids = participants(seed, t, len(counts), join_ratio)
        yield ids, shares_in(counts.sum(1), similarity, ids)


def sources(dataset: str, num_clients: int, join_ratio: float, rounds: int, draws: int, **scheme) -> pd.DataFrame:
    """`from_alike`, the mean over the rounds: seed, label cosines, equal weights, one draw of a partition a row."""
    sizes, lines = known_class_sizes(dataset), []
    for seed in range(draws):
        counts = draw_counts(sizes, num_clients, seed=seed, **scheme)
        both = (drawn_rounds(counts, join_ratio, rounds, seed, equal) for equal in (False, True))
        lines.append((seed, *(np.mean([from_alike(counts, *each) for each in drawn]) for drawn in both)))
    return pd.DataFrame(lines, columns=["seed", "label cosines", "equal weights"])


def turns_without_training(
    dataset: str, num_clients: int, join_ratio: float, rounds: int, seed: int = 0, **scheme
) -> pd.DataFrame:
    """`at_their_turn` of rounds that follow from a drawn partition alone."""
    counts = draw_counts(known_class_sizes(dataset), num_clients, seed=seed, **scheme)
    return at_their_turn(own_shares(drawn_rounds(counts, join_ratio, rounds, seed)))


# what rounds do to models ---------------------------------------------------------------------------------------------


def own_shares(rounds: Iterable[Round]) -> pd.DataFrame:
    """What is left of the own training in the models on the server.

    One row a round and client that has taken part by then: round, client, idle (rounds since its last turn), own (share
    of its last upload; what comes back in others' models does not count).
    """
    own, idle, lines = None, None, []
    for t, (ids, shares) in enumerate(rounds, 1):
        own = np.full(len(shares), np.nan) if own is None else own * np.diag(shares)
        idle = np.zeros(len(shares), dtype=int) if idle is None else idle + 1
        own[ids], idle[ids] = 1, 0
        lines += [(t, i, idle[i], own[i]) for i in np.flatnonzero(~np.isnan(own))]
    return pd.DataFrame(lines, columns=["round", "client", "idle", "own"])


def at_their_turn(own: pd.DataFrame) -> pd.DataFrame:
    """Of `own_shares` what a client finds when its next turn comes: the row before it, in which idle is the number of
    rounds that it has waited."""
    own = own.sort_values(["client", "round"])
    return own[own.groupby("client")["idle"].shift(-1) == 0].sort_values(["round", "client"], ignore_index=True)


def by_wait(turns: pd.DataFrame) -> pd.DataFrame:
    """`at_their_turn` by idle rounds: idle, turns (how many), reached (share of all turns after at least so many), own
    (the median), low, high (a tenth of the turns is below, above)."""
    found = turns.groupby("idle")["own"].quantile([0.1, 0.5, 0.9]).unstack().set_axis(["low", "own", "high"], axis=1)
    number = turns.groupby("idle").size()
    reached = number[::-1].cumsum()[::-1] / number.sum()
    return pd.DataFrame({"turns": number, "reached": reached}).join(found).reset_index()


def from_alike(counts: np.ndarray, ids: np.ndarray, shares: np.ndarray) -> float:
    """How much of what an idle client takes from others is from clients with the same most frequent label: the mean
    over those that take something, 0 if there are none. counts [N, C]; ids, shares: a round."""
    label, idle = counts.argmax(1), np.setdiff1d(range(len(counts)), ids)
    taken = shares[np.ix_(idle, ids)]
    takes = taken.sum(1) > TAKES
    alike = (taken * (label[idle, None] == label[ids])).sum(1)[takes] / taken[takes].sum(1)
    return float(alike.mean()) if len(alike) else 0.0
