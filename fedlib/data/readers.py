"""Raw files to arrays: IDX (MNIST and its kin), CIFAR's batches, LEAF's JSON. Image files are read in `pictures.py`.

A reader is `read(files, allocate) -> Content`. files: paths by name. allocate(n, h, w, c): a uint8 array, or one of
another dtype, to be filled with the images, called once. Everything that is read is checked; a reader raises DataError
that names the file.
"""

from __future__ import annotations

import gzip
import io
import json
import math
import pickle
import re
import string
import sys
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedlib.base.errors import DataError
from fedlib.data.archives import member_names, read_members
from fedlib.data.download import natural

Allocate = Callable[..., np.ndarray]
CHARACTERS = tuple(string.digits + string.ascii_uppercase + string.ascii_lowercase)  # 62 classes, the order of NIST


@dataclass(frozen=True)
class Content:
    """A data set without its images. labels: int64 [n]; is_test: bool [n]; groups: int64 [n],
    index into group_names."""

    labels: np.ndarray
    is_test: np.ndarray
    classes: tuple[str, ...]
    groups: np.ndarray | None = None
    group_names: tuple[str, ...] = ()


def progress(things, total: int | None = None, unit: str = "image"):
    """A progress bar on stderr that leaves nothing behind."""
    from tqdm import tqdm

    return tqdm(things, total=total, desc="preparing", unit=unit, leave=False, file=sys.stderr)


# IDX ------------------------------------------------------------------------------------------------------------------


def idx_array(content, name: str, axes: int) -> np.ndarray:
    """A gzipped IDX file of bytes as uint8 array with `axes` axes: 0 0 8 axes, big-endian sizes, values."""
    try:
        with gzip.open(content) as stream:
            header = stream.read(4 + 4 * axes)
            sizes = np.frombuffer(header[4:], dtype=">u4").tolist()
            if header[:4] != bytes((0, 0, 8, axes)) or len(sizes) != axes or math.prod(sizes) > 2**31:
                raise ValueError(f"not an IDX file of bytes with {axes} axes")
            values = stream.read(math.prod(sizes))
            if len(values) != math.prod(sizes) or stream.read(1):
                raise ValueError(f"it does not hold the {math.prod(sizes)} values that it announces")
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise DataError(f"{name} is damaged ({error}); remove it") from error
    return np.frombuffer(values, dtype=np.uint8).reshape(sizes)


def _joined(parts: list[tuple[np.ndarray, np.ndarray]], classes, allocate: Allocate, names) -> Content:
    """Training and test part, [(images [n, h, w], labels [n]), ...], as one data set."""
    for images, labels in parts:
        if len(images) != len(labels) or labels.max(initial=0) >= len(classes) or images.shape[1:] != (28, 28):
            raise DataError(f"{', '.join(names)}: images {images.shape} and labels {labels.shape} do not fit")
    out = allocate(sum(len(labels) for _, labels in parts), 28, 28, 1)
    np.concatenate([images for images, _ in parts], out=out[..., 0])
    labels = np.concatenate([labels for _, labels in parts]).astype(np.int64)
    return Content(labels, np.arange(len(labels)) >= len(parts[0][1]), tuple(classes))


def read_mnist(files: dict[str, Path], allocate: Allocate, classes: tuple[str, ...]) -> Content:
    """MNIST and Fashion-MNIST: four gzipped IDX files."""
    names = list(files)  # training images, training labels, test images, test labels
    images, labels = ([idx_array(files[n], n, axes) for n in names[k::2]] for k, axes in ((0, 3), (1, 1)))
    return _joined(list(zip(images, labels)), classes, allocate, names)


def read_emnist(files: dict[str, Path], allocate: Allocate) -> Content:
    """EMNIST "by class", from the zip of all its versions. Its images are stored transposed, as MATLAB has them;
    here they are upright."""
    ((_, path),) = files.items()
    ends = [
        f"emnist-byclass-{part}-{what}-ubyte.gz"
        for part in ("train", "test")
        for what in ("images-idx3", "labels-idx1")
    ]
    members = [name for end in ends for name in member_names(path) if name.endswith(end)]
    if len(members) != 4:
        raise DataError(f"{path} lacks some of {', '.join(ends)}")
    content = dict(read_members(path, members))
    arrays = [idx_array(io.BytesIO(content.pop(m)), m, axes) for m, axes in zip(members, (3, 1, 3, 1))]
    parts = [(images.transpose(0, 2, 1), labels) for images, labels in zip(arrays[::2], arrays[1::2])]
    return _joined(parts, CHARACTERS, allocate, members)


# CIFAR ----------------------------------------------------------------------------------------------------------------


class _Array:
    """Stands in for a pickled numpy array: it keeps the state that it is given and runs nothing."""

    def __setstate__(self, state):
        self.state = state

    def values(self) -> np.ndarray:
        """The pickled uint8 array. Raises ValueError or TypeError for any other."""
        _, shape, dtype, fortran, content = self.state
        if not isinstance(dtype, _Dtype) or dtype.kind not in ("u1", "uint8") or fortran:
            raise ValueError("its images are not bytes in C order")
        content = content.encode("latin1") if isinstance(content, str) else content
        return np.frombuffer(content, dtype=np.uint8).reshape(shape)


class _Dtype:
    """Stands in for a pickled numpy.dtype."""

    def __init__(self, kind, *_):
        self.kind = kind

    def __setstate__(self, state):
        pass


class _NoCode(pickle.Unpickler):
    """Unpickles lists, dicts, strings and numbers. The three names of a pickled array become stand-ins;
    no other is looked up."""

    STAND_INS = {
        **{(f"numpy.{core}.multiarray", "_reconstruct"): lambda *_: _Array() for core in ("core", "_core")},
        ("numpy", "ndarray"): _Array,
        ("numpy", "dtype"): _Dtype,
    }

    def find_class(self, module: str, name: str):
        if (module, name) in self.STAND_INS:
            return self.STAND_INS[module, name]
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no batch of images needs")


def safe_unpickle(content: bytes, name: str) -> dict:
    """A pickled dict, written by Python 2 or 3, without running any code of it. Raises DataError."""
    try:
        batch = _NoCode(io.BytesIO(content), encoding="latin1").load()
    except Exception as error:  # damaged pickles fail in every way
        raise DataError(f"{name} is refused: {error}") from error
    if not isinstance(batch, dict):
        raise DataError(f"{name} is refused: it holds no dict")
    return batch


def read_cifar(
    files: dict[str, Path], allocate: Allocate, train: tuple[str, ...], test: str, meta: str, kind: str
) -> Content:
    """CIFAR-10 and CIFAR-100, "Python version". train, test, meta: names of the batches; kind: "" or "fine_"."""
    ((_, path),) = files.items()
    members = {name.rsplit("/", 1)[-1]: name for name in member_names(path)}
    absent = [name for name in (*train, test, meta) if name not in members]
    if absent:
        raise DataError(f"{path} lacks {', '.join(absent)}")
    wanted = [members[name] for name in (*train, test, meta)]
    batches = {name: safe_unpickle(content, f"{name} in {path}") for name, content in read_members(path, wanted)}
    try:
        classes = tuple(str(name) for name in batches.pop(members[meta])[f"{kind}label_names"])
        ordered = [batches[members[name]] for name in (*train, test)]
        pixels = [batch["data"].values().reshape(-1, 3, 32, 32) for batch in ordered]
        labels = [np.array(batch[f"{kind}labels"], dtype=np.int64) for batch in ordered]
        sizes = [len(part) for part in labels]
        if sizes != [len(part) for part in pixels] or not all(p.min() >= 0 and p.max() < len(classes) for p in labels):
            raise ValueError("images and labels do not fit")
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise DataError(f"{path} does not hold CIFAR's batches ({type(error).__name__}: {error})") from error
    out = allocate(sum(sizes), 32, 32, 3)
    np.concatenate([part.transpose(0, 2, 3, 1) for part in pixels], out=out)
    return Content(np.concatenate(labels), np.arange(len(out)) >= len(out) - sizes[-1], classes)


# LEAF -----------------------------------------------------------------------------------------------------------------


def read_leaf(files: dict[str, Path], allocate: Allocate) -> Content:
    """FEMNIST as LEAF writes it: users and user_data with x (784 numbers in [0, 1] for an image) and y.
    All writers are kept.

    Files of LEAF's train/ and test/ folders can be mixed: "_test_" in the name marks the test part, and a writer's two
    parts get one group.
    """
    marks = {name: (re.findall(r"_(train|test)_\d+\.json$", name) or [""])[0] for name in files}
    if "" in marks.values() and len(set(marks.values())) > 1:
        raise DataError(f"{next(iter(files.values())).parent} mixes LEAF's all_data with its train and test files")
    images, labels, is_test, groups, writers, seen = [], [], [], [], {}, {}
    for name, path in progress(sorted(files.items(), key=lambda item: natural(item[1])), len(files), unit="file"):
        for writer, x, y in _leaf_writers(path):
            if (writer, marks[name]) in seen:
                raise DataError(f"writer {writer!r} is in {seen[writer, marks[name]]} and again in {name}")
            seen[writer, marks[name]] = name
            images.append(x)
            labels.append(y)
            is_test.append(np.full(len(y), marks[name] == "test"))
            groups.append(np.full(len(y), writers.setdefault(writer, len(writers)), dtype=np.int64))
    if not labels:
        raise DataError(f"{', '.join(files)}: no writer has a sample")
    out = allocate(sum(map(len, labels)), 28, 28, 1)
    np.concatenate(images, out=out[..., 0])
    return Content(*map(np.concatenate, (labels, is_test)), CHARACTERS, np.concatenate(groups), tuple(writers))


def _leaf_writers(path: Path):
    """(writer, images uint8 [m, 28, 28], labels int64 [m]) of every writer in one file;
    writers without a sample are left out."""
    try:
        body = json.loads(path.read_bytes())
        for writer in body["users"]:
            x = np.array(body["user_data"][writer]["x"], dtype=np.float64)
            y = np.array(body["user_data"][writer]["y"])
            if len(y):
                fits = x.shape == (len(y), 784) and x.min() >= 0 and x.max() <= 1
                if not fits or y.dtype != np.int64 or y.min() < 0 or y.max() >= len(CHARACTERS):
                    raise ValueError(
                        f"writer {writer!r} has no 784 numbers in [0, 1] and label in 0..61 for every image"
                    )
                yield str(writer), np.rint(x * 255).astype(np.uint8).reshape(-1, 28, 28), y
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise DataError(f"{path} is not as LEAF writes it ({type(error).__name__}: {error})") from error
