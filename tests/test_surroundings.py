"""Where fedlib runs: odd folders for temporary files, kernels and styles of the user's, no home, full disks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import matplotlib as mpl
import pytest
from helpers import call

from fedlib.base import files
from fedlib.base.errors import DataError, FedlibError
from fedlib.data import own
from fedlib.experiments import OpenItem, find
from fedlib.models import torchvision_nets
from fedlib.models.fused import build
from fedlib.reports import notebooks, saved
from fedlib.runs.store import Store
from fedlib.runs.sweep import run_all

ITEM = "pfedsv/fig6_partitions"  # trains nothing
NO_PLACE = Path(os.devnull) / "folder"  # also for somebody who may write everywhere


@pytest.fixture
def deep(tmp_path):
    """A folder for temporary files whose path is too long for sockets in it."""
    folder = tmp_path / ("deep" * 25)
    folder.mkdir()
    return folder


SCRIPT = """
from dataclasses import dataclass
import fedlib
from fedlib.algorithms.fedavg import FedAvg
from fedlib.engine.simulate import simulate
from fedlib.spec import RunSpec

@fedlib.register
@dataclass(frozen=True)
class Mine(FedAvg):
    pass

spec = RunSpec("mine", num_clients=3, rounds=1, scheme="iid", join_ratio=1.0, model="mlp")
print(simulate(spec, backend="process", workers=1).status)
"""


def test_workers_need_no_guard_in_the_script_and_no_short_path(deep, tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    environment = os.environ | {"TMPDIR": str(deep)}
    done = subprocess.run([sys.executable, tmp_path / "script.py"], capture_output=True, text=True, env=environment)
    assert done.stdout == "finished\n", done.stderr[-2000:]


def test_a_notebook_runs_in_this_python_whatever_a_user_has_installed(deep, tmp_path, monkeypatch):
    stale = tmp_path / "jupyter" / "kernels" / "python3"
    stale.mkdir(parents=True)
    spec = {"argv": ["/no/python", "{connection_file}"], "display_name": "Python 3", "language": "python"}
    (stale / "kernel.json").write_text(json.dumps(spec))
    startup = tmp_path / "ipython" / "profile_default" / "startup"
    startup.mkdir(parents=True)
    (startup / "ends.py").write_text("import os; os._exit(3)")
    places = {"JUPYTER_PATH": stale.parent.parent, "IPYTHONDIR": startup.parent.parent, "TMPDIR": deep}
    for name, place in places.items():
        monkeypatch.setenv(name, str(place))
    monkeypatch.setattr("tempfile.tempdir", None)
    item = OpenItem(find(ITEM), "smoke", root=tmp_path)
    saved.save(item)
    assert notebooks.execute_all([item], 1) == {ITEM: "executed"}


def test_a_user_without_a_home_has_the_project_s_cache(tmp_path, monkeypatch):
    def unknown(uid):
        raise KeyError(uid)

    for name in ("HOME", "XDG_CACHE_HOME", "FEDLIB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("FEDLIB_HOME", str(tmp_path))
    monkeypatch.setattr("pwd.getpwuid", unknown)
    assert files.cache_root() == tmp_path / ".cache"


def test_a_folder_that_cannot_be_written_to_is_said_before_anything_is_trained(tmp_path, monkeypatch):
    specs = OpenItem(find("pfedsim/fig1_cka"), "smoke", root=tmp_path).specs
    monkeypatch.setattr("fedlib.runs.sweep.check_inputs", lambda specs: pytest.fail("it goes on"))
    with pytest.raises(FedlibError, match=r"^results cannot be written to .*folder/own/runs \(.*FEDLIB_HOME sets"):
        run_all(specs, Store("own", NO_PLACE))


def test_a_disk_that_is_full_is_one_line(tmp_path, monkeypatch):
    def full(path):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr("fedlib.lessons.labs.release", lambda folder, names: full(folder))
    result = call("labs", "release", str(tmp_path))
    assert result.exit_code == 1
    assert result.output == f"error: [Errno 28] No space left on device: '{tmp_path}'\n"


def test_a_run_that_may_not_be_read_is_not_put_aside_as_damaged(tmp_path, monkeypatch):
    def refused(*_):
        raise PermissionError(13, "Permission denied")

    spec = OpenItem(find("pfedsim/fig1_cka"), "smoke", root=tmp_path).specs[0]
    store = Store("own", tmp_path)
    store.folder.mkdir(parents=True)
    store.path(spec).write_text("{}")
    monkeypatch.setattr(store, "read", refused)
    with pytest.raises(PermissionError):
        store.get(spec)
    assert [path.name for path in store.folder.iterdir()] == [f"{spec.id}.json"]


def test_a_compiled_library_that_was_cut_short_is_made_again(tmp_path, monkeypatch):
    made = []
    monkeypatch.setenv("FEDLIB_COMPILED", str(tmp_path))
    monkeypatch.setattr(build, "find_compiler", lambda: "compiler")

    def output(command):
        if "-o" in command:
            made.append(Path(command[-1]).write_bytes(b"a library"))
        return "1.0"

    monkeypatch.setattr(build, "_output", output)
    path = build.compiled(build.FLAGS)
    build.compiled(build.FLAGS)
    assert len(made) == 1
    path.write_bytes(b"a lib")
    assert build.compiled(build.FLAGS) == path and path.read_bytes() == b"a library" and len(made) == 2


RC = {"text.usetex": True, "axes.facecolor": "black", "text.color": "white", "font.size": 20, "xtick.color": "white"}


def test_figures_look_the_same_whatever_a_user_s_style(tmp_path):
    item = OpenItem(find(ITEM), "smoke", root=tmp_path)
    with mpl.rc_context():
        mpl.rcdefaults()
        saved._draw(item, tmp_path / "plain.png", ())
        mpl.rcParams.update(RC)
        saved._draw(item, tmp_path / "here.png", ())
        assert {name: mpl.rcParams[name] for name in RC} == RC
    assert (tmp_path / "plain.png").read_bytes() == (tmp_path / "here.png").read_bytes()


def test_an_unknown_backend_of_matplotlib_is_left_alone():
    asked = "import fedlib.figures, os; print(fedlib.figures.base.mpl.get_backend(), os.environ.get('MPLBACKEND'))"
    for named, found in {"foo": "agg None", "svg": "svg svg"}.items():
        environment = os.environ | {"MPLBACKEND": named, "DISPLAY": ""}
        command = [sys.executable, "-c", f"from fedlib import figures; figures.drawn; {asked}"]
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        assert done.stdout.strip() == found, done.stderr
        assert done.stderr.startswith("fedlib: MPLBACKEND is ignored: Key backend: 'foo'" if named == "foo" else "")


@pytest.mark.parametrize("value", ["0", "1"])
def test_offline_means_one_thing(monkeypatch, value):
    """0 asks, 1 does not."""
    asked = []

    def get(*_, **__):
        asked.append(1)
        raise ConnectionError("asked")

    monkeypatch.setenv("FEDLIB_OFFLINE", value)
    monkeypatch.setattr("torch.hub.download_url_to_file", get)
    with pytest.raises(DataError, match="asked" if value == "0" else "FEDLIB_OFFLINE is set"):
        torchvision_nets.weights_file("https://models.invalid/never-0123456789.pth")
    assert len(asked) == (value == "0") and own.offline() == (value == "1")
