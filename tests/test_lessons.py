"""Lessons lead on to each other, refer to parts that they have, and show a picture early; the syllabus follows them.
They are slides as well. Exercises say in words what is wrong with an answer; each question of the bank has one right
answer and a reason against each wrong one."""

from __future__ import annotations

import ast
import json
import re
import runpy
import subprocess
import sys
from collections import Counter
from functools import cache

import numpy as np
import pytest
import typer

from fedlib.base.errors import BadValue
from fedlib.base.files import CHECKOUT
from fedlib.cli import labs as labs_commands
from fedlib.lessons import running_example
from fedlib.lessons.exercises import ANSWERS, Answer, check, said

NOTEBOOKS = CHECKOUT / "notebooks"
LESSONS = sorted((NOTEBOOKS / "lessons").glob("[0-9][0-9]_*.ipynb"))
COURSE = sorted(path for folder in ("lessons", "labs", "solutions") for path in (NOTEBOOKS / folder).glob("*.ipynb"))
REFERENCE = re.compile(r"lesson (\d+)\]?(?:\([^)]*\))?,? \(?parts? (\d+)(?: (?:and|to) (\d+))?")
SCHEMATIC = 6  # cells, within which the picture of the method is; the pieces of one that was cut for slides are one
PIECE = re.compile(r".+-\d+")  # the name of a further piece


each_lesson = pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)


@cache
def cells(path) -> list[dict]:
    return json.loads(path.read_text())["cells"]


def prose(path) -> str:
    return "\n".join("".join(cell["source"]) for cell in cells(path) if cell["cell_type"] == "markdown")


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
    assert list(table["", "evaluated"].str.extract(r"(\w+)")[0]) == ["after", "global", "fine", "before"]
    assert table["", "parameters uploaded"]["Local"] == "0"
    differences = table["small", "minus FedAvg"]
    assert differences["FedAvg"] == "" and re.fullmatch(r"[+-][\d.]+ \[[+-][\d.]+, [+-][\d.]+\]", differences["FedPer"])


@pytest.mark.parametrize("number", [4, 5, 6, 7, 8, 10, 11, 12, 13])
def test_a_lesson_on_methods_adds_them_to_the_running_example(number):
    code = ["".join(cell["source"]) for cell in cells(LESSONS[number]) if cell["cell_type"] == "code"]
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


# slides ---------------------------------------------------------------------------------------------------------------

WORDS, TABLE, LINES, ROWS = 65, 110, 14, 10  # of text, of a table in it, of what is printed, of a table of results
FORMULA, MARKDOWN_TABLE = re.compile(r"\$\$.+?\$\$", re.DOTALL), re.compile(r"^\|.*\n?", re.MULTILINE)
SETTINGS = CHECKOUT / "notebooks" / "labs" / "slides.py"


def slides(path) -> list[list[dict]]:
    """The cells of every slide, notes and fragments included."""
    found = []
    for cell in json.loads(path.read_text("utf-8"))["cells"]:
        kind = cell["metadata"]["slideshow"]["slide_type"]
        if kind in ("slide", "subslide"):
            found.append([cell])
        elif kind != "skip":
            found[-1].append(cell)
    return found


def kind_of(cell: dict) -> str:
    return cell["metadata"]["slideshow"]["slide_type"]


def text_of(cells: list[dict]) -> str:
    return "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")


def words(text: str) -> int:
    """A formula in a line counts as one word, one on its own as none."""
    return len(re.findall(r"\w\S*", re.sub(r"\$[^$]+\$", "x", MARKDOWN_TABLE.sub("", FORMULA.sub("", text)))))


def shown(cell: dict) -> str:
    """What of a code cell is on its slide: one picture, one table, or lines of text."""
    kinds = [kind for output in cell["outputs"] for kind in output.get("data", {})]
    return next((kind for kind in ("image/svg+xml", "image/png", "text/html") if kind in kinds), "text")


def height(cell: dict) -> int:
    """Lines that a code cell prints; rows of its table."""
    if shown(cell) == "text/html":
        tables = ["".join(output.get("data", {}).get("text/html", "")) for output in cell["outputs"]]
        return next(table for table in tables if table).count("<tr")
    return sum("".join(output.get("text", "")).count("\n") for output in cell["outputs"])


@each_lesson
def test_a_lesson_has_about_a_dozen_slides_that_begin_with_its_title_and_end_with_what_to_remember(path):
    own = slides(path)
    assert 9 <= len(own) <= 16
    assert text_of(own[0]).startswith("# ") and kind_of(own[0][0]) == "slide"
    assert "## What to remember" in text_of([cell for slide in own[-3:] for cell in slide])


@each_lesson
def test_a_slide_is_short(path):
    for slide in slides(path):
        seen = [cell for cell in slide if kind_of(cell) != "notes"]
        code = [cell for cell in seen if cell["cell_type"] == "code"]
        text = text_of(seen)
        tables = MARKDOWN_TABLE.findall(text)
        assert words(text) <= WORDS, f"{words(text)} words: {text}"
        assert len(re.findall(r"\w\S*", "".join(tables))) <= TABLE, f"a large table: {text}"
        assert len(code) + bool(tables) <= 1, f"more than one picture, table or code: {text}"
        assert all(height(cell) <= (ROWS if shown(cell) == "text/html" else LINES) for cell in code), text


@each_lesson
def test_notes_are_a_few_sentences(path):
    notes = [cell for slide in slides(path) for cell in slide if kind_of(cell) == "notes"]
    assert notes and all(0 < words(text_of([cell])) <= 80 for cell in notes), [words(text_of([n])) for n in notes]


def test_an_export_is_one_file_that_needs_no_network(tmp_path):
    """Scripts, styles, pictures and formulas are in it: nothing that a browser would fetch is left."""
    path = next(path for path in LESSONS if r"\arg\\min" in path.read_text("utf-8"))  # MathML knows no \arg
    options = ["--to", "slides", "--config", str(SETTINGS), "--output-dir", str(tmp_path), str(path)]
    subprocess.run([sys.executable, "-m", "nbconvert", *options], check=True, capture_output=True)
    page = (tmp_path / f"{path.stem}.slides.html").read_text("utf-8")
    body = re.sub(r"<(script|style)\b.*?</\1>", "", page, flags=re.DOTALL).partition("</head>")[2]
    styles = "".join(re.findall(r"<style\b.*?</style>", page, flags=re.DOTALL))
    assert not re.findall(r"<link\b|<script\b[^>]*\bsrc=", page) and not re.findall(r"<img\b[^>]*src=\"(?!data:)", body)
    assert not re.findall(r"@import|url\((?!['\"]?data:|#)[^)]*\)", styles)
    assert "Reveal.initialize" in page and "<math" in body
    assert not re.search(r"[$\\]", re.sub(r"<pre>.*?</pre>", "", body, flags=re.DOTALL)), "a formula as it was written"
    own = slides(path)
    assert len(re.findall(r"<section[^>]*>", body)) == len(own) + sum(kind_of(slide[0]) == "slide" for slide in own)
    assert body.count('<aside class="notes">') == sum(kind_of(cell) == "notes" for slide in own for cell in slide)


# exercises ------------------------------------------------------------------------------------------------------------


def exercise_cells(path) -> list[ast.Module]:
    cells = ["".join(cell["source"]) for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    return [ast.parse(cell) for cell in cells if "check(" in cell]


def asked(cell: ast.Module) -> list[ast.Call]:
    return [node for node in ast.walk(cell) if isinstance(node, ast.Call) and node.func.id == "check"]


@each_lesson
def test_no_exercise_cell_holds_its_answer(path):
    """It gives names to None, and asks about these names; there is nothing else in it to read an answer from."""
    cells = exercise_cells(path)
    assert cells
    for cell in cells:
        values = {node.value for node in ast.walk(cell) if isinstance(node, ast.Constant)}
        assert values <= {None, *ANSWERS} and not [node for node in ast.walk(cell) if isinstance(node, ast.BinOp)]
        for call in asked(cell):
            assert len(call.args) == 2 and not call.keywords and isinstance(call.args[1], ast.Name | ast.List)


def test_every_question_is_asked_in_its_lesson_once():
    found = [(path.stem[:2], call.args[0].value) for path in LESSONS for c in exercise_cells(path) for call in asked(c)]
    assert sorted(question for _, question in found) == sorted(ANSWERS)
    assert all(question.startswith(f"lesson {int(lesson)}, exercise ") for lesson, question in found)


@pytest.mark.parametrize("question", [q for q, expected in ANSWERS.items() if not callable(expected.right)])
def test_the_right_answer_is_right_and_each_typical_mistake_gets_its_words(question):
    expected = ANSWERS[question]
    several = len(expected.right) if isinstance(expected.right, tuple) else 0
    assert said(list(expected.right) if several else expected.right, expected) == "right"
    for mistake, hint in expected.mistakes.items():
        words = said([mistake] * several if several else mistake, expected)
        assert words != "right" and f": {hint}" in words


@each_lesson
def test_the_right_numbers_stand_in_the_worked_solutions(path):
    cells = json.loads((path.parents[1] / "solutions" / path.name).read_text())["cells"]
    shown = "".join("".join(cell["source"]) + json.dumps(cell.get("outputs", "")) for cell in cells)
    expected = [ANSWERS[call.args[0].value].right for cell in exercise_cells(path) for call in asked(cell)]
    for right in (number for one in expected for number in np.atleast_1d(one) if not callable(number)):
        written = {f"{right:g}", f"{100 * right:.0f} %", *(f"{right:.{digits}f}" for digits in (0, 2, 3, 4))}
        assert any(number in shown for number in written), right


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (None, "not answered yet"),
        (16, "right"),
        (np.float32(16.005), "right"),
        (8, "a factor of 2 too small: did you count both directions?"),
        (32.0, "a factor of 2 too large"),
        (1600, "a factor of 100 too large"),
        (15, "a little too small"),
        (-16, "wrong sign"),
        (0, "too small"),
        ("16", "give a number, not '16'"),
        ([16], "give a number, not [16]"),
        (float("nan"), "give a number, not nan"),
    ],
)
def test_what_is_wrong_with_a_number_is_said_in_words(answer, words, capsys):
    question = "lesson 0, exercise 1: gigabytes"
    check(question, answer)
    assert capsys.readouterr().out == f"{question} -> {words}\n"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (None, "not answered yet"),
        ([1, None, 3], "not answered yet"),
        ((1, -2, 0), "right"),
        (np.array([1.0, -2.0, 0.0]), "right"),
        ([2, 2, 0], "a factor of 2 too large; wrong sign; right"),
        ([1, -2], "give 3 numbers, not 2"),
        (1, "give 3 numbers in a list"),
        ([1, "-2", 0], "right; give a number, not '-2'; right"),
    ],
)
def test_of_several_numbers_each_is_judged(answer, words):
    assert said(answer, Answer((1, -2, 0))) == words


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ([None, None], "not answered yet"),
        ([-0.99, 0.95], "right"),
        ([0.5, 0.5], "their mean is not negative"),
        ([-0.5, 0.2], "the weight by eq3 is not above 1: which cosine makes it large?"),
        ([-3, 0.2], "a cosine lies between -1 and 1"),
        ([0.2], "give 2 numbers, not 1"),
        (["a", "b"], "give numbers, not ['a', 'b']"),
    ],
)
def test_cosines_with_the_wanted_properties_are_right(answer, words):
    assert said(answer, ANSWERS["lesson 6, exercise 3: two cosines"]) == words


def test_an_unknown_question_is_named():
    with pytest.raises(BadValue, match="unknown question 'lesson 0: gigabyte'"):
        check("lesson 0: gigabyte", 1)


# the question bank ----------------------------------------------------------------------------------------------------

MADE = runpy.run_path(str(NOTEBOOKS / "labs" / "questions.py"))
PAGE, GIFT, gift = MADE["PAGE"], MADE["GIFT"], MADE["gift"]
BANK = MADE["questions"](PAGE.read_text("utf-8"))


def parsed(text: str) -> list[tuple[str, list[tuple[str, str, str]]]]:
    """GIFT as Moodle reads it: of each question its text, and of its answers the sign, the text and the feedback."""

    def said(part: str) -> str:
        return re.sub(r"\\(.)", r"\1", part.strip())

    found = []
    for question, answers in re.findall(r"::(?:\\.|[^:])+::\[markdown\]((?:\\.|[^{\\])+)\{((?:\\.|[^}\\])*)\}", text):
        each = re.findall(r"([=~])((?:\\.|[^=~#\\])+)(?:#((?:\\.|[^=~\\])+))?", answers)
        found.append((said(question), [(sign, said(answer), said(why)) for sign, answer, why in each]))
    return found


def test_there_are_74_questions_at_least_three_for_each_lesson():
    assert len(BANK) == len({one.text for one in BANK}) == PAGE.read_text("utf-8").count("\n**") == 74
    lessons = Counter(one.lesson for one in BANK)
    assert sorted(lessons) == list(range(16)) and min(lessons.values()) >= 3


@pytest.mark.parametrize("one", BANK, ids=lambda one: one.text[:40])
def test_a_question_has_one_right_answer_and_a_reason_for_each_wrong_one(one):
    assert len(one.right) == 1 and len(one.wrong) == 3 and len({*one.right, *(answer for answer, _ in one.wrong)}) == 4


def test_moodles_file_is_made_of_the_page_and_reads_back():
    text = GIFT.read_text("utf-8")
    assert text == gift(PAGE.read_text("utf-8")), "run python notebooks/labs/questions.py"
    answers = [[("=", one.right[0], ""), *(("~", *each) for each in one.wrong)] for one in BANK]
    assert parsed(text) == [(one.text, each) for one, each in zip(BANK, answers)]


def test_signs_of_gift_are_escaped():
    page = "## Lesson 1\n\n**Is {x: 1} = ~2 #3?**\n\n* right: a = b\n* wrong: {c} (d: ~e #f)\n"
    assert parsed(gift(page)) == [("Is {x: 1} = ~2 #3?", [("=", "a = b", ""), ("~", "{c}", "d: ~e #f")])]
    assert r"\{x\: 1\} \= \~2 \#3" in gift(page)
