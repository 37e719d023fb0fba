"""One file per method. A new method is a new file here: it is found by its file name, nothing is registered by hand."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
import re
import sys

from fedlib.algorithms.api import Algorithm
from fedlib.base.errors import choose, like


def names() -> list[str]:
    """Names of all methods, which are the names of the files in this folder."""
    return sorted(m.name for m in pkgutil.iter_modules(__path__) if m.name != "api" and not m.ispkg)


def find(name: str) -> type[Algorithm]:
    """The class of a method. Raises BadValue for an unknown name."""
    module = importlib.import_module(f"{__name__}.{choose('method', name, names())}")
    classes = [v for v in vars(module).values() if isinstance(v, type) and v.__module__ == module.__name__]
    (found,) = [each for each in classes if issubclass(each, Algorithm)]
    return found


def make(name: str, **hyper) -> Algorithm:
    """An instance of a method. Raises BadValue for an unknown method, hyper-parameter or value."""
    method = find(name)
    fields = {f.name: f for f in dataclasses.fields(method)}
    for field in hyper:
        choose(f"hyper-parameter of {name!r}", field, fields)
    return method(**{name: like(fields[name].default, name, value, fields[name].type) for name, value in hyper.items()})


def citation(name: str) -> tuple[str, str]:
    """(place of publication with the year at its end, title) of the first paper that a method's file names, or empty
    texts."""
    second = (sys.modules[find(name).__module__].__doc__ or "").split("\n\n")[1].replace("\n", " ")
    found = re.match(r'[^"]+"(?P<title>[^"]+?)\.?" (?P<place>.*?\b20\d\d\b)', second)
    return (found["place"], found["title"]) if found else ("", "")
