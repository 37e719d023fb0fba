"""Raw files to the prepared form on disk, once, whole or not at all, whatever interrupts it."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import math
import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

import fedlib
from fedlib.base.errors import DataError
from fedlib.data import download
from fedlib.data.pictures import folder_images, read_folder
from fedlib.data.readers import Content
from fedlib.data.sources import DATASETS, Source

COPIES = 1  # raise it when a folder's images come out differently, so that no old copy is used
Sound = Callable[[Path], bool]  # is there a data set in the prepared form, undamaged, in this folder?


def obtain(name: str, base: Path, sound: Sound, keep: bool = False) -> None:
    """Make `<base>/<name>` from files in `<base>/_downloads/<name>`, downloading what is not there.

    Two processes that ask at once do it once. What was downloaded is removed at the end unless `keep`; files that a
    person placed are left alone. A damaged folder in the way is moved to `<base>/_damaged/`. Raises DataError that says
    what to do.
    """
    source, folder = DATASETS[name], base / "_downloads" / name
    with _alone(base, name):
        if sound(base / name):
            return
        try:
            _check_space(base, source, folder)
            files, downloaded = download.fetch(source.files, folder)
        except download.Absent as absent:
            raise DataError(f"dataset {name!r} is not prepared: {_help(source, absent, folder)}") from absent
        sums = {file: download.checksum(path) for file, path in files.items()}
        known = {file.name for file in source.files if file.checksum}
        for file in sorted(sums.keys() - known):
            print(f"{file}: {sums[file]}, nothing published to compare it with", file=sys.stderr)
        check = functools.partial(check_counts, source)
        build(base / name, name, functools.partial(source.read, files), check, files=sums)
        if not keep:
            for path in downloaded:
                path.unlink()
            with contextlib.suppress(OSError):  # not empty: something else was placed there
                folder.rmdir()


def copy_folder(path: Path, size: int, base: Path, sound: Sound) -> Path:
    """The prepared copy of a user's folder under `base`, made now if there is none that fits the folder's present
    content.

    Its name is derived from the folder's path, `size`, and the paths, sizes and times of the images; copies of an
    earlier content of the same folder are removed. Returns where it is. Raises DataError.
    """
    listing = [
        (file.relative_to(path).as_posix(), info.st_size, info.st_mtime_ns)
        for images in folder_images(path).values()
        for file, info in images
    ]
    stem = re.sub(r"\W+", "_", path.name, flags=re.ASCII)[:40].strip("_") or "images"
    which = f"{stem}-{short_hash([COPIES, str(path), size])}"
    target = base / f"{which}-{short_hash(listing)}"
    return made_once(target, path.name, functools.partial(read_folder, {"": path}, size=size), sound, f"{which}-*")


def made_once(target: Path, name: str, read: Callable[..., Content], sound: Sound, replaces: str = "") -> Path:
    """`target`, the prepared form of what `read` gives, made now if it is not there (see `build`).

    Two processes that ask at once do it once. replaces: a pattern of older copies beside it, which go.
    Raises DataError.
    """
    if not sound(target):
        with _alone(target.parent, target.name):
            if not sound(target):
                for old in target.parent.glob(replaces) if replaces else ():
                    shutil.rmtree(old, ignore_errors=True)
                build(target, name, read)
    return target


def short_hash(thing) -> str:
    return hashlib.sha256(json.dumps(thing).encode()).hexdigest()[:12]


@contextlib.contextmanager
def _alone(base: Path, name: str):
    """One process at a time; a full disk or a folder that cannot be written becomes a DataError."""
    from filelock import FileLock

    try:
        (base / ".locks").mkdir(parents=True, exist_ok=True)
        with FileLock(base / ".locks" / f"{name}.lock"):
            yield
    except OSError as error:
        raise DataError(f"dataset {name!r} cannot be prepared in {base}: {error}") from error


def build(
    target: Path,
    name: str,
    read: Callable[..., Content],
    check: Callable[[Content], None] = lambda content: None,
    **about,
) -> None:
    """Write the prepared form: `read(allocate=...)` fills the images and returns the rest; `about` goes to meta.json.

    All of it is written to `.<name>.tmp` beside the target, which is renamed at the end.
    """
    temporary = target.with_name(f".{target.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)  # left by a process that was killed
    temporary.mkdir(parents=True)
    try:

        def allocate(n: int, h: int, w: int, c: int, dtype=np.uint8) -> np.ndarray:
            path = temporary / "images.npy"
            images = np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=(n, h, w, c))
            if hasattr(
                os, "posix_fallocate"
            ):  # a full disk is an OSError here, but would kill the process while images are written
                with open(path, "r+b") as file:
                    os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
            return images

        content = read(allocate=allocate)
        check(content)
        arrays = {"labels": content.labels, "is_test": content.is_test}
        arrays |= {} if content.groups is None else {"groups": content.groups}
        for what, array in arrays.items():
            np.save(temporary / f"{what}.npy", array)
        images = np.load(temporary / "images.npy", mmap_mode="r")
        meta = {
            "name": name,
            "classes": list(content.classes),
            "sha256": hash_images(images),
            "sha256_labels": hash_labels(*arrays.values()),
            "fedlib": fedlib.__version__,
            **({"groups": list(content.group_names)} if "groups" in arrays else {}),
            **about,
        }
        (temporary / "meta.json").write_text(json.dumps(meta, indent=1) + "\n", encoding="utf-8")
        del images  # Windows moves no folder with a file in use
        _set_aside(target)
        os.replace(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def hash_images(images: np.ndarray) -> str:
    """sha256 of the image bytes, [n, h, w, c] in C order."""
    return hashlib.sha256(memoryview(np.ascontiguousarray(images)).cast("B")).hexdigest()


def hash_labels(*arrays: np.ndarray) -> str:
    """sha256 of labels, is_test and, where there are groups, groups."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def check_counts(source: Source, content: Content) -> None:
    """Raise DataError if a data set of known size came out with another one."""
    found = (len(content.labels), len(content.classes))
    if source.exact and found != (source.images, source.classes):
        raise DataError(
            f"the files hold {found[0]} images of {found[1]} classes, expected {source.images} of {source.classes}; "
            "remove them"
        )


def _check_space(base: Path, source: Source, folder: Path) -> None:
    """Raise DataError if the disk has no room for the prepared form and, unless the raw files are there,
    the download."""
    there = all(any(folder.glob(file.name)) for file in source.files)
    needed = (0 if there else source.megabytes * 10**6) + source.images * math.prod(source.shape)
    free = shutil.disk_usage(base).free
    if free < needed:
        raise DataError(
            f"{base} has {free / 1e9:.1f} GB free; preparing the data set needs up to {needed / 1e9:.1f} GB"
        )


def _set_aside(target: Path) -> None:
    """Move a damaged data set out of the way; it is never deleted, since a person may have made it."""
    if target.exists():
        aside = target.parent / "_damaged"
        aside.mkdir(exist_ok=True)
        number = next(k for k in range(10_000) if not (aside / f"{target.name}.{k}").exists())
        os.replace(target, aside / f"{target.name}.{number}")


def _help(source: Source, absent: download.Absent, folder: Path) -> str:
    """Why it failed, and what to put where by hand."""
    wanted = "; ".join(
        f"{file.name} ({file.checksum or 'no checksum published'}) from {file.urls[0]}" if file.urls else file.name
        for file in absent.missing
    )
    how = f" ({source.by_hand})" if source.by_hand else ""
    return f"{absent.why}. To do it by hand, put into {folder}: {wanted}{how}; then try again"
