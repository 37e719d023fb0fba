"""The question bank: each question has one right answer and says of each wrong one why; Moodle's file has the same."""

from __future__ import annotations

import re
import runpy
from collections import Counter

import pytest

from fedlib.base.files import CHECKOUT

MADE = runpy.run_path(str(CHECKOUT / "notebooks" / "labs" / "questions.py"))
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
