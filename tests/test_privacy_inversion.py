"""Gradient inversion: by hand where there is a formula, labels read off, digits recovered, noise in the way, the same
again from the seed; attackers who know the noise or have seen several uploads, victims that are trained; ST-LPIPS."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import analysed, close, same, signs
from torch.nn import functional

from fedlib.attacks import perceptual
from fedlib.attacks import spec as attack_specs
from fedlib.attacks.inversion import (
    COSINE,
    DLG,
    IDLG,
    LIKELIHOOD,
    Attack,
    attack_clients,
    infer_labels,
    invert,
    noise_of,
    objective,
    roughness,
    score,
    signal,
    victim,
)
from fedlib.attacks.spec import AttackSpec
from fedlib.base import tree
from fedlib.base.errors import BadValue, FedlibError
from fedlib.data import load
from fedlib.engine.result import RunResult
from fedlib.experiments import find
from fedlib.models import Model, build, sizes
from fedlib.models.parts import ExtractorHead
from fedlib.privacy.accounting import epsilon
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


def images_of(indices, dtype=torch.float64):
    return DIGITS.images[indices].to(dtype).div(255), DIGITS.labels[indices]


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


# who knows more, and trained victims ----------------------------------------------------------------------------------

CPU = torch.device("cpu")
ITEM = "pfedsv/fig11_attackers"


def doubles(plan=((0,),), theta=None, **options):
    """LeNet-5 in float64 as a victim."""
    model = build("lenet5", DIGITS.shape, 10).to(CPU, torch.float64)
    return victim(model, DIGITS, theta, plan=plan, **options)


def logs_of(y):
    return functional.one_hot(y, 10).double().log()


# ids and fields -------------------------------------------------------------------------------------------------------


def test_new_fields_are_in_the_id_where_they_are_not_at_their_default():
    base = AttackSpec(network="mcmahan_cnn")
    changes = [{"model_options": {"padding": "same"}}, {"trained": 1}, {"uploads": 2}, {"uploads": 2, "apart": 1}]
    specs = [base, *(AttackSpec(network="mcmahan_cnn", **change) for change in changes)]
    assert len({spec.id for spec in specs}) == 5
    assert [{*spec.to_dict()} - {*base.to_dict()} for spec in specs] == [set(), *map(set, changes)]
    assert all(AttackSpec.from_dict(spec.to_dict()) == spec for spec in specs)
    assert AttackSpec(network="mcmahan_cnn", model_options={"padding": "valid"}).id == base.id


@pytest.mark.parametrize(("fields", "said"), [
    ({"uploads": 0}, "uploads = 0 .* at least 1"),
    ({"trained": -1}, "trained = -1"),
    ({"apart": 2}, "apart = 2 .* 0 where there is one upload"),
    ({"network": "mcmahan_cnn", "model_options": {"padding": "big"}}, "padding"),
    ({"model_options": {"depth": 2}}, "depth"),
    ({"attack": {"match": "likelihood"}}, "defences = 'none' .* sigma above 0"),
    ({"attack": {"match": "likelihood"}, "defences": {"clip": {"kind": "record"}}}, "defences = 'clip'"),
])  # fmt: skip
def test_what_a_spec_refuses(fields, said):
    with pytest.raises(BadValue, match=said):
        AttackSpec(**fields)


def test_a_likelihood_needs_the_noise():
    client = doubles()
    g = tree.stack([signal(client, *images_of([3]))])
    with pytest.raises(BadValue, match="noise = None"):
        invert(client, g, DIGITS.shape, LIKELIHOOD)
    with pytest.raises(BadValue, match="a std above 0 for the match 'likelihood'; without noise use 'cosine'"):
        attack_clients(client, DIGITS, np.array([[3]]), LIKELIHOOD, [Mechanism("record", 0.0, 1.0)])


# who knows the noise --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("plan", [((0,),), ((0, 1, 2),), ((0, 1), (2,), (1, 2, 0))])
@pytest.mark.parametrize("clip", [0.5, 100.0])
def test_the_attacker_clips_as_the_client_does(plan, clip):
    """The simulated signal is that of DP-SGD without its noise, whether or not the bound cuts anything."""
    client = doubles(plan, lr=0.3)
    u, y = images_of([5, 100, 77][: client.images])
    h = client.steps(u, functional.one_hot(y, 10).double(), torch.tensor(clip))
    close(h, signal(client, u, y, Mechanism("record", 0.0, clip)))


def test_the_likelihood_by_hand():
    """Minus the logarithm of the noise's density at g - h(u), and of exp(-n TV/TV(data)), over n/TV(data)."""
    client, s = doubles(), 0.02
    (u, y), mechanism = images_of([11]), Mechanism("record", s, 1.0)
    g, noise = signal(client, u, y, mechanism), tree.rows(noise_of(client, [mechanism]), 0)
    assert float(noise["std"]) == pytest.approx(s) and float(noise["clip"]) == 1.0
    gaussian = torch.distributions.Normal(*torch.tensor([0.0, s], dtype=torch.float64))

    def minus_log(image):
        h = client.steps(image, functional.one_hot(y, 10).double(), torch.tensor(1.0))
        density = sum(float(gaussian.log_prob(g[name] - h[name]).sum()) for name in g)
        return -density + image.numel() * float(roughness(image)) / client.rough

    def ours(image):
        return float(objective(client, LIKELIHOOD, image, logs_of(y), g, noise)) * u.numel() / client.rough

    other = images_of([40])[0]
    assert ours(other) - ours(u) == pytest.approx(minus_log(other) - minus_log(u), rel=1e-9)
    assert client.rough == pytest.approx(float(roughness(DIGITS.images[:1000].double() / 255)), rel=1e-6)


def test_of_clipped_gradients_the_likelihood_is_the_cosine():
    """‖h‖ = G for both images, so that the first term is -G ‖g‖/s² cos, up to a constant."""
    client, mechanism = doubles(), Mechanism("record", 0.05, 0.1)
    u, y = images_of([11])
    g, noise = signal(client, u, y, mechanism), tree.rows(noise_of(client, [mechanism]), 0)
    flat, other = replace(LIKELIHOOD, tv=0.0), images_of([40])[0]
    logs, s = logs_of(y), 0.05 * 0.1
    a, b = (float(objective(client, flat, image, logs, g, noise)) * 256 / client.rough for image in (other, u))
    far, near = (float(objective(client, replace(COSINE, tv=0.0), image, logs, g)) for image in (other, u))
    assert a - b == pytest.approx((far - near) * 0.1 * float(tree.dot(g, g)) ** 0.5 / s**2, rel=1e-9)


@pytest.mark.parametrize(("plan", "uploads"), [(((0,),), 1), (((0, 1, 2, 3),), 1), (((0, 1), (2,)), 4)])
def test_the_noise_that_is_known_is_that_of_the_signals(plan, uploads):
    """Measured over all numbers of a signal; with a tiny learning rate, so that it does not move later steps."""
    client, mechanism = doubles(plan, lr=1e-9), Mechanism("record", 0.3, 2.0)
    u, y = images_of(list(range(client.images)))
    clean = signal(client, u, y, Mechanism("record", 0.0, 2.0))
    noisy = [signal(client, u, y, mechanism, 0, 5, upload) for upload in range(uploads)]
    off = torch.cat([sum(own[name] for own in noisy).div(uploads).sub(clean[name]).flatten() for name in clean])
    assert float(off.std()) == pytest.approx(float(noise_of(client, [mechanism], uploads)["std"]), rel=0.03)


# who has seen more ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["record", "client"])
def test_every_upload_has_noise_of_its_own(kind):
    client, (u, y), mechanism = doubles(), images_of([0]), Mechanism(kind, 0.5)
    first, again, second = (signal(client, u, y, mechanism, 0, 1, *more) for more in ((), (0,), (1,)))
    assert same(first, again) and not same(first, second)


def test_averaging_is_what_the_accounting_counts():
    """20 uploads at σ guarantee as much as one at σ/√20."""
    assert epsilon(1.0, 1, 20, bound="exact") == pytest.approx(epsilon(1 / 20**0.5, 1, 1, bound="exact"))


def test_uploads_from_other_weights_are_added_up():
    """The cosine objective of two uploads is the mean of theirs, a likelihood their sum; smoothness counts once."""
    first = doubles()
    second = replace(first, theta={name: 0.9 * leaf for name, leaf in first.theta.items()})
    (u, y), other, logs = images_of([8]), images_of([9])[0], logs_of(images_of([8])[1])
    mechanism = Mechanism("record", 0.01)
    noise = tree.rows(noise_of(first, [mechanism]), 0)
    pairs = [(own, signal(own, u, y, mechanism, 0, 0, k)) for k, own in enumerate((first, second))]
    for attack, share in ((replace(COSINE, tv=0.0), 0.5), (replace(LIKELIHOOD, tv=0.0), 1.0)):
        each = [float(objective(own, attack, other, logs, g, noise)) for own, g in pairs]
        both = objective(first, attack, other, logs, pairs[0][1], noise, pairs[1:])
        assert float(both) == pytest.approx(share * sum(each), rel=1e-12) and each[0] != each[1]
        smooth = replace(attack, tv=2.0)
        added = objective(first, smooth, other, logs, pairs[0][1], noise, pairs[1:]) - both
        assert float(added) == pytest.approx(2 * float(roughness(other)), rel=1e-9)


def test_more_uploads_give_nearer_images():
    """Two digits through noise in which one upload shows nothing; averaged, and from other weights."""
    client = victim(build("lenet_dlg", DIGITS.shape, 10), DIGITS)
    moved = {name: 0.98 * leaf for name, leaf in client.theta.items()}
    attack, noise, few = replace(COSINE, iterations=60), [Mechanism("record", 0.02)], np.array([[0], [37]])

    def psnr(attack=attack, **more):
        return np.mean([row["psnr"] for row in attack_clients(client, DIGITS, few, attack, noise, **more)[2]])

    one, averaged = psnr(), psnr(uploads=50)
    known, elsewhere = psnr(replace(LIKELIHOOD, iterations=60), uploads=50), psnr(later=[replace(client, theta=moved)])
    assert averaged > one + 4 and known > one + 4 and elsewhere > one + 0.5, (one, averaged, known, elsewhere)


# trained networks -----------------------------------------------------------------------------------------------------


def test_a_round_of_fedavg_by_hand(monkeypatch):
    """Two clients with plain PyTorch: one epoch of SGD each from the common parameters, then the weighted mean."""
    monkeypatch.setattr(attack_specs, "CLIENTS", 2)
    monkeypatch.setattr(attack_specs, "IMAGES", 75)
    attacked, model = np.array([3, 800, 1500]), build("lenet5", DIGITS.shape, 10, seed=4).to(CPU, torch.float64)
    parts = attack_specs.shares(len(DIGITS.labels), attacked, 4)
    assert [len(part) for part in parts] == [38, 37] and len({*parts[0], *parts[1]}) == 75
    assert {3, 1500} <= {*parts[0]} and 800 in parts[1]
    (mean, std), ends = DIGITS.channel_stats, []
    for k, part in enumerate(parts):
        net = copy.deepcopy(model.module)
        net.load_state_dict(model.theta0)
        sgd = torch.optim.SGD(net.parameters(), lr=0.1)
        order = attack_specs.rng(4, "batches of a trained network", 1, k).permutation(part)
        for rows in (order[:32], order[32:]):
            x = (DIGITS.images[rows].double() / 255 - mean) / std
            sgd.zero_grad()
            functional.cross_entropy(net(x), DIGITS.labels[rows]).backward()
            sgd.step()
        ends.append({name: leaf.detach() for name, leaf in net.named_parameters()})
    every = attack_specs.rounds_of_fedavg(model, DIGITS, attacked, 0.1, 4)
    assert same(next(every), model.theta0)
    after = next(every)
    for name in after:
        torch.testing.assert_close(after[name], 38 / 75 * ends[0][name] + 37 / 75 * ends[1][name], rtol=0, atol=1e-7)


def test_the_network_of_a_victim_is_trained_and_the_same_again():
    spec = AttackSpec(network="lenet5", images=40, trained=8, uploads=2, apart=2)
    (first, second), right = spec.victims()
    attack_specs.after_rounds.cache_clear()
    again, _ = spec.victims()
    assert same(first.theta, again[0].theta) and not same(first.theta, second.theta)
    assert len(right) == 2 and min(right) >= 0.5, right
    untrained, wrong = AttackSpec(network="lenet5", images=40, uploads=2).victims()
    assert len(untrained) == 1 and same(untrained[0].theta, build("lenet5", DIGITS.shape, 10, seed=0).theta0)
    assert wrong[0] <= 0.25, wrong


# the item -------------------------------------------------------------------------------------------------------------


def made(psnr):
    """A function from key and spec to a result in which an attack under a defence has this PSNR."""

    def result(key, spec):
        rows = [
            {"defence": name, "image": k, "sigma": how["sigma"], "psnr": (v := psnr(key[0], name)), "ssim": 0.5,
             "success": v >= 20, "label_right": True}
            for name, how in spec.defences.items() for k in range(spec.images)
        ]  # fmt: skip
        images = np.zeros((1, 1, 1, 16, 16), dtype=np.uint8).repeat(len(spec.defences), 0)
        arrays = {"recovered": images, "originals": images[0], **spec.guesses()}
        return RunResult(spec, "finished", rows, arrays=arrays)

    return result


def test_the_claims_on_results_that_agree_with_them_and_on_others():
    as_claimed = {"trained network": 15, "batch of 4": 15, "batch of 16": 12, "knows σ": 16, "uploads of 4 rounds": 17,
                  "many uploads of the same weights": 19}  # fmt: skip

    def agreeing(attack, defence):
        if defence in ("σ = 1", "σ = 0.1"):
            return 8
        return as_claimed.get(attack, 15 if defence == "σ = 0.01" else 26)

    def opposite(attack, defence):
        if defence == "none":
            return {"padding": 15, "4 steps, 4 images": 15}.get(attack, 26)
        return {"padding": 24}.get(attack, 22)

    right, wrong = (analysed(ITEM, made(psnr)) for psnr in (agreeing, opposite))
    assert signs(ITEM, right) == "+++++++++" and signs(ITEM, wrong) == "---------"
    near = analysed(ITEM, made(lambda attack, defence: 19 if defence == "σ = 0.1" else agreeing(attack, defence)))
    assert signs(ITEM, near)[4:6] == "+-"  # nothing is recovered, but the mean image is no better
    row = right["compare"].set_index(["attack", "defence"]).loc[("padding", "none")]
    assert row["ours: share with PSNR of at least 20 dB"] == "1.00 (n=12)"
    assert row["share with PSNR of at least 25 dB"] == "1.00"
    wide = right["compare"].set_index(["attack", "defence"]).loc[("batch of 16", "σ = 1"), "victim and attacker"]
    assert wide == "mcmahan_cnn, half width, padded, untrained, batch 16, local steps 1, cosine"


def test_every_evidence_says_what_it_is_about():
    tables = analysed(ITEM, made(lambda attack, defence: 15))
    for claim in find(ITEM).claims:
        evidence = claim.check(tables).evidence
        for word in ("mcmahan_cnn, half width", "padded", "trained", "batch", "local steps", "cosine", "n = "):
            assert word in evidence, (claim.text, word)


# ST-LPIPS -------------------------------------------------------------------------------------------------------------

computed = pytest.mark.skipif(
    not perceptual.can_be_computed(),
    reason="ST-LPIPS IS NOT INSTALLED: it was NOT tested; pip install 'fedlib[attack]'",
)


def digits(n: int) -> np.ndarray:
    return load("digits").images[:n].float().div(255).numpy()


@computed
def test_equal_pictures_have_no_distance_and_noise_adds_to_it():
    images, noise = digits(12), np.random.default_rng(0).normal(size=(12, 1, 16, 16)).astype("float32")
    assert not perceptual.distances(images, images).any()
    means = [perceptual.distances(images, (images + s * noise).clip(0, 1)).mean() for s in (0.01, 0.05, 0.2, 0.8)]
    assert all(b > 1.2 * a for a, b in zip(means, means[1:])) and 0 < means[0] < 0.05 and 0.5 < means[-1] < 1.5


@computed
def test_a_shift_of_a_pixel_matters_less_than_noise_of_the_same_error():
    """What the measure is for, and what needs its trained weights: by PSNR the two are equal."""
    images, rng = digits(30), np.random.default_rng(0)
    shifted = np.roll(images, 1, -1)
    noise = rng.permuted(shifted - images, axis=-1)  # the same differences elsewhere
    near, far = perceptual.distances(images, shifted), perceptual.distances(images, images + noise)
    assert (near < far).all() and near.mean() < 0.5 * far.mean()


@computed
def test_pictures_do_not_influence_each_other_and_grey_is_three_equal_channels(monkeypatch):
    images = torch.from_numpy(digits(7))
    whole = perceptual.distances(images, images.flip(0))
    assert whole.shape == (7,) and whole.dtype == np.float64
    monkeypatch.setattr(perceptual, "AT_ONCE", 3)
    np.testing.assert_allclose(perceptual.distances(images, images.flip(0)), whole, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(
        perceptual.distances(images.expand(-1, 3, -1, -1), images.flip(0).expand(-1, 3, -1, -1)),
        whole,
        rtol=1e-4,
        atol=1e-6,
    )


@computed
@pytest.mark.parametrize(
    ("a", "b"), [((2, 1, 16, 16), (3, 1, 16, 16)), ((2, 2, 16, 16),) * 2, ((1, 16, 16),) * 2, ((0, 1, 16, 16),) * 2]
)
def test_other_shapes_are_refused(a, b):
    with pytest.raises(BadValue, match="shapes"):
        perceptual.distances(np.zeros(a), np.zeros(b))


# where the extra is not installed -------------------------------------------------------------------------------------


@pytest.fixture
def absent(monkeypatch):
    monkeypatch.setattr(perceptual, "NEEDED", ("stlpips_pytorch", "a_package_that_nobody_has"))


def attacked() -> tuple:
    """Figure 11 and its tables, of the smallest run of its main attack."""
    item = find("pfedsv/fig11_inversion")
    settings = item.settings["smoke"]
    (run,) = [(key, spec) for key, spec in item.runs(settings).items() if key[0] == "cosine"]
    rows, arrays = run[1].carry_out()
    tables = item.analyse(settings, {run[0]: RunResult(run[1], "finished", rows, arrays=arrays)})
    return item.figure(tables).subfigs[1].axes, tables


def test_one_line_says_what_to_install(absent):
    with pytest.raises(FedlibError, match=r"^ST-LPIPS needs .*: pip install 'fedlib\[attack\]'$"):
        perceptual.distances(np.zeros((1, 1, 8, 8)), np.zeros((1, 1, 8, 8)))


def test_an_attack_goes_without_and_the_figure_says_so(absent):
    axes, tables = attacked()
    assert "lpips" not in tables["tidy"] and tables["tidy"]["psnr"].notna().all()
    assert set(tables["compare"]["ST-LPIPS"]) == {"not computed"}
    assert [text.get_text() for text in axes[2].texts] == ["not computed: needs fedlib[attack]"]
    assert np.isnan(axes[2].lines[0].get_ydata()).all() and not np.isnan(axes[1].lines[0].get_ydata()).any()


@computed
def test_with_it_the_figure_has_its_panel():
    axes, tables = attacked()
    assert tables["tidy"]["lpips"].between(0, 2).all() and "not computed" not in set(tables["compare"]["ST-LPIPS"])
    assert not axes[2].texts and not np.isnan(axes[2].lines[0].get_ydata()).any()
