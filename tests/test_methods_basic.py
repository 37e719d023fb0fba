"""FedProx, FedRep, FedBABU, FedBN, FedAvg+FT, FedDyn, FedRoD: steps by hand, reductions, who owns what, what is sent,
learning."""

from __future__ import annotations

import dataclasses
import functools
import warnings
from math import log, sqrt

import numpy as np
import pytest
import torch
from helpers import (
    Parabola,
    ToyData,
    ToyModel,
    backends_agree,
    close,
    computed,
    exact,
    played,
    same,
    theta,
    tiny,
    uneven,
    wide,
)
from torch.nn import functional

from fedlib import algorithms
from fedlib.algorithms.api import Setting
from fedlib.base import tree
from fedlib.base.errors import BadValue
from fedlib.base.options import Options
from fedlib.engine.evaluate import evaluate
from fedlib.engine.setup import set_up
from fedlib.engine.simulate import simulate

METHODS = ("fedprox", "fedrep", "fedbabu", "fedbn", "fedavg_ft", "feddyn", "fedrod")
SETTING, N_AB = Setting(3, 4, 1), np.array([1, 3])
A = ToyData([([1.0], [-2.0])])
B = ToyData([([-1.0], [1.5]), ([1.0], [-2.12])])
AFTER_A, AFTER_B = theta(2.05, -1.1, 0.45), theta(1.98, -0.99, 0.3)  # derived in test_algorithms.test_fedavg_by_hand
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


def test_fedprox_by_hand():
    """Start (w, v, b) = (2, -1, 0.5), eta = 0.1, mu = 0.5. The first step is FedAvg's,
    for the model is still the received one.

    A: (2.05, -1.1, 0.45). B, first minibatch: (1.9, -0.8, 0.4); second, e = 1, gradient (-0.8, 1.9, 1) and mu (-0.1,
    0.2, -0.1): w = 1.9 + 0.1 (0.8 + 0.05) = 1.985, v = -0.8 - 0.1 (1.9 + 0.1) = -1, b = 0.4 - 0.1 (1 - 0.05) = 0.305.
    Server, n = (1, 3): w = (2.05 + 3*1.985)/4 = 2.00125, v = (-1.1 - 3)/4 = -1.025, b = (0.45 + 0.915)/4 = 0.34125.
    Uniform: w = 2.0175, v = -1.05, b = 0.3775.
    """
    for weights, right in (("samples", (2.00125, -1.025, 0.34125)), ("uniform", (2.0175, -1.05, 0.3775))):
        method = algorithms.make("fedprox", mu=0.5, weights=weights)
        server, clients = method.init(ToyModel(), SETTING)
        uploads, _, server = rounds_of(method, {0: A, 2: B}, clients, server)
        close(uploads, (AFTER_A, theta(1.985, -1.0, 0.305)))
        close(server, {"theta": theta(*right)})


def test_fedrep_by_hand():
    """E_h = E_f = 1. Client 0, x = 1, y = -2: first the head, e = 0.5: v = -1.1, b = 0.45; then w, with the new head:
    e = -2.2 + 0.45 + 2 = 0.25, dw = e v = -0.275, w = 2.0275.

    Client 2, own head (1, -0.5), x = 1, y = 0.5: e = 1, v = 1 - 0.2 = 0.8, b = -0.6; then e = 1.6 - 0.6 - 0.5 = 0.5, dw
    = 0.4, w = 1.96. Server: (2.0275 + 3*1.96)/4 = 1.976875; uniform 1.99375.
    """
    for weights, w in (("samples", 1.976875), ("uniform", 1.99375)):
        method = algorithms.make("fedrep", E_h=1, weights=weights)
        server, clients = method.init(ToyModel(), SETTING)
        clients["h"]["head.weight"][2], clients["h"]["head.bias"][2] = 1.0, -0.5
        uploads, kept, server = rounds_of(method, {0: A, 2: ToyData([([1.0], [0.5])])}, clients, server)
        close(uploads, (some(theta(2.0275, 0, 0), "extractor.w"), some(theta(1.96, 0, 0), "extractor.w")))
        close(kept, ({"h": some(theta(0, -1.1, 0.45), *HEAD)}, {"h": some(theta(0, 0.8, -0.6), *HEAD)}))
        close(method.personal_model(ToyModel(), method.download(server, 2), kept[1], A), theta(w, 0.8, -0.6))


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


def test_fedbabu_by_hand():
    """The head stays (-1, 0.5). A: w = 2.05. B: e = 1, dw = e v x = 1, w = 1.9; then e = -1.9 + 0.5 + 2.12 = 0.72, dw =
    -0.72, w = 1.972. Server: (2.05 + 3*1.972)/4 = 1.9915. Fine-tuning (2, -1, 0.5) on A moves the named part as in
    FedAvg's step.
    """
    model, method = ToyModel(), algorithms.make("fedbabu")
    server, clients = method.init(model, SETTING)
    uploads, kept, server = rounds_of(method, {0: A, 2: B}, clients, server)
    close(uploads, (some(theta(2.05, 0, 0), "extractor.w"), some(theta(1.972, 0, 0), "extractor.w")))
    assert same(kept, tuple(tree.rows(clients, i) for i in (0, 2)))
    close(method.personal_model(model, method.download(server, 1), tree.rows(clients, 1), A), theta(1.9915, -1, 0.5))


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


def test_feddyn_clips_the_whole_gradient():
    """A: gradient (-0.5, 1, 0.5), norm sqrt(1.5) = 1.2247. A limit of 0.6 shortens all three alike,
    one of 1.3 nothing."""
    for limit, scale in ((0.6, 0.6 / (sqrt(1.5) + 1e-6)), (1.3, 1), (0, 1)):
        method = algorithms.make("feddyn", grad_clip=limit)
        upload, _ = method.client_update(ToyModel(), theta(2, -1, 0.5), {"g": theta(0, 0, 0)}, A)
        close(upload, theta(2 + 0.05 * scale, -1 - 0.1 * scale, 0.5 - 0.05 * scale))


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


class TwoClasses(ToyModel):
    """Scores v_c w x + b_c of two classes, cross-entropy: dscore = softmax - onehot, dv = dscore z, db = dscore,
    dz = <dscore, v>, dw = dz x."""

    def __init__(self):
        values = {"extractor.w": [2.0], "head.weight": [[0.5], [-0.5]], "head.bias": [log(2) - 1, 1.0]}
        self.theta0 = {name: torch.tensor(value, dtype=torch.float64) for name, value in values.items()}

    def classify(self, theta, z):
        return functional.linear(z, theta["head.weight"], theta["head.bias"])


def labelled(x, y, counts) -> ToyData:
    data = ToyData([(x, y)])
    data.batches = [dataclasses.replace(batch, y=batch.y.long()) for batch in data.batches]
    data.class_counts = torch.tensor(counts)
    return data


PERSONAL = {
    "personal.weight": torch.tensor([[1.0], [-1.0]], dtype=torch.float64),
    "personal.bias": torch.tensor([log(1.5) - 2, 2.0], dtype=torch.float64),
}


@pytest.mark.parametrize(("residual", "w", "slope"), [(True, 1.92, 0.75), (False, 1.8, 0.6)])
def test_fedrod_by_hand(residual, w, slope):
    """x = 1, y = 1, z = 2, class counts (2, 1). Generic scores (1 + ln2 - 1, -1 + 1) = (ln 2, 0); balanced softmax of
    (2*2, 1): (0.8, 0.2), dscore (0.8, -0.8): dv = (1.6, -1.6), db = (0.8, -0.8), dz = 0.4 + 0.4 = 0.8 = dw.

    Personal head: scores (2 + ln1.5 - 2, -2 + 2) = (ln 1.5, 0). With the generic ones (ln 3, 0): softmax (0.75, 0.25),
    dscore (0.75, -0.75), and w = 2 - 0.08. Alone (residual=False): (0.6, 0.4), dscore (0.6, -0.6), which reaches z: dz
    = 0.8 + 1.2 = 2, w = 1.8. Server: two participants, n = (1, 3), heads and w of the second are those of the start: (w
    + 3*2)/4.
    """
    model, method = TwoClasses(), algorithms.make("fedrod", residual=residual)
    server, clients = method.init(model, SETTING)
    assert torch.equal(clients["personal.weight"][2], model.theta0["head.weight"])  # starts as a copy
    upload, kept = method.client_update(model, method.download(server, 0), PERSONAL, labelled([1.0], [1.0], [2, 1]))
    as_tensor = lambda *values: torch.tensor(values, dtype=torch.float64)  # noqa: E731
    close(
        some(upload, "extractor.w", *HEAD),
        dict(zip(model.trainable, (as_tensor(w), as_tensor([0.34], [-0.34]), as_tensor(log(2) - 1.08, 1.08)))),
    )
    close(
        some(kept, *PERSONAL),
        dict(
            zip(
                PERSONAL,
                (
                    as_tensor([1 - 0.2 * slope], [-1 + 0.2 * slope]),
                    as_tensor(log(1.5) - 2 - 0.1 * slope, 2 + 0.1 * slope),
                ),
            )
        ),
    )
    server = method.server_update(server, np.array([0, 2]), tree.stack([upload, model.theta0]), N_AB)
    close(server["theta"]["extractor.w"][None], as_tensor((w + 6) / 4)[None])
    close(server["theta"]["head.weight"][None], as_tensor([(0.34 + 1.5) / 4], [-(0.34 + 1.5) / 4])[None])


def test_fedrod_predicts_by_both_heads():
    """Scores of the personal model are the sum of the generic and the personal scores; at `glob` the generic ones."""
    model, method = TwoClasses(), algorithms.make("fedrod")
    message, x = method.init(model, SETTING)[0]["theta"], torch.tensor([1.0, -0.5, 3.0], dtype=torch.float64)
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
    model = TwoClasses()
    for gamma, moves in ((1.0, False), (0.5, False), (0.0, True)):
        method = algorithms.make("fedrod", gamma=gamma)
        upload, kept = method.client_update(model, model.theta0, PERSONAL, labelled([1.0], [0.0], [1, 0]))
        assert same(upload, model.theta0) != moves and not same(kept, PERSONAL)
        assert all(torch.isfinite(leaf).all() for _, leaf in tree.leaves((upload, kept)))


def test_fedrod_gamma_by_hand():
    """Counts (16, 1), gamma = 0.5: prior (ln 4, 0), scores (ln 2, 0): softmax (8, 1)/9. y = 0: dscore (-1/9, 1/9)."""
    upload, _ = algorithms.make("fedrod", gamma=0.5).client_update(
        TwoClasses(), TwoClasses().theta0, PERSONAL, labelled([1.0], [0.0], [16, 1])
    )
    close(upload["head.bias"][None], torch.tensor([[log(2) - 1 + 1 / 90, 1 - 1 / 90]], dtype=torch.float64))


@pytest.mark.parametrize(
    ("name", "hyper"),
    [
        ("fedprox", dict(mu=-0.1)),
        ("fedrep", dict(E_h=-1)),
        ("fedrep", dict(E_f=-1)),
        ("fedrep", dict(frozen_bn="off")),
        ("fedrep", dict(weights="n")),
        ("fedbabu", dict(k=0)),
        ("fedbabu", dict(ft_part="body")),
        ("fedavg_ft", dict(k=0)),
        ("fedavg_ft", dict(ft_part="tail")),
        ("feddyn", dict(alpha=0)),
        ("feddyn", dict(grad_clip=-1)),
        ("feddyn", dict(feddyn_variant="fl-bench")),
        ("fedrod", dict(gamma=-1)),
        ("fedprox", dict(mu=float("nan"))),
    ],
)
def test_values_out_of_range_are_refused(name, hyper):
    ((field, value),) = hyper.items()
    with pytest.raises(BadValue) as error:
        algorithms.make(name, **hyper)
    assert field in str(error.value) and repr(value) in str(error.value)


# reductions -----------------------------------------------------------------------------------------------------------


def test_fedprox_without_a_term_is_fedavg():
    """mu = 0: bit for bit, in every number and array, of PyTorch's steps. Compiled steps have a gradient of their own
    for FedAvg's plain cross-entropy, and round it otherwise."""
    prox, avg = (
        simulate(tiny(name, hyper=hyper, eval_points=("glob", "ft(1)")), step="torch")
        for name, hyper in (("fedprox", {"mu": 0}), ("fedavg", {}))
    )
    assert exact(prox) == exact(avg)


def test_fedprox_stays_nearer_to_the_received_model():
    """Where lr mu is near 1 the model hardly leaves the received one: the larger mu, the nearer."""
    moved = []
    for mu in (0, 1, 10):
        run = set_up(tiny("fedprox", hyper={"mu": mu}, local_epochs=3))
        upload = computed(
            run,
            "serial",
            lambda model, start, data, run=run: run.method.client_update(model, start, {}, data)[0],
            [0],
            tree.repeat(run.work.model.theta0, 1),
        )
        away = [upload[name][0] - run.work.model.theta0[name] for name in run.work.model.trainable]
        moved.append(float(sum(d.square().sum() for d in away)))
    assert moved[0] > 1.2 * moved[1] > 2 * moved[2] > 0


def test_fedavg_ft_trains_as_fedavg():
    """Bit for bit at `glob` and at ft(5) of all layers; its own headline is ft(k);
    fine-tuning the head alone gives other numbers."""
    points = ("ft(5)", "glob")
    tuned, avg = (simulate(tiny(name, eval_points=points)) for name in ("fedavg_ft", "fedavg"))
    assert exact(tuned) == exact(avg)
    own, head = (simulate(tiny("fedavg_ft", hyper=hyper)) for hyper in ({}, {"ft_part": "head", "k": 2}))
    assert (own.point, head.point) == ("ft(5)", "ft(2)") and own.final() == tuned.final()
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


class OnlyBody(ToyModel):
    """The toy model with all its parameters in the extractor."""

    trainable = ("extractor.w", "extractor.v", "extractor.b")

    def __init__(self):
        self.theta0 = dict(zip(self.trainable, theta(2, -1, 0.5).values()))

    def sgd_step(self, theta, batch, lr, train=None, loss=None, differentiate=None):
        assert set(train or self.trainable) == set(self.trainable)
        moved = ToyModel().sgd_step(dict(zip(ToyModel.trainable, theta.values())), batch, lr)
        return dict(zip(self.trainable, moved.values()))


@pytest.mark.parametrize(("name", "hyper"), [("fedrep", {"E_h": 0}), ("fedbabu", {})])
def test_with_nothing_in_the_head_it_is_fedavg(name, hyper):
    model, ends = OnlyBody(), []
    for method in (algorithms.make(name, **hyper), algorithms.make("fedavg")):
        server, clients = method.init(model, SETTING)
        uploads = [
            method.client_update(model, method.download(server, i), tree.rows(clients, i), data)[0]
            for i, data in ((0, A), (2, B))
        ]
        server = method.server_update(server, np.array([0, 2]), tree.stack(uploads), N_AB)
        ends.append(method.download(server, 1))
    assert same(ends[0], ends[1])
    close(ends[0], dict(zip(model.trainable, theta(1.9975, -1.0175, 0.3375).values())))


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
def test_fedbn_of_a_single_client_is_fedavg(bn_stats):
    """Nobody to differ from: bit for bit the same model, statistics included."""
    (*_, (run, bn, _)), (*_, (_, avg, _)) = (
        played(tiny(name, num_clients=1, partition={}, scheme="iid", bn_stats=bn_stats)) for name in ("fedbn", "fedavg")
    )
    assert same(
        {k: {**bn.server["theta"], **tree.rows(bn.clients, 0)}[k] for k in run.work.model.trainable},
        {k: avg.server["theta"][k] for k in run.work.model.trainable},
    )
    stats = avg.stats if bn_stats == "local" else tree.repeat(some(avg.server["theta"], *run.work.model.running), 1)
    assert same(some(bn.clients, *sorted(run.work.model.running)), some(stats, *sorted(run.work.model.running)))


def test_feddyn_s_first_local_step_is_fedprox():
    """g = 0, no clipping: mu = alpha."""
    run = set_up(tiny("fedavg", precision="float64", local_epochs=2))
    model, methods = (
        run.work.model,
        (algorithms.make("feddyn", alpha=0.3, grad_clip=0), algorithms.make("fedprox", mu=0.3)),
    )
    zero = {"g": {name: torch.zeros_like(model.theta0[name]) for name in model.trainable}}
    ends = [
        computed(
            run,
            "serial",
            lambda model, start, own, data, m=m: m.client_update(model, start, own, data)[0],
            range(4),
            tree.repeat(model.theta0, 4),
            tree.repeat(zero, 4),
        )
        for m in methods
    ]
    close(*ends)


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


def test_feddyn_finds_the_common_minimum_where_fedavg_does_not():
    """Curvatures a = 1, 2, 7 and minima y = 0, 4, 1: the mean loss is least at (0 + 8 + 7)/10 = 1.5, which FedDyn
    finds, with all clients in every round or two of three in turns. FedAvg ends near the mean of the clients' minima,
    5/3; FedProx with mu = 1 where the sum of a/(a + 1) (y - w) is 0: (4*2/3 + 7/8)/(1/2 + 2/3 + 7/8) = 1.734694.
    """
    clients = [ToyData([([x], [y])], lr=0.2, epochs=20) for x, y in ((1.0, 0.0), (2.0, 4.0), (7.0, 1.0))]

    def end(name, turns, rounds, **hyper):
        model, method = Parabola(), algorithms.make(name, **hyper)
        server, states = method.init(model, Setting(3, 4, 1))
        for t in range(rounds):
            ids = turns[t % len(turns)]
            out = [
                method.client_update(model, method.download(server, i), tree.rows(states, i), clients[i]) for i in ids
            ]
            server = method.server_update(
                server, np.array(ids), tree.stack([upload for upload, _ in out]), np.ones(len(ids))
            )
            states = tree.put(states, ids, tree.stack([kept for _, kept in out]))
        return float(server["theta"]["extractor.w"])

    assert end("feddyn", [[0, 1, 2]], 30, alpha=1.0) == pytest.approx(1.5, abs=1e-3)
    assert end("feddyn", [[0, 1], [1, 2], [0, 2]], 45, alpha=1.0) == pytest.approx(1.5, abs=1e-2)
    assert end("fedavg", [[0, 1, 2]], 3) == pytest.approx(5 / 3, abs=1e-2)
    assert end("fedprox", [[0, 1, 2]], 10, mu=1.0) == pytest.approx(1.734694, abs=1e-3)


def test_fedrod_without_balancing_trains_its_generic_model_as_fedavg():
    """gamma = 0, float64: extractor, generic head and statistics; the personal heads do not reach them.
    residual=False does."""
    task = dict(precision="float64", rounds=2)
    *_, (_, avg, _) = played(tiny("fedavg", **task))
    *_, (_, rod, _) = played(tiny("fedrod", hyper={"gamma": 0}, **task))
    close(rod.server, avg.server)
    close(rod.stats, avg.stats)
    *_, (_, joint, _) = played(tiny("fedrod", hyper={"gamma": 0, "residual": False}, **task))
    assert (
        float((joint.server["theta"]["extractor.fc1.weight"] - avg.server["theta"]["extractor.fc1.weight"]).abs().max())
        > 1e-4
    )


def test_fedrod_is_also_tested_with_its_generic_model():
    """`glob` with gamma = 0 is FedAvg's `glob`, `recv` is not; both are stored, and `recv` is the headline."""
    rod, avg = (
        simulate(tiny("fedrod", hyper={"gamma": 0}, precision="float64")),
        simulate(tiny("fedavg", precision="float64")),
    )
    assert rod.point == "recv" and {h["point"] for h in rod.history} == {"recv", "post", "glob"}
    assert rod.final("loss", "glob") == pytest.approx(avg.final("loss", "glob"), rel=1e-9) != rod.final("loss")


def test_fedrep_frozen_batch_norm():
    """E_f = 0: while only heads are trained, statistics stay ("eval") or follow the client's data ("train");
    weights stay in both."""
    name = "extractor.bn1.running_mean"
    for frozen_bn, moves in (("eval", False), ("train", True)):
        *_, (run, state, _) = played(
            tiny(
                "fedrep",
                hyper={"E_h": 1, "E_f": 0, "frozen_bn": frozen_bn},
                join_ratio=1.0,
                rounds=1,
                bn_stats="global",
            )
        )
        assert (not torch.equal(state.server["f"][name], run.work.model.theta0[name])) == moves
        for key in ("extractor.bn1.weight", "extractor.fc1.weight"):
            close(state.server["f"][key][None], run.work.model.theta0[key][None], 1e-6)
        assert not torch.equal(state.clients["h"]["head.weight"][0], state.clients["h"]["head.weight"][1])


def test_fedbabu_orthogonal_head():
    """Rows of length 1 at right angles; a function of the seed; the same for all clients."""
    heads = []
    for seed in (0, 0, 1):
        run = set_up(tiny("fedbabu", hyper={"orthogonal": True}, seed=seed))
        weight = run.method.init(run.work.model, run.setting)[1]["h0"]["head.weight"]
        assert all(torch.equal(weight[0], other) for other in weight)
        torch.testing.assert_close(weight[0] @ weight[0].T, torch.eye(10), rtol=0, atol=1e-5)
        heads.append(weight[0])
    assert torch.equal(heads[0], heads[1]) and not torch.equal(heads[0], heads[2])


# ownership ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "personal"),
    [
        ("fedrep", HEAD),
        ("fedbabu", ()),
        ("fedbn", None),
        ("fedrod", HEAD),
        ("fedprox", ()),
        ("feddyn", ()),
        ("fedavg_ft", ()),
    ],
)
def test_what_is_personal_differs_and_what_is_shared_does_not(method, personal):
    """bn_stats = global, all clients in every round: entry by entry of what each client would be tested with."""
    *_, (run, state, _) = played(tiny(method, join_ratio=1.0, rounds=2, bn_stats="global"))
    personal = run.work.model.norm_names if personal is None else personal
    models = [
        run.method.personal_model(
            run.work.model, run.method.download(state.server, i), tree.rows(state.clients, i), None
        )
        for i in range(4)
    ]
    for name in run.work.model.theta0:
        assert all(torch.equal(models[0][name], other[name]) for other in models[1:]) == (name not in personal), name
    assert models[0].keys() == run.work.model.theta0.keys()


@pytest.mark.parametrize("method", ["fedrep", "fedbn", "fedrod"])
def test_training_personalises_what_is_evaluated(method):
    """At `post` the test of a client changes when that client trains, and not otherwise."""
    before = None
    for run, state, ids in played(tiny(method, rounds=4, eval_points=("post",))):
        with torch.no_grad():
            _, loss = evaluate(run, state, "post")
        if before is not None:
            assert {int(i) for i in np.flatnonzero(loss != before)} == set(ids.tolist())
        before = loss


@pytest.mark.parametrize("bn_stats", ["local", "reset", "global"])
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


# backends -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "hyper", "bn_stats"),
    [
        ("fedrep", {"frozen_bn": "train", "E_f": 2}, "global"),
        ("fedbabu", {"ft_part": "head", "orthogonal": True}, "reset"),
        ("fedbn", {}, "global"),
        ("fedavg_ft", {"ft_part": "head"}, "global"),
        ("feddyn", {"feddyn_variant": "pfllib", "grad_clip": 0.5}, "global"),
        ("feddyn", {"feddyn_variant": "flbench2023"}, "local"),
        ("fedrod", {"residual": False, "gamma": 0.5}, "global"),
    ],
)
def test_vmap_agrees_with_serial(method, hyper, bn_stats, small_scans):
    """Readings and statistics besides those that are compared for every method."""
    backends_agree(wide(method, hyper=hyper, bn_stats=bn_stats))


@pytest.mark.parametrize("backend", ["serial", "vmap"])
@pytest.mark.parametrize("method", METHODS)
def test_a_client_without_a_minibatch(method, backend):
    """One sample and batch norm: its only batch is skipped, so it sends back what it received and keeps what it had;
    all is finite."""

    def update(model, message, own, data):
        return run.method.client_update(model, message, own, data)

    run = uneven(set_up(tiny(method, num_clients=6, precision="float64")))
    server, clients = run.method.init(run.work.model, run.setting)
    message = run.method.download(server, 0)
    upload, kept = computed(run, backend, update, range(6), tree.repeat(message, 6), clients)
    close(tree.rows(upload, 0), {name: message[name] for name in upload})
    close(tree.rows(kept, 0), tree.rows(clients, 0))
    assert all(torch.isfinite(leaf).all() for _, leaf in tree.leaves((upload, kept)))


# communication --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bn_stats", ["local", "global", "reset"])
@pytest.mark.parametrize(
    ("method", "sent"),
    [
        ("fedprox", "m"),
        ("fedavg_ft", "m"),
        ("feddyn", "m"),
        ("fedrod", "m"),
        ("fedrep", "f"),
        ("fedbabu", "f"),
        ("fedbn", "m - BN"),
    ],
)
def test_communication_is_the_closed_form(method, sent, bn_stats):
    """Per participant and round, down and up: nu_m, nu_f, nu_m - nu_BN; under "global" the 44 running statistics more,
    not for FedBN.

    LeNet5-BN on 1x16x16 with 10 classes, by hand: conv1 156, bn1 12, conv2 2416, bn2 32, fc1 30840, fc2 10164, head
    850; nu_BN = 44.
    """
    nu_f = 156 + 12 + 2416 + 32 + 120 * (256 + 1) + 10164
    per_message = {"m": nu_f + 850, "f": nu_f, "m - BN": nu_f + 850 - 44}[sent] + (
        44 if bn_stats == "global" and method != "fedbn" else 0
    )
    floats = per_message * 2 * 2  # participants x rounds
    spec = tiny(method, bn_stats=bn_stats, num_clients=5, join_ratio=0.5, rounds=2, eval_every=2)
    assert simulate(spec).communication == {way: {"floats": floats, "bytes": 4 * floats} for way in ("down", "up")}


# learning -------------------------------------------------------------------------------------------------------------


def learned(method, **changes):
    """Ten clients of digits, Dir(0.1), half of them in each of eight rounds of two epochs."""
    task = dict(
        partition=dict(alpha=0.1, min_size=10),
        num_clients=10,
        rounds=8,
        local_epochs=2,
        test_fraction=0.5,
        eval_every=8,
    )
    return simulate(tiny(method, **{**task, **changes}))


@pytest.fixture(scope="module")
def runs():
    return functools.cache(learned)


@pytest.mark.parametrize(
    ("method", "point", "above_chance", "above_fedavg"),
    [
        ("fedprox", "glob", 0.15, None),
        ("feddyn", "glob", 0.3, 0.05),
        ("fedbn", "recv", 0.15, None),
        ("fedbn", "post", 0.5, 0.3),
        ("fedrod", "glob", 0.2, None),
        ("fedrep", "recv", 0.4, 0.15),
        ("fedrep", "post", 0.4, 0.2),
        ("fedbabu", "ft(5)", 0.6, 0.3),
        ("fedavg_ft", "ft(5)", 0.6, 0.3),
        ("fedrod", "recv", 0.6, 0.3),
    ],
)
def test_learning(runs, method, point, above_chance, above_fedavg):
    """Pooled accuracy: chance is 0.1; where clients are tested with a model of their own,
    far above FedAvg's one model for all (0.37)."""
    accuracy = runs(method).final("pooled", point)
    assert accuracy > 0.1 + above_chance
    assert above_fedavg is None or accuracy > runs("fedavg").final() + above_fedavg


def test_fine_tuning_is_what_makes_fedbabu_and_fedavg_ft_personal(runs):
    for method in ("fedbabu", "fedavg_ft"):
        assert runs(method).final("pooled", "ft(5)") > runs(method).final("pooled", "glob") + 0.3


def test_what_options_accept_is_checked_in_every_method():
    """A class that has such fields and forgets to inherit from Options would take any value."""
    for name in algorithms.names():
        method = algorithms.find(name)
        assert issubclass(method, Options) or not any("accepted" in f.metadata for f in dataclasses.fields(method)), (
            name
        )
