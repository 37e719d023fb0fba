"""How an accuracy is read off a run: at which round, which average, which evaluation point;
and the clients' own, where it has them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from fedlib.engine.result import RunResult


@dataclass(frozen=True)
class Reading:
    """An accuracy read off a run's last round, a fraction. about: more columns of "tidy".

    values, weights: the clients' own and what each counts, [N]; None where the run does not hold them.
    """

    point: str
    headline: bool
    accuracy: float
    values: np.ndarray | None = None
    weights: np.ndarray | None = None
    about: dict = field(default_factory=dict)


def last_round(metric: str = "pooled") -> Callable[..., list[Reading]]:
    """The accuracy at every point that was evaluated: "pooled" over all test samples, or "client_mean"."""

    def read(r: RunResult, column: str = "") -> list[Reading]:
        ends = [h for h in r.history if h["round"] == r.spec.rounds]
        return [Reading(h["point"], h["headline"], h[metric], *by_client(r, h["point"], metric)) for h in ends]

    return read


def by_client(r: RunResult, point: str, metric: str) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Accuracies of the clients at a point and their weights in the metric, [N] each, or None twice."""
    found = r.by_client(point)
    if found is None:
        return None, None
    correct, tests = found
    return correct / tests, tests if metric == "pooled" else np.ones(len(tests))


Read = Callable[[RunResult, str], list[Reading]]  # of a run, for a column of a table


def at(metric: str, point: str | None = None) -> Read:
    """A metric after the last round, at the headline point, or at another one where the run has it."""

    def read(r: RunResult, column: str) -> list[Reading]:
        chosen = point if point and r.final(metric, point) == r.final(metric, point) else r.point
        return [Reading(chosen, True, r.final(metric, chosen), *by_client(r, chosen, metric))]

    return read


def balanced(r: RunResult, column: str) -> list[Reading]:
    """The mean over clients of the mean recall of their classes."""
    correct, tests = r.arrays["correct"], r.arrays["tests"]
    present = tests > 0
    recall = np.divide(correct, tests, out=np.zeros(tests.shape), where=present).sum(1) / present.sum(1)
    return [Reading(r.point, True, r.final("balanced"), recall, np.ones(len(recall)))]


def of_curve(number: Callable[[list[float]], float]) -> Read:
    """A number of the accuracies over the rounds; a run does not hold the clients' own of earlier rounds."""
    return lambda r, column: [Reading(r.point, True, float(number(r.curve()[1])))]


RULES: dict[str, Read] = {
    "headline: pooled, last round": at("pooled"),
    "mean over clients": at("client_mean"),
    "classes weighted equally": balanced,
    "best round": of_curve(max),
    "mean of the last 2 evaluations": of_curve(lambda curve: np.mean(curve[-2:])),
    "after local training, where possible": at("pooled", "post"),
}


def reached(results: Sequence[RunResult], percent: float) -> float:
    """The first evaluated round in which the runs' mean accuracy is at least so many percent, NaN for none."""
    rounds, accuracy = results[0].curve()[0], np.mean([r.curve()[1] for r in results], 0)
    there = np.flatnonzero(100 * accuracy >= percent)
    return float(rounds[there[0]]) if len(there) else np.nan
