"""Figures 8 to 10: how many numbers travel, for three networks; downloads are those of real runs, parameters are counted."""

from __future__ import annotations

import pandas as pd

from fedlib import figures, models
from fedlib.engine.result import RunResult
from fedlib.experiments.items import Claim, Item, Verdict, only, verdict
from fedlib.experiments.pfedsv.relevance import learner_spec
from fedlib.experiments.pfedsv.ring import CLIENTS, MNIST, SETTINGS, ring_spec
from fedlib.spec import RunSpec

# figure -> network, input, its options, and the share of its parameters that the paper calls the classifier's
NETWORKS = {
    "LeNet-5": ("lenet5", (3, 32, 32), {"linear_layers": 3}, 0.4957),
    "ResNet-34": ("resnet34", (3, 224, 224), {}, 0.023),
    "VGG-19": ("vgg19", (3, 224, 224), {}, 0.8974),
}
PRINTED, ALL, LAST = "printed share", "all linear layers", "last layer"
READINGS = (PRINTED, ALL, LAST)  # what of a network is its classifier
METHODS = ("pFedSV (D+C)", "pFedSV (D)", "FedFomo", "FedAMP", "FedAvg")  # as in the paper, from left to right
RUNS = {"pfedsv": "pFedSV (D)", "fedfomo": "FedFomo", "fedamp": "FedAMP", "fedavg": "FedAvg"}


def communication_specs(s: dict) -> list[RunSpec]:
    measured = [
        spec
        for seed in range(s["seeds"])
        for spec in (
            learner_spec(s, "pFedSV", seed),
            learner_spec(s, "FedFomo", seed),
            ring_spec(s, "pfedsv", seed, hyper={"variant": "D+C"}, measures=("relevance", "downloads")),
        )
    ]
    return [*measured, *(ring_spec({**s, "rounds": 2}, method, 0) for method in ("fedamp", "fedavg"))]


def method_of(spec: RunSpec) -> str:
    return "pFedSV (D+C)" if spec.hyper.get("variant") == "D+C" else RUNS[spec.method]


def shares() -> pd.DataFrame:
    """Parameters of the networks and the share of their classifiers: with 10 classes and 1,000, by both readings, and printed."""
    rows = []
    for network, (name, shape, options, printed) in NETWORKS.items():
        for classes in (10, 1000):
            size = models.sizes(name, shape, classes, **options)
            rows.append(
                (network, classes, size["model"], size["head"] / size["model"], size["linear"] / size["model"], printed)
            )
    return pd.DataFrame(rows, columns=["network", "classes", "parameters", LAST, ALL, PRINTED])


def analyse_communication(s: dict, results: list[RunResult]) -> dict[str, pd.DataFrame]:
    """tidy: numbers sent by method, network, reading and seed; per_round: models a client gets; counter: downloads beside what the engine counted."""
    per_round, counter = [], []
    for r in results:
        method, sent = method_of(r.spec), r.arrays.get("downloads")
        if sent is not None:
            numbers = sent.sum((1, 2)) / r.spec.num_clients
            per_round += [(method, r.spec.seed, t, value) for t, value in enumerate(numbers, 1)]
        counter.append((method, r.spec.seed, r.communication["down"]["floats"], counted_down(r)))
    ones = [(method, 0, t, 1.0) for method in ("FedAMP", "FedAvg") for t in range(1, s["rounds"] + 1)]
    per_round = pd.DataFrame(per_round + ones, columns=["method", "seed", "round", "models"])
    networks = shares()
    tidy = totals(per_round, only(networks, classes=10), s["rounds"])
    return {
        "tidy": tidy,
        "per_round": per_round,
        "counter": pd.DataFrame(counter, columns=["method", "seed", "engine", "downloads"]),
        "shares": networks,
        "compare": compared(tidy),
    }


def counted_down(r: RunResult) -> int:
    """Numbers sent down in a run, from its downloads and the parameters of its network: what the engine's counter should say.

    In the engine a round begins with the download, so that the first has no models of others yet, and those chosen after
    the last round do not travel.
    """
    counts = r.arrays["counts"]
    size = models.sizes(r.spec.model, _shape(r.spec), counts.shape[1], **r.spec.model_options)
    turns = r.spec.rounds * r.spec.num_clients
    if "downloads" not in r.arrays:
        return turns * size["model"]
    sent = int(r.arrays["downloads"][:-1].sum())
    if r.spec.hyper.get("variant") == "D+C":
        return turns * size["extractor"] + sent * size["head"]
    return sent * size["model"]


def _shape(spec: RunSpec) -> tuple[int, int, int]:
    from fedlib.data import load

    return load(spec.dataset).shape


def totals(per_round: pd.DataFrame, networks: pd.DataFrame, rounds: int) -> pd.DataFrame:
    """Numbers up, down and in total over a run of CLIENTS clients, in the paper's rounds: training, upload, download.

    So everybody uploads and downloads in each round. D+C sends an extractor and as many classifiers as there are downloads.
    """
    downloads = CLIENTS * per_round.groupby(["method", "seed"], sort=False)["models"].sum()
    rows = []
    for (method, seed), sent in downloads.items():
        for network in networks.to_dict("records"):
            size, up = network["parameters"], rounds * CLIENTS * network["parameters"]
            for reading in READINGS:
                down = sent * size
                if method == "pFedSV (D+C)":
                    down = rounds * CLIENTS * size * (1 - network[reading]) + sent * size * network[reading]
                rows.append((network["network"], reading, method, seed, up, down, up + down))
    return pd.DataFrame(rows, columns=["network", "reading", "method", "seed", "up", "down", "total"])


def relative(tidy: pd.DataFrame, column: str = "total", reading: str = PRINTED) -> pd.DataFrame:
    """Means over seeds as multiples of FedAvg's, methods by networks."""
    means = only(tidy, reading=reading).groupby(["method", "network"])[column].mean().unstack()
    return means.div(means.loc["FedAvg"]).loc[list(METHODS), list(NETWORKS)]


def compared(tidy: pd.DataFrame) -> pd.DataFrame:
    """The paper shows bars without numbers; ours as multiples of FedAvg's."""
    said = ["above FedAvg; nearly equal for ResNet", "below FedFomo", "highest by far", "as FedAvg", "lowest"]
    rows = []
    for method, text in zip(METHODS, said):
        row = {"method": method, "paper (no numbers printed)": text}
        for network in NETWORKS:
            whole, last = (relative(tidy, "total", reading).loc[method, network] for reading in (PRINTED, LAST))
            own = only(tidy, method=method, network=network, reading=PRINTED)
            row[f"{network}: total, millions"] = f"{own['total'].mean() / 1e6:,.1f}"
            row[f"{network}: of FedAvg's"] = f"{whole:.2f}" + (
                f" ({last:.2f} if only the last layer is personal)" if "C" in method[6:] else ""
            )
        rows.append(row)
    return pd.DataFrame(rows)


# claims --------------------------------------------------------------------------------------------------------------


def _listed(table: pd.DataFrame, methods) -> str:
    parts = (f"{m} " + ", ".join(f"{value:.2f}" for value in table.loc[m]) for m in methods)
    return f"total in units of FedAvg's for {', '.join(table.columns)}: " + "; ".join(parts)


def check_fedfomo_highest(tables) -> Verdict:
    table = relative(tables["tidy"])
    return verdict(bool((table.idxmax() == "FedFomo").all()), _listed(table, METHODS[:3]))


def check_each_lowers(tables) -> Verdict:
    down = relative(tables["tidy"], "down")
    holds = (down.loc["pFedSV (D)"] < down.loc["FedFomo"]) & (down.loc["pFedSV (D+C)"] < down.loc["pFedSV (D)"])
    return verdict(bool(holds.all()), _listed(down, METHODS[:3]).replace("total", "downloads", 1))


def check_fedamp_lowest(tables) -> Verdict:
    table = relative(tables["tidy"])
    holds = (table.loc["FedAMP"] == table.loc["FedAvg"]) & (table.min() == table.loc["FedAvg"])
    return verdict(bool(holds.all()), _listed(table, METHODS))


def check_resnet_like_fedavg(tables) -> Verdict:
    ratio = relative(tables["tidy"]).loc["pFedSV (D+C)", "ResNet-34"]
    return verdict(bool(ratio < 1.05), f"{ratio:.3f} of FedAvg's total with the printed share of 2.3 %")


def savings(tidy: pd.DataFrame, reading: str) -> pd.Series:
    """Share of pFedSV (D)'s downloads that the common extractor saves, by network."""
    down = only(tidy, reading=reading).groupby(["method", "network"])["down"].mean().unstack()
    return (1 - down.loc["pFedSV (D+C)"] / down.loc["pFedSV (D)"])[list(NETWORKS)]


def check_vgg_saves_least(tables) -> Verdict:
    saved = {reading: savings(tables["tidy"], reading) for reading in (PRINTED, ALL)}
    listed = "; ".join(
        f"{reading}: " + ", ".join(f"{n} {v:.0%}" for n, v in own.items()) for reading, own in saved.items()
    )
    return verdict(saved[PRINTED].idxmin() == "VGG-19", f"of the downloads of D, C saves, {listed}")


def check_last_layer(tables) -> Verdict:
    table = relative(tables["tidy"], "total", LAST).loc["pFedSV (D+C)"]
    return verdict(
        bool((table < 1.05).all()), ", ".join(f"{n} {v:.3f}" for n, v in table.items()) + " of FedAvg's total"
    )


def check_shares(tables) -> Verdict:
    parts, fits = [], []
    for network, own in tables["shares"].groupby("network", sort=False):
        near = min(
            (abs(row[reading] - row[PRINTED]), reading, row["classes"], row[reading])
            for row in own.to_dict("records")
            for reading in (ALL, LAST)
        )
        fits.append(near[0] < 0.01)
        parts.append(
            f"{network}: printed {own[PRINTED].iloc[0]:.2%}, nearest {near[3]:.2%} ({near[1]}, {near[2]} classes)"
        )
    return verdict(all(fits), "; ".join(parts))


def check_counter(tables) -> Verdict:
    own = tables["counter"]
    same = own["engine"] == own["downloads"]
    return verdict(
        bool(same.all()), f"equal in {int(same.sum())} of {len(own)} runs ({', '.join(own['method'].unique())})"
    )


FIGS8_10 = Item(
    name="pfedsv/figs8_10_communication",
    title="pFedSV Figures 8 to 10: what travels, for LeNet-5, ResNet-34 and VGG-19",
    claim="Dropping irrelevant clients and sharing the extractor bring pFedSV's traffic from FedFomo's towards FedAvg's.",
    smaller="whose models are downloaded is learned on digits (16x16) with LeNet-5 instead of an unstated data set, in 10 rounds of 3 epochs instead of 20 of 5; networks and their parameters are the paper's",
    settings={
        "smoke": {**SETTINGS["smoke"], "seeds": 1},
        "quick": {**SETTINGS["quick"], "seeds": 3},
        "paper": {**MNIST, "seeds": 5},
    },
    minutes={"smoke": 0.1, "quick": 0.3, "paper": 500},
    specs=communication_specs,
    analyse=analyse_communication,
    figure=lambda tables: figures.traffic(tables["tidy"], tables["per_round"], METHODS, READINGS),
    claims=(
        Claim("FedFomo sends most, for each network.", check_fedfomo_highest),
        Claim(
            "The dynamic choice (D) lowers the downloads, the common extractor (C) lowers them further.",
            check_each_lowers,
        ),
        Claim("FedAMP sends as much as FedAvg, and nobody sends less.", check_fedamp_lowest),
        Claim("For ResNet-34, pFedSV (D+C) sends nearly as little as FedAvg (within 5 %).", check_resnet_like_fedavg),
        Claim("The common extractor saves least for VGG-19, with the printed shares.", check_vgg_saves_least),
        Claim(
            "The printed classifier shares are those of the networks, by some reading, within a point.", check_shares
        ),
        Claim(
            "(Ours) If only the last layer is personal, D+C sends nearly as little as FedAvg for each network (within 5 %).",
            check_last_layer,
        ),
        Claim(
            "(Ours) What the engine counted is what the downloads and the parameters give, to the last number.",
            check_counter,
        ),
    ),
)

ITEMS = (FIGS8_10,)
