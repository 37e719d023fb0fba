"""The lessons' drawings, which show no data but how the parts of a federated system work together, free to reuse
(CC BY 4.0), as SVG on light and on dark ground:

    python notebooks/labs/drawings.py FOLDER

writes FOLDER/light/<name>.svg and FOLDER/dark/<name>.svg. Those in figures/lessons/ were made so, and lessons show
them (`fedlib.figures.drawing`).
"""

import colorsys
import io
import re
import sys
from itertools import combinations
from pathlib import Path

from fedlib.figures.base import APART, INK, PAPER, REFERENCE, axes_of, colours, styled

import matplotlib
import numpy as np
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Ellipse, FancyBboxPatch, Rectangle

TEXT, IDLE, UP = "#333333", "#9a9a9a", APART[1]
STAYS, TEACHES = APART[2], APART[3]  # what never leaves its client; what one network tells another


def sheet(width: float, height: float, *widths: float, **shared):
    """A figure on a white ground of its own, for dark pages too, and its panels of these widths, without axes."""
    figure, (panels,) = axes_of(height, 1, len(widths) or 1, width=width, width_ratios=widths or None, **shared)
    figure.set_facecolor("white")
    for ax in panels:
        ax.axis("off")
    return figure, panels


def box(ax, x: float, y: float, width: float, height: float, colour: str, text: str) -> None:
    """A box with rounded corners and a text, both centred on (x, y); grey boxes have dark text."""
    style = {"boxstyle": "round,pad=0.02,rounding_size=0.08", "facecolor": "white", "edgecolor": colour}
    ax.add_patch(FancyBboxPatch((x - width / 2, y - height / 2), width, height, linewidth=1.6, **style))
    ax.text(x, y, text, ha="center", va="center", color=TEXT if colour == IDLE else colour)


def arrow(ax, start: tuple[float, float], end: tuple[float, float], colour: str, text: str = "", at=None) -> None:
    """An arrow, and a text at a point (default: its middle)."""
    ax.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": colour, "linewidth": 1.5})
    x, y = at or ((start[0] + end[0]) / 2, (start[1] + end[1]) / 2)
    ax.text(x, y, text, ha="center", va="center", color=colour, weight="bold")


def square(ax, x: float, y: float, side: float, colour: str, text: str) -> None:
    """One sample: a filled square of this colour, a text on it, both centred on (x, y)."""
    ax.add_patch(Rectangle((x - side / 2, y - side / 2), side, side, facecolor=colour, edgecolor="white"))
    ax.text(x, y, text, ha="center", va="center", color="white", size=8)


def levels(ax, names: dict[str, float], line: float) -> None:
    """Names of the heights at the left, and a line between server and clients."""
    for name, y in names.items():
        ax.text(-0.5, y, name, va="center", color=TEXT, weight="bold")
    ax.plot(ax.get_xlim(), (line, line), ":", color=IDLE, linewidth=1)


def bow(colour: str, style: str = "-|>") -> dict:
    return {"arrowstyle": style, "color": colour, "linewidth": 1.5, "connectionstyle": "arc3,rad=-0.1"}


# lesson 0 ------------------------------------------------------------------------------------------------------------

STEPS = (
    ("1  sample", "the server samples the participants of this round"),
    ("2  download", "each participant receives the server's model"),
    ("3  train", "each participant trains it on its own images"),
    ("4  upload", "each participant sends its trained model back"),
    ("5  aggregate", "the server makes its next model from the uploads"),
)


@styled
def federated_round() -> Figure:
    """One round: the server above, two boxes for every client below, arrows down (2) and up (4) for participants only;
    beside it the five steps in words."""
    figure, (left, right) = sheet(10.6, 3.7, 1.45, 1)
    num_clients, participants = 5, (0, 2, 3)
    middle = (num_clients - 1) / 2
    box(left, middle, 2.75, 2.7, 0.6, INK, "server, with the model $\\theta$\n1 sample, 5 aggregate")
    for i in range(num_clients):
        does, colour = ("3 train", INK) if i in participants else ("idle", IDLE)
        box(left, i, 0.75, 0.84, 0.62, colour, f"client {i}\n{does}")
        box(left, i, 0.0, 0.84, 0.42, IDLE, "its images")
        at_server = (middle + i) / 2
        if i in participants:
            beside = (at_server + i) / 2
            arrow(left, (at_server - 0.09, 2.42), (i - 0.09, 1.1), INK, "2", (beside - 0.24, 1.76))
            arrow(left, (i + 0.09, 1.1), (at_server + 0.09, 2.42), UP, "4", (beside + 0.24, 1.76))
    left.text(middle, -0.58, "images never leave their client", ha="center", color=TEXT)
    left.set(xlim=(-0.6, num_clients - 0.4), ylim=(-0.75, 3.2))
    for k, (name, what) in enumerate(STEPS):
        right.text(0, 4.2 - k, name, color={"2": INK, "4": UP}.get(name[0], TEXT), weight="bold")
        right.text(0, 3.86 - k, what, color=TEXT)
    right.set(xlim=(0, 1), ylim=(-0.4, 4.8))
    return figure


# lessons 1 to 3 ------------------------------------------------------------------------------------------------------

DEALING = (
    ("1  draw", "a share of the class for each client"),
    ("2  cut", "the samples of the class at these shares"),
    ("3  deal", "each piece to its client"),
    ("4  go on", "with the next class, and new shares"),
)
STEEPNESS, BEST = {"A": (1.0, 1.0), "B": (3.0, 1.0)}, {"A": (0.0, 0.0), "B": (4.0, 1.6)}  # lesson 3's two clients


@styled
def dealt_classes() -> Figure:
    """The samples of every class above, cut into one piece a client, and the clients who get them below; beside it the
    steps in words. A client without samples of a class gets no arrow from it."""
    figure, (left, right) = sheet(10.8, 3.6, 1.75, 1)
    counts = np.array([[2, 0, 0], [1, 3, 0], [1, 1, 4]])  # [clients, classes], those of the lesson
    ends = np.cumsum(counts.sum(0) + 1.6)
    starts, places = ends - counts.sum(0) - 1.6, (np.arange(len(counts)) + 0.5) * (ends[-1] - 1.6) / len(counts)
    held = np.zeros(len(counts))
    for i, x in enumerate(places):
        box(left, x, 0, max(counts.sum(1).max(), 4) * 0.55 + 0.5, 1.25, INK, "")
        left.text(x, 0.36, f"client {i}", ha="center", va="center", color=INK, weight="bold")
    for c, (start, pieces) in enumerate(zip(starts, counts.T)):
        left.text(start + pieces.sum() / 2, 4.05, f"class {c}", ha="center", color=APART[c], weight="bold")
        at = start
        for i, n in enumerate(pieces):
            if at > start and n:
                left.plot([at, at], [2.75, 3.95], "--", color=TEXT, linewidth=1.2)
            for k in range(n):
                square(left, at + k + 0.5, 3.35, 0.84, APART[c], str(c))
                square(left, places[i] + 0.55 * (held[i] - (counts[i].sum() - 1) / 2), -0.22, 0.46, APART[c], str(c))
                held[i] += 1
            if n:
                arrow(left, (at + n / 2, 2.75), (places[i] + 0.5 * (c - (len(starts) - 1) / 2), 0.72), APART[c])
            at += n
    left.set(xlim=(-0.4, ends[-1] - 1.2), ylim=(-0.8, 4.5))
    for k, (name, what) in enumerate(DEALING):
        right.text(0.02, len(DEALING) - 0.8 - k, name, color=INK, weight="bold")
        right.text(0.02, len(DEALING) - 1.15 - k, what, color=TEXT)
    right.set(xlim=(0, 1), ylim=(-0.3, len(DEALING) - 0.3))
    return figure


@styled
def weighted_average() -> Figure:
    """One round of two clients with one and three samples: copies of one model go down, the weighted average is made
    of what comes up. Beside it: the average on the way from one client's model to the other's."""
    figure, (left, right) = sheet(10.8, 3.6, 1.9, 1)
    samples, names = (1, 3), "AB"
    n = sum(samples)
    box(left, 0, 1, 1.5, 0.9, INK, "server\nmodel $\\theta$")
    mean = " + ".join(f"{k}/{n} $\\theta_{name}$" for name, k in zip(names, samples))
    box(left, 7.2, 1, 2.3, 0.9, INK, f"server, new model\n{mean}")
    for name, k, y, colour in zip(names, samples, (2, 0), colours(2)):
        box(left, 3.2, y, 2.3, 1.15, IDLE, f"client {name} trains its copy\non {k} sample{'s' * (k > 1)}\n\n")
        for j in range(k):
            square(left, 3.2 + 0.3 * (j - (k - 1) / 2), y - 0.33, 0.2, IDLE, "")
        arrow(left, (0.85, 1 + 0.3 * (y - 1)), (1.95, y), TEXT, "copy", (1.2, 1 + 0.75 * (y - 1)))
        arrow(left, (4.45, y), (5.95, 1 + 0.3 * (y - 1)), colour, f"$\\theta_{name}$", (5.25, 1 + 0.95 * (y - 1)))
    left.set(xlim=(-0.9, 8.5), ylim=(-0.8, 2.8))
    right.plot([0, 1], [0, 0], color=IDLE, linewidth=1.5)
    for name, x, colour in zip(names, (0, 1), colours(2)):
        right.plot(x, 0, "o", color=colour, markersize=10)
        right.text(x, -0.28, f"$\\theta_{name}$", ha="center", va="center", color=colour, size=12)
    right.plot(samples[1] / n, 0, "D", color=REFERENCE, markersize=9)
    right.text(samples[1] / n, 0.25, f"{samples[1]}/{n} of the way", ha="center", va="center", color=REFERENCE)
    right.text(0.5, -0.85, "the client with more samples\npulls the average towards it", ha="center", color=TEXT)
    right.set(xlim=(-0.15, 1.15), ylim=(-1, 1))
    return figure


@styled
def drifting_clients() -> Figure:
    """Two clients that start at the model that is best for all. One step each: the average stays. Many: each walks
    to its own best model, and the average leaves the best for all. Ellipses: equal loss."""
    figure, axes = sheet(10.8, 3.3, 1, 1, sharex=True, sharey=True)
    many, lr = 12, 0.25
    steep, best = (np.array([own[name] for name in "AB"]) for own in (STEEPNESS, BEST))
    start = (steep * best).sum(0) / steep.sum(0)
    for ax, E in zip(axes, (1, many)):
        ends = []
        for name, a, goal, colour in zip("AB", steep, best, colours(2)):
            for size in (0.5, 1.0):
                rim = {"fill": False, "edgecolor": colour, "alpha": 0.35}
                ax.add_patch(Ellipse(goal, *(2 * size / np.sqrt(a)), **rim))
            ax.plot(*goal, "x", color=colour, markersize=8, markeredgewidth=2)
            side, above = ("right", -0.42) if name == "A" else ("left", 0.24)
            ax.text(
                goal[0] + (-0.2 if name == "A" else 0.2), goal[1] + above, f"best for {name}", ha=side, color=colour
            )
            path = [goal + (1 - lr * a) ** k * (start - goal) for k in range(E + 1)]
            for here, there in zip(path, path[1:]):
                if np.hypot(*(there - here)) > 0.16:
                    arrow(ax, tuple(here), tuple(there), colour)
            ax.plot(*np.array(path).T, "o", color=colour, markersize=3)
            ends.append(path[-1])
        ax.plot(*start, "*", color=PAPER, markersize=15)
        ax.text(start[0], start[1] - 0.45, "best for all", ha="center", color=TEXT)
        ax.plot(*np.mean(ends, axis=0), "D", color=REFERENCE, markersize=7)
        ax.text(np.mean(ends, axis=0)[0] - 0.1, start[1] + 0.3, "average", ha="center", color=REFERENCE, weight="bold")
        ax.set(xlim=(-1.9, 5.6), ylim=(-1.15, 2.75), aspect="equal")
        ax.set_title("one step each: the average stays" if E == 1 else "many steps each: the average drifts away")
    return figure


# lessons 4 to 6 ------------------------------------------------------------------------------------------------------

SHARED, KEPT, FIXED, NONE = "shared", "stays", "not trained", ""
PARTS = ("extractor", "batch norm", "head", "second head")
SPLITS = {
    "FedAvg": (SHARED, SHARED, SHARED, NONE),
    "FedPer, FedRep": (SHARED, SHARED, KEPT, NONE),
    "FedBABU": (SHARED, SHARED, FIXED, NONE),
    "FedRoD": (SHARED, SHARED, SHARED, KEPT),
    "FedBN": (SHARED, KEPT, SHARED, NONE),
    "Local": (KEPT, KEPT, KEPT, NONE),
}
WAYS = {
    "Per-FedAvg: a starting point, and one local step": "arrow to $w'_i$: one step on the client's own images",
    "pFedMe: a model on a leash": r"dots: the leash, $\frac{\lambda}{2}\,\|\theta_i-w\|^2$",
    "pFedHN: a network makes models": "$v_i$: an embedding of each client, kept by the server",
}
LOOKS_AT = {
    "FedFomo": "the loss on client i's validation images",
    "FedAMP": "the distance of whole models",
    "f-FedAP": "means and variances inside batch norm",
    "pFedSim": "the cosine of the heads",
}


@styled
def split_model() -> Figure:
    """What is shared and what stays: on the left FedPer's round, extractors travel (down and up) and heads do not;
    on the right the same question for every method and part of a model."""
    figure, (left, right) = sheet(10.8, 3.7, 1, 1.15)
    num_clients = 3
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
    colour = {SHARED: INK, KEPT: UP, FIXED: IDLE}
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
def starts_and_makers() -> Figure:
    """Three ways from a server to personal models: a starting point and a local step, a common model and a leash,
    a network that makes models. Blue is the same for all, orange is one client's."""
    figure, panels = sheet(10.8, 3.7, 1, 1, 1)
    num_clients = 3
    middle, wide = (num_clients - 1) / 2, 0.95 * num_clients
    tops = ("server: the starting point $w$", "server: the common $w$", r"server: hypernetwork $h(v_i;\varphi)$")
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
def mixing_matrix() -> Figure:
    """Whose models go into whose: a row for each client's aggregate, a column for each model, the larger a weight the
    darker; the aggregate of client 0 in words; beside it what four methods look at."""
    figure, (left, right) = sheet(10.6, 3.5, 1.35, 1)
    weights, shown = [[0.6, 0.3, 0.05, 0.05], [0.25, 0.65, 0.05, 0.05], [0, 0.1, 0.5, 0.4], [0.05, 0.05, 0.3, 0.6]], 0
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
        box(left, N + 1.0, y, 1.6, 0.66, colour, f"aggregate for {i}")
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


# lessons 7 and 8 -----------------------------------------------------------------------------------------------------

CLASSES = ("o", "s", "^")  # markers of the classes 0, 1, 2 in the plane of features
CAPTION = "features $z=f(x)$ of samples of three classes;\na star is the mean of a class: its prototype"
SAMPLES = (((0.2, 0.7), (0.5, 0.86), (0.3, 0.95)), ((0.75, 0.75), (0.93, 0.9), (0.95, 0.65)), ((0.5, 0.1), (0.7, 0.3)))


@styled
def several_models() -> Figure:
    """Several models on the server. Left: every client has one of them. Right: every client mixes all of them; a
    thicker line is a larger weight, and a weight of 0 has no line."""
    figure, axes = sheet(10.8, 3.5, 1, 1)
    chosen, weights = (0, 0, 1, 1, 2), ((0.9, 0.1, 0), (0.6, 0.4, 0), (0, 1, 0), (0, 0.5, 0.5), (0.1, 0, 0.9))
    one_only = [[float(k == j) for k in range(len(weights[0]))] for j in chosen]
    titles = (
        "choose: a client has ONE of the models\nIFCA, ClusterFL, FeSEM",
        "mix: a client averages ALL predictions\nFedEM",
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
    return figure


@styled
def prototypes_and_head() -> Figure:
    """From an image to logits on a client: extractor, plane of features with a star for the mean of every class, head.
    Above it the server, and what travels."""
    figure, (ax,) = sheet(10.8, 4.0)
    box(ax, 0.2, 0, 1.3, 0.75, IDLE, "image $x$")
    box(ax, 2.3, 0, 1.6, 0.75, INK, "extractor $f$")
    box(ax, 5.2, 0, 2.4, 1.9, IDLE, "")
    box(ax, 8.1, 0, 1.6, 0.75, INK, "head: a\nlinear layer")
    box(ax, 10.3, 0, 1.4, 0.75, IDLE, "logits")
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
    arrow(ax, (5.6, 2.13), (5.6, 1.0), INK, "prototypes down,\nfor the regulariser\n(FedProto, FedPAC)", (6.82, 1.57))
    arrow(ax, (8.1, 2.13), (8.1, 0.43), INK, "a head down\n(FedPAC, FedGH)", (9.15, 1.57))
    ax.set(xlim=(-0.6, 11.1), ylim=(-1.7, 3))
    return figure


# lessons 9 to 13 -----------------------------------------------------------------------------------------------------


@styled
def two_phases() -> Figure:
    """pFedSim: at first one model for everybody, as in FedAvg; then the server keeps a model for each client, compares
    classifiers, and aggregates extractors."""
    figure, (ax,) = sheet(10.6, 4.0)
    ax.set(xlim=(-1.0, 9.7), ylim=(0.0, 4.1))
    levels(ax, {"server": 2.75, "clients": 0.6}, 1.45)
    ax.text(1.8, 3.9, r"rounds 1 to $T_g$: generalisation", ha="center", color=TEXT, weight="bold")
    ax.text(6.6, 3.9, r"rounds $T_g+1$ to $T$: personalisation", ha="center", color=TEXT, weight="bold")
    box(ax, 1.8, 2.75, 2.9, 0.6, INK, "one model $\\theta$, the mean\nof what comes up")
    for i in range(3):
        for x, first in ((0.75 + 1.05 * i, True), (4.6 + 2.0 * i, False)):
            box(ax, x, 0.6, 0.9 if first else 1.5, 0.5, IDLE, f"client {i}")
            top = 2.4 if first else 2.1
            arrow(ax, (x - 0.2, top), (x - 0.2, 0.9), INK)
            arrow(ax, (x + 0.2, 0.9), (x + 0.2, top), UP)
        box(ax, 4.6 + 2.0 * i, 2.95, 1.5, 0.42, INK, rf"extractor $\omega_{i}$")
        box(ax, 4.6 + 2.0 * i, 2.38, 1.5, 0.42, STAYS, rf"classifier $\varphi_{i}$")
        if i:
            ax.annotate("", (3.87 + 2.0 * i, 2.38), (3.33 + 2.0 * i, 2.38), arrowprops=bow(STAYS, "<|-|>"))
            ax.annotate("", (4.6 + 2.0 * i, 3.2), (2.6 + 2.0 * i, 3.2), arrowprops=bow(TEACHES, "<|-|>"))
    ax.text(6.6, 3.52, r"aggregated, with weights by $\Phi$", ha="center", va="center", color=TEACHES, weight="bold")
    ax.text(5.6, 1.87, "compared,\nnot aggregated", ha="center", va="center", color=STAYS, weight="bold")
    ax.text(1.8, 0.1, "the mean down, its own up", ha="center", va="center", color=TEXT)
    ax.text(6.6, 0.1, "its own aggregate and classifier down, both up", ha="center", va="center", color=TEXT)
    return figure


@styled
def where_noise_protects() -> Figure:
    """From a client's records to what others see of them, and the two places where one can clip and add noise."""
    figure, (ax,) = sheet(10.6, 2.7)
    ax.set(xlim=(-1.0, 9.7), ylim=(0.0, 2.6))
    parts = ("records", "a gradient\nof each", "local steps", "trained\nmodel", "upload", "server,\nother clients")
    for k, part in enumerate(parts):
        box(ax, 1.8 * k - 0.1, 1.5, 1.25, 0.66, IDLE if k < 4 else UP, part)
        if k:
            arrow(ax, (1.8 * k - 1.12, 1.5), (1.8 * k - 0.78, 1.5), IDLE if k < 4 else UP)
    ax.plot((8.0, 8.0), (0.1, 2.5), ":", color=IDLE, linewidth=1)
    ax.text(3.5, 2.25, "stays with the client", ha="center", va="center", color=TEXT)
    for x, colour, name, text in (
        (2.6, INK, "record level", "each gradient is clipped,\nnoise in each step"),
        (6.2, TEACHES, "client level", "the whole change is clipped,\nnoise once a round"),
    ):
        arrow(ax, (x, 0.82), (x, 1.38), colour)
        ax.text(x, 0.45, f"{name}:\n{text}", ha="center", va="center", color=colour, weight="bold")
    return figure


@styled
def teacher_and_student() -> Figure:
    """A round of PFedCS: the server averages extractors and mixes classifiers that are alike; on a client the
    fine-tuned aggregate teaches the client's own classifier."""
    figure, (ax,) = sheet(10.6, 3.9)
    ax.set(xlim=(-0.6, 9.2), ylim=(0.0, 3.8))
    levels(ax, {"server": 3.4, "client": 1.25}, 2.55)
    box(ax, 1.75, 3.4, 2.3, 0.5, INK, "average of all extractors")
    box(ax, 6.2, 3.4, 5.0, 0.5, INK, "an aggregate for this client, of the classifiers that are near its own")
    box(ax, 1.75, 1.25, 1.8, 0.62, INK, "extractor\nimage → features")
    box(ax, 5.0, 1.85, 2.7, 0.62, INK, "teacher: the aggregate,\nfine-tuned on local images")
    box(ax, 5.0, 0.45, 2.7, 0.62, STAYS, "student: its own classifier,\nnever replaced")
    box(ax, 8.4, 0.45, 1.2, 0.42, IDLE, "true labels")
    arrow(ax, (1.3, 3.13), (1.3, 1.6), INK, "down", (0.95, 2.25))
    arrow(ax, (2.2, 1.6), (2.2, 3.13), UP, "up", (2.42, 2.25))
    arrow(ax, (4.6, 3.13), (4.6, 2.2), INK, "down", (4.2, 2.7))
    arrow(ax, (6.4, 0.75), (7.3, 3.13), UP, "up", (7.2, 2.25))
    arrow(ax, (2.7, 1.4), (3.6, 1.72), IDLE)
    arrow(ax, (2.7, 1.1), (3.6, 0.6), IDLE, "features", (2.8, 0.66))
    arrow(ax, (5.0, 1.5), (5.0, 0.8), TEACHES, "teaches", (4.55, 1.16))
    arrow(ax, (7.76, 0.45), (6.4, 0.45), TEACHES, "teach", (7.1, 0.26))
    return figure


@styled
def model_and_supervisor() -> Figure:
    """FedSimSup after a round: participants send up their model, the server mixes those of idle clients,
    every client's supervisor stays where it is."""
    figure, (ax,) = sheet(10.6, 4.0)
    ax.set(xlim=(-0.6, 9.4), ylim=(0.0, 4.0))
    levels(ax, {"server": 2.95, "clients": 0.95}, 2.2)
    for k, took_part in enumerate((True, True, False)):
        x, colour = 1.6 + 3.1 * k, UP if took_part else INK
        box(
            ax,
            x,
            2.95,
            2.5,
            0.62,
            colour,
            f"model of client {k}\n{'kept as sent' if took_part else 'aggregated by the server'}",
        )
        box(ax, x, 0.92, 2.7, 1.44, IDLE, "")
        box(ax, x - 0.68, 1.22, 1.05, 0.56, INK if took_part else IDLE, "model" if took_part else "(waits)")
        box(ax, x + 0.64, 1.22, 1.15, 0.56, STAYS, "supervisor\nstays")
        if took_part:
            ax.text(x - 0.05, 1.22, "+", ha="center", va="center", color=TEXT, weight="bold")
            arrow(ax, (x - 0.88, 2.6), (x - 0.88, 1.54), INK, "down", (x - 1.24, 1.95))
            arrow(ax, (x - 0.48, 1.54), (x - 0.48, 2.6), UP, "up", (x - 0.25, 1.95))
        said = ("takes part", "logits are added") if took_part else ("does not take part", "nothing is trained")
        ax.text(x, 0.55, f"client {k}: {said[0]}", ha="center", va="center", color=TEXT, weight="bold")
        ax.text(x, 0.34, said[1], ha="center", va="center", color=TEXT)
    arrow(ax, (6.0, 2.95), (6.52, 2.95), TEACHES)
    ax.annotate("", (7.6, 3.3), (1.6, 3.3), arrowprops=bow(TEACHES))
    ax.text(7.9, 3.62, "similar labels weigh more", ha="center", va="center", color=TEACHES, weight="bold")
    return figure


WORTH = {"": 0, "I": 60, "F": 48, "S": 12, "IF": 90, "IS": 42, "FS": 36, "IFS": 72}  # by the letters of the players
WORTH = {frozenset(coalition): value for coalition, value in WORTH.items()}


@styled
def coalition_lattice() -> Figure:
    """All coalitions of three players, the empty one below; an arrow adds one player, its number is what
    that adds."""
    figure, (ax,) = sheet(8.6, 4.0)
    players, white = "IFS", {"facecolor": "white", "edgecolor": "none", "pad": 1.2}
    ax.set(xlim=(-0.75, 4.75), ylim=(-0.35, 3.35))
    colour = dict(zip(players, (INK, STAYS, TEACHES)))
    at = {}
    for size in range(4):
        chosen = list(combinations(players, size))
        at |= {frozenset(X): (2 + 1.75 * (k - (len(chosen) - 1) / 2), size) for k, X in enumerate(chosen)}
    for X, (x, y) in at.items():
        for j in players:
            if j not in X:
                (x2, y2), part = at[X | {j}], 0.36 if X and len(X) < 2 else 0.5
                gain = WORTH[X | {j}] - WORTH[X]
                middle = (x + part * (x2 - x), y + part * (y2 - y))
                arrow(ax, (x, y + 0.24), (x2, y2 - 0.24), colour[j])
                ax.text(*middle, f"{gain:+g}", ha="center", va="center", color=colour[j], weight="bold", bbox=white)
        members = " ".join(j for j in players if j in X) or "∅"
        box(ax, x, y, 0.72, 0.4, TEXT, f"{members}\nworth {WORTH[X]:g}")
    for k, j in enumerate(players):
        ax.text(3.85, 3.1 - 0.3 * k, f"{j} arrives", color=colour[j], weight="bold")
    return figure


# as files ------------------------------------------------------------------------------------------------------------


def svg(figure) -> str:
    """A figure as text that is the same each time."""
    file = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "fedlib", "svg.fonttype": "none"}):
        figure.savefig(
            file,
            format="svg",
            facecolor="white",
            bbox_inches="tight",
            pad_inches=0.1,
            metadata={"Date": None, "Creator": None},
        )
    return file.getvalue()


def on_dark(text: str) -> str:
    """A drawing for dark ground: colours keep their hue, and what was light is dark."""

    def turned(colour: re.Match) -> str:
        h, lightness, s = colorsys.rgb_to_hls(*to_rgb(colour[0]))
        return to_hex(colorsys.hls_to_rgb(h, 0.1 + 0.85 * (1 - lightness), s))

    return re.sub(r"#[0-9a-f]{6}\b", turned, text.replace("<svg ", '<svg fill="#000000" ', 1))


DRAWINGS = (
    federated_round, dealt_classes, weighted_average, drifting_clients, split_model, starts_and_makers, mixing_matrix,
    several_models, prototypes_and_head, where_noise_protects, two_phases, teacher_and_student, model_and_supervisor,
    coalition_lattice,
)  # in the order of the lessons  # fmt: skip

if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("usage: python notebooks/labs/drawings.py FOLDER")
    for draw in DRAWINGS:
        text = svg(draw())
        for kind, made in (("light", text), ("dark", on_dark(text))):
            path = Path(sys.argv[1], kind, f"{draw.__name__}.svg")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(made, "utf-8")
            print(path)
