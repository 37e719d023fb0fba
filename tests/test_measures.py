"""Measures after every round and of the final models, and what a result keeps by client."""

from __future__ import annotations

import dataclasses
from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import exact, get_or_run, tiny

from fedlib.algorithms.fedsimsup import FedSimSup
from fedlib.base import tree
from fedlib.base.draws import participants
from fedlib.base.errors import BadValue
from fedlib.checks.plays import stop
from fedlib.engine.evaluate import evaluate
from fedlib.engine.setup import first_state, set_up
from fedlib.engine.simulate import simulate, simulate_together, watched, watched_round
from fedlib.experiments.pfedsv.task import read
from fedlib.measures import FINAL_MEASURES, ROUND_MEASURES
from fedlib.measures.final_models import ON_SAMPLES
from fedlib.runs.store import Store
from fedlib.spec import RunSpec

SEEN = ("traffic", "phi", "others", "heads_changed")


def walked(spec: RunSpec) -> dict[str, np.ndarray]:
    """What the measures say, from a run that is walked through by hand with the method's own weights."""
    run = set_up(spec)
    state, traffic, phis, mixing = first_state(run), [], [], []
    for t in range(1, spec.rounds + 1):
        server, floats, first_phase = state.server, dict(state.floats), state.warming_up
        seen = watched_round(run, state, t)
        traffic.append([(state.floats[way] - floats[way]) // len(seen.ids) for way in ("down", "up")])
        if first_phase:
            phis.append(np.full((spec.num_clients,) * 2, np.nan))
            mixing.append([0.0, 0])
            continue
        phis.append(state.server["phi"].numpy())
        weights = run.method.mixing_weights(server, seen.ids)
        weights = weights / weights.sum(1, keepdim=True)
        old, new = (tree.select(kept["models"], "head.") for kept in (server, state.server))
        changed = sum(any(not torch.equal(old[name][i], new[name][i]) for name in old) for i in range(spec.num_clients))
        mixing.append([1 - float(weights[range(len(seen.ids)), seen.ids].mean()), changed])
    return dict(zip(SEEN, (np.array(traffic), np.stack(phis), *np.array(mixing).T)))


@pytest.mark.parametrize("rho", [0.0, 0.4, 1.0])
def test_measures_of_pfedsim_are_those_of_a_run_walked_through(rho):
    spec = tiny("pfedsim", hyper={"rho": rho}, rounds=5, num_clients=5, join_ratio=0.6)
    arrays, expected = simulate(spec.but(measures=SEEN)).arrays, walked(spec)
    for name in SEEN:
        np.testing.assert_allclose(arrays[name], expected[name], rtol=1e-12, atol=1e-12)
    own = int(np.isnan(expected["phi"]).any((1, 2)).sum())
    assert own == int(rho * 5) and arrays["traffic"].dtype == np.int64
    assert (arrays["heads_changed"][own:] == 3).all()  # participants' classifiers alone change


def test_measures_change_no_number():
    spec = tiny("pfedsim", hyper={"rho": 0.34})
    plain, seen = exact(simulate(spec)), exact(simulate(spec.but(measures=SEEN)))
    assert {k: v for k, v in seen["arrays"].items() if k not in SEEN} == plain["arrays"]
    assert all(seen[part] == plain[part] for part in ("history", "communication", "partition"))


OTHER_EQ_4 = [{"phi": "eq3"}, {"phi_self": "eq3"}, {"max_age": 3}]
OTHER_FEDSIMSUP = [{"order": "model"}, {"zero_sim": "uniform"}, {"learn": "alone"}]
TWO_KINDS = {"supervisors": "supervisor_sixth+supervisor_cnn"}


@pytest.mark.parametrize(
    ("method", "hyper", "measure", "said"),
    [
        *(
            (m, {}, measure, "expected pFedSim")
            for m, measure in (("fedavg", "phi"), ("pfedsv", "others"), ("ffedap", "heads_changed"))
        ),
        *(
            row
            for measure in ("mixtures", "supervisors")
            for row in [
                ("fedavg", {}, measure, "expected FedSimSup"),
                *(("fedsimsup", hyper, measure, "printed") for hyper in OTHER_FEDSIMSUP),
                ("fedsimsup", TWO_KINDS, measure, "one kind"),
            ]
        ),
        ("fedavg", {}, "relevance", ""),
        ("local", {}, "downloads", ""),
        ("pfedsv", {}, "relevances", ""),
        ("fedper", {}, "selection", ""),
    ],
)
def test_measures_of_what_a_method_does_not_have_or_reads_otherwise_are_refused(method, hyper, measure, said):
    with pytest.raises(BadValue, match=f"{measure}.*{said}"):
        tiny(method, hyper=hyper, measures=(measure,))


@pytest.mark.parametrize("measure", FINAL_MEASURES)
def test_measures_of_final_models_that_differ_in_kind_are_refused_before_training(measure):
    with pytest.raises(BadValue, match=f"measures = .*{measure}.*final models of different networks"):
        set_up(tiny("fedsimsup", hyper=TWO_KINDS, measures=(measure,), holdout=0.2))
    alone = dict(num_clients=1, scheme="iid", partition={})
    alone |= {"dataset": "digits_large", "model": "lenet5"} if measure == "attention" else {}  # which has maps
    assert set_up(tiny("fedsimsup", hyper=TWO_KINDS, measures=(measure,), holdout=0.2, **alone))


@pytest.mark.parametrize("measure", FINAL_MEASURES)
def test_measures_of_final_models_that_a_client_does_not_have_are_refused_before_training(measure):
    """FedEM's clients have several models; FedRoD's model for all predicts with its own rule."""
    asked = {"measures": (measure,), "holdout": 0.2}
    if measure in ON_SAMPLES:
        assert set_up(tiny("fedem", **asked))
        with pytest.raises(BadValue, match=f"eval_points = .*glob.*personal models first.*{measure}"):
            set_up(tiny("fedrod", eval_points=("glob",), **asked))
    else:
        with pytest.raises(BadValue, match=f"measures = .*{measure}.*clients of fedem have several models"):
            set_up(tiny("fedem", **asked))


def test_other_measures_know_all_readings_of_eq_4():
    assert all(tiny("pfedsim", hyper=hyper, measures=SEEN) for hyper in OTHER_EQ_4)
    assert ROUND_MEASURES.keys().isdisjoint(FINAL_MEASURES)


# FedSimSup's rounds ---------------------------------------------------------------------------------------------------

WATCHED = tiny("fedsimsup", num_clients=6, model="lenet5", measures=("mixtures", "supervisors"))


def test_measures_of_fedsimsup_are_those_of_a_run_walked_through():
    result = simulate(WATCHED)
    before = None
    for run, state in watched(WATCHED.but(measures=())):
        kept = state.clients["supervisor_sixth"]
        squares = sum(leaf.double().flatten(1).square().sum(1) for leaf in kept.values()).numpy()
        if state.round:
            ids = participants(0, state.round, 6, 0.5)
            weights, alpha = run.method.mixing_weights(state.server, torch.arange(6), torch.as_tensor(ids))
            shares = result.arrays["mixtures"][state.round - 1]
            for i in set(range(6)) - set(ids):
                expected = np.zeros(6)
                expected[ids], expected[i] = weights[i] * (1 - alpha[i]), alpha[i]
                np.testing.assert_allclose(shares[i], expected, atol=1e-5)
            assert (shares[ids] == np.eye(6)[ids]).all()
            found = result.arrays["supervisors"][state.round - 1]
            np.testing.assert_allclose(found, np.stack([before, squares], 1), rtol=1e-6)
            assert ((found[:, 0] != found[:, 1]) == np.isin(range(6), ids)).all()
        before = squares


WRONG = {  # weights that the server might use otherwise
    "equal weights": ("weights_of_pairs", lambda self, cosines, seed: torch.ones_like(cosines)),
    "half of the own": ("mixing_weights", lambda self, server, mixing, ids: (
        torch.full((len(mixing), len(ids)), 1 / len(ids)), torch.full((len(mixing),), 0.5))),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_other_weights_are_seen_in_the_models(what, monkeypatch):
    right = simulate(WATCHED, backend="serial").arrays["mixtures"]
    monkeypatch.setattr(FedSimSup, *WRONG[what])
    found = simulate(WATCHED, backend="serial").arrays["mixtures"]
    assert (np.abs(found - right).max((1, 2)) > 0.01).all()


def test_a_run_of_fedsimsup_that_is_continued_has_the_same_measures(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDLIB_CACHE", str(tmp_path))
    whole = simulate(WATCHED, backend="serial")
    stop(WATCHED, 2, backend="serial")
    assert exact(simulate(WATCHED, backend="serial", checkpoint_every=0)) == exact(whole)
    stacked = simulate(WATCHED, backend="vmap").arrays
    np.testing.assert_allclose(stacked["mixtures"], whole.arrays["mixtures"], atol=1e-5)


# ----------------------------------------------------------------------------------------------------------------------


def test_traffic_is_counted_for_every_method():
    """FedFomo sends nothing in the first round and up to all others' models later; the sums are the communication."""
    for method in ("fedavg", "fedfomo", "fedproto"):
        result = simulate(tiny(method, measures=("traffic",), join_ratio=1.0))
        sums = {way: result.communication[way]["floats"] for way in ("down", "up")}
        mine = 4 * result.arrays["traffic"].sum(0)
        assert all(0 <= sums[way] - mine[k] < 3 * 4 for k, way in enumerate(("down", "up")))  # means, rounded down
    assert result.arrays["traffic"].shape == (3, 2)


RING = dict(scheme="ring", partition={"classes_per_client": 4}, num_clients=5, join_ratio=1.0, model="lenet5")


def test_what_is_followed_is_what_there_was():
    """Clients' accuracies average to the history's, a round without evaluation has none;
    relevance is the clients' own."""
    spec = tiny("pfedsv", hyper={"k": 2}, eval_every=2, measures=("client_accuracy", "relevance", "downloads"), **RING)
    result = simulate(spec)
    accuracy, seen = result.arrays["client_accuracy"], result.arrays["relevance"]
    assert np.isnan(accuracy[0]).all()
    headlines = [h["client_mean"] for h in result.history if h["headline"]]
    assert accuracy[1:].mean(1).tolist() == pytest.approx(headlines)
    np.testing.assert_allclose(accuracy[-1], result.arrays["correct"].sum(1) / result.arrays["tests"].sum(1))
    for _run, state in watched(spec):
        if state.round:
            np.testing.assert_array_equal(seen[state.round - 1], state.clients["relevance"].numpy())
    assert not seen[0].any() and seen[-1].any() and not result.arrays["downloads"][:, range(5), range(5)].any()
    plain = simulate(spec.but(measures=()))
    assert plain.history == result.history and set(plain.arrays) == {"correct", "correct_post", "tests", "counts"}


def test_what_is_followed_does_not_depend_on_the_way(tmp_path, monkeypatch):
    """Two seeds in one stack, and a run that is killed after a round and continued, are as one run alone."""
    monkeypatch.setenv("FEDLIB_CACHE", str(tmp_path))
    spec = tiny("fedfomo", hyper={"M": 2}, measures=("relevance", "downloads"), **RING)
    alone = simulate(spec, backend="vmap")
    stacked, _ = simulate_together([spec, spec.but(seed=1)], backend="vmap")
    np.testing.assert_allclose(stacked.arrays["relevance"], alone.arrays["relevance"], rtol=1e-4, atol=1e-5)
    assert alone.arrays["relevance"].shape == (3, 5, 5) and (alone.arrays["relevance"][0] == np.eye(5)).all()
    whole = simulate(spec, backend="serial")
    stop(spec, 2, backend="serial")
    assert exact(simulate(spec, backend="serial", checkpoint_every=0)) == exact(whole)


def test_a_run_with_measures_is_another_run_and_keeps_them(tmp_path):
    spec = tiny("fedavg", rounds=1, model="lenet5", measures=("client_accuracy",))
    stored, again = get_or_run(spec, Store("x", tmp_path)), Store("x", tmp_path).get(spec)
    np.testing.assert_array_equal(again.arrays["client_accuracy"], stored.arrays["client_accuracy"])
    assert spec.id != spec.but(measures=()).id


# final models ---------------------------------------------------------------------------------------------------------


def test_distances_are_those_of_the_models():
    spec = tiny("local", model="lenet5", rounds=1, measures=("model_distances",))
    arrays = simulate(spec, backend="serial").arrays
    for _, state in watched(spec):
        models = {name: leaf.clone() for name, leaf in state.clients["theta"].items()}
    for array, part in (("squared_distance", ""), ("squared_distance_head", "head")):
        flat = torch.cat([leaf.double().flatten(1) for name, leaf in models.items() if name.startswith(part)], 1)
        np.testing.assert_allclose(arrays[array], torch.cdist(flat, flat).square(), rtol=1e-6, atol=1e-9)
    a, b = (models["head.weight"][i].double() for i in (0, 1))
    assert arrays["classifier_cosine"][0, 1] == pytest.approx(float(torch.cosine_similarity(a, b, dim=1).mean()))


@pytest.mark.parametrize("method", ["fedem", "fedavg_ft", "pfedsv"])
def test_a_test_on_all_clients_parts_is_a_run_with_global_test_parts(method):
    """A mixture of models with its own `predict`, fine-tuned models, and mixtures of the clients' models."""
    spec = tiny(method, model="lenet5", rounds=1, join_ratio=1.0)
    measured = simulate(spec.but(measures=("common_test",)))
    trained_again = simulate(spec.but(test_distribution="global"))
    assert np.array_equal(measured.arrays["common_correct"], trained_again.arrays["correct"])
    assert np.array_equal(np.tile(measured.arrays["common_tests"], (4, 1)), trained_again.arrays["tests"])
    (on_all,) = (r for r in read(measured, "few") if r.about == {"tested_on": "all"})
    (own,) = (r for r in read(measured, "few") if r.about == {"tested_on": "own"} and r.headline)
    assert on_all.accuracy == pytest.approx(trained_again.final("client_mean")) and on_all.headline
    assert own.accuracy == measured.final("client_mean")


def test_a_test_on_all_clients_parts_refuses_what_it_cannot_test():
    with pytest.raises(BadValue, match="eval_points"):
        simulate(tiny("fedrod", rounds=1, eval_points=("glob",), measures=("common_test",)))


# by client ------------------------------------------------------------------------------------------------------------


def test_a_result_keeps_all_clients_at_all_points_of_the_last_round(tmp_path):
    spec = tiny("pfedsim", hyper={"rho": 0.5}, eval_points=("agg", "post", "ft(2)"))
    result, store = simulate(spec), Store("t", tmp_path)
    names = ("correct", "correct_post", "correct_ft(2)")
    assert [name for name in result.arrays if name.startswith("correct")] == list(names)
    store.put(result)
    for found in (result, store.get(spec)):
        for point, name in zip(("agg", "post", "ft(2)"), names):
            correct, tests = found.by_client(point)
            assert found.arrays[name].shape == (4, 10) and correct.dtype == tests.dtype == np.int64
            assert correct.tolist() == found.arrays[name].sum(1).tolist() and (correct <= tests).all()
            assert correct.sum() / tests.sum() == pytest.approx(found.final("pooled", point))
        assert found.by_client()[0].tolist() == found.by_client("agg")[0].tolist()
    with pytest.raises(BadValue, match="glob.*accepted: agg, post"):
        result.by_client("glob")


def test_results_from_before_all_points_were_kept_have_the_headline_only():
    result = simulate(tiny("pfedsim", hyper={"rho": 0.0}))
    old = dataclasses.replace(result, arrays={k: v for k, v in result.arrays.items() if not k.startswith("correct_")})
    assert old.by_client("agg") is None and old.by_client()[0].tolist() == result.by_client("post")[0].tolist()


def test_a_diverged_run_has_no_clients(tmp_path):
    assert get_or_run(tiny("fedavg", lr=1e15), Store("t", tmp_path)).by_client() is None


# PFedCS ---------------------------------------------------------------------------------------------------------------

TWO_CLASSES = dict(
    scheme="pat_grouped", partition=dict(classes_per_client=2, min_size=4), num_clients=10, join_ratio=1.0, rounds=4
)


def test_measures_of_classifiers_are_those_of_a_run_walked_through():
    spec = tiny("pfedcs", **TWO_CLASSES, measures=("head_distances", "head_moves", "selection"))
    arrays, run = simulate(spec).arrays, set_up(spec)
    state, own = first_state(run), torch.eye(10, dtype=torch.bool)
    first = run.work.model.theta0
    for t in range(1, 5):
        server = state.server
        seen = watched_round(run, state, t)
        heads = state.clients["h"]
        a, b = heads["head.weight"][2].double(), heads["head.weight"][7].double()
        assert arrays["head_distances"][t - 1, 2, 7] == pytest.approx(float((a - b).square().sum()), rel=1e-6)
        moved = (heads["head.weight"][7, 3] - first["head.weight"][3]).double().sum()
        moved = moved + heads["head.bias"][7, 3] - first["head.bias"][3]
        assert arrays["head_moves"][t - 1, 7, 3] == pytest.approx(float(moved), rel=1e-4, abs=1e-6)
        if t <= 2:
            D = run.method.distances(server["heads"]["head.weight"], torch.arange(10), torch.arange(10))
            chosen = run.method.collaborators(server, D, seen.ids, own).numpy()
            assert ((arrays["selection"][t - 1] == 2) == chosen).all()
    assert not arrays["selection"][2:].any() and not arrays["selection"][:, range(10), range(10)].any()


def test_classifiers_of_fedavgs_clients_are_their_uploads():
    spec = tiny("fedavg", measures=("head_distances",))
    distances = simulate(spec).arrays["head_distances"]
    there = ~np.isnan(distances[:, range(4), range(4)])
    assert (there.sum(1) == 2).all() and (np.nanmax(distances, (1, 2)) > 0).all()  # two of four take part


# validation -----------------------------------------------------------------------------------------------------------


def test_a_holdout_is_the_same_for_every_method_and_nobody_trains_on_it():
    """Methods that need a validation part take that one; the test part stays."""
    plain, held = (set_up(tiny("fedavg", holdout=share)) for share in (0.0, 0.2))
    own = [set_up(tiny(method, holdout=0.2)) for method in ("pfedsv", "fedfomo", "local")]
    for i, (before, parts) in enumerate(zip(plain.work.parts, held.work.parts)):
        assert "val" not in before and len(parts["val"]) == max(1, round(0.2 * len(before["train"])))
        assert sorted([*parts["val"], *parts["train"]]) == list(before["train"])
        assert np.array_equal(parts["test"], before["test"])
        assert all(np.array_equal(run.work.parts[i][part], parts[part]) for run in own for part in parts)
    assert held.sizes.sum() < plain.sizes.sum()
    assert tiny("fedavg").id == tiny("fedavg", holdout=0.0).id != tiny("fedavg", holdout=0.2).id


@pytest.mark.parametrize("method", ["fedavg", "fedavg_ft", "pfedsim", "fedsimsup", "pfedsv"])
def test_validation_accuracy_is_that_of_the_models_that_are_tested(method):
    """Tested on these samples in place of their test parts, the clients get as many right."""
    spec = tiny(method, holdout=0.2, measures=("validation",))
    measured, (run, state) = simulate(spec), [*watched(spec)][-1]
    parts = [{**own, "test": own["val"]} for own in run.work.parts]
    elsewhere = replace(run, work=replace(run.work, parts=parts))
    correct, _ = evaluate(elsewhere, state, run.points(state)[0])
    assert measured.arrays["val_correct"].tolist() == correct.sum(1).tolist()
    assert measured.arrays["val_tests"].tolist() == [len(own["val"]) for own in parts]
    assert measured.history == simulate(spec.but(measures=())).history


@pytest.mark.parametrize(
    ("method", "wrong", "said"),
    [
        ("fedavg", {"holdout": 1.0}, "holdout = 1.0 .* from 0 to below 1"),
        ("fedavg", {"holdout": -0.1}, "holdout = -0.1"),
        ("fedfomo", {"holdout": 0.3}, "holdout = 0.3 .* 0.2, which the method takes, or 0"),
        ("fedavg", {"measures": ("validation",)}, "holdout = 0 .* above 0 where the measure 'validation'"),
    ],
)
def test_validation_parts_that_cannot_be_are_refused(method, wrong, said):
    with pytest.raises(BadValue, match=said):
        tiny(method, **wrong)
