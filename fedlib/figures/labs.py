"""The figures that end labs 4, 5 and 6. Numbers come from students' functions; here only means and ranges are taken.

They have Matplotlib's own style, as what students draw beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from fedlib.figures.base import as_everywhere, axes_of

# lab 4 ----------------------------------------------------------------------------------------------------------------

SIZE = 4  # of a group of clients with the same digits


@as_everywhere({})
def hidden_groups(maps: Mapping[str, np.ndarray], digits: Sequence[str]) -> Figure:
    """What measures of similarity see of groups of four clients.

    maps: by title matrices [N, N], the clients of a group side by side: shares of a weight in percent, and at last
    distances in [0, 1]; digits: what each group owns.
    """
    figure, (axes,) = axes_of(3.2, 1, 3, width=10.4)
    middles = np.arange(len(digits)) * SIZE + (SIZE - 1) / 2
    shares, distances = ("share of the weight for others, %", "Blues", 18), ("distance D (no unit)", "Oranges", 1)
    for ax, (title, matrix) in zip(axes, maps.items()):
        label, colours, most = distances if title == list(maps)[-1] else shares
        picture = ax.imshow(matrix, cmap=colours, vmin=0, vmax=most)
        for line in range(SIZE, len(matrix), SIZE):
            ax.axhline(line - 0.5, color="white", linewidth=1)
            ax.axvline(line - 0.5, color="white", linewidth=1)
        ax.set_xticks(middles, digits)
        ax.set_yticks(middles, digits)
        ax.tick_params(length=0)
        ax.set(title=title, xlabel="digits of the client looked at")
        figure.colorbar(picture, ax=ax, label=label, shrink=0.8)
    axes[0].set_ylabel("digits of the client that asks")
    return figure


# lab 5 ----------------------------------------------------------------------------------------------------------------


@as_everywhere({})
def who_has_my_digits(
    relevance: np.ndarray, common: np.ndarray, game: tuple[Sequence[str], np.ndarray, np.ndarray, np.ndarray, int]
) -> Figure:
    """What clients have learned about each other, and one game of the last round.

    relevance: [N, N], nan for pairs that never met; common: share of labels in common [N, N]; game: names of the
    players, their exact Shapley values, estimates, standard errors and the number of orders.
    """
    figure, ((matrix, shares, values),) = axes_of(3.6, 1, 3, width=11)
    ticks = range(0, len(relevance), 4)
    matrix.set_facecolor("0.6")
    picture = matrix.imshow(relevance, cmap="PuOr_r", vmin=-0.4, vmax=0.4)
    for i in range(0, len(relevance), 2):  # outlines: the pairs of clients with the same digits
        matrix.add_patch(Rectangle((i - 0.5, i - 0.5), 2, 2, fill=False, lw=1))
    matrix.set(title="Relevance after the last round", xticks=ticks, yticks=ticks)
    matrix.set(xlabel="other client", ylabel="client")
    figure.colorbar(picture, ax=matrix, label="relevance", shrink=0.8)
    _relevance_by_share(shares, relevance, common)
    names, exact, estimate, error, orders = game
    places = range(len(names))
    values.errorbar(places, estimate, 2 * error, fmt="_", ms=12, capsize=4, color="#D55E00", label=f"{orders} orders")
    values.plot(places, exact, "o", color="#0072B2", label="exact")
    values.axhline(0, color="grey", lw=0.8)
    values.set_xticks(places, names)
    values.set(title="Client 0's last game", xlabel="whose model, and its digits", ylabel="Shapley value")
    values.legend()
    return figure


def _relevance_by_share(ax, relevance: np.ndarray, common: np.ndarray) -> None:
    luck, met = np.random.default_rng(0), ~np.isnan(relevance)
    for share, colour in zip((0, 0.5, 1), ("#0072B2", "#E69F00", "#009E73")):
        values = relevance[met & (common == share)]
        ax.plot(share + luck.uniform(-0.1, 0.1, len(values)), values, "o", ms=3.5, alpha=0.6, color=colour)
        ax.plot([share - 0.14, share + 0.14], [values.mean()] * 2, "k", lw=2, label="mean" if share == 0 else None)
    ax.axhline(0, color="grey", lw=0.8)
    ax.set(title="Relevance and labels in common", xlabel="share of labels in common", ylabel="relevance")
    ax.set_xticks((0, 0.5, 1))
    ax.legend(loc="upper left")


# lab 6 ----------------------------------------------------------------------------------------------------------------


@as_everywhere({})
def attack_and_defence(
    pictures: Sequence[tuple[str, np.ndarray]],
    sigmas: np.ndarray,
    attack: tuple[np.ndarray, float],
    training: tuple[np.ndarray, float],
    budgets: np.ndarray,
    setting: tuple[int, int, float],
) -> Figure:
    """What an attacker recovers; below it the attack, the accuracy and the guarantee against the noise.

    pictures: 16 titles and images [256], for two rows; sigmas: noise multipliers [S]; attack: PSNR in dB of recovered
    images [S, images] and of the mean image; training: accuracy in percent with noise [S, seeds] and without; budgets:
    epsilon [S]; setting: steps, training images and delta.
    """
    figure = Figure(figsize=(10, 6.3), layout="constrained")
    above, below = figure.subfigures(2, 1, height_ratios=(1, 1.15))
    for ax, (title, picture) in zip(above.subplots(2, 8).flat, pictures):
        ax.imshow(picture.reshape(16, 16), cmap="gray", vmin=0, vmax=1)
        ax.set_title(title, fontsize=9)
        ax.set_axis_off()
    axes = left, middle, right = below.subplots(1, 3)
    steps, images, delta = setting
    _band(left, sigmas, attack[0].T, "o-", "#D55E00", share=80, label="recovered")
    left.axhline(attack[1], color="k", ls="--", label="mean image")
    left.set(title="Attack on a step with one image", ylabel="PSNR, dB")
    _band(middle, sigmas, training[0].T, "s-", "#0072B2", share=100, label="with noise")
    middle.axhline(training[1], color="k", ls="--", label="clipping only")
    middle.set(title=f"{steps} steps on {images} images", ylabel="accuracy, %", ylim=(0, 100))
    right.plot(sigmas, budgets, "^-", ms=4, color="#009E73", label=f"{steps} steps")
    right.axhline(1, color="k", ls="--", label="ε = 1")
    tiny = np.format_float_scientific(delta, trim="-", exp_digits=1)
    right.set(title="What is guaranteed", ylabel=f"ε for δ = {tiny}", yscale="log")
    for ax in axes:
        ax.set(xlabel="noise multiplier σ", xscale="log", xticks=10.0 ** np.arange(-3, 3))
        ax.legend(fontsize=9)
    return figure


def _band(ax, x: np.ndarray, values: np.ndarray, style: str, color: str, share: float, label: str) -> None:
    """The mean of values [n, x] as a line, and a band that holds the middle ones: this share of them, in percent."""
    ax.plot(x, values.mean(0), style, color=color, ms=4, label=label)
    low, high = np.percentile(values, (50 - share / 2, 50 + share / 2), axis=0)
    ax.fill_between(x, low, high, color=color, alpha=0.2, lw=0)
