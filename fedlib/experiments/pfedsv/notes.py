"""Replication notes: what each choice that the paper leaves open does to pFedSV's accuracy, its search, and its cost."""

from __future__ import annotations

import numpy as np
import pandas as pd

from fedlib import figures
from fedlib.analysis.tables import only, spearman
from fedlib.data.describe import label_cosine
from fedlib.engine.result import RunResult
from fedlib.experiments.choices import BASE, CHANCE, Choice, Sensitivity, hyper
from fedlib.experiments.claims import Verdict, apart, decided, not_tested, ours, verdict
from fedlib.experiments.item import Item
from fedlib.experiments.pfedsv.fig7_relevance import K, game_costs
from fedlib.experiments.pfedsv.ring import CLIENTS, SETTINGS, mean_auc, others, ring_spec, share_a_label, task_spec
from fedlib.spec import RunSpec

RING, DIRICHLET = "two labels each", "Dir(0.1)"

CHOICES = (
    Choice("V1", "nobody is worth a guess (v(∅) = chance)", "0, as printed", hyper(v_empty="chance")),
    Choice("V2", "utility: loss", "accuracy, as printed", hyper(utility="loss")),
    Choice("V2", "utility on the training samples", "on 20 % held out", hyper(utility_part="train")),
    Choice("V4", "exact Shapley values", "3 permutations a player, as printed", hyper(sv="exact")),
    Choice("V5", "own distance: to the last mixture", "to the nearest other", hyper(self_distance="prev")),
    Choice("V5", "own distance: nearly 0 (as printed)", "to the nearest other", hyper(self_distance="eps")),
    Choice("V5", "no distances at all", "divided by distances", hyper(self_distance="none")),
    Choice("V7", "no memory (α = 0)", "α = 0.5", hyper(alpha=0.0)),
    Choice("V7", "long memory (α = 0.9)", "α = 0.5", hyper(alpha=0.9)),
    Choice("V8", "k = number of positive scores", "unseen ones fill up k", hyper(download_rule="literal")),
    Choice("V8", "k may grow to all others", "never above its start, 5", hyper(k_max=CLIENTS - 1)),
    Choice("V9", "rejected ones get another chance (0.2)", "never", hyper(reexplore_prob=0.2)),
    Choice("W", "fixed k, nobody is dropped", "dynamic k (D)", hyper(variant="W")),
    Choice("C", "common extractor (D+C)", "whole models (D)", hyper(variant="D+C")),
    Choice(CHANCE, "another seed, same partition", "seeds from 0 on", task=lambda s, r: {"seed": r.seed + s["seeds"]}),
)  # fmt: skip
LITERAL, FIXED, EXACT = "k = number of positive scores", "fixed k, nobody is dropped", "exact Shapley values"


def task_of(spec: RunSpec) -> str:
    return RING if spec.scheme == "ring" else DIRICHLET


SENSITIVITY = Sensitivity("pfedsv", CHOICES, task_of=task_of, metric="client_mean")


def bases(s: dict) -> list[RunSpec]:
    """The runs in which one thing is changed, in both tasks; relevance and downloads are kept after every round."""
    kept = {"measures": ("relevance", "downloads")}
    drawn = {"scheme": "dirichlet", "alpha": 0.1, "eval_every": s["rounds"], **kept}
    pairs = (
        (ring_spec(s, "pfedsv", seed, **kept), task_spec(s, "pfedsv", seed, **drawn)) for seed in range(s["seeds"])
    )
    return [spec for pair in pairs for spec in pair]


COLUMNS = {
    "finds": "finds the relevant (AUC; Dir: rank correlation)",
    "complete": "relevant ones downloaded at least once",
    "models": "models a client and round",
}


def analyse(s: dict, results: list[RunResult]) -> dict[str, pd.DataFrame]:
    """Besides the effects: search, see `searches`."""
    found = {r.spec.id: r for r in results}
    effects, search = SENSITIVITY.effects(s, bases(s), found), searches(s, found)
    compare, means = (
        SENSITIVITY.compared(effects, s["dataset"], {}),
        search.groupby(["task", "choice"], sort=False)[list(COLUMNS)].mean(),
    )
    keys = list(zip(compare["task"], compare["decided otherwise"]))
    for column, title in COLUMNS.items():
        compare[title] = [f"{means.loc[key, column]:.2f}" if key in means.index else "" for key in keys]
    return {**effects, "search": search, "compare": compare}


def searches(s: dict, found: dict[str, RunResult]) -> pd.DataFrame:
    """One row a task, choice and seed.

    finds: how well relevance tells who is relevant (`finding`); complete: share of the relevant others that were ever
    downloaded; models: downloads a client and round.
    """
    pairs, lines = [(BASE, base, base) for base in bases(s)], []
    pairs += [(choice.name, base, spec) for choice, base, spec in SENSITIVITY.changed(s, bases(s))]
    for name, base, spec in pairs:
        if spec.id in found and base.id in found:
            r = found[spec.id]
            sent, relevant = r.arrays["downloads"], share_a_label(r.arrays["counts"])
            numbers = (finding(r), sent.any(0)[relevant].mean(), sent.sum() / len(sent) / len(relevant))
            lines.append((task_of(base), name, base.seed, *numbers))
    return pd.DataFrame(lines, columns=["task", "choice", "seed", *COLUMNS])


def finding(r: RunResult) -> float:
    """How well the relevance of the last round tells who is relevant, mean over clients.

    With two labels each: AUC for sharing a label (0.5 is guessing). With Dirichlet shares, where all share something: rank
    correlation with the cosine of label counts (0 is guessing); clients to whom all others are equally relevant count 0.
    """
    score = r.arrays["relevance"][-1]
    if task_of(r.spec) == RING:
        return mean_auc(score, share_a_label(r.arrays["counts"]))
    alike = label_cosine(r.arrays["counts"])
    return float(np.mean([spearman(a, b) if np.ptp(a) > 0 else 0.0 for a, b in zip(others(score), others(alike))]))


# claims --------------------------------------------------------------------------------------------------------------


def of(tables, choice: str, column: str) -> pd.Series:
    """Mean over seeds by task; of BASE or a choice."""
    return only(tables["search"], choice=choice).groupby("task", sort=False)[column].mean()


def effect(tables, choice: str) -> dict[str, pd.Series]:
    """What a choice does to the accuracy, by task, as draws."""
    return {task: e for (task, _, name), e in tables["_effects"].items() if name == choice}


def each(numbers: pd.Series, form: str = ".2f") -> str:
    return ", ".join(f"{value:{form}} ({task})" for task, value in numbers.items())


def apart_each(effects: dict[str, pd.Series]) -> str:
    return ", ".join(f"{apart(e, '.2f')} ({task})" for task, e in effects.items())


def with_all(check):
    """A check that is made only where every choice was tried; it gets what chance moves the accuracy by, too."""

    def checked(tables) -> Verdict:
        lacks = SENSITIVITY.missing(tables)
        return not_tested(lacks) if lacks else check(tables, SENSITIVITY.chance(tables))

    return checked


@with_all
def dropping_saves(tables, chance: float) -> Verdict:
    fixed, dynamic, change = of(tables, FIXED, "models"), of(tables, BASE, "models"), effect(tables, FIXED)
    evidence = f"models a client and round {each(dynamic)} instead of {each(fixed)}; with k fixed accuracy changes by {apart_each(change)}, by chance {chance:.2f}"
    margins = {f"accuracy, {task}": chance - e for task, e in change.items()}
    return decided(margins, evidence) if (dynamic < fixed).all() else verdict(False, evidence)


@with_all
def estimate_is_enough(tables, chance: float) -> Verdict:
    change, found = effect(tables, EXACT), of(tables, EXACT, "finds") - of(tables, BASE, "finds")
    cost = only(game_costs(), players=K + 1).iloc[0]
    asks = f"a game of {K + 1} asks for {cost['exact']} coalitions, estimated for {cost['estimate']}"
    margins = {
        f"{side}{task}": chance - sign * e
        for task, e in change.items()
        for side, sign in (("more, ", 1), ("less, ", -1))
    }
    return decided(
        margins, f"accuracy {apart_each(change)}, by chance {chance:.2f}; finding {each(found, '+.2f')}; {asks}"
    )


@with_all
def literal_stops_searching(tables, chance: float) -> Verdict:
    literal, rule = of(tables, LITERAL, "complete"), of(tables, BASE, "complete")
    return verdict(
        (literal < rule).all(), f"relevant ones found: {each(literal, '.0%')}, by our rule {each(rule, '.0%')}"
    )


@with_all
def own_distance_matters(tables, chance: float) -> Verdict:
    moved = {f"{c.name}, {task}": e for c in CHOICES if c.code == "V5" for task, e in effect(tables, c.name).items()}
    largest = max(moved, key=lambda name: abs(moved[name].iloc[0]))
    sign = np.sign(moved[largest].iloc[0])
    listing = "; ".join(f"{name} {apart(e, '.2f')}" for name, e in moved.items())
    return decided({largest: sign * moved[largest] - chance}, f"{listing}; by chance {chance:.2f}")


def answer(tables) -> str:
    """Which choice matters, what the search costs and whether it ends, in sentences from the numbers."""
    sentences = [SENSITIVITY.in_words(tables)]
    if not SENSITIVITY.missing(tables):
        cost = only(game_costs(), players=K + 1).iloc[0]
        sentences.append(
            f"Dropping clients leaves {each(of(tables, BASE, 'models'), '.1f')} downloads a client and round, instead of {each(of(tables, FIXED, 'models'), '.1f')}."
        )
        sentences.append(
            f"Exact Shapley values change accuracy by {apart_each(effect(tables, EXACT))} points and ask for {cost['exact']} coalitions a game, estimated ones for {cost['estimate']}."
        )
    return " ".join(sentences)


ITEM = Item(
    title="pFedSV: replication notes",
    claim="What the paper leaves open is decided in several ways, and each decision's effect is measured.",
    smaller="digits (16x16) and LeNet-5 instead of CIFAR-10 and a larger network; 5 rounds of 3 epochs instead of 20 of 5, one seed",
    settings={
        "smoke": {**SETTINGS["smoke"], "min_size": 10, "seeds": 1},
        "quick": {**SETTINGS["quick"], "rounds": 5, "min_size": 20, "seeds": 1},
        "paper": {**SETTINGS["paper"], "min_size": 40, "seeds": 1},
    },
    minutes={"smoke": 0.3, "quick": 0.8, "paper": 5000},
    partial=True,
    specs=lambda s: SENSITIVITY.specs(s, bases(s)),
    analyse=analyse,
    figure=lambda tables: figures.choices_by_task(tables["tidy"], "pfedsv"),
    answer=answer,
    claims=(
        ours("A choice that the paper leaves open moves pFedSV more than chance does.", SENSITIVITY.check_matter),
        ours("Dropping irrelevant clients saves downloads, and fixed k is not more accurate.", dropping_saves),
        ours("Estimated Shapley values are as good as exact ones, within chance.", estimate_is_enough),
        ours(
            "With k literally the number of positive scores, fewer relevant clients are found.", literal_stops_searching
        ),
        ours("How far a client is from itself, which Eq. 6 needs and leaves open, matters.", own_distance_matters),
    ),
)
