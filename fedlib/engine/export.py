"""Trained clients that are kept: every client's model in one file, and a client's model as an ordinary nn.Module.

An export is a folder of two files. `models.pt`, of `torch.save`, holds all parameters and running statistics of all N
clients, each stacked [N, ...]. `export.json`, written last, says what they are: the run, the point at which they were
taken, how pixels are scaled, what every client reached on its own test data, and the other file's checksum.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from fedlib import models
from fedlib.algorithms.api import Algorithm
from fedlib.base import tree
from fedlib.base.errors import DataError, FedlibError, choose, require
from fedlib.base.files import write_atomically
from fedlib.base.provenance import provenance
from fedlib.data.download import checksum
from fedlib.engine.evaluate import evaluate, is_generic, personal_models
from fedlib.engine.setup import Run, arithmetic
from fedlib.engine.state import State
from fedlib.models.parts import BatchNorm2d
from fedlib.spec import RunSpec

NUMBERS, ABOUT = "models.pt", "export.json"


def export(run: Run, state: State, folder: Path | str, point: str | None = None) -> Path:
    """Write all clients' models, as they are evaluated at `point` (None: the headline), to a new or empty folder.

    run, state: of `fedlib.engine.simulate.watched`, or what `simulate(at_end=...)` is given. Returns the folder. Raises
    BadValue for a folder that holds something and a point that does not exist, FedlibError where clients have different
    networks.
    """
    folder = checked_folder(folder)
    point = run.points(state)[0] if point is None else choose("point", point, run.points(state))
    if len(kinds := set(run.groups)) > 1:
        raise FedlibError(f"clients have different networks, which are no stack: {', '.join(sorted(kinds))}")
    with arithmetic(run.spec.precision):
        (correct, _), chunks = evaluate(run, state, point), list(personal_models(run, state, point))
    order = torch.from_numpy(np.argsort(np.concatenate([ids for ids, _ in chunks])))
    stacked = tree.map(lambda *parts: torch.cat(parts)[order].contiguous().cpu(), *(theta for _, theta in chunks))
    folder.mkdir(parents=True, exist_ok=True)
    torch.save(stacked, folder / NUMBERS)
    about = _about(run, state, point, correct) | {"sha256": checksum(folder / NUMBERS).removeprefix("sha256:")}
    write_atomically(folder / ABOUT, (json.dumps(about, indent=1) + "\n").encode())
    return folder


def checked_folder(folder: Path | str) -> Path:
    """A folder that is new or empty. Raises BadValue otherwise."""
    folder = Path(folder).expanduser().resolve()
    free = not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))
    require(free, "folder", str(folder), "a folder that is new or empty")
    return folder


def _about(run: Run, state: State, point: str, correct: np.ndarray) -> dict:
    """What export.json says, but for the checksum of the numbers. correct: of `evaluate`, int64 [N, C]."""
    dataset, source = run.work.source.dataset, run.work.source
    clients = zip(run.sizes, run.tests.sum(1), correct.sum(1))
    return {
        "run": run.spec.to_dict(), "id": run.spec.id, "round": state.round, "point": point,
        "shape": list(dataset.shape), "classes": list(dataset.classes), "largest": dataset.largest,
        "scale": source.scale.flatten().tolist(), "shift": source.shift.flatten().tolist(),
        "data": run.data_checksum, "partition": run.partition.checksum,
        "clients": [{"train": int(n), "test": int(m), "accuracy": float(right) / int(m)} for n, m, right in clients],
        "provenance": provenance(run.device, run.backend.name),
    }  # fmt: skip


class ClientModel(nn.Module):
    """One client's trained model.

    Input: images [B, c, h, w], uint8 in 0..255 or floats in 0..1; floats as they were given, where the data set was
    made of floats. Output: logits [B, C]. classes: names of the C classes; client: its number; about: training
    and test samples, and accuracy on its own test data; network: what takes standardised images, for plain methods an
    ordinary network that can be trained on.
    """

    def __init__(self, network: nn.Module, exported: dict, client: int):
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

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            return self.method.predict(self.model, self.personal, x)


def load_client(folder: Path | str, client: int) -> ClientModel:
    """The model of client `client` (0..N-1) from the folder of an export, in evaluation mode, on the CPU.

    In a run with newcomers the clients are those that trained, in the order of `RunSpec.arrival`. Raises BadValue for a
    client that does not exist, DataError for a folder that holds no export, or a damaged one.
    """
    about = read_about(folder := Path(folder).expanduser())
    count = len(about["clients"])
    require(type(client) is int and 0 <= client < count, "client", client, f"an integer from 0 to {count - 1}")
    spec, shape, classes = RunSpec.from_dict(about["run"]), tuple(about["shape"]), len(about["classes"])
    model, method = models.build(spec.model, shape, classes, seed=spec.seed, **spec.model_options), spec.algorithm
    stored = torch.load(folder / NUMBERS, mmap=True, weights_only=True)  # which runs no code
    own = tree.map(lambda stacked: stacked[client].clone(), stored)
    dtype = next(tree.leaves(own))[1].dtype
    if is_generic(method, about["point"]) or type(method).predict is Algorithm.predict:
        network = ordinary(model, {name: own[name] for name in model.theta0}, dtype)
    else:
        network = Personal(method, model.to("cpu", dtype), own)
    return ClientModel(network, about, client).to(dtype).eval()


def read_about(folder: Path) -> dict:
    """What an export says of itself. Raises DataError if it is none, or if one of its two files is damaged."""
    try:
        about = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
        sound = about["sha256"] == checksum(folder / NUMBERS).removeprefix("sha256:")
    except FileNotFoundError as error:
        raise DataError(f"{folder} holds no export: {Path(error.filename).name} is missing") from None
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"damaged export {folder}: {ABOUT}: {error}") from None
    if not sound:
        raise DataError(f"damaged export {folder}: the checksum of {NUMBERS} does not match")
    return about


def ordinary(model: models.Model, theta: dict, dtype: torch.dtype) -> nn.Module:
    """A network of PyTorch's own layers with the numbers theta, which trains as any other."""
    network = model.module.to(dtype)
    for name, layer in list(network.named_modules()):
        if isinstance(layer, BatchNorm2d):
            network.set_submodule(name, nn.BatchNorm2d(layer.num_features, layer.eps, layer.momentum).to(dtype))
    network.load_state_dict(theta, strict=False)  # what is missing are counters and index tables
    return network
