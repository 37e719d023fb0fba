"""Notes: how much of the four papers' leads remains where all methods are evaluated at the same point."""

from __future__ import annotations

import pandas as pd

from fedlib import algorithms, figures
from fedlib.analysis.accuracies import differences
from fedlib.analysis.names import proper, titled
from fedlib.analysis.points import RECEIVED, TRAINED, codes
from fedlib.analysis.tables import only
from fedlib.analysis.uncertainty import Interval, draws, in_seeds
from fedlib.claims import apart, decided, not_tested, ours
from fedlib.experiments.fedsimsup import table1_dirichlet
from fedlib.experiments.item import Found, Item, Runs, Tables, joined, part, per_profile, stand_in
from fedlib.experiments.pfedcs import table1_pathological as pfedcs_table1
from fedlib.experiments.pfedsim import table3_own_clients
from fedlib.experiments.pfedsv import table1_pathological as pfedsv_table1

PAPERS = {
    "pfedsim": (table3_own_clients, "pfedsim"), "fedsimsup": (table1_dirichlet, "fedsimsup"),
    "pfedcs": (pfedcs_table1, "pfedcs"), "pfedsv": (pfedsv_table1, "pfedsv"),
}  # the first table of each, and its method  # fmt: skip
THERE = {"paper": ("pfedsim",), "reduced": ("fedsimsup", "pfedsv")}  # with runs at a scale; else all have
REPORTED, PROTOCOL = "reported", "at the replicated paper's evaluation points"
KINDS = (REPORTED, PROTOCOL, TRAINED, RECEIVED)


def parts(s: dict) -> dict[str, tuple]:
    """The papers that have runs at this scale."""
    return {paper: PAPERS[paper] for paper in THERE.get(s["scale"], PAPERS)}


def runs(s: dict) -> Runs:
    """The runs of the papers' tables at this scale; nothing of its own."""
    items = {paper: module.ITEM for paper, (module, _) in parts(s).items()}
    return joined({paper: item.runs(item.settings[s["scale"]]) for paper, item in items.items()})


def renamed(tidy: pd.DataFrame) -> pd.DataFrame:
    """With evaluation points called as in Table 1."""
    names = {row: {code: name for name, code in codes(row.partition(", ")[0]).items()}
             for row in tidy["row"].unique() if row.partition(", ")[0] in algorithms.of_fedlib()}  # fmt: skip
    return tidy.assign(point=[names.get(row, {}).get(code, code) for row, code in zip(tidy["row"], tidy["point"])])


def leads(tables, row: str, **where) -> dict[str, tuple[str, pd.Series]]:
    """By column the best other method and draws of the row's lead over it, in points, on the seeds that these two
    share. A method does not compete with its own variants."""
    found = {}
    for other in dict.fromkeys(name for name in tables["tidy"]["row"] if name.partition(", ")[0] != row):
        for column, lead in differences(tables, row, other, **where)[1].items():
            found[column] = min(found.get(column, (other, lead)), (other, lead), key=lambda rival: rival[1].iloc[0])
    return found


def read_off(paper: str, s: dict, found: Found) -> Tables:
    """A paper's accuracies, as its table reads them, with points called as in Table 1."""
    table, settings = PAPERS[paper][0].TABLE, PAPERS[paper][0].ITEM.settings[s["scale"]]
    read = renamed(only(table.read_off(settings, part(found, paper))["tidy"], **table.where))
    if paper == "pfedsim":
        read = read[read["column"].isin(table3_own_clients.MAIN)]  # other columns hold a few methods only
    return {"tidy": read}


def called(tables: Tables, instead: str) -> Tables:
    """The tables with the names of columns as readers see them."""
    return {**tables, "tidy": tables["tidy"].assign(column=lambda t: [titled(name, instead) for name in t["column"]])}


def by_protocol(paper: str, tables) -> dict[str, dict[str, tuple[str, pd.Series]]]:
    """`leads` of a paper's method by protocol."""
    row, once = PAPERS[paper][1], tables["tidy"]
    found = {TRAINED: leads(tables, row, point=TRAINED), RECEIVED: leads(tables, row, point=RECEIVED)}
    if paper == "pfedsim":  # a family of its own, as in the claims of Table 3
        once = once[once["column"].isin(table3_own_clients.ONCE)]
    return {PROTOCOL: leads({"tidy": once}, row, headline=True)} | found


def lost(paper: str, tables, found) -> pd.DataFrame:
    """paper, column, seed, change: points of its lead that a method loses in a seed where all are tested after local
    training, each time against the best of the other methods there."""
    (_, row), lines = PAPERS[paper], []
    tidy = tables["tidy"]
    own, alike = tidy[tidy["headline"]], tidy[tidy["point"] == TRAINED]
    for column in (column for column in found[PROTOCOL] if column in found[TRAINED]):
        lead = [_by_seed(frame[frame["column"] == column], row, found[name][column][0])
                for name, frame in ((PROTOCOL, own), (TRAINED, alike))]  # fmt: skip
        lines += [(paper, column, seed, gap) for seed, gap in (lead[0] - lead[1]).dropna().items()]
    return pd.DataFrame(lines, columns=["paper", "column", "seed", "change"])


def _by_seed(frame: pd.DataFrame, row: str, other: str) -> pd.Series:
    accuracy = 100 * frame.set_index(["row", "seed"])["accuracy"]
    return accuracy[row] - accuracy[other]


def analyse(s: dict, found: Found) -> Tables:
    """tidy: accuracies of all papers' runs; compare: one row a task, the lead by protocol; _shown: the same, long, for
    the figure; _leads: draws by (paper, column), after local training; _lost: `lost`."""
    shown, alike, tidy, gone = [], {}, [], []
    for paper, (module, row) in parts(s).items():
        tables = called(read_off(paper, s, found), instead := stand_in(module.ITEM.settings[s["scale"]]))
        if tables["tidy"].empty:
            continue
        tidy.append(tables["tidy"].assign(column=paper + ": " + tables["tidy"]["column"].astype(str)))
        ways = by_protocol(paper, tables)
        printed = leads(called(module.TABLE.as_printed(module.ITEM.settings[s["scale"]]), instead), row, headline=True)
        gone.append(lost(paper, tables, ways))
        alike |= {(paper, column): lead for column, (_, lead) in ways[TRAINED].items()}
        for name, of in {REPORTED: printed, **ways}.items():
            for column, (other, lead) in ((column, of[column]) for column in ways[PROTOCOL] if column in of):
                text, task = f"{apart(lead)} over {proper(other)}", f"{proper(paper)}: {column}"
                shown.append(("", task, name, *Interval.of(lead).drawn, text))
    shown = pd.DataFrame(shown, columns=["task", "row", "kind", "mean", "low", "high", "text"])
    compare = shown.pivot_table(index="row", columns="kind", values="text", aggfunc="first", sort=False)
    compare = compare.rename_axis(columns=None).reset_index().rename(columns={"row": "task"})
    kept = ["column", "row", "seed", "point", "headline", "accuracy"]
    tidy = pd.concat(tidy)[kept] if tidy else pd.DataFrame(columns=kept)
    gone = pd.concat([pd.DataFrame(columns=["paper", "column", "seed", "change"]), *gone]).astype({"change": float})
    return {"tidy": tidy, "compare": compare, "_shown": shown, "_leads": pd.DataFrame(alike), "_lost": gone}


def smaller_when_alike(tables):
    """Each paper's lead is smaller where all are evaluated after local training than at the paper's point."""
    if tables["_lost"].empty:
        return not_tested("nothing was run")
    lost = draws(tables["_lost"], "change", ["paper", "column"])
    margins = {": ".join(key): m for key, m in lost.items()}
    texts = [f"{name} {apart(gap)}" for name, gap in margins.items()]
    said = f"the lead at the replicated paper's evaluation points minus that after local training: {'; '.join(texts)}"
    return decided(margins, said, over_tables(tables))


def over_tables(tables) -> str:
    """What intervals are over, in words."""
    return f"{in_seeds(tables['_lost'].groupby(['paper', 'column'])['seed'].nunique())} of each paper's own table"


def nobody_leads(tables):
    """After local training no paper's method is more than a point above the best of the other methods."""
    alike = tables["_leads"]
    if alike.empty:
        return not_tested("nothing was run")
    texts = [f"{paper}, {column} {apart(lead)}" for (paper, column), lead in alike.items()]
    return decided({f"{paper}: {column}": 1 - lead for (paper, column), lead in alike.items()},
                   f"{'; '.join(texts)}; threshold of 1 point, set by us", over_tables(tables))  # fmt: skip


ITEM = Item(
    title="Evaluation: how much of the four papers' leads remains when all methods are evaluated at the same point",
    claim="How much of each paper's lead is due to the evaluation point?",
    smaller="the four papers' tables on digits, at their own `quick` profile",
    smaller_reduced="the tables of FedSimSup and pFedSV at reduced scale, as far as they were run",
    settings=per_profile(scale=["smoke", "quick", "paper"], reduced={"scale": "reduced"}),
    minutes={"smoke": 1, "quick": 4, "reduced": 1140, "paper": 450},
    runs=runs,
    analyse=analyse,
    partial=True,
    figure=lambda tables: figures.dots(
        tables["_shown"], KINDS, "lead over the best competitor, points", figures.leads_left
    ),
    claims=(
        ours("For every paper with runs at this scale, the proposed method leads by less if all methods are evaluated "
             "after local training than if each is evaluated where the paper does.", smaller_when_alike),
        ours("Evaluated after local training, no such paper's method is more than one point above its best competitor.",
             nobody_leads),
    ),
)  # fmt: skip
