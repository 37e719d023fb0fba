"""Methods that are no file of fedlib: registered classes, how they get to other processes, and methods in files of the
user's, named as FILE.py:CLASS.

A registered method's runs carry a hash of its source in their id (`fedlib.spec`), so that a method that was changed
never finds the results of what it was before.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from fedlib.algorithms.api import Algorithm
from fedlib.base.carry import packed, source_hash_of, unpacked
from fedlib.base.errors import BadValue, choose, require

NAME = re.compile(r"[a-z][a-z0-9_]*")
MODULE = "fedlib_own_"  # with which the names of modules in the user's files begin
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


def check_class(kind: type[Algorithm]) -> None:
    """Raise BadValue, saying what is wrong, unless `kind` is a method: a frozen dataclass derived from Algorithm that
    defines all that a method must, and whose fields have defaults."""
    derived = isinstance(kind, type) and issubclass(kind, Algorithm)
    require(derived, "method", kind, "a class derived from fedlib.algorithms.api.Algorithm, or from a method")
    name = kind.__name__
    if missing := sorted(kind.__abstractmethods__):
        raise BadValue(f"class {name} is no method yet: it does not define {', '.join(missing)}")
    fields = {f.name for f in dataclasses.fields(kind)} if dataclasses.is_dataclass(kind) else set()
    annotated = {key for key, text in vars(kind).get("__annotations__", {}).items() if "ClassVar" not in str(text)}
    frozen = dataclasses.is_dataclass(kind) and kind.__dataclass_params__.frozen
    if not frozen or annotated - fields:
        raise BadValue(f"class {name} is no method yet: write @dataclass(frozen=True) above it")
    missing = dataclasses.MISSING
    without = [f.name for f in dataclasses.fields(kind) if f.init and f.default is f.default_factory is missing]
    if without:
        raise BadValue(f"class {name} is no method yet: {', '.join(without)} needs a default value")
    try:
        kind()
    except (TypeError, ValueError) as error:
        raise BadValue(f"class {name} is no method yet: {name}() fails: {error}") from None


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


# files ----------------------------------------------------------------------------------------------------------------


def is_file(text: str) -> bool:
    """Whether a method is given as a file: FILE.py or FILE.py:CLASS."""
    return text.partition(":")[0].endswith(".py")


def in_file(text: str) -> type[Algorithm]:
    """The class of "FILE.py:CLASS", or of "FILE.py" if it defines one method.

    Raises BadValue if there is no such file, if it cannot be imported, and if it does not say which class is meant.
    """
    file, _, wanted = text.partition(":")
    path = Path(file).expanduser().resolve()
    require(path.is_file(), "method", text, "FILE.py:CLASS; there is no such file")
    module = _imported(path, text)
    classes = {
        key: kind for key, kind in vars(module).items() if isinstance(kind, type) and kind.__module__ == module.__name__
    }
    kinds = {key: kind for key, kind in classes.items() if key == wanted or issubclass(kind, Algorithm)}
    if wanted:
        return kinds[choose(f"class in {path.name}", wanted, kinds)]
    require(len(kinds) == 1, "method", text, f"FILE.py:CLASS with one of {', '.join(kinds) or 'no methods there'}")
    return next(iter(kinds.values()))


def spelled(name: str) -> str:
    """What names a method in another process: FILE.py:CLASS, with the whole path, of one from a file, else its name."""
    kind = OWN[name].kind if name in OWN else object
    return f"{sys.modules[kind.__module__].__file__}:{kind.__name__}" if kind.__module__.startswith(MODULE) else name


def _imported(path: Path, text: str):
    """The module in a file as it is now, under a name that is no other module's.

    Python's import is not used, for it takes what it compiled before where a file changes twice in a second.
    """
    name = f"{MODULE}{path.stem}"
    module = ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module
    try:
        exec(compile(path.read_bytes(), path, "exec"), vars(module))
    except Exception as error:
        del sys.modules[name]
        where = f" in line {error.lineno}" if isinstance(error, SyntaxError) else ""
        said = " ".join((getattr(error, "msg", None) or str(error)).split())
        raise BadValue(f"{text} cannot be imported{where}: {type(error).__name__}: {said}") from error
    return module
