"""Where networks look: FedSimSup's Figure 4."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from fedlib.figures.accuracy import interval
from fedlib.figures.base import INK, PAGE, PAPER, REFERENCE, SIZE, headline, pixels, styled

LOOKED_AT = mpl.colors.to_rgb("#ff7f0e")
ROWS = {"model": REFERENCE, "supervisor": INK}


@styled
def attention_maps(
    pictures: pd.DataFrame, tidy: pd.DataFrame, means: pd.DataFrame, gaps: pd.DataFrame, numbers: Mapping
) -> Figure:
    """Images, and over them the maps of the model and of the supervisor; then every network's numbers (boxes: images;
    dots: means with intervals); below, differences of the supervisor's network and LeNet-5.

    pictures: row, column, title, channels, pixels in hexadecimal; tidy: network, empty and a column for each number, a
    map a row; means, gaps: network or pair, number, mean, low, high; numbers: what they are called, by name.
    """
    import seaborn as sns

    shown, columns = [name for name in numbers if name in tidy], max(1, pictures["column"].nunique())
    figure = Figure(figsize=(PAGE, 6.4), layout="constrained")
    upper, lower = figure.subfigures(2, 1, height_ratios=[1.05, 1.25])
    _overlays(upper.subplots(3, columns, squeeze=False), pictures)
    axes = lower.subplots(2, len(shown), squeeze=False, sharey="row", height_ratios=[7, 3])
    networks, pairs = list(means["network"].unique()), list(gaps["pair"].unique())
    dots = {name: next((c for row, c in ROWS.items() if name.endswith(f": {row}")), PAPER) for name in networks}
    for (above, below), name in zip(axes.T, shown):
        seen = tidy[~tidy["empty"]]
        sns.boxplot(
            seen, x=name, y="network", order=networks, ax=above, color="#e6e6e6", linewidth=0.7, showfliers=False
        )
        for y, network in enumerate(networks):
            own = means[(means["network"] == network) & (means["number"] == name)]
            interval(above, [y], own, "o", dots[network], 4, label="_", horizontal=True)
        own = gaps[gaps["number"] == name].set_index("pair").reindex(pairs)
        interval(below, range(len(pairs)), own, "o", INK, 4, label="", horizontal=True)
        below.axvline(0, color="black", linewidth=0.8)
        above.set(title=textwrap.fill(numbers[name][0], 16), xlabel="", ylabel="")
    axes[1, 0].set_yticks(range(len(pairs)), pairs)
    axes[1, 0].invert_yaxis()
    axes[1, 0].set_ylabel("supervisor minus\nLeNet-5 or model")
    lower.supxlabel("boxes: images; dots: means over seeds, with 95 % CI", fontsize=SIZE)
    apart = gaps[(gaps["low"] > 0) | (gaps["high"] < 0)]
    found = (apart["pair"] == pairs[0]).sum() if pairs else 0
    text = f"the supervisor's maps differ significantly from the other network's in {found} of {len(shown)} measures"
    return headline(figure, f"{pairs[0]}: {text}")


def _overlays(axes, pictures: pd.DataFrame) -> None:
    """A column an image: the image, then each map over it in grey; the more colour, the more of the map."""
    under = {}
    for line, (name, rows) in zip(axes, pictures.groupby("row", sort=False)):
        for ax, one in zip(line, rows.itertuples()):
            image = pixels(one) / 255
            if one.column not in under:
                under[one.column] = image.mean(2)
                ax.imshow(image, cmap="gray", vmin=0, vmax=1)
                ax.set_title(one.title.replace(", ", ",\n"))
            else:
                ax.imshow(0.75 * under[one.column], cmap="gray", vmin=0, vmax=1)
                ax.imshow(np.dstack([np.broadcast_to(LOOKED_AT, (*image.shape[:2], 3)), 0.9 * image]))
        line[0].set_ylabel(name, rotation=0, ha="right", va="center", color=ROWS.get(name, "black"))
    for ax in axes.flat:
        ax.set(xticks=[], yticks=[])
        ax.spines[:].set_visible(False)
