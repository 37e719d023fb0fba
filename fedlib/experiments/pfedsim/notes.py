"""Replication notes: what each choice that the paper leaves open does to pFedSim's accuracy, and to its lead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from fedlib import figures
from fedlib.experiments.items import NOT_TESTED, Claim, Item, Verdict, only, verdict
from fedlib.experiments.pfedsim.accuracy import METHODS, printed, table3_specs, without
from fedlib.experiments.pfedsim.task import ALPHAS, SETTINGS, SMALLER, run_spec
from fedlib.results import RunResult
from fedlib.spec import RunSpec

FAR = 3.0  # points between a cell of Table 3 and ours from which it is looked into


@dataclass(frozen=True)
class Choice:
    """One thing decided otherwise. code: its number in the list of open questions, or a word.

    hyper: hyper-parameters of pFedSim alone; task: fields of the run, which change FedAvg as well. Both as functions of
    the settings.
    """

    code: str
    name: str
    ours: str  # what is done where nothing else is said
    hyper: Callable[[dict], dict] | None = None
    task: Callable[[dict], dict] | None = None


def _hyper(**values) -> Callable[[dict], dict]:
    return lambda s: values


def _partition(**changes) -> Callable[[dict], dict]:
    return lambda s: {"partition": {"alpha": s["alpha"], "min_size": s["min_size"], **changes}}


CHOICES = (
    Choice("S1", "Eq. 3 as printed", "log of the mean cosine, as in the authors' code", _hyper(phi="eq3")),
    Choice("S1, S2", "Eq. 3, own weight by Eq. 3 (18.4)", "the same", _hyper(phi="eq3", phi_self="eq3")),
    Choice("S2", "own weight 1 (identity as printed)", "9.21, the transform of the code at 1", _hyper(phi_self=1.0)),
    Choice("S2", "own weight 18.4", "9.21", _hyper(phi_self="eq3")),
    Choice("S3", "Φ renewed where one of two took part", "only where both did", _hyper(phi_refresh="one_fresh")),
    Choice("S3", "all of Φ renewed in every round", "only where both took part", _hyper(phi_refresh="all")),
    Choice("S4", "no partners older than a tenth of the rounds", "of any age", lambda s: {"max_age": s["rounds"] // 10}),
    Choice("S5", "bias belongs to a class vector", "weights only", _hyper(phi_bias=True)),
    Choice("S11", "batch norm's statistics shared", "they stay on the client", task=lambda s: {"bn_stats": "global"}),
    Choice("§3.1", "the other number of max-pools", "see the settings",
           task=lambda s: {"model_options": {"pools": 3 - s["pools"]}}),
    Choice("§4.2", "no cap in the Dirichlet draw", "clients that hold n/N samples get no more", task=_partition(cap=False)),
    Choice("spread", "another partition", "partition 0", task=lambda s: {"partition_seed": 1}),
    Choice("spread", "another seed", "seeds from 0 on", task=lambda s: {}),
)  # fmt: skip
BASE = "as everywhere here"
OPEN = sum(choice.code != "spread" for choice in CHOICES)


def notes_specs(s: dict) -> list[RunSpec]:
    """The runs of Table 3, then every choice at the settings' alpha."""
    return table3_specs(s) + [spec for seed in range(s["seeds"]) for _, _, spec in choice_specs(s, seed)]


def choice_specs(s: dict, seed: int) -> list[tuple[Choice, str, RunSpec]]:
    """(choice, method, run): pFedSim under every choice, FedAvg too where the choice touches it."""
    return [
        (choice, method, chosen(s, choice, method, seed))
        for choice in CHOICES
        for method in (("pfedsim",) if choice.task is None else ("pfedsim", "fedavg"))
    ]


def chosen(s: dict, choice: Choice, method: str, seed: int) -> RunSpec:
    """One run with one thing decided otherwise; another seed is one that no other run of the item has."""
    if choice.name == "another seed":
        seed += s["seeds"]
    hyper = choice.hyper(s) if choice.hyper and method == "pfedsim" else {}
    return run_spec(s, method, s["alpha"], seed, **hyper).but(**(choice.task(s) if choice.task else {}))


def analyse_notes(s: dict, results: list[RunResult]) -> dict[str, pd.DataFrame]:
    by_id = {r.spec.id: r for r in results}
    table3 = [by_id[spec.id] for spec in table3_specs(s) if spec.id in by_id]
    tidy = effects(s, by_id)
    evaluation = by_rule(table3)
    return {
        "tidy": tidy,
        "compare": compared(s, tidy),
        "evaluation": evaluation,
        "leads": leads(evaluation, s["methods"]),
        "cells": far_cells(table3),
    }


def effects(s: dict, by_id: dict[str, RunResult]) -> pd.DataFrame:
    """One row a choice, method and seed: accuracy in percent and its difference from the same seed's run without the choice."""
    rows = []
    for seed in range(s["seeds"]):
        runs = {m: run_spec(s, m, s["alpha"], seed).id for m in ("pfedsim", "fedavg")}
        base = {m: 100 * by_id[id].final() for m, id in runs.items() if id in by_id}
        rows += [("", BASE, m, seed, value, 0.0) for m, value in base.items()]
        for choice, method, spec in choice_specs(s, seed):
            if spec.id not in by_id or method not in base:
                continue
            value = 100 * by_id[spec.id].final()
            rows.append((choice.code, choice.name, method, seed, value, value - base[method]))
    return pd.DataFrame(rows, columns=["code", "choice", "method", "seed", "pooled", "effect"])


def compared(s: dict, tidy: pd.DataFrame) -> pd.DataFrame:
    """One row a choice: what it does to pFedSim, to FedAvg, and to pFedSim's lead over FedAvg."""
    paper, rows = printed("pfedsim", s["alpha"]), []
    ours = {choice.name: choice.ours for choice in CHOICES}
    for name, own in tidy.groupby("choice", sort=False):
        mean = own.groupby("method")[["pooled", "effect"]].mean()
        row = {"question": own["code"].iloc[0], "decided otherwise": name, "else": ours.get(name, "")}
        row["paper, CIFAR-10"] = f"{paper['value']:.2f}" if name == BASE and paper is not None else ""
        known = "pfedsim" in mean.index
        row[f"pFedSim, {s['dataset']}"] = f"{mean.loc['pfedsim', 'pooled']:.2f}" if known else "not run"
        row["effect"] = f"{mean.loc['pfedsim', 'effect']:+.2f}" if known and name != BASE else ""
        touched = name != BASE and "fedavg" in mean.index
        row["effect on FedAvg"] = f"{mean.loc['fedavg', 'effect']:+.2f}" if touched else ""
        rows.append(row)
    return pd.DataFrame(rows)


# how the accuracy is read off ----------------------------------------------------------------------------------------


def _last(result: RunResult, metric: str = "pooled", point: str | None = None) -> float:
    return 100 * result.final(metric, point)


def _trained(result: RunResult) -> float:
    """At `post` where the method has it, else at its headline point."""
    post = _last(result, point="post")
    return _last(result) if np.isnan(post) else post


def _recent(result: RunResult) -> float:
    return 100 * float(np.mean(result.curve()[1][-3:]))


RULES: dict[str, Callable[[RunResult], float]] = {
    "headline: pooled, last round": _last,
    "mean over clients": lambda r: _last(r, "client_mean"),
    "classes weighted equally": lambda r: _last(r, "balanced"),
    "best round": lambda r: 100 * max(r.curve()[1]),
    "mean of the last 3 evaluations": _recent,
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


def far_cells(results: list[RunResult]) -> pd.DataFrame:
    """Cells of Table 3 that are more than FAR points from the paper's, and the point of evaluation that comes closest to it."""
    rows = []
    for alpha in ALPHAS:
        for method in dict.fromkeys(r.spec.method for r in results):
            own = [r for r in results if (r.spec.method, r.spec.partition["alpha"]) == (method, alpha)]
            paper, ours = printed(method, alpha), np.mean([_last(r) for r in own]) if own else np.nan
            if paper is None or not own or abs(ours - paper["value"]) <= FAR:
                continue
            points = {h["point"] for h in own[0].history if h["round"] == own[0].spec.rounds}
            values = {point: np.mean([_last(r, point=point) for r in own]) for point in sorted(points)}
            nearest = min(values, key=lambda point: abs(values[point] - paper["value"]))
            known = ", ".join(f"{point} {value:.2f}" for point, value in values.items())
            rows.append((alpha, method, paper["value"], ours, ours - paper["value"], known, nearest))
    return pd.DataFrame(rows, columns=["alpha", "method", "paper", "ours", "difference", "by point", "nearest point"])


# claims --------------------------------------------------------------------------------------------------------------


def _spread(tables) -> float:
    """The larger of the mean absolute effects of another seed and of another partition on pFedSim, in points."""
    rows = only(tables["tidy"], code="spread", method="pfedsim")
    return float(rows.groupby("choice")["effect"].apply(lambda e: e.abs().mean()).max())


def _mean_effects(tables) -> pd.Series:
    rows = only(tables["tidy"], method="pfedsim")
    return rows[~rows["code"].isin(["", "spread"])].groupby("choice", sort=False)["effect"].mean()


def check_every_rule(tables) -> Verdict:
    found, lacks = tables["leads"], without(tables["evaluation"], METHODS)
    if lacks:
        return Verdict(NOT_TESTED, lacks)
    lost = found[found["place"] > 1]
    listed = "; ".join(f"{r.rule}, Dir({r.alpha:g}): {r['best other']} by {-r.lead:.1f}" for _, r in lost.iterrows())
    return verdict(
        lost.empty, f"first in {len(found) - len(lost)} of {len(found)}" + (f"; before it {listed}" if listed else "")
    )


def needing_choices(check):
    """A check that is made only where every choice was tried with pFedSim."""

    def checked(tables) -> Verdict:
        tried = set(only(tables["tidy"], method="pfedsim")["choice"])
        missing = [choice.name for choice in CHOICES if choice.name not in tried]
        return Verdict(NOT_TESTED, f"without {', '.join(missing)}") if missing else check(tables)

    return checked


@needing_choices
def check_choices_matter(tables) -> Verdict:
    moved, spread = _mean_effects(tables), _spread(tables)
    largest = moved.abs().idxmax()
    above = (moved.abs() > spread).sum()
    return verdict(
        above > 0,
        f"largest: {largest} {moved[largest]:+.2f}; {above} of {len(moved)} move it by more than another seed or partition does ({spread:.2f})",
    )


@needing_choices
def check_transform_matters_most(tables) -> Verdict:
    moved = _mean_effects(tables).abs().sort_values(ascending=False)
    first = only(tables["tidy"], choice=moved.index[0])["code"].iloc[0]
    return verdict(
        first in ("S1", "S1, S2", "S2"),
        "largest effects: " + ", ".join(f"{n} {v:.2f}" for n, v in moved.head(3).items()),
    )


@needing_choices
def check_rule_outweighs_choices(tables) -> Verdict:
    if tables["leads"].empty:
        return Verdict(NOT_TESTED, without(tables["evaluation"], METHODS))
    largest = _mean_effects(tables).abs().max()
    by_alpha = tables["leads"].groupby("alpha")["lead"].agg(np.ptp)
    listed = ", ".join(f"{span:.2f} at Dir({alpha:g})" for alpha, span in by_alpha.items())
    return verdict(
        bool(by_alpha.max() > largest), f"the lead ranges over {listed}; largest effect of a choice {largest:.2f}"
    )


def answer(tables) -> str:
    """Does pFedSim outperform the baselines, and which unpublished choice matters most? In sentences, from the numbers."""
    return " ".join([*_places(tables["leads"]), _most_moving(tables)])


def _places(found: pd.DataFrame) -> list[str]:
    sentences = []
    for _, row in found[found["rule"] == next(iter(RULES))].iterrows():
        gap = f"{abs(row['lead']):.1f} points {'before' if row['lead'] > 0 else 'behind'} {row['best other']}"
        sentences.append(
            f"At Dir({row['alpha']:g}) pFedSim is number {row['place']} with {row['pfedsim']:.1f} %, {gap}."
        )
    if len(found):
        first, ways = (found["place"] == 1).sum(), found["rule"].nunique()
        sentences.append(f"It is first in {first} of {len(found)} cases, if the same runs are read off in {ways} ways.")
    return sentences


def _most_moving(tables) -> str:
    moved, spread = _mean_effects(tables), _spread(tables)
    if moved.empty:
        return "No choice was tried yet."
    ranked = moved.reindex(moved.abs().sort_values(ascending=False).index)
    listed = ", ".join(f"{name} ({value:+.2f})" for name, value in ranked.head(3).items())
    chance = (
        f"another seed or partition moves it by {spread:.2f}" if spread == spread else "chance was not measured yet"
    )
    tried = f"Of {len(moved)} choices" + (f" tried so far (of {OPEN})" if len(moved) < OPEN else "")
    return f"{tried} these move its accuracy most: {listed}; {chance}."


NOTES = Item(
    name="pfedsim/notes",
    title="pFedSim: replication notes",
    claim="What the paper leaves open is decided in several ways, and each decision's effect is measured.",
    smaller=SMALLER,
    settings={
        "smoke": {**SETTINGS["smoke"], "methods": METHODS, "seeds": 1, "alpha": 0.1},
        "quick": {**SETTINGS["quick"], "methods": METHODS, "seeds": 2, "alpha": 0.1},
        "paper": {**SETTINGS["paper"], "methods": METHODS, "seeds": 1, "alpha": 0.1},
    },
    minutes={"smoke": 1, "quick": 2, "paper": 60},
    partial=True,
    specs=notes_specs,
    analyse=analyse_notes,
    shown={
        "leads": "pFedSim's place and lead over the best other method, however the accuracy is read off",
        "cells": f"Cells of Table 3 more than {FAR:g} points from the paper's, at every point of evaluation",
    },
    figure=lambda tables: figures.choices(tables["tidy"], tables["leads"]),
    answer=answer,
    claims=(
        Claim("(Ours) pFedSim is first whatever way the accuracy is read off the same runs.", check_every_rule),
        Claim("(Ours) A choice that the paper leaves open moves pFedSim more than chance does.", check_choices_matter),
        Claim("(Ours) What matters most is how similarity becomes a weight (S1, S2).", check_transform_matters_most),
        Claim(
            "(Ours) How the accuracy is read off moves pFedSim's lead more than any choice moves its accuracy.",
            check_rule_outweighs_choices,
        ),
    ),
)

ITEMS = (NOTES,)
