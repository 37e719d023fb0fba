"""Accuracies as dots with their 95 % CI, and the paper's."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from fedlib.analysis.names import proper, titled
from fedlib.figures.base import INK, OTHERS, PAPERS, axes_of, headline, key_below, styled

SERIES = (("o", 4.5), ("s", 3), ("^", 3))  # ours, one after the other: marker and size
ABREAST = 4  # most panels side by side
PRINTED = ("D", 3.5)


@styled
def accuracies(cells: pd.DataFrame, about: str = "", alike: bool = False, title: str = "") -> Figure:
    """Accuracy of every row, one panel a column, four of them side by side; columns of which nothing of ours is there
    are left out. cells: column, row, series, mean, low, high, in percent, rows from top to bottom; about: the row that
    the figure is about: it and its variants have a colour (else the papers' methods have); alike: whether panels are
    compared, and have the same axis; title: default `leaders`. cells.attrs["data"]: the paper's data set and ours, said
    where they differ. Bars are 95 % CI, or one reported std to each side ("paper"); dots without one have none known.
    """
    ours = cells[cells["series"] != "paper"]
    rows, columns = list(dict.fromkeys(cells["row"])), list(dict.fromkeys((ours if len(ours) else cells)["column"]))
    wide = max(1, min(len(columns), ABREAST))
    high = -(-len(columns) // wide)
    figure, grid = axes_of(high * (0.18 * len(rows) + 0.75) + 0.5, high, wide, sharey=True, sharex=alike)
    axes = grid.ravel()
    for ax in axes[len(columns) :]:
        ax.axis("off")
    strong = {row for row in rows if row == about or row.partition(", ")[0] in ([about] if about in rows else PAPERS)}
    names = list(dict.fromkeys(cells["series"]))
    styles = {"paper": PRINTED} | dict(zip((name for name in names if name != "paper"), SERIES))
    instead = cells.attrs["data"][1] if of_data("ours", cells) != "ours" and not cells.attrs["data"][0] else ""
    shifts = dict(zip(names, np.linspace(-0.2, 0.2, len(names)) if len(names) > 1 else (0,)))
    for ax, column in zip(axes, columns):
        ax.hlines(range(len(rows)), 0, 100, color="#eeeeee", linewidth=0.8, zorder=0)
        own = cells[cells["column"] == column]
        for name, points in own.groupby("series", sort=False):
            inside = points["row"].isin(strong)
            for colour, group in ((OTHERS, points[~inside]), (INK, points[inside])):
                y = np.array([rows.index(row) for row in group["row"]]) + shifts[name]
                label = of_data(name, cells) if colour == OTHERS else f"_{name}"
                (marker, size), face = styles[name], "white" if name == "paper" else colour
                interval(ax, y, group, marker, colour, size, face, label=label, horizontal=True)
        ends = (cells if alike else own)[["mean", "low", "high"]].replace([-np.inf, np.inf], np.nan)
        ax.set(title=textwrap.fill(titled(column, instead), 20 if wide > 2 else 60), xlabel="accuracy, %")
        ax.set_xlim(max(0, ends.min().min() - 4), min(100.5, ends.max().max() + 4))
    axes[0].set_yticks(range(len(rows)), map(proper, rows))
    for row, label in zip(rows, axes[0].get_yticklabels()):
        label.set(color=INK if row in strong else "black", weight="bold" if row in strong else "normal")
    axes[0].set_ylim(len(rows) - 0.4, -0.6)
    key_below(figure, axes[0])
    return headline(figure, title or leaders(cells[cells["column"].isin(columns)], about))


def of_data(series: str, cells: pd.DataFrame) -> str:
    """A series with its data set, where ours is another one than the paper's."""
    printed, own = cells.attrs.get("data", ("", ""))
    data = "" if own in (printed, "") else printed if series == "paper" else own
    return f"{series}, {titled(data)}" if data else series


def leaders(cells: pd.DataFrame, about: str = "") -> str:
    """Who has the highest mean accuracy in how many columns, ours and in the paper, in a sentence; about: the row that
    is named first, if it is there; then columns in which it was not run do not count."""
    ours, found = cells[(cells["series"] != "paper") & cells["mean"].notna()], {}
    if about in set(ours["row"]):
        cells = cells[~cells["column"].isin(set(ours["column"]) - set(ours.loc[ours["row"] == about, "column"]))]
    for series in dict.fromkeys(["paper", *cells["series"]]):
        own = cells[cells["series"] == series].dropna(subset=["mean"]).reset_index(drop=True)
        several = own[own.groupby("column")["row"].transform("nunique") > 1]
        best = several.loc[several.groupby("column", sort=False)["mean"].idxmax(), "row"] if len(several) else []
        found[series] = Counter(best)
    first = next((name for name in found if name != "paper" and found[name]), None)
    if first is None:
        return "No two rows to compare were run yet"
    count, printed, there = found[first], found["paper"], set(cells["row"])
    of = f" ({first})" if first != "ours" else ""
    if about in there and count.total() > 1:
        text = f"{proper(about)} has the highest mean accuracy{of} in {count[about]} of {count.total()} settings"
        text += f" (paper: {printed[about]} of {printed.total()})" if printed else ""
        rival = next((row for row, _ in count.most_common() if row != about), None)
        return f"{text}, {proper(rival)} in {count[rival]}" if rival else text
    own = cells.loc[cells["series"] == first].dropna(subset=["mean"])["row"].nunique()
    few = f" of the {own} rows that were run" if own < len(there) else ""
    text = f"Highest mean accuracy{few}{of}: {_listed(count)}"
    rows = cells.loc[cells["series"] == "paper", "row"].nunique()  # of which the paper has numbers
    return f"{text} (the paper: {_listed(printed)})" if printed and 2 * rows > len(there) else text


def _listed(count: Counter) -> str:
    """Three rows, and in how many settings each; of more rows, that there are others."""
    said = [(f"“{row}”" if row.islower() and proper(row) == row else proper(row), n) for row, n in count.most_common(3)]
    others = " and others" if len(count) > len(said) else ""
    return ", ".join(f"{row} in {n}" if count.total() > 1 else row for row, n in said) + others


def interval(
    ax, at, points: pd.DataFrame, marker: str, colour: str, size: float, face: str = "", *, label: str,
    horizontal: bool = False,
) -> None:  # fmt: skip
    """Dots at `mean` with bars from `low` to `high` where these are known: one seed alone has none. face: the inner
    colour of the marks, if another one."""
    points = points.astype({"low": float, "high": float})  # of a table without rows, too
    known = np.isfinite(points["low"]) & np.isfinite(points["high"]) & (points["high"] > points["low"])
    at, bars = np.asarray(at), points[known]
    draw = ax.hlines if horizontal else ax.vlines
    draw(at[known.to_numpy()], bars["low"], bars["high"], color=colour, linewidth=1.3)
    x, y = (points["mean"], at) if horizontal else (at, points["mean"])
    look = dict(color=colour, markersize=size, markerfacecolor=face or colour, linestyle="", label=label)
    ax.plot(x, y, marker=marker, **look)


@styled
def parameter_curve(cells: pd.DataFrame, values: Mapping[str, float], label: str, about: str) -> Figure:
    """Accuracy against a hyper-parameter of the method `about`, one panel a column, ours over the paper's; other rows
    of ours are level lines. cells: as in `accuracies`; values: the parameter by row; label: of the axis.
    """
    columns, gains = list(dict.fromkeys(cells["column"])), {}
    figure, (axes,) = axes_of(2.7, 1, len(columns), sharey=True)
    least = f"{label.partition(' (')[0]} = {min(values.values()):g}"
    for ax, column in zip(axes, columns):
        own = cells[cells["column"] == column]
        for series, colour, face in (("paper", OTHERS, "white"), ("ours", INK, INK)):
            sweep = own[(own["series"] == series) & own["row"].isin(values)]
            x = sweep["row"].map(values)
            ax.plot(x, sweep["mean"], color=colour, linewidth=1.3)
            interval(ax, x, sweep, "o", colour, 4, face, label=f"{proper(about)}, {series}")
            if len(sweep):
                gain = sweep["mean"].max() - sweep.loc[x.idxmin(), "mean"]
                gains.setdefault(column, {})[series] = f"{gain:.1f}"
        others = own[(own["series"] == "ours") & ~own["row"].isin(values)]
        for style, line in zip((":", "--"), others.itertuples()):
            ax.axhline(line.mean, color="black", linestyle=style, linewidth=1, label=f"{proper(line.row)}, ours")
        ax.set(title=column, xlabel=label)
    axes[0].set_ylabel("accuracy, %")
    key_below(figure, axes[0])
    beside = {column: f" (paper: {own['paper']})" for column, own in gains.items() if "paper" in own}
    said = [f"{own['ours']} points at {c}{beside.get(c, '')}" for c, own in gains.items() if "ours" in own]
    return headline(figure, f"{proper(about)}'s best minus {least}: {', '.join(said) or 'not run yet'}")
