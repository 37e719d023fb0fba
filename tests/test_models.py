"""Backbones and their training step, against PyTorch's own layers and optimiser."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fedlib.data.batch import Batch
from fedlib.models import build
from fedlib.models.parts import BatchNorm2d

SHAPE, CLASSES = (2, 12, 11), 4
CANCELLED = ("extractor.conv1.bias", "extractor.conv2.bias")  # batch norm subtracts them again: their gradient is 0


def model(seed=0, shape=SHAPE, **options):
    return build("lenet5_bn", shape, CLASSES, seed=seed, **options).to(torch.device("cpu"), torch.float64)


def batch(size, seed=0, shape=SHAPE):
    generator = torch.Generator().manual_seed(seed)
    return Batch(
        torch.randn(size, *shape, generator=generator, dtype=torch.float64),
        torch.randint(CLASSES, (size,), generator=generator),
    )


def padded(real, width, seed=9):
    """The same batch with rows of large numbers appended up to `width`, and the mask that hides them."""
    junk = batch(width - len(real.y), seed)
    return Batch(torch.cat([real.x, 50 + 30 * junk.x]), torch.cat([real.y, junk.y]), torch.arange(width) < len(real.y))


def trained(theta, model, steps=3):
    """theta after a few steps: weights, norms and statistics are no longer the special initial ones."""
    for step in range(steps):
        theta = model.sgd_step(theta, batch(8, seed=100 + step), lr=0.1)
    return theta


def copy(theta):
    return {name: value.clone() for name, value in theta.items()}


def assert_same(a, b, **tolerance):
    assert a.keys() == b.keys()
    for name in a:
        torch.testing.assert_close(a[name], b[name], **tolerance)


CLOSE = dict(rtol=1e-10, atol=1e-12)
EXACT = dict(rtol=0, atol=0)


# sizes and construction -----------------------------------------------------------------------------------------------


def test_initial_weights_have_the_usual_scale():
    """PyTorch's default: uniform in +-1/sqrt(fan_in), std 1/sqrt(3 fan_in); norms 1 and 0, statistics 0 and 1."""
    theta = build("lenet5_bn", (3, 32, 32), 10).theta0
    for name, fan_in in (("extractor.conv2.weight", 150), ("extractor.fc1.weight", 2304), ("head.weight", 84)):
        assert theta[name].abs().max() <= fan_in**-0.5 + 1e-7
        assert theta[name].std().item() == pytest.approx((3 * fan_in) ** -0.5, rel=0.1)
    for layer in ("extractor.bn1", "extractor.bn2"):
        assert (theta[f"{layer}.weight"] == 1).all() and (theta[f"{layer}.running_var"] == 1).all()
        assert (theta[f"{layer}.bias"] == 0).all() and (theta[f"{layer}.running_mean"] == 0).all()


def test_to_changes_the_type_and_keeps_the_values():
    single = build("lenet5_bn", SHAPE, CLASSES)
    double = single.to(torch.device("cpu"), torch.float64)
    assert all(value.dtype == torch.float64 for value in double.theta0.values())
    assert all(value.dtype == torch.float32 for value in single.theta0.values())
    assert_same({name: value.float() for name, value in double.theta0.items()}, single.theta0, **EXACT)


# batch norm -----------------------------------------------------------------------------------------------------------


def norm_steps(ours, masks=False, steps=5):
    """Outputs, input gradients, parameters and statistics of a norm trained for some steps on batches of 1 to 5
    images."""
    torch.manual_seed(0)
    targets = torch.randn(5, 3, 4, 4, dtype=torch.float64)
    layer = (BatchNorm2d if ours else nn.BatchNorm2d)(3).double().train()
    stats, record = None, []
    for step in range(steps):
        size = step % 5 + 1
        x = (2 + 3 * torch.randn(size, 3, 4, 4, dtype=torch.float64)).requires_grad_()
        if ours:
            stats = stats or (layer.running_mean.clone(), layer.running_var.clone())
            state = {**dict(layer.named_parameters()), "running_mean": stats[0], "running_var": stats[1]}
            layer.mask = torch.arange(size + 2) < size if masks else None
            fed = torch.cat([x, torch.full((2, 3, 4, 4), 1e3, dtype=torch.float64)]) if masks else x
            out = torch.func.functional_call(layer, state, (fed,))[:size]
            stats = layer.new_stats
        else:
            out = layer(x)
            stats = layer.running_mean.clone(), layer.running_var.clone()
        grads = torch.autograd.grad((out * targets[:size]).sum(), [layer.weight, layer.bias, x])
        with torch.no_grad():
            for value, grad in zip((layer.weight, layer.bias), grads):
                value -= 0.01 * grad
        record += [out.detach(), *grads, layer.weight.detach().clone(), layer.bias.detach().clone(), *stats]
    return layer, record


@pytest.mark.parametrize("masks", [False, True])
def test_batch_norm_is_pytorch_s(masks):
    """Five steps on batches of growing size: same outputs, gradients, parameters and running statistics;
    buffers never written."""
    layer, ours = norm_steps(True, masks)
    stock, theirs = norm_steps(False)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, **CLOSE)
    assert (layer.running_mean == 0).all() and (layer.running_var == 1).all()
    assert layer.num_batches_tracked is None and not torch.equal(stock.running_mean, layer.running_mean)


def test_batch_norm_in_evaluation_mode_uses_the_running_statistics():
    layer = BatchNorm2d(2).double().eval()
    x = torch.tensor([[[[1.0]], [[5.0]]], [[[3.0]], [[-1.0]]]], dtype=torch.float64)
    state = {
        "weight": [2.0, 1.0],
        "bias": [0.0, 10.0],
        "running_mean": [1.0, 2.0],
        "running_var": [4.0 - 1e-5, 9.0 - 1e-5],
    }
    out = torch.func.functional_call(
        layer, {name: torch.tensor(value, dtype=torch.float64) for name, value in state.items()}, (x,)
    )
    torch.testing.assert_close(out.flatten(1), torch.tensor([[0.0, 11.0], [2.0, 9.0]], dtype=torch.float64))
    assert layer.new_stats is None


# the training step ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 3, 7])
@pytest.mark.parametrize("width", [7, 20])
def test_padding_changes_nothing(size, width):
    """Loss, gradient and statistics of a masked, padded batch are those of the batch without padding."""
    lenet = model()
    theta, real = trained(lenet.theta0, lenet), batch(size)
    part = {name: theta[name] for name in lenet.trainable}
    results = []
    for b in (real, padded(real, width)):
        loss, _ = lenet.loss(theta, b)
        grads, stats = lenet.gradient(lambda p, b=b: lenet.loss({**theta, **p}, b), part)
        results.append({"loss": loss, **{f"d{name}": g for name, g in grads.items()}, **stats})
    assert len(results[0]) == 1 + len(lenet.trainable) + 4
    assert_same(*results, **CLOSE)


def stock_lenet(theta):
    """The pools=1 network of stock layers, holding theta."""
    extractor = nn.Sequential()
    parts = [
        nn.Conv2d(2, 6, 5),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.Conv2d(6, 16, 5),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
    ]
    parts += [nn.Linear(16 * 2 * 1, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU()]
    names = ["conv1", "bn1", "relu1", "conv2", "bn2", "relu2", "pool2", "flatten", "fc1", "relu3", "fc2", "relu4"]
    for name, part in zip(names, parts, strict=True):
        extractor.add_module(name, part)
    net = nn.Module()
    net.extractor, net.head = extractor, nn.Linear(84, CLASSES)
    missing = net.double().load_state_dict(theta, strict=False).missing_keys
    assert all("num_batches" in name for name in missing)
    return net


@pytest.mark.parametrize("masked", [False, True])
def test_sgd_step_is_a_plain_pytorch_loop(masked):
    """Three steps of torch.optim.SGD on stock layers, float64; then the same predictions in evaluation mode."""
    lenet, net = model(), stock_lenet(model().theta0)
    optimiser, theta = torch.optim.SGD(net.parameters(), lr=0.05), lenet.theta0
    for step in range(3):
        b = batch(5 + step, seed=step)
        optimiser.zero_grad()
        cross_entropy(net.head(net.extractor(b.x)), b.y).backward()
        optimiser.step()
        theta = lenet.sgd_step(theta, padded(b, 9) if masked else b, lr=0.05)
    assert_same(theta, {name: value for name, value in net.state_dict().items() if "num_batches" not in name}, **CLOSE)
    net.eval()
    x = batch(6, seed=50).x
    torch.testing.assert_close(lenet.logits(theta, x), net.head(net.extractor(x)).detach(), **CLOSE)


def test_sgd_step_modifies_nothing():
    """Neither theta nor the batch nor the module that the functions share."""
    lenet, b = model(), batch(6)
    theta = trained(lenet.theta0, lenet)
    kept, x, y, held = copy(theta), b.x.clone(), b.y.clone(), copy(lenet.module.state_dict())
    new = lenet.sgd_step(theta, b, lr=0.1)
    lenet.logits(theta, b.x)
    lenet.batch_stats(theta, b)
    lenet.layer_outputs(theta, b.x)
    assert_same(theta, kept, **EXACT)
    assert_same(lenet.module.state_dict(), held, **EXACT)
    assert_same(lenet.theta0, model().theta0, **EXACT)
    assert torch.equal(b.x, x) and torch.equal(b.y, y)
    assert new.keys() == theta.keys()
    assert all(not torch.equal(new[name], theta[name]) for name in theta if name not in CANCELLED)
    assert not any(value.requires_grad for value in (*new.values(), *theta.values()))


def test_functions_of_theta_do_not_depend_on_earlier_calls():
    """Training mode, masks and hooks of one call leave no trace in the next."""
    lenet, b = model(), batch(6)
    theta = trained(lenet.theta0, lenet)
    first, loss = lenet.logits(theta, b.x), lenet.loss(theta, b)[0]
    lenet.sgd_step(theta, padded(b, 9), lr=0.1)
    lenet.batch_stats(theta, b)
    lenet.layer_outputs(theta, b.x)
    assert torch.equal(lenet.logits(theta, b.x), first) and torch.equal(lenet.loss(theta, b)[0], loss)
    assert_same(lenet.loss(theta, b)[1], model().loss(theta, b)[1], **EXACT)


@pytest.mark.parametrize("block", ["head.", "extractor."])
def test_training_a_subset(block):
    """Only the chosen parameters move: the extractor's as when everything is trained; the head's on top of an extractor
    whose batch norm runs in evaluation mode, and then no running statistics move either (specification, section
    0.3)."""
    lenet, b = model(), batch(6)
    theta = trained(lenet.theta0, lenet)
    chosen = [name for name in lenet.trainable if name.startswith(block)]
    new, full = lenet.sgd_step(theta, b, 0.1, train=chosen), lenet.sgd_step(theta, b, 0.1)
    if block == "head.":
        leaves = {name: theta[name].clone().requires_grad_() for name in chosen}
        with torch.enable_grad():
            loss = torch.nn.functional.cross_entropy(lenet.logits({**theta, **leaves}, b.x), b.y)
        full = {
            name: theta[name] - 0.1 * grad
            for name, grad in zip(leaves, torch.autograd.grad(loss, list(leaves.values())))
        }
    for name in lenet.running:
        assert torch.equal(new[name], theta[name]) == (block == "head.")
    for name in lenet.trainable:
        if name in chosen:
            torch.testing.assert_close(new[name], full[name], **CLOSE)
            assert name in CANCELLED or not torch.equal(new[name], theta[name])
        else:
            assert torch.equal(new[name], theta[name])


def test_gradient_works_without_grad_mode_and_for_unused_parameters():
    """simulate() runs under no_grad; a parameter that the loss does not contain has gradient 0 in both forms."""
    lenet = model()
    params = {"a": torch.tensor([1.0, -2.0]), "unused": torch.tensor([3.0])}
    with torch.no_grad():
        for m in (lenet.for_stack(), lenet):
            grads, aux = m.gradient(lambda p: ((p["a"] ** 2).sum(), {"twice": 2 * p["a"]}), params)
            assert grads["a"].tolist() == [2, -4] and aux["twice"].tolist() == [2, -4]
            assert not aux["twice"].requires_grad
            assert grads["unused"].tolist() == [0]


# looking inside -------------------------------------------------------------------------------------------------------


def test_norm_inputs_are_the_convolutions_and_batch_stats_theirs():
    """Mean and unbiased variance per channel; the first norm's input is the first convolution's output.
    Padding changes nothing."""
    lenet, b = model(), batch(6)
    theta = trained(lenet.theta0, lenet)
    inputs, outputs = lenet.norm_inputs(theta, b.x), lenet.layer_outputs(theta, b.x)
    assert list(inputs) == ["extractor.bn1", "extractor.bn2"]
    assert torch.equal(inputs["extractor.bn1"], outputs["extractor.conv1"])
    assert torch.equal(inputs["extractor.bn2"], outputs["extractor.conv2"])
    stats, masked = lenet.batch_stats(theta, b), lenet.batch_stats(theta, padded(b, 9))
    torch.testing.assert_close(stats["extractor.bn1.running_mean"], inputs["extractor.bn1"].mean((0, 2, 3)), **CLOSE)
    torch.testing.assert_close(
        stats["extractor.bn1.running_var"], inputs["extractor.bn1"].var((0, 2, 3), correction=1), **CLOSE
    )
    assert set(stats) == set(lenet.running)
    assert_same(stats, masked, **CLOSE)
    assert all(layer.momentum == 0.1 for layer in lenet.norms.values())


def test_activations_by_hand():
    """lenet5_bn, two pools, 1x16x16: conv 6*12*12, norm and ReLU the same, pool 6*6*6, conv 16*2*2, norm, ReLU, pool
    16, flatten 16, fc 120 twice (ReLU), 84 twice, head 10: 3*864 + 216 + 3*64 + 16 + 16 + 240 + 168 + 10 = 3450."""
    assert build("lenet5_bn", (1, 16, 16), 10, pools=2).activations((1, 16, 16)) == 3450


@pytest.mark.parametrize("name, shape", [("lenet5", (1, 16, 16)), ("lenet5_bn", (3, 32, 32))])
def test_many_models_as_one_program_score_as_one_by_one(name, shape):
    model = build(name, shape, 10, seed=0).to(torch.device("cpu"), torch.float64)
    changed = {
        n: torch.stack([leaf + 0.1 * k * torch.randn_like(leaf).abs() for k in range(4)])
        for n, leaf in model.theta0.items()
    }
    x = torch.randn(5, *shape, dtype=torch.float64)
    heads = {n: leaf for n, leaf in changed.items() if n.startswith("head.")}
    for some in (changed, heads, {n: leaf[:1] for n, leaf in changed.items()}):
        one_by_one = [
            model.logits({**model.theta0, **{n: leaf[k] for n, leaf in some.items()}}, x)
            for k in range(len(some["head.bias"]))
        ]
        found = model.logits_of_many(model.theta0, some, x)
        torch.testing.assert_close(found, torch.stack(one_by_one), atol=1e-12, rtol=1e-12)
        torch.testing.assert_close(
            model.for_stack().logits_of_many(model.theta0, some, x), found, atol=1e-12, rtol=1e-12
        )


@pytest.mark.parametrize("name, shape", [("lenet5", (1, 16, 16)), ("lenet5_bn", (3, 32, 32))])
def test_compiled_code_scores_many_models_one_after_the_other(name, shape):
    model = build(name, shape, 10, seed=0)
    changed = {n: torch.stack([leaf, leaf + 0.1]) for n, leaf in model.theta0.items() if n.startswith("extractor.")}
    x = torch.randn(5, *shape)
    with_torch = model.logits_of_many(model.theta0, changed, x)
    model.insist("auto")
    if not model.fused.available:
        pytest.skip("NO C++ COMPILER: compiled scores of many models were NOT compared")
    asked = []
    model.fused.evaluated = lambda *given, own=model.fused.evaluated: asked.append(given) or own(*given)
    torch.testing.assert_close(model.logits_of_many(model.theta0, changed, x), with_torch, atol=1e-5, rtol=1e-5)
    assert len(asked) == 2
