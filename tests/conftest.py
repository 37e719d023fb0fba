"""Tests run in folders of their own and in the smoke profile; nothing of the user's results,
checkpoints or data is touched."""

import atexit
import os
import shutil
import signal
import tempfile
from pathlib import Path

import pytest

import fedlib  # noqa: F401  # before anything loads PyTorch, which it holds to the same bits

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # started in the background by a shell, as are all its children,
    signal.signal(signal.SIGINT, signal.default_int_handler)  # and tests press Ctrl-C


def folder(name: str) -> str:
    """A new folder, which goes when the process that made it does."""
    made = tempfile.mkdtemp(prefix=f"fedlib-{name}-")
    atexit.register(lambda: os.getpid() == here and shutil.rmtree(made, ignore_errors=True))
    return made


here = os.getpid()
if "FEDLIB_TEST_SHARED" not in os.environ:  # one for all of pytest-xdist's workers: items' smoke runs are done once
    os.environ["FEDLIB_TEST_SHARED"] = folder("shared")
os.environ.setdefault("FEDLIB_COMPILED", f"{os.environ['FEDLIB_TEST_SHARED']}/compiled")  # built once for all tests
if os.environ.get("FEDLIB_TEST_PROCESS") != str(os.getpid()):  # notebooks/conftest.py runs this file as well
    home = Path(folder("tests"))
    os.environ.setdefault("FEDLIB_TEST_DATA", os.environ.get("FEDLIB_DATA", ""))  # prepared data of the user's, if any
    os.environ |= {
        "FEDLIB_TEST_PROCESS": str(os.getpid()),  # pytest-xdist: every worker has a home of its own
        "FEDLIB_HOME": str(home),
        "FEDLIB_CACHE": str(home / "cache"),
        "FEDLIB_PROFILE": "smoke",
        "FEDLIB_OFFLINE": "1",
        "FEDLIB_DATA": os.environ["FEDLIB_TEST_DATA"] or str(home / "data"),
    }


def pytest_xdist_auto_num_workers():
    """One more than there are cores: tests wait for the processes that they start."""
    return (os.cpu_count() or 1) + 1


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home of the test's own, without data, checkpoints or results."""
    for name in ("home", "cache", "data"):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(f"FEDLIB_{name.upper()}", str(tmp_path / name))
    return tmp_path / "home"


@pytest.fixture
def small_scans(monkeypatch):
    """Batches of 64 where nothing is trained, in this process."""
    monkeypatch.setattr("fedlib.engine.client_data.SCAN_BATCH", 64)
