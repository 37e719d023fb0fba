"""Figure 4: mixing by Shapley values of the whole coalition, or by comparing one model at a time; with whom is known."""

from __future__ import annotations

import pandas as pd

from fedlib import figures
from fedlib.engine.result import RunResult
from fedlib.experiments.items import Claim, Item, Verdict, mean_std, only, verdict
from fedlib.experiments.pfedsv.ring import SETTINGS, ring_spec
from fedlib.spec import RunSpec

KNOWN = 2  # others with a common label, on the ring
# What each arm is: method, its options. The first is pFedSV's, the second a reading of its worth of nobody.
ARMS = {
    "multiwise (Shapley)": ("pfedsv_known", {"rule": "multiwise"}),
    "multiwise, v(∅) = chance": ("pfedsv_known", {"rule": "multiwise", "v_empty": "chance"}),
    "pairwise: gain": ("pfedsv_known", {"rule": "gain"}),
    "pairwise: alone": ("pfedsv_known", {"rule": "alone"}),
    "pairwise: FedFomo": ("pfedsv_known", {"rule": "fomo", "self_distance": "prev"}),
    "plain mean": ("pfedsv_known", {"rule": "equal", "self_distance": "none"}),
    "no collaboration": ("local", {}),
}
MULTIWISE, CHANCE, *_ = ARMS
PAIRWISE = tuple(arm for arm in ARMS if arm.startswith("pairwise"))
SHOWN = {  # rules as they are in the comparison
    "multiwise (Shapley)": "Shapley value in the game of all / distance",
    "multiwise, v(∅) = chance": "the same; nobody is worth the share of the most frequent label instead of 0",
    "pairwise: gain": "v({i,j}) - v({i}), own v({i}) / distance",
    "pairwise: alone": "v({j}) / distance",
    "pairwise: FedFomo": "fall of the loss / distance",
    "plain mean": "all equal",
    "no collaboration": "own model only",
}


def multiwise_specs(s: dict) -> list[RunSpec]:
    return [
        ring_spec(s, method, seed, hyper={**options, "k": KNOWN} if options else {}, eval_every=min(3, s["rounds"]))
        for seed in range(s["seeds"])
        for method, options in ARMS.values()
    ]


def arm_of(spec: RunSpec) -> str:
    """Which arm a run belongs to."""

    def fits(method: str, options: dict) -> bool:
        return spec.method == method and all(spec.hyper[name] == value for name, value in options.items())

    return [arm for arm, what in ARMS.items() if fits(*what)][-1]  # the one that says most


def analyse_multiwise(s: dict, results: list[RunResult]) -> dict[str, pd.DataFrame]:
    """tidy: mean accuracy over clients at every evaluation, mixed (agg) and after the training that follows (post)."""
    rows = [(arm_of(r.spec), r.spec.seed, h["round"], h["point"], h["client_mean"]) for r in results for h in r.history]
    tidy = pd.DataFrame(rows, columns=["arm", "seed", "round", "point", "client_mean"])
    return {"tidy": tidy, "compare": compared(tidy)}


def headline(tidy: pd.DataFrame) -> pd.DataFrame:
    """The rows that count: the mixed model, for no collaboration the own one."""
    return tidy[(tidy["point"] == "agg") | (tidy["arm"] == "no collaboration")]


def compared(tidy: pd.DataFrame) -> pd.DataFrame:
    own, last = headline(tidy), tidy["round"].max()
    ends = 100 * only(own, round=last).pivot(index="seed", columns="arm", values="client_mean")
    means = 100 * own.groupby(["seed", "arm"])["client_mean"].mean().unstack()
    trained = 100 * only(tidy, round=last, point="post").pivot(index="seed", columns="arm", values="client_mean")
    rows = []
    for arm in ARMS:
        rows.append(
            {
                "weights": arm,
                "rule": SHOWN[arm],
                "paper (no numbers printed)": {MULTIWISE: "higher", PAIRWISE[0]: "lower; rule unstated"}.get(arm, ""),
                "ours: last round, %": mean_std(ends[arm]),
                "difference from multiwise": "" if arm == MULTIWISE else mean_std(ends[arm] - ends[MULTIWISE]),
                "mean of all rounds": mean_std(means[arm]),
                "last round, after local training": mean_std(trained[arm]),
            }
        )
    return pd.DataFrame(rows)


def margins(tidy: pd.DataFrame, arm: str, others, whole: bool = False) -> dict[str, pd.Series]:
    """An arm minus each other one, by seed, in points: in the last round, or on average over the rounds (`whole`)."""
    own = headline(tidy)
    own = own if whole else only(own, round=own["round"].max())
    wide = 100 * own.groupby(["seed", "arm"])["client_mean"].mean().unstack()
    return {other: wide[arm] - wide[other] for other in others}


def beats(arm: str, *others: str, whole: bool = False):
    """A check that this arm is better, on average over the seeds, than each of the others."""

    def check(tables) -> Verdict:
        found = margins(tables["tidy"], arm, others, whole)
        listed = (f"{o} {mean_std(m)}, ahead in {int((m > 0).sum())} of {len(m)} seeds" for o, m in found.items())
        return verdict(all(m.mean() > 0 for m in found.values()), f"{arm} minus, in points: {'; '.join(listed)}")

    return check


FIG4 = Item(
    name="pfedsv/fig4_multiwise",
    title="pFedSV Figure 4: multiwise against pairwise collaboration",
    claim="With the relevant clients known, weights from the whole coalition beat weights from comparing one model at a time.",
    smaller="digits (16x16) and LeNet-5 instead of CIFAR-10 and a larger network; 6 rounds of 3 epochs, 3 seeds; 72 training and 18 validation images per client instead of 3,840 and 960",
    settings={
        "smoke": {**SETTINGS["smoke"], "seeds": 1},
        "quick": {**SETTINGS["quick"], "rounds": 6, "seeds": 3},
        "paper": {**SETTINGS["paper"], "seeds": 5},
    },
    minutes={"smoke": 0.1, "quick": 0.5, "paper": 900},
    specs=multiwise_specs,
    analyse=analyse_multiwise,
    figure=lambda tables: figures.collaboration(headline(tables["tidy"]), list(ARMS)),
    claims=(
        Claim("In the last round, multiwise weights beat every pairwise rule.", beats(MULTIWISE, *PAIRWISE)),
        Claim(
            "(Ours) On average over the rounds, multiwise weights beat every pairwise rule.",
            beats(MULTIWISE, *PAIRWISE, whole=True),
        ),
        Claim(
            "(Ours) On average over the rounds, multiwise weights beat the plain mean of the same models.",
            beats(MULTIWISE, "plain mean", whole=True),
        ),
        Claim(
            "(Ours) On average over the rounds, multiwise weights beat no collaboration.",
            beats(MULTIWISE, "no collaboration", whole=True),
        ),
        Claim(
            "(Ours) Multiwise weights get better if v(∅) is the accuracy of a guess instead of 0.",
            beats(CHANCE, MULTIWISE, whole=True),
        ),
    ),
)

ITEMS = (FIG4,)
