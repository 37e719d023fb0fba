"""The compiled form of network.cpp: made on first use by the compiler that is there, for the CPU that it runs on."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from filelock import FileLock

from fedlib.base.files import cache_root, write_atomically
from fedlib.data.download import checksum

SOURCE = Path(__file__).with_name("network.cpp")
INCLUDED = Path(__file__).with_name("behind_pooling.hpp")
FLAGS = ("-std=c++17", "-O3", "-march=native", "-ffp-contract=off", "-shared", "-fPIC")
LONGEST = 300  # seconds that a compiler may take


class NoCompiler(Exception):
    """There is none, or it failed; the message says which."""


@functools.cache
def library() -> ctypes.CDLL | None:
    """The compiled functions, or None where they cannot be made: that is said in one line, once a process."""
    try:
        return load(compiled(FLAGS))
    except (NoCompiler, OSError) as problem:
        if "FEDLIB_TOLD" not in os.environ:  # worker processes inherit it: the line is said once
            os.environ["FEDLIB_TOLD"] = "1"
            what = "training steps are PyTorch's, slower than compiled ones and with other last digits"
            print(f"{what}: {problem}", file=sys.stderr)
        return None


def compiled(flags: tuple[str, ...]) -> Path:
    """The shared library, from the cache or new. Raises NoCompiler, OSError.

    Its name is a hash of the source, the compiler's version, the flags and the CPU, so that machines that share a
    folder do not share what was made for another one.
    """
    compiler = find_compiler()
    version = _output([compiler, "--version"])
    parts = (SOURCE.read_text("utf-8"), INCLUDED.read_text("utf-8"), version, " ".join(flags), cpu())
    name = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
    folder = Path(os.environ.get("FEDLIB_COMPILED") or cache_root() / "compiled").expanduser()
    path = folder / f"network-{name}.so"
    if _is_whole(path):
        return path
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{path}.lock"), tempfile.TemporaryDirectory(prefix="fedlib-") as place:
        if not _is_whole(path):
            made = Path(place) / "network.so"
            _output([compiler, *flags, str(SOURCE), "-o", str(made)])
            write_atomically(path.with_suffix(".sha256"), checksum(made).encode())
            write_atomically(path, made.read_bytes())
    return path


def _is_whole(path: Path) -> bool:
    """Whether a library is there as it was made: one that is cut short would end the process that loads it."""
    with contextlib.suppress(OSError):
        return checksum(path) == path.with_suffix(".sha256").read_text()
    return False


def load(path: Path) -> ctypes.CDLL:
    """The library's functions with their types. ctypes lets other threads run during a call."""
    found, pointer = ctypes.CDLL(str(path)), ctypes.c_void_p
    found.work_bytes.argtypes, found.work_bytes.restype = (pointer, ctypes.c_int, ctypes.c_int), ctypes.c_int64
    parts = (pointer, ctypes.c_int, ctypes.c_int, *[pointer] * 3, ctypes.c_int)
    found.forward_in_parts.argtypes, found.forward_in_parts.restype = parts, ctypes.c_bool
    found.backward.argtypes, found.backward.restype = (pointer, ctypes.c_int, ctypes.c_int, *[pointer] * 3), None
    found.entropy_slope.argtypes, found.entropy_slope.restype = (ctypes.c_int, ctypes.c_int, *[pointer] * 3), None
    step = (pointer, ctypes.c_int, ctypes.c_int, pointer, pointer, ctypes.c_float, pointer)
    found.entropy_step.argtypes, found.entropy_step.restype = step, ctypes.c_bool
    return found


def find_compiler() -> str:
    """$CXX, g++, clang++ or c++, whichever is there first."""
    for name in (os.environ.get("CXX"), "g++", "clang++", "c++"):
        if name and (found := shutil.which(name)):
            return found
    raise NoCompiler("no C++ compiler was found (g++ or clang++; $CXX names another one)")


def cpu() -> str:
    """What the CPU can do, as far as the system tells."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith(("flags", "Features")):
                return line
    return f"{platform.machine()} {platform.processor()}"


def _output(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST, check=True)
    except subprocess.CalledProcessError as error:
        said = (error.stderr.strip().splitlines() or [f"exit status {error.returncode}"])[0]
        raise NoCompiler(f"{command[0]} failed: {said}") from None
    except (OSError, subprocess.SubprocessError) as error:
        raise NoCompiler(f"{command[0]} failed: {error}") from None
    return done.stdout
