"""Options that say at their place what they accept, and are checked in one place."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import inspect
import json

from fedlib.base.errors import check_fields, choose, like

signature = functools.cache(inspect.signature)  # thousands of runs ask for the few classes and functions there are


def option(default, *accepted):
    """A field of `Options` with its default and what it accepts: low, high of a closed interval of numbers, or names,
    or both."""
    return dataclasses.field(default=default, metadata={"accepted": accepted})


class Options:
    """Base of frozen dataclasses: fields made by `option` are checked when one is made. None passes.

    Raises BadValue naming the field, its value and what is accepted.
    """

    def __post_init__(self):
        for f in dataclasses.fields(self):
            if "accepted" in f.metadata:
                check_fields(self, **{f.name: f.metadata["accepted"]})


def made(kind: type, values: dict, what: str):
    """An instance of a dataclass with these fields, each of the type of its default. what: a field, in errors. Raises
    BadValue for an unknown field and a value that is not accepted."""
    fields = {f.name: f for f in dataclasses.fields(kind)}
    for name in values:
        choose(what, name, fields)
    return kind(**{name: like(fields[name].default, name, value, fields[name].type) for name, value in values.items()})


class Hashed:
    """Base of frozen dataclasses whose values decide all of a result: `to_dict` gives them as JSON types."""

    kind = ""  # what it is called in errors

    @functools.cached_property
    def id(self) -> str:
        """16 hex digits of the hash of the canonical JSON."""
        return hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()[:16]

    @property
    def label(self) -> str:
        """A short name for progress bars and errors."""
        return f"{self.title} seed {self.seed}"

    @classmethod
    def from_dict(cls, values: dict):
        """The inverse of `to_dict`. Raises BadValue for a field that does not exist."""
        for name in values:
            choose(f"{cls.kind} field", name, [f.name for f in dataclasses.fields(cls)])
        return cls(**values)
