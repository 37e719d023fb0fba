"""What PFedCS's items share: 20 clients, all of which take part, on three data sets or on digits."""

from collections.abc import Callable

from fedlib.analysis.readings import BESIDE, Read, last_round
from fedlib.claims import Claim, across_columns, apart, below, best, like_the_paper, ours
from fedlib.experiments.accuracy_table import AccuracyTable
from fedlib.experiments.item import Item, per_profile
from fedlib.experiments.paper_numbers import partition_of

METHODS = (
    "fedavg", "fedprox", "perfedavg", "fedfomo", "fedamp", "clusterfl", "fesem", "fedper", "fedbabu", "fedrod",
    "fedproto", "fedgh", "pfedcs",
)  # as in the paper, from top to bottom  # fmt: skip
SHOWN = (*METHODS[:-1], "local", "pfedcs")  # with local-only training, which the paper does not have
SMOKED = ("fedavg", "fedper", "local", "pfedcs")  # in smoke, which must be quick
TO_THE_END = "pfedcs, beta = T"  # stage 1 in all rounds
NAMED = ("local", "fedper", "fedavg_ft", "pfedcs")  # reduced: with three seeds
SINGLE_MODEL = ("fedavg", "fedprox")
PERSONAL = tuple(method for method in METHODS if method not in SINGLE_MODEL)
PFEDCS = {"method": "pfedcs", "measures": ("selection",)}  # who is chosen is kept after every round
CLASSES = {"cifar10": (2, 3, 4), "cifar100": (10, 15, 20), "tiny_imagenet": (20, 30, 40)}  # of a client
ALPHAS = (0.01, 0.05, 0.1)
MILDER = (0.05, 0.1, 0.2)  # on digits, of which 20 clients cannot be dealt enough at 0.01
PATHOLOGICAL = {
    f"{d}, {c} classes": {"dataset": d, "scheme": "pat_grouped", "classes_per_client": c}
    for d, own in CLASSES.items()
    for c in own
}
DIRICHLET = {f"{d}, Dir({a:g})": {"dataset": d, "alpha": a} for d in CLASSES for a in ALPHAS}
REDUCED = (
    "cifar10, 2 classes", "cifar10, 4 classes", "cifar100, 10 classes", "cifar100, 20 classes",
    "cifar10, Dir(0.05)", "cifar10, Dir(0.1)", "cifar100, Dir(0.05)", "cifar100, Dir(0.1)",
)  # fmt: skip
WHOLE = ("cifar10, 4 classes", "cifar100, 20 classes", "cifar10, Dir(0.05)", "cifar100, Dir(0.1)")  # with all methods
NOT_ON_DIGITS = ("cifar10, 3 classes", "cifar100, 15 classes", "cifar10, Dir(0.01)")  # two columns of three are enough

# By profile: smoke, quick, paper; there the columns name the data sets. Unpublished, and ours: min_size, eval_every.
SETTINGS = per_profile(
    methods=[SMOKED, SHOWN, SHOWN], test_fraction=0.25, num_clients=20, join_ratio=1.0, local_epochs=[1, 5, 5],
    dataset=["digits", "digits", None], rounds=[2, 8, 200], eval_every=[1, 8, 10], batch_size=[32, 16, 100],
    lr=[0.05, 0.05, 0.005], min_size=[10, 10, 40], model=["lenet5", "lenet5", "mcmahan_cnn"], seeds=[1, 1, 3],
    seeds_of_claims=[1, 1, 3],
    reduced=dict(model="lenet5", rounds=100, seeds=1, beta=1.0, beside="best"),
)  # fmt: skip
RESNET = {"model": "resnet18", "lr": 0.1}  # of Tiny-ImageNet
FEW, DOUBLED = "at most 4 of ten classes per client", "twice the paper's alpha"
SMALLER = (
    f"digits (16x16; paper: CIFAR or Tiny-ImageNet), {FEW}; LeNet-5 (paper: 4-layer CNN); 8 rounds (paper: 200); "
    "batches of 16 (paper: 100) at ten times the learning rate; one seed"
)
LESS = "LeNet-5 instead of the 4-layer CNN; 100 rounds instead of 200"
ALL_ROUNDS = "stage 1 of PFedCS in all rounds (the paper does not say in how many); "  # otherwise half of them


def trials(s: dict, method: str = "pfedcs") -> int:
    """How many seeds a method is run with."""
    return max(s["seeds"], s["seeds_of_claims"]) if method in NAMED else s["seeds"]


def of_column(s: dict, own: dict) -> dict:
    """What the runs of a column have in common; own: its data set and partition, on digits the like of CIFAR-10's."""
    if "dataset" not in s:
        return {**s, **own, **(RESNET if own["dataset"] == "tiny_imagenet" else {})}
    few = dict(zip(CLASSES[own["dataset"]], CLASSES["cifar10"])) | dict(zip(ALPHAS, MILDER))
    return {name: few.get(value, value) for name, value in own.items()} | s


def in_time(row: dict, s: dict) -> dict:
    """A row of a table; ClusterFL may split after a tenth of the rounds: after 20 of 200, its default. PFedCS's stage 1
    is as long as the settings say, where they do."""
    if row["method"] == "clusterfl":
        return row | {"t0": max(1, s["rounds"] // 10)}
    return ({"beta": s["beta"]} if row["method"] == "pfedcs" and "beta" in s else {}) | row


def read(s: dict) -> Read:
    return last_round("client_mean", s.get("beside", ""))


def table(number: str, columns: dict, rows: dict, row_of: Callable = lambda cell: cell["method"]) -> AccuracyTable:
    """One of the tables; columns: by name their data set and partition, on digits of one; rows: by name the method."""

    def shown(s: dict) -> tuple[str, ...]:
        first = next(iter(columns.values()))["dataset"]
        if "dataset" in s:
            return tuple(name for name, own in columns.items() if own["dataset"] == first and name not in NOT_ON_DIGITS)
        there = s.get("columns", columns)
        return tuple(name for name in columns if name in there)

    def used(s: dict) -> dict:
        there = {**rows, **{name: MORE[name] for name in s.get("more", ())}}
        return {name: in_time(own, s) for name, own in there.items() if own["method"] in s["methods"]}

    def repeated(s: dict, row: str, column: str) -> int:
        method = {**rows, **MORE}[row]["method"]
        return trials(s, method) if method in NAMED or column in s.get("whole", (column,)) else 0

    return AccuracyTable(
        "pfedcs", (number,), shown, lambda s, column: of_column(s, columns[column]), used, partition_of, row_of,
        read=read, also={f"ours, {BESIDE['best']}": {"point": BESIDE["best"]}}, dataset=lambda s: None,
        seeded=("seed", "partition_seed"), seeds=repeated,
    )  # fmt: skip


def item(table: AccuracyTable, title: str, minutes: tuple[float, ...], *claims: Claim, **more) -> Item:
    """A table as an item; its first claim is the item's. minutes: by profile, from small to large."""
    smaller = SMALLER.replace(FEW, DOUBLED) if "Dir" in table.shown({"dataset": "digits"})[0] else SMALLER
    if all(column.startswith("cifar100") for column in table.shown({"dataset": None})):
        smaller = smaller.replace("CIFAR or Tiny-ImageNet", "CIFAR-100")
    about = {"claim": claims[0].text, "claims": claims, "smaller": smaller, "settings": SETTINGS}
    about["minutes"] = dict(zip(SETTINGS, minutes))
    about["smaller_reduced"] = f"{LESS}; {ALL_ROUNDS}one of the paper's columns"
    return table.item(title=f"PFedCS {title}", **about | more)


def leads_on_average(by: float):
    """A check that on average over the columns PFedCS is above every other method of the paper by more."""

    def judge(columns):
        m = sum(rows[list(METHODS)] for rows in columns.values()) / len(columns)
        leads = {row: m["pfedcs"] - m[row] for row in METHODS if row != "pfedcs"}
        rival = min(leads, key=lambda row: leads[row].iloc[0])
        found = f"pfedcs {m['pfedcs'].iloc[0]:.1f}, {apart(leads[rival])} relative to the best competitor, {rival}"
        text = f"mean of {len(columns)} columns: {found}; threshold of {by:g}, set by us"
        return {row: lead - by for row, lead in leads.items()}, text

    return across_columns(judge, METHODS)


RELATIVE = {"method": "clusterfl", "eps_mode": "relative", "eps1": 0.1, "eps2": 0.4}  # to the largest
MORE = {"fedavg_ft": {"method": "fedavg_ft"}, TO_THE_END: {**PFEDCS, "beta": 1.0}, "clusterfl, relative": RELATIVE}
MORE["clusterfl, no thresholds"] = {"method": "clusterfl", "eps1": 1e9, "eps2": 0.0}  # splits in every round after t0
EVERY = {method: {"method": method} for method in SHOWN} | {"pfedcs": PFEDCS}
IS_FIRST = best("pfedcs", METHODS, among=METHODS)
BOTH_BETAS = dict(  # of Tables 1 and 2
    settings=per_profile(
        SETTINGS, reduced=dict(methods=(*SHOWN, "fedavg_ft"), more=tuple(MORE), beta=None, columns=REDUCED, whole=WHOLE)
    ),
    smaller_reduced=f"{LESS}; no Tiny-ImageNet, two of three columns of each data set; three seeds for Local, "
    "FedPer, FedAvg+FT and PFedCS, one for the others, and these in one column of each data set only",
)
COMMON = (
    Claim("On average over the settings PFedCS leads by more than a point (the paper: 2.5).", leads_on_average(1)),
    Claim("Every personalised method outperforms FedAvg and FedProx.", below(SINGLE_MODEL, PERSONAL)),
    ours("The methods' order is that of the paper: rank correlation above 0.8 in every setting.",
         like_the_paper(0.8, PERSONAL, METHODS)),
    ours("PFedCS outperforms local-only training in every setting.", below(["local"], ["pfedcs"])),
    ours("With stage 1 in all rounds PFedCS outperforms FedPer in every setting.", below(["fedper"], [TO_THE_END])),
    ours("PFedCS is also the best where all methods are evaluated after local training (`post`).",
         best("pfedcs", ("local", "fedper", "fedrod"), among=SHOWN, point="post")),
)  # fmt: skip
