"""Figures of the head-to-head: many methods on several tasks."""

from __future__ import annotations

from collections.abc import Iterable

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
    styles, (figure, axes) = _styles(chosen["method"]), _panels(chosen["task"])
    for ax, (_, own) in zip(axes, chosen.groupby("task", sort=False)):
        for line in own.to_dict("records"):
            seen = {float(rate): float(line[rate]) for rate in names if line[rate] not in ("", "diverged")}
            (drawn,) = ax.plot(list(seen), seen.values(), **styles[line["method"]])
            if (used := line["in use"]) in seen:
                ax.plot(used, seen[used], "o", color=drawn.get_color(), markersize=10, markerfacecolor="none")
        _logarithmic(ax, map(float, names), "learning rate")
    axes[0].set_ylabel("accuracy on validation parts, %")
    return _with_legend(figure, styles)


@styled
def by_bytes(curves: pd.DataFrame) -> Figure:
    """Accuracy against what a client has sent and received so far, one panel a task, the mean over seeds.

    curves: task, method, share (of the bytes of FedAvg's whole run, a dotted line on a logarithmic axis), accuracy in
    percent. What sends nothing is a level line at its last accuracy.
    """
    styles, (figure, axes) = _styles(curves["method"]), _panels(curves["task"])
    for ax, (_, own) in zip(axes, curves.groupby("task", sort=False)):
        for name, line in own.groupby("method", sort=False):
            if line["share"].any():
                ax.plot(line["share"], line["accuracy"], **styles[name])
            else:
                ax.axhline(line["accuracy"].iloc[-1], color=styles[name]["color"], linestyle="--", linewidth=1)
        ax.axvline(1, color="black", linestyle=":", linewidth=1)
        _logarithmic(ax, (0.1, 0.2, 0.5, 1, 2, 5), "bytes, FedAvg's whole run = 1")
    axes[0].set_ylabel("accuracy, %, mean over clients")
    return _with_legend(figure, styles)


@styled
def by_images(cells: pd.DataFrame) -> Figure:
    """Accuracy against the training images of a client (logarithmic), and each method's lead over training alone.

    cells: row, images, mean, low, high; lead, lead_low, lead_high, over training alone; in percent and points.
    """
    figure, ((left, right),) = axes_of(12.5, 4.2, 1, 2)
    numbers, names = sorted(cells["images"].unique()), list(dict.fromkeys(cells["row"]))
    styles = _styles(cells["row"])
    for number, (name, own) in enumerate(cells.groupby("row", sort=False)):
        own, style = own.sort_values("images"), styles[name]
        shift = 1 + 0.015 * (number - len(names) / 2)
        for ax, before in ((left, ""), (right, "lead_")):
            if before and name == "local":
                continue
            shown = own.assign(
                mean=own["lead" if before else "mean"], low=own[before + "low"], high=own[before + "high"]
            )
            at = shown["images"] * shift
            ax.plot(at, shown["mean"], color=style["color"], linestyle=style["linestyle"], linewidth=1)
            interval(ax, at, shown, style["marker"], style["color"], style["markersize"], proper(name))
    right.axhline(0, color="black", linewidth=0.8)
    for ax, label in ((left, "accuracy, %, mean over clients"), (right, "points above training alone")):
        _logarithmic(ax, numbers, "training images of a client")
        ax.grid(axis="y", color="#eeeeee")
        ax.set_ylabel(label)
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


def _styles(methods: pd.Series) -> dict[str, dict]:
    """How the line of every method is drawn, the same in all panels; a variant, as in "pfedsv, D+C", has its method's
    colour and a broken line."""
    return {
        name: dict(color=colour, marker=marker, linestyle="-." if "," in name else "-", markersize=4, linewidth=1)
        for name, (colour, marker) in looks(list(dict.fromkeys(methods))).items()
    }


def _logarithmic(ax, ticks: Iterable[float], label: str) -> None:
    """A logarithmic axis of x with these ticks alone."""
    ticks = list(ticks)
    ax.set_xscale("log")
    ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.minorticks_off()
    ax.set_xlabel(label)


def _with_legend(figure: Figure, styles: dict[str, dict]) -> Figure:
    """With every method once beside the panels."""
    from matplotlib.lines import Line2D

    entries = [Line2D([], [], **style, label=proper(name)) for name, style in styles.items()]
    figure.legend(handles=entries, loc="outside right center", frameon=False)
    return figure
