"""Pathological label skew: every client has a few of the classes. Four ways to decide which,
and how classes are divided."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np

from fedlib.base.draws import rng
from fedlib.base.errors import InfeasiblePartition, require
from fedlib.data.partition.basic import Scheme, deal, divided, even_parts, uneven_parts


@dataclass(frozen=True)
class _FewClasses(Scheme):
    """What these schemes share: the number of a client's classes, and with what they begin."""

    classes_per_client: int = 2

    def __post_init__(self):
        require(self.classes_per_client >= 1, "classes_per_client", self.classes_per_client, "an integer of at least 1")

    def start(self, labels, num_clients: int, seed: int, every: bool = True) -> tuple:
        """The classes that have samples, ascending; who owns which, bool [N, C], nobody any so far; and the generator.

        Raises BadValue for fewer classes than a client owns, InfeasiblePartition unless there is a place for every
        class, where they all have to have one.
        """
        classes = np.unique(labels)
        own, accepted = self.classes_per_client, f"a number from 1 to the {len(classes)} classes"
        require(1 <= own <= len(classes), "classes_per_client", own, accepted)
        if every and num_clients * self.classes_per_client < len(classes):
            raise InfeasiblePartition(
                f"{num_clients} clients with classes_per_client = {self.classes_per_client} cannot own all "
                f"{len(classes)} classes"
            )
        return classes, np.zeros((num_clients, int(labels.max()) + 1), dtype=bool), rng(seed, "partition")


@dataclass(frozen=True)
class PatGrouped(_FewClasses):
    """Groups of clients with the same classes and unequal sizes (PFedCS; the rule of PFLlib).

    Class by class, the first ceil(N classes_per_client / C) clients that may own another class share it: all but the
    last of these g get a uniform random number in [max(n_c / (10 g), min_size / C), n_c / g), the last gets the rest
    and is always the largest. Where the numbers do not divide well some clients end with fewer classes (20 clients with
    3 of 10 classes: two have one). `balance`: equal shares. `fair`: classes are dealt in a circle, so that everybody
    has exactly classes_per_client of them.
    """

    balance: bool = False
    fair: bool = False
    min_size: int = 40

    def __post_init__(self):
        super().__post_init__()
        require(self.min_size >= 0, "min_size", self.min_size, "0 or more")

    def __call__(self, labels, num_clients, seed):
        classes, owners, generator = self.start(labels, num_clients, seed, every=False)
        budget = np.full(num_clients, self.classes_per_client)
        for k, c in enumerate(classes):
            if self.fair:
                start = np.arange(num_clients) * self.classes_per_client
                owners[:, c] = (k - start) % len(classes) < self.classes_per_client
            else:
                owning = np.flatnonzero(budget)[: -(-num_clients * self.classes_per_client // len(classes))]
                owners[owning, c] = True
                budget[owning] -= 1
        lost = classes[~owners[:, classes].any(0)]
        if len(lost):
            raise InfeasiblePartition(
                f"{num_clients} clients with classes_per_client = {self.classes_per_client} leave {len(lost)} of "
                f"{len(classes)} classes without an owner ({', '.join(map(str, lost))}): use another number of "
                "clients, "
                "or fair = true with at least one place for each class"
            )
        least = -(-self.min_size // len(classes))
        unequal = lambda total, number: uneven_parts(total, number, least, generator)  # noqa: E731
        return deal(labels, divided(labels, owners, even_parts if self.balance else unequal), seed), 1


@dataclass(frozen=True)
class PatBalanced(_FewClasses):
    """Exactly `classes_per_client` classes each, every class owned equally often and divided equally (FedSimSup).

    Client by client, the classes with the fewest owners so far, ties at random: numbers of owners differ by at most 1,
    and so do the parts of a class. Label cosines then are multiples of 1/classes_per_client, up to rounding.
    """

    def __call__(self, labels, num_clients, seed):
        classes, owners, generator = self.start(labels, num_clients, seed)
        for client in range(num_clients):
            least = np.lexsort((generator.random(len(classes)), owners[:, classes].sum(0)))
            owners[client, classes[least[: self.classes_per_client]]] = True
        return deal(labels, divided(labels, owners, even_parts), seed), 1


@dataclass(frozen=True)
class RandomClasses(_FewClasses):
    """Every client draws `classes_per_client` classes independently;
    a class is divided equally among its owners (FL-bench).

    The last owner also takes the remainder. If a class has no owner, all clients draw again, at most max_tries times.
    """

    max_tries: int = 1000

    def __post_init__(self):
        super().__post_init__()
        require(self.max_tries >= 1, "max_tries", self.max_tries, "1 or more")

    def __call__(self, labels, num_clients, seed):
        classes, owners, generator = self.start(labels, num_clients, seed)
        best = tries = 0
        while best < len(classes):
            if tries == self.max_tries:
                raise InfeasiblePartition(
                    f"{num_clients} clients that draw {self.classes_per_client} classes each covered at most {best} of "
                    f"{len(classes)} classes in {tries} tries; use more clients or classes"
                )
            tries += 1
            drawn = generator.permuted(np.tile(classes, (num_clients, 1)), axis=1)[:, : self.classes_per_client]
            best = max(best, len(np.unique(drawn)))
        np.put_along_axis(owners, drawn, True, axis=1)

        def remainder_to_the_last(total: int, number: int) -> np.ndarray:
            return total // number + (np.arange(number) == number - 1) * (total % number)

        return deal(labels, divided(labels, owners, remainder_to_the_last), seed), tries


@dataclass(frozen=True)
class Ring(_FewClasses):
    """Every class on equally many clients, and no two clients with the same classes while that is possible (pFedSV).

    With 10 clients, 10 classes and 2 classes each, clients are linked in rings of at least three: each shares one class
    with each of two others. A class is divided equally among its owners, or with `unequal` at random as in
    `pat_grouped`.
    """

    unequal: bool = False

    def __call__(self, labels, num_clients, seed):
        classes, owners, generator = self.start(labels, num_clients, seed)
        owners_of = generator.permutation(even_parts(num_clients * self.classes_per_client, len(classes)))
        dealt = distinct_hands(owners_of, self.classes_per_client, generator)
        np.put_along_axis(owners, classes[dealt], True, axis=1)

        def unequal(total, number):
            return generator.permutation(uneven_parts(total, number, 1, generator))

        return deal(labels, divided(labels, owners, unequal if self.unequal else even_parts), seed), 1


def distinct_hands(copies: np.ndarray, size: int, generator: np.random.Generator) -> np.ndarray:
    """Deal a pack with `copies[c]` cards of class c in hands of `size` different classes, int64 [N, size].

    No two hands are the same while there are at least N different ones. A shuffled pack is dealt, then cards are
    exchanged at random until all is as it should be. If the hands are more than half of all possible ones, the hands
    that are *not* used are dealt instead, which is easier.
    """
    num_hands, all_hands = int(copies.sum()) // size, comb(len(copies), size)
    if num_hands <= all_hands < 2 * num_hands:
        unused = distinct_hands(comb(len(copies) - 1, size - 1) - copies, size, generator)
        left_out = {tuple(sorted(hand)) for hand in unused.tolist()}
        hands = [hand for hand in combinations(range(len(copies)), size) if hand not in left_out]
        return generator.permutation(np.array(hands, dtype=np.int64))
    hands = generator.permutation(np.repeat(np.arange(len(copies)), copies)).reshape(num_hands, size)
    return _exchanged(hands, num_hands <= all_hands, generator)


def _exchanged(hands: np.ndarray, all_different: bool, generator: np.random.Generator) -> np.ndarray:
    """Exchange cards until no hand has a class twice and, if asked for, no two hands are the same. Changes `hands`."""
    used = Counter(tuple(sorted(hand)) for hand in hands.tolist())

    def faults(*touched: int) -> int:
        twice = sum(hands.shape[1] - len(set(hands[i].tolist())) for i in touched)
        same = sum(used[tuple(sorted(hands[i].tolist()))] - 1 for i in touched) if all_different else 0
        return twice + same

    def exchange(i, a, j, b):
        for k in (i, j):
            used[tuple(sorted(hands[k].tolist()))] -= 1
        hands[i, a], hands[j, b] = hands[j, b], hands[i, a]
        for k in (i, j):
            used[tuple(sorted(hands[k].tolist()))] += 1

    wrong = [i for i in range(len(hands)) if faults(i)]
    for _ in range(200 * hands.size + 1000):
        while wrong and not faults(wrong[-1]):
            wrong.pop()
        if not wrong:
            return hands
        i, j = wrong[-1], int(generator.integers(len(hands)))
        a, b = generator.integers(hands.shape[1], size=2)
        before = faults(i, j)
        exchange(i, a, j, b)
        if faults(i, j) > before:
            exchange(i, a, j, b)
        elif faults(j):
            wrong.insert(0, j)
    raise InfeasiblePartition(
        f"no way found to deal {hands.shape[1]} different classes to each of {len(hands)} clients"
    )
