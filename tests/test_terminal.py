"""Commands in notebooks: what is shown of them, and that one which ends otherwise than expected is an error."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fedlib.base.errors import BadValue, FedlibError
from fedlib.lessons.terminal import FOLDERS, own_folder, terminal, visible


@pytest.fixture
def folder(monkeypatch):
    """A folder of its own, and everything as it was afterwards."""
    for variable in FOLDERS:
        monkeypatch.setenv(variable, os.environ.get(variable, ""))
    monkeypatch.chdir(Path.cwd())
    return own_folder()


def test_what_a_screen_shows_is_shown(monkeypatch):
    monkeypatch.setenv("FEDLIB_HOME", "/some/where")
    bar = "\r 0%|   | 0/2\r 50%|#  | 1/2\r            \rchosen: serial\n\r 100%|###| 2/2\r         \r"
    assert visible(f"{bar}round 1\n\nstored as /some/where/results\n") == (
        "chosen: serial\nround 1\n\nstored as $FEDLIB_HOME/results\n"
    )
    assert visible("Usage: python -m fedlib run\n") == "Usage: fedlib run\n"


def test_a_notebook_of_its_own_folder_writes_nowhere_else(folder, capfd):
    places = [Path(os.environ[variable]) for variable in FOLDERS]
    assert Path.cwd() == folder and all(place.parent == folder and place.is_dir() for place in places)
    terminal("fedlib run local --clients 2 --rounds 1 --alpha 10 --set local_epochs=1")
    shown = capfd.readouterr().out
    assert shown.startswith("$ fedlib run local --clients 2 ") and "\nstored as $FEDLIB_HOME/results/single/" in shown
    assert "\r" not in shown and len(list(folder.glob("home/results/single/runs/*.json"))) == 1


def test_a_command_that_ends_otherwise_than_expected_is_an_error(capfd):
    with pytest.raises(FedlibError, match="fedlib run pfedsin: exit status 2 instead of 0"):
        terminal("fedlib run pfedsin")
    assert "did you mean pfedsim" in capfd.readouterr().out
    terminal("fedlib run pfedsin", status=2)
    assert capfd.readouterr().out.endswith("\n(exit status 2)\n")
    with pytest.raises(BadValue, match="begins with fedlib"):
        terminal("rm file")
