"""Evaluation points and statistics: recomputed batch norm by hand, points of every method, orders that change."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from helpers import analysed, made_up

from fedlib import algorithms, figures
from fedlib.analysis.points import ANEW, RECEIVED, TRAINED, TUNED1, codes, first_point
from fedlib.analysis.tables import only
from fedlib.analysis.uncertainty import units
from fedlib.base.errors import BadValue
from fedlib.claims import NOT_REPRODUCED, NOT_TESTED, REPRODUCED
from fedlib.engine.simulate import simulate, watched
from fedlib.experiments import find
from fedlib.experiments.evaluation import notes, table1_points, table2_statistics
from fedlib.experiments.evaluation.task import ALL
from fedlib.experiments.pfedsim import table3_own_clients
from fedlib.spec import RunSpec

TASK = dict(dataset="digits", num_clients=5, join_ratio=0.4, rounds=2, local_epochs=1, lr=0.05, images=300,
            partition={"alpha": 0.5, "min_size": 20})  # fmt: skip
TABLE1, TABLE2 = "evaluation/table1_points", "evaluation/table2_statistics"


def test_the_best_competitor_is_found_on_the_seeds_that_a_pair_shares():
    """On the one seed that all three share c is the best other method; on the three of a and b, b is nearer to a."""
    accuracies = {"a": {0: 0.9, 1: 0.9, 2: 0.9}, "b": {0: 0.8, 1: 0.9, 2: 0.9}, "c": {0: 0.82}}
    rows = [{"row": row, "seed": n, "accuracy": v} for row, own in accuracies.items() for n, v in own.items()]
    found = notes.leads({"tidy": pd.DataFrame(rows).assign(column="x", point="post")}, "a", point="post")
    assert found["x"][0] == "b" and found["x"][1].iloc[0] == pytest.approx(10 / 3)


def test_methods_stand_in_the_order_of_the_first_point_beside_the_pairs_that_reverse():
    """By hand: b 3 above a and c 1 above a, so b, c, a; a and c reverse."""
    lines = [("x", "a", "b", -3.0, False), ("x", "a", "c", -1.0, True), ("x", "b", "c", 2.0, False)]
    pairs = pd.DataFrame(lines, columns=["column", "a", "b", "difference", "changes"]).assign(significant=False)
    (ax,) = figures.flip_matrix(pairs).axes
    assert [label.get_text() for label in ax.get_yticklabels()] == ["b", "c", "a"]
    assert ax.images[0].get_array().filled(-1).tolist() == [[-1, 0, 0], [0, -1, 1], [0, 1, -1]]


def test_recomputed_statistics_are_those_of_a_plain_module_in_one_pass():
    """glob+bn of FedAvg: statistics of a client's training part, seen as one batch."""
    spec = RunSpec("fedavg", eval_points=("glob", "glob+bn"), batch_size=512, **TASK)
    *_, (run, state) = watched(spec)
    theta, model, right = state.server["theta"], run.work.model, []
    conv, norm = torch.nn.functional.conv2d, torch.nn.functional.batch_norm
    for own in run.work.parts:
        x, test = (run.work.source.batch(torch.from_numpy(own[part])) for part in ("train", "test"))
        first = conv(x.x, theta["extractor.conv1.weight"], theta["extractor.conv1.bias"])
        normed = norm(first, None, None, theta["extractor.bn1.weight"], theta["extractor.bn1.bias"], training=True)
        second = conv(normed.relu(), theta["extractor.conv2.weight"], theta["extractor.conv2.bias"])
        fresh = {}
        for name, out in (("bn1", first), ("bn2", second)):
            fresh[f"extractor.{name}.running_mean"] = out.mean((0, 2, 3))
            fresh[f"extractor.{name}.running_var"] = out.var((0, 2, 3))
        right.append(int((model.logits({**theta, **fresh}, test.x).argmax(1) == test.y).sum()))
    found = simulate(spec)
    assert found.by_client("glob+bn")[0].tolist() == right
    assert found.by_client("glob")[0].tolist() != right


@pytest.mark.parametrize("method, point", [("fedavg", "glob"), ("fedper", "recv"), ("pfedsim", "agg")])
def test_recomputed_statistics_do_not_depend_on_where_statistics_were_kept(method, point):
    """Training never looks at running statistics, so that whoever keeps them, the recomputed ones are the same."""
    a, b = (simulate(RunSpec(method, bn_stats=kept, eval_points=(point, f"{point}+bn"), **TASK))
            for kept in ("local", "global"))  # fmt: skip
    assert np.array_equal(a.by_client(f"{point}+bn")[0], b.by_client(f"{point}+bn")[0])
    assert not np.array_equal(a.by_client(point)[0], b.by_client(point)[0])


@pytest.mark.parametrize("point, named", [("ft(1)+bn", "ft.1..bn"), ("post+stats", "post.stats"), ("+bn", r"'\+bn'")])
def test_points_that_do_not_exist_are_refused_with_those_that_do(point, named):
    with pytest.raises(BadValue, match=f"{named}.*accepted: glob, post, .*also with .bn at the end"):
        RunSpec("fedavg", eval_points=(point,))


def test_points_may_come_as_a_text():
    assert RunSpec("fedavg", eval_points="glob, ft(5)") == RunSpec("fedavg", eval_points=("glob", "ft(5)"))


def test_a_newcomer_has_no_model_after_local_training_when_it_comes():
    result = simulate(RunSpec("fedavg", unseen=1, eval_points=("glob", "post+bn"), **TASK))
    assert [each["point"] for each in result.newcomers if each["when"] == "before"] == ["glob"]


def test_statistics_of_a_model_without_batch_norm_are_refused_before_training():
    with pytest.raises(BadValue, match="lenet5 has no batch norm"):
        simulate(RunSpec("fedavg", model="lenet5", eval_points=("glob+bn",), **TASK))


def test_every_method_has_points_that_it_accepts():
    s = table1_points.ITEM.settings["paper"]
    runs = table1_points.TABLE.runs(s)
    assert set(s["methods"]) == set(ALL) and len(ALL) == len(algorithms.of_fedlib()) - 2
    assert {seed for *_, seed in runs} == {0, 1, 2} and {spec.partition_seed for spec in runs.values()} == {42}
    for (row, column, _), spec in runs.items():
        assert spec.eval_points[0] == next(iter(codes(row).values())) and spec.eval_every == spec.rounds, (row, column)
    first = {method: first_point(method) for method in ("local", "fedavg", "fedbn", "pfedsim", "ffedap")}
    assert list(first.values()) == ["", "glob", "recv", "agg", "agg"]


ACCURACY = {  # by method: received, trained
    "fedavg": (0.5, 0.95), "fedper": (0.9, 0.91), "pfedsim": (0.85, 0.93), "fedbn": (0.55, 0.94), "local": (None, 0.8),
}  # fmt: skip


def made(key, spec, noise=1e-4, accuracy=ACCURACY, statistics=0.0):
    """Runs with these accuracies, which differ a little by seed; at recomputed statistics more, at ft(5) all alike."""
    received, trained = accuracy[key[0]]
    lift = statistics if "averaged" in key[1] else 0.0
    seen = {"+bn": (received or 0) + statistics, "ft(1)": trained, "ft(5)": 0.95, "post": trained}
    points = {}
    for code in spec.eval_points:
        value = next((v for end, v in seen.items() if code.endswith(end)), None)
        points[code] = (received + lift if value is None else value) + noise * np.sin(
            7 * key[2] + len(key[0]) + ord(key[0][-1])
        )
    return made_up(spec, points)


def of_table1(**changes):
    return analysed(TABLE1, lambda key, spec: made(key, spec, **changes), methods=tuple(ACCURACY), seeds=3)


def verdicts(name, tables):
    return [claim.check(tables).status for claim in find(name).claims]


def test_orders_that_change_are_counted():
    """As received: FedPer, pFedSim, FedBN, FedAvg. After training: FedAvg, FedBN, pFedSim, FedPer: all six pairs."""
    tables = of_table1()
    moved = tables["flips"].set_index(["column", "from", "to"])
    assert moved.loc["Dir(0.1)", RECEIVED, TRAINED].tolist() == [6, 6, 6]
    assert moved.loc["Dir(0.1)", TRAINED, TUNED1].tolist() == [6, 0, 0]
    first = tables["first"].set_index(["column", "point"])["first"]
    assert first["Dir(0.5)", RECEIVED] == "FedPer" and first["Dir(0.5)", TRAINED] == "FedAvg"
    assert verdicts(TABLE1, tables)[:4] == [REPRODUCED] * 4
    said = figures.largest_move(table1_points.shown(tables))
    assert said == "Dir(0.1): by means FedAvg ranks 4 of 4 before local training, 1 after it"
    calm = of_table1(noise=0.5)  # the same means, but for what seeds do: nothing is sure
    assert calm["flips"]["significantly"].sum() == 0


def test_leaders_are_told_on_the_seeds_of_those_near_the_best():
    """FedBABU at Dir(0.5) and local-only training have three seeds; that does not take two from all others."""
    near, accuracy = ("fedavg", "fedper", "pfedsim"), ACCURACY | {"fedbabu": (0.3, 0.7)}
    tables = analysed(TABLE1, lambda key, spec: made(key, spec, accuracy=accuracy),
                      methods=("local", *near, "fedbabu"), seeds=3, more_seeds=2)  # fmt: skip
    seeds = tables["tidy"].groupby(["column", "row"])["seed"].nunique()["Dir(0.5)"]
    assert seeds.to_dict() == dict.fromkeys(near, 5) | {"local": 3, "fedbabu": 3}
    assert set(only(table1_points.nearest(tables)["tidy"], column="Dir(0.5)")["row"]) == set(near)
    over = [claim.check(tables).over for claim in find(TABLE1).claims]
    assert (units(tables), over[0], over[2], over[4]) == ("5 seeds", "", "3 seeds", "3 to 5 seeds")


def test_the_label_prior_is_that_of_each_clients_most_frequent_class_in_training():
    """Client 0 trains on 5 and 1 images of two classes, client 1 on 0 and 7; of their test images 3 and 2 are right."""
    arrays = {"counts": np.array([[8, 2], [1, 9]]), "tests": np.array([[3, 1], [1, 2]])}
    result = made_up(RunSpec("fedavg", **TASK), 0.5, **arrays)
    assert table1_points.label_prior(result) == round(100 * 5 / 7, 1)


def test_nothing_is_said_of_all_methods_before_all_runs_have_ended():
    tables = of_table1()
    tables["_columns"].loc[tables["_columns"]["column"] == "Dir(0.5)", "ended"] = False
    found = [claim.check(tables) for claim in find(TABLE1).claims[:4]]
    assert [v.status for v in found] == [NOT_TESTED, NOT_TESTED, REPRODUCED, NOT_TESTED]
    assert found[0].evidence.endswith("; missing runs in Dir(0.5)")


def test_what_a_method_gains_where_others_are_tested():
    tables = of_table1()["protocols"].set_index("method")
    shown = ["primary evaluation point", "Dir(0.1): before local training", "Dir(0.1): after local training"]
    assert tables.loc["FedAvg", shown].tolist() == ["glob", "+0.0", "+45.0"]
    assert tables.loc["pFedSim", "primary evaluation point"] == "post"
    assert tables.loc["pFedSim", "Dir(0.1): before local training"] == "-8.0"
    assert tables.loc["Local", "Dir(0.1): before local training"] == ""


def test_where_others_code_evaluates():
    """In the code of pFedSim's authors as our table on their clients has it."""
    for method, points in table1_points.ELSEWHERE.items():
        assert len(points) == len(table1_points.CODES) and any(points)
        for point in points:
            assert point in ("", *algorithms.find(method).points) or point.startswith("fine-tuned")
        first = table3_own_clients.TESTED_AT.get(method, algorithms.make(method).eval_points({})[0])
        assert points[0] in ("", first)
    shown = of_table1()["elsewhere"].set_index("method")
    assert shown.index.tolist()[-1] == "batch-norm statistics" and len(shown) == 1 + len(of_table1()["protocols"])


def test_nothing_changes_where_the_order_is_one():
    one = {name: (0.1 * k, 0.1 * k + 0.3) for k, name in enumerate(("fedbn", "fedper", "pfedsim", "fedavg"), 1)}
    tables = analysed(TABLE1, lambda key, spec: made(key, spec, accuracy=one), methods=tuple(one), seeds=3)
    found = verdicts(TABLE1, tables)
    assert found[0] == NOT_REPRODUCED and found[3] == NOT_REPRODUCED and tables["flips"]["change"][:2].sum() == 0


def test_one_seed_decides_nothing_and_missing_methods_are_named():
    tables = analysed(TABLE1, made, methods=("fedavg", "fedper"), seeds=1)
    assert REPRODUCED not in verdicts(TABLE1, tables) and NOT_REPRODUCED not in verdicts(TABLE1, tables)
    lead = table1_points.ITEM.claims[5].check(tables)
    assert lead.status == NOT_TESTED and "pfedsim" in lead.evidence


def test_statistics_are_compared_within_a_seed():
    """Averaged ones add 3 points to all, which seeds move by ten: a difference that only pairs of seeds can see."""
    of = {name: ACCURACY[name] for name in ("fedavg", "fedper", "pfedsim", "fedbn")}
    tables = analysed(TABLE2, lambda key, spec: made(key, spec, noise=0.1, accuracy=of, statistics=0.03),
                      methods=tuple(of), seeds=3)  # fmt: skip
    gains, lacks = table2_statistics.gains(tables, *table2_statistics.KINDS[1::-1], ("fedavg", "fedper"))
    assert not lacks and all(gap.iloc[0] == pytest.approx(3) for gap in gains.values())
    found = [claim.check(tables).status for claim in find(TABLE2).claims]
    assert found[:3] == [REPRODUCED] * 3  # they lift, recomputed ones as much, and nothing changes after training
    kinds = table2_statistics.by_statistics(tables).columns.get_level_values(2)
    assert set(kinds) == set(table2_statistics.KINDS)
    assert ANEW in set(tables["tidy"]["point"])


def test_the_answer_compares_within_a_seed():
    """Seeds move all accuracies alike; local-only training, which has no point before it, changes nothing."""

    def alike(key, spec):
        received, trained = ACCURACY[key[0]]
        return made_up(spec, {p: (trained if p == "post" else received or 0) + 0.01 * key[2] for p in spec.eval_points})

    said = table2_statistics.answer(analysed(TABLE2, alike, methods=tuple(ACCURACY), seeds=3))
    assert "Dir(0.1): pFedSim -10.0 [-10.0, -10.0]" in said and "Dir(0.5): FedPer -5.0 [-5.0, -5.0]" in said


def test_a_lead_that_is_one_of_the_evaluation_point():
    """pFedSim is evaluated after training, FedPer before; after training both, FedPer is ahead. Seeds move both."""

    def accuracy(key, spec):
        moved = 0.05 * key[-1]
        by_row = {"pfedsim": {"post": 0.80, "agg": 0.70}, "fedper": {"recv": 0.78, "post": 0.82}}
        points = by_row.get(key[1], {"post": 0.5})
        return made_up(spec, {point: value + moved for point, value in points.items()}) if key[0] == "pfedsim" else None

    tables = analysed("evaluation/notes", accuracy, profile="paper", scale="paper")
    task = tables["compare"].set_index("task").loc["pFedSim: the authors' input pipeline, Dir(0.1)"]
    assert [task[kind].split(" ")[0] for kind in notes.KINDS] == ["+1.9", "+2.0", "-2.0", "-8.0"]
    assert task[notes.REPORTED] == "+1.9 over FedRep" and task["after local training"].endswith("over FedPer")
    assert len(tables["_lost"]) == 10 and np.allclose(tables["_lost"]["change"], 4)
    assert verdicts("evaluation/notes", tables) == [REPRODUCED, REPRODUCED]
