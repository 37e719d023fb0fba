"""Measurements on a run, named in `RunSpec.measures` and stored with its result: on final models,
or after every round."""

from __future__ import annotations

from collections.abc import Iterable

from fedlib.algorithms.api import Algorithm
from fedlib.base.errors import choose
from fedlib.measures.attention import captum_attr
from fedlib.measures.each_round import ROUND_MEASURES, check_round_measure
from fedlib.measures.final_models import FINAL_MEASURES, check_final_measures  # noqa: F401 (of set_up)


def check_measure(name: str, method: Algorithm) -> None:
    """Raise BadValue unless there is a measure of this name and the method has what it looks at."""
    choose("measure", name, [*FINAL_MEASURES, *ROUND_MEASURES])
    if name in ROUND_MEASURES:
        check_round_measure(name, method)


def check_packages(names: Iterable[str]) -> None:
    """Raise FedlibError where one of these measures needs a package that is not installed."""
    if "attention" in names:
        captum_attr()
