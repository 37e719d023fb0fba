"""Reading archives that nobody vouches for: members come out as bytes, nothing is ever extracted to disk.

A member with an absolute path or with "..", a link, a device, two members of one name and too many bytes are refused.
"""

from __future__ import annotations

import contextlib
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator
from pathlib import Path, PurePosixPath

from fedlib.base.errors import DataError

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
