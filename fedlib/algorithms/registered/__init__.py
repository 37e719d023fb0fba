"""Methods that are no file of fedlib: registered classes, how they get to other processes, and where they come from.

A registered method's runs carry a hash of its source in their id (`fedlib.spec`), so that a method that was changed
never finds the results of what it was before.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection
from dataclasses import dataclass

from fedlib.algorithms.api import Algorithm
from fedlib.algorithms.registered.sources import check_class
from fedlib.base.carry import packed, source_hash_of, unpacked
from fedlib.base.errors import require

NAME = re.compile(r"[a-z][a-z0-9_]*")
Carried = tuple[str, str, bytes]  # name, hash of the source, the class as `fedlib.base.carry.packed` makes it


@dataclass(frozen=True)
class Own:
    """A registered method; in a process that it was carried to, with the form and the hash that it came with."""

    kind: type[Algorithm]
    carried: Carried | None = None

    @property
    def source(self) -> str:
        """Hash of the source as it is now: a function that the class uses may have been defined anew."""
        return self.carried[1] if self.carried else source_hash_of(self.kind)


OWN: dict[str, Own] = {}


def add(kind: type[Algorithm], name: str, taken: Collection[str]) -> str:
    """Register a class that keeps the contract under `name` (default: the class's in small letters); returns the name.

    The same class defined anew takes the place of the old one. Raises BadValue for a class that does not keep the
    contract and for a name that is malformed, of `taken`, or another class's.
    """
    check_class(kind)
    name = name or kind.__name__.lower()
    require(NAME.fullmatch(name) is not None, "name", name, "small letters, digits and '_', beginning with a letter")
    other = "a method of fedlib" if name in taken else _other(name, kind)
    require(not other, "name", name, f"one that is free, it is {other}; register(..., name=...) takes another")
    source_hash_of(kind)  # now, for its source can be read
    OWN[name] = Own(kind)
    return name


def _origin(kind: type) -> tuple[str, ...]:
    """Where a class comes from; the same for a class that is defined anew."""
    return kind.__qualname__, getattr(sys.modules.get(kind.__module__), "__file__", None) or "a cell"


def _other(name: str, kind: type) -> str:
    """Which other class is registered under a name, in words; "" if none is."""
    here, place = _origin(OWN[name].kind) if name in OWN else _origin(kind)
    return "" if (here, place) == _origin(kind) else f"class {here} in {place}"


# other processes ------------------------------------------------------------------------------------------------------


def carried(name: str) -> Carried | None:
    """A registered method for `accept` in another process; None for others, which are found there as here."""
    if name not in OWN:
        return None
    own = OWN[name]
    return own.carried or (name, own.source, packed(own.kind))


def accept(came: Carried | None) -> None:
    """Register a method that came from another process, unless it is the one that is here."""
    if came is not None:
        name, source, blob = came
        if name not in OWN or OWN[name].source != source:
            OWN[name] = Own(unpacked(blob), came)
