"""Accuracies of methods as dots with their spread over seeds, beside the paper's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from fedlib.figures.base import INK, PAPER, REFERENCE, axes_of, styled


def dot_panels(panels: dict[str, dict[str, pd.DataFrame]], shown: Sequence[str], xlabel: str) -> Figure:
    """One panel a title; in it series of dots by name, each a table with columns mean and std (NaN: no bar) by method.

    Up to three series, the last of which is the paper's; methods `shown` from top to bottom.
    """
    figure, (axes,) = axes_of(4.6 * len(panels), 0.28 * len(shown) + 1.1, 1, len(panels), sharey=True)
    for ax, (title, series) in zip(axes, panels.items()):
        ax.hlines(range(len(shown)), 0, 100, color="#eeeeee", zorder=0)
        *ours, theirs = series
        styles = {theirs: ("D", PAPER, 4)} | dict(zip(ours, (("o", INK, 5), ("s", REFERENCE, 4))))
        shifts = dict(zip(series, np.linspace(-0.14, 0.14, len(series)) * (1 if len(series) < 3 else 1.6)))
        for name, (marker, colour, size) in styles.items():
            known = [m for m in shown if m in series[name].index]
            table = series[name].loc[known]
            y = np.array([shown.index(m) for m in known]) + shifts[name]
            ax.errorbar(
                table["mean"], y, xerr=table["std"].fillna(0), fmt=marker, color=colour, markersize=size, label=name
            )
        low = min(table["mean"].min() for table in series.values())
        ax.set(title=title, xlabel=xlabel, xlim=(max(0, low - 8), 100))
    axes[0].set_yticks(range(len(shown)), shown)
    axes[0].invert_yaxis()
    return figure


def mean_and_std(frame: pd.DataFrame, value: str, by: str = "method") -> pd.DataFrame:
    """Columns mean and std of `value` in percent, by method."""
    return 100 * frame.groupby(by)[value].agg(["mean", "std"])


def cells(printed: pd.DataFrame) -> pd.DataFrame:
    """The paper's cells as columns mean and std by method, those that can be read."""
    return printed.dropna(subset="value").set_index("method")[["value", "std"]].set_axis(["mean", "std"], axis=1)


@styled
def accuracies(tidy: pd.DataFrame, printed: pd.DataFrame, methods: Sequence[str]) -> Figure:
    """Accuracy of every method with the std over seeds, one panel for each alpha, beside the paper's CIFAR-10 numbers.

    tidy: alpha, seed, method, headline, pooled; printed: pFedSim's Table 3; methods from top to bottom.
    """
    ours = tidy[tidy["headline"]]
    paper = printed[printed["dataset"] == "cifar10"]
    panels = {
        f"Dir({alpha:g})": {
            "ours": mean_and_std(ours[ours["alpha"] == alpha], "pooled"),
            "paper, CIFAR-10": cells(paper[paper["partition_param"] == alpha]),
        }
        for alpha in sorted(tidy["alpha"].unique())
    }
    figure = dot_panels(panels, [m for m in methods if m in set(tidy["method"])], "accuracy, % of all test samples")
    figure.axes[0].legend(frameon=False, loc="lower left")
    return figure


@styled
def accuracies_by_scale(tidy: pd.DataFrame, printed: pd.DataFrame, methods: Sequence[str]) -> Figure:
    """Mean accuracy of the clients by method with the std over seeds, one panel a scale: on their own test parts, and on those of all.

    tidy: scale, clients, seed, method, headline, tested_on, accuracy; printed: a table of pFedSV; methods from top to bottom.
    """
    ours, panels = tidy[tidy["headline"]], {}
    for scale, clients in (("few", 10), ("many", 100)):
        own = ours[ours["scale"] == scale]
        paper = printed[(printed["dataset"] == "cifar10") & (printed["clients"] == clients)]
        panels[f"{own['clients'].iloc[0]} clients (paper: {clients})"] = {
            "ours, own test parts": mean_and_std(own[own["tested_on"] == "own"], "accuracy"),
            "ours, all classes": mean_and_std(own[own["tested_on"] == "all"], "accuracy"),
            "paper, CIFAR-10": cells(paper),
        }
    figure = dot_panels(panels, [m for m in methods if m in set(tidy["method"])], "accuracy, %, mean over clients")
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside right center", frameon=False)
    return figure
