"""Lessons lead on to each other, refer to parts that they have, and show a picture early."""

from __future__ import annotations

import json
import re
from functools import cache

import pytest

from fedlib.base.files import CHECKOUT

NOTEBOOKS = CHECKOUT / "notebooks"
LESSONS = sorted((NOTEBOOKS / "lessons").glob("[0-9][0-9]_*.ipynb"))
COURSE = sorted(path for folder in ("lessons", "labs", "solutions") for path in (NOTEBOOKS / folder).glob("*.ipynb"))
REFERENCE = re.compile(r"lesson (\d+)\]?(?:\([^)]*\))?,? \(?parts? (\d+)(?: (?:and|to) (\d+))?")
SCHEMATIC = 6  # cells, within which the picture of the method is


@cache
def cells(path) -> list[dict]:
    return json.loads(path.read_text())["cells"]


def prose(path) -> str:
    return "\n".join("".join(cell["source"]) for cell in cells(path) if cell["cell_type"] == "markdown")


@cache
def parts(number: int) -> set[int]:
    return {int(found) for found in re.findall(r"^## (\d+) ", prose(LESSONS[number]), re.M)}


def test_there_are_thirteen_lessons_with_numbered_parts():
    assert [int(path.name[:2]) for path in LESSONS] == list(range(13))
    assert all(parts(k) == set(range(1, len(parts(k)) + 1)) and len(parts(k)) >= 5 for k in range(13))


@pytest.mark.parametrize("number", range(13))
def test_a_lesson_links_to_the_one_before_and_the_one_after(number):
    links = set(re.findall(r"\]\(([^)#]+\.ipynb)\)", prose(LESSONS[number])))
    neighbours = LESSONS[max(0, number - 1) : number] + LESSONS[number + 1 : number + 2]
    assert {path.name for path in neighbours} <= links


@pytest.mark.parametrize("path", COURSE, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_parts_that_are_referred_to_are_there(path):
    text = "\n".join("".join(cell["source"]) for cell in cells(path))
    for lesson, *named in REFERENCE.findall(text):
        assert {int(part) for part in named if part} <= parts(int(lesson)), f"lesson {lesson}, part {named}"
    if path.parent.name == "labs":
        return
    rest = REFERENCE.sub("", text)  # what is left refers to the lesson itself, or to the one that is solved
    assert {int(part) for part in re.findall(r"\b[Pp]art (\d+)", rest)} <= parts(int(path.name[:2]))


@pytest.mark.parametrize("number", range(12))
def test_a_schematic_comes_early(number):
    shown = [
        output.get("data", {}) for cell in cells(LESSONS[number])[:SCHEMATIC] for output in cell.get("outputs", ())
    ]
    assert any("image/png" in data for data in shown)
