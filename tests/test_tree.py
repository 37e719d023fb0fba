"""Trees of tensors: every function by hand, and none of them modifies its arguments."""

import copy

import pytest
import torch

from fedlib.base import tree


def small(offset=0.0):
    """A dict with a nested dict and a tuple; leaves 0-, 1- and 2-dimensional."""
    return {
        "a": torch.tensor(1.0 + offset),
        "b": {"c": torch.tensor([2.0, -3.0]) + offset},
        "t": (torch.full((2, 2), 4.0 + offset), torch.tensor([5.0 + offset])),
    }


def same(a, b):
    """Same structure and the same values."""
    if isinstance(a, (dict, tuple)):
        keys = list(a) if isinstance(a, dict) else range(len(a))
        return type(a) is type(b) and len(a) == len(b) and all(same(a[k], b[k]) for k in keys)
    return a.dtype == b.dtype and torch.equal(a, b)


def test_dot():
    """1*2 + (2*3 + 3*2) + 4 (4*5) + 5*6 = 124."""
    assert float(tree.dot(small(), small(1))) == 124


def test_map():
    out = tree.map(lambda x, y: x * 10 + y, small(), small(1))
    expected = {
        "a": torch.tensor(12.0),
        "b": {"c": torch.tensor([23.0, -32.0])},
        "t": (torch.full((2, 2), 45.0), torch.tensor([56.0])),
    }
    assert same(out, expected)
    assert same(tree.map(lambda x: x, {}), {})


@pytest.mark.parametrize("other", [{"a": torch.zeros(1)}, {"a": torch.zeros(1), "t": (torch.zeros(1),)}])
def test_map_of_different_structures_is_an_error(other):
    with pytest.raises((KeyError, ValueError)):
        tree.map(lambda x, y: x, {"a": torch.zeros(1), "t": (torch.zeros(1), torch.zeros(1))}, other)


def test_leaves_in_order_with_innermost_keys():
    found = list(tree.leaves(small()))
    assert [key for key, _ in found] == ["a", "c", 0, 1]
    assert [leaf.sum().item() for _, leaf in found] == [1, -1, 16, 5]
    assert list(tree.leaves(({}, ()))) == []


def test_select():
    theta = {"head.weight": 1, "extractor.fc": 2, "head.bias": 3, "headless": 4}
    assert tree.select(theta, "head.") == {"head.weight": 1, "head.bias": 3}
    assert list(tree.select(theta, "")) == list(theta)


def test_stack_and_rows_are_inverse():
    stacked = tree.stack([small(0), small(1), small(2)])
    assert stacked["a"].shape == (3,) and stacked["b"]["c"].shape == (3, 2) and stacked["t"][0].shape == (3, 2, 2)
    for k in range(3):
        assert same(tree.rows(stacked, k), small(k))
    assert same(tree.rows(stacked, [2, 0]), tree.stack([small(2), small(0)]))
    assert same(tree.rows(stacked, torch.tensor([1])), tree.stack([small(1)]))


def test_repeat_gives_independent_rows():
    repeated = tree.repeat(small(), 3)
    assert same(repeated, tree.stack([small()] * 3))
    repeated["b"]["c"][0] = 99
    assert same(tree.rows(repeated, 1), small()) and same(tree.rows(repeated, 2), small())


def test_put():
    stacked, new = tree.stack([small(k) for k in range(4)]), tree.stack([small(10), small(20)])
    for ids in ([3, 1], torch.tensor([3, 1])):
        assert same(tree.put(stacked, ids, new), tree.stack([small(0), small(20), small(2), small(10)]))


def test_concat():
    assert same(
        tree.concat([tree.stack([small(0)]), tree.stack([small(1), small(2)])]),
        tree.stack([small(0), small(1), small(2)]),
    )


def test_where():
    assert same(tree.where(torch.tensor(True), small(1), small(2)), small(1))
    assert same(tree.where(torch.tensor(False), small(1), small(2)), small(2))


def test_where_hides_what_was_not_chosen():
    """A non-finite result of a padded step must not leak: selection, not multiplication by 0."""
    assert (
        tree.where(torch.tensor(False), {"a": torch.tensor([float("nan")])}, {"a": torch.tensor([2.0])})["a"].item()
        == 2
    )


def test_weighted_sum_and_mean_by_hand():
    """Rows 0, 1, 2 of (1, (2, -3), ...) + k with weights 1, 2, 5: sum = 8 base + 12, mean = base + 12/8."""
    stacked = tree.stack([small(0), small(1), small(2)])
    assert same(tree.weighted_sum(stacked, [1, 2, 5]), tree.map(lambda leaf: 8 * leaf + 12, small()))
    assert same(tree.weighted_mean(stacked, [1, 2, 5]), small(1.5))
    assert same(tree.weighted_mean(stacked, torch.tensor([10, 20, 50])), small(1.5))


def test_every_row_times_its_own_factor():
    """Rows k of (1, (2, -3), ...) + k for k = 0, 1, 2, times 2, 0, -1; the leaf's type is kept."""
    found = tree.scaled(tree.stack([small(0), small(1), small(2)]), torch.tensor([2, 0, -1], dtype=torch.float64))
    for row, k, factor in ((0, 0, 2), (1, 1, 0), (2, 2, -1)):
        assert same(
            tree.map(lambda leaf: leaf + 0.0, tree.rows(found, row)),
            tree.map(lambda leaf: factor * leaf + 0.0, small(k)),  # noqa: B023
        )
    assert tree.scaled({"x": torch.ones(3)}, torch.ones(3, dtype=torch.float64))["x"].dtype == torch.float32


def test_weights_are_divided_in_float64():
    """With float64 leaves, 1/3 of 3.0 thrice is 3 to 1e-16, which float32 weights would miss by 1e-8;
    the leaf's type is kept."""
    leaf = {"x": torch.tensor([3.0, 3.0, 3.0], dtype=torch.float64)}
    mean = tree.weighted_mean(leaf, torch.tensor([0.1, 0.1, 0.1], dtype=torch.float64))["x"]
    assert mean.dtype == torch.float64 and abs(mean.item() - 3) < 1e-15
    assert tree.weighted_mean({"x": torch.ones(3)}, [1, 2, 3])["x"].dtype == torch.float32


def test_large_sample_counts_do_not_lose_weight():
    """Weights 2^24 and 1 are not representable as a float32 sum; their float64 ratio is."""
    mean = tree.weighted_mean({"x": torch.tensor([0.0, 1.0], dtype=torch.float64)}, torch.tensor([2**24, 1]))[
        "x"
    ].item()
    assert mean == pytest.approx(1 / (2**24 + 1), rel=1e-12)


@pytest.mark.parametrize(
    "call",
    [
        lambda s, t: tree.map(lambda a, b: a + b, s, t),
        lambda s, t: list(tree.leaves(s)),
        lambda s, t: tree.select(s, "b"),
        lambda s, t: tree.stack([s, t]),
        lambda s, t: tree.repeat(s, 2)["b"]["c"].zero_(),
        lambda s, t: tree.rows(s, [1, 0])["b"]["c"].zero_(),
        lambda s, t: tree.put(s, [2], tree.rows(t, [0]))["b"]["c"].zero_(),
        lambda s, t: tree.concat([s, t])["b"]["c"].zero_(),
        lambda s, t: tree.where(torch.tensor(True), s, t)["b"]["c"].zero_(),
        lambda s, t: tree.scaled(s, torch.tensor([1, 2, 3]))["b"]["c"].zero_(),
        lambda s, t: tree.weighted_sum(s, [1, 2, 3]),
        lambda s, t: tree.weighted_mean(s, [1, 2, 3]),
    ],
    ids=[
        "map",
        "leaves",
        "select",
        "stack",
        "repeat",
        "rows",
        "put",
        "concat",
        "where",
        "scaled",
        "weighted_sum",
        "weighted_mean",
    ],
)
def test_arguments_stay_as_they_are(call):
    """Also when the result is then overwritten, where the functions return new memory."""
    s, t = tree.stack([small(k) for k in range(3)]), tree.stack([small(k) for k in range(5, 8)])
    kept = copy.deepcopy((s, t))
    call(s, t)
    assert same(s, kept[0]) and same(t, kept[1])
