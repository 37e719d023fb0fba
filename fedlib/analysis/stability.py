"""Which runs diverge, when, and what the others reach."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
import pandas as pd

from fedlib.engine.result import RunResult

WHAT = ["rate", "method", "task"]
COLUMNS = [*WHAT, "runs", "of them diverged", "in round", "mean over clients, %", "of all test images, %"]
ROUND = re.compile(r"in round (\d+)")


def stability(found: Mapping[tuple[str, str, str, int], RunResult]) -> pd.DataFrame:
    """One row a learning rate, method and task: how many runs there are, how many of them diverged and in which rounds,
    and the accuracy of the others, by seed; found: results by these and seed, diverged ones among them."""
    lines, groups = [], {}
    for (*what, _), r in found.items():
        groups.setdefault(tuple(what), []).append(r)
    for what, runs in groups.items():
        whole = [r for r in runs if r.status == "finished"]
        rounds = ["?" if (said := ROUND.search(r.error)) is None else said[1] for r in runs if r.status != "finished"]
        read = (by_seed([100 * r.final(metric) for r in whole]) for metric in ("client_mean", "pooled"))
        lines.append((*what, len(runs), len(rounds), ", ".join(rounds), *read))
    return pd.DataFrame(lines, columns=COLUMNS)


def by_seed(values: list[float]) -> str:
    """The mean, and where there are several all of them."""
    if len(values) < 2:
        return "".join(f"{value:.1f}" for value in values)
    return f"{np.mean(values):.1f} ({', '.join(f'{value:.1f}' for value in values)})"


def ends_of_training(found: pd.DataFrame) -> str:
    """How many runs diverge at which rate, and what the others reach; found: of `stability`."""
    said, reached = [], "of all test images, %"
    for rate, own in found.groupby("rate", sort=False):
        lost = [f"{r['of them diverged']} of {r['runs']} of {r['method']}" for _, r in own.iterrows() if r["in round"]]
        ends = [f"{r['method']} {r[reached]} %" for _, r in own.iterrows() if r[reached]]
        few, whole = own["of them diverged"].sum(), own["runs"].sum()
        gone = f"{few} of {whole} runs diverge" + (f" ({', '.join(lost)})" if lost else "")
        said.append(f"At the rate {rate}, {gone}; the others end with {', '.join(ends)} of all test images right.")
    return " ".join(said)
