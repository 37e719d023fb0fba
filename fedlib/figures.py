"""Figures: pure functions from tables to matplotlib figures. They train nothing and read nothing."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

STYLE = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.dpi": 100,
}
INK = "#1b6ca8"
PAPER = "#888888"


def _figure(width: float, height: float, rows: int = 1, cols: int = 1, **options):
    """A figure outside pyplot's global state, so that nothing is shown or leaked."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        return figure, figure.subplots(rows, cols, squeeze=False, **options)


def cka_by_layer(tidy: pd.DataFrame) -> Figure:
    """CKA between all pairs of models, one matrix a layer (the first seed's), and its distribution over all pairs and seeds.

    tidy: seed, layer, name, client_a, client_b, cka.
    """
    layers = sorted(tidy["layer"].unique())
    figure, axes = _figure(12.5, 2.9, 1, len(layers) + 1, width_ratios=[1] * len(layers) + [1.35])
    size = int(tidy[["client_a", "client_b"]].max().max()) + 1
    first = tidy[tidy["seed"] == tidy["seed"].min()]
    for ax, layer in zip(axes[0], layers):
        matrix = np.eye(size)
        rows = first[first["layer"] == layer]
        matrix[rows["client_a"], rows["client_b"]] = matrix[rows["client_b"], rows["client_a"]] = rows["cka"]
        image = ax.imshow(matrix, vmin=0, vmax=1, cmap="mako")
        ax.set_title(f"layer {layer} ({rows['name'].iloc[0]})")
        ax.set_xticks(range(0, size, 3))
        ax.set_yticks(range(0, size, 3))
        ax.set_xlabel("client")
    axes[0, 0].set_ylabel("client")
    figure.colorbar(image, ax=list(axes[0, :-1]), shrink=0.75, pad=0.01, label="CKA")
    ax = axes[0, -1]
    sns.boxplot(tidy, x="layer", y="cka", ax=ax, color="#9fc5e8", linewidth=0.8, fliersize=1.5)
    seeds = tidy["seed"].nunique()
    ax.set(
        title=f"all pairs, {seeds} seed{'s' * (seeds > 1)}",
        xlabel="layer",
        ylabel="CKA of two models",
        ylim=(-0.02, 1.02),
    )
    return figure


def classifier_similarity(tidy: pd.DataFrame, pairs: dict[str, tuple[int, int]]) -> Figure:
    """Cosines of classifiers: totals as a matrix of pairs beside the cosines by class, mean over seeds.

    tidy: seed, pair, class, owned_by, cosine; pairs in the data's order of similarity.
    """
    by_class = tidy.groupby(["pair", "class"])["cosine"].mean().unstack().loc[list(pairs)]
    owner = (
        tidy.drop_duplicates(["pair", "class"]).pivot(index="pair", columns="class", values="owned_by").loc[list(pairs)]
    )
    totals = tidy.groupby(["pair", "seed"])["cosine"].mean().unstack().loc[list(pairs)]
    low = min(0.0, float(by_class.min().min())) if by_class.min().min() < 0.6 else 0.6
    figure, axes = _figure(9.6, 2.9, 1, 2, width_ratios=[1, 2.6])
    ax = axes[0, 0]
    ax.bar(
        range(len(pairs)),
        totals.mean(axis=1),
        yerr=totals.std(axis=1, ddof=1) if totals.shape[1] > 1 else None,
        color=INK,
        width=0.6,
        capsize=3,
    )
    for x, value in enumerate(totals.mean(axis=1)):
        ax.text(x, value, f"{value:.2f}", ha="center", va="bottom")
    ax.set_xticks(range(len(pairs)), [_pair_label(p) for p in pairs])
    ax.set(title="similarity of the classifiers (mean of classes)", ylabel="cosine", ylim=(low, 1.08))
    ax = axes[0, 1]
    marks = owner.replace({"both": "●", "one": "○", "neither": "·"})
    text = by_class.map(lambda v: f"{v:.2f}") + "\n" + marks
    sns.heatmap(
        by_class,
        annot=text,
        fmt="",
        vmin=low,
        vmax=1,
        cmap="mako",
        ax=ax,
        linewidths=0.5,
        cbar_kws={"label": "cosine", "pad": 0.02},
        annot_kws={"size": 8},
    )
    ax.set_yticklabels([_pair_label(p) for p in pairs], rotation=0)
    ax.set(title="by class: ● owned by both, ○ by one, · by neither", xlabel="class", ylabel="")
    return figure


def _pair_label(pair: str) -> str:
    return f"({pair.replace('-', ', ')})"


def similarity_measures(
    tidy: pd.DataFrame, ten_clients: pd.DataFrame, names: dict[str, str], pairs: list[str]
) -> Figure:
    """Each measure on the four pairs, which fall in the data's order from left to right; and rank correlations over ten clients.

    tidy: seed, measure, pair, value; ten_clients: seed, measure, rank_correlation.
    """
    figure, axes = _figure(12.5, 2.7, 1, len(names) + 1)
    for ax, (measure, label) in zip(axes[0], names.items()):
        wide = tidy[tidy["measure"] == measure].pivot(index="seed", columns="pair", values="value")[pairs]
        ax.plot(range(len(pairs)), wide.T, color=INK, alpha=0.25, linewidth=0.8)
        ax.plot(range(len(pairs)), wide.mean(), color=INK, marker="o", markersize=4)
        falls = int((wide.diff(axis=1).iloc[:, 1:] < 0).all(axis=1).sum())
        ax.set_xticks(range(len(pairs)), [_pair_label(p) for p in pairs], rotation=45)
        ax.set_title(f"{label}\ndata's order in {falls} of {len(wide)}")
    ax = axes[0, -1]
    shown = [m for m in names if m in set(ten_clients["measure"])]
    sns.stripplot(ten_clients, x="measure", y="rank_correlation", order=shown, ax=ax, color=INK, alpha=0.6, size=4)
    ax.set_xticks(range(len(shown)), [names[m] for m in shown])
    ax.axhline(0, color="black", linewidth=0.6)
    ax.set(
        title="rank correlation with the data\n10 clients, Dir(0.1), one dot a seed", xlabel="", ylabel="", ylim=(-1, 1)
    )
    return figure


def partitions(tidy: pd.DataFrame) -> Figure:
    """Bubble charts of samples per client and class, one for each alpha. tidy: alpha, client, class, samples."""
    alphas = sorted(tidy["alpha"].unique())
    figure, axes = _figure(6.2 * len(alphas), 3.1, 1, len(alphas), sharey=True)
    for ax, alpha in zip(axes[0], alphas):
        rows = tidy[(tidy["alpha"] == alpha) & (tidy["samples"] > 0)]
        ax.scatter(
            rows["client"],
            rows["class"],
            s=rows["samples"] / tidy["samples"].max() * 320,
            color=INK,
            alpha=0.75,
            linewidths=0,
        )
        ax.set(
            title=f"Dir({alpha:g})",
            xlabel="client",
            xlim=(-1, tidy["client"].max() + 1),
            ylim=(-0.8, tidy["class"].max() + 0.8),
        )
        ax.set_yticks(range(tidy["class"].max() + 1))
    axes[0, 0].set_ylabel("class")
    return figure


def rho_curve(tidy: pd.DataFrame, printed: pd.DataFrame) -> Figure:
    """Accuracy against rho, ours with the std over seeds and the paper's CIFAR-10 column, one panel for each alpha.

    tidy: alpha, seed, method, rho, pooled; printed: the paper's Table 6.
    """
    alphas = sorted(tidy["alpha"].unique())
    figure, axes = _figure(4.6 * len(alphas), 3.2, 1, len(alphas))
    for ax, alpha in zip(axes[0], alphas):
        mine = tidy[tidy["alpha"] == alpha]
        sweep = 100 * mine[mine["method"] == "pfedsim"].groupby("rho")["pooled"].agg(["mean", "std"])
        ax.errorbar(
            sweep.index,
            sweep["mean"],
            yerr=sweep["std"].fillna(0),
            color=INK,
            marker="o",
            markersize=4,
            capsize=3,
            label="ours, pFedSim",
        )
        paper = printed[(printed["dataset"] == "cifar10") & (printed["partition_param"] == alpha)]
        ax.errorbar(
            paper["rho"].astype(float),
            paper["value"],
            yerr=paper["std"],
            color=PAPER,
            marker="s",
            markersize=3,
            linestyle="--",
            capsize=2,
            label="paper, CIFAR-10",
        )
        for style, method in zip((":", "-."), sorted(set(mine["method"]) - {"pfedsim"})):
            ax.axhline(
                100 * mine[mine["method"] == method]["pooled"].mean(),
                color="#c0504d",
                linestyle=style,
                linewidth=1,
                label=f"ours, {method}",
            )
        ax.set(title=f"Dir({alpha:g})", xlabel="rho (rho = 1 is FedAvg)", ylabel="accuracy, % (all test samples)")
    axes[0, 0].legend(frameon=False, fontsize=8)
    return figure
