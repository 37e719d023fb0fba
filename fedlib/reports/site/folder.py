"""The folder that a site is written to: nothing in it is touched that an earlier site did not write."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from fedlib.base.errors import BadValue, FedlibError, require
from fedlib.base.files import write_atomically

MANIFEST = "fedlib-site.json"  # the names of all files that were written


def check(folder: Path) -> set[str]:
    """The names of the files that an earlier site left in a folder.

    Raises BadValue if it is a file, or holds anything else; names that begin with a dot, such as .git, are overlooked.
    """
    require(not folder.exists() or folder.is_dir(), "--site", str(folder), "a folder, or the name of a new one")
    old = _written(folder / MANIFEST)
    foreign = sorted(set(_files(folder, deep=bool(old))) - old)
    if foreign:
        shown = ", ".join(foreign[:3]) + (f" and {len(foreign) - 3} others" if len(foreign) > 3 else "")
        raise BadValue(
            f"--site = {str(folder)!r} is not accepted: it holds {shown}, which no site of fedlib wrote; expected a "
            "new or empty folder, or an earlier site"
        )
    return old


def _written(manifest: Path) -> set[str]:
    """What a manifest lists, itself included; nothing without a manifest, or if it is none of fedlib's."""
    try:
        names = json.loads(manifest.read_text("utf-8"))["files"]
        return {MANIFEST, *(str(name) for name in names)}
    except (OSError, ValueError, KeyError, TypeError):
        return set()


def _files(folder: Path, deep: bool) -> Iterator[str]:
    """Names of what is in a folder, without those that begin with a dot; deep: files in all folders below, else only
    what is in the folder itself."""
    if not folder.is_dir():
        return
    for path in folder.rglob("*") if deep else folder.iterdir():
        name = path.relative_to(folder)
        if not any(part.startswith(".") for part in name.parts) and not (deep and path.is_dir()):
            yield name.as_posix()


def write(folder: Path, files: Mapping[str, bytes], old: set[str]) -> None:
    """Write the files, and remove those of an earlier site that are not among them; old: from `check`.

    Interrupted at any moment, it leaves a folder that is still known as a site. Raises FedlibError if that fails.
    """
    try:
        _note(folder, old | files.keys())
        for name, content in files.items():
            write_atomically(folder / name, content)
        for name in (old & set(_files(folder, deep=True))) - files.keys() - {MANIFEST}:
            (folder / name).unlink()
        for path in sorted((p for p in folder.rglob("*") if p.is_dir()), reverse=True):
            if not any(part.startswith(".") for part in path.relative_to(folder).parts) and not any(path.iterdir()):
                path.rmdir()
        _note(folder, files)
    except OSError as error:
        raise FedlibError(f"the site cannot be written to {folder}: {error}") from error


def _note(folder: Path, names) -> None:
    listed = sorted(set(names) - {MANIFEST})
    write_atomically(folder / MANIFEST, (json.dumps({"files": listed}, indent=0) + "\n").encode())
