"""What an item leaves behind: its figure, its tables, its claims and where they come from.

What a user makes lies beside what is published: tables in results/own/<profile>/ and figures in figures/own/<profile>/,
in the same order as in results/<profile>/ and figures/<profile>/, which come with fedlib and change only when somebody
publishes. Runs are in results/<profile>/runs in any case: they are called by what they are, and nothing overwrites one.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from fedlib.analysis.names import proper, titled
from fedlib.analysis.uncertainty import units
from fedlib.base.files import write_atomically
from fedlib.base.provenance import provenance
from fedlib.claims import Claim, Verdict
from fedlib.engine.result import RunResult
from fedlib.experiments import OpenItem
from fedlib.figures.base import as_everywhere, png
from fedlib.reports.report import ORIGINS, than_in

OWN = "own"  # folder of what a user makes, under results/ and figures/
FORMATS = ("png", "pdf", "svg", "tex")  # of figures, and of tables; PNG is always written, for the report shows it
PASSING = ("date", "shared_rounds", "load")  # of one run only, however alike many are


def place_of(opened: OpenItem, publish: bool = False) -> str:
    """The folder under results/ and figures/ to which an item's tables and figure go."""
    return opened.place if publish else f"{OWN}/{opened.place}"


def save(opened: OpenItem, publish: bool = False, formats: Sequence[str] = ()) -> dict:
    """Write figure, tables and claims under figures/ and results/, beside what is published, or in its place; returns
    what the report needs. The table ORIGINS has a row for each run.
    formats: those of FORMATS that are written besides."""
    item, (paper, stem), place = opened.item, opened.item.name.split("/"), place_of(opened, publish)
    folder = opened.root / "results" / place / paper
    origins = _origins(opened)
    _write_tables(_tables(opened, origins), folder, stem)
    picture = opened.root / "figures" / place / paper / f"{stem}.png"
    there = _draw(opened, picture, formats)
    if "tex" in formats:
        write_atomically(folder / f"{stem}.tex", latex(opened).encode())
    summary = {
        "item": item.name,
        "title": item.title,
        "profile": opened.profile,
        "changed": opened.changed,
        "settings": opened.settings,
        "data": sorted({spec.dataset for spec in opened.specs if opened.store.path(spec).exists()}),
        "seeds": units(opened.tables),
        "claims": [_claim(claim, v, *said) for (claim, v), said in zip(opened.checked, opened.verdicts())],
        "runs": [spec.id for spec in opened.specs],
        "missing": opened.missing,
        "diverged": [spec.title for spec in opened.diverged],
        "provenance": origins,
        "figure": picture.relative_to(opened.root).as_posix() if there else "",
        "shown": item.shown,
        "answer": opened.answer(),
    }
    write_atomically(folder / f"{stem}.json", (json.dumps(summary, indent=1) + "\n").encode())
    return summary


def _draw(opened: OpenItem, picture: Path, formats: Sequence[str]) -> bool:
    """Write the figure as `picture` and in other formats beside it; the same figure is the same bytes. Without anything
    to show yet there is no file, and False is returned."""
    with as_everywhere({"svg.hashsalt": opened.item.name, "svg.fonttype": "none", "pdf.fonttype": 42}):
        figure = opened.figure()
        if figure is None:
            picture.unlink(missing_ok=True)
            return False
        write_atomically(picture, png(figure))
        for kind, unstamped in {"pdf": {"CreationDate": None}, "svg": {"Date": None}}.items():
            if kind in formats:
                figure.savefig(picture.with_suffix(f".{kind}"), metadata=unstamped, facecolor="white")
    return True


def _write_tables(tables: dict[str, pd.DataFrame], folder: Path, stem: str) -> None:
    """Write an item's tables, and remove those that it had before and has no longer."""
    names = {f"{stem}.csv" if name == "tidy" else f"{stem}.{name}.csv": frame for name, frame in tables.items()}
    for name, frame in names.items():
        write_atomically(folder / name, frame.to_csv(index=False, float_format="%.6g").encode())
    for path in folder.glob(f"{stem}.*csv"):
        if path.name not in names:
            path.unlink()


def _tables(opened: OpenItem, origins: list[dict]) -> dict[str, pd.DataFrame]:
    """The tables that are kept, and as ORIGINS `runs_of` with the keys by which the item calls its runs."""
    tables = {name: frame for name, frame in opened.tables.items() if not name.startswith("_")}
    if not opened.specs:
        return tables
    number = [origins.index(_lasting(r.provenance)) for r in opened.results]  # in the summary's "provenance", from 0
    called: dict[str, list[str]] = {}
    for key, spec in opened.runs.items():
        called.setdefault(spec.id, []).append(", ".join(parts(key)))
    keys = [" | ".join(called[r.spec.id]) for r in opened.results]
    return {**tables, ORIGINS: runs_of(opened.results).assign(origin=number, keys=keys)}


def parts(key: Hashable) -> list[str]:
    """The parts of a run's key, as texts: of ("fedavg", "Dir(0.1)", 0) three."""
    return [text for part in key for text in parts(part)] if isinstance(key, tuple) else [str(key)]


def runs_of(results: Sequence[RunResult]) -> pd.DataFrame:
    """One row a run: run (its id), label, seed, status, partition (checksum), data (checksum), date, load, seconds;
    pooled, client_mean: the accuracy after the last round in percent, empty for an attack and a run that diverged."""
    return pd.DataFrame(
        {
            "run": r.spec.id,
            "label": r.spec.label,
            "seed": r.spec.seed,
            "status": r.status,
            "partition": r.partition.get("checksum", ""),
            "data": r.partition.get("data", ""),
            "date": r.provenance.get("date", ""),
            "load": r.provenance.get("load", ""),
            "seconds": r.seconds.get("wall", ""),
            **{name: f"{100 * r.final(name):.2f}" if r.last else "" for name in ("pooled", "client_mean")},
        }
        for r in results
    )


def _claim(claim: Claim, found: Verdict, text: str, said: Verdict) -> dict:
    """A claim as it is kept; found: with its margins, said: in the words that fit the data."""
    entry = {"claim": text, "kind": claim.kind, "verdict": said.status, "status": found.status}
    entry |= {"evidence": said.evidence, "over": said.over, "unit": found.unit, "equal": found.equal}
    entry |= {} if found.power is None else {"power": round(found.power, 3), "chance": round(found.chance, 3)}
    closest = found.closest
    return entry | ({"margin": [round(end, 4) for end in closest.row]} if closest and closest.known else {})


def _origins(opened: OpenItem) -> list[dict]:
    """The distinct origins of the runs, without what is of one run only; this process, where there are none."""
    kept = [_lasting(r.provenance) for r in opened.results] or [_lasting(provenance(torch.device("cpu"), "none"))]
    return [json.loads(text) for text in sorted({json.dumps(origin, sort_keys=True) for origin in kept})]


def _lasting(origin: dict) -> dict:
    return {name: value for name, value in origin.items() if name not in PASSING}


# a table in LaTeX -----------------------------------------------------------------------------------------------------

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
    if opened.item.table:
        frame = _accuracies(opened.tables["cells"])
    else:  # with one decimal, the first column as names of the rows
        frame = opened.compare().map(lambda v: escaped(f"{v:.1f}" if isinstance(v, float) else v))
        frame = frame.rename(columns=escaped).set_index(escaped(opened.compare().columns[0]))
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
