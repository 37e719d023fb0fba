"""Classes of the user's own, from a notebook's cell or a file: what they are made of, and how other processes get them.

Worker processes and machines of a cluster cannot import such a class. It travels by value (cloudpickle): its functions
with what they use of the user's code. fedlib and what is installed travel as names.
"""

from __future__ import annotations

import dataclasses
import dis
import functools
import hashlib
import inspect
import pickle
import site
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import ExitStack
from contextvars import ContextVar
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from fedlib.base.errors import BadValue

WRITTEN_BY_PYTHON = "<string>"  # the file of what `dataclass` adds to a class
PLACES = ("stdlib", "platstdlib", "purelib", "platlib")
INSTALLED = tuple(
    Path(place).resolve()
    for place in (*map(sysconfig.get_path, PLACES), *site.getsitepackages(), site.getusersitepackages())
)

_arriving = ContextVar("_arriving", default=False)


@functools.cache
def is_users(module: str) -> bool:
    """Whether a module is the user's own code: neither fedlib's, nor Python's, nor of an installed package."""
    if module.partition(".")[0] == "fedlib":
        return False
    if module in ("__main__", "__mp_main__") or module not in sys.modules:  # the latter came here by value
        return True
    file = getattr(sys.modules[module], "__file__", None)
    return file is not None and not any(Path(file).resolve().is_relative_to(place) for place in INSTALLED)


def source_hash_of(kind: type) -> str:
    """16 hex digits of the hash of a class's source, and of all of the user's code and values that it uses; of a
    package that is installed, its own modules count as the user's. Raises BadValue if a source cannot be read."""
    digest = hashlib.sha256()
    for part in _Parts(kind).of(kind.__qualname__, kind):
        digest.update(f"{part}\0".encode())
    return digest.hexdigest()[:16]


def packed(kind: type) -> bytes:
    """A class with all that it needs of the user's code, for `unpacked` in another process."""
    import cloudpickle

    parts = _Parts(kind)
    for _ in parts.of(kind.__qualname__, kind):
        pass
    with ExitStack() as stack:
        for name in sorted(
            parts.modules & sys.modules.keys() - {"__main__"} - cloudpickle.list_registry_pickle_by_value()
        ):
            cloudpickle.register_pickle_by_value(sys.modules[name])
            stack.callback(cloudpickle.unregister_pickle_by_value, sys.modules[name])
        return cloudpickle.dumps(kind)


class Travelling:
    """An object that is pickled with its class, where other processes cannot import that."""

    def __reduce_ex__(self, protocol):
        if not is_users(type(self).__module__):
            return super().__reduce_ex__(protocol)
        return _with_fields, (packed(type(self)), vars(self))


def _with_fields(blob: bytes, fields: dict) -> Any:
    made = object.__new__(unpacked(blob))
    vars(made).update(fields)
    return made


@functools.lru_cache(maxsize=64)
def unpacked(blob: bytes) -> type:
    """The class of `packed`; always the same one in a process."""
    token = _arriving.set(True)
    try:
        return pickle.loads(blob)
    finally:
        _arriving.reset(token)


def is_arriving() -> bool:
    """Whether a class is being unpacked, which makes it empty at first; it was checked where it was defined."""
    return _arriving.get()


class _Parts:
    """A walk over a class and what it uses; `modules` are those of the user's that it came through."""

    def __init__(self, kind: type):
        self.package, self.seen, self.modules = kind.__module__.partition(".")[0], {}, set()

    def of(self, name: str, thing: Any) -> Iterator[str]:
        """Texts that say what `thing`, called `name`, is and does; what was met before is named only."""
        thing = _inner(thing)
        if isinstance(thing, functools.partial):
            yield from self.of(name, thing.func)
            yield f"{name}({_content((thing.args, thing.keywords))})"
        elif not isinstance(thing, (type, FunctionType, ModuleType)):
            yield f"{name} = {_content(thing)}"
        else:
            yield f"{name}: {getattr(thing, '__qualname__', thing.__name__)}"
            module = thing.__name__ if isinstance(thing, ModuleType) else thing.__module__
            if id(thing) not in self.seen and self._counts(module):
                self.seen[id(thing)] = thing
                self.modules.add(module)
                walk = {FunctionType: self._function, ModuleType: self._module}.get(type(thing), self._type)
                yield from walk(thing)

    def _counts(self, module: str | None) -> bool:
        return bool(module) and (is_users(module) or module.partition(".")[0] == self.package != "fedlib")

    def _type(self, kind: type) -> Iterator[str]:
        for base in kind.__bases__:
            yield from self.of("base", base)
        if dataclasses.is_dataclass(kind):
            for f in dataclasses.fields(kind):
                yield f"field {f.name} {f.default!r} {sorted(f.metadata.items())}"
        for name, value in vars(kind).items():
            inner = _inner(value)
            written = isinstance(inner, FunctionType) and inner.__code__.co_filename != WRITTEN_BY_PYTHON
            by_python = (
                name.startswith("__") or name == "_abc_impl" or name in getattr(kind, "__dataclass_fields__", {})
            )
            if written or not by_python:
                yield from self.of(name, inner)

    def _function(self, function: FunctionType) -> Iterator[str]:
        code = function.__code__
        yield _text(code)
        yield _content((function.__defaults__, function.__kwdefaults__))
        for name in _globals(code):
            if name in function.__globals__:
                yield from self.of(name, function.__globals__[name])
        for name, cell in zip(code.co_freevars, function.__closure__ or ()):
            if name != "__class__":
                yield from self.of(name, cell.cell_contents)

    def _module(self, module: ModuleType) -> Iterator[str]:
        file = getattr(module, "__file__", None)
        yield Path(file).read_text() if file else ""


def _inner(thing: Any) -> Any:
    """The function in a method of a class, a property or a decorated function."""
    if isinstance(thing, property):
        thing = thing.fget
    elif isinstance(thing, functools.cached_property):
        thing = thing.func
    elif isinstance(thing, (staticmethod, classmethod)):
        thing = thing.__func__
    return inspect.unwrap(thing) if callable(thing) else thing


@functools.cache
def _text(code: CodeType) -> str:
    """The source of a function as it was when it was first asked for: a file may change after it was imported."""
    try:
        return inspect.getsource(code)
    except OSError:
        raise BadValue(
            f"the source of {code.co_name!r} cannot be read, so that results could not tell it from another version; "
            "define it in a file or in a notebook's cell"
        ) from None


@functools.cache
def _globals(code: CodeType) -> tuple[str, ...]:
    """Names that a function, or one inside it, looks up outside, each once."""
    names = [step.argval for step in dis.get_instructions(code) if step.opname in ("LOAD_GLOBAL", "LOAD_NAME")]
    inner = (name for const in code.co_consts if isinstance(const, CodeType) for name in _globals(const))
    return tuple(dict.fromkeys([*names, *inner]))


def _content(value: Any) -> str:
    """A value in words: arrays and tensors by the hash of their numbers."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key!r}: {_content(value[key])}' for key in value)}}}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_content, value))}]"
    if isinstance(value, (set, frozenset)):
        return f"{{{', '.join(sorted(map(_content, value)))}}}"
    if hasattr(value, "__array__"):
        array = np.ascontiguousarray(value)
        return f"{array.dtype}{array.shape} {hashlib.sha256(array.tobytes()).hexdigest()}"
    return repr(value)
