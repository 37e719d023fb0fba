"""Figures of the head-to-head: many methods on several tasks."""

from __future__ import annotations

from collections import Counter

import pandas as pd
from matplotlib.figure import Figure

from fedlib.analysis.names import proper
from fedlib.figures.accuracy import interval
from fedlib.figures.base import (
    MARKERS,
    OTHERS,
    axes_of,
    colour_of,
    colours,
    headline,
    key_below,
    logarithmic,
    name_lines,
    styled,
    tiles,
)

SHOWN = ("pfedsim", "fedsimsup", "pfedcs", "pfedsv", "fedavg_ft")  # with a colour; the others are grey


@styled
def rates(chosen: pd.DataFrame) -> Figure:
    """Accuracy on validation parts against the learning rate, one panel a task; a ring marks the rate in use.

    chosen: task, method, one column a rate (accuracy in percent as text, or "diverged"), best, "in use".
    """
    names = [name for name in chosen.columns if name not in ("task", "method", "best", "in use")]
    figure, axes = _panels(chosen["task"])
    for ax, (_, own) in zip(axes, chosen.groupby("task", sort=False)):
        for line in own.to_dict("records"):
            seen = {float(rate): float(line[rate]) for rate in names if line[rate] not in ("", "diverged")}
            (drawn,) = ax.plot(list(seen), seen.values(), **_style(line["method"]))
            if (used := line["in use"]) in seen:
                ax.plot(used, seen[used], "o", color=drawn.get_color(), markersize=7, markerfacecolor="none")
        logarithmic(ax, map(float, names), "learning rate")
    _name(axes, chosen["method"], "validation accuracy, %")
    count = Counter(f"{float(rate):g}" for rate in chosen["best"] if rate)
    said = " and ".join(f"{rate} for {count[rate]}" for rate, _ in count.most_common(2))
    return headline(figure, f"No learning rate is best for all: of {count.total()} pairs of method and task, {said}")


@styled
def by_bytes(curves: pd.DataFrame) -> Figure:
    """Accuracy against what a client has sent and received so far, one panel a task, the mean over seeds.

    curves: task, method, share (of the bytes of FedAvg's whole run, a dotted line on a logarithmic axis), accuracy in
    percent. What sends nothing is a level line at its last accuracy.
    """
    figure, axes = _panels(curves["task"])
    for ax, (_, own) in zip(axes, curves.groupby("task", sort=False)):
        for name, line in own.groupby("method", sort=False):
            if line["share"].any():
                ax.plot(line["share"], line["accuracy"], **_style(name))
            else:
                ax.axhline(line["accuracy"].iloc[-1], color="black", linestyle="--", linewidth=1, label=proper(name))
        ax.axvline(1, color="black", linestyle=":", linewidth=1)
        logarithmic(ax, (0.1, 0.3, 1, 3), "bytes, FedAvg's whole run = 1")
    _name(axes, curves["method"], "accuracy, %, mean over clients")
    within = curves[curves["share"] <= 1 + 1e-9].groupby(["task", "method"], sort=False)["accuracy"].last()
    first = Counter(best[1] for best in within.groupby("task").idxmax())
    of = f" of {first.total()} tasks" if first.total() > 1 else ""
    said = ", ".join(proper(name) + f" on {number}" * bool(of) for name, number in first.most_common())
    return headline(figure, f"Within FedAvg's communication, the most accurate: {said}{of}")


@styled
def by_images(cells: pd.DataFrame) -> Figure:
    """Accuracy against the training images per client (logarithmic), and each method's lead over local-only training.

    cells: row, images, mean, low, high; lead, lead_low, lead_high, over local-only training; in percent and points.
    """
    figure, ((left, right),) = axes_of(3.2, 1, 2)
    numbers, names = sorted(cells["images"].unique()), list(dict.fromkeys(cells["row"]))
    for number, (name, own) in enumerate(cells.groupby("row", sort=False)):
        own, style = own.sort_values("images"), _style(name)
        shift = 1 + 0.015 * (number - len(names) / 2)
        leads = own.assign(mean=own["lead"], low=own["lead_low"], high=own["lead_high"])
        panels = [(left, own)] if name == "local" else [(left, own), (right, leads)]
        for ax, shown in panels:
            at = shown["images"] * shift
            ax.plot(at, shown["mean"], **style)
            interval(ax, at, shown, style["marker"], style["color"], 3, label="_")
    right.axhline(0, color="black", linewidth=0.8)
    for ax, label in ((left, "accuracy, %, mean over clients"), (right, "points above Local")):
        logarithmic(ax, numbers, "training images per client")
        ax.set_ylabel(label)
    name_lines((left, right))
    lead = cells[cells["row"] != "local"].groupby("images")["lead"].agg(lambda own: (own > 0).sum())
    said = ", ".join(f"{count} at {images:g}" for images, count in lead.items())
    return headline(figure, f"Methods above local-only training, by images per client: {said} (of {len(names) - 1})")


@styled
def leads_over_tuned(by_task: pd.DataFrame) -> Figure:
    """Every method's lead over FedAvg+FT, a row a method, a colour a task.

    by_task: row, column (the task), difference, low, high, in points.
    """
    rows, tasks = (list(dict.fromkeys(by_task[name])) for name in ("row", "column"))
    figure, ((ax,),) = axes_of(0.32 * len(rows) + 1.3)
    for number, (name, own) in enumerate(by_task.groupby("column", sort=False)):
        at = own["row"].map(rows.index) + (number - (len(tasks) - 1) / 2) * 0.17
        drawn = own.rename(columns={"difference": "mean"})
        interval(ax, at, drawn, MARKERS[number], colours(len(tasks))[number], 4, label=name, horizontal=True)
    ax.axvline(0, color="black", linewidth=0.8)
    ax.set_yticks(range(len(rows)), map(proper, rows))
    ax.invert_yaxis()
    ax.grid(axis="x", color="#eeeeee")
    ax.set(xlabel=f"points above {proper('fedavg_ft')}")
    key_below(figure, ax)
    ahead = (by_task["difference"] > 0).groupby(by_task["row"]).all()
    above = [proper(row) for row in rows if ahead[row]] or ["No method"]
    said = f"{' and '.join(above)} {'is' if len(above) == 1 else 'are'} above {proper('fedavg_ft')}"
    return headline(figure, f"{said} on {tasks[0] if len(tasks) == 1 else f'all {len(tasks)} tasks'}")


def _panels(tasks: pd.Series):
    """One panel a task, two side by side."""
    titles = list(dict.fromkeys(tasks))
    figure, axes = tiles(len(titles), 2, 2.4, 0.3)
    for ax, title in zip(axes, titles):
        ax.set_title(title)
    return figure, axes


def _style(name: str) -> dict:
    """How the line of a method is drawn, the same in all panels; a variant, as in "pfedsv, D+C", has its method's
    colour and a broken line."""
    method, _, variant = name.partition(", ")
    own = method in SHOWN
    look = dict(color=colour_of(method) if own else OTHERS, marker=MARKERS[SHOWN.index(method)] if own else "")
    look |= dict(linewidth=1.3 if own else 0.7, zorder=3 if own else 2, linestyle="-." if variant else "-")
    return look | dict(markersize=3, label=proper(name))


def _name(axes, methods: pd.Series, label: str) -> None:
    """With every method's name beside the end of its line."""
    for ax in axes:
        ax.set_ylabel(label if ax.get_subplotspec().is_first_col() else "")
    name_lines(axes)
