"""Figures of the lessons: curves, paths of parameters, planes of features."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from fedlib.analysis.names import proper, titled
from fedlib.figures.base import (
    APART,
    INK,
    MARKERS,
    OTHERS,
    PAPER,
    REFERENCE,
    axes_of,
    colour_of,
    colours,
    headline,
    logarithmic,
    looks,
    name_lines,
    styled,
    thinned,
    tiles,
)  # fmt: skip

LONG = 25  # letters of a name that needs the width of a page
Curve = tuple[Sequence[int], Sequence[float]]  # rounds and accuracies as fractions, what `RunResult.curve` returns


@styled
def accuracy_by_round(
    panels: dict[str, dict[str, Sequence[Curve]]], xlabel: str = "round", about: str = "", says: str = ""
) -> Figure:
    """Accuracy over the rounds: a line for the mean of the seeds, a band for their range.

    panels: by title and name one curve a seed. More than three are drawn in two columns; a row has one axis. about: the
    name that the figure is about, which alone has a colour then; says: the title.
    """
    names = list(dict.fromkeys(name for lines in panels.values() for name in lines))
    columns = len(panels) if len(panels) <= 3 else 2
    columns = columns if max(map(len, names)) < LONG else 1
    figure, axes = tiles(len(panels), columns, 2.5, 0.3, sharey="row")
    looked = looks(names) | {about: (INK, "o")}
    if about in names:
        looked |= {name: (OTHERS, "") for name in names if name != about}
    for ax, (title, lines) in zip(axes, panels.items()):
        for name, seeds in lines.items():
            x, values, (colour, marker) = seeds[0][0], 100 * np.array([y for _, y in seeds]), looked[name]
            width = 1 if colour == OTHERS else 1.6
            ax.plot(x, values.mean(0), color=colour, marker=marker, markersize=3, linewidth=width, label=proper(name))
            ax.fill_between(x, values.min(0), values.max(0), color=colour, alpha=0.15, linewidth=0)
        ax.set(title=titled(title), xlabel=xlabel)
    for first in axes[::columns]:
        highest = first.get_ylim()[1]
        first.set(ylabel="accuracy, %", ylim=(0, 100 if highest > 50 else highest))
    name_lines(axes)
    return headline(figure, says) if says else figure


@styled
def paths_in_a_plane(
    panels: dict[str, tuple[dict[str, np.ndarray], np.ndarray | None]], goals: dict[str, Sequence], names
) -> Figure:
    """Where clients, or a server by several methods, walk in a plane of two numbers.

    panels: by title, paths [steps + 1, 2] by name and the clients' weighted average, if there is one; goals: best
    points by label, one or several; names: of the two numbers.
    """
    figure, axes = axes_of(2.6, 1, len(panels), sharex=True, sharey=True)
    for ax, (title, (paths, average)) in zip(axes[0], panels.items()):
        for (name, path), colour in zip(paths.items(), colours(len(paths))):
            ax.plot(*path.T, "o-", color=colour, markersize=3, linewidth=1, label=name)
            ax.plot(*path[0], "s", color="black", markersize=6, label="start")
        if average is not None:
            ax.plot(*average, "D", color=REFERENCE, markersize=7, label="weighted average")
        for (label, points), marker in zip(goals.items(), ("*", "x", "+")):
            ax.plot(*np.transpose(points), marker, color=PAPER, markersize=10, label=label)
        ax.set(title=title, xlabel=names[0])
    axes[0, 0].set_ylabel(names[1])
    entries = {label: line for line, label in zip(*axes[0, 0].get_legend_handles_labels())}
    figure.legend(entries.values(), entries.keys(), loc="outside right center", frameon=False)
    return figure


@styled
def parabolas(clients: dict[str, tuple[float, float]], walks: dict[str, Sequence[float]]) -> Figure:
    """Clients whose loss is a/2 (w - m)²: the losses with the place where each walk ends, and the walks by round.

    clients: (a, m) by name; walks: the global w before round 1 and after every round, by method.
    """
    figure, axes = axes_of(2.8, 1, 2)
    left, right = axes[0]
    values, total = np.linspace(-0.6, 4.6, 200), 0
    for (name, (a, m)), line in zip(clients.items(), ("--", ":")):
        total = total + a / 2 * (values - m) ** 2 / len(clients)
        left.plot(values, a / 2 * (values - m) ** 2, line, color=PAPER, label=f"loss of {name}")
    left.plot(values, total, color="black", label="mean loss")
    best = sum(a * m for a, m in clients.values()) / sum(a for a, _ in clients.values())
    for (name, walk), colour, marker in zip(walks.items(), colours(len(walks)), MARKERS):
        end = walk[-1]
        loss = sum(a / 2 * (end - m) ** 2 for a, m in clients.values()) / len(clients)
        left.plot(end, loss, marker, color=colour, markersize=7)
        right.plot(walk, color=colour, marker=marker, markersize=4, label=name)
    right.axhline(best, color="black", linewidth=0.8)
    left.set(title="losses, and where each method converges", xlabel="w", ylabel="loss", ylim=(0, 8))
    right.set(title="the global w by round (line: the best w)", xlabel="round", ylabel="w")
    left.legend(frameon=False, loc=(0.02, 0.4))
    figure.legend(*right.get_legend_handles_labels(), loc="outside right center", frameon=False)
    return figure


@styled
def curves(
    panels: dict[str, pd.DataFrame],
    xlabel: str | Sequence[str] = "",
    ylabel: str | Sequence[str] = "",
    marks: dict[str, pd.DataFrame] | None = None,
    ylim: tuple[float, float] | None = None,
    log: str = "",
) -> Figure:
    """Lines, a table a panel: its index is x, each column a line;
    names that agree before a comma share a colour, which is the method's own if it is one; the rest sets the dash.

    xlabel, ylabel: for all panels, or for each. marks: points of a panel, one a row, columns x and y. log: which axes
    are logarithmic, "x", "y" or "xy".
    """
    figure, axes = tiles(len(panels), 2, 2.5, 0.2)
    labels = [[text] * len(panels) if isinstance(text, str) else text for text in (xlabel, ylabel)]
    names = dict.fromkeys(column.partition(", ")[0] for table in panels.values() for column in table.columns)
    known = (INK, REFERENCE, "#4f9d69", "#d9902f", "#7d5ba6", PAPER, *APART[4:6], *APART[8:])  # then from the first on
    own = {colour: name for name in reversed(names) if (colour := colour_of(name))}  # the first of two that share one
    by_name = {name: colour for colour, name in own.items()}
    free = [colour for colour in known if colour not in own]
    by_name |= {name: free[k % len(free)] for k, name in enumerate(name for name in names if name not in by_name)}
    for k, (ax, (title, table)) in enumerate(zip(axes, panels.items())):
        seen: dict[str, int] = {}
        for column in table.columns:
            name = column.partition(", ")[0]
            line = ("-", "--", ":", "-.")[seen.setdefault(name, 0) % 4]
            seen[name] += 1
            few = "o" if len(table) <= 12 else None
            ax.plot(table.index, table[column], line, color=by_name[name], marker=few, markersize=3.5, label=column)
        points = (marks or {}).get(title)
        if points is not None:
            ax.plot(points["x"], points["y"], "o", color="black", markersize=4, zorder=3)
        if "y" in log:
            ax.set_yscale("log")
        ax.set(title=title, xlabel=labels[0][k], ylabel=labels[1][k], ylim=ylim)
        if "x" in log:
            logarithmic(ax, table.index, labels[0][k])
        elif pd.api.types.is_integer_dtype(table.index):
            ax.set_xticks(thinned(int(table.index.max()) + 1))
    name_lines(axes)
    return figure
