"""Table 1: the accuracy of thirteen methods with few classes per client."""

from fedlib.claims import Claim
from fedlib.experiments.pfedcs.task import BOTH_BETAS, COMMON, EVERY, IS_FIRST, PATHOLOGICAL, item, table

FIRST = Claim("PFedCS is the most accurate method in every setting.", IS_FIRST)
TABLE = table("1", PATHOLOGICAL, EVERY)
ITEM = item(
    TABLE, "Table 1: accuracy with pathological label skew (few classes per client)", (0.3, 1, 1250, 300_000), FIRST,
    *COMMON, **BOTH_BETAS,
)  # fmt: skip
