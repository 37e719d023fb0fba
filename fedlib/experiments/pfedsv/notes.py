"""Replication notes: what each choice that the paper leaves open does to pFedSV's accuracy, its search, and its cost."""

from __future__ import annotations

import numpy as np
import pandas as pd

from fedlib import figures
from fedlib.algorithms.parts.similarity import label_cosines
from fedlib.engine.result import RunResult
from fedlib.experiments.choices import BASE, CHANCE, Choice, Study, hyper
from fedlib.experiments.items import NOT_TESTED, Claim, Item, Verdict, only, verdict
from fedlib.experiments.pfedsim.study import spearman
from fedlib.experiments.pfedsv.relevance import K, game_costs
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


STUDY = Study("pfedsv", CHOICES, task_of=task_of)


def base_specs(s: dict) -> list[RunSpec]:
    """The runs in which one thing is changed, in both tasks; relevance and downloads are kept after every round."""
    kept = {"measures": ("relevance", "downloads")}
    drawn = {"scheme": "dirichlet", "partition": {"alpha": 0.1, "min_size": s["min_size"]}, "eval_every": s["rounds"]}
    return [
        spec
        for seed in range(s["seeds"])
        for spec in (ring_spec(s, "pfedsv", seed, **kept), task_spec(s, "pfedsv", seed, **drawn, **kept))
    ]


def client_mean(result: RunResult) -> float:
    """Mean accuracy over clients after the last round, in percent: the paper's MTA."""
    return 100 * result.final("client_mean")


def analyse_notes(s: dict, results: list[RunResult]) -> dict[str, pd.DataFrame]:
    found, bases = {r.spec.id: r for r in results}, base_specs(s)
    tidy, work = STUDY.effects(s, bases, found, client_mean), searches(s, bases, found)
    compare = STUDY.compared(tidy, s["dataset"], {})
    means = work.groupby(["task", "choice"], sort=False)[list(COLUMNS)].mean()
    keys = list(zip(compare["task"], compare["decided otherwise"]))
    for column, title in COLUMNS.items():
        compare[title] = [f"{means.loc[key, column]:.2f}" if key in means.index else "" for key in keys]
    return {"tidy": tidy, "search": work, "compare": compare}


COLUMNS = {
    "finds": "finds the relevant (AUC; Dir: rank correlation)",
    "complete": "relevant ones downloaded at least once",
    "models": "models a client and round",
}


def searches(s: dict, bases: list[RunSpec], found: dict[str, RunResult]) -> pd.DataFrame:
    """One row a task, choice and seed.

    finds: how well relevance tells who is relevant (`finding`); complete: share of the relevant others that were ever
    downloaded; models: downloads a client and round.
    """
    pairs = [(BASE, base, base) for base in bases]
    pairs += [(choice.name, base, spec) for choice, base, spec in STUDY.changed(s, bases)]
    rows = []
    for name, base, spec in pairs:
        if spec.id in found and base.id in found:
            r = found[spec.id]
            sent, relevant = r.arrays["downloads"], share_a_label(r.arrays["counts"])
            complete = sent.any(0)[relevant].mean()
            row = (finding(r), complete, sent.sum() / len(sent) / len(relevant))
            rows.append((task_of(base), name, base.seed, *row))
    return pd.DataFrame(rows, columns=["task", "choice", "seed", *COLUMNS])


def finding(r: RunResult) -> float:
    """How well the relevance of the last round tells who is relevant, mean over clients.

    With two labels each: AUC for sharing a label (0.5 is guessing). With Dirichlet shares, where all share something: rank
    correlation with the cosine of label counts (0 is guessing); clients to whom all others are equally relevant count 0.
    """
    score = r.arrays["relevance"][-1]
    if task_of(r.spec) == RING:
        return mean_auc(score, share_a_label(r.arrays["counts"]))
    import torch

    alike = label_cosines(torch.from_numpy(np.asarray(r.arrays["counts"]))).numpy()
    rows = [spearman(a, b) if np.ptp(a) > 0 else 0.0 for a, b in zip(others(score), others(alike))]
    return float(np.mean(rows))


# claims --------------------------------------------------------------------------------------------------------------


def _of(tables, choice: str, column: str) -> pd.Series:
    """Mean over seeds by task; of BASE or a choice."""
    return only(tables["search"], choice=choice).groupby("task", sort=False)[column].mean()


def _effect(tables, choice: str) -> pd.Series:
    return only(tables["tidy"], choice=choice).groupby("task", sort=False)["effect"].mean()


def _each(series: pd.Series, form: str = "+.2f") -> str:
    return ", ".join(f"{value:{form}} ({task})" for task, value in series.items())


def needing(check):
    """A check that is made only where every choice was tried."""

    def checked(tables) -> Verdict:
        lacks = STUDY.missing(tables["tidy"])
        return Verdict(NOT_TESTED, lacks) if lacks else check(tables)

    return checked


@needing
def check_dropping_saves(tables) -> Verdict:
    fixed, dynamic, change = _of(tables, FIXED, "models"), _of(tables, BASE, "models"), _effect(tables, FIXED)
    chance = STUDY.chance(tables["tidy"])
    holds = (dynamic < fixed).all() and (change < chance).all()
    return verdict(
        bool(holds),
        f"models a client and round {_each(dynamic, '.2f')} instead of {_each(fixed, '.2f')}; with k fixed accuracy changes by {_each(change)}, by chance {chance:.2f}",
    )


@needing
def check_estimate_is_enough(tables) -> Verdict:
    change, chance = _effect(tables, EXACT), STUDY.chance(tables["tidy"])
    found, cost = _of(tables, EXACT, "finds") - _of(tables, BASE, "finds"), only(game_costs(), players=K + 1).iloc[0]
    return verdict(
        bool((change.abs() < chance).all()),
        f"accuracy {_each(change)}, by chance {chance:.2f}; finding {_each(found)}; a game of {K + 1} asks for {cost['exact']} coalitions, estimated for {cost['estimate']}",
    )


@needing
def check_literal_stops_searching(tables) -> Verdict:
    literal, rule = _of(tables, LITERAL, "complete"), _of(tables, BASE, "complete")
    return verdict(
        bool((literal < rule).all()), f"relevant ones found: {_each(literal, '.0%')}, by our rule {_each(rule, '.0%')}"
    )


@needing
def check_own_distance_matters(tables) -> Verdict:
    names = [choice.name for choice in CHOICES if choice.code == "V5"]
    moved, chance = {name: _effect(tables, name) for name in names}, STUDY.chance(tables["tidy"])
    listed = "; ".join(f"{name}: {_each(change)}" for name, change in moved.items())
    return verdict(max(change.abs().max() for change in moved.values()) > chance, f"{listed}; by chance {chance:.2f}")


def answer(tables) -> str:
    """Which choice matters, what the search costs and whether it ends, in sentences from the numbers."""
    sentences = [STUDY.in_words(tables["tidy"])]
    if not STUDY.missing(tables["tidy"]):
        sentences.append(
            f"Dropping clients leaves {_each(_of(tables, BASE, 'models'), '.1f')} downloads a client and round, instead of {_each(_of(tables, FIXED, 'models'), '.1f')}."
        )
        cost = only(game_costs(), players=K + 1).iloc[0]
        sentences.append(
            f"Exact Shapley values change accuracy by {_each(_effect(tables, EXACT))} points and ask for {cost['exact']} coalitions a game, estimated ones for {cost['estimate']}."
        )
    return " ".join(sentences)


NOTES = Item(
    name="pfedsv/notes",
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
    specs=lambda s: STUDY.specs(s, base_specs(s)),
    analyse=analyse_notes,
    figure=lambda tables: figures.choices_by_task(tables["tidy"], "pfedsv"),
    answer=answer,
    claims=(
        Claim("(Ours) A choice that the paper leaves open moves pFedSV more than chance does.", STUDY.check_matter),
        Claim(
            "(Ours) Dropping irrelevant clients saves downloads, and fixed k is not more accurate.",
            check_dropping_saves,
        ),
        Claim("(Ours) Estimated Shapley values are as good as exact ones, within chance.", check_estimate_is_enough),
        Claim(
            "(Ours) With k literally the number of positive scores, fewer relevant clients are found.",
            check_literal_stops_searching,
        ),
        Claim(
            "(Ours) How far a client is from itself, which Eq. 6 needs and leaves open, matters.",
            check_own_distance_matters,
        ),
    ),
)

ITEMS = (NOTES,)
