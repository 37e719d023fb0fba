"""Data sets of a user's own: arrays, and what has the form of Hugging Face's library `datasets`. (A folder of images:
`prepare.copy_folder`.)

Arrays are checked, written once in the prepared format, and known by a name of their own. The full name is
arrays:NAME@HASH, with a hash of all that was given, so that a run's settings say which numbers it used, and worker
processes find them on the disk. In the process that made it NAME is enough.

hf:NAME?SETTING=VALUE&..., from the hub or from a folder:

| setting | meaning | without it |
|---|---|---|
| x | the column of images, or columns of numbers, separated by commas | the column of type Image, or all of numbers |
| y | the column of labels | the column of type ClassLabel, or the one called label |
| groups | the column that says who owns a sample (writer, user, domain) | no groups |
| config, revision | the configuration, and the version, to load | the hub's own choice |
| size | pixels: images become squares | images have one size already |

All splits are used; the one called test is the official test part. Splits that are empty or have no labels are left
out, with a line that counts them. FEMNIST by its writers, for example:
hf:flwrlabs/femnist?x=image&y=character&groups=writer_id. A copy in the prepared format is kept in the cache folder;
give a revision where a data set may change on the hub. NAME is a folder if there is one: what `save_to_disk` wrote, or
files that `load_dataset` reads.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from urllib.parse import parse_qsl

import numpy as np

from fedlib.base.errors import BadValue, DataError, choose, require
from fedlib.data.download import offline
from fedlib.data.pictures import PARTS, stacked
from fedlib.data.prepare import Sound, made_once, own_copy
from fedlib.data.readers import Allocate, Content, left_out, numbered, say, shape_of

# arrays ---------------------------------------------------------------------------------------------------------------


FULL_NAME = re.compile(r"arrays:([A-Za-z0-9][A-Za-z0-9_.-]*)@([0-9a-f]{16})")
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
    NAMES[name] = f"arrays:{name}@{digest}"
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
    """(x, the rest) in the prepared format: uint8 or float32 [n, h, w, c], features as [n, 1, 1, d].

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


# the form of Hugging Face's library -----------------------------------------------------------------------------------


INDEX = re.compile(r"Unnamed: \d+|__index_level_\d+__")  # what pandas calls a column of row numbers
SETTINGS = ("x", "y", "groups", "config", "revision", "size")


def copy_hub(name: str, base: Path, sound: Sound) -> Path:
    """The prepared copy of hf:NAME..., under `base`, made now if there is none. Raises BadValue and DataError."""
    place, settings = parsed(name)
    folder = Path(place).expanduser()
    files = [file for file in sorted(folder.rglob("*")) if file.is_file()]  # none for a name of the hub
    listing = [(file.relative_to(folder), file.stat()) for file in files]
    stem = re.sub(r"\W+", "_", place, flags=re.ASCII)[-40:].strip("_") or "data"
    which = [str(folder.resolve()) if files else place, sorted(settings.items())]
    return own_copy(base, stem, which, listing, name, functools.partial(_read, name, place, settings), sound)


def parsed(name: str) -> tuple[str, dict[str, str]]:
    """(NAME, settings) of hf:NAME?SETTING=VALUE&... Raises BadValue for an unknown setting."""
    place, _, rest = name.removeprefix("hf:").partition("?")
    pairs = parse_qsl(rest, keep_blank_values=True)
    settings = dict(pairs)
    require(len(settings) == len(pairs), "dataset", name, "every setting once")
    require(bool(place), "dataset", name, "hf:NAME, a data set of the hub or a folder")
    for setting in settings:
        choose(f"setting of hf:{place}", setting, SETTINGS)
    size = settings.get("size", "32")
    require(size.isdecimal() and 8 <= int(size) <= 1024, "size", size, "8 to 1024 pixels")
    return place, settings


def _read(name: str, place: str, settings: dict[str, str], allocate: Allocate) -> Content:
    """The prepared format of all splits together."""
    loaded = _loaded(name, place, settings)
    table = next(rows.features for rows in loaded.values() if len(rows))
    label, owner = _label_column(name, table, settings.get("y")), settings.get("groups")
    others = [label, *([] if owner is None else [choose(f"column of {name}", owner, table)])]
    columns = _input_columns(name, table, settings.get("x"), others)
    kept = [part for part, rows in loaded.items() if len(rows) and any(v is not None for v in _values(rows, label))]
    if left := [part for part in loaded if part not in kept]:
        say(f"{name}, empty or without labels: {left_out(left, 'split')}")
    if not kept:
        raise DataError(f"{name} has no labels in its column {label!r}")
    from datasets import concatenate_datasets

    try:
        rows = concatenate_datasets([loaded[part].select_columns([*others, *columns]) for part in kept])
    except ValueError as error:
        why = " ".join(str(error).split())[:300]
        raise DataError(f"the splits {', '.join(kept)} of {name} do not have the same columns: {why}") from error
    is_test = np.repeat([PARTS.get(part.lower(), False) for part in kept], [len(loaded[part]) for part in kept])
    if _kind(table[columns[0]]) == "images":
        x = _images(name, rows, columns[0], int(settings.get("size", 0)))
    else:
        x = np.array([_values(rows, column) for column in columns], dtype=np.float64).T
    groups = _values(rows, owner) if owner is not None else None
    classes = getattr(rows.features[label], "names", None)
    return written(*checked(x, _values(rows, label), groups, classes, is_test, "last"), allocate)


def _values(rows, column: str) -> list:
    """A column's values; of classes their names, None for a missing one."""
    values, names = rows.with_format(None)[column][:], getattr(rows.features[column], "names", None)
    return [None if v is None or v < 0 else names[v] for v in values] if names else values


def _loaded(name: str, place: str, settings: dict[str, str]) -> Mapping:
    """The data set's splits by name. Raises BadValue without the library, DataError if it is not to be had."""
    try:
        import datasets
    except ImportError:
        raise BadValue(
            f"dataset {name!r} needs the library datasets (the extra 'hf'): pip install 'fedlib[hf]'"
        ) from None
    folder = Path(place).expanduser()
    if not folder.exists() and offline():
        raise DataError(f"dataset {name!r} is not here, and FEDLIB_OFFLINE is set")
    try:
        if (folder / "dataset_dict.json").is_file():
            parts = json.loads((folder / "dataset_dict.json").read_text())["splits"]
            found = {part: _saved(folder / part) for part in parts}
        elif (folder / "state.json").is_file():
            found = _saved(folder)
        else:  # the whole path, since the library takes a folder called csv for its reader of that name
            source = str(folder.resolve()) if folder.exists() else place
            builder = datasets.load_dataset_builder(source, settings.get("config"), revision=settings.get("revision"))
            builder.download_and_prepare()
            sizes = {part: about.num_examples for part, about in builder.info.splits.items()}
            found = {part: builder.as_dataset(part) if size else () for part, size in sizes.items()}
    except Exception as error:  # the library, its readers and its network fail in many ways
        cause = error.__cause__ or error
        why = " ".join(str(cause).split())[:300]
        raise DataError(f"dataset {name!r} cannot be loaded ({type(cause).__name__}: {why})") from error
    splits = dict(found) if isinstance(found, Mapping) else {"train": found}
    if not sum(map(len, splits.values())):
        raise DataError(f"dataset {name!r} has no samples")
    return splits


def _saved(folder: Path):
    """What `save_to_disk` wrote; nothing of a split without samples, which the library does not read back."""
    from datasets import load_from_disk

    return load_from_disk(str(folder)) if json.loads((folder / "state.json").read_text())["_data_files"] else ()


def _kind(feature) -> str:
    """What a column holds: images, classes, numbers or something else."""
    known = {"Image": "images", "ClassLabel": "classes"}
    one = type(feature).__name__ == "Value" and feature.dtype.startswith(("int", "uint", "float", "bool"))
    return known.get(type(feature).__name__, "numbers" if one else "something else")


def _label_column(name: str, table: Mapping, asked: str | None) -> str:
    if asked is not None:
        return choose(f"column of {name}", asked, table)
    found = [column for column in table if _kind(table[column]) == "classes"] or (["label"] if "label" in table else [])
    if len(found) != 1:
        raise BadValue(f"{name} does not say which column is the label; add ?y=COLUMN with one of {', '.join(table)}")
    return found[0]


def _input_columns(name: str, table: Mapping, asked: str | None, others: Collection[str]) -> list[str]:
    """The column of images, or those of numbers."""
    if asked is not None:
        columns = [choose(f"column of {name}", column, table) for column in asked.split(",")]
        strange = next((column for column in columns if column in others or columns.count(column) > 1), None)
        require(strange is None, f"x of {name}", strange, "every column once, and neither the label nor the owner")
    else:
        rest = [column for column in table if column not in others]
        columns = [c for c in rest if _kind(table[c]) == "images"]
        if not columns:
            columns = [c for c in rest if _kind(table[c]) == "numbers" and not INDEX.fullmatch(c)]
            if left := [column for column in rest if column not in columns]:
                say(f"{name}, an index or no numbers: {left_out(left, 'column')}")
    images = sum(_kind(table[column]) == "images" for column in columns)
    fits = images == len(columns) == 1 or (columns and all(_kind(table[column]) == "numbers" for column in columns))
    accepted = f"?x= with one column of images or columns of numbers, of {', '.join(table)}"
    require(fits, "columns of " + name, ", ".join(columns) or "none", accepted)
    return columns


def _images(name: str, rows, column: str, size: int) -> np.ndarray:
    """uint8 [n, h, w, c]: grey where all are grey, else colours."""
    from datasets import Image

    files = rows.with_format(None).cast_column(column, Image(decode=False))[column]
    contents = [file and (Path(file["path"]) if file["bytes"] is None else file["bytes"]) for file in files]
    return stacked(contents, name, size, "images of one size; add size=PIXELS to make them squares")
