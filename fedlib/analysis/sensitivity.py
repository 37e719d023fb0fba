"""Choices that a paper leaves open: one thing decided otherwise at a time, and what that does to the accuracy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from fedlib.analysis.readings import by_client
from fedlib.analysis.tables import only
from fedlib.analysis.uncertainty import Interval, draws, shared_seeds
from fedlib.engine.result import RunResult
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
        """One run with one thing decided otherwise."""
        own = choice.hyper(s) if choice.hyper and base.method == self.method else {}
        return base.but(hyper=base.hyper | own, **(choice.task(s, base) if choice.task else {}))

    def effects(self, found: Mapping[Key, RunResult]) -> dict[str, pd.DataFrame]:
        """tidy: one row a task, choice, method and seed: accuracy in percent,
        its difference from the same run without the choice.

        effects: their means over the seeds that all choices have, in points: task, code, choice, method, mean, low,
        high, seeds, size, the mean over these seeds of what the effect is without its sign; _effects: the means by
        (task, method, choice), as draws; _clients: what they are of. Clients are paired where both runs divide the data
        alike. found: results of `runs`, some may be missing.
        """
        codes, lines, frames = {choice.name: choice.code for choice in self.choices}, [], []
        for (choice, task, method, seed), r in found.items():
            base = found.get((BASE, task, method, seed))
            if base is None:
                continue
            accuracy, without = (100 * run.final(self.metric) for run in (r, base))
            lines.append((task, codes.get(choice, ""), choice, method, seed, accuracy, accuracy - without))
            alike = r.partition["checksum"] == base.partition["checksum"]
            values, weights = by_client(r, r.point, self.metric)
            own = pd.DataFrame({"client": range(len(values)), "accuracy": values, "weight": weights, "seed": seed})
            about = {"run": f"{task}|{method}|{choice}", "column": task if alike else f"{task}, {choice}"}
            frames.append(own.assign(**about, about=f"{task}|{method}", choice=choice))
        tidy = pd.DataFrame(lines, columns=["task", "code", "choice", "method", "seed", "accuracy", "effect"])
        effects, clients = {}, pd.concat(frames) if frames else pd.DataFrame(columns=["column", "client", "seed"])
        if frames:  # of a task and method the seeds that all choices have: their base is the same then
            shared = {key: shared_seeds(own, "choice") for key, own in clients.groupby("about")}
            clients = clients[[seed in shared[key] for key, seed in zip(clients["about"], clients["seed"])]]
        if len(clients):
            m = 100 * draws(clients, "accuracy", ["column", "run"], "client", "weight").droplevel(0, axis=1)
            there = set(clients["run"])
            keys = [key for key in dict.fromkeys(zip(tidy["task"], tidy["method"], tidy["choice"]))
                    if "|".join(key) in there]  # fmt: skip
            effects = {key: m["|".join(key)] - m[f"{key[0]}|{key[1]}|{BASE}"] for key in keys}
        shown, seeds = [], clients.groupby("run")["seed"].unique() if len(clients) else {}
        for (task, method, choice), effect in effects.items():
            i = Interval.of(effect)
            about = (task, codes.get(choice, ""), choice, method)
            own = seeds[f"{task}|{method}|{choice}"]
            each = only(tidy, task=task, method=method, choice=choice)
            size = each.loc[each["seed"].isin(own), "effect"].abs().mean()
            shown.append((*about, i.value, i.low, i.high, len(own), size))
        columns = ["task", "code", "choice", "method", "mean", "low", "high", "seeds", "size"]
        shown = pd.DataFrame(shown, columns=columns)
        return {"tidy": tidy, "effects": shown, "_effects": pd.DataFrame(effects), "_clients": clients}

    def mean_effects(self, tables: Mapping[str, pd.DataFrame], left_open: bool = False) -> pd.DataFrame:
        """Effects on the method, means over tasks, as draws by choice; without those of chance. left_open: only of
        choices that the paper leaves open."""
        out = {choice.name for choice in self.choices
               if choice.code == CHANCE or left_open and not choice.left_open} | {BASE}  # fmt: skip
        by_choice = {}
        for (_, method, name), effect in tables["_effects"].items():
            if method == self.method and name not in out:
                by_choice.setdefault(name, []).append(effect)
        return pd.DataFrame({name: sum(own) / len(own) for name, own in by_choice.items()})

    def chance(self, tables: Mapping[str, pd.DataFrame]) -> float:
        """The largest mean absolute effect of what only chance changes, in points; NaN if that was not run."""
        own = only(tables["tidy"], code=CHANCE, method=self.method)
        return float(own.groupby("choice")["effect"].apply(lambda e: e.abs().mean()).max())

    def missing(self, tables: Mapping[str, pd.DataFrame]) -> str:
        """Which choices were not tried; an empty text if all were."""
        tried = set(only(tables["tidy"], method=self.method)["choice"])
        names = [choice.name for choice in self.choices if choice.name not in tried]
        return f"without {', '.join(names)}" if names else ""

    def compared(self, tables: Mapping[str, pd.DataFrame], dataset: str, paper: dict[str, float]) -> pd.DataFrame:
        """One row a task and choice: what it does to the method, and to the references; paper:
        printed accuracies by task."""
        said, lines, found = {choice.name: choice.ours for choice in self.choices}, [], tables["_effects"]
        titles = {self.method: "effect", **{method: f"effect on {method}" for method in self.references}}
        for (task, name), own in tables["tidy"].groupby(["task", "choice"], sort=False):
            mine, printed = only(own, method=self.method)["accuracy"], paper.get(task) if name == BASE else None
            line = {
                "task": task,
                "question": own["code"].iloc[0],
                "decided otherwise": name,
                "else": said.get(name, ""),
            }
            line["paper"] = "" if printed is None else f"{printed:.2f}"
            line[f"{self.method}, {dataset}"] = f"{mine.mean():.2f} (n={len(mine)})" if len(mine) else "none finished"
            for method, title in titles.items():
                known = name != BASE and (task, method, name) in found
                line[title] = Interval.of(found[task, method, name]).text("+.2f") if known else ""
            lines.append(line)
        return pd.DataFrame(
            lines, columns=None if lines else ["task", "question", "decided otherwise", "else", "paper"]
        )

    def in_words(self, tables: Mapping[str, pd.DataFrame]) -> str:
        """The choices with the largest effects, in a sentence."""
        moved, chance = self.mean_effects(tables), self.chance(tables)
        if moved.empty:
            return "No choice was tried yet."
        every, number = sum(choice.code != CHANCE for choice in self.choices), moved.shape[1]
        largest = moved.iloc[0].abs().sort_values(ascending=False).index[:3]
        listing = ", ".join(f"{name} ({Interval.of(moved[name]).text('+.2f')})" for name in largest)
        known = f"chance moves it by {chance:.2f}" if chance == chance else "chance was not measured yet"
        tried = f"Of {number} choices" + (f" tried so far (of {every})" if number < every else "")
        return f"{tried} these move its accuracy most, in points: {listing}; {known}."
