"""Hooks of a contract: functions and values that a class may define, with the contract's names and parameters."""

from __future__ import annotations

import difflib
import inspect

CLOSE = 0.8  # names as alike as this (difflib) are taken for a misspelt hook


class absent:
    """A hook that a method may define and that is None where it does not."""

    def __init__(self, hook):
        self.hook, self.__doc__ = hook, hook.__doc__

    def __get__(self, method, kind) -> None:
        return None


def check_hooks(kind: type, contract: type) -> None:
    """Raise TypeError if a class defines something under nearly the name of a hook of `contract`, or a hook with other
    parameters."""
    hooks = {name: value for name, value in vars(contract).items() if not name.startswith("_")}
    hooks = {name: value.hook if isinstance(value, absent) else value for name, value in hooks.items()}
    plain = [name for name, value in hooks.items() if not callable(value)]
    fields = inspect.get_annotations(kind)
    for name, value in vars(kind).items():
        if name in hooks and name not in plain:
            expected, found = _spoken(name, hooks[name]), _spoken(name, value)
            if found != expected:
                raise TypeError(f"{kind.__name__}.{found} is not accepted; the hook is {expected}")
        elif name not in hooks and not name.startswith("_"):
            # a field is a hyper-parameter, named after the paper; it can be mistaken for a hook that is a value
            near = difflib.get_close_matches(name, plain if name in fields else hooks, 1, CLOSE)
            if near:
                raise TypeError(f"{kind.__name__}.{name} looks like the hook {near[0]!r}; if it is not, rename it")


def _spoken(name: str, hook) -> str:
    return f"{name}({', '.join(inspect.signature(hook).parameters)})" if callable(hook) else f"{name} = {hook!r}"
