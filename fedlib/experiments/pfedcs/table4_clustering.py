"""Table 4: how clients are grouped."""

from fedlib.claims import Claim, below, best, both, within
from fedlib.experiments.pfedcs.task import PATHOLOGICAL, item, table

GROUPINGS = {"kmeans": "kmeans", "hierarchical": "hier", "fixed_threshold": "fix", "gmm": "gmm"}
CLUSTERINGS = ["kmeans", "hierarchical", "gmm"]
COLUMNS = ("cifar10, 2 classes", "cifar100, 10 classes", "tiny_imagenet, 20 classes")
ROWS = {name: {"method": "pfedcs", "group": how} for name, how in GROUPINGS.items()}

TABLE = table("4", {name: PATHOLOGICAL[name] for name in COLUMNS}, ROWS, lambda cell: cell["clustering"])
ITEM = item(
    TABLE, "Table 4: how clients are grouped", 100,
    Claim("Clustering beats a fixed threshold.", below(["fixed_threshold"], CLUSTERINGS)),
    Claim("The three clusterings differ by at most 0.7 points, and the mixture is best.",
          both(best("gmm"), within(CLUSTERINGS, 0.7))),
)  # fmt: skip
