"""Raw files to the prepared format on disk, once, whole or not at all, whatever interrupts it."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import math
import os
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

import fedlib
from fedlib.base.errors import DataError, require
from fedlib.data import download
from fedlib.data.pictures import folder_images, read_folder
from fedlib.data.readers import Content, say
from fedlib.data.sources import DATASETS, Source

FOLDER_SIZE = 64  # pixels, unless "folder:<path>@<pixels>" says otherwise
COPIES = 3  # raise it when own images or labels come out differently, so that no old copy is used
Sound = Callable[[Path], bool]  # is there a data set in the prepared format, undamaged, in this folder?


def obtain(name: str, base: Path, sound: Sound, keep: bool = False) -> None:
    """Make `<base>/<name>` from files in `<base>/_downloads/<name>`, downloading what is not there.

    Two processes that ask at once do it once. What was downloaded is removed at the end unless `keep`; files that a
    person placed are left alone. A damaged folder in the way is moved to `<base>/_damaged/`. Raises DataError that says
    what to do.
    """
    source, folder = DATASETS[name], base / "_downloads" / name
    placed = source.instead and (folder / source.instead.name).is_file()
    wanted = (source.instead,) if placed else source.files
    with _alone(base, name):
        if sound(base / name):
            return
        before = set(folder.rglob("*"))
        try:
            _check_space(base, source, wanted, folder)
            if source.torchvision:
                download.require_network([file for file in wanted if not (folder / file.name).exists()], folder)
                files = {"": folder}
            else:
                files = download.fetch(wanted, folder)
            check = functools.partial(check_counts, source)
            build(base / name, name, functools.partial(source.read, files), check)
        except (ConnectionError, download.Absent) as error:
            absent = error if isinstance(error, download.Absent) else download.Absent(wanted, str(error), folder)
            how = f" ({source.by_hand})" if source.by_hand else ""
            raise DataError(f"dataset {name!r} is not prepared: {absent}{how}; then try again") from error
        if not keep:
            for path in sorted(set(folder.rglob("*")) - before, reverse=True):
                path.rmdir() if path.is_dir() else path.unlink()
            with contextlib.suppress(OSError):  # not empty: something else was placed there
                folder.rmdir()


def copy_folder(name: str, base: Path, sound: Sound) -> Path:
    """The prepared copy of folder:<path> or folder:<path>@<pixels>, see `own_copy`. Raises BadValue and DataError."""
    path, size = Path(name.removeprefix("folder:")).expanduser(), FOLDER_SIZE
    if (sized := re.fullmatch(r"(.+)@(\d{1,6})", str(path))) and not path.is_dir():
        path, size = Path(sized[1]), int(sized[2])
    require(8 <= size <= 1024, "dataset", name, "folder:<path>@<pixels> with 8 to 1024 pixels")
    path = path.resolve()
    listing = [(one.path.relative_to(path), one.path.stat()) for one in folder_images(path)[0]]
    stem = re.sub(r"\W+", "_", path.name, flags=re.ASCII)[:40].strip("_") or "images"
    read = functools.partial(read_folder, {"": path}, size=size)
    return own_copy(base, stem, [str(path), size], listing, path.name, read, sound)


def own_copy(
    base: Path,
    stem: str,
    which: list,
    listing: Sequence[tuple[Path, os.stat_result]],
    name: str,
    read: Callable[..., Content],
    sound: Sound,
) -> Path:
    """The prepared copy, under `base`, of files of a user's, made now by `read` if there is none of their present
    content.

    It is called `stem` with hashes of `which`, what is read and how, and of the paths, sizes and times of the files;
    copies of an earlier content are removed.
    """
    files = [(path.as_posix(), info.st_size, info.st_mtime_ns) for path, info in listing]
    stem = f"{stem}-{_short_hash([COPIES, *which])}"
    return made_once(base / f"{stem}-{_short_hash(files)}", name, read, sound, f"{stem}-*")


def made_once(target: Path, name: str, read: Callable[..., Content], sound: Sound, replaces: str = "") -> Path:
    """`target`, the prepared format of what `read` gives, made now if it is not there (see `build`).

    Two processes that ask at once do it once. replaces: a pattern of older copies beside it, which go.
    Raises DataError.
    """
    if not sound(target):
        with _alone(target.parent, target.name):
            if not sound(target):
                for old in target.parent.glob(replaces) if replaces else ():
                    shutil.rmtree(old, ignore_errors=True)
                build(target, name, read)
                _say_twins(target, name)
    return target


def _say_twins(target: Path, name: str) -> None:
    """Say how many images of a user's occur more than once, which a label or a test part may not stand."""
    files = (target / f"{part}.npy" for part in ("images", "labels", "is_test"))
    images, labels, is_test = (np.load(file, mmap_mode="r") for file in files)
    if images.dtype != np.uint8:
        return
    first: dict[bytes, int] = {}
    twins = [(first.setdefault(hashlib.sha256(image).digest(), k), k) for k, image in enumerate(images)]
    twins = [(one, other) for one, other in twins if one != other]
    if twins:
        differ = [sum(bool(part[one] != part[other]) for one, other in twins) for part in (labels, is_test)]
        say(f"{name}: {len(twins)} of {len(images)} images are there already, {differ[0]} of them with another label, "
            f"{differ[1]} in the other part")  # fmt: skip


def _short_hash(thing) -> str:
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
    """Write the prepared format: `read(allocate=...)` fills the images and returns the rest; `about` goes to meta.json.

    All of it is written to `.<name>.tmp` beside the target, which is renamed at the end.
    """
    temporary = target.with_name(f".{target.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)  # left by a process that was killed
    temporary.mkdir(parents=True)
    try:

        def allocate(n: int, h: int, w: int, c: int, dtype=np.uint8) -> np.ndarray:
            path = temporary / "images.npy"
            images = np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=(n, h, w, c))
            if hasattr(os, "posix_fallocate"):  # a full disk is an OSError here, and would kill the process later
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


def _check_space(base: Path, source: Source, wanted: Sequence[download.RemoteFile], folder: Path) -> None:
    """Raise DataError if the disk has no room for the prepared format and, unless the raw files are there,
    the download."""
    there = all(any(folder.glob(file.name)) for file in wanted)
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
