"""Ours beside the papers, claim by claim, from what `reproduce` saved. Nothing is computed or typed here."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd

from fedlib.engine.checkpoint import write_atomically
from fedlib.errors import BadValue, FedlibError
from fedlib.experiments.items import NOT_REPRODUCED, NOT_TESTED, REPRODUCED
from fedlib.provenance import home

BEGIN, END = "<!-- report: begin (written by `fedlib report --readme`) -->", "<!-- report: end -->"


def saved_items(place: str, pattern: str = "*/*") -> list[dict]:
    """Summaries of the items saved under results/<place>, by name; damaged ones raise FedlibError."""
    summaries = []
    for path in sorted((home() / "results" / place).glob(f"{pattern}.json")):
        if path.parent.name in ("runs", "notebooks"):
            continue
        try:
            summaries.append({**json.loads(path.read_text()), "path": path})
        except ValueError as error:
            raise FedlibError(f"{path} is damaged ({error}); run `fedlib reproduce` again") from error
    return summaries


def tally(claims: list[dict]) -> str:
    """For example "3 reproduced, 1 not reproduced (own: 1 reproduced)"; claims of our own begin with "(Ours)" and are counted apart."""
    own = [c for c in claims if c["claim"].startswith("(Ours)")]
    if own and len(own) < len(claims):
        return f"{tally([c for c in claims if c not in own])} (own: {tally(own)})"
    counts = [
        (status, sum(c["verdict"] == status for c in claims)) for status in (REPRODUCED, NOT_REPRODUCED, NOT_TESTED)
    ]
    return ", ".join(f"{count} {status}" for status, count in counts if count)


def markdown(frame: pd.DataFrame) -> str:
    """A table in Markdown."""
    cells = [
        [str(v).replace("|", "\\|") for v in row] for row in [frame.columns, *frame.astype(object).fillna("").values]
    ]
    lines = [f"| {' | '.join(row)} |" for row in cells]
    return "\n".join([lines[0], "|" + "---|" * len(frame.columns), *lines[1:]])


def write_report(place: str) -> Path:
    """Write results/<place>/report.md: scoreboard, then every item with figure, comparison, claims and provenance.

    Raises BadValue if nothing has been saved for this profile.
    """
    items = saved_items(place)
    if not items:
        raise BadValue(
            f"there are no results of profile {place!r} in {home() / 'results'}; run `fedlib reproduce --profile {place}` first"
        )
    parts = [f"# Replication report, profile `{place}`", scoreboard(items)]
    for item in items:
        folder, name = item["path"].parent, item["item"].split("/")[1]
        compare = pd.read_csv(folder / f"{name}.compare.csv", dtype=str, keep_default_na=False)
        settings = ", ".join(f"{k} = {v}" for k, v in item["settings"].items())
        parts += [
            f"## {item['title']}",
            f"Settings: {settings}."
            + (f" **Changed on the command line: {item['changed']}.**" if item["changed"] else ""),
            f"![{item['title']}](../../{item['figure']})",
            markdown(compare),
            markdown(pd.DataFrame(item["claims"])),
            f"<sub>{len(item['runs'])} runs. {' · '.join(origin(p) for p in item['provenance'])}</sub>",
        ]
    path = home() / "results" / place / "report.md"
    write_atomically(path, ("\n\n".join(parts) + "\n").encode())
    return path


def origin(p: dict) -> str:
    """One line of provenance."""
    versions = ", ".join(f"{name} {version}" for name, version in p["versions"].items())
    return f"commit {p['commit']}{' with local changes' if p['dirty'] else ''}; {versions}; {p['device']}, {p['threads']} thread, backend {p['backend']}"


def scoreboard(items: list[dict]) -> str:
    """One row an item: how many of its claims were reproduced."""
    rows = [
        {"item": i["item"], "what": i["title"], "data": ", ".join(_data(i)), "claims": tally(i["claims"])}
        for i in items
    ]
    return markdown(pd.DataFrame(rows))


def _data(item: dict) -> list[str]:
    settings = item["settings"]
    return settings["datasets"] if "datasets" in settings else [settings["dataset"]]


def readme_block() -> str:
    """What is replicated and how well: the scoreboards of the two profiles side by side."""
    by_profile = {profile: {i["item"]: i for i in saved_items(profile)} for profile in ("quick", "paper")}
    names = sorted(set(by_profile["quick"]) | set(by_profile["paper"]))
    rows = []
    for name in names:
        row = {
            "item": f"[`{name}`](notebooks/{name}.ipynb)",
            "what": next(i[name] for i in by_profile.values() if name in i)["title"],
        }
        for profile, title in (("quick", "quick profile"), ("paper", "paper's settings")):
            item = by_profile[profile].get(name)
            row[title] = f"{', '.join(_data(item))}: {tally(item['claims'])}" if item else "not run yet"
        rows.append(row)
    return markdown(pd.DataFrame(rows)) if rows else "Nothing has been run yet."


def readme_with_block(text: str, block: str) -> str:
    """The README with the text between its two markers replaced. Raises FedlibError if a marker is missing."""
    if BEGIN not in text or END not in text:
        raise FedlibError(f"README.md lacks the lines {BEGIN!r} and {END!r}")
    return text[: text.index(BEGIN) + len(BEGIN)] + "\n" + block + "\n" + text[text.index(END) :]
