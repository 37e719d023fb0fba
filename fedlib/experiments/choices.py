"""Choices that a paper leaves open: one thing decided otherwise at a time, and what that does to the accuracy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from fedlib.analysis.readings import by_client
from fedlib.analysis.tables import only
from fedlib.analysis.uncertainty import Interval, draws
from fedlib.engine.result import RunResult
from fedlib.experiments.claims import Verdict, decided, not_tested
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
class Sensitivity:
    """What the choices do to one method, one at a time. references: methods that are run too where the task changes; task_of: name
    of a run's task; metric: "pooled" or "client_mean"."""

    method: str
    choices: tuple[Choice, ...]
    references: tuple[str, ...] = ()
    task_of: Callable[[RunSpec], str] = lambda spec: ""
    metric: str = "pooled"

    def changed(self, s: dict, bases: Sequence[RunSpec]) -> list[tuple[Choice, RunSpec, RunSpec]]:
        """(choice, run without it, run with it), for the references only where the choice changes the task."""
        return [
            (choice, base, self.otherwise(choice, s, base))
            for base in bases
            for choice in self.choices
            if choice.task or base.method == self.method
        ]

    def specs(self, s: dict, bases: Sequence[RunSpec]) -> list[RunSpec]:
        """The runs with nothing changed and all others."""
        return [*bases, *(spec for _, _, spec in self.changed(s, bases))]

    def otherwise(self, choice: Choice, s: dict, base: RunSpec) -> RunSpec:
        """One run with one thing decided otherwise."""
        own = choice.hyper(s) if choice.hyper and base.method == self.method else {}
        return base.but(hyper=base.hyper | own, **(choice.task(s, base) if choice.task else {}))

    def effects(self, s: dict, bases: Sequence[RunSpec], found: dict[str, RunResult]) -> dict[str, pd.DataFrame]:
        """tidy: one row a task, choice, method and seed: accuracy in percent, and its difference from the same run without the choice;
        _effects: the differences' means over seeds by (task, method, choice), as draws; _clients: what they are of. found: results by run id, some may be missing.

        Clients are paired where both runs divide the data alike.
        """
        lines, frames = [], []
        pairs = [(Choice("", BASE, ""), base, base) for base in bases] + self.changed(s, bases)
        for choice, base, spec in pairs:
            if spec.id in found and base.id in found:
                r, without, task = found[spec.id], found[base.id], self.task_of(base)
                accuracy = [100 * run.final(self.metric) for run in (r, without)]
                lines.append(
                    (task, choice.code, choice.name, base.method, base.seed, accuracy[0], accuracy[0] - accuracy[1])
                )
                divided = task if r.partition["checksum"] == without.partition["checksum"] else f"{task}, {choice.name}"
                values, weights = by_client(r, r.point, self.metric)
                about = {"column": divided, "run": f"{task}|{base.method}|{choice.name}", "seed": base.seed}
                frames.append(
                    pd.DataFrame({"client": range(len(values)), "accuracy": values, "weight": weights}).assign(**about)
                )
        tidy = pd.DataFrame(lines, columns=["task", "code", "choice", "method", "seed", "accuracy", "effect"])
        effects, clients = {}, pd.concat(frames) if frames else pd.DataFrame(columns=["column", "client", "seed"])
        if frames:
            m = 100 * draws(clients, "accuracy", ["column", "run"], "client", "weight").droplevel(0, axis=1)
            keys = dict.fromkeys(zip(tidy["task"], tidy["method"], tidy["choice"]))
            effects = {key: m["|".join(key)] - m[f"{key[0]}|{key[1]}|{BASE}"] for key in keys}
        return {"tidy": tidy, "_effects": pd.DataFrame(effects), "_clients": clients}

    def compared(self, tables: dict[str, pd.DataFrame], dataset: str, paper: dict[str, float]) -> pd.DataFrame:
        """One row a task and choice: what it does to the method, and to the references; paper: printed accuracies by task."""
        said, lines, found = {choice.name: choice.ours for choice in self.choices}, [], tables["_effects"]
        for (task, name), own in tables["tidy"].groupby(["task", "choice"], sort=False):
            mine = only(own, method=self.method)["accuracy"]
            printed = paper.get(task) if name == BASE else None
            line = {
                "task": task,
                "question": own["code"].iloc[0],
                "decided otherwise": name,
                "else": said.get(name, ""),
            }
            line["paper"] = "" if printed is None else f"{printed:.2f}"
            line[f"{self.method}, {dataset}"] = f"{mine.mean():.2f} (n={len(mine)})" if len(mine) else "not run"
            for method, title in {self.method: "effect", **{m: f"effect on {m}" for m in self.references}}.items():
                known = name != BASE and (task, method, name) in found
                line[title] = Interval.of(found[task, method, name]).text("+.2f") if known else ""
            lines.append(line)
        return pd.DataFrame(
            lines, columns=None if lines else ["task", "question", "decided otherwise", "else", "paper"]
        )

    def mean_effects(self, tables: dict[str, pd.DataFrame]) -> pd.DataFrame:
        """Effects on the method, means over tasks, as draws by choice; without those of chance."""
        chance = {choice.name for choice in self.choices if choice.code == CHANCE}
        own = {key: effect for key, effect in tables["_effects"].items() if key[1] == self.method}
        names = [name for name in dict.fromkeys(key[2] for key in own) if name not in chance | {BASE}]
        return pd.DataFrame(
            {
                name: sum(e for key, e in own.items() if key[2] == name) / sum(key[2] == name for key in own)
                for name in names
            }
        )

    def chance(self, tables: dict[str, pd.DataFrame]) -> float:
        """The largest mean absolute effect of what only chance changes, in points; NaN if that was not run."""
        own = only(tables["tidy"], code=CHANCE, method=self.method)
        return float(own.groupby("choice")["effect"].apply(lambda e: e.abs().mean()).max())

    def missing(self, tables: dict[str, pd.DataFrame]) -> str:
        """Which choices were not tried; an empty text if all were."""
        tried = set(only(tables["tidy"], method=self.method)["choice"])
        names = [choice.name for choice in self.choices if choice.name not in tried]
        return f"without {', '.join(names)}" if names else ""

    def check_matter(self, tables: dict[str, pd.DataFrame]) -> Verdict:
        """Does any choice move the method by more than chance does?"""
        if lacks := self.missing(tables):
            return not_tested(lacks)
        moved, chance = self.mean_effects(tables), self.chance(tables)
        largest = moved.iloc[0].abs().idxmax()
        above = int((moved.iloc[0].abs() > chance).sum())
        evidence = f"largest: {largest} {Interval.of(moved[largest]).text('+.2f')}; {above} of {moved.shape[1]} move it by more than chance ({chance:.2f})"
        sign = np.sign(moved[largest].iloc[0])
        return decided({largest: sign * moved[largest] - chance}, evidence)

    def in_words(self, tables: dict[str, pd.DataFrame]) -> str:
        """The choices with the largest effects, in a sentence."""
        moved, chance = self.mean_effects(tables), self.chance(tables)
        if moved.empty:
            return "No choice was tried yet."
        every = sum(choice.code != CHANCE for choice in self.choices)
        largest = moved.iloc[0].abs().sort_values(ascending=False).index[:3]
        listing = ", ".join(f"{name} ({Interval.of(moved[name]).text('+.2f')})" for name in largest)
        known = f"chance moves it by {chance:.2f}" if chance == chance else "chance was not measured yet"
        number = moved.shape[1]
        tried = f"Of {number} choices" + (f" tried so far (of {every})" if number < every else "")
        return f"{tried} these move its accuracy most, in points: {listing}; {known}."
