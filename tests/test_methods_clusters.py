"""Per-FedAvg, FedAMP, IFCA, FeSEM, ClusterFL, FedEM, pFedMe: steps by hand, beside those of lessons 5 to 7, reductions,
who ends in which cluster."""

from __future__ import annotations

import copy
import dataclasses
from math import exp, log

import numpy as np
import pytest
import torch
from helpers import ToyData, ToyModel, close, f64, labelled, played, theta, tiny, two, two_classes

from fedlib import algorithms
from fedlib.algorithms.api import Setting
from fedlib.algorithms.clusterfl import smaller_half
from fedlib.algorithms.fesem import k_means_plus_plus
from fedlib.base import tree
from fedlib.engine.client_data import PlainData
from fedlib.engine.evaluate import evaluate
from fedlib.engine.setup import set_up

METHODS = ("perfedavg", "fedamp", "ifca", "fesem", "clusterfl", "fedem", "pfedme")
SPLITTING = dict(eps_mode="relative", eps1=1.1, eps2=0.1, t0=1)  # ClusterFL splits whenever it may
# at (2, -1, 0.5): e = 0.5, so dw = -0.5, dv = 1, db = 0.5; with lr = 0.1 the model AFTER_A
A = ToyData([([1.0], [-2.0])])
AFTER_A = theta(2.05, -1.1, 0.45)


class Toy(ToyModel):
    """The toy model whose k-th independent initial values are those of theta0 with w = -k and b = k."""

    def independent(self, number):
        return theta(-number, -1, number)


def biases(values) -> dict:
    """Stacked toy models that differ in b alone."""
    return tree.stack([theta(2, -1, b) for b in values])


# Per-FedAvg -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hyper", "batches", "steps"),
    [
        (dict(), 5, 2),
        (dict(variant="HF"), 5, 1),
        (dict(), 1, 1),
        (dict(variant="HF"), 2, 1),
        (dict(tau=4), 5, 4),
        (dict(variant="HF", tau=4), 1, 4),
    ],
)
def test_perfedavg_counts_its_meta_steps(hyper, batches, steps):
    """floor(b/2) or floor(b/3) an epoch, at least one; or tau."""
    method, seen = algorithms.make("perfedavg", beta=0.0, **hyper), []
    data = ToyData([([float(k)], [0.0]) for k in range(batches)])
    plain = data.fold
    data.fold = lambda step, *args, **options: plain(
        lambda state, *b: (seen.append(len(b)), step(state, *b))[1], *args, **options
    )
    close(method.client_update(ToyModel(), theta(2, -1, 0.5), {}, data)[0], theta(2, -1, 0.5))  # beta = 0 moves nothing
    assert seen == [3 if hyper.get("variant") == "HF" else 2] * steps


def test_perfedavg_adapts_at_its_own_rate():
    """alpha = 0.1 and not the run's lr: one epoch on A gives AFTER_A."""
    start, B = theta(2, -1, 0.5), ToyData([([-1.0], [1.5]), ([1.0], [-2.12])], lr=9.0)
    method = algorithms.make("perfedavg", alpha=0.1)
    close(method.fine_tune(ToyModel(), start, ToyData([([1.0], [-2.0])], lr=9.0), 1), AFTER_A)
    close(method.fine_tune(ToyModel(), start, B, 1), theta(1.98, -0.99, 0.3))
    assert dataclasses.replace(method, ft_epochs=3).eval_points({}) == ("ft(3)", "glob")


@pytest.mark.parametrize("variant", ["FO", "HF"])
def test_perfedavg_keeps_the_statistics_of_its_own_passes_only(variant):
    """One meta-step: those of one step of SGD from w on the same minibatch."""
    spec = tiny("perfedavg", hyper=dict(variant=variant, tau=1), precision="float64")
    run = set_up(spec)
    model, data = run.work.model, PlainData(run.turn(0, 0, 1))
    first = data.fold(
        lambda seen, *batches: seen or (model.sgd_step(model.theta0, batches[0], 0.1),),
        (),
        steps=1,
        together=2 + (variant == "HF"),
    )[0]
    upload, _ = run.method.client_update(model, model.theta0, {}, PlainData(run.turn(0, 0, 1)))
    assert all(torch.equal(upload[name], first[name]) for name in model.running)
    assert not torch.equal(upload["head.weight"], model.theta0["head.weight"])
    assert not torch.equal(first["extractor.bn1.running_mean"], model.theta0["extractor.bn1.running_mean"])


# FedAMP ---------------------------------------------------------------------------------------------------------------


def xi(bs, **hyper):
    method = algorithms.make("fedamp", **hyper)
    return method.weights(biases(bs), ToyModel.trainable)


def test_fedamp_median_and_cosine_by_hand():
    """b = 0, 1, 3: d² = 1, 9, 4 with median 4; alpha/4 exp(-1/4), ... The median is over different models only:
    two equal ones change nothing.

    Cosines: (1, 0, 0) and (0, 1, 0) with sigma = ln 3: weights 3 : 1.
    """
    weights = xi([0, 1, 3], sigma_mode="median", alpha=2.0)
    assert weights[0, 1] == pytest.approx(0.5 * exp(-1 / 4)) and weights[1, 2] == pytest.approx(0.5 * exp(-1))
    assert weights[0, 2] == pytest.approx(0.5 * exp(-9 / 4)) and weights.sum(1).tolist() == pytest.approx([1, 1, 1])
    assert xi([0, 0, 1], sigma_mode="median", alpha=0.1)[0, 2] == pytest.approx(0.1 * exp(-1))
    assert (xi([5, 5, 5], sigma_mode="median") >= 0).all()
    models = tree.stack([theta(1, 0, 0), theta(0, 1, 0)])
    method = algorithms.make("fedamp", variant="cosine", sigma=log(3))
    assert method.weights(models, ToyModel.trainable)[0].tolist() == pytest.approx([0.75, 0.25])
    assert xi([1]).tolist() == [[1]]


def test_fedamp_client_and_server_by_hand():
    """lambda = 1, alpha = 2: the penalty's gradient is 0.5 (w - u). From w = (2, -1, 0.5) with u = (1, 0, 0.5) on A:

    (-0.5, 1, 0.5) + (0.5, -0.5, 0) = (0, 0.5, 0.5): (2, -1.05, 0.45). Server: client 1 of b = 0, s, -s uploads b = 0:
    row 0 then has 2 exp(0) = 2 and 2/4, sum 5/2: (0, 4/5, 1/5); u_0 has b = -s/5.
    """
    model, method = ToyModel(), algorithms.make("fedamp", lam=1.0, alpha=2.0)
    upload, kept = method.client_update(model, theta(1, 0, 0.5), {"theta": theta(2, -1, 0.5)}, A)
    close((upload, kept["theta"]), (theta(2, -1.05, 0.45), theta(2, -1.05, 0.45)))
    s = log(4) ** 0.5
    server, clients = method.init(model, Setting(3, 4, 1))
    close((method.download(server, 2), clients), (theta(2, -1, 0.5), {"theta": tree.repeat(theta(2, -1, 0.5), 3)}))
    server = method.server_update({**server, "models": biases([0, s, -s])}, np.array([1]), biases([0]), np.array([7]))
    close(server["models"], biases([0, 0, -s]))
    close(method.download(server, 0), theta(2, -1, -s / 5))
    close(method.messages(server, [2, 0]), tree.stack([method.download(server, i) for i in (2, 0)]))
    close(method.stored_upload(server, 2), theta(2, -1, -s))


# IFCA -----------------------------------------------------------------------------------------------------------------


def test_ifca_is_tested_with_the_model_that_fits_training_data():
    """Models (2, -1, 0.5) and (-2, -1, 0.5): e = 0.5 and 4.5, so the first, though the second was chosen last."""
    data, read = ToyData([([1.0], [-2.0])]), []
    message, plain = tree.stack([theta(2, -1, 0.5), theta(-2, -1, 0.5)]), data.scan
    data.scan = lambda step, state, part="train": (read.append(part), plain(step, state, part))[1]
    found = algorithms.make("ifca", K=2).personal_model(Toy(), message, {"cluster": torch.tensor(1)}, data)
    close(found, theta(2, -1, 0.5))
    assert read == ["train"]


def test_ifca_compares_mean_losses_over_samples():
    """Models (2, -1, 0.5) and (-2, -1, 0.5) answer -1.5 and 2.5 to x = 1. Three samples of y = -1.5 in one minibatch:
    losses e²/2 of 0 and 8. One of y = 4.5 in another: 18 and 2. Over the four samples 18 < 26, so model 0; the means of
    the two minibatches, 18 > 10, would say model 1."""
    message = tree.stack([theta(2, -1, 0.5), theta(-2, -1, 0.5)])
    data = ToyData([([1.0] * 3, [-1.5] * 3), ([1.0], [4.5])])
    assert int(algorithms.make("ifca", K=2).best_model(Toy(), message, data)[1]) == 0


def test_ifca_server_by_hand():
    """K = 3: clients 0 and 2 chose model 0, client 1 model 2; n = 1, 2, 3. Uniform: b = (1 + 5)/2 = 3;
    by samples (1 + 15)/4 = 4. Model 1 stays."""
    for weights, expected in (("uniform", 3), ("samples", 4)):
        method = algorithms.make("ifca", K=3, weights=weights)
        server, clients = method.init(Toy(), Setting(5, 4, 1))
        close(server["theta"], tree.stack([theta(2, -1, 0.5), theta(-1, -1, 1), theta(-2, -1, 2)]))
        assert clients["cluster"].tolist() == [-1] * 5
        server = method.server_update(
            server, [0, 1, 4], {**biases([1, 9, 5]), "cluster": torch.tensor([0, 2, 0])}, np.array([1, 2, 3])
        )
        close(server["theta"], tree.stack([theta(2, -1, expected), theta(-1, -1, 1), theta(2, -1, 9)]))
        assert server["occupancy"].tolist() == [2, 0, 1]


def test_ifca_compares_models_without_regard_to_running_statistics():
    """The choice is that of the mean loss over the client's training data in training mode,
    whatever statistics the client holds."""
    run = set_up(tiny("ifca", precision="float64"))
    model, message = run.work.model, run.method.init(run.work.model, run.setting)[0]["theta"]
    for i in range(4):
        data = PlainData(run.turn(i, 1, 1))
        batch = run.work.source.batch(torch.from_numpy(run.work.parts[i]["train"]))
        losses = [float(model.loss(tree.rows(message, k), batch)[0]) for k in range(4)]
        far = {**message, **{name: torch.full_like(message[name][0], 3.0) for name in model.running}}
        picks = {int(run.method.best_model(model, m, data)[1]) for m in (message, far)}
        assert picks == {int(np.argmin(losses))}


# FeSEM ----------------------------------------------------------------------------------------------------------------


def fesem_after_first_round(**hyper):
    """Two centres, five clients; the first four upload b = 0, 1, 10, 11, with n = 1, 3, 1, 1."""
    method = algorithms.make("fesem", K=2, **hyper)
    server, _ = method.init(Toy(), Setting(5, 4, 1))
    close(method.download(server, 0), theta(2, -1, 0.5))
    return method, method.server_update(server, np.arange(4), biases([0, 1, 10, 11]), np.array([1, 3, 1, 1]))


def test_fesem_by_hand():
    """Seeded with one model of each pair; E: pairs together; M: centres 0.5 and 10.5 (by samples 0.75).
    Client 4 never trained: its cluster stays 0.

    Then client 0 uploads 4: the other members keep their last models, so its centre is (4 + 1)/2 = 2.5; with
    members="participants" it is 4. By samples (4*1 + 1*3)/4 = 1.75. Then it uploads 12 and changes sides: centres 1 and
    11.
    """
    for hyper, low, then in (
        (dict(), 0.5, 2.5),
        (dict(members="participants"), 0.5, 4),
        (dict(weights="samples"), 0.75, 1.75),
    ):
        method, server = fesem_after_first_round(**hyper)
        a, b = (int(server["cluster"][i]) for i in (0, 2))
        assert a != b and server["cluster"].tolist() == [a, a, b, b, 0] and server["seeded"]
        close(server["centres"]["head.bias"][[a, b]], torch.tensor([[low], [10.5]]).double())
        close(method.messages(server, [3, 0]), biases([10.5, low]))
        server = method.server_update(server, np.array([0]), biases([4]), np.array([1]))
        close(method.download(server, 1), theta(2, -1, then))
        close((method.stored_upload(server, 0), method.stored_upload(server, 1)), (theta(2, -1, 4), theta(2, -1, 1)))
        if not hyper:
            server = method.server_update(server, np.array([0]), biases([12]), np.array([1]))
            assert server["cluster"].tolist() == [b, a, b, b, 0]
            close(method.messages(server, [1, 0]), biases([1, 11]))


def test_fesem_waits_for_enough_clients_and_keeps_empty_centres():
    """K = 3 with one client a round: one centre until the third. Then two clients move together:
    the centre they leave stays."""
    method = algorithms.make("fesem", K=3)
    server, _ = method.init(Toy(), Setting(4, 9, 1))
    for i, b, mean in ((0, 0, 0), (1, 10, 5)):
        server = method.server_update(server, np.array([i]), biases([b]), np.array([1]))
        close(method.download(server, 3), theta(2, -1, mean))
        assert not server["seeded"] and server["cluster"].tolist() == [0] * 4
    server = method.server_update(server, np.array([2]), biases([20]), np.array([1]))
    assert server["seeded"] and len(set(server["cluster"][:3].tolist())) == 3
    left = server["cluster"][2]
    server = method.server_update(server, np.array([2]), biases([9]), np.array([1]))
    assert server["cluster"][2] == server["cluster"][1] != left
    close(tree.rows(server["centres"], int(left)), theta(2, -1, 20))


def test_fesem_seeding_does_not_depend_on_the_clients_numbers():
    """The same models in another order: the same seeds. Nearby pairs are almost never both chosen;
    equal models are no error."""
    models, order = biases([0.0, 0.1, 7, 7.2, 20, 20.3]), torch.tensor([4, 0, 5, 3, 1, 2])
    for seed in range(10):
        chosen = k_means_plus_plus(models, ToyModel.trainable, 3, seed)
        again = k_means_plus_plus(tree.rows(models, order), ToyModel.trainable, 3, seed)
        assert [int(order[k]) for k in again] == chosen and len({k // 2 for k in chosen}) == 3
    assert len({tuple(k_means_plus_plus(models, ToyModel.trainable, 3, seed)) for seed in range(10)}) > 2
    assert len(k_means_plus_plus(biases([1, 1, 1]), ToyModel.trainable, 2, 0)) == 2


# ClusterFL ------------------------------------------------------------------------------------------------------------


def clusterfl_round(updates, clients=None, n=None, ids=None, rounds=1, **hyper):
    """The server after `rounds` of the same uploads b = 0.5 + updates."""
    method = algorithms.make("clusterfl", **{"t0": 0, **hyper})
    server, _ = method.init(ToyModel(), Setting(clients or len(updates), 4, 1))
    ids = np.arange(len(updates)) if ids is None else ids
    for _ in range(rounds):
        server = method.server_update(
            server, ids, biases([0.5 + u for u in updates]), np.ones(len(updates)) if n is None else n
        )
    return method, server


@pytest.mark.parametrize(
    ("updates", "hyper", "split"),
    [
        ([1, 2, -1, -2], dict(t0=1), False),  # too early
        ([1, 1.5, -1, -1.5], dict(), False),  # max 1.5
        ([2, 2, -1, -1], dict(), False),  # mean 0.5
        ([2, -2], dict(), False),  # no more than two members
        ([2, -2], dict(min_size=1), True),
        ([2, 2, -1, -1], dict(eps1=0.6), True),
        ([1, 1.5, -1, -1.5], dict(eps2=1.4), True),
        ([1, 2, -1, -2], dict(eps_mode="relative"), False),  # a mean of 0 is not below 0.4 of the largest mean, 0
        ([2, 2, -1, -1], dict(eps_mode="relative", eps1=1.01, eps2=3.9), True),  # mean 0.5 < 0.505, max 2 > 1.95
        ([2, 2, -1, -1], dict(eps_mode="relative", eps1=1.01, eps2=4.1), False),
    ],
)
def test_clusterfl_thresholds(updates, hyper, split):
    _, server = clusterfl_round(updates, **hyper)
    assert len(set(server["cluster"].tolist())) == 1 + split == len(server["largest"])
    if not split:
        close(server["theta"], biases([0.5 + np.mean(updates)]))


def test_clusterfl_norms_are_those_of_the_mean_that_is_taken():
    """Updates 1 and -1 of 1 and 3 samples: uniform mean 0; by samples (1 - 3)/4, norm 0.5. The longest is 1."""
    for weights, norm in (("uniform", 0), ("samples", 0.5)):
        _, server = clusterfl_round([1, -1], n=np.array([1, 3]), weights=weights)
        assert server["norms"].tolist() == [[norm, 1]]


def test_clusterfl_absent_clients_stay_with_the_larger_half():
    """Clients 1, 3, 4, 5 of 6 take part; 3, 4, 5 agree and 1 is alone: 0 and 2 stay with the three.
    A cluster without participants keeps its model."""
    method, server = clusterfl_round([-3, 1, 1, 1], clients=6, ids=np.array([1, 3, 4, 5]))
    assert server["cluster"].tolist() == [0, 1, 0, 0, 0, 0]
    close(server["theta"], biases([1.5, -2.5]))
    after = method.server_update(server, np.array([0, 2]), biases([1, 4]), np.array([1, 3]))
    close(after["theta"], biases([2.5, -2.5]))  # uniform
    assert after["cluster"].tolist() == server["cluster"].tolist()
    assert after["norms"][1].tolist() == server["norms"][1].tolist()
    after = dataclasses.replace(method, weights="samples").server_update(
        server, np.array([0, 2]), biases([1, 4]), np.array([1, 3])
    )
    close(after["theta"], biases([3.25, -2.5]))


def test_clusterfl_halves_inherit_the_largest_mean_by_hand():
    """eps_mode = "relative": 0.1 and 0.4 of the largest ||mean|| so far. All move by 4: largest 4, no split. Updates
    1, 2, -1, -2: mean 0 < 0.4 and max 2 > 1.6: split, and both halves have the largest mean 4. The second one's updates
    2 and -1.9: mean 0.05 < 0.4, max 2 > 1.6: split again, which it would not be had it begun with its own mean 0.05."""
    method = algorithms.make("clusterfl", eps_mode="relative", eps1=0.1, eps2=0.4, t0=0, min_size=1)
    server, _ = method.init(ToyModel(), Setting(4, 4, 1))
    for updates, cluster, largest in (
        ([4, 4, 4, 4], [0, 0, 0, 0], [4]),
        ([1, 2, -1, -2], [0, 0, 1, 1], [4, 4]),
        ([4, 4, 2, -1.9], [0, 0, 1, 2], [4, 4, 4]),
    ):
        start = method.messages(server, np.arange(4))["head.bias"][:, 0]
        uploads = biases([b + u for b, u in zip(start.tolist(), updates)])
        server = method.server_update(server, np.arange(4), uploads, np.ones(4))
        assert server["cluster"].tolist() == cluster and server["largest"].tolist() == pytest.approx(largest)


def test_clusterfl_halves_by_complete_linkage():
    """Directions in degrees. 0, 30, 55, 75, 97: (55, 75), then (0, 30), then 97 joins the pair (42 away at most), so
    that the halves are (0, 30) and the rest; single linkage (gaps 30, 25, 20, 22) would cut 0 off. Lengths do not
    matter; a zero update is no error."""

    def halves(degrees, lengths):
        angle = torch.deg2rad(torch.tensor(degrees, dtype=torch.float64))
        vectors = torch.stack([angle.cos(), angle.sin()], 1) * torch.tensor(lengths, dtype=torch.float64)[:, None]
        return smaller_half(vectors @ vectors.T).tolist()

    assert halves([55, 0, 75, 30, 97], [1, 9, 0.1, 3, 1]) == [1, 3]
    assert halves([0, 95, 5, 10], [1, 1, 5, 1]) == [1]
    assert len(halves([0, 0, 0, 0], [0, 1, 1, 1])) in (1, 2)


# FedEM ----------------------------------------------------------------------------------------------------------------


def logit(w, v, b) -> dict:
    """Parameters of `two_classes` with scores (0, v w x + b): P(1) = 1/(1 + e^-s), and d loss/ds = P(1) - y."""
    return two(w, 0.0, v, 0.0, b)


def test_fedem_by_hand():
    """M = 2, x = 1, y = 1. Component 0: (1, -1, 1), s = 0, P = 1/2; component 1: (1, 1, ln 3 - 1), s = ln 3, P = 3/4.
    With weights 0.6, 0.4: q ∝ 0.3, 0.3.

    New weights (1/2, 1/2). Gradients q (P - y) (v x, w x, 1): -0.25 (-1, 1, 1) and -0.125 (1, 1, 1), and the opposite
    for v and b of class 0; lr 0.1. Second epoch: q stays 1/2, for it is that of the received components: component 0
    has v = -0.95, the difference of both classes, and s = -0.95 * 0.975 + 1.05.
    Tested with weights 1/2: P = (1/2 + 3/4)/2 = 0.625.
    """
    model, method, data = two_classes(), algorithms.make("fedem", M=2), labelled(([1.0], [1]))
    received, mix = tree.stack([logit(1, -1, 1), logit(1, 1, log(3) - 1)]), {"mix": f64(0.6, 0.4)}
    upload, kept = method.client_update(model, received, mix, data)
    close(kept["mix"], f64(0.5, 0.5))
    first = (0.975, -0.025, -0.975, -0.025, 1.025)
    close(upload, tree.stack([two(*first), two(1.0125, -0.0125, 1.0125, -0.0125, log(3) - 0.9875)]))
    data.local_epochs = 2
    upload, _ = method.client_update(model, received, mix, data)
    step = 0.1 * 0.5 * (1 / (1 + exp(0.95 * 0.975 - 1.05)) - 1)
    moved = (0.95 * step, 0.975 * step, -0.975 * step, step, -step)
    close(tree.rows(upload, 0), two(*map(sum, zip(first, moved))))
    personal = method.personal_model(model, received, kept, None)
    close(method.predict(model, personal, f64([1.0])).exp()[0], f64(0.375, 0.625))


def test_fedem_server_and_start():
    """By component, weighted by samples: b = (1 + 3*2)/4 and (10 + 3*20)/4. Weights are uniform at first,
    components differ."""
    method = algorithms.make("fedem", M=2)
    server, clients = method.init(Toy(), Setting(3, 4, 2))
    close(
        (server, clients),
        (
            {"theta": tree.stack([theta(2, -1, 0.5), theta(-1, -1, 1)])},
            {"mix": torch.full((3, 2), 0.5, dtype=torch.float64)},
        ),
    )
    server = method.server_update(server, [0, 2], tree.stack([biases([1, 10]), biases([2, 20])]), np.array([1, 3]))
    close(server, {"theta": biases([1.75, 17.5])})


def test_fedem_weights_do_not_underflow():
    """Losses of 2000 and 2001 with weights 0 and 1, in float32: q is finite and sums to 1."""
    model, method = two_classes(), algorithms.make("fedem", M=2)
    thetas = [tree.map(torch.Tensor.float, logit(0, 0, b)) for b in (-2000, -2001)]
    batch = dataclasses.replace(labelled(([1.0], [1])).batches[0], images=torch.ones(1, 1))
    q = method.responsibilities(model, thetas, torch.tensor([0.0, 1.0]), batch)
    assert torch.isfinite(q).all() and q.sum() == 1 and q[1] == 1


# pFedMe ---------------------------------------------------------------------------------------------------------------


def test_pfedme_by_hand():
    """lambda = 2, K = 1, eta_p = 0.1, eta = 0.25, so that w_i moves half of the way to theta.

    A: no pull yet, theta = (2.05, -1.1, 0.45); w_i = (2.025, -1.05, 0.475). x = 1, y = -2.805, from theta: e = 1,
    gradient (-1.1, 2.05, 1) + 2 (0.025, -0.05, -0.025) = (-1.05, 1.95, 0.95); theta = (2.155, -1.295, 0.355); w_i =
    (2.09, -1.1725, 0.415).
    """
    client = {"theta": theta(9, 9, 9), "trained": torch.tensor(False)}
    method = algorithms.make("pfedme", lam=2.0, K=1, eta_p=0.1, eta=0.25)
    data = ToyData([([1.0], [-2.0]), ([1.0], [-2.805])])
    upload, kept = method.client_update(ToyModel(), theta(2, -1, 0.5), client, data)
    close((upload, kept["theta"]), (theta(2.09, -1.1725, 0.415), theta(2.155, -1.295, 0.355)))
    assert bool(kept["trained"])


def test_pfedme_inner_steps_and_outer_rate_by_hand():
    """K = 2 on A with lambda = 2, eta_p = 0.1: theta = AFTER_A, then e = -1.1*2.05 + 0.45 + 2 = 0.195, gradient
    (-0.2145, 0.39975, 0.195) + 2 (0.05, -0.1, -0.05) = (-0.1145, 0.19975, 0.095). eta: the run's lr 0.1 gives 0.2 of
    the way; lambda = 15 is capped to half of the way."""
    final = theta(2.05 + 0.01145, -1.1 - 0.019975, 0.45 - 0.0095)
    client = {"theta": theta(0, 0, 0), "trained": torch.tensor(False)}
    upload, kept = algorithms.make("pfedme", lam=2.0, K=2, eta_p=0.1).client_update(
        ToyModel(), theta(2, -1, 0.5), client, A
    )
    close(kept["theta"], final)
    close(upload, tree.map(lambda w, t: w - 0.2 * (w - t), theta(2, -1, 0.5), final))
    upload, kept = algorithms.make("pfedme", K=1, eta_p=0.1).client_update(ToyModel(), theta(2, -1, 0.5), client, A)
    close(upload, tree.map(lambda w, t: (w + t) / 2, theta(2, -1, 0.5), kept["theta"]))


def test_pfedme_server_and_what_is_tested():
    """beta = 0.5: half of the old b = 0.5 and half of the mean of 1 and 5, 3 uniform or 4 by samples. Tested: theta,
    or w for who never trained."""
    model = ToyModel()
    for weights, b in (("uniform", 1.75), ("samples", 2.25)):
        method = algorithms.make("pfedme", beta=0.5, weights=weights)
        server, clients = method.init(model, Setting(3, 4, 1))
        server = method.server_update(server, [0, 2], biases([1, 5]), np.array([1, 3]))
        close(server, {"theta": theta(2, -1, b)})
    post, glob = method.stored_upload(server, 1), method.download(server, 1)
    for trained in (False, True):
        own = {"theta": theta(7, 7, 7), "trained": torch.tensor(trained)}
        close(method.personal_model(model, post, own, A), theta(7, 7, 7) if trained else theta(2, -1, b))
        close(method.personal_model(model, glob, own, A), theta(2, -1, b))


# reductions to FedAvg, in whole runs ----------------------------------------------------------------------------------


def test_pfedme_averages_running_statistics_as_fedavg_does():
    """Without a tie, where they are the server's."""
    hyper = dict(lam=1e-9, eta=1e9, K=1, eta_p=0.05, weights="samples")
    global_stats = dict(precision="float64", bn_stats="global", rounds=2)
    ends = [
        list(played(spec))[-1][1]
        for spec in (tiny("pfedme", hyper=hyper, **global_stats), tiny("fedavg", **global_stats))
    ]
    close(ends[0].server["theta"], ends[1].server["theta"], 1e-7)


# clusters -------------------------------------------------------------------------------------------------------------


def two_tasks(run):
    """Four clients of 200 training and 100 test samples; for clients 1 and 3 the label y is called 9 - y."""
    order = np.random.default_rng(3).permutation(1797)[:1200].reshape(4, 300)
    parts = [{"train": np.sort(own[:200]), "test": np.sort(own[200:])} for own in order]
    source = copy.copy(run.work.source)
    source.labels = source.labels.clone()
    flipped = torch.from_numpy(order[[1, 3]].ravel())
    source.labels[flipped] = 9 - source.labels[flipped]
    tests = np.stack([np.bincount(source.labels[own["test"]], minlength=10) for own in parts])
    return dataclasses.replace(run, work=dataclasses.replace(run.work, parts=parts, source=source), tests=tests)


@pytest.mark.parametrize(
    ("method", "hyper"), [("ifca", dict(K=2)), ("fesem", dict(K=2)), ("clusterfl", {**SPLITTING, "eps2": 0.5})]
)
def test_clients_with_contradicting_labels_end_in_different_clusters(method, hyper):
    """Two tasks of two clients each. Their cluster's model does well for all,
    which one model cannot (its errors on one task are the other's hits)."""
    *_, (run, state, _) = played(
        tiny(method, hyper=hyper, join_ratio=1.0, rounds=5, local_epochs=3, lr=0.1), change=two_tasks
    )
    cluster = (state.clients if method == "ifca" else state.server)["cluster"].tolist()
    assert cluster[0] == cluster[2] != cluster[1] == cluster[3]
    with torch.no_grad():
        correct, _ = evaluate(run, state, "glob")
    assert (correct.sum(1) / run.tests.sum(1)).min() > 0.6


# bad input and faults -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "headline"), list(zip(METHODS, ("ft(1)", "post", "glob", "post", "glob", "recv", "post")))
)
def test_it_has_its_points_and_its_defaults(method, headline):
    """The method's own points are accepted by a spec with default hyper-parameters; the first is the headline."""
    points = algorithms.make(method).eval_points({})
    assert tiny(method, eval_points=points).eval_points == points and points[0] == headline
