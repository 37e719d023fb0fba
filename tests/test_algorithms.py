"""FedAvg, Local, FedPer and pFedSim against their definitions: steps by hand, reductions to simpler methods, heads."""

from __future__ import annotations

from math import log

import numpy as np
import pytest
import torch
from helpers import METHODS, ToyData, ToyModel, close, played, same, theta, tiny

from fedlib import algorithms
from fedlib.algorithms.api import Setting
from fedlib.base import tree
from fedlib.base.errors import BadValue
from fedlib.engine.setup import set_up

A = ToyData([([1.0], [-2.0])])  # one minibatch of one sample
B = ToyData([([-1.0], [1.5]), ([1.0], [-2.12])])  # two minibatches
B_MIRRORED = ToyData([([1.0], [1.5]), ([-1.0], [-2.12])])  # gives for -w what B gives for w
AFTER_A, AFTER_B = theta(2.05, -1.1, 0.45), theta(1.98, -0.99, 0.3)
# sample numbers given to the server; not those of A and B, so that the weights are seen to come from here
N_AB = np.array([1, 3])


# (a) steps by hand ----------------------------------------------------------------------------------------------------


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
    server, clients = method.switch_phase(model, setting, {"theta": theta(1.9975, -1.0175, 0.3375)}, {}, None)
    close(server["models"], tree.repeat(theta(1.9975, -1.0175, 0.3375), 3))
    assert torch.equal(server["phi"], torch.eye(3, dtype=torch.float64))
    assert method.eval_points(server) == ("post", "agg")
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


def test_unknown_methods_and_hyper_parameters_name_the_nearest():
    with pytest.raises(BadValue, match="fedavg"):
        algorithms.make("fedagv")
    with pytest.raises(BadValue, match="phi_self"):
        algorithms.make("pfedsim", phi_slef=1)
    assert algorithms.names() == sorted(METHODS)


# (b) reductions -------------------------------------------------------------------------------------------------------


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


# (c) ownership --------------------------------------------------------------------------------------------------------
