"""Table 1: the accuracy of thirteen methods with few classes a client."""

from fedlib.claims import Claim
from fedlib.experiments.pfedcs.task import EVERY, FAR, IS_FIRST, ORDER, PATHOLOGICAL, item, table

FIRST = Claim("PFedCS is the most accurate method in every column.", IS_FIRST)
TABLE = table("1", PATHOLOGICAL, EVERY)
ITEM = item(TABLE, "Table 1: accuracy with few classes a client", 1000, FIRST, FAR, ORDER)
