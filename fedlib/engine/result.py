"""What a run produced, and how it is made of the state that a run has come to."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch

from fedlib.base import tree
from fedlib.base.errors import Diverged, choose
from fedlib.base.provenance import provenance
from fedlib.engine.evaluate import personal_models, summarise
from fedlib.engine.setup import Run
from fedlib.engine.state import State
from fedlib.measures import FINAL_MEASURES
from fedlib.spec import RunSpec


@dataclass(frozen=True)
class RunResult:
    """What one run produced. Accuracies are fractions.

    history: one entry per evaluation and point (round, point, headline, pooled, client_mean, client_std, client_p10,
    balanced, loss). communication: numbers and bytes over the whole run. seconds: train, server, evaluate, wall, and
    per_sample (training seconds per training sample and epoch). arrays: correct and tests int64 [N, C] of the last
    evaluation's headline point, correct_<point> of its other points (results of before that was kept lack them), counts
    int64 [N, C] of the partition, and those of the spec's measures.

    Of a run with U newcomers (the spec's `unseen`) all this is about the members, the N others. newcomers: one entry
    per test of theirs (when, point, and the metrics of history); without any "after" if join_epochs is 0 or if joining
    diverged. arrays: newcomers int64 [U], their places in the partition; newcomers_tests and newcomers_counts as tests
    and counts, and newcomers_<when>_<point>, correct predictions; all of these int64 [U, C].
    """

    spec: RunSpec
    status: str  # "finished" or "diverged"
    history: list[dict] = field(default_factory=list)
    partition: dict = field(default_factory=dict)
    communication: dict = field(default_factory=dict)
    seconds: dict = field(default_factory=dict)
    provenance: dict = field(default_factory=dict)
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    error: str = ""
    newcomers: list[dict] = field(default_factory=list)

    def final(self, metric: str = "pooled", point: str | None = None) -> float:
        """A metric of the last evaluation, at its headline point or at `point`; NaN if the run diverged."""
        last = [h for h in self.last if (h["headline"] if point is None else h["point"] == point)]
        return last[0][metric] if last else float("nan")

    def by_client(self, point: str | None = None) -> tuple[np.ndarray, np.ndarray] | None:
        """(correct predictions, test samples) of every client in the last evaluation, both int64 [N].

        At the headline point or at `point`; None if the run diverged, or if it was stored before that point was kept.
        Raises BadValue for a point at which the last round was not evaluated.
        """
        if self.status == "diverged":
            return None
        point = self.point if point is None else choose("point", point, [h["point"] for h in self.last])
        correct = self.arrays.get(array_name(point, self.point))
        return None if correct is None else (correct.sum(1), self.arrays["tests"].sum(1))

    def of_newcomers(self, when: str, point: str) -> tuple[np.ndarray, np.ndarray]:
        """(correct predictions, test samples) of every newcomer, both int64 [U].

        when: "before" or "after" joining. Raises BadValue for a test that was not made.
        """
        made = [f"{tested['when']} {tested['point']}" for tested in self.newcomers]
        choose("test of newcomers", f"{when} {point}", made)
        return self.arrays[f"newcomers_{when}_{point}"].sum(1), self.arrays["newcomers_tests"].sum(1)

    @property
    def last(self) -> list[dict]:
        """The evaluations of the last round, one a point; none of an attack and of a run that diverged."""
        return [h for h in self.history if h.get("round") == self.spec.rounds]

    @property
    def point(self) -> str:
        """The headline evaluation point of the last round."""
        return next((h["point"] for h in self.last if h["headline"]), "")

    def curve(self, metric: str = "pooled") -> tuple[list[int], list[float]]:
        """Rounds and headline values."""
        rows = [h for h in self.history if h["headline"]]
        return [h["round"] for h in rows], [h[metric] for h in rows]


def array_name(point: str, headline: str) -> str:
    """What a result calls the correct predictions at a point."""
    return "correct" if point == headline else f"correct_{point}"


def final_measures(run: Run, state: State) -> dict[str, np.ndarray]:
    """Arrays of the spec's measures: those of every round [T, ...], and those of the final models (headline point)."""
    if state.diverged:
        return {}
    arrays = {name: torch.stack(rounds).numpy() for name, rounds in state.followed.items()}
    final = [FINAL_MEASURES[name] for name in run.spec.measures if name in FINAL_MEASURES]
    if not final:
        return arrays
    chunks = list(personal_models(run, state, run.points(state)[0]))
    order = np.argsort(np.concatenate([ids for ids, _ in chunks]))
    thetas = tree.rows(tree.concat([thetas for _, thetas in chunks]), order)
    return arrays | {name: array for measure in final for name, array in measure(run, thetas).items()}


def finished(run: Run, state: State, measures: dict[str, np.ndarray]) -> RunResult | Diverged:
    """The result of a completed run; measures: of `final_measures`."""
    if state.diverged:
        return Diverged(*state.diverged)
    bytes_per_float = 8 if run.spec.precision == "float64" else 4
    history = [
        {"round": h["round"], "point": h["point"], **summarise(h["correct"].numpy(), h["loss"].numpy(), run.tests)}
        for h in state.history
    ]
    for h in history:  # the first point of a round is its headline
        h["headline"] = h is next(g for g in history if g["round"] == h["round"])
    final = {h["point"]: h["correct"].numpy() for h in state.history if h["round"] == run.spec.rounds}
    headline = next(iter(final))
    seconds = {name: round(value, 3) for name, value in state.seconds.items()}
    return RunResult(
        spec=run.spec,
        status="finished",
        history=history,
        partition={
            "data": run.data_checksum[:16],
            "checksum": run.partition.checksum,
            "tries": run.partition.tries,
            "never_trained": int((~state.trained).sum()),
            "smallest_client": int(run.partition.sizes.min()),
        },
        communication={
            direction: {"floats": floats, "bytes": floats * bytes_per_float}
            for direction, floats in state.floats.items()
            if floats or direction != "once"
        },
        seconds={**seconds, "per_sample": (state.seconds["data"] + state.seconds["step"]) / max(state.samples, 1)},
        provenance=provenance(run.device, run.backend.name) | {"step": run.backend.model.step_used},
        arrays={
            **{array_name(point, headline): correct for point, correct in final.items()},
            "tests": run.tests,
            "counts": run.partition.counts,
            **measures,
            **(arrays_of_newcomers(run.joined, state) if run.joined else {}),
        },
        newcomers=[
            {"when": each["when"], "point": each["point"]}
            | summarise(each["correct"].numpy(), each["loss"].numpy(), run.joined.tests[run.joined.spec.num_members :])
            for each in state.newcomers
        ],
    )


def arrays_of_newcomers(whole: Run, state: State) -> dict[str, np.ndarray]:
    """Who they are, what they own, and their tests, [U] or [U, C]; whole: the run with them."""
    N = whole.spec.num_members
    tests = {f"newcomers_{each['when']}_{each['point']}": each["correct"].numpy() for each in state.newcomers}
    owned = {"newcomers_tests": whole.tests[N:], "newcomers_counts": whole.partition.counts[N:]}
    return {"newcomers": whole.spec.arrival[N:], **owned, **tests}
