"""Getting raw files, from where a person put them or from the network, with a checksum where one is known; and reading
archives, whose members come out as bytes: nothing is extracted to disk."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedlib.base.errors import DataError


@dataclass(frozen=True)
class RemoteFile:
    """A raw file. name: under which it is kept, may be a pattern; urls: mirrors, none if it can only be placed by hand;
    checksum: "md5:..." or "sha256:...", or its beginning, None if none is published (then only the content is
    checked)."""

    name: str
    urls: tuple[str, ...] = ()
    checksum: str | None = None


class Absent(DataError):
    """Files that are neither there nor to be had: why, and which a person may put where."""

    def __init__(self, missing: Sequence[RemoteFile], why: str, folder: Path):
        wanted = "; ".join(
            file.name + f" ({file.checksum})" * bool(file.checksum) + "".join(f" from {url}" for url in file.urls[:1])
            for file in missing
        )
        super().__init__(f"{why}. To do it by hand, put into {folder}: {wanted}")


def offline() -> bool:
    """Whether $FEDLIB_OFFLINE forbids downloads."""
    return os.environ.get("FEDLIB_OFFLINE", "") not in ("", "0")


def fetch(files: Sequence[RemoteFile], folder: Path) -> dict[str, Path]:
    """All raw files by name, in the order of `files`; those that lie in `folder` already are verified and used.
    Raises Absent for files that are neither there nor to be had, and DataError for one there whose checksum is wrong.
    """
    placed = {file: sorted(folder.glob(file.name), key=natural) for file in files}
    for file, paths in placed.items():
        for path in paths:
            verify(path, file.checksum)
    missing = [file for file in files if not placed[file]]
    require_network(missing, folder)
    for k, file in enumerate(missing):
        try:
            placed[file] = [_downloaded(file, folder)]
        except ConnectionError as error:
            raise Absent(missing[k:], f"the download failed ({error})", folder) from error
    return {path.name: path for file in files for path in placed[file]}


def require_network(missing: Sequence[RemoteFile], folder: Path) -> None:
    """Raise Absent if files are missing and may not be downloaded, or cannot."""
    if by_hand := [file for file in missing if not file.urls]:
        raise Absent(by_hand, "there is no direct download", folder)
    if missing and offline():
        raise Absent(missing, "FEDLIB_OFFLINE is set", folder)


def _downloaded(file: RemoteFile, folder: Path) -> Path:
    """One file from the first address that has it; it appears in `folder` when it is whole. Raises ConnectionError with
    all that went wrong."""
    from torch.hub import download_url_to_file

    folder.mkdir(parents=True, exist_ok=True)
    path, failures = folder / file.name, []
    for url in file.urls:
        try:
            download_url_to_file(url, str(path))
            verify(path, file.checksum)
            return path
        except Exception as error:  # networks fail in many ways
            path.unlink(missing_ok=True)
            failures.append(f"{url}: {error}")
    raise ConnectionError("; ".join(failures))


def checksum(path: Path, like: str | None = None) -> str:
    """The checksum of a file, of the same kind as `like`; sha256 by default."""
    kind = like.partition(":")[0] if like else "sha256"
    with open(path, "rb") as content:
        return f"{kind}:{hashlib.file_digest(content, lambda: hashlib.new(kind, usedforsecurity=False)).hexdigest()}"


def verify(path: Path, expected: str | None) -> None:
    """Raise DataError, naming both sums, if a file does not have the expected checksum."""
    if expected and not (found := checksum(path, expected)).startswith(expected):
        raise DataError(
            f"{path} is not the file it should be: it has {found}, expected {expected}; remove or replace it"
        )


def natural(path: Path) -> list:
    """Sort key by which part_2 comes before part_10."""
    return [(int(piece), "") if piece.isdigit() else (-1, piece) for piece in re.split(r"(\d+)", path.name)]


# archives -------------------------------------------------------------------------------------------------------------


def member_names(path: Path) -> list[str]:
    """Names of all files in a .zip or .tar.*, without a leading "./". Raises DataError for a damaged archive."""
    with _clear_errors(path):
        return [name for name, _ in _members(path)]


def read_members(path: Path, wanted: Collection[str]) -> Iterator[tuple[str, bytes]]:
    """Yield (name, content) of the wanted files in the archive's own order. Raises DataError,
    also if one is missing."""
    missing = set(wanted)
    with _clear_errors(path):
        for name, read in _members(path):
            if name in missing:
                missing.remove(name)
                yield name, read()
    if missing:
        raise DataError(f"{path} has no member {min(missing)!r}")


@contextlib.contextmanager
def _clear_errors(path: Path):
    """Whatever the standard library says about a damaged archive becomes a DataError that names the file."""
    try:
        yield
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError) as error:
        raise DataError(f"{path} is damaged, or not the archive that its name says ({error}); remove it") from error


def _members(path: Path) -> Iterator[tuple[str, Callable[[], bytes]]]:
    """Name and reader of every regular file; the reader works until the next one is asked for."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                if not info.is_dir():
                    yield info.filename.removeprefix("./"), lambda info=info: archive.read(info)
    else:
        with tarfile.open(path, "r:*") as archive:
            for info in archive:
                if info.isreg():
                    yield info.name.removeprefix("./"), lambda info=info: archive.extractfile(info).read()
