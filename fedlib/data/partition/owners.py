"""Any partition: client numbers that the user gives, in a file or as an array."""

from __future__ import annotations

import functools
import hashlib
import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedlib.base.errors import BadValue, InfeasiblePartition, require
from fedlib.base.files import cache_root, write_atomically
from fedlib.data.partition.dealing import Scheme

ACCEPTED = "client numbers from 0, one for each sample, -1 for a sample that is nobody's"


@dataclass(frozen=True)
class Owners(Scheme):
    """Client numbers that you give, one for each sample (-1: nobody's), as a CSV or NPY file or an array.

    owners: the file, or integers [n], which are kept as a file in the cache folder. A CSV file has one number a line; a
    first line that is none is a heading. checksum: of the numbers, filled in here, so that a run's id
    changes with them.
    """

    owners: object = None
    checksum: str = ""

    def __post_init__(self):
        owners = self.owners
        require(owners is not None, "owners", owners, f"a CSV or NPY file, or an array, of {ACCEPTED}")
        numbers = read_owners(owners) if isinstance(owners, str) else checked(np.asarray(owners), "an array")
        found = hashlib.sha256(numbers.tobytes()).hexdigest()[:16]
        if self.checksum not in ("", found):
            raise BadValue(f"owners = {owners!r} is not what it was: checksum {found}, expected {self.checksum}")
        object.__setattr__(self, "checksum", found)
        if not isinstance(owners, str):
            object.__setattr__(self, "owners", str(kept(numbers, found)))

    def __call__(self, labels, num_clients, seed):
        numbers = read_owners(self.owners)
        accepted = f"{len(labels)} client numbers, one for each sample; it has {len(numbers)}"
        require(len(numbers) == len(labels), "owners", self.owners, accepted)
        count = int(numbers.max()) + 1
        require(num_clients == count, "num_clients", num_clients, f"{count}, the clients of {self.owners}")
        sizes = np.bincount(numbers[numbers >= 0], minlength=count)
        if not sizes.all():
            raise InfeasiblePartition(
                f"client {sizes.argmin()} of {self.owners} has no samples; number the clients anew"
            )
        order = np.argsort(numbers, kind="stable")[len(numbers) - sizes.sum() :]
        return np.split(order, np.cumsum(sizes)[:-1]), 1


def read_owners(path: str) -> np.ndarray:
    """Client numbers of a CSV or NPY file, int64 [n]. Raises BadValue."""
    file = Path(path).expanduser()
    require(file.suffix.lower() in (".csv", ".npy"), "owners", path, "a file that ends in .csv or .npy")
    require(file.is_file(), "owners", path, "a file that is there")
    info = file.stat()
    return _read(file.resolve(), path, info.st_mtime_ns, info.st_size)


@functools.lru_cache(maxsize=8)
def _read(file: Path, path: str, *stamp: int) -> np.ndarray:
    if file.suffix.lower() == ".npy":
        try:
            return checked(np.load(file, allow_pickle=False), path)
        except (ValueError, EOFError, OSError) as error:
            if isinstance(error, BadValue):
                raise
            raise BadValue(f"owners = {path!r} cannot be read: {error}") from None
    lines = [line.strip() for line in file.read_text(encoding="utf-8", errors="replace").splitlines()]
    numbers = []
    for k, line in enumerate(lines, start=1):
        if line.removeprefix("-").isdecimal():
            numbers.append(int(line))
        elif line and k > 1:
            raise BadValue(f"line {k} of owners = {path!r} is {line[:40]!r}; expected one client number a line")
    return checked(np.array(numbers, dtype=np.int64), path)


def checked(numbers: np.ndarray, where: str) -> np.ndarray:
    """int64 [n]. Raises BadValue unless they are client numbers."""
    fits = numbers.ndim == 1 and numbers.dtype.kind in "iu" and len(numbers) > 0
    require(fits, "owners", f"{where} of {numbers.dtype}{list(numbers.shape)}", f"integers [n]: {ACCEPTED}")
    require(numbers.min() >= -1 and numbers.max() >= 0, "owners", f"{where} with {numbers.min()}", ACCEPTED)
    return np.ascontiguousarray(numbers, dtype=np.int64)


def kept(numbers: np.ndarray, checksum: str) -> Path:
    """The file in the cache folder that holds these client numbers."""
    path = cache_root() / "owners" / f"{checksum}.npy"
    if not path.exists():
        content = io.BytesIO()
        np.save(content, numbers)
        write_atomically(path, content.getvalue())
    return path
