"""f-FedAP, FedGen, FedProto, FedPAC, FedGH and pFedHN against their definitions: steps by hand, beside those of lessons
3, 5 and 8, steps of PyTorch's layers and optimisers, and reductions."""

from __future__ import annotations

import copy
import dataclasses
import functools
import math

import numpy as np
import pytest
import torch
from helpers import ToyData, ToyModel, W, close, computed, labelled, played, same, theta, tiny, two, two_classes, uneven
from torch import nn

from fedlib import algorithms
from fedlib.algorithms.api import Setting
from fedlib.algorithms.ffedap import wasserstein_distances
from fedlib.algorithms.parts import generator
from fedlib.algorithms.parts.passes import attraction
from fedlib.base import tree
from fedlib.base.draws import rng
from fedlib.engine.setup import set_up
from fedlib.engine.simulate import simulate

SMALL = {"pfedhn": dict(hidden=8, depth=1)}  # keeps the tests short; all other methods have their defaults
F64 = functools.partial(torch.tensor, dtype=torch.float64)


def sigma(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def balanced():
    """z = 2 x and scores (z - 2, 2 - z), so that both classes are alike at x = 1."""
    return two_classes(2.0, 1.0, -1.0, -2.0, 2.0)


ONE = labelled(([1.0], [0]))  # x = 1 of class 0
STEP = (1.1, -1.1, -1.95, 1.95)  # the head after it


def prototypes(means, counts) -> dict:
    return {"prototypes": F64(means)[:, None], "counts": F64(counts)}


# the pull to prototypes -----------------------------------------------------------------------------------------------


def test_attraction_by_hand():
    """d = 2: z = (1, 2), P_0 = (0, 4): (1 + 4)/2 = 2.5; class 1 has no prototype, whatever stands there."""
    z, P = F64([[1, 2], [1, 2]]), F64([[0, 4], [99, 99]])
    close(attraction(z, torch.tensor([0, 1]), P, F64([3, 0])), F64([2.5, 0]))


# f-FedAP --------------------------------------------------------------------------------------------------------------


def test_ffedap_weights_by_hand():
    """Layer a: means (0, 0), (3, 4), (0, 0), variances 1. Layer b: variances 4, 9, 4, means 1.

    d_01 = 5 + |2 - 3| = 6, d_02 = 0 -> 1e-12, d_12 = 6. mu = 0.4:
    row 1: 0.6 (1/6)/(2/6) = 0.3 each beside 0.4; row 0: client 2 takes 0.6 but for 6e12 to 1.
    """
    reports = {
        "mean": {"a": F64([[0, 0], [3, 4], [0, 0]]), "b": F64([[1], [1], [1]])},
        "var": {"a": torch.ones(3, 2).double(), "b": F64([[4], [9], [4]])},
    }
    distances = wasserstein_distances(reports, 3)
    close(distances, F64([[0, 6, 0], [6, 0, 6], [0, 6, 0]]))
    method = algorithms.make("ffedap", mu=0.4)
    server = method.second_phase(theta(2, -1, 0.5), distances)
    near = 0.6 * 1e12 / (1e12 + 1 / 6)
    close(server["weights"], F64([[0.4, 0.6 - near, near], [0.3, 0.4, 0.3], [near, 0.6 - near, 0.4]]), 1e-9)
    close(server["weights"].sum(1), torch.ones(3).double())
    close(server["models"], tree.repeat(theta(2, -1, 0.5), 3))


@pytest.mark.filterwarnings("ignore::UserWarning")  # a model without batch norm
def test_ffedap_second_phase_by_hand():
    """Equal distances, mu = 0.5: client 0 gets 0.5 w_0 + 0.25 w_1 + 0.25 w_2 = 0.5*3 + 0.25*(1 + 1) = 2 of w = (3, 1,
    1), the rest alike; with (2, -1, 0.5) it trains to (2.05, -1.1, 0.45), for e = 0.5. Its stored model is
    replaced, the others stay."""
    model, method = ToyModel(), algorithms.make("ffedap", rho=0)
    server, clients = method.init(model, Setting(3, 4, 1))
    close(server["weights"], F64([[0.5, 0.25, 0.25], [0.25, 0.5, 0.25], [0.25, 0.25, 0.5]]))
    server["models"]["extractor.w"] = F64([[3], [1], [1]])
    message = method.download(server, 0)
    close(message, theta(2, -1, 0.5))
    upload, kept = method.client_update(model, message, tree.rows(clients, 0), ToyData([([1.0], [-2.0])]))
    close(upload, theta(2.05, -1.1, 0.45))
    after = method.server_update(server, np.array([0]), tree.stack([upload]), np.array([1]))
    close(after["models"]["extractor.w"], F64([[2.05], [1], [1]]))
    close(method.stored_upload(after, 0), upload)
    assert same(after["weights"], server["weights"]) and method.eval_points(after) == ("post", "agg")


@pytest.mark.filterwarnings("ignore::UserWarning")  # a model without batch norm
def test_ffedap_with_one_client_keeps_its_model():
    server, _ = algorithms.make("ffedap").init(ToyModel(), Setting(1, 4, 1))
    close(algorithms.make("ffedap").download(server, 0), theta(2, -1, 0.5))


@pytest.mark.parametrize("backend", ["serial", "vmap"])
def test_ffedap_surveys_the_inputs_of_batch_norm(backend):
    """Against the mean and the variance (not unbiased) of all values at once, for clients of very different sizes; with
    the model that FedBN would test: what it sends, and the client's own batch norm, both not as initialised."""
    run = uneven(set_up(tiny("ffedap", num_clients=6, precision="float64")))
    model, method = run.work.model, run.method
    server, clients = method.warm_up(run.setting)[0].init(model, run.setting)
    messages = tree.repeat(method.warm_up(run.setting)[0].download(server, 0), 6)
    messages, clients = (tree.scaled(part, torch.linspace(0.5, 2, 6)) for part in (messages, clients))
    reports = computed(run, backend, method.survey, range(6), messages, clients)
    for i in range(6):
        x = run.work.source.batch(torch.from_numpy(run.work.parts[i]["train"])).x
        with torch.no_grad():
            inputs = model.norm_inputs({**tree.rows(messages, i), **tree.rows(clients, i)}, x)
        for name, z in inputs.items():
            close(
                (reports["mean"][name][i], reports["var"][name][i]),
                (z.mean((0, 2, 3)), z.var((0, 2, 3), correction=0)),
                1e-10,
            )


def test_ffedap_takes_over_what_fedbn_learned():
    states = [(state.warming_up, copy.deepcopy(state)) for _, state, _ in played(tiny("ffedap", rounds=4))]
    assert [warming for warming, _ in states] == [True, True, False, False, False]
    *_, (_, fedbn, _) = played(tiny("fedbn", rounds=2))
    method = algorithms.make("fedbn")
    server = states[2][1].server
    for i in range(4):
        assert same(tree.rows(server["models"], i), method.download(fedbn.server, i))
    assert same(states[2][1].clients, fedbn.clients)
    weights = server["weights"]
    close((weights.sum(1), weights.diagonal()), (torch.ones(4).double(), torch.full((4,), 0.5).double()))
    assert len(set(weights.flatten().tolist())) > 4 and (weights >= 0).all()


def test_ffedap_counts_its_survey_once():
    """Means and variances of 6 + 16 channels of every client;
    nothing but batch norm is left out of the messages (nu_BN = 12 + 32)."""
    result = simulate(tiny("ffedap", rounds=2, num_clients=5))
    assert result.communication["once"]["floats"] == 5 * 2 * 22
    assert result.communication["up"] == result.communication["down"]
    assert result.communication["up"]["floats"] == 2 * 2 * (44470 - 44)  # LeNet5-BN without batch norm


# FedProto -------------------------------------------------------------------------------------------------------------


def test_fedproto_client_by_hand():
    """x = 1, y = 0: z = 2, scores (0, 0), so d scores = (-0.5, 0.5), dv = (-1, 1), db = (-0.5, 0.5),
    dz = -0.5 - 0.5 = -1.

    lam = 0.5, P_0 = 3: lam (z - 3)^2 adds 0.5 * 2 * (-1) = -1, so dw = dz x = -2. lr 0.1: w = 2.2, v = (1.1, -1.1), b =
    (-1.95, 1.95). Without a prototype of class 0, dw = -1 and w = 2.1. The local prototype is 2.2 x (2.1 x), class 1
    has none.
    """
    model, method = balanced(), algorithms.make("fedproto", lam=0.5)
    for known, w in ((prototypes([3.0, 7.0], [1, 1]), 2.2), (prototypes([3.0, 7.0], [0, 1]), 2.1)):
        upload, kept = method.client_update(model, known, {"theta": model.theta0}, ONE)
        close(kept, {"theta": two(w, *STEP)})
        close(upload, prototypes([w, 0.0], [1, 0]))


def test_fedproto_keeps_the_prototype_of_a_class_that_nobody_has():
    method = algorithms.make("fedproto")
    server, _ = method.init(balanced(), Setting(2, 4, 2))
    for means, counts in (([2.0, 4.0], [1, 2]), ([5.0, 0.0], [2, 0])):
        server = method.server_update(server, np.array([0]), tree.stack([prototypes(means, counts)]), np.array([3]))
    close(server["prototypes"], F64([[5], [4]]))
    assert (server["counts"] > 0).all()


def test_fedproto_predicts_the_nearest_prototype():
    """z = 2x at x = 1, 0, -1. P = (3, -1): distances 1 < 3, 3 > 1, 5 > 1. With P_1 alone always class 1. With none:
    the head, scores (z-2, 2-z)."""
    model, x = balanced(), F64([[1.2], [0], [-1]])
    for known, expected in (
        (prototypes([3.0, -1.0], [1, 1]), [0, 1, 1]),
        (prototypes([3.0, -1.0], [0, 1]), [1, 1, 1]),
        (prototypes([9.0, 9.0], [0, 0]), [0, 1, 1]),
    ):
        method = algorithms.make("fedproto")
        personal = method.personal_model(model, known, {"theta": model.theta0}, None)
        scores = method.predict(model, personal, x)
        assert scores.argmax(1).tolist() == expected and scores.abs().max() < 40  # no large number stands for "unknown"
    both = method.predict(
        model, method.personal_model(model, prototypes([3.0, -1.0], [1, 1]), {"theta": model.theta0}, None), x
    )
    z = 2 * x[:, 0]
    close(both[:, 1] - both[:, 0], (z - 3) ** 2 - (z + 1) ** 2)
    by_head = algorithms.make("fedproto", predict_by="head")
    close(by_head.predict(model, personal, x), model.logits(model.theta0, x))


def test_fedproto_sends_the_prototypes_that_exist():
    """d = 84 numbers for each class that a participant owns, and for each class known so far;
    under "samples" the class's count too."""
    for weights, each in (("uniform", 84), ("samples", 85)):
        spec = tiny(
            "fedproto", hyper={"weights": weights}, num_clients=8, rounds=3, partition=dict(alpha=0.1, min_size=2)
        )
        up, down, known = 0, 0, torch.zeros(10, dtype=torch.bool)
        for run, _, ids in played(spec):
            if len(ids):
                owned = run.setting.class_counts[ids] > 0
                down += int(known.sum()) * 84 * len(ids)
                up += int(owned.sum()) * each
                known |= owned.any(0)
        counted = simulate(spec).communication
        assert (counted["up"]["floats"], counted["down"]["floats"]) == (up, down) and 0 < up < 3 * 4 * 10 * each


# FedPAC ---------------------------------------------------------------------------------------------------------------


def test_fedpac_statistics_by_hand():
    """z = 2, 4 of class 0 and -2 of class 1: shares (2/3, 1/3), means (3, -2), u = (2, -2/3), mean squares (10, 4).
    V = (2/3*10 + 1/3*4 - 4 - 4/9)/3 = (8 - 40/9)/3 = 32/27."""
    method, model = algorithms.make("fedpac"), balanced()
    u, V = method.statistics(model, model.theta0, labelled(([1.0, -1.0], [0, 1]), ([2.0], [0])))
    close((u, V), (F64([[2], [-2 / 3]]), F64(32 / 27)))


def fedpac_message(model, known) -> dict:
    zeros = torch.zeros(2, 1, dtype=torch.float64)
    return {"theta": model.theta0, **known, "means": zeros, "spread": F64(0.0)}


@pytest.mark.parametrize(
    ("known", "pull"), [(prototypes([3.0, 0.0], [1, 0]), -1.0), (prototypes([3.0, 0.0], [0, 0]), 0.0)]
)
def test_fedpac_client_by_hand(known, pull):
    """First the head alone, as in FedProto: v = (1 + r, -1 - r), b = (r/2 - 2, 2 - r/2), w = 2, with r = 0.1, the
    run's rate. Then scores (5r/2, -5r/2), p_1 = sigma(-5r), dz = -2 (1 + r) p_1, and the prototype adds
    lam * 2 (2 - 3) = -1 (lam = 0.5). w = 2 - 0.1 dz x, whatever r. One epoch each (E = 2). u and V are those of the
    received extractor: one sample, u_0 = 2, V = 4 - 4 = 0; the prototype is that of the trained one.
    """
    model, data, r = balanced(), labelled(([1.0], [0]), epochs=2), 0.1
    method = algorithms.make("fedpac", lam=0.5)
    upload, kept = method.client_update(model, fedpac_message(model, known), {}, data)
    w = 2 - 0.1 * (-2 * (1 + r) * sigma(-5 * r) + pull)
    close(upload["theta"], two(w, 1 + r, -1 - r, r / 2 - 2, 2 - r / 2))
    close((upload["prototypes"], upload["counts"]), (F64([[w], [0]]), F64([1, 0])))
    close((upload["means"], upload["spread"]), (F64([[2], [0]]), F64(0.0)))
    assert kept == {}


@pytest.mark.parametrize(
    ("hyper", "epochs", "expected"),
    [
        ({}, 1, [1, 1]),
        ({}, 5, [1, 4]),
        ({"head_epochs": 2}, 5, [2, 3]),
        ({"head_inside": False}, 5, [1, 5]),
        ({"head_epochs": 0}, 3, [0, 3]),
    ],
)
def test_fedpac_divides_its_epochs(hyper, epochs, expected):
    seen, data = [], labelled(([1.0], [0]), epochs=epochs)
    data.fold = lambda step, state, epochs, **more: (seen.append(epochs), state)[1]
    algorithms.make("fedpac", **hyper).client_update(
        balanced(), fedpac_message(balanced(), prototypes([0.0, 0.0], [0, 0])), {}, data
    )
    assert seen == expected


def test_fedpac_server_by_hand():
    """Two participants (0, 2), u = 1 and 3 in one class, V = (1, 2): Gamma^0 = diag(0, 4), Gamma^1 = diag(4, 0).

    a_0 minimises a^2 + 6 (1-a)^2: a = 6/7; the second minimises 5 a^2 + 2 (1-a)^2: a = 2/7. With v_0 = 1 and 8 (v_1 =
    0): 6/7 + 8/7 = 2 and 2/7 + 40/7 = 6. w = (1*2 + 3*6)/4 = 5. P_0 = (1*1 + 3*5)/4 = 4 by samples. Client 1 keeps its
    head.
    """
    model, method = balanced(), algorithms.make("fedpac")
    server, clients = method.init(model, Setting(3, 4, 2))
    assert clients == {}
    up = [
        {"theta": two(w, v), **prototypes([p, 0.0], [n, 0]), "means": F64([[u], [0]]), "spread": F64(V)}
        for w, v, p, n, u, V in ((2.0, 1.0, 1.0, 1, 1.0, 1.0), (6.0, 8.0, 5.0, 3, 3.0, 2.0))
    ]
    server = method.server_update(server, np.array([0, 2]), tree.stack(up), np.array([1, 3]))
    for i, head in ((0, (2.0, 0.0)), (1, (1.0, -1.0, -2.0, 2.0)), (2, (6.0, 0.0))):
        message = method.download(server, i)
        close(message["theta"], two(5.0, *head))
        close(message["prototypes"], F64([[4], [0]]))
        assert method.personal_model(model, message, {}, None) is message["theta"]


def test_fedpac_combination_is_the_minimum_on_the_simplex():
    """The conditions of optimality: (Qa)_j is a'Qa where a_j > 0 and not less elsewhere;
    and no random mixture is better."""
    method, draw, zeros = algorithms.make("fedpac", drop=0), np.random.default_rng(0), 0
    for _ in range(20):
        u, V = draw.normal(size=(6, 3, 2)), draw.uniform(0, 3, size=6)
        a = method.combination(u, V, 2)
        apart = (u[2] - u).reshape(6, -1)
        Q = np.diag(V) + np.array([[x @ y for x in apart] for y in apart])
        slope, value = Q @ a, a @ Q @ a
        assert a.sum() == pytest.approx(1) and (a >= 0).all()
        assert np.allclose(slope[a > 0], value, rtol=1e-9) and (slope >= value * (1 - 1e-9)).all()
        assert min(b @ Q @ b for b in draw.dirichlet(np.ones(6), size=300)) >= value
        zeros += (a == 0).sum()
    assert zeros > 0


def test_fedpac_combination_in_degenerate_cases():
    """No difference at all: equal weights. V < 0 counts as 0. One participant: its own head.
    Weights below `drop` vanish."""
    method, alike = algorithms.make("fedpac"), np.ones((3, 2, 1))
    assert method.combination(alike, np.zeros(3), 1).tolist() == pytest.approx([1 / 3] * 3)
    assert method.combination(alike, np.ones(3), 1).tolist() == pytest.approx([1 / 3] * 3)
    assert method.combination(alike[:1], np.array([2.0]), 0).tolist() == [1.0]
    far = np.array([[[0.0]], [[1.0]]])
    assert method.combination(far, np.array([-1.0, 1.0]), 0).tolist() == [1.0, 0.0]
    tiny_share = [
        algorithms.make("fedpac", drop=drop).combination(far, np.array([1e-4, 0.0]), 0)[1] for drop in (0, 1e-3)
    ]
    assert tiny_share == [pytest.approx(1e-4 / 1.0001), 0.0]


# FedGH ----------------------------------------------------------------------------------------------------------------


def test_fedgh_client_by_hand():
    """As FedProto's without prototypes, w = 2.1, and its mean feature of class 0 is 2.1; its own head is what is
    evaluated at `post`."""
    model, method = balanced(), algorithms.make("fedgh")
    server, clients = method.init(model, Setting(2, 4, 2))
    upload, kept = method.client_update(model, method.download(server, 0), tree.rows(clients, 0), ONE)
    close(kept, {"f": {W: F64([[2.1]])}})
    trained = two(2.1, *STEP)
    close(upload, {"h": tree.select(trained, "head."), **prototypes([2.1, 0.0], [1, 0])})
    close(method.personal_model(model, upload, kept, None), trained)


def test_fedgh_server_takes_one_step_for_each_minibatch():
    """Five prototypes in minibatches of 2: three steps on permuted rows, against torch.optim.SGD with the same order,
    which is another one in the second round."""
    model, method, draw = (
        balanced(),
        algorithms.make("fedgh", server_lr=0.3, server_batch=2),
        np.random.default_rng(1),
    )
    server, _ = method.init(model, Setting(3, 4, 2, seed=4))
    means, counts = draw.normal(size=(3, 2)), [[1, 2], [0, 3], [4, 5]]
    uploads = tree.stack([{"h": dict(server["h"]), **prototypes(list(m), n)} for m, n in zip(means, counts)])
    pairs = [(means[k][c], c) for k in range(3) for c in range(2) if counts[k][c]]
    head = nn.Linear(1, 2).double()
    head.load_state_dict({"weight": F64([[1], [-1]]), "bias": F64([-2, 2])})
    optimiser = torch.optim.SGD(head.parameters(), lr=0.3)
    for t in range(2):
        order = rng(4, "header", t).permutation(5)
        with torch.enable_grad():
            for rows in (order[:2], order[2:4], order[4:]):
                loss = nn.functional.cross_entropy(
                    head(F64([[pairs[r][0]] for r in rows])), torch.tensor([pairs[r][1] for r in rows])
                )
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
        server = method.server_update(server, np.arange(3), uploads, np.array([3, 3, 9]))
        close(server["h"], {"head.weight": head.weight.detach(), "head.bias": head.bias.detach()})
    assert server["round"] == 2


def test_fedgh_sends_a_header_down_and_class_means_up():
    """Down nu_c = 850, up C_i (d + 1), C_i the number of classes of the participant."""
    spec, up = tiny("fedgh", num_clients=8, rounds=3, partition=dict(alpha=0.1, min_size=2)), 0
    for run, _, ids in played(spec):
        up += int((run.setting.class_counts[ids] > 0).sum()) * 85
    counted = simulate(spec).communication
    assert (counted["down"]["floats"], counted["up"]["floats"]) == (3 * 4 * 850, up)


# FedGen ---------------------------------------------------------------------------------------------------------------


def answering_generator(*answers: float, noise: int) -> dict:
    """G(y, eps) = answers[y]: for every label one hidden unit that fires for it."""
    H, C = generator.HIDDEN, len(answers)
    zeros = {"weight1": (H, noise + C), "bias1": (H,), "scale": (H,), "shift": (H,), "weight2": (1, H), "bias2": (1,)}
    G = {name: torch.zeros(shape, dtype=torch.float64) for name, shape in zeros.items()}
    G["weight1"][:C, noise:], G["scale"][:C], G["weight2"][0, :C] = torch.eye(C), 1.0, F64(answers)
    return G


@pytest.mark.parametrize("wanted", [None, [5, 3], [1, 3]])
def test_fedgen_client_by_hand(wanted):
    """x = 1, y = 0 as in FedProto: d scores = (-0.5, 0.5) at z = 2. The generator says 3 to label 0 and -1 to label 1.
    At 3 the scores are (1, -1), p_0 = sigma(2).

    KL(p || softmax(scores)): d scores = softmax - p = (0.5 - sigma(2))(1, -1). So at z = 2 in all s (-1, 1), s = 0.5 +
    beta (sigma(2) - 0.5). y' is 0 where own labels are drawn. Else the number drawn, 0, is half of the way through the
    labels as they are wanted: 0 of [5, 3], 1 of [1, 3]. With a = alpha, y' = 0 gives d scores =
    a q (-1, 1) at z = 3, q = sigma(-2), which reaches the head alone. y' = 1 has scores (-3, 3) at z = -1: q =
    -sigma(-6). dv = -(2 s + z a q)(1, -1), db = -(s + a q)(1, -1); dw = v . (-s, s) x = -2 s.
    """
    model, method, alpha, beta = balanced(), algorithms.make("fedgen", noise=1), 0.5, 3.0
    message = {"theta": model.theta0, "generator": answering_generator(3.0, -1.0, noise=1)}
    message |= {"alpha": F64(alpha), "beta": F64(beta)} | ({"labels": torch.tensor(wanted)} if wanted else {})
    upload, kept = method.client_update(model, message, {}, ONE)
    z, q = (-1, -sigma(-6)) if wanted == [1, 3] else (3, sigma(-2))
    s, aq = 0.5 + beta * (sigma(2) - 0.5), alpha * q
    dv, db = 2 * s + z * aq, s + aq
    close(upload["theta"], two(2 + 0.2 * s, 1 + 0.1 * dv, -1 - 0.1 * dv, -2 + 0.1 * db, 2 - 0.1 * db))
    assert kept == {}
    assert same({k: upload[k] for k in message if k != "theta"}, {k: message[k] for k in message if k != "theta"})


def test_fedgen_client_has_noise_for_every_feature():
    """As above, alpha = beta = 1, and G(y, eps) = 3 + eps for y = 0. The sample's numbers are eps = 1; (0, 2): label 0
    with eps' = 2. Target at z = 4, scores (2, -2): s = 0.5 + sigma(4) - 0.5. Feature at z = 5, scores (3, -3): q =
    sigma(-6)."""
    model, method, data = balanced(), algorithms.make("fedgen", noise=1), labelled(([1.0], [0]))
    G = answering_generator(3.0, -1.0, noise=1)
    G["weight1"][2, 0], G["scale"][2], G["weight2"][0, 2] = 1.0, 1.0, 1.0
    noisy = dataclasses.replace(data.batches[0], noise=F64([[1, 0, 2]]))
    asked = []
    data.fold = lambda step, state, epochs, noise: (asked.append(noise), step(state, noisy))[1]
    message = {"theta": model.theta0, "generator": G, "alpha": F64(1.0), "beta": F64(1.0)}
    upload, _ = method.client_update(model, message, {}, data)
    s, q = sigma(4), sigma(-6)
    dv, db = 2 * s + 5 * q, s + q
    close(upload["theta"], two(2 + 0.2 * s, 1 + 0.1 * dv, -1 - 0.1 * dv, -2 + 0.1 * db, 2 - 0.1 * db))
    assert asked == [3]


def fedgen_server(seed=3, noise=4, counts=((3, 1), (2, 2)), **hyper):
    method = algorithms.make("fedgen", noise=noise, **hyper)
    server, _ = method.init(balanced(), Setting(len(counts), 4, 2, seed, torch.tensor(counts)))
    return method, server


PLACES = {"weight1": "0.weight", "bias1": "0.bias", "scale": "1.weight", "shift": "1.bias", "mean": "1.running_mean"}
PLACES |= {"var": "1.running_var", "weight2": "3.weight", "bias2": "3.bias"}


def as_module(G, noise=4, classes=2) -> nn.Sequential:
    """The generator with PyTorch's own layers."""
    module = nn.Sequential(
        nn.Linear(noise + classes, generator.HIDDEN),
        nn.BatchNorm1d(generator.HIDDEN),
        nn.ReLU(),
        nn.Linear(generator.HIDDEN, len(G["bias2"])),
    ).double()
    theirs = {place: G[name] for name, place in PLACES.items()}
    module.load_state_dict({**theirs, "1.num_batches_tracked": torch.tensor(0)})
    return module


def test_fedgen_sends_its_generator_in_evaluation_mode():
    method, server = fedgen_server()
    draw = torch.Generator().manual_seed(0)
    server["generator"] = {
        name: value + torch.rand(value.shape, generator=draw, dtype=value.dtype)
        for name, value in server["generator"].items()
    }
    onehot, eps = torch.eye(2, dtype=torch.float64), torch.randn(2, 4, generator=draw, dtype=torch.float64)
    with torch.no_grad():
        expected = as_module(server["generator"]).eval()(torch.cat([eps, onehot], dim=1))
    close(generator.generated(method.download(server, 0)["generator"], onehot, eps), expected)


@pytest.mark.parametrize("ensemble", ["losses", "logits"])
def test_fedgen_server_against_torch(ensemble):
    """Five steps of torch.optim.Adam on torch's own layers with the same draws, for two rounds; heads weighted by
    shares of the classes (3, 1) and (2, 2): 3/5, 2/5 of class 0 and 1/3, 2/3 of class 1; or the loss of the mean of
    their scores. The mean counts 2.5 and 1.5 exceed 1, so both are drawn."""
    method, server = fedgen_server(ensemble=ensemble, server_lr=0.01, decay=0.9)
    heads = [two(2.0, 1.0, 0.5, 0.3, -0.3), two(4.0, -2.0, 1.0, 0.0, 1.0)]
    module, share = as_module(server["generator"]), F64([[3 / 5, 1 / 3], [2 / 5, 2 / 3]])
    optimiser = torch.optim.Adam(module.parameters(), lr=0.01)
    for t in range(2):
        draw = rng(3, "generator", t)
        for _ in range(5):
            y = torch.from_numpy(draw.integers(2, size=32))
            eps = torch.from_numpy(draw.standard_normal((32, 4)))
            with torch.enable_grad():
                z = module(torch.cat([eps, nn.functional.one_hot(y, 2)], dim=1))
                scores = [nn.functional.linear(z, h["head.weight"], h["head.bias"]) for h in heads]
                if ensemble == "logits":
                    loss = nn.functional.cross_entropy((scores[0] + scores[1]) / 2, y)
                else:
                    losses = [nn.functional.cross_entropy(own, y, reduction="none") for own in scores]
                    loss = sum((share[k][y] * own).mean() for k, own in enumerate(losses))
                optimiser.zero_grad()
                loss.backward()
            optimiser.step()
        optimiser.param_groups[0]["lr"] *= 0.9
        server = method.server_update(server, np.array([0, 1]), {"theta": tree.stack(heads)}, np.array([1, 3]))
        close(server["theta"], two(3.5, -1.25, 0.875, 0.075, 0.675))  # w = (2 + 3*4)/4, and so on
        theirs = module.state_dict()  # torch moves the bias before batch norm by rounding, which Adam enlarges
        close(server["generator"], {name: theirs[PLACES[name]] for name in server["generator"]}, 1e-7)


def test_fedgen_weights_fade_and_start_in_round_two():
    """alpha_t = 10 * 0.5^(t-1), not below 3; 0 in the first round; a weight of 0 stays 0."""
    method, server = fedgen_server(alpha=10, beta=0, decay=0.5, floor=3)
    seen = [method.download({**server, "round": t}, 0) for t in range(4)]
    assert [float(m["alpha"]) for m in seen] == [0, 5, 3, 3] and [float(m["beta"]) for m in seen] == [0] * 4


@pytest.mark.parametrize(
    ("counts", "moved"),
    [([[2, 0, 1], [1, 2, 1]], [True, False, False]), ([[2, 1, 0], [0, 1, 0]], [False, False, False])],
)
def test_fedgen_draws_only_labels_with_enough_samples(counts, moved):
    """More than one in the participants' mean (1.5, 1, 1 of the first table): the columns of the other classes in the
    first layer stay; with no such class all stays."""
    method, model = algorithms.make("fedgen", noise=4), balanced()
    model.theta0 = {W: F64([[1]]), "head.weight": F64([[1], [-1], [0.5]]), "head.bias": F64([0, 0, 0])}
    server, _ = method.init(model, Setting(2, 4, 3, 0, torch.tensor(counts)))
    after = method.server_update(server, np.array([0, 1]), {"theta": tree.repeat(model.theta0, 2)}, np.array([1, 1]))
    columns = [
        not torch.equal(after["generator"]["weight1"][:, 4 + c], server["generator"]["weight1"][:, 4 + c])
        for c in range(3)
    ]
    assert columns == moved and same(after["generator"], server["generator"]) == (not any(moved))


def test_fedgen_labels_are_drawn_as_they_are_wanted():
    """Uniform on those present, and in proportion to counts; one each, also for numbers far out."""
    normal = torch.randn(30_000, generator=torch.Generator().manual_seed(0))
    for wanted in (torch.tensor([False, True, False, True, True]), torch.tensor([0, 5, 0, 1, 14])):
        drawn, shares = generator.drawn_labels(normal, wanted), wanted / wanted.sum()
        assert drawn.sum(1).eq(1).all() and not drawn[:, wanted == 0].any()
        assert drawn.float().mean(0).tolist() == pytest.approx(shares.tolist(), abs=0.01)
        assert generator.drawn_labels(torch.tensor([-50.0, 50.0]), wanted).nonzero()[:, 1].tolist() == [1, 4]


def test_fedgen_tells_clients_of_all_labels_where_asked():
    """Counts (3, 0, 1) and (2, 0, 4): all labels that anybody has, or their sums; with "own" nothing is told."""
    counts = ((3, 0, 1), (2, 0, 4))
    for labels, told in (("all", [1, 0, 1]), ("global", [5, 0, 5])):
        method, server = fedgen_server(counts=counts, labels=labels)
        assert method.download(server, 1)["labels"].tolist() == told
    method, server = fedgen_server(counts=counts)
    assert "labels" not in method.download(server, 1)


def test_fedgen_readings_that_came_later_are_in_an_id_only_where_they_are_chosen():
    base = tiny("fedgen")
    for name, value in (("labels", "all"), ("ensemble", "logits")):
        other = base.but(hyper={name: value})
        assert name not in base.to_dict()["hyper"] and other.to_dict()["hyper"][name] == value
        assert other.id != base.id == other.but(hyper={}).id


# pFedHN ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clip", [0.02, 0])
def test_pfedhn_server_against_torch(clip):
    """Two rounds against torch.optim.SGD with clip_grad_norm_ on torch's own layers: momentum, weight decay,
    clipping (norms above 0.02), or none."""
    model, hyper = ToyModel(), dict(hidden=5, depth=2, server_lr=0.1, clip=clip)
    method = algorithms.make("pfedhn", **hyper)
    server, _ = method.init(model, Setting(8, 4, 1, seed=2))
    trunk = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 5), nn.ReLU(), nn.Linear(5, 5)).double()
    tops = {name: nn.Linear(5, 1).double() for name in model.trainable}
    for k, layer in enumerate((trunk[0], trunk[2], trunk[4])):
        layer.load_state_dict(server["phi"][f"trunk.{k}"])
    for name, layer in tops.items():
        layer.load_state_dict(server["phi"][name])
    v = [nn.Parameter(row.clone()) for row in server["v"]]
    weights = [p for module in (trunk, *tops.values()) for p in module.parameters()]
    optimiser = torch.optim.SGD([*weights, *v], lr=0.1, momentum=0.9, weight_decay=1e-3)

    def made(i):
        x = trunk(v[i])
        return {name: layer(x).reshape(model.theta0[name].shape) for name, layer in tops.items()}

    for ids in ([1, 4, 6], [0, 4, 6]):
        sent = {i: tree.map(torch.clone, method.download(server, i)) for i in ids}
        uploads = [tree.map(lambda leaf, i=i: leaf * 0.5 - 0.3 * i, sent[i]) for i in ids]
        with torch.enable_grad():
            for k, i in enumerate(ids):
                optimiser.zero_grad(set_to_none=True)
                now = made(i)
                sum(((sent[i][name] - uploads[k][name]) * now[name]).sum() for name in tops).backward()
                norm = nn.utils.clip_grad_norm_([*weights, *v], clip or math.inf)
                assert norm > clip
                optimiser.step()
        server = method.server_update(server, np.array(ids), tree.stack(uploads), np.array([1, 1, 1]))
        close(server["v"], torch.stack([row.detach() for row in v]), 1e-6)  # clip_grad_norm_ divides by norm + 1e-6
        for i in range(8):
            close(method.download(server, i), {name: leaf.detach() for name, leaf in made(i).items()}, 1e-5)


def test_pfedhn_averages_running_statistics_by_samples():
    """What the hypernetwork does not make, here one number: (1*1 + 3*5)/4 = 4; uniform it would be 3."""
    method = algorithms.make("pfedhn", hidden=2, depth=0)
    server, _ = method.init(ToyModel(), Setting(3, 4, 1))
    server = {**server, "rest": {"running": F64([0.0])}}
    uploads = tree.stack([{**theta(2, -1, 0.5), "running": F64([value])} for value in (1.0, 5.0)])
    after = method.server_update(server, np.array([0, 2]), uploads, np.array([1, 3]))
    close(after["rest"], {"running": F64([4.0])})
    close(method.download(after, 1)["running"][None], F64([[4.0]]))


def test_pfedhn_embeddings_have_one_plus_a_quarter_of_n_numbers():
    for N, size in ((3, 1), (4, 2), (10, 3), (100, 26)):
        server, _ = algorithms.make("pfedhn").init(ToyModel(), Setting(N, 4, 1))
        assert server["v"].shape == (N, size) and len(server["phi"]) == 3 + 4
        assert server["phi"]["trunk.0"]["weight"].shape == (100, size)
        assert server["phi"]["trunk.3"]["weight"].shape == (100, 100)
