"""Figure 4: what a client that comes later gets: before local training, and after one epoch."""

from dataclasses import replace

from fedlib.analysis.readings import Reading
from fedlib.claims import below, best, best_of, in_columns, ours
from fedlib.engine.result import RunResult
from fedlib.experiments.head_to_head import task
from fedlib.experiments.head_to_head.task import CLASSIFIERS_ONLY, SIM, SUP
from fedlib.experiments.item import per_profile

AFTER, BEFORE = {"when": "after an epoch"}, {"when": "before local training"}
ROWS = ("local", "fedavg", "fedper", "fedrep", "fedfomo", "pfedsim", "pfedcs", "pfedsv", CLASSIFIERS_ONLY)
TAKING = ("pfedsim", "pfedcs", "pfedsv")  # of the four; FedSimSup's server mixes models of clients that were there
SMOKED = ("local", "fedavg", "pfedsim", "pfedsv")
FIFTH = 5  # one client of so many comes later


def later(s: dict, column: str) -> dict:
    """The task of a column in which a fifth of the clients come after the last round, and train for one epoch then."""
    return (own := task.with_rates(s, column)) | {"unseen": own["num_clients"] // FIFTH, "join_epochs": 1}


def of_newcomers(r: RunResult, column: str = "") -> list[Reading]:
    """Means over newcomers: as they come, with what they get (local-only training: an untrained network), and after an
    epoch of their own."""
    found = []
    for when, about in (("after", AFTER), ("before", BEFORE)):
        points = [tested["point"] for tested in r.newcomers if tested["when"] == when]
        point = "post" if when == "after" else next((p for p in points if p != "post"), "post")
        if point in points:
            correct, tests = r.of_newcomers(when, point)
            found.append(Reading(point, True, float((correct / tests).mean()), about=about))
    return found


TABLE = replace(
    task.TABLE, task=later, columns=(SIM, SUP), numbers=(), read=lambda s: of_newcomers, where=AFTER,
    ours=AFTER["when"], also={"before local training": BEFORE},
)  # fmt: skip


ITEM = TABLE.item(
    title="Head to head, Figure 4: new clients",
    claim="A new client, which joins after the last round, gains most from fine-tuning FedAvg's model.",
    smaller=task.SMALLER("20 and 10 clients in 9") + task.ONE_SEED,
    smaller_reduced=f"{task.SHORT}; {task.SEEDS}",
    settings=per_profile(task.SETTINGS, methods=[SMOKED, ROWS, ROWS]),
    minutes={"smoke": 0.1, "quick": 0.4, "reduced": 150, "paper": 5000},
    claims=(
        ours("After one local epoch FedAvg's model is the most accurate that new clients can get.",
             best("fedavg", (*TAKING, "fedper", "fedrep"), **AFTER)),
        ours("After one epoch each of the papers' methods that can serve new clients outperforms local-only training.",
             below(["local"], TAKING, **AFTER)),
        ours("Before local training, the best of the papers' methods that serve new clients outperforms FedAvg.",
             in_columns(best_of(TAKING, ["fedavg"]), (*TAKING, "fedavg"), **BEFORE)),
    ),
)  # fmt: skip
