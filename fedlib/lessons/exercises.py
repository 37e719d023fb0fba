"""Exercises that check themselves: a notebook asks, and runs to its end whether or not somebody has answered."""

from __future__ import annotations


def check(question: str, answer: float | None, right: float, tolerance: float = 0.01) -> None:
    """Print whether a number is right, up to this difference; None is no answer yet. The right one is not shown."""
    if answer is None:
        said = "put your answer in place of None"
    else:
        said = "right" if abs(answer - right) <= tolerance else f"{answer:g} is not it yet"
    print(f"{question}: {said}")
