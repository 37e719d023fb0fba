"""Figure 7: the relevance of others that FedFomo and pFedSV learn, beside the labels that clients really share."""

import numpy as np
import pandas as pd

from fedlib import figures
from fedlib.analysis.relevance import game_costs, judged, pairs, searched
from fedlib.analysis.tables import mean_std, only, rows_of
from fedlib.claims import Claim, Verdict, beyond, close, every_row, ours, over_seeds, under, verdict
from fedlib.engine.result import RunResult
from fedlib.experiments.item import Found, Item, Runs, Tables, per_profile, runs_of
from fedlib.experiments.pfedsv.task import CLIENTS, ON_MNIST, SMALLER_ON_MNIST, ring

K = 5  # downloads at most, for both methods
FEDFOMO, PFEDSV, EXACT = "FedFomo", "pFedSV", "pFedSV, exact values"
LEARNERS = {
    FEDFOMO: {"method": "fedfomo", "M": K},
    PFEDSV: {"method": "pfedsv", "k": K},
    EXACT: {"method": "pfedsv", "k": K, "sv": "exact"},
}
KEPT = ("relevance", "downloads")
PAPER = {FEDFOMO: "not the ground truth", PFEDSV: "the ground truth", EXACT: "not shown"}
PAIRS = CLIENTS * (CLIENTS - 1)


def runs(s: dict) -> Runs:
    """The runs by learner and seed; relevance and downloads are kept after every round."""
    return runs_of(ring(s, measures=KEPT), LEARNERS, s["seeds"])


def labels(r: RunResult) -> pd.DataFrame:
    client, label = np.nonzero(r.arrays["counts"])
    return pd.DataFrame({"client": client, "label": label})


def analyse(s: dict, found: Found) -> Tables:
    """tidy: one row a pair of clients; runs: one a run; search: one a client; cost: of a game, see there."""
    key = ("learner", "seed")
    by_run, search = rows_of(found, key, judged), rows_of(found, key, lambda r: searched(r, K))
    owners = rows_of(found, key, labels).drop(columns="learner").drop_duplicates()
    tables = {"tidy": rows_of(found, key, pairs), "runs": by_run, "labels": owners, "search": search}
    return {**tables, "cost": game_costs(), "compare": compared(by_run, search)}


def compared(by_run: pd.DataFrame, search: pd.DataFrame) -> pd.DataFrame:
    lines = []
    for name, said in PAPER.items():
        own, clients = only(by_run, learner=name), only(search, learner=name)
        never, last = clients["found"].isna().sum(), f"{clients['found'].max():.0f}"
        when = f"never for {never} of {len(clients)} clients" if never else last
        lines.append({
            "learned by": name,
            "paper (no numbers reported)": said,
            "ours: AUC": mean_std(own["auc"]),
            f"wrong signs, of {PAIRS} pairs": mean_std(own["wrong"]),
            "of these, relevant clients missed": mean_std(own["missed"]),
            "round by which all relevant clients were downloaded once": when,
            "only relevant clients downloaded at the end": f"{clients['only_relevant'].mean():.0%} of the clients",
            "accuracy at the end, %": mean_std(100 * own["client_mean"]),
        })  # fmt: skip
    return pd.DataFrame(lines)


# claims --------------------------------------------------------------------------------------------------------------


def of_runs(value: str, judge):
    return over_seeds("runs", value, "learner", judge)


def nothing_wrong(tables) -> Verdict:
    own = only(tables["runs"], learner=PFEDSV)
    missed = f"{own['missed'].sum()} of them relevant clients that were discarded"
    evidence = f"{own['wrong'].sum()} of {len(own) * PAIRS} signs are wrong ({missed})"
    right = own["wrong"] == 0
    return verdict(right.all(), f"{evidence}; all signs are right in {right.sum()} of {len(own)} seeds")


def one_sided(runs: pd.DataFrame) -> str:
    return f"pairs that only one of the two clients rates as relevant: {mean_std(runs['one_sided'])} per seed"


def answer(tables) -> str:
    """How well relevance finds those who share a label, in a sentence from the numbers."""
    m = tables["runs"].groupby("learner")[["auc", "wrong"]].mean()
    auc, wrong = m["auc"], m["wrong"]
    return (
        f"Clients that share a label are identified with an AUC of {auc[PFEDSV]:.2f} by pFedSV's Shapley values and of "
        f"{auc[FEDFOMO]:.2f} by FedFomo's losses (chance: 0.5); of {PAIRS} pairs {wrong[PFEDSV]:.1f} and "
        f"{wrong[FEDFOMO]:.1f} have the wrong sign."
    )


ITEM = Item(
    title="pFedSV Figure 7: the relevance that clients learn",
    claim="pFedSV's clients identify exactly the clients that share a label with them; FedFomo's do not.",
    smaller="digits (16x16; paper: MNIST); LeNet-5 (paper: McMahan's CNN); 10 rounds of 3 epochs (paper: 20 of 5); 72 "
    "training and 18 validation images per client (paper: 4,480 and 1,120)",
    smaller_reduced=SMALLER_ON_MNIST,
    settings=per_profile(ON_MNIST, seeds=[1, 3, 5], reduced={"seeds": 3}),
    minutes={"smoke": 0.1, "quick": 0.5, "reduced": 45, "paper": 500},
    runs=runs,
    analyse=analyse,
    figure=lambda tables: figures.relevance_matrices(tables["tidy"], tables["labels"]),
    answer=answer,
    claims=(
        Claim("pFedSV's relevance is positive for the clients that share a label, and for no other client.",
              nothing_wrong),
        Claim("FedFomo's relevance has wrong signs.", of_runs("wrong", beyond(FEDFOMO, 0))),
        Claim("The relevance that pFedSV learns is symmetric.",
              every_row("runs", lambda t: t["one_sided"] == 0, "seeds", one_sided, learner=PFEDSV)),
        Claim("Every client has downloaded all relevant others within ⌈(n-m-1)/k⌉ + 1 rounds (n clients, m relevant, k "
              "downloads, m < k).",
              every_row("search", lambda t: ~t["late"], "clients", lambda t: f"at most {t['bound'].max()} rounds",
                        learner=PFEDSV)),
        ours("In the end every client downloads all relevant others, and no other client.",
             every_row("search", lambda t: t["only_relevant"], "clients", learner=PFEDSV)),
        ours("pFedSV separates relevant from irrelevant clients better than FedFomo, by AUC.",
             of_runs("auc", under([FEDFOMO], [PFEDSV], form=".2f"))),
        ours("Values estimated from permutations find relevant others as well as exact ones (AUC within 0.02).",
             of_runs("auc", close((PFEDSV, EXACT), 0.02, ".3f"))),
    ),
)  # fmt: skip
