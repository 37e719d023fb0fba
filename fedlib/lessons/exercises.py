"""Exercises that check themselves: a notebook asks, and runs to its end whether or not somebody has answered."""

from __future__ import annotations

from math import isfinite, nan
from numbers import Real

import numpy as np

from fedlib.base.errors import choose
from fedlib.lessons.answers import ANSWERS, Answer


def check(question: str, answer: object, right: float | None = None, tolerance: float = 0.01) -> None:
    """Print in words what is wrong with an answer to a question of `answers.ANSWERS`; None is no answer yet. right: the
    answer to another question, where runs decide it."""
    known = right is None
    expected = ANSWERS[choose("question", question, ANSWERS)] if known else Answer(float(right), tolerance)
    print(f"{question} -> {said(answer, expected)}")


def said(answer: object, expected: Answer) -> str:
    """Whether an answer is right, and what is wrong if not; of several numbers, for each."""
    right, several = expected.right, isinstance(expected.right, tuple) or callable(expected.right)
    if answer is None or several and isinstance(answer, list) and None in answer:
        return "not answered yet"
    if not several:
        return _of_one(answer, expected)
    count = 2 if callable(right) else len(right)
    if not isinstance(answer, list | tuple | np.ndarray):
        return f"give {count} numbers in a list"
    if len(answer) != count:
        return f"give {count} numbers, not {len(answer)}"
    if callable(right):
        return right(answer) if all(isinstance(one, Real) for one in answer) else f"give numbers, not {answer}"
    each = [_of_one(one, Answer(r, expected.tolerance, expected.mistakes)) for one, r in zip(answer, right)]
    return each[0] if len(set(each)) == 1 else "; ".join(each)


def _of_one(answer: object, expected: Answer) -> str:
    try:
        value = nan if isinstance(answer, str | bool) else float(answer)
    except (TypeError, ValueError):
        value = nan
    if not isfinite(value):
        return f"give a number, not {answer!r}"
    right, tolerance = expected.right, expected.tolerance
    if abs(value - right) <= tolerance:
        return "right"
    hints = (hint for mistake, hint in expected.mistakes.items() if abs(value - mistake) <= min(tolerance, 0.1))
    return ": ".join([_how_far(value, right), *hints][:2])


def _how_far(value: float, right: float) -> str:
    if value * right < 0:
        return "wrong sign"
    if value * right == 0:
        return "too large" if value > right else "too small"
    factor = max(value / right, right / value)
    way = "large" if abs(value) > abs(right) else "small"
    said = f"{factor:.0f}" if factor >= 10 else f"{factor:.2g}"
    return f"a factor of {said} too {way}" if factor >= 1.1 else f"a little too {way}"
