"""What PFedCS's tables share: 20 clients, all of which take part, on three data sets or on digits; and what is said of all methods."""

from __future__ import annotations

from fedlib.analysis.readings import last_round
from fedlib.claims import Claim, below, best, like_the_paper, ours
from fedlib.experiments.accuracy_table import AccuracyTable
from fedlib.experiments.item import Item

METHODS = (
    "fedavg", "fedprox", "perfedavg", "fedfomo", "fedamp", "clusterfl", "fesem", "fedper", "fedbabu", "fedrod", "fedproto",
    "fedgh", "pfedcs",
)  # as in the paper, from top to bottom  # fmt: skip
SINGLE_MODEL = ("fedavg", "fedprox")
PERSONAL = tuple(method for method in METHODS if method not in SINGLE_MODEL)
DATA = {"cifar10": (2, 3, 4), "cifar100": (10, 15, 20), "tiny_imagenet": (20, 30, 40)}  # and classes of a client
ALPHAS = (0.01, 0.05, 0.1)
MILDER = (0.05, 0.1, 0.2)  # on digits, of which 20 clients cannot be dealt enough at 0.01
PATHOLOGICAL = {
    f"{d}, {c} classes": {"dataset": d, "scheme": "pat_grouped", "classes_per_client": c}
    for d, own in DATA.items()
    for c in own
}
DIRICHLET = {f"{d}, Dir({a:g})": {"dataset": d, "alpha": a} for d in DATA for a in ALPHAS}

COMMON = {"test_fraction": 0.25, "num_clients": 20, "join_ratio": 1.0, "local_epochs": 5, "seeds": 1}
SETTINGS = {
    "smoke": {**COMMON, "dataset": "digits", "rounds": 2, "local_epochs": 1, "batch_size": 32, "lr": 0.05,
              "min_size": 10, "model": "lenet5", "eval_every": 2},
    "quick": {**COMMON, "dataset": "digits", "rounds": 15, "batch_size": 16, "lr": 0.05, "min_size": 10, "model": "lenet5", "eval_every": 15},
    "paper": {**COMMON, "rounds": 200, "batch_size": 100, "lr": 0.005, "min_size": 40, "model": "mcmahan_cnn", "eval_every": 10, "seeds": 3},
}  # fmt: skip
RESNET = {"model": "resnet18", "lr": 0.1}  # of Tiny-ImageNet
SMALLER = (
    "digits (16x16) with 2 to 4 of ten classes a client, or alpha 0.05 to 0.2, instead of CIFAR and Tiny-ImageNet with 0.01 to 0.1; "
    "LeNet-5 instead of the 4-layer CNN; 15 rounds instead of 200, one seed"
)


def table(
    number: str, columns: dict[str, dict], rows: dict[str, dict], row_of=lambda cell: cell["method"]
) -> AccuracyTable:
    """One of the tables; columns: by name their data set and partition; rows: by name the method. On digits, columns of one data set."""

    def task(s: dict, column: str) -> dict:
        own, at_paper = columns[column], "dataset" not in s
        if at_paper:
            return {**s, **own, **(RESNET if own["dataset"] == "tiny_imagenet" else {})}
        few = {
            "classes_per_client": dict(zip(DATA[own["dataset"]], DATA["cifar10"])),
            "alpha": dict(zip(ALPHAS, MILDER)),
        }
        return {**own, **{name: few[name][own[name]] for name in few if name in own}, **s}

    def shown(s: dict) -> tuple[str, ...]:
        first = next(iter(columns.values()))["dataset"]
        return tuple(name for name, own in columns.items() if "dataset" not in s or own["dataset"] == first)

    def column_of(cell) -> str:
        share = (
            f"Dir({cell['partition_param']:g})"
            if cell["partition"] == "dirichlet"
            else f"{cell['partition_param']:g} classes"
        )
        return f"{cell['dataset']}, {share}"

    return AccuracyTable(
        "pfedcs",
        (number,),
        shown,
        task,
        lambda s: rows,
        column_of,
        row_of,
        read=last_round("client_mean"),
        dataset=lambda s: None,
    )


def item(table: AccuracyTable, title: str, hours: float, *claims: Claim) -> Item:
    """A table as an item; its first claim is the item's."""
    minutes = {"smoke": 0.3, "quick": 1.5, "paper": 60 * hours}
    return table.item(
        title=f"PFedCS {title}",
        claim=claims[0].text,
        claims=claims,
        smaller=SMALLER,
        settings=SETTINGS,
        minutes=minutes,
        draft=True,
    )


EVERY = {method: {"method": method} for method in METHODS}
IS_FIRST = best("pfedcs", METHODS)
FAR = Claim("Every personalised method is above FedAvg and FedProx.", below(SINGLE_MODEL, PERSONAL))
ORDER = ours(
    "The methods' order is that of the paper: rank correlation above 0.8 in every column.",
    like_the_paper(0.8, PERSONAL, METHODS),
)
