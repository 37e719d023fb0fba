"""The command line from outside: the main job end to end, exit statuses, and one-line errors that name the value."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from helpers import call, smoke_item

from fedlib import experiments
from fedlib.experiments import OpenItem, chosen, find, names
from fedlib.reports import listings
from fedlib.runs import run
from fedlib.runs.run import get_or_run_together

REAL_DATA = Path(os.environ["FEDLIB_DATA"])  # before tests get a folder of their own
ITEM = "pfedsim/fig2_classifier_similarity"


def test_main_job_leaves_figures_tables_claims_and_a_report(home):
    command = ("reproduce", ITEM, "pfedsim/fig3_partitions", "--profile", "smoke", "--no-notebooks")
    result = call(*command, "--format", "pdf, svg, tex")
    assert result.exit_code == 0, result.output
    assert "2 of 2 items" in result.output
    for name in ("fig2_classifier_similarity", "fig3_partitions"):
        for kind, start in (("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<?xml")):
            assert (home / f"figures/own/smoke/pfedsim/{name}.{kind}").read_bytes().startswith(start)
        assert (home / f"results/own/smoke/pfedsim/{name}.tex").read_text().endswith("\\end{table}\n")
        assert (home / f"results/own/smoke/pfedsim/{name}.csv").stat().st_size > 100
        summary = json.loads((home / f"results/own/smoke/pfedsim/{name}.json").read_text())
        assert summary["claims"] and summary["provenance"][0]["versions"]["torch"]
    report = (home / "results/own/smoke/report.md").read_text()
    assert "not tested" in report and "| pair |" in report
    assert report.count("**Scaled down from the paper:** as little as shows that everything runs.") == 2


def test_a_budget_stops_training_and_the_same_command_continues(home):
    command = ("sweep", ITEM, "--profile", "smoke")
    short = call(*command, "--budget", "0.000001")
    assert short.exit_code == 3 and "0 runs done" in short.output and f"1 runs of {ITEM}" in short.output
    shown = call("reproduce", ITEM, "pfedsim/fig3_partitions", "--profile", "smoke", "--budget", "0.000001")
    assert shown.exit_code == 3 and "1 of 2 items" in shown.output and "(1 of 1 runs are missing)" in shown.output
    whole = call(*command, "--budget", "30")
    assert whole.exit_code == 0 and "1 runs done" in whole.output and "left" not in whole.output
    assert call(*command, "--budget", "0").exit_code == 2
    both = call(*command, "--budget", "5", "--engine", "tcp://127.0.0.1:1")
    assert both.exit_code == 2 and "budget" in both.output


def test_how_long_it_will_take_is_said_and_shared_runs_count_once(home, capsys):
    names = ("fedsimsup/fig2_convergence", "fedsimsup/table1_dirichlet")
    chosen.say_how_long([OpenItem(find(name), "reduced") for name in names], jobs=4)
    assert "144 runs to do: about 4 hours with 4 side by side" in capsys.readouterr().out
    chosen.say_how_long([OpenItem(find(ITEM), "smoke"), OpenItem(find(names[1]), "reduced", seeds=1, lr=0.1)], jobs=1)
    assert capsys.readouterr().out == ""


def test_second_call_trains_nothing_and_changes_nothing(home, monkeypatch):
    assert call("reproduce", ITEM, "--profile", "smoke", "--no-notebooks").exit_code == 0
    table = home / "results/own/smoke/pfedsim/fig2_classifier_similarity.csv"
    before = table.read_bytes()
    monkeypatch.setattr("fedlib.runs.run.simulate_together", lambda *a, **k: pytest.fail("trained again"))
    assert call("reproduce", ITEM, "--profile", "smoke", "--no-notebooks").exit_code == 0
    assert table.read_bytes() == before


def test_an_override_goes_to_a_folder_of_its_own_and_is_marked(home):
    assert call("reproduce", ITEM, "--profile", "smoke", "--seeds", 2, "--no-notebooks").exit_code == 0
    summary = json.loads((home / "results/own/smoke+seeds=2/pfedsim/fig2_classifier_similarity.json").read_text())
    assert summary["changed"] == {"seeds": 2} and len(summary["runs"]) == 2
    assert "Changed on the command line" in (home / "results/own/smoke+seeds=2/report.md").read_text()


def test_more_seeds_use_the_runs_that_the_profile_has(home, monkeypatch):
    assert call("reproduce", ITEM, "--profile", "smoke", "--no-notebooks").exit_code == 0
    trained, real = [], run.simulate_together
    monkeypatch.setattr(
        run, "simulate_together", lambda specs, **o: trained.extend(s.seed for s in specs) or real(specs, **o)
    )
    assert call("reproduce", ITEM, "--profile", "smoke", "--seeds", 2, "--no-notebooks", "--jobs", 1).exit_code == 0
    assert trained == [1]


def test_page_of_a_paper_has_everything(home):
    assert call("reproduce", ITEM, "pfedsim/fig3_partitions", "--profile", "smoke", "--no-notebooks").exit_code == 0
    assert call("report", "pfedsim").exit_code == 2  # a smoke run is no result
    for kind in ("results", "figures"):
        (home / kind / "own/smoke").rename(home / kind / "quick")
    for path in (home / "results/quick/pfedsim").glob("*.json"):
        path.write_text(path.read_text().replace("figures/own/smoke", "figures/quick"))
    result = call("report", "pfedsim")
    assert result.exit_code == 0, result.output
    text = home / "results/pfedsim.md"
    for heading in ("## Scoreboard", "## pFedSim Figure 2", "## pFedSim Figure 3"):
        assert heading in text.read_text()
    assert "nothing has been run yet" in text.read_text() and "arXiv:2305.15706" in text.read_text()
    assert "0.333333" not in text.read_text()  # tables keep more decimals than a reader wants
    assert text.read_text().count("](../figures/quick/") == 2
    bad = call("report", "pfedcs")
    assert bad.exit_code == 2 and "'pfedcs'" in bad.output and "pfedsim" in bad.output


def test_a_failing_item_does_not_stop_the_others(home, monkeypatch):
    def broken(*_):
        raise RuntimeError("no such column")

    bad = dataclasses.replace(find("pfedsim/fig3_partitions"), analyse=broken)
    monkeypatch.setattr(chosen, "find", lambda name: bad if name == bad.name else find(name))
    result = call("reproduce", bad.name, ITEM, "--profile", "smoke", "--no-notebooks")
    assert result.exit_code == 1
    assert "FAILED: RuntimeError: no such column" in result.output and "1 of 2 items" in result.output
    assert (home / "figures/own/smoke/pfedsim/fig2_classifier_similarity.png").exists()


def test_of_several_items_those_are_left_out_that_do_not_run_the_methods(home):
    result = call("reproduce", "pfedcs/table[13]*", "--methods", "local", "--profile", "smoke", "--no-notebooks")
    assert result.exit_code == 0 and "1 of 1 items" in result.output, result.output
    assert "pfedcs/table3_selection: left out, methods of pfedcs/table3_selection = 'local'" in result.output


ERRORS = [
    (("reproduce", "pfedsim/fig1"), ["'pfedsim/fig1'", "pfedsim/fig1_cka"]),
    (("reproduce", "fedavg/*"), ["'fedavg/*'", "pfedsim/table6_rho"]),
    (("reproduce", "--profile", "fast"), ["'fast'", "smoke, quick, reduced, paper"]),
    (("reproduce", ITEM, "--profile", "reduced"), [f"profile of {ITEM} 'reduced'", "smoke, quick, paper"]),
    (("reproduce", "pfedsv/fig11_i*", "--profile", "reduced"), ["profile = 'reduced'", "chosen items have"]),
    (("reproduce", ITEM, "--profile", "smoke", "--step", "fast"), ["unknown step 'fast'", "auto, torch, fused"]),
    (("sweep", ITEM, "--profile", "smoke", "--step", "fast"), ["unknown step 'fast'", "auto, torch, fused"]),
    (("reproduce", "--format", "jpg"), ["figure format 'jpg'", "accepted: png, pdf, svg"]),
    (("reproduce", "--methods", "pfedsims"), ["'pfedsims'", "did you mean pfedsim"]),
    (("reproduce", "fedsimsup/fig3_similarity", "--methods", "local"), ["= 'local'", "it always runs fedsimsup"]),
    (("reproduce", "pfedcs/table3_selection", "--methods", "fedper,ifca"), ["'fedper,ifca'", "of fedper, pfedcs"]),
    (("reproduce", "head_to_head/fig3_worst", "--methods", "ifca"), ["'ifca'", "local, fedavg, fedavg_ft"]),
    (("reproduce", ITEM, "--rounds", 3), ["'rounds'", "dataset, seeds"]),
    (("reproduce", ITEM, "--seeds", -1), ["seeds = -1", "positive"]),
    (("reproduce", ITEM, "--set", "lr=fast"), ["lr = 'fast'", "a number"]),
    (("reproduce", ITEM, "--set", "lrr=1"), ["'lrr'", "did you mean lr"]),
    (("reproduce", ITEM, "--profile", "paper"), ["'cifar10' is not prepared", "here now: digits", "FEDLIB_DATA"]),
    (("reproduce", ITEM, "--profile", "smoke", "--dataset", "../x"), ["'../x'", "letters"]),
    (("reproduce", ITEM, "--profile", "smoke", "--jobs", 0), ["jobs = 0", "at least 1"]),
    (("run", "fedsim"), ["'fedsim'", "did you mean pfedsim"]),
    (("run", "pfedsim", "--set", "rhoo=1"), ["'rhoo'", "did you mean rho"]),
    (("run", "pfedsim", "--set", "rho=2"), ["rho = 2", "from 0 to 1"]),
    (("run", "pfedsim", "--set", "rho"), ["'rho'", "NAME=VALUE"]),
    (("run", "pfedsim", "--set", 'rho="much"'), ["rho = 'much'", "a number"]),
    (("run", "fedavg", "--lr", 0), ["lr = 0.0", "positive"]),
    (("run", "fedavg", "--clients", 100, "--min-size", 40), ["min_size = 40", "4000", "1797"]),
    (("run", "fedavg", "--device", "tpu"), ["'tpu'", "auto, cpu, cuda"]),
    (("run", "fedavg", "--backend", "ray"), ["'ray'", "serial, vmap"]),
    (("data", "cifer10"), ["'cifer10'", "here now: digits"]),
    (("report", "--profile", "paper"), ["'paper'", "fedlib reproduce --profile paper"]),
]


@pytest.mark.parametrize(("args", "said"), ERRORS, ids=[" ".join(map(str, a)) for a, _ in ERRORS])
def test_bad_input_is_one_clear_line_and_status_2(home, args, said):
    result = call(*args)
    assert result.exit_code == 2, result.output
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("error: ")
    for words in said:
        assert words in lines[0]
    assert not (home / "results").exists() or not list((home / "results").rglob("runs/*.json"))


def test_damaged_stored_run_is_kept_aside_and_done_again(home):
    assert call("reproduce", ITEM, "--profile", "smoke", "--no-notebooks").exit_code == 0
    (stored,) = (home / "results/smoke/runs").glob("*.json")
    whole = json.loads(stored.read_text())
    stored.write_text(stored.read_text()[:-40])
    with pytest.warns(UserWarning, match="is damaged"):
        assert call("reproduce", ITEM, "--profile", "smoke", "--no-notebooks").exit_code == 0
    assert list(stored.parent.glob("*.damaged"))
    assert json.loads(stored.read_text())["history"] == whole["history"]


def test_run_prints_the_curve_and_stores_it(home):
    args = ("run", "pfedsim", "--clients", 4, "--rounds", 3, "--set", "rho=0.34", "--set", "local_epochs=1")
    first = call(*args)
    assert first.exit_code == 0, first.output
    assert "round    3:" in first.output and "evaluated: after local training (post)" in first.output
    assert call(*args).stdout == first.stdout


def test_ones_own_images_run_end_to_end(home, tmp_path):
    """A folder of pictures of two colours, one folder each: downloaded nothing, prepared, trained, tested;
    learned what is learnable."""
    from PIL import Image

    shades = np.random.default_rng(0)
    for name, colour in (("red ones", (200, 30, 30)), ("blue_ones", (30, 30, 200))):
        (tmp_path / "mine" / name).mkdir(parents=True)
        for k in range(30):
            pixels = np.clip(np.array(colour) + shades.integers(-25, 26, (20, 24, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(tmp_path / "mine" / name / f"{k}.png")
    data = ("--dataset", f"folder:{tmp_path / 'mine'}@16")
    task = ("--clients", 3, "--join-ratio", 1, "--rounds", 8, "--alpha", 1, "--min-size", 6)
    result = call("run", "fedavg", *data, *task)
    assert result.exit_code == 0, result.output
    last = float(result.stdout.split("round    8:")[1].split("%")[0])
    assert last > 80


@pytest.mark.skipif(
    not (REAL_DATA / "cifar10").is_dir(), reason="REAL CIFAR-10 NOT TESTED: $FEDLIB_DATA/cifar10 is absent"
)
def test_real_cifar10_runs_end_to_end(home, monkeypatch):
    monkeypatch.setenv("FEDLIB_DATA", str(REAL_DATA))
    options = ("--dataset", "cifar10", "--clients", 100, "--join-ratio", 0.02, "--rounds", 1)
    result = call("run", "fedper", *options, "--set", 'eval_points=["recv"]')
    assert result.exit_code == 0 and "round    1:" in result.stdout


def test_smoke_is_not_published():
    result = call("reproduce", ITEM, "--profile", "smoke", "--refresh")
    assert result.exit_code == 2 and "'smoke'" in result.output and "quick" in result.output


@pytest.mark.parametrize("option", ["--items", "--methods", "--datasets", "--partitioners", "--models"])
def test_list_shows_a_part(home, option):
    from fedlib.data import DATASETS
    from fedlib.data.partition import SCHEMES
    from fedlib.models import MODELS

    every = {
        "--items": names(),
        "--methods": ("pfedsim", "fedper"),
        "--datasets": DATASETS,
        "--partitioners": SCHEMES,
        "--models": MODELS,
    }
    shown = call("list", option).stdout
    assert all(name in shown for name in every[option])
    others = {name for part, some in every.items() if part != option for name in some}
    assert not any(line.split()[:1] == [name] for line in shown.splitlines() for name in others - {"digits"})


def test_list_and_data_show_what_there_is(home):
    listed = call("list").output
    for name in (*names(), "pfedsim", "fedper", "digits", "dirichlet", "lenet5_bn"):
        assert name in listed
    assert "1797 images" in call("data", "digits").output
    assert "terms and papers" in call("data").output and "terms and papers" not in listed
    heart = call("data", "heart").output
    assert "920 samples of 13 features" in heart and "Zurich and Basel 123" in heart
    assert "terms: CC BY 4.0" in heart and all(name in heart for name in ("Janosi", "Steinbrunn", "Pfisterer", "UCI"))
    assert "heart" in call("list", "--datasets").output


def test_help_of_every_command(home):
    for command in ("reproduce", "list", "run", "report", "data"):
        result = call(command, "--help")
        assert result.exit_code == 0 and "--help" in result.output


def results_of(home) -> dict:
    """What must not depend on interruptions: histories and arrays of all runs."""
    out = {}
    for path in sorted((home / "results/smoke/runs").glob("*.json")):
        body = json.loads(path.read_text())
        with np.load(path.with_suffix(".npz")) as arrays:
            out[path.name] = (body["history"], {name: arrays[name].tolist() for name in arrays.files})
    return out


@pytest.mark.parametrize(("how", "times"), [(signal.SIGKILL, 2), (signal.SIGINT, 1)])
def test_interrupted_main_job_continues_with_identical_numbers(tmp_path, how, times):
    """The main job with two workers is interrupted at random moments and then gets through;
    its results equal those of one process that was left alone."""
    command = [sys.executable, "-c", "from fedlib.cli import main; main()"]
    command += ["reproduce", "pfedsim/table6_rho", "--profile", "smoke", "--no-notebooks", "--jobs", "2"]
    places = {"FEDLIB_HOME": str(tmp_path), "FEDLIB_CACHE": str(tmp_path / "cache")}
    environment = {name: value for name, value in os.environ.items() if name != "FEDLIB_PROFILE"} | places
    moments = random.Random(int(how))
    for interruption in range(times):
        job = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert job.stdout.readline()  # it has begun, however slow this machine is
        time.sleep(moments.uniform(0, 5))
        job.send_signal(how)
        job.communicate(timeout=600)
        status = job.returncode
        ends = (0, -signal.SIGKILL) if how is signal.SIGKILL else (0, 130)
        assert status in ends, f"interruption {interruption}: status {status}"
    subprocess.run(command, env=environment, check=True, capture_output=True, timeout=600)
    alone = smoke_item("pfedsim/table6_rho")
    alone.run()
    found, wanted = results_of(tmp_path), results_of(alone.root)
    assert len(found) == len(alone.specs) and found == {name: wanted[name] for name in found}


def test_finished_runs_are_shown_without_training_and_what_is_missing_is_said(home, monkeypatch):
    """Of Table 3 in the smoke profile only one method is there."""
    item = OpenItem(find("pfedsim/table3_accuracy"), "smoke")
    for spec in item.specs:
        if spec.method == "local":
            get_or_run_together([spec], item.store)
    monkeypatch.setattr("fedlib.runs.run.simulate_together", lambda *a, **k: pytest.fail("trained"))
    result = call("reproduce", "pfedsim/table3_accuracy", ITEM, "--profile", "smoke", "--finished")
    assert result.exit_code == 0 and re.search(rf"{ITEM} +not run yet \(1 of 1 runs are missing\)", result.output)
    assert "1 of 2 items in" in result.output and "(22 of 24 runs are missing)" in result.output
    assert "notebooks:" not in result.output
    text = (home / "results/own/smoke/report.md").read_text()
    assert "**22 of 24 runs are missing.** <sub>FedAvg digits Dir(0.1), " in text and "| Local |" in text
    summary = json.loads((home / "results/own/smoke/pfedsim/table3_accuracy.json").read_text())
    assert len(summary["missing"]) == 22 and len(summary["runs"]) == 24
    assert call("reproduce", ITEM, "--profile", "smoke", "--finished").exit_code == 1  # nothing at all to show


def test_an_item_is_known_by_its_file_and_by_the_first_word_of_it(home):
    assert experiments.full_name("table6_rho") == experiments.full_name("table6") == "pfedsim/table6_rho"
    shown = call("reproduce", "table6", "--profile", "smoke", "--finished", "--no-notebooks").output
    assert "pfedsim/table6_rho " in shown and "0 of 1 items" in shown
    result = call("reproduce", "notes")
    assert result.exit_code == 2 and "item = 'notes' is not accepted" in result.output
    assert "pfedcs/notes" in result.output and "head_to_head/notes" in result.output


def test_a_list_of_everything_declares_no_runs(home, monkeypatch):
    """Which takes seconds; with --items they are counted."""
    monkeypatch.setattr(listings, "OpenItem", lambda *_: pytest.fail("declared"))
    assert "pfedsim/table6_rho" in call("list").output
    with pytest.raises(pytest.fail.Exception):
        listings.list_items()
