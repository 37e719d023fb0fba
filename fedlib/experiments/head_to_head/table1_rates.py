"""Table 1: every method's learning rate, chosen from one grid by the validation parts."""

from dataclasses import replace

import numpy as np
import pandas as pd

from fedlib import figures
from fedlib.analysis.accuracies import means
from fedlib.analysis.readings import Reading
from fedlib.claims import Verdict, apart, decided, implementation, not_tested, ours, unless, verdict
from fedlib.engine.result import RunResult
from fedlib.experiments.head_to_head import task
from fedlib.experiments.head_to_head.task import FOUR
from fedlib.experiments.item import Found, Tables, per_profile

AT = " at "
LEAST = 2  # points of validation accuracy


def on_validation(r: RunResult, column: str = "") -> list[Reading]:
    """Accuracy on the validation part, of the models that are tested first; mean over clients."""
    if r.status != "finished":
        return []
    return [Reading(r.point, True, float((r.arrays["val_correct"] / r.arrays["val_tests"]).mean()))]


def every_rate(s: dict) -> dict[str, dict]:
    """Every method with every rate of the grid."""
    return {f"{name}{AT}{rate:g}": own | {"lr": rate} for name, own in task.rows(s).items() for rate in s["rates"]}


TABLE = replace(
    task.TABLE, task=task.conditions, rows=every_rate, numbers=(), read=lambda s: on_validation,
    applies=lambda row, column: task.runs_in(row.partition(AT)[0], column),
)  # fmt: skip


def analyse(s: dict, found: Found) -> Tables:
    """chosen: by task and method the accuracy with every rate, in percent, the best rate and the one in use; compare:
    the rates in use beside those that the papers print for all their methods; _losses: by how many points the rate in
    use is below the best."""
    tables = TABLE.analyse(s, found)
    m, lines, losses = means(tables), [], []
    for column in dict.fromkeys(column for _, column, _ in found):
        for name in (name for name in s["methods"] if task.runs_in(name, column)):
            tried = [rate for rate in s["rates"] if (f"{name}{AT}{rate:g}", column, 0) in found]
            own = {rate: round(m[key].iloc[0], 9) for rate in tried if (key := (column, f"{name}{AT}{rate:g}")) in m}
            if own:
                shown = {f"{r:g}": f"{own[r]:.1f}" if r in own else "diverged" for r in tried}
                used = task.rate(s, column, name)
                best = max(own, key=lambda rate: (own[rate], rate == used))  # of equally good ones the one in use
                lines.append({"task": column, "method": name, **shown, "best": best, "in use": used})
                losses.append({"task": column, "method": name, "points": own[best] - own.get(used, -np.inf)})
    names = ["task", "method", *(f"{rate:g}" for rate in s["rates"]), "best", "in use"]
    chosen = pd.DataFrame(lines, columns=names).fillna("")
    losses = pd.DataFrame(losses, columns=["task", "method", "points"])
    return {**tables, "chosen": chosen, "compare": beside_the_papers(chosen), "_losses": losses}


def beside_the_papers(chosen: pd.DataFrame) -> pd.DataFrame:
    """The rates in use, one row a method, one column a task, and the papers' own."""
    columns = list(dict.fromkeys(chosen["task"]))
    wide = chosen.set_index(["method", "task"])["in use"].unstack().reindex(dict.fromkeys(chosen["method"]))
    compare = pd.DataFrame({"method": wide.index})
    for column in columns:
        compare[f"{column}: ours"] = ["" if rate != rate else f"{rate:g}" for rate in wide[column]]
        compare[f"{column}: paper, all methods"] = f"{task.at_scale('paper', column)['lr']:g}"
    return compare


def lacking(tables) -> str:
    """How many runs are missing: another rate may be the best then."""
    missing = (~tables["_columns"]["ended"]).sum()
    return f"not all rates of the grid were run: {missing} runs are missing" if missing else ""


@unless(lacking)
def as_chosen(tables) -> Verdict:
    """Every rate in use is less than LEAST points below the best: the rates were chosen on earlier runs, and rounding
    decides between those that are about as good."""
    losses = tables["_losses"]
    other = losses[losses["points"] != 0]
    said = [f"{line.task}, {line.method}, by {line.points:.1f} points" for line in other.itertuples()]
    found = f"{len(losses) - len(other)} of {len(losses)} do best"
    return verdict((losses["points"] < LEAST).all(), "; not ".join([found, *said]))


@unless(lacking)
def inside(tables) -> Verdict:
    """No rate in use is the smallest or the largest of the grid."""
    chosen = tables["chosen"]
    grid = [float(name) for name in chosen.columns[2:-2]]
    ends = {end: (chosen["in use"] == rate).sum() for end, rate in (("smallest", grid[0]), ("largest", grid[-1]))}
    said = [f"{count} of {len(chosen)} are the {end}" for end, count in ends.items()]
    return verdict(not any(ends.values()), ", ".join(said))


@unless(lacking)
def at_a_rate_of_another(tables) -> Verdict:
    """With FedAvg+FT's rate every one of the four methods is less than LEAST points below its best."""
    m, chosen = means(tables), tables["chosen"].set_index(["task", "method"])
    margins, said = {}, []
    for column in dict.fromkeys(key[0] for key in chosen.index):
        for name in FOUR:
            if any((column, other) not in chosen.index for other in (name, "fedavg_ft")):
                return not_tested(f"missing runs: {name} or FedAvg+FT ({column})")
            own, other = chosen["best"][column, name], chosen["best"][column, "fedavg_ft"]
            if own != other:
                there = (column, f"{name}{AT}{other:g}")
                if there not in m:  # it diverged
                    return verdict(False, f"{column}: {name} diverges with {other:g}")
                loss = m[column, f"{name}{AT}{own:g}"] - m[there]
                margins[f"{column}: {name}"] = LEAST - loss
                said.append(f"{column}: {name} {apart(-loss)} with {other:g} instead of {own:g}")
    if not margins:
        return verdict(True, "all have FedAvg+FT's rate")
    return decided(margins, f"{'; '.join(said)}; threshold of {LEAST} points, set by us")


ITEM = TABLE.item(
    title="Head to head, Table 1: learning rates",
    claim="Every method has its best learning rate, chosen from one grid on validation data.",
    smaller=task.ON_FOUR,
    smaller_reduced=f"{task.ONE_TASK}; {task.RATES_TRIED}",
    settings=per_profile(task.SETTINGS, seeds=1),
    minutes={"smoke": 0.1, "quick": 1.5, "reduced": 90, "paper": 6000},
    analyse=analyse,
    diverging=True,
    figure=lambda tables: figures.rates(tables["chosen"]),
    shown={"chosen": "Validation accuracy, %, by learning rate; the best learning rate and the one in use"},
    claims=(
        implementation(f"The learning rates in use have the highest validation accuracy, or at most {LEAST} points "
                       "less.", as_chosen),
        ours("No learning rate in use lies at an end of the grid.", inside),
        ours("With the best learning rate of FedAvg+FT each of the four papers' methods loses less than 2 points.",
             at_a_rate_of_another),
    ),
)  # fmt: skip
