"""What the items on evaluation share: pFedSim's task, every method evaluated at all its points."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from fedlib import algorithms
from fedlib.analysis import points
from fedlib.claims import Verdict, apart, decided, not_tested
from fedlib.experiments.accuracy_table import AccuracyTable
from fedlib.experiments.item import leaving_out, per_profile
from fedlib.experiments.pfedsim import task as pfedsim
from fedlib.spec import RECOMPUTED, RunSpec

MANY = ("fedavg", "fedprox", "feddyn", "fedgen")  # with a single global model
# fedavg_ft is FedAvg at another point, and pfedsv_known is told who has which classes
ALL = tuple(name for name in algorithms.of_fedlib() if name not in ("fedavg_ft", "pfedsv_known"))
FEW = ("local", "fedavg", "fedbn", "fedper", "fedrep", "fedbabu", "fedfomo", "ffedap", "pfedsim", "pfedcs", "fedsimsup")
FAR = {  # over 2 points below the highest mean of three seeds at every point; others get more once all are run
    "Dir(0.1)": ("local", "fedamp", "fedproto", "perfedavg", "pfedsv"),
    "Dir(0.5)": ("local", "fedamp", "fedbabu", "fedfomo", "fedgh", "fedproto", "fedprox", "fedrep", "fesem", "ffedap",
                 "perfedavg", "pfedme", "pfedsv"),
}  # fmt: skip
AUTHORS = {  # their code's in place of fedlib's defaults; set after a review, when two of three seeds were there
    "fedpac": {"head_lr": 0.1}, "fedgh": {"server_batch": 1}, "fesem": {"members": "participants"},
}  # fmt: skip

SETTINGS = per_profile(
    leaving_out(pfedsim.SETTINGS, "clients", "eval_every"),
    methods=[("local", "fedavg", "fedper", "pfedsim"), FEW, ALL], seeds=[1, 3, 3], more_seeds=0,
    clients=[pfedsim.DRAWN, pfedsim.DRAWN, pfedsim.OWN],
)  # fmt: skip
TABLE_1 = {  # of the same runs is Figure 1
    "settings": SETTINGS, "smaller": f"{pfedsim.SMALLER}; eleven methods (`paper`: {len(ALL)})",
    "minutes": {"smoke": 0.2, "quick": 1.5, "paper": 350},
}  # fmt: skip


def of_column(s: dict, column: str, **more) -> dict:
    """The task of a column, "Dir(0.1)" or "Dir(0.5), ...": every method is evaluated after the last round, at all its
    points, and with recomputed statistics where the model has any. more: fields of the runs."""
    task = pfedsim.of_column(s, column.partition(", ")[0]) | {"eval_every": s["rounds"]} | more
    anew = task.get("model", RunSpec.model) == RunSpec.model
    return task | {"rows": {method: {"eval_points": evaluated(method, anew)} for method in s["methods"]}}


def seeds(s: dict, row: str, column: str) -> int:
    """Of a method in a column: more for those near the best."""
    return s["seeds"] + s["more_seeds"] * (row not in FAR[column])


def evaluated(method: str, anew: bool) -> tuple[str, ...]:
    """The codes of the points at which a method's run is evaluated; anew: with recomputed statistics, too."""
    first = points.first_point(method)
    return (*points.codes(method).values(), *((first + RECOMPUTED,) if anew and first else ()))


def every_method(s: dict) -> dict[str, dict]:
    """The rows, with what the methods' own authors set where it decides what a method does in this task."""
    return {method: own | AUTHORS.get(method, {}) for method, own in pfedsim.every_method(s).items()}


TABLE = AccuracyTable(  # of these methods; of our own, so that no paper has numbers of it
    "evaluation", (), tuple(pfedsim.DIRICHLET), of_column, every_method, lambda cell: None,
    seeds=seeds, chosen=points.named,
)  # fmt: skip


# checks ---------------------------------------------------------------------------------------------------------------


def another_is_first(before: Mapping[str, pd.DataFrame], then: Mapping[str, pd.DataFrame], said: str) -> Verdict:
    """In every column the method that is first before is below another one then. Both: draws by method; said: what is
    before and then, between these two."""
    margins, texts = {}, []
    for column, own in before.items():
        first, m = own.iloc[0].idxmax() if len(own.columns) > 1 else "", then[column]
        if first not in m or len(m.columns) < 2:
            return not_tested(f"{column}: nothing to compare with")
        rival = m.drop(columns=first).iloc[0].idxmax()
        margins[column] = m[rival] - m[first]
        texts.append(f"{column}: {first} leads{said} {rival} is {apart(margins[column])} relative to it")
    return decided(margins, "; ".join(texts), equal=1.0, unit="points")


def changes_little(found: Mapping[str, pd.Series], near: float, unit: str = "") -> Verdict:
    """All of these differences, as draws, are smaller than `near` points."""
    far = max(found, key=lambda name: abs(found[name].iloc[0]))
    text = f"largest for {far}: {apart(found[far])}; threshold of {near:g} point{'s' if near > 1 else ''}, set by us"
    return decided({name: near - gap.abs() for name, gap in found.items()}, text, unit=unit)
