"""Raw files to arrays: IDX (MNIST and its kin), CIFAR's batches, LEAF's JSON. Image files are read in `pictures.py`.

Labels and owners of a user's own data become numbers and names in `numbered`, whatever they come from.

A reader is `read(files, allocate) -> Content`. files: paths by name. allocate(n, h, w, c): a uint8 array, or one of
another dtype, to be filled with the images, called once. Everything that is read is checked; a reader raises DataError
that names the file.
"""

from __future__ import annotations

import gzip
import io
import json
import numbers
import pickle
import re
import string
import sys
import unicodedata
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedlib.base.errors import BadValue, DataError, require
from fedlib.data.download import member_names, natural, read_members

Allocate = Callable[..., np.ndarray]
MISSING = ("nan", "NaN", "None", "NaT", "<NA>")  # what becomes of a missing value that is turned into text
ACCEPTED = "integers from 0, or names"  # for labels and owners
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


def say(line: str) -> None:
    """One line on stderr about what is done otherwise than a user may expect; the name of a file may be no text."""
    print(line.encode(errors="replace").decode().replace("\n", " "), file=sys.stderr)


def counted(things: Iterable[tuple[str, str]], what: str) -> str:
    """One line that counts (reason, name) by reason, the five most frequent, and names what is the only one."""
    by_reason: dict[str, list[str]] = {}
    for reason, name in things:
        by_reason.setdefault(reason, []).append(name)
    parts = []
    for reason, own in sorted(by_reason.items(), key=lambda one: -len(one[1]))[:5]:
        plural = re.sub("^(link|folder)", r"\1s", reason)
        parts.append(f"1 {reason} ({own[0]})" if len(own) == 1 else f"{len(own)} {plural}")
    total, more = sum(map(len, by_reason.values())), ", ..." if len(by_reason) > 5 else ""
    return f"{total} {what if total == 1 else what + 's'} left out: {', '.join(parts)}{more}"


# labels and owners ----------------------------------------------------------------------------------------------------


def numbered(values, what: str, n: int, classes: Sequence | None = None) -> tuple[np.ndarray, tuple[str, ...]]:
    """The labels, or owners, of n samples as numbers, int64 [n], and the names that these count in.

    values: integers, text or truth values. classes: names, one of which every value is, or its place from 0; without
    them, the values that occur, sorted. Raises BadValue for a value that is neither, and for missing ones.
    """
    if isinstance(values, np.ma.MaskedArray):
        values = np.where(np.ma.getmaskarray(values), None, values.data.astype(object))
    # A list would lose what is missing: beside text, None and nan become text.
    values = np.array(values, dtype=object) if isinstance(values, (list, tuple)) else np.asarray(values)
    values = values.astype(str) if values.dtype.kind in "mM" else values
    require(values.shape == (n,), what, shape_of(values), f"numbers or names [{n}], one for each sample of x")
    require(not isinstance(classes, (set, Mapping)), "classes", classes, "names in the order of their numbers")
    names = None if classes is None else tuple(_plain(name, "classes", (name,)) for name in classes)
    require(names is None or None not in names, "classes", names, "a name for each")
    names = names and tuple(map(str, names))
    plain = [_plain(value, what, names or ()) for value in values.tolist()]
    if missing := [k for k, value in enumerate(plain) if value is None]:
        few = f"{what} has no value for {len(missing)} of {n} samples, first for sample {missing[0]}"
        raise BadValue(f"{few}; expected a number or a name for each")
    if names is None:
        if any(isinstance(value, str) for value in plain):
            plain = list(map(str, plain))
        found = sorted(set(plain))
        fits = isinstance(found[0], str) or found[0] >= 0 or found == [-1, 1]
        require(fits, what, found[0], ACCEPTED)
        names, place = tuple(map(str, found)), {value: k for k, value in enumerate(found)}
        say_alike(names, what)
    else:
        require(len(set(names)) == len(names), "classes", names, "names that differ")
        place = {name: k for k, name in enumerate(names)} | {k: k for k in range(len(names))}
        accepted = f"labels from 0 to {len(names) - 1}, for the {len(names)} classes, or their names"
        for value in dict.fromkeys(plain):
            require(value in place, what, value, accepted)
    return np.array([place[value] for value in plain], dtype=np.int64), names


def _plain(value, what: str, names: Sequence[str]) -> int | str | None:
    """A label or owner as a number or text; None for a missing one."""
    if value is np.ma.masked:
        return None
    odd = isinstance(value, (list, tuple, set, dict, np.ndarray, complex))
    require(not odd, what, value, "one number or name a sample")
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    if isinstance(value, (bool, int)):
        return value
    if isinstance(value, numbers.Number) and value == value:
        require(float(value).is_integer(), what, value, ACCEPTED)
        return int(value)
    text = str(value)  # nan, None, NaT and <NA> among others
    if not text.strip() or (text in MISSING and text not in names):
        return None
    require(type(value).__str__ is not object.__str__, what, text[:40], "one number or name a sample")
    return text


def say_alike(names: Sequence[str], what: str) -> None:
    """Say it where names differ in case, spaces or the coding of letters only; they are kept apart."""
    first: dict[str, str] = {}
    plain = [("".join(unicodedata.normalize("NFKC", name).casefold().split()), name) for name in names]
    if alike := [(other, name) for key, name in plain if (other := first.setdefault(key, name)) != name]:
        others = f", and {len(alike) - 1} more pairs" if len(alike) > 1 else ""
        say(f"{what}: {alike[0][0]!r} and {alike[0][1]!r} are taken as different names{others}")


def shape_of(array: np.ndarray) -> str:
    return f"{array.dtype}{list(array.shape)}"


# IDX ------------------------------------------------------------------------------------------------------------------


def idx_array(content, name: str, axes: int) -> np.ndarray:
    """A gzipped IDX file of bytes as uint8 array with `axes` axes: 0 0 8 axes, big-endian sizes, values."""
    try:
        with gzip.open(content) as stream:
            held = stream.read()
        if held[:4] != bytes((0, 0, 8, axes)):
            raise ValueError(f"not an IDX file of bytes with {axes} axes")
        sizes = np.frombuffer(held, dtype=">u4", count=axes, offset=4).tolist()
        return np.frombuffer(held, dtype=np.uint8, offset=4 + 4 * axes).reshape(sizes)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise DataError(f"{name} is damaged ({error}); remove it") from error


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


class _NoCode(pickle.Unpickler):
    """Unpickles lists, dicts, strings, numbers and numpy's arrays; no other name is looked up."""

    KNOWN = {
        **{(f"numpy.{core}.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0] for core in ("core", "_core")},
        ("numpy", "ndarray"): np.ndarray,
        ("numpy", "dtype"): np.dtype,
    }

    def find_class(self, module: str, name: str):
        if (module, name) in self.KNOWN:
            return self.KNOWN[module, name]
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
        pixels = [batch["data"].reshape(-1, 3, 32, 32) for batch in ordered]
        labels = [np.array(batch[f"{kind}labels"], dtype=np.int64) for batch in ordered]
        sizes = [len(part) for part in labels]
        if any(part.dtype != np.uint8 for part in pixels):
            raise ValueError("its images are not bytes")
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
