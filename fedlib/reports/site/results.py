"""All numbers of all items in one table, one row a number: results.csv and results.json."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Iterator, Mapping

import pandas as pd

from fedlib.analysis.run_ids import COLUMN
from fedlib.reports.site.facts import Saved, Shown

COLUMNS = {
    "paper": "pfedsim, fedsimsup, pfedcs, pfedsv, or head_to_head, our own comparison of them",
    "item": "the table or figure: fedlib reproduce ITEM makes it",
    "profile": "the scale, with changed settings behind a +",
    "dataset": "that we used; the paper's number may be of another one",
    "method": "the row of the table: a method, often with its options",
    "setting": "the column of the table, such as Dir(0.1), and whatever else tells this number from others",
    "point": "which model was tested: glob, recv, agg, post or ft(K)",
    "seed": "of the run, or how many seeds a mean is over",
    "measure": "what the number is, as its table calls it",
    "value": "the number, as it is stored",
    "unit": "where it has one; accuracies of single runs are fractions, means over seeds percent",
    "low": "where the 95 % interval begins",
    "high": "where it ends; empty where one run says nothing of chance",
    "paper_value": "the number that the paper prints, in the same unit",
    "runs": "the beginnings of the ids of its runs: results/PROFILE/runs/ID*.json, where they are published",
    "table": "the stored table, results/PROFILE/TABLE.csv",
}
# columns that tell observations apart, though they are numbers
KEYS = {
    *("seed", "round", "rounds", "client", "other", "client_a", "client_b", "image", "class", "layer", "alpha"),
    *("sigma", "clients", "participants"),
}
UNITS = {"accuracy": "fraction", "client_mean": "fraction", "psnr": "dB", "seconds": "s a sample", "samples": "samples"}
METHOD = ("row", "method", "arm", "learner")  # columns that say what was run, the first that is there
SETTING = ("column", "task", "panel")
NUMBER = re.compile(r"-?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.I)

Row = dict[str, str]


def numbers(items: Mapping[str, Shown]) -> list[Row]:
    """Every number of the tables with one observation a row, and of tables of accuracies the means over seeds beside
    the paper's; columns: `COLUMNS`."""
    saved = [one for shown in items.values() for one in shown.saved.values()]
    return [row for one in saved for row in (*_means(one), *_observations(one))]


def _about(one: Saved, table: str) -> Row:
    item = one.item.name
    about = {"paper": item.split("/")[0], "item": item, "profile": one.place, "table": f"{item}{table}"}
    return dict.fromkeys(COLUMNS, "") | about | {"dataset": one.data}


def _means(one: Saved) -> Iterator[Row]:
    """Means over seeds of a table of accuracies, in percent, with the paper's beside them."""
    if not one.has("cells"):
        return
    cells = one.table("cells")
    if not {"series", "column", "row", "mean", "low", "high", "seeds"} <= set(cells):
        return
    printed = {(c["column"], c["row"]): c["mean"] for c in cells.to_dict("records") if c["series"] == "paper"}
    tested = tested_at(one.tidy)
    for cell in cells[cells["series"] != "paper"].to_dict("records"):
        column, row, more = cell["column"], cell["row"], cell["series"] if cell["series"] != "ours" else ""
        yield _about(one, ".cells") | {
            "method": row, "setting": f"{column}; {more}" if more else column, "point": tested.get(row, ""),
            "seed": f"mean of {cell['seeds']}", "measure": "accuracy", "value": cell["mean"], "unit": "%",
            "low": _finite(cell["low"]), "high": _finite(cell["high"]),
            "paper_value": "" if more else printed.get((column, row), ""),
            "runs": cell.get(COLUMN, ""),
        }  # fmt: skip


def tested_at(tidy: pd.DataFrame) -> Row:
    """By row of a table of accuracies, where its headline is tested."""
    known = {"row", "point", "headline"} <= set(tidy)
    return tidy[tidy["headline"] == "True"].groupby("row")["point"].first().to_dict() if known else {}


def _observations(one: Saved) -> Iterator[Row]:
    """The numbers of the table with one observation a row, each on its own."""
    frame = one.tidy
    measures = [c for c in frame if c not in {*KEYS, COLUMN} and all(_is_number(text) for text in frame[c].unique())]
    method = next((c for c in METHOD if c in frame), None)
    setting = next((c for c in SETTING if c in frame), None)
    told = [c for c in frame if c not in {*measures, method, setting, "seed", "point", "headline", "dataset", COLUMN}]
    for line in frame.to_dict("records"):
        own, column = line.get(method, ""), line.get(setting, "")
        more = [f"{c} = {line[c]}" for c in told if line[c] != ""]
        about = _about(one, "")
        about |= {
            "dataset": line.get("dataset", about["dataset"]), "method": own,
            "setting": "; ".join([column, *more] if column else more), "point": line.get("point", ""),
            "seed": line.get("seed", ""), "runs": line.get(COLUMN, ""),
        }  # fmt: skip
        for measure in measures:
            if line[measure] != "":
                yield about | {"measure": measure, "value": line[measure], "unit": UNITS.get(measure, "")}


def _is_number(text: str) -> bool:
    return text == "" or NUMBER.fullmatch(text) is not None


def _finite(text: str) -> str:
    return "" if text in ("inf", "-inf") else text


def results_csv(rows: list[Row]) -> bytes:
    """The rows as a CSV file."""
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue().encode()


def results_json(rows: list[Row]) -> bytes:
    """The rows as a JSON file: what the columns are, and rows as lists of numbers, texts and null, in their order."""
    numeric = [name in ("value", "low", "high", "paper_value") for name in COLUMNS]
    lines = ([_plain(text, own) for text, own in zip(row.values(), numeric)] for row in rows)
    listed = ",\n".join(json.dumps(line, ensure_ascii=False) for line in lines)
    return f'{{"columns": {json.dumps(COLUMNS, indent=1)},\n"rows": [\n{listed}\n]}}\n'.encode()


def _plain(text: str, number: bool):
    if text == "":
        return None
    return float(text) if number and math.isfinite(float(text)) else text
