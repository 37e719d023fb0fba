"""Intervals: numbers worked out by hand, coverage on made data, and what is not known is not claimed."""

from __future__ import annotations

from math import inf, sqrt

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from fedlib.analysis.uncertainty import DRAWS, Interval, draws, simultaneous, units


def frame(values: dict, weights=None) -> pd.DataFrame:
    """values: by (column, row) an array [seeds, clients]."""
    lines = [
        (column, row, seed, client, value, 1.0 if weights is None else weights[client])
        for (column, row), table in values.items()
        for (seed, client), value in np.ndenumerate(np.asarray(table, dtype=float))
    ]
    return pd.DataFrame(lines, columns=["column", "row", "seed", "client", "accuracy", "weight"])


def drawn(values: dict, weights=None) -> pd.DataFrame:
    return draws(frame(values, weights), "accuracy", ["column", "row"], "weight")


def over_seeds(**groups) -> pd.DataFrame:
    """Draws of groups of one number a seed."""
    lines = [(g, seed, value) for g, values in groups.items() for seed, value in enumerate(values) if value is not None]
    return draws(pd.DataFrame(lines, columns=["g", "seed", "v"]), "v", ["g"])


def test_the_estimate_is_the_mean_over_seeds_of_the_weighted_means_over_clients():
    """Clients of 1 and 3 images: (0.2 + 3 * 0.6) / 4 = 0.5 and (0.4 + 3 * 0.8) / 4 = 0.7; mean 0.6."""
    m = drawn({("c", "a"): [[0.2, 0.6], [0.4, 0.8]]}, weights=[1, 3])
    assert m.shape == (1 + DRAWS, 1) and m["c"]["a"].iloc[0] == pytest.approx(0.6)


def test_what_is_not_a_number_is_no_seed():
    m, without = over_seeds(a=[0.9, 0.8, np.nan], b=[0.5, 0.7, 0.6]), over_seeds(a=[0.9, 0.8, None], b=[0.5, 0.7, 0.6])
    pd.testing.assert_frame_equal(m, without)
    assert m["a"].iloc[0] == pytest.approx(0.85) and over_seeds(a=[np.nan], b=[0.5])["a"].isna().all()
    assert over_seeds(a=[np.nan, np.nan]).isna().all(axis=None)


def test_what_all_share_cancels_in_a_difference():
    """b is a plus a point with every seed, however much seeds differ: the difference is exact, the means are not."""
    a = np.random.default_rng(0).normal(70, 10, (3, 20))
    m = drawn({("c", "a"): a, ("c", "b"): a + 1})["c"]
    i, mean = Interval.of(m["b"] - m["a"]), Interval.of(m["a"])
    assert (i.value, i.low, i.high) == pytest.approx((1, 1, 1)) and mean.high - mean.low > 2


def test_two_groups_have_the_interval_of_a_paired_t_test():
    """Differences 1, 2, 6: mean 3, standard error sqrt(7 / 3), two degrees of freedom; SciPy's test has it, too."""
    m = over_seeds(a=[11.0, 22.0, 36.0], b=[10.0, 20.0, 30.0])
    i, half = Interval.of(m["a"] - m["b"]), stats.t.ppf(0.975, 2) * sqrt(7 / 3)
    assert i.value == pytest.approx(3) and (i.low, i.high) == pytest.approx((3 - half, 3 + half), abs=0.15)
    told = stats.ttest_rel([11.0, 22.0, 36.0], [10.0, 20.0, 30.0]).confidence_interval()
    assert (i.low, i.high) == pytest.approx((told.low, told.high), abs=0.2)


def test_a_mean_has_the_interval_of_a_t_test():
    i = Interval.of(over_seeds(x=[1.0, 2.0, 6.0])["x"])
    told = stats.ttest_1samp([1.0, 2.0, 6.0], 0).confidence_interval()
    assert (i.low, i.high) == pytest.approx((told.low, told.high), abs=0.2)


def test_a_variance_borrows_strength_where_the_rows_vary_alike():
    """Twelve methods with errors of one size: three seeds tell a difference as precisely as many degrees of freedom do.
    The truth's half-width is 1.96 sqrt(2 / 3) = 1.6, a t test's of two degrees of freedom 3.5 on average."""
    random = np.random.default_rng(0)
    groups = {f"m{k}": random.normal(0, 1, 3) + [0, 10, 20] for k in range(12)}
    m = over_seeds(**groups)
    widths = [(i.high - i.low) / 2 for k in range(1, 12) for i in [Interval.of(m[f"m{k}"] - m["m0"])]]
    assert min(widths) > 1 and max(widths) < 2.1


def test_a_row_that_varies_more_keeps_most_of_its_own_variance():
    random = np.random.default_rng(1)
    groups = {f"m{k}": random.normal(0, 0.1 if k else 20, 5) for k in range(12)}
    m = over_seeds(**groups)
    wild, calm = (Interval.of(m["m1"] - m[name]) for name in ("m0", "m2"))
    assert wild.high - wild.low > 10 * (calm.high - calm.low)


@pytest.mark.parametrize("seeds", [3, 5, 10])
@pytest.mark.parametrize("nested", [False, True], ids=["crossed", "nested"])
@pytest.mark.parametrize("ratio", [0, 1, 2])
def test_95_percent_intervals_cover_the_truth_in_93_to_97_percent(seeds, nested, ratio):
    """Made tables of 5 methods (the fewest that lend) and 2 columns, 20 clients: the same ones for every seed (what a
    client is worth to a method lasts, and belongs to the truth), or new ones with each seed; ratio: the standard
    deviation of what a seed does to a method, in those that clients add to its mean. 1,200 differences of methods.
    """
    random, inside, N, G = np.random.default_rng(seeds), [], 20, 5
    for _ in range(150):
        lasting = 0.0 if nested else random.normal(0, 1, (2, G, 1, N))
        noise = random.normal(0, sqrt(2) if nested else 1, (2, G, seeds, N))
        shared = random.normal(0, 3, (2, 1, seeds))
        y = (lasting + noise).mean(3) + shared + ratio * random.normal(0, sqrt(2 / N), (2, G, seeds))
        truth = np.broadcast_to(np.mean(lasting, axis=-1).squeeze() if not nested else np.zeros((2, G)), (2, G))
        m = drawn({(c, g): y[c, g][:, None] for c in range(2) for g in range(G)})
        for c in range(2):
            for g in range(1, G):
                i = Interval.of(m[c][g] - m[c][0])
                inside.append(i.low <= truth[c, g] - truth[c, 0] <= i.high)
    assert 0.93 <= np.mean(inside) <= 0.97


def test_several_intervals_hold_together_once_they_are_widened():
    """Ten tied methods: one interval of nine differences misses 0 in far more than 5 % of the tables, one of the
    widened ones in about 2.5 % on either side."""
    random, alone, together = np.random.default_rng(2), [], []
    for _ in range(200):
        m = over_seeds(**{f"m{k}": random.normal(0, 1, 5) for k in range(10)})
        gaps = {name: m[name] - m["m0"] for name in m.columns[1:]}
        wider, found = simultaneous(gaps), [Interval.of(gap) for gap in gaps.values()]
        alone.append(any(i.high < 0 for i in found))
        together.append(any(i.value + wider * (i.high - i.value) < 0 for i in found))
        assert 1 < wider < 2
    assert np.mean(alone) > 0.08 and np.mean(together) < 0.06
    assert simultaneous({"one": m["m1"] - m["m0"]}) == pytest.approx(1)
    assert simultaneous({}) == simultaneous({"unknown": pd.Series([1.0, np.nan])}) == 1


def test_one_seed_has_no_interval_however_many_clients_it_has():
    """Clients of one run share its network: their spread says nothing of another run."""
    m = drawn({("c", "a"): np.random.default_rng(0).random((1, 40)), ("c", "b"): np.zeros((1, 40))})["c"]
    i = Interval.of(m["a"] - m["b"])
    assert (i.low, i.high) == (-inf, inf) and not i.known and i.text().endswith(" (one seed)")


def test_columns_of_one_seed_take_nothing_from_others():
    several = np.random.default_rng(0).random((4, 5))
    m = drawn({("x", "a"): several, ("x", "b"): several**2, ("y", "a"): several[:1], ("y", "b"): several[:1]})
    assert Interval.of(m["x"]["a"]).known and not Interval.of(m["y"]["a"]).known


def paired(a, b) -> tuple[float, float]:
    told = stats.ttest_rel(a, b).confidence_interval()
    return told.low, told.high


def ends(draws: pd.Series) -> tuple[float, float]:
    i = Interval.of(draws)
    return i.low, i.high


def test_a_column_of_fewer_seeds_than_another_keeps_what_its_seeds_share():
    """Whatever seeds another column has, the difference has the interval of a paired t test, which is narrow here."""
    random = np.random.default_rng(4)
    shared = random.normal(0, 10, (3, 1))
    a, b = 50 + shared + random.normal(0, 0.3, (3, 1)), 46 + shared + random.normal(0, 0.3, (3, 1))
    more = random.normal(60, 10, (5, 1))
    alone = drawn({("x", "a"): a, ("x", "b"): b})["x"]
    beside = drawn({("y", "a"): more, ("y", "b"): more + 1, ("x", "a"): a, ("x", "b"): b})["x"]
    for m in (alone, beside):
        assert ends(m["a"] - m["b"]) == pytest.approx(paired(a[:, 0], b[:, 0]), abs=0.2)


def test_rows_of_one_seed_lend_nothing_and_few_rows_keep_their_own_variances():
    """Four rows of three seeds beside eight of one: all differences have the intervals of paired t tests."""
    random = np.random.default_rng(6)
    several = {f"m{k}": random.normal(50, 1 + k, 3) for k in range(4)}
    m = over_seeds(**several, **{f"one{k}": [random.normal(50, 1), None, None] for k in range(8)})
    for k in range(1, 4):
        assert ends(m[f"m{k}"] - m["m0"]) == pytest.approx(paired(several[f"m{k}"], several["m0"]), rel=0.06)


def test_a_row_of_fewer_seeds_has_the_interval_of_those():
    """Seeds 0 and 1 differ by 0.2 and seed 2 by far more, in all rows: its mean is that of the first two."""
    m = over_seeds(a=[50.0, 50.2, 80.0], b=[60.0, 60.2, 90.0], c=[70.0, 70.2, None])
    told = stats.ttest_1samp([70.0, 70.2], 0).confidence_interval()
    low, high = ends(m["c"])
    assert high - low < 1.2 * (told.high - told.low)


def test_rows_of_fewer_seeds_have_degrees_of_freedom_of_their_own():
    """Two rows of three seeds beside two of eight: their difference has the interval of a paired t test of three."""
    random = np.random.default_rng(7)
    few = {name: random.normal(50, 1, 3) for name in "cd"}
    padded = {name: [*own, *[None] * 5] for name, own in few.items()}
    m = over_seeds(a=random.normal(60, 1, 8), b=random.normal(70, 1, 8), **padded)
    assert ends(m["c"] - m["d"]) == pytest.approx(paired(few["c"], few["d"]), rel=0.06)


def test_a_seed_that_a_group_lacks_is_left_out_of_it():
    m = over_seeds(x=[1.0, 2.0, 3.0], y=[10.0, 20.0, None])
    assert m["x"].iloc[0] == 2 and m["y"].iloc[0] == 15 and Interval.of(m["y"]).known


def test_clients_that_a_group_lacks_have_no_weight():
    """a: clients 0 and 1; b: client 2 only."""
    rows = pd.DataFrame({"g": ["a", "a", "b"], "seed": 0, "client": [0, 1, 2], "v": [0.2, 0.4, 0.9], "w": 1.0})
    assert draws(rows, "v", ["g"], "w").iloc[0].tolist() == pytest.approx([0.3, 0.9])


def test_columns_have_errors_of_their_own():
    values = np.random.default_rng(0).random((3, 9))
    m = drawn({("one", "a"): values, ("two", "a"): values})
    assert abs(stats.spearmanr(m["one"]["a"][1:], m["two"]["a"][1:]).statistic) < 0.1


def test_rows_of_columns_that_take_turns_keep_their_names():
    values = {("x", "a"): [[1.0], [1.0]], ("y", "a"): [[2.0], [2.0]], ("x", "b"): [[3.0], [3.0]]}
    m = drawn(values)
    assert {key: m[key].iloc[[0, -1]].tolist() for key in m} == {key: [v[0][0]] * 2 for key, v in values.items()}


def test_the_same_numbers_have_the_same_intervals():
    values = {("c", "a"): np.random.default_rng(3).random((2, 9))}
    pd.testing.assert_frame_equal(drawn(values), drawn(values))


def test_texts():
    assert Interval(1.26, -0.2, 2.8).text() == "+1.3 [-0.2, +2.8]"
    assert Interval(1.26, -inf, inf).text() == "+1.3 (one seed)"
    assert Interval(88.0, 88.0, 88.0, exact=True).text(".2f") == "88.00"
    assert Interval(88.0, 88.0, 88.0).text(".1f") == "88.0 [88.0, 88.0]"
    tidy = frame({("a", "x"): np.zeros((2, 5)), ("b", "x"): np.zeros((2, 9))})
    assert units({"tidy": tidy}) == "2 seeds"
    assert units({"tidy": tidy.query("column == 'a' or seed == 0")}) == "1 to 2 seeds"
    assert units({"tidy": pd.DataFrame({"seed": [0]})}) == "one seed"
    assert units({"tidy": pd.DataFrame({"seed": [0, 1, 2]})}) == "3 seeds"
    assert units({"tidy": pd.DataFrame({"x": [0]})}) == ""
