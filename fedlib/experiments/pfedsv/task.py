"""The federated task that pFedSV's Tables 1 to 4 share, at two scales and in three sizes."""

from dataclasses import replace

import numpy as np

from fedlib.analysis.readings import Reading, last_round
from fedlib.claims import Claim, best, falls, like_the_paper, ours
from fedlib.engine.result import RunResult
from fedlib.experiments.accuracy_table import AccuracyTable
from fedlib.experiments.item import per_profile
from fedlib.experiments.pfedsv import DATA

METHODS = (
    "local", "fedavg", "fedprox", "ifca", "fedem", "fedavg_ft", "pfedme", "fedfomo", "fedamp", "pfedhn", "pfedsv",
)  # as in the paper, from top to bottom  # fmt: skip
SMOKED = ("local", "fedavg", "fedfomo", "fedamp", "pfedsv")  # in smoke, which must be quick
SINGLE_MODEL = ("fedavg", "fedprox")
OTHERS = tuple(method for method in METHODS if method not in SINGLE_MODEL)
SCALES = {"few": 10, "many": 100}  # the paper's clients; at the first scale all of them take part, at the second 10

# By profile: smoke, quick, paper. Unpublished, and ours: batch_size, test_fraction, min_size.
SETTINGS = per_profile(
    dataset=["digits", "digits", "cifar10"], few_clients=[5, 10, 10], few_rounds=[2, 6, 20],
    many_clients=[8, 20, 100], many_join=[0.5, 0.3, 0.1], many_rounds=[2, 12, 100], local_epochs=[1, 3, 5],
    batch_size=[32, 16, 32], lr=[0.05, 0.1, 0.1], test_fraction=[0.5, 0.5, 0.2], classes_per_client=2, alpha=0.1,
    min_size=[10, 20, 40], model=["lenet5", "lenet5", "mcmahan_cnn"], seeds=[1, 1, 5], repeats=1,
    overnight=dict(images=10_000, many_rounds=60, min_size=10, width=0.125, seeds=1, repeats=3),
)  # fmt: skip
SMALLER = (
    "digits (16x16) instead of CIFAR-10, LeNet-5 instead of the larger CNN; 10 clients for 6 rounds instead of 20, and "
    "20 clients of which 6 take part for 12 rounds instead of 100, 10 and 100; 3 local epochs instead of 5; half of "
    "each client's data for testing"
)
SMALLER_OVERNIGHT = (
    "a sixth of the images (10,000: with 10 clients 800 training images each, with 100 clients 80, of which a method "
    "that needs it takes a fifth for validation); the CNN has an eighth of the channels and units; 100 clients train "
    "for 60 rounds instead of 100; three seeds for training alone, FedAvg + FT, FedFomo, FedAMP and pFedSV, one for "
    "the others, instead of five"
)

# Hyper-parameters that are not a method's own defaults; the paper states none of them. pFedHN's clip: its default of 50
# bounds nothing at this task's learning rate, and its server diverges in round 16 of 20 (10 clients, digits); with 1 it
# learns.
REFUSES_NOBODY = "pfedsv, W"
REPEATED = ("local", "fedavg_ft", "fedfomo", "fedamp", "pfedsv")
PRESETS = {"fedprox": {"mu": 0.01}, "fedamp": {"sigma_mode": "median"}, "pfedhn": {"clip": 1.0}}
PRESETS |= {REFUSES_NOBODY: {"variant": "W"}}  # a row of ours, on the paper's images
OWN, ALL = {"tested_on": "own"}, {"tested_on": "all"}  # a client's own test part; the test parts of all clients


def plain(row: str) -> dict:
    """A method, or a variant of one, as a row of a table."""
    return {"method": row.partition(",")[0], **PRESETS.get(row, {})}


def repeated(s: dict, row: str, column: str) -> int:
    """Seeds of a cell: more overnight for the methods that matter, and for all variants of methods."""
    return s["seeds"] if row in METHODS and row not in REPEATED else max(s["seeds"], s["repeats"])


def at_scale(s: dict, scale: str, scheme: str) -> dict:
    """What the runs at a scale have in common; McMahan's CNN is padded as its authors have it."""
    rounds, join_ratio = s[f"{scale}_rounds"], 1.0 if scale == "few" else s["many_join"]
    clients = {"num_clients": s[f"{scale}_clients"], "join_ratio": join_ratio, "scheme": scheme, "padding": "same"}
    return {**s, **clients, "rounds": rounds, "eval_every": rounds, "measures": ("common_test",)}


def read(r: RunResult, scale: str) -> list[Reading]:
    """Mean accuracies over clients (the paper's MTA): at every point on own test parts, the headline's also on all."""
    own = [replace(reading, about=OWN) for reading in last_round("client_mean")(r)]
    values = r.arrays["common_correct"].sum(1) / r.arrays["common_tests"].sum()
    return [*own, Reading(r.point, True, float(values.mean()), values, np.ones(len(values)), ALL)]


def shown_dataset(s: dict) -> str:
    """The data set of the paper that ours is put beside: the same one, or CIFAR-10 if the paper does not have it."""
    return s["dataset"] if s["dataset"] in DATA else "cifar10"


def table(number: str, scheme: str, rows=None) -> AccuracyTable:
    """One of the tables; rows: by name, default all methods of the settings."""
    return AccuracyTable(
        "pfedsv", (number,), tuple(SCALES),
        task=lambda s, scale: at_scale(s, scale, scheme),
        rows=rows or (lambda s: {method: plain(method) for method in s["methods"]}),
        column_of=lambda cell: {clients: scale for scale, clients in SCALES.items()}[cell["clients"]],
        read=read, where=OWN, also={"ours, all classes": ALL}, dataset=shown_dataset, seeded=("seed", "partition_seed"),
        seeds=repeated,
    )  # fmt: skip


NIGHT = {"methods": (*METHODS, REFUSES_NOBODY)}
COMMON = dict(
    smaller=SMALLER,
    smaller_overnight=SMALLER_OVERNIGHT,
    minutes={"smoke": 0.3, "quick": 1.5, "overnight": 20, "paper": 600},
    settings=per_profile(SETTINGS, methods=[SMOKED, METHODS, METHODS], overnight=NIGHT),
)
BEST = Claim("pFedSV is the most accurate of all eleven methods at both scales.", best("pfedsv", METHODS, **OWN))
FEWER = Claim("Every method is less accurate with many clients than with few.", falls(*METHODS, **OWN))
AT_POST = ours(
    "pFedSV is also the best of those methods that have a trained model of each client, all tested at `post`.",
    best("pfedsv", ("local", "fedfomo", "fedamp"), point="post", **OWN),
)
ORDER = ours(
    "The methods' order is that of the paper's readable cells: rank correlation above 0.8 at both scales.",
    like_the_paper(0.8, OTHERS, METHODS, **OWN),
)
