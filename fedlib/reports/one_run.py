"""One run on its own, as `fedlib run` prints, keeps and checks it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pandas as pd
from tqdm import tqdm

from fedlib import algorithms
from fedlib.analysis.names import counted, proper
from fedlib.base.errors import choose
from fedlib.checks.contract import CHECKS, check
from fedlib.engine.result import RunResult
from fedlib.runs.run import differing, find_run, train_and_export
from fedlib.runs.store import Store
from fedlib.spec import RunSpec


def spec_of(method: str, settings: dict, changed: dict, alpha: float, min_size: int) -> RunSpec:
    """A run of a method; changed: fields of the run and the method's hyper-parameters. Raises BadValue for others."""
    own = [f.name for f in dataclasses.fields(algorithms.find(method))]
    task = [f.name for f in dataclasses.fields(RunSpec) if f.name not in ("method", "hyper")]
    for name in changed:
        choose("name in --set", name, [*own, *task])
    hyper = {name: value for name, value in changed.items() if name in own}
    fields = settings | {name: value for name, value in changed.items() if name not in own}
    if fields.get("scheme", "dirichlet") == "dirichlet":
        fields.setdefault("partition", {"alpha": alpha, "min_size": min_size})
    return RunSpec(method, hyper=hyper, **fields)


def print_run(result: RunResult) -> None:
    """Accuracy over the rounds, newcomers beside members, and time."""
    for t, accuracy in zip(*result.curve()):
        print(f"round {t:>4}: {100 * accuracy:6.2f} % of the pooled test samples")
    print(f"evaluated: {proper(result.point)}; client mean {100 * result.final('client_mean'):.2f} %")
    if others := [f"{proper(h['point'])} {100 * h['pooled']:.2f} %" for h in result.last if not h["headline"]]:
        print(f"at other evaluation points: {', '.join(others)}")
    if result.newcomers:
        print(beside_newcomers(result))
    print(spent(result))
    print(f"stored as {Store('single').path(result.spec)}")


def keep(name: str, folder: Path, point: str | None, **options) -> None:
    """Train a stored run again, with the same numbers, and keep every client's model. options: of
    `simulate_together`."""
    stored = find_run(name)
    with tqdm(total=stored.spec.rounds, desc=stored.spec.label, unit="round", leave=False) as bar:
        again = train_and_export(stored, folder, point, progress=lambda done: bar.update(done - bar.n), **options)
    differ = differing(stored, again)
    same = f"{differ} clients answer differently from the stored run" if differ else "with the stored run's accuracies"
    print(f"{stored.spec.num_members} models in {folder}, {same}")


def keeps_the_contract(method: str, hyper: dict) -> bool:
    """Ask what the tests ask fedlib's own methods, and print the answers."""
    wrong = 0
    for asked, found in check(method, hyper):
        print(f"{'WRONG' if found else 'ok':<6} {asked}" + (f"\n       {found}" if found else ""), flush=True)
        wrong += bool(found)
    print(f"{len(CHECKS) - wrong} of {len(CHECKS)} checks passed")
    return not wrong


def beside_newcomers(result: RunResult) -> str:
    """A table of a run's members and new clients, one row a point."""
    spec = result.spec
    members = [("", h["point"], h["pooled"]) for h in result.last]
    titles = {"": f"{spec.num_members} training clients", "before": "new clients before training"}
    titles |= {"after": f"new clients after {counted(spec.join_epochs, 'epoch')}"}
    tested = members + [(h["when"], h["point"], h["pooled"]) for h in result.newcomers]
    table = {title: {point: f"{100 * a:.2f}" for w, point, a in tested if w == when} for when, title in titles.items()}
    if not table[titles["after"]]:
        table[titles["after"]] = {} if spec.join_epochs == 0 else dict.fromkeys(table[titles["before"]], "diverged")
    shown = pd.DataFrame({title: own for title, own in table.items() if own}).fillna("")
    rows = shown.to_string(col_space=[len(title) + 2 for title in shown])
    return f"\n{spec.unseen} new clients, pooled accuracy in %, by evaluation point\n{rows}\n"


def spent(result: RunResult) -> str:
    """Where the time of a run went."""
    names = dict(data="data", step="steps", server="aggregation", evaluate="evaluation", wall="in all")
    parts = ", ".join(f"{text} {result.seconds[name]:.1f}" for name, text in names.items())
    return f"seconds: {parts}; {1e3 * result.seconds['per_sample']:.3f} ms per training sample"
