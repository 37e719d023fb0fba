"""Figures: pure functions from tables to matplotlib figures. They train nothing and read nothing."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

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


def _axes(width: float, height: float, rows: int = 1, cols: int = 1, **options):
    """A figure outside pyplot's global state, so that nothing is shown or leaked, and its axes [rows, cols]."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows, cols, squeeze=False, **options)


@styled
def cka_by_layer(tidy: pd.DataFrame) -> Figure:
    """CKA between all pairs of models, one matrix a layer (the first seed's), and its distribution over all pairs and seeds.

    tidy: seed, layer, name, client_a, client_b, cka.
    """
    layers = sorted(tidy["layer"].unique())
    figure, axes = _axes(12.5, 2.9, 1, len(layers) + 1, width_ratios=[1] * len(layers) + [1.35])
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
    figure.colorbar(image, ax=list(axes[0, :-1]), shrink=0.75, pad=0.01).ax.set_title("CKA")
    ax = axes[0, -1]
    sns.boxplot(tidy, x="layer", y="cka", ax=ax, color="#9fc5e8", linewidth=0.8, fliersize=1.5)
    seeds = tidy["seed"].nunique()
    title = f"CKA of all pairs, {seeds} seed{'s' * (seeds > 1)}"
    ax.set(title=title, xlabel="layer", ylabel="", ylim=(-0.02, 1.02))
    return figure


@styled
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
    figure, axes = _axes(9.6, 2.9, 1, 2, width_ratios=[1, 2.3])
    ax = axes[0, 0]
    spread = totals.std(axis=1, ddof=1) if totals.shape[1] > 1 else None
    ax.errorbar(range(len(pairs)), totals.mean(axis=1), yerr=spread, color=INK, marker="o", capsize=4)
    for x, value in enumerate(totals.mean(axis=1)):
        ax.annotate(f"{value:.2f}", (x, value), (7, 3), textcoords="offset points")
    ax.set_xticks(range(len(pairs)), [_pair_label(p) for p in pairs])
    ax.set(title="classifiers, mean of classes", ylabel="cosine", ylim=(low, 1.05), xlim=(-0.3, len(pairs) - 0.4))
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


@styled
def similarity_measures(
    tidy: pd.DataFrame, ten_clients: pd.DataFrame, names: dict[str, str], pairs: list[str]
) -> Figure:
    """Each measure on the four pairs, which fall in the data's order from left to right; and rank correlations over ten clients.

    tidy: seed, measure, pair, value; ten_clients: seed, measure, rank_correlation.
    """
    figure, axes = _axes(9.6, 5.2, 2, 3)
    for ax, (measure, label) in zip(axes.flat, names.items()):
        wide = tidy[tidy["measure"] == measure].pivot(index="seed", columns="pair", values="value")[pairs]
        ax.plot(range(len(pairs)), wide.T, color=INK, alpha=0.25, linewidth=0.8)
        ax.plot(range(len(pairs)), wide.mean(), color=INK, marker="o", markersize=4)
        falls = int((wide.diff(axis=1).iloc[:, 1:] < 0).all(axis=1).sum())
        ax.set_xticks(
            range(len(pairs)),
            [_pair_label(p) for p in pairs],
        )
        ax.set_title(f"{label}: data's order in {falls} of {len(wide)} seeds")
    ax = axes[1, 2]
    shown = [m for m in names if m in set(ten_clients["measure"])]
    sns.stripplot(
        ten_clients, x="measure", y="rank_correlation", order=shown, ax=ax, color=INK, alpha=0.6, size=4, jitter=False
    )
    ax.set_xticks(range(len(shown)), [names[m] for m in shown])
    ax.axhline(0, color="black", linewidth=0.6)
    ax.set(title="rank correlation with the data, 10 clients", xlabel="", ylabel="", ylim=(-1, 1))
    return figure


MOST_BUBBLES = (40, 20)  # clients and classes; more than that is drawn as a heat map
BUBBLE = 220  # area of the largest circle, in square points


@styled
def partitions(panels: dict[str, np.ndarray], classes: Sequence[str] = ()) -> Figure:
    """Samples per client and class: circles whose area is the number, on one scale; dots where that would be too small to see.

    A panel with more than 40 clients or 20 classes becomes a heat map. panels: counts int [N, C] by title; classes:
    their names, numbers if not given.
    """
    widths = [1.6 + min(0.22 * len(counts), 8.8) for counts in panels.values()]
    cols = len(panels) if sum(widths) < 13 else max(1, int(13 // max(widths)))
    rows = -(-len(panels) // cols)
    cols = -(-len(panels) // rows)  # four panels: two by two
    ratios, width = ({"width_ratios": widths}, sum(widths)) if rows == 1 else ({}, cols * max(widths))
    height = max(2.2, 0.9 + 0.22 * min(max(counts.shape[1] for counts in panels.values()), 20))
    figure, axes = _axes(width + 0.8, height * rows, rows, cols, **ratios)
    most = max(counts.max() for counts in panels.values())
    bubbles = [np.less_equal(counts.shape, MOST_BUBBLES).all() for counts in panels.values()]
    for ax, (title, counts), few in zip(axes.flat, panels.items(), bubbles):
        image = None if few else _heat_map(ax, counts, most)
        if few:
            client, label = np.nonzero(counts)
            area = np.maximum(counts[client, label] / most * BUBBLE, 2)
            ax.scatter(client, label, s=area, color=INK, alpha=0.75, linewidths=0)
            ax.set(xlim=(-1, counts.shape[0]), ylim=(-0.8, counts.shape[1] - 0.2))
        ax.set(title=title, xlabel="client")
        ax.set_xticks(_thinned(len(counts)))
        _class_axis(ax, counts.shape[1], classes)
    for ax in axes[:, 0]:
        ax.set_ylabel("class")
    for ax in list(axes.flat)[len(panels) :]:
        ax.remove()
    if any(bubbles):
        _circle_key(figure, most)
    if not all(bubbles):
        figure.colorbar(image, ax=list(figure.axes), shrink=0.8, pad=0.01, label="samples")
    return figure


def _class_axis(ax, num_classes: int, classes: Sequence[str]) -> None:
    """Name every class where there is room for it, otherwise number some."""
    if num_classes <= MOST_BUBBLES[1]:
        ax.set_yticks(range(num_classes), list(classes[:num_classes]) or None)
    else:
        ax.set_yticks(_thinned(num_classes))


def _thinned(number: int) -> range:
    """At most twelve of 0..number-1, evenly spaced in round steps."""
    return range(0, number, next(step for step in (1, 2, 5, 10, 20, 50, 100, 200, 500, number) if number <= 12 * step))


def _heat_map(ax, counts: np.ndarray, most: int):
    """Counts [N, C] as colours on a logarithmic scale, no sample white; the same scale for all panels."""
    ax.spines[["top", "right"]].set_visible(True)
    shown = np.ma.masked_equal(counts.T, 0)
    scale = LogNorm(1, max(most, 2))
    return ax.imshow(shown, norm=scale, cmap="mako_r", aspect="auto", origin="lower", interpolation="nearest")


def _circle_key(figure: Figure, most: int) -> None:
    """What the circles stand for: about the largest number, a quarter and a sixteenth of it."""
    numbers = dict.fromkeys(max(1, _round_down(most / part)) for part in (1, 4, 16))
    circles = [
        Line2D([], [], marker="o", linestyle="", markersize=(n / most * BUBBLE) ** 0.5, color=INK, alpha=0.75, mew=0)
        for n in numbers
    ]
    labels = [f"{n:,}" for n in numbers]
    figure.legend(circles, labels, title="samples", loc="outside right center", frameon=False, labelspacing=1.2)


def _round_down(value: float) -> int:
    """To one or two significant digits: 5,913 -> 5,000, 178 -> 150."""
    unit = 10 ** max(0, int(np.log10(max(value, 1))))
    return int(max(step * unit for step in (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8) if step * unit <= max(value, 1)))


@styled
def label_similarity(panels: dict[str, np.ndarray]) -> Figure:
    """How alike the clients' labels are: matrices in [0, 1] by title, such as `describe(partition)["similarity"]` [N, N]."""
    figure, axes = _axes(2.7 * len(panels) + 1, 3.2, 1, len(panels))
    for ax, (title, matrix) in zip(axes[0], panels.items()):
        image = ax.imshow(np.asarray(matrix), vmin=0, vmax=1, cmap="mako", interpolation="nearest")
        ax.set(title=title, xlabel="client", xticks=_thinned(len(matrix)), yticks=_thinned(len(matrix)))
    axes[0, 0].set_ylabel("client")
    figure.colorbar(image, ax=list(axes[0]), shrink=0.8, pad=0.01, label="cosine of the labels")
    return figure


@styled
def data_and_networks(stats: pd.DataFrame, printed: pd.DataFrame, parameters: pd.DataFrame) -> Figure:
    """Spread of the clients' sizes, printed and drawn with and without cap; and in which layers the networks' numbers are.

    stats: dataset, alpha, cap, mean_size, std_size, a draw a row; printed: dataset, partition_param, value, std;
    parameters: network, then one column for each part of it, `all`, `statistics`.
    """
    figure, ((left, right),) = _axes(12.5, 3.2, 1, 2, width_ratios=[1, 1.15])
    cells = list(printed[["dataset", "partition_param", "value", "std"]].itertuples(index=False))
    for y, cell in enumerate(cells):
        own = stats[(stats["dataset"] == cell.dataset) & (stats["alpha"] == cell.partition_param)]
        for cap, colour, shift in ((True, INK, -0.17), (False, PAPER, 0.17)):
            spread = own[own["cap"] == cap].eval("std_size / mean_size")
            if len(spread):
                label = f"ours, {'cap' if cap else 'no cap'}" if y == 0 else None
                left.plot([spread.min(), spread.max()], [y + shift] * 2, color=colour, linewidth=4, label=label)
        left.plot(
            cell.std / cell.value, y, marker="D", color=REFERENCE, linestyle="", label="paper" if y == 0 else None
        )
    left.set_yticks(range(len(cells)), [f"{c.dataset}, Dir({c.partition_param:g})" for c in cells])
    left.set(title="std of the clients' sizes / mean (lines: range of the draws)", xlim=(0, None))
    left.invert_yaxis()
    left.legend(frameon=False, loc="lower right")
    parts = [c for c in parameters.columns if c not in ("network", "input", "classes", "all", "statistics")]
    done = np.zeros(len(parameters))
    for part, colour in zip(parts, sns.color_palette("mako", len(parts))):
        share = (parameters[part] / parameters["all"]).to_numpy()
        right.barh(
            range(len(parameters)), share, left=done, color=REFERENCE if part == parts[-1] else colour, label=part
        )
        done += share
    for y, total in enumerate(parameters["all"]):
        right.annotate(f"{total:,}", (1.01, y), va="center", annotation_clip=False)
    right.set_yticks(range(len(parameters)), [name.replace(", ", "\n") for name in parameters["network"]])
    right.set(title="shares of the trainable parameters, and how many there are", xlim=(0, 1))
    right.invert_yaxis()
    figure.legend(*right.get_legend_handles_labels(), loc="outside right center", frameon=False)
    return figure


@styled
def rho_curve(tidy: pd.DataFrame, printed: pd.DataFrame) -> Figure:
    """Accuracy against rho with the std over seeds, one column for each alpha; the paper's CIFAR-10 numbers below.

    tidy: alpha, seed, method, rho, pooled; printed: the paper's Table 6.
    """
    alphas = sorted(tidy["alpha"].unique())
    figure, axes = _axes(4.6 * len(alphas), 5.2, 2, len(alphas), sharex=True)
    for (ours, theirs), alpha in zip(axes.T, alphas):
        mine = tidy[tidy["alpha"] == alpha]
        sweep = 100 * mine[mine["method"] == "pfedsim"].groupby("rho")["pooled"].agg(["mean", "std"])
        _dots(ours, sweep.index, sweep["mean"], sweep["std"].fillna(0), INK, "pFedSim")
        for style, method in zip((":", "-."), sorted(set(mine["method"]) - {"pfedsim"})):
            accuracy = 100 * mine[mine["method"] == method]["pooled"].mean()
            ours.axhline(accuracy, color=REFERENCE, linestyle=style, linewidth=1.2, label=method)
        paper = printed[(printed["dataset"] == "cifar10") & (printed["partition_param"] == alpha)]
        _dots(theirs, paper["rho"].astype(float), paper["value"], paper["std"], PAPER, "pFedSim")
        ours.set(title=f"Dir({alpha:g}), ours", ylabel="accuracy, %")
        theirs.set(title=f"Dir({alpha:g}), paper, CIFAR-10", ylabel="accuracy, %", xlabel="rho (rho = 1 is FedAvg)")
    axes[0, 0].legend(frameon=False, loc="lower left")
    return figure


def _dots(ax, x, y, spread, colour: str, label: str) -> None:
    ax.errorbar(x, y, yerr=spread, color=colour, marker="o", markersize=4, capsize=3, label=label)


@styled
def scaling(tidy: pd.DataFrame) -> Figure:
    """Time of a round against its samples; time and memory against the number of clients. Grey lines: proportional growth.

    tidy: part ("samples", "clients"), method, num_clients, mean (training samples of a client), samples, round_s,
    evaluation_s, peak_bytes, before_bytes.
    """
    figure, axes = _axes(11.5, 3.3, 1, 3)
    by_samples, by_clients = (tidy[tidy["part"] == part] for part in ("samples", "clients"))
    ax = axes[0, 0]
    for (size, rows), marker in zip(by_samples.groupby("mean"), "osD^v"):
        ax.plot(rows["samples"], rows["round_s"], marker, color=INK, markersize=4, label=f"clients of {size:g} samples")
    _proportional(ax, by_samples["samples"], by_samples["round_s"])
    ax.set(title="time of a round", xlabel="samples trained on, every epoch counted", ylabel="seconds of the processor")
    panels = {"round_s": ("-", "round of 36"), "evaluation_s": (":", "evaluation of all")}
    for method, colour in zip(sorted(by_clients["method"].unique()), (INK, REFERENCE)):
        rows = by_clients[by_clients["method"] == method].sort_values("num_clients")
        for column, (line, label) in panels.items():
            axes[0, 1].plot(
                rows["num_clients"], rows[column], f"o{line}", color=colour, markersize=4, label=f"{method}, {label}"
            )
        memory = (rows["peak_bytes"] - rows["before_bytes"]) / 1e6
        axes[0, 2].plot(rows["num_clients"], memory, "o-", color=colour, markersize=4, label=method)
    _proportional(axes[0, 1], by_clients["num_clients"], by_clients["evaluation_s"])
    _proportional(axes[0, 2], by_clients["num_clients"], (by_clients["peak_bytes"] - by_clients["before_bytes"]) / 1e6)
    axes[0, 1].set(title="time against the number of clients", xlabel="clients", ylabel="seconds of the processor")
    axes[0, 2].set(title="peak memory beyond an idle process", xlabel="clients", ylabel="MB")
    for ax in axes[0]:
        known = any(np.isfinite(line.get_ydata()).any() for line in ax.lines)  # no memory in a quick run
        ax.set(xscale="log", yscale="log" if known else "linear")
        ax.legend(frameon=False, fontsize=7)
    return figure


def _proportional(ax, x, y) -> None:
    """A line of slope 1 in log-log through the geometric middle of the points."""
    ends, middle = np.array([x.min(), x.max()]), np.exp(np.log(y).mean() - np.log(x).mean())
    ax.plot(ends, middle * ends, color=PAPER, linewidth=0.8, zorder=0)


@styled
def curves(
    panels: dict[str, pd.DataFrame],
    xlabel: str | Sequence[str] = "",
    ylabel: str | Sequence[str] = "",
    marks: dict[str, pd.DataFrame] | None = None,
    ylim: tuple[float, float] | None = None,
) -> Figure:
    """Lines, a table a panel: its index is x, each column a line; names that agree before a comma share a colour, the rest sets the dash.

    xlabel, ylabel: for all panels, or for each. marks: points of a panel, one a row, columns x and y.
    """
    figure, axes = _axes(3.3 * len(panels) + 1.7, 3.0, 1, len(panels))
    labels = [[text] * len(panels) if isinstance(text, str) else text for text in (xlabel, ylabel)]
    names = dict.fromkeys(column.partition(", ")[0] for table in panels.values() for column in table.columns)
    colours = dict(zip(names, [INK, REFERENCE, "#4f9d69", "#d9902f", "#7d5ba6", PAPER]))
    for k, (ax, (title, table)) in enumerate(zip(axes[0], panels.items())):
        seen: dict[str, int] = {}
        for column in table.columns:
            name = column.partition(", ")[0]
            line = ("-", "--", ":", "-.")[seen.setdefault(name, 0) % 4]
            seen[name] += 1
            few = "o" if len(table) <= 12 else None
            ax.plot(table.index, table[column], line, color=colours[name], marker=few, markersize=3.5, label=column)
        points = (marks or {}).get(title)
        if points is not None:
            ax.plot(points["x"], points["y"], "o", color="black", markersize=4, zorder=3)
        if pd.api.types.is_integer_dtype(table.index):
            ax.set_xticks(_thinned(int(table.index.max()) + 1))
        ax.set(title=title, xlabel=labels[0][k], ylabel=labels[1][k], ylim=ylim)
    lines = {line.get_label(): line for ax in axes[0] for line in ax.lines if not line.get_label().startswith("_")}
    figure.legend(lines.values(), lines.keys(), loc="outside right center", frameon=False)
    return figure


# lessons 7 and 8 -------------------------------------------------------------------------------------------------------


@styled
def clusters_found(panels: dict[str, np.ndarray], groups: Sequence[int]) -> Figure:
    """Which cluster every client is in: a row for each client, a colour for each cluster; lines separate the true groups [N].

    panels: by title int [rounds, N], numbers of clusters, -1 for none; colours mean nothing across panels.
    """
    figure, axes = _axes(2.3 * len(panels) + 0.6, 2.9, 1, len(panels), sharey=True)
    for ax, (title, found) in zip(axes[0], panels.items()):
        colours = dict(zip(dict.fromkeys(np.asarray(found).flat), sns.color_palette("colorblind", 20)))
        picture = np.array([[colours[k] if k >= 0 else (1, 1, 1) for k in row] for row in np.asarray(found)])
        edges = (0.5, len(found) + 0.5, len(groups) - 0.5, -0.5)
        ax.imshow(picture.swapaxes(0, 1), aspect="auto", interpolation="nearest", extent=edges)
        for client in np.flatnonzero(np.diff(groups)):
            ax.axhline(client + 0.5, color="black", linewidth=1.2)
        ax.set(title=title, xlabel="round", yticks=_thinned(len(groups)))
    axes[0, 0].set_ylabel("client")
    return figure


@styled
def feature_plane(panels: dict[str, pd.DataFrame]) -> Figure:
    """Class means of features in a plane: a colour and number for each class, a circle for each client, a star for the global one.

    panels: by title a table with columns x, y, label and client (-1: global). Every panel has a scale of its own.
    """
    figure, axes = _axes(3.9 * len(panels), 3.7, 1, len(panels))
    for ax, (title, table) in zip(axes[0], panels.items()):
        palette = sns.color_palette("tab10", int(table["label"].max()) + 1)
        for (label, client), rows in table.groupby(["label", "client"]):
            marker, size = ("o", 26) if client >= 0 else ("*", 150)
            ax.scatter(rows["x"], rows["y"], s=size, marker=marker, color=[palette[label]], alpha=0.8, linewidths=0)
        for label, rows in table.groupby("label"):
            ax.annotate(
                str(label), (rows["x"].mean(), rows["y"].mean()), (4, 4), textcoords="offset points", weight="bold"
            )
        ax.set(title=title, xticks=[], yticks=[])
    return figure


def show(figure: Figure, dpi: int = 85) -> None:
    """Display a figure in a notebook as a small PNG."""
    import io

    from IPython.display import Image, display

    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi, bbox_inches="tight", metadata={"Software": None})
    display(Image(buffer.getvalue(), format="png"))
