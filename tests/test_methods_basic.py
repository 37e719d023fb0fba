"""FedProx, FedRep, FedBABU, FedBN, FedAvg+FT, FedDyn, FedRoD: steps by hand, beside those of lessons 3 and 4, and
reductions."""

from __future__ import annotations

import warnings
from math import log, sqrt

import numpy as np
import pytest
import torch
from helpers import ToyData, ToyModel, W, close, f64, labelled, played, same, theta, tiny, two, two_classes
from torch.nn import functional

from fedlib import algorithms
from fedlib.algorithms.api import Setting
from fedlib.base import tree
from fedlib.engine.evaluate import evaluate
from fedlib.engine.simulate import simulate

SETTING, N_AB = Setting(3, 4, 1), np.array([1, 3])
# from (w, v, b) = (2, -1, 0.5) with lr 0.1; e = v w x + b - y and the gradient is (e v x, e w x, e)
A, AFTER_A = ToyData([([1.0], [-2.0])]), theta(2.05, -1.1, 0.45)  # e = 0.5: (-0.5, 1, 0.5)
B, AFTER_B = ToyData([([-1.0], [1.5]), ([1.0], [-2.12])]), theta(1.98, -0.99, 0.3)  # e = 1: (1, -2, 1), (-0.8, 1.9, 1)
HEAD = ("head.weight", "head.bias")


def some(values: dict, *names) -> dict:
    return {name: values[name] for name in names}


def rounds_of(method, data: dict, clients, server):
    """One round: uploads and new states of the clients in `data`, and the new server; sample numbers N_AB."""
    model = ToyModel()
    out = [
        method.client_update(model, method.download(server, i), tree.rows(clients, i), own) for i, own in data.items()
    ]
    uploads, kept = zip(*out)
    return uploads, kept, method.server_update(server, np.array(list(data)), tree.stack(uploads), N_AB)


# steps by hand --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "hyper", "w"),
    [
        ("fedprox", {}, 4),
        ("fedprox", {"weights": "uniform"}, 3),
        ("fedrep", {}, 4),
        ("fedrep", {"weights": "uniform"}, 3),
        ("perfedavg", {}, 3),
    ],
)
def test_uploads_weigh_by_samples_or_all_alike(name, hyper, w):
    """w = 1 after one sample and w = 5 after three."""
    method = algorithms.make(name, **hyper)
    server, _ = method.init(ToyModel(), SETTING)
    received = method.download(server, 0)
    uploads = [{**received, "extractor.w": torch.tensor([value], dtype=torch.float64)} for value in (1, 5)]
    server = method.server_update(server, np.array([0, 2]), tree.stack(uploads), N_AB)
    assert float(method.download(server, 1)["extractor.w"]) == w


@pytest.mark.parametrize(
    ("hyper", "E", "head", "body"),
    [
        ({}, 5, 4, 1),
        ({}, 1, 1, 1),
        ({"E_f": 3}, 5, 2, 3),
        ({"E_h": 2, "E_f": 3}, 5, 2, 3),
        ({"E_h": 0, "E_f": 2}, 5, 0, 2),
        ({"E_h": 1, "E_f": 0}, 5, 1, 0),
    ],
)
def test_fedrep_epochs(hyper, E, head, body):
    """One minibatch an epoch: E_h steps of the head alone, then E_f of the extractor alone; E_h defaults to E - E_f,
    at least 1."""
    model, data, trained = ToyModel(), ToyData([([1.0], [-2.0])], epochs=E), []
    step = model.sgd_step
    model.sgd_step = lambda theta, batch, lr, train=None, *rest: (
        trained.append(tuple(train)),
        step(theta, batch, lr, train, *rest),
    )[1]
    method = algorithms.make("fedrep", **hyper)
    server, clients = method.init(model, SETTING)
    method.client_update(model, server["f"], tree.rows(clients, 0), data)
    assert trained == [HEAD] * head + [("extractor.w",)] * body


@pytest.mark.parametrize("name", ["fedbabu", "fedavg_ft"])
@pytest.mark.parametrize(
    ("part", "end"), [("all", AFTER_A), ("head", theta(2, -1.1, 0.45)), ("extractor", theta(2.05, -1, 0.5))]
)
def test_fine_tuning_by_hand(name, part, end):
    """From (2, -1, 0.5) one step on A, for the named part; twice the epochs are twice the steps."""
    model, method = ToyModel(), algorithms.make(name, ft_part=part)
    close(method.fine_tune(model, theta(2, -1, 0.5), A, 1), end)
    close(method.fine_tune(model, theta(2, -1, 0.5), A, 2), method.fine_tune(model, end, A, 1))


class NormedToy(ToyModel):
    """The toy model as if w belonged to a batch-norm layer."""

    norm_names = ("extractor.w",)


def test_fedbn_by_hand():
    """Own w: 2 and -2; client 0 trains as A, client 2, whose inputs are mirrored, as B with -w. v and b are averaged as
    in FedAvg: v = (-1.1 - 3*0.99)/4 = -1.0175, b = (0.45 + 0.9)/4 = 0.3375.
    """
    model, method = NormedToy(), algorithms.make("fedbn")
    server, clients = method.init(model, SETTING)
    assert set(server["theta"]) == set(HEAD) and set(clients) == {"extractor.w"}
    clients["extractor.w"][2] = -2.0
    uploads, kept, server = rounds_of(method, {0: A, 2: ToyData([([1.0], [1.5]), ([-1.0], [-2.12])])}, clients, server)
    close(uploads, (some(AFTER_A, *HEAD), some(AFTER_B, *HEAD)))
    close(kept, (some(AFTER_A, "extractor.w"), some(theta(-1.98, 0, 0), "extractor.w")))
    assert same(method.personal_model(model, method.download(server, 2), kept[1], A).keys(), theta(0, 0, 0).keys())
    mine = method.personal_model(model, method.download(server, 2), kept[1], A)
    close(some(mine, *theta(0, 0, 0)), theta(-1.98, -1.0175, 0.3375))


G = theta(0.4, -0.2, 0.1)  # a client's last gradient in FedDyn
DYN = ToyData([([-1.0], [1.5]), ([1.0], [-2.1808])])


def test_feddyn_by_hand():
    """alpha = 0.5, N = 4. Client 0, g = (0.4, -0.2, 0.1): first minibatch e = 1, gradient (1, -2, 1) - g = (0.6, -1.8,
    0.9): (1.94, -0.82, 0.41). Second: e = -0.82*1.94 + 0.41 + 2.1808 = 1, gradient (-0.82, 1.94, 1) - g + 0.5 (-0.06,
    0.18, -0.09) = (-1.25, 2.23, 0.855): (2.065, -1.043, 0.3245). g <- g - 0.5 (0.065, -0.043, -0.1755) = (0.3675,
    -0.1785, 0.18775).

    Client 1, g = 0, trains as A: (2.05, -1.1, 0.45), g = -0.5 (0.05, -0.1, -0.05).
    Server, h = (0.1, -0.2, 0.3): h - 0.5/4 (0.115, -0.143, -0.2255) = (0.085625, -0.182125, 0.3281875);
    theta = (2.0575, -1.0715, 0.38725) - h/0.5 = (1.88625, -0.70725, -0.269125), whatever the sample numbers.
    """
    model, method = ToyModel(), algorithms.make("feddyn", alpha=0.5)
    server, clients = method.init(model, Setting(4, 4, 1))
    assert all(float(leaf.abs().sum()) == 0 for _, leaf in tree.leaves((server["h"], clients)))
    clients = {"g": tree.put(clients["g"], [0], tree.stack([G]))}
    uploads, kept, server = rounds_of(method, {0: DYN, 1: A}, clients, {**server, "h": theta(0.1, -0.2, 0.3)})
    close(uploads, (theta(2.065, -1.043, 0.3245), AFTER_A))
    close(kept, ({"g": theta(0.3675, -0.1785, 0.18775)}, {"g": theta(-0.025, 0.05, 0.025)}))
    close(server["h"], theta(0.085625, -0.182125, 0.3281875))
    close(server["theta"], theta(1.88625, -0.70725, -0.269125))
    close(method.personal_model(model, method.download(server, 3), {}, A), server["theta"])


def test_feddyn_variants_by_hand():
    """alpha = 0.5. "pfllib": as above, but the second step has alpha/2 d/|d| with d = (-0.06, 0.18, -0.09), |d| = 0.21:
    (-2, 6, -3)/28. "flbench2023", on B: without g the first step is FedAvg's; in the second d = (-0.1, 0.2, -0.1), |d|
    = sqrt(0.06).
    """

    def upload(variant, data):
        method = algorithms.make("feddyn", alpha=0.5, feddyn_variant=variant)
        return method.client_update(ToyModel(), theta(2, -1, 0.5), {"g": G}, data)[0]

    close(
        upload("pfllib", DYN),
        theta(1.94 + 0.1 * (1.22 + 2 / 28), -0.82 - 0.1 * (2.14 + 6 / 28), 0.41 - 0.1 * (0.9 - 3 / 28)),
    )
    pull = 0.25 / sqrt(0.06)
    close(
        upload("flbench2023", B),
        theta(1.9 + 0.1 * (0.8 + 0.1 * pull), -0.8 - 0.1 * (1.9 + 0.2 * pull), 0.4 - 0.1 * (1 - 0.1 * pull)),
    )


def test_feddyn_clips_the_gradient_of_the_whole_local_objective():
    """alpha = 0.5, g = (0.4, -0.2, 0.1), limit 1.05. The first step is that of test_feddyn_by_hand: (1, -2, 1) - g =
    (0.6, -1.8, 0.9) has norm 2.1 and is halved: (1.97, -0.91, 0.455). Second minibatch, e = 1: (-0.91, 1.97, 1) - g +
    0.5 (-0.03, 0.09, -0.045) = (-1.325, 2.215, 0.8775)."""
    method = algorithms.make("feddyn", alpha=0.5, grad_clip=1.05)
    data = ToyData([([-1.0], [1.5]), ([1.0], [-0.91 * 1.97 + 0.455 - 1])])
    upload, _ = method.client_update(ToyModel(), theta(2, -1, 0.5), {"g": G}, data)
    scale = 1.05 / sqrt(1.325**2 + 2.215**2 + 0.8775**2)
    right = theta(1.97 + 0.1325 * scale, -0.91 - 0.2215 * scale, 0.455 - 0.08775 * scale)
    close(upload, right, 1e-5)  # the norm is taken 1e-6 longer


FEDROD = (2.0, 0.5, -0.5, log(2) - 1, 1.0)  # at x = 1 the generic scores are (ln 2, 0)
PERSONAL = {"personal.weight": f64([1.0], [-1.0]), "personal.bias": f64(log(1.5) - 2, 2.0)}  # and these (ln 1.5, 0)


def with_counts(y, counts) -> ToyData:
    """x = 1 of class y, as if the client had so many samples of both classes."""
    data = labelled(([1.0], [y]))
    data.class_counts = torch.tensor(counts)
    return data


def test_fedrod_by_hand():
    """x = 1, y = 1, z = 2, class counts (2, 1). Generic scores (1 + ln2 - 1, -1 + 1) = (ln 2, 0); balanced softmax of
    (2*2, 1): (0.8, 0.2), dscore (0.8, -0.8): dv = (1.6, -1.6), db = (0.8, -0.8), dz = 0.4 + 0.4 = 0.8 = dw.

    Personal head: scores (2 + ln1.5 - 2, -2 + 2) = (ln 1.5, 0). With the generic ones (ln 3, 0): softmax (0.75, 0.25),
    dscore (0.75, -0.75), and w = 2 - 0.08. Server: two participants, n = (1, 3), heads and w of the second are those of
    the start: (w + 3*2)/4.
    """
    model, method = two_classes(*FEDROD), algorithms.make("fedrod")
    server, clients = method.init(model, SETTING)
    assert torch.equal(clients["personal.weight"][2], model.theta0["head.weight"])  # starts as a copy
    upload, kept = method.client_update(model, method.download(server, 0), PERSONAL, with_counts(1, [2, 1]))
    close(some(upload, *two()), two(1.92, 0.34, -0.34, log(2) - 1.08, 1.08))
    close(some(kept, *PERSONAL), dict(zip(PERSONAL, (f64([0.85], [-0.85]), f64(log(1.5) - 2.075, 2.075)))))
    server = method.server_update(server, np.array([0, 2]), tree.stack([upload, model.theta0]), N_AB)
    close(some(server["theta"], W, "head.weight"), some(two(1.98, 0.46, -0.46), W, "head.weight"))


def test_fedrod_predicts_by_both_heads():
    """Scores of the personal model are the sum of the generic and the personal scores; at `glob` the generic ones."""
    model, method = two_classes(*FEDROD), algorithms.make("fedrod")
    message, x = method.init(model, SETTING)[0]["theta"], f64([1.0], [-0.5], [3.0])
    z = model.features(message, x)
    both = functional.linear(z, message["head.weight"], message["head.bias"]) + functional.linear(
        z, PERSONAL["personal.weight"], PERSONAL["personal.bias"]
    )
    close(model.logits(method.personal_model(model, message, PERSONAL, None), x)[None], both[None])
    assert same(method.generic_model(model, message), message)


def test_fedrod_without_samples_of_a_class():
    """Counts (1, 0): the balanced softmax is certain of the only class, so (theta, psi) stay bit for bit; only the
    personal head moves. gamma = 0 counts nothing: the plain cross-entropy, by which they move.
    """
    model = two_classes(*FEDROD)
    for gamma, moves in ((1.0, False), (0.5, False), (0.0, True)):
        method = algorithms.make("fedrod", gamma=gamma)
        upload, kept = method.client_update(model, model.theta0, PERSONAL, with_counts(0, [1, 0]))
        assert same(upload, model.theta0) != moves and not same(kept, PERSONAL)
        assert all(torch.isfinite(leaf).all() for _, leaf in tree.leaves((upload, kept)))


def test_fedrod_gamma_by_hand():
    """Counts (16, 1), gamma = 0.5: prior (ln 4, 0), scores (ln 2, 0): softmax (8, 1)/9. y = 0: dscore (-1/9, 1/9)."""
    model, method = two_classes(*FEDROD), algorithms.make("fedrod", gamma=0.5)
    upload, _ = method.client_update(model, model.theta0, PERSONAL, with_counts(0, [16, 1]))
    close(upload["head.bias"], f64(log(2) - 1 + 1 / 90, 1 - 1 / 90))


# reductions -----------------------------------------------------------------------------------------------------------


def test_fedavg_ft_is_tested_after_its_own_fine_tuning():
    """The headline is ft(k); the head alone gives other numbers, from the same global model."""
    own, head = (simulate(tiny("fedavg_ft", hyper=hyper)) for hyper in ({}, {"ft_part": "head", "k": 2}))
    assert (own.point, head.point) == ("ft(5)", "ft(2)")
    assert own.final("loss", "glob") == head.final("loss", "glob") and own.final("loss") != head.final("loss")


def test_fedrep_that_never_trains_heads_is_fedbabu():
    """E_h = 0, E_f = E, one minibatch an epoch (the order of batches is another draw), float64:
    the extractors agree."""
    task = dict(batch_size=2000, precision="float64", local_epochs=2, join_ratio=1.0)
    (*_, (_, rep, _)), (*_, (_, babu, _)) = (
        played(tiny(name, hyper=hyper, **task)) for name, hyper in (("fedrep", {"E_h": 0, "E_f": 2}), ("fedbabu", {}))
    )
    close(rep.server["f"], babu.server["f"], 1e-10)
    close(rep.clients["h"], babu.clients["h0"])


def test_fedbn_without_batch_norm_is_fedavg_and_says_so():
    model = ToyModel()
    with pytest.warns(UserWarning, match="FedAvg"):
        server, clients = algorithms.make("fedbn").init(model, SETTING)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plain, _ = algorithms.make("fedavg").init(model, SETTING)
        algorithms.make("fedbn").init(NormedToy(), SETTING)
    for _ in range(2):
        _, _, server = rounds_of(algorithms.make("fedbn"), {0: A, 2: B}, clients, server)
        _, _, plain = rounds_of(algorithms.make("fedavg"), {0: A, 2: B}, {}, plain)
    assert same(server, plain) and clients == {}


@pytest.mark.parametrize("bn_stats", ["local", "global"])
def test_feddyn_h_is_the_mean_of_all_clients_gradients(bn_stats):
    """After every round, under partial participation: h = 1/N sum_i g_i;
    and only the trainable parameters have an h."""
    for run, state, _ in played(tiny("feddyn", precision="float64", bn_stats=bn_stats, rounds=4)):
        assert set(state.server["h"]) == set(run.work.model.trainable)
        close(state.server["h"], tree.map(lambda leaf: leaf.mean(0), state.clients["g"]), 1e-14)
    assert float(state.server["h"]["head.weight"].abs().sum()) > 0
    if bn_stats == "global":
        mean = state.server["theta"]["extractor.bn1.running_var"]
        assert (mean > 0).all() and not torch.equal(mean, torch.ones_like(mean))


# ownership ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bn_stats", ["local", "global"])
def test_fedbn_clients_that_never_trained_get_statistics(bn_stats):
    """Before any training all are tested with the statistics of their own data, whatever bn_stats: the losses are those
    of FedAvg with statistics that stay on the clients.
    """
    losses = []
    for method, policy in (("fedbn", bn_stats), ("fedavg", "local")):
        run, state, _ = next(played(tiny(method, bn_stats=policy)))
        with torch.no_grad():
            losses.append(evaluate(run, state, run.method.points[0])[1])
    np.testing.assert_allclose(*losses, rtol=1e-6)
