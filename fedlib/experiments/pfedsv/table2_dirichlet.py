"""Table 2: the accuracy of eleven methods with Dirichlet shares."""

from __future__ import annotations

from fedlib.experiments.claims import (
    Claim,
    Verdict,
    apart,
    best,
    decided,
    in_columns,
    means,
    not_tested,
    ours,
    place,
)
from fedlib.experiments.pfedsv.table1_pathological import TABLE as TABLE1
from fedlib.experiments.pfedsv.task import ALL, AT_POST, BEST, COMMON, FEWER, METHODS, ORDER, OWN, SCALES, table

PERSONAL = ("pfedme", "fedfomo", "fedamp", "pfedhn", "pfedsv")
TABLE = table("2", "dirichlet")


def analyse(s: dict, results: list) -> dict:
    easier = TABLE1.analyse(s, results)
    return {**TABLE.analyse(s, results), "_easier": means(easier, **OWN)}


def pfedsv_then(second: set[str]):
    """Among the personal methods pFedSV is first, and these follow it."""

    def judge(m):
        rest = m.columns.drop(["pfedsv", *second])
        margins = {f"pfedsv over {other}": m["pfedsv"] - m[other] for other in second}
        margins |= {f"{a} over {b}": m[a] - m[b] for a in second for b in rest}
        return margins, f"best first: {', '.join(m.columns)}"

    return judge


def harder_than_table1(tables) -> Verdict:
    harder, easier = means(tables, **OWN), tables["_easier"]
    margins = {
        f"{row}, {scale}": easier[scale, row] - harder[scale, row] for scale, row in harder if (scale, row) in easier
    }
    if not margins:
        return not_tested("needs the runs of Table 1")
    values = {cell: margin.iloc[0] for cell, margin in margins.items()}
    least, most = (pick(values, key=values.get) for pick in (min, max))
    lower = sum(value > 0 for value in values.values())
    evidence = f"lower in {lower} of {len(values)} cells; by {apart(margins[least])} ({least}) to {apart(margins[most])} ({most})"
    return decided(margins, evidence)


def gain_needs_all_classes(tables) -> Verdict:
    found = {on["tested_on"]: means(tables, **on) for on in (OWN, ALL)}
    if any((scale, row) not in m for m in found.values() for scale in SCALES for row in ("pfedsv", "local")):
        return not_tested("without pfedsv or local")
    gains = {on: {k: m[k]["pfedsv"] - m[k]["local"] for k in SCALES} for on, m in found.items()}
    texts = (
        f"{k}: {apart(gains['own'][k])} on own test parts, {apart(gains['all'][k])} on all classes" for k in SCALES
    )
    return decided({k: gains["all"][k] - gains["own"][k] for k in SCALES}, f"pfedsv minus local, {'; '.join(texts)}")


ITEM = TABLE.item(
    title="pFedSV Table 2: accuracy with Dirichlet shares",
    claim="With Dirichlet shares the task is harder for every method, and pFedSV leads by more.",
    more=lambda s: list(TABLE1.runs(s).values()),
    analyse=analyse,
    claims=(
        BEST,
        Claim("FedAvg is lowest at both scales.", place("fedavg", -1, **OWN)),
        Claim(
            "Of the methods with personal models FedFomo and pFedHN come next, then FedAMP and pFedMe.",
            in_columns(pfedsv_then({"fedfomo", "pfedhn"}), PERSONAL, among=PERSONAL, **OWN),
        ),
        FEWER,
        Claim("Dirichlet shares are harder than two classes a client (Table 1) for every method.", harder_than_table1),
        ours(
            "Tested on the classes of all clients, pFedSV is the most accurate at both scales.",
            best("pfedsv", METHODS, **ALL),
        ),
        ours(
            "pFedSV gains more over Separate where clients are tested on all classes than on their own.",
            gain_needs_all_classes,
        ),
        AT_POST,
        ORDER,
    ),
    **COMMON,
)
