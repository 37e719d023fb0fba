"""Who owns what, and how clients compare: partitions, matrices of pairs of clients, groups of images."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fedlib.figures.base import COLUMN, INK, PAGE, axes_of, colour_map, headline, styled, thinned

MOST_BUBBLES = (40, 20)  # clients and classes; more than that is drawn as a heat map
BUBBLE = 100  # area of the largest circle, in square points


@styled
def partitions(panels: dict[str, np.ndarray], classes: Sequence[str] = ()) -> Figure:
    """Samples per client and class: circles whose area is the number, on one scale;
    dots where that would be too small to see.

    A panel with more than 40 clients or 20 classes becomes a heat map. panels: counts int [N, C] by title; classes:
    their names, numbers if not given.
    """
    widths = [0.6 + min(0.12 * len(counts), 5.5) for counts in panels.values()]  # inches, about
    cols = min(len(panels), max(1, int(6 // max(widths))))
    rows = -(-len(panels) // cols)
    cols = -(-len(panels) // rows)  # four panels: two by two
    height = 0.6 + 0.15 * min(max(counts.shape[1] for counts in panels.values()), 20)
    figure, axes = axes_of(max(1.6, height) * rows + 0.3, rows, cols, width_ratios=widths if rows == 1 else None)
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
        ax.set_xticks(thinned(len(counts)))
        if counts.shape[1] <= MOST_BUBBLES[1]:  # room for the name of every class
            ax.set_yticks(range(counts.shape[1]), list(classes[: counts.shape[1]]) or None)
        else:
            ax.set_yticks(thinned(counts.shape[1]))
    for ax in axes[:, 0]:
        ax.set_ylabel("class")
    for ax in list(axes.flat)[len(panels) :]:
        ax.remove()
    if any(bubbles):
        _circle_key(figure, most)
    if not all(bubbles):
        figure.colorbar(image, ax=list(figure.axes), shrink=0.8, pad=0.01, label="samples")
    said = ", ".join(f"{(counts > 0).sum(1).mean():.1f} ({title})" for title, counts in panels.items())
    return headline(figure, f"Classes per client, on average: {said}")


def _heat_map(ax, counts: np.ndarray, most: int):
    """Counts [N, C] as colours on a logarithmic scale, no sample white; the same scale for all panels."""
    ax.spines[["top", "right"]].set_visible(True)
    shown = np.ma.masked_equal(counts.T, 0)
    scale = LogNorm(1, max(most, 2))
    return ax.imshow(
        shown, norm=scale, cmap=colour_map("mako_r"), aspect="auto", origin="lower", interpolation="nearest"
    )


def _circle_key(figure: Figure, most: int) -> None:
    """What the circles stand for: about the largest number, a quarter and a sixteenth of it."""
    numbers = dict.fromkeys(max(1, _round_down(most / part)) for part in (1, 4, 16))
    circles = [
        Line2D([], [], marker="o", linestyle="", markersize=(n / most * BUBBLE) ** 0.5, color=INK, alpha=0.75, mew=0)
        for n in numbers
    ]
    labels = [f"{n:,}" for n in numbers]
    figure.legend(circles, labels, title="samples", loc="outside right center", labelspacing=1.0)


def _round_down(value: float) -> int:
    """To one or two significant digits: 5,913 -> 5,000, 178 -> 150."""
    unit = 10 ** max(0, int(np.log10(max(value, 1))))
    return int(max(step * unit for step in (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8) if step * unit <= max(value, 1)))


@styled
def client_matrices(panels: dict[str, np.ndarray], label: str, low: float = 0, high: float = 1) -> Figure:
    """A number for every pair of clients: matrices [N, N] by title, on one scale of colours; NaN stays white. For
    example how alike their labels are, `describe(partition)["similarity"]`."""
    return _matrices(panels, low, high, "mako", "client", label)


def _matrices(
    panels: dict[str, np.ndarray], low: float, high: float, colour: str, other: str, label: str, every=1, **bar
) -> Figure:
    """Matrices [N, N] side by side, not higher than they are wide, on one scale of colours; other: what a column is;
    every: how many of the ticks are named; bar: options of the scale."""
    width = COLUMN if len(panels) == 1 else PAGE
    figure, (axes,) = axes_of(min(3.2, 6 / len(panels) + 0.7), 1, len(panels), width=width)
    for ax, (title, matrix) in zip(axes, panels.items()):
        image = ax.imshow(np.asarray(matrix), vmin=low, vmax=high, cmap=colour_map(colour), interpolation="nearest")
        ticks = list(thinned(len(matrix)))[::every]
        ax.set(title=title, xlabel=other, xticks=ticks, yticks=ticks)
    axes[0].set_ylabel("client")
    figure.colorbar(image, ax=list(axes), shrink=0.8, pad=0.01, label=label, **bar)
    return figure


@styled
def shares_of_others(panels: dict[str, np.ndarray], most: float | None = None) -> Figure:
    """How each client divides its weight over the *other* clients:
    rows of matrices [N, N] without diagonal, negatives as 0, made to sum to 1.

    All on one colour scale up to `most` (default: the largest share); rows without any positive weight stay white.
    """
    shares = {}
    for title, matrix in panels.items():
        weights = np.clip(np.asarray(matrix, dtype=float), 0, None)
        np.fill_diagonal(weights, 0)
        total = weights.sum(1, keepdims=True)
        shares[title] = np.where(
            (total == 0) | np.eye(len(weights), dtype=bool), np.nan, weights / np.where(total > 0, total, 1)
        )
    top = most or max(np.nanmax(share) for share in shares.values())
    every, ends = 2 if len(panels) > 3 else 1, "max" if most else "neither"
    return _matrices(shares, 0, top, "mako_r", "other client", "share", every, extend=ends)


@styled
def groups(dataset, each: int = 12) -> Figure:
    """The first images of every group (domain, writer, look) of a `fedlib.data.Dataset`, a group a row."""
    figure, axes = axes_of(0.52 * len(dataset.group_names), len(dataset.group_names), each)
    for k, row in enumerate(axes):
        for ax, i in zip(row, (dataset.groups == k).nonzero().flatten().tolist()):
            image = dataset.images[i].permute(1, 2, 0).numpy()
            ax.imshow(image, cmap="gray", vmin=0, vmax=255)
        for ax in row:
            ax.set(xticks=[], yticks=[])
            ax.spines[:].set_visible(False)
        row[0].set_ylabel(dataset.group_names[k], rotation=0, ha="right", va="center")
    return figure
