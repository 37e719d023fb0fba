"""Runs on a real Dask cluster on this machine: a scheduler and workers in processes and folders of their own,
some of which are killed."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from helpers import call, exact, tiny

from fedlib.algorithms import register, registered
from fedlib.algorithms.fedavg import FedAvg
from fedlib.algorithms.parts.passes import local_sgd
from fedlib.base.errors import BadValue, FedlibError
from fedlib.base.files import PACKAGE
from fedlib.engine.simulate import simulate
from fedlib.runs import cluster
from fedlib.runs.store import Store
from fedlib.runs.sweep import run_all

try:
    import distributed
except ImportError:
    distributed = None

needs_dask = pytest.mark.skipif(
    distributed is None,
    reason="DASK IS NOT INSTALLED: runs on a cluster were NOT tested; pip install 'fedlib[cluster]'",
)
ITEM = "pfedsim/fig2_classifier_similarity"

# Loaded by every worker: it notes which worker begins which run, and then does what the run's seed asks for.
PRELOAD = """
import os, signal, time
from pathlib import Path

def dask_setup(worker):
    from fedlib.engine import simulate
    whole = simulate.simulate_together

    def simulate_together(specs, **options):
        (spec,), notes = specs, Path(os.environ["TEST_NOTES"])
        (notes / f"{spec.id}-{os.environ['TEST_NAME']}-{os.getpid()}").touch()
        if spec.seed == 66:
            os.kill(os.getpid(), signal.SIGKILL)
        if spec.seed == 77:
            raise RuntimeError("as asked")
        while spec.seed >= 88 and not (notes / f"open{spec.seed}").exists():
            options["progress"](0)
            time.sleep(0.05)
        return whole(specs, **options)

    simulate.simulate_together = simulate_together
"""


class Machines:
    """A scheduler and workers, each of them a group of processes that can be killed like a machine."""

    def __init__(self, folder: Path):
        self.folder, self.processes = folder, {}
        self.notes = folder / "notes"
        self.notes.mkdir()
        (folder / "preload.py").write_text(PRELOAD)
        options = ("--port", "0", "--scheduler-file", folder / "scheduler.json")
        rules = {"ALLOWED_FAILURES": "1", "WORKER_SATURATION": "1.0"}
        rules = {f"DASK_DISTRIBUTED__SCHEDULER__{name}": value for name, value in rules.items()}
        self.start("scheduler", "scheduler", *options, **rules)
        self.address = wait_for(lambda: address_in(folder / "scheduler.json"))
        self.client = distributed.Client(self.address, set_as_default=False)

    def addresses(self) -> set[str]:
        return set(self.client.nthreads())

    def start(self, name: str, what: str, *arguments, **environment) -> None:
        environment = os.environ | environment
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # twice as quick
        command = [sys.executable, "-m", f"distributed.cli.dask_{what}", "--host", "127.0.0.1", "--no-dashboard"]
        command += map(str, arguments)
        with open(self.folder / f"{name}.log", "a") as log:
            self.processes[name] = subprocess.Popen(
                command, env=environment, cwd=self.folder, stdout=log, stderr=log, start_new_session=True
            )

    def start_worker(self, name: str, **environment) -> None:
        """Nothing is shared with other workers but the notes of this test."""
        own = {f"FEDLIB_{place}": str(self.folder / name / place) for place in ("HOME", "CACHE", "DATA")}
        own |= {"TEST_NAME": name, "TEST_NOTES": str(self.notes)}
        places = ("--local-directory", self.folder / name, "--preload", self.folder / "preload.py")
        self.start(name, "worker", self.address, "--nthreads", 1, "--memory-limit", 0, *places, **own, **environment)

    def kill(self, name: str) -> None:
        process = self.processes.pop(name)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def began(self, spec) -> list[str]:
        """Names of the workers that began a run, the first first."""
        return [
            path.name.split("-")[1]
            for path in sorted(self.notes.glob(f"{spec.id}-*"), key=lambda path: path.stat().st_mtime_ns)
        ]


def wait_for(condition, seconds: float = 600):
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)
    return found


def address_in(file: Path) -> str | None:
    """None as long as the scheduler has not written its whole file: it is there, empty, before that."""
    try:
        return json.loads(file.read_text())["address"]
    except (FileNotFoundError, json.JSONDecodeError):
        return None


def in_the_background(*steps) -> threading.Thread:
    """Each step is (condition, action); what they raise is raised by the thread's `join`."""

    def work():
        try:
            for condition, action in steps:
                wait_for(condition)
                action()
        except BaseException as error:
            thread.error = error

    thread = threading.Thread(target=work, daemon=True)
    thread.error, plain = None, thread.join

    def join():
        plain(timeout=600)
        assert thread.error is None and not thread.is_alive(), thread.error

    thread.join = join
    thread.start()
    return thread


@pytest.fixture(scope="module")
def machines(tmp_path_factory):
    machines = Machines(tmp_path_factory.mktemp("cluster"))
    yield machines
    machines.client.close()
    for name in list(machines.processes):
        machines.kill(name)


@pytest.fixture(autouse=True)
def no_endless_waiting():
    """A run that never comes back ends the test."""

    def ring(*_):
        raise AssertionError("waited in vain")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(300)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDLIB_HOME", str(tmp_path))
    monkeypatch.setenv("FEDLIB_CACHE", str(tmp_path / "cache"))
    return Store("smoke", tmp_path / "results")


def runs(*seeds: int, **changes):
    return [tiny("fedavg", seed=seed, partition_seed=1, **changes) for seed in seeds]


def ensure(machines, count: int) -> list[str]:
    """Start workers until there are `count`; their names."""
    for name in ("one", "two", "three"):
        if len(machines.processes) - 1 < count and name not in machines.processes:
            machines.start_worker(name)
    wait_for(lambda: len(machines.addresses()) == count)
    return [name for name in machines.processes if name != "scheduler"]


@dataclasses.dataclass(frozen=True)
class Halved(FedAvg):
    """FedAvg with half of the learning rate: a method that no worker can import."""

    def client_update(self, model, message, client, data):
        return local_sgd(model, message, data, lr=data.lr / 2), client


@needs_dask
def test_workers_get_a_method_of_ones_own(machines, store, monkeypatch):
    monkeypatch.setattr(registered, "OWN", {})
    register(Halved)
    spec = tiny("halved", rounds=2)
    ensure(machines, 2)
    done = run_all([spec], store, engine=machines.address)
    assert exact(done[spec.id]) == exact(simulate(spec, backend="serial")) and store.get(spec).spec == spec
    assert done[spec.id].history != simulate(tiny("fedavg", rounds=2)).history


@needs_dask
def test_workers_without_the_data_are_refused(machines, store, tmp_path, monkeypatch):
    ensure(machines, 2)
    (tmp_path / "data/toy").mkdir(parents=True)
    generator = np.random.default_rng(0)
    for name, array in {
        "images": generator.integers(0, 255, (40, 16, 16, 1)).astype(np.uint8),
        "labels": np.arange(40) % 4,
        "is_test": np.zeros(40, bool),
    }.items():
        np.save(tmp_path / f"data/toy/{name}.npy", array)
    (tmp_path / "data/toy/meta.json").write_text('{"name": "toy", "classes": ["a", "b", "c", "d"]}')
    monkeypatch.setenv("FEDLIB_DATA", str(tmp_path / "data"))
    with pytest.raises(FedlibError, match="2 of 2 workers .* data set 'toy' is .*dataset 'toy'") as error:
        spec = tiny("fedavg", dataset="toy", partition={"alpha": 5.0, "min_size": 2})
        run_all([spec], store, engine=machines.address)
    assert "\n" not in str(error.value)


@needs_dask
def test_ctrl_c_ends_the_runs_on_the_workers_and_keeps_what_is_finished(machines, store):
    ensure(machines, 2)
    finished, endless = runs(51, 91)
    both = lambda: store.path(finished).exists() and machines.began(endless)  # noqa: E731
    stop = in_the_background((both, lambda: os.kill(os.getpid(), signal.SIGINT)))
    with pytest.raises(KeyboardInterrupt):
        run_all([finished, endless], store, engine=machines.address)
    stop.join()
    assert store.get(finished).status == "finished" and store.get(endless) is None
    with distributed.Client(machines.address, set_as_default=False) as client:
        wait_for(lambda: not any(client.run(busy).values()), seconds=120)


def busy(dask_worker) -> int:
    return len(dask_worker.state.executing)


busy.__module__ = "__main__"  # sent as it is, for the workers do not have this file


@needs_dask
def test_sweep_on_a_cluster_from_the_command_line(machines, store):
    """Then there is nothing left to do for a sweep without the cluster."""
    ensure(machines, 2)
    command = ("sweep", ITEM, "--profile", "smoke")
    first = call(*command, "--engine", machines.address)
    assert first.exit_code == 0 and "1 runs done, 0 reused, 0 failed" in first.output, first.output
    again = call(*command)
    assert again.exit_code == 0 and "0 runs done, 1 reused, 0 failed" in again.output, again.output


@needs_dask
def test_runs_that_fail_are_reported_and_the_others_done(machines, store):
    """One always kills its worker, one raises, one diverges. The numbers of the others are those of this process."""
    ensure(machines, 2)
    (kills, fails), (diverges,) = runs(66, 77), runs(4, lr=1e30)
    good = [*runs(1, 2), tiny("pfedsim", seed=3), tiny("local", precision="float64")]
    done = run_all([kills, fails, diverges, *good], store, engine=machines.address)
    assert isinstance(done[kills.id], FedlibError) and "KilledWorker: Attempted to run" in str(done[kills.id])
    assert len(machines.began(kills)) == 2 and len(machines.began(fails)) == 1
    assert isinstance(done[fails.id], FedlibError) and str(done[fails.id]) == "RuntimeError: as asked"
    assert done[diverges.id].status == store.get(diverges).status == "diverged"
    for spec in good:
        assert exact(done[spec.id]) == exact(store.get(spec)) == exact(simulate(spec))
    assert store.get(kills) is None and store.get(fails) is None
    assert not list(machines.folder.rglob("*.pt")), "checkpoints of finished runs are removed"


@needs_dask
def test_a_lost_machine_costs_no_run_and_changes_no_number(machines, store):
    """Six runs on two machines; the one that does the first is killed in the middle of it, with its nanny."""
    ensure(machines, 2)
    first, *others = specs = runs(88, 11, 12, 13, 14, 15)
    killing = in_the_background(
        (lambda: machines.began(first), lambda: machines.kill(machines.began(first)[0])),
        (lambda: True, (machines.notes / "open88").touch),
    )
    done = run_all(specs, store, engine=machines.address)
    killing.join()
    assert sorted(set(machines.began(first))) == ["one", "two"]
    assert list(machines.processes) in (["scheduler", "one"], ["scheduler", "two"])
    for spec in specs:
        assert exact(done[spec.id]) == exact(store.get(spec)) == exact(simulate(spec))


@needs_dask
def test_a_worker_with_other_source_is_refused(machines, store, tmp_path):
    """Named in the error if it is there at the beginning; if it comes later, its run is not done."""
    (name,) = ensure(machines, 1)
    shutil.copytree(PACKAGE, tmp_path / "other/fedlib", ignore=shutil.ignore_patterns("__pycache__"))
    with open(tmp_path / "other/fedlib/spec.py", "a") as file:
        file.write("# changed\n")
    (gate,) = runs(90)
    late = in_the_background(
        (lambda: machines.began(gate), lambda: machines.start_worker("other", PYTHONPATH=str(tmp_path / "other"))),
        (lambda: len(machines.addresses()) == 2, lambda: machines.kill(name)),
    )
    differs = r"fedlib's source is [0-9a-f]{8}, here [0-9a-f]{8}"
    done = run_all([gate], store, engine=machines.address)
    late.join()
    assert re.fullmatch(rf"worker tcp://\S+ cannot do it: {differs}", str(done[gate.id])) and store.get(gate) is None
    with pytest.raises(FedlibError, match=rf"1 of 1 workers cannot do these runs: tcp://127\.0\.0\.1:\d+: {differs}$"):
        run_all(runs(24), store, engine=machines.address)
    machines.kill("other")


@needs_dask
def test_a_lost_scheduler_is_one_clear_error(store, tmp_path):
    alone = Machines(tmp_path)
    alone.start_worker("only")
    stop = in_the_background((lambda: alone.began(*runs(92)), lambda: alone.kill("scheduler")))
    try:
        with pytest.raises(FedlibError, match="the scheduler was lost"):
            run_all(runs(92), store, engine=alone.address)
        stop.join()
    finally:
        for name in list(alone.processes):
            alone.kill(name)


@needs_dask
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (dict(engine="tcp://127.0.0.1:1"), ["'tcp://127.0.0.1:1' does not answer", "tcp://HOST:PORT", "after 1 s"]),
        (dict(engine="somewhere"), ["engine = 'somewhere'", "tcp://HOST:PORT"]),
        (dict(engine="http://127.0.0.1:80"), ["'http://127.0.0.1:80'"]),
        (dict(device="auto"), ["'auto'", "cpu, cuda"]),
        (dict(backend="process"), ["'process'", "serial"]),
    ],
    ids=str,
)
def test_what_does_not_fit_is_said_at_once(store, monkeypatch, options, said):
    monkeypatch.setattr(cluster, "CONNECT", 1)
    with pytest.raises(BadValue) as error:
        run_all(runs(62), store, **{"engine": "tcp://127.0.0.1:1", **options})
    assert all(words in str(error.value) for words in said) and "\n" not in str(error.value)


def test_without_dask_the_error_says_what_to_install(store, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    result = call("sweep", ITEM, "--profile", "smoke", "--engine", "tcp://127.0.0.1:8786")
    assert result.exit_code == 2
    assert (
        result.stderr.strip().splitlines()[-1]
        == "error: --engine needs Dask (the extra 'cluster'): pip install distributed"
    )


# the command without a cluster ----------------------------------------------------------------------------------------


def test_sweep_does_the_runs_and_nothing_else(store, tmp_path, monkeypatch):
    first = call("sweep", ITEM, "pfedsim/fig3_partitions", "--profile", "smoke")
    assert first.exit_code == 0 and "1 runs done, 0 reused, 0 failed" in first.output, first.output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["results"]
    assert all(path.parent.name == "runs" for path in tmp_path.rglob("*.json"))
    monkeypatch.setattr("fedlib.runs.run.simulate_together", lambda *_, **__: pytest.fail("trained again"))
    assert "0 runs done, 1 reused, 0 failed" in call("sweep", ITEM, "--profile", "smoke").output
    assert call("reproduce", ITEM, "--profile", "smoke", "--no-notebooks").exit_code == 0


def test_sweep_reports_failed_runs_and_ends_with_status_1(store):
    for _ in range(2):  # the second time from the store
        result = call("sweep", ITEM, "--profile", "smoke", "--set", "lr=1e30")
        assert result.exit_code == 1 and "0 runs done, 0 reused, 1 failed" in result.output
        assert "FAILED " in result.output and "training diverged" in result.output


@pytest.mark.parametrize(
    ("options", "said"),
    [(("--jobs", 2, "--engine", "tcp://127.0.0.1:1"), "jobs = 2"), (("--profile", "fast"), "'fast'")],
    ids=str,
)
def test_sweep_refuses_options_that_mean_nothing(store, options, said):
    result = call("sweep", ITEM, *options)
    assert result.exit_code == 2 and said in result.stderr and len(result.stderr.strip().splitlines()) == 1
