"""A table of accuracies: rows (methods and their variants) by columns (tasks),
each cell a mean over seeds, beside the paper's.

Runs, comparison, ranks and figure follow from rows and columns; what is left to say are the claims.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pandas as pd

from fedlib import figures
from fedlib.analysis.accuracies import by_point, cells, compared, ranks
from fedlib.analysis.readings import Read, Reading, last_round
from fedlib.analysis.tables import Found, only, why_none
from fedlib.engine.result import RunResult
from fedlib.experiments.item import Item
from fedlib.experiments.paper_numbers import paper_table
from fedlib.spec import RunSpec

EVERY = "every column"
EXTRAS = {
    "points": "By evaluation point, and other averages where there are any, %",
    "ranks": "Rank correlation of the methods' order with the paper's",
}  # captions of tables that every item of this kind has


@dataclass(frozen=True)
class AccuracyTable:
    """A reported table. task: what a run of a column is, of settings and column (see `RunSpec.of_task`; under "rows"
    what single rows have otherwise, by name); rows: by name the method with its hyper-parameters or fields of the run,
    of the settings; row_of, column_of: where a printed cell belongs (None: nowhere, EVERY: to all columns)."""

    paper: str
    numbers: tuple[str | tuple[str, str], ...]  # of its printed tables, or (paper, number); each cell counts once
    columns: tuple[str, ...] | Callable[[dict], tuple[str, ...]]  # of the settings, where they differ
    task: Callable[[dict, str], dict]
    rows: Callable[[dict], dict[str, dict]]
    column_of: Callable[[pd.Series], str | None]
    row_of: Callable[[pd.Series], str | None] = lambda cell: cell["method"]
    read: Callable[[dict], Read] = lambda s: last_round()  # of a run, for a column, by the settings
    where: dict = field(default_factory=dict)  # of what `read` gives, that which is compared
    ours: str = "ours"  # what that is called
    also: dict[str, dict] = field(default_factory=dict)  # other accuracies that are shown beside it, by title
    dataset: Callable[[dict], str | None] = lambda s: "cifar10"  # the paper's beside ours; None: columns name their own
    seeded: tuple[str, ...] = ("seed",)  # fields of the run that vary with the seed: from the task's on, or from 0
    seeds: Callable[[dict, str, str], int] = lambda s, row, column: s["seeds"]  # of a cell
    applies: Callable[[str, str], bool] = lambda row, column: True  # a method to a task; without it there is no run
    chosen: Callable[[RunResult, str, list[Reading]], list[Reading]] = lambda r, row, read: read  # of a run, for a row

    def shown(self, s: dict) -> tuple[str, ...]:
        """The columns at these settings."""
        return self.columns(s) if callable(self.columns) else self.columns

    def keys(self, s: dict) -> list[tuple[str, str, int]]:
        """Row, column and seed of every run."""
        rows = self.rows(s)
        cells = [(row, column) for column in self.shown(s) for row in rows if self.applies(row, column)]
        seeds = {cell: self.seeds(s, *cell) for cell in cells}
        return [(*cell, n) for n in range(max(seeds.values(), default=0)) for cell in cells if n < seeds[cell]]

    def runs(self, s: dict) -> dict[tuple[str, str, int], RunSpec]:
        """The runs by row, column and seed."""
        rows, tasks = self.rows(s), {column: self.task(s, column) for column in self.shown(s)}
        return {(row, column, n): self.run(tasks[column], rows, row, n) for row, column, n in self.keys(s)}

    def run(self, task: dict, rows: dict[str, dict], row: str, seed: int) -> RunSpec:
        """The run of a row in a column's task."""
        seeds = {name: task.get(name, 0) + seed for name in self.seeded}
        return RunSpec.of_task(task | task.get("rows", {}).get(row, {}) | seeds, **rows[row])

    def read_off(self, s: dict, found: Mapping[tuple, RunResult]) -> dict[str, pd.DataFrame]:
        """tidy: one row a run and what is read of it. found: by row, column and seed."""
        tidy, read_run = [], self.read(s)
        for row, column, seed in self.keys(s):
            r = found.get((row, column, seed))
            for read in self.chosen(r, row, read_run(r, column)) if r else ():
                about = {"column": column, "row": row, "seed": seed, "point": read.point, "headline": read.headline}
                tidy.append({**about, **read.about, "accuracy": read.accuracy})
        names = ["column", "row", "seed", "point", "headline", *self.where, "accuracy"]
        return {"tidy": pd.DataFrame(tidy, columns=None if tidy else names)}

    def analyse(self, s: dict, found: Found) -> dict[str, pd.DataFrame]:
        """What was read off; compare: paper | ours | difference; points; ranks; cells: what the figure shows."""
        keys, diverged = self.keys(s), getattr(found, "diverged", ())
        ended = [key in found or key in diverged for key in keys]
        planned = pd.DataFrame({"column": [column for _, column, _ in keys], "ended": ended})
        tables = {**self.read_off(s, found), "_printed": self.printed(s), "_columns": planned}
        shown = cells(tables, self.where, self.also)
        shown.attrs["data"] = self.data(s)
        also = [name for name in self.also if name in set(shown["series"])]

        def why(row, column):
            own = [key for key in keys if key[:2] == (row, column)]
            return why_none(found, own, self.applies(row, column))

        rows = dict.fromkeys(row for (row, *_), one in zip(keys, ended) if one)
        compare = compared(tables, shown, rows, self.shown(s), self.data(s), also, why, self.ours)
        points = by_point(only(tables["tidy"], **self.where))
        return {**tables, "compare": compare, "points": points, "ranks": ranks(tables, self.where), "cells": shown}

    def data(self, s: dict) -> tuple[str, str]:
        """The names of the paper's data set, and of ours, "" where columns name their own."""
        return self.dataset(s) or "", s.get("dataset", "")

    def printed(self, s: dict) -> pd.DataFrame:
        """The paper's readable cells that belong to a row and a column: row, column, value, std. Where columns are of
        several data sets, a column may have the name of its own in front."""
        shown = self.shown(s)

        def column_of(cell: pd.Series) -> str | list[str]:
            name = self.column_of(cell)
            return list(shown) if name == EVERY else name if name in shown else f"{cell['dataset']}, {name}"

        places = [(self.paper, number) if isinstance(number, str) else number for number in self.numbers]
        if not places:
            return pd.DataFrame(columns=["row", "column", "value", "std"])
        cells = pd.concat([paper_table(*place) for place in places])
        cells = cells.dropna(subset=["value", "dataset"])
        cells = cells if self.dataset(s) is None else only(cells, dataset=self.dataset(s))
        places = {"row": self.row_of, "column": column_of}
        cells = cells.assign(
            **{name: [of(cell) for _, cell in cells.iterrows()] for name, of in places.items()}
        ).explode("column")
        own = cells["row"].isin(self.rows(s)) & cells["column"].isin(shown)
        return cells[own][["row", "column", "value", "std"]].drop_duplicates(["row", "column"], ignore_index=True)

    def as_printed(self, s: dict) -> dict[str, pd.DataFrame]:
        """The paper's own numbers in place of ours, as exact ones: what a claim says to these tests the claim."""
        printed = self.printed(s)
        tidy = printed[["row", "column"]].assign(accuracy=printed["value"] / 100, headline=True, **self.where)
        return {"tidy": tidy, "_printed": printed}

    def item(self, **about) -> Item:
        """The table as an item; about: what is to be said of it, and what is otherwise."""
        given = {"runs": self.runs, "analyse": self.analyse, "partial": True, "table": self if self.numbers else None}
        named = {"series": {"ours": self.ours}}
        given |= {"shown": EXTRAS, "figure": lambda t: figures.accuracies(t["cells"].replace(named), self.paper)}
        return Item(**given | about)
