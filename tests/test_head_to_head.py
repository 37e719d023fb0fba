"""The head-to-head: conditions that are equal, tasks that are the papers' own, and readings done again by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from helpers import analysed, changed_fields, made_up, signs, smoke_item

from fedlib.analysis.uncertainty import units
from fedlib.base.draws import num_participants
from fedlib.base.files import SHIPPED
from fedlib.claims import NOT_REPRODUCED, NOT_TESTED, REPRODUCED
from fedlib.data import load
from fedlib.engine.result import RunResult
from fedlib.engine.simulate import simulate, watched, watched_round
from fedlib.experiments import OpenItem, find
from fedlib.experiments.head_to_head import (
    fig1_bytes,
    fig2_images,
    fig3_worst,
    notes,
    table1_rates,
    table2_accuracy,
    task,
)
from fedlib.experiments.head_to_head.task import FOUR, ROWS, TASKS
from fedlib.models import sizes

SCALES = ("quick", "paper")
OWN = {"method", "hyper", "lr", "eval_points"}  # what rows of a column may differ in
PAPERS = {
    task.SIM: ("pfedsim/table3_accuracy", ("pfedsim", "Dir(0.1)", 0)),
    task.SUP: ("fedsimsup/table2_pathological", ("fedsimsup", "cifar10, 2 classes, 50", 0)),
    task.CS: ("pfedcs/table1_pathological", ("pfedcs", "cifar100, 10 classes", 0)),
    task.SV: ("pfedsv/table1_pathological", ("pfedsv", "few", 0)),
}


def test_the_papers_scale_takes_the_runs_that_reduced_has(tmp_path):
    """Those of the one task, with the learning rates that both try; other scales take nobody's."""
    (tmp_path / "results").mkdir()
    (tmp_path / "results/reduced").symlink_to(SHIPPED / "results/reduced")
    paper, reduced, quick = (
        OpenItem(table1_rates.ITEM, profile, root=tmp_path, finished=True) for profile in ("paper", "reduced", "quick")
    )
    there = {spec.id for spec in paper.specs if paper.store.path(spec).exists()}
    assert there == {spec.id for spec in paper.specs} & {spec.id for spec in reduced.specs} and len(there) == 36
    assert reduced.store.elsewhere == quick.store.elsewhere == []


@pytest.mark.parametrize("scale", [*SCALES, "reduced"])
def test_all_methods_have_the_same_task(scale):
    s = table2_accuracy.ITEM.settings[scale]
    runs = table2_accuracy.TABLE.runs(s)
    assert {row for row, *_ in runs} == set(ROWS) and {seed for *_, seed in runs} == set(range(s["seeds"]))
    for (_, column, seed), spec in runs.items():
        first = runs["local", column, seed]
        fields = {name.split(".")[0] for name in changed_fields(spec, first)} if spec.method == "local" else {
            name for name in vars(spec) if getattr(spec, name) != getattr(first, name)
        }  # fmt: skip
        assert fields <= OWN, (column, spec.method)
        drawn = 42 if scale != "quick" and column == task.SIM else 0  # its own clients, then further draws
        assert spec.holdout == 0.2 and (spec.seed, spec.partition_seed) == (seed, drawn + seed)
        if "E_f" in spec.hyper:  # methods with epochs of their own have as many in a round as the others
            assert spec.hyper["E_h"] is None
        if "tau_s" in spec.hyper:
            assert spec.hyper["tau_s"] + spec.hyper["tau_theta"] == spec.local_epochs
    assert {column for row, column, _ in runs if row == "fedbn"} == {task.SIM}
    assert {column for _, column, _ in runs} == set(s["tasks"]) and (s["tasks"] == (task.SIM,)) == (scale == "reduced")
    assert {spec.rounds for spec in runs.values()} == {200} or scale != "reduced"


@pytest.mark.parametrize("column", TASKS)
def test_at_the_papers_scale_a_task_is_the_papers_own(column):
    """But for what is equal here, and for what is evaluated: the validation part, the rate, points, measures."""
    name, key = PAPERS[column]
    theirs = find(name).runs(find(name).settings["paper"])[key]
    ours = table2_accuracy.TABLE.runs(table2_accuracy.ITEM.settings["paper"])[task.OWNERS[column], column, 0]
    allowed = {"holdout", "lr", "eval_points", "measures", "eval_every", "test_fraction", "hyper"}
    changed = {name for name in vars(ours) if getattr(ours, name) != getattr(theirs, name)}
    assert changed <= allowed - {"test_fraction", "hyper"}


def test_every_row_has_a_rate_of_the_grid_at_every_scale_and_it_is_the_one_that_was_found():
    rates = task.chosen_rates()
    needed = {
        (scale, column, row)
        for scale in (*SCALES, "reduced") for column in (TASKS if scale in SCALES else task.SETTINGS[scale]["tasks"])
        for row in ROWS if task.runs_in(row, column)
    }  # fmt: skip
    assert set(rates) == needed
    reduced = task.SETTINGS["reduced"]
    for (scale, column, row), rate in rates.items():  # Figure 2 at reduced is on a task that has no rates of its own
        assert scale == "quick" or task.rate(reduced, column, row) == rates.get(("reduced", column, row), rate)
    assert all(rate in task.SETTINGS[scale]["rates"] for (scale, *_), rate in rates.items())


def made(accuracy: dict[str, float], best: dict[str, float]):
    """Results in which a row has this accuracy with its best rate, and loses a point for every step of the grid."""

    def make(key, spec):
        row, column, seed = key
        name, _, rate = row.partition(table1_rates.AT)
        grid = list(task.SETTINGS["quick"]["rates"])
        steps = abs(grid.index(float(rate)) - grid.index(best.get(name, 0.1)))
        right = round(1000 * (accuracy.get(name, 0.8) - 0.01 * steps))
        val = {"val_correct": np.full(spec.num_clients, right), "val_tests": np.full(spec.num_clients, 1000)}
        return made_up(spec, 0.1, **val)  # test parts say something else

    return make


def test_rates_are_chosen_on_validation_parts():
    tables = analysed("head_to_head/table1_rates", made({}, {"pfedcs": 0.3}))
    chosen = tables["chosen"].set_index(["method", "task"])["best"]
    assert (chosen["pfedcs"] == 0.3).all() and (chosen[chosen.index.get_level_values(0) != "pfedcs"] == 0.1).all()
    used = [task.rate(task.SETTINGS["quick"], column, row) for row, column in chosen.index]
    assert signs("head_to_head/table1_rates", tables)[1] == "+-"[any(rate != 0.1 for rate in used)]


@pytest.mark.parametrize(("points", "sign"), [(0, "+"), (1, "+"), (3, "-"), (None, "-")])
def test_a_rate_in_use_may_be_little_worse_than_the_best(points, sign):
    """points: by how many the rate in use of local training is below all others; None: it diverges."""
    settings = find("head_to_head/table1_rates").settings["quick"]

    def make(key, spec):
        row, column, _ = key
        name, _, rate = row.partition(table1_rates.AT)
        used, tried = float(rate) == task.rate(settings, column, name), (name, column) == ("local", task.SV)
        if used and tried and points is None:
            return RunResult(spec, "diverged", error="made up")
        right = 800 - 10 * points if used and tried else 800 if used or tried else 700
        return made_up(
            spec, 0.1, val_correct=np.full(spec.num_clients, right), val_tests=np.full(spec.num_clients, 1000)
        )

    assert signs("head_to_head/table1_rates", analysed("head_to_head/table1_rates", make))[0] == sign


def test_a_rate_that_diverged_is_none_and_an_unfinished_grid_decides_nothing():
    make = made({}, {})

    def without(key, spec):
        return None if key[0] == "local at 0.3" and key[1] == task.SV else make(key, spec)

    tables = analysed("head_to_head/table1_rates", without)
    assert (~tables["_columns"]["ended"]).sum() == 1 and signs("head_to_head/table1_rates", tables) == "..."

    def with_one_diverged(key, spec):
        diverged = RunResult(spec, "diverged", error="made up")
        return diverged if key[:2] == ("local at 0.1", task.SV) else make(key, spec)

    tables = analysed("head_to_head/table1_rates", with_one_diverged)
    line = tables["chosen"].set_index(["method", "task"]).loc["local", task.SV]
    assert line["0.1"] == "diverged" and line["best"] == 0.03 and tables["_columns"]["ended"].all()


def test_a_cell_without_a_number_says_whether_the_method_applies():
    """FedBN is FedAvg where the network has no batch norm, and is not run there."""
    s, table = table2_accuracy.ITEM.settings["quick"], table2_accuracy.TABLE
    runs = {key: spec for key, spec in table.runs(s).items() if key[:2] != ("fedrep", task.CS)}
    tables = table.analyse(s, {key: made_up(spec, dict.fromkeys(spec.eval_points, 0.5)) for key, spec in runs.items()})
    cells = tables["compare"].set_index("method")[f"{task.CS}: ours, digits"]
    assert cells[["fedbn", "fedrep"]].tolist() == ["does not apply", "not run"]


def test_bytes_are_those_that_travelled_and_the_accuracy_is_the_last_one_within_fedavgs():
    spec = table2_accuracy.TABLE.runs(smoke_item("head_to_head/table2_accuracy").settings)["pfedsv", task.SV, 0]
    spec = spec.but(rounds=4, eval_every=1)
    r = simulate(spec)
    N, size = spec.num_clients, sizes(spec.model, (1, 16, 16), 10, **spec.model_options)["model"]
    floats = np.array([r.arrays["traffic"][t].sum() for t in range(4)]) * num_participants(N, spec.join_ratio)
    assert floats.sum() == pytest.approx(sum(way["floats"] for way in r.communication.values()), rel=1e-3)
    np.testing.assert_allclose(fig1_bytes.sent(r), np.cumsum(floats) * 4 / 1e6 / N)
    budget = 4 * 2 * size * 4 / 1e6
    assert fig1_bytes.of_fedavg(r) == pytest.approx(budget)
    (read,) = fig1_bytes.within_fedavgs_bytes(r)
    last = max(t for t in range(4) if fig1_bytes.sent(r)[t] <= budget * (1 + 1e-9))
    assert last < 3 and read.about == {"round": last + 1}
    assert read.accuracy == pytest.approx(r.arrays["client_accuracy"][last].mean())


@pytest.mark.parametrize("n", [10, 40, 80])
def test_clients_have_as_many_training_images_as_the_column_says_and_always_as_many_tests(n):
    s = fig2_images.ITEM.settings["quick"]
    spec = fig2_images.CURVE.runs(s)["pfedsim", f"{n} images", 0]
    _, parts = spec.divide(load("digits"))
    assert all(abs(len(own["train"]) - n) <= 3 and abs(len(own["test"]) - s["tests"]) <= 3 for own in parts)
    assert all("val" in own and not set(own["val"]) & {*own["train"], *own["test"]} for own in parts)


def with_levels(levels: dict[str, float]):
    """Results in which every row has the same accuracy in all tasks, at all points; seeds differ by little."""

    def make(key, spec):
        row, seed = key[-3], key[-1]
        value = levels.get(row.partition(table1_rates.AT)[0], 0.7) + 0.001 * seed
        points = spec.eval_points
        return made_up(spec, dict.fromkeys(points, value), **arrays_of(spec, value))

    return make


def arrays_of(spec, value: float) -> dict:
    N, T = spec.num_clients, spec.rounds
    curve = np.full((T, N), np.nan)
    curve[-1] = value
    val = {"val_correct": np.full(N, round(1000 * value)), "val_tests": np.full(N, 1000)}
    return {"client_accuracy": curve, "traffic": np.ones((T, 2), dtype=int), **val}


def test_claims_of_table_2_on_numbers_that_leave_no_doubt():
    level = dict.fromkeys(ROWS, 0.5) | dict(zip(FOUR, (0.9, 0.9, 0.9, 0.9)))
    tables = analysed("head_to_head/table2_accuracy", seconds(with_levels(level)), seeds=3)
    # level among themselves: nobody leads at home; all are above FedAvg+FT, local-only training and the splits;
    # FedAvg and FedAvg+FT are level with local-only training (practically equal); D+C is far below whole pFedSV
    assert signs("head_to_head/table2_accuracy", tables) == "-+++++" + "+==" + "--"
    assert tables["leads"].set_index("method")["minus FedAvg+FT"]["pfedsim"].startswith("+40.0")
    assert table2_accuracy.average_lead(tables, "pfedcs", "local")[0].iloc[0] == pytest.approx(40)


def seconds(make):
    """With what `costs` reads."""
    return lambda key, spec: replace(make(key, spec), seconds={"per_sample": 1e-3})


def test_at_home_every_method_must_lead_in_its_own_column():
    def make(key, spec):
        row, column, _ = key
        return with_levels({row: 0.9 if task.OWNERS[column] == row else 0.6})(key, spec)

    tables = analysed("head_to_head/table2_accuracy", seconds(make), seeds=3)
    assert table2_accuracy.HOME.check(tables).status == REPRODUCED

    def spoiled(key, spec):
        return with_levels({"local": 0.95})(key, spec) if key[:2] == ("local", task.CS) else make(key, spec)

    tables = analysed("head_to_head/table2_accuracy", seconds(spoiled), seeds=3)
    assert table2_accuracy.HOME.check(tables).status == NOT_REPRODUCED
    missing = tables["_columns"].assign(ended=lambda t: t.index > 0)  # the run that is missing might be the best
    assert table2_accuracy.HOME.check({**tables, "_columns": missing}).status == NOT_TESTED


def test_sizes_up_to_which_a_method_pays():
    sizes = ["20 images", "50 images", "100 images"]
    frame = pd.DataFrame({"column": sizes, "low": [1.0, 0.5, -1.0]})
    assert fig2_images._up_to(frame.assign(high=2.0), sizes) == "up to 50 images; inconclusive at 100 images"
    assert fig2_images._up_to(frame.assign(high=[2.0, 2.0, -0.5]), sizes) == "up to 50 images; below it at 100 images"
    assert fig2_images._up_to(frame[2:].assign(high=2.0), sizes[2:]) == "not at 100 images (inconclusive)"
    assert fig2_images._up_to(frame[:1].assign(low=-np.inf, high=np.inf), sizes) == "no CI (one seed)"
    assert fig2_images._up_to(frame[:2].assign(high=2.0), sizes[:2]) == "up to 50 images, the most"
    # a size that was not run is not passed over
    assert fig2_images._up_to(frame[:2].assign(high=2.0), sizes) == "up to 50 images; not run at 100 images"
    assert fig2_images._up_to(frame[1:2].assign(high=2.0), sizes) == "not run"


def test_the_worst_tenth_is_of_at_least_one_client_and_below_the_mean():
    tables = smoke_item("head_to_head/fig3_worst").tables
    for r in smoke_item("head_to_head/fig3_worst").results:
        correct, tests = r.by_client()
        (read,) = (one for one in fig3_worst.both(r) if one.values is None)
        count = max(1, round(len(tests) / 10))
        assert read.accuracy == pytest.approx(np.sort(correct / tests)[:count].mean())
    wide = tables["tidy"].pivot_table("accuracy", ["row", "column"], "of")
    assert (wide["the bottom 10 %"] <= wide["all clients"]).all()


def test_newcomers_are_read_after_an_epoch_and_as_they_come():
    item = smoke_item("head_to_head/fig4_newcomers")
    for r in item.results:
        assert r.spec.unseen == r.spec.num_clients // 5 >= 1 and r.spec.join_epochs == 1
    tidy = item.tables["tidy"].set_index(["row", "column", "when"])["point"]
    assert tidy["pfedsim", task.SIM, "after an epoch"] == "post"
    assert (
        tidy["pfedsim", task.SIM, "before local training"] == "agg"
        and tidy["local", task.SIM, "before local training"] == "post"
    )


def test_every_sentence_of_the_answer_is_a_claim_with_its_verdict():
    item = smoke_item("head_to_head/notes")
    text = item.answer()
    assert all(claim.text in text for claim in notes.CLAIMS) and text.count("*Not tested:*") >= 1
    assert len(text.strip().splitlines()) == len(notes.CLAIMS)


def test_notes_are_judged_on_the_other_items_own_tables():
    """On numbers that leave no doubt, with several seeds."""
    level = dict.fromkeys(ROWS, 0.6) | {"fedavg_ft": 0.7, "fedavg": 0.4}

    def make(key, spec):
        if key[0] == "newcomers":
            return None
        return seconds(with_levels(level))(key[1:], spec)

    tables = analysed("head_to_head/notes", make, seeds=3)
    found = [claim.check(tables).status for claim in notes.CLAIMS]
    enough, alone, one_model, splits, one_leads = found[:5]
    assert (enough, alone, one_model) == (REPRODUCED,) * 3  # the four are 10 points below, so is local-only training
    assert (splits, one_leads) == (NOT_REPRODUCED,) * 2  # the splits are far below; the four are level
    assert notes.CLAIMS[7].check(tables).status == REPRODUCED and found[9] == NOT_TESTED
    assert notes.CLAIMS[0].check(tables).over.startswith("3 seeds")


@pytest.mark.parametrize("name", ["table1_rates", "table2_accuracy", "fig2_images", "fig4_newcomers", "notes"])
def test_settings_that_are_changed_reach_the_runs_of_every_item(name):
    changed = OpenItem(find(f"head_to_head/{name}"), "smoke", dataset="mnist", local_epochs=2, methods="local").specs
    assert changed
    assert {(spec.dataset, spec.local_epochs, spec.method) for spec in changed} == {("mnist", 2, "local")}


def test_rates_that_are_tried_instead_are_numbers_and_name_the_folder():
    item = OpenItem(find("head_to_head/notes"), "smoke", rates="0.03, 0.3", methods="local")
    assert item.place == "smoke+rates=0.03_0.3+methods=local"
    assert {spec.lr for key, spec in item.runs.items() if key[0] == "rates"} == {0.03, 0.3}


def test_intervals_of_the_notes_are_over_seeds():
    """Also where other items have no runs at all."""
    made = seconds(with_levels(dict.fromkeys(ROWS, 0.6)))
    tables = analysed("head_to_head/notes", lambda key, spec: made(key[1:], spec) if key[0] == "accuracy" else None)
    assert units(tables) == "one seed"
    assert units(notes.of("newcomers", tables)) == ""


def test_the_point_of_the_test_is_moved_for_the_four_only():
    def make(key, spec):
        part, *rest = key
        if part != "accuracy":
            return None
        points = dict.fromkeys(spec.eval_points, 0.6) | ({"post": 0.9} if "post" in spec.eval_points else {})
        return seconds(lambda k, s: made_up(s, points, **arrays_of(s, 0.6)))(key, spec)

    tables = analysed("head_to_head/notes", make, seeds=3)
    assert notes.CLAIMS[0].check(tables).status == REPRODUCED
    assert notes.CLAIMS[10].check(tables).status == NOT_REPRODUCED  # 30 points above FedAvg+FT after training


def test_watched_rounds_of_methods_with_validation_parts_train_on_the_same_samples():
    """FedAvg's and pFedSV's clients train on the same samples in a task, in as many minibatches."""
    runs = table2_accuracy.TABLE.runs(smoke_item("head_to_head/table2_accuracy").settings)
    counted = {}
    for row in ("fedavg_ft", "pfedsv"):
        run, state = next(watched(runs[row, task.SV, 0]))
        watched_round(run, state, 1)
        counted[row] = [len(list(run.minibatches(i, 1, run.spec.local_epochs))) for i in range(run.spec.num_clients)]
    assert counted["fedavg_ft"] == counted["pfedsv"]
