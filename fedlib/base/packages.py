"""Packages that only some commands need."""

from __future__ import annotations

import importlib
from types import ModuleType

from fedlib.base.errors import FedlibError


def needed(module: str, package: str, what: str) -> ModuleType:
    """A module of a package that `what` needs. Raises FedlibError, which says how to install it, where it is not."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise FedlibError(f"{what} needs {package}, which is not installed: pip install {package}") from None
