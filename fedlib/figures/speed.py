"""Figures of the benchmark."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from fedlib.figures.base import INK, PAPER, REFERENCE, axes_of, styled


@styled
def scaling(tidy: pd.DataFrame) -> Figure:
    """Time of a round against its samples; time and memory against the number of clients.
    Grey lines: proportional growth.

    tidy: part ("samples", "clients"), method, num_clients, mean (training samples of a client), samples, round_s,
    evaluation_s, peak_bytes, before_bytes.
    """
    figure, axes = axes_of(11.5, 3.3, 1, 3)
    by_samples, by_clients = (tidy[tidy["part"] == part] for part in ("samples", "clients"))
    ax = axes[0, 0]
    for (size, rows), marker in zip(by_samples.groupby("mean"), "osD^v"):
        ax.plot(rows["samples"], rows["round_s"], marker, color=INK, markersize=4, label=f"clients of {size:g} samples")
    _proportional(ax, by_samples["samples"], by_samples["round_s"])
    ax.set(title="time of a round", xlabel="samples trained on, every epoch counted", ylabel="seconds of the processor")
    panels = {"round_s": ("-", "round of 36"), "evaluation_s": (":", "evaluation of all")}
    for method, colour in zip(sorted(by_clients["method"].unique()), (INK, REFERENCE)):
        rows = by_clients[by_clients["method"] == method].sort_values("num_clients")
        for column, (line, label) in panels.items():
            axes[0, 1].plot(
                rows["num_clients"], rows[column], f"o{line}", color=colour, markersize=4, label=f"{method}, {label}"
            )
        memory = (rows["peak_bytes"] - rows["before_bytes"]) / 1e6
        axes[0, 2].plot(rows["num_clients"], memory, "o-", color=colour, markersize=4, label=method)
    _proportional(axes[0, 1], by_clients["num_clients"], by_clients["evaluation_s"])
    _proportional(axes[0, 2], by_clients["num_clients"], (by_clients["peak_bytes"] - by_clients["before_bytes"]) / 1e6)
    axes[0, 1].set(title="time against the number of clients", xlabel="clients", ylabel="seconds of the processor")
    axes[0, 2].set(title="peak memory beyond an idle process", xlabel="clients", ylabel="MB")
    for ax in axes[0]:
        known = any(np.isfinite(line.get_ydata()).any() for line in ax.lines)  # no memory in a quick run
        ax.set(xscale="log", yscale="log" if known else "linear")
        ax.legend(frameon=False, fontsize=7)
    return figure


def _proportional(ax, x, y) -> None:
    """A line of slope 1 in log-log through the geometric middle of the points."""
    ends, middle = np.array([x.min(), x.max()]), np.exp(np.log(y).mean() - np.log(x).mean())
    ax.plot(ends, middle * ends, color=PAPER, linewidth=0.8, zorder=0)
