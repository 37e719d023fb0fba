"""Accuracy by evaluation point, pairs of methods that reverse their order, and accuracy by batch-norm statistics."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from fedlib.analysis.names import proper, titled
from fedlib.analysis.points import RECEIVED, TRAINED
from fedlib.figures.base import INK, PAPER, REFERENCE, axes_of, headline, key_below, styled

NO, BY_ESTIMATE, SIGNIFICANT = 0, 1, 2


@styled
def flip_matrix(pairs: pd.DataFrame) -> Figure:
    """Which pairs of methods reverse their order between two evaluation points, one panel a column, the most accurate
    at the first one on top. pairs: as in `fedlib.analysis.points.pairs`."""
    columns = list(dict.fromkeys(pairs["column"]))
    figure, axes = axes_of(4.3, 1, max(1, len(columns)))
    colours = ListedColormap(["#f2f2f2", "#9ecae1", REFERENCE])
    for ax, column in zip(axes[0], columns):
        own = pairs[pairs["column"] == column]
        leads = pd.concat([own.set_index("a")["difference"], -own.set_index("b")["difference"]])
        names = leads.groupby(level=0).sum().sort_values(ascending=False, kind="stable").index
        place = {name: k for k, name in enumerate(names)}
        shown = np.full((len(names), len(names)), np.nan)
        kinds = np.where(own["changes"], np.where(own["significant"], SIGNIFICANT, BY_ESTIMATE), NO)
        for a, b, kind in zip(own["a"], own["b"], kinds):
            shown[place[a], place[b]] = shown[place[b], place[a]] = kind
        ax.imshow(shown, cmap=colours, vmin=NO, vmax=SIGNIFICANT)
        size = 7 if len(names) < 16 else 5.5
        ax.set_xticks(range(len(names)), map(proper, names), rotation=90, fontsize=size)
        ax.set_yticks(range(len(names)), map(proper, names), fontsize=size)
        counts = f"{(kinds > NO).sum()} of {len(kinds)} pairs, {(kinds == SIGNIFICANT).sum()} significant"
        ax.set_title(f"{column}: {counts}")
        ax.spines[:].set_visible(False)
    words = ("same order", "order reverses", "reverses, significant at both")
    patches = [Patch(color=colours(k), label=word) for k, word in enumerate(words)]
    figure.legend(handles=patches, loc="outside lower center", ncols=3)
    both = (pairs["changes"] & pairs["significant"]).sum()
    text = f"{both} of {len(pairs)} pairs of methods reverse their order significantly"
    return headline(figure, f"{text} with the evaluation point, {pairs['changes'].sum()} by point estimates")


LOOKS = (("D", PAPER), ("o", INK), ("s", REFERENCE), ("^", "#2f8f5b"))  # of kinds: marker and colour


@styled
def dots(
    shown: pd.DataFrame, kinds: Sequence[str], label: str, says: Callable[[pd.DataFrame], str], prior=None
) -> Figure:
    """Numbers of several kinds side by side with their 95 % intervals, one panel a task. shown: task, row, kind, mean,
    low, high; label: of the axis; says: the title, of what is shown; prior: by task, the accuracy of predicting every
    client's most frequent class. A line there, and at 0 where it is in sight."""
    tasks, rows = list(dict.fromkeys(shown["task"])), list(dict.fromkeys(shown["row"]))
    figure, axes = axes_of(0.3 * len(rows) + 1.3, 1, max(1, len(tasks)), sharey=True)
    for ax, task in zip(axes[0], tasks):
        for shift, name, (marker, colour) in zip(np.linspace(-0.26, 0.26, len(kinds)), kinds, LOOKS):
            own = shown[(shown["task"] == task) & (shown["kind"] == name)]
            y = np.array([rows.index(row) for row in own["row"]]) + shift
            ax.hlines(y, own["low"], own["high"], color=colour, linewidth=1.2)
            ax.plot(own["mean"], y, marker, color=colour, markersize=4, linestyle="", label=name)
        ax.grid(axis="y", color="#eeeeee", linewidth=1.5)
        if ax.get_xlim()[0] < 0 < ax.get_xlim()[1]:
            ax.axvline(0, color=PAPER, linewidth=0.8, zorder=0)
        if task in (prior or {}):
            ax.axvline(prior[task], color=PAPER, linestyle=":", zorder=0)
            side = "right" if prior[task] > np.mean(ax.get_xlim()) else "left"
            ax.text(prior[task], len(rows) - 0.5, " most frequent class ", ha=side, va="bottom", color=PAPER, size=7)
        known = (shown["low"] < shown["high"]).any()
        ax.set(title=task, xlabel=label if known else f"{label} (one seed)")
    axes[0, 0].set_yticks(range(len(rows)), [titled(proper(row)) for row in rows])
    axes[0, 0].set_ylim(len(rows) - 0.4, -0.6)
    key_below(figure, axes[0, 0])
    return headline(figure, says(shown))


def largest_move(shown: pd.DataFrame) -> str:
    """Whose place among the rows changes most by local training, in a sentence; shown: as in `dots`."""
    wide = shown.pivot_table(index=["task", "row"], columns="kind", values="mean", sort=False)
    places = wide.reindex(columns=[RECEIVED, TRAINED]).dropna().groupby("task").rank(ascending=False)
    if places.empty:
        return "Nothing was evaluated before and after local training yet"
    task, row = (places[RECEIVED] - places[TRAINED]).abs().idxmax()
    before, after = places.loc[(task, row)].astype(int)
    text = f"{task}: by means {proper(row)} ranks {before} of {len(places.loc[task])} before local training"
    return f"{text}, {after} after it"


def leads_left(shown: pd.DataFrame) -> str:
    """In how many rows each kind of number is above 0, in a sentence; shown: as in `dots`."""
    above = (shown["mean"] > 0).groupby(shown["kind"], sort=False).agg(["sum", "size"])
    names = above.rename({"reported": "as reported"}).reset_index().groupby(["sum", "size"], sort=False)["kind"]
    parts = [f"in {many} of {size} settings {' and '.join(kinds)}" for (many, size), kinds in names]
    return f"The paper's method leads {', '.join(parts)}"


def largest_gap(shown: pd.DataFrame) -> str:
    """Between which kinds of one row, but for that of another network ("no batch norm"), the largest difference is, in
    a sentence; shown: as in `dots`."""
    wide = shown[shown["kind"] != "no batch norm"].pivot_table(index=["task", "row"], columns="kind", values="mean")
    if not len(wide):
        return "Nothing was run yet"
    gaps = wide.max(axis=1) - wide.min(axis=1)
    place, gap = gaps.argmax(), gaps.max()
    row, own = gaps.index[place][-1], wide.iloc[place]
    low, high = own.idxmin(), own.idxmax()
    return f"Between statistics {proper(row)}'s mean accuracy differs by up to {gap:.1f} points: {high} above {low}"
