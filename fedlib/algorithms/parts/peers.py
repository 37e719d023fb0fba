"""Models of other clients in a client's hands: whose are sent, how far they are, whom to ask next,
and the aggregate with its own.

A client has a fixed number of places for them, so that messages have one shape; real, bool [places], says which are
filled. Where the client's own model is there as well, it is the first: models stacked [1 + places, ...], there bool [1
+ places]. What runs on a client has static shapes and no branches on data, so that it works inside torch.func.vmap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import torch
from torch import Tensor

from fedlib.base import tree
from fedlib.base.errors import check_fields
from fedlib.base.options import Options, option
from fedlib.base.same_bits import square_root

ZERO = 1e-9  # what rounding may leave of a value that is 0
NEAR = 1e-5  # least distance of two models
OWN_DISTANCES = ("min_other", "mean_other", "prev", "eps", "none", "exclude_self")


# on the server --------------------------------------------------------------------------------------------------------


def in_places(chosen: Sequence[int], places: int, i: int) -> tuple[Tensor, Tensor]:
    """The clients `chosen` for client i, int64 [places] with i itself in empty places, and which are filled,
    bool [places]."""
    padding = [i] * (places - len(chosen))
    return torch.tensor([*chosen, *padding]), torch.arange(places) < len(chosen)


def sent(models: dict, chosen: Sequence[tuple[Tensor, Tensor]]) -> tuple[dict, Tensor, Tensor]:
    """For K clients' `in_places`: the models [K, places, ...] out of [N, ...], whose they are, and `real`,
    both [K, places]."""
    ids, real = (torch.stack(part) for part in zip(*chosen))
    device = next(iter(models.values())).device
    return tree.rows(models, ids), ids.to(device), real.to(device)


def present(before: Tensor, ids, keep: bool) -> Tensor:
    """Whose models there are, bool [N], when those of `ids` have come in; `keep`: those from before stay."""
    before = before if keep else torch.zeros_like(before)
    return before.index_fill(0, torch.as_tensor(ids), True)


# on a client ----------------------------------------------------------------------------------------------------------


def own_first(own: dict, others: dict, real: Tensor) -> tuple[dict, Tensor]:
    """The own model and the received ones, stacked [1 + places, ...], and which of them are there."""
    models = tree.map(lambda mine, received: torch.cat([mine[None], received]), own, others)
    return models, torch.cat([real.new_ones(1), real])


def distances(models: dict, theta: dict, names: Sequence[str]) -> Tensor:
    """||theta_j - theta|| over the parameters `names` for models stacked [R, ...], float64 [R]."""
    squares = sum((models[name] - theta[name]).double().square().flatten(1).sum(1) for name in names)
    return square_root(squares)


def distances_with_own(
    models: dict, there: Tensor, names: Sequence[str], own: str, start: dict | None = None
) -> Tensor:
    """d_ij of pFedSV's Eq. 6, float64 [1 + places], with one of `OWN_DISTANCES` for d_ii, which is 0 by definition.

    min_other, mean_other: the smallest or mean distance to a received model (1 if there is none); prev: the distance to
    `start`; eps: NEAR; exclude_self: infinite; none: all distances are 1. No distance is smaller than NEAR.
    """
    others, received = distances(models, tree.rows(models, 0), names)[1:].clamp(min=NEAR), there[1:]
    if own == "none":
        return torch.ones_like(torch.cat([others[:1], others]))
    if own == "mean_other":
        mean = torch.where(received, others, 0).sum() / received.sum().clamp(min=1)
        d = torch.where(received.any(), mean, 1)
    elif own == "prev":
        d = distances(models, start, names)[0].clamp(min=NEAR)
    elif own == "min_other":
        d = torch.where(received.any(), torch.where(received, others, inf).amin(), 1)
    else:
        d = torch.full_like(others[0], NEAR if own == "eps" else inf)
    return torch.cat([d[None], others])


def aggregate(models: dict, gains: Tensor) -> dict:
    """sum_j w_j theta_j, w = gains / their sum, for gains >= 0, [1 + places]; the first model, the own one,
    if all are 0."""
    total = gains.sum()
    mixed = tree.weighted_sum(models, gains / torch.where(total > 0, total, 1))
    return tree.where(total > 0, mixed, tree.rows(models, 0))


@dataclass(frozen=True)
class Asking(Options):
    """Whose models a client asks for, by what it holds others to be worth (relevance), as options of a method.

    k: most models that a client downloads; where k_max is given there may be more, up to k_max, with a positive
    relevance. download_rule: "rule", others that were seen and have no positive relevance are discarded; of the rest
    the k with the largest relevance, unseen ones (0) last. "literal": nobody is discarded; as many as have a positive
    one, at least 1. reexplore_prob: a discarded one is considered again with this chance.
    """

    k: int = option(5, 1, inf)
    k_max: int | None = None
    download_rule: str = option("rule", "rule", "literal")
    reexplore_prob: float = option(0.0, 0, 1)

    def __post_init__(self):
        super().__post_init__()
        check_fields(self, k_max=(self.k, inf))

    @property
    def places(self) -> int:
        """Models that fit into a message."""
        return self.k if self.k_max is None else self.k_max

    @property
    def asks_by(self) -> str:
        """The rule of `request`; "fixed": nobody is discarded, and always k are asked for."""
        return self.download_rule

    def nothing_asked(self, N: int) -> dict:
        """What the server keeps of N clients' requests before there are any: rankings,
        and how many models they want."""
        return {"wanted": torch.full((N, N), -1), "most": torch.zeros(N, dtype=torch.int64)}

    def chosen(self, server: dict, i: int) -> tuple[Tensor, Tensor]:
        """Whose models client i gets of those that are "there" [N], by its last request: see `in_places`."""
        wanted = [j for j in server["wanted"][i].tolist() if j >= 0 and server["there"][j]]
        return in_places(wanted[: int(server["most"][i])], self.places, i)

    def request(self, message: dict, relevance: Tensor, seen: Tensor) -> dict:
        """What a client wants next, by relevance [N] and who was ever seen [N]: "wanted", the others in the order of
        their relevance, int64 [N] (-1: not at all), and "most", how many of them; k at the start.

        message: its own number "me", and "luck" [2, N], uniform: it orders those of equal relevance, and lets discarded
        ones in.
        """
        ties, second_look = message["luck"]
        positive, own = relevance > ZERO, torch.arange(len(seen), device=seen.device) == message["me"]
        fewest, largest = self.k if self.asks_by == "rule" else 1, torch.tensor(self.places, device=seen.device)
        most = torch.where(seen.any(), positive.sum().clamp(min=fewest).minimum(largest), self.k)
        discarded = seen & ~positive & (second_look >= self.reexplore_prob)
        if self.asks_by != "rule":
            discarded = torch.zeros_like(discarded)
        if self.asks_by == "fixed":
            most = torch.full_like(most, self.k)
        order = torch.where(own | discarded, -inf, (relevance / ZERO).round() + ties).argsort(descending=True)
        return {"wanted": torch.where((own | discarded)[order], -1, order), "most": most}
