"""The figures of FedSimSup's items."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from fedlib.analysis.names import counted
from fedlib.figures.accuracy import interval
from fedlib.figures.base import INK, PAGE, PAPER, REFERENCE, axes_of, colour_map, headline, pixels, styled, thinned

MOST_WAITS = 20  # idle rounds shown
MOST_NAMES = 16  # idle clients, all of which are named
NOTHING = "#d0d0d0"
LOOKED_AT = mpl.colors.to_rgb("#ff7f0e")
ROWS = {"model": REFERENCE, "supervisor": INK}


@styled
def framework(own: pd.DataFrame, weights: pd.DataFrame, waits: pd.DataFrame) -> Figure:
    """Left: who takes part in which round (black), and how a client's own share fades until its next turn; grey: not
    trained yet. Middle: weights of non-participating clients in a round, both sorted by most frequent label; clients
    with the same one are marked. Right: waiting at the paper's settings.

    own: round, client, idle, own; weights: round, client, label, other, other_label, weight; waits: idle, reached, own,
    low, high.
    """
    figure, ((left, middle, right),) = axes_of(3.0, 1, 3)
    timeline = own.pivot(index="client", columns="round", values="own")
    timeline = timeline.reindex(index=range(own["client"].max() + 1), columns=range(1, own["round"].max() + 1))
    _matrix(left, timeline.to_numpy(), figure, "remaining own share")
    left.set_xticks(ticks := thinned(timeline.shape[1]), [str(t + 1) for t in ticks])
    left.set_yticks(thinned(len(timeline)))
    left.set_facecolor(NOTHING)
    left.set(title="share of own training\n(grey: not trained yet)", xlabel="round", ylabel="client")
    rows, columns = (
        weights.drop_duplicates(name).sort_values([label, name])
        for name, label in (("client", "label"), ("other", "other_label"))
    )
    matrix = weights.pivot(index="client", columns="other", values="weight").loc[rows["client"], columns["other"]]
    _matrix(middle, matrix.to_numpy(), figure, "weight (Eq. 8)")
    few = len(rows) <= MOST_NAMES
    y, x = np.nonzero(rows["label"].to_numpy()[:, None] == columns["other_label"].to_numpy())
    middle.plot(
        x, y, "o", markersize=3 if few else 1, color="white", markeredgecolor="black", markeredgewidth=0.6 if few else 0
    )
    _name(middle.set_yticks, rows["client"], rows["label"], " ", few)
    _name(middle.set_xticks, columns["other"], columns["other_label"], "\n", few)
    title = f"weights in round {weights['round'].iloc[0]}\n(dots: same top label)"
    middle.set(title=title, xlabel="participant (label)", ylabel="non-participating\nclient (label)")
    shown = waits[waits["idle"] <= MOST_WAITS]
    right.fill_between(shown["idle"], shown["low"], shown["high"], color=INK, alpha=0.2, linewidth=0)
    right.plot(shown["idle"], shown["own"], "o-", color=INK, markersize=3, label="remaining own share, median")
    waited = "share of participations after\nat least so many rounds"
    right.plot(shown["idle"], shown["reached"], "--", color=REFERENCE, label=waited)
    title = "10 of 100 clients per round\n(band: 80 % of participations)"
    right.set(title=title, xlabel="rounds without participation", ylim=(0, 1.02))
    right.set_xticks(range(0, MOST_WAITS + 1, 5))
    right.legend(loc="upper center", bbox_to_anchor=(0.45, -0.3))
    gone = shown.loc[shown["own"] < 0.5, "idle"]
    after = counted(gone.iloc[0], "round") if len(gone) else f"more than {MOST_WAITS} rounds"
    text = f"Less than half of a client's own training is left after {after} without participation"
    return headline(figure, f"{text} (median)")


def _matrix(ax, values: np.ndarray, figure: Figure, label: str) -> None:
    """Shares as colours from 0, light, to 1, black; NaN stays as the background is."""
    image = ax.imshow(values, vmin=0, vmax=1, cmap=colour_map("mako_r"), aspect="auto", interpolation="nearest")
    figure.colorbar(image, ax=ax, shrink=0.7, aspect=25, orientation="horizontal", label=label)


def _name(set_ticks, clients: pd.Series, labels: pd.Series, between: str, few: bool) -> None:
    """Clients' numbers and labels along an axis, all of few ones."""
    shown = range(len(clients)) if few else thinned(len(clients))
    names = [f"{client}{between}({label})" for client, label in zip(clients, labels)]
    set_ticks(list(shown), [names[k] for k in shown])


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
    lower.supxlabel("boxes: images; dots: means over seeds, with 95 % CI")
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
