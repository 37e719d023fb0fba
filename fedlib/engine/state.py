"""What a run has come to: everything that changes from round to round, and all that a checkpoint holds. And what
travels between server and clients: counting it, and keeping batch norm's running statistics where they belong.

Policy `bn_stats`: "local" (statistics never leave the client and persist across its rounds) or "global" (they travel
and are averaged like the parameters around them).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from fedlib.base import tree
from fedlib.base.errors import BadValue

SECONDS = ("data", "step", "train", "server", "evaluate", "wall")


@dataclass
class State:
    """The state of one run. N clients, C classes; a tree is nested dicts and tuples of tensors (`fedlib.base.tree`).

    server, clients, uploads and stats belong to the method that acts now: that of the warm-up, or the run's own. Trees
    are never changed in place but for the rows of those that the engine owns (clients, uploads, stats, released).
    """

    server: dict[str, Any]  # what the server keeps: a tree, and numbers
    clients: dict[str, Any]  # what the clients keep, leaves [N, ...]
    stats: dict[str, Tensor]  # batch norm's running statistics that stay with the clients, each [N, ...]; see transport
    trained: Tensor  # bool [N], who ever took part
    warming_up: bool  # whether the rounds of another method, which come first, go on
    uploads: dict[str, Any] | None = None  # last ones, [N, ...]; None where the server keeps or nobody tests them
    released: dict[str, Tensor] | None = None  # parameters last let out, each [N, ...]; None without noise on uploads
    round: int = 0  # rounds done
    samples: int = 0  # trained on, every epoch counted
    floats: dict[str, int] = field(default_factory=lambda: {"down": 0, "up": 0, "once": 0})  # numbers that travelled
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(SECONDS, 0.0))  # by purpose
    history: list[dict[str, Any]] = field(default_factory=list)  # round, point, correct int64 [N, C], loss [N]
    followed: dict[str, list[Tensor]] = field(default_factory=dict)  # measures of every round, one entry a round
    warmed: dict[str, Any] | None = None  # the server at the end of the warm-up, kept for newcomers
    newcomers: list[dict[str, Any]] = field(default_factory=list)  # their tests: when, point, correct [U, C], loss [U]
    diverged: tuple[int, int, int | None] | None = None  # client, round and step that ended the run

    @contextlib.contextmanager
    def timed(self, purpose: str) -> Iterator[None]:
        """Add the time that passes meanwhile to the seconds for this purpose."""
        start = time.monotonic()
        try:
            yield
        finally:
            self.seconds[purpose] += time.monotonic() - start


# what travels ---------------------------------------------------------------------------------------------------------


class Transport:
    """Applies one policy. `running` are the names of the statistics, `theta0` holds their initial values."""

    def __init__(self, policy: str, running: tuple[str, ...], theta0: dict):
        self.policy, self.running, self.theta0 = policy, frozenset(running), theta0
        self.keeps_stats = policy != "global" and bool(running)

    def initial_stats(self, num_clients: int, num_models: int | None = None) -> dict[str, Tensor]:
        """The statistics that clients keep, stacked [N, ...] ([N, num_models, ...] if given); empty under "global"."""
        if not self.keeps_stats:
            return {}
        stats = {name: self.theta0[name] for name in sorted(self.running)}
        return tree.repeat(stats if num_models is None else tree.repeat(stats, num_models), num_clients)

    def floats(self, message) -> int:
        """Numbers in one client's message. Statistics count only where the policy sends them."""
        return sum(leaf.numel() for _, leaf in tree.leaves(self.travelling(message)))

    def travelling(self, message):
        """A message without the statistics that the policy does not send."""
        if not self.keeps_stats:
            return message
        if isinstance(message, dict):
            return {key: self.travelling(node) for key, node in message.items() if key not in self.running}
        return tuple(map(self.travelling, message)) if isinstance(message, tuple) else message

    def received(self, messages, stats: dict[str, Tensor]):
        """Stacked messages as their receivers see them: with their own statistics in place of the server's."""
        return tree.replaced(messages, stats) if self.keeps_stats else messages

    def sent(self, uploads) -> tuple[object, dict[str, Tensor]]:
        """Stacked uploads as the server sees them (statistics blanked to their initial values),
        and the statistics the clients keep."""
        if not self.keeps_stats:
            return uploads, {}
        kept: dict[str, Tensor] = {}
        for name, leaf in tree.leaves(uploads):
            if name in self.running:
                if name in kept:
                    raise BadValue(
                        f"bn_stats = {self.policy!r} cannot keep {name!r}: the upload holds it twice; use "
                        "bn_stats='global'"
                    )
                kept[name] = leaf
        blank = {name: self.theta0[name].expand_as(leaf) for name, leaf in kept.items()}
        return tree.replaced(uploads, blank), kept
