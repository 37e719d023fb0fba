"""Run one notebook of a student in a process that does nothing else: python -m fedlib.lessons.sandbox < TASK

TASK is JSON: the notebook, seconds (of a cell), scratch (the only folder to write to), hidden (paths that student code
does not see), shut (whether Linux grants what `shut_in` needs). The answer, on stdout, is JSON too: the notebook as it
ran, or a problem.

Where Linux grants namespaces, student code has no network, writes to its scratch folder only, does not see the course
and leaves no process behind. Memory and the size of a file are limited on every Linux, outputs everywhere.

What it does **not** protect from: the code runs as the user who grades, and elsewhere than on such a Linux it can read
and write that user's files. Grade submissions of people whom you do not trust in a container or a virtual machine, or
as a user who owns nothing else.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

NEW_MOUNTS, NEW_USER, NEW_PIDS, NEW_NET = 0x20000, 0x10000000, 0x20000000, 0x40000000  # of Linux's unshare
READ_ONLY, BIND, RECURSIVE, PRIVATE = 0x1, 0x1000, 0x4000, 0x40000  # of its mount
MOUNT_SETATTR, HERE, ALSO_BELOW = 442, -100, 0x8000  # the call's number is the same on all processors
GET_FLAGS, SET_FLAGS, UP = 0x8913, 0x8914, 0x1  # of network devices
END_WITH_PARENT, KILL = 1, 9
MEMORY, FILE = 4 << 30, 1 << 30  # bytes that a process may hold, and that a file may have
OUTPUT, STOPS = 2 << 20, 60  # bytes that a cell may show, and seconds in which it must stop if it shows more


def run(task: dict, seconds: float) -> dict:
    """What this program answers to a task; {"problem": ...} if it does not. Nothing of it runs on afterwards."""
    scratch = task["scratch"]
    places = dict.fromkeys(("TMPDIR", "IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "MPLCONFIGDIR", "XDG_CACHE_HOME"), scratch)
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "4")  # each takes memory
    with subprocess.Popen(
        [sys.executable, "-m", "fedlib.lessons.sandbox"],
        env=os.environ | {"FEDLIB_OFFLINE": "1", "PYTHONDONTWRITEBYTECODE": "1"} | places | threads,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # where student code can write without end
        start_new_session=True,
    ) as process:
        try:
            said, _ = process.communicate(json.dumps(task).encode(), timeout=seconds)
        except subprocess.TimeoutExpired:
            return {"problem": f"stopped after {seconds:g} s"}
        finally:
            with contextlib.suppress(ProcessLookupError):  # the notebook's kernel ends when its parent is gone
                os.killpg(process.pid, signal.SIGKILL)
    try:
        return json.loads(said)
    except ValueError:
        return {"problem": f"the process that ran it ended with status {process.returncode}, without an answer"}


def shut_in(scratch: str, hidden: list[str]) -> None:
    """Leave the network, and see all files but those in `scratch` as read-only, and those in `hidden` not at all. What
    follows runs in a child of this process, and whatever it starts ends with it. Raises OSError where Linux refuses."""
    if not sys.platform.startswith("linux"):
        raise OSError(f"not known how on {sys.platform}")
    import fcntl

    libc = ctypes.CDLL(None, use_errno=True)

    def call(name: str, *values) -> None:
        texts = [value.encode() if isinstance(value, str) else value for value in values]
        if getattr(libc, name)(*texts) != 0:
            raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")

    def mount(what: str, where: str, kind: str, flags: int, options: str | None = None) -> None:
        call("mount", what, where, kind, ctypes.c_ulong(flags), options)

    def attributes(where: str, below: int, on: int, off: int) -> None:
        wanted = struct.pack("4Q", on, off, 0, 0)
        call("syscall", ctypes.c_long(MOUNT_SETATTR), HERE, where, below, wanted, ctypes.c_size_t(len(wanted)))

    user, group = os.getuid(), os.getgid()
    call("unshare", NEW_USER | NEW_NET | NEW_MOUNTS | NEW_PIDS)
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        Path(f"/proc/self/{name}").write_text(text)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:  # kernels talk over the loopback, a new one
        asked = struct.pack("16sH14s", b"lo", 0, b"")
        flags = struct.unpack("16sH14s", fcntl.ioctl(control, GET_FLAGS, asked))[1]
        fcntl.ioctl(control, SET_FLAGS, struct.pack("16sH14s", b"lo", flags | UP, b""))
    mount("none", "/", "none", RECURSIVE | PRIVATE)
    mount(scratch, scratch, "none", BIND)
    attributes("/", ALSO_BELOW, READ_ONLY, 0)
    attributes(scratch, 0, 0, READ_ONLY)
    if os.path.isdir("/dev/shm"):
        mount("none", "/dev/shm", "tmpfs", 0, "size=256m")
    for path in hidden:
        if os.path.isdir(path):
            mount("none", path, "tmpfs", READ_ONLY)
        elif os.path.exists(path):
            mount("/dev/null", path, "none", BIND)
    _go_on_in_child(libc)
    with contextlib.suppress(OSError):  # some containers refuse; then /proc shows the processes of the outside
        mount("proc", "/proc", "proc", 0)
    _go_on_in_child(libc)  # the first one collects what has ended; Jupyter's kernels stop if their parent is number 1


def _go_on_in_child(libc) -> None:
    child = os.fork()
    if child:
        ended = os.waitpid(child, 0)[1]
        os._exit(os.waitstatus_to_exitcode(ended) & 0xFF)
    libc.prctl(END_WITH_PARENT, KILL, 0, 0, 0)


def limit() -> None:
    """Bounds on memory and files for this process and those that it starts, where there are such bounds."""
    if sys.platform.startswith("linux"):
        import resource

        for what, most in ((resource.RLIMIT_DATA, MEMORY), (resource.RLIMIT_FSIZE, FILE), (resource.RLIMIT_CORE, 0)):
            hard = resource.getrlimit(what)[1]
            most = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.setrlimit(what, (most, most))


def executed(notebook: dict, seconds: float, scratch: str) -> dict:
    """{"notebook": as it ran} or {"problem": why it did not run to its end}."""
    import asyncio  # what follows starts threads, which `shut_in` may not have

    import nbformat
    from nbclient.exceptions import DeadKernelError
    from nbgrader.preprocessors import Execute

    from fedlib.base.kernel import own_kernel

    class TooMuch(Exception):
        pass

    class Bounded(Execute):
        """Interrupts a cell that shows more than OUTPUT bytes, and forgets what comes after them."""

        shown, interrupted = 0, 0.0

        def preprocess_cell(self, cell, resources, index):
            self.shown = 0
            cell, resources = super().preprocess_cell(cell, resources, index)
            if self.shown > OUTPUT:
                said = f"the cell showed more than {OUTPUT >> 20} MB and was stopped"
                error = {"ename": "OutputLimitError", "evalue": said, "traceback": [f"OutputLimitError: {said}"]}
                cell.outputs.append(nbformat.v4.new_output("error", **error))
            return cell, resources

        def process_message(self, msg, cell, cell_index):
            if msg["msg_type"] in ("stream", "display_data", "update_display_data", "execute_result", "error"):
                before, self.shown = self.shown, self.shown + len(json.dumps(msg["content"], default=str))
                if before <= OUTPUT < self.shown:
                    self.interrupted = time.monotonic()
                    asyncio.ensure_future(self.km.interrupt_kernel())
                if self.shown > OUTPUT:
                    if time.monotonic() > self.interrupted + STOPS:
                        raise TooMuch
                    return None
            return super().process_message(msg, cell, cell_index)

    limits = dict.fromkeys(("timeout", "iopub_timeout"), max(1, round(seconds)))
    runner = Bounded(**limits, store_widget_state=False, kernel_manager_class=own_kernel())
    try:  # 4 seconds of iopub_timeout, the default, are too few for a busy machine
        done, _ = runner.preprocess(nbformat.from_dict(notebook), {"metadata": {"path": scratch}})
    except DeadKernelError:
        return {"problem": "Python itself ended while the notebook ran: exit, no memory left, or a crash"}
    except TooMuch:
        return {"problem": f"a cell showed more than {OUTPUT >> 20} MB and could not be stopped"}
    return {"notebook": done}


if __name__ == "__main__":
    sys.modules["rfc3987_syntax"] = None  # a grammar of addresses that nbformat imports in 1.6 s
    out = os.fdopen(os.dup(1), "w")  # not what the kernel inherits
    os.dup2(2, 1)
    task = json.load(sys.stdin)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    try:
        if task["shut"]:
            shut_in(task["scratch"], task["hidden"])
        limit()
        answer = executed(task["notebook"], task["seconds"], task["scratch"]) if "notebook" in task else {}
    except Exception as error:
        answer = {"problem": f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"}
    with out:
        json.dump(answer, out)
