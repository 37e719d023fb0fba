"""The split of every client's samples into parts, how a run uses it,
and the ids of runs that do not use its options."""

import dataclasses
import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import tiny
from hypothesis import given, settings
from hypothesis import strategies as st

from fedlib.base.errors import BadValue
from fedlib.data import load
from fedlib.data.split import carve_validation, some_of_each, split_client, split_clients
from fedlib.engine.setup import set_up
from fedlib.engine.simulate import simulate
from fedlib.runs.store import spec_of
from fedlib.runs.sweep import check_inputs
from fedlib.spec import RunSpec

OWN = np.arange(100, 300, 2)  # 100 samples of one client


@settings(max_examples=500, deadline=None, derandomize=True, database=None)
@given(
    st.lists(st.integers(0, 10**6), min_size=2, max_size=60, unique=True),
    st.floats(0, 1, exclude_min=True, exclude_max=True),
    st.integers(0, 2**31),
    st.integers(0, 5000),
)
def test_contract(indices, fraction, seed, client):
    """Disjoint, complete, sorted, at least one sample each, as many test samples as asked (to the nearest integer)."""
    indices = np.array(indices)
    before = indices.copy()
    train, test = split_client(indices, fraction, seed, client)
    assert np.array_equal(indices, before)
    assert len(train) >= 1 and len(test) >= 1
    assert np.array_equal(np.sort(np.concatenate([train, test])), np.sort(indices))
    assert np.array_equal(train, np.sort(train)) and np.array_equal(test, np.sort(test))
    assert abs(len(test) - fraction * len(indices)) <= 0.5 or len(test) == 1 or len(train) == 1
    again = split_client(indices, fraction, seed, client)
    assert np.array_equal(train, again[0]) and np.array_equal(test, again[1])


@pytest.mark.parametrize(
    "size, fraction, tests",
    [(100, 0.5, 50), (100, 0.25, 25), (100, 0.2, 20), (2, 0.01, 1), (2, 0.99, 1), (3, 0.99, 2), (1000, 0.0001, 1)],
)
def test_sizes(size, fraction, tests):
    train, test = split_client(np.arange(size), fraction, 0, 0)
    assert (len(train), len(test)) == (size - tests, tests)


def test_every_client_and_seed_has_its_own_draw():
    """The same 100 samples: 40 clients and 40 seeds give 79 different splits."""
    by_client = {split_client(OWN, 0.5, 0, client)[1].tobytes() for client in range(40)}
    by_seed = {split_client(OWN, 0.5, seed, 0)[1].tobytes() for seed in range(40)}
    assert len(by_client | by_seed) == 79


def test_draws_of_two_clients_are_not_aligned():
    """Two independent halves of 100 share about 25 samples (std 2.5);
    equal or complementary ones would share 50 or 0."""
    shared = [
        len(np.intersect1d(split_client(OWN, 0.5, 0, i)[1], split_client(OWN, 0.5, 0, i + 1)[1])) for i in range(100)
    ]
    assert 24 < np.mean(shared) < 26 and min(shared) > 10 and max(shared) < 40


def test_every_sample_is_tested_equally_often():
    """Over 2,000 clients each of 20 samples is in the half for testing 1,000 times (std 22.4; 5 of those)."""
    hits = np.zeros(20)
    for client in range(2000):
        hits[split_client(np.arange(20), 0.5, 0, client)[1]] += 1
    assert np.abs(hits - 1000).max() < 112


def test_global_generator_is_neither_used_nor_touched():
    np.random.seed(1)
    state = np.random.get_state()[1].copy()
    first = split_client(OWN, 0.5, 3, 1)
    assert np.array_equal(np.random.get_state()[1], state)
    np.random.seed(2)
    assert np.array_equal(split_client(OWN, 0.5, 3, 1)[1], first[1])


@pytest.mark.parametrize("fraction", [0, 1, -0.5, 1.5, float("nan"), float("inf")])
def test_fraction_out_of_range(fraction):
    with pytest.raises(BadValue, match=f"test_fraction = {fraction} .*between 0 and 1"):
        split_client(OWN, fraction, 0, 0)


@pytest.mark.parametrize("size", [0, 1])
def test_too_few_samples_names_the_client(size):
    with pytest.raises(BadValue, match=rf"client 7 has {size} sample\(s\).*at least 2"):
        split_client(OWN[:size], 0.5, 0, 7)


# recorded splits: what has been published under a seed stays ----------------------------------------------------------


@pytest.mark.parametrize(
    "fraction, seed, client, digest",
    [(0.5, 0, 0, "6d92d73d073e0d73"), (0.25, 3, 7, "fb2bdd96e5f5b28b"), (0.2, 1, 99, "9ed9bc037781d184")],
)
def test_recorded_splits(fraction, seed, client, digest):
    train, test = split_client(OWN, fraction, seed, client)
    assert hashlib.sha256(train.tobytes() + b"|" + test.tobytes()).hexdigest()[:16] == digest


# all clients: validation, strata, what is tested ----------------------------------------------------------------------

LABELS = np.random.default_rng(0).integers(0, 5, 400)
SKEWED = [
    own[LABELS[own] >= i] for i, own in enumerate(np.array_split(np.random.default_rng(1).permutation(400), 4))
]  # client i has classes i..4


def test_without_options_it_is_the_plain_split():
    parts = split_clients(SKEWED, LABELS, 3, 0.25)
    for i, own in enumerate(parts):
        assert list(own) == ["train", "test"]
        assert all(np.array_equal(a, b) for a, b in zip(own.values(), split_client(SKEWED[i], 0.25, 3, i)))


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(
    st.lists(st.integers(3, 30), min_size=1, max_size=6),
    st.floats(0.05, 0.6),
    st.floats(0.05, 0.9),
    st.booleans(),
    st.integers(0, 2**31),
)
def test_validation_contract(sizes, test_fraction, val_fraction, stratified, seed):
    """Disjoint, complete, each of at least one sample; the test part is that without validation;
    val_fraction of the rest."""
    clients = np.split(np.random.default_rng(seed).permutation(sum(sizes)), np.cumsum(sizes)[:-1])
    labels = np.random.default_rng(seed + 1).integers(0, 4, sum(sizes))
    plain = split_clients(clients, labels, seed, test_fraction, stratified=stratified)
    if min(len(own["train"]) for own in plain) < 2:
        with pytest.raises(BadValue, match=r"client \d has 1 training sample\(s\); a validation part needs at least 2"):
            split_clients(clients, labels, seed, test_fraction, val_fraction=val_fraction, stratified=stratified)
        return
    parts = split_clients(clients, labels, seed, test_fraction, val_fraction=val_fraction, stratified=stratified)
    for before, own, indices in zip(plain, parts, clients):
        assert np.array_equal(before["test"], own["test"])
        assert min(map(len, own.values())) >= 1
        assert np.array_equal(np.sort(np.concatenate([own["train"], own["val"], own["test"]])), np.sort(indices))
        assert all(np.array_equal(part, np.sort(part)) for part in own.values())
        assert (
            abs(len(own["val"]) - val_fraction * len(before["train"])) <= 0.5
            or len(own["val"]) == 1
            or len(own["train"]) == 1
        )


def test_validation_has_a_draw_of_its_own():
    """It is not the samples that a larger test part would take: 20 clients, 50 of 100 left, 25 each;
    about half in common by chance."""
    shared = []
    for client in range(20):
        train, _ = split_client(OWN, 0.5, 0, client)
        _, larger = split_client(OWN, 0.75, 0, client)
        _, val = carve_validation(train, 0.5, 0, client)
        shared.append(len(np.intersect1d(val, larger)))
    assert 10 < np.mean(shared) < 15


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(st.lists(st.integers(0, 25), min_size=1, max_size=7), st.floats(0.05, 0.95), st.integers(0, 2**31))
def test_stratified_contract(class_sizes, fraction, seed):
    """As many test samples as the plain split; of a class with at least two samples the share, rounded up or down."""
    labels = np.repeat(np.arange(len(class_sizes)), class_sizes)
    if len(labels) < 2:
        return
    train, test = split_client(np.arange(len(labels)), fraction, seed, 0, labels)
    plain = split_client(np.arange(len(labels)), fraction, seed, 0)
    assert (len(train), len(test)) == tuple(map(len, plain))
    assert np.array_equal(np.sort(np.concatenate([train, test])), np.arange(len(labels)))
    for total, tested in zip(class_sizes, np.bincount(labels[test], minlength=len(class_sizes))):
        if total > 1:
            assert np.floor(fraction * total - 1e-9) <= tested <= np.ceil(fraction * total + 1e-9)


def test_stratified_by_hand():
    """Half of 10, 4 and 2 samples: exactly 5, 2 and 1 are tested, other ones for every seed."""
    labels = np.repeat([0, 1, 2], [10, 4, 2])
    splits = [split_client(np.arange(16), 0.5, seed, 0, labels)[1] for seed in range(200)]
    assert all(np.bincount(labels[test]).tolist() == [5, 2, 1] for test in splits)
    tested = np.bincount(np.concatenate(splits), minlength=16)
    assert np.abs(tested - 100).max() < 5 * np.sqrt(50)
    assert len({test.tobytes() for test in splits}) > 150


def test_ties_between_classes_are_broken_at_random():
    """A fifth of two samples of each of five classes: two of the ten are tested, of different classes,
    all pairs of classes alike."""
    labels = np.repeat(np.arange(5), 2)
    tested = [tuple(labels[split_client(np.arange(10), 0.2, seed, 0, labels)[1]]) for seed in range(300)]
    assert all(a != b for a, b in tested)
    assert len(set(tested)) == 10 and min(map(tested.count, set(tested))) > 10


@pytest.mark.parametrize("stratified", [False, True])
def test_one_pool_for_everyone(stratified):
    """global: the test parts of all together; nobody trains on any of it, and the training parts stay."""
    matched = split_clients(SKEWED, LABELS, 0, 0.25, stratified=stratified)
    together = split_clients(SKEWED, LABELS, 0, 0.25, stratified=stratified, test_distribution="global")
    pool = np.sort(np.concatenate([own["test"] for own in matched]))
    for before, own in zip(matched, together):
        assert np.array_equal(own["test"], pool) and np.array_equal(own["train"], before["train"])
        assert not np.isin(own["train"], pool).any()


@pytest.mark.parametrize("val_fraction", [0, 0.5])
def test_owned_classes_equally_often(val_fraction):
    """owned_uniform: from the pool, as many of each class of the client as of its rarest there;
    validation changes nothing."""
    matched = split_clients(SKEWED, LABELS, 0, 0.25)
    parts = split_clients(SKEWED, LABELS, 0, 0.25, test_distribution="owned_uniform", val_fraction=val_fraction)
    pool = np.concatenate([own["test"] for own in matched])
    available = np.bincount(LABELS[pool], minlength=5)
    for i, own in enumerate(parts):
        assert np.isin(own["test"], pool).all() and len(np.unique(own["test"])) == len(own["test"])
        assert np.bincount(LABELS[own["test"]], minlength=5).tolist() == [0] * i + [available[i:].min()] * (5 - i)
        assert np.array_equal(own["test"], np.sort(own["test"]))


@pytest.mark.parametrize(
    "change, message",
    [
        (dict(val_fraction=-0.1), "val_fraction = -0.1 .*from 0 to below 1"),
        (dict(val_fraction=1.0), "val_fraction = 1.0 "),
        (dict(val_fraction=float("nan")), "val_fraction = nan"),
        (dict(test_distribution="glob"), "'glob'; did you mean global.*matched, global, owned_uniform"),
    ],
)
def test_options_out_of_range(change, message):
    with pytest.raises(BadValue, match=message):
        split_clients(SKEWED, LABELS, 0, 0.25, **change)
    if "val_fraction" not in change:
        with pytest.raises(BadValue, match=message):
            RunSpec("fedavg", **change)


# in a run -------------------------------------------------------------------------------------------------------------

NEW = dict(stratified=True, test_distribution="global")
DIGITS = load("digits")


def test_a_run_is_divided_as_its_fields_say():
    spec = tiny("fedavg", **NEW)
    partition, parts = spec.divide(DIGITS)
    assert partition.checksum == tiny("fedavg").divide(DIGITS)[0].checksum
    expected = split_clients(partition.clients, DIGITS.labels.numpy(), 0, 0.75, **NEW)
    run = set_up(spec)
    for own, mine, theirs in zip(run.work.parts, parts, expected, strict=True):
        assert list(own) == list(mine) == ["train", "test"]
        assert all(np.array_equal(own[name], mine[name]) and np.array_equal(own[name], theirs[name]) for name in own)
    assert (run.tests == run.tests[0]).all() and run.tests.sum() == 4 * len(parts[0]["test"])


def test_validation_is_carved_for_methods_that_ask_for_it():
    """A quarter of the training part, with the same test part as all other methods."""
    _, plain = tiny("fedavg").divide(DIGITS)
    _, parts = tiny("fedfomo", hyper={"val_fraction": 0.25}).divide(DIGITS)
    for before, own in zip(plain, parts, strict=True):
        assert list(own) == ["train", "test", "val"] and np.array_equal(own["test"], before["test"])
        assert np.array_equal(np.sort(np.concatenate([own["train"], own["val"]])), before["train"])
        assert len(own["val"]) == max(1, round(0.25 * len(before["train"])))


@pytest.mark.parametrize("scheme", ["domain", "writer"])
def test_groups_of_the_data_set_reach_the_scheme(scheme):
    """Two domains of two clients; or three writers."""
    by_thirds = torch.arange(1797) // 600
    data = dataclasses.replace(
        DIGITS, groups=by_thirds.clamp(max=1) if scheme == "domain" else by_thirds, group_names=("a", "b", "c")
    )
    options = (
        dict(num_clients=4, partition={"clients_per_domain": 2})
        if scheme == "domain"
        else dict(num_clients=3, partition={})
    )
    partition, parts = tiny("fedavg", scheme=scheme, **options).divide(data)
    assert partition.groups.tolist() == ([0, 0, 1, 1] if scheme == "domain" else [0, 1, 2])
    assert sum(len(own["train"]) + len(own["test"]) for own in parts) == 1797


@pytest.mark.parametrize("test_distribution", ["global", "owned_uniform"])
def test_training_does_not_depend_on_what_is_tested(test_distribution):
    """After a round all models are the same, bit for bit."""
    specs = [
        tiny("pfedsim", rounds=1, test_distribution=name, measures=("client_similarity",))
        for name in ("matched", test_distribution)
    ]
    matched, other = (simulate(spec).arrays for spec in specs)
    assert np.array_equal(matched["cs_by_class"], other["cs_by_class"])
    assert not np.array_equal(matched["tests"], other["tests"])


def test_backends_agree_on_one_pool_for_everyone():
    """All clients have as many test samples, so that the mean over clients is the share of all."""
    serial, stacked = (
        simulate(tiny("fedavg", rounds=1, test_distribution="global"), backend=backend)
        for backend in ("serial", "vmap")
    )
    assert np.abs(serial.arrays["correct"] - stacked.arrays["correct"]).sum() <= 2
    assert abs(serial.final("pooled") - serial.final("client_mean")) < 1e-12
    assert (serial.arrays["tests"] == serial.arrays["tests"][0]).all()


def test_wrong_data_for_a_scheme_is_said_before_training():
    """digits has no domains; check_inputs says so, and so does a client too small for a validation part."""
    with pytest.raises(BadValue, match="scheme = 'domain' .*groups"):
        check_inputs([tiny("fedavg", scheme="domain", partition={})])
    with pytest.raises(BadValue, match=r"client \d+ has 1 training sample"):
        many = dict(num_clients=599, scheme="iid", partition={}, test_fraction=0.5)
        check_inputs([tiny("fedfomo", hyper={"val_fraction": 0.5}, **many)])


# run ids --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spec, id",
    [
        (dict(method="pfedsim"), "420d5d5314c90027"),
        (dict(method="fedavg", scheme="iid", num_clients=5), "c3aedc74569ac209"),
        (
            dict(method="local", scheme="manual", num_clients=2, partition={"label_sets": [[0, 1], [1, 2]]}),
            "8f6dfa9d72ea44d9",
        ),
        (dict(method="fedper", partition={"alpha": 0.5, "cap": False}, model_options={"pools": 2}), "8b944da7ad8f76fe"),
    ],
    ids=str,
)
def test_recorded_ids(spec, id):
    """Ids from before the fields and parameters that are now `added`."""
    assert RunSpec(**spec).id == id


STORED = sorted((Path(__file__).parents[1] / "results").glob("*/runs/*.json"))


def test_ids_of_committed_results_stay():
    assert len(STORED) >= 10
    for path in STORED:
        values = json.loads(path.read_text())["spec"]
        spec = spec_of(values)
        assert spec.id == path.stem and spec.to_dict() == values


@pytest.mark.parametrize(
    "base, change",
    [
        *(({}, {name: value}) for name, value in NEW.items()),
        ({}, {"test_distribution": "owned_uniform"}),
        ({}, {"partition": {"alpha": 0.5, "min_size": 2, "shuffle_classes": True}}),
        ({"scheme": "iid", "partition": {}}, {"partition": {"stratified": True}}),
    ],
    ids=str,
)
def test_added_settings_are_part_of_the_id_unless_they_have_their_default(base, change):
    before = tiny("fedavg", **base)
    after = before.but(**change)
    name, value = next(iter(change.items()))
    assert after.id != before.id and RunSpec.from_dict(json.loads(json.dumps(after.to_dict()))) == after
    if name == "partition":
        option = next(iter(set(after.to_dict()["partition"]) - set(before.to_dict()["partition"])))
        assert before.partition[option] is False and after.to_dict()["partition"][option] is True
        assert before.but(partition={**before.partition, option: False}).id == before.id
    else:
        assert name not in before.to_dict() and after.to_dict()[name] == value


# fewer images ---------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 40), min_size=1, max_size=8), st.integers(1, 200), st.integers(0, 99))
@settings(max_examples=200, deadline=None, derandomize=True, database=None)
def test_some_of_each_class(sizes, count, seed):
    """As many as asked, no two alike, and of every class its share, rounded up or down."""
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))
    if count > len(labels):
        with pytest.raises(BadValue, match="images"):
            some_of_each(labels, count, seed)
        return
    chosen = some_of_each(labels, count, seed)
    assert len(chosen) == len(set(chosen.tolist())) == count and (np.diff(chosen) > 0).all()
    exact = np.bincount(labels, minlength=len(sizes)) * count / len(labels)
    assert (np.abs(np.bincount(labels[chosen], minlength=len(sizes)) - exact) < 1).all()
    assert np.array_equal(chosen, some_of_each(labels, count, seed))


def test_a_run_with_fewer_images_uses_only_those():
    """300 of the digits: all clients together own them, as another partition seed other ones; labels stay with images;
    0, all, leaves the ids of runs as they were."""
    whole = tiny("fedavg")
    spec, dataset = whole.but(images=300), load("digits")
    assert "images" not in whole.to_dict() and spec.id != whole.id and RunSpec.from_dict(spec.to_dict()) == spec
    partition, parts = spec.divide(dataset)
    owned = np.sort(np.concatenate([*(np.concatenate(list(own.values())) for own in parts)]))
    assert np.array_equal(owned, some_of_each(dataset.labels.numpy(), 300, spec.partition_seed))
    for own, counts in zip(partition.clients, partition.counts, strict=True):
        assert np.array_equal(np.bincount(dataset.labels[own], minlength=10), counts)
    other, _ = spec.but(partition_seed=1).divide(dataset)
    assert set(np.concatenate(other.clients)) != set(owned)
    assert simulate(spec.but(rounds=1)).history
    with pytest.raises(BadValue, match="images = 5000"):
        check_inputs([spec.but(images=5000)])
    with pytest.raises(BadValue, match="images = -1"):
        spec.but(images=-1)
