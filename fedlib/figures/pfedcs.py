"""The figures of PFedCS's items."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fedlib.analysis.uncertainty import intervals
from fedlib.figures.accuracy import interval
from fedlib.figures.base import INK, PAPER, REFERENCE, axes_of, colour_map, colours, styled, thinned
from fedlib.figures.looks import looks, proper


@styled
def classifier_distances(pairs: pd.DataFrame, groups: pd.DataFrame, rounds: pd.DataFrame) -> Figure:
    """Distances of classifiers of one run after the first and the last round; lines separate clients with different
    classes. Then how clearly they show the groups over the rounds, by training.

    pairs: training, round, client, other, D; groups: client, group; rounds: training, seed, round, silhouette, auc.
    """
    own, training = pairs, pairs["training"].iloc[0]
    group = groups.sort_values(["group", "client"])
    order = group["client"].to_numpy()
    edges = np.flatnonzero(np.diff(group["group"].to_numpy())) + 0.5
    shown = list(own["round"].unique())
    figure, (axes,) = axes_of(3.0 * len(shown) + 7.2, 3.1, 1, len(shown) + 2, width_ratios=[1] * len(shown) + [1.2] * 2)
    for ax, t in zip(axes, shown):
        matrix = own[own["round"] == t].pivot(index="client", columns="other", values="D").reindex(columns=order)
        matrix = matrix.reindex(order).fillna(0)
        image = ax.imshow(matrix, vmin=0, vmax=1, cmap=colour_map("mako"), interpolation="nearest")
        for edge in edges:
            ax.axhline(edge, color="white", linewidth=0.7)
            ax.axvline(edge, color="white", linewidth=0.7)
        ax.set(title=f"D, {training}, round {t}", xlabel="client", ylabel="client" if t == shown[0] else "")
        places = thinned(len(order))
        ax.set_xticks(places, order[list(places)])
        ax.set_yticks(places, order[list(places)])
    figure.colorbar(image, ax=list(axes[: len(shown)]), shrink=0.8, pad=0.01)
    trainings = list(dict.fromkeys(rounds["training"]))
    several = rounds["seed"].nunique()
    for ax, value, title in zip(
        axes[len(shown) :], ("silhouette", "auc"), ("silhouette of the groups", "AUC: same classes are nearer")
    ):
        for name, colour in zip(trainings, colours(len(trainings))):
            line = intervals(rounds[rounds["training"] == name], value, ["round"])
            ax.plot(line["round"], line["mean"], color=colour, label=name, marker="o", markersize=3)
            if several > 1:
                ax.fill_between(line["round"], line["low"], line["high"], color=colour, alpha=0.12, linewidth=0)
        ax.set(title=f"{title}, {several} seed{'s' * (several > 1)}", xlabel="round")
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes[-2].axhline(0, color="black", linewidth=0.6)
    axes[-1].axhline(0.5, color="black", linewidth=0.6)
    axes[-1].set(ylim=(0.45, 1.02))
    figure.legend(*axes[-1].get_legend_handles_labels(), loc="outside right center", frameon=False)
    return figure


@styled
def two_stages(tidy: pd.DataFrame) -> Figure:
    """What travels to and from a client, who is chosen, and how far the rounds are from the equations, by round.

    tidy: round, stage, down, up, model, candidates, collaborators, "with the same classes", teacher, extractor,
    training (see `fedlib.experiments.pfedcs.fig2_framework`).
    """
    figure, (axes,) = axes_of(12.0, 2.9, 1, 3)
    rounds, stages = tidy["round"], list(dict.fromkeys(tidy["stage"]))
    start = tidy.loc[tidy["stage"] == stages[0], "round"].max() + 0.5
    for shift, way, colour in ((-0.19, "down", INK), (0.19, "up", REFERENCE)):
        axes[0].bar(rounds + shift, tidy[way] / tidy["model"], width=0.36, color=colour, label=way)
    axes[0].set(title="what travels", ylabel="models a client", ylim=(0, 1.25))
    first = tidy[tidy["stage"] == stages[0]]
    names = {
        "candidates": "candidates",
        "collaborators": "collaborators",
        "with the same classes": "of these, same classes",
    }
    for (column, label), style in zip(names.items(), ((PAPER, "--"), (INK, "-"), (REFERENCE, ":"))):
        axes[1].plot(first["round"], first[column], style[1], color=style[0], label=label, marker="o", markersize=4)
    axes[1].set(title="who teaches", ylabel="clients, mean", ylim=(0, None))
    axes[1].yaxis.set_major_locator(MaxNLocator(integer=True))
    errors = {"teacher": "customised classifier", "extractor": "extractor", "training": "local training"}
    for (column, label), colour in zip(errors.items(), colours(3)):
        own = first if column == "teacher" else tidy
        axes[2].plot(
            own["round"], own[column].where(own[column] > 0), color=colour, label=label, marker="o", markersize=4
        )
    axes[2].set_yscale("log")
    found = tidy[list(errors)].where(tidy[list(errors)] > 0)
    low, high = min(1e-9, found.min().min() / 3), max(1e-5, found.max().max())
    axes[2].set(title="largest difference from the equations", ylim=(low, 1e3 * high))  # the legend is above
    for ax in axes:
        ax.set(xlabel="round", xlim=(rounds.min() - 0.6, rounds.max() + 0.6))
        ax.axvspan(start, rounds.max() + 0.6, color="#eeeeee", zorder=0)
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.legend(frameon=False, fontsize=8, loc="upper right")
    axes[1].text(
        (start + rounds.max() + 0.6) / 2, 0.5, stages[-1], ha="center", transform=axes[1].get_xaxis_transform()
    )
    return figure


@styled
def by_number_of_clients(cells: pd.DataFrame) -> Figure:
    """Accuracy against the number of clients (logarithmic), a line a method, with 95 % intervals where known.

    cells: row, clients, mean, low, high.
    """
    names = list(dict.fromkeys(cells["row"]))
    figure, ((ax,),) = axes_of(7.2, 3.9)
    numbers = sorted(cells["clients"].unique())
    for (name, own), (colour, marker) in zip(cells.groupby("row", sort=False), looks(names).values()):
        own, shift = own.sort_values("clients"), 1 + 0.012 * (names.index(name) - len(names) / 2)
        bold = name == "pfedcs"
        ax.plot(
            own["clients"] * shift, own["mean"], color=colour, linewidth=2.2 if bold else 1, zorder=3 if bold else 2
        )
        interval(ax, own["clients"] * shift, own, marker, colour, 6 if bold else 4, proper(name))
    ax.set_xscale("log")
    ax.set_xticks(numbers, [str(n) for n in numbers])
    ax.minorticks_off()
    ax.grid(axis="y", color="#eeeeee")
    ax.set(xlabel="clients", ylabel="accuracy, %, mean of the clients")
    figure.legend(*ax.get_legend_handles_labels(), loc="outside right center", frameon=False)
    return figure
