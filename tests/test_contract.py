"""What the engine offers to methods beyond the first four: grouped steps, noise, class counts, groups, surveys,
own predictions."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from helpers import close, computed, played, same, tiny

from fedlib.algorithms.api import Algorithm, Setting
from fedlib.algorithms.fedavg import FedAvg
from fedlib.algorithms.parts.passes import local_sgd
from fedlib.base import tree
from fedlib.base.errors import BadValue
from fedlib.engine import simulate as engine
from fedlib.engine.batches import ClientTurn, Training
from fedlib.engine.evaluate import evaluate, personal_models, record
from fedlib.engine.result import finished
from fedlib.engine.setup import first_state, set_up
from fedlib.engine.state import Transport
from fedlib.models import build


def turn(count, batch_size=32, min_batch=2, **changes):
    return ClientTurn(
        None, Training(1, batch_size, 0.1, 7, min_batch), {"train": np.arange(count)}, (0, 1, 2), **changes
    )


def run_with(method, **changes):
    """A run on digits whose method is an instance, not a name."""
    run = set_up(tiny("fedavg", precision="float64", **changes))
    return dataclasses.replace(run, method=method, warm_up=method.warm_up(run.setting))


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


@pytest.mark.parametrize("together", [1, 2])
def test_noise_is_standard_normal_and_the_same_in_both_backends(together):
    """Sums over real rows agree between backends; over all steps its mean is near 0 and its variance near 1;
    a second fold draws anew."""
    run = set_up(tiny("fedavg", precision="float64"))

    def sums(model, start, data):
        def step(state, *batches):
            for batch in batches:
                values = batch.noise if batch.mask is None else torch.where(batch.mask[:, None], batch.noise, 0)
                rows = torch.ones_like(batch.y) if batch.mask is None else batch.mask.to(batch.y.dtype)
                state = {
                    "sum": state["sum"] + values.sum(),
                    "square": state["square"] + values.square().sum(),
                    "n": state["n"] + 5 * rows.sum(),
                }
            return state

        return data.fold(step, start, 2, together=together, noise=5), data.fold(
            step, start, 2, together=together, noise=5
        )

    zero = torch.zeros(4, dtype=torch.float64)
    start = {"sum": zero, "square": zero, "n": torch.zeros(4, dtype=torch.int64)}
    serial, stacked = (computed(run, name, sums, range(4), start) for name in ("serial", "vmap"))
    close(stacked, serial)
    first, second = serial
    assert not torch.equal(first["sum"], second["sum"]) and len(set(first["sum"].tolist())) == 4
    n = float(first["n"].sum())
    assert abs(float(first["sum"].sum())) < 5 * n**0.5
    assert float(first["square"].sum()) / n == pytest.approx(1, abs=10 / n**0.5)


def test_class_counts_and_validation_parts_in_both_backends():
    run = set_up(tiny("fedavg"))
    labels = run.work.source.labels

    def counts(model, nothing, data):
        return {"classes": data.class_counts, "n": torch.as_tensor(data.num_samples)}

    for name in ("serial", "vmap"):
        out = computed(run, name, counts, [2, 0], {"x": torch.zeros(2)})
        assert out["classes"].tolist() == [
            labels[run.work.parts[i]["train"]].bincount(minlength=10).tolist() for i in (2, 0)
        ]
        assert out["n"].tolist() == out["classes"].sum(1).tolist()
    assert torch.equal(run.setting.class_counts, torch.stack([run.turn(i, 0, 0).class_counts for i in range(4)]))


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


def test_norm_names_are_found_by_module_type():
    model = build("lenet5_bn", (1, 16, 16), 10)
    kinds = ("weight", "bias", "running_mean", "running_var")
    assert set(model.norm_names) == {f"extractor.bn{k}.{kind}" for k in (1, 2) for kind in kinds}


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


@dataclasses.dataclass(frozen=True)
class Surveyed(FedAvg):
    """FedAvg that begins with one round of FedAvg and then asks everybody for the mean feature of its training data."""

    def warm_up(self, setting):
        return FedAvg(), 1

    def survey(self, model, message, client, data):
        def step(total, batch):
            z = model.features(message, batch.x)
            return total + (z if batch.mask is None else torch.where(batch.mask[:, None], z, 0)).sum(0)

        start = torch.zeros(84, dtype=torch.float64)
        return {
            "mean": data.scan(step, start) / torch.as_tensor(data.num_samples),
            "_n": torch.as_tensor(data.num_samples).double(),
        }

    def switch_phase(self, model, setting, server, clients, reports):
        assert reports["mean"].shape == (setting.num_clients, 84)
        return {**server, "reports": reports}, clients

    def server_update(self, server, ids, uploads, n):
        return (
            {**super().server_update(server, ids, uploads, n), "reports": server["reports"]}
            if "reports" in server
            else super().server_update(server, ids, uploads, n)
        )


def test_a_survey_asks_every_client_once():
    run = run_with(Surveyed())
    state = first_state(run)
    with torch.no_grad():
        for t in (1, 2):
            engine.run_round([run], [state], t)
            engine.end_round([run], [state], [None])
    reports = state.server["reports"]
    assert reports["_n"].tolist() == run.sizes.tolist() and len({float(row.sum()) for row in reports["mean"]}) == 4
    assert state.floats["once"] == 4 * 85
    result = finished(dataclasses.replace(run, spec=run.spec.but(rounds=2)), state, {})
    assert result.communication["once"]["floats"] == 4 * 85


def test_without_a_survey_nothing_is_reported_once():
    assert set(engine.simulate(tiny("pfedsim")).communication) == {"down", "up"}


@dataclasses.dataclass(frozen=True)
class Grouped(FedAvg):
    """FedAvg whose even clients train twice as long: a Python branch on the client's group."""

    def groups(self, setting):
        return ["long" if i % 2 == 0 else "short" for i in range(setting.num_clients)]

    def client_update(self, model, message, client, data):
        return local_sgd(model, message, data, 2 if data.group == "long" else 1), client

    def floats_up(self, upload):
        return {"seven": torch.zeros(7)}


def test_groups_may_branch_and_are_never_stacked_together():
    """Both backends agree; the update of client 1 is that of FedAvg, the update of client 0 is not;
    counted as the method says."""
    ends, stacks = [], []
    for name in ("serial", "vmap"):
        run = set_up(tiny("fedavg", precision="float64", join_ratio=1.0, rounds=1), name)
        run = dataclasses.replace(run, method=Grouped(), groups=Grouped().groups(run.setting))
        if name == "vmap":
            real = run.backend._stacked
            run.backend._stacked = lambda fn, turns, trees, real=real: (
                stacks.append({t.group for t in turns}),
                real(fn, turns, trees),
            )[1]
        state = first_state(run)
        with torch.no_grad():
            engine.run_round([run], [state], 1)
        ends.append(state)
    close(ends[1].server, ends[0].server)
    assert {frozenset(groups) for groups in stacks} == {frozenset({"long"}), frozenset({"short"})}
    assert ends[0].floats["up"] == 4 * 7
    *_, (_, plain, _) = played(tiny("fedavg", precision="float64", join_ratio=1.0, rounds=1))
    assert not torch.equal(plain.stats["extractor.bn1.running_mean"][0], ends[0].stats["extractor.bn1.running_mean"][0])
    assert torch.equal(plain.stats["extractor.bn1.running_mean"][1], ends[0].stats["extractor.bn1.running_mean"][1])


@dataclasses.dataclass(frozen=True)
class Contrary(FedAvg):
    """FedAvg that predicts the class to which its model gives the least; what it evaluates is more than a theta."""

    def personal_model(self, model, message, client, data):
        return {**message, "sign": -torch.ones_like(message["head.bias"][0])}

    def predict(self, model, personal, x):
        return personal["sign"] * model.logits(personal, x)


@pytest.mark.parametrize("backend", ["serial", "vmap"])
def test_predictions_of_ones_own_are_what_is_tested(backend):
    """bn_stats = global, so that no statistics need to be made first."""
    run = set_up(tiny("fedavg", precision="float64", bn_stats="global"), backend)
    contrary = dataclasses.replace(run, method=Contrary())
    state = first_state(run)
    model = run.work.model
    with torch.no_grad():
        correct, _ = evaluate(contrary, state, "glob")
        for i in range(4):
            batch = run.work.source.batch(torch.from_numpy(run.work.parts[i]["test"]))
            hits = model.logits(model.theta0, batch.x).argmin(1) == batch.y
            assert correct[i].sum() == int(hits.sum())


def test_what_does_not_travel_is_left_out_at_every_level():
    theta0 = {"a": torch.zeros(3), "running": torch.zeros(2)}
    message = {"theta": theta0, "pair": (theta0, torch.zeros(5))}
    assert same(
        Transport("local", ("running",), theta0).travelling(message),
        {"theta": {"a": theta0["a"]}, "pair": ({"a": theta0["a"]}, torch.zeros(5))},
    )
    counts = {policy: Transport(policy, ("running",), theta0).floats(message) for policy in ("local", "global")}
    assert counts == {"local": 11, "global": 15}


@dataclasses.dataclass(frozen=True)
class HeadTuner(Contrary):
    """Contrary's models are for `recv`; at `glob` the received theta itself is tested; ft(k) trains the head alone,
    two epochs for one."""

    def personal_model(self, model, message, client, data):
        return {**super().personal_model(model, message, client, data), "head.bias": message["head.bias"] + 1}

    def generic_model(self, model, message):
        return message

    def fine_tune(self, model, theta, data, epochs):
        return {**local_sgd(model, theta, data, 2 * epochs, train=("head.weight", "head.bias")), "sign": theta["sign"]}


@pytest.mark.parametrize("backend", ["serial", "vmap"])
def test_generic_models_and_fine_tuning_of_ones_own(backend):
    """glob tests the message with the model's own scores; ft(1) is two epochs of the head;
    what is measured is what is tested."""
    run = set_up(tiny("fedavg", precision="float64", bn_stats="global"), backend)
    tuner, plain = (dataclasses.replace(run, method=method) for method in (HeadTuner(), FedAvg()))
    state = first_state(run)
    with torch.no_grad():
        assert all(map(np.array_equal, evaluate(tuner, state, "glob"), evaluate(plain, state, "glob")))
        tested = {point: next(personal_models(tuner, state, point))[1] for point in ("glob", "recv", "ft(1)")}
        twice = computed(
            run,
            backend,
            lambda model, theta, data: local_sgd(model, theta, data, 2, train=("head.weight", "head.bias")),
            range(4),
            {name: leaf for name, leaf in tested["recv"].items() if name != "sign"},
            draw=(1, 0),
        )
    theta0 = run.work.model.theta0
    assert same(tested["glob"], tree.repeat(theta0, 4))
    assert same(tested["recv"]["head.bias"], tree.repeat(theta0["head.bias"] + 1, 4))
    assert torch.equal(tested["ft(1)"]["extractor.fc1.weight"], tested["recv"]["extractor.fc1.weight"])
    close({name: tested["ft(1)"][name] for name in twice}, twice)
    assert not torch.equal(twice["head.weight"], tested["recv"]["head.weight"])


def test_setting_tells_seed_and_counts():
    run = set_up(tiny("fedavg", seed=5))
    assert isinstance(run.setting, Setting) and run.setting.seed == 5
    assert run.setting.class_counts.sum(1).tolist() == run.sizes.tolist()


@dataclasses.dataclass(frozen=True)
class Twins(FedAvg):
    """Two models that every client trains side by side, the second for twice as long;
    the second is what it predicts with."""

    num_models = 2

    def init(self, model, setting):
        return {"theta": tree.stack([model.theta0, model.independent(1)])}, {}

    def client_update(self, model, message, client, data):
        return tree.stack([local_sgd(model, tree.rows(message, k), data, k + 1) for k in range(2)]), client

    def predict(self, model, personal, x):
        return model.logits(tree.rows(personal, 1), x)


@pytest.mark.parametrize("bn_stats", ["local", "global"])
def test_several_models_a_client_have_statistics_of_their_own(bn_stats):
    """Both backends agree, also for clients that never trained;
    statistics [N, 2, ...] stay or travel as the policy says."""
    ends, tests = [], []
    for name in ("serial", "vmap"):
        run = set_up(tiny("fedavg", precision="float64", bn_stats=bn_stats, rounds=2), name)
        run = dataclasses.replace(run, method=Twins())
        state = first_state(run)
        with torch.no_grad():
            for t in (1, 2):
                engine.run_round([run], [state], t)
            tests.append(evaluate(run, state, "glob"))
        ends.append(state)
    close((ends[1].server, ends[1].stats), (ends[0].server, ends[0].stats))
    np.testing.assert_allclose(tests[1][1], tests[0][1], rtol=1e-9)
    stats, trained = ends[0].stats, ends[0].trained
    sent = ends[0].server["theta"]["extractor.bn1.running_mean"]
    nu = run.work.model.num_parameters["model"]
    assert ends[0].floats["up"] == 2 * 2 * 2 * (nu + (44 if bn_stats == "global" else 0))
    if bn_stats == "global":
        assert stats == {} and sent.abs().sum() > 0
    else:
        means = stats["extractor.bn1.running_mean"]
        assert means.shape == (4, 2, 6) and sent.abs().sum() == 0
        assert all(not torch.equal(means[i, 0], means[i, 1]) for i in range(4) if trained[i])
        assert trained.any() and means[~trained].abs().sum() == 0


@dataclasses.dataclass(frozen=True)
class Sending(FedAvg):
    """FedAvg that sends two models, of which the second is padding, and whose clients train their own one."""

    siblings = ("lenet5_bn",)

    def init(self, model, setting):
        return {"theta": model.theta0, "models": tree.repeat(model.theta0, setting.num_clients)}, {}

    def download(self, server, i):
        return {"models": tree.rows(server["models"], [i, 0]), "real": torch.tensor([True, False])}

    def client_update(self, model, message, client, data):
        return super().client_update(model, tree.rows(message["models"], 0), client, data)

    def server_update(self, server, ids, uploads, n):
        return {"theta": tree.weighted_mean(uploads, n), "models": tree.put(server["models"], ids, uploads)}

    def floats_down(self, message):
        return tree.map(lambda leaf: leaf[message["real"]], message["models"])

    def stored_upload(self, server, i):
        return tree.rows(server["models"], i)

    def personal_model(self, model, message, client, data):
        return tree.rows(message["models"], 0) if "models" in message else message

    def eval_points(self, server):
        return ("post",)


@pytest.mark.parametrize(("bn_stats", "numbers"), [("local", 44470), ("global", 44514)])
def test_messages_of_several_models(bn_stats, numbers):
    """Under "local" all models in a message have their receiver's statistics, and these are not counted;
    padding is not counted."""
    run = run_with(Sending(), bn_stats=bn_stats, eval_points=("post",))
    state = first_state(run)
    with torch.no_grad():
        for t in (1, 2):
            engine.run_round([run], [state], t)
        record(run, state)
    assert state.floats["down"] == state.floats["up"] == 2 * 2 * numbers
    assert state.uploads is None  # the server keeps them; they need not look like messages
    messages = run.method.messages(state.server, range(4))
    received = run.transport.received(messages, state.stats)
    name = "extractor.bn1.running_mean"
    if bn_stats == "local":
        assert torch.equal(received["models"][name][:, 0], state.stats[name])
        assert torch.equal(received["models"][name][:, 1], state.stats[name])
        assert not torch.equal(state.stats[name], messages["models"][name][:, 0])
    else:
        assert same(received, messages)


def test_siblings_are_built_before_anything_starts(monkeypatch):
    """So that a resumed run finds them, and a name that does not exist is refused."""
    monkeypatch.setattr("fedlib.algorithms.make", lambda name, **hyper: Sending())
    run = set_up(tiny("fedavg"))
    assert list(run.work.model.siblings) == ["lenet5_bn"]
    monkeypatch.setattr(Sending, "siblings", ("lenet6",))
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


def test_names_that_are_not_hooks_are_free():
    """A hyper-parameter may look like a function (FedProto's predict_by), and other functions are a method's own."""
    kind = type(
        "Free", (FedAvg,), {"predict_by": "x", "__annotations__": {"predict_by": "str"}, "mixture": lambda s: 0}
    )
    assert kind().predict_by == "x"


def test_a_method_without_a_message_or_without_training_is_an_error():
    with pytest.raises(TypeError, match="neither download nor messages"):
        type("Silent", (Algorithm,), {})
    with pytest.raises(TypeError, match="client_update"):
        type("Idle", (Algorithm,), {"download": lambda self, server, i: server})()


def test_hooks_that_are_absent_are_none():
    assert FedAvg().survey is FedAvg().chosen is FedAvg().generic_model is FedAvg().stored_upload is None
    assert Surveyed().survey is not None and Algorithm.survey is None
    assert FedAvg().warm_up(None) == (None, 0) and FedAvg().groups(None) == () and FedAvg().siblings == ()


def test_the_message_to_one_is_the_first_row_of_the_messages_to_many():
    @dataclasses.dataclass(frozen=True)
    class Many(FedAvg):
        def messages(self, server, ids):
            return tree.rows(server["models"], torch.as_tensor(ids))

        download = Algorithm.download

    models = {"w": torch.arange(6.0).view(3, 2)}
    assert Many().download({"models": models}, 2)["w"].tolist() == [4.0, 5.0]
    one = FedAvg().messages({"theta": models}, range(4))["w"]
    assert one.shape == (4, 3, 2) and one.stride(0) == 0  # one message for all is not copied
