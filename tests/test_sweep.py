"""Many runs: groups of seeds, failing runs, killed workers;
and what is printed about the backend."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections import namedtuple
from dataclasses import replace
from types import SimpleNamespace

import psutil
import pytest
import torch
from helpers import exact, made_up, tiny

from fedlib.base.errors import FedlibError, OutOfTime
from fedlib.claims import INCONCLUSIVE, NOT_REPRODUCED, REPRODUCED
from fedlib.engine import checkpoint, worker_processes
from fedlib.engine import simulate as engine
from fedlib.engine.backends import pick
from fedlib.engine.setup import set_up
from fedlib.engine.simulate import simulate
from fedlib.experiments import OpenItem, find
from fedlib.runs import run, sweep
from fedlib.runs.run import OtherPrograms, get_or_run
from fedlib.runs.store import Store
from fedlib.runs.sweep import check_inputs, run_all, same_but_seed, training_samples
from fedlib.spec import RunSpec

pytestmark = pytest.mark.usefixtures("home")


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


def test_missing_data_is_said_before_anything_is_trained(store, monkeypatch):
    monkeypatch.setattr(run, "simulate_together", lambda *_, **__: pytest.fail("training began"))
    with pytest.raises(FedlibError, match="nothing_like_this"):
        run_all([tiny("fedavg"), tiny("fedavg", dataset="nothing_like_this")], store, jobs=1)


def test_inputs_are_checked_once_each(monkeypatch):
    drawn = []
    monkeypatch.setattr(RunSpec, "divide", lambda spec, dataset: drawn.append(spec.partition_seed))
    check_inputs([tiny(m, seed=s) for m in ("fedavg", "local") for s in range(3)] + [tiny("local", partition_seed=7)])
    assert drawn == [0, 7]


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
    assert len(asked) == 3  # the queue and the processes of the sweep, the processes of the run


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


def test_a_trace_of_the_second_round(tmp_path):
    simulate(tiny("local"), step="torch", trace=tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert any("convolution" in str(event.get("name")) for event in events)


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
    result = run.get_or_run(spec, store, progress=seen.append)
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


# how busy the machine is ----------------------------------------------------------------------------------------------

Times = namedtuple("Times", "user nice system idle iowait irq guest")
Own = namedtuple("Own", "user system children_user children_system")


class Machine:
    """Two cores, of which time is told by hand."""

    def __init__(self):
        self.all, self.own, self.children, self.now = (
            Times(100.0, 0, 20.0, 500.0, 5.0, 1.0, 30.0),
            Own(7, 1, 2, 0),
            [],
            50.0,
        )

    def put_in_place(self, monkeypatch):
        process = SimpleNamespace(cpu_times=lambda: self.own, children=lambda recursive: self.children)
        faked = SimpleNamespace(
            cpu_times=lambda: self.all, cpu_count=lambda: 2, Process=lambda: process, Error=psutil.Error
        )
        monkeypatch.setattr(run, "psutil", faked)
        monkeypatch.setattr(run.time, "monotonic", lambda: self.now)


@pytest.fixture
def machine(monkeypatch):
    made = Machine()
    made.put_in_place(monkeypatch)
    return made


def passes(machine, seconds: float, busy: float, own: Own) -> None:
    machine.now += seconds
    machine.all = machine.all._replace(user=machine.all.user + busy, idle=machine.all.idle + 2 * seconds - busy)
    machine.own = Own(*(a + b for a, b in zip(machine.own, own)))


@pytest.mark.parametrize(("busy", "share"), [(10.0, 0.0), (15.0, 0.25), (20.0, 0.5), (9.0, 0.0)])
def test_share_is_what_is_busy_without_this_process_and_its_children(machine, busy, share):
    with OtherPrograms() as others:
        passes(machine, 10.0, busy, Own(6, 1, 2, 1))
    assert others.share == share


def test_children_that_still_run_are_own_and_what_they_took_before_is_not_counted(machine):
    child = SimpleNamespace(cpu_times=lambda: (100.0, 3.0, 0, 0))
    gone = SimpleNamespace(cpu_times=lambda: (_ for _ in ()).throw(psutil.NoSuchProcess(1)))
    machine.children = [child, gone]
    with OtherPrograms() as others:
        passes(machine, 10.0, 18.0, Own(4, 0, 0, 0))
        child.cpu_times = lambda: (108.0, 3.0, 0, 0)
    assert others.share == 0.3  # 18 busy, 4 and 8 are own, of 20


def test_a_stored_run_says_how_busy_the_machine_was(tmp_path):
    spec = tiny("fedavg", rounds=1)
    first = get_or_run(spec, Store("smoke", tmp_path))
    assert 0 <= first.provenance["load"] <= 1
    assert get_or_run(spec, Store("smoke", tmp_path)).provenance == first.provenance


def table7(loads: list[float | None]) -> OpenItem:
    """Table 7 of made-up runs: pFedSim takes what FedAvg takes, FedFomo and FedGen twice as long."""
    item = OpenItem(find("pfedsim/table7_overhead"), "quick")
    slow, results = {"fedfomo": 2.0, "fedgen": 2.0}, []
    for k, spec in enumerate(item.specs):
        sent, noise = {"floats": 1000}, 1 + 0.001 * (-1) ** k
        origin = {} if loads[k % len(loads)] is None else {"load": loads[k % len(loads)]}
        results.append(replace(
            made_up(spec, 0.8), seconds={"per_sample": 1e-4 * slow.get(spec.method, 1.0) * noise},
            communication={"down": sent, "up": sent}, provenance=origin,
        ))  # fmt: skip
    item.__dict__["results"] = results
    return item


def test_claims_about_seconds_are_inconclusive_where_other_programs_were_busy():
    quiet, busy, unknown = (table7(loads) for loads in ([0.0, 0.04], [0.0, 0.0, 0.4], [None]))
    decided = {REPRODUCED, NOT_REPRODUCED}
    assert {v.status for claim, v in quiet.checked if claim.kind == "paper"} == {REPRODUCED}
    assert {v.status for claim, v in busy.checked if claim.kind == "paper"} == {INCONCLUSIVE}
    for item, said in ((quiet, "up to 4% of the CPU"), (busy, "up to 40% of the CPU, more than 10%"),
                       (unknown, "machine load was not recorded")):  # fmt: skip
        assert all(said in v.evidence for claim, v in item.checked if claim.kind == "paper")
        (check,) = (v for claim, v in item.checked if claim.kind == "check")  # what is sent does not depend on time
        assert check.status in decided and "machine" not in check.evidence
    assert {v.status for claim, v in unknown.checked if claim.kind == "paper"} == {REPRODUCED}
    assert all("machine" not in v.evidence for _, v in OpenItem(find("pfedsim/fig3_partitions"), "smoke").checked)
