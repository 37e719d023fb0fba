"""Options that say at their place what they accept, and are checked in one place."""

from __future__ import annotations

import dataclasses
import functools
import inspect

from fedlib.base.errors import check_fields

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
