"""`fedlib why`: from labels to runs, with their files, without them, and back by a command."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path

import pandas as pd
import pytest
from helpers import call

from fedlib.base.errors import BadValue
from fedlib.experiments import OpenItem, find, names
from fedlib.reports.saved import parts
from fedlib.reports.why import asked, options_of, saved, why
from fedlib.runs.store import Store
from fedlib.spec import RunSpec

PROJECT = Path(__file__).parent.parent
TABLE3 = "pfedsim/table3_accuracy"


@pytest.fixture
def published(monkeypatch):
    monkeypatch.setenv("FEDLIB_HOME", str(PROJECT))


def test_labels_are_explained_by_the_files_of_their_runs(published):
    """Everything that the stored run holds, and nothing that it does not."""
    spec = OpenItem(find(TABLE3), "paper").runs["pfedsim", "Dir(0.1)", 0]
    stored = Store("paper").get(spec)
    text = why(TABLE3, ["pFedSim", "Dir(0.1)"], "paper")
    assert f"run {spec.id}, seed 0, partition {stored.partition['checksum']}" in text
    assert (
        f"last round {100 * stored.final():.2f} % pooled ({100 * stored.final('client_mean'):.2f} client mean" in text
    )
    assert stored.provenance["commit"] in text and stored.provenance["device"] in text
    assert "dataset = cifar10" in text and "rounds = 200" not in text  # 200 is the default
    assert "paper: 3 runs\n" in text and "not here" not in text


def test_what_was_saved_with_an_item_tells_the_same_when_the_run_files_are_gone(home):
    item = "pfedsim/fig2_classifier_similarity"
    assert call("reproduce", item, "--profile", "smoke", "--seeds", 2, "--no-notebooks").exit_code == 0
    args = ("why", item, "--profile", "own/smoke+seeds=2")  # of one setting
    first = call(*args)
    assert first.exit_code == 0 and "not here" not in first.output and first.output.count("  run ") == 2
    shutil.rmtree(home / "results/smoke+seeds=2/runs")
    second = call(*args)
    assert second.exit_code == 0 and "what is said of them was saved with the item" in second.output
    told = [[line for line in text.splitlines() if line.startswith(("  run", "    ", "  again"))]
            for text in (first.output, second.output)]  # fmt: skip
    assert told[0] == told[1] and any("last round" in line for line in told[0])


def test_without_a_label_what_can_be_asked_and_for_an_unknown_one_the_nearest(published):
    listed = call("why", TABLE3).output
    assert "  local | fedavg | " in listed and "\n  Dir(0.1) | Dir(0.5)\n  0 | 1 | 2" in listed
    for args, said in (
        ((TABLE3, "pfedsimm"), ["'pfedsimm'", "did you mean pfedsim"]),
        ((TABLE3, "pfedsim", "fedavg"), ["all of 'pfedsim', 'fedavg'"]),
        (("pfedsim/table33",), ["'pfedsim/table33'", TABLE3]),
        ((TABLE3, "local", "--profile", "own/paper+rounds=3"), ["own/paper+rounds=3", f"fedlib reproduce {TABLE3}"]),
    ):
        result = call("why", *args)
        assert result.exit_code == 2, result.output
        (line,) = result.stderr.strip().splitlines()
        assert line.startswith("error: ") and all(words in line for words in said)


def test_a_run_can_be_asked_for_by_its_id_and_tables_without_runs_have_none(published):
    spec = OpenItem(find(TABLE3), "paper").runs["fedbn", "Dir(0.5)", 0]
    for id in (spec.id, spec.id[:8]):
        text = why(TABLE3, [id], "paper")
        assert text.count("  run ") == 1 and f"run {spec.id}" in text
    assert "no run is behind it" in why("pfedsim/fig3_partitions")


def test_many_settings_are_listed_a_line_each(published):
    text = why(TABLE3, ["Dir(0.1)"], "paper")
    assert "12 settings: name another text" in text and "again: fedlib run" not in text
    assert [line for line in text.splitlines() if line.startswith("  fedrep ")][0].count("%") == 1


@pytest.mark.parametrize("name", names())
def test_every_run_of_committed_results_can_be_asked_for(name, published):
    of = saved(name)
    for key, spec in of.runs.items():
        assert spec in asked(of, parts(key)).values() and asked(of, [spec.id])


@pytest.mark.parametrize("name", names())
def test_the_command_that_is_given_makes_the_same_run(name, monkeypatch, home):
    """Of every method and set of options of the item one run, by what `fedlib run` would train."""
    seen = []

    def run_all(specs, *_, **__):
        seen.extend(specs)
        raise BadValue("not trained")

    monkeypatch.setattr("fedlib.runs.sweep.run_all", run_all)
    for profile in find(name).settings:
        specs = [spec for spec in OpenItem(find(name), profile).specs if isinstance(spec, RunSpec)]
        for spec in {(spec.method, tuple(spec.hyper.items()), spec.dataset): spec for spec in specs}.values():
            seen.clear()
            assert call("run", spec.method, *shlex.split(" ".join(options_of(spec)))).exit_code == 2
            assert seen == [spec]


def test_the_saved_curve_is_the_runs(home):
    """origins.csv, beside the tables: one row a run, as the run file has it."""
    item = "pfedsim/fig2_classifier_similarity"
    assert call("reproduce", item, "--profile", "smoke", "--no-notebooks").exit_code == 0
    (line,) = (home / "results/own/smoke/pfedsim/fig2_classifier_similarity.origins.csv").read_text().splitlines()[1:]
    (stored,) = (json.loads(p.read_text()) for p in (home / "results/smoke/runs").glob("*.json"))
    last = [h for h in stored["history"] if h["headline"]][-1]
    assert f",{100 * last['pooled']:.2f}," in line and stored["partition"]["checksum"] in line
    assert line.endswith(',0,"four subsets, 0"')  # its origin and its key


@pytest.mark.parametrize("name", names())
def test_saved_runs_are_called_as_the_item_calls_them_now(name):
    """Else `fedlib reproduce` finds a difference from what comes with fedlib where no number differs."""
    for profile in find(name).settings:
        path = PROJECT / f"results/{profile}/{name}.origins.csv"
        if path.exists():
            labels = {spec.id: spec.label for spec in OpenItem(find(name), profile).specs}
            saved = pd.read_csv(path).set_index("run")["label"].to_dict()
            assert saved == {run: labels[run] for run in saved}
