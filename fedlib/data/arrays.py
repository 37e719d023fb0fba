"""A user's own arrays as a data set: checked, written once in the prepared form, and known by a name of its own.

The full name is arrays:NAME@HASH, with a hash of all that was given, so that a run's settings say which numbers it
used, and worker processes find them on the disk. In the process that made it NAME is enough.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Collection
from pathlib import Path

import numpy as np

from fedlib.base.errors import BadValue, DataError, require
from fedlib.data.pictures import stacked
from fedlib.data.prepare import Sound, made_once
from fedlib.data.readers import Allocate, Content, numbered, shape_of

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
    made_once(base / f"{name}-{digest}", name, functools.partial(written, x, content), sound)
    NAMES[name] = f"{PREFIX}{name}@{digest}"
    return NAMES[name]


def written(x: np.ndarray, content: Content, allocate: Allocate) -> Content:
    """A reader of what is in memory already, see `fedlib.data.readers`."""
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
    if isinstance(x, (list, tuple)) and x and type(x[0]).__module__.startswith("PIL."):
        x, channels = stacked(x, "x", 0, "pictures of one size"), "last"
    x = as_array(x, "x")
    require(x.dtype.kind in "uifb", "x", shape_of(x), "an array of numbers")
    require(x.ndim in (2, 3, 4) and x.size > 0, "x", shape_of(x), "features [n, d], or images [n, h, w], [n, h, w, c] "
            "or [n, c, h, w]")  # fmt: skip
    with np.errstate(over="ignore"):
        finite = np.isfinite(x.astype(np.float32, copy=False))
    if not finite.all():
        where = np.argwhere(~finite)[0]
        raise BadValue(f"x{where.tolist()} = {x[tuple(where)]} is not accepted; expected finite numbers")
    _check_precision(x)
    n = len(x)
    labels, names = numbered(y, "y", n, classes)
    few = classes is not None or len(names) <= max(10, n // 2)
    require(few, "y", f"{len(names)} different values in {n} samples", "labels; or give classes")
    is_test = np.zeros(n, dtype=bool) if is_test is None else as_array(is_test, "is_test")
    fits = is_test.shape == (n,) and is_test.dtype == bool
    require(fits, "is_test", shape_of(is_test), f"bool [{n}], one for each sample")
    owners, owner_names = (None, ()) if groups is None else numbered(groups, "groups", n)
    return _pixels(x, channels), Content(labels, is_test, names, owners, owner_names)


def _check_precision(x: np.ndarray) -> None:
    """Raises BadValue for a feature such as a time in seconds, whose values float32 does not tell apart."""
    if x.ndim == 2:
        wide = x.astype(np.float64)
        low, high, error = wide.min(0), wide.max(0), np.abs(wide - x.astype(np.float32)).max(0)
        size = np.maximum(np.abs(low), np.abs(high))
        lost = (error > 0.01 * (high - low)) & (high - low > 1e-12 * size)
        k = int(lost.argmax())
        accepted = "numbers that float32 tells apart; subtract the column's mean"
        require(not lost.any(), "x", f"column {k} from {low[k]} to {high[k]}", accepted)


def as_array(values, what: str) -> np.ndarray:
    """Raises BadValue for what is no array, and for one that hides some of its values."""
    parts = values if isinstance(values, (list, tuple)) else [values]
    masked = sum(int(np.ma.getmaskarray(part).sum()) for part in parts if isinstance(part, np.ma.MaskedArray))
    require(not masked, what, f"an array with {masked} masked values", "no masked ones")
    try:
        return np.asarray(values)
    except (ValueError, TypeError, RuntimeError) as error:
        raise BadValue(f"{what} is not accepted: {' '.join(str(error).split())[:200]}") from None


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
        require(channels != "" or first != last, "x", shape_of(x), "channels='first' or channels='last' with it, for "
                "the shape does not tell which axis they are")  # fmt: skip
        x = np.moveaxis(x, 1, 3) if channels == "first" or (channels == "" and first) else x
    if x.dtype == np.uint8 and not features:
        return np.ascontiguousarray(x)
    return np.ascontiguousarray(x, dtype=np.float32)
