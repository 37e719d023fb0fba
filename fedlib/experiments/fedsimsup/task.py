"""What FedSimSup's tables share: the federated task in four sizes, and the methods with the paper's parameters."""

from fedlib.analysis.accuracies import columns_read, means, without
from fedlib.analysis.readings import last_round
from fedlib.analysis.uncertainty import Interval
from fedlib.claims import Claim, Verdict, below, best, decided, gap, like_the_paper, not_tested, ours
from fedlib.claims.checks import on_shared_seeds
from fedlib.experiments.accuracy_table import AccuracyTable
from fedlib.experiments.item import per_profile
from fedlib.experiments.paper_numbers import partition_of

METHODS = (
    "local", "fedavg", "fedprox", "perfedavg", "fedrep", "fedproto", "fedpac", "fedsimsup",
)  # as in the paper, from top to bottom  # fmt: skip
SMOKED = ("local", "fedavg", "fedrep", "fedsimsup")  # in smoke, which must be quick
REPEATED = ("local", "fedavg", "fedrep", "fedpac", "fedsimsup")  # overnight, with many clients: with three seeds
DIVERGES = "cifar10, Dir(0.5), 50"  # a column in which FedSimSup's overnight run with seed 0 does so
SINGLE_MODEL = ("fedavg", "fedprox")
PERSONAL = tuple(method for method in METHODS if method not in SINGLE_MODEL)
CLIENTS = {"100": "many", "50": "few"}
WRITERS = "femnist, its 3597 writers"  # of whom 1 % take part in a round, and 10 % of those that train alone
FEMNIST = {WRITERS: {"dataset": "femnist", "scheme": "writer", "num_clients": 3597, "join_ratio": 0.01,
                     "rows": {"local": {"join_ratio": 0.1}}}}  # fmt: skip

# By profile: smoke, quick, paper. Unpublished, and ours: test_fraction, min_size, what is evaluated when.
SETTINGS = per_profile(
    dataset=["digits", "digits", None], many=[8, 20, 100], few=[6, 10, 50], join_ratio=[0.5, 0.3, 0.1],
    rounds=[2, 15, 1000], eval_every=[1, 5, 50], lr=0.1, test_fraction=[0.5, 0.5, 0.2], min_size=[8, 10, 40],
    seeds=[1, 1, 3], repeats=[1, 1, 3], methods=[SMOKED, METHODS, METHODS],
    overnight=dict(images=20_000, rounds=120, eval_every=10, min_size=10, seeds=1, repeats=3, lr=0.05),
)  # fmt: skip
SMALLER = (
    "digits (16x16) instead of CIFAR; 20 and 10 clients of which 30 % take part instead of 100 and 50 of which 10 % "
    "do, 15 rounds instead of 1,000, half of each client's data for testing, one seed"
)
SMALLER_OVERNIGHT = (
    "a third of the images (20,000, so 200 of a client on average with 100 clients, 400 with 50) and 120 rounds "
    "instead of 1,000; rate 0.05 instead of 0.1, at which runs diverge (see the notes); clients of at least 10 images "
    "instead of 40; three seeds for Local, FedAvg, FedRep, FedPAC and FedSimSup with 100 clients on CIFAR-10, two with "
    "50 clients on CIFAR-10 at Dir(0.5), of which FedSimSup's first diverges, one for everything else"
)

# What the paper states of its baselines. Per-FedAvg's rates: the inner one as printed, the outer one is the run's.
PRESETS = {
    "perfedavg": {"variant": "HF", "alpha": 0.001, "tau": 4, "ft_epochs": 3},
    "fedrep": {"E_h": 2, "E_f": 3},
}


def preset(method: str) -> dict:
    """A method as a row of a table."""
    return {"method": method, **PRESETS.get(method, {})}


def of_column(s: dict, own: dict) -> dict:
    """What the runs of a column have in common; own: data set, partition and "clients", as printed.

    On digits there are as many of ten classes as of CIFAR-10's.
    """
    task = {**s, "model": "lenet5", **own} | ({"dataset": s["dataset"]} if "dataset" in s else {})
    return task if "num_clients" in own else task | {"num_clients": s[CLIENTS[own["clients"]]]}


def table(number: str, columns: dict[str, dict], rows=None, **more) -> AccuracyTable:
    """One of the tables; columns: by name data set, partition and clients, those of CIFAR-10 only on digits."""

    def shown(s: dict) -> tuple[str, ...]:
        if "dataset" in s:
            return tuple(name for name, own in columns.items() if own["dataset"] == "cifar10")
        return tuple(name for name, own in columns.items() if own["dataset"] != "femnist" or "images" not in s)

    def column_of(cell) -> str | None:
        if cell["dataset"] == "femnist":
            return WRITERS
        return f"{cell['dataset']}, {partition_of(cell)}, {cell['clients']}"

    return AccuracyTable(
        "fedsimsup", (number,), shown, lambda s, column: of_column(s, columns[column]),
        rows or (lambda s: {method: preset(method) for method in s["methods"]}), column_of,
        **{"read": last_round("client_mean"), "dataset": lambda s: None, "seeded": ("seed", "partition_seed"),
           "seeds": repeated, **more},
    )  # fmt: skip


def repeated(s: dict, row: str, column: str) -> int:
    """Seeds of a cell: more overnight for the methods that matter, with many clients on CIFAR-10; and where FedSimSup's
    first run diverges, a second for all."""
    often = row in REPEATED and column.endswith("100") and not column.startswith("cifar100")
    if column == DIVERGES:
        return min(s["repeats"], s["seeds"] + 1)
    return s["repeats"] if often else s["seeds"]


def columns_of(**shares: tuple) -> dict[str, dict]:
    """Columns by name; shares: by data set the parameters, alphas below 1 and numbers of classes from 1 on."""
    found = {}
    for dataset, values in shares.items():
        for value in values:
            own = {"alpha": value} if value < 1 else {"scheme": "pat_balanced", "classes_per_client": value}
            share = f"Dir({value:g})" if value < 1 else f"{value} classes"
            found |= {f"{dataset}, {share}, {c}": {"dataset": dataset, "clients": c, **own} for c in CLIENTS}
    return found


COMMON = dict(
    smaller=SMALLER, smaller_overnight=SMALLER_OVERNIGHT, settings=SETTINGS,
)  # fmt: skip
ORDER = ours(
    "The methods' order is that of the paper: rank correlation above 0.8 in every column.",
    like_the_paper(0.8, PERSONAL, METHODS),
)
ABOVE_FEDREP = ours("FedSimSup is above FedRep in every column.", below(["fedrep"], ["fedsimsup"]))
ABOVE_FEDPAC = ours("FedSimSup is above FedPAC in every column.", below(["fedpac"], ["fedsimsup"]))
AT_POST = ours(
    "FedSimSup is also the best of the methods that have a trained model of each client, all tested at `post`.",
    best("fedsimsup", ("local", "fedrep", "fedproto", "fedpac"), point="post"),
)


def wider(text: str, one: str, other: str) -> Claim:
    """A claim that FedSimSup's lead over the best other is larger in the columns whose name has `other` for `one`."""

    def check(tables) -> Verdict:
        compared, over = on_shared_seeds(tables)
        found, lead = means(compared), gap("fedsimsup")
        there, both = columns_read(tables), " and ".join(name.strip(",") for name in (one, other))
        pairs = [(name, name.replace(one, other)) for name in there if one in name]
        pairs = [pair for pair in pairs if pair[1] in there]
        if lacks := without(found, METHODS, sum(pairs, ())) or ("" if pairs else f"needs columns of {both}"):
            return not_tested(lacks)
        margins = {f"{b} over {a}": lead(found[b]) - lead(found[a]) for a, b in pairs}
        leads = {name: Interval.of(lead(found[name])).text() for pair in pairs for name in pair}
        return decided(
            margins, "leads over the best other: " + ", ".join(f"{n}: {lead}" for n, lead in leads.items()), over
        )

    return Claim(text, check)
