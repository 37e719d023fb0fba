"""Each method against its definition: steps done by hand, reductions to simpler methods, who owns what,
what is sent."""

from __future__ import annotations

import copy
from math import log

import numpy as np
import pytest
import torch
from helpers import (
    HYPER,
    METHODS,
    POINTS,
    ToyData,
    ToyModel,
    close,
    exact,
    played,
    rounds_that_leave_inputs_alone,
    same,
    shorter,
    theta,
    tiny,
)

from fedlib import algorithms
from fedlib.algorithms.api import Setting
from fedlib.base import tree
from fedlib.base.errors import BadValue
from fedlib.checks.plays import rounds_with_tests
from fedlib.engine.evaluate import evaluate
from fedlib.engine.setup import set_up
from fedlib.engine.simulate import simulate

A = ToyData([([1.0], [-2.0])])  # one minibatch of one sample
B = ToyData([([-1.0], [1.5]), ([1.0], [-2.12])])  # two minibatches
B_MIRRORED = ToyData([([1.0], [1.5]), ([-1.0], [-2.12])])  # gives for -w what B gives for w
AFTER_A, AFTER_B = theta(2.05, -1.1, 0.45), theta(1.98, -0.99, 0.3)
N_AB = np.array(
    [1, 3]
)  # sample numbers given to the server; not those of A and B, so that the weights are seen to come from here


# (a) steps by hand ---------------------------------------------------------------------------------------------------


def test_fedavg_by_hand():
    """Start: w = 2, v = -1, b = 0.5, eta = 0.1; e = v w x + b - y, dw = e v x, dv = e w x, db = e.

    A: x = 1, y = -2:     e = -2 + 0.5 + 2 = 0.5      dw = -0.5  dv = 1    db = 0.5  ->  w = 2.05  v = -1.1   b = 0.45
    B: x = -1, y = 1.5:   e = 2 + 0.5 - 1.5 = 1       dw = 1     dv = -2   db = 1    ->  w = 1.9   v = -0.8   b = 0.4
       x = 1, y = -2.12:  e = -1.52 + 0.4 + 2.12 = 1  dw = -0.8  dv = 1.9  db = 1    ->  w = 1.98  v = -0.99  b = 0.3
    Server, n = (1, 3): w = (2.05 + 3*1.98)/4 = 1.9975, v = (-1.1 - 3*0.99)/4 = -1.0175, b = (0.45 + 3*0.3)/4 = 0.3375.
    """
    model, method = ToyModel(), algorithms.make("fedavg")
    server, clients = method.init(model, Setting(3, 4, 1))
    uploads = []
    for i, data in ((0, A), (2, B)):
        upload, kept = method.client_update(model, method.download(server, i), {}, data)
        uploads.append(upload)
        assert kept == {}
    close(uploads, (AFTER_A, AFTER_B))
    server = method.server_update(server, np.array([0, 2]), tree.stack(uploads), N_AB)
    close(server, {"theta": theta(1.9975, -1.0175, 0.3375)})
    close(method.personal_model(model, method.download(server, 1), {}, A), theta(1.9975, -1.0175, 0.3375))
    assert clients == {}


def test_local_epochs_repeat_the_pass():
    """A for E = 2: w = 2.05, v = -1.1, b = 0.45, then e = -1.1*2.05 + 0.45 + 2 = 0.195, dw = -0.2145, dv = 0.39975,
    db = 0.195."""
    data = ToyData([([1.0], [-2.0])], epochs=2)
    upload, _ = algorithms.make("fedavg").client_update(ToyModel(), theta(2, -1, 0.5), {}, data)
    close(upload, theta(2.05 + 0.02145, -1.1 - 0.039975, 0.45 - 0.0195))


def test_local_by_hand():
    """The steps A and B of `test_fedavg_by_hand`, each kept by its client;
    nothing is sent and the server has no state."""
    model, method = ToyModel(), algorithms.make("local")
    server, clients = method.init(model, Setting(3, 4, 1))
    close(clients, {"theta": tree.repeat(theta(2, -1, 0.5), 3)})
    for i, data, expected in ((0, A, AFTER_A), (2, B, AFTER_B)):
        upload, kept = method.client_update(model, method.download(server, i), tree.rows(clients, i), data)
        assert upload == {} and method.download(server, i) == {}
        close(kept, {"theta": expected})
        close(method.personal_model(model, {}, kept, data), expected)
    assert method.server_update(server, [0, 2], {}, N_AB) == {}


def test_fedper_by_hand():
    """Client 0 trains as A of `test_fedavg_by_hand`. Client 2 has another head, v = 1, b = -0.5, and the labels of B
    with opposite sign: e, dv and db change sign and dw = e v x does not, so w = 1.9 then 1.98 as before, v = 0.99, b =
    -0.3. Only w is averaged, to 1.9975.
    """
    model, method = ToyModel(), algorithms.make("fedper")
    server, clients = method.init(model, Setting(3, 4, 1))
    close(server, {"f": {"extractor.w": torch.tensor([2.0], dtype=torch.float64)}})
    clients["h"]["head.weight"][2], clients["h"]["head.bias"][2] = 1.0, -0.5
    opposite = ToyData([([-1.0], [-1.5]), ([1.0], [2.12])])
    uploads, heads = zip(
        *(
            method.client_update(model, method.download(server, i), tree.rows(clients, i), data)
            for i, data in ((0, A), (2, opposite))
        )
    )
    assert [set(upload) for upload in uploads] == [{"extractor.w"}] * 2
    assert [set(kept["h"]) for kept in heads] == [{"head.weight", "head.bias"}] * 2
    close(uploads, ({"extractor.w": AFTER_A["extractor.w"]}, {"extractor.w": AFTER_B["extractor.w"]}))
    close(
        heads,
        (
            {"h": {k: AFTER_A[k] for k in ("head.weight", "head.bias")}},
            {"h": {k: -AFTER_B[k] for k in ("head.weight", "head.bias")}},
        ),
    )
    server = method.server_update(server, np.array([0, 2]), tree.stack(uploads), N_AB)
    close(method.personal_model(model, method.download(server, 2), heads[1], A), theta(1.9975, 0.99, -0.3))


def test_pfedsim_takes_over_from_fedavg_by_hand():
    """T = 4, rho = 0.5: T_g = 2 rounds of FedAvg (by hand above).
    Then every client's stored model is the global one and Phi = I."""
    model, method, setting = ToyModel(), algorithms.make("pfedsim", rho=0.5), Setting(3, 4, 1)
    first, rounds = method.warm_up(setting)
    assert (type(first).__name__, rounds) == ("FedAvg", 2)
    server, clients = method.take_over(model, setting, {"theta": theta(1.9975, -1.0175, 0.3375)}, {}, None)
    close(server["models"], tree.repeat(theta(1.9975, -1.0175, 0.3375), 3))
    assert torch.equal(server["phi"], torch.eye(3, dtype=torch.float64)) and method.eval_points(server) == (
        "post",
        "agg",
    )
    assert clients == {} and server["round"] == 2 and server["trained"].tolist() == [2, 2, 2]


def test_pfedsim_personalisation_phase_by_hand():
    """phi = "eq3", own weight 3. Stored extractors w = 4, -4, 100, heads (-1, 0.5) for all; Phi_01 = 1,
    Phi_02 = Phi_12 = 0.

    Down: w_0 = (3*4 + 1*(-4))/4 = 2 and w_1 = (3*(-4) + 1*4)/4 = -2, heads as stored, so that client 0 trains as A and
    client 1, with mirrored inputs, as B of `test_fedavg_by_hand` with -w: (2.05, -1.1, 0.45) and (-1.98, -0.99, 0.3).
    Up: both are stored, not averaged; client 2 stays. The heads -1.1 and -0.99 are parallel: their cosine is clamped to
    1 - 1e-8 and Phi_01 = -ln(1e-8) = 18.4207. The other pairs and the diagonal stay.
    """
    model, method = ToyModel(), algorithms.make("pfedsim", rho=0, phi="eq3", phi_self=3.0)
    server, _ = method.init(model, Setting(3, 4, 1))
    server["models"]["extractor.w"] = torch.tensor([[4.0], [-4.0], [100.0]], dtype=torch.float64)
    server["phi"] = torch.tensor([[1.0, 1, 0], [1, 1, 0], [0, 0, 1]], dtype=torch.float64)
    close(method.download(server, 0), theta(2, -1, 0.5))
    close(method.download(server, 1), theta(-2, -1, 0.5))
    uploads, _ = zip(
        *(method.client_update(model, method.download(server, i), {}, data) for i, data in ((0, A), (1, B_MIRRORED)))
    )
    close(uploads, (AFTER_A, theta(-1.98, -0.99, 0.3)))
    after = method.server_update(server, np.array([0, 1]), tree.stack(uploads), N_AB)
    close(after["models"], tree.stack([AFTER_A, theta(-1.98, -0.99, 0.3), theta(100, -1, 0.5)]))
    near = -log(1e-8)
    close(after["phi"][None], torch.tensor([[[1, near, 0], [near, 1, 0], [0, 0, 1]]], dtype=torch.float64), 1e-7)
    close(method.stored_upload(after, 1), theta(-1.98, -0.99, 0.3))


@pytest.mark.parametrize(
    ("rho", "rounds", "T_g"), [(0, 5, 0), (1, 5, 5), (0.5, 5, 2), (0.3, 10, 3), (0.7, 10, 7), (0.9, 1, 0)]
)
def test_pfedsim_generalisation_lasts_floor_rho_T_rounds(rho, rounds, T_g):
    """Counted round by round; 0.29 * 100 is 28.999... in floating point."""
    assert algorithms.make("pfedsim", rho=0.29).warm_up(Setting(2, 100, 1))[1] == 29
    seen = [
        state.warming_up for run, state, _ in played(tiny("pfedsim", hyper={"rho": rho}, rounds=rounds, num_clients=2))
    ]
    assert seen[:-1] == [True] * T_g + [False] * (rounds - T_g)
    assert seen[-1] == (T_g == rounds)  # a run that ends with its warm-up is tested as it is


# similarities and weights of pFedSim by hand


def server_with(heads, phi, biases=None, **more) -> dict:
    """A server in the personalisation phase; heads: [N][C][d]."""
    weight = torch.tensor(heads, dtype=torch.float64)
    bias = (
        torch.zeros(weight.shape[:2], dtype=torch.float64)
        if biases is None
        else torch.tensor(biases, dtype=torch.float64)
    )
    models = {
        "extractor.w": torch.arange(1.0, len(heads) + 1, dtype=torch.float64)[:, None],
        "head.weight": weight,
        "head.bias": bias,
    }
    N = len(heads)
    base = {"round": 0, "models": models, "trained": torch.zeros(N, dtype=torch.int64)}
    return {**base, "phi": torch.as_tensor(phi, dtype=torch.float64), **more}


HEADS = [[[1.0, 0.0], [0.0, 1.0]], [[3.0, 4.0], [0.0, -2.0]], [[4.0, 3.0], [1.0, 0.0]]]


@pytest.mark.parametrize(
    ("reading", "pairs"), [("reference", (0.0, 0.4, 0.48)), ("eq3", (-log(0.4) / 2, -log(0.2) / 2, -log(0.04) / 2))]
)
def test_pfedsim_similarity_by_hand(reading, pairs):
    """Cosines by class: clients 0, 1: 3/5 and -1; clients 0, 2: 4/5 and 0; clients 1, 2: 24/25 and 0.

    reference: the mean, cut off at 0: -0.2 -> 0, 0.4, 0.48. eq3: mean of -ln(1 - c) with negative c cut off first:
    -(ln 0.4 + ln 1)/2 = 0.458, -(ln 0.2)/2 = 0.805, -(ln 0.04)/2 = 1.609.
    """
    server = server_with(HEADS, torch.eye(3))
    method = algorithms.make("pfedsim", rho=0, phi=reading)
    phi = method.server_update(server, [0, 1, 2], server["models"], N_AB)["phi"]
    p01, p02, p12 = pairs
    torch.testing.assert_close(
        phi, torch.tensor([[1, p01, p02], [p01, 1, p12], [p02, p12, 1]], dtype=torch.float64), rtol=0, atol=1e-7
    )


def test_pfedsim_bias_is_one_more_component():
    """Class 0: (1, 2 | 2) and (2, 1 | -2): 4/5 without, (2 + 2 - 4)/9 = 0 with the bias. Class 1: (0, 0 | 1) twice:
    0 without, 1 with.

    Means: 0.4 without, 0.5 with.
    """
    server = server_with(
        [[[1.0, 2.0], [0.0, 0.0]], [[2.0, 1.0], [0.0, 0.0]]], torch.eye(2), biases=[[2.0, 1.0], [-2.0, 1.0]]
    )
    for phi_bias, expected in ((False, 0.4), (True, 0.5)):
        phi = algorithms.make("pfedsim", rho=0, phi_bias=phi_bias).server_update(
            server, [0, 1], server["models"], N_AB
        )["phi"]
        assert float(phi[0, 1]) == pytest.approx(expected, abs=1e-7)


ROW = [1.0, 0.4, 0.0, 0.99999]
LN = -log(0.6)  # 0.5108


@pytest.mark.parametrize(
    ("hyper", "expected"),
    [
        (dict(), (-log(1e-4), LN, 0, -log(1e-4))),  # 9.2103, 0.5108, 0, capped at 9.2103
        (dict(phi_cap=0.01), (-log(0.01), LN, 0, -log(0.01))),  # the cap sets the own weight and the largest one
        (dict(phi_cap=1e-6), (-log(1e-6), LN, 0, -log(1e-5))),  # 0.99999 is below the cap now
        (dict(phi_self="eq3"), (-log(1e-8), LN, 0, -log(1e-4))),
        (dict(phi_self=2.5), (2.5, LN, 0, -log(1e-4))),
        (dict(phi="eq3"), (1, 0.4, 0, 0.99999)),  # used as stored
        (dict(phi="eq3", phi_self="eq3"), (-log(1e-8), 0.4, 0, 0.99999)),
        (dict(phi="eq3", phi_self=2.5), (2.5, 0.4, 0, 0.99999)),
    ],
)
def test_pfedsim_mixing_weights_by_hand(hyper, expected):
    """Row 0 of Phi is (1, 0.4, 0, 0.99999). reference: -ln(1 - Phi), Phi at most 1 - phi_cap;
    own weight as phi_self says.

    The download is the extractors 1, 2, 3, 4 averaged with these weights, and the own head.
    """
    phi = torch.eye(4, dtype=torch.float64)
    phi[0] = phi[:, 0] = torch.tensor(ROW, dtype=torch.float64)
    heads = [[[1.0]], [[2.0]], [[3.0]], [[4.0]]]
    server, method = server_with(heads, phi), algorithms.make("pfedsim", rho=0, **hyper)
    np.testing.assert_allclose(method.mixing_weights(server, [0])[0].numpy(), expected, rtol=1e-9, atol=1e-12)
    message = method.download(server, 0)
    assert float(message["extractor.w"]) == pytest.approx(np.dot(expected, [1, 2, 3, 4]) / sum(expected), rel=1e-9)
    assert float(message["head.weight"]) == 1.0


@pytest.mark.parametrize(
    ("refresh", "changed"),
    [
        ("cosampled", [(1, 3)]),
        ("one_fresh", [(0, 1), (0, 3), (1, 2), (1, 3), (1, 4), (2, 3), (3, 4)]),
        ("all", [(i, j) for i in range(5) for j in range(i + 1, 5)]),
    ],
)
@pytest.mark.parametrize("reading", ["reference", "eq3"])
def test_pfedsim_refreshes_exactly_the_pairs_of_the_option(refresh, changed, reading):
    """Five clients, 1 and 3 took part; all entries of Phi were 0.125 before. No cosine is near 0.125,
    so a renewed entry is seen."""
    heads = [[[1.0, 0.1 * i]] for i in range(5)]
    phi = torch.full((5, 5), 0.125, dtype=torch.float64).fill_diagonal_(1)
    server, method = server_with(heads, phi), algorithms.make("pfedsim", rho=0, phi=reading, phi_refresh=refresh)
    after = method.server_update(server, np.array([1, 3]), tree.rows(server["models"], [1, 3]), N_AB)["phi"]
    assert {tuple(pair) for pair in torch.nonzero(torch.triu(after != phi)).tolist()} == set(changed)
    assert torch.equal(after, after.T) and (after.diagonal() == 1).all()


def test_pfedsim_refresh_uses_the_uploaded_heads():
    """Before: heads of 1 and 3 are parallel. Uploaded: (1, 0) and (3, 4), cosine 0.6."""
    server = server_with([[[1.0, 0.0]]] * 4, torch.eye(4))
    new = {
        **tree.rows(server["models"], [1, 3]),
        "head.weight": torch.tensor([[[1.0, 0.0]], [[3.0, 4.0]]], dtype=torch.float64),
    }
    after = algorithms.make("pfedsim", rho=0).server_update(server, np.array([1, 3]), new, N_AB)
    assert float(after["phi"][1, 3]) == pytest.approx(0.6, abs=1e-7)


@pytest.mark.parametrize(
    ("max_age", "kept"), [(None, {1, 2, 3}), (0, set()), (1, {1}), (2, {1, 3}), (9, {1, 3}), (10, {1, 2, 3})]
)
def test_pfedsim_max_age_leaves_out_old_partners(max_age, kept):
    """Next round is 10; clients 0..3 last trained in rounds 2, 9, 0, 8: ages 8, 1, 10, 2.
    The own weight stays whatever its age."""
    phi = torch.full((4, 4), 0.5, dtype=torch.float64).fill_diagonal_(1)
    server = server_with([[[1.0]]] * 4, phi, round=9, trained=torch.tensor([2, 9, 0, 8]))
    weights = algorithms.make("pfedsim", rho=0, max_age=max_age).mixing_weights(server, [0])[0]
    assert set(torch.nonzero(weights[1:])[:, 0].add(1).tolist()) == kept
    assert float(weights[0]) == pytest.approx(-log(1e-4))


def test_pfedsim_notes_who_trained_when():
    model, method = ToyModel(), algorithms.make("pfedsim", rho=0)
    server, _ = method.init(model, Setting(3, 4, 1))
    for ids in ([0, 1], [1, 2]):
        server = method.server_update(server, np.array(ids), tree.repeat(model.theta0, 2), N_AB)
    assert server["trained"].tolist() == [1, 2, 2]


@pytest.mark.parametrize(
    "hyper",
    [
        dict(phi="eq2"),
        dict(phi_refresh="none"),
        dict(rho=-0.1),
        dict(rho=1.1),
        dict(phi_cap=0),
        dict(phi_cap=1),
        dict(eps=0),
        dict(phi_self="own"),
        dict(phi_self=0),
        dict(phi_self=-1.0),
        dict(max_age=-1),
        dict(rho=float("nan")),
    ],
)
def test_pfedsim_refuses_values_out_of_range(hyper):
    ((name, value),) = hyper.items()
    with pytest.raises(BadValue) as error:
        algorithms.make("pfedsim", **hyper)
    assert name in str(error.value) and repr(value) in str(error.value)


def test_unknown_methods_and_hyper_parameters_name_the_nearest():
    with pytest.raises(BadValue, match="fedavg"):
        algorithms.make("fedagv")
    with pytest.raises(BadValue, match="phi_self"):
        algorithms.make("pfedsim", phi_slef=1)
    assert algorithms.names() == sorted(METHODS)


# (b) reductions ------------------------------------------------------------------------------------------------------


def test_pfedsim_with_rho_1_is_fedavg():
    """Bit for bit, over a real run, in every number and array, and under the same evaluation point."""
    for points in ((), ("glob", "ft(1)")):
        sim, avg = (
            simulate(tiny(name, hyper=hyper, eval_points=points))
            for name, hyper in (("pfedsim", {"rho": 1}), ("fedavg", {}))
        )
        assert exact(sim) == exact(avg)
        assert sim.point == avg.point == "glob"
    *_, (_, sim, _) = played(tiny("pfedsim", hyper={"rho": 1}))
    *_, (_, avg, _) = played(tiny("fedavg"))
    assert same(sim.server["theta"], avg.server["theta"])


def test_pfedsim_with_rho_1_is_fedavg_at_post_too():
    """`post` is the model as it left the client's last training, whichever method trained it."""
    sim, avg = (
        simulate(tiny(name, hyper=hyper, eval_points=("post",)))
        for name, hyper in (("pfedsim", {"rho": 1}), ("fedavg", {}))
    )
    assert exact(sim) == exact(avg)


def test_fedavg_with_all_clients_and_full_batches_is_gradient_descent():
    """sum_i n_i/n (theta - eta grad L_i) = theta - eta grad L, L the loss on the pooled samples. Three clients of 1,
    2 and 5 samples."""
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(2, 8, dtype=torch.float64, generator=generator)
    model, method, parts = ToyModel(), algorithms.make("fedavg"), (slice(0, 1), slice(1, 3), slice(3, 8))
    server, _ = method.init(model, Setting(3, 4, 1))
    central = [value.clone().requires_grad_() for value in model.theta0.values()]
    for _ in range(4):
        clients = [ToyData([(x[p].tolist(), y[p].tolist())]) for p in parts]
        uploads = [
            method.client_update(model, method.download(server, i), {}, data)[0] for i, data in enumerate(clients)
        ]
        server = method.server_update(
            server, np.arange(3), tree.stack(uploads), np.array([data.num_samples for data in clients])
        )
        w, v, b = central
        loss = 0.5 * (v[0] * w * x + b - y).square().mean()
        central = [(p - 0.1 * g).detach().requires_grad_() for p, g in zip(central, torch.autograd.grad(loss, central))]
    close(server["theta"], dict(zip(model.theta0, central)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("hyper", [dict(), dict(phi="eq3"), dict(phi_self="eq3"), dict(phi_self=0.3)])
def test_pfedsim_client_without_positive_partner_keeps_its_extractor(dtype, hyper):
    """Bitwise; also beside partners whose numbers are huge."""
    model, method = set_up(tiny("pfedsim")).work.model, algorithms.make("pfedsim", rho=0, **hyper)
    server, _ = method.init(model, Setting(4, 4, 10))
    generator = torch.Generator().manual_seed(0)
    server["models"] = tree.map(
        lambda leaf: torch.randn(leaf.shape, generator=generator, dtype=dtype), server["models"]
    )
    server["models"] = tree.map(lambda leaf: leaf.index_fill(0, torch.tensor([0]), 1e30), server["models"])
    server["phi"][0, 1] = server["phi"][1, 0] = 0.7
    for i in (2, 3):
        assert same(method.download(server, i), tree.rows(server["models"], i))
    assert not same(method.download(server, 1), tree.rows(server["models"], 1))


@pytest.mark.parametrize(
    "hyper",
    [dict(), dict(phi="eq3"), dict(phi_refresh="one_fresh"), dict(phi_refresh="all", phi_bias=True), dict(max_age=1)],
)
def test_pfedsim_weights_are_a_mixture_and_phi_is_symmetric(hyper):
    """After every round of a real run: Phi symmetric bit for bit, unit diagonal, >= 0 (<= 1 under "reference");
    weights >= 0, sum 1."""
    spec = tiny("pfedsim", hyper={"rho": 0.25, **hyper}, num_clients=6, rounds=4)
    compared = 0
    for run, state, _ in played(spec):
        if state.warming_up:
            continue
        phi = state.server["phi"]
        assert torch.equal(phi, phi.T) and (phi.diagonal() == 1).all() and (phi >= 0).all()
        assert hyper.get("phi") == "eq3" or (phi <= 1).all()
        compared += int((torch.triu(phi, 1) > 0).sum())
        for i in range(6):
            weights = run.method.mixing_weights(state.server, [i])[0]
            assert (weights >= 0).all() and weights[i] > 0
            ones = {**state.server, "models": tree.map(torch.ones_like, state.server["models"])}
            close(
                tree.select(run.method.download(ones, i), "extractor."),
                tree.rows(tree.select(ones["models"], "extractor."), i),
                1e-6,
            )
    assert compared > 0


@pytest.mark.parametrize("hyper", [dict(), dict(phi="eq3", phi_refresh="one_fresh"), dict(max_age=1)])
def test_permuting_clients_permutes_pfedsim(hyper):
    """The server with client i called order[i] instead: three rounds, then the models, Phi and all downloads."""
    N, order = 5, torch.tensor([3, 0, 4, 1, 2])
    model, method = ToyModel(), algorithms.make("pfedsim", rho=0, **hyper)
    generator = torch.Generator().manual_seed(1)
    plain, renamed = (method.init(model, Setting(N, 4, 1))[0] for _ in range(2))
    for ids in ([0, 1, 2], [2, 3, 4], [1, 3, 4]):
        uploads = {
            name: torch.randn(3, *leaf.shape, dtype=leaf.dtype, generator=generator)
            for name, leaf in model.theta0.items()
        }
        plain = method.server_update(plain, np.array(ids), uploads, np.array([1, 2, 3]))
        names = order[ids]
        back = names.argsort()  # the engine hands over sorted ids
        renamed = method.server_update(
            renamed, names[back].numpy(), tree.rows(uploads, back), np.array([1, 2, 3])[back]
        )
    assert (torch.triu(plain["phi"], 1) > 0).sum() >= 2
    close((plain["phi"], plain["models"]), (renamed["phi"][order][:, order], tree.rows(renamed["models"], order)))
    for i in range(N):
        close(method.download(plain, i), method.download(renamed, int(order[i])))


# (c) ownership -------------------------------------------------------------------------------------------------------


ROWS = ("models", "extractors", "heads", "wanted", "v")  # what servers keep a row of for each client


def owned(state) -> dict:
    """What belongs to single clients, wherever it is kept: states, statistics, remembered uploads, stored models."""
    kept = {name: {"": state.server[name]} for name in ROWS if name in state.server}
    return {"clients": state.clients, "stats": state.stats, "uploads": state.uploads or {}, **kept}


def others_stayed(method: str, before: dict, after: dict, ids, num_clients: int) -> bool:
    """Whether rows of clients that did not take part are what they were, bit for bit; what clients train moved."""
    others = np.setdiff1d(np.arange(num_clients), ids)
    if before.keys() != after.keys():  # the warm-up is over
        return True
    for part in before:
        for (name, old), (_, new) in zip(tree.leaves(before[part]), tree.leaves(after[part]), strict=True):
            if not torch.equal(old[others], new[others]):
                return False
            # a bias before batch norm may well stay; FedBABU's head does
            trained = part in ("clients", "uploads", "models") and name in ("head.weight", "extractor.fc1.weight")
            if trained and (method, name) != ("fedbabu", "head.weight"):
                assert all(not torch.equal(old[i], new[i]) for i in ids), (part, name)
    return True


@pytest.mark.parametrize("method", METHODS)
def test_clients_stay_as_they_are_while_others_train_or_are_tested(method):
    """Testing at all points after every round changes nothing, nor does it change the numbers at the end."""
    spec, before = tiny(method, hyper=HYPER.get(method, {}), eval_points=POINTS[method]), None
    for _, state, ids in rounds_with_tests(spec, shorter):
        assert before is None or others_stayed(method, before, owned(state), ids, spec.num_clients)
        before = copy.deepcopy(owned(state))
    assert len(state.history) == spec.rounds * len(spec.eval_points)


@pytest.mark.parametrize("bn_stats", ["global", "reset"])
@pytest.mark.parametrize("method", METHODS)
def test_clients_stay_as_they_are_wherever_statistics_are_kept(method, bn_stats):
    before = None
    for run, state, ids in played(tiny(method, hyper=HYPER.get(method, {}), bn_stats=bn_stats), change=shorter):
        assert before is None or others_stayed(method, before, owned(state), ids, run.spec.num_clients)
        before = copy.deepcopy(owned(state))


@pytest.mark.parametrize("method", METHODS)
def test_inputs_are_not_modified(method):
    spec = tiny(method, num_clients=3, hyper=HYPER.get(method, {}))
    for before, after in rounds_that_leave_inputs_alone(shorter(set_up(spec)), 3):
        assert method == "local" or not same(before, after)


def test_fedper_heads_are_personal_and_the_extractor_is_shared():
    *_, (run, state, _) = played(tiny("fedper", join_ratio=1.0, rounds=2, bn_stats="global"))
    heads = state.clients["h"]["head.weight"]
    assert all(not torch.equal(heads[i], heads[j]) for i in range(4) for j in range(i))
    models = [
        run.method.personal_model(
            run.work.model, run.method.download(state.server, i), tree.rows(state.clients, i), None
        )
        for i in range(4)
    ]
    for name in run.work.model.theta0:
        equal = all(torch.equal(models[0][name], other[name]) for other in models[1:])
        assert equal == name.startswith("extractor."), name
    assert not torch.equal(models[0]["extractor.fc1.weight"], run.work.model.theta0["extractor.fc1.weight"])


def test_pfedsim_heads_change_only_when_their_client_trains():
    """Also on download: a client's head is its own, while its extractor is a mixture."""
    spec, before, seen = (
        tiny("pfedsim", hyper={"rho": 0.2, "phi_refresh": "all"}, rounds=6, num_clients=5, join_ratio=0.4),
        None,
        set(),
    )
    for run, state, ids in played(spec):
        models = state.server.get("models")
        if models is None:
            continue
        if before is not None:
            changed = {i for i in range(5) if not torch.equal(models["head.weight"][i], before[i])}
            assert changed == set(ids.tolist())
            seen |= changed
        before = models["head.weight"].clone()
        mixed = [run.method.download(state.server, i) for i in range(5)]
        assert all(
            torch.equal(mixed[i][name], models[name][i]) for i in range(5) for name in ("head.weight", "head.bias")
        )
    assert 2 <= len(seen) <= 5
    assert any(not torch.equal(mixed[i]["extractor.fc1.weight"], models["extractor.fc1.weight"][i]) for i in range(5))


def test_training_personalises_what_is_evaluated():
    """`post` of pFedSim and Local is the model that the client itself trained: it changes when its client trains,
    and not otherwise."""
    for method in ("local", "pfedsim"):
        before = None
        hyper = {"rho": 0} if method == "pfedsim" else {}
        for run, state, ids in played(tiny(method, hyper=hyper, rounds=4)):
            with torch.no_grad():
                _, loss = evaluate(run, state, "post")
            if before is not None:
                assert {int(i) for i in np.flatnonzero(loss != before)} == set(ids.tolist())
            before = loss


# (d) communication ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bn_stats", ["local", "global", "reset"])
@pytest.mark.parametrize(
    ("method", "sent"), [("local", None), ("fedavg", "model"), ("fedper", "extractor"), ("pfedsim", "model")]
)
def test_communication_is_the_closed_form(method, sent, bn_stats):
    """Per participant and round, down and up: Local 0, FedAvg and pFedSim nu_m, FedPer nu_f;
    under "global" 44 running statistics more.

    LeNet5-BN on 1x16x16 with 10 classes, by hand: conv1 156, bn1 12, conv2 2416, bn2 32, fc1 (4*4*16 = 256) 30840, fc2
    10164, head 850.
    """
    spec = tiny(method, bn_stats=bn_stats, num_clients=5, join_ratio=0.5, rounds=2)
    nu_f = 156 + 12 + 2416 + 32 + 120 * (256 + 1) + 10164
    per_message = {None: 0, "extractor": nu_f, "model": nu_f + 850}[sent] + (44 if sent and bn_stats == "global" else 0)
    floats = per_message * 2 * 2  # participants x rounds
    assert simulate(spec).communication == {way: {"floats": floats, "bytes": 4 * floats} for way in ("down", "up")}


def test_bytes_follow_the_precision():
    counted = simulate(tiny("fedavg", rounds=1, precision="float64")).communication["up"]
    assert counted["bytes"] == 8 * counted["floats"] > 0
