"""pFedSim against its definition: phases, similarities, weights, a reduction; names of methods. FedAvg's, FedPer's and
pFedSim's steps are done by hand in lessons 2, 4 and 10."""

from __future__ import annotations

from math import log

import numpy as np
import pytest
import torch
from helpers import METHODS, ToyModel, close, played, same, theta, tiny

from fedlib import algorithms
from fedlib.algorithms.api import Setting
from fedlib.base import tree
from fedlib.base.errors import BadValue
from fedlib.engine.setup import set_up

N_AB = np.array([1, 3])  # sample numbers given to the server


# phases ---------------------------------------------------------------------------------------------------------------


def test_pfedsim_goes_on_from_the_global_model():
    """T_g = 2 of T = 4 rounds: every client's stored model is FedAvg's, as trained last in round 2."""
    model, method, found = ToyModel(), algorithms.make("pfedsim", rho=0.5), theta(1.9975, -1.0175, 0.3375)
    server, clients = method.switch_phase(model, Setting(3, 4, 1), {"theta": found}, {}, None)
    close(server["models"], tree.repeat(found, 3))
    assert clients == {} and server["round"] == 2 and server["trained"].tolist() == [2, 2, 2]
    assert method.eval_points(server) == ("post", "agg")


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


# similarities and weights by hand -------------------------------------------------------------------------------------


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


def test_pfedsim_parallel_heads_have_a_finite_similarity():
    """Eq. 3 takes 1e-8 in place of 1 - cos = 0."""
    server = server_with([[[1.1]], [[0.99]]], torch.eye(2))
    phi = algorithms.make("pfedsim", rho=0, phi="eq3").server_update(server, [0, 1], server["models"], N_AB)["phi"]
    assert float(phi[0, 1]) == pytest.approx(-log(1e-8), abs=1e-7)


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


# reductions -----------------------------------------------------------------------------------------------------------


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
