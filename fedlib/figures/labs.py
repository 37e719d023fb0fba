"""The figure that ends each lab. All numbers come from students' functions; here only means and ranges are taken.

They have Matplotlib's own style, as what students draw beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from fedlib.analysis.names import proper
from fedlib.figures.base import APART, as_everywhere, axes_of

BLUE, ORANGE, GREEN, RED, PINK, GREY = (APART[k] for k in (0, 1, 2, 3, 4, 7))

# lab 1 ----------------------------------------------------------------------------------------------------------------


@as_everywhere({})
def entropy_and_fedavg(
    counts: np.ndarray,
    entropies: Mapping[float, Sequence[float]],
    fedavg: Mapping[float, Sequence[float]],
    local: Mapping[float, float],
) -> Figure:
    """Who owns what, how mixed the classes of the clients are, and one model beside one for each client.

    counts: int [N, C], samples by client and class, for the first alpha of `fedavg`; entropies: in nats, mean over the
    clients, of each draw, by alpha; fedavg: accuracy, a fraction, before round 1 and after every round, by alpha;
    local: that of local-only training.
    """
    figure, ((left, middle, right),) = axes_of(3.4, 1, 3, width=11)
    colour_of = dict(zip(fedavg, (RED, BLUE, GREEN, ORANGE, PINK, GREY)))
    _owned(left, counts, next(iter(fedavg)))
    _entropies(middle, np.array(list(entropies)), np.array(list(entropies.values())), counts.shape[1])
    for k, (alpha, values) in enumerate(fedavg.items()):
        right.plot(100 * np.array(values), color=colour_of[alpha], label=f"FedAvg, Dir({alpha:g})")
        dashes = (4 * k, (4, 8))  # shifted, so that lines that lie on each other can be seen
        right.axhline(100 * local[alpha], color=colour_of[alpha], linestyle=dashes, label=f"Local, Dir({alpha:g})")
    right.set(title="One model, or one for each client", xlabel="round")
    right.set(ylabel="pooled test accuracy, %", ylim=(0, 101))
    right.legend(frameon=False, loc="lower right", fontsize=8)
    return figure


def _owned(ax, counts: np.ndarray, alpha: float) -> None:
    client, label = np.nonzero(counts)
    ax.scatter(client, label, s=counts[client, label], color=RED, alpha=0.8, linewidths=0)
    ax.set(title=f"Dir({alpha:g}): who owns what", xlabel="client (area: number of samples)", ylabel="class")
    ax.set(xticks=range(len(counts)), yticks=range(counts.shape[1]), ylim=(-0.9, counts.shape[1] - 0.1))


def _entropies(ax, alphas: np.ndarray, entropies: np.ndarray, classes: int) -> None:
    """entropies: [alphas, draws]."""
    draws = entropies.shape[1]
    low, high = entropies.min(1), entropies.max(1)
    ax.fill_between(alphas, low, high, color=GREY, alpha=0.4, label=f"range of {draws} partitions")
    ax.plot(alphas, entropies.mean(1), color="black", label=f"mean of {draws} partitions")
    ax.axhline(np.log(classes), color="black", linestyle=":", label=f"ln {classes}: all classes equal")
    ax.set(xscale="log", xlabel="alpha", ylabel="mean entropy of labels, nats", ylim=(0, 2.5))
    ax.set_title("Label entropy of the clients")
    ax.legend(frameon=False, loc="lower right")


# lab 2 ----------------------------------------------------------------------------------------------------------------


@as_everywhere({})
def drift_and_cures(
    walks: Mapping[str, np.ndarray],
    minima: np.ndarray,
    best: Sequence[float],
    digits: Mapping[str, Mapping[str, Sequence[float]]],
    local: float,
) -> Figure:
    """Where the rounds lead on quadratic losses; loss, accuracy and drift on digits.

    walks: global models [T + 1, 2] by name; minima: of the clients [N, 2]; best: of the mean loss [2]; digits: by name
    "gap" (mean loss above the best) and "accuracy" (in percent) [T + 1], and "spread" [T]; local: accuracy of
    local-only training, in percent.
    """
    figure, ((plane, loss), (drift, accuracy)) = axes_of(6.6, 2, 2, width=9)
    colour_of = dict(zip(digits, (GREY, RED, ORANGE, BLUE, GREEN, PINK)))
    for name, points in walks.items():
        plane.plot(*points.T, "o-", color=colour_of[name], markersize=3, linewidth=1, label=name)
    plane.plot(*minima.T, "k^", label="minimum of one client")
    plane.plot(*best, "k*", markersize=13, label="minimum of the mean loss")
    plane.set(title="Quadratic losses: where the rounds lead", xlabel="first parameter", ylabel="second parameter")
    for name, found in digits.items():
        loss.plot(found["gap"], color=colour_of[name], label=name)
        accuracy.plot(found["accuracy"], color=colour_of[name], label=name)
        drift.plot(range(1, len(found["spread"]) + 1), found["spread"], color=colour_of[name], label=name)
    loss.set(title="Digits: distance to the best mean loss", ylabel="mean loss above the best, nats", yscale="log")
    accuracy.axhline(local, color="black", linestyle="--", label="Local")
    accuracy.set(title="Digits: accuracy", ylabel="pooled test accuracy, %", ylim=(0, 101))
    drift.set(title="Digits: how far apart the clients go", ylabel="spread (norm of parameters)", yscale="log")
    for ax in (loss, drift, accuracy):
        ax.set_xlabel("round")
    for ax, place in ((plane, "best"), (loss, "lower left"), (drift, "best"), (accuracy, "lower right")):
        ax.legend(frameon=False, fontsize=8, loc=place)
    return figure


# lab 3 ----------------------------------------------------------------------------------------------------------------

SPLITS = {
    "local": ("#333333", "--", "s"),
    "fedavg": (RED, "-", "o"),
    "fedper": (BLUE, "-", "D"),
    "fedrep": (GREEN, "-.", "^"),
    "fedbn": (PINK, "-", "v"),
}


@as_everywhere({})
def received_and_trained(panels: Mapping[str, Mapping[str, np.ndarray]]) -> Figure:
    """Accuracy of received models by round as lines, and of trained ones after the last round as marks.

    panels: by title and method fractions [T, 2], the columns recv and post.
    """
    figure, (axes,) = axes_of(3.3, 1, len(panels), width=10.4, sharey=True)
    for ax, (title, by_method) in zip(axes, panels.items()):
        for place, (method, history) in enumerate(by_method.items()):
            colour, dash, marker = SPLITS[method]
            t = np.arange(1, len(history) + 1)
            ax.plot(t, 100 * history[:, 0], dash, color=colour)
            ax.plot(t[-1] + 1.3 + 0.7 * place, 100 * history[-1, 1], marker, mec=colour, mfc="none")
        ax.set(title=title, xlabel="round", xticks=[1, *range(4, len(t) + 1, 4)], ylim=(0, 100))
        ax.grid(alpha=0.3)
        ax.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("mean accuracy of the clients, %")
    keys = [
        Line2D([], [], color=colour, ls=dash, marker=marker, mfc="none", label=proper(method))
        for method, (colour, dash, marker) in SPLITS.items()
    ]
    figure.legend(handles=keys, loc="outside right center", frameon=False, title="line: recv\nmark: last post")
    return figure


# lab 4 ----------------------------------------------------------------------------------------------------------------

SIZE = 4  # of a group of clients with the same digits
RULES = {
    "Eq. 3": (RED, "-", "o"),
    "code": (BLUE, "-", "s"),
    "PFedCS": (GREEN, "-", "^"),
    "uniform weights": (GREY, "-", "D"),
    "Local": ("black", "--", None),
}
OWN_RULE = (PINK, "-", "v")  # of a student


@as_everywhere({})
def hidden_groups(
    maps: Mapping[str, np.ndarray],
    digits: Sequence[str],
    scores: Mapping[str, Sequence[float]],
    collaborators: np.ndarray,
    tested: Mapping[str, Sequence[float]],
) -> Figure:
    """What measures of similarity see of groups of four clients, and what that brings.

    maps: by title matrices [N, N], the clients of a group side by side: shares of a weight in percent, and at last
    distances in [0, 1]; digits: what each group owns; scores: share of the group found in every round, by measure;
    collaborators: their number and the share of the own group among them by round [T, 2]; tested: accuracy after every
    round, a fraction, by rule.
    """
    figure, (above, below) = axes_of(6.4, 2, 3, width=10.4)
    for ax, (title, matrix) in zip(above, maps.items()):
        _group_map(figure, ax, title, matrix, digits, near=title != list(maps)[-1])
    above[0].set_ylabel("digits of the client that asks")
    found, chosen, mixed = below
    t = np.arange(1, len(collaborators) + 1)
    _by_rule(found, t, scores)
    found.axhline(100 * (SIZE - 1) / (len(matrix) - 1), color="black", linewidth=0.8, linestyle=":", label="chance")
    found.set(title="were the groups found?", xlabel="round", ylabel="same group among the closest, %", ylim=(0, 103))
    many, right = collaborators.T
    chosen.bar(t, many, color="#d9d9d9", label="all")
    chosen.bar(t, many * right, color=GREEN, label="of the same group")
    chosen.axhline(SIZE - 1, color="black", linewidth=0.8, linestyle=":", label=f"others in a group ({SIZE - 1})")
    chosen.set_ylim(0, 1.5 * many.max())  # room for the legend
    chosen.set(title="collaborators in PFedCS", xlabel="round", ylabel="mean number per client")
    _by_rule(mixed, t, tested)
    mixed.set(title="does aggregation help?", xlabel="round", ylabel="accuracy after aggregation, %", ylim=(0, 103))
    for ax in below:
        ax.set_xticks(t[1::2])
        ax.spines[["top", "right"]].set_visible(False)
        ax.legend(frameon=False, fontsize=8)
    return figure


def _group_map(figure: Figure, ax, title: str, matrix: np.ndarray, digits: Sequence[str], near: bool) -> None:
    """near: shares of a weight, otherwise distances."""
    options = {"cmap": "Blues", "vmin": 0, "vmax": 18} if near else {"cmap": "Oranges", "vmin": 0, "vmax": 1}
    picture = ax.imshow(matrix, **options)
    for line in range(SIZE, len(matrix), SIZE):
        ax.axhline(line - 0.5, color="white", linewidth=1)
        ax.axvline(line - 0.5, color="white", linewidth=1)
    middles = np.arange(len(digits)) * SIZE + (SIZE - 1) / 2
    ax.set_xticks(middles, digits)
    ax.set_yticks(middles, digits)
    ax.tick_params(length=0)
    ax.set(title=title, xlabel="digits of the client looked at")
    label = "share of the weight for others, %" if near else "distance D (no unit)"
    figure.colorbar(picture, ax=ax, label=label, shrink=0.8)


def _by_rule(ax, t: np.ndarray, lines: Mapping[str, Sequence[float]]) -> None:
    for name, values in lines.items():
        colour, dash, marker = RULES.get(name, OWN_RULE)
        ax.plot(t, 100 * np.array(values), dash, color=colour, marker=marker, markersize=4, label=name)


# lab 5 ----------------------------------------------------------------------------------------------------------------


@as_everywhere({})
def who_has_my_digits(
    relevance: np.ndarray,
    common: np.ndarray,
    game: tuple[Sequence[str], np.ndarray, np.ndarray, np.ndarray, int],
    accuracy: Mapping[str, np.ndarray],
) -> Figure:
    """What clients have learned about each other, one game of the last round, and accuracies.

    relevance: [N, N], nan for pairs that never met; common: share of labels in common [N, N]; game: names of the
    players, their exact Shapley values, estimates, standard errors and the number of orders;
    accuracy: fractions [seeds, T] by method.
    """
    figure, ((matrix, shares), (values, curves)) = axes_of(8, 2, 2, width=9.5)
    rounds = np.arange(1, next(iter(accuracy.values())).shape[1] + 1)
    _relevance(figure, matrix, relevance, len(rounds))
    _relevance_by_share(shares, relevance, common)
    _one_game(values, *game)
    looks = (("#D55E00", "-"), ("#000000", "--"), ("#000000", ":"), ("#56B4E9", "-."), ("#009E73", "-"))
    for (method, found), (colour, style) in zip(accuracy.items(), cycle(looks)):
        _band(curves, rounds, 100 * found, style, color=colour, alpha=0.15, label=method)
    curves.set(title="On the clients' own test images", xlabel="round", ylabel="mean accuracy of clients, %")
    curves.set_xticks(rounds[1::2])
    curves.legend(loc="lower right")
    return figure


def _relevance(figure: Figure, ax, relevance: np.ndarray, rounds: int) -> None:
    N = len(relevance)
    ax.set_facecolor("0.6")
    picture = ax.imshow(relevance, cmap="PuOr_r", vmin=-0.4, vmax=0.4)
    for i in range(0, N, 2):  # outlines: the pairs of clients with the same digits
        ax.add_patch(Rectangle((i - 0.5, i - 0.5), 2, 2, fill=False, lw=1))
    ax.set(title=f"Relevance after {rounds} rounds", xlabel="other client", ylabel="client")
    ax.set(xticks=range(0, N, 4), yticks=range(0, N, 4))
    figure.colorbar(picture, ax=ax, label="relevance", shrink=0.8)


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


def _one_game(
    ax, names: Sequence[str], exact: np.ndarray, estimate: np.ndarray, error: np.ndarray, orders: int
) -> None:
    places = range(len(names))
    ax.errorbar(places, estimate, 2 * error, fmt="_", ms=12, capsize=4, color="#D55E00", label=f"{orders} orders")
    ax.plot(places, exact, "o", color="#0072B2", label="exact")
    ax.axhline(0, color="grey", lw=0.8)
    ax.set_xticks(places, names)
    ax.set(title="Client 0's last game", xlabel="whose model, and its digits", ylabel="Shapley value")
    ax.legend()


def _band(
    ax, x: np.ndarray, values: np.ndarray, style: str, color: str, alpha: float, share: float = 100, **look
) -> None:
    """The mean of values [n, x] as a line, and a band that holds the middle ones: this share of them, in percent."""
    ax.plot(x, values.mean(0), style, color=color, **look)
    low, high = np.percentile(values, (50 - share / 2, 50 + share / 2), axis=0)
    ax.fill_between(x, low, high, color=color, alpha=alpha, lw=0)


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
    _band(left, sigmas, attack[0].T, "o-", "#D55E00", 0.2, share=80, ms=4, label="recovered")
    left.axhline(attack[1], color="k", ls="--", label="mean image")
    left.set(title="Attack on a step with one image", ylabel="PSNR, dB")
    _band(middle, sigmas, training[0].T, "s-", "#0072B2", 0.2, ms=4, label="with noise")
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
