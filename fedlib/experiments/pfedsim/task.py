"""What pFedSim's Tables 3, 6, 7 and 8 share: the federated task in three sizes, and the methods."""

from fedlib.base.errors import choose
from fedlib.experiments.item import per_profile

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
OWN, DRAWN = "the paper's", "drawn by us"
CLIENTS = {OWN: {"scheme": "dirichlet_reference", "partition_seed": SEED, "test_fraction": 0.5}, DRAWN: {}}

# By profile: smoke, quick, paper. pools: max-pools of LeNet5-BN, 1 as Table 5 prints it, 2 as the authors' code has it.
SETTINGS = per_profile(
    dataset=["digits", "digits", "cifar10"], num_clients=[6, 20, 100], join_ratio=[0.5, 0.5, 0.1],
    rounds=[2, 15, 200], local_epochs=[1, 5, 5], lr=[0.05, 0.05, 0.01], min_size=[10, 10, 40], pools=[1, 1, 2],
    eval_every=[1, 5, 10], seeds=1, clients=DRAWN,
)  # fmt: skip
ON_OWN = dict(clients=[None, None, OWN], seeds=[None, None, 3])  # of an item: at the paper's settings
OVERNIGHT = dict(rounds=100)  # of the paper's settings with this changed
SMALLER_OVERNIGHT = "100 rounds instead of 200, nothing else"
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
