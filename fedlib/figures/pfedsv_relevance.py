"""The figures of pFedSV's items about relevance, collaboration and communication."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.colors import TwoSlopeNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from fedlib.analysis.names import counted
from fedlib.analysis.uncertainty import intervals
from fedlib.figures.base import INK, PAPER, REFERENCE, SIZE, axes_of, colour_map, headline, key_below, styled

COLOURS = ("#1b6ca8", "#c0504d", "#e08e2b", "#6a9a3b", "#8064a2", "#4bacc6", "#777777")


@styled
def domain_curves(tidy: pd.DataFrame, scenarios: Sequence[str]) -> Figure:
    """Client A's accuracy over the rounds, a panel a scenario: seeds in grey, their mean in colour.

    tidy: scenario, seed, round, accuracy (a fraction).
    """
    figure, (axes,) = axes_of(2.3, 1, len(scenarios), sharey=True)
    ends = {}
    for ax, scenario in zip(axes, scenarios):
        wide = 100 * tidy[tidy["scenario"] == scenario].pivot(index="round", columns="seed", values="accuracy")
        ax.plot(wide.index, wide, color="#cccccc", linewidth=0.8)
        ax.plot(wide.index, wide.mean(axis=1), color=INK, linewidth=2, label=f"mean of {wide.shape[1]} seeds")
        ends[scenario] = wide.mean(axis=1).iloc[-1]
        ax.set(title=f"{scenario}: {ends[scenario]:.1f} % at the end", xlabel="round")
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.grid(axis="y", color="#eeeeee")
    axes[0].set_ylabel("accuracy of client A, %")
    axes[-1].legend(loc="lower right")
    best = max(ends, key=ends.get)
    text = f"Client A's accuracy in the last round: {ends[best]:.1f} % ({best})"
    return headline(figure, f"{text}, {ends[scenarios[0]]:.1f} % ({scenarios[0]})")


@styled
def distances_to_a(tidy: pd.DataFrame, aucs: pd.DataFrame, labels: dict[str, Sequence[int]]) -> Figure:
    """Squared distance of the other clients' models to A's after the last round, a panel a training
    (dots: seeds, dashes: their median, axis logarithmic); then how well measures find shared labels, by rounds.

    tidy: training, rounds, seed, client, other, relevant, squared_distance; aucs: training, rounds, seed, measure, auc;
    labels: of each client.
    """
    trainings, last = list(dict.fromkeys(tidy["training"])), tidy["rounds"].max()
    tidy = tidy[(tidy["client"] == "A") & (tidy["rounds"] == last)]
    figure, (axes,) = axes_of(2.8, 1, len(trainings) + 1, width_ratios=[1.25] * len(trainings) + [1])
    others = [name for name in labels if name != "A"]
    for ax, training in zip(axes, trainings):
        rows = tidy[tidy["training"] == training]
        relevant = rows.groupby("other")["relevant"].any()
        middle = rows.groupby("other")["squared_distance"].median()
        for x, name in enumerate(others):
            colour = REFERENCE if relevant[name] else INK
            own = rows[rows["other"] == name]["squared_distance"]
            ax.plot([x] * len(own), own, "o", color=colour, markersize=4, alpha=0.6, linewidth=0)
            ax.hlines(middle[name], x - 0.32, x + 0.32, color=colour, linewidth=2)
        ax.set_yscale("log")
        ax.yaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 4, 5, 6, 7, 8)))
        ax.yaxis.set_major_formatter("{x:g}")
        ax.yaxis.set_minor_locator(NullLocator())
        sets = {name: ",".join(map(str, own)) for name, own in labels.items()}
        ax.set_xticks(range(len(others)), ["\n".join([name, *map(str, labels[name])]) for name in others])
        title = f"{training}, {last} rounds:\nsquared distance to A {{{sets['A']}}}"
        ax.set(title=title, xlabel="client and its labels")
    keys = [Line2D([], [], marker="o", linestyle="-", markersize=4, color=colour) for colour in (REFERENCE, INK)]
    figure.legend(keys, ["shares a label with A", "does not"], loc="outside lower left", ncols=2)
    ax, after = axes[-1], sorted(aucs["rounds"].unique())
    for measure, colour in zip(dict.fromkeys(aucs["measure"]), COLOURS):
        for training, style in zip(trainings, ("-", "--")):
            rows = aucs[(aucs["measure"] == measure) & (aucs["training"] == training)]
            mean = rows.groupby("rounds")["auc"].mean()
            ax.plot(range(len(after)), mean[after], style, color=colour, marker="o", markersize=4)
    keys = [Line2D([], [], color=colour) for _, colour in zip(range(aucs["measure"].nunique()), COLOURS)]
    keys += [Line2D([], [], color="black", linestyle=style) for _, style in zip(trainings, ("-", "--"))]
    names = [*dict.fromkeys(aucs["measure"]), *trainings]
    ax.legend(keys, names, loc="lower left", fontsize=6, frameon=True, edgecolor="none")
    ax.axhline(0.5, color="black", linewidth=0.6)
    ax.set_xticks(range(len(after)), after)
    ax.set(title="finding shared labels,\nall clients: AUC", xlabel="after round", ylim=(0, 1.05))
    near = tidy.groupby(["training", "relevant"], sort=False)["squared_distance"].median().unstack()
    said = ", ".join(f"{ratio:.1f} times ({name})" for name, ratio in (near[False] / near[True]).items())
    return headline(figure, f"Clients without a shared label are farther from A: {said} the squared distance, medians")


@styled
def collaboration(tidy: pd.DataFrame, arms: Sequence[str]) -> Figure:
    """Accuracy of the mixed models over the rounds, and of every seed in the last round and on average over the rounds.

    tidy: arm, seed, round, client_mean (a fraction).
    """
    figure, ((left, right),) = axes_of(3.3, 1, 2, width_ratios=[1.15, 1])
    colour = dict(zip(arms, (*COLOURS[: len(arms) - 1], COLOURS[-1])))
    for arm in arms:
        own = intervals(tidy[tidy["arm"] == arm], "client_mean", ["round"])
        style = {"linestyle": "--" if arm == arms[-1] else "-", "linewidth": 2 if arm == arms[0] else 1.3}
        left.plot(own["round"], 100 * own["mean"], color=colour[arm], label=arm, **style)
        if own["seeds"].max() > 1:
            ends = (100 * own["low"], 100 * own["high"])
            left.fill_between(own["round"], *ends, color=colour[arm], alpha=0.08, linewidth=0)
    n = tidy["seed"].nunique()
    title = f"mean of {counted(n, 'seed')}{', 95 % CI' * (n > 1)}"
    left.set(title=title, xlabel="round", ylabel="accuracy, %, mean of the clients", ylim=(None, 100.5))
    left.xaxis.set_major_locator(MaxNLocator(integer=True))
    last = tidy["round"].max()
    for y, arm in enumerate(arms):
        rows = tidy[tidy["arm"] == arm]
        ends = 100 * rows[rows["round"] == last]["client_mean"]
        means = 100 * rows.groupby("seed")["client_mean"].mean()
        right.plot(ends, [y - 0.13] * len(ends), "o", color=colour[arm], markersize=3.5)
        right.plot(means, [y + 0.13] * len(means), "D", color=colour[arm], markersize=3.5, markerfacecolor="white")
    right.set_yticks(range(len(arms)), arms)
    right.invert_yaxis()
    right.grid(axis="y", color="#eeeeee")
    marks = (("o", "black"), ("D", "white"))
    keys = [Line2D([], [], marker=m, linestyle="", color="black", markerfacecolor=face) for m, face in marks]
    handles, names = left.get_legend_handles_labels()
    every = [*names, "last round", "mean of the rounds"]
    figure.legend([*handles, *keys], every, loc="outside lower center", ncols=5, fontsize=6)
    right.set(title="a mark for each seed", xlabel="accuracy, %")
    ends = 100 * tidy[tidy["round"] == last].groupby("arm")["client_mean"].mean()
    rival = ends.drop(arms[0]).idxmax() if len(ends) > 1 else arms[0]
    lead = ends[arms[0]] - ends[rival]
    where = f"{abs(lead):.1f} points {'above' if lead > 0 else 'below'} the best other weighting"
    return headline(figure, f"{arms[0]} ends {where}, {rival}")


@styled
def relevance_matrices(tidy: pd.DataFrame, labels: pd.DataFrame) -> Figure:
    """The first seed's labels by client, who shares one, and what was learned:
    red positive, blue negative, white 0, each panel on its own scale.

    tidy: learner, seed, client, other, relevant, relevance; labels: seed, client, label. Crosses: wrong sign.
    """
    learners, seed = list(dict.fromkeys(tidy["learner"])), tidy["seed"].min()
    figure, (axes,) = axes_of(2.5, 1, len(learners) + 2)
    own = labels[labels["seed"] == seed]
    size, classes = int(own["client"].max()) + 1, int(own["label"].max()) + 1
    table = np.zeros((size, classes))
    table[own["client"], own["label"]] = 1
    signs: dict[str, int] = {}
    axes[0].imshow(table, cmap="Greys", vmin=0, vmax=1.4)
    axes[0].set(title="labels of clients", xlabel="label", ylabel="client")
    axes[0].set(xticks=range(0, classes, 3), yticks=range(0, size, 3))
    truth = _square(tidy, learners[0], seed, "relevant", size)
    axes[1].imshow(truth, cmap=colour_map("vlag"), vmin=-1, vmax=1)
    axes[1].set_title("shares a label")
    for ax, learner in zip(axes[2:], learners):
        score = _square(tidy, learner, seed, "relevance", size)
        most = max(np.nanmax(np.abs(score)), 1e-12)
        image = ax.imshow(score, cmap=colour_map("vlag"), norm=TwoSlopeNorm(0, -most, most))
        wrong = np.argwhere((score > 1e-9) != (truth > 0))
        wrong = wrong[wrong[:, 0] != wrong[:, 1]]
        ax.plot(wrong[:, 1], wrong[:, 0], "x", color="black", markersize=3)
        ax.set_title(f"{learner}:\n{len(wrong)} wrong signs", fontsize=SIZE - 1)
        figure.colorbar(image, ax=ax, shrink=0.8, orientation="horizontal").ax.tick_params(labelsize=5.5)
        signs[learner] = len(wrong)
    for ax in axes[1:]:
        ax.set(xlabel="other client", xticks=range(0, size, 3), yticks=range(0, size, 3))
    for ax in axes:
        ax.spines[:].set_visible(True)
    said = ", ".join(f"{name} {number}" for name, number in signs.items())
    return headline(figure, f"Wrong signs among {size * (size - 1)} relevance values, first seed: {said}")


def _square(tidy: pd.DataFrame, learner: str, seed: int, column: str, size: int) -> np.ndarray:
    """A column as a matrix [N, N] with NaN on the diagonal."""
    rows = tidy[(tidy["learner"] == learner) & (tidy["seed"] == seed)]
    matrix = np.full((size, size), np.nan)
    matrix[rows["client"], rows["other"]] = rows[column].astype(float)
    return matrix


@styled
def traffic(tidy: pd.DataFrame, per_round: pd.DataFrame, methods: Sequence[str], readings: Sequence[str]) -> Figure:
    """Numbers sent by each method, a panel a network, with the first reading of what is personal;
    marks: D+C by the others. Then downloads round by round.

    tidy: network, reading, method, seed, up, down, total; per_round: method, seed, round, models.
    """
    networks = list(dict.fromkeys(tidy["network"]))
    figure, grid = axes_of(4.6, -(-(len(networks) + 1) // 2), 2)
    axes = grid.ravel()
    names = [method.replace("pFedSV ", "pFedSV\n") for method in methods]
    for ax, network in zip(axes, networks):
        rows = tidy[tidy["network"] == network]
        unit, word = (1e9, "billions") if rows["total"].max() > 2e9 else (1e6, "millions")
        means = rows.groupby(["reading", "method"])[["up", "down", "total"]].mean() / unit
        for shift, column, colour in ((-0.27, "up", PAPER), (0, "down", INK), (0.27, "total", REFERENCE)):
            values = means.loc[readings[0]].loc[list(methods), column]
            ax.bar(np.arange(len(methods)) + shift, values, width=0.26, color=colour, label=column)
        for marker, reading in zip(("D", "o"), readings[1:]):
            spots = [means.loc[(reading, methods[0]), column] for column in ("down", "total")]
            look = dict(color="black", markerfacecolor="white", markersize=5, label=f"D+C: {reading}")
            ax.plot([0, 0.27], spots, marker, **look)
        ax.set_xticks(range(len(methods)), names, fontsize=7)
        ax.set(title=f"{network}: {word} of parameters")
    key_below(figure, axes[0])
    for method, colour in zip(methods, COLOURS):
        if method == "FedAvg":
            continue  # as FedAMP
        mean = per_round[per_round["method"] == method].groupby("round")["models"].mean()
        label = "FedAMP, FedAvg" if method == "FedAMP" else method
        axes[-1].plot(mean.index, mean, color=colour, label=label, linestyle="--" if "C" in method[6:] else "-")
    axes[-1].set(title="models per client (D+C: classifiers)", xlabel="round", ylim=(0, None))
    axes[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
    axes[-1].legend(fontsize=6, loc="center right", bbox_to_anchor=(1.0, 0.62))
    total = tidy[tidy["reading"] == readings[0]].groupby(["network", "method"])["total"].mean().unstack()
    ratios = total[methods[0]] / total["FedAvg"]
    text = f"{methods[0]} sends {ratios.min():.1f} to {ratios.max():.1f} times what FedAvg sends"
    return headline(figure, f"{text}; FedFomo {(total['FedFomo'] / total['FedAvg']).max():.1f} times")
