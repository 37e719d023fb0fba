"""pFedSim's lead, with every reading of what the paper leaves open."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
from matplotlib.figure import Figure

from fedlib.figures.accuracy import interval
from fedlib.figures.base import PAPER, axes_of, colours, styled


@styled
def leads(found: pd.DataFrame, printed: Mapping[str, float]) -> Figure:
    """A panel for every Dir(alpha), a line for every reading: points by which pFedSim is ahead.

    found: column ("reading, Dir(alpha)"), over (whom), difference, low, high, seeds; printed: the paper's lead over the
    first of them by Dir(alpha), a dashed line.
    """
    parts = found["column"].astype(str).str.extract("(?P<reading>.*), (?P<alpha>.*)")
    fewest = found.groupby(parts["reading"])["seeds"].min()
    parts["reading"] += parts["reading"].map(lambda name: f" ({fewest[name]:g} seed{'s' if fewest[name] > 1 else ''})")
    found = found.assign(mean=found["difference"]).join(parts)
    names, others = list(dict.fromkeys(found["reading"])), list(dict.fromkeys(found["over"]))
    panels = [title for title in printed if title in set(found["alpha"])] or list(printed)[:1]
    figure, (axes,) = axes_of(3.2 + 3.4 * len(panels), 0.42 * max(1, len(names)) + 1.3, 1, len(panels), sharex=True)
    for ax, title in zip(axes, panels):
        for k, (other, colour, marker) in enumerate(zip(others, colours(3), "oDs")):
            own = found[(found["alpha"] == title) & (found["over"] == other)]
            y = [names.index(name) + 0.24 * (k - (len(others) - 1) / 2) for name in own["reading"]]
            interval(ax, y, own, marker, colour, 5, f"over {other}", horizontal=True)
        label = "printed lead over FedPer (CIFAR-10)"
        ax.axvline(printed[title], color=PAPER, linestyle="--", linewidth=1, label=label)
        ax.axvline(0, color="black", linewidth=0.8)
        ax.set(title=title, xlabel="pFedSim's lead, points", ylim=(max(1, len(names)) - 0.5, -0.5))
        ax.set_yticks(range(len(names)), names if ax is axes[0] else [""] * len(names))
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    return figure
