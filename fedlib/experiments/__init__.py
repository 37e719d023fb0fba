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

import pandas as pd

from fedlib import algorithms
from fedlib.analysis.names import proper_name
from fedlib.base.errors import choose, require
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
    return sorted(found, key=reading_order)


def reading_order(name: str) -> tuple:
    """What items are sorted by: figures, tables and notes of a paper, each in the order of their numbers."""
    paper, item = name.split("/")
    number = re.search(r"\d+", item)
    return paper, item == "notes", item.startswith("table"), int(number[0]) if number else 0, item


def full_name(name: str) -> str:
    """The item that is called so, or the only one whose file is, or begins with that word: "table6_rho", "table6".
    Raises BadValue for none and for several."""
    files = {item: item.partition("/")[2] for item in names()}
    found = [item for item, file in files.items() if file == name or file.startswith(f"{name}_")]
    found = [item for item in found if files[item] == name] or found
    require(len(found) <= 1, "item", name, f"one of {', '.join(found)}")
    return found[0] if found else choose("item", name, files)


def find(name: str) -> Item:
    """An item by its name, see `full_name`."""
    name = full_name(name)
    return dataclasses.replace(import_module(f"{__name__}.{name.replace('/', '.')}").ITEM, name=name)


def about(folder: str) -> tuple[str, str, str]:
    """(name, title, place of publication) of a folder of items: of the paper, or of a comparison of our own, which has
    no place."""
    if folder in algorithms.of_fedlib():
        place, title = algorithms.citation(folder)
        return proper_name(folder), title, place
    title = import_module(f"{__name__}.{folder}").__doc__.strip().rstrip(".")
    return title.partition(":")[0], title, ""


def open_item(name: str, profile: str = "quick", **options) -> OpenItem:
    """Open an item by name; the environment variable FEDLIB_PROFILE wins. Notebooks then show all columns of a table.
    Raises BadValue for unknown names."""
    pd.set_option("display.max_columns", None)
    return OpenItem(find(name), os.environ.get("FEDLIB_PROFILE") or profile, **options)


def stored(name: str) -> OpenItem | None:
    """An item at the largest scale that is stored, paper or reduced, without training; prints how many runs are there.

    A scale is stored if all its runs are there, or if results were saved of a part of them; a smaller whole comes
    before a part. None without any. Notebooks then show all columns of a table. Raises BadValue for unknown names.
    """
    pd.set_option("display.max_columns", None)
    item = find(name)
    opened = [OpenItem(item, profile, finished=True) for profile in ("paper", "reduced") if profile in item.settings]
    whole = [one for one in opened if not one.missing]
    parts = [one for one in opened if one.can_be_shown and (one.root / f"results/{one.place}/{name}.json").exists()]
    for one in (*whole, *parts):
        needed = len(one.specs)
        print(f"{needed - len(one.missing)} of {needed} runs of profile {one.profile} are stored")
        return one
    print("no table at a larger scale is stored yet")
    return None


__all__ = ["PROFILES", "Item", "OpenItem", "about", "find", "names", "open_item", "paper_table", "stored"]
