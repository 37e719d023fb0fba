"""Getting raw files: from where a person put them, or from the network, always with a checksum where one is known; and
reading archives that nobody vouches for: members come out as bytes, nothing is ever extracted to disk.

A member with an absolute path or with "..", a link, a device, two members of one name and too many bytes are refused.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import shutil
import stat
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import fedlib
from fedlib.base.errors import DataError

ATTEMPTS = 2  # for each address
TIMEOUT = 30  # seconds without a byte
BLOCK = 2**20


@dataclass(frozen=True)
class RemoteFile:
    """A raw file. name: under which it is kept, may be a pattern; urls: mirrors, none if it can only be placed by hand;
    checksum: "md5:..." or "sha256:...", None if none is published (then only the content is checked)."""

    name: str
    urls: tuple[str, ...] = ()
    checksum: str | None = None


class Absent(DataError):
    """Files that are neither there nor to be had: why, and which a person may put where."""

    def __init__(self, missing: Sequence[RemoteFile], why: str, folder: Path):
        wanted = "; ".join(
            f"{file.name} ({file.checksum or 'no checksum published'}) from {file.urls[0]}" if file.urls else file.name
            for file in missing
        )
        super().__init__(f"{why}. To do it by hand, put into {folder}: {wanted}")


def offline() -> bool:
    """Whether $FEDLIB_OFFLINE forbids downloads."""
    return os.environ.get("FEDLIB_OFFLINE", "") not in ("", "0")


def fetch(files: Sequence[RemoteFile], folder: Path) -> tuple[dict[str, Path], list[Path]]:
    """All raw files by name, in the order of `files`, and the list of those that were downloaded now.

    Files that lie in `folder` already are verified and used. Raises Absent for files that are neither there nor to be
    had, and DataError for a file there whose checksum is wrong.
    """
    placed = {file: sorted(folder.glob(file.name), key=natural) for file in files}
    for file, paths in placed.items():
        for path in paths:
            verify(path, file.checksum)
    missing = [file for file in files if not placed[file]]
    by_hand = [file for file in missing if not file.urls]
    if by_hand:
        raise Absent(by_hand, "there is no direct download", folder)
    if missing and offline():
        raise Absent(missing, "FEDLIB_OFFLINE is set", folder)
    downloaded = []
    for k, file in enumerate(missing):
        try:
            placed[file] = [download(file, folder)]
        except ConnectionError as error:
            raise Absent(missing[k:], f"the download failed ({error})", folder) from error
        downloaded += placed[file]
    return {path.name: path for file in files for path in placed[file]}, downloaded


def download(file: RemoteFile, folder: Path) -> Path:
    """Download one file, trying every address ATTEMPTS times;
    it appears in `folder` only when it is whole and verified.

    Raises ConnectionError with all that went wrong, DataError if the disk is full.
    """
    failures = []
    for url in file.urls * ATTEMPTS:
        try:
            return _get(url, file, folder)
        except (OSError, ValueError, EOFError) as error:  # URLError, HTTPException's and time-outs are OSErrors
            if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT):
                raise DataError(f"no space left in {folder} for {file.name}") from error
            failures.append(f"{url}: {error}")
    raise ConnectionError("; ".join(dict.fromkeys(failures)))


def _get(url: str, file: RemoteFile, folder: Path) -> Path:
    """One attempt at one address."""
    import http.client
    import urllib.request

    from tqdm import tqdm

    folder.mkdir(parents=True, exist_ok=True)
    part = folder / f".{file.name}.part"
    request = urllib.request.Request(url, headers={"User-Agent": f"fedlib/{fedlib.__version__}"})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer, open(part, "wb") as out:
            size = int(answer.headers.get("Content-Length") or 0)
            look = dict(unit="B", unit_scale=True, unit_divisor=1024, leave=False, file=sys.stderr)
            with tqdm.wrapattr(out, "write", total=size or None, desc=file.name, **look) as shown:
                shutil.copyfileobj(answer, shown, BLOCK)
        if size and part.stat().st_size != size:
            raise OSError(f"the connection ended after {part.stat().st_size} of {size} bytes")
        found = checksum(part, file.checksum)
        if file.checksum and found != file.checksum:
            raise OSError(f"what came has {found}, expected {file.checksum}")
        os.replace(part, folder / file.name)
        return folder / file.name
    except http.client.HTTPException as error:
        raise OSError(f"{type(error).__name__} {error}") from error
    finally:
        part.unlink(missing_ok=True)


def checksum(path: Path, like: str | None = None) -> str:
    """The checksum of a file, of the same kind as `like`; sha256 by default."""
    kind = like.partition(":")[0] if like else "sha256"
    with open(path, "rb") as content:
        return f"{kind}:{hashlib.file_digest(content, lambda: hashlib.new(kind, usedforsecurity=False)).hexdigest()}"


def verify(path: Path, expected: str | None) -> None:
    """Raise DataError, naming both sums, if a file does not have the expected checksum."""
    if expected and (found := checksum(path, expected)) != expected:
        raise DataError(
            f"{path} is not the file it should be: it has {found}, expected {expected}; remove or replace it"
        )


def natural(path: Path) -> list:
    """Sort key by which part_2 comes before part_10."""
    return [(int(piece), "") if piece.isdigit() else (-1, piece) for piece in re.split(r"(\d+)", path.name)]


# archives -------------------------------------------------------------------------------------------------------------


LARGEST_MEMBER = 2**30  # bytes when unpacked; the largest that we read is EMNIST's training part, about 500 MB
LARGEST_TOTAL = 2**35


def member_names(path: Path) -> list[str]:
    """Names of all files in a .zip or .tar.*, without a leading "./".
    Raises DataError for a damaged or unsafe archive."""
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
    """Name and reader of every regular file, checked one by one; the reader works until the next one is asked for."""
    seen, total = set(), 0
    for name, size, regular, read in (_in_zip if path.suffix == ".zip" else _in_tar)(path):
        parts = PurePosixPath(name.replace("\\", "/")).parts
        if not regular:
            raise DataError(f"{path} is refused: {name!r} in it is a link or a device")
        if name.startswith(("/", "\\")) or ".." in parts or "\0" in name or (parts and parts[0].endswith(":")):
            raise DataError(f"{path} is refused: {name!r} in it could leave the folder")
        total += size
        if size > LARGEST_MEMBER or total > LARGEST_TOTAL:
            raise DataError(f"{path} is refused: with {name!r} it unpacks to {total} bytes, more than is plausible")
        name = "/".join(parts)
        if name in seen:
            raise DataError(f"{path} is refused: it has two members {name!r}")
        seen.add(name)
        if read is not None:
            yield name, read


def _in_zip(path: Path):
    """(name, unpacked size, file or folder?, reader) of every member; no reader for a folder."""
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            kind = stat.S_IFMT(info.external_attr >> 16)  # 0 where the archive was not made on Unix
            regular = kind in (0, stat.S_IFREG, stat.S_IFDIR)
            read = None if info.is_dir() else lambda info=info: archive.read(info)
            yield info.filename, info.file_size, regular, read


def _in_tar(path: Path):
    """The same for a tar archive, compressed or not."""
    with tarfile.open(path, "r:*") as archive:
        for info in archive:
            regular = info.type in (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE)
            read = None if info.isdir() else lambda info=info: archive.extractfile(info).read()
            yield info.name, info.size, regular, read
