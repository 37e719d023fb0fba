"""Drawings for the first lessons: classes dealt to clients, the average of models, clients that drift apart."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Ellipse, Rectangle

from fedlib.figures.base import APART, INK, PAPER, REFERENCE, axes_of, colours, styled
from fedlib.figures.schematics import IDLE, TEXT, arrow, box

DEALING = (
    ("1  draw", "a share of the class for each client"),
    ("2  cut", "the samples of the class at these shares"),
    ("3  deal", "each piece to its client"),
    ("4  go on", "with the next class, and new shares"),
)
STEEPNESS, BEST = {"A": (1.0, 1.0), "B": (3.0, 1.0)}, {"A": (0.0, 0.0), "B": (4.0, 1.6)}  # lesson 3's two clients


@styled
def dealt_classes(counts: Sequence[Sequence[int]] = ((2, 0, 0), (1, 3, 0), (1, 1, 4))) -> Figure:
    """The samples of every class above, cut into one piece a client, and the clients who get them below; beside it the
    steps in words. counts [clients, classes]; a client without samples of a class gets no arrow from it."""
    figure, ((left, right),) = axes_of(10.8, 3.6, 1, 2, width_ratios=(1.75, 1))
    figure.set_facecolor("white")
    counts = np.asarray(counts)
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
    words(right, DEALING)
    for ax in (left, right):
        ax.axis("off")
    return figure


@styled
def weighted_average(samples: tuple[int, int] = (1, 3)) -> Figure:
    """One round of two clients with so many samples: copies of one model go down, the weighted average is made of what
    comes up. Beside it: the average on the way from one client's model to the other's."""
    figure, ((left, right),) = axes_of(10.8, 3.6, 1, 2, width_ratios=(1.9, 1))
    figure.set_facecolor("white")
    n, names = sum(samples), "AB"
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
    for ax in (left, right):
        ax.axis("off")
    return figure


@styled
def drifting_clients(many: int = 12, lr: float = 0.25) -> Figure:
    """Two clients that start at the model that is best for all. One step each: the average stays. Many: each walks
    to its own best model, and the average leaves the best for all. Ellipses: equal loss."""
    figure, axes = axes_of(10.8, 3.3, 1, 2, sharex=True, sharey=True)
    figure.set_facecolor("white")
    steep, best = (np.array([own[name] for name in "AB"]) for own in (STEEPNESS, BEST))
    start = (steep * best).sum(0) / steep.sum(0)
    for ax, E in zip(axes[0], (1, many)):
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
        ax.axis("off")
    return figure


def square(ax, x: float, y: float, side: float, colour: str, text: str) -> None:
    """One sample: a filled square of this colour, a text on it, both centred on (x, y)."""
    ax.add_patch(Rectangle((x - side / 2, y - side / 2), side, side, facecolor=colour, edgecolor="white"))
    ax.text(x, y, text, ha="center", va="center", color="white", size=8)


def words(ax, steps: Sequence[tuple[str, str]]) -> None:
    """Steps from top to bottom: a name in bold, below it what is done."""
    for k, (name, what) in enumerate(steps):
        ax.text(0.02, len(steps) - 0.8 - k, name, color=INK, weight="bold")
        ax.text(0.02, len(steps) - 1.15 - k, what, color=TEXT)
    ax.set(xlim=(0, 1), ylim=(-0.3, len(steps) - 0.3))
