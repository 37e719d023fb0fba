"""Attackers who know the noise or have seen several uploads, and victims that are trained: by hand where there is a
formula; the ids of earlier attacks stay."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import analysed, close, images_of, same, signs
from torch.nn import functional

from fedlib.attacks import spec as attack_specs
from fedlib.attacks.inversion import COSINE, LIKELIHOOD, invert, noise_of, objective, roughness, signal, victim
from fedlib.attacks.spec import AttackSpec, attack_clients
from fedlib.base import tree
from fedlib.base.errors import BadValue
from fedlib.data import load
from fedlib.engine.result import RunResult
from fedlib.experiments import OpenItem, find
from fedlib.models import build
from fedlib.privacy.accounting import epsilon
from fedlib.privacy.noise import Mechanism

DIGITS, CPU = load("digits"), torch.device("cpu")
ITEM = "pfedsv/fig11_attackers"
EARLIER = {  # the first eight digits of the ids that Figure 11 had before attacks got more fields
    "smoke": "0e7d64e8 01359db0 945a9be3 7fb2a4e8 613097f7",
    "quick": "e9415582 c9b51641 626c856a 463d6344 edd03751 7eb66465 3a168128 b93daba0 3455d74d 2a03f374 b6874c39 "
    "422a9c05 e81b9092 75fc133f 56c39d82",
    "paper": "e02eb8ae e9e821c1 cf9ffe89 cf4d723e 5119ef2c e2a797bd fdc2226e 53ab9083 5015acbd b49a04f6 ce7a0f3b "
    "1460b210 6cce6b61 fe532da3 930be3ff",
}


def doubles(plan=((0,),), theta=None, **options):
    """LeNet-5 in float64 as a victim."""
    model = build("lenet5", DIGITS.shape, 10).to(CPU, torch.float64)
    return victim(model, DIGITS, theta, plan=plan, **options)


def logs_of(y):
    return functional.one_hot(y, 10).double().log()


# ids and fields -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", EARLIER)
def test_the_ids_of_earlier_attacks_stay(profile):
    specs = OpenItem(find("pfedsv/fig11_inversion"), profile).specs
    assert " ".join(spec.id[:8] for spec in specs) == EARLIER[profile]


def test_new_fields_are_in_the_id_where_they_are_not_at_their_default():
    base = AttackSpec(network="mcmahan_cnn")
    changes = [{"model_options": {"padding": "same"}}, {"trained": 1}, {"uploads": 2}, {"uploads": 2, "apart": 1}]
    specs = [base, *(AttackSpec(network="mcmahan_cnn", **change) for change in changes)]
    assert len({spec.id for spec in specs}) == 5
    assert [{*spec.to_dict()} - {*base.to_dict()} for spec in specs] == [set(), *map(set, changes)]
    assert all(AttackSpec.from_dict(spec.to_dict()) == spec for spec in specs)
    assert AttackSpec(network="mcmahan_cnn", model_options={"padding": "valid"}).id == base.id
    one, same = (AttackSpec(attack={"tv": 1}, defences={"a": {"kind": "record", "sigma": n}}) for n in (1, 1.0))
    assert one.id == same.id


@pytest.mark.parametrize(("fields", "said"), [
    ({"uploads": 0}, "uploads = 0 .* at least 1"),
    ({"trained": -1}, "trained = -1"),
    ({"apart": 2}, "apart = 2 .* 0 where there is one upload"),
    ({"network": "mcmahan_cnn", "model_options": {"padding": "big"}}, "padding"),
    ({"model_options": {"depth": 2}}, "depth"),
    ({"attack": {"foo": 1}}, "unknown field of attack 'foo'; accepted: match"),
    ({"attack": {"iterations": 2.5}}, "iterations = 2.5 .* an integer"),
    ({"defences": {"a": {"foo": 1}}}, "unknown field of a defence 'foo'; accepted: kind"),
    ({"plan": ((-1,),)}, "plan = .* from 0 on"),
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
    as_claimed = {"trained CNN": 15, "batch of 4": 15, "batch of 16": 12, "knows σ": 16, "uploads of 4 rounds": 17,
                  "many uploads from the same weights": 19}  # fmt: skip

    def agreeing(attack, defence):
        if defence in ("σ = 1", "σ = 0.1"):
            return 8
        return as_claimed.get(attack, 15 if defence == "σ = 0.01" else 26)

    def opposite(attack, defence):
        if defence == "none":
            return {"CNN with padding": 15, "4 local steps, 4 images": 15}.get(attack, 26)
        return {"CNN with padding": 24}.get(attack, 22)

    right, wrong = (analysed(ITEM, made(psnr)) for psnr in (agreeing, opposite))
    assert signs(ITEM, right) == "+++++++++" and signs(ITEM, wrong) == "---------"
    near = analysed(ITEM, made(lambda attack, defence: 19 if defence == "σ = 0.1" else agreeing(attack, defence)))
    assert signs(ITEM, near)[4:6] == "+-"  # nothing is recovered, but the mean image is no better
    row = right["compare"].set_index(["victim or attacker", "defence"]).loc[("CNN with padding", "none")]
    assert row["ours: share with PSNR of at least 20 dB"] == "1.00 (12 images)"
    assert row["share with PSNR of at least 25 dB"] == "1.00"
    wide = right["compare"].set_index(["victim or attacker", "defence"]).loc[("batch of 16", "σ = 1"), "in full"]
    assert wide == "mcmahan_cnn, half width, padded, untrained, batch 16, local steps 1, cosine"


def test_every_evidence_says_what_it_is_about():
    tables = analysed(ITEM, made(lambda attack, defence: 15))
    for claim in find(ITEM).claims:
        evidence = claim.check(tables).evidence
        for word in ("mcmahan_cnn, half width", "padded", "trained", "batch", "local steps", "cosine", "n = "):
            assert word in evidence, (claim.text, word)
