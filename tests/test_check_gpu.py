"""`fedlib check-gpu` on a pretended GPU, and commands on a machine that has PyTorch and little else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import pytest
import torch
from emulated_device import DEVICE, Emulator
from helpers import tiny
from typer.testing import CliRunner

from fedlib import algorithms, cli
from fedlib.base import tree
from fedlib.base.errors import BadValue, FedlibError
from fedlib.benchmarks import check_gpu as checks
from fedlib.benchmarks.check_gpu import Table, check_gpu
from fedlib.engine.cuda_graph import UNRECORDED
from fedlib.engine.simulate import simulate

# what a machine with PyTorch need not have (newer releases of typer and joblib bring pydantic and cloudpickle)
ABSENT = """
    IPython captum dask distributed dp_accounting hypothesis ipykernel jupyter jupyter_client jupyter_core jupyterlab
    latex2mathml nbclient nbconvert nbformat opacus opt_einsum papermill platformdirs psutil pytest seaborn
    skimage stlpips_pytorch torchsummary torchvision
"""


# Commands one after the other in one process, which saves starts of it; prints each one's status and what it wrote.
COMMANDS = """
import json, sys
from typer.testing import CliRunner
from fedlib.cli import app

if __name__ == "__main__":
    for command in json.loads(sys.argv[1]):
        done = CliRunner().invoke(app, command)
        print(json.dumps([done.exit_code, done.stdout, done.stderr]))
"""


def bare(tmp_path, *commands: str) -> list[tuple[int, str, str]]:
    """Commands of fedlib where what is ABSENT cannot be imported, in its worker processes neither."""
    (tmp_path / "sitecustomize.py").write_text(f"import sys\nsys.modules |= dict.fromkeys({ABSENT.split()})\n")
    (tmp_path / "commands.py").write_text(COMMANDS)
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    places = {"FEDLIB_HOME": str(tmp_path), "FEDLIB_CACHE": "", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, tmp_path / "commands.py", json.dumps([command.split() for command in commands])],
        env=os.environ | places | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()]


def test_a_bare_pytorch_machine_suffices(tmp_path):
    commands = (
        "run fedavg --rounds 1 --clients 4 --jobs 2",
        "sweep pfedsim/table6_rho --profile smoke --jobs 2 --rounds 1",
        "bench --quick --repeats 1",
    )
    for command, (status, _, said) in zip(commands, bare(tmp_path, *commands), strict=True):
        assert status == 0, f"{command}: {said[-2000:]}"


def test_what_is_not_there_is_named_before_anything_is_computed(tmp_path):
    """A package that an item needs, and a GPU."""
    said = {
        f"sweep {item} --profile smoke --jobs 1": f"needs {package}, which is not installed: pip install {package}"
        for item, package in (("pfedsv/fig11_inversion", "scikit-image"), ("fedsimsup/fig4_attention", "captum"))
    }
    said |= {} if torch.cuda.is_available() else {"check-gpu": "device = 'cuda' is not available"}
    for (status, out, err), words in zip(bare(tmp_path, *said), said.values(), strict=True):
        assert status == 2 and not out and err.count("\n") == 1 and words in err
    written = [path for path in tmp_path.rglob("*.json") if "matplotlib" not in path.parts]  # its list of fonts
    assert not written


def test_a_single_run_needs_its_measures_packages_before_its_first_round(monkeypatch):
    monkeypatch.setitem(sys.modules, "captum.attr", None)
    spec = tiny("local", model="lenet5", dataset="digits_large", measures=("attention",))
    with pytest.raises(FedlibError, match="pip install captum"):
        simulate(spec, progress=lambda _: pytest.fail("it was begun"))


def test_a_cpu_is_no_gpu():
    with pytest.raises(BadValue, match="expected a GPU"):
        check_gpu("cpu")


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(checks, "NETWORKS", ("lenet5_bn",))
    monkeypatch.setattr(checks, "TIMED", checks.TIMED | {"num_clients": 4, "local_epochs": 1})
    monkeypatch.setattr(checks, "SMALL", checks.SMALL | {"images": 300})


def test_all_is_well_on_a_pretended_gpu(quick):
    with Emulator():
        table = check_gpu(str(DEVICE), methods=("fedavg",), rounds=3, images=120)
    names, subjects, found, ok = zip(*table.rows)
    assert set(ok) == {True}, table.text()
    assert subjects == ("lenet5_bn", "3 rounds", "fedavg")
    assert "samples/s" in found[0] and "recordings" in found[2] and "FAILED" not in table.text()


def test_what_is_wrong_is_found(quick, monkeypatch):
    """Steps that are left unrecorded, memory that grows, other numbers, errors: each fails its own row only."""
    with Emulator() as gpu:
        table, where = Table(60), DEVICE
        monkeypatch.setattr(checks.FedlibRuns, "__call__", lambda self, t: setattr(gpu, "reserved", t * 10**8))
        table.check("memory", "", lambda: checks.memory(where, 20))
        monkeypatch.setattr("fedlib.engine.cuda_graph.WORTH_IT", 10**9)
        table.check("unrecorded", "", lambda: checks.agreement("fedavg", where))
        monkeypatch.undo()
        monkeypatch.setattr(checks, "TOLERANCE", -1.0)
        table.check("other numbers", "", lambda: checks.agreement("fedavg", where))
        table.check("error", "", lambda: 1 / 0)
    assert [ok for *_, ok in table.rows] == [False] * 4 and table.failed == 4
    assert "not recorded" in table.rows[1][2] and "ZeroDivisionError" in table.text()


def test_steps_that_refuse_to_be_recorded_are_found(quick, monkeypatch):
    """They run all the same, with the right numbers and a warning: the warning is what fails the row."""
    where = tree.where

    def waiting(condition, *states):
        torch.ones(1).to(DEVICE)
        return where(condition, *states)

    monkeypatch.setattr(tree, "where", waiting)
    with Emulator() as gpu:
        ok, found = checks.agreement("fedavg", DEVICE)
    assert not ok and f"not recorded: {UNRECORDED}" in found and gpu.captures


def test_nothing_is_begun_once_the_time_is_over():
    table = Table(-1)
    table.check("late", "", lambda: pytest.fail("it was begun"))
    assert table.rows[0][3] is None and table.failed == 0 and "time is over" in table.text()


def test_what_was_not_checked_is_said_and_is_no_success():
    """The papers' own methods come first, since the time may not suffice for all."""
    with Emulator():
        done = CliRunner().invoke(cli.app, ["check-gpu", "--device", str(DEVICE), "--seconds=-1"])
    rows = [line.split() for line in done.stdout.splitlines() if "not checked, the time is over" in line]
    methods = [row[4] for row in rows if row[0] == "agrees"]
    assert methods[:5] == ["pfedsim", "pfedsv", "fedsimsup", "pfedcs", "fedavg"]
    assert sorted(methods) == sorted(algorithms.names())
    assert done.exit_code == 3
    assert f"{len(rows)} of {len(rows)} checks were not made in time; --seconds gives more" in done.stderr


def test_a_check_that_does_not_return_is_cut_short():
    """The process ends with what was found so far, however long the check would go on; one that returns is left
    alone, and so is what follows it."""
    hangs = """
import time
from fedlib.benchmarks.check_gpu import Table, stopped_after
table = Table(60)
with stopped_after(0.2, table):
    table.check("quick", "", lambda: (True, "as it should be"))
time.sleep(0.5)
print("then")
with stopped_after(0.2, table):
    table.check("endless", "", lambda: time.sleep(600))
print("it went on")
"""
    started = time.monotonic()
    done = subprocess.run([sys.executable, "-c", hangs], capture_output=True, text=True, timeout=900)
    assert done.returncode == 1 and time.monotonic() - started < 500
    assert done.stdout.startswith("then\n") and "as it should be" in done.stdout
    assert "stopped after 0 s" in done.stdout and "it went on" not in done.stdout
