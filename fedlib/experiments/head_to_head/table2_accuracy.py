"""Table 2: the four papers' methods on each other's tasks, beside simple methods, under equal conditions."""

from collections.abc import Callable, Sequence

import pandas as pd

from fedlib.analysis.accuracies import differences, without
from fedlib.analysis.names import proper
from fedlib.claims import across_columns, apart, below, best_of, in_columns, of_all, ours, within
from fedlib.claims.checks import on_shared_seeds
from fedlib.experiments.head_to_head import task
from fedlib.experiments.head_to_head.task import CLASSIFIERS_ONLY, FOUR, OWNERS, SPLIT
from fedlib.experiments.item import Found, Tables

TABLE = task.TABLE
BYTES = 4  # of a number in float32


def costs(found: Found) -> pd.DataFrame:
    """What a method costs in a task, one row each: megabytes down and up of a client's turn on average, both together
    and the seconds of training a sample as ratios to FedAvg's of the same seeds (means over seeds)."""
    lines = []
    for (row, column, seed), r in found.items():
        turns = r.arrays["traffic"].mean(0) * BYTES / 1e6
        lines.append((column, row, seed, *turns, turns.sum(), r.seconds["per_sample"]))
    frame = pd.DataFrame(lines, columns=["task", "method", "seed", "MB down", "MB up", "MB", "seconds"])
    base = frame[frame["method"] == "fedavg"].set_index(["task", "seed"])
    if not len(base):
        return pd.DataFrame(columns=["task", "method", "MB down", "MB up", "bytes, FedAvg = 1", "time, FedAvg = 1"])
    keys = pd.MultiIndex.from_frame(frame[["task", "seed"]])
    for name, title in (("MB", "bytes, FedAvg = 1"), ("seconds", "time, FedAvg = 1")):
        frame[title] = frame[name].to_numpy() / base[name].reindex(keys).to_numpy()
    shown = ["MB down", "MB up", "bytes, FedAvg = 1", "time, FedAvg = 1"]
    return frame.groupby(["task", "method"], sort=False)[shown].mean().round(3).reset_index()


def analyse(s: dict, found: Found) -> Tables:
    """Besides the accuracies: costs; leads, every method's over FedAvg+FT and over local-only training; _by_task,
    those over FedAvg+FT task by task: column, row, difference, low, high."""
    tables = TABLE.analyse(s, found)
    others = (row for row in s["methods"] if row != "fedavg_ft")
    by_task = [differences(tables, row, "fedavg_ft")[0].assign(row=row) for row in others]
    by_task = pd.concat([pd.DataFrame(columns=["column", "row", "difference", "low", "high"]), *by_task])
    return {**tables, "costs": costs(found), "leads": leads(tables), "_by_task": by_task}


def leads(tables) -> pd.DataFrame:
    """By row, averaged over the tasks: its lead over FedAvg+FT and over local-only training, in points, with
    intervals."""

    def lead(row: str, other: str) -> str:
        return "" if (margin := average_lead(tables, row, other)[0]) is None else apart(margin)

    return beside_others(tables, ("fedavg_ft", "local"), lead)


def beside_others(tables, others: Sequence[str], above: Callable[[str, str], str]) -> pd.DataFrame:
    """One row a method: what `above` says of it and each of these others, nothing of itself."""
    rows = dict.fromkeys(tables["tidy"]["row"])
    lines = [(row, *("" if row == other else above(row, other) for other in others)) for row in rows]
    return pd.DataFrame(lines, columns=["method", *(f"minus {proper(other)}" for other in others)])


def average_lead(tables, row: str, other: str, **where) -> tuple[pd.Series | None, str]:
    """Draws of a row's lead over another on average over the tasks, or None and what is missing; where: as in
    `means`."""
    m, columns, _ = on_shared_seeds(tables, (row, other), **where)
    if lacks := without(m, (row, other), columns) or ("" if columns else "nothing was run"):
        return None, lacks
    return sum(m[column][row] - m[column][other] for column in columns) / len(columns), ""


def at_home(columns):
    """Each of the four is above all other rows on the task of its own paper."""
    margins, said = {}, []
    for column, m in columns.items():
        own = OWNERS[column]
        others = m.drop(columns=own)
        rival = others.iloc[0].idxmax()
        margins |= {f"{column}: {name}": m[own] - others[name] for name in others}
        said.append(f"{column}: {own} {apart(m[own] - others[rival])} relative to the best other, {rival}")
    return margins, "; ".join(said)


HOME = ours("Each of the four papers' methods is best on the task of its own paper.",
            of_all(across_columns(at_home, FOUR)))  # fmt: skip
ITEM = TABLE.item(
    title="Head to head, Table 2: the four papers' methods on each other's tasks",
    claim=HOME.text,
    **task.COMMON,
    minutes={"smoke": 0.1, "quick": 0.5, "reduced": 180, "paper": 15000},
    analyse=analyse,
    shown={
        "leads": "Leads on average over the tasks, in points",
        "costs": "Cost per client and participation: megabytes, and multiples of FedAvg (times are rough)",
        "points": "At every evaluation point, and other averages, %",
    },
    claims=(
        HOME,
        *(ours(f"{proper(row)} outperforms FedAvg+FT on every task.", below(["fedavg_ft"], [row])) for row in FOUR),
        ours("Each of the four papers' methods outperforms local-only training on every task.", below(["local"], FOUR)),
        ours("On every task the best of the four papers' methods outperforms FedPer and FedRep.",
             in_columns(best_of(FOUR, SPLIT), (*FOUR, *SPLIT))),
        ours("FedAvg, a single global model, is less accurate than local-only training on every task.",
             below(["fedavg"], ["local"])),
        ours("FedAvg+FT outperforms local-only training on every task.", below(["local"], ["fedavg_ft"])),
        ours("pFedSV with a shared extractor (D+C) is within a point of pFedSV on every task.",
             within(["pfedsv", CLASSIFIERS_ONLY], 1)),
        ours("After local training (`post`), too, each of the four papers' methods is the best on the task of "
             "its own paper.", of_all(across_columns(at_home, FOUR, point="post"))),
    ),
)  # fmt: skip
