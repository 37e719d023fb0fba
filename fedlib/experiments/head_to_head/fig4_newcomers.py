"""Figure 4: what a client that comes later gets: as it comes, and after one epoch."""

import pandas as pd

from fedlib import figures
from fedlib.analysis.readings import Reading
from fedlib.claims import below, best, best_of, in_columns, ours
from fedlib.engine.result import RunResult
from fedlib.experiments.head_to_head import task
from fedlib.experiments.head_to_head.task import CLASSIFIERS_ONLY, SIM, SUP
from fedlib.experiments.item import per_profile

AFTER, BEFORE = {"when": "after an epoch"}, {"when": "as it comes"}
ROWS = ("local", "fedavg", "fedper", "fedrep", "fedfomo", "pfedsim", "pfedcs", "pfedsv", CLASSIFIERS_ONLY)
TAKING = ("pfedsim", "pfedcs", "pfedsv")  # of the four; FedSimSup's server mixes models of clients that were there
SMOKED = ("local", "fedavg", "pfedsim", "pfedsv")
FIFTH = 5  # one client of so many comes later


def later(s: dict, column: str) -> dict:
    """The task of a column in which a fifth of the clients come after the last round, and train for one epoch then."""
    return (own := task.with_rates(s, column)) | {"unseen": own["num_clients"] // FIFTH, "join_epochs": 1}


def of_newcomers(r: RunResult, column: str = "") -> list[Reading]:
    """Means over newcomers: as they come, with what they get (training alone: an untrained network), and after an epoch
    of their own."""
    found = []
    for when, about in (("after", AFTER), ("before", BEFORE)):
        points = [tested["point"] for tested in r.newcomers if tested["when"] == when]
        point = "post" if when == "after" else next((p for p in points if p != "post"), "post")
        if point in points:
            correct, tests = r.of_newcomers(when, point)
            own = correct / tests
            found.append(Reading(point, True, float(own.mean()), own, own * 0 + 1, about))
    return found


TABLE = task.table(later, columns=(SIM, SUP), numbers=(), read=of_newcomers, where=AFTER, also={"as it comes": BEFORE})


def analyse(s: dict, found: dict[tuple, RunResult]) -> dict[str, pd.DataFrame]:
    tables = TABLE.analyse(s, found)
    return {**tables, "compare": task.unprinted(tables["compare"])}


ITEM = TABLE.item(
    title="Head to head, Figure 4: a client that comes later",
    claim="A client that comes after the last round gets most from fine-tuning FedAvg's model.",
    smaller=task.SMALLER,
    smaller_overnight=task.SMALLER_OVERNIGHT + "; three seeds",
    settings=per_profile(task.SETTINGS, methods=[SMOKED, ROWS, ROWS], overnight=dict(seeds=3)),
    minutes={"smoke": 0.1, "quick": 0.4, "overnight": 25, "paper": 5000},
    analyse=analyse,
    figure=lambda tables: figures.accuracies(tables["cells"].replace({"series": {"ours": AFTER["when"]}})),
    claims=(
        ours("After one epoch of its own a newcomer is best off with FedAvg's model, of all methods that take one.",
             best("fedavg", (*TAKING, "fedper", "fedrep"), **AFTER)),
        ours("After one epoch it is better off with each of the four that take newcomers than training alone.",
             below(["local"], TAKING, **AFTER)),
        ours("As it comes it is better off with the best of these than with FedAvg's model as it is.",
             in_columns(best_of(TAKING, ["fedavg"]), (*TAKING, "fedavg"), **BEFORE)),
    ),
)  # fmt: skip
