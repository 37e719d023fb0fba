"""Figure 7: the relevance of others that FedFomo and pFedSV learn, beside the labels that clients really share."""

from __future__ import annotations

import numpy as np
import pandas as pd

from fedlib import figures
from fedlib.algorithms.parts.peers import ZERO
from fedlib.algorithms.parts.shapley import coalitions_asked
from fedlib.analysis.tables import mean_std, only
from fedlib.engine.result import RunResult
from fedlib.experiments.claims import Claim, Verdict, beyond, close, ours, over_seeds, under, verdict
from fedlib.experiments.item import Item
from fedlib.experiments.pfedsv.ring import CLIENTS, MNIST, SETTINGS, mean_auc, others, ring_spec, share_a_label
from fedlib.spec import RunSpec

K = 5  # downloads at most, for both methods
LEARNERS = {
    "FedFomo": ("fedfomo", {"M": K}),
    "pFedSV": ("pfedsv", {"k": K}),
    "pFedSV, exact values": ("pfedsv", {"k": K, "sv": "exact"}),
}
FEDFOMO, PFEDSV, EXACT = LEARNERS
PAPER = {FEDFOMO: "not the ground truth", PFEDSV: "the ground truth", EXACT: "not shown"}
PAIRS = CLIENTS * (CLIENTS - 1)


def runs(s: dict) -> dict[tuple[str, int], RunSpec]:
    """The runs by learner and seed; relevance and downloads are kept after every round."""
    return {
        (name, seed): ring_spec(s, method, seed, hyper=options, measures=("relevance", "downloads"))
        for seed in range(s["seeds"])
        for name, (method, options) in LEARNERS.items()
    }


def bound(n: int, m: int, k: int) -> int:
    """Rounds after which a client has downloaded its m relevant others among n clients, k models a round (the paper's §4.2)."""
    ceil = lambda a, b: -(-a // b)  # noqa: E731
    return ceil(n - m - 1, k) + (1 if m < k else ceil(m, k))


def first_complete(downloads: np.ndarray, relevant: np.ndarray) -> np.ndarray:
    """Round (from 1) by whose end each client has downloaded all of its relevant others, float [N]; NaN if never. downloads: bool [T, N, N]."""
    complete = (np.logical_or.accumulate(downloads, 0) | ~relevant).all(-1)  # [T, N]
    return np.where(complete.any(0), complete.argmax(0) + 1, np.nan)


def analyse(s: dict, results: list[RunResult]) -> dict[str, pd.DataFrame]:
    """tidy: one row an ordered pair of clients and run; runs: one row a run; search: one row a client and run; cost: of a game."""
    found, pairs, lines, search, labels = {r.spec.id: r for r in results}, [], [], [], []
    for (name, seed), spec in runs(s).items():
        r = found[spec.id]
        relevant, score, downloads = share_a_label(r.arrays["counts"]), r.arrays["relevance"][-1], r.arrays["downloads"]
        for i, j in zip(*np.nonzero(~np.eye(len(score), dtype=bool))):
            pairs.append((name, seed, i, j, bool(relevant[i, j]), score[i, j]))
        for i, round in enumerate(first_complete(downloads, relevant)):
            limit = bound(len(score), int(relevant[i].sum()), K)
            search.append((name, seed, i, round, limit, bool((downloads[-1][i] == relevant[i]).all())))
        labels += [(seed, i, c) for i, c in zip(*np.nonzero(r.arrays["counts"]))]
        lines.append((name, seed, *judged(score, relevant), r.final("client_mean"), r.seconds["train"]))
    columns = ["learner", "seed", "auc", "wrong", "missed", "one_sided", "client_mean", "seconds"]
    by_run = pd.DataFrame(lines, columns=columns)
    search = pd.DataFrame(search, columns=["learner", "seed", "client", "found", "bound", "only_relevant"])
    return {
        "tidy": pd.DataFrame(pairs, columns=["learner", "seed", "client", "other", "relevant", "relevance"]),
        "runs": by_run,
        "search": search.assign(late=~(search["found"] <= search["bound"])),
        "labels": pd.DataFrame(labels, columns=["seed", "client", "label"]).drop_duplicates(),
        "cost": game_costs(),
        "compare": compared(by_run, search),
    }


def judged(score: np.ndarray, relevant: np.ndarray) -> tuple[float, int, int, int]:
    """AUC; ordered pairs whose sign is wrong; of these, relevant ones without a positive score; pairs positive on one side only."""
    positive = score > ZERO
    wrong, one_sided = others(positive != relevant), np.triu(positive != positive.T, 1)
    return mean_auc(score, relevant), int(wrong.sum()), int(others(relevant & ~positive).sum()), int(one_sided.sum())


def compared(by_run: pd.DataFrame, search: pd.DataFrame) -> pd.DataFrame:
    lines = []
    for name, said in PAPER.items():
        own, clients = only(by_run, learner=name), only(search, learner=name)
        never = clients["found"].isna()
        lines.append(
            {
                "learned by": name,
                "paper (no numbers printed)": said,
                "ours: AUC": mean_std(own["auc"]),
                f"wrong signs, of {PAIRS} pairs": mean_std(own["wrong"]),
                "of these, relevant ones missed": mean_std(own["missed"]),
                "all relevant ones once downloaded by round": f"never in {never.sum()} of {len(clients)} clients"
                if never.any()
                else f"{clients['found'].max():.0f}",
                "only relevant ones downloaded at the end": f"{clients['only_relevant'].mean():.0%} of the clients",
                "accuracy at the end, %": mean_std(100 * own["client_mean"]),
            }
        )
    return pd.DataFrame(lines)


def game_costs(most: int = 10) -> pd.DataFrame:
    """Coalitions that a game of so many players asks for: exact values, and an estimate from 3 permutations a player; counted."""
    lines = [(p, 3 * p, coalitions_asked(p), coalitions_asked(p, 3 * p)) for p in range(2, most + 1)]
    return pd.DataFrame(lines, columns=["players", "permutations", "exact", "estimate"])


# claims --------------------------------------------------------------------------------------------------------------


def of_runs(value: str, judge):
    return over_seeds("runs", value, "learner", judge)


def nothing_wrong(tables) -> Verdict:
    own = only(tables["runs"], learner=PFEDSV)
    evidence = f"{own['wrong'].sum()} of {len(own) * PAIRS} signs are wrong ({own['missed'].sum()} of them relevant clients that were given up)"
    return verdict((own["wrong"] == 0).all(), f"{evidence}; none in {(own['wrong'] == 0).sum()} of {len(own)} seeds")


def symmetric(tables) -> Verdict:
    own = only(tables["runs"], learner=PFEDSV)["one_sided"]
    return verdict((own == 0).all(), f"pairs that only one side holds to be relevant: {mean_std(own)} a seed")


def found_in_time(tables) -> Verdict:
    own = only(tables["search"], learner=PFEDSV)
    evidence = f"downloaded at least once within {own['bound'].max()} rounds: all relevant others of {(~own['late']).sum()} of {len(own)} clients"
    return verdict(not own["late"].any(), evidence)


def search_ends(tables) -> Verdict:
    own = only(tables["search"], learner=PFEDSV)["only_relevant"]
    return verdict(
        own.all(), f"{own.sum()} of {len(own)} clients end with downloads of all relevant others and nobody else"
    )


def answer(tables) -> str:
    """How well relevance finds those who share a label, in a sentence from the numbers."""
    m = tables["runs"].groupby("learner")[["auc", "wrong"]].mean()
    return (
        f"Who shares a label is found with an AUC of {m['auc'][PFEDSV]:.2f} by pFedSV's Shapley values and of {m['auc'][FEDFOMO]:.2f} by FedFomo's"
        f" losses (guessing: 0.5); of {PAIRS} signs {m['wrong'][PFEDSV]:.1f} and {m['wrong'][FEDFOMO]:.1f} are wrong."
    )


ITEM = Item(
    title="pFedSV Figure 7: the relevance that clients learn",
    claim="pFedSV's clients find out exactly who shares a label with them; FedFomo's do not.",
    smaller="digits (16x16) and LeNet-5 instead of MNIST and a larger network; 10 rounds of 3 epochs instead of 20 of 5; 72 training and 18 validation images per client instead of 4,480 and 1,120",
    settings={
        "smoke": {**SETTINGS["smoke"], "seeds": 1},
        "quick": {**SETTINGS["quick"], "seeds": 3},
        "paper": {**MNIST, "seeds": 5},
    },
    minutes={"smoke": 0.1, "quick": 0.5, "paper": 500},
    specs=lambda s: list(runs(s).values()),
    analyse=analyse,
    figure=lambda tables: figures.relevance_matrices(tables["tidy"], tables["labels"]),
    answer=answer,
    claims=(
        Claim("pFedSV's relevance is positive for the clients that share a label, and for nobody else.", nothing_wrong),
        Claim("FedFomo's relevance is not: it has wrong signs.", of_runs("wrong", beyond(FEDFOMO, 0))),
        Claim("Who is relevant to whom is symmetric in what pFedSV learns.", symmetric),
        Claim("Every client has downloaded all relevant others within ⌈(n-m-1)/k⌉ + 1 rounds (m < k).", found_in_time),
        ours("In the end every client downloads all relevant others and nobody else.", search_ends),
        ours(
            "pFedSV tells relevant from irrelevant others better than FedFomo, by AUC.",
            of_runs("auc", under([FEDFOMO], [PFEDSV], form=".2f")),
        ),
        ours(
            "Values estimated from permutations find relevant others as well as exact ones (AUC within 0.02).",
            of_runs("auc", close((PFEDSV, EXACT), 0.02, ".3f")),
        ),
    ),
)
