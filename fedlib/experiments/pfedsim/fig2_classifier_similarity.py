"""Figure 2: cosines of the classifiers of four clients, total and class by class."""

from __future__ import annotations

import pandas as pd

from fedlib import figures
from fedlib.analysis.tables import mean_std, only
from fedlib.engine.result import RunResult
from fedlib.experiments.claims import Claim, beyond, in_order, over_seeds, under
from fedlib.experiments.item import Item
from fedlib.experiments.paper_numbers import paper_table
from fedlib.experiments.pfedsim.alone import LABEL_SETS, PAIRS, SETTINGS, SMALLER, four_subsets


def ownership(a: int, b: int, c: int) -> str:
    """Is class c owned by both clients, by one or by neither?"""
    sets = list(LABEL_SETS.values())
    return ("neither", "one", "both")[(c in sets[a]) + (c in sets[b])]


def analyse(s: dict, results: list[RunResult]) -> dict[str, pd.DataFrame]:
    """tidy: one row a pair, class and seed."""
    lines = [
        (r.spec.seed, pair, c, ownership(a, b, c), r.arrays["cs_by_class"][a, b, c])
        for r in results
        for pair, (a, b) in PAIRS.items()
        for c in range(r.arrays["cs_by_class"].shape[-1])
    ]
    tidy = pd.DataFrame(lines, columns=["seed", "pair", "class", "owned_by", "cosine"])
    totals = tidy.groupby(["seed", "pair"])["cosine"].mean().unstack()
    paper = only(paper_table("pfedsim", "2"), measure="cs").set_index("pair")["value"].astype(float)
    compare = [
        {
            "pair": pair,
            "data similarity (exact)": f"{results[0].arrays['data'][clients]:.2f}",
            "paper": f"{paper[pair]:.2f}",
            "ours": mean_std(totals[pair]),
            "difference": f"{totals[pair].mean() - paper[pair]:+.2f}",
        }
        for pair, clients in PAIRS.items()
    ]
    partly = tidy[tidy["pair"].isin(("i-j", "j-k"))]
    shared = partly.assign(
        owners=partly["owned_by"].replace(
            {"one": "owned by one", "both": "by both or none", "neither": "by both or none"}
        )
    )
    return {
        "tidy": tidy,
        "totals": totals[list(PAIRS)].reset_index(),
        "compare": pd.DataFrame(compare),
        "_shared": shared,
    }


ITEM = Item(
    title="pFedSim Figure 2: cosine similarity of classifiers, total and by class",
    claim="The more alike the data of two clients, the more alike are their classifiers, class by class.",
    smaller=SMALLER,
    settings=SETTINGS,
    minutes={"smoke": 0.1, "quick": 0.3, "paper": 15},
    specs=four_subsets,
    analyse=analyse,
    figure=lambda tables: figures.classifier_similarity(tables["tidy"], PAIRS),
    claims=(
        Claim(
            "The similarity of the classifiers falls in the order of the data: (i,i') > (i,j) > (j,k) > (i,k).",
            over_seeds("tidy", "cosine", "pair", in_order(list(PAIRS), ".3f")),
        ),
        Claim(
            "A class vector is more alike if both clients own the class or both miss it than if only one owns it.",
            over_seeds("_shared", "cosine", "owners", under(["owned by one"], ["by both or none"], form=".3f")),
        ),
        Claim(
            "Class vectors of a class with a single owner hardly agree (cosine below 0.5).",
            over_seeds("tidy", "cosine", "owned_by", beyond("one", 0.5, -1, ".3f")),
        ),
    ),
)
