"""The main job: train what is missing, then figures, tables, notebooks and the report, item by item."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from fedlib.base.errors import FedlibError, OutOfTime
from fedlib.experiments import OpenItem
from fedlib.reports.compare import compare, in_one_line
from fedlib.reports.notebooks import execute_all, refresh_source
from fedlib.reports.report import tally, write_report
from fedlib.reports.saved import OWN, place_of, save
from fedlib.runs.sweep import check_inputs, run_all
from fedlib.spec import RunSpec

Outcomes = dict[Path, tuple[RunSpec, str]]  # by the place of a result: its run, and why it failed or an empty text


@dataclass
class Done:
    """What became of the items, by name: summaries of those that were saved, why others failed,
    their notebooks; and the reports."""

    summaries: dict[str, dict] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    notebooks: dict[str, str] = field(default_factory=dict)
    reports: list[Path] = field(default_factory=list)
    beside: list[str] = field(default_factory=list)  # how the items compare with what is published


def train(opened: Sequence[OpenItem], **options) -> Outcomes:
    """All runs of all items, shared ones once, timed ones last and alone; options as in `fedlib.runs.sweep.run_all`.
    Runs for which there was no time are left out."""
    outcomes: Outcomes = {}
    groups = dict.fromkeys((item.item.timed, item.place) for item in opened)
    if len(groups) > 1:  # before the first group's training; `run_all` sees one
        check_inputs([spec for item in opened for spec in item.specs if not item.store.path(spec).exists()])
    for timed, place in sorted(groups):
        here = [item for item in opened if (item.item.timed, item.place) == (timed, place)]
        specs = {spec.id: spec for item in here for spec in item.specs}
        alone = {"jobs": 1} if timed and not options.get("engine") else {}
        for id, result in run_all(list(specs.values()), here[0].store, **options | alone).items():
            if isinstance(result, OutOfTime):
                continue
            why = str(result) if isinstance(result, FedlibError) else result.error
            outcomes[here[0].store.path(specs[id])] = specs[id], why
    return outcomes


def swept(opened: Sequence[OpenItem], **options) -> tuple[list[str], bool]:
    """Do all runs of items, options as in `train`; what became of them in lines, and whether one failed."""
    started = time.monotonic()
    there = {item.store.path(spec) for item in opened for spec in item.specs if item.store.get(spec) is not None}
    outcomes = train(opened, **options)
    failed = {path: why for path, (_, why) in outcomes.items() if why}
    lines = [f"  FAILED {outcomes[path][0].label} ({path.stem}): {why}" for path, why in failed.items()]
    reused = len(there & outcomes.keys() - failed.keys())
    counts = f"{len(outcomes) - reused - len(failed)} runs done, {reused} reused, {len(failed)} failed"
    places = sorted({item.place for item in opened})
    lines += [f"{counts}, in {time.monotonic() - started:.0f} s", f"results: {_folders('results/{}/runs/', places)}"]
    return lines, bool(failed)


def outcome(done: Done, opened: Sequence[OpenItem], seconds: float) -> list[str]:
    """What became of the items, and where everything is, in lines."""
    lines = [f"{name}: notebook {how}" for name, how in done.notebooks.items() if how.startswith("skipped")] + [""]
    for item in opened:
        name = item.item.name
        said = tally(done.summaries[name]["claims"]) if name in done.summaries else "not run yet"
        said += f" ({item.lacks})" if item.missing else ""
        lines.append(f"  {name:<40} {f'FAILED: {done.failures[name]}' if name in done.failures else said}")
    places = sorted({place_of(item) for item in opened})
    fine = len(done.summaries.keys() - done.failures.keys())
    lines += ["", f"{fine} of {len(opened)} items in {seconds:.0f} s", f"figures: {_folders('figures/{}/', places)}"]
    lines += [f"tables:  {_folders('results/{}/', places)}"]
    if set(done.notebooks.values()) & {"executed", "unchanged"}:
        lines.append(f"notebooks: {_folders('results/{}/notebooks/', places)}")
    return [*lines, *(f"report:  {path}" for path in done.reports), *done.beside]


def _folders(form: str, places: Sequence[str]) -> str:
    return ", ".join(map(form.format, places))


def failed_items(opened: Sequence[OpenItem], outcomes: Outcomes) -> dict[str, str]:
    """The items of which a run failed, and why; one that diverged is a result for items that cope with missing runs."""
    whys: dict[str, str] = {}
    for item in opened:
        for spec in item.specs:
            path = item.store.path(spec)
            if (why := outcomes.get(path, (spec, ""))[1]) and not (item.item.partial and path.exists()):
                whys.setdefault(item.item.name, f"run {spec.label}: {why}")
    return whys


def reproduce(
    opened: Sequence[OpenItem], finished: bool, notebooks: bool, refresh: bool, formats: Sequence[str], **options
) -> Done:
    """Training runs first, shared ones once, side by side, resumable. Then every item's figure, tables, claims and
    notebook, and the report, beside what is published, and compared with it. A failing item does not stop the others.
    finished: train nothing. refresh: publish them, and in the quick profile the notebooks' outputs as well. formats: of
    figures, beside PNG. options: as in `train`; after `until`, when training stops, what is there then is shown."""
    done = Done(failures={} if finished else failed_items(opened, train(opened, **options)))
    for item in opened if options["until"] is not None else ():
        item.finished = item.finished or bool(item.missing)
    torch.set_num_threads(1)  # notebooks run beside the analyses
    trained = [item for item in opened if item.item.name not in done.failures]
    saved = _saved([item for item in trained if not item.finished or item.can_be_shown], done, formats)
    whole = (item for item in saved if notebooks and not item.missing)  # a notebook would train what is missing
    done.notebooks = execute_all(whole, options["jobs"] or 2)
    done.failures |= {name: f"its notebook {how}" for name, how in done.notebooks.items() if how.startswith("failed")}
    shown = [item for item in opened if item.item.name in done.summaries]
    for place in sorted({item.place for item in shown}):
        done.reports.append(write_report(f"{OWN}/{place}"))
        done.beside.append(in_one_line(compare(place, [i.item.name for i in shown if i.place == place]), place))
    if refresh:
        sound = [item for item in shown if item.item.name not in done.failures]
        done.reports += publish(sound, done.notebooks, formats)
    return done


def publish(items: Sequence[OpenItem], notebooks: dict[str, str], formats: Sequence[str] = ()) -> list[Path]:
    """Put items in the place of what is published: tables, figures, the report, and, if they were executed with the
    quick profile's own settings, notebooks. Returns the reports."""
    for item in items:
        save(item, publish=True, formats=formats)
        if item.place == "quick" and notebooks.get(item.item.name) in ("executed", "unchanged"):
            refresh_source(item)
    return [write_report(place) for place in sorted({item.place for item in items})]


def _saved(items: Sequence[OpenItem], done: Done, formats: Sequence[str]) -> Iterator[OpenItem]:
    """Save items one by one and yield those that could be."""
    for item in items:
        try:
            done.summaries[item.item.name] = save(item, formats=formats)
        except FedlibError as error:
            done.failures[item.item.name] = str(error)
        except Exception as error:
            done.failures[item.item.name] = f"{type(error).__name__}: {error}"
        else:
            yield item
