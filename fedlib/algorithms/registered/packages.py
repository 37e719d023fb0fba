"""Methods of installed packages, which bring them as entry points of the group fedlib.methods."""

from __future__ import annotations

import functools
from importlib import metadata

from fedlib.algorithms.api import Algorithm
from fedlib.algorithms.registered.kinds import check_class, in_one_line
from fedlib.base.errors import BadValue

GROUP = "fedlib.methods"  # of entry points


@functools.cache
def entry_points() -> dict[str, list[metadata.EntryPoint]]:
    """The methods of installed packages by name; several where packages use the same one."""
    found: dict[str, list[metadata.EntryPoint]] = {}
    for point in metadata.entry_points(group=GROUP):
        found.setdefault(point.name, []).append(point)
    return found


@functools.cache
def of_package(name: str) -> type[Algorithm]:
    """The class of an entry point. Raises BadValue if it cannot be loaded, is no method, or is that of two packages."""
    point, *others = entry_points()[name]
    if others:
        packages = ", ".join(sorted(p.dist.name for p in (point, *others)))
        raise BadValue(f"method {name!r} is defined by several packages: {packages}; uninstall all but one")
    said = f"method {name!r} of package {point.dist.name} ({point.value})"
    try:
        kind = point.load()
    except Exception as error:
        raise BadValue(f"{said} cannot be loaded: {type(error).__name__}: {in_one_line(error)}") from error
    try:
        check_class(kind)
    except BadValue as error:
        raise BadValue(f"{said} cannot be used: {error}") from None
    return kind
