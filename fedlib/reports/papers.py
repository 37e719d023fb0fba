"""The front pages of the results: each paper's claims in one table, a paragraph and a figure each; the scoreboard."""

from __future__ import annotations

import re
from collections import Counter
from importlib import import_module

import pandas as pd

from fedlib import experiments
from fedlib.base.files import home, write_atomically
from fedlib.claims import DECIDED, INCONCLUSIVE, STATUSES, UNDERPOWERED
from fedlib.experiments.item import stand_in
from fedlib.reports import report
from fedlib.reports.report import SCALES, data_of, largest_of, markdown, picture, saved_by_scale, saved_items, so_far

ROWS = re.compile(r"^\| paper \| experiments \|.*(\n\|.*)+", re.MULTILINE)
AT = {"paper": "full", "reduced": "reduced"}

TOP = """# Results

What our runs say about four papers. A claim is a sentence that a reader takes from a paper. A function tests it on
stored runs, with 95 % confidence intervals (CI) over seeds. *Reproduced*: all CIs lie on the claim's side of its
threshold. *Not reproduced*: one, corrected for multiplicity, lies on the other. *Practically equal*: within a point of
each other in some settings or all, and as claimed in the others. *Inconclusive*: none of these. *Underpowered*:
inconclusive, and so few runs would miss most true claims. The table counts the paper's claims on its data, at its
settings or reduced (fewer rounds or a smaller network), and claims that need no data; our additional claims are on the
pages. A claim without randomness, such as a size or a formula, has no CI: one exception refutes it. Other data
(digits, PACS) cannot refute a paper and are not counted, nor are claims without a verdict. The guide [Reading a
claim](../notebooks/guides/reading_a_claim.ipynb) has more."""

SCOREBOARD = """# Scoreboard

Each row is a table, a figure or notes, of a paper or ours. The last three columns count the verdicts on its
claims, by scale, and name the data. "our additional claims" are not the paper's; "checks" are implementation
checks, which hold by construction and only test this code. [Reading a claim](../notebooks/guides/reading_a_claim.ipynb)
explains the verdicts; a margin is the difference minus the claim's threshold. [Distances](distances.md) says how far
our accuracies are from the reported ones. `fedlib report --scoreboard` writes both pages from the stored results."""

TO_COME = """## Planned additional seeds

Declared here before any of them is run. If a claim is inconclusive or underpowered and its smallest margin is 1.5
to 3 standard errors from 0, the methods that it compares get two more seeds. Then the claim is tested on all seeds,
and gets no others (its CI is not corrected for that). A standard error is a quarter of the width of the 95 % CI."""
NEAR = 1.5, 3.0  # standard errors from 0

END = """## All results

* [Scoreboard](scoreboard.md): every experiment, with its verdicts by scale
* [Distances](distances.md) from the reported accuracies
* [Evaluation](evaluation.md): {}
* [Head to head](head_to_head.md): all four are below fine-tuned FedAvg on pFedSim's task; others on digits
* Every number: [at the papers' settings](paper/report.md), [reduced](reduced/report.md), [on digits](quick/report.md)

To cite fedlib or a paper: [CITATION.cff](../CITATION.cff). `fedlib report --scoreboard` writes this page from the
stored results, and `fedlib why ITEM` says where a number comes from."""


def table(to_results: str = "") -> str:
    """One row a paper, in Markdown: how much was run, how many of its claims got which verdict, and what became of the
    headline; to_results: the way from the page to results/."""
    rows = []
    for paper in papers():
        items = largest_of(saved_by_scale(paper))
        counts, main = _counted(items), items[f"{paper}/{_declared(paper).SHOWN[0]}"]
        claim = next(claim for claim in main["claims"] if claim["kind"] == "paper")
        on = f", on {data_of(main)[0]}" if main["profile"] == "quick" else ""
        row = {"paper": f"[{experiments.about(paper)[0]}]({to_results}{paper}.md)", "experiments": _scale(paper, items)}
        row |= {status: counts[status] for status in STATUSES if status in DECIDED}
        row |= {"inconclusive or underpowered": counts[INCONCLUSIVE] + counts[UNDERPOWERED]}
        rows.append(row | {"main claim": f"{claim['claim'].rstrip('.')}: **{claim['verdict']}**{on}"})
    return markdown(pd.DataFrame(rows)) if rows else "Nothing has been run yet."


def papers() -> list[str]:
    """The folders of items that belong to a paper, if what the page shows of it is saved; most verdicts first."""
    found = {}
    for paper in dict.fromkeys(name.split("/")[0] for name in experiments.names()):
        items = largest_of(saved_by_scale(paper))
        if experiments.about(paper)[2] and {f"{paper}/{name}" for name in _declared(paper).SHOWN} <= set(items):
            found[paper] = _counted(items).total()
    return sorted(found, key=lambda paper: -found[paper])


def _counted(items: dict[str, dict]) -> Counter:
    """How many claims of a paper got which verdict, without those on data that only stand in for the paper's."""
    return Counter(
        claim["status"]
        for item in items.values()
        for claim in item["claims"]
        if claim["kind"] == "paper"
        and (claim["verdict"] in DECIDED or item["profile"] != "quick" and not stand_in(item["settings"]))
    )


def page() -> str:
    """The page results/README.md."""
    parts = [TOP, table()]
    for paper in papers():
        name, title, place = experiments.about(paper)
        declared = _declared(paper)
        item = [i for profile in SCALES for i in saved_items(profile, f"{paper}/{declared.SHOWN[1]}")][-1]
        parts += [
            f"## {name}",
            f"*{title}.* {place}.",
            f"{' '.join(declared.IN_SHORT.split())} [All about {name}]({paper}.md).",
            picture(item, "../"),
            f"*From {item['title']}; {SCALES[item['profile']]}, {', '.join(data_of(item))}{so_far(item)}.*",
        ]
    return "\n\n".join([*parts, END.format(" ".join(_declared("evaluation").IN_SHORT.split()))]) + "\n"


def scoreboard_page() -> str:
    """Every item with its verdicts at every scale, in Markdown, as results/scoreboard.md."""
    return f"{SCOREBOARD}\n\n{report.across_scales()}\n\n{TO_COME}\n\n{seeds_to_come()}\n"


def seeds_to_come() -> str:
    """Open claims whose deciding difference is NEAR 0, at scales that can decide them, in Markdown."""
    rows = []
    for item in (item for profile in SCALES if profile != "quick" for item in saved_items(profile)):
        for claim in item["claims"]:
            value, low, high = claim.get("margin", (0.0, 0.0, 0.0))
            is_near = high > low and NEAR[0] <= abs(value) / ((high - low) / 4) <= NEAR[1]
            if is_near and claim["status"] in (INCONCLUSIVE, UNDERPOWERED):
                row = {"item": f"`{item['item']}`, {SCALES[item['profile']]}", "claim": claim["claim"]}
                rows.append(row | {"margin": report.margin(claim), "95 % CI over": claim["over"] or item["seeds"]})
    return markdown(pd.DataFrame(rows)) if rows else "No claim is that close."


def renew_table() -> None:
    """Write the page's table to the project's README, if that is there."""
    readme = home() / "README.md"
    if readme.exists():
        write_atomically(readme, ROWS.sub(lambda _: table("results/"), readme.read_text("utf-8")).encode())


def _declared(paper: str):
    """The folder of a paper's items. SHOWN: the item whose first claim stands for the paper, and the one whose figure
    is shown; IN_SHORT: what was found, with no decimal that results do not have (`tests/test_prose.py`)."""
    return import_module(f"fedlib.experiments.{paper}")


def _scale(paper: str, items: dict[str, dict]) -> str:
    """At which scales a paper's items were run, in words."""
    less = {name for name in items if experiments.find(name).smaller_paper}
    counts = Counter("reduced" if n in less and i["profile"] == "paper" else i["profile"] for n, i in items.items())
    every = sum(name.startswith(f"{paper}/") for name in experiments.names())
    told = [f"{counts[p]} {where}" for p, where in AT.items() if counts[p]]
    return f"{', '.join(told)} of {every}" if told else "digits only"
