"""What a run has come to: everything that changes from round to round, and all that a checkpoint holds."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

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
