"""Ours beside the papers, claim by claim, from what `reproduce` saved. Nothing is computed or typed here."""

from __future__ import annotations

import json
import re
from collections import Counter
from importlib import import_module
from itertools import chain
from pathlib import Path

import pandas as pd

from fedlib.analysis.names import counted, proper, titled
from fedlib.base.errors import BadValue, FedlibError, choose
from fedlib.base.files import home, write_atomically
from fedlib.claims import DECIDED, ONE_SEED
from fedlib.experiments import OpenItem, about, find, names, reading_order
from fedlib.experiments.item import stand_in, stated
from fedlib.figures.base import PAPERS

POINTS = (
    "Evaluation points: `glob` is the server's model for a client: one for all (FedAvg), its cluster's or, with "
    "pFedHN, its own. `recv` is a client's model before its local training: the shared part as received, with its own "
    "personal part. `agg` is the personalised model aggregated for a client. `post` is the model after local "
    "training, and `ft(k)` after k epochs of fine-tuning. Pooled: over all clients' test images; client mean: of the "
    "clients' accuracies. n is the number of seeds unless something else is said; in parentheses stand standard "
    "deviations over seeds. Digits are scikit-learn's 1,797, enlarged to 16x16; \"digits for 'Y'\": in place of the "
    "paper's Y. Methods are compared on the seeds that they share, so a mean in a claim can differ from that in the "
    "table. Confidence intervals use a weighted mean of a pair's own variance and its table's (a moderated t test), "
    "so the same runs can have different intervals in another table. Those of accuracies are not truncated at 100 %. "
    "Power: how often true claims would be *reproduced*; type I error rate: how often *not reproduced* if all "
    "margins are 0. Local: clients train alone, in rounds in which they are sampled."
)
VERDICTS = (
    "The *margin* is the difference minus the claim's threshold (0 where it names none) of the weakest comparison, "
    "with an uncorrected CI. *Reproduced* (*holds*, of additional claims): all CIs lie above 0; *not reproduced*: one "
    "lies below, after correction for all comparisons; *practically equal*: within a point in some or all settings, "
    "in others as claimed; *inconclusive*: none of these; *underpowered*: inconclusive, and so few runs would miss "
    "most true claims"
)

ORIGINS = "origins"  # the saved table that has a row for each run
MOST = 12  # settings of missing runs that are named
SCALES = {"quick": "quick (minutes, small data)", "reduced": "reduced", "paper": "paper's settings"}


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
    """Of an item's summaries by profile the one to show: the largest scale, but rather a smaller whole than a part of
    the paper's runs, and a part only if it decides something. None without any."""
    there = [by_scale[profile] for profile in reversed(SCALES) if profile in by_scale]
    whole = [i for i in there if i["profile"] != "quick" and not i.get("missing")]
    parts = [i for i in there if not i.get("missing") or any(c.get("status") in DECIDED for c in i["claims"])]
    return next(iter([*whole, *parts, *there]), None)


def saved_by_scale(paper: str) -> dict[str, list[dict]]:
    """Summaries of a paper's saved items, by profile."""
    return {profile: saved_items(profile, f"{paper}/*") for profile in SCALES}


def largest_of(saved: dict[str, list[dict]]) -> dict[str, dict]:
    """Of every item the `largest` of its summaries, by name; saved: of `saved_by_scale`."""
    return {
        name: largest({profile: i for profile, own in saved.items() for i in own if i["item"] == name})
        for name in dict.fromkeys(i["item"] for own in saved.values() for i in own)
    }


def tally(claims: list[dict]) -> str:
    """For example "3 reproduced, 1 inconclusive (our additional claims: 1 holds; checks: 2 passed)":
    claims of the paper, and apart from them our additional claims and checks of the implementation."""
    texts = {}
    for kind, title in (("paper", ""), ("own", "our additional claims: "), ("check", "checks: ")):
        counts = Counter(claim["verdict"] for claim in claims if claim.get("kind", "paper") == kind)
        if counts:
            said = {v: v if n == 1 else v.replace("does", "do").replace("holds", "hold") for v, n in counts.items()}
            said |= {ONE_SEED: ONE_SEED.replace("no", "without")}
            texts[kind] = title + ", ".join(f"{count} {said[verdict]}" for verdict, count in counts.items())
    first = texts.pop("paper", "")
    others = "; ".join(texts.values())
    return f"{first} ({others})" if first and others else first or others


def margin(claim: dict) -> str:
    """By how much a claim holds: the smallest difference and its interval, in points where they are accuracies."""
    if "margin" not in claim:
        return ""
    value, low, high = claim["margin"]
    form = "+.1f" if abs(value) >= 1 else "+.2f"
    return f"{value:{form}} [{low:{form}}, {high:{form}}]"


def markdown(frame: pd.DataFrame) -> str:
    """A table in Markdown."""
    rows = [frame.columns, *frame.astype(object).fillna("").values]
    cells = [[str(cell).replace("|", "\\|") for cell in row] for row in rows]
    lines = [f"| {' | '.join(row)} |" for row in cells]
    return "\n".join([lines[0], "|" + "---|" * len(frame.columns), *lines[1:]])


def write_report(place: str) -> Path:
    """Write results/<place>/report.md: scoreboard, then every item with figure, comparison, claims and provenance.

    Raises BadValue if nothing has been saved for this profile.
    """
    items = saved_items(place)
    if not items:
        raise BadValue(
            f"profile {place!r} has no results in {home() / 'results'}; run `fedlib reproduce --profile {place}`, or "
            "choose another one"
        )
    parts = [f"# Replication report, profile `{place}`", scoreboard(items)]
    parts += [part for item in items for part in section(item, "../" * (2 + place.count("/")))]
    return written(f"{place}/report.md", "\n\n".join(parts) + "\n")


def written(name: str, text: str) -> Path:
    """Write a page under results/."""
    path = home() / "results" / name
    write_atomically(path, text.encode())
    return path


def with_counts(titles: list[str]) -> str:
    """Titles of runs, the first MOST, each with the number of runs where these are several."""
    texts = [f"{title} ({counted(n, 'run')})" if n > 1 else title for title, n in Counter(titles).items()]
    texts[MOST:] = [f"and {len(texts) - MOST} other settings"] * (len(texts) > MOST)
    return proper(", ".join(texts))


def diverged(item: dict) -> str:
    """How many of an item's runs diverged, in a sentence."""
    number, shown = len(item.get("diverged") or ()), item["item"] in names() and find(item["item"]).diverging
    left = "" if shown else f" and {'is' if number == 1 else 'are'} left out"
    return f"{number} of {len(item['runs'])} runs diverged{left}." if number else ""


def smaller(item: dict) -> str:
    """What the item's profile has smaller than the paper, in a sentence; "" at the paper's own settings."""
    try:
        declared = find(item["item"])
    except FedlibError:  # saved by another version
        return ""
    what, of_paper = declared.smaller_at(item["profile"]), item["item"].partition("/")[0] in PAPERS
    shrunk = " Such runs cannot contradict the paper at its own settings." * (of_paper and item["profile"] == "reduced")
    return f"**{than_in(item['item'])}:** {what}.{shrunk}" if what else ""


def than_in(name: str) -> str:
    """What is smaller is so beside its paper; items that are ours have none."""
    return "Scaled down from " + ("the paper" if name.partition("/")[0] in PAPERS else "the `paper` profile")


def section(item: dict, to_home: str, told: bool = False) -> list[str]:
    """An item as paragraphs of Markdown; to_home: the way from the report to the project folder; told: whether its
    answer is on the page already."""
    settings = proper("; ".join(stated(item["settings"])))
    changed = f" **Changed on the command line: {item['changed']}.**" if item["changed"] else ""
    missing = item.get("missing") or []
    gone = f"**{len(missing)} of {len(item['runs'])} runs are missing.** <sub>{with_counts(missing)}</sub>"
    parts = [
        f"## {item['title']}",
        *([gone] if missing else []),
        *([f"**{diverged(item)}** <sub>{with_counts(item['diverged'])}</sub>"] if item.get("diverged") else []),
        *([item["answer"]] if item.get("answer") and not told else []),
        *([shrunk] if (shrunk := smaller(item)) else []),
        f"Profile `{item['profile']}`; options (`--set NAME=VALUE` changes one): {settings}.{changed}",
        picture(item, to_home),
        _table(item, "compare"),
    ]
    for name, caption in item.get("shown", {}).items():
        parts += [f"**{caption}**", shown] if (shown := _table(item, name)) else []
    there = f"{stored_runs(item)} of " * bool(missing) + counted(len(item["runs"]), "run")
    path = item["path"].with_name(f"{item['path'].stem}.{ORIGINS}.csv")
    place = path.parent.parent.relative_to(home() / "results").as_posix()
    ask = f"`fedlib why {item['item']} --profile {place}` says what is behind a number"
    each = f" ([each of them]({to_home}{path.relative_to(home()).as_posix()}); {ask})" if path.exists() else ""
    return [
        *parts,
        markdown(pd.DataFrame(item["claims"], columns=["claim", "verdict", "evidence"])),
        f"<sub>{there}{each}. {' · '.join(dict.fromkeys(origin(p) for p in item['provenance']))}</sub>",
    ]


def picture(item: dict, to_home: str) -> str:
    """An item's figure in Markdown, or that there is none yet."""
    return f"![{item['title']}]({to_home}{item['figure']})" if item["figure"] else "*No picture: no runs, or too few.*"


def _table(item: dict, name: str) -> str:
    """One of the tables saved with an item, in Markdown."""
    path = item["path"].with_name(f"{item['path'].stem}.{name}.csv")
    frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    shown = for_readers(side_by_side(frame.map(_short)), stand_in(item["settings"]))
    return markdown(shown) if len(frame) else ""


def for_readers(frame: pd.DataFrame, instead: str = "") -> pd.DataFrame:
    """A table as it is shown: methods, networks and data sets have their proper names; instead: as of `proper`."""
    named = frame.rename(index=proper, columns=lambda name: titled(name, instead) if isinstance(name, str) else name)
    return named.map(lambda cell: proper(cell, instead))


PAIR = re.compile(r"(?P<column>.+): (?P<what>paper|ours|difference)(?:, (?P<data>.+))?")


def side_by_side(frame: pd.DataFrame) -> pd.DataFrame:
    """A comparison whose columns have a "paper" and an "ours" each: one column for both, ours first."""
    named = {name: match for name in frame.columns if (match := PAIR.fullmatch(name))}
    papers = {match["data"] for match in named.values() if match["what"] == "paper"}
    columns = dict.fromkeys(match["column"] for match in named.values())
    of = {(match["column"], match["what"]): name for name, match in named.items()}
    whole = all((column, what) in of for column in columns for what in ("paper", "ours"))
    if not named or len(named) != len(of) or not whole:
        return frame

    def cell(row, column: str) -> str:
        ours, paper, away = (row.get(of.get((column, what)), "") for what in ("ours", "paper", "difference"))
        printed = re.sub(r"^a curve; no numbers reported$", "", paper)
        beside = f"paper {printed}{f': {away}' if away else ''}" if printed else ""
        return "<br>".join(filter(None, (ours, beside)))

    made = frame[[name for name in frame.columns if name not in named]].copy()
    data = {match["data"] for match in named.values() if match["what"] == "ours"} - {None}
    ours = " and ".join(sorted(data))  # of other data than the paper's it is said which
    for column in columns:
        made[column if not ours else f"{column}, {ours}" if papers == data else f"{ours} for '{column}'"] = [
            cell(row, column) for _, row in frame.iterrows()
        ]
    return made


def _short(text: str) -> str:
    """A number with many decimals as one with few, "n/a" for an unknown end of an interval, else as it is."""
    if not re.fullmatch(r"-?\d+\.\d{3,}", text):
        return "n/a" if text in ("inf", "-inf") else text
    size = abs(float(text))
    return f"{float(text):{'.2f' if size >= 1 else '.3f' if size >= 0.01 or not size else '.2g'}}"


# one page a paper ----------------------------------------------------------------------------------------------------


def page(paper: str) -> str:
    """One paper's items in Markdown, at its own settings where they were run, as results/<paper>.md.

    Raises BadValue for a paper without saved results.
    """
    choose("paper with saved results", paper, sorted({i["item"].split("/")[0] for p in SCALES for i in saved_items(p)}))
    saved = saved_by_scale(paper)
    items, every = largest_of(saved), [i for own in saved.values() for i in own]
    unfinished = {name for name, item in items.items() if item.get("missing")}
    # whose answers are shown, also in quick where the paper's runs are not all there
    telling = [i for i in every if items[i["item"]] is i or i["item"] in unfinished or i["profile"] == "paper"]
    # larger scales of the same tables, of which there are some runs
    more = [i for i in every if i["profile"] != "quick" and items[i["item"]] is not i and stored_runs(i)]
    shown, telling, more = (sorted(own, key=_reading_order) for own in (items.values(), telling, more))
    (name, title, place), declared = about(paper), import_module(f"fedlib.experiments.{paper}")
    parts = [
        f"# What could be reproduced from {name}" if place else f"# {name}",
        f"*{title}.{f' {place}.' if place else ''}*",
        " ".join(getattr(declared, "IN_SHORT", "").split()),
        summed_up(shown, more),
        f"`fedlib report {paper}` writes this page from stored runs; a function tests every claim on them. [Reading a "
        'claim](../notebooks/guides/reading_a_claim.ipynb) explains the verdicts. "(Additional)" marks claims '
        'that are not in the paper; "(Check)" marks implementation checks, which only test this code.',
        " ".join([POINTS, f"{VERDICTS}.", *getattr(declared, "TERMS", "").split()]),
        *_answers(telling),
        "## Scoreboard",
        across_scales(f"{paper}/*"),
        *chain(*(section(item, "../", item in telling) for item in sorted([*shown, *more], key=_reading_order))),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def summed_up(items: list[dict], more: list[dict] = ()) -> str:
    """How a paper's claims fared, by scale, in Markdown; items: one summary a table or figure; more: other ones."""
    claims = {p: [claim for item in items if item["profile"] == p for claim in item["claims"]] for p in SCALES}
    quick = {i["item"]: i for i in items if i["profile"] == "quick"}
    parts = {name: f" ({runs} so far at `reduced`)" for name in quick if " of " in (runs := begun(name, "reduced"))}
    parts |= {i["item"]: f"{so_far(i)[:-1]} at `{i['profile']}`)" for i in more}
    small = sorted(number(item) + parts.get(name, "") for name, item in quick.items())
    names = {p: "; ".join(number(i) for i in items if i["profile"] == p and i["claims"]) for p in SCALES}
    own = f"**At the paper's own settings** ({names['paper']}): {tally(claims['paper'])}."
    some = any(i["profile"] == "paper" for i in more) or any(" of " in begun(i["item"], "paper") for i in items)
    yet = "no table or figure has all its runs yet" if some else "nothing has been run yet"
    parts = [own if claims["paper"] else f"**At full scale** (profile `paper`) {yet}."]
    if claims["reduced"]:
        less = "**Reduced, with fewer rounds or methods, a smaller network or other data**"
        parts.append(f"{less} ({names['reduced']}): {tally(claims['reduced'])}.")
    if small:
        why = "**Complete only in the quick profile**, on digits, whose accuracies cannot be compared with the paper's:"
        parts.append(f"{why} {'; '.join(small)}.")
    return " ".join(parts)


def number(item: dict) -> str:
    """ "Table 3" of "pFedSim Table 3: ..."; of notes, without a number, what they are."""
    name, _, title = item["title"].partition(": ")
    less = " (scaled down)" * bool(item["profile"] == "paper" and smaller(item))
    return (found[0] if (found := re.search(r"(Table|Figure).*", name)) else title) + less


def _answers(items: list[dict]) -> list[str]:
    """What items say in sentences, or of their first claim, each with the profile that it was run in and how many of
    its runs are there."""
    said = []
    for item in items:
        where = f"(`{item['profile']}`{so_far(item)})"
        claim = next((claim for claim in item["claims"] if claim.get("kind", "paper") == "paper"), None)
        if item.get("answer"):
            said.append(f"- **{number(item)}** {where}. {item['answer']}")
        elif claim and item["profile"] != "quick":
            verdict = claim["verdict"][:1].upper() + claim["verdict"][1:]
            said.append(f"- **{number(item)}** {where}. {verdict}: {claim['claim']}")
    return ["## Main results by item", "\n".join(said)] if said else []


def _reading_order(item: dict) -> tuple:
    """Notes first: they are the answer."""
    return not item["item"].endswith("/notes"), reading_order(item["item"])


def origin(p: dict) -> str:
    """One line of provenance."""
    versions = ", ".join(f"{name} {version}" for name, version in p["versions"].items())
    commit = f"commit {p['commit']}{' with local changes' if p['dirty'] else ''}"
    return f"{commit}; {versions}; {p['device']}, {p['threads']} thread, backend {p['backend']}"


def scoreboard(items: list[dict]) -> str:
    """One row an item: how many of its claims were reproduced."""
    rows = []
    for i in items:
        first = next(iter(i["claims"]), {})
        row = {"item": i["item"], "what": i["title"], "data": ", ".join(data_of(i)), "claims": tally(i["claims"])}
        rows.append(row | {"margin of the first claim": margin(first), "95 % CI over": first.get("over", "")})
    return markdown(pd.DataFrame(rows))


def data_of(item: dict) -> list[str]:
    """The data sets that an item was run on."""
    settings = item["settings"]
    told = settings["datasets"] if "datasets" in settings else [settings["dataset"]] if "dataset" in settings else []
    return list(map(proper, item.get("data") or told))


def across_scales(pattern: str = "*/*") -> str:
    """One row an item, one column a scale, in Markdown: on which data, and how many claims got which verdict; without
    scales between quick and paper at which nothing was run. Links are those of a page in results/."""
    ends = ("quick", "paper")
    scales = {profile: title for profile, title in SCALES.items() if profile in ends or saved_items(profile)}
    by_profile = {profile: {i["item"]: i for i in saved_items(profile, pattern)} for profile in scales}
    rows = []
    for name in sorted(set().union(*by_profile.values())):
        row = {
            "item": f"[`{name}`](../notebooks/{name}.ipynb)",
            "what": next(i[name] for i in by_profile.values() if name in i)["title"],
        }
        for profile, title in scales.items():
            item = by_profile[profile].get(name)
            row[title] = (
                f"{', '.join(data_of(item))}{so_far(item)}: {tally(item['claims'])}" if item else begun(name, profile)
            )
        rows.append(row)
    return markdown(pd.DataFrame(rows)) if rows else "Nothing has been run yet."


def begun(name: str, profile: str) -> str:
    """How many runs are stored of an item that cannot be shown yet; a dash where it does not have this scale."""
    if name not in names() or profile not in find(name).settings:
        return "–" if name in names() else "not run yet"
    item = OpenItem(find(name), profile, finished=True)
    done, needed = len(item.specs) - len(item.missing), len(item.specs)
    return f"{done} of {needed} runs" if done else "not run yet"


def stored_runs(item: dict) -> int:
    """How many of an item's runs are stored."""
    return len(item["runs"]) - len(item.get("missing") or ())


def so_far(item: dict) -> str:
    """How many of an item's runs are there, where some are missing, in brackets."""
    return f" ({stored_runs(item)} of {len(item['runs'])} runs so far)" if item.get("missing") else ""
