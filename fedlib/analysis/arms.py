"""What a method's lead consists of: the method, its variants and a baseline, tested at the same points and paired."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass

import pandas as pd

from fedlib.analysis.readings import by_client
from fedlib.analysis.uncertainty import Interval, draws, shared_seeds
from fedlib.engine.result import RunResult

Draws = pd.DataFrame  # bootstrap draws of accuracies in percent, a column an arm; the first row is the estimate


@dataclass(frozen=True)
class Arms:
    """Arms of a comparison. of: by name, which runs (their key) and the point at which they are tested; whole: the arm
    that is the method as its paper has it, and by evaluation point others that it is replaced by there."""

    of: Mapping[str, tuple[Hashable, str]]
    whole: str
    at: Mapping[str, str]
    metric: str = "client_mean"

    def compared_with(self, arm: str) -> str:
        """The method's own arm at this arm's evaluation point."""
        return self.at.get(self.of[arm][1], self.whole)

    def tables(self, found: Mapping[tuple[Hashable, int], RunResult]) -> dict[str, pd.DataFrame]:
        """parts: accuracy of every arm in percent, the method's lead over it at the same point with its interval, and
        the number of seeds, those that all arms have; _parts: the draws by arm. found: results by key and seed, some
        may be missing."""
        frames = []
        for arm, (key, point) in self.of.items():
            for seed, r in ((seed, r) for (name, seed), r in found.items() if name == key):
                values, _ = by_client(r, point, self.metric)
                if values is not None:
                    own = {"client": range(len(values)), "accuracy": values, "arm": arm, "seed": seed}
                    frames.append(pd.DataFrame(own))
        columns = ["arm", "accuracy, %", "the method's lead over it", "seeds"]
        if not frames:
            return {"parts": pd.DataFrame(columns=columns), "_parts": pd.DataFrame()}
        frame = pd.concat(frames)
        frame = frame[frame["seed"].isin(shared_seeds(frame, "arm"))]
        if frame.empty:
            return {"parts": pd.DataFrame(columns=columns), "_parts": pd.DataFrame()}
        m, seeds = 100 * draws(frame, "accuracy", ["arm"], "client"), frame.groupby("arm")["seed"].nunique()
        lines = []
        for arm in m:
            whole = self.compared_with(arm)
            lead = "" if arm == whole or whole not in m else lead_of(m, whole, arm, "+.2f")
            lines.append((arm, f"{m[arm].iloc[0]:.2f}", lead, seeds[arm]))
        return {"parts": pd.DataFrame(lines, columns=columns), "_parts": m}


def lead_of(m: Draws, arm: str, other: str, form: str = "+.1f") -> str:
    """How far an arm is above another, in points with the interval."""
    return Interval.of(m[arm] - m[other]).text(form)
