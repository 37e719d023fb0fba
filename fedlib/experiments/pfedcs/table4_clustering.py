"""Table 4: how clients are grouped; and how many with the same classes are found."""

from fedlib.analysis.groups import searched
from fedlib.analysis.tables import described, mean_stds, rows_of
from fedlib.claims import Claim, below, best, ours, over_seeds, under, within
from fedlib.experiments.accuracy_table import EXTRAS
from fedlib.experiments.item import Found, Tables, per_profile
from fedlib.experiments.pfedcs.task import PATHOLOGICAL, PFEDCS, SETTINGS, item, table

GROUPINGS = {"kmeans": "kmeans", "hierarchical": "hier", "fixed_threshold": "fix", "gmm": "gmm"}
CLUSTERINGS = ["kmeans", "hierarchical", "gmm"]
COLUMNS = ("cifar10, 2 classes", "cifar100, 10 classes", "tiny_imagenet, 20 classes")
ROWS = {name: {**PFEDCS, "group": how} for name, how in GROUPINGS.items()}
TABLE = table("4", {name: PATHOLOGICAL[name] for name in COLUMNS}, ROWS, lambda cell: cell["clustering"])


def analyse(s: dict, found: Found) -> Tables:
    """Besides the accuracies: search, one row a run, who was found; twins, its means over seeds."""
    search = rows_of(found, ("row", "column", "seed"), searched)
    shares = {name: name for name in search.columns[3:]}
    twins = described(search, ["column", "row"], **mean_stds(shares))
    return {**TABLE.analyse(s, found), "search": search, "twins": twins}


def more_found(tables):
    """By the precision of the candidates: how many of them have the same classes."""
    needed, judge = ["fixed_threshold", "gmm"], under(["fixed_threshold"], ["gmm"], form=".2f")
    return over_seeds("search", "precision of candidates", "row", judge, each="column", needs=needed)(tables)


ITEM = item(
    TABLE, "Table 4: clustering of clients", (0.2, 0.2, 190, 30_000),
    Claim("Clustering beats a fixed threshold.", below(["fixed_threshold"], CLUSTERINGS)),
    Claim("The three clusterings differ by at most 0.7 points.", within(CLUSTERINGS, 0.7)),
    Claim("The Gaussian mixture is the best of the four.", best("gmm", list(GROUPINGS))),
    ours("The Gaussian mixture's candidates are more often clients with the same classes (precision) than the fixed "
         "threshold's.",
         more_found),
    settings=per_profile(SETTINGS, reduced=dict(columns=("cifar100, 10 classes",))),
    analyse=analyse,
    shown={**EXTRAS, "twins": "Precision and recall of candidates and collaborators: clients with the same classes; "
                              "means over clients and rounds from the second on (std over seeds)"},
)  # fmt: skip
