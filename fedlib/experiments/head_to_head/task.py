"""What the items of the head-to-head share: the four papers' tasks, twelve rows, and the conditions that are equal.

A task is a column of a paper's own table, with the paper's clients, network and rounds at the same scale. Equal for all
methods are: the clients and their samples; a validation part, a fifth of every training part, that nobody trains on;
local epochs; batches; the grid of learning rates, from which each method gets its own by that validation part; the
evaluation points.
"""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path

from fedlib.analysis.readings import last_round
from fedlib.base.errors import choose
from fedlib.experiments.accuracy_table import AccuracyTable
from fedlib.experiments.fedsimsup import task as fedsimsup
from fedlib.experiments.fedsimsup.table2_pathological import COLUMNS as FEW_CLASSES
from fedlib.experiments.item import ALWAYS, per_profile
from fedlib.experiments.pfedcs import task as pfedcs
from fedlib.experiments.pfedsim import task as pfedsim
from fedlib.experiments.pfedsv import task as pfedsv

SIM, SUP, CS, SV = "pFedSim's task", "FedSimSup's task", "PFedCS's task", "pFedSV's task"
OWNERS = {SIM: "pfedsim", SUP: "fedsimsup", CS: "pfedcs", SV: "pfedsv"}  # whose task it is
TASKS = tuple(OWNERS)
FOUR, CLASSIFIERS_ONLY = tuple(OWNERS.values()), "pfedsv, D+C"
SPLIT = ("fedper", "fedrep")
ROWS = ("local", "fedavg", "fedavg_ft", "fedbn", *SPLIT, "fedfomo", *FOUR, CLASSIFIERS_ONLY)
SMOKED = ("local", "fedavg_ft", "pfedsim", "pfedsv")  # in smoke, which must be quick
FIRST_POINT = {"local": "post", "fedavg": "glob", "fedper": "recv", "fedrep": "recv", "fedbn": "recv", "pfedcs": "recv"}

QUICK = {SIM: {"rounds": 9}, SUP: {"rounds": 9}}  # by column, of the papers' quick profiles
SETTINGS = per_profile(
    scale=["smoke", "quick", "paper"], methods=[SMOKED, ROWS, ROWS], holdout=0.2, seeds=[1, 1, 5],
    local_epochs=[1, 5, 5], rates=[(0.1,), (0.03, 0.1, 0.3), (0.01, 0.03, 0.1, 0.3)],
    dataset=["digits", "digits", None], tasks=TASKS,
    reduced={"scale": "reduced", "seeds": 3, "tasks": (SIM,), "rates": (0.01, 0.03, 0.1)},  # the paper's, x 3, x 10
)  # fmt: skip
SMALLER = "digits (16x16; papers: CIFAR); {} rounds; rest: papers' `quick`; three learning rates (`paper`: four)".format
ON_FOUR, ONE_SEED = SMALLER("20, 10, 20 and 10 clients in 9, 9, 8 and 6"), "; one seed (`paper`: five)"
ONE_TASK, RATES_TRIED = "pFedSim's task only (`paper`: four tasks)", "three learning rates (four)"
SHORT, SEEDS = "FedSimSup's task in 200 rounds (`paper`: 1,000)", "three seeds (five)"
COMMON = dict(smaller=ON_FOUR + ONE_SEED, smaller_reduced=f"{ONE_TASK}; {RATES_TRIED}; {SEEDS}", settings=SETTINGS)
PRINTED = (("pfedsim", "3"), ("fedsimsup", "2"), ("pfedcs", "1"), ("pfedsv", "1"))  # the papers' tables
EVALUATIONS = 5  # about, of a run
MEASURES = ("validation", "client_accuracy", "traffic")
RATES = Path(__file__).parent / "rates.csv"


def at_scale(scale: str, column: str) -> dict:
    """A paper's task at a scale: fields of a run, parameters of its scheme, options of its model."""
    if column == SIM:
        own = pfedsim.SETTINGS[scale] if scale in ALWAYS[:2] else pfedsim.SETTINGS["paper"] | {"clients": pfedsim.OWN}
        task = pfedsim.of_column(own, "Dir(0.1)")
    elif column == SUP:
        task = fedsimsup.of_column(fedsimsup.SETTINGS[scale], FEW_CLASSES["cifar10, 2 classes, 50"])
    elif column == CS:
        task = pfedcs.of_column(pfedcs.SETTINGS[scale], pfedcs.PATHOLOGICAL["cifar100, 10 classes"])
    else:
        task = pfedsv.at_scale(pfedsv.SETTINGS[scale], "few", "ring")
    task |= QUICK.get(column, {}) if scale == "quick" else {}
    return task | {"eval_every": max(1, task["rounds"] // EVALUATIONS)}


def conditions(s: dict, column: str) -> dict:
    """What all runs of a column have in common."""
    own = {name: s[name] for name in ("holdout", "local_epochs", "dataset") if name in s}
    return at_scale(s["scale"], column) | own | {"measures": MEASURES}


def rows(s: dict) -> dict[str, dict]:
    """The methods, each tested first as its client gets the model, then after local training.

    Local-only training gets nothing, and is evaluated after training only; FedAvg+FT after a round's epochs of
    fine-tuning. Raises BadValue for a method that is not compared here.
    """
    tuned = {"k": s["local_epochs"], "eval_points": (f"ft({s['local_epochs']})", "glob")}
    found = {}
    for name in s["methods"]:
        choose("method that is compared here", name, ROWS)
        method, _, variant = name.partition(", ")
        points = tuple(dict.fromkeys((FIRST_POINT.get(method, "agg"), "post")))
        found[name] = {"method": method, "eval_points": points} | ({"variant": variant} if variant else {})
    return {name: own | tuned if own["method"] == "fedavg_ft" else own for name, own in found.items()}


@cache
def chosen_rates() -> dict[tuple[str, str, str], float]:
    """Learning rates by scale, column and row. quick, reduced: what `table1_rates` finds in the stored runs, written
    down. paper: what it found on a third of the images, in fewer rounds and with narrower CNNs, until it is run at the
    papers' settings; reduced takes these where it has none."""
    with RATES.open(encoding="utf-8", newline="") as file:
        return {(line["scale"], line["column"], line["row"]): float(line["rate"]) for line in csv.DictReader(file)}


def rate(s: dict, column: str, name: str) -> float:
    """The learning rate of a row, chosen at this scale; smoke takes quick's, reduced what it lacks from paper."""
    rates, scale = chosen_rates(), "quick" if s["scale"] in ALWAYS[:2] else s["scale"]
    return rates.get((scale, column, name), rates["paper", column, name])


def with_rates(s: dict, column: str) -> dict:
    """The task of a column, with every row's own learning rate."""
    rates = {name: {"lr": rate(s, column, name)} for name in s["methods"] if runs_in(name, column)}
    return conditions(s, column) | {"rows": rates}


def runs_in(name: str, column: str) -> bool:
    """Whether a row is run in a column: FedBN only where the network has batch norm, for it is FedAvg elsewhere."""
    return name != "fedbn" or column == SIM


def column_of(cell) -> str | None:
    """Where a printed cell belongs: every paper has its own task."""
    printed = {
        SIM: {"paper": "pfedsim", "dataset": "cifar10", "partition_param": 0.1},
        SUP: {"paper": "fedsimsup", "dataset": "cifar10", "partition_param": 2, "clients": 50},
        CS: {"paper": "pfedcs", "dataset": "cifar100", "partition_param": 10},
        SV: {"paper": "pfedsv", "dataset": "cifar10", "clients": 10},
    }
    return next((name for name, own in printed.items() if all(cell[key] == own[key] for key in own)), None)


TABLE = AccuracyTable(  # the twelve rows on the four tasks, means over clients
    "head_to_head", PRINTED, lambda s: tuple(choose("task", name, TASKS) for name in s["tasks"]), with_rates, rows,
    column_of, dataset=lambda s: None, read=lambda s: last_round("client_mean"), seeded=("seed", "partition_seed"),
    applies=runs_in,
)  # fmt: skip
