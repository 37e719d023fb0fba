"""The measurement study: Figures 1 and 2, Table 2. Every client trains alone from one initialisation."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pandas as pd

from fedlib import figures
from fedlib.engine.result import RunResult
from fedlib.experiments.items import Claim, Item, Verdict, mean_std, only, paper_table, verdict
from fedlib.spec import RunSpec

LAYERS = ("conv1", "conv2", "fc1", "fc2", "head")  # the paper's layers 0 to 4
LABEL_SETS = {"i": [0, 1, 2, 3, 4], "i'": [0, 1, 2, 3, 4], "j": [2, 3, 4, 5, 6], "k": [5, 6, 7, 8, 9]}
PAIRS = {"i-i'": (0, 1), "i-j": (0, 2), "j-k": (2, 3), "i-k": (0, 3)}  # in the data's order of similarity
MEASURES = {"data": "data similarity", "cs": "CS", "wdb": "WDB", "mdb": "MDB", "ldb": "LDB"}

STUDY = {
    "smoke": {"dataset": "digits", "seeds": 1, "epochs": 2, "lr": 0.05, "min_size": 10, "pools": 1},
    "quick": {"dataset": "digits", "seeds": 5, "epochs": 20, "lr": 0.05, "min_size": 10, "pools": 1},
    "paper": {"dataset": "cifar10", "seeds": 5, "epochs": 20, "lr": 0.01, "min_size": 40, "pools": 1},
}


def independent_runs(s: dict, **what) -> list[RunSpec]:
    """One run per seed in which all clients train alone for the study's epochs, counted as rounds of one local epoch."""
    training = dict(join_ratio=1.0, rounds=s["epochs"], local_epochs=1, lr=s["lr"], eval_every=s["epochs"])
    common = dict(dataset=s["dataset"], model_options={"pools": s["pools"]}, **training, **what)
    return [RunSpec("local", seed=seed, partition_seed=seed, **common) for seed in range(s["seeds"])]


def dirichlet_study(s: dict) -> list[RunSpec]:
    """Ten clients by Dir(0.1) (Fig. 1)."""
    return independent_runs(
        s, num_clients=10, partition={"alpha": 0.1, "min_size": s["min_size"]}, measures=("cka", "client_similarity")
    )


def subset_study(s: dict) -> list[RunSpec]:
    """The four hand-made subsets i, i', j, k (Fig. 2, Table 2)."""
    return independent_runs(
        s,
        num_clients=4,
        scheme="manual",
        partition={"label_sets": list(LABEL_SETS.values())},
        measures=("client_similarity",),
    )


def spearman(a, b) -> float:
    """Rank correlation."""
    from scipy.stats import spearmanr

    return float(spearmanr(a, b).statistic)


# Figure 1 ------------------------------------------------------------------------------------------------------------


def analyse_cka(s: dict, results: list[RunResult]) -> dict[str, pd.DataFrame]:
    rows = []
    for r in results:
        data = r.arrays["data"]
        for layer, (name, matrix) in enumerate(zip(LAYERS, r.arrays["cka"])):
            for i, j in combinations(range(len(matrix)), 2):
                rows.append((r.spec.seed, layer, name, i, j, matrix[i, j], data[i, j]))
    tidy = pd.DataFrame(rows, columns=["seed", "layer", "name", "client_a", "client_b", "cka", "data_similarity"])
    by_seed = tidy.groupby(["layer", "name", "seed"]).apply(
        lambda g: pd.Series(
            {
                "mean": g["cka"].mean(),
                "lowest": g["cka"].min(),
                "highest": g["cka"].max(),
                "rank_correlation": spearman(g["cka"], g["data_similarity"]),
            }
        ),
        include_groups=False,
    )
    summary = by_seed.groupby(["layer", "name"]).mean().reset_index()
    in_words = {0: "cannot tell models apart", 3: "between layers 0 and 4", 4: "tells models apart best"}
    compare = pd.DataFrame(
        {
            "layer": [f"{n} ({name})" for n, name in enumerate(LAYERS)],
            "paper (in words; no numbers printed)": [in_words.get(n, "not shown") for n in range(5)],
            "ours: mean CKA of two models": [mean_std(by_seed.loc[n]["mean"]) for n in range(5)],
            "lowest pair (mean over seeds)": [f"{v:.3f}" for v in summary["lowest"]],
            "rank correlation with data similarity": [mean_std(by_seed.loc[n]["rank_correlation"]) for n in range(5)],
        }
    )
    return {"tidy": tidy, "by_seed": by_seed.reset_index(), "compare": compare}


def _layer_means(tables) -> pd.DataFrame:
    return tables["by_seed"].pivot(index="seed", columns="layer", values="mean")


def check_falls_with_depth(tables) -> Verdict:
    means = _layer_means(tables)
    holds = ((means[0] > means[3]) & (means[3] > means[4])).sum()
    listed = ", ".join(f"layer {n} {mean_std(means[n])}" for n in (0, 3, 4))
    return verdict(holds == len(means), f"mean CKA {listed}; ordered so in {holds} of {len(means)} seeds")


def check_layer0_blind(tables) -> Verdict:
    means = _layer_means(tables)
    lowest = only(tables["tidy"], layer=0)["cka"].min()
    return verdict(
        bool((means[0] > 0.9).all()),
        f"mean CKA at layer 0 {mean_std(means[0])}, lowest pair of all seeds {lowest:.3f}; two models count as alike above 0.9",
    )


def check_layer4_best(tables) -> Verdict:
    means = _layer_means(tables)
    holds = int((means.idxmin(axis=1) == 4).sum())
    return verdict(
        holds == len(means), f"layer 4 has the lowest mean CKA of all five layers in {holds} of {len(means)} seeds"
    )


def check_layer4_follows_data(tables) -> Verdict:
    table = tables["by_seed"].pivot(index="seed", columns="layer", values="rank_correlation").mean()
    listed = ", ".join(f"layer {n} {table[n]:.2f}" for n in range(5))
    return verdict(
        bool(table.idxmax() == 4), f"rank correlation of CKA with data similarity, mean over seeds: {listed}"
    )


FIG1 = Item(
    name="pfedsim/fig1_cka",
    title="pFedSim Figure 1: layer-wise CKA of independently trained models",
    claim="The deeper the layer, the less alike are models trained on different clients; the classifier tells them apart best.",
    smaller="digits (16x16) instead of CIFAR-10; 90 training images per client instead of 3,000; lr 0.05 instead of 0.01",
    settings=STUDY,
    minutes={"smoke": 0.2, "quick": 0.7, "paper": 15},
    specs=dirichlet_study,
    analyse=analyse_cka,
    figure=lambda tables: figures.cka_by_layer(tables["tidy"]),
    claims=(
        Claim("CKA between models falls with depth: layer 0 > layer 3 > layer 4.", check_falls_with_depth),
        Claim("Layer 0 does not separate the models.", check_layer0_blind),
        Claim("The last layer, the classifier, tells the models apart best.", check_layer4_best),
        Claim(
            "(Ours) The classifier's CKA follows the similarity of the data best.",
            check_layer4_follows_data,
        ),
    ),
)


# Figure 2 ------------------------------------------------------------------------------------------------------------


def ownership(a: int, b: int, c: int) -> str:
    """Is class c owned by both clients, by one or by neither?"""
    sets = list(LABEL_SETS.values())
    return ("neither", "one", "both")[(c in sets[a]) + (c in sets[b])]


def paper_pairs(measure: str) -> pd.Series:
    """Table 2's row of a measure, by pair."""
    printed = paper_table("pfedsim", "2")
    return printed[printed["measure"] == measure].set_index("pair")["value"].astype(float)


def analyse_classifiers(s: dict, results: list[RunResult]) -> dict[str, pd.DataFrame]:
    rows = [
        (r.spec.seed, pair, c, ownership(a, b, c), r.arrays["cs_by_class"][a, b, c])
        for r in results
        for pair, (a, b) in PAIRS.items()
        for c in range(r.arrays["cs_by_class"].shape[-1])
    ]
    tidy = pd.DataFrame(rows, columns=["seed", "pair", "class", "owned_by", "cosine"])
    totals = tidy.groupby(["seed", "pair"])["cosine"].mean().unstack()[list(PAIRS)]
    paper = paper_pairs("cs")
    compare = pd.DataFrame(
        {
            "pair": list(PAIRS),
            "data similarity (exact)": [f"{results[0].arrays['data'][a, b]:.2f}" for a, b in PAIRS.values()],
            "paper": [f"{paper[p]:.2f}" for p in PAIRS],
            "ours": [mean_std(totals[p]) for p in PAIRS],
            "difference": [f"{totals[p].mean() - paper[p]:+.2f}" for p in PAIRS],
        }
    )
    return {"tidy": tidy, "totals": totals.reset_index(), "compare": compare}


def check_cs_order(tables) -> Verdict:
    totals = tables["totals"][list(PAIRS)]
    holds = int((totals.diff(axis=1).iloc[:, 1:] < 0).all(axis=1).sum())
    return verdict(
        holds == len(totals),
        f"{' > '.join(f'{p} {mean_std(totals[p])}' for p in PAIRS)}; in this order in {holds} of {len(totals)} seeds",
    )


def check_owned_by_one(tables) -> Verdict:
    tidy = tables["tidy"].assign(shared=lambda t: t["owned_by"] != "one")
    means = tidy[tidy["pair"].isin(["i-j", "j-k"])].groupby(["seed", "pair", "shared"])["cosine"].mean().unstack()
    holds = int((means[True] > means[False]).sum())
    return verdict(
        holds == len(means),
        f"owned or missed by both {means[True].mean():.3f}, by one only {means[False].mean():.3f}; so in {holds} of {len(means)} pairs and seeds",
    )


def check_owned_by_one_low(tables) -> Verdict:
    cosine = tables["tidy"].groupby("owned_by")["cosine"].mean()
    return verdict(
        bool(cosine["one"] < 0.5),
        f"mean cosine of classes owned by one client only: {cosine['one']:.3f}",
    )


FIG2 = Item(
    name="pfedsim/fig2_classifier_similarity",
    title="pFedSim Figure 2: cosine similarity of classifiers, total and by class",
    claim="The more alike the data of two clients, the more alike are their classifiers, class by class.",
    smaller="digits (16x16) instead of CIFAR-10; 180 to 360 training images per client instead of 6,000 to 12,000; lr 0.05 instead of 0.01",
    settings=STUDY,
    minutes={"smoke": 0.1, "quick": 0.3, "paper": 15},
    specs=subset_study,
    analyse=analyse_classifiers,
    figure=lambda tables: figures.classifier_similarity(tables["tidy"], PAIRS),
    claims=(
        Claim(
            "The similarity of the classifiers falls in the order of the data: (i,i') > (i,j) > (j,k) > (i,k).",
            check_cs_order,
        ),
        Claim(
            "A class vector is more alike if both clients own the class or both miss it than if only one owns it.",
            check_owned_by_one,
        ),
        Claim("Class vectors of a class with a single owner hardly agree (cosine below 0.5).", check_owned_by_one_low),
    ),
)


# Table 2 -------------------------------------------------------------------------------------------------------------


def analyse_measures(s: dict, results: list[RunResult]) -> dict[str, pd.DataFrame]:
    four = [r for r in results if r.spec.scheme == "manual"]
    ten = [r for r in results if r.spec.scheme == "dirichlet"]
    rows = []
    for r in four:
        for measure in MEASURES:
            for pair, (a, b) in PAIRS.items():
                rows.append((r.spec.seed, measure, pair, r.arrays[measure][a, b], r.arrays[measure][b, a]))
    tidy = pd.DataFrame(rows, columns=["seed", "measure", "pair", "value", "value_other_way"])
    means = tidy.groupby(["measure", "pair"])["value"].mean().unstack()[list(PAIRS)]
    shown = {"data": "data_similarity"}
    compare = []
    for measure, label in MEASURES.items():
        paper = paper_pairs(shown.get(measure, measure))
        row = {"measure": label}
        for pair in PAIRS:
            row |= {
                f"{pair} paper": f"{paper[pair]:.2g}",
                f"{pair} ours": mean_std(only(tidy, measure=measure, pair=pair)["value"]),
            }
        compare.append({**row, "paper's order": _order(paper), "our order": _order(means.loc[measure])})
    upper = np.triu_indices(10, 1)
    ranks = [
        (r.spec.seed, m, *(spearman(r.arrays[m][upper], r.arrays[data][upper]) for data in ("data", "label_cosine")))
        for r in ten
        for m in ("cs", "mdb", "wdb", "ldb")
    ]
    ranks = pd.DataFrame(ranks, columns=["seed", "measure", "rank_correlation", "with_label_cosine"])
    return {"tidy": tidy, "compare": pd.DataFrame(compare), "ten_clients": ranks}


def _order(values: pd.Series) -> str:
    """The four pairs from most to least alike."""
    return " > ".join(values.sort_values(ascending=False, kind="stable").index)


def _in_data_order(tables, measure: str, column: str = "value") -> tuple[int, int, str]:
    """In how many seeds a measure orders the pairs as the data does, of how many, and its means."""
    wide = only(tables["tidy"], measure=measure).pivot(index="seed", columns="pair", values=column)[list(PAIRS)]
    holds = int((wide.diff(axis=1).iloc[:, 1:] < 0).all(axis=1).sum())
    return holds, len(wide), ", ".join(f"{p} {mean_std(wide[p])}" for p in PAIRS)


def check_cs_follows(tables) -> Verdict:
    holds, seeds, means = _in_data_order(tables, "cs")
    return verdict(holds == seeds, f"{means}; in the data's order in {holds} of {seeds} seeds")


def breaks_order(measure: str):
    def check(tables) -> Verdict:
        holds, seeds, means = _in_data_order(tables, measure)
        evidence = f"{means}; in the data's order in {holds} of {seeds} seeds"
        if measure == "ldb":
            other = _in_data_order(tables, measure, "value_other_way")[0]
            evidence += f" (judged on the other client's data: in {other} of {seeds})"
        return verdict(holds < seeds / 2, evidence)

    return Claim(f"{MEASURES[measure]} does not order the four pairs as the data does.", check)


def check_cs_best_of_ten(tables) -> Verdict:
    means = tables["ten_clients"].groupby("measure")[["rank_correlation", "with_label_cosine"]].mean()
    listed = "; ".join(
        f"{MEASURES[m]} {r.rank_correlation:.2f} ({r.with_label_cosine:.2f})" for m, r in means.iterrows()
    )
    return verdict(
        means["rank_correlation"].idxmax() == "cs",
        f"10 clients, Dir(0.1), 45 pairs: rank correlation with Eq. 1 (with the cosine of label counts): {listed}",
    )


TABLE2 = Item(
    name="pfedsim/table2_similarity_metrics",
    title="pFedSim Table 2: measures of client similarity",
    claim="Only the similarity of classifiers (CS) orders pairs of clients as their data does.",
    smaller="digits (16x16) instead of CIFAR-10; 180 to 360 training images per client instead of 6,000 to 12,000; lr 0.05 instead of 0.01",
    settings=STUDY,
    minutes={"smoke": 0.1, "quick": 0.1, "paper": 30},
    specs=lambda s: [*subset_study(s), *dirichlet_study(s)],
    analyse=analyse_measures,
    figure=lambda tables: figures.similarity_measures(tables["tidy"], tables["ten_clients"], MEASURES, list(PAIRS)),
    claims=(
        Claim("CS orders the four pairs as the data does.", check_cs_follows),
        *(breaks_order(measure) for measure in ("wdb", "mdb", "ldb")),
        Claim(
            "(Ours) On 45 pairs instead of 4, CS has the highest rank correlation with data similarity of the four measures.",
            check_cs_best_of_ten,
        ),
    ),
)

ITEMS = (FIG1, FIG2, TABLE2)
