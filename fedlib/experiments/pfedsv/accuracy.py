"""Tables 1 and 2: the accuracy of eleven methods, with two classes a client and with Dirichlet shares."""

from __future__ import annotations

import numpy as np
import pandas as pd

from fedlib import figures
from fedlib.engine.result import RunResult
from fedlib.experiments.items import NOT_TESTED, Claim, Item, Verdict, only, paper_table, verdict
from fedlib.experiments.pfedsim.accuracy import needing as needing_at
from fedlib.experiments.pfedsim.study import spearman
from fedlib.experiments.pfedsv.task import (
    METHODS,
    SCALES,
    SETTINGS,
    SMALLER,
    beside,
    clients_of,
    final_rows,
    means,
    printed,
    run_spec,
    shown_dataset,
)
from fedlib.spec import RunSpec

SINGLE_MODEL = ("fedavg", "fedprox")
CLUSTERED = ("ifca", "fedem")
PERSONAL = ("pfedme", "fedfomo", "fedamp", "pfedhn", "pfedsv")
TABLES = {"ring": "1", "dirichlet": "2"}


def accuracy_specs(s: dict, partition: str) -> list[RunSpec]:
    return [
        run_spec(s, method, scale, partition, seed)
        for seed in range(s["seeds"])
        for scale in SCALES
        for method in s["methods"]
    ]


def analyse_accuracy(s: dict, results: list[RunResult], partition: str) -> dict[str, pd.DataFrame]:
    """tidy: one row a run, evaluation point of the last round and test distribution (`final_rows`); of the item's own partition.

    Table 2 also has the runs of Table 1, for the comparison of the two: they are in the table "both".
    """
    both = pd.DataFrame([row for r in results for row in final_rows(r)])
    tidy = only(both, partition=partition).drop(columns="partition").reset_index(drop=True)
    return {
        "tidy": tidy,
        "compare": compared(tidy, s, TABLES[partition]),
        "points": by_point(tidy),
        "ranks": ranks(tidy, s, TABLES[partition]),
        "both": partition_means(both),
    }


def compared(tidy: pd.DataFrame, s: dict, table: str) -> pd.DataFrame:
    """Paper | ours | difference at both scales, tested on the clients' own test parts, and ours on all test parts."""
    rows = []
    for method in s["methods"]:
        own = only(tidy, method=method, headline=True)
        row = {"method": method, "tested at": own["point"].iloc[0]}
        for scale in SCALES:
            at = only(own, scale=scale)
            percent = {on: 100 * only(at, tested_on=on)["accuracy"] for on in ("own", "all")}
            paper, ours, difference = beside(printed(table, s, scale, method), percent["own"])
            row[f"{scale}: paper, {shown_dataset(s)}"] = paper
            row[f"{scale}: ours, {s['dataset']}, {clients_of(s, scale)}"] = ours
            row[f"{scale}: difference"] = difference
            row[f"{scale}: ours, all classes"] = f"{percent['all'].mean():.2f}"
        rows.append(row)
    return pd.DataFrame(rows)


def by_point(tidy: pd.DataFrame) -> pd.DataFrame:
    """Mean accuracy in percent of every method at every point that was evaluated, tested on the clients' own test parts."""
    own = only(tidy, tested_on="own")
    wide = 100 * own.groupby(["method", "point", "scale"], sort=False)["accuracy"].mean().unstack()
    return wide[list(SCALES)].round(2).reset_index()


def ranks(tidy: pd.DataFrame, s: dict, table: str) -> pd.DataFrame:
    """Spearman's rank correlation of our methods' means with the paper's readable cells: scale, tested_on, methods, rank_correlation."""
    rows = []
    for scale in SCALES:
        for tested_on in ("own", "all"):
            ours = means({"tidy": tidy}, scale=scale, tested_on=tested_on)
            cells = {m: printed(table, s, scale, m) for m in ours.index}
            known = [m for m in ours.index if cells[m] is not None]
            paper = np.array([cells[m]["value"] for m in known])
            rho = spearman(ours[known].to_numpy(), paper) if len(known) > 2 else 0.0
            rows.append((scale, tested_on, len(known), rho))
    return pd.DataFrame(rows, columns=["scale", "tested_on", "methods", "rank_correlation"])


def partition_means(both: pd.DataFrame) -> pd.DataFrame:
    """Mean accuracy in percent at the headline point: method, scale, tested_on, then one column for each partition that was run."""
    rows = both[both["headline"]]
    wide = 100 * rows.groupby(["method", "scale", "tested_on", "partition"], sort=False)["accuracy"].mean().unstack()
    return wide.reset_index().rename_axis(columns=None)


# claims --------------------------------------------------------------------------------------------------------------


def needing(*methods: str):
    """A check that is made only where these methods were run."""
    return needing_at(*methods, alphas=())


def at_scales(tables, say, scales=SCALES, tested_on: str = "own") -> Verdict:
    """A verdict over scales: say(means at a scale) -> (whether it holds, evidence)."""
    found = {scale: say(means(tables, scale=scale, tested_on=tested_on)) for scale in scales}
    return verdict(
        all(ok for ok, _ in found.values()), "; ".join(f"{k} clients: {text}" for k, (_, text) in found.items())
    )


def listed(series: pd.Series) -> str:
    """ "a 12.3, b 4.5"."""
    return ", ".join(f"{name} {value:.1f}" for name, value in series.items())


@needing(*METHODS)
def check_best(tables, tested_on: str = "own") -> Verdict:
    def say(m):
        others = m.drop("pfedsv")
        lead = m["pfedsv"] - others.max()
        return lead > 0, f"pfedsv {m['pfedsv']:.1f}, {lead:+.1f} against the best other, {others.idxmax()}"

    return at_scales(tables, say, tested_on=tested_on)


@needing("local", *SINGLE_MODEL, *CLUSTERED, *PERSONAL)
def check_single_models_lowest(tables) -> Verdict:
    def say(m):
        best, rest = m[list(SINGLE_MODEL)].max(), m.drop(list(SINGLE_MODEL))
        holds = best < rest.min() and best < m["local"] - 10
        return (
            holds,
            f"{listed(m[list(SINGLE_MODEL)])}; local {m['local']:.1f}, lowest other {rest.idxmin()} {rest.min():.1f}",
        )

    return at_scales(tables, say)


@needing("local", *SINGLE_MODEL, *CLUSTERED)
def check_clusters_between(tables) -> Verdict:
    def say(m):
        low, high = m[list(SINGLE_MODEL)].max(), m["local"]
        return bool(
            m[list(CLUSTERED)].between(low, high).all()
        ), f"{low:.1f} (single models) < {listed(m[list(CLUSTERED)])} < {high:.1f} (local)"

    return at_scales(tables, say)


@needing(*METHODS)
def check_pfedhn_second(tables) -> Verdict:
    def say(m):
        return m.index[
            1
        ] == "pfedhn", f"best first: {listed(m.head(4))}; pfedhn is number {m.index.get_loc('pfedhn') + 1}"

    return at_scales(tables, say, ("many",))


@needing(*PERSONAL)
def check_fomo_and_hn_next(tables) -> Verdict:
    def say(m):
        m = m[[name for name in m.index if name in PERSONAL]]
        return set(m.index[1:3]) == {"fedfomo", "pfedhn"} and m.index[0] == "pfedsv", f"best first: {listed(m)}"

    return at_scales(tables, say)


def check_many_below_few(tables) -> Verdict:
    few, many = (means(tables, scale=scale, tested_on="own") for scale in SCALES)
    higher = [m for m in few.index if many[m] >= few[m]]
    change = (many[few.index] - few).median()
    return verdict(not higher, f"median change {change:+.1f} points; not lower: {', '.join(higher) or 'none'}")


@needing("fedavg")
def check_fedavg_lowest(tables) -> Verdict:
    return at_scales(
        tables, lambda m: (m.index[-1] == "fedavg", f"fedavg {m['fedavg']:.1f}; lowest {listed(m.tail(2))}")
    )


def check_harder_than_ring(tables, tested_on: str) -> Verdict:
    rows = only(tables["both"], tested_on=tested_on)
    if not {"ring", "dirichlet"} <= set(rows.columns):
        return Verdict(NOT_TESTED, "needs the runs of Table 1")
    change = (rows["dirichlet"] - rows["ring"]).set_axis(rows["method"] + ", " + rows["scale"])
    evidence = f"accuracy lower in {int((change < 0).sum())} of {len(change)} cells; from {change.idxmin()} {change.min():+.1f} to {change.idxmax()} {change.max():+.1f}"
    return verdict(bool((change < 0).all()), evidence)


@needing("local", "pfedsv")
def check_gain_needs_all_classes(tables) -> Verdict:
    gains = {
        on: [float(m["pfedsv"] - m["local"]) for m in (means(tables, scale=k, tested_on=on) for k in SCALES)]
        for on in ("own", "all")
    }
    evidence = "; ".join(
        f"{k} clients: {own:+.1f} on own test parts, {every:+.1f} on all classes"
        for k, own, every in zip(SCALES, gains["own"], gains["all"])
    )
    return verdict(
        all(every > own for own, every in zip(gains["own"], gains["all"])), f"pfedsv minus local, {evidence}"
    )


@needing("local", "fedfomo", "fedamp", "pfedsv")
def check_best_at_post(tables) -> Verdict:
    rows = only(tables["tidy"], point="post", tested_on="own")
    parts, holds = [], True
    for scale in SCALES:
        m = 100 * only(rows, scale=scale).groupby("method")["accuracy"].mean().sort_values(ascending=False)
        holds &= m.index[0] == "pfedsv"
        parts.append(f"{scale} clients: {listed(m.head(4))}; pfedsv is number {m.index.get_loc('pfedsv') + 1}")
    return verdict(bool(holds), "; ".join(parts))


def check_ranks(tables) -> Verdict:
    own = only(tables["ranks"], tested_on="own")
    text = ", ".join(f"{r.scale} clients {r.rank_correlation:.2f} ({r.methods} methods)" for r in own.itertuples())
    return verdict(bool((own["rank_correlation"] >= 0.8).all()), f"Spearman's correlation: {text}")


# items ---------------------------------------------------------------------------------------------------------------

BEST = Claim("pFedSV is the most accurate of all eleven methods at both scales.", check_best)
FEWER = Claim("Every method is less accurate with many clients than with few.", check_many_below_few)
AT_POST = Claim(
    "(Ours) pFedSV is also the best of those methods that have a trained model of each client, all tested at `post`.",
    check_best_at_post,
)
RANKS = Claim(
    "(Ours) The methods' order is that of the paper's readable cells: rank correlation of at least 0.8 at both scales.",
    check_ranks,
)


SMOKED = ("local", "fedavg", "fedfomo", "fedamp", "pfedsv")  # in smoke, which must be quick


def settings(**seeds: int) -> dict[str, dict]:
    """Settings per profile with all methods, in smoke with some, and so many seeds."""
    methods = {"smoke": SMOKED, "quick": METHODS, "paper": METHODS}
    return {p: {**own, "methods": methods[p], "seeds": seeds[p]} for p, own in SETTINGS.items()}


TABLE1 = Item(
    name="pfedsv/table1_pathological",
    title="pFedSV Table 1: accuracy with two classes a client",
    claim="With two classes a client, pFedSV is more accurate than local training and nine federated methods.",
    smaller=SMALLER,
    settings=settings(smoke=1, quick=1, paper=5),
    minutes={"smoke": 0.3, "quick": 1.5, "paper": 600},
    specs=lambda s: accuracy_specs(s, "ring"),
    analyse=lambda s, results: analyse_accuracy(s, results, "ring"),
    figure=lambda tables: figures.accuracies_by_scale(tables["tidy"], paper_table("pfedsv", "1"), METHODS),
    claims=(
        BEST,
        Claim(
            "FedAvg and FedProx are lowest, at least 10 points below Separate (`local`).", check_single_models_lowest
        ),
        Claim("IFCA and FedEM lie between the single models and Separate.", check_clusters_between),
        Claim("With many clients pFedHN is second.", check_pfedhn_second),
        FEWER,
        AT_POST,
        RANKS,
    ),
)

TABLE2 = Item(
    name="pfedsv/table2_dirichlet",
    title="pFedSV Table 2: accuracy with Dirichlet shares",
    claim="With Dirichlet shares the task is harder for every method, and pFedSV leads by more.",
    smaller=SMALLER,
    settings=settings(smoke=1, quick=1, paper=5),
    minutes={"smoke": 0.3, "quick": 1.5, "paper": 600},
    specs=lambda s: [*accuracy_specs(s, "dirichlet"), *accuracy_specs(s, "ring")],
    analyse=lambda s, results: analyse_accuracy(s, results, "dirichlet"),
    figure=lambda tables: figures.accuracies_by_scale(tables["tidy"], paper_table("pfedsv", "2"), METHODS),
    claims=(
        BEST,
        Claim("FedAvg is lowest at both scales.", check_fedavg_lowest),
        Claim(
            "Of the methods with personal models FedFomo and pFedHN come next, then FedAMP and pFedMe.",
            check_fomo_and_hn_next,
        ),
        FEWER,
        Claim(
            "Dirichlet shares are harder than two classes a client (Table 1) for every method.",
            lambda tables: check_harder_than_ring(tables, "own"),
        ),
        Claim(
            "(Ours) Tested on the classes of all clients, pFedSV is the most accurate at both scales.",
            lambda tables: check_best(tables, "all"),
        ),
        Claim(
            "(Ours) pFedSV gains more over Separate where clients are tested on all classes than on their own.",
            check_gain_needs_all_classes,
        ),
        AT_POST,
        RANKS,
    ),
)

ITEMS = (TABLE1, TABLE2)
