"""Effects of what papers leave open."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from fedlib.analysis.names import proper
from fedlib.analysis.uncertainty import Interval
from fedlib.figures.accuracy import interval
from fedlib.figures.base import INK, OTHERS, REFERENCE, axes_of, headline, key_below, styled

ROW = 0.25  # inches of a choice


@styled
def choices_by_task(effects: pd.DataFrame, method: str) -> Figure | None:
    """What every choice does to accuracy, one panel a task; None if no alternative was run.

    effects: task, code, choice, method, mean, low, high, seeds, size (of
    `fedlib.analysis.sensitivity.Sensitivity.effects`).
    """
    tasks, names = list(effects["task"].unique()), effects.loc[effects["code"] != "", "choice"].unique()
    if not len(names):
        return None
    figure, (axes,) = axes_of(ROW * len(names) + 1.3, 1, len(tasks), sharey=True)
    for ax, task in zip(axes, tasks):
        effects_of_choices(ax, effects[effects["task"] == task], method, names)
        ax.set_title(task)
    axes[0].invert_yaxis()
    key_below(figure, axes[0])
    return headline(figure, beyond_seeds(effects, method))


def beyond_seeds(effects: pd.DataFrame, method: str) -> str:
    """How many choices change the method's accuracy, its mean over tasks, by more than another seed does."""
    own = effects[(effects["code"] != "") & (effects["method"] == method)]
    seeds, changed = (own[(own["code"] == "seed") == is_seed] for is_seed in (True, False))
    far = changed.groupby("choice")["mean"].mean().abs() > seeds.groupby("choice")["size"].mean().max()
    if not len(seeds):
        return f"What {len(far)} choices change in {proper(method)}'s accuracy"
    change, mean = "changes" if far.sum() == 1 else "change", "mean " * (own["task"].nunique() > 1)
    return f"{far.sum()} of {len(far)} choices {change} {proper(method)}'s {mean}accuracy more than another seed does"


def effects_of_choices(ax, effects: pd.DataFrame, method: str, names) -> None:
    """What every choice does to accuracy, in points, with 95 % intervals; grey: what another seed does to `method`.

    The axis is as long as `method` needs; what another one has beyond it is written at the edge, with an arrow.

    effects: code, choice, method, mean, low, high, seeds, size; names: choices from top to bottom.
    """
    shown, names = effects[effects["code"] != ""], list(names)
    chance = shown[(shown["code"] == "seed") & (shown["method"] == method)]
    band = chance["size"].max()
    ax.axvspan(-band, band, color="#eeeeee", zorder=0, label="another seed (or partition, where tried)")
    ax.hlines(range(len(names)), 0, 1, color="#dddddd", linewidth=0.6, zorder=0.5, transform=ax.get_yaxis_transform())
    methods = [method, *sorted(set(shown["method"]) - {method})]
    ends = _ends(shown[shown["method"] == method], band)
    for k, (name, colour) in enumerate(zip(methods, (INK, REFERENCE, OTHERS))):
        own = shown[shown["method"] == name]
        y = np.array([names.index(choice) for choice in own["choice"]]) + 0.3 * (k - (len(methods) - 1) / 2)
        far = np.abs(own["mean"].to_numpy() - np.mean(ends)) > np.ptp(ends) / 2
        interval(ax, y[~far], own[~far], "o", colour, 4, label=proper(name), horizontal=True)
        for height, row in zip(y[far], own[far].itertuples()):
            left, value = row.mean < ends[0], Interval(row.mean, row.low, row.high).text().removesuffix(" (one seed)")
            text, where = (f"\N{LEFTWARDS ARROW} {value}", 0) if left else (f"{value} \N{RIGHTWARDS ARROW}", 1)
            ax.text(ends[where], height, text, ha=("left", "right")[where], va="center", color=colour, fontsize=6.5)
    ax.set_xlim(*ends)
    ax.axvline(0, color="black", linewidth=0.8)
    ax.set_yticks(range(len(names)), names)
    n = int(shown["seeds"].max()) if len(shown) else 0
    ax.set(xlabel=f"effect on accuracy, points\n({f'95 % CI over {n} seeds' if n > 1 else 'one seed'})")


def _ends(own: pd.DataFrame, band: float) -> tuple[float, float]:
    """Where an axis that shows these intervals and the band from -band to band begins and ends."""
    known = own[["low", "mean", "high"]].replace([-np.inf, np.inf], np.nan).to_numpy().ravel()
    low, high = np.nanmin([*known, -band, -1]), np.nanmax([*known, band, 1])
    return low - 0.08 * (high - low), high + 0.08 * (high - low)
