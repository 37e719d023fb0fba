"""Figure 1: which pairs of methods reverse their order between before and after local training."""

from fedlib import figures
from fedlib.claims import ours
from fedlib.experiments.evaluation.table1_points import TABLE, before_and_after, pairs_change
from fedlib.experiments.evaluation.table1_points import analyse as table1
from fedlib.experiments.evaluation.task import TABLE_1
from fedlib.experiments.item import Found, Item, Tables


def analyse(s: dict, found: Found) -> Tables:
    """Those of Table 1, of the same runs; compare: how many pairs reverse their order, by points."""
    tables = table1(s, found)
    return {**tables, "compare": tables["flips"]}


ITEM = Item(
    title="Evaluation, Figure 1: pairs of methods that reverse their order",
    claim="Many pairs of methods reverse their order with the evaluation point.",
    **TABLE_1,
    runs=TABLE.runs,
    analyse=analyse,
    partial=True,
    figure=lambda tables: figures.flip_matrix(before_and_after(tables["_pairs"])),
    claims=(
        ours("At both alphas some pairs reverse their order between before and after local training, significantly "
             "at both.", pairs_change(0)),
    ),
)  # fmt: skip
