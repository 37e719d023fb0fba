"""Table 2: the accuracy of eleven methods with Dirichlet label skew."""

import pandas as pd

from fedlib.analysis.accuracies import columns_read, means, ranks
from fedlib.claims import Claim, Verdict, apart, below, best, both, decided, not_tested, ours, place
from fedlib.claims.checks import on_shared_seeds
from fedlib.experiments.item import Found, Tables, joined, part
from fedlib.experiments.pfedsv import task
from fedlib.experiments.pfedsv.table1_pathological import TABLE as TABLE1
from fedlib.experiments.pfedsv.task import ALL, METHODS, OWN

NEXT = ("fedfomo", "pfedhn")
TABLE = task.table("2", "dirichlet")


def analyse(s: dict, found: Found) -> Tables:
    """Besides the table's: ranks also on all classes; _easier, accuracies of Table 1."""
    there, tables = part(found, "Table 1"), TABLE.analyse(s, found)
    every = pd.concat([tables["ranks"], ranks(tables, ALL).assign(column=lambda t: t["column"] + ", all classes")])
    return {**tables, "ranks": every.reset_index(drop=True), "_easier": means(TABLE1.read_off(s, there), **OWN)}


def harder_than_table1(tables) -> Verdict:
    harder, easier = means(tables, **OWN), tables["_easier"]
    margins = {f"{cell[1]}, {cell[0]}": easier[cell] - harder[cell] for cell in harder if cell in easier}
    if not margins:
        return not_tested("needs the runs of Table 1")
    values = {cell: margin.iloc[0] for cell, margin in margins.items()}
    ends = (f"{apart(margins[cell])} ({cell})" for cell in (min(values, key=values.get), max(values, key=values.get)))
    lower = sum(value > 0 for value in values.values())
    return decided(margins, f"lower in {lower} of {len(values)} cells; by {' to '.join(ends)}")


def gain_needs_all_classes(tables) -> Verdict:
    gains, columns = {}, columns_read(tables, **OWN)
    for on, where in (("own test parts", OWN), ("all classes", ALL)):
        m, _, over = on_shared_seeds(tables, ("pfedsv", "local"), **where)
        if not columns or any((column, row) not in m for column in columns for row in ("pfedsv", "local")):
            return not_tested("missing runs: pfedsv or local")
        gains[on] = {column: m[column]["pfedsv"] - m[column]["local"] for column in columns}
    own, every = gains.values()
    texts = (f"{k}: " + ", ".join(f"{apart(gain[k])} on {on}" for on, gain in gains.items()) for k in own)
    return decided({k: every[k] - own[k] for k in own}, f"pfedsv minus local, {'; '.join(texts)}", over)


ITEM = TABLE.item(
    title="pFedSV Table 2: accuracy with Dirichlet label skew",
    claim="Dirichlet label skew is harder for every method, and pFedSV leads by more.",
    runs=lambda s: TABLE.runs(s) | joined({"Table 1": TABLE1.runs(s)}),
    made_of=lambda table, key: key[0] != "Table 1",
    analyse=analyse,
    claims=(
        task.BEST,
        Claim("FedAvg is lowest with few and with many clients.", place("fedavg", -1, **OWN)),
        Claim("Of the methods with personalised models, FedFomo and pFedHN come next, then FedAMP and pFedMe.",
              both(below(NEXT, ["pfedsv"], **OWN), below(("fedamp", "pfedme"), NEXT, **OWN))),
        task.FEWER,
        Claim("Dirichlet label skew is harder than two classes per client (Table 1) for every method.",
              harder_than_table1),
        ours("Evaluated on the classes of all clients, pFedSV is the most accurate with few and with many clients.",
             best("pfedsv", METHODS, **ALL)),
        ours("pFedSV gains more over local-only training where clients are evaluated on all classes than on their "
             "own.",
             gain_needs_all_classes),
        task.AT_POST,
        task.ORDER,
    ),
    **task.COMMON | {"minutes": {**task.COMMON["minutes"], "reduced": 1250},  # with Table 1's runs
                     "smaller_reduced": f"{task.SMALLER_REDUCED}; tested on equally many images of every class that a "
                     "client owns, the evaluation protocol at which local-only training has the reported level"},
)  # fmt: skip
