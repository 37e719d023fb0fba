"""What an item's notebook shows: what was found at the largest scale that was run and how certain it is, a figure, a
table, verdicts. Of an item that nothing is stored of (`stored` gives None) nothing is shown."""

from __future__ import annotations

import pandas as pd

from fedlib import figures
from fedlib.base.errors import choose
from fedlib.claims import UNDERPOWERED
from fedlib.experiments import OpenItem, find, names
from fedlib.experiments.item import duration, stand_in
from fedlib.reports import report

IN = {
    "quick": "on small data, in minutes",
    "reduced": "on the paper's images and clients; what is smaller is said below",
    "paper": "the paper's settings",
}


def show_status(name: str) -> None:
    """Display `status` of an item."""
    from IPython.display import Markdown, display

    display(Markdown(status(name)))


def show_figure(item: OpenItem | None) -> None:
    """Display an item's figure."""
    if item:
        figures.show(item.figure())


def show_table(item: OpenItem | None, *tables: str) -> None:
    """Display tables of an item by their names; without a name, ours beside what the paper reports."""
    from IPython.display import display

    for table in [item.tables[name] for name in tables] or [item.compare()] if item else ():
        display(report.for_readers(table, stand_in(item.settings)))


def show_verdicts(item: OpenItem | None) -> None:
    """Display the verdict on every claim of an item, folded, with its evidence."""
    from IPython.display import Markdown, display

    if item:
        said = [f"* **{v.status}**: {text} *{v.evidence}*".replace("[", "\\[") for text, v in item.verdicts()]
        display(Markdown(folded(f"Every claim of profile {item.profile} with its evidence", "\n".join(said))))


def folded(title: str, *paragraphs: str) -> str:
    """Markdown that is shown when a reader asks for it."""
    return "\n\n".join([f"<details><summary><b>{title}</b></summary>", *paragraphs, "</details>"])


def status(name: str) -> str:
    """What the saved results of an item say, in Markdown: scale, data, every verdict (folded) with what its interval is
    over, the command that checks it, and what larger scales cost where none is stored.

    Raises BadValue for an unknown item.
    """
    choose("item", name, names())
    saved = {profile: i for profile in report.SCALES for i in report.saved_items(profile, name)}
    item = report.largest(saved)
    if item is None:
        return f"Nothing is stored yet: `fedlib reproduce {name}` runs the quick profile.\n\n{_not_yet(name)}".strip()
    lines = [
        (claim["verdict"], claim["claim"], report.margin(claim).replace("[", "\\["), claim.get("over", ""))
        for claim in item["claims"]
        if claim["kind"] != "check"
    ]
    table = pd.DataFrame(lines, columns=["verdict", "claim", "margin", "95 % CI over"])
    table = table.loc[:, (table != "").any()]  # one seed has neither effects nor intervals
    explained = f"{report.VERDICTS} ([Reading a claim](../guides/reading_a_claim.ipynb))."
    finished = f"fedlib reproduce {name} --profile {item['profile']} --finished --no-notebooks"
    check = f"Check it: `{finished}` tests the claims again. `fedlib why {name}` says where a number comes from."
    to_come = _not_yet(name) if item["profile"] == "quick" else ""
    each = [explained, report.markdown(table)] if len(table.columns) > 2 else [report.markdown(table)]
    claims = folded("Every claim with its verdict", *each) if lines else ""
    return "\n\n".join(filter(None, [head(item), claims, to_come, check if item["runs"] else ""]))


def _not_yet(name: str) -> str:
    """That no result of a larger scale is stored, or what part, and what each would cost; "" for items without one."""
    minutes = find(name).minutes
    scales = [profile for profile in ("reduced", "paper") if profile in minutes]
    cost = " and ".join(f"{duration(minutes[p])} ({minutes[p] / 30:,.1f} core-hours) at `{p}`" for p in scales)
    stored = f"**No finished result at {' or '.join(f'`{p}`' for p in scales)} is stored yet.**"
    parts = " and ".join(f"{runs} at `{p}`" for p in scales if " of " in (runs := report.begun(name, p)))
    stored += f" There are {parts}. Estimated" if parts else " Estimated"
    return f"{stored} on two cores: {cost}. `fedlib reproduce {name} --profile {scales[0]}` runs it." if scales else ""


def head(item: dict) -> str:
    """What was found, in a few words of Markdown: scale, how many runs, what became of the paper's first claim, all
    verdicts, and what a shrunk scale cannot say."""
    so_far = f", {report.stored_runs(item)} of {len(item['runs'])} runs so far" if item.get("missing") else ""
    other = item["profile"] == "reduced" and stand_in(item["settings"])
    shrunk = item["profile"] == "paper" and report.smaller(item)
    where = "on other images than the paper's" if other else IN["reduced" if shrunk else item["profile"]]
    found = f"**Results so far, profile `{item['profile']}`** ({where}{so_far})"
    first = next((claim for claim in item["claims"] if claim.get("kind", "paper") == "paper"), None)
    main = f"The paper's main claim: **{first['verdict']}**." if first else ""
    counts = report.tally(item["claims"])
    few = "*Underpowered*: inconclusive, and with too few runs to see most effects." * (UNDERPOWERED in counts)
    parts = [f"{found}: {counts}.", few, main, report.diverged(item), report.smaller(item)]
    return " ".join(filter(None, parts))
