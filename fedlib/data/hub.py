"""Data sets in the form of Hugging Face's library `datasets`: hf:NAME?SETTING=VALUE&..., from its hub or from a folder.

| setting | meaning | without it |
|---|---|---|
| x | the column of images, or columns of numbers, separated by commas | the column of type Image, or all of numbers |
| y | the column of labels | the column of type ClassLabel, or the one called label |
| groups | the column that says who owns a sample (writer, user, domain) | no groups |
| config, revision | the configuration, and the version, to load | the hub's own choice |
| size | pixels: images become squares | images have one size already |

All splits are used; the one called test is the official test part. Splits that are empty or have no labels are left
out, with a line that counts them. FEMNIST by its writers, for example:
hf:flwrlabs/femnist?x=image&y=character&groups=writer_id. A copy in the prepared form is kept in the cache folder; give
a revision where a data set may change on the hub. NAME is a folder if there is one: what `save_to_disk` wrote, or files
that `load_dataset` reads.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from urllib.parse import parse_qsl

import numpy as np

from fedlib.base.errors import BadValue, DataError, choose, require
from fedlib.data.arrays import checked, written
from fedlib.data.download import offline
from fedlib.data.pictures import PARTS, stacked
from fedlib.data.prepare import Sound, own_copy
from fedlib.data.readers import Allocate, Content, counted, say

PREFIX = "hf:"
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
    place, _, rest = name.removeprefix(PREFIX).partition("?")
    pairs = parse_qsl(rest, keep_blank_values=True)
    settings = dict(pairs)
    require(len(settings) == len(pairs), "dataset", name, "every setting once")
    require(bool(place), "dataset", name, "hf:NAME, a data set of the hub or a folder")
    for setting in settings:
        choose(f"setting of {PREFIX}{place}", setting, SETTINGS)
    size = settings.get("size", "32")
    require(size.isdecimal() and 8 <= int(size) <= 1024, "size", size, "8 to 1024 pixels")
    return place, settings


def _read(name: str, place: str, settings: dict[str, str], allocate: Allocate) -> Content:
    """The prepared form of all splits together."""
    loaded = _loaded(name, place, settings)
    table = next(rows.features for rows in loaded.values() if len(rows))
    label, owner = _label_column(name, table, settings.get("y")), settings.get("groups")
    others = [label, *(() if owner is None else [choose(f"column of {name}", owner, table)])]
    columns = _input_columns(name, table, settings.get("x"), others)
    _check_columns(name, loaded, others, columns)
    splits, y = _labelled(name, loaded, label)
    groups = [value for own in _values(name, splits, owner).values() for value in own] if owner is not None else None
    is_test = np.concatenate([np.full(len(rows), PARTS.get(part.lower(), False)) for part, rows in splits.items()])
    if _kind(table[columns[0]]) == "images":
        x = _images(name, splits, columns[0], int(settings.get("size", 0)))
    else:
        rows = [own.with_format(None) for own in splits.values()]
        x = np.array([[value for own in rows for value in own[column][:]] for column in columns], dtype=np.float64).T
    return written(*checked(x, y, groups, _class_names(splits, label), is_test, "last"), allocate)


def _check_columns(name: str, splits: Mapping, others: Collection[str], columns: Collection[str]) -> None:
    """Raise BadValue unless all splits with samples have the columns, and the inputs in one form."""
    first, *more = [part for part, rows in splits.items() if len(rows)]
    table = splits[first].features
    for part in more:
        for column in (*others, *columns):
            kind = splits[part].features[choose(f"column of the split {part} of {name}", column, splits[part].features)]
            same = column in others or _kind(kind) == _kind(table[column])
            require(same, f"{column} of {name}", f"{kind} in {part}", f"{table[column]} as in {first}")


def _labelled(name: str, loaded: Mapping, label: str) -> tuple[dict, list]:
    """The splits that have labels, and these; says which are left out. Raises DataError if all are."""
    labels = _values(name, {part: rows for part, rows in loaded.items() if len(rows)}, label)
    unknown = {part for part, own in labels.items() if all(value is None or value != value for value in own)}
    kept = [part for part in labels if part not in unknown]
    left = [("without labels" if part in unknown else "empty", part) for part in loaded if part not in kept]
    if left:
        say(f"{name}: {counted(left, 'split')}")
    if not kept:
        raise DataError(f"{name} has no labels in its column {label!r}")
    return {part: loaded[part] for part in kept}, [value for part in kept for value in labels[part]]


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
    number = str(getattr(feature, "dtype", "")).startswith(("int", "uint", "float", "bool"))
    return known.get(type(feature).__name__, "numbers" if number else "something else")


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
            if left := [
                ("of an index" if INDEX.fullmatch(c) else "without numbers", c) for c in rest if c not in columns
            ]:
                say(f"{name}: {counted(left, 'column')}")
    images = sum(_kind(table[column]) == "images" for column in columns)
    fits = images == len(columns) == 1 or (columns and all(_kind(table[column]) == "numbers" for column in columns))
    accepted = f"?x= with one column of images or columns of numbers, of {', '.join(table)}"
    require(fits, "columns of " + name, ", ".join(columns) or "none", accepted)
    return columns


def _values(name: str, splits: Mapping, column: str) -> dict[str, list]:
    """Labels or owners of every split; by name where a split has names, since every split numbers its own."""
    values = {part: rows.with_format(None)[column][:] for part, rows in splits.items()}
    named = {
        part: rows.features[column].names for part, rows in splits.items() if _kind(rows.features[column]) == "classes"
    }
    for part, names in named.items():
        values[part] = [None if value is None or value < 0 else names[value] for value in values[part]]
    numbers = (value for own in values.values() for value in own if not isinstance(value, (str, type(None))))
    strange = next(numbers, None) if named else None
    require(strange is None, f"{column} of {name}", strange, f"names in all splits, as in {', '.join(named)}")
    return values


def _class_names(splits: Mapping, label: str) -> tuple[str, ...] | None:
    """Names of the classes of all splits, where one tells them."""
    named = [rows.features[label].names for rows in splits.values() if _kind(rows.features[label]) == "classes"]
    return tuple(dict.fromkeys(name for names in named for name in names)) or None


def _images(name: str, splits: Mapping, column: str, size: int) -> np.ndarray:
    """uint8 [n, h, w, c]: grey where all are grey, else colours."""
    from datasets import Image

    undecoded = [rows.with_format(None).cast_column(column, Image(decode=False))[column] for rows in splits.values()]
    files = [file for one in undecoded for file in one]
    contents = [file and (Path(file["path"]) if file["bytes"] is None else file["bytes"]) for file in files]
    return stacked(contents, name, size, "images of one size; add size=PIXELS to make them squares")
