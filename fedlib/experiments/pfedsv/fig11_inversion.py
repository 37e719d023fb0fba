"""Figure 11: what an attacker recovers of the images behind a client's upload, without and with noise."""

from __future__ import annotations

import pandas as pd
import torch

from fedlib import figures
from fedlib.analysis.tables import listed, mean_std, only
from fedlib.attacks.inversion import score
from fedlib.attacks.spec import AttackSpec, attacked_images
from fedlib.base.draws import rng
from fedlib.data import load
from fedlib.engine.result import RunResult
from fedlib.experiments.claims import (
    Claim,
    Verdict,
    apart,
    beyond,
    ours,
    over_seeds,
    verdict,
)
from fedlib.experiments.item import Item

SMOOTH = "lenet_dlg"
TWO_IMAGES = ((0,), (1,), (0,), (1,))  # four local steps: two epochs over two images, batches of one
SIGMAS = (0.001, 0.01, 0.1, 1.0)
PAPER = {"none": "recovered", "σ = 1": "not recovered"}


def defences(clip: float, *names: str) -> dict[str, dict]:
    """DP-SGD with norms clipped at `clip` and noise σ, by name, all or these; "none" has no clipping either."""
    record = {f"σ = {sigma:g}": {"kind": "record", "sigma": sigma, "clip": clip} for sigma in SIGMAS}
    every = {"none": {}, "clipping": {"kind": "record", "clip": clip}, **record}
    return {name: how for name, how in every.items() if not names or name in names}


def attacks(s: dict) -> dict[str, dict]:
    """Fields of AttackSpec by name; the number of iterations is a setting."""
    newton = dict(match="l2", optimiser="lbfgs", tv=0.0, iterations=s["lbfgs_iterations"], restarts=s["lbfgs_restarts"])
    adam = dict(iterations=s["adam_iterations"])
    few, fewer = (defences(s["clip"], "none", name, "σ = 1") for name in ("clipping", "σ = 0.01"))
    return {
        "DLG": dict(attack={**newton, "labels": "joint"}, defences=few),
        "iDLG": dict(attack=newton, defences=few),
        "cosine": dict(attack=adam, defences=defences(s["clip"]), kept=s["shown"]),
        "cosine, 4 local steps": dict(attack={**adam, "labels": "known"}, defences=fewer, plan=TWO_IMAGES),
        f"cosine, {s['network']}": dict(attack=adam, defences=fewer, network=s["network"]),
    }


def runs(s: dict) -> dict[tuple[str, int], AttackSpec]:
    """The attacks by name and seed."""
    common = {"network": SMOOTH, **{name: s[name] for name in ("dataset", "images", "lr")}}
    return {
        (name, seed): AttackSpec(**{**common, **how}, seed=seed)
        for name, how in attacks(s).items()
        for seed in range(s["seeds"])
    }


def analyse(s: dict, results: list[RunResult]) -> dict[str, pd.DataFrame]:
    """tidy: one row an image, attack, defence and seed; pictures: pixels of the first seed's images; levels: PSNR of guesses."""
    found = {r.spec.id: r for r in results}
    frames = [
        pd.DataFrame(found[spec.id].history).assign(attack=name, seed=seed) for (name, seed), spec in runs(s).items()
    ]
    tidy, shown = pd.concat(frames, ignore_index=True), found[runs(s)["cosine", 0].id]
    pictures = [("original", shown.arrays["originals"])]
    for name, images in zip(shown.spec.defences, shown.arrays["recovered"]):
        pictures.append((f"recovered, {name}".replace("none", "no defence"), images))
    lines = [(name, k, len(image), hexadecimal(image)) for name, images in pictures for k, image in enumerate(images)]
    pictures = pd.DataFrame(lines, columns=["row", "column", "channels", "pixels"])
    return {"tidy": tidy, "compare": compared(tidy), "pictures": pictures, "levels": guesses(s)}


def hexadecimal(image) -> str:
    """Pixels [c, h, w], 0 to 255 in hexadecimal, lines apart."""
    return " ".join(line.tobytes().hex() for line in image.reshape(-1, image.shape[-1]))


def compared(tidy: pd.DataFrame) -> pd.DataFrame:
    """The paper's two rows of pictures, in words, beside every attack and defence."""
    lines = []
    for (attack, defence), own in tidy.groupby(["attack", "defence"], sort=False):
        line = {"attack": attack, "defence": defence, "paper (pictures)": PAPER.get(defence, "")}
        line["ours: share recovered"] = f"{own['success'].mean():.2f} (n={len(own)})"
        for column, title in (("psnr", "PSNR, dB"), ("ssim", "SSIM"), ("lpips", "ST-LPIPS")):
            line[title] = mean_std(own.groupby("seed")[column].mean())
        lines.append({**line, "label right": f"{own['label_right'].mean():.2f}"})
    return pd.DataFrame(lines)


def guesses(s: dict) -> pd.DataFrame:
    """Mean PSNR on the attacked images of what needs no upload: the mean image of the data set, and uniform noise."""
    dataset = load(s["dataset"])
    where = [int(i) for seed in range(s["seeds"]) for i in attacked_images(len(dataset.labels), s["images"], seed)]
    true = dataset.images[where].double().div(255)
    guess = {
        "mean image": dataset.images.double().div(255).mean(0).expand_as(true),
        "uniform noise": torch.from_numpy(rng(0, "guess").random(tuple(true.shape))),
    }
    lines = [(name, float(score(true[:, None], images[:, None])["psnr"].mean())) for name, images in guess.items()]
    return pd.DataFrame(lines, columns=["name", "psnr"])


# claims --------------------------------------------------------------------------------------------------------------


def shares(tables, **where) -> pd.Series:
    """Share of images recovered, by attack."""
    return only(tables["tidy"], **where).groupby("attack", sort=False)["success"].mean()


def level_1_stops_all(tables) -> Verdict:
    own, guess = only(tables["tidy"], defence="σ = 1"), tables["levels"].set_index("name")["psnr"]["mean image"]
    psnr, found = own.groupby("attack")["psnr"].mean(), shares(tables, defence="σ = 1")
    evidence = f"share of {len(own)} images recovered at σ = 1: {listed(found, '.2f')}; highest mean PSNR {psnr.max():.1f} dB ({psnr.idxmax()})"
    return verdict(found.max() == 0 and psnr.max() < guess, f"{evidence}, the mean image has {guess:.1f}")


def less_noise_suffices(tables) -> Verdict:
    noisy = tables["tidy"].query("sigma > 0").groupby("sigma")["success"].mean()
    enough = [sigma for sigma in noisy.index if (noisy[noisy.index >= sigma] == 0).all()]
    listing = ", ".join(f"{value:.2f} at {sigma:g}" for sigma, value in noisy.items())
    return verdict(bool(enough) and min(enough) <= 0.1, f"share recovered over all attacks by σ: {listing}")


def clipping_stops_l2_only(tables) -> Verdict:
    found, bare = shares(tables, defence="clipping"), shares(tables, defence="none")
    holds = max(found["DLG"], found["iDLG"]) < 0.1 and found["cosine"] > 0.9 * bare["cosine"] > 0
    return verdict(
        holds, f"share recovered with clipping alone: {listed(found, '.2f')}; without: {listed(bare, '.2f')}"
    )


def of_bare(judge):
    """A check of the percentage of images recovered without defence, over seeds (other images, another network)."""
    return over_seeds("tidy", "success", "attack", judge, 100, defence="none")


def other_network(m):
    (other,) = [name for name in m if name.startswith("cosine,") and "steps" not in name]
    return (
        {other: m["cosine"] - m[other] - 50},
        f"cosine {m['cosine'].iloc[0]:.0f} %, {apart(m['cosine'] - m[other])} over {other}; the line of 50 points is ours",
    )


def nearly_all(m):
    most = m.iloc[0].idxmax()
    return beyond(most, 90)(m)


def answer(tables) -> str:
    """Whether noise stops the attacks, in a sentence from the numbers."""
    parts = [f"{name}: {listed(shares(tables, defence=name), '.2f')}" for name in ("none", "clipping", "σ = 1")]
    return f"Share of images recovered from an upload, by attack, with the defence {'; '.join(parts)}."


COMMON = {"clip": 1.0, "lr": 0.1}
ITEM = Item(
    title="pFedSV Figure 11: model inversion without and with noise",
    claim="An attacker recovers training images from an upload, and cannot once noise of level 1 is added.",
    smaller="digits (16x16) instead of CIFAR-10; LeNet-5 as the convolutional network; fewer images, restarts and iterations",
    settings={
        "smoke": {"dataset": "digits", "network": "lenet5", "images": 2, "shown": 2, "seeds": 1, **COMMON,
                  "adam_iterations": 4, "lbfgs_iterations": 2, "lbfgs_restarts": 1},
        "quick": {"dataset": "digits", "network": "lenet5", "images": 6, "shown": 6, "seeds": 3, **COMMON,
                  "adam_iterations": 150, "lbfgs_iterations": 30, "lbfgs_restarts": 1},
        "paper": {"dataset": "cifar10", "network": "mcmahan_cnn", "images": 16, "shown": 8, "seeds": 3, **COMMON,
                  "adam_iterations": 2400, "lbfgs_iterations": 1200, "lbfgs_restarts": 2},
    },
    minutes={"smoke": 0.1, "quick": 1, "paper": 90},
    specs=lambda s: list(runs(s).values()),
    analyse=analyse,
    answer=answer,
    figure=lambda tables: figures.inversion(tables["tidy"], tables["pictures"], tables["levels"]),
    claims=(
        Claim("Without noise the attacker recovers nearly all images (at least one attack recovers 90 %).", of_bare(nearly_all)),
        Claim("Noise of level 1 stops every attack: no image is recovered, and the mean image of the data set is a better guess.", level_1_stops_all),
        ours("A tenth of that noise is enough.", less_noise_suffices),
        ours("Clipping alone stops the attacks that match the gradient's length (DLG, iDLG), and not the one that matches its direction.", clipping_stops_l2_only),
        ours("What is recovered depends on the network: the same attack recovers far fewer images (50 points) from one with ReLU and pooling.", of_bare(other_network)),
        ours("Several local steps do not hide the images from an attacker who simulates them (at least half are recovered).", of_bare(beyond("cosine, 4 local steps", 50))),
    ),
)  # fmt: skip
