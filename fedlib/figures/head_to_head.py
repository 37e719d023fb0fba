"""Figures of the head-to-head: many methods on several tasks."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.figure import Figure

from fedlib.figures.accuracy import interval
from fedlib.figures.base import axes_of, colours, styled
from fedlib.figures.looks import MARKERS, looks, proper


@styled
def rates(chosen: pd.DataFrame) -> Figure:
    """Accuracy on validation parts against the learning rate, one panel a task; a ring marks the rate in use.

    chosen: task, method, one column a rate (accuracy in percent as text, or "diverged"), best, "in use".
    """
    names = [name for name in chosen.columns if name not in ("task", "method", "best", "in use")]
    figure, axes = _panels(chosen["task"])
    for ax, (_, own) in zip(axes, chosen.groupby("task", sort=False)):
        for (colour, marker), line in zip(_looks(chosen["method"], own["method"]), own.to_dict("records")):
            seen = {float(rate): float(line[rate]) for rate in names if line[rate] not in ("", "diverged")}
            style = dict(color=colour, marker=marker, linestyle=_line(line["method"]))
            ax.plot(list(seen), seen.values(), **style, markersize=4, linewidth=1)
            if line["in use"] in seen:
                used = line["in use"]
                ax.plot(used, seen[used], "o", color=colour, markersize=10, markerfacecolor="none")
        ax.set_xscale("log")
        ax.set_xticks([float(rate) for rate in names], names)
        ax.minorticks_off()
        ax.set(xlabel="learning rate")
    axes[0].set_ylabel("accuracy on validation parts, %")
    return _with_legend(figure, chosen["method"])


@styled
def by_bytes(curves: pd.DataFrame) -> Figure:
    """Accuracy against what a client has sent and received so far, one panel a task, the mean over seeds.

    curves: task, method, share (of the bytes of FedAvg's whole run, a dotted line on a logarithmic axis), accuracy in
    percent. What sends nothing is a level line at its last accuracy.
    """
    figure, axes = _panels(curves["task"])
    for ax, (_, own) in zip(axes, curves.groupby("task", sort=False)):
        drawn = _looks(curves["method"], own["method"].unique())
        for (colour, marker), (name, line) in zip(drawn, own.groupby("method", sort=False)):
            if line["share"].any():
                style = dict(color=colour, marker=marker, linestyle=_line(name))
                ax.plot(line["share"], line["accuracy"], **style, markersize=4, linewidth=1)
            else:
                ax.axhline(line["accuracy"].iloc[-1], color=colour, linestyle="--", linewidth=1)
        ax.axvline(1, color="black", linestyle=":", linewidth=1)
        ax.set_xscale("log")
        ax.set_xticks(ticks := [0.1, 0.2, 0.5, 1, 2, 5], [f"{tick:g}" for tick in ticks])
        ax.minorticks_off()
        ax.set(xlabel="bytes, FedAvg's whole run = 1")
    axes[0].set_ylabel("accuracy, %, mean over clients")
    return _with_legend(figure, curves["method"])


@styled
def by_images(cells: pd.DataFrame) -> Figure:
    """Accuracy against the training images of a client (logarithmic), and each method's lead over training alone.

    cells: row, images, mean, low, high; lead, lead_low, lead_high, over training alone; in percent and points.
    """
    figure, ((left, right),) = axes_of(12.5, 4.2, 1, 2)
    numbers, names = sorted(cells["images"].unique()), list(dict.fromkeys(cells["row"]))
    drawn = looks(names)
    for number, (name, own) in enumerate(cells.groupby("row", sort=False)):
        own, (colour, marker) = own.sort_values("images"), drawn[name]
        shift = 1 + 0.015 * (number - len(names) / 2)
        for ax, before in ((left, ""), (right, "lead_")):
            if before and name == "local":
                continue
            shown = own.assign(
                mean=own["lead" if before else "mean"], low=own[before + "low"], high=own[before + "high"]
            )
            ax.plot(shown["images"] * shift, shown["mean"], color=colour, linestyle=_line(name), linewidth=1)
            interval(ax, shown["images"] * shift, shown, marker, colour, 4, proper(name))
    right.axhline(0, color="black", linewidth=0.8)
    for ax, label in ((left, "accuracy, %, mean over clients"), (right, "points above training alone")):
        ax.set_xscale("log")
        ax.set_xticks(numbers, [str(n) for n in numbers])
        ax.minorticks_off()
        ax.grid(axis="y", color="#eeeeee")
        ax.set(xlabel="training images of a client", ylabel=label)
    figure.legend(*left.get_legend_handles_labels(), loc="outside right center", frameon=False)
    return figure


@styled
def leads_over_tuned(by_task: pd.DataFrame) -> Figure:
    """Every method's lead over FedAvg + FT, a row a method, a colour a task.

    by_task: row, column (the task), difference, low, high, in points.
    """
    rows, tasks = (list(dict.fromkeys(by_task[name])) for name in ("row", "column"))
    figure, ((ax,),) = axes_of(8.5, 0.34 * len(rows) + 1.2)
    for number, (name, own) in enumerate(by_task.groupby("column", sort=False)):
        at = own["row"].map(rows.index) + (number - (len(tasks) - 1) / 2) * 0.17
        drawn = own.rename(columns={"difference": "mean"})
        interval(ax, at, drawn, MARKERS[number], colours(len(tasks))[number], 4, name, horizontal=True)
    ax.axvline(0, color="black", linewidth=0.8)
    ax.set_yticks(range(len(rows)), map(proper, rows))
    ax.invert_yaxis()
    ax.grid(axis="x", color="#eeeeee")
    ax.set(xlabel=f"points above {proper('fedavg_ft')}")
    figure.legend(*ax.get_legend_handles_labels(), loc="outside right center", frameon=False)
    return figure


def _panels(tasks: pd.Series):
    """One panel a task, side by side."""
    titles = list(dict.fromkeys(tasks))
    figure, axes = axes_of(3.4 * len(titles) + 1.6, 3.6, 1, len(titles))
    for ax, title in zip(axes[0], titles):
        ax.set_title(title)
    return figure, axes[0]


def _looks(every: pd.Series, names: Sequence[str]) -> list[tuple[str, str]]:
    """Colour and marker of these methods, the same in all panels."""
    found = looks(list(dict.fromkeys(every)))
    return [found[name] for name in names]


def _line(name: str) -> str:
    """A variant, as in "pfedsv, D+C", has its method's colour and a broken line."""
    return "-." if "," in name else "-"


def _with_legend(figure: Figure, methods: pd.Series) -> Figure:
    """With every method once beside the panels."""
    from matplotlib.lines import Line2D

    entries = [
        Line2D([], [], color=colour, marker=marker, linestyle=_line(name), markersize=4, label=proper(name))
        for name, (colour, marker) in looks(list(dict.fromkeys(methods))).items()
    ]
    figure.legend(handles=entries, loc="outside right center", frameon=False)
    return figure
