"""Items that are asked for by names and patterns, with settings changed: opened, timed, and what is left of them."""

from __future__ import annotations

import fnmatch
import json
import os
import sys
import time
from collections.abc import Sequence

from fedlib.base.errors import BadValue, choose, require
from fedlib.base.same_bits import arithmetic, fastest
from fedlib.experiments import PROFILES, OpenItem, find, full_name, names
from fedlib.experiments.item import duration
from fedlib.models import SLOWED


def assignments(texts: Sequence[str] | None) -> dict:
    """["a=1", "b=x"] -> {"a": 1, "b": "x"}."""
    pairs = {}
    for text in texts or []:
        name, equals, value = text.partition("=")
        if not equals:
            raise BadValue(f"--set {text!r} is not accepted; expected NAME=VALUE")
        try:
            pairs[name] = json.loads(value)
        except ValueError:
            pairs[name] = value
    return pairs


def changed(texts: Sequence[str] | None, **named) -> dict:
    """Settings that were changed, by --set and by options of their own."""
    return {name: value for name, value in named.items() if value is not None} | assignments(texts)


def until(budget: float | None) -> float | None:
    """When training stops, in seconds since 1970. Raises BadValue unless there is some time."""
    require(budget is None or budget > 0, "budget", budget, "a number of minutes above 0")
    return None if budget is None else time.time() + 60 * budget


def open_chosen(patterns: Sequence[str] | None, profile: str, overrides: dict, **options) -> list[OpenItem]:
    """The items that were asked for, with the settings that were changed. Of several those are left out that do not run
    the methods. options: of `OpenItem`."""
    choose("profile", profile, PROFILES)
    patterns = in_full(patterns)
    items = [find(name) for name in matching(patterns)]
    lacking = [item.name for item in items if profile not in item.settings and item.name not in patterns]
    items = [item for item in items if item.name not in lacking]
    if lacking:
        print(f"no profile {profile}: {', '.join(lacking)}")
    require(bool(items), "profile", profile, "one that the chosen items have")
    opened, refused = [], {}
    for item in items:
        own = {key: value for key, value in overrides.items() if key in item.settings[profile] or len(items) == 1}
        if left_out := [key for key in overrides if key not in own]:
            print(f"{item.name}: has no setting {', '.join(left_out)}, which is left as it is")
        try:
            opened.append(OpenItem(item, profile, **options, **own))
        except BadValue as error:
            if len(items) == 1 or "methods" not in own:
                raise
            refused[item.name] = error
    if refused and not any("methods" in item.changed for item in opened):
        raise next(iter(refused.values()))
    for name, error in refused.items():
        print(f"{name}: left out, {error}")
    if profile == "paper" and not options.get("finished") and options.get("device") == "cpu":
        go_faster(opened)
    return opened


def in_full(patterns: Sequence[str] | None) -> list[str]:
    """Patterns as they are, all without any, and items that are named by their files."""
    return [pattern if any(c in pattern for c in "*?[") else full_name(pattern) for pattern in patterns or ["*"]]


def matching(patterns: Sequence[str] | None) -> list[str]:
    """Names of items, each once, in the order in which they were asked for."""
    chosen = []
    for pattern in in_full(patterns):
        if not (found := fnmatch.filter(names(), pattern)):
            raise BadValue(f"no item matches {pattern!r}; items: {', '.join(names())}")
        chosen += found
    return list(dict.fromkeys(chosen))


def go_faster(opened: Sequence[OpenItem]) -> None:
    """Begin this command again with what is quickest on this machine, if a run that is missing has a large network and
    nobody has said otherwise: the same bits everywhere would cost it half its speed."""
    slowed = sorted({getattr(s, "model", "") for i in opened for s in i.specs if not i.store.path(s).exists()} & SLOWED)
    if slowed and arithmetic() == "portable" and "FEDLIB_FAST" not in os.environ:
        says = "this machine's fastest kernels (FEDLIB_FAST=1), whose last digits may be other than on other CPUs"
        print(f"{', '.join(slowed)}: with {says}; FEDLIB_FAST=0 keeps them the same", file=sys.stderr)
        os.execve(sys.executable, [sys.executable, "-m", "fedlib", *sys.argv[1:]], fastest())


def say_how_long(opened: Sequence[OpenItem], jobs: int | None) -> None:
    """How long the runs that are missing will take, where it is more than a few minutes and the settings are a
    profile's own; runs that items share are counted once."""
    each = {
        (item.place, spec.id): 2 * item.item.minutes[item.profile] / len(item.specs)  # minutes are those of two cores
        for item in opened
        if not item.changed
        for spec in item.specs
        if not item.store.path(spec).exists()
    }
    jobs = jobs or os.cpu_count() or 1
    if (minutes := sum(each.values()) / jobs) > 5:
        takes = f"{duration(minutes)} with {jobs} side by side, if this machine is as fast as ours"
        print(f"{len(each)} runs to do: {takes}", flush=True)


def say_what_is_left(opened: Sequence[OpenItem], budget: float) -> bool:
    """Name what was not done in time; whether there is any."""
    left = {item.item.name: len(item.missing) for item in opened if item.missing}
    if left:
        print(
            f"left after a budget of {budget:g} minutes: {', '.join(f'{n} runs of {name}' for name, n in left.items())}"
        )
        print("the same command continues (exit status 3)")
    return bool(left)
