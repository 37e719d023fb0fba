"""`fedlib check-gpu` on a pretended GPU, and commands on a machine that has PyTorch and little else."""

from __future__ import annotations

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
from fedlib.models import build
from fedlib.models.unfold import unfolded_convolutions

# what a machine with PyTorch need not have (newer releases of typer and joblib bring pydantic and cloudpickle)
ABSENT = """
    IPython captum dask distributed dp_accounting hypothesis ipykernel jupyter jupyter_client jupyter_core jupyterlab
    latex2mathml nbclient nbconvert nbformat opacus opt_einsum papermill platformdirs psutil pytest safetensors seaborn
    skimage stlpips_pytorch torchsummary torchvision
"""


def bare(tmp_path, *command: str) -> subprocess.CompletedProcess:
    """`python -m fedlib` where what is ABSENT cannot be imported, in its worker processes neither."""
    (tmp_path / "sitecustomize.py").write_text(f"import sys\nsys.modules |= dict.fromkeys({ABSENT.split()})\n")
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    places = {"FEDLIB_HOME": str(tmp_path), "FEDLIB_CACHE": "", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    environment = os.environ | places | {"PYTHONPATH": path}
    return subprocess.run([sys.executable, "-m", "fedlib", *command], env=environment, capture_output=True, text=True)


@pytest.mark.parametrize(
    "command",
    [
        ("run", "fedavg", "--rounds", "1", "--clients", "4", "--jobs", "2"),
        ("sweep", "pfedsim/table6_rho", "--profile", "smoke", "--jobs", "2", "--rounds", "1"),
        ("bench", "--quick", "--repeats", "1"),
        ("bench", "--scaling", "--quick"),
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_a_bare_pytorch_machine_suffices(tmp_path, command):
    done = bare(tmp_path, *command)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize(
    ("item", "package"), [("pfedsv/fig11_inversion", "scikit-image"), ("fedsimsup/fig4_attention", "captum")]
)
def test_a_package_that_is_not_there_is_named_before_anything_is_computed(tmp_path, item, package):
    done = bare(tmp_path, "sweep", item, "--profile", "smoke", "--jobs", "1")
    assert done.returncode == 2 and not done.stdout and done.stderr.count("\n") == 1
    assert f"needs {package}, which is not installed: pip install {package}" in done.stderr
    written = [path for path in tmp_path.rglob("*.json") if "matplotlib" not in path.parts]  # its list of fonts
    assert not written


def test_a_single_run_needs_its_measures_packages_before_its_first_round(monkeypatch):
    monkeypatch.setitem(sys.modules, "captum.attr", None)
    spec = tiny("local", model="lenet5", dataset="digits_large", measures=("attention",))
    with pytest.raises(FedlibError, match="pip install captum"):
        simulate(spec, progress=lambda _: pytest.fail("it was begun"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="A CUDA DEVICE IS HERE: the error without one was NOT seen")
def test_without_a_gpu_one_line_says_so(tmp_path):
    done = bare(tmp_path, "check-gpu")
    assert done.returncode == 2 and not done.stdout
    assert "device = 'cuda' is not there" in done.stderr and done.stderr.count("\n") == 1


def test_a_cpu_is_no_gpu():
    with pytest.raises(BadValue, match="expected a GPU"):
        check_gpu("cpu")


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(checks, "NETWORKS", ("lenet5_bn",))
    monkeypatch.setitem(checks.TIMED, "num_clients", 4)


def test_all_is_well_on_a_pretended_gpu(quick):
    with Emulator():
        table = check_gpu(str(DEVICE), methods=("fedavg", "ifca"), rounds=3, images=200)
    names, subjects, found, ok = zip(*table.rows)
    assert set(ok) == {True}, table.text()
    assert subjects == ("lenet5_bn", "lenet5_bn", "3 rounds", "fedavg", "ifca")
    assert "samples/s" in found[0] and "recordings" in found[3] and "FAILED" not in table.text()


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


def test_steps_that_refuse_to_be_recorded_are_found(monkeypatch):
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
    table.check("endless", "", lambda: time.sleep(60))
print("it went on")
"""
    started = time.monotonic()
    done = subprocess.run([sys.executable, "-c", hangs], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and time.monotonic() - started < 50
    assert done.stdout.startswith("then\n") and "as it should be" in done.stdout
    assert "stopped after 0 s" in done.stdout and "it went on" not in done.stdout


@pytest.mark.parametrize("name", ["lenet5_bn", "mcmahan_cnn"])
def test_convolutions_as_matrix_products_are_the_same(name):
    """Scores and gradients of stacked clients, in float64."""
    model = build(name, (1, 16, 16), 3).to(torch.device("cpu"), torch.float64).for_stack()
    x, y = torch.randn(2, 5, 1, 16, 16, dtype=torch.float64), torch.randint(3, (2, 5))
    thetas = {k: torch.stack([v, v + 0.01 * torch.randn_like(v)]) for k, v in model.theta0.items()}

    def gradient(theta, x, y):
        def loss(theta):
            return torch.nn.functional.cross_entropy(model.logits({**fixed, **theta}, x), y)

        fixed = {name: theta[name] for name in model.running}
        return torch.func.grad(loss)({name: theta[name] for name in model.trainable})

    usual = torch.func.vmap(gradient)(thetas, x, y)
    with unfolded_convolutions():
        unfolded = torch.func.vmap(gradient)(thetas, x, y)
    for key in usual:
        torch.testing.assert_close(unfolded[key], usual[key], rtol=1e-10, atol=1e-12)
