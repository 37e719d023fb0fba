"""Shapley values: games solved on paper, beside that of lesson 13, the axioms as properties, estimates against exact
values, use under vmap."""

from __future__ import annotations

from itertools import permutations as orders
from math import factorial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedlib.algorithms.parts.shapley import (
    HOW,
    draw_permutations,
    drawn_together,
    each_once,
    exact,
    from_permutations,
    shapley,
)
from fedlib.base.errors import BadValue

HOW_MANY = settings(max_examples=30, deadline=None)


def table_game(values):
    """The game whose coalition with bits b is worth values[b]."""
    values = torch.as_tensor(values, dtype=torch.float64)
    players = (len(values) - 1).bit_length()
    return lambda members: values[(members * 2 ** torch.arange(players)).sum(-1)]


def random_game(players, seed, empty=0.0):
    values = np.random.default_rng(seed).uniform(-1, 1, 2**players)
    values[0] = empty
    return table_game(values)


def solvers(players, seed):
    """Exact, and all kinds of estimates with 6 players' worth of permutations."""
    yield lambda game: exact(game, players)
    for how in HOW:
        drawn = draw_permutations(np.random.default_rng(seed), 6, players, how)
        yield lambda game, drawn=drawn, how=how: from_permutations(game, drawn, drawn_together(how, players))[0]


# by hand --------------------------------------------------------------------------------------------------------------


def test_a_value_of_the_empty_coalition_is_taken_off():
    """v(empty) = 2, v(1) = 4, v(2) = 1, v(12) = 9: psi_1 = ((4 - 2) + (9 - 1))/2 = 5,
    psi_2 = ((1 - 2) + (9 - 4))/2 = 2; sum 9 - 2."""
    assert exact(table_game([2, 4, 1, 9]), 2).tolist() == [5, 2]


def test_one_permutation_by_hand():
    """v(1) = 4, v(2) = 1, v(12) = 9: in the order 2, 1 player 2 earns 1 and player 1 earns 8; in the order 1, 2 they
    earn 5 and 4.

    Mean (6, 3), standard errors: both differ by 4, so each has standard deviation 4/sqrt(2), over sqrt(2): 2.
    """
    game = table_game([0, 4, 1, 9])
    values, errors = from_permutations(game, torch.tensor([[1, 0]]))
    assert values.tolist() == [8, 1] and errors.tolist() == [float("inf")] * 2
    values, errors = from_permutations(game, torch.tensor([[1, 0], [0, 1]]))
    assert values.tolist() == [6, 3]
    torch.testing.assert_close(errors, torch.tensor([2.0, 2.0], dtype=torch.float64))


@pytest.mark.parametrize("players", [1, 2, 3, 4, 5])
def test_exact_is_the_mean_over_all_orders(players):
    game = random_game(players, players, empty=0.3)
    every = torch.tensor(list(orders(range(players))))
    assert len(every) == factorial(players)
    torch.testing.assert_close(exact(game, players), from_permutations(game, every)[0])


# axioms ---------------------------------------------------------------------------------------------------------------


@HOW_MANY
@given(st.integers(1, 7), st.integers(0, 10**6))
def test_efficiency(players, seed):
    """The values share out v(everybody) - v(nobody), for estimates too."""
    game = random_game(players, seed, empty=0.25)
    whole = game(torch.ones(1, players, dtype=torch.bool))[0] - 0.25
    for solve in solvers(players, seed):
        assert float(solve(game).sum()) == pytest.approx(float(whole), abs=1e-12)


@HOW_MANY
@given(st.integers(1, 6), st.integers(0, 10**6))
def test_absent_players(players, seed):
    """Values with some players absent are those of the game among the others; absent ones get exactly 0."""
    rng = np.random.default_rng(seed)
    present = torch.from_numpy(rng.random(players) < 0.6)
    there, game = torch.nonzero(present)[:, 0], random_game(players, seed)

    def among(members):
        full = torch.zeros(len(members), players, dtype=torch.bool)
        full[:, there] = members
        return game(full)

    values = exact(game, players, present)
    assert bool((values[~present].abs() < 1e-15).all())
    if len(there):
        torch.testing.assert_close(values[there], exact(among, len(there)))
    drawn = draw_permutations(rng, 5, players)
    estimated, _ = from_permutations(game, drawn, present=present)
    assert bool((estimated[~present].abs() < 1e-15).all())
    whole = game(present[None])[0]
    assert float(estimated.sum()) == pytest.approx(float(whole), abs=1e-12)


# estimates ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", HOW)
def test_standard_errors_are_those_of_the_estimates(how):
    """Over 100 games of six players: (estimate - truth)/error has spread 1, and 95 % of it lies within 2;
    errors shrink as 1/sqrt(Q)."""
    scores, ratios = [], []
    for seed in range(100):
        game = random_game(6, seed)
        few, many = (shapley(game, 6, count, how, np.random.default_rng(1000 + seed)) for count in (60, 480))
        scores.append((many.values - exact(game, 6)) / many.errors)
        ratios.append(few.errors / many.errors)
    scores = torch.stack(scores)
    assert float(scores.std()) == pytest.approx(1, abs=0.12) and abs(float(scores.mean())) < 0.12
    assert 0.92 < float((scores.abs() < 2).double().mean()) < 0.98
    assert float(torch.stack(ratios).mean()) == pytest.approx(8**0.5, rel=0.1)


def test_antithetic_pairs_are_exact_for_games_of_pairs():
    """v(X) = sum over pairs in X: a player earns its pairs with predecessors,
    in the reverse order those with all others."""
    weights = torch.triu(torch.rand(7, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0)), 1)

    def pairs(members):
        return torch.einsum("mi,ij,mj->m", members.double(), weights, members.double())

    found = shapley(pairs, 7, 4, "antithetic")
    torch.testing.assert_close(found.values, exact(pairs, 7))
    assert float(found.errors.max()) < 1e-12
    assert float(shapley(pairs, 7, 4).errors.min()) > 0.01


def test_stratified_permutations_are_exact_where_only_the_place_counts():
    """v(X) = sqrt|X|: every player takes every place once in a group, so that one group is enough."""
    found = shapley(lambda members: members.sum(1).double().sqrt(), 9, 9, "stratified").values
    torch.testing.assert_close(found, torch.full((9,), 1 / 3, dtype=torch.float64))


@pytest.mark.parametrize("how", HOW)
def test_permutations(how):
    drawn = draw_permutations(np.random.default_rng(3), 10, 5, how)
    assert drawn.sort(1).values.tolist() == [list(range(5))] * 10
    if how == "antithetic":
        assert torch.equal(drawn[1::2], drawn[::2].flip(1))
    if how == "stratified":
        assert drawn[:5].sort(0).values.T.tolist() == [list(range(5))] * 5
    many = draw_permutations(np.random.default_rng(4), 6000, 3, how)
    _, counts = many.unique(dim=0, return_counts=True)
    assert len(counts) == 6 and counts.min() > 800  # 1000 expected of each


def test_each_coalition_is_evaluated_once():
    asked = []

    def game(members):
        asked.append(members)
        return members.sum(1).double()

    exact(game, 4)
    from_permutations(game, draw_permutations(np.random.default_rng(0), 20, 4))
    shapley(game, 20)
    shapley(game, 5, samples=2)
    assert [len(members) for members in asked[:2]] == [16, 16]  # one call with all coalitions, also for the estimate
    assert len(asked) == 4
    for members in asked:
        assert len(members.unique(dim=0)) == len(members)
    assert 20 * 19 < len(asked[2]) <= 60 * 19 + 2
    different, once = each_once(game), torch.tensor([[True, False], [True, False], [False, True]])
    assert different(once).tolist() == [1, 1, 1] and len(asked[-1]) == 2


def test_more_than_twelve_players_are_estimated():
    """v(X) = 2 |X|: every marginal is 2."""
    found = shapley(lambda members: 2.0 * members.sum(1).double(), 14)
    assert found.values.tolist() == [2.0] * 14 and found.errors.tolist() == [0.0] * 14
    few = shapley(random_game(3, 1), 3)
    assert few.errors.tolist() == [0.0] * 3


@pytest.mark.parametrize(
    "call",
    [
        lambda g: exact(g, 13),
        lambda g: exact(g, 0),
        lambda g: shapley(g, 0),
        lambda g: shapley(g, 3, 5, "latin"),
        lambda g: shapley(g, 3, 0),
    ],
)
def test_values_out_of_range_are_refused(call):
    with pytest.raises(BadValue):
        call(random_game(3, 0))


# under vmap -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [2, 12])
def test_many_games_in_one_stack(count):
    """Three games of five players, some absent; `count` permutations: 2 are walked along,
    12 are looked up in the table of coalitions."""
    worth = torch.rand(3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    present = torch.tensor([[1, 1, 1, 1, 1], [1, 0, 1, 0, 1], [0, 0, 0, 0, 0]], dtype=torch.bool)
    drawn = torch.stack([draw_permutations(np.random.default_rng(k), count, 5) for k in range(3)])

    def one(worth, present, drawn):
        def game(members):
            return (members.double() @ worth).square()

        return exact(game, 5, present), from_permutations(game, drawn, 1, present)

    stacked = torch.func.vmap(one)(worth, present, drawn)
    for k in range(3):
        values, (estimates, errors) = one(worth[k], present[k], drawn[k])
        torch.testing.assert_close(stacked[0][k], values)
        torch.testing.assert_close(stacked[1][0][k], estimates)
        torch.testing.assert_close(stacked[1][1][k], errors)
