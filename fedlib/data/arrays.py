"""A user's own arrays as a data set: checked, written once in the prepared form, and known by a name of its own.

The full name is arrays:NAME@HASH, with a hash of all that was given, so that a run's settings say which numbers it
used, and worker processes find them on the disk. In the process that made it NAME is enough.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Callable, Collection
from pathlib import Path

import numpy as np

from fedlib.base.errors import BadValue, DataError, require
from fedlib.data.prepare import Sound, made_once
from fedlib.data.readers import Content

PREFIX = "arrays:"
FULL_NAME = re.compile(rf"{PREFIX}([A-Za-z0-9][A-Za-z0-9_.-]*)@([0-9a-f]{{16}})")
NAMES: dict[str, str] = {}  # of this process: full names by the short ones


def full_name(name: str) -> str:
    """arrays:NAME@HASH for the NAME of arrays of this process; other names as they are."""
    return NAMES.get(name, name)


def place_of(name: str, base: Path) -> Path:
    """The prepared copy of arrays:NAME@HASH. Raises BadValue for a malformed name, DataError if it is not there."""
    found = FULL_NAME.fullmatch(name)
    require(found is not None, "dataset", name, "arrays:NAME@HASH, as Dataset.from_arrays returns it")
    folder = base / f"{found[1]}-{found[2]}"
    if not folder.is_dir():
        raise DataError(f"dataset {name!r} is not here; call Dataset.from_arrays with the same arrays again")
    return folder


def keep(arrays: tuple[np.ndarray, Content], name: str, base: Path, sound: Sound, taken: Collection[str]) -> str:
    """Write checked arrays under `base`, unless they are there, and register `name` for them; returns the full name.

    Raises BadValue for a name that is malformed or `taken`.
    """
    whole = re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name) is not None
    require(whole, "name", name, "letters, digits, '_', '-' and '.', beginning with a letter or digit")
    require(name not in taken, "name", name, f"a name that is free; taken are {', '.join(taken)}")
    x, content = arrays
    digest = _hash(x, content)
    made_once(base / f"{name}-{digest}", name, functools.partial(_written, x, content), sound)
    NAMES[name] = f"{PREFIX}{name}@{digest}"
    return NAMES[name]


def _written(x: np.ndarray, content: Content, allocate: Callable) -> Content:
    allocate(*x.shape, dtype=x.dtype)[:] = x
    return content


def _hash(x: np.ndarray, content: Content) -> str:
    digest = hashlib.sha256(f"{x.dtype}{x.shape}{content.classes}{content.group_names}".encode())
    for array in (x, content.labels, content.is_test, content.groups):
        digest.update(b"none" if array is None else np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:16]


def checked(x, y, groups=None, classes=None, is_test=None, channels: str = "") -> tuple[np.ndarray, Content]:
    """(x, the rest) in the prepared form: uint8 or float32 [n, h, w, c], features as [n, 1, 1, d].

    Arguments as in `Dataset.from_arrays`. Raises BadValue, naming the value.
    """
    x, y = np.asarray(x), np.asarray(y)
    require(x.dtype.kind in "uifb", "x", _form(x), "an array of numbers")
    require(x.ndim in (2, 3, 4) and x.size > 0, "x", _form(x), "features [n, d], or images [n, h, w], [n, h, w, c] or "
            "[n, c, h, w]")  # fmt: skip
    with np.errstate(over="ignore"):
        finite = np.isfinite(x.astype(np.float32, copy=False))
    if not finite.all():
        where = np.argwhere(~finite)[0]
        raise BadValue(f"x{where.tolist()} = {x[tuple(where)]} is not accepted; expected finite numbers")
    n = len(x)
    labels = _labels(y, n)
    if classes is None:
        require(labels.max() < n, "y", int(labels.max()), f"labels from 0, fewer than the {n} samples; or give classes")
        classes = [str(c) for c in range(labels.max() + 1)]
    classes = tuple(map(str, classes))
    require(labels.max() < len(classes), "y", int(labels.max()), f"labels from 0 to {len(classes) - 1}, for the "
            f"{len(classes)} classes")  # fmt: skip
    is_test = np.zeros(n, dtype=bool) if is_test is None else np.asarray(is_test)
    require(
        is_test.shape == (n,) and is_test.dtype == bool, "is_test", _form(is_test), f"bool [{n}], one for each sample"
    )
    names, numbers = (), None
    if groups is not None:
        names, numbers = _groups(np.asarray(groups), n)
    return _pixels(x, channels), Content(labels, is_test, classes, numbers, names)


def _form(array: np.ndarray) -> str:
    return f"{array.dtype}{list(array.shape)}"


def _labels(y: np.ndarray, n: int) -> np.ndarray:
    require(y.shape == (n,), "y", _form(y), f"labels [{n}], one for each sample of x")
    if y.dtype.kind not in "iu":
        parts = [v for v in y.tolist() if isinstance(v, float) and v != v // 1] or y.tolist()
        accepted = "integers from 0 (np.unique(y, return_inverse=True) gives them, and the classes)"
        require(False, "y", f"{_form(y)} with {parts[0]!r}", accepted)
    require(y.min() >= 0, "y", int(y.min()), "labels from 0")
    return y.astype(np.int64)


def _groups(groups: np.ndarray, n: int) -> tuple[tuple[str, ...], np.ndarray]:
    """Names of the groups and the number of every sample's, int64 [n]."""
    fits = groups.shape == (n,) and (groups.dtype.kind in "iuU" or all(isinstance(g, str) for g in groups.tolist()))
    require(fits, "groups", _form(groups), f"numbers or names [{n}], one for each sample of x")
    names, numbers = np.unique(groups, return_inverse=True)
    return tuple(map(str, names.tolist())), numbers.astype(np.int64)


def _pixels(x: np.ndarray, channels: str) -> np.ndarray:
    """x as [n, h, w, c]: bytes of images as they are, everything else as float32."""
    require(channels in ("", "first", "last"), "channels", channels, "first or last, for images [n, c, h, w] or "
            "[n, h, w, c]")  # fmt: skip
    features = x.ndim == 2
    if features:
        x = x[:, None, None, :]
    elif x.ndim == 3:
        x = x[..., None]
    else:
        first, last = x.shape[1] <= 4, x.shape[3] <= 4
        require(channels != "" or first != last, "x", _form(x), "channels='first' or channels='last' with it, for the "
                "shape does not tell which axis they are")  # fmt: skip
        x = np.moveaxis(x, 1, 3) if channels == "first" or (channels == "" and first) else x
    if x.dtype == np.uint8 and not features:
        return np.ascontiguousarray(x)
    return np.ascontiguousarray(x, dtype=np.float32)
