"""Figure 3: accuracy by the number of clients among whom the images are divided."""

import pandas as pd

from fedlib import figures
from fedlib.analysis.accuracies import cells
from fedlib.analysis.readings import last_round
from fedlib.claims import Claim, across_columns, apart, best, falls, ours
from fedlib.experiments.accuracy_table import AccuracyTable
from fedlib.experiments.item import Item, per_profile
from fedlib.experiments.pfedcs import task
from fedlib.experiments.pfedcs.task import PERSONAL

SHOWN = (*PERSONAL[:-1], "local", "pfedcs")  # in the paper: without training alone
FEW = ("fedper", "local", "pfedcs")
TITLE = "{} clients".format
OWN = "1,500 (10 clients) to 150 (100 clients) training images of a client on average instead of 4,500 to 450"


def of_clients(s: dict, column: str) -> dict:
    return {**task.of_column(s, task.DIRICHLET["cifar100, Dir(0.05)"]), "num_clients": int(column.split()[0])}


CURVE = AccuracyTable(  # the paper has drawn its numbers, not printed them
    "pfedcs", (), lambda s: tuple(TITLE(n) for n in s["clients"]), of_clients,
    lambda s: {method: task.in_time(task.EVERY[method], s) for method in s["methods"]}, lambda cell: None,
    read=last_round("client_mean"), dataset=lambda s: None, seeded=("seed", "partition_seed"),
    seeds=lambda s, row, column: task.trials(s, row),
)  # fmt: skip


def analyse(s: dict, found: dict) -> dict[str, pd.DataFrame]:
    """compare: mean accuracy by method and number of clients; cells: the same with intervals."""
    tables = CURVE.read_off(s, found)
    shown = cells({**tables, "_printed": CURVE.printed(s)}, {}, {})
    wide = shown.pivot(index="row", columns="column", values="mean").reindex(list(dict.fromkeys(shown["row"])))
    wide = wide[[c for c in CURVE.shown(s) if c in wide]].round(2).reset_index().rename(columns={"row": "method"})
    compare = wide.astype(object).where(wide.notna(), "not run").assign(paper="a curve; no numbers printed")
    return {**tables, "cells": shown.assign(clients=shown["column"].str.split().str[0].astype(int)), "compare": compare}


def leads_less(columns):
    """PFedCS's lead over training alone, with the most clients and with the fewest."""
    fewest, *_, most = columns
    leads = {column: columns[column]["pfedcs"] - columns[column]["local"] for column in (fewest, most)}
    text = ", ".join(f"{column} {apart(lead)}" for column, lead in leads.items())
    return {"more": leads[most] - leads[fewest]}, f"lead over training alone: {text}"


ITEM = Item(
    title="PFedCS Figure 3: number of clients",
    claim="All methods lose accuracy as the images are divided among more clients; PFedCS stays on top.",
    smaller="digits (16x16) divided by Dir(0.1) among 10, 20 and 40 clients instead of CIFAR-100 among 10 to 100; "
    "three methods; LeNet-5; 8 rounds instead of 200, one seed",
    smaller_overnight=task.smaller_overnight(own=OWN, least=5) + task.ONE_SEED,
    settings=per_profile(
        task.SETTINGS, overnight=dict(min_size=5), methods=[FEW, FEW, SHOWN], min_size=[5, 5, 40],
        clients=[("5", "10"), ("10", "20", "40"), ("10", "20", "30", "50", "100")],
    ),
    minutes={"smoke": 0.2, "quick": 0.5, "overnight": 40, "paper": 70_000},
    runs=CURVE.runs,
    analyse=analyse,
    figure=lambda tables: figures.by_number_of_clients(tables["cells"]),
    partial=True,
    claims=(
        Claim("PFedCS is the most accurate method with every number of clients.",
              best("pfedcs", PERSONAL, among=PERSONAL)),
        Claim("PFedCS and FedPer lose accuracy from the fewest to the most clients.", falls("pfedcs", "fedper")),
        ours("So does training alone.", falls("local")),
        ours("With more clients, and fewer images each, PFedCS's lead over training alone grows.",
             across_columns(leads_less, ("pfedcs", "local"), two="numbers of clients")),
    ),
)  # fmt: skip
