"""The first thing that a notebook shows: what was found at the largest scale that was run, and how certain it is."""

from __future__ import annotations

import pandas as pd

from fedlib.base.errors import choose
from fedlib.experiments import names
from fedlib.reports.report import SCALES, diverged, largest, margin, markdown, saved_items, tally

IN = {"quick": "on small data, in minutes", "overnight": "on the paper's images, shrunk", "paper": "as in the paper"}


def status(name: str) -> str:
    """What the saved results of an item say, in Markdown: scale, data, what intervals are over, and every verdict.

    Raises BadValue for an unknown item.
    """
    paper, stem = choose("item", name, names()).split("/")
    saved = {p: {i["item"]: i for i in saved_items(p, f"{paper}/{stem}")} for p in SCALES}
    item = largest({profile: own[name] for profile, own in saved.items() if name in own})
    if item is None:
        return f"Nothing was found yet: `fedlib reproduce {name}` runs the quick profile."
    lines = [
        (claim["verdict"], claim["claim"], margin({"claims": [claim]}).replace("[", "\\["))
        for claim in item["claims"]
        if claim["kind"] != "check"
    ]
    table = pd.DataFrame(lines, columns=["verdict", "claim", "by how much, at the closest"])
    return f"{head(item)}\n\n{markdown(table)}" if lines else head(item)


def head(item: dict) -> str:
    """What was found, in one sentence of Markdown: scale, how many runs, what intervals are over, all verdicts."""
    missing, needed = len(item.get("missing") or ()), len(item["runs"])
    so_far = f", {needed - missing} of {needed} runs so far" if missing else ""
    over = f"; intervals over {item['seeds']}" if item.get("seeds") else ""
    found = f"**Found so far, profile `{item['profile']}`** ({IN[item['profile']]}{so_far}{over})"
    return f"{found}: {tally(item['claims'])}. {diverged(item)}".strip()
