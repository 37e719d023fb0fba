"""The same bits on every CPU: under what may vary between machines all methods end as final_states.json says."""

import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import final_states
import pytest
from helpers import get_or_run, tiny

import fedlib
from fedlib import algorithms
from fedlib.base import same_bits
from fedlib.base.errors import FedlibError
from fedlib.base.provenance import provenance
from fedlib.engine.setup import find_device
from fedlib.experiments import OpenItem, chosen, find
from fedlib.models.fused import build

X86 = platform.machine() in ("x86_64", "AMD64")
HELD = list(same_bits.settings())
LARGE = "pfedcs/table1_pathological"
needs_x86 = pytest.mark.skipif(not X86, reason="NO x86 PROCESSOR: variants of its vectors were NOT compared")


def python(*arguments: str, **environment: str) -> subprocess.CompletedProcess:
    clean = {
        name: value for name, value in os.environ.items() if name not in (*HELD, "FEDLIB_FAST", "FEDLIB_TOLD_BITS")
    }
    return subprocess.run(
        [sys.executable, *arguments], env=clean | environment, capture_output=True, text=True, timeout=600
    )


def test_square_roots_are_not_taken_by_what_no_setting_holds():
    """torch.sqrt is MKL's, which looks at the processor itself; torch.optim.Adam takes it. Two CPUs showed it."""
    files = [path for path in Path(fedlib.__file__).parent.rglob("*.py") if path.parent.name != "benchmarks"]
    held_by_none = re.compile(r"torch\.sqrt\(|(?<!np)\.sqrt\(\)|torch\.optim\.")
    assert len(files) > 200 and not [path for path in files if held_by_none.search(path.read_text())]


def test_every_method_has_a_hash():
    there = {*algorithms.names(), *final_states.NETS, *final_states.TABLES}
    assert set(json.loads(final_states.FILE.read_text())) == there


OTHERS = "OMP_NUM_THREADS=2 OPENBLAS_NUM_THREADS=2" + " MKL_ENABLE_INSTRUCTIONS=AVX2 OPENBLAS_CORETYPE=Zen" * X86


@pytest.mark.parametrize(
    "options, changed",
    [
        pytest.param((), "", id="this machine"),
        pytest.param(("--flags=-mavx2 -mfma",) * X86, OTHERS, id="vectors of 8, other libraries' kernels, two threads"),
        pytest.param(("--backend=process",), "", id="two processes"),
        pytest.param((), "CXX=clang++", id="another compiler"),
    ],
)
def test_all_methods_end_in_the_same_states(options, changed):
    changed = dict(pair.split("=") for pair in changed.split())
    if changed.get("CXX") and not build.shutil.which(changed["CXX"]):
        pytest.skip("NO clang++: steps compiled by it were NOT compared")
    done = python(final_states.__file__, *options, **changed)
    assert done.returncode == 0, done.stderr


@needs_x86
def test_without_the_settings_bits_may_differ_and_steps_of_pytorch_have_others():
    done = python(final_states.__file__, "--step=torch", "fedavg")
    assert "other bits than in final_states.json: fedavg" in done.stderr  # so that the hashes see a last digit


def test_importing_fedlib_holds_the_settings_before_pytorch_is_loaded():
    code = "import fedlib, os, sys; assert 'torch' not in sys.modules and 'numpy' not in sys.modules; import torch; "
    code += (
        "print(torch.backends.cpu.get_cpu_capability(), torch.get_num_threads(), fedlib.base.same_bits.arithmetic())"
    )
    done = python("-c", code)
    assert done.stdout.split() == [*(["AVX2"] if X86 else ["DEFAULT"]), "1", "portable"] and not done.stderr


def test_what_comes_too_late_or_is_set_otherwise_is_said_in_one_line():
    show = "; from fedlib.base.same_bits import arithmetic; print(arithmetic())"
    late = python("-c", "import torch, fedlib" + show)
    assert late.stdout.strip() == "other"
    assert late.stderr.splitlines() == [
        "fedlib: PyTorch was imported before fedlib; numbers may differ in their last digits from those of other CPUs"
    ]
    odd = python("-c", "import fedlib" + show, MKL_CBWR="AVX2", OMP_NUM_THREADS="2")
    assert odd.stdout.strip() == "other"
    assert len(odd.stderr.splitlines()) == 1 and "OMP_NUM_THREADS=2" in odd.stderr


def test_children_have_the_settings_and_are_silent():
    child = "import subprocess, sys, fedlib; subprocess.run([sys.executable, '-c', 'import torch, fedlib']); "
    done = python("-c", child + "print(fedlib.base.same_bits.arithmetic())")
    assert done.stdout.strip() == "portable" and not done.stderr


def test_fast_leaves_everything_and_is_recorded():
    code = "import fedlib, os; from fedlib.base.same_bits import arithmetic; print(arithmetic(), *map(os.environ.get, "
    done = python("-c", code + f"{HELD}))", FEDLIB_FAST="1")
    assert done.stdout.split() == ["fast", *["None"] * len(HELD)] and not done.stderr


def test_a_result_says_with_which_arithmetic_it_was_made(monkeypatch):
    assert provenance(find_device("cpu"), "serial")["arithmetic"] == same_bits.arithmetic()
    monkeypatch.setenv("FEDLIB_FAST", "1")
    assert provenance(find_device("cpu"), "serial")["arithmetic"] == "fast"


def test_runs_of_two_arithmetics_are_not_compared_and_can_be_renewed(tmp_path, monkeypatch):
    item = OpenItem(find("pfedsim/fig4_workflow"), "smoke", root=tmp_path, jobs=1)
    specs = [tiny("fedavg", seed=seed) for seed in (0, 1)]
    item.specs, item.runs = specs, dict(enumerate(specs))
    get_or_run(specs[0], item.store)
    monkeypatch.setenv("FEDLIB_FAST", "1")
    get_or_run(specs[1], item.store)
    monkeypatch.delenv("FEDLIB_FAST")
    with pytest.raises(
        FedlibError, match=r"1 with \w+ and 1 with \w+ arithmetic, which are not compared; `fedlib sweep"
    ):
        item.run()
    item.store.renew = True
    assert item.store.get(specs[1]) is None and (same_bits.arithmetic() != "portable" or item.store.get(specs[0]))
    get_or_run(specs[1], item.store)
    assert len(item.run()) == 2


def test_items_with_large_networks_are_fast_at_the_papers_scale_unless_somebody_says_otherwise(tmp_path, monkeypatch):
    begun = []
    monkeypatch.setattr(os, "execve", lambda program, arguments, environment: begun.append(environment))
    monkeypatch.setattr(same_bits, "arithmetic", lambda: "portable")
    monkeypatch.delenv("FEDLIB_FAST", raising=False)
    large, small = OpenItem(find(LARGE), "paper", root=tmp_path), OpenItem(find("pfedsim/fig1_cka"), "paper")
    large.specs = [spec.but(model="resnet18", model_options={}) for spec in large.specs[:1]]
    chosen.go_faster([small])
    assert not begun
    chosen.go_faster([small, large])
    assert begun[0]["FEDLIB_FAST"] == "1"
    assert not set(HELD) & set(begun[0]).difference(
        name for name in HELD if os.environ.get(name) != same_bits.settings()[name]
    )
    monkeypatch.setenv("FEDLIB_FAST", "0")
    chosen.go_faster([large])
    assert len(begun) == 1


def test_tables_partitions_and_mixtures_are_the_same_with_other_threads_and_kernels():
    done = python(final_states.__file__, "--tables", **dict(pair.split("=") for pair in OTHERS.split()))
    assert done.returncode == 0, done.stderr
