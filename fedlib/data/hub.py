"""Data sets in the form of Hugging Face's library `datasets`: hf:NAME?SETTING=VALUE&..., from its hub or from a folder.

| setting | meaning | without it |
|---|---|---|
| x | the column of images, or columns of numbers, separated by commas | the column of type Image, or all of numbers |
| y | the column of labels | the column of type ClassLabel, or the one called label |
| groups | the column that says who owns a sample (writer, user, domain) | no groups |
| config, revision | the configuration, and the version, to load | the hub's own choice |
| size | pixels: images become squares | images have one size already |

All splits are used; the one called test is the official test part. FEMNIST by its writers, for example:
hf:flwrlabs/femnist?x=image&y=character&groups=writer_id. A copy in the prepared form is kept in the cache folder; give
a revision where a data set may change on the hub. NAME is a folder if there is one: what `save_to_disk` wrote, or files
that `load_dataset` reads.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import parse_qsl

import numpy as np

from fedlib.base.errors import BadValue, DataError, choose, require
from fedlib.data.arrays import checked
from fedlib.data.prepare import Sound, made_once, short_hash
from fedlib.data.readers import Allocate, Content, progress

PREFIX = "hf:"
SETTINGS = ("x", "y", "groups", "config", "revision", "size")


def copy_hub(name: str, base: Path, sound: Sound) -> Path:
    """The prepared copy of hf:NAME..., under `base`, made now if there is none. Raises BadValue and DataError."""
    place, settings = parsed(name)
    folder = Path(place).expanduser()
    listing = [
        (file.relative_to(folder).as_posix(), (info := file.stat()).st_size, info.st_mtime_ns)
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    ]  # empty for a name of the hub
    stem = re.sub(r"\W+", "_", place, flags=re.ASCII)[-40:].strip("_") or "data"
    where = str(folder.resolve()) if listing else place
    which = f"{stem}-{short_hash([where, sorted(settings.items())])}"
    read = functools.partial(_read, name, place, settings)
    return made_once(base / f"{which}-{short_hash(listing)}", name, read, sound, f"{which}-*")


def parsed(name: str) -> tuple[str, dict[str, str]]:
    """(NAME, settings) of hf:NAME?SETTING=VALUE&... Raises BadValue for an unknown setting."""
    place, _, rest = name.removeprefix(PREFIX).partition("?")
    settings = dict(parse_qsl(rest, keep_blank_values=True))
    require(bool(place), "dataset", name, "hf:NAME, a data set of the hub or a folder")
    for setting in settings:
        choose(f"setting of {PREFIX}{place}", setting, SETTINGS)
    size = settings.get("size", "32")
    require(size.isdecimal() and 8 <= int(size) <= 1024, "size", size, "8 to 1024 pixels")
    return place, settings


def _read(name: str, place: str, settings: dict[str, str], allocate: Allocate) -> Content:
    """The prepared form of all splits together."""
    splits = _loaded(name, place, settings)
    table = next(iter(splits.values())).features
    label = _label_column(name, table, settings.get("y"))
    if "groups" in settings:
        choose(f"column of {name}", settings["groups"], table)
    columns = _input_columns(name, table, settings.get("x"), {label, settings.get("groups")})
    y, classes = _numbered(splits, table, label)
    groups = _column(splits, settings["groups"]) if "groups" in settings else None
    is_test = np.concatenate([np.full(len(rows), part == "test") for part, rows in splits.items()])
    if _is_image(table[columns[0]]):
        x = _images(name, splits, columns[0], int(settings.get("size", 0)))
    else:
        x = np.stack([_column(splits, column) for column in columns], axis=1).astype(np.float64)
    x, content = checked(x, y, None if groups is None else groups.astype(str), classes, is_test, "last")
    allocate(*x.shape, dtype=x.dtype)[:] = x
    return content


def _loaded(name: str, place: str, settings: dict[str, str]) -> Mapping:
    """The data set's splits by name. Raises BadValue without the library, DataError if it is not to be had."""
    try:
        import datasets
    except ImportError:
        raise BadValue(
            f"dataset {name!r} needs the library datasets (the extra 'hf'): pip install 'fedlib[hf]'"
        ) from None
    folder = Path(place).expanduser()
    if not folder.exists() and os.environ.get("FEDLIB_OFFLINE"):
        raise DataError(f"dataset {name!r} is not here, and FEDLIB_OFFLINE is set")
    try:
        if any((folder / file).is_file() for file in ("dataset_dict.json", "dataset_info.json", "state.json")):
            found = datasets.load_from_disk(str(folder))
        else:
            found = datasets.load_dataset(str(folder) if folder.exists() else place, settings.get("config"),
                                          revision=settings.get("revision"))  # fmt: skip
    except Exception as error:  # the library, its readers and its network fail in many ways
        raise DataError(f"dataset {name!r} cannot be loaded ({type(error).__name__}: {_one_line(error)})") from error
    splits = dict(found) if isinstance(found, Mapping) else {"train": found}
    if not sum(map(len, splits.values())):
        raise DataError(f"dataset {name!r} has no samples")
    return splits


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


def _is_image(feature) -> bool:
    return type(feature).__name__ == "Image"


def _is_number(feature) -> bool:
    return str(getattr(feature, "dtype", "")).startswith(("int", "uint", "float", "bool"))


def _label_column(name: str, table: Mapping, asked: str | None) -> str:
    if asked is not None:
        return choose(f"column of {name}", asked, table)
    found = [column for column in table if type(table[column]).__name__ == "ClassLabel"] or (
        ["label"] if "label" in table else []
    )
    if len(found) != 1:
        raise BadValue(f"{name} does not say which column is the label; add ?y=COLUMN with one of {', '.join(table)}")
    return found[0]


def _input_columns(name: str, table: Mapping, asked: str | None, others: set) -> list[str]:
    """The column of images, or those of numbers."""
    if asked is not None:
        columns = [choose(f"column of {name}", column, table) for column in asked.split(",")]
    else:
        rest = [column for column in table if column not in others]
        columns = [c for c in rest if _is_image(table[c])] or [c for c in rest if _is_number(table[c])]
    images = sum(_is_image(table[column]) for column in columns)
    fits = images == len(columns) == 1 or (columns and all(_is_number(table[column]) for column in columns))
    accepted = f"?x= with one column of images or columns of numbers, of {', '.join(table)}"
    require(fits, "columns of " + name, ", ".join(columns) or "none", accepted)
    return columns


def _column(splits: Mapping, column: str) -> np.ndarray:
    return np.concatenate([np.asarray(rows.with_format(None)[column][:]) for rows in splits.values()])


def _numbered(splits: Mapping, table: Mapping, label: str) -> tuple[np.ndarray, tuple[str, ...]]:
    """Labels from 0 and the names of the classes; where these are not told, in their sorted order."""
    values = _column(splits, label)
    if type(table[label]).__name__ == "ClassLabel":
        return values, tuple(table[label].names)
    names, numbers = np.unique(values, return_inverse=True)
    return numbers, tuple(map(str, names.tolist()))


def _images(name: str, splits: Mapping, column: str, size: int) -> np.ndarray:
    """uint8 [n, h, w, c]: grey where all are grey, else colours."""
    count, done, kinds = sum(map(len, splits.values())), [], set()
    for rows in splits.values():
        for row in progress(rows.select_columns([column]), len(rows)):
            picture = row[column]
            if picture is None:
                raise DataError(f"{name}: image {len(done)} of {count} is missing")
            picture = picture.convert("L" if picture.mode in ("1", "L") else "RGB")
            done.append(np.asarray(picture.resize((size, size)) if size else picture))
            kinds.add(done[-1].shape)
    if len({shape[:2] for shape in kinds}) > 1:
        shown = ", ".join(f"{h}x{w}" for h, w in sorted({shape[:2] for shape in kinds})[:5])
        raise BadValue(f"{name} has images of several sizes ({shown}, ...); add size=PIXELS to make them squares")
    if len(kinds) > 1:  # grey ones among colours
        done = [np.repeat(one[..., None], 3, axis=2) if one.ndim == 2 else one for one in done]
    x = np.stack(done)
    return x if x.ndim == 4 else x[..., None]
