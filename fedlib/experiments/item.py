"""What an item is: a table or figure of a paper, with its settings per profile, its analysis and its claims."""

from __future__ import annotations

import contextlib
import functools
import re
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from fedlib import algorithms
from fedlib.analysis.accuracies import folded
from fedlib.analysis.names import counted, proper
from fedlib.analysis.tables import Found
from fedlib.analysis.uncertainty import units
from fedlib.base.errors import FedlibError, choose, like, require
from fedlib.base.files import home
from fedlib.base.same_bits import of_run
from fedlib.claims import INCONCLUSIVE, NOT_REPRODUCED, NOT_TESTED, ONE_SEED, REPRODUCED, Claim, Verdict
from fedlib.engine.result import RunResult
from fedlib.runs.store import Store
from fedlib.runs.sweep import run_all
from fedlib.spec import RunSpec

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from fedlib.experiments.accuracy_table import AccuracyTable

PROFILES = ("smoke", "quick", "reduced", "paper")  # from small to large; not every item has all
ALWAYS = ("smoke", "quick", "paper")
BUSY = 0.1  # of a machine's processor time: where others take more, seconds decide nothing
FORBIDDEN = re.compile(r'[/\\:*?"<>|]')  # in the name of a folder, on one of the systems
STAND_INS = {  # data that are none of the papers', and what a verdict calls them
    **dict.fromkeys(("digits", "digits_looks", "digits_large"), "digits"),
    "pacs": "PACS",
}
OPTIONS = {  # settings whose names do not say what they are; "": not shown, the tables say which runs there are
    "seeds": "at least", "min_size": "images per client at least", "pools": "max-pool layers",
    "seeds_of_claims": "seeds at least, for methods that a claim names", "beta": "share of the rounds in stage 1",
    "holdout": "share of training images for validation", "fedavg_points": "evaluation points of FedAvg",
    "pixels": "scaled to [-1, 1]", "dirichlet_test": "equally many images of every class owned",
    "drawn_clients": "in the figure", "client_clip": "of a client's update", "trained": "rounds before the attack",
    "shown": "in the figure", "network": "of the last attack", **dict.fromkeys(("methods", "tasks", "again", "beside",
    "closest", "further", "hundred_classes", "lower", "mixing", "more_seeds", "search", "smaller_inputs", "stable",
    "table_seeds", "whole"), ""), "draws": "partitions",
}  # fmt: skip

Tables = dict[str, pd.DataFrame]
Runs = dict[Hashable, RunSpec]  # by what an item calls a run


@dataclass(frozen=True)
class Item:
    """One table or figure, declared in a file of its own. settings: plain scalars per profile; the other fields are
    functions of them.

    runs: what is trained; analyse: tables of their results, under the same keys. Always there are "tidy" (one
    observation per row) and "compare" (paper | ours | difference); those whose names begin with "_" are for claims and
    figures, and not saved.
    """

    title: str
    claim: str  # the claim in one sentence
    smaller: str  # in what the quick profile is smaller than the paper
    smaller_reduced: str = field(default="", kw_only=True)  # the same for reduced, if the item has it
    smaller_paper: str = field(default="", kw_only=True)  # what even `paper` has smaller
    settings: dict[str, dict]
    minutes: dict[str, float]  # rough time per profile on two cores
    analyse: Callable[[dict, Found], Tables]  # trains nothing
    figure: Callable[[Tables], Figure | None]  # None: nothing to show yet
    runs: Callable[[dict], Runs] = lambda s: {}
    claims: tuple[Claim, ...] = ()
    shown: dict[str, str] = field(default_factory=dict)  # more tables for the report: caption by name
    answer: Callable[[Tables], str] | None = None  # what the tables say, in sentences made of their numbers
    partial: bool = False  # `analyse` and the claims cope with runs that are missing
    diverging: bool = False  # `analyse` sees the runs that diverged, too
    timed: bool = False  # seconds are what it shows: its runs are done one at a time
    table: AccuracyTable | None = None  # where it is one
    name: str = ""  # "<paper>/<file>", given by `fedlib.experiments.find`

    def smaller_at(self, profile: str) -> str:
        """In what a profile is smaller than the paper; "" if in nothing."""
        there = {"quick": self.smaller, "reduced": self.smaller_reduced, "paper": self.smaller_paper}
        return {"smoke": "as little as shows that everything runs", **there}.get(profile, "")


def per_profile(settings: dict[str, dict] | None = None, /, reduced: dict | None = None, **more) -> dict[str, dict]:
    """Settings by profile, new or with others added: one for all, or a list of one for smoke, quick and paper, None for
    what is there. reduced: what that profile has other than the paper's, by which an item gets it; None: without that
    setting."""
    made = {profile: dict(settings[profile] if settings else {}) for profile in settings or ALWAYS}
    if reduced is not None:
        made.setdefault("reduced", dict(made["paper"]))
    for name, value in more.items():
        given = dict(zip(ALWAYS, value if isinstance(value, list) else [value] * len(ALWAYS), strict=True))
        for profile, own in made.items():
            one = given["paper" if profile == "reduced" else profile]
            own |= {} if one is None else {name: one}
    if reduced is not None:
        made["reduced"] = {name: value for name, value in {**made["reduced"], **reduced}.items() if value is not None}
    return {profile: made[profile] for profile in PROFILES if profile in made}


def runs_of(task: dict, rows: dict[Hashable, dict], seeds: int) -> Runs:
    """Runs by row and seed, which draws the partition, too. task: what they have in common; rows: by name, or by the
    parts of one, the method with its hyper-parameters or fields of the run (`RunSpec.of_task`)."""
    keys = {name: name if isinstance(name, tuple) else (name,) for name in rows}
    return {
        (*keys[name], seed): RunSpec.of_task({**task, "seed": seed, "partition_seed": seed}, **how)
        for seed in range(seeds)
        for name, how in rows.items()
    }


def joined(parts: dict[str, Runs]) -> Runs:
    """Runs of several kinds as those of one item: their kind comes first in each key. `part` gives one kind back."""
    return {(kind, *key): spec for kind, runs in parts.items() for key, spec in runs.items()}


def part(found: Found, kind: Hashable) -> Found:
    """The results of one kind of what was `joined`, by the keys that they had before."""
    own = Found({key[1:]: r for key, r in found.items() if key[0] == kind})
    own.diverged = frozenset(key[1:] for key in getattr(found, "diverged", ()) if key[0] == kind)
    return own


def leaving_out(settings: dict[str, dict], *names: str) -> dict[str, dict]:
    """Settings by profile without these settings and profiles, which an item has no use for."""
    kept = {profile: own for profile, own in settings.items() if profile not in names}
    return {p: {name: value for name, value in own.items() if name not in names} for p, own in kept.items()}


def stated(settings: dict) -> list[str]:
    """The settings that say something (not None, False and what is empty), as they are read."""
    given = {n: v for n, v in settings.items() if OPTIONS.get(n) != "" and (v or v == 0 and v is not False)}
    values = {name: " | ".join(map(str, v)) if isinstance(v, (tuple, list)) else v for name, v in given.items()}
    return [f"{name} = {v}{f' ({OPTIONS[name]})' if name in OPTIONS else ''}" for name, v in values.items()]


class OpenItem:
    """An item with a profile and overrides of its settings: what notebooks and the command line work with."""

    def __init__(
        self, item: Item, profile: str = "quick", device: str = "cpu", jobs: int | None = None,
        root: Path | None = None, finished: bool = False, **overrides,
    ):  # fmt: skip
        """overrides: settings; None and what is empty stand for the profile's own. finished: train nothing; items that
        can do so show the runs that are there, and say which are missing. Raises BadValue for an unknown setting or a
        value out of range, and for methods that the item does not run."""
        choose("profile", profile, PROFILES)
        self.item, self.device, self.jobs = item, device, jobs
        self.profile = choose(f"profile of {item.name}", profile, item.settings)
        self.finished, own = finished, item.settings[profile]
        given = {name: value for name, value in overrides.items() if value not in (None, "", (), [])}
        for name in given:
            choose(f"setting of {item.name}", name, own)
        given = {name: _like_setting(own[name], name, value, self._known(name)) for name, value in given.items()}
        self.changed = {name: value for name, value in given.items() if value != own[name]}
        self.settings = {**own, **self.changed}
        named = (f"+{name}={'_'.join(map(str, v)) if isinstance(v, tuple) else v}" for name, v in self.changed.items())
        # folder under results/ and figures/: changed settings never mix with the profile's
        self.place = FORBIDDEN.sub("_", "".join([profile, *named]))  # as in dataset=folder:/some/where
        self.root = home() if root is None else Path(root)
        # a run is what its spec says, whatever item asks for it: those that the profile has already are not done again,
        # nor those at the paper's settings that are part of a smaller scale
        also = (profile, "reduced") if profile == "paper" else (profile,)
        self.store = Store(self.place, self.root / "results", also)
        self.runs = item.runs(self.settings)
        if "methods" in self.changed:
            self._require_runs(self.changed["methods"])
        self.specs = list({spec.id: spec for spec in self.runs.values()}.values())
        self.diverged: list[RunSpec] = []  # runs that did, after `run`

    def _known(self, name: str) -> tuple:
        """What a setting with several values has in one of the profiles, in order."""
        values = [own.get(name) for own in self.item.settings.values()]
        return tuple(dict.fromkeys(each for value in values if isinstance(value, tuple) for each in value))

    def _require_runs(self, methods: tuple[str, ...]) -> None:
        """Raise BadValue if the item has no run of one of these methods, or has the same runs whatever is asked for."""

        def runs(names: tuple[str, ...]) -> Runs:
            return self.item.runs({**self.settings, "methods": names})

        def run(found: Runs) -> set[str]:
            return {getattr(spec, "method", "") for spec in found.values()}

        asked, there = {name.partition(", ")[0] for name in methods}, run(self.runs)
        fixed = asked != there and self.runs == runs(self.item.settings[self.profile]["methods"])
        if fixed or asked - there:
            names = ", ".join(sorted(there if fixed else run(runs(self._known("methods")))))
            expected = f"none, for it always runs {names}" if fixed else f"some of {names}"
            require(False, f"methods of {self.item.name}", ",".join(methods), expected)

    def describe(self) -> None:
        """Print what will be run, and what is already there."""
        print(f"{self.item.name}, profile {self.profile}" + (f", changed: {self.changed}" if self.changed else ""))
        print("; ".join(stated(self.settings)))
        finished = len(self.specs) - len(self.missing)
        print(f"{counted(len(self.specs), 'training run')}, {finished} stored" if self.specs else "no training")

    @property
    def missing(self) -> list[str]:
        """The titles of runs that are not there."""
        gone = [spec for spec in self.specs if not self.store.path(spec).exists()]
        return [f"{s.title}, {s.num_clients} clients" if isinstance(s, RunSpec) else s.title for s in gone]

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
        if self.finished:  # a damaged run counts as missing
            results = {spec.id: found for spec in self.specs if (found := self.store.get(spec)) is not None}
            if len(results) < (min(1, len(self.specs)) if self.item.partial else len(self.specs)):
                raise FedlibError(f"{self.item.name}: {self.lacks}")
        else:
            results = run_all(self.specs, self.store, jobs=1 if self.item.timed else self.jobs, device=self.device)
        specs = [spec for spec in self.specs if spec.id in results]
        for spec in specs:
            result = results[spec.id]
            if isinstance(result, FedlibError) or (result.status != "finished" and not self.item.partial):
                why = result if isinstance(result, FedlibError) else result.error
                raise FedlibError(f"{self.item.name}: run {spec.label} failed: {why}")
        kinds = Counter(of_run(results[spec.id].provenance) for spec in specs)
        if len(kinds) > 1:
            found = " and ".join(f"{count} with {kind}" for kind, count in kinds.most_common())
            again = f"`fedlib sweep {self.item.name} --profile {self.profile} --renew` does the others again"
            raise FedlibError(f"{self.item.name}: of its runs {found} arithmetic, which are not compared; {again}")
        self.diverged = [spec for spec in specs if results[spec.id].status != "finished"]
        return [results[s.id] for s in specs if self.item.diverging or results[s.id].status == "finished"]

    @functools.cached_property
    def results(self) -> list[RunResult]:
        return self.run()

    @functools.cached_property
    def tables(self) -> Tables:
        """The item's tables by name; columns of a table of accuracies of which no run is stored are `folded`."""
        by_id = {r.spec.id: r for r in self.results}
        found = Found({key: by_id[spec.id] for key, spec in self.runs.items() if spec.id in by_id})
        lost = {spec.id for spec in self.diverged}
        found.diverged = frozenset(key for key, spec in self.runs.items() if spec.id in lost)
        tables = self.item.analyse(self.settings, found)
        return {**tables, "compare": folded(tables["compare"], self.not_run)} if self.not_run else tables

    @property
    def not_run(self) -> dict[str, str]:
        """Columns of a table of accuracies of which no run is stored, finished or diverged, with their data sets."""
        if self.item.table is None or not self.missing:
            return {}
        by_column: dict[str, list[RunSpec]] = {}
        for key, spec in self.runs.items():
            if len(key) == 3:  # row, column, seed
                by_column.setdefault(key[1], []).append(spec)
        gone = {c: specs for c, specs in by_column.items() if not any(self.store.path(s).exists() for s in specs)}
        return {column: specs[0].dataset for column, specs in gone.items()}

    def figure(self) -> Figure | None:
        """The item's picture, drawn from its tables; None if they have nothing to show yet. Its title says
        if it rests on one seed."""
        from fedlib.figures.base import headline  # here, for Matplotlib takes a second

        figure = self.item.figure(self.tables)
        title = " ".join(figure.get_suptitle().split()) if figure else ""
        if title and "one seed" not in title and units(self.tables) == "one seed":
            headline(figure, f"{title}; one seed")
        return figure

    def compare(self) -> pd.DataFrame:
        """Paper | ours | difference."""
        return self.tables["compare"]

    def answer(self) -> str:
        """What the tables say in sentences, for items that give an answer; else an empty text."""
        return proper(self.item.answer(self.tables)) if self.item.answer else ""

    @functools.cached_property
    def checked(self) -> list[tuple[Claim, Verdict]]:
        """Every claim with its verdict on our results. A smoke run, which shows that the code runs, decides nothing."""
        printed = self.item.table.as_printed(self.settings) if self.item.table else {}
        found = [(claim, self._checked(claim, printed)) for claim in self.item.claims]
        if self.item.timed:
            found = [(claim, v if claim.kind == "check" else self._timed(v)) for claim, v in found]
        if self.profile == "smoke" and self.specs:
            found = [(claim, Verdict(NOT_TESTED, f"smoke run; {v.evidence}")) for claim, v in found]
        return found

    def _checked(self, claim: Claim, printed: Tables) -> Verdict:
        """A claim's verdict, with its power where the paper's own table decides it, too."""
        v = claim.check(self.tables)
        if claim.kind == "check" and v.status == ONE_SEED:  # what holds by construction holds in every run
            return replace(v, status=REPRODUCED if v.holds else NOT_REPRODUCED)
        with contextlib.suppress(KeyError):  # it looks at more than accuracies, which is not printed
            return v.beside(claim.check(printed)) if printed and v.margins else v
        return v

    def _timed(self, v: Verdict) -> Verdict:
        """A verdict on seconds, with how busy the machine was: inconclusive, if others took more than BUSY of it."""
        loads = [r.provenance.get("load") for r in self.results]
        if None in loads:
            return replace(v, evidence=f"{v.evidence}; machine load was not recorded")
        evidence = f"{v.evidence}; other programs used up to {max(loads):.0%} of the CPU"
        if max(loads) > BUSY and v.status != NOT_TESTED:
            return replace(v, status=INCONCLUSIVE, evidence=f"{evidence}, more than {BUSY:.0%}: time it again")
        return replace(v, evidence=evidence)

    def verdicts(self) -> list[tuple[str, Verdict]]:
        """The claims' texts and verdicts, in the words that fit the data and the scale; evidence says what intervals
        are over."""
        scale = self.profile if self.profile == "reduced" else ""
        return [claim.said(v, stand_in(self.settings), self.over, scale) for claim, v in self.checked]

    @property
    def over(self) -> str:
        """What intervals are over: "3 seeds, each with its own partition", "5 seeds, same partition", "3 seeds"."""
        seeds, partitions = units(self.tables), {s.partition_seed for s in self.specs if isinstance(s, RunSpec)}
        if not seeds or seeds == "one seed" or not partitions:
            return seeds
        if len(partitions) > len({s.seed for s in self.specs}) == 1:
            return f"{seeds.replace('seed', 'partition')}, same seed"
        return f"{seeds}, {'each with its own partition' if len(partitions) > 1 else 'same partition'}"

    def claims(self) -> pd.DataFrame:
        """The verdicts as a table."""
        lines = [(text, v.status, v.evidence) for text, v in self.verdicts()]
        return pd.DataFrame(lines, columns=["claim", "verdict", "evidence"])


def stand_in(settings: dict) -> str:
    """The data, where they only stand in for the paper's."""
    return STAND_INS.get(settings.get("dataset"), "")


def duration(minutes: float) -> str:
    """A rough time in words."""
    units = (("days", 1440), ("hours", 60), ("minutes", 1))
    unit, size = next((pair for pair in units if minutes >= 1.5 * pair[1]), ("", 0))
    return f"about {minutes / size:.0f} {unit}" if unit else "about a minute"


def _like_setting(default, name: str, value, known: tuple):
    """An override with the type of the setting it replaces; several names or numbers may come as "a,b", and known names
    may have a comma of their own."""
    if isinstance(default, tuple):
        whole = "".join(rf"\s*{re.escape(each)}|" for each in known if "," in str(each))
        parts = value if isinstance(value, (list, tuple)) else re.findall(f"{whole}[^,]+", str(value))
        if default and isinstance(default[0], float):
            return tuple(_like_setting(default[0], name, _as_number(part), known) for part in parts)
        parts = [str(part).strip() for part in parts]
        return tuple(algorithms.named(part) if name == "methods" and part not in known else part for part in parts)
    value = like(default, name, value)
    require(isinstance(value, (str, bool)) or value > 0, name, value, "a positive number")
    return value


def _as_number(text):
    """A text as the number it spells, everything else as it is."""
    try:
        return float(text)
    except (TypeError, ValueError):
        return text
