"""Effects of what papers leave open."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from fedlib.figures.accuracy import interval
from fedlib.figures.base import INK, PAPER, REFERENCE, axes_of, styled
from fedlib.figures.looks import proper


@styled
def choices_by_task(effects: pd.DataFrame, method: str) -> Figure:
    """What every choice does to accuracy, one panel a task.

    effects: task, code, choice, method, mean, low, high, seeds, size (of
    `fedlib.analysis.sensitivity.Sensitivity.effects`).
    """
    tasks, names = list(effects["task"].unique()), effects.loc[effects["code"] != "", "choice"].unique()
    figure, (axes,) = axes_of(3.4 + 3.6 * len(tasks), 0.28 * len(names) + 1.2, 1, max(1, len(tasks)), sharey=True)
    for ax, task in zip(axes, tasks):
        effects_of_choices(ax, effects[effects["task"] == task], method, names)
        ax.set_title(task)
    axes[0].invert_yaxis()
    return figure


def effects_of_choices(ax, effects: pd.DataFrame, method: str, names) -> None:
    """What every choice does to accuracy, in points, with 95 % intervals; grey: what another seed does to `method`.

    The axis is as long as `method` needs; what another one has beyond it is written at the edge, with an arrow.

    effects: code, choice, method, mean, low, high, seeds, size; names: choices from top to bottom.
    """
    shown, names = effects[effects["code"] != ""], list(names)
    if not names:
        ax.text(0.5, 0.5, "no choice was tried yet", transform=ax.transAxes, ha="center", va="center")
        ax.set_axis_off()
        return
    chance = shown[(shown["code"] == "spread") & (shown["method"] == method)]
    band = chance["size"].max()
    ax.axvspan(-band, band, color="#eeeeee", zorder=0, label="by chance, on average")
    methods = [method, *sorted(set(shown["method"]) - {method})]
    ends = _ends(shown[shown["method"] == method], band)
    for k, (name, colour) in enumerate(zip(methods, (INK, REFERENCE, PAPER))):
        own = shown[shown["method"] == name]
        y = np.array([names.index(choice) for choice in own["choice"]]) + 0.26 * (k - (len(methods) - 1) / 2)
        far = np.abs(own["mean"].to_numpy() - np.mean(ends)) > np.ptp(ends) / 2
        interval(ax, y[~far], own[~far], "o", colour, 5, proper(name), horizontal=True)
        for height, row in zip(y[far], own[far].itertuples()):
            left, value = row.mean < ends[0], f"{row.mean:+.1f} [{row.low:+.1f}, {row.high:+.1f}]"
            text, where = (f"\N{LEFTWARDS ARROW} {value}", 0) if left else (f"{value} \N{RIGHTWARDS ARROW}", 1)
            ax.text(ends[where], height + 0.1, text, ha=("left", "right")[where], va="center", color=colour, fontsize=7)
    ax.set_xlim(*ends)
    ax.axvline(0, color="black", linewidth=0.8)
    ax.set_yticks(range(len(names)), names)
    if names:
        ax.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.04), ncols=3)  # above the title
    n = int(shown["seeds"].max()) if len(shown) else 0
    ax.set(xlabel=f"effect on accuracy, points\n(95 % intervals over {f'{n} seeds and ' if n > 1 else ''}clients)")


def _ends(own: pd.DataFrame, band: float) -> tuple[float, float]:
    """Where an axis that shows these intervals and the band from -band to band begins and ends."""
    low, high = np.nanmin([*own["low"], *own["mean"], -band, -1]), np.nanmax([*own["high"], *own["mean"], band, 1])
    return low - 0.08 * (high - low), high + 0.08 * (high - low)
