"""Tables and figures of the papers as items that can be run, drawn, compared and checked.

An item is a file <paper>/<item>.py with an `ITEM`, named like its notebook;
it is found by its name, nothing is registered by hand.
"""

from __future__ import annotations

import dataclasses
import os
import pkgutil
import re
from importlib import import_module

from fedlib import algorithms
from fedlib.base.errors import choose
from fedlib.experiments.item import PROFILES, Item, OpenItem
from fedlib.experiments.paper_numbers import paper_table

FILES = re.compile(r"(fig|table)s?\d\w*|notes")  # other files of a paper's folder are what its items share


def names() -> list[str]:
    """Names of all items, "<paper>/<item>": figures, tables and notes of each paper in the order of their numbers."""
    found = []
    for paper in pkgutil.iter_modules(__path__):
        if paper.ispkg:
            files = pkgutil.iter_modules([os.path.join(__path__[0], paper.name)])
            found += [f"{paper.name}/{file.name}" for file in files if FILES.fullmatch(file.name)]
    return sorted(found, key=_reading_order)


def _reading_order(name: str) -> tuple:
    paper, item = name.split("/")
    number = re.search(r"\d+", item)
    return paper, item == "notes", item.startswith("table"), int(number[0]) if number else 0, item


def find(name: str) -> Item:
    """An item by its name. Raises BadValue for an unknown one."""
    module = import_module(f"{__name__}.{choose('item', name, names()).replace('/', '.')}")
    return dataclasses.replace(module.ITEM, name=name)


def about(folder: str) -> tuple[str, str, str]:
    """(name, title, place of publication) of a folder of items: of the paper, or of a comparison of our own, which has
    no place."""
    if folder in algorithms.of_fedlib():
        from fedlib.figures.looks import proper_name  # here, because matplotlib takes a second

        place, title = algorithms.citation(folder)
        return proper_name(folder), title, place
    title = import_module(f"{__name__}.{folder}").__doc__.strip().rstrip(".")
    return title.partition(":")[0], title, ""


def open_item(name: str, profile: str = "quick", **options) -> OpenItem:
    """Open an item by name; the environment variable FEDLIB_PROFILE wins. Raises BadValue for unknown names."""
    return OpenItem(find(name), os.environ.get("FEDLIB_PROFILE") or profile, **options)


def at_paper_scale(name: str) -> OpenItem | None:
    """`stored` at the paper's own settings."""
    return stored(name, "paper")


def stored(name: str, profile: str) -> OpenItem | None:
    """An item made of the runs of a profile that are there, without training; prints how many that are.

    None if there are none, or not all and the item needs all. Raises BadValue for unknown names.
    """
    item = OpenItem(find(name), profile, finished=True)
    needed, where = len(item.specs), {"paper": "at the paper's settings"}.get(profile, f"of the profile {profile}")
    print(f"{needed - len(item.missing)} of {needed} runs {where} are here")
    return item if item.can_be_shown else None


__all__ = [
    "PROFILES",
    "Item",
    "OpenItem",
    "about",
    "at_paper_scale",
    "find",
    "names",
    "open_item",
    "paper_table",
    "stored",
]
