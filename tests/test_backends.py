"""vmap gives what serial gives: all methods, very uneven clients, batch-norm policies, evaluation points, chunking, several phases."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from helpers import METHODS, close, played, same, tensors, tiny

from fedlib import tree
from fedlib.engine import backends
from fedlib.engine.fold import PlainData, Training, local_sgd, training_batches
from fedlib.engine.simulate import evaluate, set_up, simulate

TRAIN_SIZES = (1, 2, 33, 3, 320, 64)  # minibatches of 32: none, 1, 1 and a single sample, 1, 10, 2
TEST_SIZES = (1, 5, 2, 40, 600, 1)  # 600 needs two batches where nothing is trained
POINTS = {"fedavg": ("glob", "post", "ft(1)"), "fedper": ("recv", "post", "ft(1)"), "local": ("post",), "pfedsim": ("agg", "post", "ft(1)")}


def uneven(run):
    """The run with clients of the sizes above, drawn without overlap from digits in place of its partition."""
    order, parts, tests = np.random.default_rng(5).permutation(1797), [], []
    for train, test in zip(TRAIN_SIZES, TEST_SIZES):
        own, order = order[: train + test], order[train + test :]
        parts.append({"train": np.sort(own[:train]), "test": np.sort(own[train:])})
        tests.append(np.bincount(run.work.source.labels.cpu()[parts[-1]["test"]], minlength=10))
    return dataclasses.replace(run, work=dataclasses.replace(run.work, parts=parts), tests=np.stack(tests))


def outcome(spec, backend, device="cpu"):
    """Final states and the evaluation of all clients at all points, as one list of tensors; and who ever trained."""
    with torch.no_grad():
        *_, (run, state, _) = played(spec, backend, uneven, device)
        tested = [torch.from_numpy(part) for point in spec.eval_points for part in evaluate(run, state, point)]
    owned = [tensors(state[key]) for key in ("server", "clients", "stats") if state[key]] + [tensors(state["uploads"] or {})]
    return tuple(leaf for group in owned for leaf in group) + tuple(tested), state["trained"]


def wide(method, **changes):
    hyper = {"rho": 0.5} if method == "pfedsim" else {}
    return tiny(method, **{"num_clients": 6, "rounds": 2, "precision": "float64", "eval_points": POINTS[method], "hyper": hyper, **changes})


@pytest.mark.parametrize(("method", "bn_stats"), [*((m, "local") for m in METHODS), ("fedavg", "global"), ("pfedsim", "global"), ("fedper", "reset")])
def test_vmap_agrees_with_serial(method, bn_stats):
    """Three of six clients a round, 1 to 320 samples: all states and every client's test, in float64."""
    spec = wide(method, bn_stats=bn_stats, seed=1)
    serial, trained = outcome(spec, "serial")
    stacked, _ = outcome(spec, "vmap")
    close(stacked, serial)
    assert trained[4] and not trained.all()  # the largest trained; someone never did, so that statistics were recalibrated


@pytest.mark.parametrize("hyper", [dict(phi="eq3"), dict(phi="eq3", phi_refresh="all", phi_bias=True), dict(phi_refresh="one_fresh", max_age=1)])
def test_vmap_agrees_with_serial_for_the_readings_of_pfedsim(hyper):
    spec = wide("pfedsim", hyper={"rho": 0, **hyper}, seed=1)
    close(outcome(spec, "vmap")[0], outcome(spec, "serial")[0])


def test_uneven_clients_are_trained_at_all():
    """With everyone in every round only the client with one sample keeps its model (its one batch is skipped)."""
    *_, (run, state, _) = played(wide("local", join_ratio=1.0, rounds=1), "vmap", uneven)
    moved = [not torch.equal(state["clients"]["theta"]["head.weight"][i], run.work.model.theta0["head.weight"]) for i in range(6)]
    assert moved == [False, True, True, True, True, True]


@pytest.mark.parametrize("stack", [3, 4])
def test_chunking_changes_no_number(monkeypatch, stack):
    """Chunks pad to their own longest client; padding must not be seen in the result."""
    spec = wide("fedavg", join_ratio=1.0, rounds=1, eval_points=("glob",))
    whole, _ = outcome(spec, "vmap")
    monkeypatch.setattr(backends, "STACK", stack)
    parts, _ = outcome(spec, "vmap")
    close(parts, whole, 1e-13)


def test_vmap_agrees_with_serial_in_float32():
    """After a short full run on digits: accuracies and losses within 1e-4."""
    for method in METHODS:
        spec = tiny(method, join_ratio=1.0, rounds=2)
        serial, stacked = (simulate(spec, backend=backend).history for backend in ("serial", "vmap"))
        for a, b in zip(serial, stacked, strict=True):
            assert (a["round"], a["point"]) == (b["round"], b["point"])
            assert all(a[key] == pytest.approx(b[key], abs=1e-4) for key in a if key not in ("round", "point", "headline"))


# fold and scan, directly ---------------------------------------------------------------------------------------------


def both(fn, *trees, min_batch=2, epochs=1, draw=(0, 1)):
    """fn for all six uneven clients, by serial and by vmap."""
    run = uneven(set_up(tiny("fedavg", num_clients=6, precision="float64", local_epochs=epochs)))
    work = dataclasses.replace(run.work, training=dataclasses.replace(run.work.training, min_batch=min_batch))
    with torch.no_grad():
        return work, *(backend(work, fn, np.arange(6), *trees, draw=draw) for backend in (backends.serial, backends.vmap))


@pytest.mark.parametrize(("min_batch", "steps"), [(2, (0, 1, 1, 1, 10, 2)), (1, (1, 1, 2, 1, 10, 2))])
def test_padded_steps_keep_the_old_state(min_batch, steps):
    """The step shrinks its state by a tenth without looking at the data, so a step on padding would be seen: 0.9^steps.

    Minibatches of 32: 33 samples are a full one and a single sample, which is skipped for models with batch norm (min_batch 2).
    """
    def shrink(model, start, data):
        return data.fold(lambda s, batch: {"value": 0.9 * s["value"], "steps": s["steps"] + 1}, start, 2)

    start = {"value": torch.ones(6, dtype=torch.float64), "steps": torch.zeros(6, dtype=torch.int64)}
    _, serial, stacked = both(shrink, start, min_batch=min_batch)
    assert serial["steps"].tolist() == stacked["steps"].tolist() == [2 * s for s in steps]
    torch.testing.assert_close(stacked["value"], 0.9 ** (2 * torch.tensor(steps, dtype=torch.float64)), rtol=1e-12, atol=0)
    close(stacked, serial)


def test_a_proximal_step_agrees():
    """theta - lr (gradient + 0.5 (theta - anchor)), anchored at 0, which moves on an empty batch."""
    def proximal(model, theta, data):
        def step(theta, batch):
            moved = model.sgd_step(theta, batch, data.lr)
            return {**moved, **{name: moved[name] - data.lr * 0.5 * theta[name] for name in model.trainable}}
        return data.fold(step, theta)

    model = set_up(tiny("fedavg", precision="float64")).work.model
    _, serial, stacked = both(proximal, tree.repeat(model.theta0, 6))
    close(stacked, serial)
    assert torch.equal(stacked["head.weight"][0], model.theta0["head.weight"])  # the client without a minibatch


def test_several_phases_agree_and_draw_anew():
    """Two folds and two scans in one client's round, the second fold with other epochs; sample counts are seen by the method."""
    def phases(model, theta, data):
        theta = local_sgd(model, theta, data)
        head = local_sgd(model, theta, data, 2, train=("head.weight", "head.bias"))
        seen = data.scan(lambda n, batch: n + (torch.ones_like(batch.y) if batch.mask is None else batch.mask).sum(), torch.tensor(0), "test")
        total = data.scan(lambda s, batch: s + torch.where(torch.ones_like(batch.y).bool() if batch.mask is None else batch.mask, batch.y, 0).sum(), torch.tensor(0))
        return theta, head, {"tests": seen, "labels": total, "n": torch.as_tensor(data.num_samples)}

    model = set_up(tiny("fedavg", precision="float64")).work.model
    work, serial, stacked = both(phases, tree.repeat(model.theta0, 6))
    close(stacked, serial)
    assert stacked[2]["tests"].tolist() == list(TEST_SIZES) and stacked[2]["n"].tolist() == list(TRAIN_SIZES)
    assert stacked[2]["labels"].tolist() == [int(work.source.labels[parts["train"]].sum()) for parts in work.parts]
    data = PlainData(work.source, work.training, work.parts[4], (0, 1, 4))
    first, second = (torch.cat(data.fold(lambda seen, batch: (*seen, batch.y), ())).tolist() for _ in range(2))
    assert first != second and sorted(first) == sorted(second)


@pytest.mark.parametrize("part", ["head.", "extractor."])
def test_only_the_named_parameters_are_trained(part):
    """`train=`: every other parameter is bitwise what it was, in both backends, and the named ones move."""
    model = set_up(tiny("fedavg", precision="float64")).work.model
    named = [name for name in model.trainable if name.startswith(part)]
    _, serial, stacked = both(lambda model, theta, data: local_sgd(model, theta, data, train=named), tree.repeat(model.theta0, 6))
    close(stacked, serial)
    for result in (serial, stacked):
        for name in model.trainable:
            if name not in named:
                assert torch.equal(result[name], model.theta0[name].expand_as(result[name])), name
            elif name.endswith(("fc1.weight", "head.weight")):
                assert all(not torch.equal(result[name][i], model.theta0[name]) for i in range(1, 6)), name


def test_batch_norm_of_a_frozen_extractor_is_in_evaluation_mode():
    """Specification, section 0.3: frozen is no gradient, and batch norm inside a frozen block runs in evaluation mode: its statistics stay."""
    model = set_up(tiny("fedavg", precision="float64")).work.model
    _, serial, stacked = both(lambda model, theta, data: local_sgd(model, theta, data, train=("head.weight", "head.bias")), tree.repeat(model.theta0, 6))
    for result in (serial, stacked):
        assert all(torch.equal(result[name], model.theta0[name].expand_as(result[name])) for name in model.running)


def test_batches_of_an_epoch_are_a_shuffled_division():
    """Every epoch: all samples once, in a new order, the last partial batch kept, a single sample left out only where asked."""
    own = np.arange(100, 170)
    batches = training_batches(own, 3, Training(1, 32, 0.1, 7, 2), 0, 4, 5, 0)
    assert [len(b) for b in batches] == [32, 32, 6] * 3
    epochs = [np.concatenate(batches[k : k + 3]) for k in (0, 3, 6)]
    assert all(sorted(e) == own.tolist() for e in epochs)
    assert not np.array_equal(epochs[0], epochs[1]) and not np.array_equal(epochs[0], own)
    assert [len(b) for b in training_batches(own[:33], 1, Training(1, 32, 0.1, 7, 2), 0)] == [32]
    assert [len(b) for b in training_batches(own[:33], 1, Training(1, 32, 0.1, 7, 1), 0)] == [32, 1]


def test_backends_leave_their_arguments_alone():
    model = set_up(tiny("fedavg", precision="float64")).work.model
    thetas = tree.repeat(model.theta0, 6)
    before = tree.map(torch.clone, thetas)
    both(lambda model, theta, data: local_sgd(model, theta, data), thetas)
    assert same(thetas, before)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="NO CUDA DEVICE: vmap on CUDA was NOT compared with serial on the CPU")
@pytest.mark.parametrize("method", METHODS)
def test_vmap_on_cuda_agrees_with_serial_on_the_cpu(method):
    """float64; the order of summation differs between the devices, so a little more than rounding is allowed."""
    spec = wide(method, seed=1)
    close(outcome(spec, "vmap", "cuda")[0], outcome(spec, "serial")[0], 1e-9)
    on_gpu, on_cpu = (simulate(tiny(method), device=device).history for device in ("cuda", "cpu"))
    assert all(a["loss"] == pytest.approx(b["loss"], abs=1e-3) for a, b in zip(on_gpu, on_cpu, strict=True))
