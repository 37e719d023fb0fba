"""Figure 4: a run of pFedSim walked through round by round."""

from __future__ import annotations

import numpy as np
import pandas as pd

from fedlib import figures
from fedlib.analysis.tables import only
from fedlib.base import draws
from fedlib.data.facts import shape_and_classes
from fedlib.engine.result import RunResult
from fedlib.experiments.accuracy_table import run_spec
from fedlib.experiments.claims import Verdict, implementation, ours, verdict
from fedlib.experiments.item import Item
from fedlib.experiments.pfedsim.task import SETTINGS, task
from fedlib.models import sizes
from fedlib.spec import RunSpec

PAPER = {"num_clients": 100, "join_ratio": 0.1, "rounds": 200}  # whose pairs meet how often needs no training
RHO, FIRST, SECOND = 0.5, "generalisation", "personalisation"


def specs(s: dict) -> list[RunSpec]:
    return [run_spec(task(s, "Dir(0.1)"), "pfedsim", rho=RHO, measures=("traffic", "phi", "mixing"))]


def walk(r: RunResult) -> pd.DataFrame:
    """One row a round.

    | column | |
    |---|---|
    | phase | generalisation (FedAvg) or personalisation |
    | down, up | numbers sent to and by a participant |
    | pairs | share of the pairs of clients whose similarity is known after the round |
    | others | share of the other clients in the participants' extractors, by Eq. 4; 0 in the first phase |
    | mixture_error | largest difference between a received extractor and Eq. 4 done by hand; 0 in the first phase |
    | heads_changed | classifiers on the server that differ from before the round |
    """
    phi, upper = r.arrays["phi"], np.triu_indices(r.spec.num_clients, 1)
    tidy = pd.DataFrame(r.arrays["traffic"], columns=["down", "up"])
    tidy[["others", "mixture_error", "heads_changed"]] = np.nan_to_num(r.arrays["mixing"])
    tidy["pairs"] = [(matrix[upper] > 0).mean() for matrix in phi]
    tidy["phase"] = np.where(np.isnan(phi).all((1, 2)), FIRST, SECOND)
    return tidy.assign(round=range(1, len(tidy) + 1))


def meetings(num_clients: int, join_ratio: float, rounds: int, seed: int = 0) -> pd.DataFrame:
    """After every round: the share of pairs of clients that have taken part together at least once, drawn and expected.

    With m of n clients in a round a pair meets with probability m(m-1)/(n(n-1)).
    """
    met, upper, lines = np.zeros((num_clients, num_clients), dtype=bool), np.triu_indices(num_clients, 1), []
    for t in range(1, rounds + 1):
        ids = draws.participants(seed, t, num_clients, join_ratio)
        met[np.ix_(ids, ids)] = True
        m, n = len(ids), num_clients
        lines.append((t, met[upper].mean(), 1 - (1 - m * (m - 1) / (n * (n - 1))) ** t))
    return pd.DataFrame(lines, columns=["rounds", "drawn", "expected"])


def analyse(s: dict, results: list[RunResult]) -> dict[str, pd.DataFrame]:
    (r,) = results
    tidy, spec = walk(r), r.spec
    size = sizes(spec.model, *shape_and_classes(spec.dataset), **spec.model_options)["model"]
    rounds = tidy.loc[tidy["phase"] == SECOND, "round"].to_numpy()
    shown = dict.fromkeys((rounds[0], (rounds[0] + rounds[-1]) // 2, rounds[-1]))
    phi = [(t, i, j, value) for t in shown for (i, j), value in np.ndenumerate(r.arrays["phi"][t - 1])]
    last, step = tidy.iloc[-1], "{:,.0f} numbers = {:g} model"
    compare = [
        ("1 distribute", "one model to each participant", step.format(last["down"], last["down"] / size)),
        (
            "2 train",
            "extractor and classifier jointly",
            f"{last['heads_changed']:.0f} classifiers changed in the last round",
        ),
        ("3 upload", "one model from each participant", step.format(last["up"], last["up"] / size)),
        ("4 aggregate", "extractors mixed by similarity, Eq. 4", f"as by hand, to {tidy['mixture_error'].max():.0e}"),
    ]
    return {
        "tidy": tidy,
        "compare": pd.DataFrame(compare, columns=["step of Figure 4", "paper", "ours"]),
        "phi": pd.DataFrame(phi, columns=["round", "client", "other", "phi"]),
        "meetings": meetings(PAPER["num_clients"], PAPER["join_ratio"], int((1 - RHO) * PAPER["rounds"])),
        "task": pd.DataFrame(
            {"model": [size], "participants": draws.num_participants(spec.num_clients, spec.join_ratio)}
        ),
    }


def one_model(tables) -> Verdict:
    size, sent = tables["task"]["model"].iloc[0], tables["tidy"][["down", "up"]].to_numpy()
    return verdict(
        (sent == size).all(), f"down and up: {', '.join(map(str, np.unique(sent)))} numbers; the model has {size}"
    )


def heads_stay(tables) -> Verdict:
    changed, most = only(tables["tidy"], phase=SECOND)["heads_changed"], tables["task"]["participants"].iloc[0]
    return verdict(
        (changed == most).all(),
        f"{changed.min():.0f} to {changed.max():.0f} classifiers changed a round, {most} clients took part",
    )


def mixed_by_hand(tables) -> Verdict:
    worst = tables["tidy"]["mixture_error"].max()
    return verdict(worst < 1e-5, f"largest difference of any parameter in any round: {worst:.1e}")


def fills_up(tables) -> Verdict:
    pairs = only(tables["tidy"], phase=SECOND)["pairs"]
    evidence = f"known pairs: {pairs.iloc[0]:.0%} after the first round of the phase, {pairs.iloc[-1]:.0%} at its end"
    return verdict((pairs.diff().dropna() > -0.02).all() and pairs.iloc[-1] > pairs.iloc[0], evidence)


def never_met(tables) -> Verdict:
    last = tables["meetings"].iloc[-1]
    evidence = (
        f"after {last['rounds']:.0f} rounds of 10 of 100 clients {1 - last['drawn']:.0%} of the pairs have never met "
    )
    return verdict(1 - last["drawn"] > 0.25, f"{evidence}(expected {1 - last['expected']:.0%})")


ITEM = Item(
    title="pFedSim Figure 4: the workflow, round by round",
    claim="Averaging first, then extractors mixed by the similarity of classifiers, for the traffic of FedAvg.",
    smaller=(
        "digits (16x16) instead of CIFAR-10, 20 clients of which 10 take part instead of 100 and 10; how often pairs meet is "
        "drawn with the paper's numbers"
    ),
    settings={
        "smoke": {**SETTINGS["smoke"], "rounds": 4},
        "quick": SETTINGS["quick"],
        "paper": {**SETTINGS["paper"], "rounds": 20},
    },
    minutes={"smoke": 0.1, "quick": 0.2, "paper": 2},
    specs=specs,
    analyse=analyse,
    figure=lambda tables: figures.workflow(tables["phi"], tables["tidy"], tables["meetings"]),
    claims=(
        implementation("In both phases a participant receives one model and sends one model, as in FedAvg.", one_model),
        implementation(
            "In the second phase a classifier changes only on a client that takes part; nothing averages it.",
            heads_stay,
        ),
        implementation("The extractors that are sent are the similarity-weighted means of Eq. 4.", mixed_by_hand),
        implementation("The similarity matrix starts as the identity and fills up as clients meet.", fills_up),
        ours(
            "At the paper's settings more than a quarter of the pairs never meet, so that their weight stays 0.",
            never_met,
        ),
    ),
)
