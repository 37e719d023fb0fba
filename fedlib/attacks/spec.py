"""AttackSpec: everything that decides what an attacker recovers.
Like a training run it has an id and is kept in the store.

Networks for an attack may have learnt something: the common model after some rounds of FedAvg, as plain as FedAvg can
be (H. B. McMahan et al., AISTATS 2017, arXiv:1602.05629): CLIENTS clients with equal shares of IMAGES images, drawn
without regard to labels, all of them in every round, one local epoch in batches of BATCH, and the mean of their
parameters. The attacked images come first, so that they are among those that it is trained on, as a client's own images
would be. Everything is a function of the seed.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from fedlib.attacks.inversion import COSINE, Attack, Recovered, Victim, invert, noise_of, signal, victim
from fedlib.attacks.scores import can_be_computed, distances, score, skimage_metrics
from fedlib.base import tree
from fedlib.base.draws import rng
from fedlib.base.errors import like, require
from fedlib.base.options import Hashed, made
from fedlib.data import load
from fedlib.data.batch import Batch
from fedlib.models import build, check_model, checked_options, options_of
from fedlib.models.model import Model
from fedlib.privacy.noise import Mechanism

# networks that have learnt something ----------------------------------------------------------------------------------


CLIENTS, IMAGES, BATCH = 10, 4000, 32


def shares(number: int, attacked: np.ndarray, seed: int) -> list[np.ndarray]:
    """Which of a data set's `number` images the clients have, int64 [CLIENTS][about IMAGES/CLIENTS]: the attacked ones
    [n] dealt out first, then others, at random."""
    others = np.setdiff1d(np.arange(number), attacked)
    drawn = rng(seed, "images of a trained network").permutation(others)
    every = np.concatenate([attacked, drawn])[: max(IMAGES, len(attacked))]
    return [every[k::CLIENTS] for k in range(CLIENTS)]


def rounds_of_fedavg(model: Model, dataset, attacked: np.ndarray, lr: float, seed: int) -> Iterator[dict]:
    """The common parameters before round 1, after round 1, after round 2, and so on; lr: of all clients."""
    parts, theta = shares(len(dataset.labels), attacked, seed), model.theta0
    x, y = standardised(model, dataset), dataset.labels.to(model.theta0["head.bias"].device)
    sizes = torch.tensor([len(part) for part in parts], dtype=torch.float64)
    weights = (sizes / sizes.sum()).tolist()
    for round in itertools.count(1):
        yield theta
        locals = [one_epoch(model, theta, x, y, part, lr, seed, round, k) for k, part in enumerate(parts)]
        theta = {name: sum(w * own[name] for w, own in zip(weights, locals)) for name in theta}


def one_epoch(model: Model, theta: dict, x, y: Tensor, part: np.ndarray, lr: float, seed: int, round: int, client: int):
    """Parameters of a client after one epoch over its images, in an order of its own for every round."""
    order = rng(seed, "batches of a trained network", round, client).permutation(part)
    for start in range(0, len(order), BATCH):
        rows = order[start : start + BATCH].tolist()
        theta = model.sgd_step(theta, Batch(x(rows), y[rows]), lr)
    return theta


def standardised(model: Model, dataset) -> Callable[[list[int]], Tensor]:
    """A function from numbers of images to these images [B, c, h, w] as the network takes them, on its device."""
    mean, std = (value.to(model.theta0["head.bias"]) for value in dataset.channel_stats)
    return lambda rows: (dataset.images[rows].to(mean).div(255) - mean) / std


@functools.lru_cache(maxsize=8)
def after_rounds(
    network: str, options: tuple, dataset: str, attacked: tuple[int, ...], rounds: tuple[int, ...], lr: float,
    seed: int, device: torch.device,
) -> tuple[Model, list[dict], list[float]]:  # fmt: skip
    """A network, its parameters after these rounds of FedAvg (0: untrained), and how many of the attacked images it
    gets right then, as a share. rounds: rising; options: pairs of name and value."""
    data = load(dataset)
    model = build(network, data.shape, len(data.classes), seed=seed, **dict(options)).to(device, torch.float32)
    every = rounds_of_fedavg(model, data, np.array(attacked), lr, seed)
    thetas = [theta for t, theta in enumerate(itertools.islice(every, rounds[-1] + 1)) if t in rounds]
    x, y = standardised(model, data)(list(attacked)), data.labels[list(attacked)].to(device)
    with torch.no_grad():
        right = [float((model.logits(theta, x).argmax(1) == y).float().mean()) for theta in thetas]
    return model, thetas, right


# the attack -----------------------------------------------------------------------------------------------------------

SUCCESS = 20.0  # dB of PSNR from which an image counts as recovered


def attack_clients(
    victim: Victim,
    dataset,
    indices: np.ndarray,
    attack: Attack = COSINE,
    mechanisms: Sequence[Mechanism] = (Mechanism(),),
    seed: int = 0,
    uploads: int = 1,
    later: Sequence[Victim] = (),
) -> tuple[Recovered, Tensor, list[dict]]:
    """Attack clients that hold the images `indices` int64 [K, b] of a data set, each under every one of M mechanisms.

    All A = M K attacks, mechanism by mechanism, are one stack. uploads: how many the attacker has seen and averages,
    with the same weights, images and steps, each with noise of its own; later: the same with other weights, from each
    of which the client uploads, too. Returns what was recovered, the originals [A, b, c, h, w], and one row for each
    image: image, seed, sigma, privacy, psnr, ssim, mse, objective, success (PSNR of at least SUCCESS dB), label_right.
    """
    index = torch.as_tensor(np.asarray(indices))
    require(index.ndim == 2 and index.shape[1] == victim.images, "indices", tuple(index.shape), f"[K, {victim.images}]")
    index, under = index.repeat(len(mechanisms), 1), [mechanism for mechanism in mechanisms for _ in index]
    originals = dataset.images[index.flatten()].to(victim.mean.dtype).div(255).to(victim.mean.device)
    originals = originals.view(*index.shape, *dataset.shape)
    labels = dataset.labels[index].to(victim.mean.device)
    names = [int(row[0]) for row in index]
    clients = list(zip(originals, labels, under, names))

    def seen(own: Victim, first: int) -> dict:  # by all attackers, of uploads from one client's weights
        return tree.stack([_mean_signal(own, *client, seed, range(first, first + uploads)) for client in clients])

    signals = [seen(own, k * uploads) for k, own in enumerate((victim, *later))]
    noise = noise_of(victim, under, uploads) if attack.match == "likelihood" else None
    others = list(zip(later, signals[1:]))
    found = invert(victim, signals[0], dataset.shape, attack, labels, seed, names, noise, others)
    scores, rows = score(originals, found.images), []
    for k, i in np.ndindex(*index.shape):
        rows.append(
            {
                "image": int(index[k, i]),
                "seed": seed,
                "privacy": under[k].kind,
                "sigma": under[k].sigma,
                **{name: float(scores[name][k, i]) for name in ("psnr", "ssim", "mse")},
                "objective": float(found.objective[k]),
                "success": bool(scores["psnr"][k, i] >= SUCCESS),
                "label_right": bool(found.labels[k, scores["order"][k, i]] == labels[k, i]),
            }
        )
    return found, originals, rows


def _mean_signal(victim: Victim, u: Tensor, y: Tensor, mechanism: Mechanism, name: int, seed: int, uploads) -> dict:
    """The mean of these uploads of one client, one after the other, so that one more is held at most."""
    total = None
    for upload in uploads:
        own = signal(victim, u, y, mechanism, seed, name, upload)
        total = own if total is None else tree.map(torch.add, total, own)
    return total if len(uploads) == 1 else tree.map(lambda leaf: leaf / len(uploads), total)


CPU = torch.device("cpu")
# Fields that came after the first stored results: left out of the canonical JSON at their default, as in `fedlib.spec`.
ADDED_FIELDS = {"model_options": {}, "trained": 0, "uploads": 1, "apart": 0}  # and their defaults
GUESSES = ("mean_image", "uniform_noise")


@dataclass(frozen=True)
class AttackSpec(Hashed):
    """One attack on clients that hold the same network and one or more images each, under several defences.

    Raises BadValue for an unknown field value or one out of range, before anything is loaded.
    """

    dataset: str = "digits"
    network: str = "lenet_dlg"
    images: int = 6  # attacked in all, other ones for every seed
    plan: tuple[tuple[int, ...], ...] = ((0,),)  # the client's images by local step
    lr: float = 0.1  # the client's
    attack: dict = field(default_factory=dict)  # fields of `fedlib.attacks.inversion.Attack`
    defences: dict = field(default_factory=lambda: {"none": {}})  # fields of `fedlib.privacy.noise.Mechanism` by name
    kept: int = 0  # recovered images that the result keeps, of every defence
    seed: int = 0  # initial parameters, images, the attack's starts
    model_options: dict = field(default_factory=dict)  # of the network
    trained: int = 0  # rounds of FedAvg that the network has behind it, see `fedlib.attacks.spec`; 0: untrained
    uploads: int = 1  # from the same images and steps, all seen by the attacker
    apart: int = 0  # rounds of FedAvg from one of these uploads to the next; 0: all start from the same weights
    kind: ClassVar = "attack"
    rounds: ClassVar = 1  # what a progress bar counts

    def __post_init__(self):
        def put(name, value):
            object.__setattr__(self, name, value)

        for f in dataclasses.fields(self):
            if isinstance(f.default, (int, float, str)):
                put(f.name, like(f.default, f.name, getattr(self, f.name)))
        put("plan", tuple(tuple(map(int, rows)) for rows in self.plan))
        put("attack", dataclasses.asdict(made(Attack, self.attack, "field of attack")))
        defences = {name: made(Mechanism, how, "field of a defence") for name, how in self.defences.items()}
        put("defences", {name: dataclasses.asdict(how) for name, how in defences.items()})
        put("model_options", checked_options(check_model(self.network), self.model_options))
        steps = bool(self.plan) and all(rows and min(rows) >= 0 for rows in self.plan)
        require(steps, "plan", self.plan, "one step at least, each with the numbers of its images, from 0 on")
        behind = 1 + max(max(rows) for rows in self.plan)
        whole = self.images >= 1 and self.images % behind == 0
        require(whole, "images", self.images, f"a multiple of the client's {behind}")
        require(self.lr > 0, "lr", self.lr, "a positive number")
        require(0 <= self.kept <= self.images, "kept", self.kept, f"a number from 0 to the {self.images} images")
        for name, least in (("trained", 0), ("uploads", 1), ("apart", 0)):
            require(getattr(self, name) >= least, name, getattr(self, name), f"an integer of at least {least}")
        require(self.uploads > 1 or not self.apart, "apart", self.apart, "0 where there is one upload")
        if self.attack["match"] == "likelihood":
            for name, how in self.defences.items():
                known = how["kind"] == "record" and how["sigma"] > 0
                require(known, "defences", name, "kind 'record' with a sigma above 0, for the match 'likelihood'")

    @property
    def title(self) -> str:
        """A short name, without the seed."""
        a = self.attack
        how = f"{a['match']} {a['labels']} {a['optimiser']}"
        more = "".join(f", {name} {value}" for name in ADDED_FIELDS if (value := self.to_dict().get(name)))
        return f"attack {how} on {self.network}, {len(self.plan)} steps{more}"

    def to_dict(self) -> dict:
        """The fields as JSON types, and the kind, without those that came later and have their default."""
        values, usual = dataclasses.asdict(self), options_of(self.network)
        values["model_options"] = {k: v for k, v in self.model_options.items() if v != usual[k]}
        for name, default in ADDED_FIELDS.items():
            if values[name] == default:
                del values[name]
        return {"kind": self.kind, **json.loads(json.dumps(values))}

    @classmethod
    def from_dict(cls, values: dict) -> AttackSpec:
        """The inverse of `to_dict`. Raises BadValue for a field that does not exist."""
        return super().from_dict({name: value for name, value in values.items() if name != "kind"})

    def indices(self) -> np.ndarray:
        """Which images are attacked: other ones for every seed while there are enough, int [images].

        Raises BadValue for a data set with fewer, and as loading it does.
        """
        dataset = load(self.dataset)
        require(dataset.largest == 255, "dataset", self.dataset, "images of bytes, which an attack can be seen on")
        number = len(dataset.labels)
        require(self.images <= number, "images", self.images, f"at most the {number} of the data set")
        shuffled = rng(0, "attacked images").permutation(number)
        return np.take(shuffled, range(self.seed * self.images, (self.seed + 1) * self.images), mode="wrap")

    def check(self) -> None:
        """Raise what carrying it out would raise: BadValue for a data set with fewer images, FedlibError without
        scikit-image."""
        skimage_metrics()
        self.indices()

    def carry_out(self, device: torch.device = CPU) -> tuple[list[dict], dict[str, np.ndarray]]:
        """One row a defence and image (`attack_clients`, besides `defence` and, with the extra `fedlib[attack]`,
        `lpips`), and arrays: `originals` and `recovered`, uint8 [kept, c, h, w] and [defences, kept, c, h, w];
        `guesses`; for networks that are trained `right`, see `victims`. device: where it is computed.
        Raises as `check` does."""
        self.check()
        dataset = load(self.dataset)
        (client, *later), right = self.victims(device)
        indices = self.indices().reshape(-1, client.images)
        mechanisms = [Mechanism(**how) for how in self.defences.values()]
        same = 1 if self.apart else self.uploads  # from each victim's weights
        found, originals, rows = attack_clients(
            client, dataset, indices, Attack(**self.attack), mechanisms, self.seed, same, later
        )
        images, originals = found.images.cpu(), originals.cpu()
        order = torch.from_numpy(score(originals, images)["order"])
        matched = torch.stack([own[places] for own, places in zip(images, order)])
        flat = [each.flatten(0, 1).float().numpy() for each in (matched, originals)]
        names = np.repeat(list(self.defences), self.images)
        rows = [{"defence": str(name), **row} for name, row in zip(names, rows)]
        if can_be_computed():
            rows = [row | {"lpips": float(d)} for row, d in zip(rows, distances(flat[1], flat[0]))]
        pixels = [(255 * images).round().clip(0, 255).astype(np.uint8) for images in flat]
        recovered, true = (
            images.reshape(len(self.defences), self.images, *dataset.shape)[:, : self.kept] for images in pixels
        )
        learnt = {"right": np.array(right)} if self.trained or self.apart else {}
        return rows, {"recovered": recovered, "originals": true[0], **learnt, **self.guesses()}

    def victims(self, device: torch.device = CPU) -> tuple[list[Victim], list[float]]:
        """The client before each of its uploads, once for those that start from the same weights, and the share of the
        attacked images that its network gets right then."""
        rounds = tuple(range(self.trained, self.trained + self.apart * (self.uploads - 1) + 1, max(1, self.apart)))
        attacked = tuple(map(int, self.indices()))
        options = tuple(self.model_options.items())
        model, thetas, right = after_rounds(
            self.network, options, self.dataset, attacked, rounds, self.lr, self.seed, device
        )
        return [victim(model, load(self.dataset), theta, self.lr, self.plan) for theta in thetas], right

    def guesses(self) -> dict[str, np.ndarray]:
        """PSNR on every attacked image of what needs no upload, float64 [images]: the data set's mean image, and noise.

        The noise, uniform in [0, 1], is another one for every seed.
        """
        dataset = load(self.dataset)
        true = dataset.images[self.indices().tolist()].double().div(255)
        mean = dataset.images.sum(0, dtype=torch.float64) / (255 * len(dataset.labels))
        noise = rng(0, "guess").random(((self.seed + 1) * self.images, *dataset.shape))[-self.images :]
        both = zip(GUESSES, (mean.expand_as(true), torch.from_numpy(noise)))
        return {name: score(true[:, None], guess[:, None])["psnr"].ravel() for name, guess in both}


def psnr_of_guesses(results) -> pd.DataFrame:
    """Mean PSNR on the images that these attack of what needs no upload: `AttackSpec.guesses`; name, psnr."""
    lines = [(name.replace("_", " "), float(np.mean([r.arrays[name] for r in results]))) for name in GUESSES]
    return pd.DataFrame(lines, columns=["name", "psnr"])


def pictures(r) -> pd.DataFrame:
    """The images that an attack's result keeps, for a figure:
    row (original, or recovered with a defence), column, channels, pixels.

    pixels: 0 to 255 in hexadecimal, the image's lines apart.
    """
    names = [f"recovered, {name}".replace("none", "no defence") for name in r.spec.defences]
    lines = [
        (name, k, len(image), " ".join(line.tobytes().hex() for line in image.reshape(-1, image.shape[-1])))
        for name, images in zip(["original", *names], [r.arrays["originals"], *r.arrays["recovered"]])
        for k, image in enumerate(images)
    ]
    return pd.DataFrame(lines, columns=["row", "column", "channels", "pixels"])
