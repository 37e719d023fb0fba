"""What all figures share: style, colours, axes."""

from __future__ import annotations

import functools

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

STYLE = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
INK = "#1b6ca8"
PAPER = "#777777"
REFERENCE = "#c0504d"


def styled(draw):
    """Draw with fedlib's style, whatever the style of the program around it."""

    @functools.wraps(draw)
    def wrapped(*args, **kwargs) -> Figure:
        with mpl.rc_context(STYLE):
            return draw(*args, **kwargs)

    return wrapped


def axes_of(width: float, height: float, rows: int = 1, cols: int = 1, **options):
    """A figure outside pyplot's global state, so that nothing is shown or leaked, and its axes [rows, cols]."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows, cols, squeeze=False, **options)


def thinned(number: int) -> range:
    """At most twelve of 0..number-1, evenly spaced in round steps."""
    return range(0, number, next(step for step in (1, 2, 5, 10, 20, 50, 100, 200, 500, number) if number <= 12 * step))


def effects_of_choices(ax, effects: pd.DataFrame, method: str) -> None:
    """What every choice does to accuracy, in points, with the range over seeds; grey: what chance does to `method`.

    effects: code, choice, method, seed, effect (of `fedlib.experiments.choices.Study.effects`).
    """
    shown = effects[effects["code"] != ""]
    names = list(shown["choice"].unique())
    chance = shown[(shown["code"] == "spread") & (shown["method"] == method)]
    band = chance.groupby("choice")["effect"].apply(lambda e: e.abs().mean()).max()
    ax.axvspan(-band, band, color="#eeeeee", zorder=0)
    methods = [method, *sorted(set(shown["method"]) - {method})]
    for k, name in enumerate(methods):
        own = shown[shown["method"] == name].groupby("choice")["effect"].agg(["mean", "min", "max"])
        y = np.array([names.index(choice) for choice in own.index]) + 0.26 * (k - (len(methods) - 1) / 2)
        colour = (INK, REFERENCE, PAPER)[k]
        ax.hlines(y, own["min"], own["max"], color=colour, linewidth=1)
        ax.plot(own["mean"], y, "o", color=colour, markersize=5, label=name)
    ax.axvline(0, color="black", linewidth=0.8)
    ax.set_yticks(range(len(names)), names)
    ax.invert_yaxis()
    if names:
        ax.legend(frameon=False, loc="best")
    ax.set(xlabel="effect on accuracy, points", title="Decided otherwise")


def show(figure: Figure, dpi: int = 85) -> None:
    """Display a figure in a notebook as a small PNG."""
    import io

    from IPython.display import Image, display

    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi, bbox_inches="tight", metadata={"Software": None})
    display(Image(buffer.getvalue(), format="png"))
