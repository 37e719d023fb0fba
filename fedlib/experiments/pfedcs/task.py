"""What PFedCS's tables share: 20 clients, all of which take part, on three data sets or on digits."""

from fedlib.analysis.readings import last_round
from fedlib.claims import Claim, below, best, like_the_paper, ours
from fedlib.experiments.accuracy_table import AccuracyTable
from fedlib.experiments.item import Item, per_profile

METHODS = (
    "fedavg", "fedprox", "perfedavg", "fedfomo", "fedamp", "clusterfl", "fesem", "fedper", "fedbabu", "fedrod",
    "fedproto", "fedgh", "pfedcs",
)  # as in the paper, from top to bottom  # fmt: skip
SMOKED = ("fedavg", "fedper", "pfedcs")  # in smoke, which must be quick
SINGLE_MODEL = ("fedavg", "fedprox")
PERSONAL = tuple(method for method in METHODS if method not in SINGLE_MODEL)
CLASSES = {"cifar10": (2, 3, 4), "cifar100": (10, 15, 20), "tiny_imagenet": (20, 30, 40)}  # of a client
ALPHAS = (0.01, 0.05, 0.1)
MILDER = (0.05, 0.1, 0.2)  # on digits, of which 20 clients cannot be dealt enough at 0.01
PATHOLOGICAL = {
    f"{d}, {c} classes": {"dataset": d, "scheme": "pat_grouped", "classes_per_client": c}
    for d, own in CLASSES.items()
    for c in own
}
DIRICHLET = {f"{d}, Dir({a:g})": {"dataset": d, "alpha": a} for d in CLASSES for a in ALPHAS}

# By profile: smoke, quick, paper; there the columns name the data sets.
SETTINGS = per_profile(
    methods=[SMOKED, METHODS, METHODS], test_fraction=0.25, num_clients=20, join_ratio=1.0, local_epochs=[1, 5, 5],
    dataset=["digits", "digits", None], rounds=[1, 15, 200], eval_every=[1, 15, 10], batch_size=[32, 16, 100],
    lr=[0.05, 0.05, 0.005], min_size=[10, 10, 40], model=["lenet5", "lenet5", "mcmahan_cnn"], seeds=[1, 1, 3],
)  # fmt: skip
RESNET = {"model": "resnet18", "lr": 0.1}  # of Tiny-ImageNet
SMALLER = (
    "digits (16x16) with 2 to 4 of ten classes a client, or alpha 0.05 to 0.2, instead of CIFAR and Tiny-ImageNet with "
    "0.01 to 0.1; LeNet-5 instead of the 4-layer CNN; 15 rounds instead of 200, one seed"
)


def table(number: str, columns: dict, rows: dict, row_of=lambda cell: cell["method"]) -> AccuracyTable:
    """One of the tables; columns: by name their data set and partition, on digits of one; rows: by name the method."""

    def task(s: dict, column: str) -> dict:
        if "dataset" not in s:
            return {**s, **columns[column], **(RESNET if columns[column]["dataset"] == "tiny_imagenet" else {})}
        few = dict(zip(CLASSES[columns[column]["dataset"]], CLASSES["cifar10"])) | dict(zip(ALPHAS, MILDER))
        return {name: few.get(value, value) for name, value in columns[column].items()} | s

    def shown(s: dict) -> tuple[str, ...]:
        first = next(iter(columns.values()))["dataset"]
        return tuple(name for name, own in columns.items() if "dataset" not in s or own["dataset"] == first)

    def column_of(cell) -> str:
        value = f"{cell['partition_param']:g}"
        return f"{cell['dataset']}, " + (f"Dir({value})" if cell["partition"] == "dirichlet" else f"{value} classes")

    def used(s: dict) -> dict:
        return {name: own for name, own in rows.items() if own["method"] in s["methods"]}

    reading = {"read": last_round("client_mean"), "dataset": lambda s: None}
    return AccuracyTable("pfedcs", (number,), shown, task, used, column_of, row_of, **reading)


def item(table: AccuracyTable, title: str, hours: float, *claims: Claim) -> Item:
    """A table as an item; its first claim is the item's."""
    about = {"claim": claims[0].text, "claims": claims, "smaller": SMALLER, "settings": SETTINGS, "draft": True}
    return table.item(title=f"PFedCS {title}", minutes={"smoke": 0.3, "quick": 1.5, "paper": 60 * hours}, **about)


EVERY = {method: {"method": method} for method in METHODS}
IS_FIRST = best("pfedcs", METHODS)
FAR = Claim("Every personalised method is above FedAvg and FedProx.", below(SINGLE_MODEL, PERSONAL))
ORDER = ours(
    "The methods' order is that of the paper: rank correlation above 0.8 in every column.",
    like_the_paper(0.8, PERSONAL, METHODS),
)
