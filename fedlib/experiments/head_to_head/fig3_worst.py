"""Figure 3: the bottom 10 % of the clients, and all of them."""

from dataclasses import replace

import numpy as np

from fedlib.analysis.readings import Reading, last_round
from fedlib.claims import below, in_columns, ours
from fedlib.engine.result import RunResult
from fedlib.experiments.head_to_head import task
from fedlib.experiments.head_to_head.table2_accuracy import best_of
from fedlib.experiments.head_to_head.task import FOUR

WORST, ALL = {"of": "the bottom 10 %"}, {"of": "all clients"}


def both(r: RunResult, column: str = "") -> list[Reading]:
    """The headline's mean over all clients, and over the tenth (at least one) with the lowest accuracies, which are
    others in every method."""
    (whole,) = (reading for reading in last_round("client_mean")(r) if reading.headline)
    tenth = np.sort(whole.values)[: max(1, round(len(whole.values) / 10))]
    return [Reading(whole.point, True, float(tenth.mean()), about=WORST), replace(whole, about=ALL)]


TABLE = replace(task.TABLE, numbers=(), read=lambda s: both, where=WORST, ours=WORST["of"], also={"all clients": ALL})


ITEM = TABLE.item(
    title="Head to head, Figure 3: the accuracy of the bottom 10 % of clients",
    claim="What helps clients on average also helps the clients with the lowest accuracy.",
    **task.COMMON,
    minutes={"smoke": 0.1, "quick": 0.5, "reduced": 180, "paper": 15000},
    claims=(
        ours("The accuracy of the bottom 10 % of clients of FedAvg+FT is above that of local-only training.",
             below(["local"], ["fedavg_ft"], **WORST)),
        ours("The accuracy of the bottom 10 % of clients of the best of the four papers' methods is above FedAvg+FT's.",
             in_columns(best_of(FOUR, ["fedavg_ft"]), (*FOUR, "fedavg_ft"), **WORST)),
    ),
)  # fmt: skip
