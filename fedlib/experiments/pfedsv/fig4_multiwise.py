"""Figure 4: mixing by Shapley values, or by comparing one model at a time; with whom is known."""

import pandas as pd

from fedlib import figures
from fedlib.analysis.tables import mean_std, only, rows_of
from fedlib.claims import Claim, ours, over_seeds, under
from fedlib.experiments.item import Found, Item, Runs, Tables, per_profile, runs_of
from fedlib.experiments.pfedsv.task import RING, RING_REDUCED, ring

KNOWN = 2  # others with a common label, on the ring
MULTIWISE, CHANCE, PLAIN, NOBODY = "multiwise (Shapley)", "multiwise, v(∅) = chance", "plain mean", "Local"
# What each arm is: method, its options, and the rule in words. The second is a reading of pFedSV's worth of nobody.
ARMS = {
    MULTIWISE: ("pfedsv_known", {"rule": "multiwise"}, "Shapley value in the game of all / distance"),
    CHANCE: ("pfedsv_known", {"rule": "multiwise", "v_empty": "chance"},
             "the same, with v(∅) = accuracy of the most frequent label instead of 0"),
    "pairwise: gain": ("pfedsv_known", {"rule": "gain"}, "v({i,j}) - v({i}), own v({i}) / distance"),
    "pairwise: alone": ("pfedsv_known", {"rule": "alone"}, "v({j}) / distance"),
    "pairwise: FedFomo": ("pfedsv_known", {"rule": "fomo", "self_distance": "prev"}, "fall of the loss / distance"),
    PLAIN: ("pfedsv_known", {"rule": "equal", "self_distance": "none"}, "all equal"),
    NOBODY: ("local", {}, "own model only"),
}  # fmt: skip
PAIRWISE = tuple(arm for arm in ARMS if arm.startswith("pairwise"))
PAPER = {MULTIWISE: "higher", PAIRWISE[0]: "lower; rule unstated"}


def runs(s: dict) -> Runs:
    """The runs by arm and seed."""
    known = {arm: options | {"k": KNOWN} if options else {} for arm, (_, options, _) in ARMS.items()}
    rows = {arm: {"method": method, **known[arm]} for arm, (method, *_) in ARMS.items()}
    return runs_of(ring(s, eval_every=min(3, s["rounds"])), rows, s["seeds"])


def analyse(s: dict, found: Found) -> Tables:
    """tidy: mean accuracy over clients at every evaluation, mixed (agg) and after the training that follows (post).

    _own: the rows that count, the mixed model, for Local the own one; with `last` for the last round.
    """
    columns = ["round", "point", "client_mean"]
    tidy = rows_of(found, ("arm", "seed"), lambda r: pd.DataFrame(r.history)[columns])
    own = tidy[(tidy["point"] == "agg") | (tidy["arm"] == NOBODY)].assign(last=lambda t: t["round"] == s["rounds"])
    parts = (only(own, last=True), own, only(tidy, round=s["rounds"], point="post"))
    ends, means, trained = (100 * rows.groupby(["seed", "arm"])["client_mean"].mean().unstack() for rows in parts)
    compare = [
        {
            "weights": arm,
            "rule": rule,
            "paper (no numbers reported)": PAPER.get(arm, ""),
            "ours: last round, %": mean_std(ends[arm]),
            "difference from multiwise": "" if arm == MULTIWISE else mean_std(ends[arm] - ends[MULTIWISE]),
            "mean of all rounds": mean_std(means[arm]),
            "last round, after local training": mean_std(trained[arm]),
        }
        for arm, (*_, rule) in ARMS.items()
    ]
    return {"tidy": tidy, "_own": own, "compare": pd.DataFrame(compare)}


def beats(arm: str, *others: str, **where):
    """This arm is better than each of the others, on average over the rounds, or in the `last` one."""
    return over_seeds("_own", "client_mean", "arm", under(others, [arm], form=".2f"), 100, **where)


ITEM = Item(
    title="pFedSV Figure 4: multiwise against pairwise collaboration",
    claim="With the relevant clients known, weights from the whole coalition beat weights from comparing one model at "
    "a time.",
    smaller="digits (16x16; paper: CIFAR-10); LeNet-5 (paper: McMahan's CNN); 6 rounds of 3 epochs (paper: 20 of 5); 3 "
    "seeds; 72 training and 18 validation images per client (paper: 3,840 and 960)",
    smaller_reduced=RING_REDUCED,
    settings=per_profile(
        RING, rounds=[None, 6, None], seeds=[1, 3, 5], reduced={"seeds": 3},
    ),
    minutes={"smoke": 0.1, "quick": 0.5, "reduced": 90, "paper": 900},
    runs=runs,
    analyse=analyse,
    figure=lambda tables: figures.collaboration(tables["_own"], list(ARMS)),
    claims=(
        Claim("In the last round, Shapley (multiwise) weights beat every pairwise rule.",
              beats(MULTIWISE, *PAIRWISE, last=True)),
        ours("On average over the rounds, Shapley weights beat every pairwise rule.", beats(MULTIWISE, *PAIRWISE)),
        ours("On average over the rounds, Shapley weights beat the mean of the same models.", beats(MULTIWISE, PLAIN)),
        ours("On average over the rounds, Shapley weights beat local-only training.", beats(MULTIWISE, NOBODY)),
        ours("Shapley weights improve if v(∅), of no model, is chance accuracy, not 0.", beats(CHANCE, MULTIWISE)),
    ),
)  # fmt: skip
