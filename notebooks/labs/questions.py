"""The question bank: a page to read, and the same for Moodle in GIFT, renewed by running this file:

python notebooks/labs/questions.py
"""

import re
from pathlib import Path
from typing import NamedTuple

PAGE, GIFT = (Path(__file__).with_name(f"questions.{kind}") for kind in ("md", "gift"))
ANSWER = re.compile(r"^\* (?:right: (.+)|wrong: (.+) \(([^()]+)\))$", re.MULTILINE)


class Question(NamedTuple):
    lesson: int
    text: str
    right: list[str]
    wrong: list[tuple[str, str]]  # an answer, and why it is wrong


def questions(page: str) -> list[Question]:
    found = []
    for number, lesson in re.findall(r"^## Lesson (\d+)\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL):
        for text, answers in re.findall(r"^\*\*(.+)\*\*\n\n((?:\* .+\n)+)", lesson, re.MULTILINE):
            each = ANSWER.findall(answers)
            wrong = [(answer, why) for right, answer, why in each if not right]
            found.append(Question(int(number), text, [right for right, *_ in each if right], wrong))
    return found


def gift(page: str) -> str:
    """All questions as GIFT, each lesson in a category of its own; of an answer that is wrong, why."""
    lines, lesson = [], None
    for k, one in enumerate(questions(page), 1):
        if one.lesson != lesson:
            lesson = one.lesson
            lines += [f"$CATEGORY: fedlib/Lesson {lesson}", ""]
        lines += [f"::fedlib {k}::[markdown]{_escaped(one.text)} {{"]  # else Moodle shows backticks
        lines += [f"\t={_escaped(right)}" for right in one.right]
        lines += [f"\t~{_escaped(answer)} #{_escaped(why)}" for answer, why in one.wrong]
        lines += ["}", ""]
    return "\n".join(lines)


def _escaped(text: str) -> str:
    return re.sub(r"([\\~=#{}:])", r"\\\1", text)


if __name__ == "__main__":
    GIFT.write_text(gift(PAGE.read_text("utf-8")), "utf-8")
    print(GIFT)
