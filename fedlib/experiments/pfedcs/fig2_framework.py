"""Figure 2: a run of PFedCS watched round by round: what travels, and whom the server chooses."""

import numpy as np
import pandas as pd

from fedlib import figures
from fedlib.analysis.tables import only
from fedlib.analysis.traffic import network_size
from fedlib.claims import every_row, implementation, ours
from fedlib.data.describe import same_classes
from fedlib.engine.result import RunResult
from fedlib.experiments.item import Found, Item, Tables, leaving_out, per_profile
from fedlib.experiments.pfedcs import task
from fedlib.spec import RunSpec

FIRST, SECOND = "stage 1", "stage 2"
MEASURES = ("traffic", "selection")


def runs(s: dict) -> dict[str, RunSpec]:
    return {"watched": RunSpec.of_task({**s, "scheme": "pat_grouped", "classes_per_client": 2}, "pfedcs",
                                       measures=MEASURES)}  # fmt: skip


def walk(r: RunResult) -> pd.DataFrame:
    """One row a round. down, up: numbers to and from a client; model, extractor_size: how many these have; candidates,
    collaborators, "with the same classes" (of the collaborators): means over clients, most: of the collaborators."""
    found, sizes = r.arrays["selection"], network_size(r.spec)
    rounds = pd.DataFrame(r.arrays["traffic"], columns=["down", "up"])
    chosen = found == 2
    marked = (found > 0, chosen, chosen & same_classes(r.arrays["counts"]))
    rounds[["candidates", "collaborators", "with the same classes"]] = np.stack([m.sum(2).mean(1) for m in marked], 1)
    last = int(r.spec.algorithm.beta * r.spec.rounds + 1e-9)
    number = np.arange(1, len(rounds) + 1)
    return rounds.assign(
        round=number, stage=np.where(number <= last, FIRST, SECOND), most=chosen.sum(2).max(1), model=sizes["model"],
        extractor_size=sizes["extractor"],
    )  # fmt: skip


def analyse(s: dict, found: Found) -> Tables:
    """tidy: `walk`."""
    tidy = walk(found["watched"])
    first, second = (only(tidy, stage=stage) for stage in (FIRST, SECOND))

    def models(own: pd.DataFrame, way: str) -> str:
        return f"{own[way].iloc[-1]:,} parameters = {own[way].iloc[-1] / own['model'].iloc[0]:.3f} model"

    compare = [
        ("(1) load", FIRST, "extractor and aggregated classifier are downloaded", models(first, "down")),
        ("server", FIRST, "distances, mixture, threshold (Eqs. 4 and 5)", f"in its last round {whom(first.iloc[-1:])}"),
        ("(4) upload", FIRST, "the whole model", models(first, "up")),
        ("(1) load", SECOND, "the extractor", models(second, "down")),
        ("(4) upload", SECOND, "the extractor", models(second, "up")),
    ]
    return {"tidy": tidy, "compare": pd.DataFrame(compare, columns=["step", "stage", "paper", "ours"])}


def carries(name: str, stage: str):
    """A check that so many numbers travel both ways."""
    return every_row("tidy", lambda t: (t["down"] == t[name]) & (t["up"] == t[name]), "rounds",
                     lambda t: f"{t[name].iloc[0]:,} parameters each way", stage=stage)  # fmt: skip


def whom(t: pd.DataFrame) -> str:
    own = t["with the same classes"].sum() / t["collaborators"].sum()
    return f"{t['collaborators'].iloc[0]:.1f} collaborators per client, {100 * own:.0f} % of them with the same classes"


def at_the_end(tables):
    last = only(tables["tidy"], stage=FIRST)["round"].max()
    return every_row("tidy", lambda t: t["most"] == 1, "rounds", whom, round=last)(tables)


ITEM = Item(
    title="PFedCS Figure 2: the two stages, round by round",
    claim="In stage 1 the classifiers of similar clients are aggregated into a teacher; in stage 2 only the "
          "extractor is sent.",
    smaller="digits (16x16) and LeNet-5 instead of CIFAR-10 and the 4-layer CNN; 8 rounds instead of 200",
    smaller_paper="20 rounds (paper: 200), enough to see both stages",
    settings=per_profile(
        leaving_out(task.SETTINGS, "reduced"), methods=("pfedcs",),
        dataset=["digits", "digits", "cifar10"], rounds=[4, 8, 20],
    ),
    minutes={"smoke": 0.1, "quick": 0.2, "paper": 40},
    runs=runs,
    analyse=analyse,
    figure=lambda tables: figures.two_stages(tables["tidy"]),
    claims=(
        implementation("In stage 1 every client downloads and uploads a whole model.", carries("model", FIRST)),
        implementation("In stage 2 every client downloads and uploads the extractor only, as in FedPer.",
                       carries("extractor_size", SECOND)),
        ours("In the last round of stage 1 the threshold leaves every client a single collaborator, so that Eq. 7 as "
             "reported divides zero by zero.", at_the_end),
    ),
)  # fmt: skip
