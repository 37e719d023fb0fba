"""Nested dicts and tuples of tensors: the only containers that algorithms and the engine exchange.

A *stacked* tree has one more leading axis in every leaf: [K, ...] for K clients.
Every function returns a new tree and leaves its arguments as they are.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

NEAR = 1 << 15  # sums that are made at a time: they stay in a CPU's cache


def map(fn: Callable, tree, *rest):
    """Apply `fn` to the corresponding leaves of trees that have the same structure."""
    if isinstance(tree, dict):
        if any(other.keys() != tree.keys() for other in rest):
            raise ValueError(f"trees differ: {sorted(tree)} and {[sorted(other) for other in rest]}")
        return {key: map(fn, tree[key], *(other[key] for other in rest)) for key in tree}
    if isinstance(tree, tuple):
        return tuple(map(fn, *leaves) for leaves in zip(tree, *rest, strict=True))
    return fn(tree, *rest)


def leaves(tree) -> Iterator[tuple[str, Tensor]]:
    """Yield (key of the innermost dict, leaf) for every leaf, in order."""
    for key, node in tree.items() if isinstance(tree, dict) else enumerate(tree):
        if isinstance(node, (dict, tuple)):
            yield from leaves(node)
        else:
            yield key, node


def select(tree: dict, prefix: str) -> dict:
    """The entries whose names start with `prefix` (for example "head.")."""
    return {key: leaf for key, leaf in tree.items() if key.startswith(prefix)}


def stack(trees: Sequence):
    """Trees of K clients -> one stacked tree, leaves [K, ...]."""
    return map(lambda *rows: torch.stack(rows), trees[0], *trees[1:])


def repeat(tree, count: int):
    """The same tree for `count` clients, leaves [count, ...]."""
    return map(lambda leaf: leaf.expand(count, *leaf.shape).clone(), tree)


def rows(tree, index):
    """Rows of a stacked tree: one client's tree for an int, a stacked tree for a list or a tensor of ids."""
    return map(lambda leaf: leaf[index], tree)


def put(tree, ids, new):
    """A copy of the stacked `tree` [N, ...] whose rows `ids` are those of `new` [K, ...]."""

    def replaced(leaf, fresh):
        return leaf.index_copy(0, torch.as_tensor(ids, device=leaf.device), fresh)

    return map(replaced, tree, new)


def concat(trees: Sequence):
    """Stacked trees of K1, K2, ... clients -> one stacked tree of all of them; a single tree is not copied."""
    return trees[0] if len(trees) == 1 else map(lambda *parts: torch.cat(parts), *trees)


def replaced(tree, new: dict[str, Tensor]):
    """The stacked tree with every leaf [K, ...] that is called like one of `new` [K, ...] replaced by it; where there
    are several models for each client, [K, M, ...], by M copies."""
    if isinstance(tree, tuple):
        return tuple(replaced(node, new) for node in tree)
    if not isinstance(tree, dict):
        return tree

    def other(leaf, own):
        return own.unsqueeze(1).expand_as(leaf) if leaf.ndim > own.ndim else own

    return {key: other(node, new[key]) if key in new else replaced(node, new) for key, node in tree.items()}


def dot(a: dict, b: dict) -> Tensor:
    """Sum of the products of all corresponding entries."""
    return sum(leaf.sum() for _, leaf in leaves(map(torch.mul, a, b)))


def where(condition: Tensor, new, old):
    """`new` where the scalar `condition` holds, else `old`."""
    return map(lambda a, b: torch.where(condition, a, b), new, old)


def scaled(stacked, factors: Tensor):
    """factors[k] * leaf[k] for every row of every leaf; factors [K], cast to the leaf's type."""
    return map(lambda leaf: factors.to(leaf).reshape(-1, *[1] * (leaf.ndim - 1)) * leaf, stacked)


def weighted_sum(stacked, weights):
    """sum_k weights[k] * leaf[k] for every leaf; weights [K] in float64, cast to the leaf's type last.

    Weights [R, K] give R sums, stacked. On a CPU terms are added in the order of k, each product rounded first: the
    same bits everywhere, which a matrix product does not promise.
    """

    def combine(leaf):
        if not leaf.is_floating_point():
            raise ValueError(f"a weighted sum needs floating-point leaves, not {leaf.dtype}")
        w = torch.as_tensor(weights, dtype=torch.float64, device=leaf.device).to(leaf.dtype)
        if not leaf.is_cpu:
            return torch.tensordot(w, leaf, dims=1)
        parts = leaf.reshape(len(leaf), -1).split(-(-NEAR // len(w.view(-1, len(leaf)))), dim=1)
        sums = [functools.reduce(torch.add, (w[..., k, None] * row for k, row in enumerate(part))) for part in parts]
        return torch.cat(sums, -1).reshape((*w.shape[:-1], *leaf.shape[1:]))

    return map(combine, stacked)


def weighted_mean(stacked, weights):
    """Like `weighted_sum`, with the weights (of each sum) divided by their own sum first (avg_S of the
    specification)."""
    weights = torch.as_tensor(weights, dtype=torch.float64)
    return weighted_sum(stacked, weights / weights.sum(-1, keepdim=True))
