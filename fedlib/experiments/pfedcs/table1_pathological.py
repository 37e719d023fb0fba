"""Table 1: the accuracy of thirteen methods with few classes a client."""

from fedlib.claims import Claim
from fedlib.experiments.pfedcs.task import (
    COMMON,
    EVERY,
    IS_FIRST,
    ONE_SEED,
    PATHOLOGICAL,
    item,
    smaller_overnight,
    table,
)

FIRST = Claim("PFedCS is the most accurate method in every column.", IS_FIRST)
TABLE = table("1", PATHOLOGICAL, EVERY)
ITEM = item(
    TABLE, "Table 1: accuracy with few classes a client", (0.3, 1, 40, 300_000), FIRST, *COMMON,
    smaller_overnight=smaller_overnight() + ONE_SEED,
)  # fmt: skip
