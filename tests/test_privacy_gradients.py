"""What DP-SGD is charged: the noisy gradients that are really taken, and what leaves in another way."""

from __future__ import annotations

import dataclasses
from collections import Counter
from math import inf

import numpy as np
import pytest
import torch
from helpers import HYPER, METHODS, played, same, tiny

from fedlib.algorithms.fedavg import FedAvg
from fedlib.algorithms.parts.passes import local_sgd
from fedlib.base.draws import participants
from fedlib.base.errors import BadValue
from fedlib.engine import privacy_budget
from fedlib.engine.client_data import PlainData
from fedlib.engine.privacy_budget import budgets, not_protected
from fedlib.engine.simulate import simulate
from fedlib.experiments.pfedsv.accounting import in_words, spent
from fedlib.privacy.accounting import epsilon
from fedlib.privacy.noise import PrivateGradient

SMALL = dict(model="lenet5", privacy="record", noise_sigma=0.5, batch_size=16, rounds=4, eval_every=4, images=500)
REFUSED = ("feddyn", "perfedavg", "fedem")
OTHER_OPTIONS = {  # by method, besides its defaults
    "fedper": [{"head_epochs": 2}],
    "fedrep": [{"E_h": 3, "E_f": 2}, {"E_h": 0}],
    "fedpac": [{"head_inside": False, "head_epochs": 2}],
    "fedsimsup": [{}, {"tau_s": 0, "tau_theta": 2}],
    "pfedcs": [{"E_ft": 3, "beta": 0.75}, {"select": "none"}, {"select": "twin"}, {"role": "start"}],
    "pfedme": [{}, {"K": 1}],
    "pfedsim": [{"rho": 1.0}],
    "ffedap": [{"rho": 0.0}, {"rho": 1.0}],
}
CASES = [(m, h, E) for m in METHODS for h in (HYPER.get(m, {}), *OTHER_OPTIONS.get(m, ())) for E in (1, 2)]
CASES = [case for case in CASES if case[0] not in REFUSED]


def spec_of(method, hyper, E=1, **changes):
    return tiny(method, hyper=hyper, local_epochs=E, **SMALL | changes)


def taken_in(spec, monkeypatch) -> list[int]:
    """Noisy gradients by client, counted where the noise is drawn."""
    taken, usual = Counter(), PlainData._private_gradient

    def counting(data, phase, step):
        private = usual(data, phase, step)

        def normal(count):
            taken[data.turn.draw[2]] += 1
            return private.normal(count)

        return dataclasses.replace(private, normal=normal)

    monkeypatch.setattr(PlainData, "_private_gradient", counting)
    for _ in played(spec):
        pass
    return [taken[i] for i in range(spec.num_members)]


def noisy_gradients(spec):
    """Noisy gradients that every member states for all its rounds, int64 [N]."""
    sizes = privacy_budget._training_sizes(spec, None)
    each_round = [stated.passes * stated.gradients for stated in privacy_budget._stated(spec)]
    there = np.zeros((spec.rounds, spec.num_members), dtype=int)
    for t, row in enumerate(there, 1):
        row[participants(spec.seed, t, spec.num_members, spec.join_ratio)] = 1
    return np.array([-(-size // spec.batch_size) for size in sizes]) * (each_round @ there)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(("method", "hyper", "E"), CASES)
def test_what_is_charged_is_what_is_taken(method, hyper, E, monkeypatch):
    spec = spec_of(method, hyper, E)
    taken = taken_in(spec, monkeypatch)
    assert sum(taken) > 0 and taken == noisy_gradients(spec).tolist()


def test_every_method_states_it_or_is_refused():
    assert {case[0] for case in CASES} | set(REFUSED) == set(METHODS) and len(METHODS) == 29


def of_issue(method, **changes):
    fields = dict(num_clients=3, join_ratio=1, rounds=2, local_epochs=5, lr=0.05, eval_every=2, model="lenet5")
    fields |= dict(scheme="iid", images=240, privacy="record", noise_sigma=1.0)
    return tiny(method, **{**fields, "partition": {}, "test_fraction": 0.5, **changes})


def test_gradients_of_the_same_minibatch_are_one_step_with_less_noise():
    """pFedMe: 2 rounds of 5 epochs of 2 minibatches, each with 5 gradients, at rate 32/40. Five gradients of one
    minibatch are one of a mechanism with σ/√5, since they hold the same records; as 100 independent samples they would
    cost less than they do."""
    spec = of_issue("pfedme")
    assert noisy_gradients(spec).tolist() == [100] * 3
    right = epsilon(1 / 5**0.5, 0.8, 20)
    assert budgets(spec).tolist() == [right] * 3 and right > epsilon(1, 0.8, 100) == pytest.approx(73.5, abs=0.05)
    assert budgets(of_issue("fedavg")).tolist() == [epsilon(1, 0.8, 20)] * 3


@pytest.mark.parametrize(
    ("method", "changes", "factor"),
    [
        ("fedavg", {}, 1),
        ("fedsimsup", {"hyper": {"similarity": "uniform"}}, 5),
        ("fedrep", {}, 2),
        ("fedpac", {}, 2),
        ("fedper", {"hyper": {"head_epochs": 2}}, 3),
        ("pfedcs", {}, 1.5),
    ],
)
def test_epochs_of_its_own_are_charged(method, changes, factor):
    spec = of_issue(method, local_epochs=1, **changes)
    assert noisy_gradients(spec).tolist() == [4 * factor] * 3
    if not not_protected(spec):
        assert budgets(spec).tolist() == [epsilon(1, 0.8, int(4 * factor))] * 3


# what leaves without noise --------------------------------------------------------------------------------------------

UNPROTECTED = {
    **{name: "mean features" for name in ("fedproto", "fedgh", "fedpac")},
    **{"fedgen": "class", "fedrod": "class counts", "ifca": "cluster", "ffedap": "variances", "fedsimsup": "classes"},
    "pfedsv_known": "classes",
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("method", sorted(set(METHODS) - set(REFUSED)))
def test_without_its_gradients_nobody_learns_of_training_records(method, monkeypatch):
    """With zeros in place of gradients a run on other training records (and classes) is the same run. A method in which
    it is not, or a loss knows more than its record, says so; its ε is infinite, in records as in clients."""
    said = UNPROTECTED.get(method, "")
    spec = spec_of(method, HYPER.get(method, {}), join_ratio=1.0)
    monkeypatch.setattr(
        PrivateGradient,
        "__call__",
        lambda self, model, loss, theta, part, batch: ({k: v * 0 for k, v in part.items()}, {}),
    )

    def others(run):
        """Every client's training records become other images, of other classes; validation records stay."""
        source, order = run.work.source, np.random.default_rng(0)
        kept = np.unique(np.concatenate([parts.get("val", np.empty(0, int)) for parts in run.work.parts])).astype(int)
        own = np.setdiff1d(np.concatenate([parts["train"] for parts in run.work.parts]), kept)
        images, labels, shuffled = source.images.clone(), source.labels.clone(), order.permutation(own)
        images[own], labels[own] = source.images[shuffled], source.labels[shuffled]
        dataset = dataclasses.replace(source.dataset, images=images, labels=labels)
        work = dataclasses.replace(run.work, source=type(source)(dataset, source.device, source.dtype, source.pixels))
        counts = torch.stack([labels[parts["train"]].bincount(minlength=10) for parts in run.work.parts])
        return dataclasses.replace(run, work=work, setting=dataclasses.replace(run.setting, class_counts=counts))

    states = [[*played(spec, change=change)][-1][1] for change in (None, others)]
    alike = same(*(state.server for state in states)) and same(*(state.clients for state in states))
    assert alike or said
    assert said in not_protected(spec) and bool(said) == bool(not_protected(spec))
    for each in (spec, spec.but(privacy="client")):
        assert (set(budgets(each)) == {inf}) == bool(said)
    if said and method != "fedrod":
        assert not alike or method in ("fedgen", "ifca", "ffedap")


def test_an_infinite_budget_is_said_in_words():
    spec = spec_of("fedproto", {})
    with pytest.warns(UserWarning, match="gives fedproto no finite epsilon: uploads hold mean features of every class"):
        result = simulate(spec)
    assert in_words(spent({("row", "column", 0): result}, 1e-5)) == "∞"
    told = spec_of("pfedcs", {"select": "oracle"})
    assert "classes" in not_protected(told) and not not_protected(spec_of("pfedcs", {}))
    assert not not_protected(spec.but(privacy="none", noise_sigma=0))


# methods that take more than they say ---------------------------------------------------------------------------------


def one_more_pass(self, model, message, client, data):
    return local_sgd(model, local_sgd(model, message, data), data, 1), client


def steps_by_number(self, model, message, client, data):
    return data.fold(lambda theta, b: private(model, theta, b, data), message, steps=1000), client


def two_of_a_batch(self, model, message, client, data):
    return data.fold(lambda theta, b: private(model, private(model, theta, b, data), b, data), message), client


def several_together(self, model, message, client, data):
    return data.fold(lambda theta, b, c: private(model, theta, b, data), message, together=2), client


def look_at_records(self, model, message, client, data):
    total = data.scan(lambda total, batch: total + batch.x.sum(), message["head.bias"].sum() * 0)
    return local_sgd(model, {**message, "head.bias": message["head.bias"] + total}, data), client


def look_at_classes(self, model, message, client, data):
    bias = message["head.bias"] + data.class_counts
    return local_sgd(model, {**message, "head.bias": bias}, data), client


def private(model, theta, batch, data):
    return model.sgd_step(theta, batch, data.lr, differentiate=data.differentiate)


MORE = [one_more_pass, steps_by_number, two_of_a_batch, several_together, look_at_records, look_at_classes]


@pytest.mark.parametrize("backend", ["serial", "vmap"])
@pytest.mark.parametrize("update", MORE, ids=lambda update: update.__name__)
def test_a_method_that_takes_more_than_it_states_is_refused(update, backend):
    states = {"client_update": update, "passes": FedAvg.passes}
    method = dataclasses.dataclass(frozen=True)(type("Mine", (FedAvg,), states))()
    rounds = played(spec_of("fedavg", {}), backend, change=lambda run: dataclasses.replace(run, method=method))
    next(rounds)
    with pytest.raises(BadValue, match="privacy = 'record' is not accepted"):
        next(rounds)


def test_what_a_method_states_is_not_inherited_by_another_update():
    assert type("Mine", (FedAvg,), {"client_update": one_more_pass}).passes is None
    assert type("Mine", (FedAvg,), {}).passes is FedAvg.passes
