"""Drawings that show no data: how the parts of a federated system work together."""

from __future__ import annotations

from collections.abc import Collection

from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from fedlib.figures.base import APART, INK, axes_of, styled

TEXT, IDLE, UP = "#333333", "#9a9a9a", APART[1]
STEPS = (
    ("1  draw", "the server draws the participants of this round"),
    ("2  download", "each participant receives the server's model"),
    ("3  train", "each participant trains it on its own images"),
    ("4  upload", "each participant sends its trained model back"),
    ("5  aggregate", "the server makes its next model from the uploads"),
)


@styled
def federated_round(num_clients: int = 5, participants: Collection[int] = (0, 2, 3)) -> Figure:
    """One round: the server above, two boxes for every client below, arrows down (2) and up (4) for participants only;
    beside it the five steps in words. On a white ground of its own, for dark pages too."""
    figure, ((left, right),) = axes_of(10.6, 3.7, 1, 2, width_ratios=(1.45, 1))
    figure.set_facecolor("white")
    middle = (num_clients - 1) / 2
    box(left, middle, 2.75, 2.7, 0.6, INK, "server, with the model $\\theta$\n1 draw, 5 aggregate")
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
    for ax in (left, right):
        ax.axis("off")
    return figure


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
