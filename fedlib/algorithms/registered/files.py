"""Methods in files of the user's, named as FILE.py:CLASS."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

from fedlib.algorithms.api import Algorithm
from fedlib.algorithms.registered.kinds import in_one_line
from fedlib.base.errors import BadValue, choose, require


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
    kinds = {
        key: kind
        for key, kind in vars(module).items()
        if isinstance(kind, type)
        and kind.__module__ == module.__name__
        and (key == wanted or issubclass(kind, Algorithm))
    }
    if wanted:
        return kinds[choose(f"class in {path.name}", wanted, kinds)]
    require(len(kinds) == 1, "method", text, f"FILE.py:CLASS with one of {', '.join(kinds) or 'no methods there'}")
    return next(iter(kinds.values()))


def _imported(path: Path, text: str):
    """The module in a file as it is now, under a name that is no other module's.

    Python's import is not used, for it takes what it compiled before where a file changes twice in a second.
    """
    name = f"fedlib_own_{path.stem}"
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
