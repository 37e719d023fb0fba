"""Noise as explicit mechanisms: its statistics and names, what is left alone, what is refused. Lesson 9 clips gradients
and uploads by hand."""

from __future__ import annotations

import copy
import dataclasses

import numpy as np
import pytest
import torch
from helpers import close, exact, played, same, tiny

from fedlib.algorithms.fedavg import FedAvg
from fedlib.base import tree
from fedlib.base.errors import BadValue
from fedlib.data.batch import Batch
from fedlib.engine.privacy_budget import budgets
from fedlib.engine.simulate import run_round, simulate
from fedlib.models import build
from fedlib.privacy.noise import Mechanism, PrivateGradient, poisson_batches, release
from fedlib.spec import RunSpec

SMALL = dict(model="lenet5", precision="float64", batch_size=16, rounds=2, eval_every=2)
RECORD = dict(privacy="record", noise_sigma=0.5, noise_clip=0.7, **SMALL)
CLIENT = dict(privacy="client", noise_sigma=0.02, noise_clip=0.5, **SMALL)


def last(spec, backend="serial", change=None):
    *_, (run, state, _) = played(spec, backend, change=change)
    return run, state


def batch_of(model_shape, count, seed=0):
    g = torch.Generator().manual_seed(seed)
    return Batch(
        torch.randn(count, *model_shape, generator=g, dtype=torch.float64), torch.randint(10, (count,), generator=g)
    )


# the fields of a run --------------------------------------------------------------------------------------------------


def test_a_run_without_noise_keeps_its_name():
    plain = RunSpec("fedavg")
    assert plain.id == "9a34de34fad25234"  # as before there was any noise
    assert not {"privacy", "noise_sigma", "noise_clip"} & plain.to_dict().keys()
    plain = RunSpec("fedavg", model="lenet5")
    noisy = plain.but(privacy="record", noise_sigma=1)
    assert noisy.to_dict()["noise_sigma"] == 1.0 and RunSpec.from_dict(noisy.to_dict()) == noisy
    others = [plain, noisy, noisy.but(noise_sigma=2.0), noisy.but(noise_clip=2.0), noisy.but(privacy="client")]
    assert len({spec.id for spec in others}) == 5


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        (dict(privacy="recrod", noise_sigma=1), "record"),
        (dict(noise_sigma=1), "sigma = 1"),
        (dict(privacy="record", noise_sigma=-1), "sigma = -1"),
        (dict(privacy="client", noise_sigma=1, noise_clip=0), "clip = 0"),
        (dict(privacy="unclipped", noise_sigma=1, noise_clip=2), "does not clip"),
        (dict(privacy="record", noise_sigma="a lot"), "sigma = 'a lot'"),
        (dict(noise_clip=2), "clip = 2"),
    ],
)
def test_values_that_do_not_go_together(changes, named):
    with pytest.raises(BadValue, match=named):
        RunSpec("fedavg", **changes)


def test_noise_without_a_bound_needs_a_finite_clip():
    with pytest.raises(BadValue, match="clip = inf"):
        Mechanism("record", 1.0, float("inf"))


# record level ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("train", [None, ("head.weight", "head.bias")])
def test_without_noise_and_with_a_bound_out_of_reach_it_is_the_gradient_of_the_batch(train, monkeypatch):
    model = build("lenet5", (1, 16, 16), 10).to(torch.device("cpu"), torch.float64)
    batch = batch_of((1, 16, 16), 7)
    monkeypatch.setattr("fedlib.privacy.noise.HELD", {"cpu": 12_000})  # two records at a time, and one is left
    with torch.no_grad():
        gradient = PrivateGradient(Mechanism("record", 0.0, 1e9), 7.0, None)
        private = model.sgd_step(model.theta0, batch, 0.1, train, differentiate=gradient)
        close(private, model.sgd_step(model.theta0, batch, 0.1, train))
    assert not model.stacked


def step_noises(run, round, clients, phase=0, steps=(0,)):
    return [run.turn(i, 0, round).step_noise(phase, s).standard_normal(2000) for i in clients for s in steps]


def test_noise_is_independent_between_steps_clients_rounds_and_seeds():
    run, other = (played(tiny("fedavg", **RECORD, seed=s)) for s in (0, 1))
    run, other = next(run)[0], next(other)[0]
    draws = [
        *step_noises(run, 1, (0, 1), steps=(0, 1)),
        *step_noises(run, 2, (0,)),
        *step_noises(run, 1, (0,), phase=1),
        *step_noises(other, 1, (0,)),
    ]
    correlations = np.corrcoef(draws)[np.triu_indices(len(draws), 1)]
    assert len(correlations) == 21 and np.abs(correlations).max() < 0.1
    assert np.array_equal(step_noises(run, 1, (0,))[0], draws[0])


def test_the_size_of_the_noise():
    """Gradient with noise - gradient without = sigma G / b times standard normal numbers, 5,822 of them."""
    model = build("lenet5", (1, 16, 16), 10).to(torch.device("cpu"), torch.float64)
    batch, generator = batch_of((1, 16, 16), 3), np.random.default_rng(0)

    def normal(count):
        return torch.from_numpy(generator.standard_normal(count))

    gradients = [PrivateGradient(Mechanism("record", sigma, 3.0), 4.0, normal) for sigma in (0.0, 2.0)]
    with torch.no_grad():
        quiet, noisy = (model.sgd_step(model.theta0, batch, 1.0, differentiate=each) for each in gradients)
    noise = torch.cat([(noisy[name] - quiet[name]).flatten() for name in model.trainable])
    assert len(noise) == 5822
    assert float(noise.std()) == pytest.approx(2.0 * 3.0 / 4.0, rel=0.04) and abs(float(noise.mean())) < 0.1


def test_poisson_samples():
    """Every record is in every batch with probability q, independently: mean and variance of the sizes,
    and of the joint occurrences."""
    batches = poisson_batches(np.random.default_rng(0), 50, 10, 4000)
    there = np.zeros((4000, 50))
    for k, batch in enumerate(batches):
        there[k, batch] = 1
    sizes = there.sum(1)
    assert sizes.mean() == pytest.approx(10, abs=0.3) and sizes.var() == pytest.approx(50 * 0.2 * 0.8, rel=0.1)
    assert np.abs(there.mean(0) - 0.2).max() < 0.03
    assert np.abs(np.corrcoef(there.T)[np.triu_indices(50, 1)]).max() < 0.08
    assert [len(batch) for batch in poisson_batches(np.random.default_rng(0), 5, 10, 3)] == [5, 5, 5]


def test_an_epoch_of_poisson_samples_has_the_usual_number_of_steps():
    run = next(played(tiny("fedavg", **RECORD)))[0]
    for i in range(4):
        n, turn = len(run.work.parts[i]["train"]), run.turn(i, 0, 1)
        plan = turn.plan(0, 3)
        assert len(plan) == 3 * -(-n // 16) and turn.expected_batch == min(16, n)
        assert len(run.turn(i, 1, 1).plan(0, 1)[0][0]) == min(16, n)  # evaluation (fine-tuning) goes on as ever


def test_empty_batches_are_steps_of_noise():
    """With batches of one sample more than a third are empty; both backends take the same steps,
    and an empty one moves theta."""
    spec = tiny(
        "fedavg", **RECORD | dict(batch_size=1, rounds=1, test_fraction=0.95, partition=dict(alpha=0.5, min_size=60))
    )
    run = next(played(spec))[0]
    plan = run.turn(0, 0, 1).plan(0, 1)
    assert 0.2 < np.mean([len(batch) == 0 for (batch,) in plan]) < 0.55
    serial, stacked = (last(spec, name)[1] for name in ("serial", "vmap"))
    close(stacked.server, serial.server)
    model = run.work.model
    gradient = PrivateGradient(Mechanism("record", 1.0, 1.0), 1.0, torch.ones)
    with torch.no_grad():
        moved = model.sgd_step(model.theta0, batch_of((1, 16, 16), 0), 1.0, differentiate=gradient)
    close(moved, tree.map(lambda leaf: leaf - 1, model.theta0))


# every backend, every method ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["fedavg", "pfedsv", "fedrep", "fedprox"])
@pytest.mark.parametrize("mechanism", [RECORD, CLIENT], ids=["record", "client"])
def test_vmap_agrees_with_serial(method, mechanism):
    serial, stacked = (last(tiny(method, **mechanism), name)[1] for name in ("serial", "vmap"))
    close((stacked.server, stacked.clients), (serial.server, serial.clients))


def test_process_agrees_with_serial_bit_for_bit():
    """Noise on uploads is added after the backend, so that the noise in steps is what can differ."""
    spec = tiny("fedavg", **RECORD | dict(rounds=1))
    assert exact(simulate(spec, backend="process", workers=2)) == exact(simulate(spec, backend="serial"))


@pytest.mark.parametrize("mechanism", [RECORD, CLIENT], ids=["record", "client"])
def test_a_resumed_run_draws_the_same_noise(mechanism):
    rounds = list(played(tiny("fedavg", **mechanism | dict(rounds=3)), change=None))
    run, end, _ = rounds[-1]
    half = copy.deepcopy(
        next(s for k, (_, s, _) in enumerate(played(tiny("fedavg", **mechanism | dict(rounds=3)))) if k == 1)
    )
    for t in (2, 3):
        run_round([run], [half], t)
    assert same(half.server, end.server)


def test_a_bound_out_of_reach_and_no_noise_changes_no_bit():
    plain = last(tiny("pfedsv", **SMALL))[1]
    wide = last(tiny("pfedsv", **SMALL, privacy="client", noise_sigma=0, noise_clip=1e30))[1]
    assert wide.released is not None and same(wide.server, plain.server) and same(wide.clients, plain.clients)
    free = Mechanism("record", 0.0, float("inf"))
    assert not free.active

    def freed(run):
        training = dataclasses.replace(run.work.training, privacy=free)
        return dataclasses.replace(run, work=dataclasses.replace(run.work, training=training))

    assert same(last(tiny("pfedsv", **SMALL), change=freed)[1].server, plain.server)


# uploads --------------------------------------------------------------------------------------------------------------


def one_release(kind, sigma, clip=1.0, count=1):
    """theta = (3, 4), sent = (0, 0): an update of length 5; what was released before is of no interest,
    for the server sent w."""
    uploads = {"w": torch.tensor([[3.0, 4.0]]).double().repeat(count, 1), "n": torch.arange(count)}
    sent, before = {"w": torch.zeros(count, 2).double()}, {"w": torch.full((count, 2), 100.0).double()}
    return release(Mechanism(kind, sigma, clip), 0, 1, range(count), uploads, sent, before)


def test_who_uploads_nothing_needs_no_noise():
    noisy = tiny("local", privacy="unclipped_relative", noise_sigma=0.5)
    assert simulate(noisy).final() == simulate(noisy.but(privacy="none", noise_sigma=0.0)).final()


@pytest.mark.parametrize(
    ("kind", "sigma", "clip", "centre", "spread"),
    [
        ("client", 0.5, 2.0, (1.2, 1.6), 1.0),
        ("client", 0.5, 10.0, (3, 4), 5.0),
        ("unclipped", 0.5, 1.0, (3, 4), 0.5),
        ("unclipped_relative", 0.5, 1.0, (3, 4), 0.5 * (25 / 2) ** 0.5),
    ],
)
def test_the_noise_of_an_upload(kind, sigma, clip, centre, spread):
    w = one_release(kind, sigma, clip, count=2000)[0]["w"].numpy()
    np.testing.assert_allclose(w.mean(0), centre, atol=5 * spread / 2000**0.5)
    np.testing.assert_allclose(w.std(0), spread, rtol=0.08)
    assert abs(np.corrcoef(w.T)[0, 1]) < 0.1


def test_without_a_message_of_its_own_the_last_release_is_the_reference():
    """pFedSV gets other clients' models: its update is measured from its own last release,
    FedAvg's from the global model."""
    for method in ("pfedsv", "fedavg"):
        states = [
            (copy.deepcopy(state), ids)
            for _, state, ids in played(tiny(method, **CLIENT | dict(noise_sigma=0, noise_clip=0.01, join_ratio=1.0)))
        ]
        for (before, _), (after, ids) in zip(states, states[1:]):
            for i in ids:
                ref = tree.rows(before.released, int(i)) if method == "pfedsv" else before.server["theta"]
                now = tree.rows(after.released, int(i))
                assert sum((now[name] - ref[name]).square().sum() for name in now).sqrt().item() == pytest.approx(
                    0.01, rel=1e-6
                )


def test_what_others_see_is_what_was_released():
    _, state = last(tiny("pfedsv", **CLIENT | dict(join_ratio=1.0)))
    assert same(state.server["models"], state.released)
    # the own copy has no noise
    assert not torch.equal(state.clients["theta"]["head.bias"], state.released["head.bias"])


# refusals -------------------------------------------------------------------------------------------------------------


def test_batch_norm_is_refused_before_anything_runs():
    with pytest.raises(BadValue, match="batch norm"):
        next(played(tiny("fedavg", privacy="record", noise_sigma=1)))


@pytest.mark.parametrize("method", ["feddyn", "perfedavg", "fedem"])
def test_methods_whose_steps_cannot_be_private_are_refused_before_anything_runs(method):
    for refused in (lambda spec: next(played(spec)), budgets):
        with pytest.raises(BadValue, match="does not state how often .* sgd_step .*passes"):
            refused(tiny(method, **RECORD))


def with_step(take):
    """A run whose method's clients take steps by take(model, theta, batch, data)."""

    @dataclasses.dataclass(frozen=True)
    class Stepping(FedAvg):
        def passes(self, T, t, E):
            return E

        def client_update(self, model, message, client, data):
            return data.fold(lambda theta, batch: take(model, theta, batch, data), message), client

    return lambda run: dataclasses.replace(run, method=Stepping())


def private(model, theta, batch, data):
    return model.sgd_step(theta, batch, data.lr, differentiate=data.differentiate)


def forgotten(model, theta, batch, data):
    """sgd_step without being told how to differentiate."""
    return model.sgd_step(theta, batch, data.lr)


def besides(model, theta, batch, data):
    """A private step, and another one on the same records."""
    return forgotten(model, private(model, theta, batch, data), batch, data)


def by_hand(model, theta, batch, data):
    """A mean of its own, which asks neither the data nor the batch."""

    def loss(p):
        z, stats = model.training_features({**theta, **p}, batch)
        return torch.nn.functional.cross_entropy(model.classify({**theta, **p}, z), batch.y), stats

    part = {name: theta[name] for name in model.trainable}
    return {**theta, **model.descended(part, model.gradient(loss, part)[0], data.lr)}


@pytest.mark.parametrize("backend", ["serial", "vmap"])
@pytest.mark.parametrize("step", [forgotten, besides, by_hand], ids=lambda step: step.__name__)
def test_a_step_that_is_not_private_is_refused_before_anything_leaves(step, backend):
    """Without noise the same steps are accepted; nobody's upload has come in."""
    spec = tiny("fedavg", **RECORD)
    rounds = played(spec, backend, change=with_step(step))
    _, state, _ = next(rounds)
    before = copy.deepcopy(state.server)
    with pytest.raises(BadValue, match="privacy = 'record' is not accepted.*sgd_step"):
        next(rounds)
    assert state.round == 0 and same(state.server, before)
    last(spec.but(privacy="none", noise_sigma=0, noise_clip=1), backend, change=with_step(step))


def test_steps_that_ask_the_data_are_those_of_local_sgd():
    spec = tiny("fedavg", **RECORD)
    assert same(last(spec, change=with_step(private))[1].server, last(spec)[1].server)


@pytest.mark.parametrize("method", ["fedproto", "fedem"])
def test_uploads_of_other_numbers_are_refused(method):
    with pytest.raises(BadValue, match="expected the parameters"):
        last(tiny(method, **CLIENT))


def test_running_statistics_pass_only_where_they_stay_with_the_client():
    changes = CLIENT | dict(model="lenet5_bn", rounds=1)
    last(tiny("fedavg", **changes))
    with pytest.raises(BadValue, match="running"):
        last(tiny("fedavg", **changes, bn_stats="global"))
