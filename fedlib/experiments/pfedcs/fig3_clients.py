"""Figure 3: accuracy by the number of clients among whom the images are divided."""

import pandas as pd

from fedlib import figures
from fedlib.analysis.accuracies import cells
from fedlib.claims import Claim, across_columns, apart, best, falls, ours
from fedlib.experiments.accuracy_table import AccuracyTable
from fedlib.experiments.item import Found, Item, Tables, per_profile
from fedlib.experiments.pfedcs import task
from fedlib.experiments.pfedcs.task import PERSONAL

SHOWN = (*PERSONAL[:-1], "local", "pfedcs")  # in the paper: without local-only training
FEW = ("fedper", "local", "pfedcs")
TITLE = "{} clients".format


CURVE = AccuracyTable(  # the paper has drawn its numbers, not printed them
    "pfedcs", (), lambda s: tuple(TITLE(n) for n in s["clients"]),
    lambda s, title: {**task.of_column(s, task.DIRICHLET["cifar100, Dir(0.05)"]), "num_clients": int(title.split()[0])},
    lambda s: {method: task.in_time(task.EVERY[method], s) for method in s["methods"] if method in task.EVERY},
    lambda cell: None,
    read=task.read, dataset=lambda s: None, seeded=("seed", "partition_seed"),
    seeds=lambda s, row, column: task.trials(s, row),
)  # fmt: skip


def analyse(s: dict, found: Found) -> Tables:
    """compare: mean accuracy by method and number of clients; cells: the same with intervals."""
    tables = CURVE.read_off(s, found)
    shown = cells({**tables, "_printed": CURVE.printed(s)}, {}, {})
    wide = shown.pivot(index="row", columns="column", values="mean").reindex(list(dict.fromkeys(shown["row"])))
    wide = wide[[c for c in CURVE.shown(s) if c in wide]].round(2).reset_index().rename(columns={"row": "method"})
    compare = wide.astype(object).where(wide.notna(), "not run").assign(paper="a curve; no numbers reported")
    shown = shown.assign(clients=shown["column"].str.split().str[0].astype(int))
    return {**tables, "_columns": pd.DataFrame({"column": CURVE.shown(s)}), "cells": shown, "compare": compare}


def leads_less(columns):
    """PFedCS's lead over local-only training, with the most clients and with the fewest."""
    fewest, *_, most = columns
    leads = {column: columns[column]["pfedcs"] - columns[column]["local"] for column in (fewest, most)}
    text = ", ".join(f"{column} {apart(lead)}" for column, lead in leads.items())
    return {"more": leads[most] - leads[fewest]}, f"lead over local-only training: {text}"


ITEM = Item(
    title="PFedCS Figure 3: number of clients",
    claim="All methods lose accuracy as the images are divided among more clients; PFedCS remains the most accurate.",
    smaller="digits (16x16) divided by Dir(0.1) among 10, 20 and 40 clients instead of CIFAR-100 among 10 to 100; "
    "three methods; LeNet-5; 8 rounds instead of 200, one seed",
    smaller_reduced=f"{task.LESS}; {task.ALL_ROUNDS}only FedPer, Local and PFedCS; 10, 20 and 100 clients",
    settings=per_profile(
        task.SETTINGS, reduced=dict(methods=FEW, clients=("10", "20", "100")),
        methods=[FEW, FEW, SHOWN], min_size=[5, 5, 40],
        clients=[("5", "10"), ("10", "20", "40"), ("10", "20", "30", "50", "100")],
    ),
    minutes={"smoke": 0.2, "quick": 0.5, "reduced": 380, "paper": 70_000},
    runs=CURVE.runs,
    analyse=analyse,
    figure=lambda tables: figures.by_number_of_clients(tables["cells"]),
    partial=True,
    claims=(
        Claim("PFedCS is the most accurate method with every number of clients.",
              best("pfedcs", PERSONAL, among=PERSONAL)),
        Claim("PFedCS and FedPer lose accuracy from the fewest to the most clients.", falls("pfedcs", "fedper")),
        ours("Local-only training, too, loses accuracy from the fewest to the most clients.", falls("local")),
        ours("With more clients, and fewer images each, PFedCS's lead over local-only training grows.",
             across_columns(leads_less, ("pfedcs", "local"), two="numbers of clients")),
    ),
)  # fmt: skip
