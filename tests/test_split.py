"""The split of every client's samples into parts, how a run uses it,
and the ids of runs that do not use its options."""

import dataclasses
import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import many, tiny
from hypothesis import given
from hypothesis import strategies as st

from fedlib.base.errors import BadValue
from fedlib.data import available, load
from fedlib.data.split import carve_validation, some_of_each, split_client, split_clients
from fedlib.engine.setup import set_up
from fedlib.engine.simulate import simulate
from fedlib.runs.store import spec_of
from fedlib.runs.sweep import check_inputs
from fedlib.spec import RunSpec

OWN = np.arange(100, 300, 2)  # 100 samples of one client


@many(500)
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


@many(200)
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
        with pytest.raises(BadValue, match=r"client \d has 1 training sample\(s\); a validation part needs 2; use"):
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


@many(300)
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


def test_a_client_without_test_images_of_its_classes():
    tiny = [np.array([0, 1]), np.array([2, 3, 4, 5])], np.array([0, 1, 0, 0, 0, 0])
    with pytest.raises(BadValue, match="owned_uniform.*another: no test image is of a class of client 0"):
        for seed in range(6):
            split_clients(*tiny, seed, 0.5, test_distribution="owned_uniform")


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


@pytest.mark.parametrize(
    "scheme, options, most, owners",
    [("domain", {"clients_per_domain": 2}, 1, [0, 0, 1, 1]), ("writer", {}, 2, [0, 1, 2])],
)
def test_groups_of_the_data_set_reach_the_scheme(scheme, options, most, owners):
    """Two domains of two clients; or three writers."""
    data = dataclasses.replace(DIGITS, groups=(torch.arange(1797) // 600).clamp(max=most), group_names=("a", "b", "c"))
    partition, parts = tiny("fedavg", scheme=scheme, num_clients=len(owners), partition=options).divide(data)
    assert partition.groups.tolist() == owners
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


@pytest.mark.parametrize(
    "change, said",
    [({"images": 5000}, "images = 5000"), ({"images": 700}, "at least 2"), ({"holdout": 0.5}, "has 1 tr")],
)
def test_a_division_is_checked_though_another_one_of_the_same_partition_is_fine(change, said):
    good = tiny("fedavg", num_clients=599, scheme="iid", partition={}, test_fraction=0.5)
    check_inputs([good])
    with pytest.raises(BadValue, match=said):
        check_inputs([good, good.but(**change)])


def test_an_official_test_part_is_what_every_client_has_of_it():
    data = dataclasses.replace(DIGITS, is_test=torch.arange(1797) < 300)
    spec = tiny("fedavg", test_part="official", test_fraction=0.5)
    partition, parts = spec.divide(data)
    for own, part in zip(partition.clients, parts, strict=True):
        assert np.array_equal(part["test"], own[own < 300]) and np.array_equal(part["train"], own[own >= 300])
    assert "test_part" not in tiny("fedavg").to_dict() and spec.to_dict()["test_part"] == "official"


@pytest.mark.parametrize(
    "change, said",
    [
        (dict(test_part="offical"), "'offical'; did you mean official.*drawn, official"),
        (dict(test_fraction=0.3), "test_fraction = 0.3 .*0.5, the default, for test_part 'official'"),
        (dict(stratified=True), "stratified = True .*False for test_part 'official'"),
        (dict(scheme="dirichlet_reference", partition={}), "test_part = 'official' .*drawn for scheme 'dirichlet_ref"),
        ({}, r"of client 0's samples \d+ are in the official training part and 0 in the test part"),
    ],
)
def test_an_official_test_part_that_cannot_be(change, said):
    with pytest.raises(BadValue, match=said):
        tiny("fedavg", **{"test_part": "official", "test_fraction": 0.5, **change}).divide(DIGITS)


CHANGES = (
    dict(method="fedfomo", hyper={}), dict(dataset="digits_looks"), dict(scheme="iid", partition={}),
    dict(num_clients=5), dict(test_fraction=0.5), dict(stratified=True), dict(test_distribution="global"),
    dict(model="mlp", model_options={}), dict(join_ratio=1.0), dict(rounds=9), dict(local_epochs=9), dict(batch_size=9),
    dict(lr=0.9), dict(bn_stats="global"), dict(precision="float64"), dict(eval_every=9), dict(eval_points=("post",)),
    dict(measures=("client_similarity",)), dict(seed=9), dict(partition_seed=9), dict(holdout=0.5), dict(images=900),
    dict(privacy="client", noise_sigma=0.9, noise_clip=0.9), dict(pixels="symmetric"), dict(batch_order="fixed"),
    dict(unseen=1, join_epochs=9), dict(test_part="official", test_fraction=0.5),
)  # fmt: skip


def parts_of(spec: RunSpec) -> list[dict]:
    split = dataclasses.replace(DIGITS, is_test=torch.arange(1797) % 5 == 0)
    return [{name: part.tolist() for name, part in own.items()} for own in spec.divide(split)[1]]


def test_runs_of_one_division_divide_alike():
    """Every field is changed, so that one that comes later is not forgotten; `method_source` only repeats the method's.
    What `hyper` holds counts by its share for validation."""
    assert {name for change in CHANGES for name in change} | {"method_source"} == {
        f.name for f in dataclasses.fields(RunSpec)
    }
    spec, other = tiny("fedavg"), tiny("fedfomo")
    pairs = [(spec, spec.but(**change)) for change in CHANGES] + [(other, other.but(hyper={"val_fraction": 0.5}))]
    alike = [parts_of(one) == parts_of(two) for one, two in pairs]
    assert alike == [one.division == two.division for one, two in pairs] and 5 < sum(alike) < len(pairs) - 5


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


def test_committed_results_stay():
    """Their ids, and the images that they were made with, where the data set is here."""
    assert len(STORED) >= 10
    checksums: dict[str, set[str]] = {}
    for path in STORED:
        run = json.loads(path.read_text())
        spec = spec_of(run["spec"])
        assert spec.id == path.stem and spec.to_dict() == run["spec"]
        if "data" in run["partition"]:
            checksums.setdefault(spec.dataset, set()).add(run["partition"]["data"])
    assert checksums
    for name in set(checksums) & set(available()):
        assert checksums[name] == {load(name).sha256[:16]}, name


def test_options_that_are_gone_stand_in_ids_and_are_refused_with_another_value():
    spec = RunSpec("fedamp")
    assert spec.to_dict()["hyper"]["xi_self"] is None and "xi_self" not in spec.hyper
    assert RunSpec.from_dict(spec.to_dict()).id == spec.id
    with pytest.raises(BadValue, match="unknown hyper-parameter of 'fedamp' 'xi_self'"):
        RunSpec("fedamp", hyper={"xi_self": 0.4})


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
@many(200)
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
