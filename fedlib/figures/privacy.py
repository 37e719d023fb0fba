"""Noise: accuracy, privacy guarantee and attacks: pFedSV's Tables 3 and 4 and Figure 11."""

from __future__ import annotations

import textwrap

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from fedlib.analysis.names import proper
from fedlib.figures.accuracy import interval
from fedlib.figures.base import INK, OTHERS, PAGE, PAPER, REFERENCE, axes_of, colours, headline, pixels, styled


@styled
def budgets(cells: pd.DataFrame, by_round: pd.DataFrame) -> Figure:
    """Accuracy against the noise multiplier, ours and the paper's; and what has been spent after every round.

    cells: as in `fedlib.figures.accuracies`, rows "method, σ = level", besides
    "pfedsv, client-level DP, with the ε of σ = level" and "local"; by_round: setting, sigma, round, epsilon.
    """
    figure, (axes,) = axes_of(3.9, 1, 2)
    (left, right), names = axes, cells["row"].str.extract(r"(.*?),? (?:with the ε of )?σ = (.*)")
    cells = cells.assign(method=names[0].fillna(cells["row"]), sigma=names[1].astype(float))
    for method, colour in {"fedavg": REFERENCE, "pfedsv": INK, "pfedsv, client-level DP": "#2f8f5b"}.items():
        for series, marker, style in (("ours", "o", "-"), ("paper", "D", ":")):
            own = cells[(cells["method"] == method) & (cells["series"] == series)]
            if len(own):
                left.plot(own["sigma"], own["mean"], color=colour, linestyle=style, linewidth=1)
                label = f"{proper(method)}, {series}"
                face = "white" if series == "paper" else colour
                interval(left, own["sigma"], own, marker, colour, 4, face, label=label)
    for alone in cells.loc[cells["row"] == "local", "mean"]:
        left.axhline(alone, color="black", linewidth=0.8, linestyle="--", label="Local, ours")
    left.set(title="accuracy", xlabel="noise multiplier σ", ylabel="%, client mean", xticks=[0, 1, 2], ylim=(0, 100))
    styles = dict(zip(by_round["setting"].unique(), ("-", "--", ":")))
    for (setting, sigma), rows in by_round.groupby(["setting", "sigma"], sort=False):
        colour = INK if sigma == by_round["sigma"].min() else OTHERS
        look = dict(color=colour, linestyle=styles[setting], label=f"σ = {sigma:g}, {setting}")
        right.plot(rows["round"], rows["epsilon"], **look)
    right.set(title="privacy budget spent, δ = 1e-5", xlabel="round", ylabel="ε", yscale="log")
    for ax in axes:
        ax.legend(loc="upper center", bbox_to_anchor=(0.45, -0.22), fontsize=6.5)
    ours = cells[(cells["series"] == "ours") & (cells["method"] == "pfedsv")].sort_values("sigma")
    ends = [f"{one.mean:.1f} % at σ = {one.sigma:g}" for one in ours.itertuples()]
    return headline(figure, f"pFedSV: {ends[0]}, {ends[-1]}" if ends else "Without runs of pFedSV")


@styled
def inversion(tidy: pd.DataFrame, pictures: pd.DataFrame, levels: pd.DataFrame) -> Figure:
    """Originals and what an attack recovers of them, a row a defence;
    beside them four scores against σ, a line an attack.

    tidy: attack, defence, sigma, psnr, ssim, lpips, success, an image a row; pictures: row, column, channels,
    pixels in hexadecimal; levels: name, psnr: images that an attacker without any upload could guess. Where lpips is
    missing, which needs the extra `fedlib[attack]`, its panel says so.
    """
    rows, columns = list(dict.fromkeys(pictures["row"])), pictures["column"].nunique()
    left, right = 0.42 * columns + 0.9, 3.4
    figure = Figure(figsize=(PAGE, max(5.6, 0.6 * len(rows) + 0.4)), layout="constrained")
    images, scores = figure.subfigures(1, 2, width_ratios=[left, right])
    axes = images.subplots(len(rows), columns, squeeze=False)
    for line, name in zip(axes, rows):
        for ax, one in zip(line, pictures[pictures["row"] == name].itertuples()):
            _picture(ax, one)
        line[0].set_ylabel(proper(name).replace(", ", ",\n"), rotation=0, ha="right", va="center", fontsize=7)
    _scores(scores.subplots(4, 1, sharex=True), tidy, levels)
    bare = tidy[tidy["defence"] == "none"].groupby("attack")["success"].mean()
    noisy = tidy[tidy["sigma"] > 0].groupby(["sigma", "attack"])["success"].mean().groupby("sigma").max()
    text = f"Without a defence attacks recover {100 * bare.min():.0f} % to {100 * bare.max():.0f} % of the images"
    said = [f"up to {100 * share:.0f} % at σ = {sigma:g}" for sigma, share in noisy.items() if share > 0]
    said += [f"none at σ = {sigma:g}" for sigma in noisy.index[noisy == 0]]
    return headline(figure, "; ".join(filter(None, [text, ", ".join(said)])))


def _picture(ax, one) -> None:
    """Draw a picture that is kept as text."""
    ax.imshow(pixels(one), cmap="gray", vmin=0, vmax=255)
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_visible(False)


@styled
def attackers(tidy: pd.DataFrame, pictures: pd.DataFrame) -> Figure:
    """What each attack recovers of one image, a row an attack and a column a defence; beside it the shares recovered.

    tidy: attack, defence, psnr, success (20 dB), success_25, an image a row; pictures: as in `inversion`, by attack.
    A cell of the right panel has the mean PSNR as its shade, and the shares of 20 and of 25 dB in percent.
    """
    names, defences = list(dict.fromkeys(tidy["attack"])), list(dict.fromkeys(tidy["defence"]))
    figure = Figure(figsize=(PAGE, 0.43 * len(names) + 1.1), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=[1, 0.8])
    axes = left.subplots(len(names), 1 + len(defences), squeeze=False)
    for line, name in zip(axes, names):
        own = pictures[pictures["attack"] == name].set_index("row")
        for ax, row in zip(line, ["original", *(f"recovered, {d}".replace("none", "no defence") for d in defences)]):
            if row in own.index:
                _picture(ax, own.loc[row])
            else:
                ax.axis("off")
        line[0].set_ylabel(textwrap.fill(name, 14), rotation=0, ha="right", va="center", fontsize=7)
    for ax, title in zip(axes[0], ["original", *defences]):
        ax.set_title(_short(title), fontsize=6)
    _shares(right.subplots(), tidy, names, defences)
    shares = tidy.groupby(["defence", "attack"])["success"].mean().unstack("defence")
    noisy = tidy[tidy["sigma"] > 0].groupby(["attack", "sigma"])["success"].mean()
    gone = [f"{sigma:g}" for sigma, own in noisy.groupby("sigma") if own.max() == 0]
    open_to = shares[shares["none"] > 0]
    text = f"Clipping alone stops {(open_to['clipping'] == 0).sum()} of {len(open_to)} attacks that succeed without"
    noise = f"with σ = {gone[0]} or more no image reaches 20 dB" if gone else "at every σ some images reach 20 dB"
    return headline(figure, f"{text}; {noise}")


def _short(defence: str) -> str:
    return defence.replace("clipping", "clip").replace(" = ", " =\n").replace("none", "no\ndefence")


def _shares(ax, tidy: pd.DataFrame, names: list[str], defences: list[str]) -> None:
    means = tidy.groupby(["attack", "defence"])[["psnr", "success", "success_25"]].mean()
    shade = means["psnr"].unstack().reindex(index=names, columns=defences)
    drawn = ax.imshow(shade, cmap="Blues", vmin=5, vmax=35, aspect="auto")
    for (name, defence), (psnr, low, high) in means.iterrows():
        at = defences.index(defence), names.index(name)
        text = f"{100 * low:.0f} | {100 * high:.0f}"
        ax.text(*at, text, ha="center", va="center", fontsize=6, color="white" if psnr > 22 else "black")
    ax.set_xticks(range(len(defences)), map(_short, defences), fontsize=6)
    ax.set_yticks([])
    ax.set_title("% of images with PSNR ≥ 20 dB | ≥ 25 dB")
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
            at = with_clip.index.map(places)
            ax.plot(at, with_clip, color=colour, marker="o", markersize=4, label=proper(attack))
            bare = rows[rows["defence"] == "none"][value].mean()
            ax.plot([-1], [bare], color=colour, marker="D", markersize=5, linestyle="")
    for ax, title in zip(axes, ("PSNR, dB", "SSIM", "ST-LPIPS\n(0: identical)", "recovered\n(≥ 20 dB)")):
        ax.axvline(-0.5, color="#bbbbbb", linewidth=0.8)
        ax.set_xticks([-1, *places.values()], ["no\ndefence", *(f"{s:g}".replace("0.", ".") for s in sigmas)])
        ax.set(ylabel=title)
    axes[-1].set_xlabel("σ of the noise, with clipping")
    for level, style in zip(levels.itertuples(index=False), ("--", ":")):
        axes[0].axhline(level.psnr, color=PAPER, linestyle=style, linewidth=1)
        beside = dict(xycoords=("axes fraction", "data"), textcoords="offset points", ha="left", va="center")
        axes[0].annotate(level.name, (1, level.psnr), (3, 0), fontsize=6, color=PAPER, **beside)
    axes[1].set_ylim(-0.25, 1.05)
    axes[2].set_ylim(-0.05, 1.15)
    axes[3].set_ylim(-0.05, 1.05)
    axes[0].figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", fontsize=6, ncols=2)
