"""Figures 8 to 10: how many numbers travel, for three networks; the downloads are those of real runs."""

import pandas as pd

from fedlib import figures
from fedlib.analysis import traffic
from fedlib.analysis.tables import only, rows_of
from fedlib.claims import (
    Claim,
    Verdict,
    beyond,
    both,
    every_row,
    fact,
    first,
    implementation,
    in_order,
    ours,
    over_seeds,
    under,
)
from fedlib.experiments.item import ALWAYS, Found, Item, Runs, Tables, per_profile, runs_of
from fedlib.experiments.pfedsv import fig7_relevance
from fedlib.experiments.pfedsv.task import CLIENTS, ON_MNIST, ring

PRINTED, ALL, LAST = READINGS = ("reported share", "all linear layers", "last layer")  # what a classifier is
NETWORKS = {  # by figure: network, input, its options, and the classifier's share of its parameters, as printed
    "LeNet-5": ("lenet5", (3, 32, 32), {"linear_layers": 3}, 0.4957),
    "ResNet-34": ("resnet34", (3, 224, 224), {}, 0.023),
    "VGG-19": ("vgg19", (3, 224, 224), {}, 0.8974),
}
PAPER = {  # from left to right
    "pFedSV (D+C)": "above FedAvg; nearly equal for ResNet",
    "pFedSV (D)": "below FedFomo",
    "FedFomo": "highest by far",
    "FedAMP": "as FedAvg",
    "FedAvg": "lowest",
}
METHODS = BOTH, DYNAMIC, FOMO, AMP, AVG = tuple(PAPER)


def runs(s: dict) -> Runs:
    """The runs by method and seed; what FedAMP and FedAvg send needs two rounds of one seed."""
    learned = {fig7_relevance.PFEDSV: DYNAMIC, fig7_relevance.FEDFOMO: FOMO}
    found = {(learned[name], seed): spec for (name, seed), spec in fig7_relevance.runs(s).items() if name in learned}
    both = {BOTH: {"method": "pfedsv", "variant": "D+C"}}
    found |= runs_of(ring(s, measures=fig7_relevance.KEPT), both, s["seeds"])
    return found | runs_of(ring({**s, "rounds": 2}), {name: {"method": name.lower()} for name in (AMP, AVG)}, 1)


def analyse(s: dict, found: Found) -> Tables:
    """tidy: numbers sent by method, network, reading and seed; per_round: models a client gets; counter:
    what the engine counted; saved: what D+C saves of the downloads of D, by network, reading and seed."""
    key, every = ("method", "seed"), [(name, seed) for name in METHODS for seed in range(s["seeds"])]
    by_seed = {(name, seed): found.get((name, seed), found[name, 0]) for name, seed in every}
    per_round = rows_of(by_seed, key, lambda r: traffic.models_by_round(r, s["rounds"]))
    tidy = traffic.sent_by_network(per_round, CLIENTS, only(shares(), classes=10), READINGS, split=BOTH)
    counter = rows_of(
        found, key, lambda r: {"engine": r.communication["down"]["floats"], "downloads": traffic.counted_down(r)}
    )
    down = tidy.pivot(index=["network", "reading", "seed"], columns="method", values="down")
    saved = (1 - down[BOTH] / down[DYNAMIC]).reset_index(name="share")
    tables = {"tidy": tidy, "per_round": per_round, "counter": counter, "shares": shares(), "saved": saved}
    return {**tables, "compare": compared(tidy)}


def shares() -> pd.DataFrame:
    """Parameters and the classifiers' shares of them: with 10 classes and 1,000, by both readings, and printed."""
    lines = []
    for network, (name, shape, options, printed) in NETWORKS.items():
        for classes in (10, 1000):
            found = traffic.classifier_shares(name, shape, classes, **options)
            lines.append({"network": network, "classes": classes, **found, PRINTED: printed})
    return pd.DataFrame(lines)


def compared(tidy: pd.DataFrame) -> pd.DataFrame:
    """The paper shows bars without numbers; ours as multiples of FedAvg's."""
    lines, means = [], tidy.groupby(["reading", "method", "network"])[["total", "total_ratio"]].mean()
    for method, said in PAPER.items():
        line = {"method": method, "paper (no numbers reported)": said}
        for network in NETWORKS:
            total, ratio = means.loc[PRINTED, method, network]
            last = means["total_ratio"][LAST, method, network]
            besides = f" ({last:.2f} if only the last layer is personal)" if method == BOTH else ""
            line[f"{network}: parameters sent, millions"] = f"{total / 1e6:,.1f}"
            line[f"{network}: ratio to FedAvg"] = f"{ratio:.2f}{besides}"
        lines.append(line)
    return pd.DataFrame(lines)


# claims: of downloads learned in real runs, in units of FedAvg's ------------------------------------------------------


def sent(judge, what: str = "total_ratio", reading: str = PRINTED, **network):
    """A check of the numbers sent, for each network or for one."""
    return over_seeds("tidy", what, "method", judge, each="network", reading=reading, **network)


def printed_shares(tables) -> Verdict:
    parts, fits = [], []
    for network, own in tables["shares"].groupby("network", sort=False):
        readings = own.melt(["network", "classes", PRINTED], [ALL, LAST], "kind", "share")
        nearest = readings.loc[(readings["share"] - readings[PRINTED]).abs().idxmin()]
        fits.append(abs(nearest["share"] - nearest[PRINTED]) < 0.01)
        how = f"{nearest['share']:.2%} ({nearest['kind']}, {nearest['classes']} classes)"
        parts.append(f"{network}: reported {nearest[PRINTED]:.2%}, nearest {how}")
    return fact(all(fits), "; ".join(parts))


ITEM = Item(
    title="pFedSV Figures 8 to 10: communication cost with LeNet-5, ResNet-34 and VGG-19",
    claim="Discarding irrelevant clients and sharing the extractor reduce pFedSV's communication from FedFomo's "
          "towards FedAvg's.",
    smaller="whose models are downloaded is learned on digits (16x16; paper: unstated) with LeNet-5, in 10 rounds of 3 "
    "epochs (paper: 20 of 5); networks and their parameters are the paper's",
    settings=per_profile({name: ON_MNIST[name] for name in ALWAYS}, seeds=[1, 3, 5]),
    minutes={"smoke": 0.1, "quick": 0.3, "paper": 500},
    runs=runs,
    analyse=analyse,
    figure=lambda tables: figures.traffic(tables["tidy"], tables["per_round"], METHODS, READINGS),
    claims=(
        Claim("FedFomo sends most, for each network.", sent(first(FOMO, ".2f"))),
        Claim("The dynamic choice (D) lowers the downloads, the common extractor (C) lowers them further.",
              sent(in_order([FOMO, DYNAMIC, BOTH], ".2f"), "down_ratio")),
        implementation("FedAMP sends as much as FedAvg, and no method sends less.",
                       both(every_row("tidy", lambda t: t["total_ratio"] == 1, "ratios to FedAvg", method=AMP),
                            every_row("tidy", lambda t: t["total_ratio"] >= 1, "ratios to FedAvg"))),
        Claim("For ResNet-34, pFedSV (D+C) sends nearly as little as FedAvg (within 5 %).",
              sent(beyond(BOTH, 1.05, -1, ".3f"), network="ResNet-34")),
        Claim("The common extractor saves least for VGG-19, with the reported shares.",
              over_seeds("saved", "share", "network", under(["VGG-19"], ["LeNet-5", "ResNet-34"]), 100,
                         needs=NETWORKS, reading=PRINTED)),
        Claim("The reported classifier shares are those of the networks, by at least one interpretation, within a "
              "point.",
              printed_shares),
        ours("If only the last layer is personal, D+C sends nearly as little as FedAvg for each network (within 5 %).",
             sent(beyond(BOTH, 1.05, -1, ".3f"), reading=LAST)),
        implementation("The engine's count equals the one from downloads and parameters, to the last parameter.",
                       every_row("counter", lambda t: t["engine"] == t["downloads"], "runs")),
    ),
)  # fmt: skip
