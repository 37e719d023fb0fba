"""Which runs diverge, and what the others reach."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from fedlib.engine.result import RunResult

COLUMNS = ["rate", "method", "task", "runs", "of them diverged", "mean accuracy of the others, %"]


def stability(found: Mapping[tuple[float, str, str, int], RunResult], metric: str = "client_mean") -> pd.DataFrame:
    """One row a learning rate, method and task; found: results by these and seed, diverged ones among them."""
    lines = [(*key[:3], 100 * r.final(metric) if r.status == "finished" else None) for key, r in found.items()]
    frame = pd.DataFrame(lines, columns=[*COLUMNS[:3], "accuracy"]).astype({"accuracy": float})
    groups = frame.groupby(COLUMNS[:3], sort=False)["accuracy"]
    return pd.DataFrame(
        [(*key, len(own), own.isna().sum(), f"{own.mean():.1f}" if own.notna().any() else "") for key, own in groups],
        columns=COLUMNS,
    )
