"""Sweeps that move from one machine to another: finished runs and checkpoints in one archive.

What comes out of an archive is checked as anything that is read from the store, and never replaces what is there.
"""

from __future__ import annotations

import re
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

from fedlib.base.errors import FedlibError
from fedlib.base.files import cache_root, source_hash, write_atomically
from fedlib.runs.store import Spec, Store

RUN = re.compile(r"runs/([0-9a-f]{16})\.(json|npz)")
CHECKPOINT = re.compile(r"checkpoints/[0-9a-f]{16}-[\w.-]+\.pt")


def pack(specs: Sequence[Spec], store: Store, file: Path) -> dict[str, int]:
    """Write the finished ones of these runs, and checkpoints of the others, into a tar archive; what it holds.

    Damaged runs are left out. Raises FedlibError if there is nothing to carry or the archive cannot be written.
    """
    ids = {spec.id for spec in specs}
    finished = [store.path(spec) for spec in specs if store.get(spec) is not None]
    members = {f"runs/{path.name}": path for path in finished}
    members |= {f"runs/{path.name}": path for path in (p.with_suffix(".npz") for p in finished) if path.exists()}
    begun = [path for path in checkpoints() if path.name[:16] in ids - {path.stem for path in finished}]
    members |= {f"checkpoints/{path.name}": path for path in begun}
    if not members:
        raise FedlibError(f"nothing to pack: none of the {len(ids)} runs is finished, or begun")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with tarfile.open(file, "w") as archive:  # what is in it is compressed already
            for name, path in sorted(members.items()):
                archive.add(path, name, recursive=False)
    except OSError as error:
        raise FedlibError(f"{file} cannot be written: {error}") from None
    return {"finished": len(finished), "begun": len(begun), "bytes": file.stat().st_size}


def checkpoints() -> list[Path]:
    """Those that this version of fedlib can continue; runs that were trained together have one under a name of their
    own, which stays behind."""
    return sorted((cache_root() / "checkpoints").glob(f"*-{source_hash()}.pt"))


def unpack(file: Path, store: Store) -> dict[str, int]:
    """Put what an archive of `pack` holds into the store and the folder of checkpoints; how many runs were new, there
    already, and refused, and how many checkpoints were new.

    A run is refused if it is not what its checksums say. Checkpoints of another version of fedlib are of no use and are
    passed over. Raises FedlibError for a file that is no such archive.
    """
    try:
        with tarfile.open(file, "r:") as archive, tempfile.TemporaryDirectory(prefix="fedlib-") as place:
            entries = {entry.name: entry for entry in archive if entry.isreg()}
            known = {
                name: entry for name, entry in entries.items() if RUN.fullmatch(name) or CHECKPOINT.fullmatch(name)
            }
            if not known:
                raise FedlibError(f"{file} holds neither runs nor checkpoints: not an archive of `fedlib pack`")
            arriving = Store("arriving", Path(place))
            for name, entry in known.items():
                if RUN.fullmatch(name):
                    write_atomically(arriving.folder / Path(name).name, archive.extractfile(entry).read())
            counts = _runs(arriving, store)
            counts["begun"] = sum(
                _checkpoint(Path(name).name, archive.extractfile(entry))
                for name, entry in known.items()
                if CHECKPOINT.fullmatch(name)
            )
    except (tarfile.TarError, OSError) as error:
        raise FedlibError(f"{file} cannot be read as an archive of `fedlib pack`: {error}") from None
    return counts


def _runs(arriving: Store, store: Store) -> dict[str, int]:
    """Move runs that are sound from one store into another."""
    counts = {"new": 0, "there": 0, "refused": 0}
    for path in sorted(arriving.folder.glob("*.json")):
        try:
            result = arriving.read(path)
        except (ValueError, KeyError, OSError, TypeError, FedlibError):
            counts["refused"] += 1
            continue
        with store.lock(result.spec.id):
            there = store.get(result.spec) is not None
            if not there:
                store.put(result)
        counts["there" if there else "new"] += 1
    return counts


def _checkpoint(name: str, content) -> bool:
    """Write a checkpoint that this version can continue, unless there is one."""
    path = cache_root() / "checkpoints" / name
    if path.exists() or not name.endswith(f"-{source_hash()}.pt"):
        return False
    write_atomically(path, content.read())
    return True
