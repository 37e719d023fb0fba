"""What pFedSim's items share: the federated task of Tables 3, 6, 7 and 8 in three sizes, and the methods; clients with
local-only training from one initialisation, which Figures 1 and 2 and Table 2 compare."""

from fedlib.base.errors import choose
from fedlib.experiments.item import Runs, per_profile, runs_of

METHODS = (
    "local", "fedavg", "fedprox", "feddyn", "fedgen", "fedbn", "perfedavg", "fedper", "fedrep", "fedfomo", "ffedap",
    "pfedsim",
)  # as in the paper, from top to bottom  # fmt: skip
SINGLE_MODEL = ("fedavg", "fedprox", "feddyn", "fedgen")
OTHERS = tuple(method for method in METHODS if method not in SINGLE_MODEL)  # clients' models differ
PERSONAL = ("fedper", "fedrep", "fedfomo", "ffedap", "pfedsim")
DIRICHLET = {"Dir(0.1)": 0.1, "Dir(0.5)": 0.5}
ALPHAS = tuple(DIRICHLET.values())

# Whose clients: those that the paper had, drawn again (its code's draw and halves), or a partition of ours.
SEED = 42  # of the reference code's draw
OWN, DRAWN = "the paper's partition", "our partition"
CLIENTS = {OWN: {"scheme": "dirichlet_reference", "partition_seed": SEED, "test_fraction": 0.5}, DRAWN: {}}

# By profile: smoke, quick, paper. pools: max-pools of LeNet5-BN, 1 as Table 5 prints it, 2 as the authors' code has it.
SETTINGS = per_profile(
    dataset=["digits", "digits", "cifar10"], num_clients=[6, 20, 100], join_ratio=[0.5, 0.5, 0.1],
    rounds=[2, 15, 200], local_epochs=[1, 5, 5], lr=[0.05, 0.05, 0.01], min_size=[10, 10, 40], pools=[1, 1, 2],
    eval_every=[1, 5, 10], seeds=1, clients=DRAWN,
)  # fmt: skip
ON_OWN = dict(clients=[None, None, OWN], seeds=[None, None, 3])  # of an item: at the paper's settings
SMALLER = (
    "digits (16x16) instead of CIFAR-10; 20 clients of which 10 take part, 15 rounds, instead of 100, 10 and 200; "
    "lr 0.05 instead of 0.01"
)


def of_column(s: dict, column: str) -> dict:
    """What the runs of a column have in common."""
    return {**s, "alpha": DIRICHLET[column], **CLIENTS[choose("clients", s["clients"], CLIENTS)]}


def every_method(s: dict) -> dict[str, dict]:
    """The rows of a table of methods. Per-FedAvg's beta, from the appendix, is a tenth of the learning rate."""
    own = {"perfedavg": {"beta": round(s["lr"] / 10, 12)}}
    return {method: {"method": method, **own.get(method, {})} for method in s["methods"]}


# clients alone --------------------------------------------------------------------------------------------------------

LABEL_SETS = {"i": [0, 1, 2, 3, 4], "i'": [0, 1, 2, 3, 4], "j": [2, 3, 4, 5, 6], "k": [5, 6, 7, 8, 9]}
PAIRS = {"i-i'": (0, 1), "i-j": (0, 2), "j-k": (2, 3), "i-k": (0, 3)}  # in the data's order of similarity
ALONE = per_profile(
    dataset=["digits", "digits", "cifar10"], seeds=[1, 5, 5], epochs=[2, 20, 20], lr=[0.05, 0.05, 0.01],
    min_size=[10, 10, 40], pools=1,
)  # fmt: skip
SMALLER_ALONE = (
    "digits (16x16) instead of CIFAR-10; 180 to 360 training images per client instead of 6,000 to 12,000; "
    "lr 0.05 instead of 0.01"
)


def alone(s: dict, kind: str, **what) -> Runs:
    """One run a seed of local-only training for so many epochs, counted as rounds of one local epoch."""
    training = dict(join_ratio=1.0, rounds=s["epochs"], local_epochs=1, eval_every=s["epochs"])
    return runs_of({**s, **training, **what}, {kind: {"method": "local"}}, s["seeds"])


def ten_clients(s: dict) -> Runs:
    """Ten clients by Dir(0.1)."""
    return alone(s, "ten clients", num_clients=10, alpha=0.1, measures=("cka", "client_similarity"))


def four_subsets(s: dict) -> Runs:
    """The four hand-made subsets i, i', j, k."""
    sets = list(LABEL_SETS.values())
    return alone(s, "four subsets", num_clients=4, scheme="manual", label_sets=sets, measures=("client_similarity",))
