"""Replication notes: what each choice that the paper leaves open does to pFedSim's accuracy, and to its lead."""

from dataclasses import replace

import pandas as pd

from fedlib import figures
from fedlib.analysis.accuracies import differences, means
from fedlib.analysis.names import proper
from fedlib.analysis.partitions import beside_draws
from fedlib.analysis.readings import FAR, RULES, far_cells, fit, leads
from fedlib.analysis.sensitivity import CHANCE, Choice, Sensitivity, hyper
from fedlib.analysis.tables import listed, only
from fedlib.analysis.uncertainty import Interval, units
from fedlib.claims import Verdict, decided, each_apart, every_row, matter, not_tested, ours, unless, verdict
from fedlib.experiments.item import Found, Item, Runs, Tables, joined, part, per_profile
from fedlib.experiments.paper_numbers import paper_table
from fedlib.experiments.pfedsim.table3_accuracy import TABLE
from fedlib.experiments.pfedsim.table3_own_clients import ALONE
from fedlib.experiments.pfedsim.task import ALONE as FIGURE_2
from fedlib.experiments.pfedsim.task import DIRICHLET, METHODS, OWN, PAIRS, SETTINGS, SMALLER, four_subsets
from fedlib.spec import RunSpec

SMOKED = ("local", "fedavg", "pfedsim")  # in smoke, which must be quick
PRINTED = "cifar10"  # the data on which our cells are compared with the paper's
DRAWS = 40  # partitions that ours is compared with


def drawn_by_us(s: dict, r: RunSpec, number: int, **own) -> dict:
    """Fields of a run on a partition of our own draw: this one, or where the run is on the paper's clients number 0."""
    seed = 0 if s["clients"] == OWN else number
    partition = {"alpha": r.partition["alpha"], "min_size": s["min_size"], **own}
    return {"scheme": "dirichlet", "partition": partition, "partition_seed": seed}


CHOICES = (
    Choice("similarity", "Eq. 3 as stated", "log of the mean cosine, as in the authors' code", hyper(phi="eq3")),
    Choice("similarity", "Eq. 3, self-weight 18.4", "log of the mean cosine; 9.21", hyper(phi="eq3", phi_self="eq3")),
    Choice("self-weight", "self-weight 1 (identity as stated)", "9.21 (the code's transform)", hyper(phi_self=1.0)),
    Choice("self-weight", "self-weight 18.4", "9.21", hyper(phi_self="eq3")),
    Choice("update of Φ", "Φ updated if either client took part", "only if both did", hyper(phi_refresh="one_fresh")),
    Choice("update of Φ", "all of Φ updated in every round", "only if both took part", hyper(phi_refresh="all")),
    Choice("staleness", "no models older than a tenth of the rounds", "any", lambda s: {"max_age": s["rounds"] // 10}),
    Choice("class vectors", "rows of the classifier with biases", "weights only", hyper(phi_bias=True)),
    Choice("batch norm", "averaged batch-norm statistics", "on each client", task=lambda s, r: {"bn_stats": "global"}),
    Choice("backbone", "one max-pool layer (digits: two)", "two (digits: one)",
           task=lambda s, r: {"model_options": {"pools": 3 - s["pools"]}}),
    Choice("partition", "Dirichlet sampler without size cap", "a client with its equal share of samples gets no more",
           task=lambda s, r: drawn_by_us(s, r, r.partition_seed, cap=False), left_open=False),  # Table 4 excludes it
    Choice(CHANCE, "another partition", "the paper's partition (digits: ours)",
           task=lambda s, r: drawn_by_us(s, r, 1)),
    Choice(CHANCE, "another seed", "seeds from 0 on", task=lambda s, r: {"seed": r.seed + s["seeds"]}),
)  # fmt: skip
SENSITIVITY = Sensitivity("pfedsim", CHOICES, ("fedavg",), lambda spec: f"Dir({spec.partition['alpha']:g})")

# Cells far from the paper's are run again with one thing changed: methods by name of the choice and column.
AGAIN = {
    ("another partition", "Dir(0.1)"): ("local", "fedavg", "fedprox", "perfedavg", "fedper", "pfedsim"),
    ("another partition", "Dir(0.5)"): ("fedavg", "fedbn"),
    ("one max-pool layer (digits: two)", "Dir(0.5)"): ("fedavg", "fedbn"),
    ("averaged batch-norm statistics", "Dir(0.5)"): ("fedavg",),
}
# pFedSim, and the same run in which Φ stays the identity: after FedAvg training is local-only
MIXING = replace(TABLE, rows=lambda s: {"pfedsim": {"method": "pfedsim"}, ALONE: {"method": "pfedsim", "max_age": 0}})


def changed(s: dict) -> Runs:
    """Runs of Table 3 with one thing changed."""
    runs = TABLE.runs({**s, "methods": ("pfedsim", "fedavg")})
    return SENSITIVITY.runs(s, [spec for (_, column, _), spec in runs.items() if column == f"Dir({s['alpha']:g})"])


def again(s: dict) -> Runs:
    """What is changed, row, column and seed of the cells of AGAIN, where the settings say so."""
    return {
        (choice.name, row, column, seed): SENSITIVITY.otherwise(choice, s, spec)
        for (row, column, seed), spec in (TABLE.runs(s).items() if s["again"] else ())
        for choice in CHOICES
        if row in AGAIN.get((choice.name, column), ())
    }


# Figure 2's clients, trained otherwise: does that move the cosines towards the printed ones?
HARDER = {
    "lr = 0.01, one max-pool layer": {},
    "pools = 2": {"pools": 2},
    "pools = 2, epochs = 100": {"pools": 2, "epochs": 100},
    "lr = 0.1": {"lr": 0.1},
    "pools = 2, lr = 0.1": {"pools": 2, "lr": 0.1},
}


def harder(s: dict) -> Runs:
    """One run of Figure 2's clients each, where the settings say so."""
    own = {**FIGURE_2["paper"], "seeds": 1}
    return {
        (name, seed): spec
        for name, change in (HARDER.items() if s["again"] else ())
        for (_, seed), spec in four_subsets(own | change).items()
    }


def levels(found: Found) -> pd.DataFrame:
    """Mean cosine of the classifiers, one row a pair of clients: printed, and by the way in which they were trained."""
    printed = only(paper_table("pfedsim", "2"), measure="cs").set_index("pair")["value"].astype(float)
    ours = {name: [r.arrays["cs_by_class"][own].mean() for own in PAIRS.values()] for (name, _), r in found.items()}
    made = pd.DataFrame({"pair": list(PAIRS), "paper": printed[list(PAIRS)].to_numpy(), **ours})
    return made.round(2) if found else made[:0]


PARTS = {"table": lambda s: TABLE.runs(of_table(s)), "changed": changed,
         "mixing": lambda s: MIXING.runs(of_table(s)), "again": again, "harder": harder}  # fmt: skip


def of_table(s: dict) -> dict:
    """The settings with as many seeds as Table 3 has at least; one thing is changed in fewer."""
    return {**s, "seeds": max(s["seeds"], s["table_seeds"])}


def analyse(s: dict, found: Found) -> Tables:
    """Besides the effects: leads, fit, cells of Table 3, read off in several ways; alone, `ALONE`; draws;
    levels of Figure 2."""
    table, changed, mixing, again, harder = (part(found, kind) for kind in PARTS)
    effects, printed, whole = SENSITIVITY.effects(changed), TABLE.printed(s), of_table(s)
    ways = {rule: replace(TABLE, read=lambda s, read=read: read) for rule, read in RULES.items()}
    rules = {rule: means(way.read_off(whole, table)) for rule, way in ways.items()}
    place, margins = leads(rules, "pfedsim", METHODS)
    mixed = MIXING.read_off(whole, mixing)
    comparable, (alone, gains) = s["dataset"] == PRINTED, differences(mixed, "pfedsim", ALONE)
    over = {"leads": [units(TABLE.read_off(whole, table))], "mixing": [units(mixed)]}
    paper = only(printed, row="pfedsim").set_index("column")["value"].to_dict()
    kinds = {c: {"scheme": "dirichlet", "alpha": a, "min_size": s["min_size"]} for c, a in DIRICHLET.items()}
    return {
        **effects,
        "compare": SENSITIVITY.compared(effects, s["dataset"], paper),
        "leads": place,
        "_leads": margins,
        "alone": alone.drop(columns="seeds"),
        "_mixing": gains,
        "_units": pd.DataFrame(over),  # what their intervals are over
        "fit": fit(rules if comparable else {}, printed),
        "cells": far_cells(printed if comparable else printed[:0], table, again),
        "levels": levels(harder),
        "draws": beside_draws(kinds, s["dataset"], s["num_clients"], DRAWS).rename_axis("column").reset_index(),
    }


# claims --------------------------------------------------------------------------------------------------------------


def first_by_every_rule(tables) -> Verdict:
    found = tables["leads"]
    if found.empty:
        return not_tested("not all methods of Table 3 were run")
    lost = found[found["rank"] > 1]
    listing = "; ".join(f"{r.metric}, {r.column}: {r['best competitor']} by {-r.lead:.1f}" for _, r in lost.iterrows())
    evidence = f"first in {len(found) - len(lost)} of {len(found)}" + (f"; ahead of it: {listing}" if listing else "")
    return decided(dict(tables["_leads"].items()), evidence, tables["_units"]["leads"][0])


@unless(SENSITIVITY.missing)
def transform_matters_most(tables) -> Verdict:
    moved = SENSITIVITY.mean_effects(tables).abs()
    codes = tables["tidy"].drop_duplicates("choice").set_index("choice")["code"]
    own = [name for name in moved if codes[name] in ("similarity", "self-weight")]
    ranked = moved.iloc[0].sort_values(ascending=False)
    margins = {other: moved[own].max(axis=1) - moved[other] for other in moved.columns.drop(own)}
    return decided(margins, f"largest effects, in absolute value: {listed(ranked.head(3), '.2f')}")


@unless(SENSITIVITY.missing)
def rule_outweighs_choices(tables) -> Verdict:
    if tables["leads"].empty:
        return not_tested("not all methods of Table 3 were run")
    largest = SENSITIVITY.mean_effects(tables).abs().iloc[0].max()
    spans = tables["leads"].groupby("column")["lead"].agg(lambda lead: lead.max() - lead.min())
    evidence = f"the lead ranges over {listed(spans, '.2f')} points; largest effect of a choice {largest:.2f}"
    return verdict(spans.max() > largest, f"{evidence} (on these runs; ranges have no interval here)")


def mixing_helps(tables) -> Verdict:
    found = tables["_mixing"]
    if len(found.columns) < len(DIRICHLET):
        return not_tested("the runs without aggregation in phase 2 are missing")
    evidence = f"aggregation changes accuracy by {each_apart(found, '.2f')} points"
    return decided(dict(found.items()), evidence, tables["_units"]["mixing"][0])


def in_stds(found: pd.DataFrame) -> str:
    rows = found.itertuples()
    texts = (f"{r.column}: {r.ours:.1f} % against {r.mean:.1f} ({r.std:.1f}), {r.z:+.1f} std" for r in rows)
    return f"{'; '.join(texts)} (threshold of 2 std, set by us)"


def answer(tables) -> str:
    """Does pFedSim outperform the baselines, and which unpublished choice matters most? From the numbers."""
    sentences, found, near = [], tables["leads"], tables["fit"]
    for r in only(found, metric=next(iter(RULES))).itertuples():
        lead = f"{Interval(r.lead, r.low, r.high).text()} points relative to {proper(r[5])}"
        sentences.append(f"At {r.column} pFedSim has rank {r.rank} with {r.pfedsim:.1f} %, {lead}.")
    if len(found):
        cases = f"{(found['rank'] == 1).sum()} of {len(found)} cases"
        ways = f"{found['metric'].nunique()} metric definitions"
        sentences.append(f"It is first in {cases}, by {ways} on the same runs.")
    if len(near):
        near = near.groupby("metric", sort=False).agg(
            {"cells": "sum", "within 3 points": "sum", "mean distance": "mean"}
        )
        head, closest = near.iloc[0], near.loc[near["mean distance"].idxmin()]
        which = f"{head['within 3 points']:.0f} of Table 3's cells on {PRINTED} ({head['cells']:.0f} were run)"
        nearest = f'the closest metric definition, "{closest.name}", gives {closest["within 3 points"]:.0f}'
        sentences.append(f"{which} are within {FAR:g} points of the paper's; {nearest}.")
    for r in tables["draws"].query("abs(z) > 2").itertuples():
        kind = "concentrated" if r.z > 0 else "mixed"
        share = f"{r.ours:.0f} % of the samples are of their client's most frequent class"
        mean = f"the mean of {DRAWS} partitions is {r.mean:.0f} % ({r.z:+.1f} std)"
        sentences.append(f"Our own partition 0 at {r.column} has unusually {kind} labels: {share}, {mean}.")
    if len(mixing := tables["_mixing"]):
        over = "compared with pFedSim without aggregation in phase 2"
        gains = each_apart(mixing, ".2f")
        sentences.append(f"Aggregating extractors by similarity changes accuracy by {gains} points {over}.")
    return " ".join([*sentences, SENSITIVITY.in_words(tables)])


ITEM = Item(
    title="pFedSim: replication notes",
    claim="For every detail that the paper does not specify, the effect of alternative choices on accuracy is "
          "measured.",
    smaller=SMALLER,
    settings=per_profile(SETTINGS, methods=[SMOKED, METHODS, METHODS], alpha=0.1, again=[False, False, True],
                         clients=[None, None, OWN], table_seeds=[1, 1, 3]),
    minutes={"smoke": 1, "quick": 1, "paper": 60},
    partial=True,
    runs=lambda s: joined({kind: runs(s) for kind, runs in PARTS.items()}),
    analyse=analyse,
    shown={
        "leads": "pFedSim's rank and lead over the best competitor, by definition of the accuracy metric",
        "alone": "Effect of aggregation: pFedSim, and without aggregation in phase 2 (Φ: identity), %",
        "fit": f"Distance of the same runs from the reported numbers (on {PRINTED} only), points",
        "cells": f"Cells of Table 3 more than {FAR:g} points from the paper's (on {PRINTED} only), by every "
        "metric and variant",
        "levels": "Mean cosines of Figure 2's classifiers, one run each (clients' classes: i, i' 0-4; j 2-6; k 5-9)",
        "draws": "Samples of their client's most frequent class, %: is our partition 0, not the paper's, typical?",
    },
    figure=lambda tables: figures.open_choices(tables["effects"], tables["leads"], "pfedsim"),
    answer=answer,
    claims=(
        ours("pFedSim is first by every definition of the accuracy metric, on the same runs.", first_by_every_rule),
        matter(SENSITIVITY, "pFedSim"),
        ours("The implementation choice that matters most is how similarity becomes a weight (Eq. 3).",
             transform_matters_most),
        ours("The definition of the accuracy metric changes pFedSim's lead more than any implementation choice "
             "changes its accuracy.",
             rule_outweighs_choices),
        ours("Aggregating extractors makes pFedSim better than pFedSim without aggregation in phase 2.",
             mixing_helps),
        ours("Our partition 0 is typical: the share of the clients' most frequent classes is within 2 std of the mean.",
             every_row("draws", lambda t: t["z"].abs() <= 2, "partitions", in_stds)),
    ),
)  # fmt: skip
