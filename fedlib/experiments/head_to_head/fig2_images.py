"""Figure 2: accuracy against images per client, and where each method stops paying."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from fedlib import figures
from fedlib.analysis.accuracies import columns_read, differences
from fedlib.claims import below, ours
from fedlib.claims.checks import changes, gap
from fedlib.experiments.head_to_head import task
from fedlib.experiments.head_to_head.table2_accuracy import beside_others
from fedlib.experiments.head_to_head.task import FOUR, SUP
from fedlib.experiments.item import Found, Tables, per_profile

TITLE = "{} images".format
BASES = ("local", "fedavg_ft")
GAP = {"difference": "lead", "low": "lead_low", "high": "lead_high"}  # over local-only training


def with_images(s: dict, column: str) -> dict:
    """FedSimSup's task, in which all clients have two classes and equally much: so many training images each (without
    the validation part), and always as many test images."""
    own, n = task.with_rates(s, SUP), int(column.split()[0])
    each = n / (1 - s["holdout"]) + s["tests"]
    return own | {"images": round(own["num_clients"] * each), "test_fraction": s["tests"] / each}


CURVE = replace(
    task.TABLE, task=with_images, columns=lambda s: tuple(TITLE(n) for n in s["sizes"]), numbers=(),
    applies=lambda row, column: task.runs_in(row, SUP),
)  # fmt: skip


def analyse(s: dict, found: Found) -> Tables:
    """Besides the accuracies: pays, up to how many images each method is above local-only training and above FedAvg +
    FT."""
    tables = CURVE.analyse(s, found)
    shown = tables["cells"]
    shown = shown.assign(images=shown["column"].str.split().str[0].astype(int))
    rows = dict.fromkeys(shown["row"])
    leads = [differences(tables, row, "local")[0][["column", *GAP]].assign(row=row) for row in rows if row != "local"]
    over = pd.concat([pd.DataFrame(columns=["column", *GAP, "row"]), *leads]).rename(columns=GAP)
    return {**tables, "cells": shown.merge(over, "left", ["column", "row"]), "pays": pays(tables)}


def pays(tables) -> pd.DataFrame:
    """One row a method: up to how many images it is above local-only training, and above FedAvg+FT, with every
    smaller size; "inconclusive" where an interval reaches 0, from there on nothing is said."""
    sizes = columns_read(tables)
    return beside_others(tables, BASES, lambda row, base: _up_to(differences(tables, row, base)[0], sizes))


def _up_to(found: pd.DataFrame, sizes: Sequence[str]) -> str:
    """The last of the sizes, from the smallest on, at which a difference is above 0, and what comes then."""
    last, ends = "", found.set_index("column")[["low", "high"]].reindex(sizes)
    for at, low, high in ends.itertuples():
        if not low > 0:
            known = low > -np.inf
            then = "below it" if high < 0 else "inconclusive" if known else "no CI (one seed)"
            then = "not run" if low != low else then
            return f"up to {last}; {then} at {at}" if last else f"not at {at} ({then})" if known else then
        last = at
    return f"up to {last}, the most"


def at_end(which: int, check):
    """A check in the first column, of fewest images, or in the last."""
    return lambda tables: check(columns=columns_read(tables)[which:][:1])(tables)


ITEM = CURVE.item(
    title="Head to head, Figure 2: images per client",
    claim="The fewer images clients have, the more they gain from collaboration.",
    smaller_reduced=f"{task.SHORT}; {task.SEEDS}; 20, 50 and 200 training images per client (`paper`: 20 to 500)",
    smaller=f"{task.SMALLER('10 clients in 9')}{task.ONE_SEED}; 10 to 80 training images per client (`paper`: 20 to "
    "500), 40 for testing (100)",
    settings=per_profile(
        task.SETTINGS, sizes=[("10",), ("10", "40", "80"), ("20", "50", "100", "200", "500")], tests=[40, 40, 100],
        reduced={"sizes": ("20", "50", "200")},
    ),
    minutes={"smoke": 0.1, "quick": 0.4, "reduced": 200, "paper": 3000},
    analyse=analyse,
    figure=lambda tables: figures.by_images(tables["cells"]),
    shown={"pays": "Up to how many training images a method outperforms local-only training and FedAvg+FT"},
    claims=(
        ours("The lead of the best of the four papers' methods over local-only training falls from the fewest images "
             "to the most.", changes({"best of the four papers' methods":
                 lambda m: m[list(FOUR)].max(axis=1, skipna=False) - m["local"]}, -1, (*FOUR, "local"))),
        ours("The lead of FedAvg+FT over local-only training falls from the fewest images to the most.",
             changes({"FedAvg+FT": gap("fedavg_ft", ["local"])}, -1, ("fedavg_ft", "local"))),
        ours("With the fewest images, each of the four papers' methods and FedAvg+FT outperform local-only training.",
             at_end(0, lambda columns: below(["local"], (*FOUR, "fedavg_ft"), columns=columns))),
        ours("With the most images, too, each of the papers' methods and FedAvg+FT outperform local-only training.",
             at_end(-1, lambda columns: below(["local"], (*FOUR, "fedavg_ft"), columns=columns))),
    ),
)  # fmt: skip
