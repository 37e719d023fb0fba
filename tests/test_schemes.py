"""What each partition scheme promises beyond the contract (test_partition.py): label sets, shares, groups, drops."""

from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from helpers import many
from hypothesis import given
from hypothesis import strategies as st

from fedlib.base.errors import BadValue, InfeasiblePartition
from fedlib.data.describe import label_cosine
from fedlib.data.partition import SCHEMES, checked_parameters, make_partition, parameters_of
from fedlib.data.partition.basic import even_parts
from fedlib.data.partition.pathological import distinct_hands

TEN = np.repeat(np.arange(10), 180)
HUNDRED = np.repeat(np.arange(100), 60)


def drawn(labels, num_clients, scheme, seed=0, **parameters):
    """The counts [N, C]."""
    return make_partition(labels, num_clients, scheme, seed, **parameters).counts


def hands(counts) -> list[tuple[int, ...]]:
    """Every client's classes."""
    return [tuple(np.flatnonzero(row).tolist()) for row in counts]


# pat_grouped ----------------------------------------------------------------------------------------------------------


def test_grouped_makes_five_groups_of_four():
    """20 clients, 2 of 10 classes (PFedCS Fig. 1): clients 0-3 share classes 0 and 1, and so on."""
    expected = [(2 * (i // 4), 2 * (i // 4) + 1) for i in range(20)]
    for seed in range(5):
        assert hands(drawn(TEN, 20, "pat_grouped", seed)) == expected


@pytest.mark.parametrize(
    "labels, classes_per_client, short",
    [(TEN, 2, {}), (TEN, 3, {1: 2}), (TEN, 4, {2: 4}), (HUNDRED, 10, {}), (HUNDRED, 20, {})],
)
def test_grouped_leaves_some_clients_with_fewer_classes(labels, classes_per_client, short):
    """20 clients. 3 of 10 classes: two clients have one; 4: four clients have two. {classes: clients}."""
    counts = drawn(labels, 20, "pat_grouped", classes_per_client=classes_per_client, min_size=0)
    owned = Counter(map(len, hands(counts)))
    assert owned == {classes_per_client: 20 - sum(short.values()), **short}


@pytest.mark.parametrize("num_classes, classes_per_client", [(100, 15), (200, 30)])
def test_grouped_two_clients_short(num_classes, classes_per_client):
    """CIFAR-100 with 15 classes and Tiny-ImageNet with 30: two of 20 clients have fewer."""
    counts = drawn(np.repeat(np.arange(num_classes), 60), 20, "pat_grouped", classes_per_client=classes_per_client)
    assert (np.array([len(hand) for hand in hands(counts)]) < classes_per_client).sum() == 2


@many(150)
@given(st.integers(2, 30), st.integers(1, 6), st.integers(0, 2**31))
def test_grouped_shares(num_clients, classes_per_client, seed):
    """All but the last of a class's g owners have from max(n/10g, 40/C) to below n/g,
    the last more than each of them."""
    try:
        counts = drawn(TEN, num_clients, "pat_grouped", seed, classes_per_client=classes_per_client)
    except InfeasiblePartition as error:
        assert "without an owner" in str(error) or "unequally" in str(error)
        return
    assert (counts > 0).sum(1).max() <= classes_per_client
    for column in counts.T:
        *first, last = column[column > 0]
        g = len(first) + 1
        assert all(max(180 / (10 * g), 4) <= part < 180 / g for part in first)
        assert last > max(first, default=0)


def test_grouped_shares_take_all_allowed_values():
    """180 samples for 4 owners: from ceil(180/40) = 5 to 44, each value about equally often."""
    parts = np.concatenate([drawn(TEN, 20, "pat_grouped", seed)[[0, 1, 2], 0] for seed in range(400)])
    assert (parts.min(), parts.max(), len(set(parts.tolist()))) == (5, 44, 40)
    assert abs(parts.mean() - 24.5) < 4.5 * np.sqrt((40**2 - 1) / 12 / len(parts))


@pytest.mark.parametrize("num_clients, classes_per_client, lost", [(12, 2, "8, 9"), (2, 2, "4, 5, 6, 7, 8, 9")])
def test_grouped_refuses_to_lose_classes(num_clients, classes_per_client, lost):
    with pytest.raises(InfeasiblePartition, match=rf"of 10 classes without an owner \({lost}\).*fair"):
        drawn(TEN, num_clients, "pat_grouped", classes_per_client=classes_per_client)


@many(100)
@given(st.integers(1, 40), st.integers(1, 10), st.integers(0, 99))
def test_fair_gives_everybody_the_same_number_of_classes(num_clients, classes_per_client, seed):
    arguments = dict(classes_per_client=classes_per_client, fair=True, min_size=0, balance=True)
    if num_clients * classes_per_client < 10:
        with pytest.raises(InfeasiblePartition, match="without an owner"):
            drawn(TEN, num_clients, "pat_grouped", seed, **arguments)
        return
    counts = drawn(TEN, num_clients, "pat_grouped", seed, **arguments)
    assert {len(hand) for hand in hands(counts)} == {classes_per_client}
    owners = (counts > 0).sum(0)
    assert owners.max() - owners.min() <= 1


def test_fair_keeps_the_groups_where_numbers_divide():
    assert sorted(hands(drawn(TEN, 20, "pat_grouped", fair=True))) == sorted(hands(drawn(TEN, 20, "pat_grouped")))


def test_balance_gives_equal_shares():
    counts = drawn(TEN, 20, "pat_grouped", balance=True)
    assert set(counts[counts > 0].tolist()) == {45}


def test_a_class_too_small_for_unequal_shares_is_named():
    """10 samples for 5 owners with at least 40/10 = 4 each: impossible; equal shares are not."""
    labels = np.repeat(np.arange(10), 10)
    said = "10 samples cannot be divided unequally over 4 clients with at least 4"
    with pytest.raises(InfeasiblePartition, match=said):
        drawn(labels, 20, "pat_grouped")
    assert drawn(labels, 20, "pat_grouped", balance=True).sum() == 100


# pat_balanced, random_classes -----------------------------------------------------------------------------------------


@many(150)
@given(st.integers(1, 60), st.integers(1, 10), st.integers(0, 2**31))
def test_balanced_promises(num_clients, classes_per_client, seed):
    """Exactly C_k classes each; numbers of owners and parts of a class differ by at most 1."""
    if num_clients * classes_per_client < 10:
        with pytest.raises(InfeasiblePartition, match="cannot own all 10 classes"):
            drawn(TEN, num_clients, "pat_balanced", seed, classes_per_client=classes_per_client)
        return
    counts = drawn(TEN, num_clients, "pat_balanced", seed, classes_per_client=classes_per_client)
    assert {len(hand) for hand in hands(counts)} == {classes_per_client}
    owners = (counts > 0).sum(0)
    assert owners.max() - owners.min() <= 1
    for column in counts.T:
        parts = column[column > 0]
        assert parts.max() - parts.min() <= 1


def test_balanced_label_cosines_are_multiples():
    """50 clients with 5 of 10 classes, all parts equal: 0, 1/5, ..., 1."""
    cosines = label_cosine(drawn(np.repeat(np.arange(10), 250), 50, "pat_balanced", classes_per_client=5))
    assert np.abs(5 * cosines - np.round(5 * cosines)).max() < 1e-9
    assert len(np.unique(np.round(5 * cosines))) >= 5


def test_balanced_hands_vary():
    """Ties are broken at random: all 45 pairs of classes occur over 40 seeds."""
    assert len({hand for seed in range(40) for hand in hands(drawn(TEN, 10, "pat_balanced", seed))}) == 45


def test_random_classes_shares_and_cover():
    """Equal parts, the remainder with the last owner; 30 seeds cover everything, and numbers of owners do vary."""
    owners = set()
    for seed in range(30):
        counts = drawn(TEN, 16, "random_classes", seed, classes_per_client=3)
        assert {len(hand) for hand in hands(counts)} == {3}
        for column in counts.T:
            *first, last = column[column > 0]
            assert len(first) == 0 or (set(first) == {180 // (len(first) + 1)} and last == 180 - sum(first))
            owners.add(len(first) + 1)
    assert len(owners) > 5


def test_random_classes_resample_until_covered():
    """Six clients with 3 of 10 classes cover them rarely: several tries. 10 with 1: hopeless, and told so."""
    partition = make_partition(TEN, 6, "random_classes", 0, classes_per_client=3)
    assert partition.tries > 1 and (partition.counts.sum(0) == 180).all()
    with pytest.raises(InfeasiblePartition, match="covered at most [5-9] of 10 classes in 50 tries; use more"):
        make_partition(TEN, 10, "random_classes", 0, classes_per_client=1, max_tries=50)


# ring -----------------------------------------------------------------------------------------------------------------


def test_ring_of_ten():
    """10 clients, 10 classes, 2 each: every class on two clients,
    every client shares one class with each of two others, in cycles of at least 3."""
    lengths = Counter()
    for seed in range(60):
        own = hands(drawn(TEN, 10, "ring", seed))
        assert Counter(c for hand in own for c in hand) == dict.fromkeys(range(10), 2)
        neighbours = {i: {j for j in range(10) if j != i and set(own[i]) & set(own[j])} for i in range(10)}
        assert all(len(n) == 2 for n in neighbours.values())
        assert all(len(set(own[i]) & set(own[j])) == 1 for i in range(10) for j in neighbours[i])
        left = set(range(10))
        while left:
            cycle, frontier = set(), [min(left)]
            while frontier:
                i = frontier.pop()
                if i not in cycle:
                    cycle.add(i)
                    frontier += neighbours[i]
            left -= cycle
            lengths[len(cycle)] += 1
    assert min(lengths) >= 3 and lengths[10] > 10


@pytest.mark.parametrize(
    "labels, num_clients, classes_per_client, owners",
    [(TEN, 100, 2, 20), (HUNDRED, 10, 20, 2), (HUNDRED, 100, 2, 2), (TEN, 45, 2, 9)],
)
def test_ring_owners(labels, num_clients, classes_per_client, owners):
    """pFedSV's settings: every class on N C_k / C clients, parts of a class equal;
    no two clients alike where there are enough different hands."""
    counts = drawn(labels, num_clients, "ring", classes_per_client=classes_per_client)
    assert set((counts > 0).sum(0).tolist()) == {owners}
    assert {len(hand) for hand in hands(counts)} == {classes_per_client}
    spread = np.where(counts > 0, counts, counts.max()).min(0)
    assert (counts.max(0) - spread <= 1).all()
    if not (labels is TEN and num_clients == 100):
        assert len(set(hands(counts))) == num_clients


def test_ring_unequal():
    """The parts of a class differ, and no client is always the one with the largest."""
    largest = Counter()
    for seed in range(40):
        counts = drawn(TEN, 20, "ring", seed, unequal=True)
        assert set((counts > 0).sum(0).tolist()) == {4} and (counts.sum(0) == 180).all()
        assert all(len(set(column[column > 0].tolist())) > 1 for column in counts.T)
        largest[int(counts.max(1).argmax())] += 1
    assert max(largest.values()) < 12


@many(250)
@given(st.integers(1, 9), st.data(), st.integers(0, 2**31))
def test_hands_are_distinct_whenever_possible(num_classes, data, seed):
    """Loads as asked; no class twice in a hand; no hand twice while there are enough,
    up to using every possible hand."""
    size = data.draw(st.integers(1, min(4, num_classes)))
    possible = len(list(combinations(range(num_classes), size)))
    number = data.draw(st.integers(1, min(possible + 3, 60)))
    generator = np.random.default_rng(seed)
    copies = generator.permutation(even_parts(number * size, num_classes))
    dealt = distinct_hands(copies, size, generator)
    assert dealt.shape == (number, size)
    assert np.array_equal(np.bincount(dealt.ravel(), minlength=num_classes), copies)
    assert all(len(set(hand)) == size for hand in dealt.tolist())
    if number <= possible:
        assert len({tuple(sorted(hand)) for hand in dealt.tolist()}) == number


# shards, iid ----------------------------------------------------------------------------------------------------------


@many(150)
@given(st.integers(1, 40), st.integers(1, 5), st.integers(0, 2**31))
def test_shards_promises(num_clients, s, seed):
    """Nothing left over, shards equal within 1, and at most 2s labels where a shard is not larger than a class."""
    counts = drawn(TEN, num_clients, "shards", seed, s=s)
    low, high = 1800 // (num_clients * s), -(-1800 // (num_clients * s))
    assert counts.sum() == 1800
    assert counts.sum(1).min() >= s * low and counts.sum(1).max() <= s * high
    if high <= 180:
        assert (counts > 0).sum(1).max() <= 2 * s
    assert (counts > 0).sum(1).min() >= 1


def test_shards_of_one_class_each():
    """20 shards of 90: each within one class, so that a client has one or two whole halves of classes."""
    counts = drawn(TEN, 10, "shards")
    assert set(counts[counts > 0].tolist()) <= {90, 180}


def test_too_many_shards_is_an_error():
    with pytest.raises(
        InfeasiblePartition, match="1000 clients with s = 2 shards need 2000 samples; the data set has 1800"
    ):
        drawn(TEN, 1000, "shards")


@many(150)
@given(st.lists(st.integers(0, 40), min_size=1, max_size=8), st.integers(1, 20), st.integers(0, 2**31))
def test_stratified_iid(class_sizes, num_clients, seed):
    """Sizes and the counts of every class differ by at most 1."""
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(class_sizes)), class_sizes))
    if len(labels) < num_clients:
        return
    counts = drawn(labels, num_clients, "iid", seed, stratified=True)
    assert (counts.max(0) - counts.min(0)).max() <= 1
    assert counts.sum(1).max() - counts.sum(1).min() <= 1


# domain, writer -------------------------------------------------------------------------------------------------------

DOMAINS = np.repeat([0, 1, 2], [700, 603, 497])


def test_domains_are_cut_into_equal_clients_and_the_last_gets_the_rest():
    """700, 603 and 497 samples over 4 clients each: 175; 150, 150, 150, 153; 124, 124, 124, 125."""
    partition = make_partition(TEN, 12, "domain", 0, groups=DOMAINS, clients_per_domain=4)
    assert partition.sizes.tolist() == [175] * 4 + [150] * 3 + [153] + [124] * 3 + [125]
    assert partition.groups.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert all((DOMAINS[own] == i // 4).all() for i, own in enumerate(partition.clients))


def test_domains_are_cut_at_random():
    """Not in the order of the samples: labels of a client are those of its domain, within 5 standard deviations."""
    labels = np.random.default_rng(0).permutation(TEN)
    labels.sort()
    domains = np.tile([0, 1], 900)
    counts = drawn(labels, 10, "domain", groups=domains, clients_per_domain=5)
    assert np.abs(counts - 18).max() < 5 * np.sqrt(18)
    options = dict(groups=domains, clients_per_domain=5)
    assert len({make_partition(labels, 10, "domain", seed, **options).checksum for seed in range(20)}) == 20


def test_domain_names_the_right_number_of_clients():
    with pytest.raises(BadValue, match=r"num_clients = 100 .*expected 60 \(3 domains times clients_per_domain = 20\)"):
        make_partition(TEN, 100, "domain", 0, groups=DOMAINS)
    with pytest.raises(InfeasiblePartition, match="domain 1 has 3 samples for 4 clients; lower clients_per_domain"):
        make_partition(TEN, 12, "domain", 0, groups=np.repeat([0, 1, 2], [1000, 3, 797]), clients_per_domain=4)


WRITERS = np.random.default_rng(1).permutation(np.repeat([3, 5, 8, 9, 20], [1000, 500, 290, 9, 1]))


def test_writers_are_clients_and_small_ones_are_dropped():
    partition = make_partition(TEN, 3, "writer", 0, groups=WRITERS, min_samples=10)
    assert partition.groups.tolist() == [3, 5, 8]
    assert all(np.array_equal(own, np.flatnonzero(w == WRITERS)) for own, w in zip(partition.clients, (3, 5, 8)))
    assert make_partition(TEN, 4, "writer", 0, groups=WRITERS).groups.tolist() == [3, 5, 8, 9]
    assert make_partition(TEN, 5, "writer", 0, groups=WRITERS, min_samples=1).sizes.tolist() == [1000, 500, 290, 9, 1]


def test_writer_names_the_right_number_of_clients():
    for num_clients, options, said in (
        (
            100,
            {"min_samples": 10},
            r"num_clients = 100 .*expected 3 \(the writers with at least 10 samples\), or fewer",
        ),
        (4, {"min_samples": 10, "pick": True}, "num_clients = 4 .*expected at most 3"),
        (4, {"min_samples": 2000}, "no writer has min_samples = 2000 samples; the largest of 5 has 1000"),
    ):
        with pytest.raises((BadValue, InfeasiblePartition), match=said):
            make_partition(TEN, num_clients, "writer", 0, groups=WRITERS, **options)


def test_writers_can_be_picked():
    """Two of the four writers: every pair occurs, and a picked writer brings all its samples."""
    pairs = Counter()
    for seed in range(200):
        partition = make_partition(TEN, 2, "writer", seed, groups=WRITERS, pick=True)
        assert partition.sizes.tolist() == [(g == WRITERS).sum() for g in partition.groups]
        pairs[tuple(partition.groups.tolist())] += 1
    assert len(pairs) == 6 and min(pairs.values()) > 10


@pytest.mark.parametrize("scheme", ["domain", "writer"])
def test_groups_are_needed(scheme):
    with pytest.raises(BadValue, match=f"scheme = '{scheme}' .*groups.*dirichlet"):
        make_partition(TEN, 4, scheme, 0)
    for wrong in (DOMAINS[:-1], DOMAINS - 1):
        with pytest.raises(BadValue, match=r"groups = \(\d+,\) .*one group >= 0 for each of the 1800 samples"):
            make_partition(TEN, 4, scheme, 0, groups=wrong)


def test_groups_of_clients_are_noted_for_every_scheme():
    """A client with samples of several domains has -1; without groups there is nothing to note."""
    assert make_partition(TEN, 4, "iid", 0, groups=DOMAINS).groups.tolist() == [-1] * 4
    sets = [range(4), range(4, 7), [7], [8, 9]]  # with DOMAINS: 0..3 -> 0 (and 1 for class 3), and so on
    assert make_partition(TEN, 4, "manual", 0, label_sets=sets, groups=DOMAINS).groups.tolist() == [-1, 1, -1, 2]
    assert make_partition(TEN, 4, "iid", 0).groups is None


# parameters -----------------------------------------------------------------------------------------------------------

CLASSES_TAKEN = ("pat_grouped", "pat_balanced", "random_classes", "ring")
NAN, INFINITE = float("nan"), float("inf")
WRONG = [
    *((scheme, "classes_per_client", [0], "at least 1") for scheme in CLASSES_TAKEN),
    *((scheme, "classes_per_client", [11], "1 to the 10 classes") for scheme in CLASSES_TAKEN),
    ("dirichlet", "alpha", [0, -0.1, NAN, INFINITE, "0.1"], "number"),
    ("dirichlet", "min_size", [-1], "0 or more"),
    ("dirichlet", "max_tries", [0], "1 or more"),
    ("dirichlet", "on_fail", ["ignore"], "raise, relax"),
    ("dirichlet", "shuffle_classes", [0], "true or false"),
    ("dirichlet_reference", "alpha", [0.0], "at least 0.001"),
    ("dirichlet_reference", "min_size", [1], "2 or more"),
    ("dirichlet_reference", "max_tries", [0], "1 or more"),
    ("manual", "label_sets", [None, [], [[0]], [[0], [1], [2]]], "label_sets = "),
    ("manual", "label_sets", ["ab"], "list or none"),
    ("manual", "weights", [[1], [1, 0], [1, -1], [NAN, 1], [1, NAN], [1, INFINITE]], "2 positive numbers"),
    ("pat_grouped", "min_size", [-1], "0 or more"),
    ("pat_grouped", "fair", [1], "true or false"),
    ("random_classes", "max_tries", [0], "1 or more"),
    ("ring", "unequal", ["yes"], "true or false"),
    ("shards", "s", [0], "at least 1"),
    ("shards", "s", [1.5], "integer"),
    ("domain", "clients_per_domain", [0], "at least 1"),
    ("writer", "min_samples", [0], "at least 1"),
    ("writer", "pick", [2], "true or false"),
    ("iid", "stratified", ["no"], "true or false"),
]


@pytest.mark.parametrize("scheme, name, values, accepted", WRONG)
def test_values_out_of_range(scheme, name, values, accepted):
    fine = {"label_sets": [[0], [0, 1]]} if scheme == "manual" else {}
    for value in values:
        with pytest.raises(BadValue) as error:
            make_partition(TEN, 2, scheme, 0, groups=DOMAINS, **{**fine, name: value})
        assert name in str(error.value) and repr(value) in str(error.value) and accepted in str(error.value)


@pytest.mark.parametrize("wrong", [[], [10], [-1], [1, 1]])
def test_a_label_set_out_of_range_is_named(wrong):
    with pytest.raises(BadValue) as error:
        make_partition(TEN, 2, "manual", 0, label_sets=[[0], wrong])
    assert str(error.value).startswith(f"label_sets = {wrong} is not accepted")


@pytest.mark.parametrize("scheme", sorted(SCHEMES.keys() - {"owners"}))  # which fills its checksum in: test_own_data.py
def test_parameters_have_defaults_and_are_completed(scheme):
    given = {"label_sets": [[0]]} if scheme == "manual" else {}
    assert checked_parameters(scheme, given) == {**parameters_of(scheme), **given}
    assert set(SCHEMES[scheme].added) <= set(parameters_of(scheme))


def test_more_clients_than_samples_of_a_class():
    with pytest.raises(InfeasiblePartition, match=r"class 0 has 3 samples for \d+ clients"):
        drawn(np.repeat([0, 1], [3, 100]), 20, "pat_balanced", classes_per_client=1)


def test_gaps_between_labels_are_no_classes():
    """Labels 0, 2 and 5: three classes, which are all dealt."""
    labels = np.repeat([0, 2, 5], 90)
    for scheme in ("pat_grouped", "pat_balanced", "random_classes", "ring"):
        counts = drawn(labels, 9, scheme, classes_per_client=1)
        assert counts.shape == (9, 6) and counts.sum(0).tolist() == [90, 0, 90, 0, 0, 90]
