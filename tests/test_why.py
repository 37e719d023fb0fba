"""`fedlib why`: from a row to its runs, with their files, without them, and back by a command."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path

import pytest
from helpers import call

from fedlib.base.errors import BadValue
from fedlib.experiments import OpenItem, find, names
from fedlib.reports.why import asked, options_of, readings, saved, why
from fedlib.runs.store import Store
from fedlib.spec import RunSpec

PROJECT = Path(__file__).parent.parent
TABLE3 = "pfedsim/table3_accuracy"


@pytest.fixture
def published(monkeypatch):
    monkeypatch.setenv("FEDLIB_HOME", str(PROJECT))


def test_a_row_is_explained_by_the_files_of_its_runs(published):
    """Everything that the stored run holds, and nothing that it does not."""
    spec = OpenItem(find(TABLE3), "paper").runs["pfedsim", "Dir(0.1)", 0]
    stored = Store("paper").get(spec)
    text, (rounds, curve) = why(TABLE3, ["pFedSim", "Dir(0.1)"], "paper"), stored.curve()
    best = max(curve)
    assert f"run {spec.id}, seed 0, partition {stored.partition['checksum']}" in text
    assert f"last round {100 * curve[-1]:.2f} % of all test samples ({100 * stored.final('client_mean'):.2f} as" in text
    assert f"best round {100 * best:.2f} % (round {rounds[curve.index(best)]})" in text and best > curve[-1]
    assert (
        stored.provenance["commit"] in text
        and stored.provenance["device"] in text
        and f"by round: {rounds[0]} {100 * curve[0]:.1f}, " in text
    )
    assert "dataset = cifar10" in text and "rounds = 200" not in text  # 200 is the default
    assert "phi_refresh = cosampled   [phi_refresh: the pairs" in text
    assert "3 runs behind" in text and "not here" not in text
    assert "rounds = 200" in why(TABLE3, ["pFedSim", "Dir(0.1)"], "paper", whole=True)


def test_where_nothing_of_runs_was_saved_it_says_so_and_draws_the_partition_again(home):
    """As results were before they came with their `origins`."""
    folder = Path("results/quick") / TABLE3
    (home / folder).parent.mkdir(parents=True)
    for file in (PROJECT / folder).parent.glob(f"{folder.name}.*"):
        if "origins" not in file.name:
            shutil.copy(file, home / folder.parent)
    spec = OpenItem(find(TABLE3), "quick").runs["fedrep", "Dir(0.5)", 0]
    text = why(TABLE3, ["fedrep", "Dir(0.5)"], "quick")
    assert "1 run file of 1 not here: settings follow from ids" in text
    assert f"`fedlib sweep {TABLE3} --profile quick`" in text
    assert f"run {spec.id}, seed 0, partition " in text and "last round" not in text
    other = why(TABLE3, ["local", "Dir(0.5)"], "quick")  # all methods of a column share their clients
    checksum = text.partition("partition ")[2].split()[0]
    assert len(checksum) == 16 and f"partition {checksum}" in other


def test_what_was_saved_with_an_item_tells_the_same_when_the_run_files_are_gone(home):
    item = "pfedsim/fig2_classifier_similarity"
    assert call("reproduce", item, "--profile", "smoke", "--seeds", 2, "--no-notebooks").exit_code == 0
    args = ("why", item, "i-j", "--profile", "own/smoke+seeds=2")
    first = call(*args)
    assert first.exit_code == 0 and "not here" not in first.output and first.output.count("  run ") == 2
    shutil.rmtree(home / "results/smoke+seeds=2/runs")
    second = call(*args)
    assert second.exit_code == 0 and "what is said of them was saved with the item" in second.output
    told = [[line for line in text.splitlines() if line.startswith(("  run", "    ", "  again"))]
            for text in (first.output, second.output)]  # fmt: skip
    assert told[0] == told[1] and any("best round" in line for line in told[0])


def test_without_a_row_what_can_be_asked_and_for_an_unknown_one_the_nearest(published):
    listed = call("why", TABLE3).output
    assert "row:" in listed and "pfedsim" in listed and "Dir(0.5)" in listed and "post" in listed
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


def test_a_run_can_be_asked_for_by_its_id_and_numbers_that_are_printed_have_none(published):
    spec = OpenItem(find(TABLE3), "paper").runs["fedbn", "Dir(0.5)", 0]
    for id in (spec.id, spec.id[:8]):
        assert why(TABLE3, [id], "paper").count("  run ") == 1
        assert f"run {spec.id}" in why(TABLE3, [id], "paper")
    assert "0 runs behind" in why(TABLE3, ["paper"], "paper")
    assert "no run is behind it" in why("pfedsim/fig3_partitions")


def test_many_settings_are_listed_a_line_each(published):
    text = why(TABLE3, ["Dir(0.1)"], "paper")
    assert "12 settings: name another text" in text and "again: fedlib run" not in text
    assert [line for line in text.splitlines() if line.startswith("  fedrep ")][0].count("%") == 1


def test_every_row_of_committed_tables_can_be_asked_for(published):
    of = saved("pfedsim/notes", "paper")
    for cells, ids in zip(of.rows["cells"], of.rows["ids"]):
        texts = [cell for cell in cells.values() if cell]
        rows = asked(of, texts)
        assert any(set(ids) <= set(own) for own in rows["ids"])


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


def test_readings_say_how_options_stand_and_what_they_mean():
    (first, *_), others = readings(RunSpec("pfedsim", {"phi": "eq3"})), readings(RunSpec("fedavg"))
    assert first.startswith('  phi = eq3   [phi="eq3" is Eq. 3 as printed') and others == []
    assert any("max_age = 4" in text for text in readings(RunSpec("pfedsim", {"max_age": 4})))


def test_the_saved_curve_is_the_runs(home):
    """origins.csv, beside the tables: one row a run, as the run file has it."""
    item = "pfedsim/fig2_classifier_similarity"
    assert call("reproduce", item, "--profile", "smoke", "--no-notebooks").exit_code == 0
    (line,) = (home / "results/own/smoke/pfedsim/fig2_classifier_similarity.origins.csv").read_text().splitlines()[1:]
    (stored,) = (json.loads(p.read_text()) for p in (home / "results/smoke/runs").glob("*.json"))
    last = [h for h in stored["history"] if h["headline"]][-1]
    assert f"{last['round']}:{100 * last['pooled']:.2f}" in line and stored["partition"]["checksum"] in line
