"""Models of other clients: places, the pool, distances and mixtures by hand;
what is wanted next is tested with pFedSV."""

from __future__ import annotations

from math import inf, sqrt

import pytest
import torch
from helpers import f64

from fedlib.algorithms.parts import peers


def test_places_hold_the_chosen_ones_first():
    ids, real = peers.in_places([3, 1], 4, 2)
    assert ids.tolist() == [3, 1, 2, 2] and real.tolist() == [True, True, False, False]
    assert not peers.in_places([], 2, 0)[1].any()


def test_models_are_sent_to_their_places():
    """Client 0 gets those of 2 and 1, client 1 that of 0 and its own in the empty place."""
    models = {"w": f64(10, 11, 12)}
    found, whose, real = peers.sent(models, [peers.in_places([2, 1], 2, 0), peers.in_places([0], 2, 1)])
    assert found["w"].tolist() == [[12, 11], [10, 11]] and whose.tolist() == [[2, 1], [0, 1]]
    assert real.tolist() == [[True, True], [True, False]]


def test_the_pool_remembers_only_where_asked():
    before = torch.tensor([True, False, False])
    assert peers.present(before, [2], keep=True).tolist() == [True, False, True]
    assert peers.present(before, [2], keep=False).tolist() == [False, False, True]
    assert before.tolist() == [True, False, False]


OWN, OTHERS = (
    {"w": f64(0, 0), "rest": f64(5)},
    {"w": torch.stack([f64(3, 4), f64(1, 1), f64(9, 9)]), "rest": f64(7, 8, 9)[:, None]},
)


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ("min_other", sqrt(2)),
        ("mean_other", (5 + sqrt(2)) / 2),
        ("prev", 2),
        ("eps", peers.NEAR),
        ("exclude_self", inf),
        ("none", 1),
    ],
)
def test_distances_by_hand(own, expected):
    """Received are (3, 4) and (1, 1) at 5 and the root of 2 from (0, 0); the third place is empty;
    the last start was (0, 2)."""
    models, there = peers.own_first(OWN, OTHERS, torch.tensor([True, True, False]))
    assert there.tolist() == [True, True, True, False] and models["rest"][:, 0].tolist() == [5, 7, 8, 9]
    found = peers.distances_with_own(models, there, ["w"], own, {"w": f64(0, 2)})
    assert found[:3].tolist() == pytest.approx([1, 1, 1] if own == "none" else [expected, 5, sqrt(2)])


@pytest.mark.parametrize("own", ["min_other", "mean_other"])
def test_the_own_distance_is_one_if_nobody_is_there(own):
    models, there = peers.own_first(OWN, OTHERS, torch.tensor([False, False, False]))
    assert float(peers.distances_with_own(models, there, ["w"], own)[0]) == 1


def test_mixtures_by_hand():
    """Gains 1 and 3: a quarter of the own model and three quarters of the first other one;
    the own one where nobody gains."""
    models, _ = peers.own_first(OWN, OTHERS, torch.tensor([True, True, True]))
    assert peers.aggregate(models, f64(1, 3, 0, 0))["w"].tolist() == [2.25, 3]
    assert peers.aggregate(models, f64(0, 0, 0, 0))["w"].tolist() == [0, 0]
