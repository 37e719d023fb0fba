"""Replication notes: what each choice that the paper leaves open does to pFedSV's accuracy, search and cost."""

import numpy as np
import pandas as pd

from fedlib import figures
from fedlib.analysis.relevance import alike_by_rank, game_costs, mean_auc, relevant_of
from fedlib.analysis.sensitivity import BASE, CHANCE, Choice, Sensitivity, hyper
from fedlib.analysis.tables import named, only, rows_of
from fedlib.claims import Verdict, apart, decided, each_apart, matter, opposite, ours, unless, verdict
from fedlib.engine.result import RunResult
from fedlib.experiments.item import Found, Item, Tables, leaving_out, per_profile, runs_of
from fedlib.experiments.pfedsv.fig7_relevance import KEPT, K
from fedlib.experiments.pfedsv.task import CLIENTS, RING, ring, ten_clients
from fedlib.spec import RunSpec

ON_RING, DIRICHLET = "two classes per client", "Dir(0.1)"
LITERAL, FIXED, EXACT = "k = number of positive values", "fixed k, no client is discarded", "exact Shapley values"
CHOICES = (
    Choice("empty coalition", "v(∅) = chance accuracy", "0, as stated", hyper(v_empty="chance"), left_open=False),
    Choice("utility", "utility: loss", "accuracy, as stated", hyper(utility="loss"), left_open=False),
    Choice("utility", "utility on the training samples", "on 20 % held out", hyper(utility_part="train")),
    Choice("estimator", EXACT, "3 permutations per player, as stated", hyper(sv="exact"), left_open=False),
    Choice("self-distance", "self-distance: to last aggregate", "to the nearest other", hyper(self_distance="prev")),
    Choice(
        "self-distance", "self-distance: about 0 (taken literally)", "to the nearest other", hyper(self_distance="eps")
    ),
    Choice("self-distance", "no distances at all", "divided by distances", hyper(self_distance="none")),
    Choice("moving average", "no moving average (α = 0)", "α = 0.5", hyper(alpha=0.0)),
    Choice("moving average", "long moving average (α = 0.9)", "α = 0.5", hyper(alpha=0.9)),
    Choice("number requested", LITERAL, "clients not yet downloaded fill the rest", hyper(download_rule="literal")),
    Choice("number requested", "k may grow to all others", "never above its start, 5", hyper(k_max=CLIENTS - 1)),
    Choice("retrial", "discarded clients are retried with probability 0.2", "never", hyper(reexplore_prob=0.2)),
    Choice("variant", FIXED, "dynamic k (D)", hyper(variant="W"), left_open=False),
    Choice("variant", "shared extractor (D+C)", "full models (D)", hyper(variant="D+C"), left_open=False),
    Choice(CHANCE, "another seed, same partition", "seeds from 0 on", task=lambda s, r: {"seed": r.seed + s["seeds"]}),
)


def task_of(spec: RunSpec) -> str:
    return ON_RING if spec.scheme == "ring" else DIRICHLET


SENSITIVITY = Sensitivity("pfedsv", CHOICES, task_of=task_of, metric="client_mean")


def bases(s: dict) -> list[RunSpec]:
    """The runs in which one thing is changed, in both tasks; relevance and downloads are kept after every round."""
    drawn = ten_clients(s, scheme="dirichlet", alpha=0.1, eval_every=s["rounds"], measures=KEPT)
    rows = {"pfedsv": {"method": "pfedsv"}}
    both = (runs_of(task, rows, s["seeds"]).values() for task in (ring(s, measures=KEPT), drawn))
    return [spec for pair in zip(*both) for spec in pair]


TITLES = {
    "finds": "learned relevance and shared labels (AUC; at Dir(0.1) rank correlation)",
    "complete": "share of relevant clients downloaded at least once",
    "models": "models per client and round",
}


def analyse(s: dict, found: Found) -> Tables:
    """Besides the effects: search, see `searched`."""
    effects, search = SENSITIVITY.effects(found), rows_of(found, ("choice", "task", "method", "seed"), searched)
    compare = SENSITIVITY.compared(effects, s["dataset"], {})
    means = search.groupby(["task", "choice"], sort=False)[list(TITLES)].mean()
    keys = list(zip(compare["task"], compare["alternative"]))
    for column, title in TITLES.items():
        compare[title] = [f"{means.loc[key, column]:.2f}" for key in keys]
    return {**effects, "search": search, "compare": compare}


def searched(r: RunResult) -> dict[str, float]:
    """finds: how well the relevance of the last round tells who shares a label (AUC), or whose labels are alike (rank
    correlation); complete: share of the relevant others that were ever downloaded; models: downloads a client and
    round."""
    score, relevant, sent = r.arrays["relevance"][-1], relevant_of(r), r.arrays["downloads"]
    ring = task_of(r.spec) == ON_RING
    return {
        "finds": mean_auc(score, relevant) if ring else alike_by_rank(score, r.arrays["counts"]),
        "complete": sent.any(0)[relevant].mean(),
        "models": sent.sum() / len(sent) / len(relevant),
    }


# claims --------------------------------------------------------------------------------------------------------------


def of(tables, choice: str, column: str) -> pd.Series:
    """Mean over seeds by task; of BASE or a choice."""
    return only(tables["search"], choice=choice).groupby("task", sort=False)[column].mean()


def effect(tables, choice: str) -> dict[str, pd.Series]:
    """What a choice does to the accuracy, by task, as draws."""
    return {task: e for (task, _, name), e in tables["_effects"].items() if name == choice}


@unless(SENSITIVITY.missing)
def dropping_saves(tables) -> Verdict:
    fixed, dynamic, change = of(tables, FIXED, "models"), of(tables, BASE, "models"), effect(tables, FIXED)
    chance = SENSITIVITY.chance(tables)
    sent = f"models per client and round {named(dynamic, '.2f')} instead of {named(fixed, '.2f')}"
    moved = f"with k fixed accuracy changes by {each_apart(change, '.2f')}"
    evidence = f"{sent}; {moved}; seed-to-seed variability {chance:.2f}"
    margins = {f"accuracy, {task}": chance - e for task, e in change.items()}
    return decided(margins, evidence) if (dynamic < fixed).all() else verdict(False, evidence)


@unless(SENSITIVITY.missing)
def estimate_serves(tables) -> Verdict:
    change, found = effect(tables, EXACT), of(tables, EXACT, "finds") - of(tables, BASE, "finds")
    chance = SENSITIVITY.chance(tables)
    cost = only(game_costs(), players=K + 1).iloc[0]
    margins = {f"more, {task}": chance - e for task, e in change.items()}
    margins |= {f"less, {task}": chance + e for task, e in change.items()}
    asks = f"in a game of {K + 1} exact values evaluate {cost['exact']} coalitions, estimates {cost['estimate']}"
    moved = f"accuracy {each_apart(change, '.2f')}; seed-to-seed variability {chance:.2f}"
    return decided(margins, f"{moved}; AUC (at Dir(0.1) rank correlation) {named(found, '+.2f')}; {asks}")


@unless(SENSITIVITY.missing)
def literal_stops_early(tables) -> Verdict:
    literal, rule = of(tables, LITERAL, "complete"), of(tables, BASE, "complete")
    evidence = f"clients with a shared label ever downloaded: {named(literal, '.0%')}, by our rule {named(rule, '.0%')}"
    return verdict((literal < rule).all(), evidence)


@unless(SENSITIVITY.missing)
def own_distance_matters(tables) -> Verdict:
    names, chance = [c.name for c in CHOICES if c.code == "self-distance"], SENSITIVITY.chance(tables)
    moved = {f"{name}, {task}": e for name in names for task, e in effect(tables, name).items()}
    listing = "; ".join(f"{name} {apart(e, '.2f')}" for name, e in moved.items())
    none_does = {name: chance - np.sign(e.iloc[0]) * e for name, e in moved.items()}  # margins of the opposite
    return opposite(decided(none_does, f"{listing}; seed-to-seed variability {chance:.2f}"))


def answer(tables) -> str:
    """Which choice matters, what the search costs and whether it ends, in sentences from the numbers."""
    sentence = SENSITIVITY.in_words(tables)
    if SENSITIVITY.missing(tables):
        return sentence
    dynamic, fixed = named(of(tables, BASE, "models"), ".1f"), named(of(tables, FIXED, "models"), ".1f")
    change, cost = each_apart(effect(tables, EXACT), ".2f"), only(game_costs(), players=K + 1).iloc[0]
    return (
        f"{sentence} Discarding clients leaves {dynamic} downloads per client and round, instead of {fixed}. Exact "
        f"Shapley values change accuracy by {change} points and need {cost['exact']} coalitions per game, estimated "
        f"ones {cost['estimate']}."
    )


ITEM = Item(
    title="pFedSV: replication notes",
    claim="For every detail that the paper does not specify, the effect of alternative choices on accuracy is "
    "measured.",
    smaller="digits (16x16; paper: CIFAR-10); LeNet-5 (paper: McMahan's CNN); 5 rounds of 3 epochs (paper: 20 of 5); "
    "one seed",
    settings=per_profile(leaving_out(RING, "reduced"), rounds=[None, 5, None], min_size=[10, 20, 40], seeds=1),
    minutes={"smoke": 0.3, "quick": 0.8, "paper": 5000},
    partial=True,
    runs=lambda s: SENSITIVITY.runs(s, bases(s)),
    analyse=analyse,
    figure=lambda tables: figures.choices_by_task(tables["effects"], "pfedsv"),
    answer=answer,
    claims=(
        matter(SENSITIVITY, "pFedSV"),
        ours("Discarding irrelevant clients saves downloads, and fixed k is not more accurate.", dropping_saves),
        ours("Estimated Shapley values are as good as exact ones, within seed-to-seed variability.", estimate_serves),
        ours("With k literally the number of positive values, fewer relevant clients are found.", literal_stops_early),
        ours("A client's distance from itself, which Eq. 6 needs and does not define, matters.", own_distance_matters),
    ),
)
