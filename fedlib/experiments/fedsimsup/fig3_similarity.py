"""Figure 3: FedSimSup with and without similarity information."""

from fedlib.analysis.tables import only
from fedlib.claims import Claim, ours, over_seeds, under
from fedlib.claims.judges import first
from fedlib.experiments.fedsimsup import task
from fedlib.experiments.fedsimsup.task import by_round, over_rounds, picture
from fedlib.experiments.item import Found, Item, Tables, per_profile, runs_of

WEIGHTS = {
    "label cosines": "labels",  # FedSimSup
    "the most similar participant only": "nearest",
    "uniform weights": "uniform",  # our reading of "without"
    "shuffled label cosines": "shuffled",
    "non-participating clients keep their models": "none",
}
WITH, NEAREST, WITHOUT, SHUFFLED, KEPT = WEIGHTS


def runs(s: dict) -> dict:
    rows = {
        (row, f"Dir({alpha:g})"): {"method": "fedsimsup", "similarity": how, "partition": {"alpha": alpha}}
        for alpha in (0.1, 0.5)
        for row, how in WEIGHTS.items()
    }
    return runs_of(task.of_column(s, {"dataset": "cifar10", "clients": "100"}), rows, s["seeds"])


def analyse(s: dict, found: Found) -> Tables:
    """tidy: one row a run and evaluated round; ends: the last one."""
    tidy = over_rounds(found, task.average(s))
    compare = by_round(tidy, {"ours, last round, %": s["rounds"]})
    area = 100 * tidy.groupby(["column", "row"], sort=False)["accuracy"].mean()
    compare["ours, mean over the rounds, %"] = area.round(2).to_numpy()
    compare = compare.assign(paper="two curves; no numbers reported")
    return {"tidy": tidy, "ends": only(tidy, round=s["rounds"]), "compare": compare}


def mean_over_rounds(judge):
    """A check of the mean accuracy over all rounds: the area under the curve."""
    return over_seeds("tidy", "accuracy", "row", judge, scale=100, each="column")


ITEM = Item(
    title="FedSimSup Figure 3: with and without similarity information",
    claim="With label cosines as weights accuracy rises faster than without.",
    settings=per_profile(
        task.SETTINGS, reduced=dict(seeds=3), rounds=[None, 15, 100],
        eval_every=[None, 1, 5], dataset=["digits", "digits", "cifar10"], seeds=[1, 3, 5], methods=("fedsimsup",),
    ),
    smaller="digits (16x16; paper: CIFAR-10); 30 % of 20 clients in a round (paper: 10 % of 100); 15 rounds (paper: "
    "100); half of each client's data for testing; three seeds",
    smaller_reduced="learning rate 0.05 (paper: 0.1), pixels in [-1, 1], pooled accuracy; three seeds (`paper`: five)",
    minutes={"smoke": 0.2, "quick": 0.6, "reduced": 70, "paper": 120},
    runs=runs,
    analyse=analyse,
    figure=lambda tables: picture(tables, WITH),
    claims=(
        Claim("With similarity information accuracy rises faster: its mean over the rounds is higher than with uniform "
              "weights.", mean_over_rounds(under([WITHOUT], [WITH]))),
        ours("Whose labels are similar matters: with shuffled label cosines the mean over the rounds is lower.",
             mean_over_rounds(under([SHUFFLED], [WITH]))),
        ours("Aggregation for non-participating clients helps: keeping the client's own model gives a lower "
             "mean over the rounds than uniform weights.",
             mean_over_rounds(under([KEPT], [WITHOUT]))),
        ours("Label cosines have the highest mean over the rounds of all five.", mean_over_rounds(first(WITH))),
        ours("After the last round, too, label cosines outperform uniform weights.",
             over_seeds("ends", "accuracy", "row", under([WITHOUT], [WITH]), scale=100, each="column")),
    ),
)  # fmt: skip
