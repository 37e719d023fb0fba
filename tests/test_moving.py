"""Finished runs and checkpoints carried from one machine, here a folder, to another."""

from __future__ import annotations

import io
import tarfile

import pytest
from helpers import exact, tiny
from typer.testing import CliRunner

from fedlib import cli
from fedlib.base.errors import FedlibError
from fedlib.engine.simulate import simulate
from fedlib.runs.moving import pack, unpack
from fedlib.runs.run import get_or_run
from fedlib.runs.store import Store

ITEM = "pfedsim/fig2_classifier_similarity"


class Stop(Exception):
    pass


def machine(tmp_path, monkeypatch, name: str) -> Store:
    """Go to another machine: its own project folder and cache."""
    monkeypatch.setenv("FEDLIB_HOME", str(tmp_path / name))
    monkeypatch.setenv("FEDLIB_CACHE", str(tmp_path / name / "cache"))
    return Store("t")


def stop_after(rounds: int):
    def progress(done):
        if done == rounds:
            raise Stop

    return progress


def test_runs_and_checkpoints_arrive_and_go_on(tmp_path, monkeypatch):
    finished, begun, untouched = (tiny("fedper", seed=seed, rounds=4, measures=("traffic",)) for seed in range(3))
    here, file = machine(tmp_path, monkeypatch, "here"), tmp_path / "carried" / "runs.tar"
    result = get_or_run(finished, here)
    with pytest.raises(Stop):
        get_or_run(begun, here, checkpoint_every=0, progress=stop_after(2))
    counts = pack([finished, begun, untouched], here, file)
    assert (counts["finished"], counts["begun"], counts["bytes"]) == (1, 1, file.stat().st_size)
    there, seen = machine(tmp_path, monkeypatch, "there"), []
    assert unpack(file, there) == {"new": 1, "there": 0, "refused": 0, "begun": 1}
    assert exact(there.get(finished)) == exact(result) and there.get(untouched) is None
    assert exact(get_or_run(begun, there, progress=seen.append)) == exact(simulate(begun)) and seen[0] == 2
    path = there.path(finished)
    before = path.stat().st_mtime_ns
    assert unpack(file, there) == {"new": 0, "there": 1, "refused": 0, "begun": 1}
    assert unpack(file, there)["begun"] == 0 and path.stat().st_mtime_ns == before


def test_checkpoints_of_another_version_stay_behind(tmp_path, monkeypatch):
    here, spec, file = machine(tmp_path, monkeypatch, "here"), tiny("fedavg", rounds=4), tmp_path / "runs.tar"
    with pytest.raises(Stop):
        get_or_run(spec, here, checkpoint_every=0, progress=stop_after(2))
    pack([spec], here, file)
    there = machine(tmp_path, monkeypatch, "there")
    monkeypatch.setattr("fedlib.runs.moving.source_hash", lambda: "00000000")
    assert unpack(file, there)["begun"] == 0 and not (tmp_path / "there" / "cache" / "checkpoints").exists()
    with pytest.raises(FedlibError, match="nothing to pack: none of the 1 runs"):
        pack([spec], there, tmp_path / "empty.tar")
    assert not (tmp_path / "empty.tar").exists()


def altered(file, change) -> None:
    """Write the archive again, every member's (name, bytes) changed; None leaves it out."""
    with tarfile.open(file) as old:
        members = [(entry.name, old.extractfile(entry).read()) for entry in old]
    with tarfile.open(file, "w") as new:
        for member in filter(None, (change(*member) for member in members)):
            entry = tarfile.TarInfo(member[0])
            entry.size = len(member[1])
            new.addfile(entry, io.BytesIO(member[1]))


@pytest.mark.parametrize(
    "change",
    [
        lambda name, body: (name, body.replace(b'"status": "finished"', b'"status": "diverged"')),
        lambda name, body: (name, body[: len(body) // 2]) if name.endswith("json") else (name, body),
        lambda name, body: (name, body[:-9]) if name.endswith("npz") else (name, body),
        lambda name, body: None if name.endswith("npz") else (name, body),
        lambda name, body: ("runs/0123456789abcdef." + name.rpartition(".")[2], body),
    ],
    ids=["altered", "cut off", "arrays cut off", "without arrays", "under another id"],
)
def test_damaged_runs_are_refused(tmp_path, monkeypatch, change):
    here, spec, file = machine(tmp_path, monkeypatch, "here"), tiny("fedavg", measures=("traffic",)), tmp_path / "a.tar"
    get_or_run(spec, here)
    pack([spec], here, file)
    altered(file, change)
    there = machine(tmp_path, monkeypatch, "there")
    assert unpack(file, there) == {"new": 0, "there": 0, "refused": 1, "begun": 0}
    assert not list(there.folder.glob("*"))


def test_what_is_no_archive_of_ours_changes_nothing(tmp_path, monkeypatch):
    here, spec, file = machine(tmp_path, monkeypatch, "here"), tiny("fedavg"), tmp_path / "a.tar"
    get_or_run(spec, here)
    pack([spec], here, file)
    there = machine(tmp_path, monkeypatch, "there")
    altered(file, lambda name, body: (f"../../{name}", body))
    with pytest.raises(FedlibError, match="neither runs nor checkpoints"):
        unpack(file, there)
    file.write_bytes(b"no archive")
    for wrong in (file, tmp_path / "absent.tar", tmp_path):
        with pytest.raises(FedlibError, match="cannot be read"):
            unpack(wrong, there)
    assert not there.folder.exists() and not list(tmp_path.glob("runs*"))


def test_commands(tmp_path, monkeypatch):
    machine(tmp_path, monkeypatch, "here")
    call = CliRunner().invoke
    empty = call(cli.app, ["pack", str(tmp_path / "a.tar"), ITEM, "--profile", "smoke"])
    assert empty.exit_code == 2 and "nothing to pack" in empty.output
    assert call(cli.app, ["sweep", ITEM, "--profile", "smoke"]).exit_code == 0
    packed = call(cli.app, ["pack", str(tmp_path / "a.tar"), ITEM, "--profile", "smoke"])
    assert packed.exit_code == 0 and "1 finished runs, 0 begun" in packed.output
    machine(tmp_path, monkeypatch, "there")
    taken = call(cli.app, ["unpack", str(tmp_path / "a.tar"), "--profile", "smoke"])
    assert taken.exit_code == 0 and "1 runs taken over" in taken.output
    again = call(cli.app, ["sweep", ITEM, "--profile", "smoke"])
    assert again.exit_code == 0 and "0 runs done, 1 reused" in again.output
