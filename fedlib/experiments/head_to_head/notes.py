"""Notes: which method should I use, and when? Every sentence of the answer is a claim with a verdict."""

from dataclasses import replace

import pandas as pd

from fedlib import figures
from fedlib.analysis.uncertainty import units
from fedlib.claims import Verdict, across_columns, apart, below, best, each_apart, in_columns, ours
from fedlib.claims.verdicts import in_words
from fedlib.engine.result import RunResult
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
from fedlib.experiments.head_to_head.fig3_worst import WORST, over_seeds
from fedlib.experiments.head_to_head.fig4_newcomers import AFTER, TAKING
from fedlib.experiments.head_to_head.table2_accuracy import average_lead
from fedlib.experiments.head_to_head.task import FOUR
from fedlib.experiments.item import Item, Runs, joined, part

PARTS = {
    "rates": table1_rates, "accuracy": table2_accuracy, "bytes": fig1_bytes, "images": fig2_images,
    "worst": fig3_worst, "newcomers": fig4_newcomers,
}  # fmt: skip
ENOUGH = 2  # points: less is not worth a more complicated method; a line of ours


def settings_of(name: str, s: dict) -> dict:
    """The settings of another item at this scale, with what is asked for here otherwise; of methods those it has."""
    own, usual = PARTS[name].ITEM.settings[s["scale"]], task.SETTINGS[s["scale"]]
    changed = {setting: value for setting, value in s.items() if value != usual[setting]}
    if "methods" in changed:
        changed["methods"] = tuple(method for method in own["methods"] if method in s["methods"])
    return own | changed


def runs(s: dict) -> Runs:
    """The runs of all other items; many are the same."""
    return joined({name: module.ITEM.runs(settings_of(name, s)) for name, module in PARTS.items()})


def analyse(s: dict, found: dict[tuple, RunResult]) -> dict[str, pd.DataFrame]:
    """tidy: that of every part; compare: one row a method, the answer at a glance; hidden: the tables of the parts."""
    tables = {}
    for name, module in PARTS.items():
        own = {key: r for key, r in part(found, name).items() if module.ITEM.diverging or r.status == "finished"}
        made = module.ITEM.analyse(settings_of(name, s), own)
        tables |= {f"_{name}.{table}": frame for table, frame in made.items()}
    tidy, clients = (
        pd.concat([labelled(name, tables[f"_{name}.{table}"]) for name in PARTS], ignore_index=True)
        for table in ("tidy", "_clients")
    )
    names = ["part", "column", "row", "seed", "point", "accuracy"]
    compare = task.unprinted(at_a_glance(tables))
    return {**tables, "tidy": tidy[names], "_clients": clients, "compare": compare}


def labelled(name: str, frame: pd.DataFrame) -> pd.DataFrame:
    """A part's rows with the part, and with what they are of where it has several readings of a run."""
    readings = [frame[column] for column in ("of", "when") if column in frame]
    return frame.assign(part=[": ".join((name, *own)) for own in zip(*readings)] if readings else name)


def of(name: str, tables) -> dict[str, pd.DataFrame]:
    """The tables of a part."""
    start = f"_{name}."
    return {table.removeprefix(start): frame for table, frame in tables.items() if table.startswith(start)}


def at_a_glance(tables) -> pd.DataFrame:
    """Leads over FedAvg + FT on the average over the tasks: in accuracy, with FedAvg's bytes, of the worst tenth; up to
    how many images it beats training alone; what a newcomer has after an epoch."""
    accuracy, images = of("accuracy", tables), of("images", tables)
    ahead = images["pays"].set_index("method") if len(images["pays"]) else pd.DataFrame()
    costs = accuracy["costs"].groupby("method")["bytes, FedAvg = 1"].mean()
    lines = []
    for row in dict.fromkeys(accuracy["tidy"]["row"]):
        line = {"method": row}
        for title, name, where in (
            ("accuracy", "accuracy", {}), ("with FedAvg's bytes", "bytes", {}), ("the worst tenth", "worst", WORST),
        ):  # fmt: skip
            margin = None if row == "fedavg_ft" else average_lead(of(name, tables), row, "fedavg_ft", **where)[0]
            line[f"{title}, above {figures.proper('fedavg_ft')}"] = "" if margin is None else apart(margin)
        beaten = [name for name in ahead.columns if figures.proper("local") in name]
        line["above training alone up to"] = ahead.loc[row, beaten[0]] if row in ahead.index else ""
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


def average(leads, item: str = "accuracy", sign: int = 1, by: float = 0, read=lambda check: check, **where):
    """A check of leads (row, other) on the average over the tasks: each above `by` points, or below with sign -1; read:
    what is to be said of the check besides."""

    def judge(columns):
        gaps = {
            f"{row} over {other}": sum(m[row] - m[other] for m in columns.values()) / len(columns)
            for row, other in leads
        }
        said = f"over {len(columns)} tasks: {each_apart(gaps)}" + (f"; the line of {by:g} is ours" if by else "")
        return {name: sign * (gap - by) for name, gap in gaps.items()}, said

    return seen_in(item, read(across_columns(judge, list(dict.fromkeys(sum(leads, ()))), **where)))


def one_leads(columns):
    """The best of the four, on the average over the tasks, is above the other three."""
    mean = {row: sum(m[row] for m in columns.values()) / len(columns) for row in FOUR}
    first, *others = sorted(FOUR, key=lambda row: -mean[row].iloc[0])
    margins = {other: mean[first] - mean[other] for other in others}
    return margins, f"{first} {mean[first].iloc[0]:.1f} %, ahead by {each_apart(margins)}"


def little_left(m):
    """A judge: with this many images nobody is more than ENOUGH points above training alone."""
    margins = {row: ENOUGH - (m[row] - m["local"]) for row in m.columns.drop("local")}
    rival = m.iloc[0].drop("local").idxmax()
    return margins, f"{rival} {apart(m[rival] - m['local'])} over local; the line of {ENOUGH} is ours"


COMPARED = (*FOUR, "fedavg_ft", "local")
CLAIMS = (
    ours("A simple method is enough: on the average over the four tasks none of the four is more than 2 points above "
         "FedAvg + FT.", average([(row, "fedavg_ft") for row in FOUR], sign=-1, by=ENOUGH)),
    ours("Training alone is not enough: on the average over the tasks FedAvg + FT is more than 2 points above it.",
         average([("fedavg_ft", "local")], by=ENOUGH)),
    ours("One model for all is not enough: on the average FedAvg without fine-tuning is below training alone.",
         average([("local", "fedavg")])),
    ours("Sharing all but the classifier is as good as fine-tuning: on the average FedPer and FedRep are less than 2 "
         "points below FedAvg + FT.", average([("fedavg_ft", "fedper"), ("fedavg_ft", "fedrep")], sign=-1, by=ENOUGH)),
    ours("If it is to be one of the four, one of them is above the other three on the average over the tasks.",
         seen_in("accuracy", across_columns(one_leads, FOUR))),
    ours("With few images work together: with the fewest FedAvg + FT and all of the four are above training alone.",
         seen_in("images", at_end(0, lambda columns: below(["local"], COMPARED[:-1], columns=columns)))),
    ours("With many it matters little: with the most nobody of the four, nor FedAvg + FT, is more than 2 points above "
         "training alone.",
         seen_in("images", at_end(-1, lambda columns: in_columns(
             little_left, COMPARED, columns=columns, among=COMPARED)))),
    ours("Where bytes count take FedAvg + FT: with FedAvg's bytes none of the four is above it on the average.",
         average([("fedavg_ft", row) for row in FOUR], "bytes")),
    ours("For the clients that are worst off, too: on the average over the tasks the worst tenth has more of FedAvg + "
         "FT than of training alone.", average([("fedavg_ft", "local")], "worst", read=over_seeds, **WORST)),
    ours("For clients that come later: after one epoch they are best off with FedAvg's model.",
         seen_in("newcomers", best("fedavg", (*TAKING, "fedper", "fedrep"), **AFTER))),
    ours("It does not hang on the point of the test: where the four are tested after local training, none of them is "
         "more than 2 points above FedAvg + FT either.",
         lambda tables: average([(row, "fedavg_ft") for row in FOUR], sign=-1, by=ENOUGH)(after_training(tables))),
    ours("It does not hang on the learning rate: with the rate that suits FedAvg + FT best each of the four loses less "
         "than 2 points.", seen_in("rates", table1_rates.at_a_rate_of_another)),
)  # fmt: skip


def after_training(tables) -> dict[str, pd.DataFrame]:
    """The tables with the four tested after local training, and all others as before."""
    found = dict(tables)
    for name in ("_accuracy.tidy", "_accuracy._clients"):
        frame = tables[name]
        four = frame["row"].isin(FOUR)
        found[name] = frame.assign(headline=frame["headline"].where(~four, frame["point"] == "post"))
    return found


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
    minutes={"smoke": 0.3, "quick": 3, "overnight": 180, "paper": 30000},
    runs=runs,
    analyse=analyse,
    diverging=True,
    partial=True,
    figure=lambda tables: figures.leads_over_tuned(of("accuracy", tables)["_by_task"]),
    answer=answer,
    claims=CLAIMS,
)
