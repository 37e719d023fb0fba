"""What label counts, which clients of some methods report, tell an eavesdropper about one of the client's images."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd


def label_secrets(drawn: Sequence[np.ndarray]) -> pd.DataFrame:
    """How often a guess of the most frequent label is right, and how many bits of the label stay unknown, with the
    counts of all clients together and with the client's own: means over clients and draws; drawn: counts [N, C]."""
    known = {"the counts of all clients together": lambda c: c.sum(0, keepdims=True), "the client's own counts": None}
    lines = []
    for name, of in known.items() if len(drawn) else ():
        counts = [of(c) if of else c for c in drawn]
        shares = [c / c.sum(1, keepdims=True) for c in counts]
        right = np.mean([p.max(1).mean() for p in shares])
        bits = np.mean([-(p * np.log2(np.where(p > 0, p, 1))).sum(1).mean() for p in shares])
        lines.append((name, f"{100 * right:.1f}", f"{bits:.2f}"))
    return pd.DataFrame(lines, columns=["what is known", "label guessed right, %", "bits still unknown"])
