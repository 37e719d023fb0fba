"""Clients that come after the last round: nobody learns from them before, and what they get when they join."""

from __future__ import annotations

import dataclasses
import json
import re

import numpy as np
import pytest
import torch
from helpers import HYPER, METHODS, call, close, exact, tensors

from fedlib import algorithms
from fedlib.algorithms.fedavg import FedAvg
from fedlib.algorithms.pfedhn import PFedHN
from fedlib.base import tree
from fedlib.base.errors import BadValue
from fedlib.checks.plays import stop
from fedlib.data import load
from fedlib.engine import join, setup
from fedlib.engine.evaluate import fresh_stats
from fedlib.engine.privacy_budget import budgets
from fedlib.engine.result import finished
from fedlib.engine.setup import first_state, set_up
from fedlib.engine.simulate import end_round, run_round, simulate, simulate_together, watched
from fedlib.runs.store import Store
from fedlib.spec import RunSpec

# 6 clients of 300 images, of whom 2 come later
LATER = dict(
    num_clients=6, unseen=2, images=300, partition=dict(alpha=0.5, min_size=8), test_fraction=0.5, join_ratio=0.8,
    rounds=2, local_epochs=1, lr=0.05, eval_every=2,
)  # fmt: skip
ACCEPT = [name for name in METHODS if not algorithms.find(name).no_newcomers]
REFUSE = {"clusterfl", "fesem", "ffedap", "fedsimsup", "pfedhn"}


def later(method: str, **changes) -> RunSpec:
    return RunSpec(method, **{"hyper": HYPER.get(method, {}), **LATER, **changes})


def of_members(result) -> dict:
    """All of a result that is about the clients that trained."""
    found = exact(result)
    found["arrays"] = {name: array for name, array in found["arrays"].items() if not name.startswith("newcomers")}
    return found


def of_newcomers(result) -> dict:
    arrays = {name: array.tolist() for name, array in result.arrays.items() if name.startswith("newcomers")}
    return {"tests": result.newcomers, "arrays": arrays}


# who they are --------------------------------------------------------------------------------------------------------


def test_newcomers_are_drawn_by_the_partitions_seed_for_all_methods_alike():
    specs = [later(method, seed=seed) for method in ACCEPT for seed in (0, 1)]
    orders = [spec.arrival.tolist() for spec in specs]
    assert all(order == orders[0] for order in orders)
    assert sorted(orders[0]) == list(range(6)) and specs[0].num_members == 4
    assert orders[0][:4] == sorted(orders[0][:4]) and orders[0][4:] == sorted(orders[0][4:])
    drawn = [later("fedavg", num_clients=40, unseen=10, partition_seed=k).arrival[30:].tolist() for k in range(30)]
    assert len({tuple(each) for each in drawn}) == 30 and set(np.concatenate(drawn)) == set(range(40))
    assert RunSpec("fedavg").arrival.tolist() == list(range(100))


def test_the_join_ratio_is_a_share_of_the_others():
    (run, _), *after = [(run, state.trained.clone()) for run, state in watched(later("fedavg", join_ratio=0.5))]
    assert run.setting.num_clients == len(run.work.parts) == len(run.partition.clients) == 4
    assert [len(trained) for _, trained in after] == [4, 4] and after[0][1].sum() == 2  # 0.5 of 4, not of 6
    assert run.joined.setting.num_clients == 6 and run.joined.work.training.local_epochs == 1
    for place, i in enumerate(run.spec.arrival):
        _, parts = run.spec.divide(load("digits"))
        assert np.array_equal(run.joined.work.parts[place]["train"], parts[i]["train"])


# nobody learns from them ---------------------------------------------------------------------------------------------


def with_other_images(monkeypatch, spec: RunSpec) -> None:
    """From here on the newcomers' images are negatives and have other labels; who owns which image stays."""
    data, divide = load(spec.dataset), RunSpec.divide
    partition, _ = spec.divide(data)
    theirs = torch.from_numpy(np.concatenate(partition.of(spec.arrival[spec.num_members :]).clients))
    images, labels = data.images.clone(), data.labels.clone()
    images[theirs], labels[theirs] = 255 - images[theirs], (labels[theirs] + 1) % 10
    other = dataclasses.replace(data, images=images, labels=labels)
    other.__dict__["channel_stats"] = data.channel_stats  # of the whole data set, as said in engine/join.py
    monkeypatch.setattr(setup, "load", lambda name: other)
    monkeypatch.setattr(RunSpec, "divide", lambda self, _: divide(self, data))


def without_them(monkeypatch, spec: RunSpec) -> RunSpec:
    """The same run of the members alone, in a federation in which the newcomers do not exist."""
    partition, parts = spec.divide(load(spec.dataset))
    members = spec.arrival[: spec.num_members]
    alone = partition.of(members), [parts[i] for i in members]
    monkeypatch.setattr(RunSpec, "divide", lambda self, _: alone)
    return spec.but(num_clients=spec.num_members, unseen=0)


@pytest.mark.parametrize("method", METHODS)
def test_a_method_trains_without_newcomers_or_says_why_it_cannot_take_any(method, monkeypatch):
    """To the last digit the members' run is the same when the newcomers' images and labels are others, and when there
    are no newcomers at all."""
    reason = algorithms.find(method).no_newcomers
    assert bool(reason) == (method in REFUSE)
    if reason:
        with pytest.raises(BadValue, match="unseen = 2 is not accepted; expected 0 for") as error:
            later(method)
        assert reason in str(error.value) and "\n" not in str(error.value)
        return
    spec = later(method)
    result = simulate(spec)
    with monkeypatch.context() as patch:
        with_other_images(patch, spec)
        changed = simulate(spec)
    with monkeypatch.context() as patch:
        alone = simulate(without_them(patch, spec))
    assert of_members(result) == of_members(changed) == of_members(alone)
    assert alone.newcomers == [] and of_newcomers(changed)["tests"] != of_newcomers(result)["tests"]
    check_tests(result)


def check_tests(result) -> None:
    """Every test is there, of the newcomers' own test samples, at points where the method has something to test."""
    method, made = result.spec.algorithm, [(each["when"], each["point"]) for each in result.newcomers]
    assert len(set(made)) == len(made) and {when for when, _ in made} == {"before", "after"}
    assert {("after", p) for p in ("post", "recv", "agg") if p in method.points} <= set(made)
    assert {("before", p) for p in ("recv", "agg") if p in method.points} <= set(made)
    assert ("before", "post") not in made or made[0] == ("before", "post") and len(set(method.points)) == 1
    partition, parts = result.spec.divide(load("digits"))
    labels, theirs = load("digits").labels.numpy(), result.spec.arrival[4:]
    assert result.arrays["newcomers"].tolist() == theirs.tolist()
    assert result.arrays["newcomers_counts"].tolist() == partition.counts[theirs].tolist()
    for row, i in enumerate(theirs):
        owned = np.bincount(labels[parts[i]["test"]], minlength=10)
        assert result.arrays["newcomers_tests"][row].tolist() == owned.tolist()
    for each in result.newcomers:
        correct, tests = result.of_newcomers(each["when"], each["point"])
        assert correct.shape == (2,) and (correct <= tests).all()
        assert each["pooled"] == correct.sum() / tests.sum()


# what they get -------------------------------------------------------------------------------------------------------


def hits(run, theta, i: int) -> int:
    batch = run.work.source.batch(torch.from_numpy(run.work.parts[i]["test"]))
    return int((run.work.model.logits(theta, batch.x).argmax(1) == batch.y).sum())


@pytest.mark.parametrize(("model_name", "epochs"), [("lenet5", 1), ("lenet5", 3), ("lenet5_bn", 1)])
def test_a_newcomer_of_fedavg_gets_the_global_model_and_trains_it(model_name, epochs):
    """By hand, one client and one minibatch after the other; batch norm begins with statistics of its own images."""
    spec = later("fedavg", model=model_name, join_epochs=epochs, precision="float64")
    *_, (run, state) = watched(spec)
    result, model = finished(run, state, {}), run.work.model
    came, joined = result.of_newcomers("before", "glob")[0], result.of_newcomers("after", "post")[0]
    for row, i in enumerate((4, 5)):
        theta = state.server["theta"]
        theta = {**theta, **fresh_stats(model, theta, run.joined.data_of(i))} if model.running else theta
        assert hits(run.joined, theta, i) == came[row]
        with torch.no_grad():
            for batch in run.joined.minibatches(i, spec.rounds + 1, epochs):
                theta = model.sgd_step(theta, batch, spec.lr)
        assert hits(run.joined, theta, i) == joined[row]


def test_a_newcomer_of_pfedsim_gets_what_everybody_had_at_the_end_of_the_warm_up():
    late = simulate(later("pfedsim", hyper={"rho": 0.5}, rounds=4))
    short = simulate(later("fedavg", rounds=2))
    assert late.arrays["newcomers_before_agg"].tolist() == short.arrays["newcomers_before_glob"].tolist()
    longer = simulate(later("fedavg", rounds=4))
    assert short.newcomers != longer.newcomers  # or the warm-up's end would be no other than the run's


def test_a_newcomer_of_methods_that_keep_everything_on_the_client_begins_as_training_alone_does():
    alone = simulate(later("local")).arrays["newcomers_before_post"].tolist()
    assert simulate(later("fedamp")).arrays["newcomers_before_agg"].tolist() == alone


@pytest.mark.parametrize("method", ["local", "fedbn", "fedgh"])
def test_statistics_that_a_method_keeps_on_the_client_are_those_of_its_images_too(method):
    *_, (run, state) = watched(later(method))
    copy = join.with_newcomers(run.joined, state)
    before = {name: leaf.clone() for name, leaf in tree.leaves(copy.clients)}
    join.measure_statistics(run.joined, copy)
    after = dict(tree.leaves(copy.clients))
    for name in before:
        changed = (before[name] != after[name]).flatten(1).any(1).tolist()
        assert changed == [False] * 4 + [name in run.work.model.running] * 2


def test_the_members_state_is_the_same_before_and_after_others_join():
    run, state = (each[-1] for each in zip(*watched(later("pfedsv", hyper={"k": 2}))))
    before = [leaf.clone() for part in (state.server, state.clients, state.stats) for leaf in tensors(part)]
    whole = join.with_newcomers(run.joined, state)
    for name in ("theta", "relevance"):
        leaves = [tree.rows(each.clients, slice(0, 4))[name] for each in (whole, state)]
        old, new = (leaf if name == "theta" else {"": leaf} for leaf in reversed(leaves))
        close({key: leaf[:, :4] if name == "relevance" else leaf for key, leaf in new.items()}, old, 0)
    state.newcomers.clear()
    join.join([run], [state])
    after = [leaf for part in (state.server, state.clients, state.stats) for leaf in tensors(part)]
    assert all(map(torch.equal, before, after)) and len(state.newcomers) == 3


def test_without_epochs_newcomers_are_tested_as_they_come_only():
    one, none = simulate(later("fedper")), simulate(later("fedper", join_epochs=0))
    assert [each for each in one.newcomers if each["when"] == "before"] == none.newcomers
    assert of_members(one) == of_members(none)
    with pytest.raises(BadValue, match="unknown test of newcomers 'after post'; .*accepted: before recv"):
        none.of_newcomers("after", "post")


def test_a_newcomer_that_diverges_leaves_the_others_their_result():
    run = set_up(later("fedavg"), "serial")
    wild = dataclasses.replace(run.joined.work.training, lr=float("inf"))
    joined = dataclasses.replace(run.joined, work=dataclasses.replace(run.joined.work, training=wild))
    run, state = dataclasses.replace(run, joined=joined), first_state(run)
    with torch.no_grad():
        for t in (1, 2):
            end_round([run], [state], run_round([run], [state], t))
    result = finished(run, state, {})
    assert of_members(result) == of_members(simulate(later("fedavg")))
    assert {each["when"] for each in result.newcomers} == {"before"} and result.status == "finished"


def test_a_method_whose_tensors_are_no_tables_of_clients_is_named(monkeypatch):
    monkeypatch.setattr(PFedHN, "no_newcomers", "")  # embeddings have a fourth as many numbers as there are clients
    with pytest.raises(TypeError, match="PFedHN keeps .* no table of clients; say no_newcomers"):
        simulate(later("pfedhn", num_clients=8, unseen=4), progress=lambda t: pytest.fail("training has begun"))


def test_a_method_with_a_survey_needs_no_reason_of_its_own():
    """What all clients report once is not known of those who come later."""

    class Asking(FedAvg):
        def survey(self, model, message, client, data):
            return {}

    assert "report once" in Asking.no_newcomers and not FedAvg.no_newcomers
    assert Asking.no_newcomers == algorithms.find("ffedap").no_newcomers


# backends, seeds, resumed runs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["fedbn", "pfedsim", "pfedsv", "fedem"])
def test_stacked_clients_and_seeds_give_newcomers_what_one_after_the_other_gives(method):
    specs = [later(method, precision="float64", seed=k, partition_seed=k) for k in (0, 1)]
    stacked = simulate_together(specs, backend="vmap")
    for spec, result in zip(specs, stacked):
        alone = simulate(spec)
        assert of_newcomers(result)["arrays"] == of_newcomers(alone)["arrays"]
        np.testing.assert_allclose(*([each["loss"] for each in r.newcomers] for r in (result, alone)), rtol=1e-9)


def test_worker_processes_give_newcomers_the_same():
    spec = later("fedper", privacy="client", noise_sigma=0.01)
    one, other = simulate(spec), simulate(spec, backend="process", workers=2)
    assert of_newcomers(one) == of_newcomers(other) and of_members(one) == of_members(other)


def test_a_resumed_run_has_the_same_newcomers(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDLIB_CACHE", str(tmp_path))
    spec = later("pfedsim", rounds=4)
    whole = simulate(spec)
    stop(spec, 3)
    asked = []
    again = simulate(spec, checkpoint_every=0, progress=asked.append)
    assert asked == [3, 4] and exact(again) == exact(whole) and again.newcomers == whole.newcomers


# the specification, the store, the command line ----------------------------------------------------------------------


def test_runs_without_newcomers_have_the_ids_and_files_that_they_had(tmp_path):
    assert RunSpec("fedavg").id == "9a34de34fad25234"
    plain = later("fedavg", unseen=0)
    assert not {"unseen", "join_epochs"} & plain.to_dict().keys()
    assert len({plain.id, later("fedavg").id, later("fedavg", join_epochs=2).id}) == 3
    assert RunSpec.from_dict(later("fedavg", join_epochs=2).to_dict()) == later("fedavg", join_epochs=2)
    store, run = Store("t", tmp_path), set_up(plain, "serial")
    store.put(simulate(plain))
    assert run.joined is None and "newcomers" not in json.loads(store.path(plain).read_text())
    assert store.get(plain).newcomers == []


def test_newcomers_are_stored(tmp_path):
    store, result = Store("t", tmp_path), simulate(later("fedper"))
    store.put(result)
    assert of_newcomers(store.get(result.spec)) == of_newcomers(result) and result.newcomers


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"unseen": 6}, "unseen = 6 is not accepted; expected a number from 0 to 5, so that a client is left to train"),
        ({"unseen": 60}, "unseen = 60 is not accepted"),
        ({"unseen": -1}, "unseen = -1 is not accepted; expected a number from 0 to 5"),
        ({"unseen": 1.5}, "unseen = 1.5 is not accepted; expected an integer"),
        ({"unseen": "two"}, "unseen = 'two' is not accepted; expected an integer"),
        ({"join_epochs": -1}, "join_epochs = -1 is not accepted; expected an integer of at least 0"),
        ({"unseen": 0, "join_epochs": 2}, "join_epochs = 2 is not accepted; expected 1 where unseen is 0"),
    ],
)
def test_bad_numbers_are_refused_in_one_line(fields, message):
    with pytest.raises(BadValue) as error:
        later("fedavg", **fields)
    assert str(error.value).startswith(message) and "\n" not in str(error.value)


def test_one_client_is_enough_to_train():
    result = simulate(later("fedavg", unseen=5, join_ratio=0.1, rounds=1))
    assert result.arrays["tests"].shape == (1, 10) and result.arrays["newcomers_tests"].shape == (5, 10)


def test_privacy_budgets_are_those_of_the_clients_that_train():
    spec = later("fedavg", privacy="record", noise_sigma=1.0, model="lenet5", join_ratio=1.0)
    whole = budgets(spec.but(unseen=0))
    assert whole.shape == (6,) and budgets(spec).tolist() == whole[spec.arrival[:4]].tolist()


def test_the_command_prints_newcomers_beside_the_members(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDLIB_HOME", str(tmp_path))
    settings = [text for name, value in {"unseen": 2, "images": 300}.items() for text in ("--set", f"{name}={value}")]
    command = ["run", "fedper", "--rounds", "1", "--clients", "6", "--min-size", "4", *settings]
    said = call(*command)
    assert said.exit_code == 0, said.output
    lines = said.output.splitlines()
    head = next(k for k, line in enumerate(lines) if "by evaluation point" in line)
    assert lines[head].startswith("2 new clients, pooled accuracy in %")
    assert re.split("  +", lines[head + 1])[1:] == [
        "4 training clients",
        "new clients before training",
        "new clients after 1 epoch",
    ]
    (path,) = (tmp_path / "results/single/runs").glob("*.json")
    result = Store("single").read(path)
    correct, tests = result.of_newcomers("after", "post")
    recv, post = lines[head + 2].split(), lines[head + 3].split()
    assert recv[0] == "recv" and len(recv) == 4 and recv[1] == f"{100 * result.final():.2f}"
    assert post[0] == "post" and len(post) == 3 and post[2] == f"{100 * correct.sum() / tests.sum():.2f}"
    refused = call("run", "fedper", "--set", "unseen=20")
    assert refused.exit_code == 2 and "so that a client is left to train" in refused.output
