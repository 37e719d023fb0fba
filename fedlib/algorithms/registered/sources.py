"""Whether a class is a method, and methods in files of the user's, named as FILE.py:CLASS."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from types import ModuleType

from fedlib.algorithms.api import Algorithm
from fedlib.base.errors import BadValue, choose, require

OWN = "fedlib_own_"  # with which the names of modules in the user's files begin


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


def in_one_line(error: BaseException) -> str:
    """What an error says."""
    return " ".join((getattr(error, "msg", None) or str(error)).split())


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
    classes = {key: kind for key, kind in vars(module).items() if isinstance(kind, type)}
    classes = {key: kind for key, kind in classes.items() if kind.__module__ == module.__name__}
    kinds = {key: kind for key, kind in classes.items() if key == wanted or issubclass(kind, Algorithm)}
    if wanted:
        return kinds[choose(f"class in {path.name}", wanted, kinds)]
    require(len(kinds) == 1, "method", text, f"FILE.py:CLASS with one of {', '.join(kinds) or 'no methods there'}")
    return next(iter(kinds.values()))


def as_file(kind: type) -> str:
    """FILE.py:CLASS, with the whole path, of a class that `in_file` gave; an empty text of others."""
    return f"{sys.modules[kind.__module__].__file__}:{kind.__name__}" if kind.__module__.startswith(OWN) else ""


def _imported(path: Path, text: str):
    """The module in a file as it is now, under a name that is no other module's.

    Python's import is not used, for it takes what it compiled before where a file changes twice in a second.
    """
    name = f"{OWN}{path.stem}"
    module = ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module
    try:
        exec(compile(path.read_bytes(), path, "exec"), vars(module))
    except Exception as error:
        del sys.modules[name]
        where = f" in line {error.lineno}" if isinstance(error, SyntaxError) else ""
        raise BadValue(f"{text} cannot be imported{where}: {type(error).__name__}: {in_one_line(error)}") from error
    return module
