"""Figure 1: how alike the layers of independently trained models are."""

import pandas as pd

from fedlib import figures
from fedlib.analysis.tables import by_pair, described, mean_std, rows_of, spearman
from fedlib.claims import Claim, beyond, first, in_order, ours, over_seeds, under
from fedlib.engine.result import RunResult
from fedlib.experiments.item import Found, Item, Tables
from fedlib.experiments.pfedsim.task import ALONE, ten_clients

LAYERS = ("conv1", "conv2", "fc1", "fc2", "head")  # the paper's layers 0 to 4
IN_WORDS = {0: "does not distinguish models", 3: "between layers 0 and 4", 4: "distinguishes models best"}
ALIKE = 0.9  # CKA above which two models count as alike; a threshold set by us


def pairs_by_layer(r: RunResult) -> pd.DataFrame:
    """One row a layer and pair of models."""
    pairs = zip(LAYERS, (by_pair(cka=matrix, data_similarity=r.arrays["data"]) for matrix in r.arrays["cka"]))
    every = pd.concat([pair.assign(layer=layer, name=name) for layer, (name, pair) in enumerate(pairs)])
    return every.query("client < other").rename(columns={"client": "client_a", "other": "client_b"})


def analyse(s: dict, found: Found) -> Tables:
    """tidy: one row a pair of models, layer and seed; by_seed: one row a layer and seed."""
    tidy = rows_of(found, ("clients", "seed"), pairs_by_layer).drop(columns="clients")
    groups = tidy.groupby(["layer", "name", "seed"])
    by_seed = groups["cka"].agg(mean="mean", lowest="min", highest="max")
    by_seed["rank_correlation"] = [spearman(own["cka"], own["data_similarity"]) for _, own in groups]
    by_seed = by_seed.reset_index().assign(named=lambda t: t["layer"].map("layer {}".format))
    compare = described(by_seed.assign(layer=by_seed["layer"].astype(str) + " (" + by_seed["name"] + ")"), "layer", **{
        "paper (in words; no numbers reported)": lambda t: IN_WORDS.get(int(t["layer"].iloc[0][0]), "not shown"),
        "ours: mean CKA of two models": lambda t: mean_std(t["mean"]),
        "least similar pair (mean over seeds)": lambda t: f"{t['lowest'].mean():.3f}",
        "rank correlation with data similarity": lambda t: mean_std(t["rank_correlation"]),
    })  # fmt: skip
    return {"tidy": tidy, "by_seed": by_seed, "compare": compare}


def mean_cka(judge):
    return over_seeds("by_seed", "mean", "named", judge)


ZERO, ONE, TWO, THREE, FOUR = (f"layer {layer}" for layer in range(len(LAYERS)))
ITEM = Item(
    title="pFedSim Figure 1: layer-wise CKA of independently trained models",
    claim="The deeper the layer, the less similar are models trained on different clients; the classifier "
          "distinguishes them best.",
    smaller="digits (16x16) instead of CIFAR-10; 90 training images per client instead of 3,000; lr 0.05 instead of "
    "0.01",
    settings=ALONE,
    minutes={"smoke": 0.2, "quick": 0.7, "paper": 15},
    runs=ten_clients,
    analyse=analyse,
    figure=lambda tables: figures.cka_by_layer(tables["tidy"]),
    claims=(
        Claim("CKA between models falls with depth: layer 0 > layer 3 > layer 4.",
              mean_cka(in_order([ZERO, THREE, FOUR], ".3f"))),
        Claim(f"Layer 0 does not separate the models (mean CKA above {ALIKE}).",
              mean_cka(beyond(ZERO, ALIKE, form=".3f"))),
        Claim("The last layer, the classifier, distinguishes the models best.",
              mean_cka(under([FOUR], [ZERO, ONE, TWO, THREE], form=".3f"))),
        ours("The classifier's CKA follows the similarity of the data best.",
             over_seeds("by_seed", "rank_correlation", "named", first(FOUR, ".2f"))),
    ),
)  # fmt: skip
