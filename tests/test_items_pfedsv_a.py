"""pFedSV's Figures 2, 3, 4 and 7 to 10: claims go both ways, numbers agree with counts done by hand; measures of every round; known peers."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import torch
from fedlib.experiments.items import NOT_REPRODUCED, REPRODUCED
from helpers import close, computed, exact, tiny

from fedlib import algorithms, models
from fedlib.algorithms.fedfomo import FedFomo
from fedlib.algorithms.parts import shapley
from fedlib.algorithms.pfedsv_known import RULES, relevant_peers
from fedlib.base import tree
from fedlib.base.errors import BadValue
from fedlib.engine.result import RunResult
from fedlib.engine.setup import set_up
from fedlib.engine.shared_beginnings import beginning
from fedlib.engine.simulate import simulate, simulate_together, watched
from fedlib.experiments import ITEMS, OpenItem
from fedlib.experiments.pfedsv import communication, distance, domain, multiwise, relevance, ring
from fedlib.measures import FINAL_MEASURES, ROUND_MEASURES
from fedlib.runs.run import get_or_run
from fedlib.runs.store import Store
from fedlib.spec import RunSpec

RING = dict(scheme="ring", partition={"classes_per_client": 4}, num_clients=5, join_ratio=1.0)


def statuses(name: str, tables: dict) -> list[str]:
    return [claim.check(tables).status for claim in ITEMS[f"pfedsv/{name}"].claims]


# settings ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "dataset", "lr"),
    [("fig2_domain_relevance", "mnist", 0.01), ("fig3_model_difference", "cifar10", 0.1), ("fig4_multiwise", "cifar10", 0.1), ("fig7_relevance", "mnist", 0.01), ("figs8_10_communication", "mnist", 0.01)],
)
def test_paper_profile_has_the_papers_settings(name, dataset, lr):
    specs = OpenItem(ITEMS[f"pfedsv/{name}"], "paper").specs
    for spec in specs:
        assert (spec.dataset, spec.lr, spec.local_epochs, spec.join_ratio, spec.model, spec.model_options) == (dataset, lr, 5, 1.0, "mcmahan_cnn", {"padding": "same"})
        assert spec.num_clients == (len(spec.partition["label_sets"]) if spec.scheme == "manual" else 10)
        assert spec.hyper.get("k", 5) == (2 if spec.method == "pfedsv_known" else 5) and spec.partition_seed == spec.seed
    assert max(spec.rounds for spec in specs) == 20 and {spec.seed for spec in specs} == set(range(5))


def test_figures_7_and_8_to_10_share_their_runs():
    fig7, figs8_10 = (OpenItem(ITEMS[f"pfedsv/{name}"], "paper") for name in ("fig7_relevance", "figs8_10_communication"))
    assert len({s.id for s in fig7.specs} & {s.id for s in figs8_10.specs}) == 10  # pFedSV and FedFomo, five seeds


def test_label_sets_of_figure_3_are_a_ring_and_begin_as_printed():
    assert [set(own) for own in distance.LABELS[:3]] == [{0, 1}, {1, 2}, {0, 3}]
    owned = np.zeros((10, 10), dtype=int)
    for client, own in enumerate(distance.LABELS):
        owned[client, own] = 1
    assert (owned.sum(0) == 2).all() and (ring.share_a_label(owned).sum(1) == 2).all()


def test_every_arm_of_figure_4_is_found_again():
    specs = multiwise.multiwise_specs({**ring.SETTINGS["smoke"], "seeds": 1})
    assert [multiwise.arm_of(spec) for spec in specs] == list(multiwise.ARMS)


@pytest.mark.parametrize("name", ["fig2_domain_relevance", "fig3_model_difference", "fig4_multiwise", "fig7_relevance", "figs8_10_communication"])
def test_bad_settings_are_errors_before_anything_is_trained(name):
    for bad in ({"lr": -1.0}, {"test_fraction": 1.5}, {"model": "lenet"}, {"epochs": 3}):
        with pytest.raises(BadValue, match=str(*bad)):
            OpenItem(ITEMS[f"pfedsv/{name}"], "smoke", **bad)


# figure 2 --------------------------------------------------------------------------------------------------------------


def test_client_a_has_the_same_images_in_all_scenarios():
    specs = domain.domain_specs({**ring.SETTINGS["smoke"], "seeds": 1})
    five, three, alone = (set_up(spec).work.parts for spec in specs)
    assert (len(five), len(three), len(alone)) == (5, 3, 3)
    for part in ("train", "test"):
        assert np.array_equal(five[0][part], three[0][part]) and np.array_equal(five[0][part], alone[0][part])


def test_curves_of_figure_2_by_hand():
    curve = np.array([0.1, 0.5, 0.96, 0.9, 1.0, 1.0, 1.0, 1.0, 1.0])
    assert domain.tail(curve) == 1.0 and domain.rounds_to(curve) == 3


def domain_tables(five: float, three: float, alone: float) -> dict:
    curves = {"all five": np.minimum(np.linspace(0, 2 * five, 20), five), "A, B, C": np.full(20, three), "A alone": np.full(20, alone)}
    rows = [(name, seed, t, v) for name, curve in curves.items() for seed in (0, 1) for t, v in enumerate(curve, 1)]
    tidy = pd.DataFrame(rows, columns=["scenario", "seed", "round", "accuracy"])
    grouped = tidy.groupby(["scenario", "seed"], sort=False)["accuracy"]
    ends = pd.DataFrame({"end": grouped.apply(domain.tail), "fast": grouped.apply(lambda c: domain.rounds_to(c.to_numpy()))})
    return {"tidy": tidy, "ends": ends.reset_index()}


def test_claims_of_figure_2_follow_the_numbers():
    assert statuses("fig2_domain_relevance", domain_tables(0.8, 0.9, 0.7)) == [REPRODUCED] * 3
    turned = domain_tables(0.95, 0.9, 0.95)
    turned["ends"].loc[turned["ends"]["scenario"] == "all five", "fast"] = 1
    assert statuses("fig2_domain_relevance", turned) == [NOT_REPRODUCED] * 3


# figure 3 --------------------------------------------------------------------------------------------------------------


def distance_tables(near: bool) -> dict:
    """Results whose distances are small for those who share a label (or large), the classifiers the other way round."""
    counts = np.zeros((10, 10), dtype=int)
    for client, own in enumerate(distance.LABELS):
        counts[client, own] = 5
    apart = np.abs(np.subtract.outer(np.arange(10), np.arange(10))) / 100 + 1
    squared = apart + (5 if near else -0.5) * ~ring.share_a_label(counts)
    np.fill_diagonal(squared, 0)
    arrays = {"counts": counts, "squared_distance": squared, "squared_distance_head": squared, "classifier_cosine": -squared if not near else squared}
    s = {**ring.SETTINGS["smoke"], "seeds": 2}
    return distance.analyse_distance(s, [RunResult(spec, "finished", arrays=arrays) for spec in distance.distance_specs(s)])


def test_claims_and_ranks_of_figure_3_follow_the_numbers():
    near, far = distance_tables(True), distance_tables(False)
    assert statuses("fig3_model_difference", near) == [NOT_REPRODUCED] * 4
    assert statuses("fig3_model_difference", far)[:3] == [REPRODUCED] * 3
    better = far["aucs"].assign(auc=far["aucs"]["auc"] + (far["aucs"]["measure"] == "cosine of classifiers"))
    assert statuses("fig3_model_difference", {**far, "aucs": better})[3] == REPRODUCED
    a = near["tidy"].query("client == 'A' and seed == 0 and training == 'FedAvg' and rounds == 2").set_index("other")["rank"]
    assert a.to_dict() == dict(zip("BCDEFGHIJ", range(1, 10)))
    assert far["aucs"].query("measure == 'distance of models'")["auc"].max() < 0.01 and near["aucs"]["auc"].max() == 1


def test_model_distances_are_those_of_the_models():
    spec = tiny("local", model="lenet5", rounds=1, measures=("model_distances",))
    result, models = simulate(spec, backend="serial"), None
    for _, state in watched(spec):
        models = {name: leaf.clone() for name, leaf in state.clients["theta"].items()}
    flat = torch.cat([leaf.double().flatten(1) for leaf in models.values()], 1)
    np.testing.assert_allclose(result.arrays["squared_distance"], torch.cdist(flat, flat).square(), rtol=1e-6, atol=1e-9)
    head = torch.cat([leaf.double().flatten(1) for name, leaf in models.items() if name.startswith("head")], 1)
    np.testing.assert_allclose(result.arrays["squared_distance_head"], torch.cdist(head, head).square(), rtol=1e-6, atol=1e-9)
    a, b = (models["head.weight"][i].double() for i in (0, 1))
    assert result.arrays["classifier_cosine"][0, 1] == pytest.approx(float(torch.cosine_similarity(a, b, dim=1).mean()))


# figure 4 --------------------------------------------------------------------------------------------------------------


def multiwise_tables(best: str) -> dict:
    rows = [(arm, seed, t, point, 0.9 - 0.1 * (arm != best)) for arm in multiwise.ARMS for seed in (0, 1) for t in (3, 6) for point in ("agg", "post")]
    tidy = pd.DataFrame(rows, columns=["arm", "seed", "round", "point", "client_mean"])
    tidy.loc[tidy["arm"] == multiwise.CHANCE, "client_mean"] += 0.05
    return {"tidy": tidy}


def test_claims_of_figure_4_follow_the_numbers():
    assert statuses("fig4_multiwise", multiwise_tables(multiwise.MULTIWISE)) == [REPRODUCED] * 4 + [NOT_REPRODUCED]
    assert statuses("fig4_multiwise", multiwise_tables("plain mean")) == [NOT_REPRODUCED] * 4 + [REPRODUCED]
    assert statuses("fig4_multiwise", multiwise_tables("pairwise: gain"))[:2] == [NOT_REPRODUCED] * 2


def test_margins_of_figure_4_by_hand():
    rows = [("multiwise (Shapley)", 0, 1, "agg", 0.5), ("multiwise (Shapley)", 0, 2, "agg", 0.9), ("multiwise (Shapley)", 0, 2, "post", 0.1), ("plain mean", 0, 1, "agg", 0.6), ("plain mean", 0, 2, "agg", 0.6)]
    tidy = pd.DataFrame(rows, columns=["arm", "seed", "round", "point", "client_mean"])
    last, whole = (multiwise.margins(tidy, multiwise.MULTIWISE, ["plain mean"], whole)["plain mean"][0] for whole in (False, True))
    assert (last, whole) == (pytest.approx(30), pytest.approx(10))


def game(rule: str, **hyper):
    """All five clients' values and mixtures after a first round in which nobody got anything: (run, state, messages, psi, theta), stacked [5, ...]."""
    spec = tiny("pfedsv_known", hyper={"rule": rule, "k": 2, **hyper}, model="lenet5", precision="float64", **RING)
    *_, (run, state) = watched(spec.but(rounds=2))
    messages = run.method.messages(state.server, range(5))
    theta, psi = computed(run, "serial", run.method.aggregated, range(5), messages, state.clients)
    return run, state, messages, psi, theta


def accuracy_of_mean(run, thetas: list[dict]) -> float:
    """Accuracy of the plain mean of models on client 0's validation part."""
    mean = {name: torch.stack([theta[name] for theta in thetas]).mean(0) for name in thetas[0]}
    batch = run.work.source.batch(torch.from_numpy(run.work.parts[0]["val"]))
    return float((run.work.model.logits(mean, batch.x).argmax(1) == batch.y).double().mean())


@pytest.mark.parametrize("rule", ["gain", "alone", "equal", "multiwise"])
def test_rules_of_known_peers_by_hand(rule):
    run, state, messages, psi, theta = game(rule, sv="exact", **({"self_distance": "none"} if rule == "equal" else {}))
    message, psi, theta = tree.rows(messages, 0), psi[0], tree.rows(theta, 0)
    own = tree.rows(state.clients["theta"], 0)
    peers = [tree.rows(message["models"], k) for k in range(2)]
    v = {members: accuracy_of_mean(run, [(own, *peers)[m] for m in members]) for members in ((0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2))}
    if rule == "multiwise":
        worth = lambda members: torch.tensor([v.get(tuple(row.nonzero()[:, 0].tolist()), 0.0) for row in members], dtype=torch.float64)  # noqa: E731
        values = shapley.exact(worth, 3).tolist()
    else:
        values = {"gain": [v[0,], v[0, 1] - v[0,], v[0, 2] - v[0,]], "alone": [v[0,], v[1,], v[2,]], "equal": [1, 1, 1]}[rule]
    close(psi, torch.tensor(values[1:], dtype=torch.float64), 1e-9)
    apart = [math.sqrt(sum(float((own[n] - peer[n]).square().sum()) for n in own)) for peer in peers]
    d = [1, 1, 1] if rule == "equal" else [min(apart), *apart]
    w = [max(value, 0) / length for value, length in zip(values, d)]
    mixed = {n: sum(weight / sum(w) * model[n] for weight, model in zip(w, (own, *peers))) for n in own}
    close({n: theta[n] for n in mixed}, mixed, 1e-9)


def test_fomo_rule_of_known_peers_is_fedfomos_mixture():
    run, state, messages, psi, theta = game("fomo", self_distance="prev")
    own = state.clients["theta"]
    clients = {"theta": own, "reference": {f"start.{n}": leaf for n, leaf in state.clients["start"].items()}}
    received = {name: messages[name] for name in ("models", "real")}
    close((theta, psi), computed(run, "serial", FedFomo(M=2).mixed, range(5), received, clients), 1e-12)
    assert (psi > 0).any() and not torch.equal(theta["head.bias"], own["head.bias"])


def test_known_peers_are_those_with_the_most_alike_labels():
    """0 and 1 own the same, 2 shares a label with both, 3 shares none."""
    wanted, most = relevant_peers(torch.tensor([[4, 4, 0, 0], [4, 4, 0, 0], [0, 4, 4, 0], [0, 0, 0, 9]]), 2)
    assert wanted[:, :2].tolist() == [[1, 2], [0, 2], [0, 1], [-1, -1]] and most.tolist() == [2, 2, 2, 0]
    assert relevant_peers(torch.ones(4, 3), 2)[1].tolist() == [2] * 4  # no more than there are places


def test_known_peers_get_only_models_of_peers_from_the_second_round_on():
    result = simulate(tiny("pfedsv_known", hyper={"k": 2}, model="lenet5", measures=("downloads",), **{**RING, "num_clients": 10, "partition": {"classes_per_client": 2}}))
    sent, peers = result.arrays["downloads"], ring.share_a_label(result.arrays["counts"])
    assert sent.shape == (3, 10, 10) and (sent == peers).all() and peers.sum() == 20


@pytest.mark.parametrize("hyper", [{"rule": "pairwise"}, {"rule": "fomo"}, {"rule": "fomo", "self_distance": "prev", "variant": "D+C"}, {"k": 0}])
def test_bad_values_of_known_peers(hyper):
    with pytest.raises(BadValue):
        algorithms.make("pfedsv_known", **hyper)
    assert len(RULES) == 5


# figure 7 --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "m", "k", "rounds"), [(10, 2, 5, 3), (10, 2, 2, 5), (10, 5, 2, 5), (100, 2, 5, 21), (10, 9, 5, 2)])
def test_bound_of_the_search(n, m, k, rounds):
    assert relevance.bound(n, m, k) == rounds


def test_first_complete_by_hand():
    """Client 0 needs 1 and 2 and gets them in rounds 1 and 3; client 1 needs 0 and never gets it; client 2 needs nobody."""
    sent = np.zeros((3, 3, 3), dtype=bool)
    sent[0, 0, 1] = sent[2, 0, 2] = sent[1, 1, 2] = True
    relevant = np.array([[0, 1, 1], [1, 0, 0], [0, 0, 0]], dtype=bool)
    np.testing.assert_array_equal(relevance.first_complete(sent, relevant), [3, np.nan, 1])


def test_auc_is_scikit_learns_also_with_ties():
    from sklearn.metrics import roc_auc_score

    draw = np.random.default_rng(0)
    for _ in range(20):
        relevant, score = draw.random((8, 8)) < 0.4, draw.integers(0, 4, (8, 8)).astype(float)
        rows = [(truth, row) for truth, row in zip(ring.others(relevant), ring.others(score)) if truth.any() and not truth.all()]
        assert ring.mean_auc(score, relevant) == pytest.approx(np.mean([roc_auc_score(*pair) for pair in rows]), abs=1e-12)


def test_auc_and_signs_by_hand():
    """Client 0 ranks its relevant other first, client 1 last of two, client 2 has nobody irrelevant and is left out."""
    relevant = np.array([[0, 1, 0], [1, 0, 0], [1, 1, 0]], dtype=bool)
    score = np.array([[9, 0.5, 0.1], [-1, 9, 0.2], [0, 1, 9]])
    assert ring.mean_auc(score, relevant) == 0.5
    assert relevance.judged(np.where(np.eye(3), 0, score), relevant)[1:] == (4, 2, 2)  # wrong: (0, 2), (1, 0), (1, 2), (2, 0); one-sided: 0-1, 0-2
    assert math.isnan(ring.mean_auc(score, ~np.eye(3, dtype=bool)))


def test_counted_coalitions():
    cost = relevance.game_costs(8).set_index("players")
    assert cost.loc[6, ["permutations", "exact", "estimate"]].tolist() == [18, 63, 63]
    assert cost.loc[8, "exact"] == 255 and cost.loc[8, "estimate"] < 255 and (cost["estimate"] <= cost["exact"]).all()


def relevance_tables(right: bool) -> dict:
    """Results of clients who know everything in three rounds, or nothing; FedFomo the other way round."""
    s = {**ring.SETTINGS["smoke"], "seeds": 2, "rounds": 4}
    counts = 3 * sum(np.roll(np.eye(10, dtype=int), shift, 1) for shift in (0, 1))
    truth, results = ring.share_a_label(counts), []
    for spec in relevance.relevance_specs(s):
        knows = right == (spec.method == "pfedsv")
        score = np.where(truth, 1.0, -1.0) if knows else np.triu(np.where(truth, -1.0, 1.0))
        sent = np.stack([truth] * 4) if knows else np.zeros((4, 10, 10), dtype=bool)
        arrays = {"counts": counts, "relevance": np.stack([score] * 4), "downloads": sent}
        history = [{"round": 4, "point": "agg", "headline": True, "client_mean": 0.9}]
        results.append(RunResult(spec, "finished", history, seconds={"train": 1.0}, arrays=arrays))
    return relevance.analyse_relevance(s, results)


def test_claims_of_figure_7_follow_the_numbers():
    right, wrong = relevance_tables(True), relevance_tables(False)
    assert statuses("fig7_relevance", right) == [REPRODUCED] * 7
    assert statuses("fig7_relevance", wrong)[:6] == [NOT_REPRODUCED] * 6
    runs = wrong["runs"].assign(auc=wrong["runs"]["auc"].where(wrong["runs"]["learner"] == "pFedSV", 1.0))
    assert statuses("fig7_relevance", {**wrong, "runs": runs})[6] == NOT_REPRODUCED
    assert len(right["labels"]) == 2 * 20 and (right["runs"].query("learner == 'pFedSV'")["auc"] == 1).all()


# figures 8 to 10 -------------------------------------------------------------------------------------------------------


def test_totals_by_hand():
    """Two rounds of ten clients, 5 and 3 models each; a network of 100 numbers, of which 40 or 10 are the classifier's."""
    per_round = [(m, 0, t, v) for m, pair in {"pFedSV (D+C)": (5, 3), "pFedSV (D)": (5, 3), "FedAvg": (1, 1)}.items() for t, v in enumerate(pair, 1)]
    per_round = pd.DataFrame(per_round, columns=["method", "seed", "round", "models"])
    networks = pd.DataFrame([("net", 100, 0.4, 0.1, 0.0)], columns=["network", "parameters", communication.PRINTED, communication.ALL, communication.LAST])
    tidy = communication.totals(per_round, networks, 2).set_index(["method", "reading"])
    assert tidy["up"].unique() == [2000]
    assert tidy.loc[("pFedSV (D)", communication.PRINTED), "down"] == 8000
    assert tidy.loc[("FedAvg", communication.ALL), "total"] == 4000
    assert [tidy.loc[("pFedSV (D+C)", reading), "down"] for reading in communication.READINGS] == [2 * 10 * 60 + 80 * 40, 2 * 10 * 90 + 80 * 10, 2000]


def test_shares_of_classifiers_are_those_counted_by_hand():
    own = communication.shares().set_index(["network", "classes"])
    assert own.loc[("LeNet-5", 10), "parameters"] == 62_006 and own.loc[("LeNet-5", 10), communication.LAST] == pytest.approx(850 / 62_006)
    assert own.loc[("LeNet-5", 10), communication.ALL] == pytest.approx(59_134 / 62_006)
    assert own.loc[("ResNet-34", 1000), communication.ALL] == pytest.approx(513_000 / 21_797_672)
    assert own.loc[("VGG-19", 10), communication.ALL] == pytest.approx(119_586_826 / 139_611_210)


def communication_tables(found: float, share: float) -> dict:
    """Tables in which pFedSV's clients find `found` models a round and a classifier has this share, by every reading."""
    networks = communication.shares().assign(**dict.fromkeys(communication.READINGS, share))
    numbers = {"pFedSV (D+C)": found, "pFedSV (D)": found, "FedFomo": 5.0, "FedAMP": 1.0, "FedAvg": 1.0}
    per_round = pd.DataFrame([(m, 0, t, v) for m, v in numbers.items() for t in range(1, 21)], columns=["method", "seed", "round", "models"])
    counter = pd.DataFrame({"method": ["FedAvg"], "seed": [0], "engine": [100], "downloads": [100]})
    return {"tidy": communication.totals(per_round, networks[networks["classes"] == 10], 20), "shares": networks, "counter": counter}


def test_claims_of_figures_8_to_10_follow_the_numbers():
    right = communication_tables(2.0, 0.01)
    assert statuses("figs8_10_communication", right)[:4] == [REPRODUCED] * 4 and statuses("figs8_10_communication", right)[5:] == [REPRODUCED] * 3
    wrong = communication_tables(6.0, 1.0)
    wrong["counter"]["engine"] += 1
    wrong["tidy"].loc[wrong["tidy"]["method"] == "FedAMP", "total"] *= 2
    wrong["shares"][communication.PRINTED] = 0.5
    assert [s for k, s in enumerate(statuses("figs8_10_communication", wrong)) if k != 4] == [NOT_REPRODUCED] * 7
    real = communication.totals(pd.DataFrame([(m, 0, 1, 3.0) for m in communication.METHODS], columns=["method", "seed", "round", "models"]), communication.shares().query("classes == 10"), 1)
    assert communication.check_vgg_saves_least({"tidy": real}).status == REPRODUCED
    swapped = real.assign(network=real["network"].replace({"VGG-19": "ResNet-34", "ResNet-34": "VGG-19"}))
    assert communication.check_vgg_saves_least({"tidy": swapped}).status == NOT_REPRODUCED


@pytest.mark.parametrize("variant", ["D", "D+C"])
def test_downloads_are_what_the_engine_counts(variant):
    """Round 1 sends nobody's model; what is chosen after round t travels in round t + 1."""
    spec = tiny("pfedsv", hyper={"variant": variant, "k": 2}, model="lenet5", measures=("downloads",), **RING)
    result = simulate(spec)
    size = models.sizes("lenet5", (1, 16, 16), 10)
    sent = int(result.arrays["downloads"][:2].sum())
    by_hand = sent * size["model"] if variant == "D" else 3 * 5 * size["extractor"] + sent * size["head"]
    assert result.communication["down"]["floats"] == by_hand == communication.counted_down(result) and sent > 0
    assert (result.arrays["downloads"].sum(2) <= 2).all()


# measures of every round -----------------------------------------------------------------------------------------------


def test_measures_of_every_round_are_what_there_was():
    """Accuracies of clients average to the history's; a round without evaluation has none; relevance is the clients' own."""
    spec = tiny("pfedsv", hyper={"k": 2}, model="lenet5", eval_every=2, measures=("client_accuracy", "relevance", "downloads"), **RING)
    result = simulate(spec)
    accuracy, seen = result.arrays["client_accuracy"], result.arrays["relevance"]
    assert np.isnan(accuracy[0]).all()
    assert accuracy[1:].mean(1).tolist() == pytest.approx([h["client_mean"] for h in result.history if h["headline"]])
    np.testing.assert_allclose(accuracy[-1], result.arrays["correct"].sum(1) / result.arrays["tests"].sum(1))
    for _run, state in watched(spec):
        if state.round:
            np.testing.assert_array_equal(seen[state.round - 1], state.clients["relevance"].numpy())
    assert not seen[0].any() and seen[-1].any() and not result.arrays["downloads"][:, range(5), range(5)].any()
    plain = simulate(spec.but(measures=()))
    assert plain.history == result.history and set(plain.arrays) == {"correct", "correct_post", "tests", "counts"}


def test_measures_of_every_round_do_not_depend_on_the_way(tmp_path, monkeypatch):
    """Two seeds in one stack, and a run that is killed after a round and continued, give the same as one run alone."""
    monkeypatch.setenv("FEDLIB_CACHE", str(tmp_path))
    spec = tiny("fedfomo", hyper={"M": 2}, model="lenet5", measures=("relevance", "downloads"), **RING)
    alone = simulate(spec, backend="vmap")
    stacked, _ = simulate_together([spec, spec.but(seed=1)], backend="vmap")
    np.testing.assert_allclose(stacked.arrays["relevance"], alone.arrays["relevance"], rtol=1e-4, atol=1e-5)
    assert alone.arrays["relevance"].shape == (3, 5, 5) and (alone.arrays["relevance"][0] == np.eye(5)).all()

    class Stop(Exception):
        pass

    def stop(rounds):
        if rounds == 2:
            raise Stop

    whole = simulate(spec, backend="serial")
    with pytest.raises(Stop):
        simulate(spec, backend="serial", checkpoint_every=0, progress=stop)
    assert exact(simulate(spec, backend="serial", checkpoint_every=0)) == exact(whole)


def test_measures_are_stored_and_runs_with_and_without_them_are_two(tmp_path):
    spec = tiny("fedavg", rounds=1, model="lenet5", measures=("client_accuracy",))
    stored = get_or_run(spec, Store("x", tmp_path))
    again = Store("x", tmp_path).get(spec)
    np.testing.assert_array_equal(again.arrays["client_accuracy"], stored.arrays["client_accuracy"])
    assert spec.id != spec.but(measures=()).id


def test_common_beginnings_are_shared_only_by_runs_that_follow_the_same():
    plain, final, every = (RunSpec("pfedsim", measures=m) for m in ((), ("cka",), ("client_accuracy",)))
    assert beginning(plain) == beginning(final) != beginning(every)


@pytest.mark.parametrize(("method", "measure"), [("fedavg", "relevance"), ("local", "downloads"), ("pfedsv", "relevances")])
def test_measures_that_a_method_cannot_have_are_errors(method, measure):
    with pytest.raises(BadValue, match=measure):
        RunSpec(method, measures=(measure,))
    assert ROUND_MEASURES.keys().isdisjoint(FINAL_MEASURES)
