"""Exercises say whether an answer is right, and not what it is."""

from __future__ import annotations

import pytest

from fedlib.lessons.exercises import check


@pytest.mark.parametrize(
    ("answer", "said"),
    [(None, "put your answer in place of None"), (0.6, "right"), (0.605, "right"), (0.4, "0.4 is not it yet")],
)
def test_an_answer_is_right_up_to_a_difference_and_none_is_no_answer(answer, said, capsys):
    check("alpha", answer, 0.6)
    assert capsys.readouterr().out == f"alpha: {said}\n"
