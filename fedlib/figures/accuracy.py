"""Accuracies as dots with their 95 % intervals, beside the paper's."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from fedlib.figures.base import INK, PAPER, REFERENCE, axes_of, styled
from fedlib.figures.looks import proper, titled

SERIES = (("o", INK, 5), ("s", REFERENCE, 4))  # ours, one after the other: marker, colour, size
ABREAST = 4  # most panels side by side
PRINTED = ("D", PAPER, 4)


@styled
def accuracies(cells: pd.DataFrame) -> Figure:
    """Accuracy of every row, one panel a column, four of them side by side; columns of which nothing of ours is there
    are left out. cells: column, row, series, mean, low, high, in percent, rows from top to bottom.

    Bars are 95 % intervals, or one printed std to each side for the series "paper";
    a dot without a bar has no known interval.
    """
    ours = cells[cells["series"] != "paper"]
    rows, columns = list(dict.fromkeys(cells["row"])), list(dict.fromkeys((ours if len(ours) else cells)["column"]))
    wide = max(1, min(len(columns), ABREAST))
    high = -(-len(columns) // wide)
    figure, grid = axes_of(4.6 * wide, high * (0.28 * len(rows) + 1.1), high, wide, sharey=True)
    axes = grid.ravel()
    for ax in axes[len(columns) :]:
        ax.axis("off")
    names = list(dict.fromkeys(cells["series"]))
    styles = {"paper": PRINTED} | dict(zip((name for name in names if name != "paper"), SERIES))
    shifts = dict(zip(names, np.linspace(-0.2, 0.2, len(names)) if len(names) > 1 else (0,)))
    for ax, column in zip(axes, columns):
        ax.hlines(range(len(rows)), 0, 100, color="#eeeeee", zorder=0)
        own = cells[cells["column"] == column]
        for name, points in own.groupby("series", sort=False):
            y = np.array([rows.index(row) for row in points["row"]]) + shifts[name]
            interval(ax, y, points, *styles[name], label=name, horizontal=True)
        ends = own[["mean", "low", "high"]].replace([-np.inf, np.inf], np.nan)
        ax.set(title=titled(column), xlabel="accuracy, %")
        ax.set_xlim(max(0, ends.min().min() - 4), min(100, ends.max().max() + 4))
    axes[0].set_yticks(range(len(rows)), map(proper, rows))
    axes[0].invert_yaxis()
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right center", frameon=False)
    return figure


def interval(
    ax, at, points: pd.DataFrame, marker: str, colour: str, size: float, label: str, horizontal: bool = False
) -> None:
    """Dots at `mean` with bars from `low` to `high` where these are known: one seed alone has none."""
    points = points.astype({"low": float, "high": float})  # of a table without rows, too
    known = np.isfinite(points["low"]) & np.isfinite(points["high"]) & (points["high"] > points["low"])
    at, bars = np.asarray(at), points[known]
    draw = ax.hlines if horizontal else ax.vlines
    draw(at[known.to_numpy()], bars["low"], bars["high"], color=colour, linewidth=1.3)
    x, y = (points["mean"], at) if horizontal else (at, points["mean"])
    ax.plot(x, y, marker, color=colour, markersize=size, linestyle="", label=label)


@styled
def parameter_curve(cells: pd.DataFrame, values: Mapping[str, float], label: str) -> Figure:
    """Accuracy against a hyper-parameter, one panel a column, ours above and the paper's below, with equal axes where
    the numbers are alike, as on the paper's data; other rows are level lines.

    cells: as in `accuracies`; values: the parameter by row; label: of the axis.
    """
    columns = list(dict.fromkeys(cells["column"]))
    figure, axes = axes_of(4.6 * len(columns), 5.2, 2, len(columns), sharex=True)
    for (above, under), column in zip(axes.T, columns):
        own = cells[cells["column"] == column]
        for ax, series, colour in ((above, "ours", INK), (under, "paper", PAPER)):
            sweep = own[(own["series"] == series) & own["row"].isin(values)]
            x = sweep["row"].map(values)
            ax.plot(x, sweep["mean"], color=colour, linewidth=1.3)
            interval(ax, x, sweep, "o", colour, 4, "pFedSim")
        others = own[(own["series"] == "ours") & ~own["row"].isin(values)]
        for style, line in zip((":", "-."), others.itertuples()):
            above.axhline(line.mean, color=REFERENCE, linestyle=style, linewidth=1.2, label=proper(line.row))
        above.set(title=f"{column}, ours", ylabel="accuracy, %")
        under.set(title=f"{column}, paper, CIFAR-10", ylabel="accuracy, %", xlabel=label)
        _equal_where_alike(above, under)
    axes[0, 0].legend(frameon=False, loc="lower left")
    return figure


def _equal_where_alike(*axes) -> None:
    """Give axes that are compared the same limits of y, unless most of what one shows would be outside another's."""
    limits = np.array([ax.get_ylim() for ax in axes])
    common = limits[:, 1].min() - limits[:, 0].max()
    if common > 0.5 * np.diff(limits).min():
        for ax in axes:
            ax.set_ylim(limits[:, 0].min(), limits[:, 1].max())
