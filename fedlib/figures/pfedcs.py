"""The figures of PFedCS's items."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fedlib.analysis.names import counted, proper
from fedlib.analysis.uncertainty import intervals
from fedlib.figures.accuracy import interval
from fedlib.figures.base import (
    COLUMN,
    INK,
    OTHERS,
    PAPER,
    REFERENCE,
    axes_of,
    colour_map,
    colours,
    headline,
    key_below,
    logarithmic,
    name_lines,
    styled,
    thinned,
)  # fmt: skip


@styled
def classifier_distances(pairs: pd.DataFrame, groups: pd.DataFrame, rounds: pd.DataFrame) -> Figure:
    """Distances between classifiers of one run after the first and the last round; lines separate clients with other
    classes. Then how clearly they show the groups over the rounds, by training.

    pairs: training, round, client, other, D; groups: client, group; rounds: training, seed, round, silhouette, auc.
    """
    training = pairs["training"].iloc[0]
    group = groups.sort_values(["group", "client"])
    order = group["client"].to_numpy()
    edges = np.flatnonzero(np.diff(group["group"].to_numpy())) + 0.5
    shown = list(pairs["round"].unique())
    figure, (axes,) = axes_of(2.4, 1, len(shown) + 2)
    for ax, t in zip(axes, shown):
        matrix = pairs[pairs["round"] == t].pivot(index="client", columns="other", values="D")
        matrix = matrix.reindex(index=order, columns=order).fillna(0)
        image = ax.imshow(matrix, vmin=0, vmax=1, cmap=colour_map("mako"), interpolation="nearest")
        for edge in edges:
            ax.axhline(edge, color="white", linewidth=0.7)
            ax.axvline(edge, color="white", linewidth=0.7)
        ax.set(title=f"D, {training},\nround {t}", xlabel="client", ylabel="client" if t == shown[0] else "")
        places = list(thinned(len(order)))[::2]
        ax.set_xticks(places, order[list(places)])
        ax.set_yticks(places, order[list(places)])
    figure.colorbar(image, ax=list(axes[: len(shown)]), shrink=0.7, aspect=25, orientation="horizontal")
    trainings = list(dict.fromkeys(rounds["training"]))
    several = rounds["seed"].nunique()
    titles = {"silhouette": "silhouette\nof the groups", "auc": "AUC: same\nclasses are nearer"}
    for ax, (value, title) in zip(axes[len(shown) :], titles.items()):
        for name, colour in zip(trainings, (INK, *colours(len(trainings))[1:])):
            line = intervals(rounds[rounds["training"] == name], value, ["round"])
            ax.plot(line["round"], line["mean"], color=colour, label=name, marker="o", markersize=3)
            if several > 1:
                ax.fill_between(line["round"], line["low"], line["high"], color=colour, alpha=0.12, linewidth=0)
        ax.set(title=title, xlabel=f"round ({counted(several, 'seed')})")
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes[-2].axhline(0, color="black", linewidth=0.6)
    axes[-1].axhline(0.5, color="black", linewidth=0.6)
    axes[-1].set(ylim=(0.45, 1.02))
    key_below(figure, axes[-1])
    means = rounds[rounds["training"] == training].groupby("round")["silhouette"].mean()
    text = f"{training}'s distances separate the groups: silhouette {means.iloc[0]:.2f} after the first round"
    return headline(figure, f"{text}, {means.iloc[-1]:.2f} after the last")


@styled
def two_stages(tidy: pd.DataFrame) -> Figure:
    """What travels to and from a client, and who is chosen, by round.

    tidy: round, stage, down, up, model, candidates, collaborators, "with the same classes" (see
    `fedlib.experiments.pfedcs.fig2_framework`).
    """
    figure, (axes,) = axes_of(2.4, 1, 2)
    rounds, stages = tidy["round"], list(dict.fromkeys(tidy["stage"]))
    start = tidy.loc[tidy["stage"] == stages[0], "round"].max() + 0.5
    for shift, way, colour in ((-0.19, "down", INK), (0.19, "up", REFERENCE)):
        axes[0].bar(rounds + shift, tidy[way] / tidy["model"], width=0.36, color=colour, label=f"{way}load")
    axes[0].set(title="communication", ylabel="models per client", ylim=(0, 1.35))
    first = tidy[tidy["stage"] == stages[0]]
    lines = {"candidates": (PAPER, "--"), "collaborators": (INK, "-"), "with the same classes": (REFERENCE, ":")}
    for column, (colour, line) in lines.items():
        label = column.replace("with the", "of these,")
        axes[1].plot(first["round"], first[column], line, color=colour, label=label, marker="o", markersize=4)
    axes[1].set(title="teacher", ylabel="clients, mean", ylim=(0, None))
    axes[1].yaxis.set_major_locator(MaxNLocator(integer=True))
    for ax in axes:
        ax.set(xlabel="round", xlim=(rounds.min() - 0.6, rounds.max() + 0.6))
        ax.axvspan(start, rounds.max() + 0.6, color="#eeeeee", zorder=0)
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.legend(loc="upper right", fontsize=6)
    middle = (start + rounds.max() + 0.6) / 2
    axes[1].text(middle, 0.4, stages[-1], ha="center", transform=axes[1].get_xaxis_transform())
    sent = (tidy["up"] / tidy["model"]).groupby(tidy["stage"], sort=False).mean()
    chosen = first[["collaborators", "with the same classes"]].iloc[-1]
    text = "A client sends " + ", ".join(f"{share:.2f} models per round in {stage}" for stage, share in sent.items())
    share = chosen.iloc[1] / chosen.iloc[0] if chosen.iloc[0] else 0
    return headline(figure, f"{text}; {share:.0%} of its collaborators share its classes")


@styled
def by_number_of_clients(cells: pd.DataFrame) -> Figure:
    """Accuracy against the number of clients (logarithmic), a line a method, with 95 % intervals where known.

    cells: row, clients, mean, low, high.
    """
    names = list(dict.fromkeys(cells["row"]))
    figure, ((ax,),) = axes_of(2.9, width=COLUMN)
    numbers = sorted(cells["clients"].unique())
    for name, own in cells.groupby("row", sort=False):
        own, shift = own.sort_values("clients"), 1 + 0.012 * (names.index(name) - len(names) / 2)
        colour, width = (INK, 1.8) if name == "pfedcs" else (OTHERS, 0.8)
        at, line = own["clients"] * shift, dict(color=colour, linewidth=width, zorder=2 + (colour == INK))
        ax.plot(at, own["mean"], label=proper(name), **line)
        interval(ax, at, own, "o", colour, 3.5, label="_")
    logarithmic(ax, numbers, "clients")
    ax.grid(axis="y", color="#eeeeee")
    ax.set_ylabel("accuracy, %, mean of the clients")
    name_lines([ax])
    wide = cells.pivot_table(index="row", columns="clients", values="mean", sort=False)
    best = {n: proper(row) for n, row in wide.idxmax().items()}
    first, *others = dict.fromkeys(best.values())
    said = f"{first} throughout" if not others else ", ".join(f"{name} at {n}" for n, name in best.items())
    return headline(figure, f"Most accurate: {said}")
