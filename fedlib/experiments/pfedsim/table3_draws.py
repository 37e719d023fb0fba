"""Table 3's pFedSim, FedPer and Local on many draws of the clients: how much of the table is its draw?"""

from __future__ import annotations

from fedlib import figures
from fedlib.analysis.accuracies import means
from fedlib.analysis.tables import only
from fedlib.analysis.uncertainty import Interval
from fedlib.claims import apart, below, decided, ours, unless
from fedlib.experiments.accuracy_table import EXTRAS, AccuracyTable
from fedlib.experiments.item import Found, Tables, leaving_out, per_profile
from fedlib.experiments.pfedsim.task import SETTINGS, SMALLER, every_method, of_column

FEWEST = 3  # draws of which a spread is spoken
CAPS = {"Dir(0.1), with size cap": True, "Dir(0.1), without size cap": False}


def task_of(s: dict, column: str) -> dict:
    return {**of_column(s, "Dir(0.1)"), "cap": CAPS[column]}


def column_of(cell) -> str | None:
    """The paper's clients were drawn with the cap."""
    return next(iter(CAPS)) if cell["partition_param"] == 0.1 else None


TABLE = AccuracyTable(
    "pfedsim", ("3",), tuple(CAPS), task_of, every_method, column_of, seeded=("partition_seed",),
    seeds=lambda s, row, column: s["draws"],
)  # fmt: skip


def analyse(s: dict, found: Found) -> Tables:
    """Besides the table's: spread, of every column and row the accuracies over the draws."""
    tables = TABLE.analyse(s, found)
    tidy = only(tables["tidy"], headline=True)
    spread = 100 * tidy.groupby(["column", "row"], sort=False)["accuracy"].agg(["min", "mean", "max", "std"])
    counted = tidy.groupby(["column", "row"], sort=False).size().rename("partitions")
    return {**tables, "spread": spread.round(2).join(counted).reset_index()}


def few_draws(tables) -> str:
    """Why nothing can be said of draws; an empty text if every method has three of them in both columns."""
    counts = tables["spread"].set_index(["column", "row"])["partitions"]
    whole = len(counts) and len(counts) == len(CAPS) * len(tables["spread"]["row"].unique())
    return "" if whole and counts.min() >= FEWEST else f"needs {FEWEST} partitions of every method in both columns"


@unless(few_draws)
def draws_outweigh_methods(tables):
    """The std of a method over draws, the mean over methods, against the range of the methods' means. The interval is
    of the range only."""
    margins, texts, found = {}, [], means(tables)
    for column in CAPS:
        std, rows = only(tables["spread"], column=column)["std"].mean(), found[column]
        distance = rows.max(axis=1) - rows.min(axis=1)
        margins[column] = std - distance
        between = Interval.of(distance).text(".1f")
        texts.append(f"{column}: std over partitions {std:.1f}, range of the methods' means {between}")
    return decided(margins, "; ".join(texts))


@unless(few_draws)
def easier_with_cap(tables):
    capped, free = (means(tables)[column]["pfedsim"] for column in CAPS)
    evidence = f"pfedsim {capped.iloc[0]:.1f} with the size cap, {apart(capped - free)} compared with no cap"
    return decided({"with size cap": capped - free}, evidence)


ITEM = TABLE.item(
    title="pFedSim Table 3 over many partitions",
    claim="The paper shows one partition. An additional question: what would another partition have given?",
    smaller=SMALLER,
    settings=per_profile(leaving_out(SETTINGS, "seeds"), methods=("local", "fedper", "pfedsim"), draws=[2, 5, 10]),
    minutes={"smoke": 0.3, "quick": 0.5, "paper": 80},
    analyse=analyse,
    figure=lambda tables: figures.accuracies(tables["cells"], "pfedsim", alike=True),
    shown={**EXTRAS, "spread": "Accuracy over the partitions, %"},
    claims=(
        ours("Over many partitions pFedSim outperforms FedPer at Dir(0.1), with and without the client-size cap.",
             below(["fedper"], ["pfedsim"])),
        ours("The partition matters more than which of the three methods is used.", draws_outweigh_methods),
        ours("Partitions with the client-size cap are easier for pFedSim.", easier_with_cap),
    ),
)  # fmt: skip
