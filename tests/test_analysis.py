"""Numbers from results, each beside a sum that is done by hand."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from helpers import changed_fields, made_up, tiny
from pytest import approx

from fedlib import models
from fedlib.analysis import accuracies, participation, partitions, readings, relevance, tables, traffic
from fedlib.analysis.sensitivity import BASE, CHANCE, Choice, Sensitivity, hyper
from fedlib.base.draws import participants
from fedlib.data import DATASETS
from fedlib.data.datasets import class_sizes, known_class_sizes
from fedlib.data.describe import statistics
from fedlib.engine.privacy_budget import budgets as budgets_of_clients
from fedlib.engine.result import RunResult
from fedlib.engine.simulate import simulate
from fedlib.experiments.pfedsv import accounting
from fedlib.privacy.accounting import epsilon

# clients that wait ----------------------------------------------------------------------------------------------------


def rounds_of_two_clients():
    """Client 0 takes part in rounds 1, 4 and 5, client 1 in 2 and 3; who is idle keeps a half, a quarter in round 3."""
    for ids, keeps in (([0], 0.5), ([1], 0.5), ([1], 0.25), ([0], 0.5), ([0], 0.5)):
        shares = np.eye(2)
        idle = 1 - ids[0]
        shares[idle] = np.where(np.arange(2) == idle, keeps, 1 - keeps)
        yield np.array(ids), shares


def test_what_is_left_while_a_client_waits():
    own = participation.own_shares(rounds_of_two_clients())
    assert own.query("client == 0")["own"].tolist() == [1, 0.5, 0.125, 1, 1]
    assert own.query("client == 1")[["round", "idle", "own"]].to_numpy().tolist() == [
        [2, 0, 1], [3, 0, 1], [4, 1, 0.5], [5, 2, 0.25],
    ]  # fmt: skip
    turns = participation.at_their_turn(own)  # client 1 in round 3, client 0 in rounds 4 and 5
    assert turns[["round", "client", "idle", "own"]].to_numpy().tolist() == [
        [2, 1, 0, 1],
        [3, 0, 2, 0.125],
        [4, 0, 0, 1],
    ]
    waits = participation.by_wait(turns)
    assert waits[["idle", "turns", "own"]].to_numpy().tolist() == [[0, 2, 1], [2, 1, 0.125]]
    assert waits["reached"].tolist() == approx([1, 1 / 3])


def test_who_idle_clients_take_from():
    """Clients 1 and 2 take part; client 0 has the most frequent label of client 1, client 3 that of neither."""
    counts = np.array([[5, 1, 0], [4, 0, 0], [0, 3, 1], [0, 0, 7]])
    shares = np.array([[0.5, 0.3, 0.2, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0.1, 0.9]])
    assert participation.from_alike(counts, np.array([1, 2]), shares) == approx((0.6 + 0) / 2)
    assert participation.from_alike(counts, np.array([1, 2]), np.eye(4)) == 0
    (ids, drawn), *others = participation.drawn_rounds(counts, 0.5, 3, seed=0)
    assert len(others) == 2 and len(ids) == 2 and drawn.sum(1) == approx(1) and (drawn[ids] == np.eye(4)[ids]).all()


def test_waiting_without_training_is_that_of_geometric_draws():
    """10 of 100 clients: nine rounds between two turns, and 0.9 of the clients wait at least one."""
    turns = participation.turns_without_training("cifar10", 100, 0.1, 400, scheme="dirichlet", alpha=0.5, min_size=10)
    assert turns["idle"].mean() == approx(9, abs=1) and len(turns) == 400 * 10 - 100
    assert participation.by_wait(turns)["reached"].iloc[1] == approx(0.9, abs=0.02)
    assert (turns.query("idle == 0")["own"] == 1).all() and turns.query("idle > 20")["own"].max() < 0.01


# tables ---------------------------------------------------------------------------------------------------------------


def test_rows_of_runs_by_the_parts_of_their_keys():
    found = {("a", 1): 10, ("b", 2): 20}
    lines = tables.rows_of(found, ("row", "seed"), lambda r: {"x": r + 1})
    assert lines.to_dict("list") == {"row": ["a", "b"], "seed": [1, 2], "x": [11, 21]}
    several = tables.rows_of(found, ("row", "seed"), lambda r: pd.DataFrame({"x": [r, -r]}))
    assert several["row"].tolist() == ["a", "a", "b", "b"] and several["x"].tolist() == [10, -10, 20, -20]
    assert list(tables.rows_of({}, ("row", "seed"), dict).columns) == ["row", "seed"]


def test_pairs_groups_and_texts():
    pairs = tables.by_pair(v=np.array([[1, 2], [3, 4]]))
    assert pairs.to_numpy().tolist() == [[0, 1, 2], [1, 0, 3]]
    frame = pd.DataFrame({"g": list("bab"), "x": [1.0, 5.0, 3.0]})
    assert tables.described(frame, "g", mean=lambda t: t["x"].mean()).to_dict("list") == {
        "g": ["b", "a"],
        "mean": [2, 5],
    }
    means = tables.mean_stds({"x": "mean (std) of x", "y": "of y"})
    shown = tables.described(frame.assign(y=2.0), "g", **means)
    assert shown.loc[0].tolist() == ["b", "2.000 (1.414)", "2.000 (0.000)"] and shown.loc[1, "of y"] == "2.000"
    assert list(tables.described(frame[:0], "g", **means).columns) == ["g", "mean (std) of x", "of y"]
    assert tables.only(frame, g="b", x=3.0).index.tolist() == [2]
    assert (tables.span([3, 3]), tables.span([1, 4]), tables.span([1, 2], ".1f")) == (
        "3",
        "2 (1 to 4)",
        "1.5 (1.0 to 2.0)",
    )
    assert (tables.mean_std([0.5]), tables.mean_std([1, 3])) == ("0.500", "2.000 (1.414)")
    assert tables.mean_std([0.001]) == "0.001" and tables.listed(pd.Series({"a": 1.26, "b": 2})) == "a 1.3, b 2.0"
    assert tables.named(pd.Series({"a": 1.26, "b": 2}), "+.1f") == "+1.3 (a), +2.0 (b)"
    assert tables.spearman([1, 2, 3], [1, 3, 2]) == approx(0.5)


# tables of accuracies -------------------------------------------------------------------------------------------------


def accuracy_tables(cells: dict, **columns) -> dict:
    """cells: fractions by (column, row), a number or several clients' a seed."""
    lines = [
        {"column": c, "row": r, "seed": seed, "accuracy": float(np.mean(own)), **columns}
        for (c, r), values in cells.items()
        for seed, own in enumerate(values)
    ]
    return {"tidy": pd.DataFrame(lines).assign(headline=True, point="post")}


def test_means_of_a_table_are_at_the_headline_where_no_point_is_named():
    found = accuracy_tables({("c", "a"): [[0.2, 0.4]], ("c", "b"): [[0.6, 0.8]]}, on="own")
    printed = {"tidy": found["tidy"].drop(columns="seed")}
    other = accuracy_tables({("c", "a"): [[0.9, 0.9]]}, on="all")["tidy"].assign(headline=False, point="agg")
    found["tidy"] = pd.concat([found["tidy"], other])
    assert accuracies.means(found).iloc[0].to_dict() == approx({("c", "a"): 30, ("c", "b"): 70})
    assert accuracies.means(found, point="agg").iloc[0].to_dict() == approx({("c", "a"): 90})
    assert accuracies.means(found, on="all").empty and accuracies.means(found, domain="x").empty
    exact = accuracies.means(printed)
    assert exact.shape == (1, 2) and exact["c"]["b"].tolist() == approx([70])


def test_what_was_not_run_and_who_is_first():
    m = accuracies.means(
        {"tidy": accuracy_tables({("x", "a"): [[0.2]], ("x", "b"): [[0.6]], ("y", "a"): [[0.1]]})["tidy"]}
    )
    assert accuracies.without(m, ["a", "b", "c", "c"], ["x", "y"]) == "missing runs: b (in y), c"
    assert accuracies.without(m, "cba", ["x", "y"]) == "missing runs: c, b (in y)"
    assert accuracies.without(m, "bde", "xyzy") == "missing runs: b (in y; z), d, e"
    assert accuracies.without(m, "ab", "xuvw") == "missing runs: a, b (each in 3 of 4 settings)"
    assert accuracies.without(m, ["a"], ["x", "y"]) == ""
    assert list(accuracies.best_first(m["x"])) == ["b", "a"] and list(accuracies.best_first(m["x"], ["a"])) == ["a"]


def test_rank_correlation_is_scipys_also_with_ties():
    draw = np.random.default_rng(0)
    m, printed = pd.DataFrame(draw.integers(0, 4, (20, 6))), pd.Series(draw.integers(0, 4, 6))
    wanted = [tables.spearman(row, printed) for row in m.to_numpy()]
    np.testing.assert_allclose(accuracies.correlation(m, printed), wanted, atol=1e-12)
    assert accuracies.correlation(m.assign(**{"0": np.nan})[["0", 1]].rename(columns={"0": 0}), printed).isna().all()


PRINTED = pd.DataFrame(
    [("a", "x", 70.0, 2.0), ("b", "x", 50.0, np.nan), ("c", "x", 40.0, 1.0), ("a", "y", 90.0, 1.0)],
    columns=["row", "column", "value", "std"],
)


def test_cells_beside_the_papers():
    """a at x: 80 for every client of both seeds, 10 above the paper; c was not run, b not at y."""
    ran = {("x", "a"): [[0.8, 0.8]] * 2, ("x", "b"): [[0.3, 0.4], [0.5, 0.6]], ("y", "a"): [[0.85, 0.85]] * 2}
    found = {**accuracy_tables(ran), "_printed": PRINTED}
    shown = accuracies.cells(found, {}, {})
    ours, paper = (shown[shown["series"] == s].set_index(["column", "row"]) for s in ("ours", "paper"))
    assert ours.loc[("x", "a"), ["mean", "low", "high", "seeds"]].tolist() == approx([80, 80, 80, 2])
    low, high = ours.loc[("x", "b"), ["low", "high"]]  # 35 and 55 with two seeds: 45 +- 10 t(1) = 127
    assert (low, high) == approx((-82, 172), abs=4) and len(ours) == 3
    assert paper.loc[("x", "a"), ["mean", "low", "high", "std"]].tolist() == [70, 68, 72, 2]
    assert paper.loc[("x", "b"), ["low", "high"]].isna().all()
    table = accuracies.compared(found, shown, "ab", ["x", "y"], ("cifar10", "cifar10"), ()).set_index("method")
    assert table.loc["a"].to_dict() == {
        "evaluated at": "post", "x: paper, cifar10": "70.00 (2.00)", "x: ours, cifar10": "80.00 [80.0, 80.0] (n=2)",
        "x: difference": "+10.00", "y: paper, cifar10": "90.00 (1.00)", "y: ours, cifar10": "85.00 [85.0, 85.0] (n=2)",
        "y: difference": "-5.00",
    }  # fmt: skip
    assert table.loc["b", "x: paper, cifar10"] == "50.00" and table.loc["b", "x: difference"] == "-5.00"
    missing = table.loc["b", ["y: paper, cifar10", "y: ours, cifar10", "y: difference"]]
    assert missing.tolist() == ["", "not run", ""]
    for data, shows in ((("cifar10", "digits"), False), (("its data", ""), True)):
        columns = accuracies.compared(found, shown, "ab", ["x"], data, ())
        assert ("x: difference" in columns) == shows, "digits are not subtracted from CIFAR-10"
    unprinted = accuracies.compared(found, shown[shown["column"] == "x"], "ab", ["x", "y"], ("cifar10", "cifar10"), ())
    assert [name for name in unprinted if name.startswith("y")] == ["y: ours, cifar10"], "the paper has no y"
    points = accuracies.by_point(found["tidy"]).set_index(["method", "point"])
    assert points.loc[("a", "post")].tolist() == [80, 85] and list(points) == ["x", "y"]


def test_ranks_beside_the_papers_need_three_rows():
    """Ours a > c > b, the paper's a > b > c: Spearman's correlation 1 - 6 * 2 / (3 * 8) = 0.5."""
    ran = {("x", "a"): [[0.8]], ("x", "b"): [[0.2]], ("x", "c"): [[0.3]], ("y", "a"): [[0.8]], ("x", "d"): [[0.9]]}
    found = accuracies.ranks({**accuracy_tables(ran), "_printed": PRINTED}, {}).set_index("column")
    assert found.loc["x", ["rows", "rank_correlation"]].tolist() == approx([3, 0.5])
    assert found.loc["y", "rows"] == 1 and math.isnan(found.loc["y", "rank_correlation"])
    elsewhere = accuracy_tables({("z", row): [[0.5]] for row in "abc"})
    assert accuracies.ranks({**elsewhere, "_printed": PRINTED}, {}).empty, "the paper has no z"


def test_differences_of_two_rows_by_column():
    """b is 10 points below a at x for every client; y has no b."""
    ran = {("x", "a"): [[0.5, 0.9]] * 2, ("x", "b"): [[0.4, 0.8]] * 2, ("y", "a"): [[0.5, 0.9]] * 2}
    table, draws = accuracies.differences(accuracy_tables(ran), "a", "b")
    assert table.set_index("column").T.to_dict() == {
        "x": approx({"a": 70, "b": 60, "difference": 10, "low": 10, "high": 10, "seeds": 2})
    }
    assert list(draws) == ["x"] and draws["x"].iloc[0] == approx(10)


def test_a_table_of_nothing_has_columns_too():
    """A saved table without any column cannot be read again."""
    nothing = accuracy_tables({("x", "a"): [[0.5]]})["tidy"][:0]
    empty = {"tidy": nothing, "_printed": PRINTED[:0]}
    shown = accuracies.cells(empty, {}, {})
    for frame in (shown, accuracies.compared(empty, shown, "", ["x"], ("p", "o"), ()), accuracies.by_point(nothing)):
        assert frame.empty and len(frame.columns)


# how an accuracy is read off ------------------------------------------------------------------------------------------


def curve(values, spec=None, headline="post") -> RunResult:
    """A run evaluated after every round, whose accuracy by every metric is known."""
    spec = spec or tiny("fedavg", rounds=len(values))
    rows = [
        {"round": t, "point": headline, "headline": True, "pooled": v, "client_mean": v}
        for t, v in enumerate(values, 1)
    ]
    return RunResult(spec, "finished", rows)


def clients_of(r) -> list:
    return [] if r.values is None else list(zip(r.values.round(6).tolist(), r.weights.tolist()))


def test_readings_of_the_last_round():
    """Clients 0 and 1 have 1 of 4 and 6 of 6 right: pooled 7 of 10, mean over clients (1/4 + 1) / 2."""
    correct, tests = np.array([[1, 0], [3, 3]]), np.array([[2, 2], [3, 3]])
    last = {"round": 3, "pooled": 0.7, "client_mean": 0.625, "balanced": 0.625}
    history = [{**last, "round": 2, "point": "post", "headline": True, "pooled": 0.1},
               {**last, "point": "agg", "headline": True},
               {**last, "point": "post", "headline": False, "pooled": 0.8}]  # fmt: skip
    r = RunResult(tiny("pfedsim"), "finished", history, arrays={"correct": correct, "tests": tests})
    pooled, post = readings.last_round()(r)
    assert (pooled.point, pooled.headline, pooled.accuracy) == ("agg", True, 0.7)
    assert clients_of(pooled) == [(0.25, 4), (1, 6)] and (post.accuracy, post.values) == (
        0.8,
        None,
    )  # kept for agg only
    assert clients_of(readings.last_round("client_mean")(r)[0]) == [(0.25, 1), (1, 1)]
    (chosen,), (absent,) = readings.at("pooled", "post")(r, "c"), readings.at("pooled", "recv")(r, "c")
    assert (chosen.point, chosen.accuracy, chosen.headline, absent.point, absent.accuracy) == (
        "post",
        0.8,
        True,
        "agg",
        0.7,
    )


def test_readings_of_a_curve():
    named = ("best round", "mean of the last 2 evaluations")
    found = [reading for name in named for reading in readings.RULES[name](curve([0.2, 0.9, 0.4]), "c")]
    assert [reading.accuracy for reading in found] == approx([0.9, 0.65]) and found[0].values is None


def test_the_round_that_reaches_an_accuracy():
    runs = [curve([0.2, 0.5, 0.3]), curve([0.2, 0.1, 0.5])]  # means 20, 30, 40
    assert readings.reached(runs[:1], 50) == 2 and readings.reached(runs, 40) == 3
    assert math.isnan(readings.reached(runs, 40.1))


RULES = {  # rows a, b, c at x: by one rule a is first, by the other b
    "one": accuracies.means(accuracy_tables({("x", r): [[v, v]] for r, v in zip("abc", (0.7, 0.6, 0.2))})),
    "other": accuracies.means(accuracy_tables({("x", r): [[v, v]] for r, v in zip("abc", (0.5, 0.6, 0.2))})),
}


def test_leads_by_every_rule():
    table, margins = readings.leads(RULES, "a", ("a", "b"))
    assert table[["metric", "rank"]].to_numpy().tolist() == [["one", 1], ["other", 2]] and set(
        table["best competitor"]
    ) == {"b"}
    assert table["lead"].tolist() == approx([10, -10]) and table["a"].tolist() == approx([70, 50])
    wanted = {"one, x: b": 10, "one, x: c": 50, "other, x: b": -10, "other, x: c": 30}
    assert margins.iloc[0].to_dict() == approx(wanted)
    assert readings.leads(RULES, "a", ("a", "d"))[0].empty


def test_nearness_to_the_printed_cells():
    """One: 0, +10, -20 points apart, so that the mean is -10/3 and the mean distance 10."""
    found = readings.fit(RULES, PRINTED).set_index("metric")
    assert found.loc["one"].drop(["column", "rank correlation"]).tolist() == approx([3, -10 / 3, 10, 1])
    assert found["rank correlation"].tolist() == approx([1, 0.5])


def test_cells_far_from_the_paper_and_what_comes_nearest():
    """a at x: 66 and 68 against 70, near; b: 58, 5 points better at agg, 53 with another partition, printed 50."""
    spec = tiny("pfedsim")
    found = {("a", "x", seed): made_up(spec, v) for seed, v in enumerate((0.66, 0.69))}
    found |= {("b", "x", 0): made_up(spec, {"post": 0.58, "agg": 0.63})}
    again = {("another partition", "b", "x", 0): made_up(spec, 0.53), ("another seed", "a", "x", 0): made_up(spec, 0.7)}
    table = readings.far_cells(PRINTED[:2], found, again)
    assert table[["column", "method", "closest"]].to_numpy().tolist() == [["x", "b", "another partition"]]
    assert table.loc[0, ["paper", "ours", "difference", "reached in round"]].tolist() == approx([50, 58, 8, 3])
    assert table.loc[0, "by other metrics"] == "agg 63.00, post 58.00, client mean 58.00, another partition 53.00"
    assert list(readings.far_cells(PRINTED[:0], {}, {})) == list(table)


# choices that are left open -------------------------------------------------------------------------------------------

STUDY = Sensitivity(
    "pfedsim",
    (
        Choice("S1", "Eq. 3", "the code's", hyper(phi="eq3")),
        Choice("S11", "shared statistics", "they stay", task=lambda s, r: {"bn_stats": "global"}),
        Choice(CHANCE, "another seed", "seed 0", task=lambda s, r: {"seed": r.seed + s["seeds"]}),
    ),
    ("fedavg",),
    lambda spec: f"Dir({spec.partition['alpha']:g})",
)
SEEN = {BASE: (0.8, 0.5), "Eq. 3": (0.6, None), "shared statistics": (0.85, 0.7), "another seed": (0.79, 0.53)}


def effects(*left_out: str) -> dict:
    runs = STUDY.runs({"seeds": 1}, [tiny("pfedsim"), tiny("fedavg")])
    made = {
        key: made_up(spec, SEEN[key[0]][key[2] == "fedavg"]) for key, spec in runs.items() if key[0] not in left_out
    }
    return STUDY.effects(made)


@pytest.mark.parametrize(("status", "shown"), [("diverged", "diverged"), (None, "not run")])
def test_an_effect_without_a_number_says_why(status, shown):
    runs = STUDY.runs({"seeds": 1}, [tiny("pfedsim"), tiny("fedavg")])
    found = {key: made_up(spec, 0.5) for key, spec in runs.items()}
    (lost,) = (key for key in runs if key[0] == "shared statistics" and key[2] == "pfedsim")
    del found[lost]
    found |= {lost: RunResult(runs[lost], status, error="made up")} if status else {}
    table = STUDY.compared(STUDY.effects(found), "digits", {}).set_index("alternative")
    assert table.loc["shared statistics", "pfedsim, digits"] == shown


def test_one_thing_is_changed_at_a_time_and_for_the_others_only_what_changes_their_task():
    bases = {method: tiny(method) for method in ("pfedsim", "fedavg")}
    runs = STUDY.runs({"seeds": 1}, list(bases.values()))
    changes = {(choice, method): changed_fields(spec, bases[method]) for (choice, _, method, _), spec in runs.items()}
    assert changes == {
        (BASE, "pfedsim"): set(), (BASE, "fedavg"): set(), ("Eq. 3", "pfedsim"): {"hyper.phi"},
        ("shared statistics", "pfedsim"): {"bn_stats"}, ("shared statistics", "fedavg"): {"bn_stats"},
        ("another seed", "pfedsim"): {"seed"}, ("another seed", "fedavg"): {"seed"},
    }  # fmt: skip
    assert {key[3] for key in runs} == {0} and runs["another seed", "Dir(0.5)", "fedavg", 0].seed == 1


def test_effects_are_differences_from_the_run_without_the_choice():
    found = effects()
    by_choice = found["tidy"].set_index(["choice", "method"])["effect"]
    assert (by_choice["Eq. 3", "pfedsim"], by_choice["shared statistics", "fedavg"]) == approx((-20, 20))
    shown = found["effects"].set_index(["choice", "method"])
    assert shown.loc[("Eq. 3", "pfedsim"), ["code", "task", "seeds"]].tolist() == ["S1", "Dir(0.5)", 1]
    assert shown.loc[("Eq. 3", "pfedsim"), ["mean", "low", "high"]].tolist() == approx([-20, -math.inf, math.inf])
    assert STUDY.mean_effects(found).iloc[0].to_dict() == approx({"Eq. 3": -20, "shared statistics": 5})
    assert STUDY.chance(found) == approx(1) and STUDY.missing(found) == ""
    table = STUDY.compared(found, "digits", {"Dir(0.5)": 68.0}).set_index("alternative")
    assert table.loc[BASE, ["paper", "pfedsim, digits", "effect"]].tolist() == ["68.00", "80.00 (n=1)", ""]
    assert table.loc["shared statistics", "effect on fedavg"] == "+20.00 (one seed)"
    assert not table.loc["Eq. 3", "effect on fedavg"]
    text = STUDY.in_words(found)
    assert "so exploratory): Eq. 3 (-20.00 (one seed)), shared" in text and text.startswith("Of 2 variations these")
    assert text.endswith("another seed (or partition, where tried) changes it by 1.00.")


def test_a_choice_that_lacks_a_task_is_not_compared_with_those_that_have_all():
    runs = STUDY.runs({"seeds": 1}, [tiny("pfedsim"), tiny("pfedsim", partition={"alpha": 0.1, "min_size": 2})])
    made = {key: made_up(spec, SEEN[key[0]][0]) for key, spec in runs.items() if key[:2] != ("Eq. 3", "Dir(0.1)")}
    found = STUDY.effects(made)
    assert list(STUDY.mean_effects(found)) == ["shared statistics"] and STUDY.missing(found) == "missing runs: Eq. 3"


def test_choices_that_were_not_tried_are_named():
    found = effects("shared statistics", "another seed")
    assert STUDY.missing(found) == "missing runs: shared statistics, another seed"
    text = STUDY.in_words(found)
    assert "Of 1 variations run so far (of 2)" in text and "that of seeds is not known yet" in text
    none = effects(BASE)  # nothing to compare with
    assert none["tidy"].empty and STUDY.in_words(none) == "No alternative choice was run yet."
    assert len(STUDY.compared(none, "digits", {}).columns)


# privacy budgets ------------------------------------------------------------------------------------------------------


def test_budgets_of_a_table_of_runs():
    """Local training releases nothing; noise without a bound on norms guarantees nothing."""
    noisy = tiny("pfedsv", model="lenet5", privacy="record", noise_sigma=1.0, noise_clip=3.0)
    unbounded = noisy.but(privacy="unclipped_relative", noise_clip=1.0)
    runs = {("local", "few", 0): tiny("local"), ("dp", "few", 0): noisy, ("free", "few", 0): unbounded}
    found = accounting.spent({key: simulate(spec) for key, spec in runs.items()}, 1e-5)
    own = budgets_of_clients(noisy, 1e-5)
    assert found.set_index("row").loc["dp", ["epsilon", "epsilon_max"]].tolist() == approx([own.mean(), own.max()])
    assert own.min() < own.max() < math.inf
    assert accounting.largest(found).to_dict() == {"local": 0, "dp": approx(own.max()), "free": math.inf}
    two = pd.DataFrame({"row": ["a", "a", "b"], "epsilon": [1.0, 3.0, 9.0], "epsilon_max": [2.0, 4.0, math.inf]})
    assert accounting.in_words(two, row="a") == "mean 2.00, largest 4.00" and accounting.in_words(two) == "∞"


def test_a_budget_grows_with_the_steps():
    table = accounting.by_round({"sampled": (1 / 3, 9, "rdp"), "whole": (1.0, 1, "exact")}, (1.0, 2.0), (4, 20), 1e-5)
    found = table.set_index(["setting", "sigma", "round"])["epsilon"]
    assert found["sampled", 2.0, 4] == approx(epsilon(2.0, 1 / 3, 36)) and len(found) == 8
    assert found["whole", 1.0, 20] == approx(28.373, abs=2e-3)


# partitions -----------------------------------------------------------------------------------------------------------


def test_statistics_of_a_partition():
    """Clients [4, 0], [2, 2], [0, 4]: cosines 1/sqrt(2), 0, 1/sqrt(2); entropies 0, ln 2, 0;
    largest classes 4, 2, 4."""
    found = statistics(np.array([[4, 0], [2, 2], [0, 4]]))
    counted = ("samples", "smallest", "largest", "fewest_classes", "most_classes", "distinct_cosines")
    assert [found[k] for k in counted] == [12, 4, 4, 1, 2, 2] and found["mean_classes"] == approx(4 / 3)
    assert found["label_cosine"] == approx(2**0.5 / 3) and found["label_entropy"] == approx(np.log(2) / 3)
    assert found["largest_class"] == approx(10 / 12) and (found["mean_size"], found["std_size"]) == (4, 0)


def test_sizes_are_drawn_with_and_without_cap_for_every_alpha():
    """Every draw deals out all 1,797 images; what the cap takes from the largest client it gives to others."""
    found = partitions.size_statistics(("digits",), 5, (0.1, 10.0), 3, 10)
    assert found.groupby(["alpha", "cap"])["seed"].agg(list).tolist() == [[0, 1, 2]] * 4
    assert found["mean_size"].unique() == [1797 / 5] and set(found["cell"]) == {"digits, 0.1", "digits, 10"}
    assert found["relative"].tolist() == approx((found["std_size"] * 5 / 1797).tolist())
    spread = found.groupby(["alpha", "cap"])["relative"].mean()
    assert spread[0.1, True] < spread[0.1, False] and spread[10.0, True] < spread[0.1, True]


def test_drawn_partitions_are_those_of_runs():
    kinds = {
        "b": {"scheme": "dirichlet", "alpha": 0.5, "min_size": 10},
        "a": {"scheme": "pat_balanced", "classes_per_client": 2},
    }
    stats = partitions.statistics_by_title(kinds, "digits", 5, range(3))
    assert stats["partition"].tolist() == ["b"] * 3 + ["a"] * 3 and stats["seed"].tolist() == [0, 1, 2] * 2
    assert set(stats["available"]) == {1797} and set(stats["clients"]) == {5} and stats["std_size"].nunique() > 3
    found = partitions.panels(partitions.drawn_counts(kinds, "digits", 5))
    assert list(found) == ["b", "a"] and found["b"].shape == (5, 10) and found["b"].sum() == 1797
    assert statistics(found["b"])["std_size"] == stats["std_size"].iloc[0]
    assert (found["a"] > 0).sum(1).tolist() == [2] * 5
    spec = tiny("local", num_clients=5, partition={"alpha": 0.5, "min_size": 10})
    np.testing.assert_array_equal(simulate(spec.but(rounds=1)).arrays["counts"], found["b"])


@pytest.mark.parametrize("name", ["mnist", "fmnist", "cifar10", "cifar100", "cinic10", "tiny_imagenet"])
def test_class_sizes_add_up_to_the_data_set(name):
    assert (len(class_sizes(name)), sum(class_sizes(name))) == (DATASETS[name].classes, DATASETS[name].images)
    assert class_sizes("emnist") is None and sum(known_class_sizes("digits")) == 1797


# who takes part -------------------------------------------------------------------------------------------------------


def test_pairs_meet_as_often_as_expected():
    """2 of 4 clients: 2*1/(4*3) = 1/6 a round, in each of which one pair of six meets."""
    once = participation.meetings(4, 0.5, 1)
    assert once[["drawn", "expected"]].iloc[0].tolist() == approx([1 / 6, 1 / 6])
    many = participation.meetings(100, 0.1, 100)
    assert many["expected"].iloc[-1] == approx(1 - (1 - 90 / 9900) ** 100) and many["rounds"].iloc[-1] == 100
    assert abs(many["drawn"].iloc[-1] - many["expected"].iloc[-1]) < 0.02 and many["drawn"].is_monotonic_increasing


def test_who_was_personalised():
    """T = 10, rho = 0.9: one round after the warm-up, with 2 of 10 clients. They have 9 of 10 right, the others 5:
    at the expected share 0.2 * 90 + 0.8 * 50 = 58. With rho = 0.5 the clients of five rounds are counted."""
    base = tiny("pfedsim", num_clients=10, join_ratio=0.2, rounds=10, partition={"alpha": 0.1, "min_size": 10})
    last = participants(base.seed, 10, 10, 0.2)
    correct, tests = np.full((10, 2), (2, 3)), np.full((10, 2), 5)
    correct[last] = 4, 5
    history = [{"round": 10, "point": "post", "headline": True, "pooled": 0.58}]

    def shares(rho: float, **changes) -> pd.Series:
        spec = base.but(hyper={"rho": rho}, **changes)
        clients = participation.after_warm_up(
            RunResult(spec, "finished", history, arrays={"correct": correct, "tests": tests})
        )
        return participation.shares(clients.assign(run="r"), ["run"]).iloc[0]

    found = shares(0.9)
    assert found.drop("run").tolist() == approx([20, 20, 90, 50, 58])
    since = set().union(*(participants(base.seed, t, 10, 0.2).tolist() for t in range(6, 11)))
    assert shares(0.5)["sampled"] == 10 * len(since) and shares(0.5)["expected share"] == approx(100 * (1 - 0.8**5))
    everybody = shares(0.5, join_ratio=1.0)
    assert everybody["sampled"] == 100 and math.isnan(everybody["accuracy, never sampled"])


# relevance ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "m", "k", "rounds"), [(10, 2, 5, 3), (10, 2, 2, 5), (10, 5, 2, 5), (100, 2, 5, 21), (10, 9, 5, 2)]
)
def test_bound_of_the_search(n, m, k, rounds):
    """ceil((n - m - 1) / k) + 1 rounds if m < k, else + ceil(m / k)."""
    assert relevance.search_bound(n, m, k) == rounds


def test_the_round_in_which_a_search_is_complete():
    """Client 0 needs 1 and 2, and gets them in rounds 1 and 3; client 1 needs 0, whom it never gets; 2 needs nobody."""
    sent = np.zeros((3, 3, 3), dtype=bool)
    sent[0, 0, 1] = sent[2, 0, 2] = sent[1, 1, 2] = True
    needed = np.array([[0, 1, 1], [1, 0, 0], [0, 0, 0]], dtype=bool)
    np.testing.assert_array_equal(relevance.first_complete(sent, needed), [3, np.nan, 1])


def test_auc_is_the_share_of_pairs_in_the_right_order_and_ties_count_half():
    def pairs(truth, score):
        gaps = score[truth][:, None] - score[~truth]
        return ((gaps > 0) + 0.5 * (gaps == 0)).mean()

    draw = np.random.default_rng(0)
    for _ in range(20):
        truth, score = draw.random((8, 8)) < 0.4, draw.integers(0, 4, (8, 8)).astype(float)
        rows = [
            pair
            for pair in zip(relevance.others(truth), relevance.others(score))
            if pair[0].any() and not pair[0].all()
        ]
        assert relevance.mean_auc(score, truth) == approx(np.mean([pairs(*pair) for pair in rows]), abs=1e-12)


def test_auc_signs_and_ranks():
    """Client 0 ranks its relevant other first, client 1 last of two, client 2 has nobody irrelevant and is left out.
    Wrong signs: (0, 2), (1, 0), (1, 2), (2, 0), of which (1, 0) and (2, 0) are missed; one-sided: 0-1, 0-2."""
    truth = np.array([[0, 1, 0], [1, 0, 0], [1, 1, 0]], dtype=bool)
    score = np.array([[9, 0.5, 0.1], [-1, 9, 0.2], [0, 1, 9]])
    assert relevance.mean_auc(score, truth) == 0.5 and math.isnan(relevance.mean_auc(score, ~np.eye(3, dtype=bool)))
    assert relevance.signs(np.where(np.eye(3), 0, score), truth) == {"wrong": 4, "missed": 2, "one_sided": 2}
    ranks = relevance.ranks_of_others(np.array([[0, 3, 2], [1, 5, 4], [1, 2, 0]]))
    assert ranks.tolist() == [[0, 2, 1], [1, 0, 2], [1, 2, 0]]
    shared = relevance.share_a_label(np.array([[5, 0, 0], [1, 2, 0], [0, 3, 3]]))
    assert shared.tolist() == [[False, True, False], [True, False, True], [False, True, False]]


def test_a_search_of_a_run():
    """Of four clients 0, 1 and 2, 3 share a label; two downloads a round: at most ceil(2/2) + 1 = 2 rounds. Client 0
    has its other in round 1 and keeps it alone, client 1 gets it in round 3, too late; 2 gets all in round 2; 3
    none."""
    counts, sent = np.array([[1, 0], [1, 0], [0, 1], [0, 1]]), np.zeros((3, 4, 4), dtype=bool)
    sent[:, 0, 1] = sent[2, 1, 0] = True
    sent[1:, 2] = [1, 1, 0, 1]
    score = np.where(relevance.share_a_label(counts), 1.0, -1.0)
    score[3] = 0
    history, arrays = (
        [{"round": 3, "point": "agg", "headline": True, "client_mean": 0.6}],
        {"counts": counts, "downloads": sent},
    )
    r = RunResult(tiny("pfedsv", model="lenet5"), "finished", history, seconds={"train": 2.0},
                  arrays=arrays | {"relevance": np.stack([-score, score])})  # fmt: skip
    found = relevance.searched(r, 2)
    np.testing.assert_array_equal(found["found"], [1, 3, 2, np.nan])
    assert found["late"].tolist() == [False, True, False, True] and found["bound"].tolist() == [2] * 4
    assert found["only_relevant"].tolist() == [True, True, False, False]
    own = {"auc": (1 + 1 + 1 + 0.5) / 4, "wrong": 1, "missed": 1, "one_sided": 1, "client_mean": 0.6, "seconds": 2.0}
    assert relevance.judged(r) == approx(own)
    assert relevance.pairs(r).query("client == 0")["relevance"].tolist() == [1, -1, -1]
    assert relevance.alike_by_rank(score, counts) == approx(0.75)  # whoever scores all others the same counts 0


def test_coalitions_that_a_game_asks_for():
    cost = relevance.game_costs(8).set_index("players")
    assert cost.loc[6, ["permutations", "exact", "estimate"]].tolist() == [18, 63, 63]
    assert cost.loc[8, "exact"] == 255 > cost.loc[8, "estimate"] and (cost["estimate"] <= cost["exact"]).all()


# traffic --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", ["D", "D+C"])
def test_downloads_are_what_the_engine_counts(variant):
    """Round 1 sends nobody's model; what is chosen after round t travels in round t + 1."""
    ring = dict(scheme="ring", partition={"classes_per_client": 4}, num_clients=5, join_ratio=1.0)
    result = simulate(
        tiny("pfedsv", hyper={"variant": variant, "k": 2}, model="lenet5", measures=("downloads",), **ring)
    )
    size = traffic.network_size(result.spec)
    assert size == models.sizes("lenet5", (1, 16, 16), 10)
    sent = int(result.arrays["downloads"][:2].sum())
    by_hand = sent * size["model"] if variant == "D" else 3 * 5 * size["extractor"] + sent * size["head"]
    assert result.communication["down"]["floats"] == by_hand == traffic.counted_down(result) and sent > 0
    got = traffic.models_by_round(result, 3)
    assert got["round"].tolist() == [1, 2, 3] and 5 * got["models"][:2].sum() == approx(sent)
    assert (result.arrays["downloads"].sum(2) <= 2).all()
    plain = RunResult(tiny("fedavg", model="lenet5", join_ratio=1.0), "finished")
    assert traffic.counted_down(plain) == 3 * 4 * size["model"]
    assert traffic.models_by_round(plain, 20)["models"].tolist() == [1.0] * 20  # as if it were longer


def test_numbers_that_would_travel_with_other_networks():
    """Two rounds of ten clients, 80 models down in all; a network of 100 numbers, of which 40,
    10 or none are personal."""
    a_client = [("C", 3.0), ("C", 5.0), ("D", 3.0), ("D", 5.0), ("one", 1.0), ("one", 1.0)]
    per_round = pd.DataFrame(a_client, columns=["method", "models"]).assign(seed=0, round=[1, 2] * 3)
    networks = pd.DataFrame([("net", 100, 0.4, 0.1, 0.0)], columns=["network", "parameters", "p", "q", "r"])
    found = traffic.sent_by_network(per_round, 10, networks, ("p", "q", "r"), split="C").set_index(
        ["method", "reading"]
    )
    assert found["up"].unique() == [2000] and found.loc[("D", "p"), "down"] == 8000
    assert [found.loc[("C", reading), "down"] for reading in "pqr"] == [20 * 60 + 80 * 40, 20 * 90 + 80 * 10, 2000]
    assert found.loc[("one", "q"), ["total", "total_ratio", "down_ratio"]].tolist() == [4000, 1, 1]
    assert found.loc[("D", "p"), ["total_ratio", "down_ratio"]].tolist() == [2.5, 4]


def test_shares_of_classifiers():
    """LeNet-5: 62,006 numbers, of which 850 in the last layer, 59,134 in three linear ones."""
    lenet = traffic.classifier_shares("lenet5", (3, 32, 32), 10, linear_layers=3)
    assert lenet == approx({"parameters": 62_006, "last layer": 850 / 62_006, "all linear layers": 59_134 / 62_006})
    resnet = traffic.classifier_shares("resnet34", (3, 224, 224), 1000)
    assert resnet["all linear layers"] == resnet["last layer"] == approx(513_000 / 21_797_672)
    vgg = traffic.classifier_shares("vgg19", (3, 224, 224), 10)
    assert vgg["all linear layers"] == approx(119_586_826 / 139_611_210)
