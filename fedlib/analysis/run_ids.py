"""Which runs a row of a table is made of: those that its labels name.

Items call a run by a key, for example (row, column, seed), and tables say the same words in the columns with which they
begin. So nothing has to be noted while a table is made, and tables that were saved can be asked, too. A row whose
labels name no run may be made of any of them, and gets all; what a row is compared with are other rows' runs.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Mapping
from numbers import Integral

import pandas as pd
from pandas.api.types import is_bool_dtype, is_float_dtype

from fedlib.runs.store import Spec

COLUMN, DIGITS = "run_ids", 8  # of saved tables; hex digits of an id that are enough to tell runs apart
ORIGINS = "origins"  # the saved table that has a row for each run
BESIDE = re.compile(r"\b(paper|ours)\b")  # in the name of a column: what is compared
MEASURED = re.compile(r"[+-]?[\d.,]+ ?(%|[(\[].*)?")  # a number as a text, maybe with its interval or spread
PRINTED = {"series": "paper"}  # a label of numbers that no run of ours made
NOT_RUN = "not run: "  # with which the label of a row begins that stands for what no run was made of
NESTED = ("hyper", "partition", "model_options")  # fields of a run whose parameters are labels as well


def run_ids(
    frame: pd.DataFrame,
    runs: Mapping[Hashable, Spec],
    found: Iterable[str] | None = None,
    called: Mapping[str, tuple[str, ...]] | None = None,
) -> list[str]:
    """Of every row the runs that it is made of: the beginnings of their ids, in order, with spaces between them.

    runs: those that the table is made of, by key; found: ids of those that there are (default: all); called: by label
    the parts of a key that it stands for, where it is none itself.
    """
    there = {spec.id for spec in runs.values()} if found is None else set(found)
    named, memory, texts = _Names(runs, called or {}), {}, []
    columns = _labels(frame, named)
    for cells in zip(*(frame[column] for column in columns)) if columns else [()] * len(frame):
        if cells not in memory:
            ids = dict.fromkeys(runs[key].id for key in named.together(dict(zip(columns, cells))))
            memory[cells] = " ".join(id[:DIGITS] for id in ids if id in there)
        texts.append(memory[cells])
    return texts


def labels(frame: pd.DataFrame, runs: Mapping[Hashable, Spec]) -> list[str]:
    """The columns that say what a row is about: those before the first measured number, paper's or ours.

    Numbers with decimals are labels where keys or runs have all of them: a rate, pFedSim's rho.
    """
    return _labels(frame, _Names(runs, {}))


def _labels(frame: pd.DataFrame, names: _Names) -> list[str]:
    found = []
    for column in map(str, frame.columns):
        own = frame[column]
        if is_float_dtype(own) and not all(names.of(column, value) for value in own):
            break
        if BESIDE.search(column) or (len(own) and all(isinstance(v, str) and MEASURED.fullmatch(v) for v in own)):
            break
        if not is_bool_dtype(own):
            found.append(column)
    return found


class _Names:
    """Keys by what names them: their parts that are texts or fractions, their seed, and fields of their runs."""

    def __init__(self, runs: Mapping[Hashable, Spec], called: Mapping[str, tuple[str, ...]]):
        self.every, self.called = list(runs), called
        self.parts: dict[Hashable, set] = {}
        self.fields: dict[tuple[str, Hashable], set] = {}
        for key, spec in runs.items():
            parts = key if isinstance(key, tuple) else (key,)
            seeded = isinstance(parts[-1], int)  # as the item counts it, which the run's own may differ from
            fields = dict(_fields(spec)) | ({"seed": parts[-1]} if seeded else {})
            for part in parts:
                if not isinstance(part, int):
                    self.parts.setdefault(part, set()).add(key)
            for name, value in fields.items():
                if isinstance(value, Hashable):
                    self.fields.setdefault((name, value), set()).add(key)

    def of(self, column: str, cell: Hashable) -> set:
        """The keys that a cell names, none if it is about something else. A whole number may count anything: it names
        runs only in a column that is called like a field of theirs."""
        if not isinstance(cell, Integral):
            parts = [self.parts.get(part, set()) for part in self.called.get(cell, (cell,))]
            if own := set.intersection(*parts):
                return own
        return self.fields.get((column, cell), set())

    def together(self, cells: Mapping[str, Hashable]) -> list:
        """The keys that a row's labels name together, in the item's order."""
        if any(cells.get(column) == value for column, value in PRINTED.items()):
            return []
        if any(str(cell).startswith(NOT_RUN) for cell in cells.values()):
            return []
        chosen = set(self.every)
        for column, cell in cells.items():
            chosen = chosen & self.of(column, cell) or chosen
        return [key for key in self.every if key in chosen]


def _fields(spec: Spec) -> Iterator[tuple[str, object]]:
    """Fields with their values; a method's alpha and a partition's are the same label, the partition's counts."""
    fields = spec.to_dict()
    yield from ((name, value) for name, value in fields.items() if name not in NESTED)
    for name in NESTED:
        yield from fields.get(name, {}).items()
