"""What a run produced."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fedlib.spec import RunSpec


@dataclass(frozen=True)
class RunResult:
    """What one run produced. Accuracies are fractions.

    history: one entry per evaluation and point (round, point, headline, pooled, client_mean, client_std, client_p10,
    balanced, loss). communication: numbers and bytes over the whole run. seconds: train, server, evaluate, wall, and
    per_sample (training seconds per training sample and epoch). arrays: correct and tests int [N, C] of the last
    evaluation, counts int [N, C] of the partition, and those of the spec's measures.
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

    def final(self, metric: str = "pooled", point: str | None = None) -> float:
        """A metric of the last evaluation, at its headline point or at `point`; NaN if the run diverged."""
        last = [
            h
            for h in self.history
            if h["round"] == self.spec.rounds and (h["headline"] if point is None else h["point"] == point)
        ]
        return last[0][metric] if last else float("nan")

    def by_client(self, point: str | None = None) -> tuple[np.ndarray, np.ndarray] | None:
        """Correct predictions and test samples of every client after the last round, int64 [N] each, at a point (default: the
        headline's); None where the result does not hold them."""
        name = "correct" if point in (None, self.point) else f"correct_{point}"
        if name not in self.arrays:
            return None
        return self.arrays[name].sum(1), self.arrays["tests"].sum(1)

    @property
    def point(self) -> str:
        """The headline evaluation point of the last round."""
        return next((h["point"] for h in self.history if h["round"] == self.spec.rounds and h["headline"]), "")

    def curve(self, metric: str = "pooled") -> tuple[list[int], list[float]]:
        """Rounds and headline values."""
        rows = [h for h in self.history if h["headline"]]
        return [h["round"] for h in rows], [h[metric] for h in rows]
