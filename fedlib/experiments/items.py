"""What an item is: a table or figure of a paper, with its settings per profile, its analysis and its claims."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from fedlib import algorithms
from fedlib.base.errors import BadValue, FedlibError, choose, like, require
from fedlib.base.files import home, write_atomically
from fedlib.base.provenance import provenance
from fedlib.engine.result import RunResult
from fedlib.runs.store import Store
from fedlib.runs.sweep import run_all
from fedlib.spec import RunSpec

if TYPE_CHECKING:  # importing it takes half a second, and only the drawing functions need it
    from matplotlib.figure import Figure

PROFILES = ("smoke", "quick", "paper")
REPRODUCED, NOT_REPRODUCED, NOT_TESTED = "reproduced", "not reproduced", "not tested at this scale"


@dataclass(frozen=True)
class Verdict:
    """How a claim fared: status and the numbers behind it."""

    status: str
    evidence: str


def verdict(holds: bool, evidence: str) -> Verdict:
    """Reproduced if `holds`, else not."""
    return Verdict(REPRODUCED if holds else NOT_REPRODUCED, evidence)


@dataclass(frozen=True)
class Claim:
    """A sentence that a reader takes from the item, and a function of the item's tables that checks it."""

    text: str
    check: Callable[[dict[str, pd.DataFrame]], Verdict]


@dataclass(frozen=True)
class Item:
    """One table or figure. settings: per profile, plain scalars; `specs` and `analyse` are functions of them."""

    name: str  # "<paper>/<item>", the name of its notebook
    title: str
    claim: str  # the claim in one sentence
    smaller: str  # what the quick profile has smaller than the paper
    settings: dict[str, dict]
    minutes: dict[str, float]  # rough time per profile on two cores
    specs: Callable[[dict], list[RunSpec]]
    analyse: Callable[[dict, list[RunResult]], dict[str, pd.DataFrame]]  # tables by name; "tidy" and "compare" always
    figure: Callable[[dict[str, pd.DataFrame]], Figure]
    claims: tuple[Claim, ...] = field(default=())
    shown: dict[str, str] = field(default_factory=dict)  # more tables for the report: caption by name
    answer: Callable[[dict[str, pd.DataFrame]], str] | None = (
        None  # what the tables say, in sentences made of their numbers
    )
    partial: bool = False  # `analyse` and the claims cope with runs that are missing
    timed: bool = False  # seconds are what it shows: its runs are done one at a time, from beginning to end
    studied: bool = False  # `analyse` is the work: where nothing may be computed, the tables that it wrote are read


class OpenItem:
    """An item with a profile and overrides of its settings: what notebooks and the command line work with."""

    def __init__(
        self,
        item: Item,
        profile: str = "quick",
        device: str = "cpu",
        jobs: int | None = None,
        root: Path | None = None,
        finished: bool = False,
        **overrides,
    ):
        """finished: train nothing; items that can do so show the runs (or studies) that are there, and say which are missing."""
        self.item, self.profile, self.device, self.jobs = item, choose("profile", profile, PROFILES), device, jobs
        self.finished = finished
        own = item.settings[profile]
        given = {name: value for name, value in overrides.items() if value not in (None, "", 0, ())}
        for name in given:
            choose(f"setting of {item.name}", name, own)
        given = {name: _like_setting(own[name], name, value) for name, value in given.items()}
        self.changed = {name: value for name, value in given.items() if value != own[name]}
        self.settings = {**own, **self.changed}
        named = (f"+{name}={'_'.join(v) if isinstance(v, tuple) else v}" for name, v in self.changed.items())
        # folder under results/ and figures/: changed settings never mix with the profile's
        self.place = "".join([profile, *named]).replace("/", "_")  # as in dataset=folder:/some/where
        self.root = home() if root is None else Path(root)
        # a run is what its spec says, whatever item asks for it: those that the profile has already are not done again
        self.store = Store(self.place, self.root / "results", also=profile)
        self.specs = item.specs(self.settings)

    def describe(self) -> None:
        """Print what will be run, and what is already there."""
        done = sum(self.store.path(spec).exists() for spec in {spec.id: spec for spec in self.specs}.values())
        print(f"{self.item.name}, profile {self.profile}" + (f", changed: {self.changed}" if self.changed else ""))
        print("; ".join(f"{name} = {value}" for name, value in self.settings.items()))
        print(
            f"{len({s.id for s in self.specs})} training runs, {done} of them finished" if self.specs else "no training"
        )

    @functools.cached_property
    def missing(self) -> list[str]:
        """Runs, by their labels, that are not there; with `finished` also the study, if nobody has made it."""
        absent = [spec.label for spec in {s.id: s for s in self.specs}.values() if not self.store.path(spec).exists()]
        return absent + ["its study"] if self.reads_tables and self._summary is None else absent

    @property
    def reads_tables(self) -> bool:
        """Whether the tables are read instead of made."""
        return self.finished and self.item.studied

    @property
    def _folder(self) -> Path:
        return self.root / "results" / self.place / self.item.name.split("/")[0]

    @property
    def _stem(self) -> str:
        return self.item.name.split("/")[1]

    @functools.cached_property
    def _summary(self) -> dict | None:
        """What `save` wrote of a study with these settings, or None if that or a table is not there."""
        try:
            summary = json.loads((self._folder / f"{self._stem}.json").read_text())
        except (OSError, ValueError):
            return None
        if "texts" not in summary or summary["settings"] != json.loads(json.dumps(self.settings)):
            return None
        return (
            summary if all((self._folder / f"{self._file(name)}.csv").exists() for name in summary["texts"]) else None
        )

    def _read_tables(self) -> dict[str, pd.DataFrame]:
        tables = {}
        for name, texts in self._summary["texts"].items():
            path = self._folder / f"{self._file(name)}.csv"
            tables[name] = pd.read_csv(path, dtype=dict.fromkeys(texts, str), keep_default_na=False, na_values="")
            tables[name][texts] = tables[name][texts].fillna("")
        return tables

    def _file(self, table: str) -> str:
        return self._stem if table == "tidy" else f"{self._stem}.{table}"

    @property
    def lacks(self) -> str:
        """How much is missing, in words."""
        needed = len({spec.id for spec in self.specs})
        return f"{len(self.missing)} of {needed} runs are missing" if needed else "its study was not made yet"

    @property
    def can_be_shown(self) -> bool:
        """Whether there is something to show without training: all runs, or some if that is enough for the item."""
        return not self.missing or (self.item.partial and len(self.missing) < len({s.id for s in self.specs}))

    def run(self) -> list[RunResult]:
        """The results of all runs, computed or read. Raises FedlibError if one failed or diverged.

        With `finished`, those that are there; FedlibError if they do not suffice (`can_be_shown`).
        """
        if self.finished and not self.can_be_shown:
            raise FedlibError(f"{self.item.name}: {self.lacks}")
        there = [spec for spec in self.specs if not self.finished or self.store.path(spec).exists()]
        return self._finished(there)

    def _finished(self, specs: list[RunSpec]) -> list[RunResult]:
        timed = self.item.timed
        results = run_all(specs, self.store, jobs=1 if timed else self.jobs, device=self.device, share=not timed)
        for spec in specs:
            result = results[spec.id]
            if isinstance(result, FedlibError) or result.status != "finished":
                raise FedlibError(
                    f"{self.item.name}: run {spec.label} failed: {result if isinstance(result, FedlibError) else result.error}"
                )
        return [results[spec.id] for spec in specs]

    @functools.cached_property
    def results(self) -> list[RunResult]:
        return self.run()

    @functools.cached_property
    def tables(self) -> dict[str, pd.DataFrame]:
        """The item's tables by name: "tidy" (one observation a row), "compare" (paper | ours | difference), and its own."""
        if self.reads_tables and self.can_be_shown:
            return self._read_tables()
        return self.item.analyse(self.settings, self.results)

    def figure(self) -> Figure:
        """The item's picture, drawn from its tables."""
        return self.item.figure(self.tables)

    def compare(self) -> pd.DataFrame:
        """Paper | ours | difference."""
        return self.tables["compare"]

    def answer(self) -> str:
        """What the tables say in sentences, for items that give an answer; else an empty text."""
        return self.item.answer(self.tables) if self.item.answer else ""

    def verdicts(self) -> list[tuple[str, Verdict]]:
        """Every claim with its verdict on our results. A smoke run only shows that the code runs: it decides nothing."""
        checked = [(claim.text, claim.check(self.tables)) for claim in self.item.claims]
        if self.profile == "smoke" and (self.specs or self.item.studied):
            return [(text, Verdict(NOT_TESTED, f"smoke run; {v.evidence}")) for text, v in checked]
        return checked

    def claims(self) -> pd.DataFrame:
        """The verdicts as a table."""
        return pd.DataFrame(
            [{"claim": text, "verdict": v.status, "evidence": v.evidence} for text, v in self.verdicts()]
        )

    def save(self) -> dict:
        """Write figure, tables and claims under figures/ and results/; returns what the report needs."""
        folder, name = self._folder, self._stem
        for table, frame in self.tables.items():
            write_atomically(
                folder / f"{self._file(table)}.csv", frame.to_csv(index=False, float_format="%.6g").encode()
            )
        picture = self.root / "figures" / self.place / folder.name / f"{name}.png"
        picture.parent.mkdir(parents=True, exist_ok=True)
        figure = self.figure()
        figure.savefig(picture, dpi=110, bbox_inches="tight", metadata={"Software": None})
        summary = {
            "item": self.item.name,
            "title": self.item.title,
            "profile": self.profile,
            "changed": self.changed,
            "settings": self.settings,
            "claims": [{"claim": text, "verdict": v.status, "evidence": v.evidence} for text, v in self.verdicts()],
            "runs": [spec.id for spec in self.specs],
            "missing": self.missing,
            "provenance": self._provenance(),
            "figure": str(picture.relative_to(self.root)),
            "shown": self.item.shown,
            "answer": self.answer(),
        }
        if self.item.studied:  # columns of text, some of which look like numbers
            kinds = {name: frame.select_dtypes(exclude=["number", "bool"]) for name, frame in self.tables.items()}
            summary["texts"] = {name: list(texts.columns) for name, texts in kinds.items()}
        write_atomically(folder / f"{name}.json", (json.dumps(summary, indent=1) + "\n").encode())
        return summary

    def _provenance(self) -> list[dict]:
        """The distinct origins of the runs (date and shared rounds left out); of a study this process, or that which made it."""
        import torch

        if self.reads_tables:
            return self._summary["provenance"]
        origins = [r.provenance for r in self.results] or [provenance(torch.device("cpu"), "none")]
        distinct = {
            json.dumps({k: v for k, v in origin.items() if k not in ("date", "shared_rounds")}, sort_keys=True)
            for origin in origins
        }
        return [json.loads(text) for text in sorted(distinct)]


def _like_setting(default, name: str, value):
    """An override with the type of the setting it replaces; several names may come as "a,b"."""
    if isinstance(default, tuple):
        value = tuple(part.strip() for part in value.split(",")) if isinstance(value, str) else tuple(value)
        return tuple(choose("method", m, algorithms.names()) for m in value) if name == "methods" else value
    value = like(default, name, value)
    require(isinstance(value, str) or value > 0, name, value, "a positive number")
    return value


def open_item(name: str, profile: str = "quick", **options) -> OpenItem:
    """Open an item by name; `profile` gives way to the environment variable FEDLIB_PROFILE. Raises BadValue for unknown names."""
    from fedlib.experiments import ITEMS

    return OpenItem(ITEMS[choose("item", name, ITEMS)], os.environ.get("FEDLIB_PROFILE") or profile, **options)


def at_paper_scale(name: str) -> OpenItem | None:
    """An item at the paper's own settings, made of the runs that are there, without training; prints how many that are.

    None if there are none, or not all and the item needs all. Raises BadValue for unknown names.
    """
    from fedlib.experiments import ITEMS

    item = OpenItem(ITEMS[choose("item", name, ITEMS)], "paper", finished=True)
    needed = len({spec.id for spec in item.specs})
    if item.item.studied:
        print(f"the study at the paper's settings is {'here' if item.can_be_shown else 'not made yet'}")
    else:
        print(f"{needed - len(item.missing)} of {needed} runs at the paper's settings are here")
    return item if item.can_be_shown else None


def paper_table(paper: str, table: str) -> pd.DataFrame:
    """The numbers that a paper prints, one row a cell, values in the printed unit. The `variant` column is split into columns."""
    path = (
        Path(__file__).parent / "paper_tables" / f"{paper}_{table if table.startswith('fig') else f'table{table}'}.csv"
    )
    if not path.exists():
        raise BadValue(f"there are no numbers of {paper} table {table} here")
    frame = pd.read_csv(path, dtype={"variant": str, "note": str})
    pairs = frame["variant"].fillna("").map(lambda v: dict(part.split("=", 1) for part in v.split(";") if part))
    return pd.concat([frame.drop(columns="variant"), pd.DataFrame(pairs.tolist(), index=frame.index)], axis=1)


def only(frame: pd.DataFrame, **values) -> pd.DataFrame:
    """The rows whose columns have the given values."""
    for column, value in values.items():
        frame = frame[frame[column] == value]
    return frame


def mean_std(values) -> str:
    """ "mean (std)" over seeds, std with one degree of freedom less; the mean alone for one seed."""
    values = pd.Series(list(values), dtype=float)
    digits = ".3f" if values.abs().max() >= 0.01 else ".2g"
    spread = f" ({values.std(ddof=1):{digits}})" if len(values) > 1 else ""
    return f"{values.mean():{digits}}{spread}"
