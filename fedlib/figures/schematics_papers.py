"""Drawings of three papers' ideas: PFedCS's teacher, FedSimSup's supervisor, and the coalitions of a game (pFedSV)."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

from matplotlib.figure import Figure

from fedlib.figures.base import APART, INK, axes_of, styled
from fedlib.figures.schematics import IDLE, TEXT, UP, arrow, box

STAYS, TEACHES = APART[2], APART[3]  # what never leaves its client; what one network tells another


@styled
def teacher_and_student() -> Figure:
    """A round of PFedCS: the server averages extractors and mixes classifiers that are alike; on a client the
    fine-tuned mixture teaches the client's own classifier."""
    figure, ax = _sheet(10.6, 3.9, (-0.6, 9.2), (0.0, 3.8))
    _levels(ax, {"server": 3.4, "client": 1.25}, 2.55)
    box(ax, 1.75, 3.4, 2.3, 0.5, INK, "average of all extractors")
    box(ax, 6.2, 3.4, 5.0, 0.5, INK, "a mixture for this client, of the classifiers that are near its own")
    box(ax, 1.75, 1.25, 1.8, 0.62, INK, "extractor\nimage → features")
    box(ax, 5.0, 1.85, 2.7, 0.62, INK, "teacher: the mixture,\nfine-tuned on own images")
    box(ax, 5.0, 0.45, 2.7, 0.62, STAYS, "student: own classifier,\nnever replaced")
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
    figure, ax = _sheet(10.6, 4.0, (-0.6, 9.4), (0.0, 4.0))
    _levels(ax, {"server": 2.95, "clients": 0.95}, 2.2)
    for k, took_part in enumerate((True, True, False)):
        x, colour = 1.6 + 3.1 * k, UP if took_part else INK
        box(
            ax,
            x,
            2.95,
            2.5,
            0.62,
            colour,
            f"model of client {k}\n{'kept as sent' if took_part else 'mixed, while idle'}",
        )
        box(ax, x, 0.92, 2.7, 1.44, IDLE, "")
        box(ax, x - 0.68, 1.22, 1.05, 0.56, INK if took_part else IDLE, "model" if took_part else "(waits)")
        box(ax, x + 0.64, 1.22, 1.15, 0.56, STAYS, "supervisor\nstays")
        if took_part:
            ax.text(x - 0.05, 1.22, "+", ha="center", va="center", color=TEXT, weight="bold")
            arrow(ax, (x - 0.88, 2.6), (x - 0.88, 1.54), INK, "down", (x - 1.24, 1.95))
            arrow(ax, (x - 0.48, 1.54), (x - 0.48, 2.6), UP, "up", (x - 0.25, 1.95))
        said = ("takes part", "class scores are added") if took_part else ("idle", "nothing is trained")
        ax.text(x, 0.55, f"client {k}: {said[0]}", ha="center", va="center", color=TEXT, weight="bold")
        ax.text(x, 0.34, said[1], ha="center", va="center", color=TEXT)
    arrow(ax, (6.0, 2.95), (6.52, 2.95), TEACHES)
    ax.annotate("", (7.6, 3.3), (1.6, 3.3), arrowprops=_bow(TEACHES))
    ax.text(7.9, 3.62, "similar labels weigh more", ha="center", va="center", color=TEACHES, weight="bold")
    return figure


@styled
def coalition_lattice(worth: Mapping[str, float], players: str = "IFS") -> Figure:
    """All coalitions of three players, from nobody below to all above; an arrow adds one player, its number is what
    that adds. worth: of every coalition, named by its players' letters in alphabetical order."""
    figure, ax = _sheet(8.6, 4.0, (-0.75, 4.75), (-0.35, 3.35))
    colour = dict(zip(players, (INK, STAYS, TEACHES)))
    at = {}
    for size in range(4):
        chosen = list(combinations(players, size))
        at |= {frozenset(X): (2 + 1.75 * (k - (len(chosen) - 1) / 2), size) for k, X in enumerate(chosen)}
    for X, (x, y) in at.items():
        for j in players:
            if j not in X:
                (x2, y2), part = at[X | {j}], 0.36 if X and len(X) < 2 else 0.5
                gain = worth[_name(X | {j})] - worth[_name(X)]
                middle = (x + part * (x2 - x), y + part * (y2 - y))
                arrow(ax, (x, y + 0.24), (x2, y2 - 0.24), colour[j])
                ax.text(*middle, f"{gain:+g}", ha="center", va="center", color=colour[j], weight="bold", bbox=WHITE)
        members = " ".join(j for j in players if j in X) or "nobody"
        box(ax, x, y, 0.72, 0.4, TEXT, f"{members}\nworth {worth[_name(X)]:g}")
    for k, j in enumerate(players):
        ax.text(3.85, 3.1 - 0.3 * k, f"{j} arrives", color=colour[j], weight="bold")
    return figure


WHITE = {"facecolor": "white", "edgecolor": "none", "pad": 1.2}


def _name(coalition) -> str:
    return "".join(sorted(coalition))


def _bow(colour: str) -> dict:
    return {"arrowstyle": "-|>", "color": colour, "linewidth": 1.5, "connectionstyle": "arc3,rad=-0.1"}


def _sheet(width: float, height: float, xlim: tuple[float, float], ylim: tuple[float, float]):
    """A figure on a white ground and its only axes, without ticks and frames."""
    figure, ((ax,),) = axes_of(width, height)
    figure.set_facecolor("white")
    ax.set(xlim=xlim, ylim=ylim)
    ax.axis("off")
    return figure, ax


def _levels(ax, names: Mapping[str, float], line: float) -> None:
    """Names of the heights at the left, and a line between server and clients."""
    for name, y in names.items():
        ax.text(-0.5, y, name, va="center", color=TEXT, weight="bold")
    ax.plot(ax.get_xlim(), (line, line), ":", color=IDLE, linewidth=1)
