"""Table 1: the accuracy of eight methods with Dirichlet label skew."""

from fedlib.claims import Claim, below, best, place
from fedlib.experiments.fedsimsup import task
from fedlib.experiments.fedsimsup.task import METHODS, WRITERS

COLUMNS = task.columns_of(cifar10=(0.1, 0.5), cifar100=(0.1, 0.5)) | task.FEMNIST
TABLE = task.table("1", COLUMNS)

ITEM = TABLE.item(
    title="FedSimSup Table 1: accuracy with Dirichlet label skew",
    claim="FedSimSup is the most accurate of eight methods, whatever the data set, the clients and the heterogeneity.",
    minutes={"smoke": 0.3, "quick": 1, "reduced": 540, "paper": 4000},
    claims=(
        Claim("FedSimSup is the most accurate of all eight methods in every setting.", best("fedsimsup", METHODS)),
        Claim("FedRep is second in every setting.", place("fedrep", 2, METHODS)),
        task.wider("FedSimSup leads by more at Dir(0.5) than at Dir(0.1), with the same data and clients.",
                   "Dir(0.1)", "Dir(0.5)"),
        task.wider("FedSimSup leads by more on CIFAR-100 than on CIFAR-10, with the same partition and clients.",
                   "cifar10,", "cifar100,"),
        Claim("At Dir(0.1) local-only training is at least 10 points above FedAvg.",
              below(["fedavg"], ["local"], by=10, columns=lambda name: "Dir(0.1)" in name)),
        Claim("On FEMNIST FedAvg outperforms local-only training.", below(["local"], ["fedavg"], columns=[WRITERS])),
        *task.MORE,
    ),
    **task.COMMON | {"smaller_reduced": f"{task.LESS}; no FEMNIST; {task.SEEDS}"},
)  # fmt: skip
