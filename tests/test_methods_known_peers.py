"""pFedSV's mixtures with known peers: every rule by hand, and who gets whose models."""

from __future__ import annotations

import math

import pytest
import torch
from helpers import close, computed, tiny

from fedlib import algorithms
from fedlib.algorithms.fedfomo import FedFomo
from fedlib.algorithms.parts import shapley
from fedlib.algorithms.pfedsv_known import RULES, relevant_peers
from fedlib.analysis.relevance import share_a_label
from fedlib.base import tree
from fedlib.base.errors import BadValue
from fedlib.engine.simulate import simulate, watched

RING = dict(scheme="ring", partition={"classes_per_client": 4}, num_clients=5, join_ratio=1.0, model="lenet5")


def game(rule: str, **hyper):
    """What five clients have after a first round in which nobody got anything, their values and mixtures:
    (run, state, messages, psi, theta), stacked [5, ...]."""
    spec = tiny("pfedsv_known", hyper={"rule": rule, "k": 2, **hyper}, precision="float64", rounds=2, **RING)
    *_, (run, state) = watched(spec)
    messages = run.method.messages(state.server, range(5))
    theta, psi = computed(run, "serial", run.method.aggregated, range(5), messages, state.clients)
    return run, state, messages, psi, theta


def accuracy_of_mean(run, thetas: list[dict]) -> float:
    """Accuracy of the plain mean of models on client 0's validation part."""
    mean = {name: torch.stack([theta[name] for theta in thetas]).mean(0) for name in thetas[0]}
    batch = run.work.source.batch(torch.from_numpy(run.work.parts[0]["val"]))
    return float((run.work.model.logits(mean, batch.x).argmax(1) == batch.y).double().mean())


@pytest.mark.parametrize("rule", ["gain", "alone", "equal", "multiwise"])
def test_rules_by_hand(rule):
    run, state, messages, psi, theta = game(rule, sv="exact", self_distance="none" if rule == "equal" else "min_other")
    own, received = tree.rows(state.clients["theta"], 0), tree.rows(messages, 0)["models"]
    models = [own, *(tree.rows(received, k) for k in range(2))]
    subsets = [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)]
    v = {members: accuracy_of_mean(run, [models[m] for m in members]) for members in subsets} | {(): 0.0}

    def worth(members):
        return torch.tensor([v[tuple(row.nonzero()[:, 0].tolist())] for row in members], dtype=torch.float64)

    values = {
        "multiwise": lambda: shapley.exact(worth, 3).tolist(),
        "gain": lambda: [v[0,], v[0, 1] - v[0,], v[0, 2] - v[0,]],
        "alone": lambda: [v[0,], v[1,], v[2,]],
        "equal": lambda: [1, 1, 1],
    }[rule]()
    close(psi[0], torch.tensor(values[1:], dtype=torch.float64), 1e-9)
    apart = [math.sqrt(sum(float((own[n] - peer[n]).square().sum()) for n in own)) for peer in models[1:]]
    distances = [1, 1, 1] if rule == "equal" else [min(apart), *apart]
    w = [max(value, 0) / distance for value, distance in zip(values, distances)]
    mixed = {n: sum(weight / sum(w) * model[n] for weight, model in zip(w, models)) for n in own}
    mine = tree.rows(theta, 0)
    close({n: mine[n] for n in mixed}, mixed, 1e-9)


def test_the_rule_fomo_is_fedfomos_mixture():
    run, state, messages, psi, theta = game("fomo", self_distance="prev")
    own = state.clients["theta"]
    clients = {"theta": own, "reference": {f"start.{n}": leaf for n, leaf in state.clients["start"].items()}}
    received = {name: messages[name] for name in ("models", "real")}
    close((theta, psi), computed(run, "serial", FedFomo(M=2).mixed, range(5), received, clients), 1e-12)
    assert (psi > 0).any() and not torch.equal(theta["head.bias"], own["head.bias"])


def test_peers_are_those_with_the_most_alike_labels():
    """0 and 1 own the same, 2 shares a label with both, 3 shares none."""
    wanted, most = relevant_peers(torch.tensor([[4, 4, 0, 0], [4, 4, 0, 0], [0, 4, 4, 0], [0, 0, 0, 9]]), 2)
    assert wanted[:, :2].tolist() == [[1, 2], [0, 2], [0, 1], [-1, -1]] and most.tolist() == [2, 2, 2, 0]
    assert relevant_peers(torch.ones(4, 3), 2)[1].tolist() == [2] * 4  # no more than there are places


def test_only_models_of_peers_are_sent():
    ring = RING | dict(num_clients=10, partition={"classes_per_client": 2})
    result = simulate(tiny("pfedsv_known", hyper={"k": 2}, measures=("downloads",), **ring))
    sent, peers = result.arrays["downloads"], share_a_label(result.arrays["counts"])
    assert sent.shape == (3, 10, 10) and (sent == peers).all() and peers.sum() == 20


@pytest.mark.parametrize(
    "hyper",
    [
        *({"rule": "pairwise"}, {"rule": "fomo"}, {"k": 0}),
        *(
            {"rule": "fomo", "self_distance": "prev", **more}
            for more in ({"variant": "D+C"}, {"utility_part": "train"})
        ),
    ],
)
def test_bad_values(hyper):
    with pytest.raises(BadValue):
        algorithms.make("pfedsv_known", **hyper)
    for rule in RULES:  # each is accepted with the distances that it needs
        algorithms.make("pfedsv_known", rule=rule, self_distance="prev")
