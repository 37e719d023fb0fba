"""A table of accuracies: rows (methods and their variants) by columns (tasks), each cell a mean over seeds, beside the paper's.

Runs, comparison, ranks and figure follow from rows and columns; what is left to say are the claims.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from fedlib import figures
from fedlib.analysis.readings import Reading, last_round
from fedlib.analysis.tables import only
from fedlib.analysis.uncertainty import Interval
from fedlib.data.partition import parameters_of
from fedlib.engine.result import RunResult
from fedlib.experiments.claims import correlation, means
from fedlib.experiments.item import Item
from fedlib.experiments.paper_numbers import paper_table
from fedlib.models import options_of
from fedlib.spec import RunSpec

RUN_FIELDS = {f.name for f in dataclasses.fields(RunSpec)}


def run_spec(task: dict, method: str, **row) -> RunSpec:
    """A run of a task. task: fields of the run, parameters of its scheme, options of its model; what else it has is not the run's.

    row: fields of the run, or hyper-parameters of the method.
    """
    fields = {name: value for name, value in {**task, **row}.items() if name in RUN_FIELDS}
    nested = {
        "partition": parameters_of(fields.get("scheme", "dirichlet")),
        "model_options": options_of(fields.get("model", "lenet5_bn")),
    }
    for name, known in nested.items():
        fields[name] = {key: task[key] for key in known if key in task} | fields.get(name, {})
    return RunSpec(method, hyper={name: value for name, value in row.items() if name not in RUN_FIELDS}, **fields)


@dataclass(frozen=True)
class AccuracyTable:
    """A printed table. task: what a run of a column is, of settings and column (see `run_spec`); rows: by name the method with its
    hyper-parameters or fields of the run, of the settings; row_of, column_of: where a printed cell belongs (None: nowhere)."""

    paper: str
    numbers: tuple[str, ...]  # of the printed tables; a cell that is in several counts once
    columns: tuple[str, ...] | Callable[[dict], tuple[str, ...]]  # of the settings, where they differ
    task: Callable[[dict, str], dict]
    rows: Callable[[dict], dict[str, dict]]
    column_of: Callable[[pd.Series], str | None]
    row_of: Callable[[pd.Series], str | None] = lambda cell: cell["method"]
    read: Callable[[RunResult, str], list[Reading]] = last_round()  # of a run, for a column
    where: dict = field(default_factory=dict)  # of what `read` gives, that which is compared
    also: dict[str, dict] = field(default_factory=dict)  # other accuracies that are shown beside it, by title
    dataset: Callable[[dict], str | None] = lambda s: (
        "cifar10"
    )  # the paper's that ours is put beside; None: a column names its own
    seeded: tuple[str, ...] = ("seed",)  # fields of the run that vary with the seed

    def shown(self, s: dict) -> tuple[str, ...]:
        """The columns at these settings."""
        return self.columns(s) if callable(self.columns) else self.columns

    def runs(self, s: dict) -> dict[tuple[str, str, int], RunSpec]:
        """The runs by row, column and seed."""
        return {
            (row, column, seed): run_spec({**self.task(s, column), **dict.fromkeys(self.seeded, seed)}, **how)
            for seed in range(s["seeds"])
            for column in self.shown(s)
            for row, how in self.rows(s).items()
        }

    def analyse(self, s: dict, results: Sequence[RunResult]) -> dict[str, pd.DataFrame]:
        """tidy: one row a run and what is read of it; compare: paper | ours | difference; points; ranks; cells: what the figure shows."""
        found, tidy, clients = {r.spec.id: r for r in results}, [], []
        for (row, column, seed), spec in self.runs(s).items():
            for read in self.read(found[spec.id], column) if spec.id in found else ():
                about = {
                    "column": column,
                    "row": row,
                    "seed": seed,
                    "point": read.point,
                    "headline": read.headline,
                    **read.about,
                }
                tidy.append({**about, "accuracy": read.accuracy})
                bare = read.values is None
                values, weights = ([read.accuracy], [1.0]) if bare else (read.values, read.weights)
                own = {"client": [np.nan] if bare else range(len(values)), "accuracy": values, "weight": weights}
                clients.append(pd.DataFrame(own).assign(**about))
        tables = {
            "tidy": pd.DataFrame(tidy),
            "_clients": pd.concat(clients, ignore_index=True),
            "_printed": self.printed(s),
        }
        cells = self.cells(s, tables)
        return {**tables, "compare": self.compared(s, tables["tidy"], cells), "points": by_point(only(tables["tidy"], **self.where)),
                "ranks": self.ranks(tables), "cells": cells}  # fmt: skip

    def printed(self, s: dict) -> pd.DataFrame:
        """The paper's readable cells that belong to a row and a column: row, column, value, std."""
        cells = pd.concat([paper_table(self.paper, number) for number in self.numbers]).dropna(
            subset=["value", "dataset"]
        )
        cells = cells if self.dataset(s) is None else only(cells, dataset=self.dataset(s))
        places = {"row": self.row_of, "column": self.column_of}
        cells = cells.assign(**{name: [of(cell) for _, cell in cells.iterrows()] for name, of in places.items()})
        own = cells["row"].isin(self.rows(s)) & cells["column"].isin(self.shown(s))
        return cells[own][["row", "column", "value", "std"]].drop_duplicates(["row", "column"], ignore_index=True)

    def as_printed(self, s: dict) -> dict[str, pd.DataFrame]:
        """The paper's own numbers in place of ours, as exact ones: what a claim says to these tests the claim."""
        printed = self.printed(s)
        tidy = printed[["row", "column"]].assign(accuracy=printed["value"] / 100, headline=True, seed=0, **self.where)
        return {"tidy": tidy, "_printed": printed}

    def cells(self, s: dict, tables: dict[str, pd.DataFrame]) -> pd.DataFrame:
        """One row a column, row and series ("ours", `also`, "paper"): mean, low, high in percent, and seeds.

        The paper's ends are a printed std away; without one there are none.
        """
        lines = []
        for series, where in {"ours": self.where, **self.also}.items():
            found, seeds = (
                means(tables, **where),
                only(tables["tidy"], headline=True, **where).groupby(["column", "row"])["seed"].nunique(),
            )
            for (column, row), values in found.items():
                i = Interval.of(values)
                lines.append((column, row, series, i.value, i.low, i.high, seeds[column, row]))
        for cell in tables["_printed"].itertuples():
            lines.append(
                (cell.column, cell.row, "paper", cell.value, cell.value - cell.std, cell.value + cell.std, np.nan)
            )
        return pd.DataFrame(lines, columns=["column", "row", "series", "mean", "low", "high", "seeds"])

    def compared(self, s: dict, tidy: pd.DataFrame, cells: pd.DataFrame) -> pd.DataFrame:
        """Paper | ours | difference in percent; ours with its 95 % interval and the number of seeds."""
        found, lines = cells.set_index(["series", "column", "row"]), []
        stds = self.printed(s).set_index(["column", "row"])["std"]
        paper_data, our_data = self.dataset(s) or "its data", s.get("dataset", "the same")
        for row in dict.fromkeys(tidy["row"]):
            line = {"method": row, "tested at": only(tidy, row=row, headline=True)["point"].iloc[0]}
            for column in self.shown(s):
                ours, paper = (
                    found.loc[key] if (key := (series, column, row)) in found.index else None
                    for series in ("ours", "paper")
                )
                line[f"{column}: paper, {paper_data}"] = (
                    "" if paper is None else with_std(paper["mean"], stds[column, row])
                )
                line[f"{column}: ours, {our_data}"] = in_cell(ours)
                both = ours is not None and paper is not None
                line[f"{column}: difference"] = f"{ours['mean'] - paper['mean']:+.2f}" if both else ""
                for title in self.also:
                    line[f"{column}: {title}"] = in_cell(
                        found.loc[title, column, row] if (title, column, row) in found.index else None
                    )
            lines.append(line)
        return pd.DataFrame(lines)

    def ranks(self, tables: dict[str, pd.DataFrame]) -> pd.DataFrame:
        """Spearman's rank correlation of our means with the paper's cells: column, rows, rank_correlation, low, high."""
        found, lines = means(tables, **self.where), []
        for column in found.columns.unique(0):
            paper = only(tables["_printed"], column=column).set_index("row")["value"]
            known = [row for row in found[column] if row in paper.index]
            i = (
                Interval.of(correlation(found[column][known], paper))
                if len(known) > 2
                else Interval(np.nan, np.nan, np.nan)
            )
            lines.append((column, len(known), i.value, i.low, i.high))
        return pd.DataFrame(lines, columns=["column", "rows", "rank_correlation", "low", "high"])

    def item(self, more: Callable[[dict], list[RunSpec]] = lambda s: [], **about) -> Item:
        """The table as an item; more: runs of other tables that its claims look at."""
        given = {
            "specs": lambda s: [*self.runs(s).values(), *more(s)],
            "analyse": self.analyse,
            "partial": True,
            "figure": lambda tables: figures.accuracies(tables["cells"]),
            "table": self,
        }
        return Item(**given | about)


def with_std(value: float, std: float) -> str:
    """ "84.30 (0.81)", as printed."""
    return f"{value:.2f}" + (f" ({std:.2f})" if std == std else "")


def in_cell(cell: pd.Series | None) -> str:
    """ "84.30 [82.1, 86.4] (n=1)", n: seeds; "not run" for none."""
    if cell is None:
        return "not run"
    interval = Interval(cell["mean"], cell["low"], cell["high"]).text(".1f")
    return f"{cell['mean']:.2f}{interval[interval.find(' [') :]} (n={cell['seeds']:.0f})"


def by_point(tidy: pd.DataFrame) -> pd.DataFrame:
    """Mean accuracy in percent of every row at every point that was evaluated."""
    wide = 100 * tidy.groupby(["row", "point", "column"], sort=False)["accuracy"].mean().unstack()
    return wide[list(dict.fromkeys(tidy["column"]))].round(2).reset_index().rename(columns={"row": "method"})
