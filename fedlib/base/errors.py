"""Every error that a user can cause, each with a message that fits on one line."""

from __future__ import annotations

import difflib
import importlib
import math
import numbers
from collections.abc import Iterable
from types import ModuleType


class FedlibError(Exception):
    """Base of all errors raised on purpose; the command line prints them without a traceback."""


class BadValue(FedlibError, ValueError):
    """A value that is not accepted; the message names the value and the accepted ones."""


class DataError(FedlibError):
    """A data set is missing, damaged or not in the prepared format."""


class InfeasiblePartition(FedlibError):
    """No partition with the requested properties was found within the allowed tries."""


class Diverged(FedlibError):
    """Training produced a non-finite value; the message names client, round and step."""

    def __init__(self, client: int, round: int, step: int | None):
        self.client, self.round, self.step = client, round, step
        where = "after its local steps" if step is None else f"at local step {step}"
        super().__init__(
            f"training diverged: client {client} became non-finite in round {round} {where}; try a smaller lr"
        )

    def __reduce__(self):  # so that it survives the way back from a worker process
        return Diverged, (self.client, self.round, self.step)


class OutOfTime(FedlibError):
    """The time for training is used up before a run was finished, or begun; what it has done is kept."""


def choose(what: str, value: object, accepted: Iterable[str]) -> str:
    """Return `value` if it is one of `accepted`.

    Raises BadValue otherwise, with the nearest accepted names first.
    """
    accepted = list(accepted)
    if value in accepted:
        return value
    near = difflib.get_close_matches(str(value), accepted, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    raise BadValue(f"unknown {what} {value!r}; {hint}accepted: {', '.join(accepted) or 'none'}")


def require(ok: bool, field: str, value: object, accepted: str) -> None:
    """Raise BadValue naming `field`, its `value` and what is accepted, unless `ok`."""
    if not ok:
        raise BadValue(f"{field} = {value!r} is not accepted; expected {accepted}")


def like(default: object, field: str, value: object, kinds: str = ""):
    """`value` with the type of `default`, so that 1 and 1.0 are one setting. Raises BadValue if it is of another kind.

    Where the default is None, `kinds` names the types that are accepted, for example "float | str | None";
    "object" stands for any.
    """
    kinds = [k.strip() for k in (kinds if default is None else type(default).__name__).split("|")]
    if "object" in kinds:
        return value
    number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    finite = number and math.isfinite(value)
    if isinstance(value, bool):
        require("bool" in kinds or kinds == [""], field, value, _spoken(kinds))
    elif value is None or isinstance(value, str):
        require(
            type(value).__name__.replace("NoneType", "None") in kinds or kinds == [""], field, value, _spoken(kinds)
        )
    elif "float" in kinds:
        require(finite, field, value, _spoken(kinds))
        return float(value)
    elif "int" in kinds:
        require(finite and value == int(value), field, value, _spoken(kinds))
        return int(value)
    elif "bool" in kinds or "str" in kinds:
        require(False, field, value, _spoken(kinds))
    return value


def _spoken(kinds: list[str]) -> str:
    words = {"int": "an integer", "float": "a number", "str": "a name", "bool": "true or false", "None": "none"}
    return " or ".join(words.get(kind, kind) for kind in kinds)


def check_fields(record: object, **accepted: tuple) -> None:
    """Check fields of a dataclass: (low, high) is a closed interval of numbers, strings are names. None passes.

    Raises BadValue naming the field, its value and what is accepted.
    """
    for name, allowed in accepted.items():
        value = getattr(record, name)
        limits, names = [a for a in allowed if not isinstance(a, str)], [a for a in allowed if isinstance(a, str)]
        if not limits:
            choose(name, value, names)
        elif isinstance(value, str) or value is None:
            require(value is None or value in names, name, value, _interval(limits, names))
        else:
            require(limits[0] <= value <= limits[1], name, value, _interval(limits, names))


def _interval(limits: list[float], names: list[str]) -> str:
    upper = "up" if limits[1] == math.inf else f"{limits[1]:g}"
    return " or ".join([f"a number from {limits[0]:g} {'' if upper == 'up' else 'to '}{upper}", *map(repr, names)])


def needed(module: str, package: str, what: str) -> ModuleType:
    """A module of a package that only `what` needs. Raises FedlibError, which says how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise FedlibError(f"{what} needs {package}, which is not installed: pip install {package}") from None
