"""Grade one submission of a lab in a process that does nothing else: python -m fedlib.lessons.sandbox DIR LAB STUDENT S

What it does: the student's notebook runs in a kernel of its own, every cell for at most S seconds, in a network
namespace without connections where Linux grants one. Cells with tests are put back as they were released, so that
changing them changes no points.

What it does **not** protect from: the code runs as the user who grades. It can read and write that user's files (other
submissions, the gradebook and the solutions among them), start processes that stay, and use all memory. Grade
submissions of people whom you do not trust in a container or a virtual machine, or as a user who owns nothing else.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import struct
import sys

NEW_USER, NEW_NET = 0x10000000, 0x40000000  # of Linux's unshare
GET_FLAGS, SET_FLAGS, UP = 0x8913, 0x8914, 0x1  # of network devices


def cut_off() -> str:
    """Leave the network: only this machine's own loopback, a new one, is there. Why not, or an empty text."""
    if not sys.platform.startswith("linux"):
        return f"not known how on {sys.platform}"
    import fcntl  # which Windows does not have

    user, group = os.getuid(), os.getgid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(NEW_USER | NEW_NET) != 0:
        return os.strerror(ctypes.get_errno())
    try:
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:  # kernels talk over the loopback
            asked = struct.pack("16sH14s", b"lo", 0, b"")
            flags = struct.unpack("16sH14s", fcntl.ioctl(control, GET_FLAGS, asked))[1]
            fcntl.ioctl(control, SET_FLAGS, struct.pack("16sH14s", b"lo", flags | UP, b""))
    except OSError as error:
        raise SystemExit(f"the network is cut off, but notebooks cannot run so: {error}") from None
    return ""


def autograde(folder: str, lab: str, student: str, seconds: float) -> str:
    """What went wrong, or an empty text. Points go to nbgrader's gradebook, feedback to its folder."""
    from nbgrader import preprocessors as steps  # later than `cut_off`, which a process with threads may not do

    from fedlib.lessons.labs import course
    from fedlib.lessons.whole import MakeWhole

    api = course(folder)
    api.config.ExecutePreprocessor.timeout = max(1, round(seconds))
    api.config.ExecutePreprocessor.iopub_timeout = max(1, round(seconds))  # 4 are too few for a busy machine
    api.config.ExecutePreprocessor.interrupt_on_timeout = True
    api.config.MakeWhole.released = f"{folder}/release/{lab}/{lab}.ipynb"
    api.config.Autograde.sanitize_preprocessors = [
        steps.ClearOutput, MakeWhole, steps.OverwriteKernelspec, steps.OverwriteCells, steps.CheckCellMetadata
    ]  # fmt: skip
    for step in (api.autograde, api.generate_feedback):
        answer = step(lab, student, force=True)
        if not answer["success"]:
            return explained((answer["log"] or "") + "\n" + str(answer["error"]))
    return ""


def explained(log: str) -> str:
    """Why nbgrader did not grade, in one line, from what it wrote."""
    if "DeadKernelError" in log:
        return "Python itself ended while the notebook ran: os._exit, no memory left, or a crash in compiled code"
    lines = [" ".join(line.split()) for line in log.splitlines() if line.strip()]
    return next((line for line in reversed(lines) if "Error" in line), lines[-1] if lines else "no reason given")[:200]


if __name__ == "__main__":
    network = cut_off()
    folder, lab, student, seconds = sys.argv[1:]
    print(json.dumps({"network": network, "problem": autograde(folder, lab, student, float(seconds))}))
