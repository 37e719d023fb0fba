"""One file per method. A new method is a new file here: it is found by its file name, nothing is registered by hand.

Methods can also come from elsewhere (`fedlib.algorithms.registered`): `register` takes a class from a notebook's cell
or a package, `named` one from a file.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
import re
import sys

from fedlib.algorithms import registered
from fedlib.algorithms.api import Algorithm
from fedlib.base.errors import choose
from fedlib.base.options import made


@functools.cache
def of_fedlib() -> tuple[str, ...]:
    """Names of the methods that come with fedlib, which are the names of the files in this folder; looked up once."""
    files = {m.name for m in pkgutil.iter_modules(__path__) if not m.ispkg}
    return tuple(sorted(files - {"api", "registered"}))


def names() -> list[str]:
    """Names of all methods: of fedlib's, and of those that were registered."""
    return sorted({*of_fedlib(), *registered.OWN})


def register(kind: type[Algorithm] | None = None, *, name: str = ""):
    """Make a class a method of this process, and of its worker processes: register(MyMethod), or @register above it.

    name: under which it is known, by default the class's in small letters. The same class can be registered again
    after a change. Returns the class. Raises BadValue for a class that does not keep the contract
    (`fedlib.algorithms.api`) and for a name that is taken.
    """
    if kind is None:
        return lambda kind: register(kind, name=name)
    registered.add(kind, name, of_fedlib())
    return kind


def named(text: str) -> str:
    """The name of a method that is given by name, or as FILE.py:CLASS, which is registered then.

    Raises BadValue for an unknown name, for a file that cannot be used and for a name that is taken.
    """
    if not registered.is_file(text):
        return _known(text)
    return registered.add(registered.in_file(text), "", of_fedlib())


def _known(name: str) -> str:
    return choose("method", name, names())


def find(name: str) -> type[Algorithm]:
    """The class of a method. Raises BadValue for an unknown name."""
    if name in registered.OWN:
        return registered.OWN[name].kind
    module = importlib.import_module(f"{__name__}.{_known(name)}")
    classes = [v for v in vars(module).values() if isinstance(v, type) and v.__module__ == module.__name__]
    (found,) = [each for each in classes if issubclass(each, Algorithm)]
    return found


def source_of(name: str) -> str:
    """16 hex digits of the hash of a method's source as it is now; "" for one of fedlib's own."""
    if name in registered.OWN:
        return registered.OWN[name].source
    _known(name)
    return ""


def text(name: str) -> str:
    """What a method's file says of it at its beginning, or its class where the file holds more; "" if nothing."""
    kind = find(name)
    module = sys.modules.get(kind.__module__)
    whole = module is not None and kind.__module__ != "__main__"
    return (whole and inspect.getdoc(module)) or inspect.cleandoc(vars(kind).get("__doc__") or "")


def make(name: str, **hyper) -> Algorithm:
    """An instance of a method. Raises BadValue for an unknown method, hyper-parameter or value."""
    method = find(name)
    hyper = {name: value for name, value in hyper.items() if (name, value) not in method.gone.items()}
    return made(method, hyper, f"hyper-parameter of {name!r}")


def citation(name: str) -> tuple[str, str]:
    """(place of publication with the year at its end, title) of the first paper that a method's file names, or empty
    texts."""
    second = text(name).partition("\n\n")[2].partition("\n\n")[0].replace("\n", " ")
    found = re.match(r'[^"]+"(?P<title>[^"]+?)\.?" (?P<place>.*?\b20\d\d\b)', second)
    return (found["place"], found["title"]) if found else ("", "")
