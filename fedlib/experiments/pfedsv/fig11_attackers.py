"""Figure 11, others: padding, a trained network, batches and steps; attackers who know or have seen more."""

import pandas as pd

from fedlib import figures
from fedlib.analysis.accuracies import best_first
from fedlib.analysis.tables import described, listed, only, rows_of
from fedlib.analysis.uncertainty import draws
from fedlib.attacks.spec import AttackSpec, pictures, psnr_of_guesses
from fedlib.claims import Verdict, beyond, decided, ours, under
from fedlib.engine.result import RunResult
from fedlib.experiments.item import Found, Item, Tables, per_profile
from fedlib.experiments.pfedsv.fig11_inversion import PAPER, by_seed, defences, shares, specs, stopped

BARE, PADDED, TRAINED = "CNN without padding", "CNN with padding", "trained CNN"
FOUR, SIXTEEN, STEPS = "batch of 4", "batch of 16", "4 local steps, 4 images"
KNOWS, MANY, ROUNDS = "knows σ", "many uploads from the same weights", "uploads of 4 rounds"
TWICE = ((0, 1), (2, 3), (0, 1), (2, 3))  # four local steps: two epochs over four images in batches of two


def attacks(s: dict) -> dict[str, dict]:
    """Fields of AttackSpec by name: six victims of the cosine attack, then four attackers of the padded network."""
    cosine = dict(iterations=s["iterations"])
    several, likelihood = {**cosine, "labels": "known"}, {**cosine, "match": "likelihood", "tv": 1.0}
    noisy = {name: how for name, how in defences(s["clip"]).items() if how.get("sigma")}
    every = {
        BARE: dict(model_options={"width": s["width"]}),
        PADDED: {},
        TRAINED: dict(trained=s["trained"]),
        FOUR: dict(attack=several, plan=(tuple(range(4)),)),
        SIXTEEN: dict(attack=several, plan=(tuple(range(16)),), images=16 * s["batches"]),
        STEPS: dict(attack=several, plan=TWICE),
        KNOWS: dict(attack=likelihood, defences=noisy),
        MANY: dict(defences=noisy, uploads=s["uploads"]),
        ROUNDS: dict(defences=noisy, uploads=4, apart=1),
        f"{KNOWS}, {MANY}": dict(attack=likelihood, defences=noisy, uploads=s["uploads"]),
    }
    return {name: dict(attack=cosine, defences=defences(s["clip"])) | how for name, how in every.items()}


def runs(s: dict) -> dict[tuple[str, int], AttackSpec]:
    """The attacks by name and seed, on McMahan's CNN, padded as its authors have it unless it says otherwise."""
    padded = {"padding": "same", "width": s["width"]}
    return specs(s, attacks(s), network="mcmahan_cnn", kept=1, model_options=padded)


def told(spec: AttackSpec) -> str:
    """Victim and attacker of a run in words."""
    padded = "padded" if spec.model_options["padding"] == "same" else "not padded"
    trained = f"after {spec.trained} rounds" if spec.trained else "untrained"
    weights = "of successive rounds" if spec.apart else "from the same weights"
    attacker = "knows σ" if spec.attack["match"] == "likelihood" else "cosine"
    sees = f", sees {spec.uploads} uploads {weights}" if spec.uploads > 1 else ""
    steps = f"batch {len(spec.plan[0])}, local steps {len(spec.plan)}"
    width = {0.5: "half width", 1: "full width"}.get(w := spec.model_options["width"], f"width {w:g}")
    return f"{spec.network}, {width}, {padded}, {trained}, {steps}, {attacker}{sees}"


def read(r: RunResult) -> pd.DataFrame:
    """One row an image and defence; place: the image's number among those of its seed."""
    t = pd.DataFrame(r.history)
    t = t.assign(about=told(r.spec), place=t.groupby("defence").cumcount(), success_25=t["psnr"] >= 25)
    names = ["defence", "about", "image", "sigma", "place", "psnr", "ssim", "success", "success_25", "label_right"]
    return t[names]


def analyse(s: dict, found: Found) -> Tables:
    """tidy: one row an image, attack, defence and seed; pictures: one image of the first seed; levels: of guesses."""
    tidy = rows_of(found, ("attack", "seed"), read)
    learnt = {key: r for key, r in found.items() if "right" in r.arrays}
    return {
        "tidy": tidy,
        "compare": described(tidy, ["attack", "defence"], **{
            "paper (pictures)": lambda t: PAPER.get(t["defence"].iloc[0], ""),
            "ours: share with PSNR of at least 20 dB": lambda t: f"{t['success'].mean():.2f} ({len(t)} images)",
            "share with PSNR of at least 25 dB": lambda t: f"{t['success_25'].mean():.2f}",
            "PSNR, dB": by_seed("psnr"),
            "SSIM": by_seed("ssim"),
            "label matches": lambda t: f"{t['label_right'].mean():.2f}",
            "in full": lambda t: t["about"].iloc[0],
        }).rename(columns={"attack": "victim or attacker"}),
        "pictures": rows_of({key: r for key, r in found.items() if key[1] == 0}, ("attack", "seed"), pictures),
        "levels": psnr_of_guesses([r for (name, _), r in found.items() if name == PADDED]),
        "learnt": rows_of(learnt, ("attack", "seed"), lambda r: pd.DataFrame({"right": r.arrays["right"]})),
    }  # fmt: skip


# claims --------------------------------------------------------------------------------------------------------------


def scope(tables, names) -> str:
    """What the rows of these attacks are about, and how many images each has."""
    rows = tables["tidy"].groupby("attack", sort=False)
    return "; ".join(f"{name} = {(own := rows.get_group(name))['about'].iloc[0]}, "
                     f"n = {len(own) // own['defence'].nunique()}" for name in names)  # fmt: skip


def of_images(judge, *names: str, value: str = "success", scale: float = 100, defence: str = "none"):
    """A check of these attacks' means over images, by seed; of the percentage recovered."""

    def check(tables) -> Verdict:
        rows = only(tables["tidy"], defence=defence)
        rows = rows[rows["attack"].isin(names)]
        margins, text = judge(best_first(scale * draws(rows, value, ["attack"])))
        shares = 100 * rows.groupby("attack", sort=False)[["success", "success_25"]].mean()
        lines = " | ".join(listed(shares[column], ".0f") for column in shares)
        least, most = rows.groupby(["attack", "seed"])["place"].nunique().agg(["min", "max"])
        seeds, images = rows["seed"].nunique(), f"{least} to {most} images" if least < most else f"{most} images"
        over = f"{seeds} seeds and {images} each" if seeds > 1 else f"{images} (1 seed)"
        evidence = f"{text}; % with PSNR of at least 20 dB | 25 dB: {lines}; {scope(tables, names)}"
        return decided(margins, f"with {defence}: {evidence}".replace("with none", "without defence"), over)

    return check


def both_batches(m):
    margins, texts = zip(*(beyond(name, most, -1, what="%")(m) for name, most in ((FOUR, 50), (SIXTEEN, 10))))
    return margins[0] | margins[1], "; ".join(texts)


def nearer(name: str, by: float = 0):
    """A check that an attacker's images have a higher PSNR than those of the cosine attack that saw one upload."""
    return of_images(under([PADDED], [name], by), PADDED, name, value="psnr", scale=1, defence="σ = 0.01")


def nothing_at(defence: str):
    """A check that with this noise no image is recovered, and that the data's mean image is a better guess."""

    def check(tables) -> Verdict:
        names = tables["tidy"]["attack"][tables["tidy"]["defence"] == defence].unique()
        return stopped(tables, defence, f"share recovered with {defence}", scope(tables, names))

    return check


def answer(tables) -> str:
    """What is recovered from whom, and by whom, in a sentence from the numbers."""
    every, noisy = (listed(shares(tables, defence=name), ".2f") for name in ("none", "σ = 0.01"))
    return f"Share of images recovered without defence: {every}; with noise of σ = 0.01: {noisy}."


ITEM = Item(
    title="pFedSV Figure 11, other attackers and victims",
    claim="An attacker recovers training images from an upload, but not once noise with multiplier σ = 1 is added. "
          "This holds for other victims, and for attackers who know or have seen more.",
    smaller="digits (16x16; paper: CIFAR-10); half of the CNN's channels and units; 4 images per seed, 16 in the batch "
            "of 16 (`paper`: 16), and fewer iterations",
    settings=per_profile(
        dataset=["digits", "digits", "cifar10"], width=[0.25, 0.5, 1.0], images=[4, 4, 16], batches=1, seeds=[1, 3, 3],
        clip=1.0, lr=0.1, iterations=[2, 60, 2400], trained=[1, 10, 10], uploads=[2, 20, 20],
    ),
    minutes={"smoke": 0.2, "quick": 1, "paper": 900},
    runs=runs,
    analyse=analyse,
    answer=answer,
    figure=lambda tables: figures.attackers(tables["tidy"], tables["pictures"]),
    shown={"learnt": "Share of the attacked images that the network gets right when the client uploads"},
    claims=(
        ours("Padding hides nothing: without noise nearly all images are recovered from a padded network.",
             of_images(beyond(PADDED, 90, what="%"), PADDED, BARE)),
        ours("Training hides some: without noise fewer images are recovered from the trained network.",
             of_images(under([TRAINED], [PADDED]), PADDED, TRAINED)),
        ours("A batch hides its images: without noise at most half of four are recovered, and a tenth of sixteen.",
             of_images(both_batches, FOUR, SIXTEEN)),
        ours("Several steps over four images do not hide them from an attacker who simulates the steps (at least half "
             "are recovered).", of_images(beyond(STEPS, 50, what="%"), STEPS)),
        ours("Noise with σ = 1 stops every attack here: no image is recovered, and the mean image of the data set is a "
             "better guess.", nothing_at("σ = 1")),
        ours("So does noise with σ = 0.1, by both criteria.", nothing_at("σ = 0.1")),
        ours("Knowing σ helps the attacker: at σ = 0.01 reconstructions have a higher PSNR.",
             nearer(KNOWS)),
        ours("An attacker who has seen many uploads averages out the noise: at σ = 0.01 the PSNR is higher by 3 dB.",
             nearer(MANY, 3)),
        ours("Uploads from other weights help as well: at σ = 0.01 four uploads of successive rounds give a "
             "higher PSNR than one.", nearer(ROUNDS)),
    ),
)  # fmt: skip
