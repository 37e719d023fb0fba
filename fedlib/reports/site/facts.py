"""What the pages say of items: what was saved of each, at every scale, with the runs behind it."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field

import pandas as pd

from fedlib.base.errors import BadValue
from fedlib.base.files import home
from fedlib.experiments import Item, OpenItem, find, names
from fedlib.reports.report import SCALES, data_of, largest, saved_items
from fedlib.reports.saved import OWN
from fedlib.reports.status import IN
from fedlib.runs.store import Spec

ALPHA = re.compile(r"Dir\([\d.]+\)")


@dataclass(frozen=True)
class Saved:
    """What was saved of an item at one place: a profile, or one with changed settings."""

    item: Item
    place: str
    summary: dict

    @property
    def scale(self) -> str:
        """The place in words: "paper: as in the paper"."""
        place, *changes = self.place.split("+")
        return f"{place}: {IN[self.summary['profile']]}" + (f", but {', '.join(changes)}" if changes else "")

    @property
    def data(self) -> str:
        """The data sets that it was run on."""
        return ", ".join(data_of(self.summary))

    @property
    def paper_data(self) -> str:
        """The data set of the paper's numbers beside a table of accuracies, where it is one."""
        table = self.item.table
        return (table.dataset(self.summary["settings"]) or "") if table else ""

    @property
    def figure(self) -> str:
        """The picture, from the project folder, and from the site's."""
        return f"figures/{self.place}/{self.item.name}.png"

    @functools.cached_property
    def opened(self) -> OpenItem | None:
        """The item with these settings; None if it does not have them any more."""
        try:
            return OpenItem(self.item, self.summary["profile"], finished=True, **self.summary["changed"])
        except BadValue:
            return None

    @functools.cached_property
    def specs(self) -> list[Spec]:
        """The runs behind it."""
        runs = set(self.summary["runs"])
        return [spec for spec in self.opened.specs if spec.id in runs] if self.opened else []

    def table(self, name: str = "") -> pd.DataFrame:
        """A stored table, cells as they are written; without a name: one observation a row. FileNotFoundError without
        it."""
        path = self.summary["path"].with_suffix(f".{name}.csv" if name else ".csv")
        return pd.read_csv(path, dtype=str, keep_default_na=False)

    def has(self, name: str) -> bool:
        """Whether such a table was stored."""
        return self.summary["path"].with_suffix(f".{name}.csv").exists()

    @functools.cached_property
    def tidy(self) -> pd.DataFrame:
        """One observation a row."""
        return self.table()

    @functools.cached_property
    def methods(self) -> list[str]:
        """The methods that were run."""
        return sorted({spec.method for spec in self.specs if hasattr(spec, "method")})

    @functools.cached_property
    def mixes(self) -> list[str]:
        """How differently the clients' data were mixed: "Dir(0.1)", "2 classes"."""
        found = {_mix(getattr(spec, "partition", {})) for spec in self.specs}
        found |= {text for column in self.tidy for text in self.tidy[column].unique() if ALPHA.fullmatch(text)}
        return sorted(found - {""}, key=_by_number)

    @functools.cached_property
    def points(self) -> list[str]:
        """Evaluation points in its numbers."""
        return sorted(set(self.tidy.get("point", ())))


def _mix(partition: dict) -> str:
    if "alpha" in partition:
        return f"Dir({partition['alpha']:g})"
    return f"{partition['classes_per_client']} classes" if "classes_per_client" in partition else ""


def _by_number(text: str) -> tuple:
    return text.startswith("Dir"), float(re.search(r"[\d.]+", text)[0])


@dataclass(frozen=True)
class Shown:
    """An item with all that was saved of it, by place: the profiles from small to large, then changed settings."""

    item: Item
    saved: dict[str, Saved] = field(default_factory=dict)

    @property
    def best(self) -> Saved | None:
        """The one to show first (`fedlib.reports.report.largest`)."""
        found = largest({place.removeprefix(f"{OWN}/"): one.summary for place, one in self.saved.items()})
        return next((one for one in self.saved.values() if one.summary is found), None)

    @property
    def others(self) -> list[Saved]:
        """The other ones, largest first."""
        return [one for one in reversed(self.saved.values()) if one is not self.best]

    @property
    def paper(self) -> str:
        return self.item.name.split("/")[0]


def read_all() -> dict[str, Shown]:
    """All items by name, in reading order; drafts only with results. Results are what is published, or where nothing is
    what was made here. Raises BadValue without any."""
    by_place = _by_place("") or _by_place(f"{OWN}/")
    if not by_place:
        raise BadValue(f"there are no results in {home() / 'results'} to make a site of; run `fedlib reproduce` first")
    found = {}
    for name in names():
        item = find(name)
        saved = {place: Saved(item, place, own[name]) for place, own in by_place.items() if name in own}
        if saved or not item.draft:
            found[name] = Shown(item, saved)
    return found


def _by_place(inside: str) -> dict[str, dict[str, dict]]:
    """Summaries of items by place and name: the profiles, and behind them those with changed settings."""
    changed = (path.name for path in sorted((home() / "results" / inside).glob("*+*")))
    places = [*SCALES, *(name for name in changed if name.split("+")[0] in SCALES)]
    found = {inside + place: {i["item"]: i for i in saved_items(inside + place)} for place in places}
    return {place: own for place, own in found.items() if own}
