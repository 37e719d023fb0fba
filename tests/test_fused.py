"""Compiled passes: gradients against float64 autograd, ties, what falls back, same bits everywhere, bad addresses."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch
from helpers import METHODS, call, played, shorter, tensors, tiny
from torch import nn
from torch.nn import functional

from fedlib.base.errors import BadValue
from fedlib.checks.plays import stop
from fedlib.data import Dataset
from fedlib.data.batch import Batch, StoredImages
from fedlib.engine.batches import DeviceData
from fedlib.engine.simulate import simulate
from fedlib.models import Model, build
from fedlib.models.fused import build as compiling
from fedlib.models.fused import calls, network
from fedlib.models.parts import BatchNorm2d, ExtractorHead

pytestmark = pytest.mark.skipif(compiling.library() is None, reason="NO C++ COMPILER: compiled steps were NOT tested")
CPU = torch.device("cpu")


def batch_of(shape, count: int, classes: int, mask=None) -> Batch:
    draw = torch.Generator().manual_seed(count)
    x, y = torch.randn(count, *shape, generator=draw), torch.randint(classes, (count,), generator=draw)
    return Batch(x, y, mask)


def theta_of(model: Model) -> dict:
    """Weights that differ from the initial ones in everything, statistics and scales too."""
    draw = torch.Generator().manual_seed(7)
    return {k: v + 0.03 * torch.randn(v.shape, generator=draw) for k, v in model.theta0.items()}


def both(model: Model, batch: Batch, train=None, loss=None) -> None:
    """Gradients and statistics of compiled float32 against PyTorch's in float64.

    The error of a tensor's gradient is taken relative to its norm, or to a hundredth of the largest of all tensors: a
    bias before batch norm has gradient 0 but for rounding.
    """
    exact = model.to(CPU, torch.float64)
    exact.insist("torch")
    model.insist("fused")
    wide = Batch(batch.x.double(), batch.y, batch.mask)
    theta, names, results = theta_of(model), train or model.trainable, []
    for each, data in ((model, batch), (exact, wide)):
        numbers = {name: value.to(data.x.dtype) for name, value in theta.items()}
        own, before = loss(each) if loss else each.loss, calls.copy()
        results.append(each.differentiate(own, numbers, {name: numbers[name] for name in names}, data))
        assert calls - before == {"torch" if each is exact else "fused": 1}
    (grads, stats), (wanted, wanted_stats) = results
    assert grads.keys() == wanted.keys() and stats.keys() == wanted_stats.keys()
    scale = max(value.norm() for value in wanted.values())
    for name, value in wanted.items():
        assert grads[name].dtype == torch.float32 and grads[name].shape == value.shape
        away = (grads[name] - value).norm()
        assert away <= 1e-5 * max(value.norm(), 1e-2 * scale, 0.01), (name, away / value.norm())
    for name, value in wanted_stats.items():
        torch.testing.assert_close(stats[name].double(), value, rtol=1e-5, atol=1e-6)


NETWORKS = [
    ("lenet5_bn", (3, 32, 32), 10, {"pools": 2}, (1, 2, 7, 8, 9, 17, 32)),
    ("lenet5_bn", (1, 28, 28), 62, {"pools": 2}, (20, 128)),
    ("lenet5_bn", (3, 64, 64), 200, {"pools": 2}, (6,)),
    ("lenet5_bn", (1, 16, 16), 2, {"pools": 1}, (3, 32)),
    ("lenet5_bn", (3, 32, 32), 10, {"pools": 1}, (10,)),
    ("lenet5_bn", (1, 17, 19), 7, {"pools": 2}, (6,)),  # odd sizes: pooling leaves a row and a column out
    ("lenet5", (3, 32, 32), 10, {"linear_layers": 2}, (1, 32)),
    ("lenet5", (1, 16, 16), 10, {"linear_layers": 3}, (11, 128)),
    ("supervisor_sixth", (3, 32, 32), 10, {}, (1, 30)),
    ("supervisor_sixth", (1, 16, 16), 10, {}, (4,)),
    ("mcmahan_cnn", (3, 32, 32), 10, {"padding": "valid"}, (5,)),
    ("mcmahan_cnn", (1, 28, 28), 10, {"padding": "same"}, (10,)),
    ("mcmahan_cnn", (1, 17, 17), 62, {"padding": "same"}, (33,)),
]


@pytest.mark.parametrize(
    ("name", "shape", "classes", "options", "count"),
    [(*network[:4], count) for network in NETWORKS for count in network[4]],
)
def test_gradients_and_statistics(name, shape, classes, options, count):
    both(build(name, shape, classes, **options), batch_of(shape, count, classes))


def made(*layers, classes: int = 5, numbers: int) -> Model:
    torch.manual_seed(0)
    return Model(ExtractorHead(nn.Sequential(*layers, nn.Flatten()), nn.Linear(numbers, classes)))


@pytest.mark.parametrize("kernel", range(1, 8))
def test_every_kernel_with_every_border(kernel):
    for border in range(min(kernel, 3)):
        side = 9 + 2 * border - kernel + 1
        model = made(
            nn.Conv2d(2, 7, 1, bias=False),
            nn.Conv2d(7, 13, kernel, padding=border),
            nn.ReLU(),
            numbers=13 * side * side,
        )
        both(model, batch_of((2, 9, 9), 9, 5))


SUBSETS = {
    "head": lambda n: n.startswith("head."),
    "extractor": lambda n: n.startswith("extractor."),
    "biases": lambda n: n.endswith("bias"),
    "batch norm": lambda n: "bn" in n,
    "the upper half": lambda n: n.startswith(("extractor.fc", "extractor.bn2", "head.")),
    "one weight": lambda n: n == "extractor.conv2.weight",
}


@pytest.mark.parametrize("which", [*SUBSETS, "all"])
@pytest.mark.parametrize("count", [2, 20, 40])
def test_a_whole_step_is_a_descent_by_the_gradient(which, count):
    """But for the last bit: the step rounds a product and a sum once (`fma`), PyTorch here twice. Nothing but the asked
    part and its statistics changes, and the old weights stay."""
    model, batch = build("lenet5_bn", (3, 20, 20), 10, pools=2), batch_of((3, 20, 20), count, 10)
    model.insist("fused")
    theta, names = theta_of(model), [n for n in model.trainable if which == "all" or SUBSETS[which](n)]
    kept = {name: value.clone() for name, value in theta.items()}
    before = calls.copy()
    stepped = model.sgd_step(theta, batch, 0.1, names)
    assert calls - before == {"fused": 1}
    slopes, stats = model.differentiate(model.loss, theta, {name: theta[name] for name in names}, batch)
    wanted = theta | stats | {name: torch.sub(theta[name], slopes[name], alpha=0.1) for name in names}
    assert stepped.keys() == wanted.keys()
    for name, value in wanted.items():
        torch.testing.assert_close(stepped[name], value, rtol=3e-7, atol=1e-9)
        assert torch.equal(theta[name], kept[name]), name
        assert name in {*names, *stats} or stepped[name] is theta[name]
    assert any(not torch.equal(stepped[name], theta[name]) for name in names)


@pytest.mark.parametrize("which", SUBSETS)
def test_a_part_of_the_parameters(which):
    """Batch norm whose parameters are not trained is in evaluation mode, and its statistics stay."""
    model = build("lenet5_bn", (3, 20, 20), 10, pools=2)
    both(model, batch_of((3, 20, 20), 13, 10), [n for n in model.trainable if SUBSETS[which](n)])


PLAIN = [network for network in NETWORKS if network[0] != "lenet5_bn"]  # what DP-SGD accepts


def clipped(name, shape, classes, options, count, train=lambda name: True) -> None:
    """The sum of clipped gradients in compiled float32 against every record's own in float64; half of them are long."""
    model, batch = build(name, shape, classes, **options), batch_of(shape, count, classes)
    exact, theta = model.to(CPU, torch.float64), theta_of(model)
    names, apart = [n for n in model.trainable if train(n)], []
    for row in range(count):
        one = Batch(batch.x[row : row + 1].double(), batch.y[row : row + 1])
        numbers = {k: v.double() for k, v in theta.items()}
        apart.append(exact.differentiate(exact.loss, numbers, {n: numbers[n] for n in names}, one)[0])
    norms = [torch.cat([g.flatten() for g in own.values()]).norm() for own in apart]
    limit = float(torch.stack(norms).median())
    factors = [min(1.0, limit / float(norm)) for norm in norms]
    model.insist("fused")
    before = calls.copy()
    found = model.clipped_gradient(model.loss, theta, {n: theta[n] for n in names}, batch, limit)
    assert calls - before == {"fused": 1} and list(found) == names
    lengths = sum(factor * norm for factor, norm in zip(factors, norms))  # the sum's own norm, were all alike
    for n in names:
        wanted = sum(factor * own[n] for factor, own in zip(factors, apart))
        assert (found[n] - wanted).norm() <= 1e-5 * lengths, n


@pytest.mark.parametrize(
    ("name", "shape", "classes", "options", "count"),
    [(*network[:4], count) for network in PLAIN for count in network[4]],
)
def test_clipped_gradients_of_records(name, shape, classes, options, count):
    clipped(name, shape, classes, options, count)


@pytest.mark.parametrize("which", ["head", "extractor", "biases", "one weight"])
def test_records_gradients_of_a_part_are_clipped_by_its_own_norm(which):
    clipped("mcmahan_cnn", (1, 17, 17), 10, {"width": 0.125}, 18, SUBSETS[which])


def test_what_has_no_gradient_of_one_record_is_not_clipped_here():
    """Batch norm; another loss; padded rows; a batch without records."""
    plain, batch = build("lenet5", (1, 16, 16), 10), batch_of((1, 16, 16), 5, 10)
    normed = build("lenet5_bn", (1, 16, 16), 10)
    padded = Batch(batch.x, batch.y, torch.ones(5, dtype=torch.bool))
    cases = [(normed, normed.loss, batch), (plain, lambda *_: None, batch), (plain, plain.loss, padded)]
    cases.append((plain, plain.loss, Batch(batch.x[:0], batch.y[:0])))
    for model, loss, data in cases:
        model.insist("fused")
        part = {n: model.theta0[n] for n in model.trainable}
        assert model.clipped_gradient(loss, model.theta0, part, data, 1.0) is None


@pytest.mark.parametrize("real", [[0], [1, 2, 12], range(13)])
def test_padded_rows_are_not_seen(real):
    """Whatever is in them: here not even numbers."""
    model, mask = build("lenet5_bn", (1, 16, 16), 10, pools=2), torch.zeros(13, dtype=torch.bool)
    mask[list(real)] = True
    batch = batch_of((1, 16, 16), 13, 10, mask)
    both(model, batch)
    spoilt = Batch(torch.where(mask[:, None, None, None], batch.x, torch.nan), batch.y, mask)
    part = {name: model.theta0[name] for name in model.trainable}
    (clean, stats), (same, again) = (model.differentiate(model.loss, model.theta0, part, b) for b in (batch, spoilt))
    assert all(torch.equal(clean[n], same[n]) for n in clean) and all(torch.equal(stats[n], again[n]) for n in stats)


STORED = [((3, 32, 32), 70, "standardised"), ((1, 16, 16), 9, "reference"), ((3, 17, 19), 20, "symmetric"),
          ((2, 15, 13), 5, "standardised"), ((5, 11, 9), 33, "reference")]  # fmt: skip


def stored(shape, count: int, pixels: str) -> DeviceData:
    """A data set of random bytes that lie as on disk, with all values among them."""
    draw, (channels, height, width) = torch.Generator().manual_seed(count), shape
    images = torch.randint(256, (200, height, width, channels), generator=draw, dtype=torch.uint8)
    labels = torch.randint(10, (200,), generator=draw)
    dataset = Dataset("bytes", images.permute(0, 3, 1, 2), labels, tuple("0123456789"), "none")
    return DeviceData(dataset, CPU, torch.float32, pixels)


@pytest.mark.parametrize("shape, count, pixels", STORED)
def test_images_are_read_as_they_are_stored(shape, count, pixels):
    """To the last bit as if they had been scaled before: in steps, gradients, losses, statistics and scores."""
    source, rows = stored(shape, count, pixels), torch.randperm(200)[:count]
    model = made(nn.Conv2d(shape[0], 4, 3), BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), numbers=shape[1] // 2 - 1)
    model = Model(ExtractorHead(model.module.extractor, nn.Linear(4 * _halved(shape), 10)))
    model.insist("fused")
    early, late = source.copied(rows), source.batch(rows)
    plain = Batch(source.images[rows].float().contiguous().mul(source.scale).add(source.shift), late.y)
    results = []
    for batch in (plain, late, early):
        before, theta = calls.copy(), theta_of(model)
        part = {name: theta[name] for name in model.trainable}
        step, (grads, stats) = model.sgd_step(theta, batch, 0.1), model.differentiate(model.loss, theta, part, batch)
        slow, _ = model.differentiate(lambda *given: model.loss(*given), theta, part, batch)
        assert calls - before == {"fused": 3}
        scores = {"scores": model.scores(theta, batch), **model.batch_stats(theta, batch)}
        results.append([step, grads, stats, slow, scores])
    assert isinstance(late.images, StoredImages) and "x" not in vars(late) and "x" not in vars(early)
    for other in results[1:]:
        for wanted, found in zip(results[0], other):
            assert all(torch.equal(wanted[name], found[name]) for name in wanted)
    assert torch.equal(late.x, plain.x) and torch.equal(early.x, plain.x)


@pytest.mark.parametrize("step", ["torch", "fused"])
def test_a_tie_is_a_term_of_the_loss(step):
    """strength/2 |theta - anchor|^2 over what is trained, and nothing else: as by automatic differentiation."""
    model = build("lenet5_bn", (1, 16, 16), 10)
    model.insist(step)
    generator = torch.Generator().manual_seed(0)
    batch = Batch(torch.rand(8, 1, 16, 16, generator=generator), torch.arange(8))
    theta = theta_of(model)
    anchor = {name: value + torch.randn(value.shape, generator=generator) for name, value in theta.items()}
    for train in (None, ["head.weight", "head.bias"]):

        def tied(theta, batch, train):
            value, stats = model.loss(theta, batch, train)
            return value + 0.7 / 2 * sum((theta[name] - anchor[name]).square().sum() for name in train), stats

        wanted = model.sgd_step(theta, batch, 0.1, train, loss=tied)
        found = model.sgd_step(theta, batch, 0.1, train, tie=(0.7, anchor))
        assert wanted.keys() == found.keys()
        for name in wanted:
            torch.testing.assert_close(found[name], wanted[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape, count, pixels", STORED)
def test_a_network_whose_first_layer_is_linear_reads_stored_images_too(shape, count, pixels):
    """Such a layer sees numbers, not channels: the bytes are scaled by the channel of the image that they come from."""
    source, rows = stored(shape, count, pixels), torch.randperm(200)[:count]
    model = build("mlp", shape, 10)
    model.insist("fused")
    plain = source.batch(rows)
    plain = Batch(plain.images.scaled(), plain.y)
    for batch in (source.copied(rows), source.batch(rows)):
        before, theta = calls.copy(), theta_of(model)
        wanted, found = (model.sgd_step(theta, each, 0.1) for each in (plain, batch))
        assert calls - before == {"fused": 2} and isinstance(batch.images, StoredImages)
        assert all(torch.equal(wanted[name], found[name]) for name in wanted)
        assert torch.equal(model.scores(theta, plain), model.scores(theta, batch))


def _halved(shape) -> int:
    return ((shape[1] - 2) // 2) * ((shape[2] - 2) // 2)


def test_what_is_not_stored_that_way_is_scaled_at_once():
    """Channels first, numbers instead of bytes, padded rows."""
    source, index = stored((3, 16, 16), 4, "standardised"), torch.arange(4)
    dataset = replace(source.dataset, images=source.images.contiguous())
    numbers = replace(source.dataset, images=source.images / 255)
    for other in (dataset, numbers):
        batch = DeviceData(other, CPU, torch.float32).batch(index)
        torch.testing.assert_close(batch.images, source.batch(index).x)
    assert isinstance(source.batch(index, index > 1).images, torch.Tensor)


@pytest.mark.parametrize("wrong", [-1, 200, 2**40])
def test_rows_that_are_none_are_an_error(wrong):
    source, model = stored((1, 16, 16), 4, "standardised"), build("lenet5_bn", (1, 16, 16), 10)
    model.insist("fused")
    batch = source.batch(torch.arange(9))
    batch = replace(batch, images=replace(batch.images, rows=torch.tensor([*range(8), wrong])))
    for use in (lambda: model.scores(model.theta0, batch), lambda: model.sgd_step(model.theta0, batch, 0.1)):
        with pytest.raises(IndexError, match=f"{wrong}.*0 to 199"):
            use()


def soft(model):
    def loss(theta, batch, train):
        z, stats = model.training_features(theta, batch, train)
        target = torch.softmax(torch.arange(10.0).to(z) * batch.y[:, None] / 9, -1)
        return batch.mean(-(target * model.classify(theta, z).log_softmax(-1)).sum(-1)), stats

    return loss


def weighted_with_added_scores(model):
    def loss(theta, batch, train):
        z, stats = model.training_features(theta, batch, train)
        added = torch.linspace(-1, 1, len(batch.y) * 10).view(-1, 10).to(z)
        losses = functional.cross_entropy(model.classify(theta, z) + added, batch.y, reduction="none")
        return batch.mean(torch.linspace(0, 2, len(batch.y)).to(z) * losses), stats

    return loss


def proximal(model):
    def loss(theta, batch, train):
        value, stats = model.loss(theta, batch, train)
        return value + sum((theta[name] - 0.1).square().sum() for name in train), stats

    return loss


@pytest.mark.parametrize("loss", [soft, weighted_with_added_scores, proximal])
def test_losses_are_autograds(loss):
    both(build("lenet5_bn", (3, 16, 16), 10, pools=2), batch_of((3, 16, 16), 13, 10), loss=loss)


def test_ties_and_zeros_as_in_pytorch():
    """Few different numbers: most windows have ties, many values before ReLU are 0. All numbers are exact."""
    model = made(
        nn.Conv2d(1, 3, 3, bias=False), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(3, 3, 1), nn.MaxPool2d(2), numbers=12
    )
    draw, theta = torch.Generator().manual_seed(0), {}
    for name, value in model.theta0.items():
        theta[name] = torch.randint(-1, 2, value.shape, generator=draw).float()
    batch = batch_of((1, 10, 10), 21, 5)
    batch = Batch(batch.x.round().clamp(-1, 1), batch.y)
    values = {}
    for step in ("torch", "fused"):
        model.step = step
        values[step] = model.gradient(
            lambda p: (model.training_features(p, batch)[0].sum() / 4, {}), {n: theta[n] for n in model.trainable}
        )[0]
    assert all(torch.equal(values["torch"][name], values["fused"][name]) for name in model.trainable)
    assert values["torch"]["extractor.0.weight"].abs().sum() > 0


def test_wide_networks_take_pytorch_for_batches_that_leave_lanes_empty():
    model, lanes = build("mcmahan_cnn", (1, 16, 16), 10), network.BLOCK
    for count, step, used in (
        (2 * lanes, "auto", "fused"),
        (lanes + 1, "auto", "torch"),
        (lanes + 1, "fused", "fused"),
    ):
        model.step, before = step, calls.copy()
        model.sgd_step(model.theta0, batch_of((1, 16, 16), count, 10), 0.1)
        assert calls - before == {used: 1}
    assert all(build("lenet5_bn", (1, 16, 16), 10).fused.pays(count) for count in range(1, 40))


@pytest.mark.parametrize("name", ["lenet5_bn", "lenet5", "mcmahan_cnn"])
def test_evaluation(name):
    """In pieces: 150 images."""
    model, x = build(name, (3, 20, 20), 10), batch_of((3, 20, 20), 150, 10).x
    theta, found = theta_of(model), {}
    for step in ("torch", "fused"):
        model.step = step
        found[step] = model.logits(theta, x), model.features(theta, x)
    for a, b in zip(*found.values()):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    leaf = theta["head.bias"].requires_grad_()
    assert torch.autograd.grad(model.logits(theta, x).sum(), leaf)[0].tolist() == [150] * 10  # PyTorch's where asked


# what falls back ------------------------------------------------------------------------------------------------------


def test_what_compiled_code_does_not_know_is_pytorchs():
    model, batch = build("lenet5_bn", (3, 16, 16), 10, pools=2), batch_of((3, 16, 16), 4, 10)
    theta, fused = model.theta0, model.fused
    assert fused.accepts(theta, batch.x)
    head = theta["head.weight"]
    wrong = [head.double(), head[:, :-1], head.t().contiguous().t(), head[:5], head.to(torch.bfloat16), head.to("meta")]
    assert not any(fused.accepts({**theta, "head.weight": value}, batch.x) for value in wrong)
    x = batch.x
    images = [x.double(), x[:, :2], x[..., :-1], x[:0], x[0], x.flip(3).transpose(2, 3), x.clone().requires_grad_()]
    assert not any(fused.accepts(theta, image) for image in images)
    assert not torch.func.vmap(lambda one: torch.tensor(fused.accepts(theta, one[None])))(x).any()
    for name in ("lenet_dlg", "resnet18", "supervisor_cnn", "mobilenetv2", "supervisor_transformer"):
        assert build(name, (3, 32, 32), 10).fused is None
    others = [
        [nn.Conv2d(3, 4, 3, stride=2)],
        [nn.Conv2d(4, 4, 3, groups=2)],
        [nn.Conv2d(3, 4, 9)],
        [nn.Conv2d(3, 4, 3, padding=3)],
        [nn.Conv2d(3, 4, 3, dilation=2)],
        [nn.Conv2d(3, 4, (3, 1))],
        [nn.ReLU(), nn.Conv2d(3, 4, 3)],
        [nn.Conv2d(3, 4, 3), nn.MaxPool2d(2), nn.ReLU()],
        [nn.Conv2d(3, 4, 3), nn.MaxPool2d(3)],
        [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)],
        [nn.Conv2d(3, 4, 3), nn.ReLU(), BatchNorm2d(4)],
        [nn.Conv2d(3, 4, 3), nn.Dropout(0.1)],
    ]
    assert all(made(*layers, numbers=4).fused is None for layers in others)


def test_weights_that_change_between_the_passes_are_an_error():
    model, batch = build("lenet5", (1, 16, 16), 10), batch_of((1, 16, 16), 4, 10)
    theta = {name: value.clone().requires_grad_() for name, value in model.theta0.items()}
    value, _ = model.loss(theta, batch)
    with torch.no_grad():
        theta["head.weight"].add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        value.backward()


def test_passes_in_flight_do_not_share_memory():
    """Two forward passes, then both backward passes; and one that is never followed by one."""
    model, batches = build("lenet5_bn", (1, 16, 16), 10), [batch_of((1, 16, 16), count, 10) for count in (8, 30, 9)]
    model.insist("fused")

    def gradient(value, leaves):
        return torch.autograd.grad(value, list(leaves.values()))

    leaves = {name: model.theta0[name].clone().requires_grad_() for name in model.trainable}
    alone = [gradient(model.loss({**model.theta0, **leaves}, batch)[0], leaves) for batch in batches]
    values = [model.loss({**model.theta0, **leaves}, batch)[0] for batch in batches]
    for k in (1, 0):
        assert all(torch.equal(a, b) for a, b in zip(gradient(values[k], leaves), alone[k]))
    del values
    assert len(model.fused.spare) == 3


def test_no_compiler_is_one_line_and_pytorchs_numbers(monkeypatch, capfd):
    spec = tiny("fedavg", rounds=1)
    reference = simulate(spec, step="torch")
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.delenv("FEDLIB_TOLD", raising=False)
    compiling.library.cache_clear()
    try:
        result = simulate(spec)
        assert result.history == reference.history and result.provenance["step"] == "torch"
        (line,) = capfd.readouterr().err.strip().splitlines()
        assert "PyTorch's" in line and "no C++ compiler was found" in line
        with pytest.raises(BadValue, match="no compiler was found"):
            simulate(spec, step="fused")
    finally:
        monkeypatch.undo()
        compiling.library.cache_clear()


def test_a_compiler_that_fails_is_no_compiler(monkeypatch, tmp_path):
    broken = tmp_path / "c++"
    broken.write_text('#!/bin/sh\n[ "$1" = --version ] && exit 0\necho "error: out of order" >&2\nexit 1\n')
    broken.chmod(0o755)
    monkeypatch.setenv("CXX", str(broken))
    with pytest.raises(compiling.NoCompiler, match="out of order"):
        compiling.compiled(compiling.FLAGS)
    assert not list(tmp_path.glob("*.so"))


# in runs -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_a_short_run_of_every_method(method):
    """The server's and all clients' states after two rounds."""
    spec = tiny(method, rounds=2, model_options={"pools": 2})
    ends, before = {}, calls.copy()
    for step in ("torch", "fused"):
        with torch.no_grad():
            *_, (_, state, _) = played(
                spec, change=lambda run, step=step: (run.work.model.insist(step), shorter(run))[1]
            )
        ends[step] = tensors(state.server) + tensors(state.clients)
    assert (calls - before)["fused"] > 0
    for a, b in zip(ends["torch"], ends["fused"], strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def test_provenance_and_refusal():
    spec = tiny("fedavg", rounds=1)
    used = {step: simulate(spec, step=step).provenance["step"] for step in ("auto", "torch", "fused")}
    assert used == {"auto": "fused", "torch": "torch", "fused": "fused"}
    assert simulate(spec, backend="vmap").provenance["step"] == "torch"
    narrow = tiny("fedavg", rounds=1, model="mcmahan_cnn", model_options={})
    assert simulate(narrow).provenance["step"] == "mixed"
    for options in (dict(backend="vmap"), dict()):
        with pytest.raises(BadValue, match="float32 on a CPU"):
            simulate(spec.but(precision="float32" if options else "float64"), step="fused", **options)
    with pytest.raises(BadValue, match="other layers"):
        simulate(tiny("fedavg", model="resnet18", model_options={}), step="fused")
    with pytest.raises(BadValue, match="torch"):
        simulate(spec, step="fast")


def test_the_command_refuses_it():
    before = calls.copy()
    arguments = ["run", "fedavg", "--rounds", "1", "--clients", "4", "--jobs", "1", "--step"]
    result = call(*arguments, "torch")
    assert result.exit_code == 0 and (calls - before).keys() == {"torch"}, result.output
    wrong = call(*arguments, "quick")
    assert wrong.exit_code == 2 and "fused" in wrong.stderr


def test_a_state_is_continued_by_the_kind_of_steps_that_made_it(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDLIB_CACHE", str(tmp_path))
    spec = tiny("local", rounds=3, precision="float32")
    for step, other in (("torch", "fused"), ("fused", "torch")):
        stop(spec, 2, step=step)
        for kind, rounds in ((other, [0, 1, 2, 3]), (step, [2, 3])):
            seen = []
            simulate(spec, step=kind, checkpoint_every=0, progress=seen.append)
            assert seen == rounds
        for left in (tmp_path / "checkpoints").iterdir():
            left.unlink()


def test_a_local_pass_is_the_same_with_threads():
    """Calls release the interpreter: several threads with one model."""
    model, batches = build("lenet5_bn", (1, 16, 16), 10), [batch_of((1, 16, 16), count, 10) for count in range(2, 34)]
    model.insist("fused")

    def stepped(batch):
        with torch.no_grad():
            return model.sgd_step(model.theta0, batch, 0.1)

    alone = [stepped(batch) for batch in batches]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(stepped, batches))
    assert all(torch.equal(a[name], b[name]) for a, b in zip(alone, together) for name in a)


# the code itself ------------------------------------------------------------------------------------------------------

CHECKED = """
import sys, torch
sys.path.insert(0, sys.argv[1])
from fedlib.models.fused import build as compiling
compiling.library = lambda library=compiling.load(sys.argv[2]): library
import test_fused
for name, shape, classes, options, counts in test_fused.NETWORKS:
    if shape[1] < 30:
        test_fused.both(test_fused.build(name, shape, classes, **options), test_fused.batch_of(shape, 9, classes))
        if "bn" not in name:
            test_fused.clipped(name, shape, classes, options, 9)
            test_fused.clipped(name, shape, classes, options, 17)
for kernel in (1, 2, 5, 7):
    test_fused.test_every_kernel_with_every_border(kernel)
for which in test_fused.SUBSETS:
    test_fused.test_a_part_of_the_parameters(which)
    test_fused.test_a_whole_step_is_a_descent_by_the_gradient(which, 20)
for case in test_fused.STORED:
    test_fused.test_images_are_read_as_they_are_stored(*case)
    test_fused.test_a_network_whose_first_layer_is_linear_reads_stored_images_too(*case)
for wrong in (-1, 200):
    test_fused.test_rows_that_are_none_are_an_error(wrong)
print("nothing found")
"""


def test_sanitizers_find_nothing(tmp_path):
    """Reads and writes outside of the buffers, also of one's own neighbours, and undefined behaviour."""
    flags = (*(f for f in compiling.FLAGS if f != "-O3"), "-O1", "-g", "-fsanitize=address,undefined")
    flags += ("-fno-sanitize-recover=all",)
    library = subprocess.run([compiling.find_compiler(), "-print-file-name=libasan.so"], capture_output=True, text=True)
    if not os.path.isabs(library.stdout.strip()) or not os.path.exists(library.stdout.strip()):
        pytest.skip("THE COMPILER HAS NO SANITIZERS: compiled steps were NOT checked")
    path = compiling.compiled(flags)
    environment = os.environ | {
        "LD_PRELOAD": library.stdout.strip(),
        "ASAN_OPTIONS": "detect_leaks=0:protect_shadow_gap=0",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    done = subprocess.run(
        [sys.executable, "-c", CHECKED, os.path.dirname(__file__), path],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and "nothing found" in done.stdout, done.stderr[-3000:]
