"""Exercises say in words what is wrong with an answer; neither their cells nor the words hold the right one."""

from __future__ import annotations

import ast
import json

import numpy as np
import pytest
from helpers import LESSONS, cells

from fedlib.base.errors import BadValue
from fedlib.lessons.exercises import ANSWERS, Answer, check, said


def exercise_cells(path) -> list[ast.Module]:
    code = ["".join(cell["source"]) for cell in cells(path, "code")]
    return [ast.parse(cell) for cell in code if "check(" in cell]


def asked(cell: ast.Module) -> list[ast.Call]:
    return [node for node in ast.walk(cell) if isinstance(node, ast.Call) and node.func.id == "check"]


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_no_exercise_cell_holds_its_answer(path):
    """It gives names to None, and asks about these names; there is nothing else in it to read an answer from."""
    exercises = exercise_cells(path)
    assert exercises
    for cell in exercises:
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


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_the_right_numbers_stand_in_the_worked_solutions(path):
    solved = cells(path.parents[1] / "solutions" / path.name)
    shown = "".join("".join(cell["source"]) + json.dumps(cell.get("outputs", "")) for cell in solved)
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
        (np.array(5.0), "give 3 numbers in a list"),
        ([np.array([1, 2]), -2, 0], "give a number, not array([1, 2]); right; right"),
        ([1, -2, 10**309], f"right; right; give a number, not 1{309 * '0'}"),
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
