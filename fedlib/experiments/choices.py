"""Choices that a paper leaves open: one thing decided otherwise at a time, and what that does to the accuracy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pandas as pd

from fedlib.engine.result import RunResult
from fedlib.experiments.items import NOT_TESTED, Verdict, only, verdict
from fedlib.spec import RunSpec

BASE, CHANCE = "as everywhere here", "spread"  # name of what nothing was changed in; code of what only chance changes


@dataclass(frozen=True)
class Choice:
    """One thing decided otherwise. code: its number in the list of open questions, or a word.

    hyper: hyper-parameters of the method that is looked at, a function of the settings; task: fields of the run, which
    change the other methods as well, a function of the settings and the run.
    """

    code: str
    name: str
    ours: str  # what is done where nothing else is said
    hyper: Callable[[dict], dict] | None = None
    task: Callable[[dict, RunSpec], dict] | None = None


def hyper(**values) -> Callable[[dict], dict]:
    """Hyper-parameters that are the same in every profile."""
    return lambda s: values


@dataclass(frozen=True)
class Study:
    """Choices of one method. references: methods that are run too where the task changes; task_of: name of a run's task."""

    method: str
    choices: tuple[Choice, ...]
    references: tuple[str, ...] = ()
    task_of: Callable[[RunSpec], str] = lambda spec: ""

    def specs(self, s: dict, bases: Sequence[RunSpec]) -> list[RunSpec]:
        """The runs with nothing changed and all others."""
        return [*bases, *(spec for _, _, spec in self.changed(s, bases))]

    def changed(self, s: dict, bases: Sequence[RunSpec]) -> list[tuple[Choice, RunSpec, RunSpec]]:
        """(choice, run without it, run with it), for the references only where the choice changes the task."""
        return [
            (choice, base, self.otherwise(choice, s, base))
            for base in bases
            for choice in self.choices
            if choice.task or base.method == self.method
        ]

    def otherwise(self, choice: Choice, s: dict, base: RunSpec) -> RunSpec:
        """One run with one thing decided otherwise."""
        own = choice.hyper(s) if choice.hyper and base.method == self.method else {}
        return base.but(hyper=base.hyper | own, **(choice.task(s, base) if choice.task else {}))

    def effects(self, s: dict, bases: Sequence[RunSpec], found: dict[str, RunResult], read: Callable) -> pd.DataFrame:
        """One row a task, choice, method and seed: accuracy and its difference from the same run without the choice, in points.

        found: results by run id, some may be missing; read(result): the accuracy in percent.
        """
        pairs = [(Choice("", BASE, ""), base, base) for base in bases] + self.changed(s, bases)
        rows = [
            (self.task_of(base), choice.code, choice.name, base.method, base.seed, read(found[spec.id]))
            + (read(found[spec.id]) - read(found[base.id]),)
            for choice, base, spec in pairs
            if spec.id in found and base.id in found
        ]
        return pd.DataFrame(rows, columns=["task", "code", "choice", "method", "seed", "accuracy", "effect"])

    def compared(self, effects: pd.DataFrame, dataset: str, paper: dict[str, float | None]) -> pd.DataFrame:
        """One row a task and choice: what it does to the method, and to the references; paper: printed accuracies by task."""
        ours, rows = {choice.name: choice.ours for choice in self.choices}, []
        for (task, name), own in effects.groupby(["task", "choice"], sort=False):
            mean = own.groupby("method")[["accuracy", "effect"]].mean()
            printed = paper.get(task) if name == BASE else None
            row = {"task": task, "question": own["code"].iloc[0], "decided otherwise": name, "else": ours.get(name, "")}
            row["paper"] = "" if printed is None else f"{printed:.2f}"
            known = self.method in mean.index
            row[f"{self.method}, {dataset}"] = f"{mean.loc[self.method, 'accuracy']:.2f}" if known else "not run"
            row["effect"] = f"{mean.loc[self.method, 'effect']:+.2f}" if known and name != BASE else ""
            for other in self.references:
                touched = name != BASE and other in mean.index
                row[f"effect on {other}"] = f"{mean.loc[other, 'effect']:+.2f}" if touched else ""
            rows.append(row)
        return pd.DataFrame(rows, columns=None if rows else ["task", "question", "decided otherwise", "else", "paper"])

    def mean_effects(self, effects: pd.DataFrame) -> pd.Series:
        """Mean effect of every choice on the method, over tasks and seeds."""
        rows = only(effects, method=self.method)
        return rows[~rows["code"].isin(["", CHANCE])].groupby("choice", sort=False)["effect"].mean()

    def chance(self, effects: pd.DataFrame) -> float:
        """The largest mean absolute effect of what only chance changes, in points; NaN if that was not run."""
        rows = only(effects, code=CHANCE, method=self.method)
        return float(rows.groupby("choice")["effect"].apply(lambda e: e.abs().mean()).max())

    def missing(self, effects: pd.DataFrame) -> str:
        """Which choices were not tried; an empty text if all were."""
        tried = set(only(effects, method=self.method)["choice"])
        names = [choice.name for choice in self.choices if choice.name not in tried]
        return f"without {', '.join(names)}" if names else ""

    def check_matter(self, tables) -> Verdict:
        """Does any choice move the method by more than chance does?"""
        if self.missing(tables["tidy"]):
            return Verdict(NOT_TESTED, self.missing(tables["tidy"]))
        moved, chance = self.mean_effects(tables["tidy"]), self.chance(tables["tidy"])
        largest, above = moved.abs().idxmax(), (moved.abs() > chance).sum()
        evidence = f"largest: {largest} {moved[largest]:+.2f}; {above} of {len(moved)} move it by more than chance ({chance:.2f})"
        return verdict(above > 0, evidence)

    def in_words(self, effects: pd.DataFrame) -> str:
        """The choices with the largest effects, in a sentence."""
        moved, chance = self.mean_effects(effects), self.chance(effects)
        if moved.empty:
            return "No choice was tried yet."
        all_of_them = sum(choice.code != CHANCE for choice in self.choices)
        ranked = moved.reindex(moved.abs().sort_values(ascending=False).index)
        listed = ", ".join(f"{name} ({value:+.2f})" for name, value in ranked.head(3).items())
        known = f"chance moves it by {chance:.2f}" if chance == chance else "chance was not measured yet"
        tried = f"Of {len(moved)} choices" + (f" tried so far (of {all_of_them})" if len(moved) < all_of_them else "")
        return f"{tried} these move its accuracy most, in points: {listed}; {known}."
