"""Where a number comes from: an item's runs, from their settings to the command that repeats them.

An item calls its runs by keys, such as (row, column, seed), whose parts are the labels of its tables. A run's file says
everything about it; where it is not here, as those of the quick profile, which are not published, the table ORIGINS
that is saved with an item says the rest.
"""

from __future__ import annotations

import dataclasses
import json
import shlex
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from fedlib.analysis.names import counted, proper
from fedlib.base.errors import BadValue, choose
from fedlib.base.files import home
from fedlib.experiments import OpenItem, find, full_name
from fedlib.experiments.item import Runs, duration
from fedlib.reports.report import ORIGINS, SCALES, largest, origin, saved_items
from fedlib.reports.saved import OWN, parts, runs_of
from fedlib.runs.store import Spec
from fedlib.spec import RunSpec

FEW, MANY = 4, 25  # settings that are shown in full; labels of one kind that are listed
SEEDS, NESTED = ("seed", "partition_seed"), ("hyper", "partition", "model_options")  # fields of a run
ASKED = {  # options of `fedlib run`, by field
    "dataset": "--dataset", "num_clients": "--clients", "join_ratio": "--join-ratio", "rounds": "--rounds",
    "lr": "--lr", "seed": "--seed",
}  # fmt: skip


@dataclass(frozen=True)
class Saved:
    """An item as it was saved in results/<place>. runs: those that its tables were made of, by key; known: of each what
    `runs_of` says, with its origin in words, and whether its file is here."""

    summary: dict
    place: str
    runs: Runs
    known: dict[str, dict]


def saved(name: str, place: str = "") -> Saved:
    """An item and its runs, of one folder under results/, or of the largest scale that is published, else the own ones.

    Raises BadValue for an unknown item, and for a folder that does not have it.
    """
    name = full_name(name)
    there = {p: i for p in ([place] if place else [*SCALES, *(f"{OWN}/{scale}" for scale in SCALES)])
             for i in saved_items(p, name)}  # fmt: skip
    own = {scale: there[f"{OWN}/{scale}"] for scale in SCALES if f"{OWN}/{scale}" in there}
    summary = there.get(place) if place else largest(there) or largest(own)
    if summary is None:
        raise BadValue(f"{name} has no results in {home() / 'results' / place}; run `fedlib reproduce {name}` first")
    opened = OpenItem(find(name), summary["profile"], **summary["changed"])
    place, path = next(p for p, item in there.items() if item is summary), summary["path"]
    file, origins, known = path.with_name(f"{path.stem}.{ORIGINS}.csv"), list(map(origin, summary["provenance"])), {}
    lines = pd.read_csv(file, dtype=str, keep_default_na=False).to_dict("records") if file.exists() else []
    for line in lines:
        known[line["run"]] = line | {"origin": origins[int(line["origin"])], "here": False}
    runs = {key: spec for key, spec in opened.runs.items() if spec.id in known}
    for spec in runs.values():
        if (result := opened.store.get(spec)) is not None:
            line = runs_of([result]).astype(str).iloc[0].to_dict()
            known[spec.id] = line | {"origin": origin(result.provenance), "here": True}
    return Saved(summary, place, runs, known)


# which runs -----------------------------------------------------------------------------------------------------------


def what_can_be_asked(of: Saved) -> str:
    """The parts of the keys of an item's runs, by place."""
    labels: dict[int, dict[str, None]] = {}
    for key in of.runs:
        for place, part in enumerate(parts(key)):
            labels.setdefault(place, {})[part] = None
    lines = [f"{of.summary['item']}, {of.place}: ask for any of these, or for a run's id; several narrow it down"]
    for found in labels.values():
        more = [f"and {len(found) - MANY} more"] if len(found) > MANY else []
        lines.append(f"  {' | '.join([*list(found)[:MANY], *more])}")
    return "\n".join(lines)


def asked(of: Saved, texts: Sequence[str]) -> Runs:
    """The runs that all of these texts name: as a part of their keys, as the beginning of their ids, or within a part.

    Raises BadValue with the nearest labels if there are none.
    """
    found = set(of.runs)
    for text in texts:
        if not (named := _named(of.runs, text)):
            labels = {part for key in of.runs for part in parts(key)}
            choose(f"label of {of.summary['item']}", text, sorted(labels, key=lambda label: (len(label), label)))
        found &= named
    if not found:
        raise BadValue(f"no run of {of.summary['item']} has all of {', '.join(map(repr, texts))}")
    return {key: spec for key, spec in of.runs.items() if key in found}


def _named(runs: Mapping[Hashable, Spec], text: str) -> set:
    """The keys that a text names, in the strictest way in which it names one."""
    wanted = text.casefold()
    labels = {key: [name.casefold() for part in parts(key) for name in (part, proper(part))] for key in runs}
    ways = (
        lambda key: wanted in labels[key],
        lambda key: len(wanted) >= 4 and runs[key].id.startswith(wanted),
        lambda key: any(wanted in label for label in labels[key]),
    )
    return next((found for way in ways if (found := set(filter(way, runs)))), set())


# what they are --------------------------------------------------------------------------------------------------------


def why(name: str, texts: Sequence[str] = (), place: str = "") -> str:
    """What is known of an item's runs that these texts name; without any, what can be asked, unless all are alike.
    Raises BadValue for what is not there."""
    of = saved(name, place)
    if not of.runs:
        return f"{name}, {of.place}: no run is behind it, its tables are drawn and counted.\n{_made(of)}"
    groups: dict[str, dict[str, Spec]] = {}  # by settings but for seeds; a run may have several keys
    for spec in asked(of, texts).values():
        values = {name: value for name, value in spec.to_dict().items() if name not in SEEDS}
        groups.setdefault(json.dumps(values, sort_keys=True), {})[spec.id] = spec
    settings = [list(group.values()) for group in groups.values()]
    if not texts and len(settings) > 1:
        return what_can_be_asked(of)
    head = f"{of.summary['title']}, {of.place}: {counted(sum(map(len, settings)), 'run')}"
    if len(settings) > FEW:
        lines = []
        for group in settings:
            ends = ", ".join(of.known[spec.id]["pooled"] for spec in group)
            ids = " ".join(spec.id[:8] for spec in group)
            lines.append(f"  {group[0].title:<40} {f'last round {ends} %' if ends.strip(', ') else '':<32} {ids}")
        return "\n".join([head, *lines, f"{len(settings)} settings: name another text to see one in full"])
    return "\n\n".join([head, *(_in_full(of, group) for group in settings), _made(of)])


def _in_full(of: Saved, specs: list[Spec]) -> str:
    """Everything about the runs of one setting, which differ in their seeds."""
    first, known = specs[0], [of.known[spec.id] for spec in specs]
    settings = f"non-default: {', '.join(f'{name} = {value}' for name, value in differences(first).items())}"
    made_by = [f"  made by: {text}" for text in dict.fromkeys(line["origin"] for line in known)]
    lines = [first.title, f"  {settings}", *made_by]
    if absent := sum(not line["here"] for line in known):
        lines.append(f"  {counted(absent, 'run file')} of {len(known)} not here: what is said of them was saved with "
                     f"the item; `{_sweep(of)}` makes them")  # fmt: skip
    lines += [text for spec, line in zip(specs, known) for text in _run(spec, line)]
    return "\n".join([*lines, *(f"  again: {command}" for command in _commands(of, specs))])


def _run(spec: Spec, known: dict) -> list[str]:
    """One run: id, seed, partition; and its accuracy after the last round."""
    text = f"  run {spec.id}, seed {spec.seed}"
    for name, title in (("partition", "partition"), ("data", "data"), ("date", "done"), ("status", "")):
        text += f", {title} {known[name]}".replace(",  ", ", ") if known[name] else ""
    text += f", {duration(float(known['seconds']) / 60)}" if known["seconds"] else ""
    last = f"    last round {known['pooled']} % pooled ({known['client_mean']} client mean)"
    return [text, *([last] if known["pooled"] else [])]


def _commands(of: Saved, specs: list[Spec]) -> list[str]:
    """What does the first run again, and what is other for the other seeds."""
    if not isinstance(specs[0], RunSpec):
        return [_sweep(of)]
    first, *others = ([f"fedlib run {spec.method}", *options_of(spec)] for spec in specs)
    other = [" ".join(option for option in options if option not in first) for options in others]
    return [" ".join(first), *(f"the same with {options}" for options in other)]


def _made(of: Saved) -> str:
    """How the item itself is made again."""
    changed = "".join(f" --set {shlex.quote(f'{name}={_text(v)}')}" for name, v in of.summary["changed"].items())
    name, profile = of.summary["item"], of.summary["profile"]
    return f"the item again: fedlib reproduce {name} --profile {profile}{changed}"


def _sweep(of: Saved) -> str:
    """The command that does all runs of the item."""
    return _made(of).partition(": ")[2].replace("reproduce", "sweep", 1)


# of a spec ------------------------------------------------------------------------------------------------------------


def differences(spec: Spec) -> dict:
    """The fields of a run, and of its method, partition and model, that differ from the defaults."""
    default = RunSpec(spec.method) if isinstance(spec, RunSpec) else type(spec)()
    fields, usual, found = spec.to_dict(), default.to_dict(), {}
    for name, value in fields.items():
        if name in NESTED and isinstance(spec, RunSpec):
            same = usual[name] if name == "hyper" else {}  # of partition and model all options are shown
            found |= {f"{name}.{key}": v for key, v in value.items() if key not in same or v != same[key]}
        elif name == "method" or name not in usual or value != usual[name]:
            found[name] = value
    return found


def options_of(spec: RunSpec) -> list[str]:
    """The options with which `fedlib run` does a run again (it is kept in results/single)."""
    values, usual = {f.name: getattr(spec, f.name) for f in dataclasses.fields(spec)}, RunSpec(spec.method)
    options = [f"{option} {values[name]}" for name, option in ASKED.items()]
    more = {"partition": spec.partition, "eval_every": spec.eval_every}
    other = {name: v for name, v in values.items() if v != getattr(usual, name)}
    more |= {name: v for name, v in other.items() if name not in (*ASKED, "method", "hyper")}
    more |= {name: v for name, v in spec.hyper.items() if v != usual.hyper[name]}
    return [*options, *(f"--set {shlex.quote(f'{name}={_text(v)}')}" for name, v in more.items())]


def _text(value) -> str:
    """A value as the command line takes it."""
    return value if isinstance(value, str) else json.dumps(value)
