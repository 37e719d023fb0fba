"""How fedlib is packed: setuptools' own backend, on a copy of the project that is laid out as a package wants it.

The notebooks, results and figures lie at the top of the project, where readers look for them. An installed package has
no such place, so that in a wheel they are in `fedlib/shipped/`, and `fedlib/base/files.py` finds them in both. Nothing
is moved in the project itself, and an editable install uses the files where they are.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from setuptools import build_meta
from setuptools.build_meta import (  # noqa: F401 (installers ask this module for them)
    build_editable,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

SHIPPED = Path("fedlib", "shipped")  # in a wheel; the same place is read in fedlib/base/files.py
KINDS = {"notebooks": (".ipynb",), "results": (".csv", ".json", ".md", ".npz", ".txt"), "figures": (".png", ".svg")}
PLACES = ("pyproject.toml", "README.md", "LICENSE", "environment.yml", ".build", "fedlib", "tests", *KINDS)
COMMIT = SHIPPED / "commit.json"  # [revision, whether something in the project was changed since]


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None) -> str:
    """The wheel, with notebooks, results and figures in the package. Returns its file name, as PEP 517 asks."""
    place = os.path.abspath(wheel_directory)
    with staged():
        for folder, endings in KINDS.items():
            for path in sorted(path for path in Path(folder).rglob("*") if path.suffix in endings):
                (SHIPPED / path).parent.mkdir(parents=True, exist_ok=True)
                os.replace(path, SHIPPED / path)
        return build_meta.build_wheel(place, config_settings, metadata_directory)


def build_sdist(sdist_directory, config_settings=None) -> str:
    """The source archive: the whole project, as it lies. Returns its file name, as PEP 517 asks."""
    place = os.path.abspath(sdist_directory)
    with staged() as files:
        Path("MANIFEST.in").write_text("".join(f"include {path.as_posix()}\n" for path in files), encoding="utf-8")
        return build_meta.build_sdist(place, config_settings)


@contextlib.contextmanager
def staged() -> Iterator[list[Path]]:
    """A copy of the project in a temporary folder, which is the working directory meanwhile; its files."""
    root = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="fedlib-build-") as name:
        copy, files = Path(name), project_files(root)
        for path in files:
            (copy / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / path, copy / path)
        if (revision := commit(root)) is not None:
            (copy / SHIPPED).mkdir()
            (copy / COMMIT).write_text(json.dumps(revision), encoding="utf-8")
            files = [*files, COMMIT]
        os.chdir(copy)
        try:
            yield files
        finally:
            os.chdir(root)


def project_files(root: Path) -> list[Path]:
    """The project's files, relative to `root`: what git does not ignore, or where git does not tell, as in an unpacked
    source archive, all that lies at the project's own places."""
    listed = _git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    if listed is not None:
        found = [root / name for name in listed.split("\0") if name]
    else:
        found = [path for place in PLACES for path in (root / place, *(root / place).rglob("*"))]
    return sorted(path.relative_to(root) for path in set(found) if path.is_file())


def commit(root: Path) -> tuple[str, bool] | None:
    """Which commit this is, and whether the package was changed since; None where git does not tell."""
    revision, changes = _git(root, "rev-parse", "--short=12", "HEAD"), _git(root, "status", "--porcelain", "fedlib")
    return None if revision is None or changes is None else (revision.strip(), bool(changes))


def _git(root: Path, *arguments: str) -> str | None:
    """What git says of a checkout; None if `root` is none, or git is not installed."""
    if not (root / ".git").exists():  # else git would tell of a checkout in which an archive was unpacked
        return None
    try:
        done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.decode()
