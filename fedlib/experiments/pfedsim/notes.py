"""Replication notes: what each choice that the paper leaves open does to pFedSim's accuracy, and to its lead."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from fedlib import figures
from fedlib.engine.result import RunResult
from fedlib.experiments.choices import CHANCE, Choice, Study, hyper
from fedlib.experiments.items import NOT_TESTED, Claim, Item, Verdict, only, verdict
from fedlib.experiments.partition_draws import draw, known_class_sizes
from fedlib.experiments.pfedsim.accuracy import METHODS, printed, table3_specs, without
from fedlib.experiments.pfedsim.study import spearman
from fedlib.experiments.pfedsim.task import ALPHAS, SETTINGS, SMALLER, run_spec
from fedlib.spec import RunSpec

SMOKED = ("local", "fedavg", "pfedsim")  # in smoke, which must be quick
PRINTED = "cifar10"  # the data on which our cells are compared with the paper's
DRAWS = 40  # partitions that ours is compared with
FAR = 3.0  # points between a cell of Table 3 and ours from which it is looked into

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
STUDY = Study("pfedsim", CHOICES, ("fedavg",), lambda spec: f"Dir({spec.partition['alpha']:g})")

# Cells far from the paper's are run again with one thing changed: alpha, name of the choice, methods.
AGAIN = (
    (0.1, "another partition", ("local", "fedavg", "fedprox", "perfedavg", "fedper", "pfedsim")),
    (0.5, "another partition", ("fedavg", "fedbn")),
    (0.5, "the other number of max-pools", ("fedavg", "fedbn")),
    (0.5, "batch norm's statistics shared", ("fedavg",)),
)


def notes_specs(s: dict) -> list[RunSpec]:
    """The runs of Table 3, every choice at the settings' alpha, pFedSim without partners, and cells of Table 3 again."""
    changed = [spec for _, _, spec in STUDY.changed(s, base_specs(s))] + [spec for _, spec in without_partners(s)]
    every = [*table3_specs(s), *changed, *(spec for _, spec in again(s))]
    return list({spec.id: spec for spec in every}.values())


def base_specs(s: dict) -> list[RunSpec]:
    """The runs in which one thing is changed."""
    return [run_spec(s, m, s["alpha"], seed) for seed in range(s["seeds"]) for m in ("pfedsim", "fedavg")]


def without_partners(s: dict) -> list[tuple[RunSpec, RunSpec]]:
    """pFedSim's runs of Table 3, each with the same run in which Φ stays the identity: after FedAvg every client trains alone."""
    own = [spec for spec in table3_specs(s) if spec.method == "pfedsim"]
    return [(spec, spec.but(hyper=spec.hyper | {"max_age": 0})) for spec in own]


def again(s: dict) -> list[tuple[str, RunSpec]]:
    """(what is changed, run) for the cells of AGAIN that are in the settings' Table 3, where the settings say so."""
    return [
        (choice.name, STUDY.otherwise(choice, s, spec))
        for alpha, name, methods in (AGAIN if s["again"] else ())
        for choice in STUDY.choices
        for spec in table3_specs(s)
        if choice.name == name and spec.method in methods and spec.partition["alpha"] == alpha
    ]


def analyse_notes(s: dict, results: list[RunResult]) -> dict[str, pd.DataFrame]:
    by_id = {r.spec.id: r for r in results}
    table3 = [by_id[spec.id] for spec in table3_specs(s) if spec.id in by_id]
    tidy, evaluation = STUDY.effects(s, base_specs(s), by_id, _last), by_rule(table3)
    cell, comparable = printed("pfedsim", s["alpha"]), s["dataset"] == PRINTED
    changed = [(name, by_id[spec.id]) for name, spec in again(s) if spec.id in by_id]
    return {
        "tidy": tidy,
        "compare": STUDY.compared(tidy, s["dataset"], {} if cell is None else {f"Dir({s['alpha']:g})": cell["value"]}),
        "evaluation": evaluation,
        "leads": leads(evaluation, s["methods"]),
        "alone": mixing_or_alone(s, by_id),
        "fit": fit(evaluation if comparable else evaluation[:0]),
        "cells": far_cells(table3 if comparable else [], changed),
        "draws": largest_classes(s),
    }


def mixing_or_alone(s: dict, found: dict[str, RunResult]) -> pd.DataFrame:
    """What mixing extractors brings: pFedSim's accuracy in percent, that of `without_partners`, and the difference; by alpha, means over seeds."""
    rows = [
        (mixed.partition["alpha"], _last(found[mixed.id]), _last(found[alone.id]))
        for mixed, alone in without_partners(s)
        if mixed.id in found and alone.id in found
    ]
    means = pd.DataFrame(rows, columns=["alpha", "pfedsim", "without partners"]).groupby("alpha").mean().reset_index()
    return means.assign(mixing=means["pfedsim"] - means["without partners"])


# how the accuracy is read off ----------------------------------------------------------------------------------------


def _last(result: RunResult, metric: str = "pooled", point: str | None = None) -> float:
    return 100 * result.final(metric, point)


def _trained(result: RunResult) -> float:
    """At `post` where the method has it, else at its headline point."""
    post = _last(result, point="post")
    return _last(result) if np.isnan(post) else post


def _recent(result: RunResult) -> float:
    return 100 * float(np.mean(result.curve()[1][-2:]))


RULES: dict[str, Callable[[RunResult], float]] = {
    "headline: pooled, last round": _last,
    "mean over clients": lambda r: _last(r, "client_mean"),
    "classes weighted equally": lambda r: _last(r, "balanced"),
    "best round": lambda r: 100 * max(r.curve()[1]),
    "mean of the last 2 evaluations": _recent,
    "after local training, where possible": _trained,
}


def by_rule(results: list[RunResult]) -> pd.DataFrame:
    """Mean accuracy in percent over the seeds: rule, alpha, method."""
    rows = [(name, r.spec.partition["alpha"], r.spec.method, rule(r)) for name, rule in RULES.items() for r in results]
    frame = pd.DataFrame(rows, columns=["rule", "alpha", "method", "accuracy"])
    return frame.groupby(["rule", "alpha", "method"], sort=False)["accuracy"].mean().reset_index()


def leads(evaluation: pd.DataFrame, methods: Sequence[str]) -> pd.DataFrame:
    """pFedSim's place and its lead over the best other method, one row a rule and alpha, where all methods were run."""
    rows = []
    for (rule, alpha), own in evaluation.groupby(["rule", "alpha"], sort=False):
        values = own.set_index("method")["accuracy"]
        if "pfedsim" in values and len(values) == len(methods) > 1:
            others = values.drop("pfedsim")
            place = int((others > values["pfedsim"]).sum()) + 1
            rows.append((rule, alpha, place, values["pfedsim"], others.idxmax(), values["pfedsim"] - others.max()))
    return pd.DataFrame(rows, columns=["rule", "alpha", "place", "pfedsim", "best other", "lead"])


def fit(evaluation: pd.DataFrame) -> pd.DataFrame:
    """How near the accuracies of `by_rule` come to the paper's: mean difference, mean distance, cells within FAR, Spearman's rank correlation."""
    rows = []
    for (rule, alpha), own in evaluation.groupby(["rule", "alpha"], sort=False):
        cells = own.assign(paper=[cell_value(m, alpha) for m in own["method"]]).dropna()
        apart = cells["accuracy"] - cells["paper"]
        rank = spearman(cells["accuracy"].to_numpy(), cells["paper"].to_numpy()) if len(cells) > 2 else np.nan
        rows.append((rule, alpha, len(cells), apart.mean(), apart.abs().mean(), (apart.abs() <= FAR).sum(), rank))
    columns = ["rule", "alpha", "cells", "mean difference", "mean distance", "within 3", "rank correlation"]
    return pd.DataFrame(rows, columns=columns)


def cell_value(method: str, alpha: float) -> float:
    """The paper's accuracy in percent, NaN for a method that its Table 3 does not have."""
    cell = printed(method, alpha)
    return np.nan if cell is None else float(cell["value"])


def far_cells(results: list[RunResult], changed: Sequence[tuple[str, RunResult]]) -> pd.DataFrame:
    """Cells of Table 3 more than FAR points from the paper's, and which way of reading the runs off comes closest to it.

    changed: (what, run) of runs with one thing changed, which are read off as well. reached: see `reached`.
    """
    rows = []
    for alpha in ALPHAS:
        for method in dict.fromkeys(r.spec.method for r in results):
            own = [r for r in results if _cell(r) == (alpha, method)]
            paper, ours = cell_value(method, alpha), np.mean([_last(r) for r in own]) if own else np.nan
            if not abs(ours - paper) > FAR:
                continue
            values = {name: np.mean([read(r) for r in own]) for name, read in readings(own[0]).items()}
            for what in dict.fromkeys(name for name, r in changed if _cell(r) == (alpha, method)):
                values[what] = np.mean([_last(r) for name, r in changed if (name, *_cell(r)) == (what, alpha, method)])
            nearest = min(values, key=lambda name: abs(values[name] - paper))
            known = ", ".join(f"{name} {value:.2f}" for name, value in values.items())
            rows.append((alpha, method, paper, ours, ours - paper, known, nearest, reached(own, paper)))
    columns = ["alpha", "method", "paper", "ours", "difference", "read off", "nearest", "reached"]
    return pd.DataFrame(rows, columns=columns)


def _cell(result: RunResult) -> tuple[float, str]:
    return result.spec.partition["alpha"], result.spec.method


def reached(results: list[RunResult], percent: float) -> float:
    """The first evaluated round in which the runs' mean accuracy is at least so many percent, NaN for none."""
    rounds, accuracy = results[0].curve()[0], np.mean([r.curve()[1] for r in results], 0)
    there = np.flatnonzero(100 * accuracy >= percent)
    return float(rounds[there[0]]) if len(there) else np.nan


def readings(run: RunResult) -> dict[str, Callable[[RunResult], float]]:
    """Every point of evaluation of a run's last round, pooled, and the mean over clients at the headline point."""
    points = sorted({h["point"] for h in run.history if h["round"] == run.spec.rounds})
    at = {point: lambda r, point=point: _last(r, point=point) for point in points}
    return {**at, "mean over clients": RULES["mean over clients"]}


def largest_classes(s: dict) -> pd.DataFrame:
    """Percent of all samples that belong to the most frequent class of their client: our partitions against DRAWS draws.

    Who has little else than one class is easy to serve with a model of its own.
    """
    sizes, rows = known_class_sizes(s["dataset"]), []
    for alpha in ALPHAS:
        drawn = [
            draw(sizes, s["num_clients"], "dirichlet", seed, alpha=alpha, min_size=s["min_size"])
            for seed in range(DRAWS)
        ]
        share = np.array([100 * counts.max(1).sum() / counts.sum() for counts in drawn])
        mean, std = share.mean(), share.std(ddof=1)
        rows.append((alpha, share[0], share[1], mean, std, (share[0] - mean) / std))
    return pd.DataFrame(rows, columns=["alpha", "ours", "partition 1", "mean", "std", "z"])


# claims --------------------------------------------------------------------------------------------------------------


def check_every_rule(tables) -> Verdict:
    found, lacks = tables["leads"], without(tables["evaluation"], METHODS)
    if lacks:
        return Verdict(NOT_TESTED, lacks)
    lost = found[found["place"] > 1]
    listed = "; ".join(f"{r.rule}, Dir({r.alpha:g}): {r['best other']} by {-r.lead:.1f}" for _, r in lost.iterrows())
    return verdict(
        lost.empty, f"first in {len(found) - len(lost)} of {len(found)}" + (f"; before it {listed}" if listed else "")
    )


def check_transform_matters_most(tables) -> Verdict:
    if STUDY.missing(tables["tidy"]):
        return Verdict(NOT_TESTED, STUDY.missing(tables["tidy"]))
    moved = STUDY.mean_effects(tables["tidy"]).abs().sort_values(ascending=False)
    first = only(tables["tidy"], choice=moved.index[0])["code"].iloc[0]
    listed = ", ".join(f"{name} {value:.2f}" for name, value in moved.head(3).items())
    return verdict(first in ("S1", "S1, S2", "S2"), f"largest effects: {listed}")


def check_rule_outweighs_choices(tables) -> Verdict:
    lacks = STUDY.missing(tables["tidy"]) or (without(tables["evaluation"], METHODS) if tables["leads"].empty else "")
    if lacks:
        return Verdict(NOT_TESTED, lacks)
    largest = STUDY.mean_effects(tables["tidy"]).abs().max()
    by_alpha = tables["leads"].groupby("alpha")["lead"].agg(np.ptp)
    listed = ", ".join(f"{span:.2f} at Dir({alpha:g})" for alpha, span in by_alpha.items())
    return verdict(
        bool(by_alpha.max() > largest), f"the lead ranges over {listed}; largest effect of a choice {largest:.2f}"
    )


def check_mixing_helps(tables) -> Verdict:
    found = tables["alone"]
    if len(found) < len(ALPHAS):
        return Verdict(NOT_TESTED, "without the runs without partners")
    return verdict(bool((found["mixing"] > 0).all()), f"mixing brings {_brought(found)} points")


def _brought(found: pd.DataFrame) -> str:
    return ", ".join(f"{r.mixing:+.2f} (Dir({r.alpha:g}))" for r in found.itertuples())


def check_ordinary_draw(tables) -> Verdict:
    found = tables["draws"]
    listed = "; ".join(
        f"Dir({r.alpha:g}): {r.ours:.1f} % against {r.mean:.1f} ({r.std:.1f}), {r.z:+.1f} std"
        for r in found.itertuples()
    )
    return verdict(bool((found["z"].abs() <= 2).all()), listed)


def answer(tables) -> str:
    """Does pFedSim outperform the baselines, and which unpublished choice matters most? In sentences, from the numbers."""
    return " ".join(
        [
            *_places(tables["leads"]),
            *_nearness(tables["fit"]),
            *_oddness(tables["draws"]),
            *_mixing(tables["alone"]),
            STUDY.in_words(tables["tidy"]),
        ]
    )


def _places(found: pd.DataFrame) -> list[str]:
    sentences = []
    for _, row in found[found["rule"] == next(iter(RULES))].iterrows():
        gap = f"{abs(row['lead']):.1f} points {'before' if row['lead'] > 0 else 'behind'} {row['best other']}"
        gap = gap if abs(row["lead"]) >= 0.05 else f"level with {row['best other']}"
        sentences.append(
            f"At Dir({row['alpha']:g}) pFedSim is number {row['place']} with {row['pfedsim']:.1f} %, {gap}."
        )
    if len(found):
        first, ways = (found["place"] == 1).sum(), found["rule"].nunique()
        sentences.append(f"It is first in {first} of {len(found)} cases, if the same runs are read off in {ways} ways.")
    return sentences


def _nearness(found: pd.DataFrame) -> list[str]:
    """How many cells are near the paper's, as read off here and in the nearest way."""
    if found.empty:
        return []
    sums = found.groupby("rule", sort=False)[["cells", "within 3"]].sum()
    sums["distance"] = found.groupby("rule", sort=False)["mean distance"].mean()
    head, best = sums.iloc[0], sums.loc[sums["distance"].idxmin()]
    text = f"{head['within 3']:.0f} of Table 3's cells on {PRINTED} ({head['cells']:.0f} were run) are within {FAR:g} points of the paper's, {head['distance']:.1f} off on average"
    if best.name == sums.index[0]:
        return [f"{text}; no other way of reading them off comes nearer."]
    return [f'{text}; read off as "{best.name}" they are {best["within 3"]:.0f}, {best["distance"]:.1f} off.']


def _mixing(found: pd.DataFrame) -> list[str]:
    if found.empty:
        return []
    return [
        f"Mixing extractors by similarity brings {_brought(found)} points over clients that train on alone after the same rounds of FedAvg."
    ]


def _oddness(found: pd.DataFrame) -> list[str]:
    """Which of our partitions is not an ordinary draw."""
    sentences = []
    for r in found[found["z"].abs() > 2].itertuples():
        kind, side = ("easy", "above") if r.z > 0 else ("uncommonly mixed", "below")
        sentences.append(
            f"Our partition at Dir({r.alpha:g}) is an {kind} one: {r.ours:.0f} % of the samples are of their client's largest class, "
            f"{abs(r.z):.1f} std {side} the mean of {DRAWS} draws ({r.mean:.0f} %)."
        )
    return sentences


NOTES = Item(
    name="pfedsim/notes",
    title="pFedSim: replication notes",
    claim="What the paper leaves open is decided in several ways, and each decision's effect is measured.",
    smaller=SMALLER,
    settings={
        "smoke": {**SETTINGS["smoke"], "methods": SMOKED, "seeds": 1, "alpha": 0.1, "again": False},
        "quick": {**SETTINGS["quick"], "methods": METHODS, "seeds": 1, "alpha": 0.1, "again": False},
        "paper": {**SETTINGS["paper"], "methods": METHODS, "seeds": 1, "alpha": 0.1, "again": True},
    },
    minutes={"smoke": 1, "quick": 1, "paper": 60},
    partial=True,
    specs=notes_specs,
    analyse=analyse_notes,
    shown={
        "leads": "pFedSim's place and lead over the best other method, however the accuracy is read off",
        "alone": "What mixing brings: pFedSim, and the same without partners (Φ stays the identity), %",
        "fit": f"How near the same runs come to the paper's numbers (on {PRINTED} only), points",
        "cells": f"Cells of Table 3 more than {FAR:g} points from the paper's (on {PRINTED} only), read off in every way",
        "draws": "Samples that are of their client's largest class, %: is our partition an ordinary draw?",
    },
    figure=lambda tables: figures.open_choices(tables["tidy"], tables["leads"]),
    answer=answer,
    claims=(
        Claim("(Ours) pFedSim is first whatever way the accuracy is read off the same runs.", check_every_rule),
        Claim("(Ours) A choice that the paper leaves open moves pFedSim more than chance does.", STUDY.check_matter),
        Claim("(Ours) What matters most is how similarity becomes a weight (S1, S2).", check_transform_matters_most),
        Claim(
            "(Ours) How the accuracy is read off moves pFedSim's lead more than any choice moves its accuracy.",
            check_rule_outweighs_choices,
        ),
        Claim(
            "(Ours) Mixing extractors makes pFedSim better than training on alone after the same rounds of FedAvg.",
            check_mixing_helps,
        ),
        Claim(
            "(Ours) Our partitions are ordinary draws: the share of the clients' largest classes is within 2 std of the mean.",
            check_ordinary_draw,
        ),
    ),
)

ITEMS = (NOTES,)
