"""What an item is: a table or figure of a paper, with its settings per profile, its analysis and its claims."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from fedlib import algorithms
from fedlib.analysis.run_ids import run_ids
from fedlib.analysis.uncertainty import units
from fedlib.base.errors import FedlibError, choose, like, require
from fedlib.base.files import home
from fedlib.claims import NOT_TESTED, UNDECIDED, Claim, Verdict
from fedlib.engine.result import RunResult
from fedlib.runs.store import Store
from fedlib.runs.sweep import run_all
from fedlib.spec import RunSpec

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from fedlib.experiments.accuracy_table import AccuracyTable

PROFILES = ("smoke", "quick", "overnight", "paper")  # from small to large; not every item has the third
ALWAYS = ("smoke", "quick", "paper")
BUSY = 0.1  # of a machine's processor time: where others take more, seconds decide nothing
FORBIDDEN = re.compile(r'[/\\:*?"<>|]')  # in the name of a folder, on one of the systems
STAND_INS = ("digits", "digits_looks", "digits_large")  # embedded data, which are none of the papers'

Tables = dict[str, pd.DataFrame]
Runs, Found = dict[Hashable, RunSpec], dict[Hashable, RunResult]  # by what an item calls a run


@dataclass(frozen=True)
class Item:
    """One table or figure, declared in a file of its own. settings:
    per profile, plain scalars, of which the others are functions.

    runs: what is trained; analyse: tables of their results, under the same keys. Always there are "tidy" (one
    observation a row) and "compare" (paper | ours | difference); those whose names begin with "_" are for claims and
    figures, and not saved.
    """

    title: str
    claim: str  # the claim in one sentence
    smaller: str  # what the quick profile has smaller than the paper
    smaller_overnight: str = field(default="", kw_only=True)  # what overnight has, where there is that profile
    settings: dict[str, dict]
    minutes: dict[str, float]  # rough time per profile on two cores
    analyse: Callable[[dict, Found], Tables]  # trains nothing
    figure: Callable[[Tables], Figure]
    runs: Callable[[dict], Runs] = lambda s: {}
    claims: tuple[Claim, ...] = ()
    shown: dict[str, str] = field(default_factory=dict)  # more tables for the report: caption by name
    answer: Callable[[Tables], str] | None = None  # what the tables say, in sentences made of their numbers
    partial: bool = False  # `analyse` and the claims cope with runs that are missing
    diverging: bool = False  # `analyse` sees the runs that diverged, too
    timed: bool = False  # seconds are what it shows: its runs are done one at a time, from beginning to end
    draft: bool = False  # declared, but without notebook and results: only done when it is named
    table: AccuracyTable | None = None  # where it is one
    made_of: Callable[[str, Hashable], bool] = lambda table, key: True  # does this run, by its key, go into this table?
    called: dict[str, tuple[str, ...]] = field(default_factory=dict)  # what labels of tables stand for in keys of runs
    name: str = ""  # "<paper>/<file>", given by `fedlib.experiments.find`

    def smaller_at(self, profile: str) -> str:
        """What a profile has smaller than the paper, "" where nothing is."""
        smoke = "as little as shows that everything runs"
        return {"smoke": smoke, "quick": self.smaller, "overnight": self.smaller_overnight}.get(profile, "")


def per_profile(settings: dict[str, dict] | None = None, /, overnight: dict | None = None, **more) -> dict[str, dict]:
    """Settings by profile, new or with others added: one for all, or a list of one for smoke, quick and paper, None for
    what is there. overnight: what that profile has other than the paper's, by which an item gets it."""
    made = {profile: dict(settings[profile] if settings else {}) for profile in settings or ALWAYS}
    if overnight is not None:
        made.setdefault("overnight", dict(made["paper"]))
    for name, value in more.items():
        given = dict(zip(ALWAYS, value if isinstance(value, list) else [value] * len(ALWAYS), strict=True))
        for profile, own in made.items():
            one = given["paper" if profile == "overnight" else profile]
            own |= {} if one is None else {name: one}
    made.get("overnight", {}).update(overnight or {})
    return {profile: made[profile] for profile in PROFILES if profile in made}


def runs_of(task: dict, rows: dict[str, dict], seeds: int) -> Runs:
    """Runs by row and seed, which draws the partition, too. task: what they have in common; rows: by name the method
    with its hyper-parameters or fields of the run (`RunSpec.of_task`)."""
    return {
        (name, seed): RunSpec.of_task({**task, "seed": seed, "partition_seed": seed}, **how)
        for seed in range(seeds)
        for name, how in rows.items()
    }


def joined(parts: dict[str, Runs]) -> Runs:
    """Runs of several kinds as those of one item: their kind comes first in each key. `part` gives one kind back."""
    return {(kind, *key): spec for kind, runs in parts.items() for key, spec in runs.items()}


def part(found: Found, kind: Hashable) -> Found:
    """The results of one kind of what was `joined`, by the keys that they had before."""
    return {key[1:]: r for key, r in found.items() if key[0] == kind}


def leaving_out(settings: dict[str, dict], *names: str) -> dict[str, dict]:
    """Settings by profile without these, which an item has no use for."""
    return {p: {name: value for name, value in own.items() if name not in names} for p, own in settings.items()}


class OpenItem:
    """An item with a profile and overrides of its settings: what notebooks and the command line work with."""

    def __init__(
        self, item: Item, profile: str = "quick", device: str = "cpu", jobs: int | None = None,
        root: Path | None = None, finished: bool = False, **overrides,
    ):  # fmt: skip
        """overrides: settings; None, "" and () stand for the profile's own. finished: train nothing; items that can do
        so show the runs that are there, and say which are missing. Raises BadValue for an unknown setting or a value
        out of range."""
        choose("profile", profile, PROFILES)
        self.item, self.device, self.jobs = item, device, jobs
        self.profile = choose(f"profile of {item.name}", profile, item.settings)
        self.finished, own = finished, item.settings[profile]
        given = {name: value for name, value in overrides.items() if value is not None and value != "" and value != ()}
        for name in given:
            choose(f"setting of {item.name}", name, own)
        given = {name: _like_setting(own[name], name, value) for name, value in given.items()}
        self.changed = {name: value for name, value in given.items() if value != own[name]}
        self.settings = {**own, **self.changed}
        named = (f"+{name}={'_'.join(map(str, v)) if isinstance(v, tuple) else v}" for name, v in self.changed.items())
        # folder under results/ and figures/: changed settings never mix with the profile's
        self.place = FORBIDDEN.sub("_", "".join([profile, *named]))  # as in dataset=folder:/some/where
        self.root = home() if root is None else Path(root)
        # a run is what its spec says, whatever item asks for it: those that the profile has already are not done again
        self.store = Store(self.place, self.root / "results", also=profile)
        self.runs = item.runs(self.settings)
        self.specs = list({spec.id: spec for spec in self.runs.values()}.values())
        self.diverged: list[str] = []  # labels of runs that did, after `run`

    def describe(self) -> None:
        """Print what will be run, and what is already there."""
        print(f"{self.item.name}, profile {self.profile}" + (f", changed: {self.changed}" if self.changed else ""))
        print("; ".join(f"{name} = {value}" for name, value in self.settings.items()))
        finished = len(self.specs) - len(self.missing)
        print(f"{len(self.specs)} training runs, {finished} of them finished" if self.specs else "no training")

    @property
    def missing(self) -> list[str]:
        """Runs, by their labels, that are not there."""
        return [spec.label for spec in self.specs if not self.store.path(spec).exists()]

    @property
    def lacks(self) -> str:
        """How much is missing, in words."""
        return f"{len(self.missing)} of {len(self.specs)} runs are missing"

    @property
    def can_be_shown(self) -> bool:
        """Whether there is something to show without training: all runs, or some if that is enough for the item."""
        return not self.missing or (self.item.partial and len(self.missing) < len(self.specs))

    def run(self) -> list[RunResult]:
        """The results of all runs, computed or read. Raises FedlibError if one failed, or diverged.

        With `finished`, those that are there; FedlibError if they do not suffice (`can_be_shown`). An item that copes
        with runs that are missing leaves out those that diverged (`diverged`).
        """
        if self.finished and not self.can_be_shown:
            raise FedlibError(f"{self.item.name}: {self.lacks}")
        specs = [spec for spec in self.specs if not self.finished or self.store.path(spec).exists()]
        timed = self.item.timed
        results = run_all(specs, self.store, jobs=1 if timed else self.jobs, device=self.device, share=not timed)
        for spec in specs:
            result = results[spec.id]
            if isinstance(result, FedlibError) or (result.status != "finished" and not self.item.partial):
                why = result if isinstance(result, FedlibError) else result.error
                raise FedlibError(f"{self.item.name}: run {spec.label} failed: {why}")
        self.diverged = [spec.label for spec in specs if results[spec.id].status != "finished"]
        return [results[s.id] for s in specs if self.item.diverging or results[s.id].status == "finished"]

    @functools.cached_property
    def results(self) -> list[RunResult]:
        return self.run()

    @functools.cached_property
    def tables(self) -> Tables:
        """The item's tables by name."""
        by_id = {r.spec.id: r for r in self.results}
        found = {key: by_id[spec.id] for key, spec in self.runs.items() if spec.id in by_id}
        return self.item.analyse(self.settings, found)

    def made_by(self, table: str) -> list[str]:
        """Of every row of a table the runs that it is made of, by the beginnings of their ids (`run_ids`)."""
        runs = {key: spec for key, spec in self.runs.items() if self.item.made_of(table, key)}
        return run_ids(self.tables[table], runs, [r.spec.id for r in self.results], self.item.called)

    def figure(self) -> Figure:
        """The item's picture, drawn from its tables."""
        return self.item.figure(self.tables)

    def compare(self) -> pd.DataFrame:
        """Paper | ours | difference."""
        return self.tables["compare"]

    def answer(self) -> str:
        """What the tables say in sentences, for items that give an answer; else an empty text."""
        return self.item.answer(self.tables) if self.item.answer else ""

    @functools.cached_property
    def checked(self) -> list[tuple[Claim, Verdict]]:
        """Every claim with its verdict on our results. A smoke run, which shows that the code runs, decides nothing."""
        found = [(claim, claim.check(self.tables)) for claim in self.item.claims]
        if self.item.timed:
            found = [(claim, v if claim.kind == "check" else self._timed(v)) for claim, v in found]
        if self.profile == "smoke" and self.specs:
            found = [(claim, Verdict(NOT_TESTED, f"smoke run; {v.evidence}")) for claim, v in found]
        return found

    def _timed(self, v: Verdict) -> Verdict:
        """A verdict on seconds, with how busy the machine was: undecided, if others took more than BUSY of it."""
        loads = [r.provenance.get("load") for r in self.results]
        if None in loads:
            return replace(v, evidence=f"{v.evidence}; how busy the machine was is not known")
        evidence = f"{v.evidence}; meanwhile other programs took up to {max(loads):.0%} of the machine"
        if max(loads) > BUSY and v.status != NOT_TESTED:
            return replace(v, status=UNDECIDED, evidence=f"{evidence}, more than {BUSY:.0%}: time it again when idle")
        return replace(v, evidence=evidence)

    @property
    def elsewhere(self) -> str:
        """The data, where they only stand in for the paper's."""
        return "digits" if self.settings.get("dataset") in STAND_INS else ""

    def verdicts(self) -> list[tuple[str, Verdict]]:
        """The claims' texts and verdicts, in the words that fit the data; the evidence says what intervals are over."""
        over = units(self.tables)
        return [claim.said(v, self.elsewhere, over) for claim, v in self.checked]

    def claims(self) -> pd.DataFrame:
        """The verdicts as a table."""
        lines = [(text, v.status, v.evidence) for text, v in self.verdicts()]
        return pd.DataFrame(lines, columns=["claim", "verdict", "evidence"])


def _like_setting(default, name: str, value):
    """An override with the type of the setting it replaces; several names or numbers may come as "a,b"."""
    if isinstance(default, tuple):
        parts = value if isinstance(value, (list, tuple)) else [part.strip() for part in str(value).split(",")]
        if default and isinstance(default[0], float):
            return tuple(_like_setting(default[0], name, _as_number(part)) for part in parts)
        return tuple(map(algorithms.named, parts) if name == "methods" else parts)
    value = like(default, name, value)
    require(isinstance(value, (str, bool)) or value > 0, name, value, "a positive number")
    return value


def _as_number(text):
    """A text as the number it spells, everything else as it is."""
    try:
        return float(text)
    except (TypeError, ValueError):
        return text
