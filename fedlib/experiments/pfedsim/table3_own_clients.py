"""Table 3 on the paper's partition, with the authors' input pipeline and with ours: what explains the lead?"""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from fedlib import figures
from fedlib.analysis.accuracies import differences, ranks
from fedlib.analysis.readings import Reading
from fedlib.analysis.uncertainty import Interval, draws, shared_seeds
from fedlib.claims import Claim, apart, below, best, decided, not_tested, ours
from fedlib.engine.result import RunResult
from fedlib.experiments.accuracy_table import EXTRAS, AccuracyTable
from fedlib.experiments.item import Found, Tables, leaving_out, per_profile
from fedlib.experiments.paper_numbers import partition_of
from fedlib.experiments.pfedsim.table6_rho import BETWEEN, PLATEAU, RHO, row_of
from fedlib.experiments.pfedsim.task import CLIENTS, DIRICHLET, METHODS, OWN, SETTINGS, SMALLER, every_method

ORIGINAL, NORMALISED = "the authors' input pipeline", "our input pipeline"
# pixels from 0 to 255 with the statistics of scaled ones, batches always in the same order, FedProx's mean uniform
CODES = {"pixels": "reference", "batch_order": "fixed", "rows": {"fedprox": {"weights": "uniform"}}}
READINGS = {ORIGINAL: lambda s: CODES, NORMALISED: lambda s: {}}
SEARCH = {
    "the authors' pixels, shuffled batches": lambda s: {"pixels": "reference"},
    "unshuffled batches, standardised pixels": lambda s: {"batch_order": "fixed"},
    "the authors' input pipeline, one max-pool layer": lambda s: CODES | {"pools": 3 - s["pools"]},
    "the authors' input pipeline, same label counts, other images": lambda s: CODES | {"class_order": 1},
    "the authors' input pipeline, evaluated one round earlier": lambda s: CODES | {
        "rounds": s["rounds"] - 1, "eval_every": s["rounds"] - 1,
        "rows": {"pfedsim": {"rho": s["rounds"] // 2 / (s["rounds"] - 1)}},
    },
}  # one thing otherwise at a time; the search for what gives pFedSim its lead  # fmt: skip
COLUMNS = {f"{how}, {title}": (how, alpha) for how in READINGS | SEARCH for title, alpha in DIRICHLET.items()}
MAIN = tuple(column for column, (reading, _) in COLUMNS.items() if reading in READINGS)
ALPHA_OF = {column: column.rpartition(", ")[2] for column in COLUMNS}

ALONE, SHARED = "without aggregation in phase 2", "averaged BN statistics"
MIXING = {
    f"pfedsim, {ALONE}": {"max_age": 0},
    "pfedsim, rho = 0, local-only": {"rho": 0.0, "max_age": 0},
    f"pfedsim, {SHARED}": {"bn_stats": "global"},
    f"pfedsim, {SHARED}, {ALONE}": {"bn_stats": "global", "max_age": 0},
}
CLOSEST = ("pfedsim", "fedper", "fedrep", "fedbn", "fedavg", "ffedap", "local", *MIXING)  # more seeds in paper
SEARCHED = ("pfedsim", "fedper", "fedavg")
TESTED_AT = {"ffedap": "agg"}  # the authors' code tests its aggregate; the other methods as everywhere
PERSONAL = ("local", "fedbn", "fedper", "fedrep", "fedfomo", "ffedap", "pfedsim")  # a client has a model of its own


def task_of(s: dict, column: str) -> dict:
    reading, alpha = COLUMNS[column]
    return {**s, **CLIENTS[OWN], "alpha": alpha, **(READINGS | SEARCH)[reading](s)}


def rows(s: dict) -> dict[str, dict]:
    """The methods, pFedSim with other shares of rounds in phase 1, and without aggregation in phase 2."""
    variants = {RHO[rho]: {"rho": rho} for rho in s["rhos"]} | {name: MIXING[name] for name in s["mixing"]}
    return every_method(s) | {name: {"method": "pfedsim", **own} for name, own in variants.items()}


def seeds(s: dict, row: str, column: str) -> int:
    if COLUMNS[column][0] in SEARCH:
        return s["seeds"] if s["search"] and row in SEARCHED else 0
    return max(s["seeds"], s["closest"] if row in CLOSEST else 0)


def as_tested(r: RunResult, row: str, read: list[Reading]) -> list[Reading]:
    """With the authors' code's evaluation point as the headline."""
    point = TESTED_AT.get(row)
    return [replace(one, headline=one.point == point) for one in read] if point else read


def column_of(cell) -> str:
    """A printed cell stands beside the authors' input pipeline, which is nearest to what was printed."""
    return f"{ORIGINAL}, {partition_of(cell)}"


TABLE = AccuracyTable(
    "pfedsim", ("3", "6"), tuple(COLUMNS), task_of, rows, column_of, row_of, seeds=seeds, chosen=as_tested
)
ONCE = [column for column in MAIN if COLUMNS[column][0] == ORIGINAL]
# evaluation points, and the columns that lend each other their variances, as in the claims on them
PROTOCOLS = {
    "each evaluated as in the authors' code": ({}, ONCE),
    "all evaluated after local training": ({"point": "post"}, MAIN),
}
INPUTS = {
    NORMALISED: "standardised pixels, shuffled batches", **{reading: reading for reading in tuple(SEARCH)[:2]},
    ORIGINAL: "the authors' pixels, unshuffled batches",
}  # fmt: skip
TESTED = (("pfedsim", "post"), ("fedper", "recv"), ("fedper", "post"), ("fedavg", "glob"))


def analyse(s: dict, found: Found) -> Tables:
    """Besides the table's: leads, pFedSim after local training over FedPer and over itself, local-only after FedAvg, in
    every column; _leads: draws of its lead over FedPer, both evaluated after local training; protocols: its lead
    over every method; inputs: what pixels and batches do to single methods; rounds: accuracy by evaluated round and
    point."""
    tables = TABLE.analyse(s, found)
    printed = {name: only_rows(tables[name], METHODS) for name in ("tidy", "_printed")}
    tables["ranks"] = ranks(printed, {})  # among the rows of Table 3: those of Table 6 are one of them seven times
    compared = {
        "FedPer before local training": differences(tables, "pfedsim", "fedper"),
        "FedPer after local training": differences(tables, "pfedsim", "fedper", point="post"),
        f"itself, {ALONE}": differences(tables, "pfedsim", f"pfedsim, {ALONE}"),
    }
    leads = compared["FedPer after local training"][1]
    shown = pd.concat([table.assign(over=over) for over, (table, _) in compared.items()])
    counted = {
        column: len(shared_seeds(only_rows(own, ("pfedsim", "fedper")), "row"))
        for column, own in tables["tidy"].groupby("column")
    }
    shown = shown[["column", "over", "difference", "low", "high"]].assign(seeds=shown["column"].map(counted))
    lines = [
        (column, row, seed, h["point"], h["round"], h["pooled"])
        for (row, column, seed), r in found.items() if row in SEARCHED for h in r.history
    ]  # fmt: skip
    rounds = pd.DataFrame(lines, columns=["column", "row", "seed", "point", "round", "accuracy"])
    more = {"leads": shown, "_leads": leads, "protocols": protocols(tables), "inputs": inputs(tables)}
    return tables | more | {"rounds": rounds}


def only_rows(table: pd.DataFrame, rows) -> pd.DataFrame:
    return table[table["row"].isin(rows)]


def protocols(tables) -> pd.DataFrame:
    """pFedSim's lead over every other method with the authors' code's inputs, in points, in two ways to evaluate them:
    column, row, protocol, mean, low, high."""
    found = []
    for name, (where, columns) in PROTOCOLS.items():
        asked = {"tidy": tables["tidy"][tables["tidy"]["column"].isin(columns)]}
        for other in METHODS[:-1]:
            found.append(differences(asked, "pfedsim", other, **where)[0].assign(protocol=name, row=other))
    lines = pd.concat(found, ignore_index=True).rename(columns={"difference": "mean"})
    lines = lines.loc[lines["column"].isin(ONCE), ["column", "row", "protocol", "mean", "low", "high"]]
    return lines.astype(dict.fromkeys(("mean", "low", "high"), float))  # of empty tables, too


def inputs(tables) -> pd.DataFrame:
    """What the code's pixels and batches do, apart and together: accuracy in percent, and its difference from correctly
    ours with the interval, over the seeds that all four have. One row an alpha and kind of input."""
    tidy, lines = tables["tidy"], []
    for title in DIRICHLET:
        columns = {f"{reading}, {title}": name for reading, name in INPUTS.items()}
        line = {name: {"task": title, "inputs": name} for name in columns.values()}
        for row, point in TESTED:
            own = tidy[tidy["column"].isin(columns) & (tidy["row"] == row) & (tidy["point"] == point)]
            shared = shared_seeds(own, "column") if own["column"].nunique() == len(columns) else set()
            if not shared:
                continue
            own = own[own["seed"].isin(shared)]
            m = 100 * draws(own, "accuracy", ["column"])
            for column, name in columns.items():
                away = Interval.of(m[column] - m[f"{NORMALISED}, {title}"]).text()
                beside = "" if name == INPUTS[NORMALISED] else f", {away}"
                line[name][f"{row}, {point} (n={len(shared)})"] = f"{m[column].iloc[0]:.1f}{beside}"
        lines += line.values()
    return pd.DataFrame(lines)


def nothing_lifts(tables):
    """In every column the lead over FedPer after local training is below the reported one."""
    found = tables["_leads"]
    if lacks := [column for column in COLUMNS if column not in found]:
        return not_tested(f"missing runs: {', '.join(lacks)}")
    printed = tables["_printed"].pivot(index="column", columns="row", values="value")
    lead = printed["pfedsim"] - printed["fedper"]
    paper = {title: lead[f"{ORIGINAL}, {title}"] for title in DIRICHLET}
    margins = {column: paper[ALPHA_OF[column]] - found[column] for column in COLUMNS}
    texts = [f"{column} {apart(found[column])}" for column in COLUMNS]
    printed = ", ".join(f"{lead:+.1f} at {title}" for title, lead in paper.items())
    return decided(margins, f"lead over FedPer after local training: {'; '.join(texts)}; reported {printed}")


def leads_in(columns, needs, among, **where):
    """pFedSim leads in these columns; its intervals rest on them alone, as those of `protocols`."""
    check = best("pfedsim", needs, columns, among, **where)
    return lambda tables: check({**tables, "tidy": tables["tidy"][tables["tidy"]["column"].isin(columns)]})


def most_accurate(reading: str):
    return leads_in([c for c in MAIN if COLUMNS[c][0] == reading], METHODS, METHODS)


def answer(tables) -> str:
    """Is pFedSim ahead on the paper's partition, of which method, and at which evaluation point? From the numbers."""
    leads, said = tables["leads"].set_index(["column", "over"]), []
    for reading in READINGS:
        columns = [column for column in MAIN if COLUMNS[column][0] == reading]
        told = []
        for over in dict.fromkeys(tables["leads"]["over"]):
            texts = [
                f"{ALPHA_OF[column]} {Interval(r.difference, r.low, r.high).text()}"
                for column in columns if (column, over) in leads.index for r in [leads.loc[column, over]]
            ]  # fmt: skip
            told += [f"over {over} {', '.join(texts)}"] if texts else []
        said += [f"With {reading} pFedSim's lead after local training, in points: {'; '.join(told)}."] if told else []
    return " ".join(said)


ON = {"columns": MAIN}
ITEM = TABLE.item(
    title="pFedSim Table 3 on the paper's partition, with the authors' input pipeline and evaluation points",
    claim="On the paper's partition, with the authors' input pipeline, pFedSim is the most accurate method.",
    smaller=f"{SMALLER}; six methods instead of twelve, one seed, no other rho, one local-only variant",
    settings=per_profile(
        leaving_out(SETTINGS, "clients"),
        methods=[("local", "fedper", "pfedsim"), ("local", "fedavg", "fedbn", "fedper", "fedrep", "pfedsim"), METHODS],
        seeds=[1, 1, 3], closest=[1, 1, 5], search=[False, True, True], rhos=[(), (), tuple(RHO)],
        mixing=[(), tuple(MIXING)[:1], tuple(MIXING)],
    ),
    minutes={"smoke": 0.5, "quick": 1, "paper": 450},
    analyse=analyse,
    figure=lambda tables: figures.leads_by_protocol(tables["protocols"].replace({"column": ALPHA_OF})),
    answer=answer,
    shown={**EXTRAS, "leads": "Lead of pFedSim after local training, points",
           "inputs": "Effect of the authors' pixels and batches, separately and together: accuracy, %, and the "
                     "difference from our input pipeline, points"},
    claims=(
        Claim("With the authors' input pipeline and evaluation points pFedSim is the most accurate of all twelve "
              "methods at both alphas.", most_accurate(ORIGINAL)),
        Claim("With our input pipeline (standardised pixels, shuffled batches) pFedSim is the most accurate of all "
              "twelve methods at both alphas.",
              most_accurate(NORMALISED)),
        ours("pFedSim after local training outperforms FedPer before local training, at both alphas with both input "
             "pipelines.", below(["fedper"], ["pfedsim"], **ON)),
        ours("pFedSim outperforms FedPer where both are evaluated after local training.",
             below(["fedper"], ["pfedsim"], point="post", **ON)),
        ours("pFedSim is the most accurate of the personalised methods, all evaluated after local training.",
             leads_in(MAIN, ("fedbn", "fedper"), PERSONAL, point="post")),
        ours("No single change gives pFedSim a lead over FedPer after local training that is as large as the reported "
             "one (over FedPer before it).",
             nothing_lifts),
        ours("Aggregating extractors helps: pFedSim outperforms pFedSim without aggregation in phase 2, at both alphas "
             "with both input pipelines.",
             below([f"pfedsim, {ALONE}"], ["pfedsim"], **ON)),
        ours("With averaged running statistics, before local training (`agg`), aggregating extractors helps.",
             below([f"pfedsim, {SHARED}, {ALONE}"], [f"pfedsim, {SHARED}"], point="agg", **ON)),
        ours("Aggregating extractors helps if it begins in the first round (rho = 0).",
             below(["pfedsim, rho = 0, local-only"], [RHO[0.0]], **ON)),
        Claim("rho = 0 is worse than every rho between 0 and 1 (Table 6).", below([RHO[0.0]], BETWEEN, **ON)),
        Claim("Accuracy drops at rho = 0.9 (Table 6).", below([RHO[0.9]], PLATEAU, **ON)),
        Claim("rho = 0.7 is best (Table 6).", best(RHO[0.7], RHO.values(), among=tuple(RHO.values()), **ON)),
    ),
)  # fmt: skip
