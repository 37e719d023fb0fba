"""Where a number comes from: versions, commit, device; and what kind of device it is."""

from __future__ import annotations

import datetime
import functools
import json
import platform
import subprocess
from importlib import metadata
from pathlib import Path

from fedlib.base.files import CHECKOUT, PACKAGE, SHIPPED
from fedlib.base.same_bits import arithmetic

PACKAGES = ("torch", "numpy", "scikit-learn", "scipy", "pandas")


@functools.cache
def commit() -> tuple[str, bool]:
    """(commit, dirty) of the checkout that this package runs from, or that its wheel was built from; else
    ("unknown", True). Results and figures do not count as changes."""
    if SHIPPED != CHECKOUT:  # git would tell of the project in which somebody has installed it
        return _commit_of_wheel()

    def git(*args: str) -> str:
        return subprocess.run(
            ["git", *args], cwd=PACKAGE, capture_output=True, text=True, timeout=20, check=True
        ).stdout.strip()

    try:
        return git("rev-parse", "--short=12", "HEAD"), bool(git("status", "--porcelain", "--", "."))
    except (OSError, subprocess.SubprocessError):
        return "unknown", True


def _commit_of_wheel() -> tuple[str, bool]:
    try:
        revision, dirty = json.loads((SHIPPED / "commit.json").read_text("utf-8"))
    except (OSError, ValueError):
        return "unknown", True
    return revision, dirty


def provenance(device, backend: str) -> dict:
    """What a result file says about how it came to be."""
    import torch

    versions = {
        "python": platform.python_version(),
        "fedlib": _version("fedlib"),
        **{name: _version(name) for name in PACKAGES},
    }
    revision, dirty = commit()
    name = torch.cuda.get_device_name(device) if is_gpu(device) else f"CPU {_cpu_model()}"
    return {
        "commit": revision,
        "dirty": dirty,
        "versions": versions,
        "device": name,
        "backend": backend,
        "arithmetic": "gpu" if is_gpu(device) else arithmetic(),
        "threads": torch.get_num_threads(),
        "platform": f"{platform.system()} {platform.machine()}",
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%MZ"),
    }


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "unknown"


@functools.cache
def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or "unknown"


# devices --------------------------------------------------------------------------------------------------------------


GPUS = {"cuda"}  # types of devices on which work is queued; a test adds one that is only pretended


def is_gpu(device) -> bool:
    """Whether a torch device computes apart from the CPU, queues its work and can record it."""
    return device.type in GPUS
