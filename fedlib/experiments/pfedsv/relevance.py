"""Figure 7: the relevance of others that FedFomo and pFedSV learn, beside the labels that clients really share."""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch

from fedlib import figures
from fedlib.algorithms.parts import shapley
from fedlib.algorithms.parts.peers import ZERO
from fedlib.base.draws import rng
from fedlib.engine.result import RunResult
from fedlib.experiments.items import Claim, Item, Verdict, mean_std, only, verdict
from fedlib.experiments.pfedsv.ring import CLIENTS, MNIST, SETTINGS, mean_auc, others, ring_spec, share_a_label
from fedlib.spec import RunSpec

K = 5  # downloads at most, for both methods
LEARNERS = {
    "FedFomo": ("fedfomo", {"M": K}),
    "pFedSV": ("pfedsv", {"k": K}),
    "pFedSV, exact values": ("pfedsv", {"k": K, "sv": "exact"}),
}


def relevance_specs(s: dict) -> list[RunSpec]:
    return [learner_spec(s, name, seed) for seed in range(s["seeds"]) for name in LEARNERS]


def learner_spec(s: dict, name: str, seed: int) -> RunSpec:
    """One run whose relevance and downloads are kept after every round."""
    method, options = LEARNERS[name]
    return ring_spec(s, method, seed, hyper=options, measures=("relevance", "downloads"))


def learner_of(spec: RunSpec) -> str:
    """Its name in LEARNERS."""
    if spec.method == "fedfomo":
        return "FedFomo"
    return "pFedSV, exact values" if spec.hyper["sv"] == "exact" else "pFedSV"


def bound(n: int, m: int, k: int) -> int:
    """Rounds after which a client has downloaded its m relevant others among n clients, k models a round (the paper's §4.2)."""
    ceil = lambda a, b: -(-a // b)  # noqa: E731
    return ceil(n - m - 1, k) + (1 if m < k else ceil(m, k))


def first_complete(downloads: np.ndarray, relevant: np.ndarray) -> np.ndarray:
    """Round (from 1) by whose end each client has downloaded all of its relevant others, float [N]; NaN if never. downloads: bool [T, N, N]."""
    complete = (np.logical_or.accumulate(downloads, 0) | ~relevant).all(-1)  # [T, N]
    return np.where(complete.any(0), complete.argmax(0) + 1, np.nan)


def analyse_relevance(s: dict, results: list[RunResult]) -> dict[str, pd.DataFrame]:
    """tidy: one row an ordered pair of clients and run; runs: one row a run; search: one row a client and run."""
    pairs, runs, search, labels = [], [], [], []
    for r in results:
        name, relevant = learner_of(r.spec), share_a_label(r.arrays["counts"])
        score, last = r.arrays["relevance"][-1], r.arrays["downloads"][-1]
        for i, j in zip(*np.nonzero(~np.eye(len(score), dtype=bool))):
            pairs.append((name, r.spec.seed, i, j, bool(relevant[i, j]), score[i, j]))
        found = first_complete(r.arrays["downloads"], relevant)
        for i in range(len(score)):
            limit = bound(len(score), int(relevant[i].sum()), K)
            search.append((name, r.spec.seed, i, found[i], limit, bool((last[i] == relevant[i]).all())))
        labels += [(r.spec.seed, i, c) for i, c in zip(*np.nonzero(r.arrays["counts"]))]
        runs.append((name, r.spec.seed, *judged(score, relevant), r.final("client_mean"), r.seconds["train"]))
    columns = ["learner", "seed", "auc", "wrong", "missed", "one_sided", "client_mean", "seconds"]
    return {
        "tidy": pd.DataFrame(pairs, columns=["learner", "seed", "client", "other", "relevant", "relevance"]),
        "runs": (by_run := pd.DataFrame(runs, columns=columns)),
        "search": (
            rounds := pd.DataFrame(search, columns=["learner", "seed", "client", "found", "bound", "only_relevant"])
        ),
        "labels": pd.DataFrame(labels, columns=["seed", "client", "label"]).drop_duplicates(),
        "cost": game_costs(),
        "compare": compared(by_run, rounds),
    }


def judged(score: np.ndarray, relevant: np.ndarray) -> tuple[float, int, int, int]:
    """AUC; ordered pairs whose sign is wrong; of these, relevant ones without a positive score; pairs positive on one side only."""
    positive = score > ZERO
    wrong = others(positive != relevant)
    one_sided = np.triu(positive != positive.T, 1)
    return mean_auc(score, relevant), int(wrong.sum()), int(others(relevant & ~positive).sum()), int(one_sided.sum())


def compared(runs: pd.DataFrame, search: pd.DataFrame) -> pd.DataFrame:
    said = {"FedFomo": "not the ground truth", "pFedSV": "the ground truth", "pFedSV, exact values": "not shown"}
    rows = []
    for name in LEARNERS:
        own, found = only(runs, learner=name), only(search, learner=name)
        rows.append(
            {
                "learned by": name,
                "paper (no numbers printed)": said[name],
                "ours: AUC": mean_std(own["auc"]),
                f"wrong signs, of {CLIENTS * (CLIENTS - 1)} pairs": mean_std(own["wrong"]),
                "of these, relevant ones missed": mean_std(own["missed"]),
                "all relevant ones once downloaded by round": f"{found['found'].max():.0f}"
                if found["found"].notna().all()
                else f"never in {int(found['found'].isna().sum())} of {len(found)} clients",
                "only relevant ones downloaded at the end": f"{found['only_relevant'].mean():.0%} of the clients",
                "accuracy at the end, %": mean_std(100 * own["client_mean"]),
            }
        )
    return pd.DataFrame(rows)


def game_costs(most: int = 10) -> pd.DataFrame:
    """Coalitions that a game of so many players asks for: exact values, and an estimate from 3 permutations a player; counted."""
    rows = []
    for players in range(2, most + 1):
        asked = {}
        for way, samples in (("exact", None), ("estimate", 3 * players)):
            game = Counted()
            shapley.shapley(game, players, samples=samples, generator=rng(0, "cost", players))
            asked[way] = game.asked
        rows.append({"players": players, "permutations": 3 * players, **asked})
    return pd.DataFrame(rows)


class Counted:
    """A game that counts how many coalitions with members it was asked for; a coalition is worth its size."""

    def __init__(self):
        self.asked = 0

    def __call__(self, members: torch.Tensor) -> torch.Tensor:
        self.asked += int(members.any(1).sum())
        return members.sum(1).double()


# claims --------------------------------------------------------------------------------------------------------------


def check_exact_ground_truth(tables) -> Verdict:
    own = only(tables["runs"], learner="pFedSV")
    pairs = len(own) * CLIENTS * (CLIENTS - 1)
    evidence = f"{int(own['wrong'].sum())} of {pairs} signs are wrong ({int(own['missed'].sum())} of them relevant clients that were given up); none in {int((own['wrong'] == 0).sum())} of {len(own)} seeds"
    return verdict(bool((own["wrong"] == 0).all()), evidence)


def check_fedfomo_does_not(tables) -> Verdict:
    own = only(tables["runs"], learner="FedFomo")
    return verdict(
        bool((own["wrong"] > 0).all()),
        f"wrong signs in {int((own['wrong'] > 0).sum())} of {len(own)} seeds, {mean_std(own['wrong'])} a seed; AUC {mean_std(own['auc'])}",
    )


def check_symmetric(tables) -> Verdict:
    own = only(tables["runs"], learner="pFedSV")
    return verdict(
        bool((own["one_sided"] == 0).all()),
        f"pairs that only one side holds to be relevant: {mean_std(own['one_sided'])} a seed",
    )


def check_found_in_time(tables) -> Verdict:
    own = only(tables["search"], learner="pFedSV")
    late = ~(own["found"] <= own["bound"])
    return verdict(
        not late.any(),
        f"downloaded at least once within {own['bound'].max()} rounds: all relevant others of {int((~late).sum())} of {len(own)} clients",
    )


def check_search_ends(tables) -> Verdict:
    own = only(tables["search"], learner="pFedSV")["only_relevant"]
    return verdict(
        bool(own.all()),
        f"{int(own.sum())} of {len(own)} clients end with downloads of all relevant others and nobody else",
    )


def check_better_auc(tables) -> Verdict:
    auc = tables["runs"].pivot(index="seed", columns="learner", values="auc")
    ahead = auc["pFedSV"] > auc["FedFomo"]
    return verdict(
        bool(ahead.all()),
        f"pFedSV {mean_std(auc['pFedSV'])}, FedFomo {mean_std(auc['FedFomo'])}; higher in {int(ahead.sum())} of {len(ahead)} seeds",
    )


def check_estimate_is_enough(tables) -> Verdict:
    runs, cost = tables["runs"].set_index(["learner", "seed"]), only(tables["cost"], players=K + 1).iloc[0]
    exact, estimate = runs.loc["pFedSV, exact values"], runs.loc["pFedSV"]
    evidence = f"wrong signs a seed: exact {mean_std(exact['wrong'])}, estimated {mean_std(estimate['wrong'])}; AUC {mean_std(exact['auc'])} and {mean_std(estimate['auc'])}; a game of {K + 1} asks for {cost['exact']} and {cost['estimate']} coalitions"
    return verdict(bool(abs(exact["auc"].mean() - estimate["auc"].mean()) < 0.02), evidence)


def answer(tables) -> str:
    """How well relevance finds those who share a label, in a sentence from the numbers."""
    auc = tables["runs"].groupby("learner")["auc"].mean()
    wrong = tables["runs"].groupby("learner")["wrong"].mean()
    pairs = CLIENTS * (CLIENTS - 1)
    return (
        f"Who shares a label is found with an AUC of {auc['pFedSV']:.2f} by pFedSV's Shapley values and of {auc['FedFomo']:.2f} by FedFomo's"
        f" losses (guessing: 0.5); of {pairs} signs {wrong['pFedSV']:.1f} and {wrong['FedFomo']:.1f} are wrong."
    )


FIG7 = Item(
    name="pfedsv/fig7_relevance",
    title="pFedSV Figure 7: the relevance that clients learn",
    claim="pFedSV's clients find out exactly who shares a label with them; FedFomo's do not.",
    smaller="digits (16x16) and LeNet-5 instead of MNIST and a larger network; 10 rounds of 3 epochs instead of 20 of 5; 72 training and 18 validation images per client instead of 4,480 and 1,120",
    settings={
        "smoke": {**SETTINGS["smoke"], "seeds": 1},
        "quick": {**SETTINGS["quick"], "seeds": 3},
        "paper": {**MNIST, "seeds": 5},
    },
    minutes={"smoke": 0.1, "quick": 0.5, "paper": 500},
    specs=relevance_specs,
    analyse=analyse_relevance,
    figure=lambda tables: figures.relevance_matrices(tables["tidy"], tables["labels"]),
    answer=answer,
    claims=(
        Claim(
            "pFedSV's relevance is positive for the clients that share a label, and for nobody else.",
            check_exact_ground_truth,
        ),
        Claim("FedFomo's relevance is not: it has wrong signs.", check_fedfomo_does_not),
        Claim("Who is relevant to whom is symmetric in what pFedSV learns.", check_symmetric),
        Claim(
            "Every client has downloaded all relevant others within ⌈(n-m-1)/k⌉ + 1 rounds (m < k).",
            check_found_in_time,
        ),
        Claim("(Ours) In the end every client downloads all relevant others and nobody else.", check_search_ends),
        Claim("(Ours) pFedSV tells relevant from irrelevant others better than FedFomo, by AUC.", check_better_auc),
        Claim(
            "(Ours) Values estimated from permutations find relevant others as well as exact ones (AUC within 0.02).",
            check_estimate_is_enough,
        ),
    ),
)

ITEMS = (FIG7,)
