"""Shapley values of coalition games: exact by enumeration, or estimated from permutations of the players.

L. S. Shapley. "A Value for n-Person Games." 1953. Estimation by permutations: J. Castro, D. Gómez, J. Tejada.
"Polynomial calculation of the Shapley value based on sampling." Computers & Operations Research 36(5), 2009.

A game says what coalitions of p players are worth: game(members) -> values float64 [m] for members bool [m, p], one row
for each coalition; the empty one is among them. All coalitions are handed over at once and none twice.

`exact` and `from_permutations` have static shapes and no branches on data, so that they work inside torch.func.vmap.
There `present` bool [p] says which players are there: an absent one adds nothing to any coalition, so that its value is
0 and the values of the others are those of the game without it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import comb

import numpy as np
import torch
from torch import Tensor

from fedlib.base.errors import choose, require

Game = Callable[[Tensor], Tensor]
ENUMERATED = 12  # most players whose coalitions are all evaluated
HOW = ("plain", "antithetic", "stratified")


@dataclass(frozen=True)
class Values:
    """Shapley values [p] and the standard errors of their estimates [p] (0 where they are exact)."""

    values: Tensor
    errors: Tensor


def shapley(game: Game, players: int, samples: int | None = None, how: str = "plain", generator=None) -> Values:
    """The Shapley values of a game: exact up to 12 players, unless `samples` asks for an estimate.

    samples: permutations of an estimate (default 3 p, as in pFedSV); how: see `draw_permutations`; generator: a
    numpy.random.Generator (default: seed 0). Raises BadValue for values out of range.
    """
    require(players >= 1, "players", players, "an integer of at least 1")
    if samples is None and players <= ENUMERATED:
        values = exact(game, players)
        return Values(values, torch.zeros_like(values))
    generator = np.random.default_rng(0) if generator is None else generator
    permutations = draw_permutations(generator, 3 * players if samples is None else samples, players, how)
    return Values(*from_permutations(each_once(game), permutations, drawn_together(how, players)))


# exact ----------------------------------------------------------------------------------------------------------------


@cache
def coalitions(players: int) -> Tensor:
    """All subsets of p players, bool [2^p, p]: row b holds player j where b has bit j. Row 0 is empty,
    the last is full."""
    return torch.arange(2**players)[:, None] >> torch.arange(players) & 1 == 1


@cache
def exact_weights(players: int) -> Tensor:
    """psi = weights @ v for the values v of all `coalitions`: float64 [p, 2^p].

    A coalition X weighs (|X|-1)! (p-|X|)! / p! for its members and -|X|! (p-|X|-1)! / p! for everybody else.
    """
    members = coalitions(players)
    size = members.sum(1)
    share = [1 / (players * comb(players - 1, s)) for s in range(players)]  # s! (p-s-1)! / p!
    joining, staying = (torch.tensor(w, dtype=torch.float64)[size, None] for w in ([0.0, *share], [*share, 0.0]))
    return torch.where(members, joining, -staying).T


def exact(game: Game, players: int, present: Tensor | None = None) -> Tensor:
    """psi_j = sum over X without j of |X|! (p-|X|-1)! / p! (v(X + j) - v(X)), [p]; 2^p coalitions are evaluated."""
    require(
        1 <= players <= ENUMERATED, "players", players, f"an integer from 1 to {ENUMERATED} to enumerate coalitions"
    )
    values = game(_among(coalitions(players), present)).double()
    return exact_weights(players).to(values.device) @ values


# estimated ------------------------------------------------------------------------------------------------------------


def draw_permutations(generator: np.random.Generator, count: int, players: int, how: str = "plain") -> Tensor:
    """`count` permutations of p players, int64 [count, p], each uniform.

    antithetic: every second one is the one before it in reverse. stratified: groups of p are the cyclic shifts of one
    permutation, so that every player takes every place once; `count` is rounded up to whole groups.
    """
    choose("kind of permutations", how, HOW)
    require(count >= 1, "count", count, "an integer of at least 1")
    together = drawn_together(how, players)
    groups = []
    for _ in range(-(-count // together)):
        first = generator.permutation(players)
        if how == "antithetic":
            groups.append(np.stack([first, first[::-1]]))
        else:
            groups.append(np.stack([np.roll(first, -s) for s in range(together)]))
    return torch.from_numpy(np.concatenate(groups))


def drawn_together(how: str, players: int) -> int:
    """How many successive permutations depend on each other."""
    return {"plain": 1, "antithetic": 2, "stratified": players}[choose("kind of permutations", how, HOW)]


def from_permutations(
    game: Game, permutations: Tensor, together: int = 1, present: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Mean over permutations [Q, p] of v(predecessors of j and j) - v(predecessors of j), and its standard errors;
    both [p].

    together: successive permutations that were drawn together; only their means are independent. With fewer than two
    such groups the standard error is infinite. If there are fewer coalitions than beginnings of permutations, each
    coalition is evaluated once and looked up; otherwise the game gets all Q p + 1 beginnings (see `each_once`).
    """
    Q, p = permutations.shape
    place = permutations.argsort(1)  # of every player
    count = torch.arange(p + 1, device=place.device)[:, None]
    before = place[:, None, :] < count  # [Q, p + 1, p]: the first 0 .. p players
    if p <= ENUMERATED and 2**p <= Q * p + 1:
        table = game(_among(coalitions(p).to(place.device), present)).double()
        values = table[(before * 2 ** torch.arange(p, device=place.device)).sum(-1)]
    else:
        beginnings = torch.cat([before[:1, 0], before[:, 1:].flatten(0, 1)])
        table = game(_among(beginnings, present)).double()
        values = torch.cat([table[:1].expand(Q)[:, None], table[1:].reshape(Q, p)], 1)
    gains = (values[:, 1:] - values[:, :-1]).gather(1, place)  # [Q, p], by player
    groups = gains.reshape(Q // together, together, p).mean(1)
    if len(groups) < 2:
        return groups.mean(0), torch.full_like(groups[0], torch.inf)
    return groups.mean(0), groups.std(0) / len(groups) ** 0.5


def each_once(game: Game) -> Game:
    """The game, asked about every different coalition of a call only once. Not for use inside torch.func.vmap."""

    def asked(members: Tensor) -> Tensor:
        different, where = members.unique(dim=0, return_inverse=True)
        return game(different)[where]

    return asked


def coalitions_asked(players: int, samples: int | None = None) -> int:
    """Coalitions with members that a game of so many players is asked for, for exact values or an estimate;
    counted by playing one."""
    asked = 0

    def counted(members: Tensor) -> Tensor:
        nonlocal asked
        asked += int(members.any(1).sum())
        return members.sum(1).double()

    shapley(counted, players, samples=samples)
    return asked


def values_of_present(game: Game, present: Tensor, permutations: Tensor | None = None, stacked: bool = False) -> Tensor:
    """Shapley values [p] of those who are there, estimated from permutations, or exact if none are given.

    Absent players need no evaluations where a coalition is asked for only once, which `stacked` (inside
    torch.func.vmap) rules out.
    """
    game = game if stacked else each_once(game)
    if permutations is None:
        return exact(game, len(present), present)
    return from_permutations(game, permutations, present=present)[0]


def _among(members: Tensor, present: Tensor | None) -> Tensor:
    return members if present is None else members.to(present.device) & present
