"""Replication notes: what each choice that the paper leaves open does to pFedSim's accuracy, and to its lead."""

from __future__ import annotations

import pandas as pd

from fedlib import figures
from fedlib.analysis.partitions import drawn_statistics
from fedlib.analysis.readings import RULES
from fedlib.analysis.tables import listed, only
from fedlib.analysis.uncertainty import Interval, draws
from fedlib.engine.result import RunResult
from fedlib.experiments.choices import CHANCE, Choice, Sensitivity, hyper
from fedlib.experiments.claims import Verdict, apart, decided, not_tested, ours, verdict
from fedlib.experiments.item import Item
from fedlib.experiments.pfedsim.table3_accuracy import TABLE
from fedlib.experiments.pfedsim.task import DIRICHLET, METHODS, SETTINGS, SMALLER
from fedlib.experiments.read_off import FAR, by_rule, far_cells, fit, leads
from fedlib.spec import RunSpec

SMOKED = ("local", "fedavg", "pfedsim")  # in smoke, which must be quick
PRINTED = "cifar10"  # the data on which our cells are compared with the paper's
DRAWS = 40  # partitions that ours is compared with

CHOICES = (
    Choice("S1", "Eq. 3 as printed", "log of the mean cosine, as in the authors' code", hyper(phi="eq3")),
    Choice("S1, S2", "Eq. 3, own weight by Eq. 3 (18.4)", "the same", hyper(phi="eq3", phi_self="eq3")),
    Choice("S2", "own weight 1 (identity as printed)", "9.21, the transform of the code at 1", hyper(phi_self=1.0)),
    Choice("S2", "own weight 18.4", "9.21", hyper(phi_self="eq3")),
    Choice("S3", "Φ renewed where one of two took part", "only where both did", hyper(phi_refresh="one_fresh")),
    Choice("S3", "all of Φ renewed in every round", "only where both took part", hyper(phi_refresh="all")),
    Choice("S4", "no partners older than a tenth of the rounds", "any", lambda s: {"max_age": s["rounds"] // 10}),
    Choice("S5", "bias belongs to a class vector", "weights only", hyper(phi_bias=True)),
    Choice("S11", "batch norm's statistics shared", "they stay local", task=lambda s, r: {"bn_stats": "global"}),
    Choice("§3.1", "the other number of max-pools", "see the settings",
           task=lambda s, r: {"model_options": {"pools": 3 - s["pools"]}}),
    Choice("§4.2", "no cap in the Dirichlet draw", "clients that hold n/N samples get no more",
           task=lambda s, r: {"partition": {**r.partition, "cap": False}}),
    Choice(CHANCE, "another partition", "partition 0", task=lambda s, r: {"partition_seed": 1}),
    Choice(CHANCE, "another seed", "seeds from 0 on", task=lambda s, r: {"seed": r.seed + s["seeds"]}),
)  # fmt: skip
SENSITIVITY = Sensitivity("pfedsim", CHOICES, ("fedavg",), lambda spec: f"Dir({spec.partition['alpha']:g})")

# Cells far from the paper's are run again with one thing changed: column, name of the choice, methods.
AGAIN = (
    ("Dir(0.1)", "another partition", ("local", "fedavg", "fedprox", "perfedavg", "fedper", "pfedsim")),
    ("Dir(0.5)", "another partition", ("fedavg", "fedbn")),
    ("Dir(0.5)", "the other number of max-pools", ("fedavg", "fedbn")),
    ("Dir(0.5)", "batch norm's statistics shared", ("fedavg",)),
)


def bases(s: dict) -> list[RunSpec]:
    """The runs of Table 3 in which one thing is changed."""
    runs, column = TABLE.runs({**s, "methods": ("pfedsim", "fedavg")}), f"Dir({s['alpha']:g})"
    return [spec for (_, its, _), spec in runs.items() if its == column]


def without_partners(s: dict) -> list[tuple[str, RunSpec, RunSpec]]:
    """Column, pFedSim's run of Table 3, and the same run in which Φ stays the identity: after FedAvg every client trains alone."""
    runs = TABLE.runs({**s, "methods": ("pfedsim",)})
    return [(column, spec, spec.but(hyper=spec.hyper | {"max_age": 0})) for (_, column, _), spec in runs.items()]


def again(s: dict) -> list[tuple[str, str, str, RunSpec]]:
    """(what is changed, column, method, run) for the cells of AGAIN, where the settings say so."""
    by_name, runs = {choice.name: choice for choice in CHOICES}, TABLE.runs(s)
    return [
        (name, column, method, SENSITIVITY.otherwise(by_name[name], s, spec))
        for its, name, methods in (AGAIN if s["again"] else ())
        for (method, column, _), spec in runs.items()
        if column == its and method in methods
    ]


def specs(s: dict) -> list[RunSpec]:
    """The runs of Table 3, every choice at the settings' alpha, pFedSim without partners, and cells of Table 3 again."""
    changed = [spec for _, _, spec in SENSITIVITY.changed(s, bases(s))] + [spec for *_, spec in without_partners(s)]
    return [*TABLE.runs(s).values(), *changed, *(spec for *_, spec in again(s))]


def analyse(s: dict, results: list[RunResult]) -> dict[str, pd.DataFrame]:
    found, comparable = {r.spec.id: r for r in results}, s["dataset"] == PRINTED
    effects, printed, rules = SENSITIVITY.effects(s, bases(s), found), TABLE.printed(s), by_rule(TABLE, s, results)
    place, margins = leads(rules, "pfedsim", s["methods"])
    changed = [(*what, found[spec.id]) for *what, spec in again(s) if spec.id in found]
    mixed = mixing(s, found)
    return {
        **effects,
        "compare": SENSITIVITY.compared(
            effects, s["dataset"], only(printed, row="pfedsim").set_index("column")["value"].to_dict()
        ),
        "leads": place,
        "_leads": pd.DataFrame(margins),
        "alone": pd.DataFrame(
            [(column, *means) for column, (*means, _) in mixed.items()],
            columns=["column", "pfedsim", "without partners", "mixing", "low", "high"],
        ),
        "_mixing": pd.DataFrame({column: m for column, (*_, m) in mixed.items()}),
        "fit": fit(rules, printed) if comparable else pd.DataFrame(),
        "cells": far_cells(TABLE, s, found, changed) if comparable else pd.DataFrame(),
        "draws": largest_classes(s),
    }


def mixing(s: dict, found: dict[str, RunResult]) -> dict[str, tuple]:
    """What mixing extractors brings, by column: pFedSim's accuracy in percent, that without partners, and the difference's interval and draws."""
    frames = []
    for column, mixed, alone in without_partners(s):
        if mixed.id in found and alone.id in found:
            for row, r in (("pfedsim", found[mixed.id]), ("alone", found[alone.id])):
                correct, tests = r.by_client()
                own = {"client": range(len(tests)), "accuracy": 100 * correct / tests, "weight": tests}
                frames.append(pd.DataFrame(own).assign(column=column, row=row, seed=r.spec.seed))
    if not frames:
        return {}
    m, brought = draws(pd.concat(frames), "accuracy", ["column", "row"], "client", "weight"), {}
    for column in m.columns.unique(0):
        gain = m[column]["pfedsim"] - m[column]["alone"]
        i = Interval.of(gain)
        brought[column] = (*m[column].iloc[0][["pfedsim", "alone"]], i.value, i.low, i.high, gain)
    return brought


def largest_classes(s: dict) -> pd.DataFrame:
    """Percent of all samples that belong to the most frequent class of their client: our partitions against DRAWS draws.

    Who has little else than one class is easy to serve with a model of its own.
    """
    lines = []
    for column, alpha in DIRICHLET.items():
        drawn = drawn_statistics(
            s["dataset"], s["num_clients"], "dirichlet", range(DRAWS), alpha=alpha, min_size=s["min_size"]
        )
        share = 100 * drawn["largest_class"]
        mean, std = share.mean(), share.std(ddof=1)
        lines.append((column, share[0], share[1], mean, std, (share[0] - mean) / std))
    return pd.DataFrame(lines, columns=["column", "ours", "partition 1", "mean", "std", "z"])


# claims --------------------------------------------------------------------------------------------------------------


def first_by_every_rule(tables) -> Verdict:
    found = tables["leads"]
    if found.empty:
        return not_tested("not all methods of Table 3 were run")
    lost = only(found, place=1)
    lost = found.drop(lost.index)
    listing = "; ".join(f"{r.rule}, {r.column}: {r['best other']} by {-r.lead:.1f}" for _, r in lost.iterrows())
    evidence = f"first in {len(found) - len(lost)} of {len(found)}" + (f"; before it {listing}" if listing else "")
    return decided(dict(tables["_leads"].items()), evidence)


def transform_matters_most(tables) -> Verdict:
    if lacks := SENSITIVITY.missing(tables):
        return not_tested(lacks)
    moved = SENSITIVITY.mean_effects(tables).abs()
    codes = tables["tidy"].drop_duplicates("choice").set_index("choice")["code"]
    own = [name for name in moved if codes[name] in ("S1", "S1, S2", "S2")]
    ranked = moved.iloc[0].sort_values(ascending=False)
    margins = {other: moved[own].max(axis=1) - moved[other] for other in moved.columns.drop(own)}
    return decided(margins, f"largest effects, without sign: {listed(ranked.head(3), '.2f')}")


def rule_outweighs_choices(tables) -> Verdict:
    if lacks := SENSITIVITY.missing(tables) or ("not all methods of Table 3 were run" if tables["leads"].empty else ""):
        return not_tested(lacks)
    largest = SENSITIVITY.mean_effects(tables).abs().iloc[0].max()
    spans = tables["leads"].groupby("column")["lead"].agg(lambda lead: lead.max() - lead.min())
    evidence = f"the lead ranges over {listed(spans, '.2f')} points; largest effect of a choice {largest:.2f}"
    return verdict(spans.max() > largest, f"{evidence} (on these runs; ranges have no interval here)")


def mixing_helps(tables) -> Verdict:
    found = tables["_mixing"]
    if len(found.columns) < len(DIRICHLET):
        return not_tested("without the runs without partners")
    return decided(dict(found.items()), f"mixing brings {brought(found)} points")


def brought(found: pd.DataFrame) -> str:
    return ", ".join(f"{apart(gain, '.2f')} ({column})" for column, gain in found.items())


def ordinary_draw(tables) -> Verdict:
    found = tables["draws"]
    texts = (
        f"{r.column}: {r.ours:.1f} % against {r.mean:.1f} ({r.std:.1f}), {r.z:+.1f} std" for r in found.itertuples()
    )
    return verdict((found["z"].abs() <= 2).all(), f"{'; '.join(texts)} (2 std is a line of ours)")


def answer(tables) -> str:
    """Does pFedSim outperform the baselines, and which unpublished choice matters most? In sentences, from the numbers."""
    sentences, found = [], tables["leads"]
    for r in found[found["rule"] == next(iter(RULES))].itertuples():
        lead = f"{r.lead:+.1f} [{r.low:+.1f}, {r.high:+.1f}] points from {r[5]}"
        sentences.append(f"At {r.column} pFedSim is number {r.place} with {r.pfedsim:.1f} %, {lead}.")
    if len(found):
        firsts, ways = (found["place"] == 1).sum(), found["rule"].nunique()
        sentences.append(
            f"It is first in {firsts} of {len(found)} cases, if the same runs are read off in {ways} ways."
        )
    if len(tables["fit"]):
        near = (
            tables["fit"].groupby("rule", sort=False).agg({"cells": "sum", "within 3": "sum", "mean distance": "mean"})
        )
        head, closest = near.iloc[0], near.loc[near["mean distance"].idxmin()]
        text = f"{head['within 3']:.0f} of Table 3's cells on {PRINTED} ({head['cells']:.0f} were run) are within {FAR:g} points of the paper's"
        other = (
            f'; read off as "{closest.name}" they are {closest["within 3"]:.0f}'
            if closest.name != near.index[0]
            else ""
        )
        sentences.append(f"{text}{other}.")
    for r in tables["draws"].query("abs(z) > 2").itertuples():
        sentences.append(
            f"Our partition at {r.column} is an {'easy' if r.z > 0 else 'uncommonly mixed'} one: {r.ours:.0f} % of the samples are of "
            f"their client's largest class, the mean of {DRAWS} draws is {r.mean:.0f} % ({r.z:+.1f} std)."
        )
    if len(tables["_mixing"]):
        sentences.append(
            f"Mixing extractors by similarity brings {brought(tables['_mixing'])} points over clients that train on alone after the same rounds of FedAvg."
        )
    return " ".join([*sentences, SENSITIVITY.in_words(tables)])


ITEM = Item(
    title="pFedSim: replication notes",
    claim="What the paper leaves open is decided in several ways, and each decision's effect is measured.",
    smaller=SMALLER,
    settings={
        profile: {
            **own,
            "methods": SMOKED if profile == "smoke" else METHODS,
            "seeds": 1,
            "alpha": 0.1,
            "again": profile == "paper",
        }
        for profile, own in SETTINGS.items()
    },
    minutes={"smoke": 1, "quick": 1, "paper": 60},
    partial=True,
    specs=specs,
    analyse=analyse,
    shown={
        "leads": "pFedSim's place and lead over the best other method, however the accuracy is read off",
        "alone": "What mixing brings: pFedSim, and the same without partners (Φ stays the identity), %",
        "fit": f"How near the same runs come to the paper's numbers (on {PRINTED} only), points",
        "cells": f"Cells of Table 3 more than {FAR:g} points from the paper's (on {PRINTED} only), read off in every way",
        "draws": "Samples that are of their client's largest class, %: is our partition an ordinary draw?",
    },
    figure=lambda tables: figures.open_choices(tables["tidy"], tables["leads"], "pfedsim"),
    answer=answer,
    claims=(
        ours("pFedSim is first whatever way the accuracy is read off the same runs.", first_by_every_rule),
        ours("A choice that the paper leaves open moves pFedSim more than chance does.", SENSITIVITY.check_matter),
        ours("What matters most is how similarity becomes a weight (S1, S2).", transform_matters_most),
        ours(
            "How the accuracy is read off moves pFedSim's lead more than any choice moves its accuracy.",
            rule_outweighs_choices,
        ),
        ours(
            "Mixing extractors makes pFedSim better than training on alone after the same rounds of FedAvg.",
            mixing_helps,
        ),
        ours(
            "Our partitions are ordinary draws: the share of the clients' largest classes is within 2 std of the mean.",
            ordinary_draw,
        ),
    ),
)
