"""The split of one client's samples into a training and a test part."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedlib.data.split import split_client
from fedlib.errors import BadValue

OWN = np.arange(100, 300, 2)  # 100 samples of one client


@settings(max_examples=1000, deadline=None, derandomize=True, database=None)
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


@pytest.mark.parametrize("size, fraction, tests", [(100, 0.5, 50), (100, 0.25, 25), (100, 0.2, 20), (2, 0.01, 1), (2, 0.99, 1), (3, 0.99, 2), (1000, 0.0001, 1)])
def test_sizes(size, fraction, tests):
    train, test = split_client(np.arange(size), fraction, 0, 0)
    assert (len(train), len(test)) == (size - tests, tests)


def test_every_client_and_seed_has_its_own_draw():
    """The same 100 samples: 40 clients and 40 seeds give 79 different splits."""
    by_client = {split_client(OWN, 0.5, 0, client)[1].tobytes() for client in range(40)}
    by_seed = {split_client(OWN, 0.5, seed, 0)[1].tobytes() for seed in range(40)}
    assert len(by_client | by_seed) == 79


def test_draws_of_two_clients_are_not_aligned():
    """Two independent halves of 100 share about 25 samples (std 2.5); equal or complementary ones would share 50 or 0."""
    shared = [len(np.intersect1d(split_client(OWN, 0.5, 0, i)[1], split_client(OWN, 0.5, 0, i + 1)[1])) for i in range(100)]
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
