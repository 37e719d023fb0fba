"""Figure 1: a run of FedSimSup taken apart round by round, and what waiting for a turn does at the paper's settings."""

import pandas as pd

from fedlib import figures
from fedlib.analysis.participation import (
    by_wait,
    own_shares,
    rounds_of,
    sources,
    turns_without_training,
    walk,
    weights_of,
)
from fedlib.analysis.tables import span
from fedlib.claims import Verdict, every_row, fact, implementation, ours
from fedlib.experiments.fedsimsup.task import of_column
from fedlib.experiments.item import Found, Item, Runs, Tables, per_profile
from fedlib.spec import RunSpec

PAPER = {"dataset": "cifar10", "num_clients": 100, "join_ratio": 0.1}  # who waits and learns from whom: no training
DIR = {f"Dir({alpha:g})": {"scheme": "dirichlet", "alpha": alpha, "min_size": 40} for alpha in (0.1, 0.5)}
MEASURES = ("traffic", "mixtures", "supervisors")
EXACT = 1e-5  # float32: an aggregate of models


def runs(s: dict) -> Runs:
    column = of_column(s, {"dataset": "cifar10", "clients": "100", "alpha": 0.1})
    return {"watched": RunSpec.of_task(column, "fedsimsup", measures=MEASURES)}


def analyse(s: dict, found: Found) -> Tables:
    """tidy: `walk`; own: `own_shares` of the run; weights: `weights_of` its middle round. At the paper's settings,
    without training: _turns, 1,000 rounds `at_their_turn`; waits: the same `by_wait`; sources: see there."""
    r = found["watched"]
    tidy, turns = walk(r), turns_without_training(**PAPER, rounds=1000, **DIR["Dir(0.1)"])
    drawn = [sources(**PAPER, rounds=50, draws=s["draws"], **how).assign(partition=name) for name, how in DIR.items()]
    return {
        "tidy": tidy, "compare": compare(tidy, r.arrays["tests"].shape[1]), "own": own_shares(rounds_of(r)),
        "weights": weights_of(r, len(tidy) // 2 + 1), "sources": pd.concat(drawn, ignore_index=True),
        "waits": by_wait(turns), "_turns": turns,
    }  # fmt: skip


def compare(tidy: pd.DataFrame, classes: int) -> pd.DataFrame:
    """Every step of the figure: paper | ours."""
    worst, last = tidy.max(), tidy.iloc[-1]
    down, up = (f"{last[way]:,.0f} parameters = {last[way] / last['model']:g} model" for way in ("down", "up"))
    changed = (
        f"{last['trained']:.0f} supervisors changed in the last round, {worst['disturbed']:.0f} without participation"
    )
    lines = [
        ("(0) label proportions", "from every client, once", f"{classes} numbers from every client, before round 1"),
        ("(1) distribute", "its personalised model to each participant", f"{down}; nothing to the others"),
        ("(2) supervisor, then model", "2 epochs, then 3", changed),
        ("(3) upload", "the personalised model", up),
        (
            "(5) non-participating clients",
            "aggregated by label similarity (Eqs. 8, 9)",
            f"weights read off the models: as by Eqs. 8 and 9, to {worst['weight_error']:.0e}",
        ),
    ]
    return pd.DataFrame(lines, columns=["step of Figure 1", "paper", "ours"])


def little_is_left(tables) -> Verdict:
    own, idle = tables["_turns"]["own"], tables["_turns"]["idle"]
    found = f"median {own.median():.1%}; a tenth or more in {(own >= 0.1).mean():.0%} of {len(own):,} participations"
    return fact(own.median() < 0.1, f"{found}; rounds in between: mean {idle.mean():.1f}, at most {idle.max()}")


def mostly_alike(tables) -> Verdict:
    shares = 100 * tables["sources"].query("partition == 'Dir(0.1)'")[["label cosines", "equal weights"]]
    means = ", ".join(f"with {name} {span(own)} %" for name, own in shares.items())
    return fact((shares["label cosines"] > 50).all(), f"{means}; mean and range of {len(shares)} partitions")


ITEM = Item(
    title="FedSimSup Figure 1: the framework, round by round",
    claim="Participants train together with supervisors. The models of non-participating clients are aggregated with "
          "theirs by label similarity.",
    smaller="digits (16x16; paper: CIFAR-10); 6 of 20 clients in a round (paper: 10 of 100), 15 rounds (paper: "
            "1,000), but rounds between participations at the paper's rate",
    smaller_paper="20 rounds (paper: 1,000), enough to see each step",
    settings=per_profile(
        dataset=["digits", "digits", "cifar10"], many_clients=[8, 20, 100], join_ratio=[0.5, 0.3, 0.1],
        rounds=[3, 15, 20], eval_every=[3, 5, 10], lr=0.1, test_fraction=[0.5, 0.5, 0.2], min_size=[8, 10, 40],
        draws=[2, 5, 20],
    ),
    minutes={"smoke": 0.1, "quick": 0.2, "paper": 3},
    runs=runs,
    analyse=analyse,
    figure=lambda tables: figures.framework(tables["own"], tables["weights"], tables["waits"]),
    claims=(
        implementation("A participant downloads one personalised model and uploads one; its supervisor is not sent.",
                       every_row("tidy", lambda t: (t["down"] == t["model"]) & (t["up"] == t["model"]), "rounds",
                                 lambda t: f"{t['model'].max():,} parameters, a supervisor {t['supervisor'].max():,}")),
        implementation("A supervisor changes in the rounds in which its client takes part, and in no other.",
                       every_row("tidy", lambda t: (t["trained"] == t["participants"]) & (t["disturbed"] == 0),
                                 "rounds", lambda t: f"{t['participants'].max()} clients take part")),
        implementation("The aggregation weights, recovered from the models without a formula, are those of Eqs. 8 "
                       "and 9.",
                       every_row("tidy", lambda t: t["weight_error"] < EXACT, "rounds",
                                 lambda t: f"largest difference {t['weight_error'].max():.1g}")),
        ours("At the paper's settings, most clients that participate again find less than a tenth of their own model "
             "in what they receive.",
             little_is_left),
        ours("At the paper's settings and Dir(0.1) most of what is aggregated into a non-participating client's model "
             "is from clients whose most frequent label is the same.",
             mostly_alike),
    ),
)  # fmt: skip
