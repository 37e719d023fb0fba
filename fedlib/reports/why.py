"""Where a number comes from: the runs behind rows of an item's tables, from their settings to the command that repeats
them.

A run's file says everything. Where it is not here, as those of the quick profile, which are not published, settings
follow from its id, and the rest from what was saved with the item.
"""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pandas as pd
from pandas.api.types import is_bool_dtype

from fedlib import algorithms
from fedlib.analysis.names import counted, proper
from fedlib.analysis.run_ids import COLUMN, DIGITS, NESTED, ORIGINS, PRINTED, labels
from fedlib.base.errors import BadValue, FedlibError, choose
from fedlib.base.files import home
from fedlib.data import available, load
from fedlib.experiments import OpenItem, find, full_name
from fedlib.experiments.item import duration
from fedlib.reports.report import SCALES, largest, origin, saved_items
from fedlib.reports.saved import OWN, runs_of
from fedlib.runs.store import Spec
from fedlib.spec import RunSpec

FEW, MANY = 4, 25  # settings that are shown in full; texts of a column that are listed
READ_SO = "choices made in all of these runs where the paper is not specific:"
SEEDS = ("seed", "partition_seed")
ASKED = {  # options of `fedlib run`, by field
    "dataset": "--dataset", "num_clients": "--clients", "join_ratio": "--join-ratio", "rounds": "--rounds",
    "lr": "--lr", "seed": "--seed",
}  # fmt: skip


@dataclass(frozen=True)
class Saved:
    """An item as it was saved in results/<place>. rows: of all its tables, one row each: table, cells (its labels, as
    texts by column) and ids."""

    summary: dict
    place: str
    opened: OpenItem
    rows: pd.DataFrame

    def specs(self, short: Iterable[str]) -> list[Spec]:
        """Settings of runs by the beginnings of their ids. Raises FedlibError if this version of the item has others
        than it was saved with."""
        every = {spec.id[:DIGITS]: spec for spec in self.opened.specs}
        if gone := [id for id in short if id not in every]:
            raise FedlibError(f"{self.summary['item']} has other settings than those that it was saved with: of its "
                              f"own runs {', '.join(gone)} are none")  # fmt: skip
        return [every[id] for id in short]


def saved(name: str, place: str = "") -> Saved:
    """An item's tables, of one folder under results/, or of the largest scale that is published, else the own ones.

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
    place = next(p for p, item in there.items() if item is summary)
    return Saved(summary, place, opened, _rows(summary, opened))


def _rows(summary: dict, opened: OpenItem) -> pd.DataFrame:
    """The rows of all tables of an item that say which runs they are made of."""
    path, lines = summary["path"], []
    for file in sorted(path.parent.glob(f"{path.stem}.*csv")):
        frame = pd.read_csv(file, dtype={COLUMN: str})
        if COLUMN in frame and file.name != f"{path.stem}.{ORIGINS}.csv":
            shown = [name for name in labels(frame, opened.runs) if name != COLUMN and not is_bool_dtype(frame[name])]
            shown = [name for name in shown if frame[name].dtype.kind not in "iu" or name == "seed"]  # texts, settings
            ids = frame[COLUMN].fillna("").str.split()
            cells = frame[shown].fillna("").astype(str).to_dict("records")
            lines += [(file.name, row, tuple(own)) for row, own in zip(cells, ids)]
    return pd.DataFrame(lines, columns=["table", "cells", "ids"])


# which rows ----------------------------------------------------------------------------------------------------------


def what_can_be_asked(of: Saved) -> str:
    """The texts that rows of an item's tables contain, by column."""
    texts: dict[str, dict[str, None]] = {}
    for cells in of.rows["cells"]:
        for column, cell in cells.items():
            if cell and column not in PRINTED:
                texts.setdefault(column, {})[cell] = None
    lines = [f"{of.summary['item']}, {of.place}: ask for any of these, or for a run's id; several narrow it down"]
    for column, cells in texts.items():
        more = [f"and {len(cells) - MANY} more"] if len(cells) > MANY else []
        lines.append(f"  {column + ':':<12} {' | '.join([*list(cells)[:MANY], *more])}")
    return "\n".join(lines)


def asked(of: Saved, texts: Sequence[str]) -> pd.DataFrame:
    """The rows that contain all of these texts: as a cell, as a part of one, or as the beginning of a run's id.

    Raises BadValue with the nearest texts if there are none.
    """
    found = of.rows
    for text in texts:
        if not _hits(of.rows, text).any():
            cells = {cell for row in of.rows["cells"] for cell in row.values() if cell}
            choose(f"row of {of.summary['item']}", text, sorted(cells, key=lambda cell: (len(cell), cell)))
        found = found[_hits(found, text)]
    if found.empty:
        raise BadValue(f"no row of {of.summary['item']} has all of {', '.join(map(repr, texts))}")
    return found


def _hits(rows: pd.DataFrame, text: str) -> pd.Series:
    """Which rows contain a text, in the strictest way in which one does."""
    wanted = text.casefold()
    called = rows["cells"].map(lambda cells: [name.casefold() for c in cells.values() for name in (c, proper(c))])
    equal = called.map(lambda names: wanted in names).astype(bool)
    part = called.map(lambda names: any(wanted in name for name in names)).astype(bool)
    short = wanted[:DIGITS] if re.fullmatch(r"[0-9a-f]{4,16}", wanted) else None
    ids = rows["ids"].map(lambda ids: short is not None and any(id.startswith(short) for id in ids)).astype(bool)
    return next((hit for hit in (equal, ids, part) if hit.any()), part)


def ids_of(rows: pd.DataFrame, texts: Iterable[str] = ()) -> list[str]:
    """The runs behind rows, each once; only those that are asked for by their ids, if some are."""
    every = list(dict.fromkeys(id for ids in rows["ids"] for id in ids))
    named = [id for id in every for text in texts if len(text) >= 4 and id.startswith(text.casefold()[:DIGITS])]
    return named or every


# what they are -------------------------------------------------------------------------------------------------------


def why(name: str, texts: Sequence[str] = (), place: str = "", whole: bool = False) -> str:
    """What is known of the runs behind the rows of an item that contain these texts; without any, what can be asked.

    whole: all settings, not only those that differ from the defaults. Raises BadValue for what is not there.
    """
    of = saved(name, place)
    if not of.opened.specs:
        return f"{name}, {of.place}: no run is behind it, its tables are drawn and counted.\n{_made(of)}"
    if of.rows.empty:
        raise FedlibError(f"the tables of {name} in results/{of.place} do not say of which runs they are made; "
                          f"run `fedlib reproduce {name}` again")  # fmt: skip
    if not texts:
        return what_can_be_asked(of)
    rows = asked(of, texts)
    short = ids_of(rows, texts)
    counts = rows["table"].value_counts(sort=False)
    behind = ", ".join(f"{counted(count, 'row')} of {table}" for table, count in counts.items())
    head = f"{of.summary['title']}, {of.place}: {counted(len(short), 'run')} behind {behind}"
    if not short:
        return f"{head}: these numbers are printed or drawn, not trained."
    groups: dict[str, list[Spec]] = {}
    for spec in of.specs(short):
        groups.setdefault(_without_seed(spec), []).append(spec)
    if len(groups) > FEW:
        lines = _overview(of, groups.values())
        return "\n".join([head, *lines, f"{len(groups)} settings: name another text to see one in full"])
    return "\n\n".join([head, *_in_full(of, list(groups.values()), whole), _made(of)])


def _in_full(of: Saved, groups: list[list[Spec]], whole: bool) -> list[str]:
    """A paragraph a setting, and one on the readings that all have in common."""
    read = [readings(group[0]) for group in groups]
    alike = all(own == read[0] for own in read)
    blocks = [_setting(of, group, [] if alike else own, whole) for group, own in zip(groups, read)]
    return blocks + (["\n".join([READ_SO, *read[0]])] if alike and read[0] else [])


def _title(spec: Spec) -> str:
    return spec.label.rpartition("seed ")[0].rstrip(", ")


def _without_seed(spec: Spec) -> str:
    values = spec.to_dict()
    return json.dumps({k: v for k, v in values.items() if k not in SEEDS}, sort_keys=True)


def _overview(of: Saved, groups: Iterable[list[Spec]]) -> list[str]:
    lines = []
    for specs in groups:
        known = _known(of, specs)
        ends = [f"{curve[-1][1]:.2f}" for curve in map(_points, known["pooled"]) if curve]
        last = f"last round {', '.join(ends)} %" if ends else "numbers not here"
        lines.append(f"  {_title(specs[0]):<40} {last:<32} {' '.join(spec.id[:DIGITS] for spec in specs)}")
    return lines


def _known(of: Saved, specs: Sequence[Spec]) -> pd.DataFrame:
    """What is known of runs, a row each as `runs_of` has it, with origin in words and source: "file" of the run,
    "table" saved with the item, or "nothing" but its settings."""
    origins, path, frames = list(map(origin, of.summary["provenance"])), of.summary["path"], []
    file = path.with_name(f"{path.stem}.{ORIGINS}.csv")
    table = pd.read_csv(file, dtype=str, keep_default_na=False) if file.exists() else pd.DataFrame({"run": []})
    for spec in specs:
        own, result = table[table["run"] == spec.id], of.opened.store.get(spec)
        if result is not None:
            own = runs_of([result]).astype(str).assign(source="file", origin=origin(result.provenance))
        elif len(own):
            own = own.assign(source="table", origin=[origins[int(k)] for k in own["origin"]])
        else:
            own = pd.DataFrame([{"run": spec.id, "source": "nothing", "partition": _drawn_again(spec)}])
            own = own.assign(origin=" or ".join(origins))
        frames.append(own.assign(seed=spec.seed))
    return pd.concat(frames, ignore_index=True).fillna("")


def _drawn_again(spec: Spec) -> str:
    """The partition's checksum, drawn again, which needs no training; empty where its data are not here."""
    if not isinstance(spec, RunSpec) or spec.dataset not in available():
        return ""
    return spec.divide(load(spec.dataset))[0].checksum


def _points(curve: str) -> list[tuple[int, float]]:
    """ "5:61.20 10:63.07" as rounds and percent."""
    return [(int(t), float(percent)) for t, percent in (point.split(":") for point in curve.split())]


def _setting(of: Saved, specs: list[Spec], read: list[str], whole: bool) -> str:
    """Everything about the runs of one setting, which differ in their seeds; read: readings that are its own."""
    first, known = specs[0], _known(of, specs)
    settings = f"all settings: {_listed(first.to_dict())}" if whole else f"non-default: {_listed(differences(first))}"
    lines = [_title(first), f"  {settings}", *read, *(f"  made by: {text}" for text in dict.fromkeys(known["origin"]))]
    absent = known[known["source"] != "file"]
    if len(absent):
        have = "what is said of them was saved with the item"
        if (absent["source"] == "nothing").any():
            have = "settings follow from ids, partitions are drawn again, accuracies over the rounds are not known"
        lines += [f"  {counted(len(absent), 'run file')} of {len(known)} not here: {have}; `{_sweep(of)}` makes them"]
    lines += [line for _, row in known.iterrows() for line in _run(row)]
    return "\n".join([*lines, *(f"  again: {command}" for command in _commands(of, specs))])


def _commands(of: Saved, specs: list[Spec]) -> list[str]:
    """What does the first run again, and what is other for the other seeds."""
    if not isinstance(specs[0], RunSpec):
        return [_sweep(of)]
    first, *others = ([f"fedlib run {spec.method}", *options_of(spec)] for spec in specs)
    other = [" ".join(option for option in options if option not in first) for options in others]
    return [" ".join(first), *(f"the same with {options}" for options in other)]


def _run(row: pd.Series) -> list[str]:
    """One run: id, seed, partition, accuracies; and its curve."""
    text, points = f"  run {row['run']}, seed {row['seed']}", _points(row.get("pooled", ""))
    for name, title in (("partition", "partition"), ("data", "data"), ("date", "done"), ("status", "")):
        text += f", {title} {row[name]}".replace(",  ", ", ") if row.get(name) else ""
    text += f", {duration(float(row['seconds']) / 60)}" if row.get("seconds") else ""
    if not points:
        return [text]
    (t, last), (best_t, best) = points[-1], max(points, key=lambda point: point[1])
    clients = dict(_points(row["client_mean"])).get(t)
    shown = [*points[: -1 : max(1, len(points) // 6)], points[-1]]
    numbers = ", ".join(f"{round} {percent:.1f}" for round, percent in shown)
    return [
        text,
        f"    last round {last:.2f} % of all test samples ({clients:.2f} as the mean over clients), "
        f"best round {best:.2f} % (round {best_t})",
        f"    by round: {numbers}",
    ]


def _made(of: Saved) -> str:
    """How the item itself is made again."""
    changed = "".join(f" --set {shlex.quote(f'{name}={_text(v)}')}" for name, v in of.summary["changed"].items())
    name, profile = of.summary["item"], of.summary["profile"]
    return f"the item again: fedlib reproduce {name} --profile {profile}{changed}"


def _sweep(of: Saved) -> str:
    """The command that does all runs of the item."""
    return _made(of).partition(": ")[2].replace("reproduce", "sweep", 1)


# of a spec -----------------------------------------------------------------------------------------------------------


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


def readings(spec: Spec) -> list[str]:
    """How the options that settle what the method's paper leaves open stand in this run, with what they mean: from the
    method's own file. An option that the file does not call a reading is not among them."""
    if not isinstance(spec, RunSpec):
        return []
    text = algorithms.text(spec.method)
    section = re.search(r"^Readings.*?(?=\n\n|\Z)", text, re.MULTILINE | re.DOTALL)
    if not section:
        return []
    _, *points = re.split(r"\n- ", section[0])
    found = []
    for means in (" ".join(point.split()) for point in points or [section[0]]):
        about = means.partition(":")[0] if points else means
        own = {name: v for name, v in spec.hyper.items() if re.search(rf"\b{name}\b", about)}
        found += [f"  {_listed(own)}   [{means}]"] if own else []
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


def _listed(fields: dict) -> str:
    return ", ".join(f"{name} = {value}" for name, value in fields.items())
