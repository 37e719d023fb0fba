"""Figure 1: how alike the layers of independently trained models are."""

from __future__ import annotations

from itertools import combinations

import pandas as pd

from fedlib import figures
from fedlib.analysis.tables import mean_std, spearman
from fedlib.engine.result import RunResult
from fedlib.experiments.claims import Claim, beyond, first, in_order, ours, over_seeds, under
from fedlib.experiments.item import Item
from fedlib.experiments.pfedsim.alone import SETTINGS, ten_clients

LAYERS = ("conv1", "conv2", "fc1", "fc2", "head")  # the paper's layers 0 to 4
IN_WORDS = {0: "cannot tell models apart", 3: "between layers 0 and 4", 4: "tells models apart best"}
ALIKE = 0.9  # CKA above which two models count as alike; a line of ours


def analyse(s: dict, results: list[RunResult]) -> dict[str, pd.DataFrame]:
    """tidy: one row a pair of models, layer and seed; by_seed: one row a layer and seed."""
    lines = []
    for r in results:
        for layer, (name, matrix) in enumerate(zip(LAYERS, r.arrays["cka"])):
            for i, j in combinations(range(len(matrix)), 2):
                lines.append((r.spec.seed, layer, name, i, j, matrix[i, j], r.arrays["data"][i, j]))
    tidy = pd.DataFrame(lines, columns=["seed", "layer", "name", "client_a", "client_b", "cka", "data_similarity"])
    groups = tidy.groupby(["layer", "name", "seed"])
    by_seed = groups["cka"].agg(mean="mean", lowest="min", highest="max")
    by_seed["rank_correlation"] = [spearman(own["cka"], own["data_similarity"]) for _, own in groups]
    by_seed = by_seed.reset_index().assign(named=lambda t: t["layer"].map("layer {}".format))
    compare = [
        {
            "layer": f"{layer} ({name})",
            "paper (in words; no numbers printed)": IN_WORDS.get(layer, "not shown"),
            "ours: mean CKA of two models": mean_std(own["mean"]),
            "lowest pair (mean over seeds)": f"{own['lowest'].mean():.3f}",
            "rank correlation with data similarity": mean_std(own["rank_correlation"]),
        }
        for (layer, name), own in by_seed.groupby(["layer", "name"])
    ]
    return {"tidy": tidy, "by_seed": by_seed, "compare": pd.DataFrame(compare)}


def named(*layers: int) -> list[str]:
    return [f"layer {layer}" for layer in layers]


def mean_cka(judge):
    return over_seeds("by_seed", "mean", "named", judge)


ITEM = Item(
    title="pFedSim Figure 1: layer-wise CKA of independently trained models",
    claim="The deeper the layer, the less alike are models trained on different clients; the classifier tells them apart best.",
    smaller="digits (16x16) instead of CIFAR-10; 90 training images per client instead of 3,000; lr 0.05 instead of 0.01",
    settings=SETTINGS,
    minutes={"smoke": 0.2, "quick": 0.7, "paper": 15},
    specs=ten_clients,
    analyse=analyse,
    figure=lambda tables: figures.cka_by_layer(tables["tidy"]),
    claims=(
        Claim(
            "CKA between models falls with depth: layer 0 > layer 3 > layer 4.",
            mean_cka(in_order(named(0, 3, 4), ".3f")),
        ),
        Claim(
            f"Layer 0 does not separate the models (mean CKA above {ALIKE}).",
            mean_cka(beyond("layer 0", ALIKE, form=".3f")),
        ),
        Claim(
            "The last layer, the classifier, tells the models apart best.",
            mean_cka(under(named(4), named(0, 1, 2, 3), form=".3f")),
        ),
        ours(
            "The classifier's CKA follows the similarity of the data best.",
            over_seeds("by_seed", "rank_correlation", "named", first("layer 4", ".2f")),
        ),
    ),
)
