"""Table 2: the accuracy of thirteen methods with Dirichlet shares."""

from fedlib.claims import Claim
from fedlib.experiments.pfedcs.task import DIRICHLET, EVERY, FAR, IS_FIRST, ORDER, item, table

FIRST = Claim(
    "PFedCS is the most accurate method in every column (the paper's table disagrees on CIFAR-10, Dir(0.05)).", IS_FIRST
)
TABLE = table("2", DIRICHLET, EVERY)
ITEM = item(TABLE, "Table 2: accuracy with Dirichlet shares", 1000, FIRST, FAR, ORDER)
