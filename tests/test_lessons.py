"""Lessons lead on to each other, refer to parts that they have, and show a picture early; the syllabus follows them."""

from __future__ import annotations

import re
from functools import cache

import pytest
import typer
from helpers import LESSONS, cells, prose

from fedlib.base.files import CHECKOUT
from fedlib.cli import labs as labs_commands
from fedlib.lessons import running_example

NOTEBOOKS = CHECKOUT / "notebooks"
COURSE = sorted(path for folder in ("lessons", "labs", "solutions") for path in (NOTEBOOKS / folder).glob("*.ipynb"))
REFERENCE = re.compile(r"lesson (\d+)\]?(?:\([^)]*\))?,? \(?parts? (\d+)(?: (?:and|to) (\d+))?")
SCHEMATIC = 6  # cells, within which the picture of the method is; the pieces of one that was cut for slides are one
PIECE = re.compile(r".+-\d+")  # the name of a further piece


@cache
def parts(number: int) -> set[int]:
    return {int(found) for found in re.findall(r"^## (\d+) ", prose(LESSONS[number]), re.M)}


def test_there_are_sixteen_lessons_with_numbered_parts():
    assert [int(path.name[:2]) for path in LESSONS] == list(range(16))
    assert all(parts(k) == set(range(1, len(parts(k)) + 1)) and len(parts(k)) >= 5 for k in range(16))


@pytest.mark.parametrize("number", range(16))
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


@pytest.mark.parametrize("number", [*range(14), 15])
def test_a_schematic_comes_early(number):
    whole = [cell for cell in cells(LESSONS[number]) if not PIECE.fullmatch(cell["id"])]
    shown = [output.get("data", {}) for cell in whole[:SCHEMATIC] for output in cell.get("outputs", ())]
    assert any("image/svg+xml" in data or "image/png" in data for data in shown)


def test_the_running_example_shows_methods_beside_the_same_three():
    small = {"small": running_example.TRAINING | {"num_clients": 4, "scheme": "iid"}}
    found = running_example.played({"FedPer": {"method": "fedper"}}, smoke=True, tasks=small)
    table = running_example.table(found, minus="FedAvg")
    assert list(table.index) == ["Local", "FedAvg", "FedAvg+FT", "FedPer"]
    assert list(table["", "evaluated"].str.extract(r"(\w+)")[0]) == ["after", "before", "fine", "before"]
    assert table["", "parameters uploaded"]["Local"] == "0"
    differences = table["small", "minus FedAvg"]
    assert differences["FedAvg"] == "" and re.fullmatch(r"[+-][\d.]+ \[[+-][\d.]+, [+-][\d.]+\]", differences["FedPer"])


@pytest.mark.parametrize("number", [4, 5, 6, 7, 8, 10, 11, 12, 13])
def test_a_lesson_on_methods_adds_them_to_the_running_example(number):
    code = ["".join(cell["source"]) for cell in cells(LESSONS[number], "code")]
    assert any("running_example.table(" in source for source in code)


SYLLABUS = NOTEBOOKS / "labs" / "SYLLABUS.md"
OF_LECTURERS = {"syllabus": SYLLABUS.read_text("utf-8"), "labs": prose(NOTEBOOKS / "labs" / "README.ipynb")}
OF_LECTURERS["questions"] = (NOTEBOOKS / "labs" / "questions.md").read_text("utf-8")


def test_weeks_and_lessons_are_in_order_and_each_lab_is_graded_after_it_was_handed_out():
    rows = [
        line.strip("|").split("|") for line in OF_LECTURERS["syllabus"].splitlines() if re.match(r"\| \d+ \|", line)
    ]
    assert [int(week) for week, *_ in rows] == list(range(1, 13))
    assert re.findall(r"lessons/(\w+)\.ipynb", "".join(row[1] for row in rows)) == [path.stem for path in LESSONS[:15]]
    assert all(len(row) == 6 and float(row[3]) for row in rows)
    handed_out, graded = ([re.findall(r"lab \d", row[k]) for row in rows] for k in (4, 5))
    names = [f"lab {k}" for k in range(1, 7)]
    assert sorted(sum(handed_out, [])) == sorted(sum(graded, [])) == names
    assert all(handed_out.index([lab]) + 1 == graded.index([lab]) for lab in names)


def test_the_syllabus_fits_three_screens():
    assert len(OF_LECTURERS["syllabus"].splitlines()) <= 90 and len(OF_LECTURERS["syllabus"].split()) <= 1200


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in OF_LECTURERS.items()])
def test_links_and_commands_of_pages_for_lecturers_exist(text):
    links = [to for to in re.findall(r"\]\(([^)\s]+)\)", text) if not to.startswith("http")]
    assert not [to for to in links if not (SYLLABUS.parent / to).exists()]
    commands = typer.main.get_command(labs_commands).commands
    for command, words in re.findall(r"fedlib labs (\w+)((?: +[^\s`#|]+)*)", text.replace("fedlib labs` command", "")):
        options = {option for parameter in commands[command].params for option in parameter.opts}
        assert {word for word in words.split() if word.startswith("--")} <= options
    named = re.findall(r"(lab\d_\w+?)(?:\.ipynb|\b)", text)
    assert all((SYLLABUS.parent / f"{name}.ipynb").exists() for name in named)
