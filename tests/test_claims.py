"""Claims: every stock check holds, fails, stays undecided and is not tested where it should; verdicts' words."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fedlib.claims import (
    NOT_REPRODUCED,
    NOT_TESTED,
    REPRODUCED,
    UNDECIDED,
    Claim,
    Verdict,
    above_each,
    across_columns,
    below,
    best,
    beyond,
    both,
    changes,
    decided,
    each_apart,
    falls,
    gap,
    in_order,
    in_words,
    like_the_paper,
    negated,
    over_seeds,
    place,
    rises,
    verdict,
    within,
)
from fedlib.claims.judges import unclear


def tables(means: dict[str, dict[str, float]], spread: float = 0.0, seeds: int = 5, **more) -> dict:
    """A table of accuracies in percent, by column and row; `spread`:
    how far rows scatter independently of each other over seeds."""
    random, lines = np.random.default_rng(0), []
    for column, rows in means.items():
        for row, value in rows.items():
            noise = random.normal(0, spread, seeds)
            noise = noise - noise.mean()
            lines += [
                (column, row, seed, True, "post", np.nan, (value + noise[seed]) / 100, 1.0) for seed in range(seeds)
            ]
    frame = pd.DataFrame(lines, columns=["column", "row", "seed", "headline", "point", "client", "accuracy", "weight"])
    return {"tidy": frame.drop(columns=["client", "weight"]), "_clients": frame, **more}


TABLE = {"one": {"a": 90.0, "b": 85.0, "c": 50.0}, "two": {"a": 80.0, "b": 79.0, "c": 60.0}}


def lead_on_average(by: float):
    """a over b is 3 points, the mean of 5 and 1, with the evidence which columns there are."""

    def judge(columns):
        return {"b": sum(m["a"] - m["b"] for m in columns.values()) / len(columns) - by}, " and ".join(columns)

    return judge


HOLD = [
    above_each("a", "abc", ["one", "two"]),
    best("a"),
    best("a", ("b", "c"), columns=["one"]),
    best("b", among=("b", "c")),
    place("b", 2),
    place("c", -1),
    below(["c"], ["a", "b"]),
    below(["c"], ["a", "b"], by=15),
    falls("a", "b"),
    rises("c"),
    within(["a", "b"], 6),
    changes({"a over b": gap("a", ["b"])}, -1),
    changes({"a over the best other": gap("a")}, -1),
    both(best("a"), falls("a")),
    negated(best("b")),
    best("a", point="post"),
    across_columns(lead_on_average(2.9), ("a", "b")),
]
FAIL = [
    best("b"),
    place("b", 1),
    place("b", -1),
    below(["b"], ["c"]),
    below(["c"], ["a", "b"], by=30),
    falls("c"),
    rises("a", "c"),
    within(["a", "b"], 3),
    changes({"a over b": gap("a", ["b"])}, 1),
    both(best("a"), best("b")),
    negated(best("a")),
    across_columns(lead_on_average(3.1), ("a", "b"), two="tasks"),
]


@pytest.mark.parametrize("check", HOLD)
def test_checks_that_hold(check):
    assert check(tables(TABLE)).status == REPRODUCED and check(tables(TABLE)).holds
    exact = {"tidy": tables(TABLE, seeds=1)["tidy"]}  # printed numbers
    assert check(exact).status == REPRODUCED


@pytest.mark.parametrize("check", FAIL)
def test_checks_that_fail(check):
    assert check(tables(TABLE)).status == NOT_REPRODUCED and check(tables(TABLE)).holds is False


@pytest.mark.parametrize("check", HOLD + FAIL)
def test_inside_the_noise_nothing_is_decided(check):
    """Rows scatter by 60 points over seeds: estimates are the same, and so is what they say; the verdict is gone."""
    v = check(tables(TABLE, spread=60.0))
    assert v.status == UNDECIDED and v.holds == (check in HOLD)


@pytest.mark.parametrize("check", HOLD + FAIL)
def test_one_seed_without_clients_decides_nothing(check):
    assert check(tables(TABLE, seeds=1)).status == UNDECIDED


@pytest.mark.parametrize(
    ("check", "lacks"),
    [
        (best("d"), "without d"),
        (best("a", ("a", "e")), "without e"),
        (below(["a"], ["d"]), "without d"),
        (falls("a", "d"), "without d"),
        (both(best("a"), place("d", 2)), "without d"),
        (negated(best("d")), "without d"),
        (best("a", point="agg"), "nothing was run"),
        (above_each("a", "abd", ["one", "two"]), "without d"),
        (above_each("a", "b", ["one"], point="agg"), "without b"),
        (across_columns(lead_on_average(0), ("a", "d")), "without d"),
        (across_columns(lead_on_average(0), point="agg"), "nothing was run"),
        (across_columns(lead_on_average(0), two="tasks", point="agg"), "needs two tasks"),
        (like_the_paper(0.8), "fewer than three rows"),
    ],
)
def test_what_was_not_run_is_named(check, lacks):
    printed = pd.DataFrame({"column": ["one"], "row": ["a"], "value": [1.0]})
    v = check(tables(TABLE, _printed=printed))
    assert v.status == NOT_TESTED and lacks in v.evidence


def test_a_row_that_one_column_lacks():
    partly = tables({"one": TABLE["one"], "two": {"a": 80.0, "c": 60.0}})
    v = best("a", ("b",))(partly)
    assert v.status == NOT_TESTED and v.evidence == "without b (two)"
    assert best("a", ("b",), columns=["one"])(partly).status == REPRODUCED
    v = best("c", ("b",))(partly)
    assert v.status == NOT_REPRODUCED and v.evidence.endswith("; without b (two)") and "two:" not in v.evidence


@pytest.mark.parametrize("check", [best("a"), place("a", -1), best("a", among=("a", "d")), like_the_paper(0.8)])
def test_a_lone_row_is_neither_first_nor_last(check):
    alone = tables({"one": {"a": 80.0}}, _printed=printed("abc"))
    nothing = {name: frame[:0] for name, frame in alone.items()}
    assert (
        check(alone).status == check(nothing).status == NOT_TESTED and check(alone).evidence and check(nothing).evidence
    )


def test_a_tie_is_not_a_lead():
    assert best("a")(tables({"one": {"a": 80.0, "b": 80.0}})).status == NOT_REPRODUCED


def test_an_interval_that_ends_at_0_decides_nothing():
    draws = pd.Series([-0.2, *np.linspace(-0.5, 0, 200), *[0.0] * 50])
    assert decided({"a": draws}, "").status == UNDECIDED and unclear({"a": draws}) == "; not told apart from a"
    assert decided({"a": draws - 0.1}, "").status == NOT_REPRODUCED and not unclear({"a": draws - 0.1})


def test_rows_are_compared_on_the_seeds_that_they_share():
    """a and c have three seeds, b the first of them, the easy one: a's mean is below b's, but not on the same seed."""
    values = {("a", 0): 90, ("a", 1): 60, ("a", 2): 62, ("b", 0): 80, ("c", 0): 70, ("c", 1): 50, ("c", 2): 51}
    lines = [("one", row, seed, True, "post", client, value / 100 + 0.01 * client, 1.0)
             for (row, seed), value in values.items() for client in range(2)]  # fmt: skip
    frame = pd.DataFrame(lines, columns=["column", "row", "seed", "headline", "point", "client", "accuracy", "weight"])
    uneven = {"tidy": frame.groupby(["column", "row", "seed", "headline", "point"])["accuracy"].mean().reset_index(),
              "_clients": frame}  # fmt: skip
    first = best("a")(uneven)
    assert first.holds and "a 90.5, +10.0" in first.evidence and first.over == "2 clients (1 seed)"
    assert Claim("A", best("a")).said(first, "", "3 seeds")[1].evidence.endswith("intervals over 2 clients (1 seed)]")
    each = above_each("a", "abcd", ["one"], needs="b")(uneven)
    assert each.margins["one: b"].value == pytest.approx(10) and each.margins["one: c"].value == pytest.approx(41 / 3)
    assert each.holds and each.evidence.startswith("one: a +10.0 ") and "against b" in each.evidence
    pair = below(["c"], ["a"])(uneven)
    assert pair.over == "" and pair.margins["one: a over c"].value == pytest.approx(41 / 3)
    apart = {name: table[(table["row"] == "b") | (table["seed"] > 0)] for name, table in uneven.items()}
    for check in (
        best("a"),
        above_each("a", "b", ["one"]),
        below(["b"], ["a"]),
        below(["b"], ["a"], columns=["one"]),
    ):  # no seed in common
        assert check(apart).status == NOT_TESTED and "without" in check(apart).evidence
    order = {**uneven, "tidy": frame.rename(columns={"row": "method"}).assign(value=frame["accuracy"])}
    v = over_seeds("tidy", "value", "method", lambda m: ({"lead": m["a"] - m["b"]}, "a"), scale=100)(order)
    assert v.holds and v.margins["lead"].value == pytest.approx(10) and v.over == "one seed alone, which gives none"
    nothing = {"tidy": order["tidy"][(order["tidy"]["method"] == "b") | (order["tidy"]["seed"] > 0)]}
    v = over_seeds("tidy", "value", "method", lambda m: ({}, ""))(nothing)
    assert v.status == NOT_TESTED and v.evidence == "without a seed that all methods have"


def test_evidence_names_rival_interval_and_what_is_not_told_apart():
    v = best("a")(tables(TABLE, spread=3.0))
    assert v.evidence.startswith("one: a 90.0, +5.0 [") and "against the best other, b; two:" in v.evidence
    gaps = {"x": pd.Series([1.0, 0.5, 0.5]), "y": pd.Series([-0.26])}  # of the second nothing was drawn
    assert each_apart(gaps) == "+1.0 [+0.5, +0.5] (x), -0.3 (y)"
    assert v.evidence.endswith("not told apart from b") and v.closest.value == pytest.approx(1.0)
    assert (
        "the line of 15 is ours: below 19.0 reproduced, above 19.0 not"
        in below(["c"], ["b"], by=15)(tables(TABLE)).evidence
    )


def test_the_line_that_would_turn_a_verdict_is_that_of_the_smallest_margin():
    """c is 40 below a and 35 below b."""
    assert "below 35.0 reproduced, above 35.0 not" in below(["c"], ["a", "b"], by=15)(tables(TABLE)).evidence


def printed(order: str) -> pd.DataFrame:
    return pd.DataFrame({"column": "one", "row": list(order), "value": range(len(order), 0, -1)})


def test_order_of_the_paper():
    """Ours: a > b > c > d > e. Two swapped neighbours: Spearman's correlation 1 - 6 * 2 / (5 * 24) = 0.9; all reversed:
    -1."""
    ours = {"one": dict(zip("abcde", (90.0, 80.0, 70.0, 60.0, 50.0)))}
    same, swapped, reversed_ = (
        like_the_paper(0.8, among="cde")(tables(ours, _printed=printed(o))) for o in ("abcde", "bacde", "edcba")
    )
    assert (same.status, swapped.status, reversed_.status) == (REPRODUCED, REPRODUCED, NOT_REPRODUCED)
    assert (
        "one 0.90 [0.90, 0.90] over 5 rows (1.00 [1.00, 1.00] among the 3" in swapped.evidence
        and "-1.00" in reversed_.evidence
    )
    assert like_the_paper(0.8)(tables(ours, spread=30.0, _printed=printed("abcde"))).status == UNDECIDED


def by_seed(low, high) -> dict:
    return {"t": pd.DataFrame({"seed": [0, 1, 2] * 2, "kind": ["low"] * 3 + ["high"] * 3, "v": [*low, *high]})}


@pytest.mark.parametrize(
    ("judge", "statuses"),
    [
        (in_order(("high", "low")), (REPRODUCED, UNDECIDED, NOT_REPRODUCED)),
        (beyond("high", 3), (REPRODUCED, UNDECIDED, NOT_REPRODUCED)),
        (beyond("low", 2.5, -1), (REPRODUCED, REPRODUCED, REPRODUCED)),
    ],
)
def test_over_seeds(judge, statuses):
    low, highs = (1.0, 2.0, 1.5), ((5.0, 6.0, 5.5), (9.0, -4.0, 5.0), (0.0, 0.5, 0.2))
    assert tuple(over_seeds("t", "v", "kind", judge)(by_seed(low, high)).status for high in highs) == statuses


def test_facts_have_no_interval():
    assert verdict(True, "x") == Verdict(REPRODUCED, "x", True) and verdict(False, "x").closest is None


def test_words():
    """Small data never refute a claim about the paper's; a check of the implementation passes or fails anywhere."""
    assert in_words(REPRODUCED, "paper") == "reproduced" and in_words(NOT_REPRODUCED, "paper") == "not reproduced"
    assert in_words(NOT_REPRODUCED, "paper", "digits") == "does not hold on digits"
    assert in_words(REPRODUCED, "own") == "holds" and in_words(REPRODUCED, "own", "digits") == "holds on digits"
    assert in_words(REPRODUCED, "check", "digits") == "passed" and in_words(NOT_REPRODUCED, "check") == "failed"
    for kind in ("paper", "own", "check"):
        assert in_words(UNDECIDED, kind, "digits") == UNDECIDED and in_words(NOT_TESTED, kind) == NOT_TESTED
