"""Many runs: groups of seeds, failing runs, killed workers;
and what is printed about the backend."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time

import pytest
import torch
from helpers import exact, tiny

from fedlib.base.errors import BadValue, FedlibError, OutOfTime
from fedlib.engine import checkpoint, worker_processes
from fedlib.engine import simulate as engine
from fedlib.engine.backends import pick
from fedlib.engine.setup import set_up
from fedlib.engine.simulate import simulate
from fedlib.runs import run, sweep
from fedlib.runs.store import Store
from fedlib.runs.sweep import check_inputs, run_all, same_but_seed, training_samples
from fedlib.spec import RunSpec


@pytest.fixture(autouse=True)
def folders(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDLIB_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("FEDLIB_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def store(tmp_path):
    return Store("t", tmp_path)


# groups, order, choice of backend -------------------------------------------------------------------------------------


def test_seeds_are_grouped():
    specs = [tiny(m, seed=k, partition_seed=k) for k in range(3) for m in ("fedavg", "local")]
    assert [[s.seed for s in group] for group in same_but_seed(specs)] == [[0, 1, 2], [0, 1, 2]]


def test_groups_of_seeds_go_into_one_stack_and_are_stored_apart(store):
    specs = [tiny("fedper", seed=k, precision="float64") for k in range(3)]
    results = run_all(specs, store, backend="vmap", jobs=1)
    for spec in specs:
        alone = simulate(spec, backend="serial")
        assert results[spec.id].final("loss") == pytest.approx(alone.final("loss"), abs=1e-9)
        assert exact(store.get(spec)) == exact(results[spec.id]) and results[spec.id].provenance["backend"] == "vmap"


@pytest.mark.parametrize(
    ("device", "samples", "cores", "expected"),
    [
        ("cuda", 0, 1, "vmap"),
        ("cuda", 10**9, 64, "vmap"),
        ("cpu", 10**9, 1, "serial"),
        ("cpu", 1000, 8, "serial"),
        ("cpu", 10**9, 2, "process"),
    ],
)
def test_auto_follows_its_rule(device, samples, cores, expected):
    name, why = pick("auto", torch.device(device), samples, cores)
    assert name == expected and why
    assert all(pick(name, torch.device(device))[0] == name for name in ("serial", "vmap", "process"))


def test_samples_of_a_run():
    """1,797 digits, a quarter for training, half of the clients, 3 rounds of 1 epoch."""
    assert training_samples(tiny("fedavg")) == int(1797 * 0.25 * 0.5 * 3)


def test_the_choice_is_said(store, capfd):
    run_all([tiny("local", rounds=1), tiny("fedavg", rounds=1)], store, jobs=1)
    said = capfd.readouterr().err
    assert "backend serial on cpu" in said and "2 runs, 1 at a time" in said


def test_a_single_long_run_uses_all_cores(store, monkeypatch, capfd):
    monkeypatch.setattr("fedlib.engine.backends.WORTH_WORKERS", 100)
    spec = tiny("fedavg", num_clients=6, join_ratio=1.0)
    result = run_all([spec], store, jobs=2)[spec.id]
    assert result.provenance["backend"] == "process" and "one run alone on 2 cores" in capfd.readouterr().err
    assert exact(result) == exact(simulate(spec, backend="serial"))


# failures -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error", [MemoryError(), OSError(28, "No space left on device"), RuntimeError("something else")]
)
def test_a_failing_run_does_not_stop_the_others(store, monkeypatch, capfd, error):
    good, bad = tiny("fedavg", rounds=1), tiny("local", rounds=1)

    def failing(specs, real=run.simulate_together, **options):
        if specs[0].id == bad.id:
            raise error
        return real(specs, **options)

    monkeypatch.setattr(run, "simulate_together", failing)
    results = run_all([bad, good], store, jobs=1)
    assert results[good.id].status == "finished" and isinstance(results[bad.id], FedlibError)
    assert type(error).__name__ in str(results[bad.id])
    assert isinstance(error, OSError) or "Traceback" in capfd.readouterr().err  # a full disk is one line
    monkeypatch.undo()
    assert run_all([bad, good], store, jobs=1)[bad.id].status == "finished"  # and the next call does what is missing


def test_a_diverged_run_is_a_result(store):
    wild, calm = tiny("fedavg", lr=1e15), tiny("fedavg")
    results = run_all([wild, calm], store, jobs=2)
    assert (results[wild.id].status, results[calm.id].status) == ("diverged", "finished")


def test_missing_data_is_said_before_anything_is_trained(store, monkeypatch):
    monkeypatch.setattr(run, "simulate_together", lambda *_, **__: pytest.fail("training began"))
    with pytest.raises(FedlibError, match="nothing_like_this"):
        run_all([tiny("fedavg"), tiny("fedavg", dataset="nothing_like_this")], store, jobs=1)


def test_inputs_are_checked_once_each(monkeypatch):
    drawn = []
    monkeypatch.setattr(RunSpec, "divide", lambda spec, dataset: drawn.append(spec.partition_seed))
    check_inputs([tiny(m, seed=s) for m in ("fedavg", "local") for s in range(3)] + [tiny("local", partition_seed=7)])
    assert drawn == [0, 7]


@pytest.mark.parametrize("jobs", [0, -1])
def test_jobs_below_one_are_refused(store, jobs):
    with pytest.raises(BadValue, match="jobs"):
        run_all([tiny("local")], store, jobs=jobs)


def test_a_killed_worker_process_costs_no_run(store, tmp_path):
    """SIGKILL to one of two workers in the middle of three runs: all end as if nothing had happened."""
    specs, killed = [tiny("fedavg", seed=k, rounds=25, eval_every=25, local_epochs=5) for k in range(3)], []

    def kill():
        while len(children := multiprocessing.active_children()) < 2:
            time.sleep(0.05)
        while not list((tmp_path / "t" / "runs" / ".locks").glob("*")):
            time.sleep(0.05)
        time.sleep(0.5)
        os.kill(children[0].pid, signal.SIGKILL)
        killed.append(children[0].pid)

    threading.Thread(target=kill, daemon=True).start()
    results = run_all(specs, store, jobs=2)
    assert killed and [exact(results[s.id]) for s in specs] == [exact(simulate(s)) for s in specs]
    assert not list((tmp_path / "cache" / "checkpoints").glob("*"))


@pytest.mark.skipif(sys.platform == "win32", reason="NO PIPES OF POSIX ON THIS SYSTEM: reports were NOT tested")
def test_a_report_is_written_as_a_whole_and_without_a_lock(monkeypatch):
    """A pipe writes up to 512 bytes at once on every POSIX system. A lock would stay with a worker that is killed."""
    reader, writer = worker_processes.context().Pipe(duplex=False)
    monkeypatch.setattr(sweep, "_do", lambda progress, group: progress(10**9))
    sweep._connect(writer)
    sweep._job([tiny("local")] * 1000)
    assert not hasattr(sweep._report, "_wlock") and 0 < len(os.read(reader.fileno(), 2**16)) <= 512


def test_processes_that_are_started_afresh_do_the_same(store, monkeypatch):
    """As on Windows and macOS ("spawn"): two runs side by side, and one run whose clients are in another process."""
    asked = []

    def spawn():
        asked.append(multiprocessing.get_context("spawn"))
        return asked[-1]

    for module in (sweep, worker_processes):
        monkeypatch.setattr(module, "context", spawn)
    specs = [tiny("fedavg", seed=k, rounds=2) for k in range(2)]
    results = run_all(specs, store, jobs=2)
    assert [exact(results[s.id]) for s in specs] == [exact(simulate(s)) for s in specs]
    assert exact(simulate(specs[0], backend="process", workers=1)) == exact(results[specs[0].id])
    assert len(asked) == 4  # the pipe and the two processes of the sweep, the process of the run


def test_a_checkpoint_of_a_group_continues_all_its_runs(monkeypatch):
    """Two seeds in one stack are interrupted after round 2; what continues plays rounds 3 and 4 only and ends as the
    undisturbed ones."""
    specs, played = [tiny("fedper", seed=k, rounds=4) for k in range(2)], []
    whole = [exact(r) for r in engine.simulate_together(specs, backend="vmap")]

    def note(runs, states, t, play=engine.run_round):
        if t == 3 and not played.count("stop"):
            played.append("stop")
            raise KeyboardInterrupt
        played.append(t)
        return play(runs, states, t)

    monkeypatch.setattr(engine, "run_round", note)
    with pytest.raises(KeyboardInterrupt):
        engine.simulate_together(specs, backend="vmap", checkpoint_every=0)
    assert [exact(r) for r in engine.simulate_together(specs, backend="vmap", checkpoint_every=0)] == whole
    assert played == [1, 2, "stop", 3, 4]
    checkpoint.remove_checkpoints(specs)


def test_time_is_booked_by_phase():
    result = simulate(tiny("fedavg", num_clients=6, join_ratio=1.0))
    seconds = result.seconds
    assert set(seconds) == {"data", "step", "train", "server", "evaluate", "wall", "per_sample"}
    assert min(seconds.values()) > 0
    assert seconds["data"] + seconds["step"] <= seconds["train"] + 1e-2
    assert seconds["train"] + seconds["server"] + seconds["evaluate"] <= seconds["wall"] + 1e-2
    trained = sum(len(p) for p in (set_up(result.spec).work.parts[i]["train"] for i in range(6))) * 3
    assert seconds["per_sample"] == pytest.approx((seconds["data"] + seconds["step"]) / trained, rel=0.05)


def test_runs_are_done_in_the_given_order(store, monkeypatch):
    specs, order, real = [tiny("pfedsim"), tiny("fedavg")], [], sweep._do
    monkeypatch.setattr(
        sweep, "_do", lambda progress, group, *more: order.append(group[0].method) or real(progress, group, *more)
    )
    run_all(specs, store, jobs=1)
    assert order == ["pfedsim", "fedavg"]


# a budget of time -----------------------------------------------------------------------------------------------------


class Clock:
    """In place of the module time: every look at time() is a second later; the rest is time's own."""

    def __init__(self):
        self.now = 0.0

    def time(self) -> float:
        self.now += 1
        return self.now

    def __getattr__(self, name):
        return getattr(time, name)


def test_a_run_stops_between_rounds_when_its_time_is_up_and_goes_on(store, monkeypatch):
    """One look before the run, one after each round: with until = 3.5 the third look, after round 2, is the last that
    leaves room (rounds take less than half a second); it stops after round 3."""
    spec, seen = tiny("fedper", rounds=6, eval_every=2), []
    monkeypatch.setattr(engine, "time", Clock())
    done = run_all([spec], store, jobs=1, until=3.5)
    assert isinstance(done[spec.id], OutOfTime) and str(done[spec.id]) == "stopped after round 3 of 6"
    assert store.get(spec) is None
    monkeypatch.setattr(engine, "time", time)
    result = run.get_or_run_together([spec], store, progress=seen.append)[0]
    assert seen[0] == 3 and exact(result) == exact(simulate(spec))


def test_a_round_that_would_end_too_late_is_not_begun(store, monkeypatch):
    """The longest round so far counts, here one with an hour of evaluation."""
    clock, record = Clock(), engine.record
    monkeypatch.setattr(engine, "time", clock)
    monkeypatch.setattr(clock, "monotonic", lambda: hours[0], raising=False)
    hours = [0.0]

    def slow(*given):
        hours[0] += 3600
        return record(*given)

    monkeypatch.setattr(engine, "record", slow)
    spec = tiny("fedavg", rounds=6, eval_every=2)
    with pytest.raises(OutOfTime, match="after round 2 of 6"):
        simulate(spec, until=3000.0)
    with pytest.raises(OutOfTime, match="after round 4 of 6"):
        hours[0], clock.now = 0.0, 0.0
        monkeypatch.setattr(clock, "time", lambda: hours[0])
        simulate(spec, until=2.5 * 3600)


def test_what_is_not_begun_in_time_is_left_and_what_is_finished_is_read(store):
    first, second = tiny("fedavg"), tiny("fedavg", seed=1)
    run_all([first], store, jobs=1)
    for jobs in (1, 2):
        done = run_all([first, second], store, jobs=jobs, until=time.time() - 1)
        assert exact(done[first.id]) == exact(simulate(first))
        assert isinstance(done[second.id], OutOfTime) and str(done[second.id]) == "not begun"
