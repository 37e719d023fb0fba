"""Table 3: who collaborates."""

from fedlib.claims import Claim, below, both, within
from fedlib.experiments.pfedcs.task import PATHOLOGICAL, item, table

SELECTIONS = {"FedPer": {"method": "fedper"}} | {
    how: {"method": "pfedcs", "select": how} for how in ("none", "all", "random", "adaptive")
}
COLUMNS = {name: own for name, own in PATHOLOGICAL.items() if own["dataset"] == "cifar100"}

TABLE = table("3", COLUMNS, SELECTIONS, lambda cell: "FedPer" if cell["method"] == "fedper" else cell["selection"])
ITEM = item(
    TABLE, "Table 3: who collaborates", 150,
    Claim(
        "Adaptive collaborators are best, then random ones or all; none and FedPer are last.",
        both(below(["random", "all"], ["adaptive"]), below(["none", "FedPer"], ["random", "all"])),
    ),
    Claim("No collaborators is FedPer, within half a point.", within(["none", "FedPer"], 0.5)),
)  # fmt: skip
