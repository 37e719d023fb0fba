"""Raw files to arrays: what torchvision reads, and LEAF's JSON. Image files are read in `pictures.py`.

Labels and owners of a user's own data become numbers and names in `numbered`, whatever they come from.

A reader is `read(files, allocate) -> Content`. files: paths by name. allocate(n, h, w, c): a uint8 array, or one of
another dtype, to be filled with the images, called once. Everything that is read is checked; a reader raises DataError
that names the file.
"""

from __future__ import annotations

import json
import numbers
import string
import sys
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedlib.base.errors import BadValue, DataError, require
from fedlib.data.download import natural

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


def left_out(names: Sequence[str], what: str) -> str:
    """One line about files, columns or splits that are not used, with the first five names."""
    shown = ", ".join(names[:5]) + ", ..." * (len(names) > 5)
    return f"{len(names)} {what}{'s' * (len(names) != 1)} left out: {shown}"


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


# torchvision's --------------------------------------------------------------------------------------------------------


def read_torchvision(files: dict[str, Path], allocate: Allocate, kind: str, **options) -> Content:
    """MNIST, Fashion-MNIST, EMNIST, CIFAR-10 and CIFAR-100 as torchvision downloads, checks and reads them.

    files: {"": the folder to which it downloads, or where a person put the archives}; kind: torchvision's class, and
    its options. The training part comes first. Raises ConnectionError for whatever it raises.
    """
    try:
        import torchvision.datasets

        make = getattr(torchvision.datasets, kind)
        parts = [make(files[""], train=train, download=True, **options) for train in (True, False)]
    except Exception as error:  # networks, archives and pickles fail in many ways
        raise ConnectionError(f"{type(error).__name__}: {' '.join(str(error).split())[:300]}") from error
    labels = [np.asarray(part.targets, dtype=np.int64) for part in parts]
    pixels = [np.asarray(part.data) for part in parts]
    if kind == "EMNIST":  # stored transposed, as MATLAB has images
        pixels = [part.swapaxes(1, 2) for part in pixels]
    out = allocate(sum(map(len, pixels)), *np.atleast_3d(pixels[0][0]).shape)
    np.concatenate([part.reshape(-1, *out.shape[1:]) for part in pixels], out=out)
    classes = tuple(name.partition(" - ")[0] for name in parts[0].classes)  # of MNIST: "0 - zero"
    return Content(np.concatenate(labels), np.arange(len(out)) >= len(labels[0]), classes)


# LEAF -----------------------------------------------------------------------------------------------------------------


def read_leaf(files: dict[str, Path], allocate: Allocate) -> Content:
    """FEMNIST as LEAF writes it: users and user_data with x (784 numbers in [0, 1] for an image) and y.
    All writers are kept. There is no official split."""
    images, labels, groups, seen = [], [], [], {}
    for name, path in progress(sorted(files.items(), key=lambda item: natural(item[1])), len(files), unit="file"):
        for writer, x, y in _leaf_writers(path):
            if writer in seen:
                raise DataError(f"writer {writer!r} is in {seen[writer]} and again in {name}")
            groups.append(np.full(len(y), len(seen), dtype=np.int64))
            seen[writer] = name
            images.append(x)
            labels.append(y)
    if not labels:
        raise DataError(f"{', '.join(files)}: no writer has a sample")
    out = allocate(sum(map(len, labels)), 28, 28, 1)
    np.concatenate(images, out=out[..., 0])
    no_test = np.zeros(len(out), dtype=bool)
    return Content(np.concatenate(labels), no_test, CHARACTERS, np.concatenate(groups), tuple(seen))


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
