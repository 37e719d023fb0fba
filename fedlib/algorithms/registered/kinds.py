"""Whether a class is a method, and what it lacks, in one line."""

from __future__ import annotations

import dataclasses

from fedlib.algorithms.api import Algorithm
from fedlib.base.errors import BadValue, require


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
    if without := [f.name for f in dataclasses.fields(kind) if _has_no_default(f)]:
        raise BadValue(f"class {name} is no method yet: {', '.join(without)} needs a default value")
    try:
        kind()
    except (TypeError, ValueError) as error:
        raise BadValue(f"class {name} is no method yet: {name}() fails: {error}") from None


def _has_no_default(f: dataclasses.Field) -> bool:
    return f.init and f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING


def in_one_line(error: BaseException) -> str:
    """What an error says."""
    return " ".join((getattr(error, "msg", None) or str(error)).split())
