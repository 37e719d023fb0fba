"""Whether what a user has made is what comes with fedlib: all numbers of an item's tables and claims, and all verdicts,
as they are written; but for columns of a machine or a moment, claims about seconds, and ST-LPIPS without its extra."""

import re
from collections.abc import Sequence

import pandas as pd

from fedlib.attacks.scores import can_be_computed
from fedlib.base.errors import BadValue, choose
from fedlib.experiments import find
from fedlib.experiments import names as items
from fedlib.reports.report import saved_items
from fedlib.reports.saved import OWN

MACHINES = re.compile(r"(seconds|time, ).*|difference from the paper's CIFAR-10|date|load|origin")
PERCEPTUAL = ("lpips", "ST-LPIPS")
Pairs = dict[str, tuple[str, str]]  # by where it stands: what is published, and what was made here; "-": nothing
Compared = dict[str, tuple[Pairs, Pairs]]  # by item: numbers, with the text around them, and verdicts


def compare(place: str, names: Sequence[str] = ()) -> Compared:
    """The items, all or these, that are there both in results/<place> and in results/own/<place>."""
    published, own = ({i["item"]: i for i in saved_items(p)} for p in (place, f"{OWN}/{place}"))
    both = [name for name in published if name in own and (not names or name in names)]
    return {name: tuple(map(_paired, _said(published[name]), _said(own[name]))) for name in both}


def _paired(then: dict[str, str], now: dict[str, str]) -> Pairs:
    return {where: (then.get(where, "-"), now.get(where, "-")) for where in {**then, **now}}


def _said(item: dict) -> tuple[dict[str, str], dict[str, str]]:
    """What a saved item says in its tables (by file, line and column) and beside its verdicts; and these."""
    claims = [c for c in item["claims"] if c["kind"] == "check" or not find(item["item"]).timed]
    texts = {name: str(item.get(name)) for name in ("seeds", "missing", "diverged", "answer")}
    texts |= {f"{part}: {c['claim']}": str(c.get(part)) for c in claims for part in ("evidence", "margin")}
    for path in sorted(item["path"].parent.glob(f"{item['path'].stem}.*csv")):
        for name, cells in pd.read_csv(path, dtype=str, keep_default_na=False).items():
            if not MACHINES.fullmatch(name) and (name not in PERCEPTUAL or can_be_computed()):
                texts |= {f"{path.name}:{line}, {name}": cell for line, cell in enumerate(cells, 2)}
    return texts, {c["claim"]: c["verdict"] for c in claims}


def differing(pairs: Pairs) -> Pairs:
    """Those of which the two are not the same."""
    return {where: both for where, both in pairs.items() if both[0] != both[1]}


def in_one_line(found: Compared, place: str) -> str:
    """That all is the same; else how much is not, by item. What has a digit in it, or differs, counts as a number."""
    if not found:
        return f"results/{place} has none of these items to compare with"
    numbers = sum(a != b or any(map(str.isdigit, a)) for pairs, _ in found.values() for a, b in pairs.values())
    verdicts = sum(len(pairs) for _, pairs in found.values())
    other = {item: [len(differing(pairs)) for pairs in both] for item, both in found.items()}
    (n, v), apart = map(sum, zip(*other.values())), "; times are not compared"
    apart += "" if can_be_computed() else "; ST-LPIPS is not compared, it needs fedlib[attack]"
    if not n + v:
        return f"all {numbers:,} numbers and {verdicts} verdicts are those that come with fedlib{apart}"
    said = f"{n:,} of {numbers:,} numbers and {v} of {verdicts} verdicts differ from those that come with fedlib"
    where = ", ".join(f"{item} ({a} and {b})" for item, (a, b) in other.items() if a or b)
    return f"{said}: {where}{apart}; `fedlib report --compare --profile {place}` lists them"


def differences(profile: str, paper: str | None = None) -> list[str]:
    """A line for each number and verdict that is not as published, of all items or a paper's, and how many there are.

    Raises BadValue where there is nothing to compare.
    """
    if paper is not None:
        choose("paper", paper, dict.fromkeys(name.split("/")[0] for name in items()))
    found = compare(profile, [name for name in items() if paper in (None, name.split("/")[0])])
    if not found:
        raise BadValue(
            f"there is nothing to compare: results/own/{profile} and results/{profile} have no items in common"
            f"{f' of {paper}' if paper else ''}; run `fedlib reproduce --profile {profile.partition('+')[0]}` first"
        )
    lines = [
        f"{item}, {where}: {published} -> {own}"
        for item, (numbers, verdicts) in found.items()
        for where, (published, own) in (differing(verdicts) | differing(numbers)).items()
    ]
    return [*lines, in_one_line(found, profile).partition("; `fedlib report")[0]]
