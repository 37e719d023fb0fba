"""Figure 2: cosines of the classifiers of four clients, total and class by class."""

import pandas as pd

from fedlib import figures
from fedlib.analysis.tables import mean_std, only, rows_of
from fedlib.claims import Claim, beyond, in_order, over_seeds, under
from fedlib.engine.result import RunResult
from fedlib.experiments.item import Found, Item, Tables
from fedlib.experiments.paper_numbers import paper_table
from fedlib.experiments.pfedsim.task import ALONE, LABEL_SETS, PAIRS, SMALLER_ALONE, four_subsets

ONE, SAME = "on one client", "pairs i-j, j-k: on both or neither"


def by_class(r: RunResult) -> pd.DataFrame:
    """One row a pair and class; owned_by: does the class belong to both clients, to one or to neither?"""
    sets, owners = list(LABEL_SETS.values()), ("neither", ONE, "both")
    lines = [
        (pair, c, owners[(c in sets[a]) + (c in sets[b])], r.arrays["cs_by_class"][a, b, c])
        for pair, (a, b) in PAIRS.items()
        for c in range(r.arrays["cs_by_class"].shape[-1])
    ]
    return pd.DataFrame(lines, columns=["pair", "class", "owned_by", "cosine"])


def analyse(s: dict, found: Found) -> Tables:
    """tidy: one row a pair, class and seed."""
    tidy = rows_of(found, ("clients", "seed"), by_class).drop(columns="clients")
    totals = tidy.groupby(["seed", "pair"])["cosine"].mean().unstack()[list(PAIRS)]
    paper = only(paper_table("pfedsim", "2"), measure="cs").set_index("pair")["value"].astype(float)
    data, compare = next(iter(found.values())).arrays["data"], []
    for pair, clients in PAIRS.items():
        ours, printed = totals[pair], paper[pair]
        line = {"pair": pair, "data similarity (exact)": f"{data[clients]:.2f}", "paper": f"{printed:.2f}"}
        apart = {"difference": f"{ours.mean() - printed:+.2f}"} if s["dataset"] == "cifar10" else {}
        compare.append(line | {f"ours, {s['dataset']}": mean_std(ours), **apart})
    partly = tidy[tidy["pair"].isin(("i-j", "j-k"))]
    shared = partly.assign(owners=partly["owned_by"].map(lambda who: who if who == ONE else SAME))
    return {"tidy": tidy, "totals": totals.reset_index(), "compare": pd.DataFrame(compare), "_shared": shared}


ITEM = Item(
    title="pFedSim Figure 2: cosine similarity of classifiers, total and by class",
    claim="The more similar the data of two clients, the more similar are their classifiers, class by class.",
    smaller=SMALLER_ALONE,
    settings=ALONE,
    minutes={"smoke": 0.1, "quick": 0.3, "paper": 15},
    runs=four_subsets,
    analyse=analyse,
    figure=lambda tables: figures.classifier_similarity(tables["tidy"], PAIRS),
    claims=(
        Claim("The similarity of the classifiers falls in the order of data similarity: (i,i') > (i,j) > (j,k) > (i,k) "
              "(classes: i, i' 0-4; j 2-6; k 5-9).",
              over_seeds("tidy", "cosine", "pair", in_order(list(PAIRS), ".3f"))),
        Claim("A classifier's rows are more similar for a class that both clients have or both lack than for one that "
              "only one of them has.",
              over_seeds("_shared", "cosine", "owners", under([ONE], [SAME], form=".3f"))),
        Claim("For a class that only one of the two has, these rows are hardly similar (cosine below 0.5).",
              over_seeds("tidy", "cosine", "owned_by", beyond(ONE, 0.5, -1, ".3f"))),
    ),
)  # fmt: skip
