"""Where fedlib's files lie, and how they are written: whole or not at all."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from fedlib.base.errors import FedlibError


def cache_root() -> Path:
    """Where checkpoints live: $FEDLIB_CACHE, else the user's cache folder."""
    if os.environ.get("FEDLIB_CACHE"):
        return Path(os.environ["FEDLIB_CACHE"]).expanduser()
    return user_cache()


def user_cache() -> Path:
    """The user's cache folder for fedlib; of a user without a home, that of the project folder."""
    try:
        import platformdirs

        return Path(platformdirs.user_cache_dir("fedlib"))
    except ImportError:  # a machine with PyTorch and little else
        default = "~/Library/Caches" if sys.platform == "darwin" else os.environ.get("XDG_CACHE_HOME") or "~/.cache"
        return Path(default).expanduser() / "fedlib"
    except RuntimeError:
        return home() / ".cache"


def for_sockets() -> str:
    """A folder for temporary files in which sockets can be: their whole paths have 107 bytes at most (103 on macOS)."""
    usual = tempfile.gettempdir()
    return usual if len(os.fsencode(usual)) <= 50 else "/tmp"


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that it is there whole or not at all."""
    with written_atomically(path) as out:
        out.write(content)


@contextlib.contextmanager
def written_atomically(path: Path) -> Iterator[BinaryIO]:
    """A file to write into, which takes its place when all is written; it vanishes if there is an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        os.replace(temporary, path)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


@functools.cache
def source_hash() -> str:
    """8 hex digits of the hash of fedlib's source files."""
    digest = hashlib.sha256()
    for path in sorted(path for ending in ("py", "cpp", "hpp") for path in PACKAGE.rglob(f"*.{ending}")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:8]


PACKAGE = Path(__file__).resolve().parent.parent
CHECKOUT = PACKAGE.parent
# where notebooks/, results/ and figures/ lie that come with fedlib: the checkout, or in a wheel a folder of the package
SHIPPED = CHECKOUT if (CHECKOUT / "pyproject.toml").is_file() else PACKAGE / "shipped"
MARK = ".fedlib"  # the file that `fedlib report --notebooks` leaves in a folder; it says by which version


def home() -> Path:
    """The project folder, where results/ and figures/ go: $FEDLIB_HOME, else the checkout, else the folder made by
    `fedlib report --notebooks` in which the working directory lies, else the working directory."""
    if os.environ.get("FEDLIB_HOME"):
        return Path(os.environ["FEDLIB_HOME"]).expanduser()
    if SHIPPED == CHECKOUT:
        return CHECKOUT
    here = Path.cwd()
    return next((folder for folder in (here, *here.parents) if (folder / MARK).is_file()), here)


def shipped_notebooks() -> Path:
    """The folder of the notebooks that come with fedlib. Raises FedlibError if it is missing."""
    folder = SHIPPED / "notebooks"
    if not folder.is_dir():
        raise FedlibError(f"the notebooks that come with fedlib are missing, there is no {folder}: install it again")
    return folder
