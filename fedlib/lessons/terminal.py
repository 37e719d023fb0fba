"""Commands in notebooks: a line as one types it in a terminal, and below it what it prints."""

from __future__ import annotations

import atexit
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from fedlib.base.errors import FedlibError, require
from fedlib.base.files import cache_root

FOLDERS = {"FEDLIB_HOME": "home", "FEDLIB_DATA": "data", "FEDLIB_CACHE": "cache"}


def own_folder() -> Path:
    """A new temporary folder, which becomes the working directory and goes when this process ends: results, data sets
    and checkpoints of this process and of its commands lie there. What was compiled before stays in use."""
    folder = Path(tempfile.mkdtemp(prefix="fedlib-guide-")).resolve()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ.setdefault("FEDLIB_COMPILED", str(cache_root() / "compiled"))
    for variable, name in FOLDERS.items():
        (folder / name).mkdir()
        os.environ[variable] = str(folder / name)
    os.chdir(folder)
    return folder


def terminal(line: str, status: int = 0) -> None:
    """Run one `fedlib ...` command by this Python, whatever environment is active, and print the line and its output.

    Progress bars are left out, and a folder that an environment variable of fedlib names is shown by that name.
    Raises BadValue for another command, and FedlibError if the exit status is not `status`.
    """
    words = shlex.split(line)
    require(words[:1] == ["fedlib"], "line", line, "a command that begins with fedlib")
    done = subprocess.run(
        [sys.executable, "-m", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
    )
    print(f"$ {line}\n{visible(done.stdout.decode())}", end="")
    if done.returncode != status:
        raise FedlibError(f"{line}: exit status {done.returncode} instead of {status}")
    if status:
        print(f"(exit status {status})")


def visible(output: str) -> str:
    """What remains on a screen, where a carriage return goes back to the beginning of the line: no progress bars."""
    lines = [line.rstrip("\r").rpartition("\r")[2].rstrip() for line in output.split("\n")]
    text = "\n".join(lines).strip("\n").replace("python -m fedlib", "fedlib")
    for variable in FOLDERS:
        if os.environ.get(variable):
            text = text.replace(os.environ[variable], f"${variable}")
    return f"{text}\n"
