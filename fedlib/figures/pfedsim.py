"""The figures of pFedSim's items."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from fedlib.analysis.names import counted, proper, titled
from fedlib.analysis.uncertainty import intervals
from fedlib.figures.accuracy import interval, leaders
from fedlib.figures.base import INK, PAPER, REFERENCE, axes_of, colour_map, headline, key_below, styled
from fedlib.figures.choices import ROW, beyond_seeds, effects_of_choices


@styled
def cka_by_layer(tidy: pd.DataFrame) -> Figure:
    """CKA between all pairs of models, one matrix a layer (the first seed's),
    and its distribution over all pairs and seeds.

    tidy: seed, layer, name, client_a, client_b, cka.
    """
    import seaborn as sns

    layers = sorted(tidy["layer"].unique())
    figure, axes = axes_of(2.1, 1, len(layers) + 1, width_ratios=[1] * len(layers) + [1.3])
    size = int(tidy[["client_a", "client_b"]].max().max()) + 1
    first = tidy[tidy["seed"] == tidy["seed"].min()]
    for ax, layer in zip(axes[0], layers):
        matrix = np.eye(size)
        rows = first[first["layer"] == layer]
        matrix[rows["client_a"], rows["client_b"]] = matrix[rows["client_b"], rows["client_a"]] = rows["cka"]
        image = ax.imshow(matrix, vmin=0, vmax=1, cmap="mako")
        ax.set_title(f"layer {layer}\n({rows['name'].iloc[0]})")
        ax.set_xticks(range(0, size, 4))
        ax.set_yticks(range(0, size, 4))
        ax.set_xlabel("client")
    axes[0, 0].set_ylabel("client")
    figure.colorbar(image, ax=list(axes[0, :-1]), shrink=0.6, aspect=40, orientation="horizontal", label="CKA")
    ax = axes[0, -1]
    sns.boxplot(tidy, x="layer", y="cka", ax=ax, color="#9fc5e8", linewidth=0.8, fliersize=1.5)
    title = f"all pairs,\n{counted(tidy['seed'].nunique(), 'seed')}"
    ax.set(title=title, xlabel="layer", ylabel="", ylim=(-0.02, 1.02))
    means = tidy.groupby("layer")["cka"].mean()
    text = f"Mean CKA of two clients' models: {means.iloc[0]:.2f} in the first layer"
    return headline(figure, f"{text}, {means.iloc[-1]:.2f} in the classifier")


@styled
def classifier_similarity(tidy: pd.DataFrame, pairs: dict[str, tuple[int, int]]) -> Figure:
    """Cosines between classifiers: totals as a matrix of pairs beside the cosines by class, mean over seeds.

    tidy: seed, pair, class, owned_by, cosine; pairs in the data's order of similarity.
    """
    import seaborn as sns

    by_class = tidy.groupby(["pair", "class"])["cosine"].mean().unstack().loc[list(pairs)]
    once = tidy.drop_duplicates(["pair", "class"])
    owner = once.pivot(index="pair", columns="class", values="owned_by").loc[list(pairs)]
    totals = tidy.groupby(["pair", "seed"], as_index=False)["cosine"].mean()
    totals = intervals(totals, "cosine", ["pair"]).set_index("pair").loc[list(pairs)]
    low = min(0.0, float(by_class.min().min())) if by_class.min().min() < 0.6 else 0.6
    figure, axes = axes_of(2.5, 1, 2, width_ratios=[1, 2.6])
    ax = axes[0, 0]
    ax.plot(range(len(pairs)), totals["mean"], color=INK, linewidth=0.8)
    interval(ax, range(len(pairs)), totals, "o", INK, 5, label="")
    for x, value in enumerate(totals["mean"]):
        ax.annotate(f"{value:.2f}", (x, value), (4, 3), textcoords="offset points", fontsize=7)
    ax.set_xticks(range(len(pairs)), [_pair_label(p) for p in pairs])
    n = totals["seeds"].max()
    title = f"mean of classes\n({n} seeds, 95 % CI)" if n > 1 else "mean of classes (1 seed)"
    ax.set(title=title, ylabel="cosine", ylim=(low, 1.05), xlim=(-0.3, len(pairs) - 0.2))
    ax = axes[0, 1]
    marks = owner.replace({"both": "●", "on one client": "○", "neither": "·"})
    text = by_class.map(lambda v: f"{v:.2f}") + "\n" + marks
    sns.heatmap(
        by_class, annot=text, fmt="", annot_kws={"size": 7}, vmin=low, vmax=1, cmap="mako", ax=ax, linewidths=0.5,
        cbar_kws={"label": "cosine", "pad": 0.02},
    )  # fmt: skip
    ax.set_yticklabels([_pair_label(p) for p in pairs], rotation=0)
    ax.set(title="by class: ● on both clients, ○ on one, · on neither", xlabel="class", ylabel="")
    values = list(totals["mean"])
    falls = all(left > right for left, right in zip(values, values[1:]))
    text = f"fall from {values[0]:.2f} to {values[-1]:.2f}" if falls else "do not always fall"
    return headline(figure, f"Cosines between classifiers {text} as the data of two clients become less similar")


def _pair_label(pair: str) -> str:
    return f"({pair.replace('-', ', ')})"


@styled
def similarity_measures(
    tidy: pd.DataFrame, ten_clients: pd.DataFrame, names: dict[str, str], pairs: list[str]
) -> Figure:
    """Each measure on the four pairs, which fall in the data's order from left to right;
    and rank correlations over ten clients.

    tidy: seed, measure, pair, value; ten_clients: seed, measure, rank_correlation.
    """
    import seaborn as sns

    figure, axes = axes_of(3.9, 2, 3)
    kept = []
    for ax, (measure, label) in zip(axes.flat, names.items()):
        wide = tidy[tidy["measure"] == measure].pivot(index="seed", columns="pair", values="value")[pairs]
        ax.plot(range(len(pairs)), wide.T, color=INK, alpha=0.25, linewidth=0.8)
        ax.plot(range(len(pairs)), wide.mean(), color=INK, marker="o", markersize=4)
        falls = int((wide.diff(axis=1).iloc[:, 1:] < 0).all(axis=1).sum())
        ax.set_xticks(range(len(pairs)), [_pair_label(p) for p in pairs])
        ax.set_title(f"{label}\ndata's order in {falls} of {counted(len(wide), 'seed')}")
        kept += [label] * (falls == len(wide) and label != names["data"])
    ax = axes[1, 2]
    shown = [m for m in names if m in set(ten_clients["measure"])]
    sns.stripplot(
        ten_clients, x="measure", y="rank_correlation", order=shown, ax=ax, color=INK, alpha=0.6, size=4, jitter=False
    )
    ax.set_xticks(range(len(shown)), [names[m].partition(" (")[0] for m in shown])
    ax.axhline(0, color="black", linewidth=0.6)
    ax.set(title="rank correlation\nwith the data, 10 clients", xlabel="", ylabel="", ylim=(-1, 1))
    return headline(figure, f"Measures that rank the pairs like the data in every seed: {', '.join(kept) or 'none'}")


@styled
def data_and_networks(stats: pd.DataFrame, printed: pd.DataFrame, parameters: pd.DataFrame) -> Figure:
    """Spread of the clients' sizes, printed and drawn with and without cap;
    and in which layers the networks' numbers are.

    stats: dataset, alpha, cap, mean_size, std_size, a draw a row; printed: dataset, alpha, value, std;
    parameters: network, then one column for each part of it, `all`, `statistics`.
    """
    import seaborn as sns

    figure, ((left, right),) = axes_of(2.9, 1, 2, width_ratios=[1.1, 1])
    cells, within = list(printed[["dataset", "alpha", "value", "std"]].itertuples(index=False)), []
    for y, cell in enumerate(cells):
        own = stats[(stats["dataset"] == cell.dataset) & (stats["alpha"] == cell.alpha)]
        for cap, colour, shift in ((True, INK, -0.17), (False, PAPER, 0.17)):
            spread = own[own["cap"] == cap].eval("std_size / mean_size")
            if len(spread):
                label = f"ours, {'size cap' if cap else 'no size cap'}" if y == 0 else None
                left.plot([spread.min(), spread.max()], [y + shift] * 2, color=colour, linewidth=3, label=label)
                within += [spread.min() <= cell.std / cell.value <= spread.max()] * cap
        left.plot(cell.std / cell.value, y, "D", color=REFERENCE, markersize=3.5, label="paper" if y == 0 else None)
    left.set_yticks(range(len(cells)), [titled(f"{c.dataset}, Dir({c.alpha:g})") for c in cells])
    left.set(title="std / mean of the clients' sizes\n(lines: range of the partitions)", xlim=(0, None))
    left.invert_yaxis()
    left.legend(loc="lower right")
    parts = [c for c in parameters.columns if c not in ("network", "input", "classes", "all", "statistics")]
    done = np.zeros(len(parameters))
    for part, colour in zip(parts, sns.color_palette("mako", len(parts))):
        share = (parameters[part] / parameters["all"]).to_numpy()
        colour = REFERENCE if part == parts[-1] else colour
        right.barh(range(len(parameters)), share, left=done, color=colour, label=part)
        done += share
    for y, total in enumerate(parameters["all"]):
        right.annotate(f"{total:,}", (1.02, y), va="center", annotation_clip=False, fontsize=7)
    names = [name.replace(", ", "\n").replace(" (", "\n(") for name in parameters["network"]]
    right.set_yticks(range(len(parameters)), names)
    right.set(title="shares and number of the trainable parameters", xlim=(0, 1))
    right.invert_yaxis()
    key_below(figure, right)
    text = f"{sum(within)} of {len(within)} reported spreads of client sizes are within those of our capped partitions"
    return headline(figure, text)


@styled
def workflow(phi: pd.DataFrame, rounds: pd.DataFrame, meetings: pd.DataFrame) -> Figure:
    """How pFedSim's similarity matrix fills up: the matrix after some rounds
    (white: never compared), then shares of pairs and weights over the rounds.

    phi: round, client, other, phi; rounds: round, phase, pairs, others; meetings: rounds, drawn, expected.
    """
    shown = sorted(phi["round"].unique())
    figure, grid = axes_of(4.1, 2, max(6, 2 * len(shown)), height_ratios=[1, 1])
    spec = grid[0, 0].get_gridspec()
    for ax in grid.flat:
        ax.remove()
    wide = spec.ncols // len(shown)
    axes = [figure.add_subplot(spec[0, k * wide : (k + 1) * wide]) for k in range(len(shown))]
    axes += [figure.add_subplot(spec[1, : spec.ncols // 2]), figure.add_subplot(spec[1, spec.ncols // 2 :])]
    least = phi.loc[phi["phi"] > 0, "phi"].min()
    for ax, t in zip(axes, shown):
        matrix = phi[phi["round"] == t].pivot(index="client", columns="other", values="phi").to_numpy()
        image = ax.imshow(np.where(matrix > 0, matrix, np.nan), vmin=least, vmax=1, cmap=colour_map("mako"))
        ax.set(title=f"similarity after round {t}", xlabel="client", ylabel="client" if ax is axes[0] else "")
    figure.colorbar(image, ax=axes[: len(shown)], shrink=0.9, pad=0.01)
    own, paper = axes[-2:]
    start = rounds.loc[rounds["phase"] == "personalisation", "round"].min() - 0.5
    own.axvspan(rounds["round"].min() - 0.5, start, color="#eeeeee")
    own.text((rounds["round"].min() + start) / 2, 0.3, "FedAvg", ha="center")
    own.plot(rounds["round"], rounds["pairs"], color=INK, label="pairs compared so far")
    own.plot(rounds["round"], rounds["others"], color=REFERENCE, label="weight of other clients")
    own.set(title="this run", xlabel="round", ylabel="share")
    own.legend(loc="upper left")
    paper.plot(meetings["rounds"], meetings["drawn"], color=INK, label="sampled")
    paper.plot(meetings["rounds"], meetings["expected"], color=PAPER, linestyle="--", label="expected")
    paper.set(title="10 of 100 clients per round", xlabel="rounds of personalisation", ylabel="pairs sampled together")
    paper.legend(loc="lower right")
    for ax in (own, paper):
        ax.set_ylim(0, 1.02)
    known, most = rounds["pairs"].iloc[-1], rounds["others"].max()
    text = f"At the end {known:.0%} of client pairs were compared; others' mean weight in extractors reaches {most:.0%}"
    return headline(figure, text)


@styled
def overhead(tidy: pd.DataFrame, printed: pd.DataFrame, about: str) -> Figure:
    """Time and traffic of a client as ratios to FedAvg's: one dot a repetition, the paper's data sets as diamonds.

    tidy: method, seconds_ratio, down_ratio, up_ratio; printed: the paper's ratios of time, data sets by methods; about:
    the method of the title.
    """
    methods = list(dict.fromkeys(tidy["method"]))
    figure, ((left, right),) = axes_of(0.36 * len(methods) + 1.1, 1, 2, sharey=True)
    for y, method in enumerate(methods):
        own = tidy[tidy["method"] == method]
        left.plot(
            own["seconds_ratio"], [y - 0.12] * len(own), "o", color=INK, markersize=4, label="ours" if y == 0 else None
        )
        cells = printed[method]
        said = "paper, 4 data sets" if y == 0 else None
        left.plot(cells, [y + 0.14] * len(cells), "D", color=PAPER, markersize=4, label=said)
        for shift, way, colour in ((-0.14, "down", INK), (0.14, "up", REFERENCE)):
            right.barh(y + shift, own[f"{way}_ratio"].mean(), height=0.26, color=colour, label=said and f"{way}load")
    left.axvline(1, color="#bbbbbb", linewidth=0.8, zorder=0)
    left.set(title="seconds per training sample / FedAvg's")
    right.set(title="parameters sent / FedAvg's (ours, counted)")
    left.set_yticks(range(len(methods)), map(proper, methods))
    left.invert_yaxis()
    left.legend()
    right.legend()
    own = tidy[tidy["method"] == about]
    time, sent = own["seconds_ratio"].mean(), (own["down_ratio"] + own["up_ratio"]).mean() / 2
    return headline(figure, f"{proper(about)} takes {time:.2f} times FedAvg's time and {sent:.2f} times its traffic")


@styled
def leads_by_protocol(found: pd.DataFrame) -> Figure:
    """pFedSim's lead over every other method, one panel a column: in grey by the first protocol of evaluation, in
    colour by the second. The axes are as long as the second one needs; what lies beyond is written at the edge.

    found: column, row, protocol, mean, low, high, in points.
    """
    protocols, panels = list(dict.fromkeys(found["protocol"])), list(dict.fromkeys(found["column"])) or [""]
    known = np.isfinite(found["low"]).any()
    smallest = found.groupby(["row", "protocol"])["mean"].min().unstack().reindex(columns=protocols[::-1])
    rows = smallest.sort_values(list(smallest), na_position="last").index if protocols else []
    figure, (axes,) = axes_of(0.24 * max(len(rows), 3) + 1.3, 1, len(panels), sharex=True, sharey=True)
    ends = found.loc[found["protocol"].isin(protocols[-1:]), ["mean", "low", "high"]].replace([-np.inf, np.inf], np.nan)
    left, right = np.nanmin([-1, ends.min().min()]) - 0.5, np.nanmax([1, ends.max().max()]) + 1.5
    for ax, panel in zip(axes, panels):
        ax.hlines(range(len(rows)), left, right, color="#eeeeee", linewidth=0.8, zorder=0)
        ax.axvline(0, color="black", linewidth=0.8)
        for name, colour, marker, shift in zip(protocols, (PAPER, INK), "oD", (-0.16, 0.16)):
            own = found[(found["column"] == panel) & (found["protocol"] == name)].reset_index(drop=True)
            y, far = np.array([rows.get_loc(row) + shift for row in own["row"]]), own["mean"] > right
            interval(ax, y[~far], own[~far], marker, colour, 4, label=name, horizontal=True)
            for at, lead in zip(y[far], own.loc[far, "mean"]):
                text = f"{lead:+.1f} \N{RIGHTWARDS ARROW}"
                ax.text(right, at, text, ha="right", va="center", color=colour, fontsize=7)
        over = "bars: 95 % CI" if known else "one seed"
        ax.set(title=panel, xlabel=f"pFedSim's lead, points ({over})", xlim=(left, right))
    axes[0].set_yticks(range(len(rows)), map(proper, rows))
    axes[0].set_ylim(max(len(rows), 1) - 0.5, -0.5)
    if known:
        ahead = found.assign(ahead=found["low"] > 0).groupby(["protocol", "row"], sort=False)["ahead"].all()
        parts = [f"{own.sum()} of {len(own)} methods, {name}" for name, own in ahead.groupby("protocol", sort=False)]
        where = "both" if len(panels) == 2 else "all"
        text = f"At {where} alphas pFedSim is significantly ahead of {', but of '.join(parts)}"
    else:
        first = (found["mean"] > 0).groupby(found["protocol"], sort=False).agg(["sum", "size"])
        parts = [f"{own['sum']} of {own['size']} differences, {name}" for name, own in first.iterrows()]
        text = "pFedSim is ahead in " + ", and in ".join(parts)
    key_below(figure, axes[0])
    return headline(figure, text)


@styled
def domains(cells: pd.DataFrame, about: str) -> Figure:
    """Accuracy by method and domain, ours beside the paper's (other domains, so columns do not correspond);
    the first column is the average.

    cells: as in `fedlib.figures.accuracies`, a column a domain; about: the method of the title.
    """
    import seaborn as sns

    tables = {
        series: own.pivot(index="row", columns="column", values="mean")[list(dict.fromkeys(own["column"]))]
        for series, own in cells.groupby("series", sort=False)
    }
    rows = list(dict.fromkeys(cells["row"]))
    figure, (axes,) = axes_of(0.24 * len(rows) + 1.3, 1, len(tables), sharey=True)
    for ax, (series, table) in zip(axes, tables.items()):
        table = table.reindex(index=rows)[sorted(table, key=lambda column: column != "average")]
        centred = table - table.mean()  # who is good within a domain; domains are not equally hard
        named = centred.rename(index=proper, columns=proper)
        looks = dict(fmt=".1f", cmap="vlag", center=0, cbar=False, annot_kws={"fontsize": 6})
        sns.heatmap(named, ax=ax, annot=table, **looks)
        ax.set(title=series, xlabel="", ylabel="")
        ax.tick_params(axis="x", rotation=40)
        ax.axvline(1, color="white", linewidth=3)
    figure.supxlabel("accuracy, %; red: above the mean of the domain, blue: below")
    return headline(figure, leaders(cells, about))


@styled
def open_choices(effects: pd.DataFrame, leads: pd.DataFrame, method: str) -> Figure | None:
    """Above: what every choice does to accuracy, see `fedlib.figures.choices.effects_of_choices`.
    Below: the method's lead over the best other one with its 95 % interval, by definition of the accuracy metric.

    effects: as there; leads: metric, column, lead, low, high.
    """
    names = effects.loc[effects["code"] != "", "choice"].unique()
    rules = list(leads["metric"].unique())
    if not len(names) and not rules:
        return None
    height, ratios = ROW * (len(names) + len(rules)) + 2.3, [len(names) + 2, len(rules) + 1]
    figure, ((left,), (right,)) = axes_of(height, 2, 1, height_ratios=ratios)
    effects_of_choices(left, effects, method, names)
    left.invert_yaxis()
    left.set_title("Alternative choices")
    for k, (column, own) in enumerate(leads.groupby("column", sort=False)):
        own = own.set_index("metric").loc[rules].rename(columns={"lead": "mean"})
        y = np.arange(len(rules)) + (0.15 if k else -0.15)
        interval(right, y, own, "s" if k else "o", REFERENCE if k else INK, 4, label=column, horizontal=True)
    right.axvline(0, color="black", linewidth=0.8)
    right.set_yticks(range(len(rules)), rules)
    right.invert_yaxis()
    for ax in (left, right):
        if ax.get_legend_handles_labels()[0]:
            ax.legend(loc="upper left", bbox_to_anchor=(1, 1))
    right.set_title("The same runs, by definition of the accuracy metric")
    right.set_xlabel(f"{proper(method)} minus the best competitor, points")
    return headline(figure, beyond_seeds(effects, method))
