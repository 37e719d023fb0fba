"""What FedSimSup's tables share: the federated task in five sizes, and the methods with the paper's parameters."""

from collections.abc import Mapping

import pandas as pd

from fedlib import figures
from fedlib.analysis.accuracies import without
from fedlib.analysis.names import proper, titled
from fedlib.analysis.readings import BESIDE, Read, last_round
from fedlib.analysis.uncertainty import Interval
from fedlib.claims import Claim, Verdict, below, best, decided, gap, like_the_paper, not_tested, ours
from fedlib.claims.checks import on_shared_seeds
from fedlib.experiments.accuracy_table import AccuracyTable
from fedlib.experiments.item import Found, per_profile
from fedlib.experiments.paper_numbers import partition_of

METHODS = (
    "local", "fedavg", "fedprox", "perfedavg", "fedrep", "fedproto", "fedpac", "fedsimsup",
)  # as in the paper, from top to bottom  # fmt: skip
SMOKED = ("local", "fedavg", "fedrep", "fedsimsup")  # in smoke, which must be quick
REPEATED = ("local", "fedavg", "fedrep", "fedpac", "fedsimsup")  # reduced: with three seeds
SINGLE_MODEL = ("fedavg", "fedprox")
PERSONAL = tuple(method for method in METHODS if method not in SINGLE_MODEL)
CLIENTS = {"100": "many_clients", "50": "few_clients"}
WRITERS = "femnist, its 3597 writers"  # of whom 1 % take part in a round, and 10 % of those of Local
FEMNIST = {WRITERS: {"dataset": "femnist", "scheme": "writer", "num_clients": 3597, "join_ratio": 0.01,
                     "rows": {"local": {"join_ratio": 0.1}}}}  # fmt: skip

# By profile: smoke, quick, paper. Unpublished, and ours: test_fraction, min_size, what is evaluated when.
SETTINGS = per_profile(
    dataset=["digits", "digits", None], many_clients=[8, 20, 100], few_clients=[6, 10, 50], join_ratio=[0.5, 0.3, 0.1],
    rounds=[2, 15, 1000], eval_every=[1, 5, 50], lr=0.1, test_fraction=[0.5, 0.5, 0.2], min_size=[8, 10, 40],
    seeds=[1, 1, 3], seeds_of_claims=[1, 1, 3], methods=[SMOKED, METHODS, METHODS],
    reduced=dict(datasets=("cifar10", "cifar100"), rounds=200, eval_every=20, seeds=1, lr=0.05, pixels="symmetric",
                 average="pooled", fedavg_points=("glob", "ft(5)")),
)  # fmt: skip
SMALLER = (
    "digits (16x16; paper: CIFAR); 30 % of 20 and of 10 clients in a round (paper: 10 % of 100 and of 50); 15 rounds "
    "(paper: 1,000); half of each client's data for testing; one seed"
)
MANY = SMALLER.replace(" and of 10", "").replace(" and of 50", "")  # of items without few clients
LESS = (
    "200 rounds (paper: 1,000); learning rate 0.05 (paper: 0.1, at which runs diverge) with pixels "
    "scaled to [-1, 1]; accuracy pooled over test images (paper: not stated)"
)
SEEDS = "three seeds for Local, FedAvg, FedRep, FedPAC and FedSimSup, one for the others"

# What the paper states of its baselines. Per-FedAvg's rates: the inner one as printed, the outer one is the run's.
PRESETS = {"perfedavg": {"variant": "HF", "alpha": 0.001, "tau": 4, "ft_epochs": 3}, "fedrep": {"E_h": 2, "E_f": 3}}


def preset(method: str) -> dict:
    """A method as a row of a table."""
    return {"method": method, **PRESETS.get(method, {})}


def methods(s: dict) -> dict[str, dict]:
    """The methods of the settings; FedAvg is tested after fine-tuning, too, where these say so."""
    points = {"fedavg": {"eval_points": s["fedavg_points"]}} if "fedavg_points" in s else {}
    return {method: preset(method) | points.get(method, {}) for method in s["methods"]}


def average(s: dict) -> str:
    """What an accuracy is: the share of all test images ("pooled", the only one at which the printed level is met), or,
    in the profiles that were there before, the mean over clients."""
    return s.get("average", "client_mean")


def read(s: dict) -> Read:
    return last_round("pooled", "client_mean") if average(s) == "pooled" else last_round("client_mean")


def of_column(s: dict, own: dict) -> dict:
    """What the runs of a column have in common; own: data set, partition and "clients", as printed.

    On digits there are as many of ten classes as of CIFAR-10's.
    """
    task = {**s, "model": "lenet5", **own} | ({"dataset": s["dataset"]} if "dataset" in s else {})
    return task if "num_clients" in own else task | {"num_clients": s[CLIENTS[own["clients"]]]}


def table(number: str, columns: dict[str, dict], rows=None, **more) -> AccuracyTable:
    """One of the tables; columns: by name data set, partition and clients, those of CIFAR-10 only on digits."""

    def shown(s: dict) -> tuple[str, ...]:
        there = ("cifar10",) if "dataset" in s else s.get("datasets", ())
        return tuple(name for name, own in columns.items() if not there or own["dataset"] in there)

    return AccuracyTable(
        "fedsimsup", (number,), shown, lambda s, column: of_column(s, columns[column]),
        rows or methods,
        lambda cell: WRITERS if cell["dataset"] == "femnist" else f"{partition_of(cell)}, {cell['clients']}",
        **{"read": read, "also": {f"ours, {BESIDE['client_mean']}": {"point": BESIDE["client_mean"]}},
           "dataset": lambda s: None, "seeded": ("seed", "partition_seed"), "seeds": repeated, **more},
    )  # fmt: skip


def repeated(s: dict, row: str, column: str) -> int:
    """Seeds of a cell: more for the methods that claims name."""
    return max(s["seeds"], s["seeds_of_claims"]) if row in REPEATED else s["seeds"]


def columns_of(**shares: tuple) -> dict[str, dict]:
    """Columns by name; shares: by data set the parameters, alphas below 1 and numbers of classes from 1 on."""
    found = {}
    for dataset, values in shares.items():
        for value in values:
            own = {"alpha": value} if value < 1 else {"scheme": "pat_balanced", "classes_per_client": value}
            share = f"Dir({value:g})" if value < 1 else f"{value} classes"
            found |= {f"{dataset}, {share}, {c}": {"dataset": dataset, "clients": c, **own} for c in CLIENTS}
    return found


COMMON = dict(
    smaller=SMALLER, smaller_reduced=f"{LESS}; {SEEDS}", settings=SETTINGS,
)  # fmt: skip
MORE = (  # claims of Tables 1 and 2
    ours("FedSimSup outperforms FedRep in every setting.", below(["fedrep"], ["fedsimsup"])),
    ours("FedSimSup is also the best of the methods with personalised models, all evaluated after local training "
         "(`post`).", best("fedsimsup", ("local", "fedrep", "fedproto", "fedpac"), point="post")),
    ours("The methods' order is that of the paper: rank correlation above 0.8 in every setting.",
         like_the_paper(0.8, PERSONAL, METHODS)),
    ours("FedSimSup outperforms FedPAC in every setting.", below(["fedpac"], ["fedsimsup"])),
)  # fmt: skip


def wider(text: str, one: str, other: str) -> Claim:
    """A claim that FedSimSup's lead over the best other is larger in the columns whose name has `other` for `one`."""

    def check(tables) -> Verdict:
        (found, there, over), lead = on_shared_seeds(tables), gap("fedsimsup")
        both = " and ".join(name.strip(",") for name in (one, other))
        pairs = [(name, name.replace(one, other)) for name in there if one in name]
        pairs = [pair for pair in pairs if pair[1] in there]
        if lacks := without(found, METHODS, sum(pairs, ())) or ("" if pairs else f"needs columns of {both}"):
            return not_tested(lacks)
        margins = {f"{b} over {a}": lead(found[b]) - lead(found[a]) for a, b in pairs}
        leads = {name: Interval.of(lead(found[name])).text() for pair in pairs for name in pair}
        return decided(
            margins, "leads over the best other: " + ", ".join(f"{n}: {lead}" for n, lead in leads.items()), over
        )

    return Claim(text, check)


# accuracy over the rounds, for the figures that show it ---------------------------------------------------------------


def over_rounds(found: Found, average: str) -> pd.DataFrame:
    """One row a run and evaluated round: column, row, seed, round, accuracy ("client_mean" or "pooled"); found: by row,
    column and seed."""
    lines = [
        (column, row, seed, round, accuracy)
        for (row, column, seed), r in found.items()
        for round, accuracy in zip(*r.curve(average))
    ]
    return pd.DataFrame(lines, columns=["column", "row", "seed", "round", "accuracy"])


def by_round(tidy: pd.DataFrame, rounds: Mapping[str, int]) -> pd.DataFrame:
    """Mean over seeds, in percent, after some rounds (by title), one row a column and row of the table."""
    means = 100 * tidy.groupby(["column", "row", "round"], sort=False)["accuracy"].mean()
    shown = {title: means.xs(t, level="round") for title, t in rounds.items()}
    return pd.DataFrame(shown).round(2).reset_index().rename(columns={"column": "task"})


def picture(tables: Mapping[str, pd.DataFrame], about: str):
    """One panel a column, one line a row, and in the title which rank the row `about` has in the end and on average."""
    panels, instead = {}, tables["tidy"].attrs.get("data", "")
    for (column, row, _), own in tables["tidy"].groupby(["column", "row", "seed"], sort=False):
        curve = (own["round"].tolist(), own["accuracy"].tolist())
        panels.setdefault(titled(column, instead), {}).setdefault(row, []).append(curve)
    end = tables["tidy"].groupby(["column", "row", "seed"], sort=False)["accuracy"].last()
    means = end.groupby(["column", "row"], sort=False).mean()
    rank = means.groupby("column", sort=False).rank(ascending=False).unstack()
    ranked = rank.iterrows() if about in rank else ()
    said = [f"{own[about]:.0f} of {own.count()} ({titled(column, instead)})" for column, own in ranked]
    title = f"Rank of {proper(about)} in the last round: {', '.join(said) or 'not run yet'}"
    return figures.accuracy_by_round(panels, about=about, says=title)
