"""Table 2: which measure of similarity orders pairs of clients as their data does?"""

import numpy as np
import pandas as pd

from fedlib import figures
from fedlib.analysis.tables import mean_std, only, rows_of, spearman
from fedlib.claims import Claim, first, in_order, negated, ours, over_seeds
from fedlib.engine.result import RunResult
from fedlib.experiments.item import Found, Item, Tables
from fedlib.experiments.paper_numbers import paper_table
from fedlib.experiments.pfedsim.task import ALONE, PAIRS, SMALLER_ALONE, four_subsets, ten_clients

MEASURES = {"data": "data similarity", "cs": "CS (cosine between classifiers)", "wdb": "WDB (1/batch-norm distance)",
            "mdb": "MDB (cosine of updates)", "ldb": "LDB (loss difference)"}  # fmt: skip
ON_TEN = ("cs", "mdb", "wdb", "ldb")


def on_pairs(r: RunResult) -> pd.DataFrame:
    """One row a measure and pair; value_other_way: of the pair's clients in the other order."""
    lines = [(m, p, r.arrays[m][a, b], r.arrays[m][b, a]) for m in MEASURES for p, (a, b) in PAIRS.items()]
    return pd.DataFrame(lines, columns=["measure", "pair", "value", "value_other_way"])


def rank_correlations(r: RunResult) -> pd.DataFrame:
    """One row a measure: its rank correlation over all pairs with data similarity and with the cosine of labels."""
    upper = np.triu_indices(r.spec.num_clients, 1)
    lines = [
        (m, MEASURES[m], *(spearman(r.arrays[m][upper], r.arrays[like][upper]) for like in ("data", "label_cosine")))
        for m in ON_TEN
    ]
    return pd.DataFrame(lines, columns=["measure", "named", "rank_correlation", "with_label_cosine"])


def analyse(s: dict, found: Found) -> Tables:
    """tidy: one row a measure, pair and seed; ten_clients: one row a measure and seed, over 45 pairs."""
    four, ten = ({key: found[key] for key in runs(s)} for runs in (four_subsets, ten_clients))
    both = ((four, on_pairs), (ten, rank_correlations))
    tidy, ranks = (rows_of(runs, ("clients", "seed"), of).drop(columns="clients") for runs, of in both)
    printed, compare = paper_table("pfedsim", "2").replace({"measure": {"data_similarity": "data"}}), []
    for measure, label in MEASURES.items():
        paper = only(printed, measure=measure).set_index("pair")["value"].astype(float)
        own, line = only(tidy, measure=measure), {"measure": label}
        for pair in PAIRS:
            line |= {f"{pair} paper": f"{paper[pair]:.2g}", f"{pair} ours": mean_std(only(own, pair=pair)["value"])}
        means = own.groupby("pair")["value"].mean()[list(PAIRS)]
        compare.append(line | {"paper's order": falling(paper), "our order": falling(means)})
    return {"tidy": tidy, "compare": pd.DataFrame(compare), "ten_clients": ranks}


def falling(values: pd.Series) -> str:
    """The pairs, the largest value first."""
    return " > ".join(values.sort_values(ascending=False, kind="stable").index)


def follows_the_data(measure: str, value: str = "value"):
    """The measure falls in the data's order of the pairs."""
    return over_seeds("tidy", value, "pair", in_order(list(PAIRS), ".3f"), measure=measure)


ITEM = Item(
    title="pFedSim Table 2: measures of client similarity",
    claim="Only the similarity of classifiers (CS) orders pairs of clients as their data does.",
    smaller=SMALLER_ALONE,
    settings=ALONE,
    minutes={"smoke": 0.1, "quick": 0.1, "paper": 30},
    runs=lambda s: {**four_subsets(s), **ten_clients(s)},
    analyse=analyse,
    figure=lambda tables: figures.similarity_measures(tables["tidy"], tables["ten_clients"], MEASURES, list(PAIRS)),
    claims=(
        Claim("CS (cosine of classifiers) orders the four pairs of clients (classes: i, i' 0-4; j 2-6; k 5-9) by data "
              "similarity.", follows_the_data("cs")),
        *(Claim(f"{MEASURES[m]} does not order the four pairs by data similarity.", negated(follows_the_data(m)))
          for m in ("wdb", "mdb", "ldb")),
        ours("Judged on the other client's data, LDB does not order the four pairs by data similarity either.",
             negated(follows_the_data("ldb", "value_other_way"))),
        ours("On 45 pairs instead of 4, CS has the highest rank correlation with data similarity of the four measures.",
             over_seeds("ten_clients", "rank_correlation", "named", first(MEASURES["cs"], ".2f"))),
    ),
)  # fmt: skip
