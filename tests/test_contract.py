"""What the engine offers to methods: grouped steps, noise, siblings, and hooks that are named and called rightly. What
methods make of it is in test_every_method."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers import close, same, tiny

from fedlib.algorithms.api import Algorithm
from fedlib.algorithms.fedavg import FedAvg
from fedlib.base import tree
from fedlib.base.errors import BadValue
from fedlib.engine.batches import ClientTurn, Training
from fedlib.engine.client_data import PlainData
from fedlib.engine.setup import set_up
from fedlib.engine.state import Transport
from fedlib.models import build


def turn(count, batch_size=32, min_batch=2, **changes):
    return ClientTurn(
        None, Training(1, batch_size, 0.1, 7, min_batch), {"train": np.arange(count)}, (0, 1, 2), **changes
    )


@pytest.mark.parametrize(
    ("count", "epochs", "steps", "together", "expected"),
    [
        (100, 1, None, 1, [(32,), (32,), (32,), (4,)]),
        (100, 1, None, 2, [(32, 32), (32, 4)]),
        (70, 2, None, 2, [(32, 32), (32, 32)]),
        (20, 2, None, 3, [(20, 20, 20), (20, 20, 20)]),  # fewer batches than asked: the same again
        (40, 1, 5, 1, [(32,), (8,), (32,), (8,), (32,)]),
        (100, 1, 3, 2, [(32, 32), (32, 4), (32, 32)]),
        (1, 3, 4, 1, []),
        (100, 0, None, 1, []),
    ],
)
def test_steps_of_several_minibatches(count, epochs, steps, together, expected):
    plan = turn(count).plan(0, epochs, steps, together)
    assert [tuple(map(len, batches)) for batches in plan] == expected


def test_minibatches_of_one_step_do_not_overlap():
    for batches in turn(100).plan(0, 2, None, 3):
        assert len(np.unique(np.concatenate(batches))) == sum(map(len, batches))


def test_noise_is_standard_normal_and_drawn_anew_by_every_fold():
    data = PlainData(set_up(tiny("fedavg", precision="float64")).turn(0, 0, 1))
    first, second = (torch.cat(data.fold(lambda seen, batch: (*seen, batch.noise), (), 4, noise=50)) for _ in range(2))
    assert first.shape == second.shape and not torch.equal(first, second)
    assert abs(float(first.mean())) < 5 / first.numel() ** 0.5
    assert float(first.var()) == pytest.approx(1, abs=10 / first.numel() ** 0.5)


def test_training_features_update_the_statistics_like_the_loss():
    run = set_up(tiny("fedavg", precision="float64"))
    model, batch = run.work.model, run.work.source.batch(torch.arange(20))
    with torch.no_grad():
        z, stats = model.training_features(model.theta0, batch)
        loss, expected = model.loss(model.theta0, batch)
        assert same(stats, expected)
        torch.testing.assert_close(torch.nn.functional.cross_entropy(model.classify(model.theta0, z), batch.y), loss)
        _, frozen = model.training_features(model.theta0, batch, train=("head.weight",))
    assert frozen == {}


def test_independent_initial_values():
    """Functions of the seed and the number; other numbers and other seeds draw others;
    batch-norm layers start equal."""
    model, again, other = (build("lenet5_bn", (1, 16, 16), 10, seed=s) for s in (0, 0, 1))
    assert same(model.independent(1), again.independent(1))
    weights = [
        t["head.weight"] for t in (model.theta0, model.independent(1), model.independent(2), other.independent(1))
    ]
    assert all(not torch.equal(weights[a], weights[b]) for a in range(4) for b in range(a))
    assert model.independent(1).keys() == model.theta0.keys()
    double = model.to(torch.device("cpu"), torch.float64)
    assert double.independent(1)["head.weight"].dtype == torch.float64
    close(double.independent(1), tree.map(torch.Tensor.double, model.independent(1)))


def test_siblings_are_built_once_and_follow_into_the_stack():
    model = build("lenet5_bn", (1, 16, 16), 10).to(torch.device("cpu"), torch.float64)
    sibling = model.sibling("lenet5")
    assert sibling is model.sibling("lenet5") and sibling.theta0["head.weight"].dtype == torch.float64
    assert sibling.num_parameters["model"] != model.num_parameters["model"]
    stacked = model.for_stack()
    assert stacked.sibling("lenet5").stacked and not sibling.stacked


def test_what_does_not_travel_is_left_out_at_every_level():
    theta0 = {"a": torch.zeros(3), "running": torch.zeros(2)}
    message = {"theta": theta0, "pair": (theta0, torch.zeros(5))}
    assert same(
        Transport("local", ("running",), theta0).travelling(message),
        {"theta": {"a": theta0["a"]}, "pair": ({"a": theta0["a"]}, torch.zeros(5))},
    )
    counts = {
        policy: Transport(policy, ("running",), theta0).floats(message) for policy in ("local", "global", "reset")
    }
    assert counts == {"local": 11, "global": 15, "reset": 11}


def test_siblings_are_built_before_anything_starts(monkeypatch):
    """So that a resumed run finds them, and a name that does not exist is refused."""
    monkeypatch.setattr(FedAvg, "siblings", ("lenet5_bn",))
    assert list(set_up(tiny("fedavg")).work.model.siblings) == ["lenet5_bn"]
    monkeypatch.setattr(FedAvg, "siblings", ("lenet6",))
    with pytest.raises(BadValue, match="lenet6"):
        set_up(tiny("fedavg"))


# hooks ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({"server_updat": lambda self, server, ids, uploads, n: server}, "Other.server_updat .* 'server_update'"),
        ({"downloads": lambda self, server, ids: {}}, "Other.downloads .* 'download'"),
        ({"fine_tuning": lambda self, model, theta, data, epochs: theta}, "Other.fine_tuning .* 'fine_tune'"),
        ({"sibling": ("lenet5",)}, "Other.sibling .* 'siblings'"),
        ({"val_fractoin": 0.5, "__annotations__": {"val_fractoin": "float"}}, "Other.val_fractoin .* 'val_fraction'"),
        (
            {"client_update": lambda self, model, message, data: ({}, {})},
            r"Other.client_update\(self, model, message, data\) .* client_update\(self, model, message, client, data\)",
        ),
        (
            {"survey": lambda self, model, message, data: {}},
            r"Other.survey\(.*\) .* survey\(self, model, message, client",
        ),
        ({"warm_up": (None, 0)}, "Other.warm_up"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_misspelt_hook_or_one_with_other_parameters_is_an_error(body, named):
    """When the class is defined, naming what was written and the hook; also where a mixin brings it."""
    with pytest.raises(TypeError, match=named):
        type("Other", (FedAvg,), body)
    with pytest.raises(TypeError, match=named):
        type("Method", (type("Other", (), body), FedAvg), {})


def test_a_method_without_a_message_or_without_training_is_an_error():
    with pytest.raises(TypeError, match="neither download nor messages"):
        type("Silent", (Algorithm,), {})
    with pytest.raises(TypeError, match="client_update"):
        type("Idle", (Algorithm,), {"download": lambda self, server, i: server})()
