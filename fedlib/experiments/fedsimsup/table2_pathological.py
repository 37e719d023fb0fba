"""Table 2: the accuracy of eight methods with a few classes per client."""

from fedlib.claims import Claim, below, best, within
from fedlib.experiments.fedsimsup import task
from fedlib.experiments.fedsimsup.task import METHODS

COLUMNS = task.columns_of(cifar10=(2, 5), cifar100=(5, 20))
WON = ("cifar10, 2 classes, 100", "cifar10, 5 classes, 100", "cifar100, 20 classes, 100", "cifar100, 20 classes, 50")
CLOSE = ("cifar10, 2 classes, 50", "cifar10, 5 classes, 50")
LOST = ("cifar100, 5 classes, 100", "cifar100, 5 classes, 50")
TABLE = task.table("2", COLUMNS)

ITEM = TABLE.item(
    title="FedSimSup Table 2: accuracy with pathological label skew (few classes per client)",
    claim="With a fixed number of classes per client, FedSimSup is among the best methods, but not always the best.",
    minutes={"smoke": 0.3, "quick": 1, "reduced": 540, "paper": 3000},
    claims=(
        Claim("On CIFAR-10 with 100 clients FedSimSup is the most accurate of all eight methods.",
              best("fedsimsup", METHODS, columns=WON[:2])),
        Claim("On CIFAR-100 with 20 classes per client FedSimSup is the most accurate of all eight methods.",
              best("fedsimsup", METHODS, columns=WON[2:])),
        Claim("On CIFAR-10 with 50 clients FedSimSup and FedRep are within a point of each other.",
              within(["fedsimsup", "fedrep"], 1, columns=CLOSE)),
        Claim("On CIFAR-100 with 5 classes per client, local-only training and FedProto outperform FedSimSup.",
              below(["fedsimsup"], ["local", "fedproto"], columns=LOST)),
        *task.MORE,
    ),
    **task.COMMON,
)  # fmt: skip
