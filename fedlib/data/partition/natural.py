"""Schemes that keep clients as they are given: by domain, by the writer (user, device) of a sample, or by client
numbers of the user's own, in a file or as an array."""

from __future__ import annotations

import codecs
import functools
import hashlib
import io
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedlib.base.draws import rng
from fedlib.base.errors import BadValue, InfeasiblePartition, require
from fedlib.base.files import cache_root, write_atomically
from fedlib.data.own import as_array
from fedlib.data.partition.basic import Scheme


@dataclass(frozen=True)
class Domain(Scheme):
    """Every domain (group of the data set) cut at random into `clients_per_domain` equal clients,
    the last of which gets the rest.

    Clients are ordered by domain. num_clients must be the number of domains times clients_per_domain.
    """

    clients_per_domain: int = 20

    by = "groups"

    def __post_init__(self):
        require(self.clients_per_domain >= 1, "clients_per_domain", self.clients_per_domain, "an integer of at least 1")

    def __call__(self, groups, num_clients, seed):
        domains, sizes = np.unique(groups, return_counts=True)
        each = self.clients_per_domain
        accepted = f"{len(domains) * each} ({len(domains)} domains times clients_per_domain = {each})"
        require(num_clients == len(domains) * each, "num_clients", num_clients, accepted)
        if sizes.min() < each:
            raise InfeasiblePartition(
                f"domain {domains[sizes.argmin()]} has {sizes.min()} samples for {each} clients; lower "
                "clients_per_domain, and num_clients with it"
            )
        clients = []
        for domain, size in zip(domains, sizes):
            members = rng(seed, "deal", int(domain)).permutation(np.flatnonzero(groups == domain))
            clients += np.split(members, size // each * np.arange(1, each))
        return clients, 1


@dataclass(frozen=True)
class Writer(Scheme):
    """One client for each writer (group of the data set) with at least `min_samples` samples; the others are left out.

    The data decide how many clients there are: num_clients must be that number. With `pick`, it may be smaller, and
    that many writers are drawn at random. Any mapping from samples to clients is a scheme of this kind: give it as the
    groups of the data set. Clients are in the order of their group numbers.
    """

    min_samples: int = 2  # a training and a test sample
    pick: bool = False

    by = "groups"

    def __post_init__(self):
        require(self.min_samples >= 1, "min_samples", self.min_samples, "an integer of at least 1")

    def __call__(self, groups, num_clients, seed):
        writers, sizes = np.unique(groups, return_counts=True)
        found = writers[sizes >= self.min_samples]
        if not len(found):
            raise InfeasiblePartition(
                f"no writer has min_samples = {self.min_samples} samples; the largest of {len(writers)} has "
                f"{sizes.max()}"
            )
        kept = f"{len(found)} (the writers with at least {self.min_samples} samples)"
        if self.pick:
            require(num_clients <= len(found), "num_clients", num_clients, f"at most {kept}")
            found = np.sort(rng(seed, "partition").choice(found, num_clients, replace=False))
        require(num_clients == len(found), "num_clients", num_clients, f"{kept}, or fewer with pick = true")
        order = np.argsort(groups, kind="stable")
        starts, ends = (np.searchsorted(groups[order], found, side) for side in ("left", "right"))
        return [order[start:end] for start, end in zip(starts, ends)], 1


# client numbers of the user's own -------------------------------------------------------------------------------------

ACCEPTED = "client numbers from 0, one for each sample, -1 for a sample that is nobody's"
HEADING = re.compile(r"""(?!(nan?|none|null)$)["']?[^\W\d_]""", re.IGNORECASE)  # a word, which stands for no number


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
        numbers = read_owners(owners) if isinstance(owners, str) else checked(as_array(owners, "owners"), "an array")
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
    content = file.read_bytes()
    wide = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))  # Windows has two forms of text
    lines = content.decode("utf-16" if wide else "utf-8-sig", errors="replace").rstrip().splitlines()
    numbers = []
    for k, line in enumerate(map(str.strip, lines), start=1):
        if re.fullmatch(r"-?\d{1,18}", line, flags=re.ASCII):
            numbers.append(int(line))
        elif k > 1 or not HEADING.match(line):
            raise BadValue(f"line {k} of owners = {path!r} is {line[:40]!r}; expected one client number a line, "
                           "of at most 18 digits")  # fmt: skip
    return checked(np.array(numbers, dtype=np.int64), path)


def checked(numbers: np.ndarray, where: str) -> np.ndarray:
    """int64 [n]. Raises BadValue unless they are client numbers."""
    fits = numbers.ndim == 1 and numbers.dtype.kind in "iu" and len(numbers) > 0
    require(fits, "owners", f"{where} of {numbers.dtype}{list(numbers.shape)}", f"integers [n]: {ACCEPTED}")
    require(numbers.min() >= -1 and numbers.max() >= 0, "owners", f"{where} with {numbers.min()}", ACCEPTED)
    few = int(numbers.max()) < len(numbers)
    require(few, "owners", f"{where} with {numbers.max()}", f"client numbers from 0 below the {len(numbers)} samples")
    return np.ascontiguousarray(numbers, dtype=np.int64)


def kept(numbers: np.ndarray, checksum: str) -> Path:
    """The file in the cache folder that holds these client numbers."""
    path = cache_root() / "owners" / f"{checksum}.npy"
    if not path.exists():
        content = io.BytesIO()
        np.save(content, numbers)
        write_atomically(path, content.getvalue())
    return path
