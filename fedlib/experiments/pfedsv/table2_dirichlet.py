"""Table 2: the accuracy of eleven methods with Dirichlet label skew."""

import pandas as pd

from fedlib.analysis.accuracies import chosen, columns_read, in_common, means, ranks
from fedlib.analysis.points import changes
from fedlib.analysis.uncertainty import units
from fedlib.claims import Claim, Verdict, apart, below, best, both, decided, each_apart, not_tested, ours, place
from fedlib.experiments.item import Found, Tables, joined, part
from fedlib.experiments.pfedsv import task
from fedlib.experiments.pfedsv.table1_pathological import TABLE as TABLE1
from fedlib.experiments.pfedsv.task import ALL, METHODS, OWN

NEXT, EASIER = ("fedfomo", "pfedhn"), "Table 1: "
TABLE = task.table("2", "dirichlet")


def analyse(s: dict, found: Found) -> Tables:
    """Besides the table's: ranks also on all classes; _with_table1, accuracies of both tables."""
    there, tables = part(found, "Table 1"), TABLE.analyse(s, found)
    every = pd.concat([tables["ranks"], ranks(tables, ALL).assign(column=lambda t: t["column"] + ", all classes")])
    easier = TABLE1.read_off(s, there)["tidy"].assign(column=lambda t: EASIER + t["column"])
    joint = pd.concat([tables["tidy"], easier], ignore_index=True).astype({"accuracy": float})  # errors of their own
    return {**tables, "ranks": every.reset_index(drop=True), "_with_table1": means({"tidy": joint}, **OWN)}


def harder_than_table1(tables) -> Verdict:
    m = tables["_with_table1"]
    margins = {f"{row}, {c}": m[EASIER + c, row] - m[c, row] for c, row in m if (EASIER + c, row) in m}
    if not margins:
        return not_tested("needs the runs of Table 1")
    lower = sum(margin.iloc[0] > 0 for margin in margins.values())
    ends = (f"{apart(margins[c])} ({c})" for end in (min, max) for c in [end(margins, key=lambda c: margins[c][0])])
    return decided(margins, f"lower in {lower} of {len(margins)} cells; Table 1 minus Table 2 from {' to '.join(ends)}")


def gain_needs_all_classes(tables) -> Verdict:
    columns, shared = columns_read(tables, **OWN), in_common(tables, ("pfedsv", "local"))
    on = [chosen(shared, where) for where in (OWN, ALL)]
    found = (
        pd.DataFrame() if any(own.empty for own in on) else changes({"tidy": pd.concat(on)}, "tested_on", "own", "all")
    )
    there = [column for column in columns if {(column, "pfedsv"), (column, "local")} <= set(found)]
    gains = {column: found[column, "pfedsv"] - found[column, "local"] for column in there}
    told = f"gain on all classes minus gain on own: {each_apart(gains)}" if gains else ""
    if not columns or len(there) < len(columns):
        lacks = f"missing runs: pfedsv or local (in {len(columns) - len(there)} of {len(columns)} settings)"
        return not_tested("; ".join(filter(None, [lacks, told])), decided(gains, told) if gains else None)
    return decided(gains, told, units(shared))


ITEM = TABLE.item(
    title="pFedSV Table 2: accuracy with Dirichlet label skew",
    claim="Dirichlet label skew is harder for every method, and pFedSV leads by more.",
    runs=lambda s: TABLE.runs(s) | joined({"Table 1": TABLE1.runs(s)}),
    analyse=analyse,
    claims=(
        task.BEST,
        Claim("FedAvg is lowest with 10 and with 100 clients.", place("fedavg", -1, METHODS, **OWN)),
        Claim("Of the methods with personalised models, FedFomo and pFedHN come next, then FedAMP and pFedMe.",
              both(below(NEXT, ["pfedsv"], **OWN), below(("fedamp", "pfedme"), NEXT, **OWN))),
        task.FEWER,
        Claim("Dirichlet label skew is harder than two classes per client (Table 1) for every method.",
              harder_than_table1),
        ours("Evaluated on the classes of all clients, pFedSV is the most accurate with 10 and with 100 clients.",
             best("pfedsv", METHODS, **ALL)),
        ours("pFedSV gains more over local-only training where clients are evaluated on all classes than on their "
             "own.",
             gain_needs_all_classes),
        task.AT_POST,
        task.ORDER,
    ),
    **task.COMMON | {"minutes": {**task.COMMON["minutes"], "reduced": 1250},  # with Table 1's runs
                     "smaller_reduced": f"{task.SMALLER_REDUCED}; tested on equally many images of every class that a "
                     "client owns, the one of three protocols with which Local is nearest to its reported value"},
)  # fmt: skip
