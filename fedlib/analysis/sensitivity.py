"""What replication notes ask: what the choices do that a paper leaves open, one alternative at a time; what a method's
lead consists of; which runs diverge."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from fedlib.analysis.accuracies import in_common
from fedlib.analysis.names import proper
from fedlib.analysis.tables import Found, only
from fedlib.analysis.uncertainty import Interval, draws, shared_seeds
from fedlib.engine.result import RunResult
from fedlib.spec import RunSpec

BASE, CHANCE = "default setting", "seed"  # name of what nothing was changed in; code of what only chance changes


@dataclass(frozen=True)
class Choice:
    """One alternative. code: its number in the list of open questions, or a word.

    hyper: hyper-parameters of the method that is looked at, a function of the settings; task: fields of the run, which
    change the other methods as well, a function of the settings and the run.
    """

    code: str
    name: str
    ours: str  # what is done where nothing else is said
    hyper: Callable[[dict], dict] | None = None
    task: Callable[[dict, RunSpec], dict] | None = None
    left_open: bool = True  # by the paper; otherwise it takes out a part of the method, or does what is not printed


def hyper(**values) -> Callable[[dict], dict]:
    """Hyper-parameters that are the same in every profile."""
    return lambda s: values


Key = tuple[str, str, str, int]  # choice, task, method, seed


@dataclass(frozen=True)
class Sensitivity:
    """What the choices do to one method, one at a time. references: methods that are run too where the task changes;
    task_of: name of a run's task; metric: "pooled" or "client_mean"."""

    method: str
    choices: tuple[Choice, ...]
    references: tuple[str, ...] = ()
    task_of: Callable[[RunSpec], str] = lambda spec: ""
    metric: str = "pooled"

    def runs(self, s: dict, bases: Sequence[RunSpec]) -> dict[Key, RunSpec]:
        """The runs with nothing changed (BASE), and with each choice; the references' where it changes the task."""
        runs = {self._key(BASE, base): base for base in bases}
        for base in bases:
            for choice in self.choices:
                if choice.task or base.method == self.method:
                    runs[self._key(choice.name, base)] = self.otherwise(choice, s, base)
        return runs

    def _key(self, choice: str, base: RunSpec) -> Key:
        return choice, self.task_of(base), base.method, base.seed

    def otherwise(self, choice: Choice, s: dict, base: RunSpec) -> RunSpec:
        """One run with one alternative."""
        own = choice.hyper(s) if choice.hyper and base.method == self.method else {}
        return base.but(hyper=base.hyper | own, **(choice.task(s, base) if choice.task else {}))

    def effects(self, found: Mapping[Key, RunResult]) -> dict[str, pd.DataFrame]:
        """tidy: one row a task, choice, method and seed: accuracy in percent,
        its difference from the same run without the choice.

        effects: their means over the seeds that all choices have, in points: task, code, choice, method, mean, low,
        high, seeds, size, the mean over these seeds of what the effect is without its sign; _effects: the means by
        (task, method, choice), as draws. found: results of `runs`, some may be missing. _diverged: keys of runs that
        did.
        """
        codes, lines = {choice.name: choice.code for choice in self.choices}, []
        ended = Found({key: r for key, r in found.items() if r.status == "finished"})
        ended.diverged = set(found) - set(ended) | set(getattr(found, "diverged", ()))
        for (choice, task, method, seed), r in ended.items():
            if base := ended.get((BASE, task, method, seed)):
                accuracy, without = (100 * run.final(self.metric) for run in (r, base))
                lines.append((task, codes.get(choice, ""), choice, method, seed, accuracy, accuracy - without))
        tidy = pd.DataFrame(lines, columns=["task", "code", "choice", "method", "seed", "accuracy", "effect"])
        whose = tidy.assign(column=tidy["task"] + "|" + tidy["method"], row=tidy["choice"])  # their base is the same
        compared = in_common({"tidy": whose})["tidy"]
        m = draws(compared, "accuracy", ["column", "row"]) if len(compared) else {}
        effects, shown = {}, []
        for (task, method, choice), own in compared.groupby(["task", "method", "choice"], sort=False):
            of = m[f"{task}|{method}"]
            effect = effects[task, method, choice] = of[choice] - of[BASE]
            about = (task, codes.get(choice, ""), choice, method)
            shown.append((*about, *Interval.of(effect).row, len(own), own["effect"].abs().mean()))
        columns = ["task", "code", "choice", "method", "mean", "low", "high", "seeds", "size"]
        shown = pd.DataFrame(shown, columns=columns)
        diverged = pd.DataFrame([key[:3] for key in ended.diverged], columns=["choice", "task", "method"])
        return {"tidy": tidy, "effects": shown, "_effects": pd.DataFrame(effects), "_diverged": diverged}

    def mean_effects(self, tables: Mapping[str, pd.DataFrame], left_open: bool = False) -> pd.DataFrame:
        """Effects on the method, means over tasks, as draws by choice that has all of them; without those of chance.
        left_open: only of choices that the paper leaves open."""
        out = {choice.name for choice in self.choices
               if choice.code == CHANCE or left_open and not choice.left_open} | {BASE}  # fmt: skip
        by_choice: dict[str, dict[str, pd.Series]] = {}
        for (task, method, name), effect in tables["_effects"].items():
            if method == self.method:
                by_choice.setdefault(name, {})[task] = effect
        tasks = {task for own in by_choice.values() for task in own}
        whole = {name: own.values() for name, own in by_choice.items() if own.keys() == tasks and name not in out}
        return pd.DataFrame({name: sum(own) / len(own) for name, own in whole.items()})

    def chance(self, tables: Mapping[str, pd.DataFrame]) -> float:
        """The largest mean absolute effect of what only chance changes, in points; NaN if that was not run."""
        own = only(tables["tidy"], code=CHANCE, method=self.method)
        return float(own.groupby("choice")["effect"].apply(lambda e: e.abs().mean()).max())

    def missing(self, tables: Mapping[str, pd.DataFrame]) -> str:
        """Which choices were not tried in every task; an empty text if all were."""
        tried = only(tables["tidy"], method=self.method).groupby("choice")["task"].nunique()
        names = [choice.name for choice in self.choices if tried.get(choice.name, 0) < max(tried, default=1)]
        return f"missing runs: {', '.join(names)}" if names else ""

    def compared(self, tables: Mapping[str, pd.DataFrame], dataset: str, paper: dict[str, float]) -> pd.DataFrame:
        """One row a task and choice: what it does to the method, and to the references; paper:
        printed accuracies by task."""
        said, lines, found = {choice.name: choice.ours for choice in self.choices}, [], tables["_effects"]
        titles = {self.method: "effect", **{method: f"effect on {method}" for method in self.references}}
        for (task, name), own in tables["tidy"].groupby(["task", "choice"], sort=False):
            lost = only(tables["_diverged"], choice=name, task=task, method=self.method)
            none = "diverged" if len(lost) else "not run"
            mine, printed = only(own, method=self.method)["accuracy"], paper.get(task) if name == BASE else None
            line = {"task": task, "question": own["code"].iloc[0], "alternative": name, "default": said.get(name, "")}
            line["paper"] = "" if printed is None else f"{printed:.2f}"
            line[f"{self.method}, {dataset}"] = f"{mine.mean():.2f} (n={len(mine)})" if len(mine) else none
            for method, title in titles.items():
                known = name != BASE and (task, method, name) in found
                line[title] = Interval.of(found[task, method, name]).text("+.2f") if known else ""
            lines.append(line)
        return pd.DataFrame(lines, columns=None if lines else ["task", "question", "alternative", "default", "paper"])

    def averaged(self, tables: Mapping[str, pd.DataFrame]) -> str:
        """What effects are, where there are several tasks."""
        return ", means over the tasks" if len({task for task, *_ in tables["_effects"]}) > 1 else ""

    def in_words(self, tables: Mapping[str, pd.DataFrame]) -> str:
        """The choices with the largest effects, in a sentence."""
        moved, chance = self.mean_effects(tables), self.chance(tables)
        if moved.empty:
            return "No alternative choice was run yet."
        every, number = sum(choice.code != CHANCE for choice in self.choices), moved.shape[1]
        largest = moved.iloc[0].abs().sort_values(ascending=False).index[:3]
        listing = ", ".join(f"{name} ({Interval.of(moved[name]).text('+.2f')})" for name in largest)
        known = f"another seed (or partition, where tried) changes it by {chance:.2f}"
        known = known if chance == chance else "that of seeds is not known yet"
        tried = f"Of {number} variations" + (f" run so far (of {every})" if number < every else "")
        most = f"these change its accuracy most, in points{self.averaged(tables)} (the largest, so exploratory)"
        return f"{tried} {most}: {listing}; {known}."


# what a lead consists of: the method, its variants and a baseline, at the same evaluation points and paired -----------


@dataclass(frozen=True)
class Arms:
    """Arms of a comparison. of: by name, which runs (their key) and the point at which they are tested; whole: the arm
    that is the method as its paper has it, and by evaluation point others that it is replaced by there."""

    of: Mapping[str, tuple[Hashable, str]]
    whole: str
    at: Mapping[str, str]

    def tables(self, found: Mapping[tuple[Hashable, int], RunResult]) -> dict[str, pd.DataFrame]:
        """parts: accuracy of every arm in percent, the method's lead over it at the same point with its interval, and
        the number of seeds, those that all arms have; _parts: the draws by arm. found: results by key and seed, some
        may be missing."""
        lines = []
        for arm, (key, point) in self.of.items():
            for seed, r in ((seed, r) for (name, seed), r in found.items() if name == key):
                if (accuracy := r.final("client_mean", point)) == accuracy:
                    lines.append((arm, seed, accuracy))
        columns = ["arm", "accuracy, %", "the method's lead over it", "seeds"]
        frame = pd.DataFrame(lines, columns=["arm", "seed", "accuracy"])
        frame = frame[frame["seed"].isin(shared_seeds(frame, "arm"))]
        if frame.empty:
            return {"parts": pd.DataFrame(columns=columns), "_parts": pd.DataFrame()}
        m, seeds = 100 * draws(frame, "accuracy", ["arm"]), frame.groupby("arm")["seed"].nunique()
        lines = []
        for arm in m:
            whole = self.at.get(self.of[arm][1], self.whole)  # the method's own arm at the same point
            lead = "" if arm == whole or whole not in m else Interval.of(m[whole] - m[arm]).text("+.2f")
            lines.append((arm, f"{m[arm].iloc[0]:.2f}", lead, seeds[arm]))
        return {"parts": pd.DataFrame(lines, columns=columns), "_parts": m}


# which runs diverge, when, and what the others reach ------------------------------------------------------------------

WHAT = ["rate", "method", "task"]
COLUMNS = [*WHAT, "runs", "of them diverged", "in round", "client mean, %", "pooled, %"]
ROUND = re.compile(r"in round (\d+)")


def stability(found: Mapping[tuple[str, str, str, int], RunResult]) -> pd.DataFrame:
    """One row a learning rate, method and task: how many runs there are, how many of them diverged and in which rounds,
    and the accuracy of the others, by seed; found: results by these and seed, diverged ones among them."""
    lines, groups = [], {}
    for (*what, _), r in found.items():
        groups.setdefault(tuple(what), []).append(r)
    for what, runs in groups.items():
        whole = [r for r in runs if r.status == "finished"]
        rounds = ["?" if (said := ROUND.search(r.error)) is None else said[1] for r in runs if r.status != "finished"]
        read = (by_seed([100 * r.final(metric) for r in whole]) for metric in ("client_mean", "pooled"))
        lines.append((*what, len(runs), len(rounds), ", ".join(rounds), *read))
    return pd.DataFrame(lines, columns=COLUMNS)


def by_seed(values: list[float]) -> str:
    """The mean, and where there are several all of them."""
    if len(values) < 2:
        return "".join(f"{value:.1f}" for value in values)
    return f"{np.mean(values):.1f} ({', '.join(f'{value:.1f}' for value in values)})"


def ends_of_training(found: pd.DataFrame) -> str:
    """How many runs diverge at which rate, and what the others reach; found: of `stability`."""
    said, reached = [], "pooled, %"
    for rate, own in found.groupby("rate", sort=False):
        own = own.assign(method=own["method"].map(proper))
        lost = [f"{r['of them diverged']} of {r['runs']} of {r['method']}" for _, r in own.iterrows() if r["in round"]]
        ends = [f"{r['method']} {r[reached]} %" for _, r in own.iterrows() if r[reached]]
        which = f" ({', '.join(lost)})" if lost else ""
        gone = f"{own['of them diverged'].sum()} of {own['runs'].sum()} runs diverged{which}"
        said.append(
            f"At the learning rate {rate}, {gone}; the others end, pooled over test images, with {', '.join(ends)}."
        )
    return " ".join(said)
