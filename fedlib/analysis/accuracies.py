"""Accuracies by column and row of a table, with their intervals, beside printed ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd

from fedlib.analysis.tables import only
from fedlib.analysis.uncertainty import Interval, draws, shared_seeds


def means(tables: Mapping[str, pd.DataFrame], **where) -> pd.DataFrame:
    """Accuracies in percent by (column, row), [1 + DRAWS, cells]: the estimate first, then its draws.

    where: columns of "tidy"; at the headline point if no point is named. Of printed numbers, which have no seed,
    there is the estimate only.
    """
    rows = chosen(tables, where)
    if "seed" not in rows or rows.empty:
        return 100 * rows.set_index(["column", "row"])["accuracy"].to_frame().T.reset_index(drop=True)
    return 100 * draws(rows, "accuracy", ["column", "row"])


def chosen(tables: Mapping[str, pd.DataFrame], where: Mapping) -> pd.DataFrame:
    """The rows of "tidy" that `means` is of, none where it lacks a column."""
    where, frame = where if "point" in where else {"headline": True, **where}, tables["tidy"]
    return only(frame, **where) if set(where) <= set(frame.columns) else frame[:0]


def in_common(tables: Mapping[str, pd.DataFrame], rows: Sequence[str] = ()) -> dict[str, pd.DataFrame]:
    """The tables with, of every column, only the seeds that all of these rows (default: all) were run with.

    Rows are compared on the same seeds: a mean over three partitions says nothing beside one over the first of them.
    """
    frame = tables["tidy"]
    if "seed" not in frame:
        return dict(tables)
    asked = frame[frame["row"].isin(rows)] if rows else frame
    shared = {column: shared_seeds(own, "row") for column, own in asked.groupby("column", sort=False)}
    kept = [seed in shared.get(column, (seed,)) for column, seed in zip(frame["column"], frame["seed"])]
    return {**tables, "tidy": frame[np.array(kept, dtype=bool)]}


def columns_read(tables: Mapping[str, pd.DataFrame], **where) -> list[str]:
    """The planned columns ("_columns"), so that some do not stand for all; else those read. where: as in `means`."""
    return list(dict.fromkeys(tables.get("_columns", chosen(tables, where))["column"]))


def without(found: pd.DataFrame, needs: Sequence[str], columns: Sequence[str], shared: object = "") -> str:
    """Which rows were not run (shared: on the seeds that `found` is restricted to), and in which columns (or in how
    many); an empty text if all were."""
    columns, gone = list(dict.fromkeys(columns)), {}
    for row in dict.fromkeys(needs):
        gone.setdefault(tuple(c for c in columns if (c, row) not in found.columns), []).append(row)
    texts = []
    for which, rows in gone.items():
        names = "; ".join(which) if len(which) < 3 else f"{len(which)} of {len(columns)} settings"
        where = f" ({'each ' * (len(rows) > 1)}in {names})" if len(which) < len(columns) else ""
        texts += [f"{', '.join(rows)}{where}"] if which else []
    return f"missing runs{' (or none on shared seeds)' if shared else ''}: {', '.join(texts)}" if texts else ""


def best_first(m: pd.DataFrame, among: Sequence[str] = ()) -> pd.DataFrame:
    """Draws by row in the order of their estimates, of all rows that were run, or of these."""
    rows = m.iloc[0].dropna().sort_values(ascending=False, kind="stable").index
    return m[[row for row in rows if not among or row in among]]


def correlation(m: pd.DataFrame, printed: pd.Series) -> pd.Series:
    """Spearman's rank correlation of every draw with the printed numbers; NaN where a row's mean is."""
    ours, theirs = m.rank(axis=1).to_numpy(), printed[m.columns].rank().to_numpy()
    ours, theirs = ours - ours.mean(1, keepdims=True), theirs - theirs.mean()
    norms = np.linalg.norm(ours, axis=1) * np.linalg.norm(theirs)
    return pd.Series(ours @ theirs / np.where(norms > 0, norms, np.nan)).where(m.notna().all(axis=1))


def differences(tables: Mapping[str, pd.DataFrame], row: str, other: str, **where) -> tuple[pd.DataFrame, pd.DataFrame]:
    """A row minus another one, for every column that has both: column, both means, difference, low, high, seeds (how
    many they share; 0 of what is printed); and the draws by column. where: as in `means`."""
    shared = in_common(tables, (row, other))
    found, rows, lines, gaps = means(shared, **where), chosen(shared, where), [], {}
    seeds = rows[rows["row"] == row].groupby("column")["seed"].nunique() if "seed" in rows else {}
    for column in found.columns.unique(0):
        if not without(found, [row, other], [column]):
            a, b = found[column][row], found[column][other]
            interval = Interval.of(gaps.setdefault(column, a - b)).row
            lines.append((column, a[0], b[0], *interval, seeds.get(column, 0)))
    names = ["column", row, other, "difference", "low", "high", "seeds"]
    return pd.DataFrame(lines, columns=names), pd.DataFrame(gaps)


def cells(tables: Mapping[str, pd.DataFrame], where: Mapping, also: Mapping[str, Mapping]) -> pd.DataFrame:
    """One row a series, column and row: mean, low, high in percent; seeds of ours, std of the paper's.

    Series are "ours" (rows of "tidy" that are `where`), others by title (`also`), and "paper", the table "_printed",
    whose ends are a printed std away; without one there are none.
    """
    lines = []
    for series, these in {"ours": where, **also}.items():
        seeds = chosen(tables, these).groupby(["column", "row"])["seed"].nunique()
        for key, values in means(tables, **these).items():
            lines.append((series, *key, *Interval.of(values).row, seeds[key], np.nan))
    for row, column, value, std in tables["_printed"].itertuples(index=False):
        lines.append(("paper", column, row, value, value - std, value + std, np.nan, std))
    return pd.DataFrame(lines, columns=["series", "column", "row", "mean", "low", "high", "seeds", "std"])


def compared(
    tables: Mapping[str, pd.DataFrame],
    shown: pd.DataFrame,
    rows: Sequence[str],
    columns: Sequence[str],
    data: tuple[str, str],
    also: Sequence[str],
    why_none: Callable[[str, str], str] = lambda row, column: "not run",
    named: str = "ours",
) -> pd.DataFrame:
    """Paper | ours | difference in percent, of what `cells` gives; ours with its 95 % interval and the number of seeds.

    rows: those of which any run ended, if only by diverging. data: names of the paper's data set and of ours ("" where
    columns name their own); on other data there is no difference to be shown. Where the paper has no number of a
    column, ours stand alone. also: other series. why_none: why a row has no result in a column. named: what ours are.
    """
    found = {key: cell for key, cell in zip(zip(shown["series"], shown["column"], shown["row"]), shown.itertuples())}
    printed = {column for series, column, _ in found if series == "paper"}
    points, lines = only(tables["tidy"], headline=True).groupby("row", sort=False)["point"].first(), []
    for row in rows:
        line = {"method": row, "evaluated at": points.get(row, "")}
        for column in columns:
            ours, paper = found.get(("ours", column, row)), found.get(("paper", column, row))
            if column in printed:
                std = f" ({paper.std:.2f})" if paper and paper.std == paper.std else ""
                line[f"{column}: paper{data[0] and ', '}{data[0]}"] = f"{paper.mean:.2f}{std}" if paper else ""
            line[f"{column}: {named}{data[1] and ', '}{data[1]}"] = in_cell(ours) or why_none(row, column)
            if column in printed and data[1] in (data[0], ""):
                line[f"{column}: difference"] = f"{ours.mean - paper.mean:+.2f}" if ours and paper else ""
            other = "does not apply" if ours else why_none(row, column)  # tested, but not so
            line |= {f"{column}: {title}": in_cell(found.get((title, column, row))) or other for title in also}
        lines.append(line)
    return pd.DataFrame(lines, columns=None if lines else ["method", "evaluated at"])


def folded(compare: pd.DataFrame, not_run: Mapping[str, str]) -> pd.DataFrame:
    """A comparison without the columns of which no run is stored; one row names them.

    not_run: their data sets, by column.
    """
    if not not_run:
        return compare
    kept = [name for name in compare if not any(name.startswith(f"{column}: ") for column in not_run)]
    said = (column if dataset in column else f"{column} ({dataset})" for column, dataset in not_run.items())
    row = dict.fromkeys(kept, "") | {kept[0]: f"not run: {'; '.join(said)}"}
    return pd.concat([compare[kept], pd.DataFrame([row])], ignore_index=True)


def in_cell(cell) -> str:
    """ "84.30 [82.1, 86.4] (n=3)", n: seeds, "84.30 (n=1)"; nothing for none."""
    if cell is None:
        return ""
    ends = f" [{cell.low:.1f}, {cell.high:.1f}]" if np.isfinite(cell.low) else ""
    return f"{cell.mean:.2f}{ends} (n={cell.seeds:.0f})"


def ranks(tables: Mapping[str, pd.DataFrame], where: Mapping) -> pd.DataFrame:
    """Spearman's rank correlation of our means with the printed cells: column, rows, rank_correlation, low, high.
    Columns without a printed cell are left out."""
    found, lines = means(in_common(tables), **where), []
    for column in found.columns.unique(0):
        paper = only(tables["_printed"], column=column).set_index("row")["value"]
        known = [row for row in found[column] if row in paper.index]
        rank = Interval.of(correlation(found[column][known], paper)).row if len(known) > 2 else (np.nan,) * 3
        lines += [(column, len(known), *rank)] if known else []
    return pd.DataFrame(lines, columns=["column", "rows", "rank_correlation", "low", "high"])


def by_point(tidy: pd.DataFrame) -> pd.DataFrame:
    """Mean accuracy in percent of every row at every point that was evaluated."""
    if tidy.empty:
        return pd.DataFrame(columns=["method", "point"])
    wide = 100 * tidy.groupby(["row", "point", "column"], sort=False)["accuracy"].mean().unstack()
    return wide[list(dict.fromkeys(tidy["column"]))].round(2).reset_index().rename(columns={"row": "method"})
