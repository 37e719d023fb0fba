"""What travels between server and clients: counting it, and keeping batch norm's running statistics where they belong.

Policy `bn_stats`: "local" (statistics never leave the client and persist across its rounds), "global" (they travel and
are averaged like the parameters around them) or "reset" (like local, but back to their initial values before training).
"""

from __future__ import annotations

from torch import Tensor

from fedlib.base import tree
from fedlib.base.errors import BadValue


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

    def received(self, messages, stats: dict[str, Tensor], training: bool):
        """Stacked messages as their receivers see them: with their own statistics in place of the server's."""
        if not self.keeps_stats:
            return messages
        if training and self.policy == "reset":
            stats = {name: self.theta0[name].expand_as(rows) for name, rows in stats.items()}
        return tree.replaced(messages, stats)

    def before_training(self, clients):
        """Stacked client states as training starts from them:
        their own copies of statistics are reset too under "reset"."""
        if self.policy != "reset" or not clients:
            return clients
        count = len(next(leaf for _, leaf in tree.leaves(clients)))
        stats = {name: self.theta0[name].expand(count, *self.theta0[name].shape) for name in self.running}
        return tree.replaced(clients, stats)

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
