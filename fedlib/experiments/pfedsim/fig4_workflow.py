"""Figure 4: a run of pFedSim walked through round by round."""

import numpy as np
import pandas as pd

from fedlib import figures
from fedlib.analysis.participation import meetings
from fedlib.analysis.traffic import network_size
from fedlib.base.draws import num_participants
from fedlib.claims import Verdict, every_row, fact, implementation, ours, verdict
from fedlib.engine.result import RunResult
from fedlib.experiments.item import Found, Item, Runs, Tables, per_profile
from fedlib.experiments.pfedsim.task import SETTINGS, of_column
from fedlib.spec import RunSpec

PAPER = {"num_clients": 100, "join_ratio": 0.1, "rounds": 200}  # whose pairs meet how often needs no training
MEASURES = ("traffic", "phi", "others", "heads_changed")
RHO, FIRST, SECOND = 0.5, "generalisation", "personalisation"


def runs(s: dict) -> Runs:
    watched = RunSpec.of_task(of_column(s, "Dir(0.1)"), "pfedsim", rho=RHO, measures=MEASURES)
    return {"watched": watched}


def walk(r: RunResult) -> pd.DataFrame:
    """One row a round.

    phase: generalisation (FedAvg) or personalisation; down, up: numbers sent to and by a participant; pairs: share of
    the pairs of clients whose similarity is known after the round; heads_changed: classifiers on the server that differ
    from before; model, participants: numbers in a model, clients in a round. Of the second phase, 0 in the first:
    others, the share of the other clients in the participants' extractors by Eq. 4.
    """
    phi, upper = r.arrays["phi"], np.triu_indices(r.spec.num_clients, 1)
    tidy = pd.DataFrame(r.arrays["traffic"], columns=["down", "up"])
    tidy[["others", "heads_changed"]] = np.stack([r.arrays["others"], r.arrays["heads_changed"]], 1)
    tidy["pairs"] = [(matrix[upper] > 0).mean() for matrix in phi]
    tidy["phase"] = np.where(np.isnan(phi).all((1, 2)), FIRST, SECOND)
    tidy["participants"] = num_participants(r.spec.num_members, r.spec.join_ratio)
    return tidy.assign(round=range(1, len(tidy) + 1), model=network_size(r.spec)["model"])


def analyse(s: dict, found: Found) -> Tables:
    """tidy: `walk`; phi: the matrix after the second phase's first, middle and last round; meetings: see there."""
    tidy, phi = walk(found["watched"]), found["watched"].arrays["phi"]
    rounds = tidy.loc[tidy["phase"] == SECOND, "round"].to_numpy()
    shown = dict.fromkeys((rounds[0], (rounds[0] + rounds[-1]) // 2, rounds[-1]))
    pairs = [(t, i, j, value) for t in shown for (i, j), value in np.ndenumerate(phi[t - 1])]
    last, step = tidy.iloc[-1], "{:,.0f} parameters = {:g} model"
    compare = [
        ("(1) distribute", "one model to each participant", step.format(last["down"], last["down"] / last["model"])),
        ("(2) train", "extractor and classifier", f"{last['heads_changed']:.0f} classifiers changed in the last round"),
        ("(3) upload", "one model from each participant", step.format(last["up"], last["up"] / last["model"])),
        ("(4) aggregate", "extractors by Eq. 4", f"{last['others']:.0%} of an extractor comes from other clients"),
    ]
    return {
        "tidy": tidy,
        "compare": pd.DataFrame(compare, columns=["step of Figure 4", "paper", "ours"]),
        "phi": pd.DataFrame(pairs, columns=["round", "client", "other", "phi"]),
        "meetings": meetings(PAPER["num_clients"], PAPER["join_ratio"], int((1 - RHO) * PAPER["rounds"])),
    }


def fills_up(tables) -> Verdict:
    pairs = tables["tidy"].query("phase == @SECOND")["pairs"]
    evidence = f"pairs compared: {pairs.iloc[0]:.0%} after the phase's first round, {pairs.iloc[-1]:.0%} at its end"
    return verdict((pairs.diff().dropna() > -0.02).all() and pairs.iloc[-1] > pairs.iloc[0], evidence)


def never_met(tables) -> Verdict:
    last = tables["meetings"].iloc[-1]
    share = f"{1 - last['drawn']:.0%} of the pairs were never sampled together (expected {1 - last['expected']:.0%})"
    return fact(1 - last["drawn"] > 0.25, f"after {last['rounds']:.0f} rounds of 10 of 100 clients {share}")


ITEM = Item(
    title="pFedSim Figure 4: the workflow, round by round",
    claim="FedAvg first, then extractors aggregated by the similarity of classifiers, at the communication cost of "
          "FedAvg.",
    smaller="digits (16x16) instead of CIFAR-10, 20 clients of which 10 take part instead of 100 and 10; how often "
            "pairs are sampled together is simulated with the paper's numbers",
    smaller_paper="20 rounds (paper: 200), enough to see each step",
    settings=per_profile(SETTINGS, rounds=[4, None, 20]),
    minutes={"smoke": 0.1, "quick": 0.2, "paper": 2},
    runs=runs,
    analyse=analyse,
    figure=lambda tables: figures.workflow(tables["phi"], tables["tidy"], tables["meetings"]),
    claims=(
        implementation("In both phases a participant receives one model and sends one model, as in FedAvg.",
                       every_row("tidy", lambda t: (t["down"] == t["model"]) & (t["up"] == t["model"]),
                                 "rounds", lambda t: f"the model has {t['model'].iloc[0]:,} parameters")),
        implementation("In the second phase a classifier changes only on a participating client; it is never "
                       "aggregated.",
                       every_row("tidy", lambda t: t["heads_changed"] == t["participants"],
                                 "rounds", lambda t: f"{t['participants'].iloc[0]} clients take part", phase=SECOND)),
        implementation("The similarity matrix starts as the identity; pairs sampled together fill it.", fills_up),
        ours("At the paper's settings more than a quarter of the pairs are never compared; their weight stays 0.",
             never_met),
    ),
)  # fmt: skip
