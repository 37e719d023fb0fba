"""PFedCS, pFedSV, FedSimSup and FedFomo: steps by hand, beside those of lessons 6 and 11 to 13, reductions,
supervisors, relevance."""

from __future__ import annotations

import dataclasses
import warnings
from math import exp, log, sqrt

import numpy as np
import pytest
import torch
from helpers import HYPER, LN3, W, close, f64, labelled, outcome, played, same, tiny, two, two_classes, uneven

from fedlib import algorithms
from fedlib.algorithms.api import Setting
from fedlib.algorithms.parts.grouping import nearer_group
from fedlib.base import tree
from fedlib.base.errors import BadValue
from fedlib.engine import backends
from fedlib.engine.setup import set_up

SUPERVISOR, TRANSFORMER = "supervisor_sixth", "supervisor_transformer"
PARTS = ("h", "theta", SUPERVISOR)  # what a client trains and keeps


def small(method, hyper=None, **changes):
    return tiny(method, hyper={**HYPER.get(method, {}), **(hyper or {})}, **changes)


def extractor(w) -> dict:
    return tree.select(two(w), "extractor.")


def supervised(*values):
    """The network with a supervisor of these values, whose independent draw number k has w = k."""
    model, supervisor = two_classes(), two_classes(*values)
    supervisor.independent = lambda number: two(number)
    model.siblings[SUPERVISOR] = supervisor
    return model


def setting(*sizes, counts=None, rounds=4):
    counts = torch.tensor([[size, 0] for size in sizes] if counts is None else counts)
    return Setting(len(counts), rounds, counts.shape[1], 0, counts)


# PFedCS by hand -------------------------------------------------------------------------------------------------------


def test_pfedcs_options_of_the_teacher_by_hand():
    """x = 2, y = 0, eta = 0.1; w = 0.5, so z = 1. Own head (ln 3, 0), no bias: p = (3/4, 1/4). Teacher (0, ln 3), not
    tuned first (E_ft = 0): (1/4, 3/4). g = (p - onehot) + (p - teacher) = (-1/4 + 1/2, 1/4 - 1/2) = (1/4, -1/4); dW =
    g (z = 1), db = g, dw = x g_0 ln 3.

    kd_weight = 2: g = (-1/4 + 1, 1/4 - 1) = (3/4, -3/4). detach = False: KL also has the gradient q_c (ln(q_c/p_c) -
    KL) for the teacher's scores, q = (1/4, 3/4): ln(q/p) = (-ln 3, ln 3), KL = ln 3 / 2, so (1/4)(-3/2 ln 3) and
    (3/4)(1/2 ln 3) = (-3/8, 3/8) ln 3; through the teacher's weights (0, ln 3): dz = 3/8 (ln 3)^2 more, dw twice that.
    A second step sees a teacher on the "received" z = 1 or the current z.
    """
    model, data = two_classes(), labelled(([2.0], [0]))
    client, message = {"h": tree.select(two(0, LN3), "head.")}, two(0.5, 0.0, LN3)

    def trained(data=data, **options):
        return algorithms.make("pfedcs", E_ft=0, **options).client_update(model, message, client, data)[0]

    first = two(0.5 - 0.05 * LN3, LN3 - 0.025, 0.025, -0.025, 0.025)
    close(trained(), first)
    close(trained(kd_weight=2.0), two(0.5 - 0.15 * LN3, LN3 - 0.075, 0.075, -0.075, 0.075))
    close(trained(detach=False), {**first, W: first[W] - 0.1 * 2 * 0.375 * LN3**2})
    close(trained(kd_weight=0.0), two(0.5 + 0.05 * LN3, LN3 + 0.025, -0.025, 0.025, -0.025))
    w, a0, a1, b0, b1 = 0.5 - 0.05 * LN3, LN3 - 0.025, 0.025, -0.025, 0.025
    for feat in ("current", "received"):
        z = 2 * w
        p = 1 / (1 + exp(-(a0 - a1) * z - b0 + b1))
        q = 1 / (1 + exp(LN3 * (z if feat == "current" else 1.0)))
        g = (p - 1) + (p - q)
        close(
            trained(labelled(([2.0], [0]), epochs=2), teacher_feat=feat),
            two(w - 0.1 * 2 * g * (a0 - a1), a0 - 0.1 * g * z, a1 + 0.1 * g * z, b0 - 0.1 * g, b1 + 0.1 * g),
        )


def test_pfedcs_temperature_and_a_mixture_to_start_from_by_hand():
    """As above, E_ft = 0, teacher (0, ln 3). Temperature 2: softened probabilities of class 0 are r = sqrt 3/(1 + sqrt
    3) and 1 - r; 4 KL has the gradient 2 (r - (1 - r)), so g = -1/4 + 2 (2r - 1). As a start: p = (1/4, 3/4), g =
    (-3/4, 3/4), dz = 3/4 ln 3, and no teacher."""
    model, data = two_classes(), labelled(([2.0], [0]))
    client, message = {"h": tree.select(two(0, LN3), "head.")}, two(0.5, 0.0, LN3)

    def trained(**options):
        return algorithms.make("pfedcs", E_ft=0, **options).client_update(model, message, client, data)

    g = -0.25 + 2 * (2 * sqrt(3) / (1 + sqrt(3)) - 1)
    close(trained(temperature=2.0)[0], two(0.5 - 0.2 * g * LN3, LN3 - 0.1 * g, 0.1 * g, -0.1 * g, 0.1 * g))
    started = two(0.5 - 0.2 * 0.75 * LN3, 0.075, LN3 - 0.075, 0.075, -0.075)
    upload, kept = trained(role="start")
    close(upload, started)
    close(kept, {"h": tree.select(started, "head.")})


def test_fedper_with_a_head_that_is_tuned_first_by_hand():
    """z = 1, head (0, 0), y = 0: the first epoch moves the head alone, g = (-1/2, 1/2), to W = b = (0.05, -0.05). Then
    scores (0.1, -0.1), t = 1/(1 + e^-0.2), g = (t - 1, 1 - t), dw = 2 (t - 1) 0.1. ft(1) of the "head" is that first
    epoch."""
    model, data, client = two_classes(), labelled(([2.0], [0])), {"h": tree.select(two(0, 0.0), "head.")}
    method, message = algorithms.make("fedper", head_epochs=1, ft_part="head"), extractor(0.5)
    t = 1 / (1 + exp(-0.2))
    g = 0.1 * (1 - t)
    upload, kept = method.client_update(model, message, client, data)
    close(upload, extractor(0.5 + 0.02 * (1 - t)))
    close(kept, {"h": tree.select(two(0, 0.05 + g, -0.05 - g, 0.05 + g, -0.05 - g), "head.")})
    tuned = method.fine_tune(model, {**message, **client["h"]}, labelled(([2.0], [0])), 1)
    close(tuned, two(0.5, 0.05, -0.05, 0.05, -0.05))


def test_pfedcs_the_teachers_learning_rate():
    """eta_v = 0.4, y = 0, z = 1, teacher (ln 3, 0): p = (3/4, 1/4), g = (-1/4, 1/4), W = (ln 3 + 0.1, -0.1), b = (0.1,
    -0.1). A second epoch, z = 1 still, for the extractor is not tuned: t = 1/(1 + e^-(ln 3 + 0.4)), g = (t - 1, 1 - t).
    """
    once = two(0, LN3 + 0.1, -0.1, 0.1, -0.1)
    g = 0.4 * (1 - 1 / (1 + exp(-LN3 - 0.4)))
    twice = two(0, LN3 + 0.1 + g, -0.1 - g, 0.1 + g, -0.1 - g)
    for epochs, right in ((1, once), (2, twice)):
        found = algorithms.make("pfedcs", eta_v=0.4, E_ft=epochs).tuned_teacher(
            two_classes(), extractor(0.5), tree.select(two(0, LN3), "head."), labelled(([2.0], [0]))
        )
        close(found, tree.select(right, "head."))


def four_heads(**hyper):
    """Classifiers 0, 1, 3 and 10 of clients with 1, 2, 3, 4 samples; before round 1 of stage 1's two rounds."""
    method = algorithms.make("pfedcs", **hyper)
    server, _ = method.init(two_classes(), setting(1, 2, 3, 4))
    weight = torch.stack([f64([float(v)], [0.0]) for v in (0, 1, 3, 10)])
    return method, {**server, "heads": {"head.weight": weight, "head.bias": f64([0, 0], [1, 0], [2, 0], [3, 0])}}


NEAR_WEIGHTS = (0.5 * 9 / 17 + 0.5 / 6, 0.5 * 8 / 17 + 0.5 * 2 / 6, 0.5 * 3 / 6, 0)
LITERAL = np.array([0.5 * 9 / 8 + 0.5 / 5, 0.5 + 0.5 * 2 / 5, 0.5 * 3 / 5, 0])


@pytest.mark.parametrize(
    ("hyper", "t", "expected"),
    [
        ({}, 1, NEAR_WEIGHTS),
        ({"group": "kmeans"}, 1, NEAR_WEIGHTS),
        ({"group": "hier"}, 1, NEAR_WEIGHTS),
        ({"group": "fix"}, 1, NEAR_WEIGHTS),
        ({}, 2, (0.5 + 0.5 / 3, 0.5 * 2 / 3, 0, 0)),
        ({"weights": "no_self"}, 2, (0, 1, 0, 0)),
        ({"weights": "literal_renorm"}, 1, LITERAL / LITERAL.sum()),
        ({"weights": "no_self"}, 1, (0, 0.5 + 0.5 * 2 / 5, 0.5 * 3 / 5, 0)),
        ({"lam": 0.0}, 1, (1 / 6, 2 / 6, 3 / 6, 0)),
        ({"lam": 1.0}, 1, (9 / 17, 8 / 17, 0, 0)),
        (
            {"select": "all"},
            1,
            tuple(0.5 * (100 - d) / (4 * (100 - 27.5)) + 0.5 * n / 10 for d, n in ((0, 1), (1, 2), (9, 3), (100, 4))),
        ),
        ({"select": "self"}, 1, (1, 0, 0, 0)),
        ({"weights": "uniform"}, 1, (1 / 3, 1 / 3, 1 / 3, 0)),
        ({"most": 1}, 1, (0.5 + 0.5 / 3, 0.5 * 2 / 3, 0, 0)),
        ({"most": 2, "select": "all", "lam": 0.0}, 1, (1 / 6, 2 / 6, 3 / 6, 0)),
        ({"dist_power": 1, "lam": 1.0}, 1, (0.3 / 0.5, 0.2 / 0.5, 0, 0)),
    ],
)
def test_pfedcs_weights_by_hand(hyper, t, expected):
    """Client 0: squared distances 0, 1, 9, 100, D = 0, 0.01, 0.09, 1. The nearer group of 0.01, 0.09,
    1 is the first two.

    t = 1, s = 1/2: threshold (1.1/3 + 0.01)/2 = 0.188, Q = {1, 2}, P = {0, 1, 2}: D_max = 0.09, D_avg = 0.1/3, |P|
    (D_max - D_avg) = 0.17: likeness 9/17, 8/17, 0; samples 1/6, 2/6, 3/6. t = 2, s = 1: Q = {1}, likeness over P: (0.01
    - D)/(2 * 0.005) = 1, 0; samples 1/3, 2/3. literal: over Q D_max = 0.09, D_avg = 0.05, |Q| (D_max - D_avg) = 0.08,
      samples N_j/5. no_self: the same without client 0; for one
    collaborator D_max = D_avg and its weight is 1. all: D_max = 1, D_avg = 1.1/4. dist_power = 1: D = 0, 0.1, 0.3, 1; P
    as before (threshold (1.4/3 + 0.1)/2 = 0.283 leaves Q = {1}): so use Q from 0.1 alone: see below.
    """
    method, server = four_heads(**hyper)
    if hyper.get("dist_power") == 1:  # Q = {1}: D_max = 0.1, D_avg = 0.05: likeness 1, 0
        expected = (1, 0, 0, 0)
    weights = method.mixing_weights({**server, "round": t - 1}, [0, 1], range(4))
    np.testing.assert_allclose(weights[0].numpy(), expected, atol=1e-12)
    np.testing.assert_allclose(weights.sum(1).numpy(), 1, atol=1e-12)


def test_pfedcs_told_who_has_the_same_classes():
    """Clients 0, 1 and 3 have class 0 only, client 2 class 1: by samples 1 : 2 : 4, or one of two twins, either of
    them in some round; client 2 has nobody and keeps its own classifier."""
    counts = torch.tensor([[1, 0], [2, 0], [0, 3], [4, 0]])
    chosen = set()
    for select in ("oracle", "twin"):
        method, heads = four_heads(select=select, lam=0.0)
        server, _ = method.init(two_classes(), setting(counts=counts, rounds=40))
        for t in range(20):
            p = method.mixing_weights({**server, "heads": heads["heads"], "round": t}, range(4), range(4)).numpy()
            np.testing.assert_allclose(p[2], [0, 0, 1, 0], atol=1e-12)
            if select == "oracle":
                np.testing.assert_allclose(p[0], [1 / 7, 2 / 7, 0, 4 / 7], atol=1e-12)
            else:
                (twin,) = np.flatnonzero(p[0, 1:]) + 1
                np.testing.assert_allclose(p[0, [0, twin]], np.array([1, twin + 1]) / (twin + 2), atol=1e-12)
                chosen.add(int(twin))
    assert chosen == {1, 3}
    few = algorithms.make("pfedcs", select="oracle", most=1, weights="uniform")
    p = few.mixing_weights({**server, "heads": heads["heads"], "round": 0}, range(4), range(4)).numpy()
    assert (p > 0).sum(1).tolist() == [2, 2, 1, 2]  # the nearest of its twins, and the client


def test_pfedcs_ties_and_global_norm_by_hand():
    """no_self with one collaborator: D_max = D_avg; "drop" leaves the samples' term alone, here 1 as well. With "all"
    and all heads equal D = 0: likeness 1/4 each with "uniform"; samples n/10 alone with "drop". Row 3 of the four heads
    is 100, 81, 49, 0: its maximum is 100, as is the largest of all; row 1 (1, 0, 4, 81) is divided by 81 or by 100."""
    method, server = four_heads(select="all")
    same_heads = {**server, "heads": tree.map(torch.zeros_like, server["heads"])}
    np.testing.assert_allclose(
        method.mixing_weights(same_heads, [0], range(4))[0], [0.5 / 4 + n / 20 for n in (1, 2, 3, 4)], atol=1e-12
    )
    dropped = algorithms.make("pfedcs", select="all", tie="drop")
    np.testing.assert_allclose(dropped.mixing_weights(same_heads, [0], range(4))[0], [0.1, 0.2, 0.3, 0.4], atol=1e-12)
    adaptive, _ = four_heads()  # C3: round 1, all classifiers equal: everybody collaborates
    np.testing.assert_allclose(
        adaptive.mixing_weights(same_heads, [2], range(4))[0], [0.5 / 4 + n / 20 for n in (1, 2, 3, 4)], atol=1e-12
    )
    for norm, largest in (("row", 81), ("global", 100)):
        D = algorithms.make("pfedcs", norm=norm).distances(
            server["heads"]["head.weight"], torch.arange(4), torch.arange(4)
        )
        np.testing.assert_allclose(D[1].numpy(), np.array([1, 0, 4, 81]) / largest, atol=1e-12)


def test_pfedcs_server_by_hand():
    """Round 2 of 2: client 0 gets the mean extractor and heads (2/3) head_0 + (1/3) head_1 (weights by hand, t = 2):
    weight 1/3, bias 1/3.

    Then clients 0 and 3 upload: f = (1 * 2 + 4 * 7)/5 = 6 (samples 1, 4), or 4.5 uniformly; the others' heads stay;
    stage 2 sends f alone.
    """
    method, server = four_heads()
    server = {**server, "round": 1, "f": extractor(5.0)}
    close(method.download(server, 0), two(5.0, 1 / 3, 0, 1 / 3))
    uploads = tree.stack([two(2.0, 8.0), two(7.0, 9.0)])
    after = method.server_update(server, np.array([0, 3]), uploads, np.array([1, 4]))
    close(after["f"], extractor(6.0))
    assert after["heads"]["head.weight"][:, 0, 0].tolist() == [8, 1, 3, 9]
    assert set(method.download(after, 0)) == {W}
    close(method.stored_upload(after, 3), extractor(7.0))
    uniform = algorithms.make("pfedcs", extractor_weights="uniform")
    close(uniform.server_update(server, np.array([0, 3]), uploads, np.array([1, 4]))["f"], extractor(4.5))


def test_pfedcs_random_collaborators_are_as_many_as_the_rule_would_choose():
    method = algorithms.make("pfedcs", select="random")
    server, _ = method.init(two_classes(), setting(*range(1, 10)))
    weight = torch.randn(9, 5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for t in (0, 1):
        p = method.mixing_weights({**server, "round": t, "heads": {"head.weight": weight}}, range(9), range(9))
        assert (p >= 0).all() and set((p > 0).sum(1).tolist()) <= {3, 4}
        close(p.sum(1), torch.ones(9).double())


def test_pfedcs_collaborators_under_partial_participation():
    """Only this round's clients are mixed, or everybody's last upload; alone, or with nobody else,
    a client keeps its own head."""
    method, server = four_heads()
    close(method.messages(server, [2]), tree.map(lambda leaf: leaf[None], two(0.5, 3, 0, 2)))
    among = method.messages(server, [0, 3])["head.weight"][:, 0, 0]
    assert 0 < among[0] < 10 and among[1] < 10
    everyone = algorithms.make("pfedcs", pool="all_last").messages(server, [0, 3])["head.weight"][0, 0, 0]
    close(everyone[None], f64(NEAR_WEIGHTS[1] + 3 * NEAR_WEIGHTS[2]))
    by_samples, server = four_heads(select="all", lam=0.0)  # of clients 1 and 2, who have 2 and 3
    close(by_samples.mixing_weights(server, [1, 2], [1, 2]), f64([2 / 5, 3 / 5], [2 / 5, 3 / 5]))


# two groups of numbers ------------------------------------------------------------------------------------------------


def grouped(rows, how, **options):
    rows = np.atleast_2d(np.asarray(rows, dtype=float))
    return nearer_group(rows, how, [np.random.default_rng(k) for k in range(len(rows))], **options)


@pytest.mark.parametrize("how", ["gmm", "kmeans", "hier"])
def test_groups_of_clear_cases(how):
    """Two clumps; alike numbers and single ones are one group; every row on its own."""
    rows = [[0.1, 0.12, 0.9, 0.95, 0.11], [0.9, 0.1, 0.95, 0.92, 0.91]]
    assert grouped(rows, how).tolist() == [[True, True, False, False, True], [False, True, False, False, False]]
    assert grouped([[0.3] * 4, [0.0] * 4], how).all()
    assert grouped([[0.3], [0.4]], how).all()
    assert grouped([[0.2, 0.8]], how).tolist() == [[True, False]]
    assert grouped([[0.2, 0.2 + 1e-10, 0.2]], how).all()


def test_fixed_threshold():
    assert grouped([[0.5, 0.50001, 0.1], [0.9, 0.8, 0.7]], "fix").tolist() == [[True, False, True], [False] * 3]
    with pytest.raises(BadValue):
        grouped([[0.1, 0.2]], "gm")


def test_least_squares_is_the_best_of_all_divisions():
    for seed in range(20):
        x = np.random.default_rng(seed).random(8)

        def cost(near, x=x):
            return sum(((x[part] - x[part].mean()) ** 2).sum() for part in (near, ~near) if part.any())

        every = [np.array([mask >> j & 1 == 1 for j in range(8)]) for mask in range(1, 128)]
        assert cost(grouped(x, "kmeans")[0]) == pytest.approx(min(map(cost, every)))


def test_the_mixture_is_that_of_scikit_learn():
    """Two clumps of random place, size and width, 4 widths apart or more: the same members."""
    from sklearn.mixture import GaussianMixture

    for seed in range(8):
        rng = np.random.default_rng(seed)
        wide = 0.02 + 0.06 * rng.random(2)
        x = np.concatenate(
            [
                rng.normal(0.2, wide[0], rng.integers(3, 12)),
                rng.normal(0.2 + 4 * wide.sum(), wide[1], rng.integers(3, 12)),
            ]
        )
        peer = GaussianMixture(2, n_init=3, reg_covar=1e-6, init_params="k-means++", random_state=seed).fit(x[:, None])
        assert np.array_equal(
            grouped(x, "gmm", closure=False)[0], peer.predict(x[:, None]) == int(np.argmin(peer.means_[:, 0]))
        )


def test_whoever_is_as_near_as_a_candidate_is_one(monkeypatch):
    """A mixture that gives 0.1 to the wide component, around a narrow one at 0.5: it is nearer than a candidate.
    An empty group: everybody."""
    x = [0.1, 0.5, 0.5, 0.5, 0.9, 1.2]
    monkeypatch.setattr(
        "fedlib.algorithms.parts.grouping._mixture",
        lambda rows, generators: np.array([[True, False, False, False, True, True]]),
    )
    assert grouped(x, "gmm", closure=False)[0].tolist() == [False, True, True, True, False, False]
    assert grouped(x, "gmm")[0].tolist() == [True, True, True, True, False, False]
    monkeypatch.setattr(
        "fedlib.algorithms.parts.grouping._mixture", lambda rows, generators: np.zeros((1, 6), dtype=bool)
    )
    assert grouped(x, "gmm").all()


# FedFomo by hand ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reference", ["start", "current"])
def test_fedfomo_by_hand(reference):
    """x = 1, y = 0 for training and validation; w = 1, score of class 0 is a, so that the loss is ln(1 + e^-a)
    and distances are |a - a'|.

    Reference a = 0, loss ln 2; own -ln 3, loss ln 4: no gain. Received ln 3, loss ln 4/3: ln 1.5/(ln 3 + 1e-5); ln 7,
    loss ln 8/7: ln 1.75/(ln 7 + 1e-5). The third place is empty. Start: the mean of ln 3 and ln 7 with these weights,
    then a step with g = (p - 1, 1 - p). With reference = "current" losses and distances are from the own model: ln 3/(2
    ln 3 + 1e-5) and ln 3.5/(ln 21 + 1e-5).
    """
    model, method = two_classes(1.0, 0.0), algorithms.make("fedfomo", M=3, reference=reference)
    models = tree.stack([two(1.0, LN3), two(1.0, log(7)), two(1.0, 50.0)])
    message = {"models": models, "real": torch.tensor([True, True, False])}
    client = method.kept(model, two(1.0, -LN3), two(1.0, 0.0))
    scores = (log(1.5) / (LN3 + 1e-5), log(1.75) / (log(7) + 1e-5))
    if reference == "current":
        scores = (LN3 / (2 * LN3 + 1e-5), log(3.5) / (log(21) + 1e-5))
    a = (scores[0] * LN3 + scores[1] * log(7)) / sum(scores)
    start, g = two(1.0, a), 1 / (1 + exp(-a)) - 1
    trained = two(1 - 0.1 * g * a, a - 0.1 * g, 0.1 * g, -0.1 * g, 0.1 * g)
    data = labelled(([1.0], [0]))
    close(method.personal_model(model, message, client, data), start)
    upload, kept = method.client_update(model, message, client, data)
    close(upload, {**trained, "scores": f64(*scores, 0), "real": message["real"]})
    close(kept, method.kept(model, trained, start))
    assert ("reference" in kept) == (reference == "start")


def test_fedfomo_keeps_its_model_if_nothing_helps():
    """The only other model, a = -1, is worse than the reference 0; the own one, a = -ln 3, too:
    training goes on from it. Scores are signed."""
    model, method = two_classes(1.0, 0.0), algorithms.make("fedfomo", M=1)
    message = {"models": tree.stack([two(1.0, -1.0)]), "real": torch.tensor([True])}
    client = method.kept(model, two(1.0, -LN3), two(1.0, 0.0))
    upload, kept = method.client_update(model, message, client, labelled(([1.0], [0])))
    close(kept["reference"], {f"start.{name}": leaf for name, leaf in client["theta"].items()})
    assert float(upload["scores"][0]) == pytest.approx((log(2) - log(1 + exp(1))) / (1 + 1e-5))


def test_fedfomo_server_by_hand():
    """Round 1: clients 0, 1, 3 upload, nothing was sent. Affinity of 2 to 3 is 1, to 1 is -1:
    with M = 2 it gets 3 and 0 (0 is unknown), not 1.

    Its scores -0.5 for 3 and 2 for 0 are added; the next round's candidates are 2 alone.
    """
    model, method = two_classes(), algorithms.make("fedfomo", M=2)
    server, _ = method.init(model, setting(1, 1, 1, 1))
    assert not method.download(server, 2)["real"].any()
    first = {
        **tree.stack([two(w, w) for w in (1.0, 2.0, 3.0)]),
        "scores": torch.zeros(3, 2),
        "real": torch.zeros(3, 2, dtype=torch.bool),
    }
    server = method.server_update(server, np.array([0, 1, 3]), first, np.ones(3))
    assert torch.equal(server["affinity"], torch.eye(4, dtype=torch.float64))
    server["affinity"][2, 1], server["affinity"][2, 3] = -1.0, 1.0
    message = method.download(server, 2)
    assert message["models"][W].flatten().tolist() == [3.0, 1.0] and message["real"].all()
    upload = tree.stack([{**two(9.0, 9.0), "scores": f64(-0.5, 2.0), "real": message["real"]}])
    after = method.server_update(server, np.array([2]), upload, np.ones(1))
    assert after["affinity"][2].tolist() == [2.0, -1.0, 1.0, 0.5]
    assert after["models"][W].flatten().tolist() == [1.0, 2.0, 9.0, 3.0]
    assert after["candidates"].tolist() == [False, False, True, False]
    assert 2 not in method.chosen(after, 2)[0][method.chosen(after, 2)[1]].tolist()


def test_fedfomo_takes_the_best():
    """Unknown candidates come in a drawn order."""
    method, server = (
        algorithms.make("fedfomo", M=1),
        algorithms.make("fedfomo").init(two_classes(), setting(1, 1, 1, 1))[0],
    )
    server = {**server, "candidates": torch.ones(4, dtype=torch.bool)}
    first = {int(method.chosen({**server, "round": t}, 0)[0]) for t in range(30)}
    assert first == {1, 2, 3}
    server["affinity"][0] = f64(1, -1, 0, 2)
    assert {int(method.chosen({**server, "round": t}, 0)[0]) for t in range(30)} == {3}


# pFedSV by hand -------------------------------------------------------------------------------------------------------


def game_of_three(**hyper):
    """Client 0 of four with the models of 1 and 2, biases 1, -3 and 1.5 of class 0 (all else 0);
    three of four samples are of class 0."""
    method = algorithms.make("pfedsv", k=2, **hyper)
    orders = torch.tensor([[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]])
    message = {
        "models": tree.stack([two(1, 0, 0, -3.0), two(1, 0, 0, 1.5)]),
        "ids": torch.tensor([1, 2]),
        "real": torch.tensor([True, True]),
        "me": torch.tensor(0),
        "permutations": orders,
        "luck": f64([0.1, 0.2, 0.3, 0.4], [0.6, 0.6, 0.6, 0.6]),
    }
    own = {
        "theta": two(1, 0, 0, 1.0),
        "relevance": torch.zeros(4, dtype=torch.float64),
        "seen": torch.zeros(4, dtype=torch.bool),
    }
    if hyper.get("self_distance") == "prev":
        own["start"] = two(1, 0, 0, 0.75)
    if hyper.get("variant") == "D+C":
        message["models"], message["f"] = tree.select(message["models"], "head."), extractor(7.0)
    return method, message, own, labelled(([1.0, 1.0, 1.0, 1.0], [0, 0, 0, 1]))


@pytest.mark.parametrize(
    ("hyper", "bias"),
    [
        ({}, 1.25),
        ({"sv": "exact"}, 1.25),
        ({"variant": "W"}, 1.25),
        ({"variant": "D+C"}, 1.25),
        ({"self_distance": "none"}, 1.25),
        ({"self_distance": "mean_other"}, (1 / 2.25 + 1.5 / 0.5) / (1 / 2.25 + 1 / 0.5)),
        ({"self_distance": "prev"}, (1 / 0.25 + 1.5 / 0.5) / 6),
        ({"self_distance": "eps"}, (1e5 + 3) / (1e5 + 2)),
        ({"self_distance": "exclude_self"}, 1.5),
        ({"v_empty": "chance"}, 1.0),
    ],
)
def test_pfedsv_game_by_hand(hyper, bias):
    """A mean bias above 0 says class 0: worth 3/4, else 1/4. v(0) = v(2) = v(02) = 3/4, v(1) = v(01) = v(12) = v(012)
    = 1/4.

    psi_0 = v(0)/3 + ((v01 - v1) + (v02 - v2))/6 + (v012 - v12)/3 = 1/4; psi_2 likewise 1/4; psi_1 = 1/12 - 1/6 - 1/6 =
    -1/4; sum 1/4. d_01 = 4, d_02 = 0.5. Own distance: min 0.5, mean 2.25, to the last start 0.25. The weights of 0 and
    2 are 1/d; 1 has none. chance: v(empty) = 3/4, everyone loses 1/4: psi = 0, -1/2, 0: nobody helps and the own model
    stays.
    """
    method, message, own, data = game_of_three(**hyper)
    model = two_classes()
    theta, psi = method.aggregated(model, message, own, data)
    close(theta, two(7.0 if hyper.get("variant") == "D+C" else 1.0, 0, 0, bias))
    close(psi, f64(-0.5, 0) if hyper.get("v_empty") else f64(-0.25, 0.25))
    close(method.personal_model(model, message, own, data), theta)


@pytest.mark.parametrize(
    ("hyper", "wanted", "most"),
    [
        ({}, [2, 3, -1, -1], 2),
        ({"variant": "W"}, [2, 3, 1, -1], 2),
        ({"download_rule": "literal"}, [2, 3, 1, -1], 1),
        ({"reexplore_prob": 0.5}, [2, 3, -1, -1], 2),
        ({"reexplore_prob": 0.7}, [2, 3, 1, -1], 2),
        ({"k_max": 3}, [2, 3, -1, -1], 2),
    ],
)
def test_pfedsv_update_and_request_by_hand(hyper, wanted, most):
    """After the game above: relevance of 1 and 2 with alpha = 0.5: -0.125 and 0.125. 1 is refused, 2 comes first,
    then 3, which is unseen.

    Training: start bias 1.25, mean of p over the samples: p = 1/(1 + e^-1.25); g = (p - 3/4, 3/4 - p), z = 1.
    """
    if "k_max" in hyper:
        method, message, own, data = game_of_three(**hyper)
        message = {
            **message,
            "models": tree.map(lambda leaf: torch.cat([leaf, leaf[:1]]), message["models"]),
            "ids": torch.tensor([1, 2, 0]),
            "real": torch.tensor([True, True, False]),
            "permutations": torch.cat([message["permutations"], torch.full((6, 1), 3)], 1),
        }
    else:
        method, message, own, data = game_of_three(**hyper)
    upload, kept = method.client_update(two_classes(), message, own, data)
    assert upload.pop("wanted").tolist() == wanted and int(upload.pop("most")) == most
    g = 1 / (1 + exp(-1.25)) - 0.75
    close(upload, two(1, -0.1 * g, 0.1 * g, 1.25 - 0.1 * g, 0.1 * g))
    close(
        kept, {"theta": upload, "relevance": f64(0, -0.125, 0.125, 0), "seen": torch.tensor([False, True, True, False])}
    )


def test_pfedsv_relevance_by_hand():
    """alpha = 0.25. 1 plays and gets -1/4: 0.25*0.4 - 0.75/4 = -0.0875. 2 stands in an empty place and 3 was not sent:
    both keep what they have."""
    message = {"ids": torch.tensor([1, 2]), "real": torch.tensor([True, False])}
    client = {"relevance": f64(0, 0.4, -0.6, 0.8), "seen": torch.tensor([False, False, False, True])}
    relevance, seen = algorithms.make("pfedsv", k=2, alpha=0.25).remembered(message, client, f64(-0.25, 0))
    close(relevance, f64(0, -0.0875, -0.6, 0.8))
    assert seen.tolist() == [False, True, False, True]


@pytest.mark.parametrize(
    ("hyper", "relevance", "seen", "most"),
    [
        ({}, [0, 0, 0, 0, 0, 0], [], 2),
        ({}, [0, 1, 1, 1, 0, 0], [1, 2, 3], 2),
        ({"k_max": 3}, [0, 1, 1, 1, 1, 0], [1, 2, 3, 4], 3),
        ({"k_max": 3}, [0, 0, 0, 0, 0, 0], [], 2),
        ({"download_rule": "literal"}, [0, 0, 0, 0, 0, 0], [], 2),
        ({"download_rule": "literal"}, [0, -1, -1, 0, 0, 0], [1, 2], 1),
        ({"download_rule": "literal", "k_max": 4}, [0, 1, 1, 1, 0, 0], [1, 2, 3], 3),
        ({"variant": "W", "k_max": 4}, [0, 1, 1, 1, 0, 0], [1, 2, 3], 2),
    ],
)
def test_pfedsv_how_many_are_wanted(hyper, relevance, seen, most):
    method = algorithms.make("pfedsv", k=2, **hyper)
    flags = torch.zeros(6, dtype=torch.bool).index_fill(0, torch.tensor(seen, dtype=torch.int64), True)
    found = method.request(
        {"luck": torch.rand(2, 6, dtype=torch.float64), "me": torch.tensor(0)}, f64(*relevance), flags
    )
    assert int(found["most"]) == most and 0 not in found["wanted"].tolist()


def test_pfedsv_rounding_decides_nothing():
    """A relevance of 1e-17, which is 0 but for rounding, does not keep a client,
    nor rank it before or behind another 0."""
    method, ties = algorithms.make("pfedsv", k=2), f64([0.1, 0.2, 0.9, 0.5], [1, 1, 1, 1])
    for tiny_value in (1e-17, -1e-17, 0.0):
        relevance = f64(0, tiny_value, 0, 0.3)
        found = method.request(
            {"luck": ties, "me": torch.tensor(0)}, relevance, torch.tensor([False, True, False, True])
        )
        assert found["wanted"].tolist() == [3, 2, -1, -1]
        assert method.request(
            {"luck": ties, "me": torch.tensor(0)}, relevance, torch.tensor([False, False, False, True])
        )["wanted"].tolist() == [3, 2, 1, -1]


def test_pfedsv_loss_as_utility_by_hand():
    """v(X) = ln 2 - mean cross-entropy. One sample of class 0, biases 0 (own) and ln 3: v(0) = 0, v(1) = ln 2 - ln 4/3,
    v(01): bias ln 3 / 2."""
    method, message, own, _ = game_of_three(utility="loss", sv="exact")
    message = {**message, "models": tree.stack([two(1, 0, 0, LN3)] * 2), "real": torch.tensor([True, False])}
    own["theta"] = two(1, 0)
    both, alone = log(2) - log(1 + 1 / sqrt(3)), log(2) - log(4 / 3)
    _, psi = method.aggregated(two_classes(), message, own, labelled(([1.0], [0])))
    close(psi, f64((alone + both) / 2, 0))


def test_pfedsv_without_partners_or_gains_keeps_its_model():
    """Empty places; models that are equal to the own one (distance 0) are mixed without harm."""
    method, message, own, data = game_of_three()
    alone = {**message, "real": torch.tensor([False, False])}
    theta, psi = method.aggregated(two_classes(), alone, own, data)
    close(theta, own["theta"])
    assert psi.tolist() == [0, 0]
    twins = {**message, "models": tree.stack([own["theta"]] * 2)}
    close(method.aggregated(two_classes(), twins, own, data)[0], own["theta"])
    wrong = labelled(([1.0], [1]))  # every coalition of the own model is worth 0
    close(method.aggregated(two_classes(), alone, own, wrong)[0], own["theta"])


def test_pfedsv_server_by_hand():
    """Client 0 wants 3, 1, 2 in this order and two of them; 3 never took part.
    With pool = "round" only this round's uploads are there."""
    for pool, got in (("last", [1, 2]), ("round", [2])):
        method = algorithms.make("pfedsv", k=2, pool=pool)
        server, _ = method.init(two_classes(), setting(1, 1, 1, 1))
        for ids in ([0, 1], [0, 2]):
            wanted = torch.tensor([[3, 1, 2, -1], [-1, -1, -1, -1]])
            uploads = {**tree.stack([two(float(i), 0) for i in ids]), "wanted": wanted, "most": torch.tensor([2, 0])}
            server = method.server_update(server, np.array(ids), uploads, np.array([1, 3]))
        message = method.download(server, 0)
        assert message["ids"][message["real"]].tolist() == got
        assert message["models"][W][: len(got)].flatten().tolist() == [float(j) for j in got]
        assert not method.download(server, 1)["real"].any() and not method.download(server, 3)["real"].any()
        assert message["permutations"].shape == (9, 3)
    shared = algorithms.make("pfedsv", k=2, variant="D+C")
    start, _ = shared.init(two_classes(), setting(1, 1, 1, 1))
    uploads = {**tree.stack([two(2.0, 5.0), two(6.0, 7.0)]), "wanted": wanted, "most": torch.tensor([2, 0])}
    for weights, f in (("samples", 5.0), ("uniform", 4.0)):
        after = dataclasses.replace(shared, extractor_weights=weights).server_update(
            start, np.array([0, 2]), uploads, np.array([1, 3])
        )
        assert float(after["f"][W]) == f
        assert set(shared.download(after, 0)["models"]) == {"head.weight", "head.bias"}


def test_pfedsv_monte_carlo_needs_no_more_coalitions_than_there_are():
    """sv = "mc" evaluates each coalition of the players who are there once (one client at a time);
    the result is that of the plain mean."""
    method, message, own, data = game_of_three()
    asked, real = [], algorithms.find("pfedsv").worth

    class Watched(algorithms.find("pfedsv")):
        def worth(self, model, own, models, members, data):
            asked.append(len(members))
            return real(self, model, own, models, members, data)

    watched = Watched(k=2)
    watched.aggregated(two_classes(), message, own, data)
    watched.aggregated(two_classes(), {**message, "real": torch.tensor([True, False])}, own, data)
    assert asked == [8, 4]


# FedSimSup by hand ----------------------------------------------------------------------------------------------------


def test_fedsimsup_epochs_and_probabilities():
    """tau_s = 0 leaves u, tau_theta = 2 is two passes: like tau_theta = 1 twice. prob:
    scores are logs of mean probabilities."""
    model, data = supervised(0.5, 0.3), labelled(([2.0], [1]))
    client, data.group = {SUPERVISOR: two(0.5, 0.3)}, SUPERVISOR
    once, twice = (algorithms.make("fedsimsup", tau_s=0, tau_theta=count) for count in (1, 2))
    after, kept = twice.client_update(model, model.theta0, client, data)
    assert same(kept, client)
    close(after, once.client_update(model, once.client_update(model, model.theta0, client, data)[0], client, data)[0])
    prob = algorithms.make("fedsimsup", combine="prob")
    scores = prob.predict(
        model, prob.personal_model(model, two(0.5, LN3), {SUPERVISOR: two(0.5, 0.0)}, data), f64([2.0])
    )
    close(scores.exp(), f64([(3 / 4 + 1 / 2) / 2, (1 / 4 + 1 / 2) / 2]))


COUNTS = [[3, 4, 0], [4, 3, 0], [1, 0, 0], [0, 0, 7]]  # sizes 7, 7, 1, 7; cosines 0.96, 0.6, 0.8 and 0 with client 3


@pytest.mark.parametrize(
    ("hyper", "expected"),
    [
        ({}, (1.0, 2.0, 0.125 * 4 + 0.875 * (0.6 * 1 + 0.8 * 2) / 1.4, 8.0)),
        ({"zero_sim": "uniform"}, (1.0, 2.0, 0.125 * 4 + 0.875 * (0.6 * 1 + 0.8 * 2) / 1.4, 0.5 * 8 + 0.5 * 1.5)),
        ({"scale_by_sim": True}, (1.0, 2.0, 0.3 * 4 + 0.7 * (0.6 * 1 + 0.8 * 2) / 1.4, 8.0)),
        (
            {"participants_mix": True},
            (0.5 * 1 + 0.5 * 2, 0.5 * 2 + 0.5 * 1, 0.125 * 4 + 0.875 * (0.6 * 1 + 0.8 * 2) / 1.4, 8.0),
        ),
    ],
)
def test_fedsimsup_server_by_hand(hyper, expected):
    """Clients 0 and 1 upload w = 1 and 2; stored are 4 for client 2 and 8 for client 3. K = 2.

    Client 2: alpha = 2 * 1/(14 + 2) = 1/8, shares 0.6/1.4 and 0.8/1.4. Client 3 shares no label with them and stays;
    "uniform": alpha = 1/2 and the mean 1.5. scale_by_sim: 1 - alpha = 7/8 * 0.8 = 0.7. participants_mix: alpha = 14/28,
    and the other one alone.
    """
    method = algorithms.make("fedsimsup", **hyper)
    server, clients = method.init(supervised(), setting(counts=COUNTS))
    close(server["similarity"][:3, :3], f64([1, 0.96, 0.6], [0.96, 1, 0.8], [0.6, 0.8, 1]))
    assert torch.equal(server["similarity"], server["similarity"].T)
    assert server["similarity"][3].tolist() == [0, 0, 0, 1]
    server["personal"][W] = f64(0, 0, 4, 8).reshape(4, 1, 1)
    after = method.server_update(server, np.array([0, 1]), tree.stack([two(1.0, LN3), two(2.0, LN3)]), np.array([7, 7]))
    close(after["personal"][W].flatten(), f64(*expected))
    # equal everywhere: weights sum to 1
    close(after["personal"]["head.weight"], tree.repeat(two(0, LN3), 4)["head.weight"])
    assert [float(u) for u in clients[SUPERVISOR][W].flatten()] == [1, 2, 3, 4]
    shared, _ = dataclasses.replace(method, shared_sup_init=True).init(supervised(), setting(counts=COUNTS))
    with pytest.raises(BadValue, match="supervisors"):
        algorithms.make("fedsimsup", supervisors=f"{SUPERVISOR}+{SUPERVISOR}")


@pytest.mark.parametrize(
    ("similarity", "expected"),
    [
        ("uniform", (1.0, 2.0, 0.125 * 4 + 0.875 * 1.5, 0.5 * 8 + 0.5 * 1.5)),
        ("nearest", (1.0, 2.0, 0.125 * 4 + 0.875 * 2, 8.0)),
        ("none", (1.0, 2.0, 4.0, 8.0)),
    ],
)
def test_fedsimsup_with_other_weights_of_pairs(similarity, expected):
    """As above; the most similar participant for client 2 is client 1, and client 3 has none."""
    method = algorithms.make("fedsimsup", similarity=similarity)
    server, _ = method.init(supervised(), setting(counts=COUNTS))
    server["personal"][W] = f64(0, 0, 4, 8).reshape(4, 1, 1)
    after = method.server_update(server, np.array([0, 1]), tree.stack([two(1.0, LN3), two(2.0, LN3)]), np.array([7, 7]))
    close(after["personal"][W].flatten(), f64(*expected))


def test_fedsimsup_shuffled_similarities_are_the_same_numbers_of_others():
    counts = np.random.default_rng(0).integers(0, 9, (6, 3)).tolist()
    paper, shuffled, again = (
        algorithms.make("fedsimsup", similarity=how).init(supervised(), setting(counts=counts))[0]
        for how in ("labels", "shuffled", "shuffled")
    )
    close(shuffled["similarity"].sort(1).values, paper["similarity"].sort(1).values)
    assert (shuffled["similarity"] - paper["similarity"]).abs().max() > 0.1
    assert shuffled["similarity"].diagonal().tolist() == paper["similarity"].diagonal().tolist()
    assert torch.equal(shuffled["similarity"], again["similarity"])


def test_fedsimsup_networks_that_learn_alone():
    """x = 2, y = 1, eta = 0.1, w = 0.5 in both, each by its own scores: u's are (0, 0), p = 1/2, g = (1/2, -1/2); those
    of theta are (ln 3, 0), p = 3/4. Tested are the joint scores. Where both learn together and theta does first, u's
    are still 0 and theta moves alike."""
    model = supervised(0.5, 0.0)
    method = algorithms.make("fedsimsup", tau_s=1, tau_theta=1, learn="alone")
    data, client = labelled(([2.0], [1])), {SUPERVISOR: two(0.5, 0.0)}
    data.group = SUPERVISOR
    upload, kept = method.client_update(model, model.theta0, client, data)
    close(kept, {SUPERVISOR: two(0.5, -0.05, 0.05, -0.05, 0.05)})
    close(upload, two(0.5 - 0.2 * 0.75 * LN3, LN3 - 0.075, 0.075, -0.075, 0.075))
    together = dataclasses.replace(method, learn="sum", order="model")
    close(together.client_update(model, model.theta0, client, data)[0], upload)
    scores = method.predict(model, method.personal_model(model, upload, kept, data), f64([2.0]))
    close(scores, model.logits(upload, f64([2.0])) + model.logits(kept[SUPERVISOR], f64([2.0])))


def test_fedsimsup_supervisors_start_alike_only_where_asked():
    _, clients = algorithms.make("fedsimsup", shared_sup_init=True).init(supervised(), setting(1, 1, 1))
    assert clients[SUPERVISOR][W].flatten().tolist() == [0.5] * 3


def test_fedsimsup_when_everybody_takes_part_nobody_is_mixed():
    """r = 1: the server's models are the uploads, bit for bit; with everybody mixing (participants_mix)
    they are not."""
    for mix in (False, True):
        spec = small("fedsimsup", {"participants_mix": mix}, join_ratio=1.0, rounds=1, eval_points=("post",))
        *_, (_, state, _) = played(spec)
        trained = ("head.weight", "extractor.fc1.weight")
        assert all(torch.equal(state.server["personal"][name], state.uploads[name]) != mix for name in trained)


# reductions -----------------------------------------------------------------------------------------------------------


def test_fedsimsup_with_a_silent_supervisor_is_local_training():
    """r = 1, tau_s = 0, u's head 0: E = tau_theta epochs of local training, up to rounding."""
    spec = small("fedsimsup", {"tau_s": 0, "tau_theta": 2}, join_ratio=1.0, rounds=2, precision="float64")
    for _, state, _ in played(spec):
        for name in ("head.weight", "head.bias"):
            state.clients[SUPERVISOR][name].zero_()
    *_, (_, local, _) = played(tiny("local", join_ratio=1.0, rounds=2, local_epochs=2, precision="float64"))
    trained = {
        name: local.clients["theta"][name] for name in ("head.weight", "extractor.conv1.weight", "extractor.fc1.weight")
    }
    close({name: state.server["personal"][name] for name in trained}, trained)


@pytest.mark.parametrize("method", ["fedfomo", "pfedsv"])
def test_one_client_alone_is_local_training(method):
    """Nothing to download: the same as Local on the same training part, without the validation part."""
    one = dict(num_clients=1, join_ratio=1.0, rounds=2, partition=dict(alpha=0.5, min_size=2), test_fraction=0.9)
    *_, (run, state, _) = played(small(method, **one))

    def same_parts(local):
        return dataclasses.replace(local, work=dataclasses.replace(local.work, parts=run.work.parts))

    *_, (_, local, _) = played(tiny("local", **one), change=same_parts)
    assert same(state.clients["theta"], local.clients["theta"])


# supervisors ----------------------------------------------------------------------------------------------------------

SIZES = ((1, 1, 1), (2, 5, 1), (33, 2, 9), (3, 40, 2), (320, 600, 80), (64, 1, 16))  # training, test, validation


def test_supervisors_of_different_architectures():
    """Two architectures in one run: each client trains its own supervisor and no other, in both backends;
    stacks hold one architecture."""
    name = {SUPERVISOR: "extractor.fc1.weight", TRANSFORMER: "head.weight"}
    spec = small(
        "fedsimsup",
        {"supervisors": "+".join(name)},
        num_clients=6,
        join_ratio=1.0,
        rounds=1,
        precision="float64",
        eval_points=("agg", "post"),
    )
    close(outcome(spec, "vmap"), outcome(spec, "serial"))
    steps = list(played(spec, "vmap", uneven))
    run, kinds = steps[0][0], steps[0][0].groups
    assert set(kinds) == set(name) and kinds == run.method.groups(run.setting)
    fresh = run.method.init(run.work.model, run.setting)[1]
    for kind in set(kinds):
        moved = [not torch.equal(a, b) for a, b in zip(fresh[kind][name[kind]], steps[-1][1].clients[kind][name[kind]])]
        assert moved == [own == kind and own_sizes[0] > 1 for own, own_sizes in zip(kinds, SIZES)]
    assert isinstance(run.backend, backends.Vmap)


def test_a_supervisor_that_does_not_exist_is_refused_before_anything_starts():
    with pytest.raises(BadValue, match="supervisor_sixht"):
        tiny("fedsimsup", hyper={"supervisors": f"{SUPERVISOR}+supervisor_sixht"})


def test_a_supervisor_larger_than_the_model_is_accepted_and_said():
    larger, smaller = (set_up(tiny("fedsimsup", hyper={"supervisors": name})) for name in ("mcmahan_cnn", SUPERVISOR))
    sizes = [run.work.model.sibling(run.groups[0]).num_parameters["model"] for run in (larger, smaller)]
    own = larger.work.model.num_parameters["model"]
    assert sizes[1] < own < sizes[0]
    with pytest.warns(UserWarning, match=rf"supervisor mcmahan_cnn has {sizes[0]:,} parameters, the model {own:,}"):
        larger.method.init(larger.work.model, larger.setting)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        smaller.method.init(smaller.work.model, smaller.setting)


# relevance ------------------------------------------------------------------------------------------------------------
