"""Ours beside the papers, claim by claim, from what `reproduce` saved. Nothing is computed or typed here."""

from __future__ import annotations

import base64
import html
import json
import re
from collections import Counter
from pathlib import Path

import pandas as pd

from fedlib.analysis.run_ids import COLUMN, ORIGINS
from fedlib.base.errors import BadValue, FedlibError, choose
from fedlib.base.files import home, write_atomically
from fedlib.experiments import about, find

SCOREBOARD = """# Scoreboard

Each row is a table, a figure or the replication notes of a paper. The last three columns say how many of its claims got
which verdict, by scale, and on which data. "Own" counts questions that we asked beyond the paper; "checks" counts what
holds by construction, and only tests this code. [The guide on claims](../notebooks/guides/reading_a_claim.ipynb)
explains the verdicts. `fedlib report --scoreboard` writes this page from the stored results."""

POINTS = (
    "Where a model is tested: `glob` the server's one model; `recv` the model as a client receives it, shared part and "
    "own part together; `agg` the own mixture that it receives; `post` the model after the client's local training; "
    "`ft(k)` after k epochs on the client's own data. n is the number of seeds; a comparison of methods uses only the "
    "seeds that all of them have, so that a mean in a claim can differ from the one in the table."
)

SCALES = {"quick": "quick profile", "overnight": "overnight", "paper": "paper's settings"}


def saved_items(place: str, pattern: str = "*/*") -> list[dict]:
    """Summaries of the items saved under results/<place>, by name; damaged ones raise FedlibError."""
    summaries = []
    for path in sorted((home() / "results" / place).glob(f"{pattern}.json")):
        if path.parent.name in ("runs", "notebooks"):  # no items
            continue
        try:
            summaries.append({**json.loads(path.read_text("utf-8")), "path": path})
        except ValueError as error:
            raise FedlibError(f"{path} is damaged ({error}); run `fedlib reproduce` again") from error
    return summaries


def largest(by_scale: dict[str, dict]) -> dict | None:
    """Of an item's summaries by profile the one to show: the largest scale, but rather a whole overnight than a part of
    the paper's runs. None without any."""
    whole = [i for profile in ("overnight", "paper") if (i := by_scale.get(profile)) and not i.get("missing")]
    return whole[-1] if whole else next((by_scale[p] for p in reversed(SCALES) if p in by_scale), None)


def tally(claims: list[dict]) -> str:
    """For example "3 reproduced, 1 undecided (own: 1 holds; checks: 2 passed)":
    claims of the paper, and apart from them our own questions and checks of the implementation."""
    texts = {}
    for kind, title in (("paper", ""), ("own", "own: "), ("check", "checks: ")):
        counts = Counter(claim["verdict"] for claim in claims if claim.get("kind", "paper") == kind)
        if counts:
            texts[kind] = title + ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    first = texts.pop("paper", "")
    others = "; ".join(texts.values())
    return f"{first} ({others})" if first and others else first or others


def margin(item: dict) -> str:
    """By how much the item's first claim holds: the smallest difference and its interval,
    in points where they are accuracies."""
    if not item["claims"] or "margin" not in item["claims"][0]:
        return ""
    value, low, high = item["claims"][0]["margin"]
    form = "+.1f" if abs(value) >= 1 else "+.2f"
    return f"{value:{form}} [{low:{form}}, {high:{form}}]"


def over(claim: dict) -> str:
    """What the interval of a saved claim is over: "3 seeds and 20 clients"; "" where it has none."""
    found = re.search(r"\[95 % intervals over ([^\]]+)\]", claim["evidence"])
    return found[1] if found else ""


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
            f"there are no results of profile {place!r} in {home() / 'results'}; run `fedlib reproduce --profile "
            f"{place}` first"
        )
    parts = [f"# Replication report, profile `{place}`", scoreboard(items)]
    parts += [part for item in items for part in section(item, "../" * (2 + place.count("/")))]
    path = home() / "results" / place / "report.md"
    write_atomically(path, ("\n\n".join(parts) + "\n").encode())
    return path


def counted(labels: list[str]) -> str:
    """Labels with commas between them, each once; how often it is there, where that is more than once."""
    return ", ".join(f"{label} ({n} times)" if n > 1 else label for label, n in Counter(labels).items())


def diverged(item: dict) -> str:
    """How many of an item's runs diverged, in a sentence."""
    number = len(item.get("diverged") or ())
    return f"{number} of {len(item['runs'])} runs diverged and are left out." if number else ""


def _listed(value) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def smaller(item: dict) -> str:
    """What the item's profile has smaller than the paper, in a sentence; "" at the paper's own settings."""
    try:
        declared = find(item["item"])
    except FedlibError:  # saved by another version
        return ""
    what = declared.smaller_at(item["profile"])
    return f"**Smaller than in the paper:** {what}." if what else ""


def section(item: dict, to_home: str, told: bool = False) -> list[str]:
    """An item as paragraphs of Markdown; to_home: the way from the report to the project folder; told: whether its
    answer is on the page already."""
    settings = ", ".join(f"{k} = {_listed(v)}" for k, v in item["settings"].items())
    changed = f" **Changed on the command line: {item['changed']}.**" if item["changed"] else ""
    missing = item.get("missing")
    parts = [
        f"## {item['title']}",
        *(
            [f"**{len(missing)} of {len(item['runs'])} runs are missing.** <sub>{counted(missing)}</sub>"]
            if missing
            else []
        ),
        *([f"**{diverged(item)}** <sub>{counted(item['diverged'])}</sub>"] if item.get("diverged") else []),
        *([item["answer"]] if item.get("answer") and not told else []),
        *([shrunk] if (shrunk := smaller(item)) else []),
        f"Profile `{item['profile']}`: {settings}.{changed}",
        f"![{item['title']}]({to_home}{item['figure']})",
        *_table(item, "compare", to_home),
    ]
    for name, caption in item.get("shown", {}).items():
        parts += [f"**{caption}**", *_table(item, name, to_home)]
    there = f"{len(item['runs']) - len(missing)} of {len(item['runs'])}" if missing else str(len(item["runs"]))
    return [
        *parts,
        markdown(pd.DataFrame(item["claims"]).drop(columns="margin", errors="ignore")),
        f"<sub>{there} runs{_each_run(item, to_home)}. "
        f"{' · '.join(dict.fromkeys(origin(p) for p in item['provenance']))}</sub>",
    ]


def _table(item: dict, name: str, to_home: str) -> list[str]:
    """One of the tables saved with an item, in Markdown, and below it how to ask for the runs behind a row."""
    path = item["path"].with_name(f"{item['path'].stem}.{name}.csv")
    frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    if frame.empty:
        return ["None."]
    shown = markdown(side_by_side(few_decimals(frame)))
    if COLUMN not in frame or not frame[COLUMN].any():
        return [shown]
    ask = f"fedlib why {item['item']} ROW --profile {place_of_saved(item)}"
    file = path.relative_to(home()).as_posix()
    return [shown, f"<sub>The runs behind a row: `{ask}`; their ids: [{path.name}]({to_home}{file})</sub>"]


def few_decimals(frame: pd.DataFrame) -> pd.DataFrame:
    """A saved table of texts as it is shown: numbers with few decimals, and without its column of runs."""
    return frame.drop(columns=COLUMN, errors="ignore").map(_short)


PAIR = re.compile(r"(?P<column>.+): (?P<what>paper|ours|difference)(?:, (?P<data>.+))?")


def side_by_side(frame: pd.DataFrame) -> pd.DataFrame:
    """A comparison whose columns have a "paper" and an "ours" each: one column for both, ours first."""
    named = {name: match for name in frame.columns if (match := PAIR.fullmatch(name))}
    columns = dict.fromkeys(match["column"] for match in named.values())
    of = {(match["column"], match["what"]): name for name, match in named.items()}
    if (
        not named
        or len(named) != len(of)
        or any((column, what) not in of for column in columns for what in ("paper", "ours"))
    ):
        return frame

    def cell(row, column: str) -> str:
        ours, paper, away = (row.get(of.get((column, what)), "") for what in ("ours", "paper", "difference"))
        printed = re.sub(r"^a curve; no numbers printed$", "", paper)
        beside = f"paper {printed}{f' ({away})' if away else ''}" if printed else ""
        return "<br>".join(filter(None, (ours, beside)))

    made = frame[[name for name in frame.columns if name not in named]].copy()
    data = {match["data"] for match in named.values() if match["what"] == "ours"} - {None, "the same"}
    ours = " and ".join(sorted(data))  # of other data than the paper's it is said which
    for column in columns:
        made[f"{column} ({ours})" if ours else column] = [cell(row, column) for _, row in frame.iterrows()]
    return made


def _each_run(item: dict, to_home: str) -> str:
    """Where the runs are listed one by one, if they are."""
    path = item["path"].with_name(f"{item['path'].stem}.{ORIGINS}.csv")
    return f" ([each of them]({to_home}{path.relative_to(home()).as_posix()}))" if path.exists() else ""


def place_of_saved(item: dict) -> str:
    """The folder under results/ in which a summary lies: "paper", "own/quick"."""
    return item["path"].parent.parent.relative_to(home() / "results").as_posix()


def _short(text: str) -> str:
    """A number with many decimals as one with few, "?" for the end of an interval that is not known, else as it is."""
    if text in ("inf", "-inf"):
        return "?"
    if not re.fullmatch(r"-?\d+\.\d{3,}", text):
        return text
    return f"{float(text):.2f}" if abs(float(text)) >= 1 else f"{float(text):.3f}"


# one page a paper ----------------------------------------------------------------------------------------------------


def write_page(paper: str) -> tuple[Path, Path]:
    """Write `page` as results/<paper>.md and as results/<paper>.html (figures inside). Raises BadValue as that does."""
    text, path = page(paper), home() / "results" / f"{paper}.md"
    write_atomically(path, text.encode())
    html_path = path.with_suffix(".html")
    write_atomically(html_path, as_html(text, path.parent).encode())
    return path, html_path


def page(paper: str) -> str:
    """One paper's items in Markdown, at its own settings where they were run.

    Raises BadValue for a paper without saved results.
    """
    saved = {profile: saved_items(profile) for profile in SCALES}
    choose("paper with saved results", paper, sorted({i["item"].split("/")[0] for own in saved.values() for i in own}))
    every = [i for own in saved.values() for i in own if i["item"].split("/")[0] == paper]
    items = {
        name: largest({profile: i for profile, own in saved.items() for i in own if i["item"] == name})
        for name in dict.fromkeys(i["item"] for i in every)
    }
    unfinished = {name for name, item in items.items() if item.get("missing")}
    telling = [i for i in every if items[i["item"]] is i or i["item"] in unfinished or i["profile"] == "paper"]
    parts = _page(paper, sorted(items.values(), key=_reading_order), sorted(telling, key=_reading_order))
    return "\n\n".join(parts) + "\n"


def _page(paper: str, items: list[dict], telling: list[dict]) -> list[str]:
    """items: one a table or figure; telling: those whose answers are shown,
    also in quick where the paper's runs are not all there."""
    name, title, place = about(paper)
    return [
        f"# What could be reproduced of {name}" if place else f"# {name}",
        f"*{title}.{f' {place}.' if place else ''}* A report of fedlib, written by `fedlib report {paper}`: every "
        "number comes from a stored run, and every claim is checked by a function on these runs. A claim is undecided "
        'where a 95 % interval, over seeds and clients, reaches over its line. "(Ours)" marks questions that we asked '
        'beyond the paper, "(Check)" what holds by construction and tests this code.',
        summed_up(items),
        POINTS,
        *_answers(telling),
        "## Scoreboard",
        across_scales(f"{paper}/*"),
        *(part for item in items for part in section(item, "../", told=item in telling)),
    ]


def summed_up(items: list[dict]) -> str:
    """How a paper's claims fared, by scale, in Markdown; items: one summary a table or figure."""
    claims = {p: [claim for item in items if item["profile"] == p for claim in item["claims"]] for p in SCALES}
    small = sorted(item["item"].split("/")[1] for item in items if item["profile"] == "quick")
    said = tally(claims["paper"]) if claims["paper"] else "nothing has been run yet"
    names = {p: ", ".join(i["item"].split("/")[1] for i in items if i["profile"] == p and i["claims"]) for p in SCALES}
    parts = [f"**At the paper's own settings** ({names['paper'] or 'no item'}): {said}."]
    if claims["overnight"]:
        night = "**Overnight, on the paper's images, of which there are fewer, in fewer rounds**"
        parts.append(f"{night} ({names['overnight']}): {tally(claims['overnight'])}.")
    if small:
        why = "Only in the quick profile, on small data, so that the paper's numbers cannot be expected:"
        parts.append(f"{why} {', '.join(small)}.")
    return " ".join(parts)


def _answers(items: list[dict]) -> list[str]:
    """What items say in sentences, or of their first claim, each with the profile that it was run in and how many of
    its runs are there."""
    said = []
    for item in items:
        name, _, title = item["title"].partition(": ")
        where = f"(`{item['profile']}`{_so_far(item)})"
        claim = next((claim for claim in item["claims"] if claim.get("kind", "paper") == "paper"), None)
        if item.get("answer"):
            said.append(f"- **{title or name}** {where}. {item['answer']}")
        elif claim and item["profile"] != "quick":
            said.append(f"- **{name.partition(' ')[2]}** {where}. {claim['verdict'].capitalize()}: {claim['claim']}")
    return ["## In short", "\n".join(said)] if said else []


def _reading_order(item: dict) -> tuple:
    """Notes first: they are the answer; then as in the paper, tables after figures."""
    name = item["item"].split("/")[1]
    number = re.search(r"\d+", name)
    return name != "notes", name.startswith("table"), int(number[0]) if number else 0, name


STYLE = """body{font:16px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem;color:#222}
table{border-collapse:collapse;font-size:13px;display:block;overflow-x:auto;margin:1rem 0}
td,th{border:1px solid #ddd;padding:.3em .6em;text-align:left;vertical-align:top}
th{background:#f5f5f5}img{max-width:100%}sub{color:#777;font-size:12px}h2{margin-top:2.5rem}"""


def as_html(text: str, folder: Path) -> str:
    """A page of Markdown as one HTML file. Pictures, whose paths are relative to `folder`, are put inside."""
    from markdown_it import MarkdownIt

    def embedded(match: re.Match) -> str:
        data = base64.b64encode((folder / match["path"]).read_bytes()).decode()
        return f'src="data:image/png;base64,{data}"'

    body = MarkdownIt("commonmark").enable("table").render(text)
    body = re.sub(r'src="(?P<path>[^"]+\.png)"', embedded, body)
    title = html.escape(text.splitlines()[0].lstrip("# "))
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{STYLE}</style></head>"
        f"<body>{body}</body></html>\n"
    )


def origin(p: dict) -> str:
    """One line of provenance."""
    versions = ", ".join(f"{name} {version}" for name, version in p["versions"].items())
    commit = f"commit {p['commit']}{' with local changes' if p['dirty'] else ''}"
    return f"{commit}; {versions}; {p['device']}, {p['threads']} thread, backend {p['backend']}"


def scoreboard(items: list[dict]) -> str:
    """One row an item: how many of its claims were reproduced."""
    rows = [
        {"item": i["item"], "what": i["title"], "data": ", ".join(data_of(i)), "claims": tally(i["claims"])}
        | {"margin of the first claim": margin(i), "its interval over": over(i["claims"][0]) if i["claims"] else ""}
        for i in items
    ]
    return markdown(pd.DataFrame(rows))


def data_of(item: dict) -> list[str]:
    """The data sets that an item was run on."""
    settings = item["settings"]
    if "datasets" in settings:
        return settings["datasets"]
    return [settings["dataset"]] if "dataset" in settings else item["data"]


def write_scoreboard() -> Path:
    """Write `scoreboard_page` as results/scoreboard.md."""
    path = home() / "results" / "scoreboard.md"
    write_atomically(path, scoreboard_page().encode())
    return path


def scoreboard_page() -> str:
    """Every item with its verdicts at every scale, in Markdown, as a page that lies in results/."""
    return f"{SCOREBOARD}\n\n{across_scales()}\n"


def across_scales(pattern: str = "*/*") -> str:
    """One row an item, one column a scale, in Markdown: on which data, and how many claims got which verdict. Links
    are those of a page in results/."""
    by_profile = {profile: {i["item"]: i for i in saved_items(profile, pattern)} for profile in SCALES}
    names = sorted(set().union(*by_profile.values()))
    rows = []
    for name in names:
        row = {
            "item": f"[`{name}`](../notebooks/{name}.ipynb)",
            "what": next(i[name] for i in by_profile.values() if name in i)["title"],
        }
        for profile, title in SCALES.items():
            item = by_profile[profile].get(name)
            row[title] = (
                f"{', '.join(data_of(item))}{_so_far(item)}: {tally(item['claims'])}" if item else "not run yet"
            )
        rows.append(row)
    return markdown(pd.DataFrame(rows)) if rows else "Nothing has been run yet."


def _so_far(item: dict) -> str:
    missing, needed = len(item.get("missing") or ()), len(item["runs"])
    return f" ({needed - missing} of {needed} runs so far)" if missing else ""
