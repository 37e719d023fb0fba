"""How busy a machine is with other things, and that claims about seconds are inconclusive when it is."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import replace
from types import SimpleNamespace

import psutil
import pytest
from helpers import get_or_run, made_up, tiny

from fedlib.claims import INCONCLUSIVE, NOT_REPRODUCED, REPRODUCED
from fedlib.experiments import OpenItem, find
from fedlib.runs import run
from fedlib.runs.run import OtherPrograms
from fedlib.runs.store import Store

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
