"""Measurements on a run, named in `RunSpec.measures` and stored with its result: on the final models, or after every round."""

from __future__ import annotations

from fedlib.base.errors import BadValue, choose
from fedlib.measures.each_round import NEED_CHOICE, ROUND_MEASURES
from fedlib.measures.final_models import FINAL_MEASURES

__all__ = ["FINAL_MEASURES", "ROUND_MEASURES", "check_measure"]


def check_measure(name: str, method) -> None:
    """Raise BadValue unless there is a measure of this name and the method has what it looks at."""
    choose("measure", name, [*FINAL_MEASURES, *ROUND_MEASURES])
    if name in NEED_CHOICE and method.chosen is None:
        kind = type(method).__name__
        raise BadValue(
            f"measure {name!r} is not accepted for {kind}; expected a method that sends models of chosen clients"
        )
