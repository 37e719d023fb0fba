"""Drawings that show no data: what becomes of models. Split, started from, made by a network, mixed."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from fedlib.figures.base import INK, axes_of, styled
from fedlib.figures.schematics import IDLE, TEXT, UP, arrow, box

SHARED, STAYS, FIXED, NONE = "shared", "stays", "not trained", ""
PARTS = ("extractor", "batch norm", "head", "second head")
SPLITS = {
    "FedAvg": (SHARED, SHARED, SHARED, NONE),
    "FedPer, FedRep": (SHARED, SHARED, STAYS, NONE),
    "FedBABU": (SHARED, SHARED, FIXED, NONE),
    "FedRoD": (SHARED, SHARED, SHARED, STAYS),
    "FedBN": (SHARED, STAYS, SHARED, NONE),
    "Local": (STAYS, STAYS, STAYS, NONE),
}
WAYS = {
    "Per-FedAvg: a start, and a step of one's own": "arrow to $w'_i$: one step on the client's own images",
    "pFedMe: a model on a lead": r"dots: the lead, $\frac{\lambda}{2}\,\|\theta_i-w\|^2$",
    "pFedHN: a network makes models": "$v_i$: a few numbers for each client, kept by the server",
}
LOOKS_AT = {
    "FedFomo": "the loss on client i's validation images",
    "FedAMP": "the distance of whole models",
    "f-FedAP": "means and variances inside batch norm",
    "pFedSim": "the cosine of the heads",
}


@styled
def split_model(num_clients: int = 3) -> Figure:
    """What is shared and what stays: on the left FedPer's round, extractors travel (down and up) and heads do not;
    on the right the same question for every method and part of a model."""
    figure, (left, right) = _ground(10.8, 3.7, widths=(1, 1.15))
    middle = (num_clients - 1) / 2
    box(left, middle, 3.0, 0.95 * num_clients, 0.6, INK, "server: the mean of the\nextractors $f_i$, called $f$")
    for i in range(num_clients):
        at_server = (middle + i) / 2
        arrow(left, (at_server - 0.09, 2.68), (i - 0.09, 1.55), INK, "$f$", ((at_server + i) / 2 - 0.27, 2.12))
        arrow(left, (i + 0.09, 1.55), (at_server + 0.09, 2.68), INK, f"$f_{i}$", ((at_server + i) / 2 + 0.27, 2.12))
        box(left, i, 1.2, 0.84, 0.6, INK, f"extractor\n$f_{i}$")
        box(left, i, 0.5, 0.84, 0.6, UP, f"head $h_{i}$\nstays")
        left.text(i, 0.02, f"client {i}", ha="center", va="center", color=TEXT)
    left.set(xlim=(-0.6, num_clients - 0.4), ylim=(-0.2, 3.75))
    left.set_title("a split model: FedPer", color=TEXT)
    colour = {SHARED: INK, STAYS: UP, FIXED: IDLE}
    for x, part in enumerate(PARTS):
        right.text(x, len(SPLITS), part, ha="center", va="center", color=TEXT, weight="bold")
    for y, (method, parts) in enumerate(SPLITS.items()):
        row = len(SPLITS) - 1 - y
        right.text(-0.62, row, method, ha="right", va="center", color=TEXT)
        for x, what in enumerate(parts):
            if what:
                box(right, x, row, 0.84, 0.66, colour[what], what)
    right.set(xlim=(-2.0, len(PARTS) - 0.5), ylim=(-0.5, len(SPLITS) + 0.4))
    right.set_title("who shares what", color=TEXT)
    return figure


@styled
def starts_and_makers(num_clients: int = 3) -> Figure:
    """Three ways from a server to personal models: a start and a step of one's own, a common model and a lead,
    a network that makes models. Blue is the same for all, orange is one client's."""
    figure, panels = _ground(10.8, 3.7, widths=(1, 1, 1))
    middle, wide = (num_clients - 1) / 2, 0.95 * num_clients
    tops = ("server: the start $w$", "server: the common $w$", r"server: hypernetwork $h(v_i;\varphi)$")
    own = ("w'", r"\theta", r"\theta")
    for k, (ax, title) in enumerate(zip(panels, WAYS)):
        box(ax, middle, 2.86 - 0.56 * (k == 2), wide, 0.5, INK, tops[k])
        for i in range(num_clients):
            box(ax, i, 0.36, 0.84, 0.62, UP, f"client {i + 1}\n${own[k]}_{i + 1}$")
            if k == 2:
                box(ax, i, 3.0, 0.7, 0.4, UP, f"$v_{i + 1}$")
                arrow(ax, (i, 2.77), (i, 2.58), UP)
                arrow(ax, (i, 2.02), (i, 0.7), UP)
                continue
            arrow(ax, ((middle + i) / 2, 2.58), (i, 1.9), INK)
            box(ax, i, 1.62, 0.84, 0.46, INK, "$w$")
            if k == 0:
                arrow(ax, (i, 1.36), (i, 0.7), UP)
            else:
                ax.plot([i, i], [0.7, 1.36], ":", color=UP, linewidth=2)
        ax.text(middle, -0.25, WAYS[title], ha="center", color=TEXT)
        ax.set(xlim=(-0.7, num_clients - 0.3), ylim=(-0.45, 3.3))
        ax.set_title(title, color=TEXT)
    return figure


@styled
def mixing_matrix(weights: Sequence[Sequence[float]], shown: int = 0) -> Figure:
    """Whose models go into whose: a row for each client's mixture, a column for each model, the larger a weight the
    darker; the mixture of client `shown` in words; beside it what four methods look at. Each row must sum to 1."""
    assert all(abs(sum(row) - 1) < 1e-9 for row in weights), "rows are shares"
    figure, (left, right) = _ground(10.6, 3.5, widths=(1.35, 1))
    N = len(weights)
    for i, row in enumerate(weights):
        y, colour = N - 1 - i, UP if i == shown else INK
        left.text(-0.65, y, f"client {i}", ha="right", va="center", color=TEXT)
        left.text(i, N - 0.35, rf"$\theta_{i}$", ha="center", va="center", color=TEXT)
        for j, weight in enumerate(row):
            left.fill(
                [j - 0.46, j + 0.46, j + 0.46, j - 0.46], [y - 0.4, y - 0.4, y + 0.4, y + 0.4], color=INK, alpha=weight
            )
            left.text(j, y, f"{weight:.2g}", ha="center", va="center", color="white" if weight > 0.75 else TEXT)
        arrow(left, (N - 0.45, y), (N + 0.15, y), colour)
        box(left, N + 1.0, y, 1.6, 0.66, colour, f"mixture for {i}")
    left.text((N - 1) / 2, N + 0.2, "models that clients have sent", ha="center", va="center", color=TEXT)
    terms = " + ".join(rf"{weight:.2g} $\theta_{j}$" for j, weight in enumerate(weights[shown]) if weight)
    left.text((N + 1) / 2 - 0.4, -0.85, f"client {shown} gets  {terms}", ha="center", va="center", color=UP)
    left.set(xlim=(-1.7, N + 2.0), ylim=(-1.15, N + 0.5))
    right.text(0, 4.5, "How large is the weight in row i, column j?", color=TEXT, weight="bold")
    for k, (method, looks) in enumerate(LOOKS_AT.items()):
        right.text(0, 3.7 - k, method, color=INK, weight="bold")
        right.text(0, 3.35 - k, looks, color=TEXT)
    right.set(xlim=(0, 1), ylim=(-0.3, 5))
    return figure


def _ground(width: float, height: float, widths: Sequence[float]):
    """A figure with a white ground of its own, for dark pages too, and its panels without axes."""
    figure, (panels,) = axes_of(width, height, 1, len(widths), width_ratios=widths)
    figure.set_facecolor("white")
    for ax in panels:
        ax.axis("off")
    return figure, panels
