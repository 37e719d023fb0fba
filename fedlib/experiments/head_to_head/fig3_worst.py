"""Figure 3: the worst tenth of the clients beside all of them."""

from dataclasses import replace

import numpy as np
import pandas as pd

from fedlib import figures
from fedlib.analysis.readings import Reading, last_round
from fedlib.analysis.tables import only
from fedlib.analysis.uncertainty import units
from fedlib.claims import Verdict, below, in_columns, ours
from fedlib.engine.result import RunResult
from fedlib.experiments.head_to_head import task
from fedlib.experiments.head_to_head.table2_accuracy import best_of
from fedlib.experiments.head_to_head.task import FOUR

WORST, ALL = {"of": "the worst tenth"}, {"of": "all clients"}


def both(r: RunResult, column: str = "") -> list[Reading]:
    """The headline's mean over all clients, and over the tenth (at least one) with the lowest accuracies, which are
    others in every method; the intervals of that are over seeds."""
    (whole,) = (reading for reading in last_round("client_mean")(r) if reading.headline)
    tenth = np.sort(whole.values)[: max(1, round(len(whole.values) / 10))]
    return [Reading(whole.point, True, float(tenth.mean()), about=WORST), replace(whole, about=ALL)]


TABLE = task.table(task.with_rates, numbers=(), read=both, where=WORST, also={"all clients": ALL})


def analyse(s: dict, found: dict[tuple, RunResult]) -> dict[str, pd.DataFrame]:
    tables = TABLE.analyse(s, found)
    return {**tables, "compare": task.unprinted(tables["compare"])}


def over_seeds(check):
    """A check of the worst tenth, which says that its intervals are over seeds: the worst are others in every method,
    and are not drawn again."""

    def worst(tables) -> Verdict:
        return replace(check(tables), over=units({"tidy": only(tables["tidy"], **WORST)}))

    return worst


ITEM = TABLE.item(
    title="Head to head, Figure 3: the worst tenth of the clients",
    claim="What helps clients on average also helps those that are worst off.",
    **task.COMMON,
    minutes={"smoke": 0.1, "quick": 0.5, "overnight": 75, "paper": 15000},
    analyse=analyse,
    figure=lambda tables: figures.accuracies(tables["cells"].replace({"series": {"ours": WORST["of"]}})),
    claims=(
        ours("The worst tenth of FedAvg + FT's clients is above the worst tenth of those that train alone.",
             over_seeds(below(["local"], ["fedavg_ft"], **WORST))),
        ours("The worst tenth with the best of the four is above FedAvg + FT's.",
             over_seeds(in_columns(best_of(FOUR, ["fedavg_ft"]), (*FOUR, "fedavg_ft"), **WORST))),
    ),
)  # fmt: skip
