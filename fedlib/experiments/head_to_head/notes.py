"""Notes: which method should I use, and when? Every sentence of the answer is a claim with a verdict."""

from dataclasses import replace

import pandas as pd

from fedlib import figures
from fedlib.analysis.names import counted, proper
from fedlib.analysis.uncertainty import units
from fedlib.claims import Verdict, across_columns, apart, below, best, each_apart, ours
from fedlib.claims.verdicts import in_words
from fedlib.experiments.head_to_head import (
    fig1_bytes,
    fig2_images,
    fig3_worst,
    fig4_newcomers,
    table1_rates,
    table2_accuracy,
    task,
)
from fedlib.experiments.head_to_head.fig2_images import at_end
from fedlib.experiments.head_to_head.fig3_worst import WORST
from fedlib.experiments.head_to_head.fig4_newcomers import AFTER, TAKING
from fedlib.experiments.head_to_head.table2_accuracy import average_lead
from fedlib.experiments.head_to_head.task import FOUR
from fedlib.experiments.item import Found, Item, Runs, Tables, joined, part

PARTS = {
    "rates": table1_rates, "accuracy": table2_accuracy, "bytes": fig1_bytes, "images": fig2_images,
    "worst": fig3_worst, "newcomers": fig4_newcomers,
}  # fmt: skip
ENOUGH = 2  # points: less is not worth a more complicated method; a threshold set by us


def settings_of(name: str, s: dict) -> dict:
    """The settings of another item at this scale, with what is asked for here otherwise; of methods those it has."""
    own, usual = PARTS[name].ITEM.settings[s["scale"]], task.SETTINGS[s["scale"]]
    changed = {setting: value for setting, value in s.items() if value != usual[setting]}
    if "methods" in changed:
        every = PARTS[name].ITEM.settings["paper"]["methods"]
        changed["methods"] = tuple(method for method in every if method in s["methods"])
    return own | changed


def runs(s: dict) -> Runs:
    """The runs of all other items; many are the same."""
    return joined({name: module.ITEM.runs(settings_of(name, s)) for name, module in PARTS.items()})


def analyse(s: dict, found: Found) -> Tables:
    """tidy: that of every part; compare: one row a method, the answer at a glance; hidden: the tables of the parts."""
    tables = {}
    for name, module in PARTS.items():
        own = {key: r for key, r in part(found, name).items() if module.ITEM.diverging or r.status == "finished"}
        made = module.ITEM.analyse(settings_of(name, s), own)
        tables |= {f"_{name}.{table}": frame for table, frame in made.items()}
    tidy = pd.concat([labelled(name, tables[f"_{name}.tidy"]) for name in PARTS], ignore_index=True)
    names = ["part", "column", "row", "seed", "point", "accuracy"]
    return {**tables, "tidy": tidy[names], "compare": at_a_glance(tables)}


def labelled(name: str, frame: pd.DataFrame) -> pd.DataFrame:
    """A part's rows with the part, and with what they are of where it has several readings of a run."""
    readings = [frame[column] for column in ("of", "when") if column in frame]
    return frame.assign(part=[": ".join((name, *own)) for own in zip(*readings)] if readings else name)


def of(name: str, tables) -> dict[str, pd.DataFrame]:
    """The tables of a part."""
    start = f"_{name}."
    return {table.removeprefix(start): frame for table, frame in tables.items() if table.startswith(start)}


def at_a_glance(tables) -> pd.DataFrame:
    """Leads over FedAvg+FT on average over the tasks: in accuracy, within FedAvg's communication, of the bottom 10 %;
    up to how many images it beats local-only training; what a newcomer has after an epoch."""
    accuracy, images = of("accuracy", tables), of("images", tables)
    ahead = images["pays"].set_index("method") if len(images["pays"]) else pd.DataFrame()
    costs = accuracy["costs"].groupby("method")["bytes, FedAvg = 1"].mean()
    lines = []
    for row in dict.fromkeys(accuracy["tidy"]["row"]):
        line = {"method": row}
        for title, name, where in (
            ("accuracy", "accuracy", {}),
            ("within FedAvg's byte budget", "bytes", {}),
            ("of the bottom 10 %", "worst", WORST),
        ):  # fmt: skip
            margin = None if row == "fedavg_ft" else average_lead(of(name, tables), row, "fedavg_ft", **where)[0]
            line[f"{title}, minus {proper('fedavg_ft')}"] = "" if margin is None else apart(margin)
        beaten = [name for name in ahead.columns if proper("local") in name]
        line["above Local up to (images)"] = ahead.loc[row, beaten[0]] if row in ahead.index else ""
        line["bytes, FedAvg = 1"] = f"{costs[row]:.2f}" if row in costs.index else ""
        lines.append(line)
    return pd.DataFrame(lines, columns=None if lines else ["method"])


# checks ---------------------------------------------------------------------------------------------------------------


def seen_in(name: str, check):
    """A check of another item's tables, whose intervals are over what they are over there."""

    def elsewhere(tables) -> Verdict:
        own = of(name, tables)
        v = check(own)
        return replace(v, over=v.over or units(own)) if v.margins else v

    return elsewhere


def average(leads, item: str = "accuracy", sign: int = 1, by: float = 0, **where):
    """A check of leads (row, other) on average over the tasks: each above `by` points, or below with sign -1."""

    def judge(columns):
        gaps = {
            f"{row} over {other}": sum(m[row] - m[other] for m in columns.values()) / len(columns)
            for row, other in leads
        }
        tasks, threshold = counted(len(columns), "task"), f"; threshold of {by:g}, set by us" if by else ""
        said = f"over {tasks}: {each_apart(gaps)}{threshold}"
        return {name: sign * (gap - by) for name, gap in gaps.items()}, said

    return seen_in(item, across_columns(judge, list(dict.fromkeys(sum(leads, ()))), **where))


def one_leads(columns):
    """The best of the four, on average over the tasks, is above the other three."""
    mean = {row: sum(m[row] for m in columns.values()) / len(columns) for row in FOUR}
    first, *others = sorted(FOUR, key=lambda row: -mean[row].iloc[0])
    margins = {other: mean[first] - mean[other] for other in others}
    return margins, f"{first} {mean[first].iloc[0]:.1f} %, ahead by {each_apart(margins)}"


COMPARED = (*FOUR, "fedavg_ft", "local")
CLAIMS = (
    ours("A simple method is enough: on average over the tasks none of the four papers' methods is more than 2 "
         "points above FedAvg+FT.", average([(row, "fedavg_ft") for row in FOUR], sign=-1, by=ENOUGH)),
    ours("Local-only training is not enough: on average over the tasks FedAvg+FT is more than 2 points above it.",
         average([("fedavg_ft", "local")], by=ENOUGH)),
    ours("A single global model is not enough: on average local-only training outperforms FedAvg without fine-tuning.",
         average([("local", "fedavg")])),
    ours("Sharing all but the classifier is as good as fine-tuning: on average FedPer and FedRep are less than 2 "
         "points below FedAvg+FT.", average([("fedavg_ft", "fedper"), ("fedavg_ft", "fedrep")], sign=-1, by=ENOUGH)),
    ours("One of the four papers' methods is better on average over the tasks than each of the other three.",
         seen_in("accuracy", across_columns(one_leads, FOUR))),
    ours("Collaboration helps with few images: with the fewest, the four papers' methods and FedAvg+FT beat local-only "
         "training.", seen_in("images", at_end(0, lambda columns: below(["local"], COMPARED[:-1], columns=columns)))),
    ours("With many images it matters little: with the most, no method (the four papers' or FedAvg+FT) is more than "
         "2 points above local-only training.",
         seen_in("images", at_end(-1, lambda columns: below(
             COMPARED[:-1], ["local"], by=-ENOUGH, columns=columns)))),
    ours("At equal communication cost FedAvg+FT suffices: none of the four papers' methods outperforms it on average.",
         average([("fedavg_ft", row) for row in FOUR], "bytes")),
    ours("Clients with the lowest accuracy gain, too: on average over the tasks the bottom 10 % of clients are more "
         "accurate with FedAvg+FT than with local-only training.", average([("fedavg_ft", "local")], "worst", **WORST)),
    ours("New clients are most accurate with FedAvg's model, after one epoch of fine-tuning.",
         seen_in("newcomers", best("fedavg", (*TAKING, "fedper", "fedrep"), **AFTER))),
    ours("The conclusion does not depend on the evaluation point: evaluated after local training, none of the "
         "four papers' methods is more than 2 points above FedAvg+FT either.",
         lambda tables: average([(row, "fedavg_ft") for row in FOUR], sign=-1, by=ENOUGH)(after_training(tables))),
    ours("The conclusion does not depend on the learning rate: with the best learning rate of FedAvg+FT, each of "
         "the four papers' methods loses less than 2 points.", seen_in("rates", table1_rates.at_a_rate_of_another)),
)  # fmt: skip


def after_training(tables) -> dict[str, pd.DataFrame]:
    """The tables with the four evaluated after local training, and all others as before."""
    frame = tables["_accuracy.tidy"]
    headline = frame["headline"].where(~frame["row"].isin(FOUR), frame["point"] == "post")
    return {**tables, "_accuracy.tidy": frame.assign(headline=headline)}


def answer(tables) -> str:
    """Every sentence with its verdict and its numbers, as a list in Markdown."""
    lines = []
    for claim in CLAIMS:
        v = claim.check(tables)
        lines.append(f"* *{in_words(v.status, claim.kind).capitalize()}:* {claim.text} ({v.evidence})")
    return "\n".join(["", *lines])


ITEM = Item(
    title="Head to head: which method, and when",
    claim=CLAIMS[0].text,
    **task.COMMON,
    minutes={"smoke": 0.3, "quick": 3, "reduced": 700, "paper": 30000},
    runs=runs,
    analyse=analyse,
    diverging=True,
    partial=True,
    figure=lambda tables: figures.leads_over_tuned(of("accuracy", tables)["_by_task"]),
    answer=answer,
    claims=CLAIMS,
)
