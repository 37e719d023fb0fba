"""Intervals: numbers worked out by hand, coverage on made data, and what is not known is not claimed."""

from __future__ import annotations

from math import inf

import numpy as np
import pandas as pd
import pytest

from fedlib.analysis.uncertainty import RESAMPLES, Interval, draws, units


def frame(values: dict, weights=None) -> pd.DataFrame:
    """values: by (column, row) an array [seeds, clients]."""
    lines = [
        (column, row, seed, client, value, 1.0 if weights is None else weights[client])
        for (column, row), table in values.items()
        for (seed, client), value in np.ndenumerate(np.asarray(table, dtype=float))
    ]
    return pd.DataFrame(lines, columns=["column", "row", "seed", "client", "accuracy", "weight"])


def drawn(values: dict, weights=None) -> pd.DataFrame:
    return draws(frame(values, weights), "accuracy", ["column", "row"], "client", "weight")


def test_the_estimate_is_the_mean_over_seeds_of_the_weighted_means_over_clients():
    """Clients of 1 and 3 images: (0.2 + 3 * 0.6) / 4 = 0.5 and (0.4 + 3 * 0.8) / 4 = 0.7; mean 0.6."""
    m = drawn({("c", "a"): [[0.2, 0.6], [0.4, 0.8]]}, weights=[1, 3])
    assert m.shape == (1 + RESAMPLES, 1) and m["c"]["a"].iloc[0] == pytest.approx(0.6)


def test_what_all_share_cancels_in_a_difference():
    """b is a plus a point for every client, however much clients differ: the difference is exact, the means are not."""
    a = np.random.default_rng(0).normal(70, 10, (3, 20))
    m = drawn({("c", "a"): a, ("c", "b"): a + 1})["c"]
    i, mean = Interval.of(m["b"] - m["a"]), Interval.of(m["a"])
    assert (i.value, i.low, i.high) == pytest.approx((1, 1, 1)) and mean.high - mean.low > 2


def test_seeds_alone_have_the_unbiased_variance_of_a_mean():
    """Three seeds 1, 2, 6: mean 3, unbiased variance 7, so 7/3 for their mean;
    two of three are drawn, which gives just that."""
    m = draws(pd.DataFrame({"seed": [0, 1, 2], "g": "x", "v": [1.0, 2.0, 6.0]}), "v", ["g"])["x"]
    assert m.iloc[0] == 3 and m[1:].var() == pytest.approx(7 / 3, rel=0.1)
    assert set(np.round(m[1:], 6)) == {1.0, 1.5, 2.0, 3.5, 4.0, 6.0}


@pytest.mark.parametrize(("seeds", "clients"), [(1, 40), (5, 20), (12, 1)])
def test_intervals_cover_the_truth_about_as_often_as_they_say(seeds, clients):
    """The difference of two methods is 0 on average: in 150 made tables 0 lies in the interval in 85 to 100 %."""
    random, inside = np.random.default_rng(1), []
    for _ in range(150):
        effect = random.normal(0, 1, (seeds, clients)) + (random.normal(0, 1, (seeds, 1)) if seeds > 1 else 0)
        base = random.normal(50, 9, (seeds, clients))
        m = drawn({("c", "a"): base, ("c", "b"): base + effect})["c"]
        i = Interval.of(m["b"] - m["a"])
        inside.append(i.low <= 0 <= i.high)
    assert 0.85 <= np.mean(inside) <= 1


def test_one_seed_without_clients_has_no_interval():
    m = draws(pd.DataFrame({"seed": [0], "g": "x", "v": [1.0]}), "v", ["g"])["x"]
    i = Interval.of(m)
    assert (i.value, i.low, i.high) == (1, -inf, inf) and i.text() == "+1.0 [?]"


def test_one_seed_whose_clients_are_all_alike_has_no_interval_either():
    """One model tested on the same images for every client: that clients agree says nothing of chance."""
    m = drawn({("c", "a"): [[0.5, 0.5, 0.5]], ("c", "b"): [[0.1, 0.5, 0.9]]})["c"]
    assert Interval.of(m["a"]).low == -inf and Interval.of(m["b"]).low > -inf
    assert Interval.of(m["a"] - m["b"]).low == -inf


def test_a_group_of_which_only_the_mean_is_known():
    """Its row has no client: with one seed nothing is known of its spread, with several seeds theirs is."""
    known, bare = frame({("c", "a"): [[0.1, 0.9]]}), pd.DataFrame(
        {"column": "c", "row": "b", "seed": [0], "client": np.nan, "accuracy": 0.4, "weight": 1.0}
    )  # fmt: skip
    m = draws(pd.concat([known, bare]), "accuracy", ["column", "row"], "client", "weight")["c"]
    assert m["b"].iloc[0] == 0.4 and Interval.of(m["b"]).low == -inf and Interval.of(m["a"]).low > -inf
    several = pd.concat([bare.assign(seed=s, accuracy=v) for s, v in enumerate((0.3, 0.4, 0.5))])
    m = draws(
        pd.concat([frame({("c", "a"): np.full((3, 2), 0.2)}), several]),
        "accuracy",
        ["column", "row"],
        "client",
        "weight",
    )["c"]
    assert (m["b"].iloc[0], Interval.of(m["b"]).low, Interval.of(m["b"]).high) == pytest.approx((0.4, 0.3, 0.5))


def test_a_seed_that_a_group_lacks_is_left_out_of_it():
    rows = pd.DataFrame({"seed": [0, 1, 2, 0, 1], "g": list("xxxyy"), "v": [1.0, 2.0, 3.0, 10.0, 20.0]})
    m = draws(rows, "v", ["g"])
    assert m["x"].iloc[0] == 2 and m["y"].iloc[0] == 15 and m["y"].dropna().between(10, 20).all()


def test_clients_that_a_group_lacks_have_no_weight():
    """a: clients 0 and 1; b: client 2 only."""
    rows = pd.DataFrame({"g": ["a", "a", "b"], "seed": 0, "client": [0, 1, 2], "v": [0.2, 0.4, 0.9], "w": 1.0})
    m = draws(rows, "v", ["g"], "client", "w")
    assert m.iloc[0].tolist() == pytest.approx([0.3, 0.9]) and m["a"].dropna().between(0.2, 0.4).all()


def test_columns_have_clients_of_their_own():
    """Another number of clients in each column."""
    m = drawn({("few", "a"): [[0.1, 0.2, 0.3]], ("many", "a"): [np.linspace(0, 1, 30)]})
    assert m.iloc[0].tolist() == pytest.approx([0.2, 0.5]) and m.notna().all(axis=None)


def test_the_same_numbers_have_the_same_intervals():
    values = {("c", "a"): np.random.default_rng(3).random((2, 9))}
    pd.testing.assert_frame_equal(drawn(values), drawn(values))


def test_texts():
    assert Interval(1.26, -0.2, 2.8).text() == "+1.3 [-0.2, +2.8]"
    assert Interval(88.0, 88.0, 88.0, exact=True).text(".2f") == "88.00"
    assert Interval(88.0, 88.0, 88.0).text(".1f") == "88.0 [88.0, 88.0]"
    tables = {
        "tidy": pd.DataFrame({"seed": [0, 1]}),
        "_clients": frame({("a", "x"): np.zeros((2, 5)), ("b", "x"): np.zeros((2, 9))}),
    }
    assert units(tables) == "2 seeds and 5 to 9 clients"
    fewer = tables | {"_clients": tables["_clients"].query("column == 'a' or seed == 0")}
    assert units(fewer) == "1 to 2 seeds and 5 to 9 clients"
    assert (
        units({"tidy": pd.DataFrame({"seed": [0]}), "_clients": frame({("a", "x"): np.zeros((1, 5))})})
        == "5 clients (1 seed)"
    )
    assert (
        units({"tidy": pd.DataFrame({"seed": [0, 1, 2]})}) == "3 seeds"
        and units({"tidy": pd.DataFrame({"x": [0]})}) == ""
    )


def test_a_group_of_one_client_has_no_interval():
    """Nothing can be resampled: a mean over one client of one seed is that client."""
    lines = [("a", 0, client, 0.5 + 0.1 * client) for client in range(5)] + [("b", 0, 2, 0.9)]
    found = draws(pd.DataFrame(lines, columns=["row", "seed", "client", "accuracy"]), "accuracy", ["row"], "client")
    one, five = Interval.of(found["b"]), Interval.of(found["a"])
    assert one.value == pytest.approx(0.9) and (one.low, one.high) == (-np.inf, np.inf)
    assert 0.5 <= five.low < five.value < five.high <= 0.9
    assert Interval.of(found["b"] - found["a"]).low == -np.inf
