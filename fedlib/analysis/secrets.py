"""What label counts, which clients of some methods report, tell an eavesdropper about one of the client's images."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from fedlib.analysis.uncertainty import Interval, draws


def label_secrets(drawn: Sequence[np.ndarray]) -> pd.DataFrame:
    """How often a guess of the most frequent label is right, and how many bits of the label stay unknown, with the
    counts of all clients together and with the client's own: means over clients and draws of the partition, with
    intervals over both; drawn: counts [N, C]."""
    known = {"the counts of all clients together": lambda c: c.sum(0, keepdims=True), "the client's own counts": None}
    lines = []
    for name, of in known.items() if len(drawn) else ():
        counts = [of(c) if of else c for c in drawn]
        shares = [c / c.sum(1, keepdims=True) for c in counts]
        right = [100 * p.max(1) for p in shares]
        bits = [-(p * np.log2(np.where(p > 0, p, 1))).sum(1) for p in shares]
        lines.append((name, over_clients(right, ".1f"), over_clients(bits, ".2f")))
    return pd.DataFrame(lines, columns=["what is known", "label guessed right, %", "bits still unknown"])


def over_clients(values: Sequence[np.ndarray], form: str) -> str:
    """The mean of one number a client, [N] of every draw, with its interval; alone where all are the same."""
    if np.ptp(np.concatenate(values)) == 0:
        return f"{np.mean(values):{form}}"
    frames = [pd.DataFrame({"seed": k, "client": range(len(v)), "value": v, "what": 0}) for k, v in enumerate(values)]
    return Interval.of(draws(pd.concat(frames), "value", ["what"], "client")[0]).text(form)
