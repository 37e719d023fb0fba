"""Which lessons belong to a method and to an item, and how methods and notebooks are called."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from pathlib import Path

import nbformat

from fedlib import algorithms

Notebooks = Mapping[str, Path]  # by name: "lessons/02_fedavg_by_hand"


def proper_name(method: str) -> str:
    """A method's name as it is written, "pFedSim"; the class's where its file does not begin with one."""
    return _own_name(method) or algorithms.find(method).__name__


def _own_name(method: str) -> str:
    said = algorithms.text(method).partition(":")[0]
    return said if len(said.split()) <= 2 else ""


@functools.cache
def heading(path: Path) -> str:
    """The title of a notebook: its first heading."""
    found = re.search(r"^# (.+)", _text(path), re.MULTILINE)
    return found[1] if found else path.stem


@functools.cache
def _text(path: Path) -> str:
    return "\n".join(c.source for c in nbformat.read(path, as_version=4).cells if c.cell_type == "markdown")


def lesson_of_method(notebooks: Notebooks, method: str) -> str:
    """The first lesson with the method in a heading, else the one that names it most; "" where none does."""
    if not _own_name(method):
        return ""
    word = re.compile(rf"(?<!\w){re.escape(_own_name(method).split()[0])}(?!\w)")
    texts = {name: _text(path) for name, path in notebooks.items() if name.startswith("lessons/")}
    headings = {name: "\n".join(re.findall(r"^#+ .*", text, re.MULTILINE)) for name, text in texts.items()}
    titled = [name for name in texts if word.search(headings[name])]
    most = max(texts, key=lambda name: len(word.findall(texts[name])), default="")
    return titled[0] if titled else most if most and word.search(texts[most]) else ""


def lessons_of_item(notebooks: Notebooks, name: str) -> list[str]:
    """The lessons that an item's notebook links to, and that of its paper's method."""
    paper = name.split("/")[0]
    linked = re.findall(r"\.\./(lessons/\w+)\.ipynb", _text(notebooks[name])) if name in notebooks else []
    taught = lesson_of_method(notebooks, paper) if paper in algorithms.of_fedlib() else ""
    return [lesson for lesson in dict.fromkeys([*linked, taught]) if lesson in notebooks]
