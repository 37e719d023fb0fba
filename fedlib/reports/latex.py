"""An item's table in LaTeX, for a paper: with the package `booktabs`, one decimal, names as papers write them."""

from __future__ import annotations

import numpy as np
import pandas as pd

from fedlib.analysis.names import proper, titled
from fedlib.analysis.uncertainty import units
from fedlib.experiments import OpenItem
from fedlib.reports.report import than_in

SPECIAL = str.maketrans(
    {letter: f"\\{letter}" for letter in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": "$<$", ">": "$>$"}
    | {"σ": r"$\sigma$", "ε": r"$\varepsilon$", "δ": r"$\delta$", "ν": r"$\nu$", "∅": r"$\emptyset$", "≥": r"$\geq$"}
)


def latex(opened: OpenItem) -> str:
    """Accuracies with half the width of their 95 % CI, ours and the paper's, the best of a column in bold; of an item
    of another kind the comparison with its paper. The caption says how many seeds, and what is smaller than there."""
    smaller = opened.item.smaller_at(opened.profile)
    notes = [opened.item.title, f"n: {units(opened.tables)}" if units(opened.tables) else ""]
    caption = ". ".join(filter(None, [*notes, f"{than_in(opened.item.name)}: {smaller}" if smaller else ""]))
    frame = _accuracies(opened.tables["cells"]) if opened.item.table else _texts(opened.compare())
    label = f"tab:{opened.item.name.replace('/', ':')}"
    style = {"hrules": True, "position_float": "centering", "multicol_align": "c"}
    return frame.style.to_latex(caption=f"{escaped(caption)}.", label=label, **style)


def escaped(text) -> str:
    """Text in which LaTeX reads every letter as itself."""
    return str(text).translate(SPECIAL)


def _accuracies(cells: pd.DataFrame) -> pd.DataFrame:
    """Accuracies as text: rows by columns and series."""
    made: dict[tuple[str, str], dict[str, str]] = {}
    for (column, series), own in cells.groupby(["column", "series"], sort=False):
        best = own["mean"].round(1).max()
        texts = made[escaped(titled(column)), escaped(series)] = {}
        for cell in own.dropna(subset=["mean"]).itertuples():
            text, half = f"{cell.mean:.1f}", (cell.high - cell.low) / 2
            text = rf"\textbf{{{text}}}" if round(cell.mean, 1) == best else text
            texts[escaped(proper(cell.row))] = rf"{text} $\pm$ {half:.1f}" if np.isfinite(half) and half > 0 else text
    names = list(dict.fromkeys(escaped(proper(row)) for row in cells["row"]))
    return pd.DataFrame(made, index=names, columns=pd.MultiIndex.from_tuples(made)).fillna("--")


def _texts(compare: pd.DataFrame) -> pd.DataFrame:
    """A comparison with one decimal, its first column as names of the rows."""
    texts = compare.map(lambda v: escaped(f"{v:.1f}" if isinstance(v, float) else v))
    return texts.rename(columns=escaped).set_index(escaped(compare.columns[0]))
