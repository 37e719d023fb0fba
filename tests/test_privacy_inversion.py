"""Gradient inversion: by hand where there is a formula, labels read off, digits recovered, noise in the way,
the same again from the seed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import images_of, same

from fedlib.attacks.inversion import COSINE, DLG, IDLG, Attack, infer_labels, invert, objective, signal, victim
from fedlib.attacks.scores import score
from fedlib.attacks.spec import attack_clients
from fedlib.base import tree
from fedlib.base.errors import BadValue
from fedlib.data import load
from fedlib.models import Model, build, sizes
from fedlib.models.parts import ExtractorHead
from fedlib.privacy.noise import Mechanism

DIGITS = load("digits")
FEW = np.array([[0], [37]])
QUICK = replace(IDLG, iterations=60, restarts=1)


def smooth(seed=0):
    return build("lenet_dlg", DIGITS.shape, 10, seed=seed)


def linear():
    """One linear layer on flattened digits, in float64."""
    torch.manual_seed(0)
    return Model(ExtractorHead(torch.nn.Flatten(), torch.nn.Linear(256, 10)).double())


def test_a_linear_layer_by_hand():
    """dL/dW[c] = (p_c - e_y,c) x and dL/db[c] = p_c - e_y,c: any row divided by its bias gradient is the image,
    whatever the class."""
    client = victim(linear(), DIGITS)
    u, y = images_of([11])
    g = signal(client, u, y)
    row = int(infer_labels(g))
    assert row == int(y)
    x = (g["head.weight"][row] / g["head.bias"][row]).view(u.shape)
    torch.testing.assert_close(x * client.std + client.mean, u)
    found = invert(client, tree.map(lambda leaf: leaf[None], g), DIGITS.shape, replace(IDLG, restarts=1))
    assert score(u[None], found.images)["psnr"].min() > 40


@pytest.mark.parametrize("name", ["lenet5", "mcmahan_cnn", "lenet_dlg"])
def test_the_label_of_a_single_image_is_read_off(name):
    client = victim(build(name, DIGITS.shape, 10, seed=3), DIGITS)
    u, y = images_of(range(20), torch.float32)
    signals = [signal(client, u[k : k + 1], y[k : k + 1]) for k in range(20)]
    assert len(y.unique()) == 10 and torch.equal(infer_labels(tree.stack(signals)), y)


@pytest.mark.parametrize("plan", [((0,),), ((0, 1, 2),), ((0, 1), (2,), (1, 2, 0))])
def test_the_attacker_simulates_what_the_client_does(plan):
    """One step of one image, of a batch, and several steps: the simulated signal is the client's,
    so that the true images reach objective 0."""
    client = victim(build("lenet5", DIGITS.shape, 10).to(torch.device("cpu"), torch.float64), DIGITS, plan=plan, lr=0.3)
    u, y = images_of([5, 100, 77][: client.images])
    g, logs = signal(client, u, y), torch.nn.functional.one_hot(y, 10).double().log()
    for match in ("l2", "cosine"):
        attack = Attack(match, "known", tv=0.0)
        assert float(objective(client, attack, u, logs, g)) == pytest.approx(0, abs=1e-12)
        assert float(objective(client, attack, 1 - u, logs, g)) > 0.01


def test_digits_are_recovered_and_noise_prevents_it():
    """The undefended attack succeeds for both images and two models (seeds); with DP-SGD at sigma 1 none comes near."""
    for seed in (0, 1):
        client = victim(smooth(seed), DIGITS)
        rows = attack_clients(client, DIGITS, FEW, QUICK, seed=seed)[2]
        assert all(row["psnr"] > 30 and row["ssim"] > 0.95 and row["success"] and row["label_right"] for row in rows)
    noisy = attack_clients(client, DIGITS, FEW, QUICK, [Mechanism("record", 1.0, 1.0)], seed=1)[2]
    assert all(row["psnr"] < 13 and not row["success"] for row in noisy)
    assert [row["sigma"] for row in noisy] == [1.0, 1.0] and noisy[0]["image"] == 0


def test_soft_labels_are_found_along_with_the_image():
    (row,) = attack_clients(victim(smooth(), DIGITS), DIGITS, FEW[1:], replace(DLG, iterations=60, restarts=1))[2]
    assert row["psnr"] > 25 and row["label_right"]


def test_cosine_matching_recovers_a_digit_from_a_network_with_relus_and_pooling():
    found, originals, rows = attack_clients(
        victim(build("mcmahan_cnn", DIGITS.shape, 10), DIGITS), DIGITS, FEW[:1], replace(COSINE, iterations=60)
    )
    assert rows[0]["ssim"] > 0.75 and rows[0]["label_right"]
    assert found.images.shape == originals.shape == (1, 1, 1, 16, 16)


def test_several_steps_and_several_images_with_known_labels():
    """Two images over three local steps."""
    client = victim(smooth(), DIGITS, plan=((0,), (1,), (0, 1)), lr=0.1)
    rows = attack_clients(client, DIGITS, np.array([[0, 37]]), replace(QUICK, labels="known", iterations=60))[2]
    assert len(rows) == 2 and all(row["psnr"] > 20 for row in rows)


def test_attacks_in_one_stack_are_the_attacks_on_their_own_and_the_same_again():
    client, attack = victim(smooth(), DIGITS), replace(COSINE, iterations=15, restarts=2)
    together, _, rows = attack_clients(client, DIGITS, FEW, attack, [Mechanism("client", 0.1, 1.0)], seed=4)
    alone, _, own = attack_clients(client, DIGITS, FEW[1:], attack, [Mechanism("client", 0.1, 1.0)], seed=4)
    assert own[0]["psnr"] == pytest.approx(rows[1]["psnr"], abs=0.5)
    again, _, rows_again = attack_clients(client, DIGITS, FEW[1:], attack, [Mechanism("client", 0.1, 1.0)], seed=4)
    assert same(alone.images, again.images) and own == rows_again
    assert not same(attack_clients(client, DIGITS, FEW[1:], attack, seed=5)[0].images, alone.images)


def test_several_mechanisms_in_one_stack_are_each_on_its_own():
    """Rows, pictures and originals come mechanism by mechanism."""
    client, attack = victim(smooth(), DIGITS), replace(COSINE, iterations=15)
    mechanisms = [Mechanism(), Mechanism("record", 0.0, 1.0), Mechanism("record", 1.0, 1.0)]
    found, originals, rows = attack_clients(client, DIGITS, FEW, attack, mechanisms, seed=4)
    assert [(row["image"], row["privacy"], row["sigma"]) for row in rows[::2]] == [
        (0, "none", 0.0),
        (0, "record", 0.0),
        (0, "record", 1.0),
    ]
    for k, mechanism in enumerate(mechanisms):
        alone, own, own_rows = attack_clients(client, DIGITS, FEW, attack, [mechanism], seed=4)
        assert same(originals[2 * k : 2 * k + 2], own)
        assert [row["psnr"] for row in rows[2 * k : 2 * k + 2]] == pytest.approx(
            [row["psnr"] for row in own_rows], abs=0.5
        )


def test_of_several_restarts_the_lowest_objective_is_kept():
    client = victim(smooth(), DIGITS)
    u, y = images_of([0], torch.float32)
    g, attack = tree.stack([signal(client, u, y)]), replace(COSINE, iterations=6, restarts=1)
    reached = [float(invert(client, g, DIGITS.shape, replace(attack, restarts=R)).objective) for R in (1, 2, 4)]
    assert reached[0] >= reached[1] >= reached[2]


def test_scores_by_hand():
    """A constant error of 0.1: MSE 0.01, PSNR 20 dB; images of a batch are matched in the best order;
    equal ones have SSIM 1."""
    g = torch.Generator().manual_seed(0)
    true = torch.rand(1, 2, 3, 16, 16, generator=g).double() * 0.8
    out = score(true, (true + 0.1).flip(1))
    np.testing.assert_allclose(out["mse"], 0.01)
    np.testing.assert_allclose(out["psnr"], 20.0)
    assert out["order"].tolist() == [[1, 0]] and (out["ssim"] < 1).all()
    equal = score(true, true)
    assert np.isinf(equal["psnr"]).all() and equal["ssim"] == pytest.approx(1)
    assert np.isnan(score(true[..., :8, :8], true[..., :8, :8])["ssim"]).all()


@pytest.mark.parametrize("kind", ["record", "client", "unclipped", "unclipped_relative"])
def test_noise_of_every_mechanism_reaches_the_signal(kind):
    client = victim(smooth(), DIGITS)
    u, y = images_of([0], torch.float32)
    clean = signal(client, u, y)
    noisy, same_draw, other = (signal(client, u, y, Mechanism(kind, 0.5), 0, number) for number in (1, 1, 2))
    assert same(noisy, same_draw) and not same(noisy, other) and not same(noisy, clean)
    assert same(signal(client, u, y, Mechanism("unclipped", 0.0)), clean)


def test_the_network_of_dlg():
    assert sizes("lenet_dlg", (3, 32, 32), 10)["model"] == 912 + 2 * 3612 + 7690
    assert max(float(leaf.abs().max()) for leaf in smooth().theta0.values()) <= 0.5


def test_what_is_refused():
    with pytest.raises(BadValue, match="batch norm"):
        victim(build("lenet5_bn", DIGITS.shape, 10), DIGITS)
    with pytest.raises(BadValue, match="plan"):
        victim(smooth(), DIGITS, plan=((0,), ()))
    with pytest.raises(BadValue, match="l1"):
        Attack("l1")
    pair = victim(smooth(), DIGITS, plan=((0, 1),))
    with pytest.raises(BadValue, match="joint or known"):
        attack_clients(pair, DIGITS, np.array([[0, 1]]), IDLG)
    with pytest.raises(BadValue, match=r"indices = \(2, 1\)"):
        attack_clients(pair, DIGITS, FEW, replace(IDLG, labels="known"))
