"""What travels between server and clients: counting it, and keeping batch norm's running statistics where they belong.

Policy `bn_stats`: "local" (statistics never leave the client and persist across its rounds), "global" (they travel and
are averaged like the parameters around them) or "reset" (like local, but back to their initial values before training).
"""

from __future__ import annotations

from torch import Tensor

from fedlib import tree
from fedlib.errors import BadValue

POLICIES = ("local", "global", "reset")


class Transport:
    """Applies one policy. `running` are the names of the statistics, `theta0` holds their initial values."""

    def __init__(self, policy: str, running: tuple[str, ...], theta0: dict):
        self.policy, self.running, self.theta0 = policy, frozenset(running), theta0
        self.keeps_stats = policy != "global" and bool(running)

    def initial_stats(self, num_clients: int) -> dict[str, Tensor]:
        """The statistics that clients keep, stacked [N, ...]; empty under "global"."""
        return tree.repeat({k: self.theta0[k] for k in sorted(self.running)}, num_clients) if self.keeps_stats else {}

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
        return _replaced(messages, stats)

    def before_training(self, clients):
        """Stacked client states as training starts from them: their own copies of statistics are reset too under "reset"."""
        if self.policy != "reset" or not clients:
            return clients
        count = len(next(leaf for _, leaf in tree.leaves(clients)))
        return _replaced(
            clients, {name: self.theta0[name].expand(count, *self.theta0[name].shape) for name in self.running}
        )

    def sent(self, uploads) -> tuple[object, dict[str, Tensor]]:
        """Stacked uploads as the server sees them (statistics blanked to their initial values), and the statistics the clients keep."""
        if not self.keeps_stats:
            return uploads, {}
        kept: dict[str, Tensor] = {}
        for name, leaf in tree.leaves(uploads):
            if name in self.running:
                if name in kept:
                    raise BadValue(
                        f"bn_stats = {self.policy!r} cannot keep {name!r}: the upload holds it twice; use bn_stats='global'"
                    )
                kept[name] = leaf
        blank = {name: self.theta0[name].expand_as(leaf) for name, leaf in kept.items()}
        return _replaced(uploads, blank), kept


def _replaced(node, new: dict[str, Tensor]):
    if isinstance(node, dict):
        return {key: new[key] if key in new else _replaced(child, new) for key, child in node.items()}
    if isinstance(node, tuple):
        return tuple(_replaced(child, new) for child in node)
    return node
