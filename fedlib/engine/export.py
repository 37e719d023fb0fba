"""Trained clients that are kept: every client's model in one file, and a client's model as an ordinary nn.Module.

An export is a folder of two files. `models.safetensors` holds all parameters and running statistics of all N clients,
each stacked [N, ...]; it is data only, so that opening it runs no code. `export.json` says what they are: the run, the
point at which they were taken, the classes, how pixels are scaled, what every client reached on its own test data, the
checksums of the data, of the partition and of the other file.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from fedlib import models
from fedlib.algorithms.api import Algorithm
from fedlib.base import tree
from fedlib.base.errors import DataError, FedlibError, choose, require
from fedlib.base.provenance import provenance
from fedlib.engine.evaluate import evaluate, is_generic, personal_models
from fedlib.engine.setup import Run, arithmetic
from fedlib.engine.state import State
from fedlib.models.norm import BatchNorm2d
from fedlib.models.pool import MaxPool2x2
from fedlib.spec import RunSpec

FORMAT = 1
NUMBERS, ABOUT = "models.safetensors", "export.json"
NEEDED = {"format", "run", "point", "shape", "classes", "largest", "scale", "shift", "sha256", "clients"}


def export(run: Run, state: State, folder: Path | str, point: str | None = None) -> Path:
    """Write all clients' models, as they are tested at `point` (None: the headline), to a new or empty folder.

    run, state: of `fedlib.engine.simulate.watched`, or what `simulate(at_end=...)` is given. Returns the folder, which
    is there whole or not at all. Raises BadValue for a folder that holds something and a point that does not exist,
    FedlibError where clients have different networks.
    """
    folder = checked_folder(folder)
    point = run.points(state)[0] if point is None else choose("point", point, run.points(state))
    if len(set(run.groups)) > 1:
        raise FedlibError(f"the clients of this run have different networks ({', '.join(sorted(set(run.groups)))}), "
                          "which cannot be kept in one stack")  # fmt: skip
    with arithmetic(run.spec.precision):
        (correct, _), chunks = evaluate(run, state, point), list(personal_models(run, state, point))
    order = torch.from_numpy(np.argsort(np.concatenate([ids for ids, _ in chunks])))
    stacked = tree.map(lambda *parts: torch.cat(parts)[order].contiguous().cpu(), *(theta for _, theta in chunks))
    with _whole_or_not(folder) as place:
        _write(place, named(stacked), _about(run, state, point, correct))
    return folder


def checked_folder(folder: Path | str) -> Path:
    """A folder that is new or empty, whose parent is there. Raises BadValue otherwise."""
    folder = Path(folder).expanduser().resolve()
    free = not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))
    require(free, "folder", str(folder), "a folder that is new or empty")
    folder.parent.mkdir(parents=True, exist_ok=True)
    return folder


@contextlib.contextmanager
def _whole_or_not(folder: Path) -> Iterator[Path]:
    """A folder to write into, which takes the place of `folder`, new or empty, when all is written."""
    temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        yield temporary
        temporary.chmod(0o755)  # not the owner's alone, as temporary folders are
        if folder.exists():
            folder.rmdir()
        temporary.replace(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _write(place: Path, numbers: dict[str, Tensor], about: dict) -> None:
    safetensors().save_file(numbers, place / NUMBERS)
    about["sha256"] = _sha256(place / NUMBERS)
    (place / ABOUT).write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")


def _about(run: Run, state: State, point: str, correct: np.ndarray) -> dict:
    """What export.json says, but for the checksum of the numbers. correct: of `evaluate`, int64 [N, C]."""
    dataset, source, tests = run.work.source.dataset, run.work.source, run.tests.sum(1)
    return {
        "format": FORMAT,
        "run": run.spec.to_dict(),
        "id": run.spec.id,
        "round": state.round,
        "point": point,
        "warming_up": state.warming_up,
        "network": str(run.work.model.module),
        "shape": list(dataset.shape),
        "classes": list(dataset.classes),
        "largest": dataset.largest,
        "scale": source.scale.flatten().tolist(),
        "shift": source.shift.flatten().tolist(),
        "data": run.data_checksum,
        "partition": run.partition.checksum,
        "clients": [
            {"train": int(size), "test": int(count), "accuracy": float(right) / int(count)}
            for size, count, right in zip(run.sizes, tests, correct.sum(1))
        ],
        "provenance": provenance(run.device, run.backend.name),
    }


# reading -------------------------------------------------------------------------------------------------------------


class ClientModel(nn.Module):
    """One client's trained model.

    Input: images [B, c, h, w], uint8 in 0..255 or floats in 0..1; floats as they were given, where the data set was
    made of floats. Output: class scores [B, C]. classes: names of the C classes; client: its number; about: training
    and test samples, and accuracy on its own test data; network: what takes standardised images, for plain methods an
    ordinary network that can be trained on.
    """

    def __init__(self, network: nn.Module, exported: dict, client: int):
        """network: of the client; exported: what the folder says of itself, of `read_about`."""
        super().__init__()
        self.network, self.largest, self.classes = network, exported["largest"], tuple(exported["classes"])
        self.client, self.about = client, exported["clients"][client]
        for name in ("scale", "shift"):  # by channel
            self.register_buffer(name, torch.tensor(exported[name]).view(-1, 1, 1))

    def forward(self, images: Tensor) -> Tensor:
        numbers = images.to(self.scale.dtype) * (1 if images.dtype == torch.uint8 else self.largest)
        return self.network(numbers * self.scale + self.shift)


class Personal(nn.Module):
    """A client's model of a method that predicts with more than one network; its numbers are frozen."""

    def __init__(self, method: Algorithm, model: models.Model, personal: dict):
        super().__init__()
        self.method, self.model, self.personal = method, model, personal

    def _apply(self, fn, recurse=True):  # .to(), .double(), .cuda()
        self.personal = tree.map(fn, self.personal)
        like = next(iter(self.personal.values()))
        self.model = self.model.to(like.device, like.dtype)
        return super()._apply(fn, recurse)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            return self.method.predict(self.model, self.personal, x)


def load_client(folder: Path | str, client: int) -> ClientModel:
    """The model of client `client` (0..N-1) from the folder of an export, in evaluation mode, on the CPU.

    In a run with newcomers the clients are those that trained, in the order of `RunSpec.arrival`. Raises BadValue for a
    client that does not exist, DataError for a folder that holds no export, or a damaged one.
    """
    folder = Path(folder).expanduser()
    about = read_about(folder)
    count = len(about["clients"])
    number = isinstance(client, int) and not isinstance(client, bool) and 0 <= client < count
    require(number, "client", client, f"an integer from 0 to {count - 1}")
    spec, shape, classes = RunSpec.from_dict(about["run"]), tuple(about["shape"]), len(about["classes"])
    model, method = models.build(spec.model, shape, classes, seed=spec.seed, **spec.model_options), spec.algorithm
    theta = _one_client(folder, client)
    plain = is_generic(method, about["point"]) or type(method).predict is Algorithm.predict
    if plain and not set(theta) >= set(model.theta0):
        raise DataError(f"damaged export {folder}: its numbers are not those of a {spec.model}")
    network = (
        ordinary(model, {name: theta[name] for name in model.theta0})
        if plain
        else Personal(method, model.to("cpu", _dtype(theta)), theta)
    )
    return ClientModel(network, about, client).to(_dtype(theta)).eval()


def read_about(folder: Path) -> dict:
    """What an export says of itself. Raises DataError if it is none, or if one of its two files is damaged."""
    try:
        about = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"{folder} holds no export: {ABOUT} is missing; `fedlib export RUN DIR` makes one") from None
    except (ValueError, OSError) as error:
        raise DataError(f"damaged export {folder}: {ABOUT}: {error}") from None
    if not isinstance(about, dict) or not about.keys() >= NEEDED or about["format"] != FORMAT:
        raise DataError(f"damaged export {folder}: {ABOUT} is not of format {FORMAT}")
    if not (folder / NUMBERS).is_file():
        raise DataError(f"damaged export {folder}: {NUMBERS} is missing")
    if _sha256(folder / NUMBERS) != about["sha256"]:
        raise DataError(f"damaged export {folder}: the checksum of {NUMBERS} does not match")
    return about


def _one_client(folder: Path, client: int) -> dict:
    """The numbers of one client, read without those of the others."""
    with safetensors().safe_open(folder / NUMBERS, "pt") as stored:
        return nested({name: stored.get_slice(name)[client] for name in stored.keys()})  # noqa: SIM118


def ordinary(model: models.Model, theta: dict) -> nn.Module:
    """A network of PyTorch's own layers with the numbers theta, which trains as any other."""
    network = model.module.to(_dtype(theta))
    for name, layer in list(network.named_modules()):
        if isinstance(layer, BatchNorm2d):
            plain = nn.BatchNorm2d(layer.num_features, layer.eps, layer.momentum)
            network.set_submodule(name, plain.to(layer.weight.dtype))
        elif isinstance(layer, MaxPool2x2):
            network.set_submodule(name, nn.MaxPool2d(2))
    network.load_state_dict(theta, strict=False)  # what is missing are counters and index tables; names were checked
    return network


# names of numbers in a flat file -------------------------------------------------------------------------------------


def named(nest: dict, before: str = "") -> dict[str, Tensor]:
    """The leaves of nested dicts by path: {"supervisor": {"head.bias": b}} becomes {"supervisor/head.bias": b}."""
    flat: dict[str, Tensor] = {}
    for name, value in nest.items():
        flat |= named(value, f"{before}{name}/") if isinstance(value, dict) else {f"{before}{name}": value}
    return flat


def nested(flat: dict[str, Tensor]) -> dict:
    """The inverse of `named`."""
    nest: dict = {}
    for path, value in flat.items():
        *folders, name = path.split("/")
        inner = nest
        for folder in folders:
            inner = inner.setdefault(folder, {})
        inner[name] = value
    return nest


def _dtype(theta: dict) -> torch.dtype:
    return next(value.dtype for value in theta.values() if isinstance(value, Tensor))


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def safetensors():
    """The module that reads and writes tensors. Raises FedlibError where it is not installed."""
    try:
        import safetensors.torch as module
        from safetensors import safe_open
    except ImportError:
        message = "trained models are kept with safetensors, which is not installed: pip install safetensors"
        raise FedlibError(message) from None
    module.safe_open = safe_open
    return module
