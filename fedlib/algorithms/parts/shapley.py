"""Shapley values of coalition games: exact by enumeration, or estimated from permutations of the players.

L. S. Shapley. "A Value for n-Person Games." 1953. Estimation by permutations: J. Castro, D. Gómez, J. Tejada.
"Polynomial calculation of the Shapley value based on sampling." Computers & Operations Research 36(5), 2009.

A game says what coalitions of p players are worth: game(members) -> values float64 [m] for members bool [m, p], one row
for each coalition; the empty one is among them. All coalitions are handed over at once and none twice.

`exact` and `from_permutations` have static shapes and no branches on data, so that they work inside torch.func.vmap.
There `present` bool [p] says which players are there: an absent one adds nothing to any coalition, so that its value is
0 and the values of the others are those of the game without it.

`ModelGame` is the game of pFedSV, whose players are models.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from math import comb, inf, log

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from fedlib.algorithms.parts.passes import part_mean
from fedlib.base.errors import choose, require
from fedlib.base.options import Options, option

Game = Callable[[Tensor], Tensor]
ENUMERATED = 12  # most players whose coalitions are all evaluated
HOW = ("plain", "antithetic", "stratified")
UTILITIES, EMPTY = ("accuracy", "loss"), ("zero", "chance")
AT_ONCE = 2**24  # numbers that coalitions which are evaluated as one program may take together
ACTIVATIONS = 16  # numbers in a network's layers for each of an image, about


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
    before = (
        place[:, None, :] < torch.arange(p + 1, device=place.device)[:, None]
    )  # [Q, p + 1, p]: the first 0 .. p players
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


# a game of models -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ModelGame(Options):
    """The game of pFedSV, as options of a method: players are models, and a coalition is worth what the mean of its
    models is on one part of a client's samples (Eq. 4).

    sv: values are estimated ("mc") or "exact". samples: permutations of an estimate, 0 for 3 for each player.
    val_fraction: share of a client's training samples in its validation part; utility_part: the samples that count.
    utility: "accuracy", or "loss", ln C - mean cross-entropy, which is 0 for a uniform guess. v_empty: the empty
    coalition is worth "zero", or "chance", the share of the most frequent label (for accuracy).
    """

    sv: str = option("mc", "mc", "exact")
    samples: int = option(0, 0, inf)
    val_fraction: float = option(0.2, 0, 0.99)
    utility: str = option("accuracy", *UTILITIES)
    utility_part: str = option("val", "val", "train")
    v_empty: str = option("zero", *EMPTY)

    def __post_init__(self):
        super().__post_init__()
        require(self.utility_part == "train" or self.val_fraction > 0, "val_fraction", self.val_fraction, "more than 0")

    def permutations(self, generator: np.random.Generator, players: int) -> Tensor:
        """The permutations of an estimate, int64 [Q, players]."""
        return draw_permutations(generator, self.samples or 3 * players, players)

    def values(self, model, own: dict, models: dict, there: Tensor, permutations: Tensor, data) -> Tensor:
        """Shapley values of the models that are there, float64 [p]; 0 for the others.

        models: stacked [p, ...]; entries that they do not have are those of `own`. there: bool [p]; permutations: [Q,
        p].
        """
        game = partial(self.worth, model, own, models, data=data)
        return values_of_present(game, there, permutations if self.sv == "mc" else None, model.stacked)

    def worth(self, model, own: dict, models: dict, members: Tensor, data) -> Tensor:
        """v of coalitions, bool [m, p] -> float64 [m]."""
        sizes, C = members.sum(1, keepdim=True), len(own["head.bias"])
        shares = members.double() / sizes.clamp(min=1)

        def goodness(x, y):
            return sample_utility(scores_of_means(model, own, models, shares, x), y, self.utility)

        found, nobody = part_mean(goodness, len(members), data, self.utility_part), 0.0
        if self.v_empty == "chance" and self.utility == "accuracy":
            nobody = part_mean(lambda x, y: functional.one_hot(y, C).T, C, data, self.utility_part).amax()
        return torch.where(sizes[:, 0] > 0, found, nobody)


def sample_utility(scores: Tensor, y: Tensor, utility: str) -> Tensor:
    """Of m models with scores [m, B, C] for every sample [m, B]: whether it is right, or ln C - its cross-entropy."""
    if utility == "accuracy":
        return scores.argmax(-1) == y
    labels = y.expand(len(scores), len(y))
    loss = functional.cross_entropy(scores.flatten(0, 1), labels.flatten(), reduction="none")
    return log(scores.shape[-1]) - loss.reshape(labels.shape)


def scores_of_means(model, theta: dict, models: dict, shares: Tensor, x: Tensor) -> Tensor:
    """Class scores of the means of models [p, ...] with these shares [m, p]: [m, B, C]. If models are heads,
    theta has the extractor."""
    if len(models) < len(theta):  # only the heads differ
        z = model.features(theta, x)
        means = means_of(models, shares)
        return torch.einsum("bd,mcd->mbc", z, means["head.weight"]) + means["head.bias"][:, None]
    size = sum(leaf[0].numel() for leaf in models.values()) + ACTIVATIONS * x.numel()
    together = max(1, AT_ONCE // size)
    if together == 1 or model.stacked:  # no copies of large models, nor of a whole stack's
        means = (means_of(models, row) for row in shares)
        return torch.stack([model.logits({**theta, **mean}, x) for mean in means])
    return torch.cat([model.logits_of_many(theta, means_of(models, rows), x) for rows in shares.split(together)])


def means_of(models: dict, shares: Tensor) -> dict:
    """Means of models [p, ...] with shares [m, p]: [m, ...]; or one, with shares [p]."""
    return {name: torch.tensordot(shares.to(leaf.dtype), leaf, dims=1) for name, leaf in models.items()}
