"""The numbers that the papers print."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from fedlib.base.errors import BadValue


def paper_table(paper: str, table: str) -> pd.DataFrame:
    """The numbers that a paper prints, one row a cell, values in the printed unit; `variant` is split into columns.

    Raises BadValue for a table that there are no numbers of.
    """
    frame = pd.read_csv(_path(paper, table), dtype={"variant": str, "note": str})
    pairs = frame["variant"].fillna("").map(lambda v: dict(part.split("=", 1) for part in v.split(";") if part))
    return pd.concat([frame.drop(columns="variant"), pd.DataFrame(pairs.tolist(), index=frame.index)], axis=1)


def printed_cells(paper: str, table: str) -> pd.DataFrame:
    """A printed table that holds no numbers of methods, as texts. Raises BadValue as `paper_table`."""
    return pd.read_csv(_path(paper, table), dtype=str, keep_default_na=False)


def partition_of(cell: pd.Series) -> str:
    """How the data of a printed cell are divided, as names of columns say it: "Dir(0.1)" or "4 classes"."""
    value = f"{cell['partition_param']:g}"
    return f"Dir({value})" if cell["partition"] == "dirichlet" else f"{value} classes"


def _path(paper: str, table: str) -> Path:
    name = table if table.startswith("fig") else f"table{table}"
    path = Path(__file__).parent / "paper_tables" / f"{paper}_{name}.csv"
    if not path.exists():
        raise BadValue(f"there are no numbers of {paper} table {table} here")
    return path
