"""What noise costs, what it guarantees, and what it hides: pFedSV's Tables 3 and 4 and Figure 11."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from fedlib.figures.accuracy import interval
from fedlib.figures.base import INK, PAPER, REFERENCE, axes_of, colours, styled
from fedlib.figures.looks import proper

NOISED = {"pfedsv, client": ", noise on updates"}  # where else than in every step


@styled
def budgets(cells: pd.DataFrame, by_round: pd.DataFrame) -> Figure:
    """Accuracy against the noise level, ours and the paper's; and what has been spent after every round.

    cells: as in `fedlib.figures.accuracies`, rows "method, σ = level", besides "pfedsv, client, ε of σ = level" and
    "local"; by_round: setting, sigma, round, epsilon.
    """
    figure, (axes,) = axes_of(11.5, 3.0, 1, 2, width_ratios=[1, 1.2])
    (left, right), names = axes, cells["row"].str.extract(r"(.*?),? (?:ε of )?σ = (.*)")
    cells = cells.assign(method=names[0].fillna(cells["row"]), sigma=names[1].astype(float))
    for method, colour in {"fedavg": REFERENCE, "pfedsv": INK, "pfedsv, client": PAPER}.items():
        for series, marker, style in (("ours", "o", "-"), ("paper", "D", ":")):
            own = cells[(cells["method"] == method) & (cells["series"] == series)]
            if len(own):
                left.plot(own["sigma"], own["mean"], color=colour, linestyle=style, alpha=0.7)
                label = f"{proper(method.partition(',')[0])}{NOISED.get(method, '')}, {series}"
                interval(left, own["sigma"], own, marker, colour, 5, label)
    for alone in cells.loc[cells["row"] == "local", "mean"]:
        left.axhline(alone, color=INK, linewidth=0.8, linestyle="--", label="training alone, ours")
    left.set(
        title="accuracy",
        xlabel="noise level σ of a step",
        ylabel="%, mean over clients",
        xticks=[0, 1, 2],
        ylim=(0, 100),
    )
    styles = dict(zip(by_round["setting"].unique(), ("-", "--", ":")))
    for (setting, sigma), rows in by_round.groupby(["setting", "sigma"], sort=False):
        colour = INK if sigma == by_round["sigma"].min() else PAPER
        right.plot(
            rows["round"], rows["epsilon"], color=colour, linestyle=styles[setting], label=f"σ = {sigma:g}, {setting}"
        )
    right.set(title="privacy budget spent, δ = 1e-5", xlabel="round", ylabel="ε", yscale="log")
    for ax in axes:
        ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8)
    return figure


@styled
def inversion(tidy: pd.DataFrame, pictures: pd.DataFrame, levels: pd.DataFrame) -> Figure:
    """Originals and what an attack recovers of them, a row a defence;
    beside them four scores against σ, a line an attack.

    tidy: attack, defence, sigma, psnr, ssim, lpips, success, an image a row; pictures: row, column, channels,
    pixels in hexadecimal; levels: name, psnr: images that an attacker without any upload could guess. Where lpips is
    missing, which needs the extra `fedlib[attack]`, its panel says so.
    """
    rows, columns = list(dict.fromkeys(pictures["row"])), pictures["column"].nunique()
    left, right = 0.72 * columns + 1.6, 5.6
    figure = Figure(figsize=(left + right, max(5.6, 0.78 * len(rows))), layout="constrained")
    images, scores = figure.subfigures(1, 2, width_ratios=[left, right])
    axes = images.subplots(len(rows), columns, squeeze=False)
    for line, name in zip(axes, rows):
        for ax, one in zip(line, pictures[pictures["row"] == name].itertuples()):
            _picture(ax, one)
        line[0].set_ylabel(name, rotation=0, ha="right", va="center")
    _scores(scores.subplots(4, 1, sharex=True), tidy, levels)
    return figure


def _picture(ax, one) -> None:
    """Draw a picture that is kept as text: channels, and pixels in hexadecimal."""
    lines = [list(bytes.fromhex(text)) for text in one.pixels.split()]
    image = np.array(lines, dtype=np.uint8).reshape(one.channels, -1, len(lines[0])).transpose(1, 2, 0)
    ax.imshow(image, cmap="gray", vmin=0, vmax=255)
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_visible(False)


@styled
def attackers(tidy: pd.DataFrame, pictures: pd.DataFrame) -> Figure:
    """What each attack recovers of one image, a row an attack and a column a defence; beside it the shares recovered.

    tidy: attack, defence, psnr, success (20 dB), success_25, an image a row; pictures: as in `inversion`, by attack.
    A cell of the right panel has the mean PSNR as its shade, and the shares of 20 and of 25 dB in percent.
    """
    names, defences = list(dict.fromkeys(tidy["attack"])), list(dict.fromkeys(tidy["defence"]))
    figure = Figure(figsize=(13.0, 0.62 * len(names) + 1.0), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=[1, 0.85])
    axes = left.subplots(len(names), 1 + len(defences), squeeze=False)
    for line, name in zip(axes, names):
        own = pictures[pictures["attack"] == name].set_index("row")
        for ax, row in zip(line, ["original", *(f"recovered, {d}".replace("none", "no defence") for d in defences)]):
            if row in own.index:
                _picture(ax, own.loc[row])
            else:
                ax.axis("off")
        line[0].set_ylabel(name, rotation=0, ha="right", va="center")
    for ax, title in zip(axes[0], ["original", *defences]):
        ax.set_title(title, fontsize=9)
    _shares(right.subplots(), tidy, names, defences)
    return figure


def _shares(ax, tidy: pd.DataFrame, names: list[str], defences: list[str]) -> None:
    means = tidy.groupby(["attack", "defence"])[["psnr", "success", "success_25"]].mean()
    shade = means["psnr"].unstack().reindex(index=names, columns=defences)
    drawn = ax.imshow(shade, cmap="Blues", vmin=5, vmax=35, aspect="auto")
    for (name, defence), (psnr, low, high) in means.iterrows():
        at = defences.index(defence), names.index(name)
        text = f"{100 * low:.0f} | {100 * high:.0f}"
        ax.text(*at, text, ha="center", va="center", fontsize=8, color="white" if psnr > 22 else "black")
    ax.set_xticks(range(len(defences)), defences, fontsize=8)
    ax.set_yticks(range(len(names)), names)
    ax.set_title("% of images of at least 20 dB | 25 dB", fontsize=10)
    ax.tick_params(length=0)
    ax.figure.colorbar(drawn, ax=ax, label="mean PSNR, dB", fraction=0.05)


def _scores(axes, tidy: pd.DataFrame, levels: pd.DataFrame) -> None:
    """PSNR, SSIM, ST-LPIPS and share of successes against σ, mean over images and seeds;
    diamonds are without defence."""
    noisy = tidy[tidy["defence"] != "none"]
    sigmas = sorted(noisy["sigma"].unique())
    places = {sigma: k for k, sigma in enumerate(sigmas)}
    if "lpips" not in tidy or tidy["lpips"].isna().any():
        tidy = tidy.assign(lpips=np.nan)
        axes[2].text(0.5, 0.5, "not computed: needs fedlib[attack]", transform=axes[2].transAxes, ha="center")
    for (attack, rows), colour in zip(tidy.groupby("attack", sort=False), colours(tidy["attack"].nunique())):
        for ax, value in zip(axes, ("psnr", "ssim", "lpips", "success")):
            with_clip = rows[rows["defence"] != "none"].groupby("sigma")[value].mean()
            ax.plot(
                [places[s] for s in with_clip.index], with_clip, color=colour, marker="o", markersize=4, label=attack
            )
            bare = rows[rows["defence"] == "none"][value].mean()
            ax.plot([-1], [bare], color=colour, marker="D", markersize=5, linestyle="")
    for ax, title in zip(axes, ("PSNR, dB", "SSIM", "ST-LPIPS\n(0: alike)", "share recovered\n(PSNR ≥ 20 dB)")):
        ax.axvline(-0.5, color="#bbbbbb", linewidth=0.8)
        ax.set_xticks([-1, *places.values()], ["no\ndefence", *(f"{s:g}" for s in sigmas)])
        ax.set(ylabel=title)
    axes[-1].set_xlabel("σ of the noise, with clipping")
    for level, style in zip(levels.itertuples(index=False), ("--", ":")):
        axes[0].axhline(level.psnr, color=PAPER, linestyle=style, linewidth=1)
        axes[0].annotate(
            level.name,
            (1, level.psnr),
            (3, 0),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            ha="left",
            va="center",
            fontsize=7,
            color=PAPER,
        )
    axes[1].set_ylim(-0.25, 1.05)
    axes[2].set_ylim(-0.05, 1.15)
    axes[3].set_ylim(-0.05, 1.05)
    axes[0].legend(frameon=False, loc="lower left", bbox_to_anchor=(0.0, 1.0), fontsize=8, ncols=3)
