"""Drawings for the lessons on clusters and on prototypes: models for groups of clients, class means that travel."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from fedlib.figures.base import APART, INK, axes_of, styled
from fedlib.figures.schematics import IDLE, TEXT, UP, arrow, box

CLASSES = ("o", "s", "^")  # markers of the classes 0, 1, 2 in the plane of features
CAPTION = "features $z=f(x)$ of samples of three classes;\na star is the mean of a class: its prototype"
SAMPLES = (((0.2, 0.7), (0.5, 0.86), (0.3, 0.95)), ((0.75, 0.75), (0.93, 0.9), (0.95, 0.65)), ((0.5, 0.1), (0.7, 0.3)))


@styled
def several_models(
    chosen: Sequence[int] = (0, 0, 1, 1, 2),
    weights: Sequence[Sequence[float]] = ((0.9, 0.1, 0), (0.6, 0.4, 0), (0, 1, 0), (0, 0.5, 0.5), (0.1, 0, 0.9)),
) -> Figure:
    """Several models on the server. Left: every client has one of them. Right: every client mixes all of them; a
    thicker line is a larger weight, and a weight of 0 has no line."""
    figure, (axes,) = axes_of(10.8, 3.5, 1, 2)
    figure.set_facecolor("white")
    one_only = [[float(k == j) for k in range(len(weights[0]))] for j in chosen]
    titles = (
        "choose: a client has ONE of the models\nIFCA, ClusterFL, FeSEM",
        "weigh: a client mixes ALL models\nFedEM",
    )
    for ax, title, shares in zip(axes, titles, (one_only, weights)):
        places = [(k + 0.5) * len(shares) / len(shares[0]) - 0.5 for k in range(len(shares[0]))]
        for k, x in enumerate(places):
            box(ax, x, 2.4, 1.15, 0.55, APART[k], f"model $\\theta_{k}$")
        for i, own in enumerate(shares):
            box(ax, i, 0, 0.84, 0.55, IDLE, f"client {i}")
            for k, share in enumerate(own):
                if share > 0:
                    ax.plot([places[k], i], [2.08, 0.32], color=APART[k], linewidth=1 + 4 * share, alpha=0.85)
        ax.text((len(shares) - 1) / 2, 2.98, "server", ha="center", color=INK, weight="bold")
        ax.set(xlim=(-0.6, len(shares) - 0.4), ylim=(-0.4, 3.3))
        ax.set_title(title, color=TEXT)
        ax.axis("off")
    return figure


@styled
def prototypes_and_head() -> Figure:
    """From an image to scores on a client: extractor, plane of features with a star for the mean of every class, head.
    Above it the server, and what travels."""
    figure, ((ax,),) = axes_of(10.8, 4.0)
    figure.set_facecolor("white")
    box(ax, 0.2, 0, 1.3, 0.75, IDLE, "image $x$")
    box(ax, 2.3, 0, 1.6, 0.75, INK, "extractor $f$")
    box(ax, 5.2, 0, 2.4, 1.9, IDLE, "")
    box(ax, 8.1, 0, 1.6, 0.75, INK, "head: a\nlinear layer")
    box(ax, 10.3, 0, 1.4, 0.75, IDLE, "a score for\nevery class")
    for start, end in ((0.9, 1.42), (3.15, 3.92), (6.47, 7.25), (8.95, 9.55)):
        arrow(ax, (start, 0), (end, 0), TEXT)
    for c, (marker, points) in enumerate(zip(CLASSES, SAMPLES)):
        at = [(4.1 + 2.2 * x, -0.85 + 1.7 * y) for x, y in points]
        ax.plot(*zip(*at), marker, color=APART[c], markersize=5, alpha=0.7)
        mean = [sum(values) / len(at) for values in zip(*at)]
        ax.plot(*mean, "*", color=APART[c], markersize=15, markeredgecolor=TEXT, markeredgewidth=0.7)
    ax.text(5.2, -1.32, CAPTION, ha="center", va="center", color=TEXT)
    box(ax, 5.2, 2.5, 6.6, 0.62, INK, "server: averages prototypes (FedProto, FedPAC) or trains a head on them (FedGH)")
    arrow(ax, (4.8, 1.0), (4.8, 2.13), UP, "prototypes up", (3.85, 1.57))
    arrow(
        ax, (5.6, 2.13), (5.6, 1.0), INK, "prototypes down, a pull\non the features\n(FedProto, FedPAC)", (6.82, 1.57)
    )
    arrow(ax, (8.1, 2.13), (8.1, 0.43), INK, "a head down\n(FedPAC, FedGH)", (9.15, 1.57))
    ax.set(xlim=(-0.6, 11.1), ylim=(-1.7, 3))
    ax.axis("off")
    return figure
