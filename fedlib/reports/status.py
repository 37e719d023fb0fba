"""The first thing that a notebook shows: what was found at the largest scale that was run, and how certain it is."""

from __future__ import annotations

import pandas as pd

from fedlib.base.errors import choose
from fedlib.experiments import find, names
from fedlib.reports.report import SCALES, diverged, largest, margin, markdown, over, saved_items, tally

IN = {
    "quick": "on small data, in minutes",
    "overnight": "on the paper's images, shrunk",
    "paper": "settings of the paper",
}


def status(name: str) -> str:
    """What the saved results of an item say, in Markdown: scale, data, every verdict with what its interval is over,
    and the command that checks it.

    Raises BadValue for an unknown item.
    """
    paper, stem = choose("item", name, names()).split("/")
    saved = {p: {i["item"]: i for i in saved_items(p, f"{paper}/{stem}")} for p in SCALES}
    item = largest({profile: own[name] for profile, own in saved.items() if name in own})
    if item is None:
        return f"Nothing was found yet: `fedlib reproduce {name}` runs the quick profile."
    lines = [
        (claim["verdict"], claim["claim"], margin({"claims": [claim]}).replace("[", "\\["), over(claim))
        for claim in item["claims"]
        if claim["kind"] != "check"
    ]
    table = pd.DataFrame(lines, columns=["verdict", "claim", "margin over the line that decides", "interval over"])
    finished = f"fedlib reproduce {name} --profile {item['profile']} --finished --no-notebooks"
    check = f"Check it: `{finished}` judges the stored runs again. `fedlib why {name}` says where a number comes from."
    return "\n\n".join([head(item), *([markdown(table)] if lines else []), check if item["runs"] else ""]).strip()


def head(item: dict) -> str:
    """What was found, in a few words of Markdown: scale, how many runs, what became of the paper's first claim, all
    verdicts, and what a shrunk scale cannot say."""
    missing, needed = len(item.get("missing") or ()), len(item["runs"])
    so_far = f", {needed - missing} of {needed} runs so far" if missing else ""
    found = f"**Found so far, profile `{item['profile']}`** ({IN[item['profile']]}{so_far})"
    first = next((claim for claim in item["claims"] if claim.get("kind", "paper") == "paper"), None)
    main = f"The paper's main claim is **{first['verdict']}**." if first else ""
    return " ".join(filter(None, [f"{found}: {tally(item['claims'])}.", main, diverged(item), _shrunk(item)]))


def _shrunk(item: dict) -> str:
    """What a night's runs have less than the paper's, and what follows."""
    if item["profile"] != "overnight" or item["item"] not in names():
        return ""
    return f"Shrunk runs cannot refute the paper at its own settings: {find(item['item']).smaller_at('overnight')}."
