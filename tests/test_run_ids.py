"""Every row of a result table says of which runs it is made: by its labels, checked by changing single runs."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pandas as pd
import pytest
from helpers import analysed, made_up, smoke_item

from fedlib.analysis.run_ids import COLUMN, DIGITS, NOT_RUN, labels, run_ids
from fedlib.experiments import OpenItem, find
from fedlib.spec import RunSpec

PROJECT = Path(__file__).parent.parent
SUMMARIES = sorted(path for path in (PROJECT / "results").glob("*/*/*.json") if path.parent.name != "runs")
RESULTS = [path for path in SUMMARIES if path.relative_to(PROJECT).parts[1] != "own"]


def tables_by_change(name: str, changed: tuple, **settings) -> tuple[dict, dict, OpenItem]:
    """An item's tables of made-up results, and those where one run is ten points better; and the item."""
    item = OpenItem(find(name), "quick", **settings)

    def tables(better=None):
        return analysed(name, lambda key, spec: made_up(spec, 0.9 if key == better else 0.8), **settings)

    return tables(), tables(changed), item


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("pfedsim/table3_accuracy", ("fedbn", "Dir(0.5)", 1)),
        ("pfedsim/table6_rho", ("pfedsim, rho = 0.3", "Dir(0.1)", 0)),
        ("fedsimsup/table1_dirichlet", ("fedrep", "cifar10, Dir(0.1), 50", 1)),
        ("pfedsv/table2_dirichlet", ("pfedsv", "few", 0)),
        ("pfedcs/fig3_clients", ("fedper", "10 clients", 0)),
    ],
)
def test_rows_that_change_with_a_run_name_it_and_rows_about_others_do_not(name, changed):
    before, after, item = tables_by_change(name, changed, seeds=2)
    item.__dict__["tables"] = before
    item.__dict__["results"] = [made_up(spec, 0.8) for spec in item.specs]
    id, moved = item.runs[changed].id[:DIGITS], 0
    for table in (name for name in before if not name.startswith("_")):
        rows = item.made_by(table)
        assert len(rows) == len(before[table])
        same = before[table].map(repr).eq(after[table].map(repr)).all(axis=1)
        for k, ids in enumerate(rows):
            assert same.iloc[k] or id in ids.split(), f"{table}, row {k} changes: {before[table].iloc[k].to_dict()}"
        moved += (~same).sum()
    assert moved > 2
    (own,) = {ids for ids, row in zip(item.made_by("tidy"), before["tidy"].itertuples())
              if (row.row, row.column, row.seed) == changed}  # fmt: skip
    assert own == id  # of a row about one run only this one


def test_tables_that_only_some_runs_make_name_no_others():
    item = copy.copy(smoke_item("pfedsim/notes"))
    parts = {spec.id[:DIGITS]: set() for spec in item.specs}
    for key, spec in item.runs.items():
        parts[spec.id[:DIGITS]].add(key[0])
    for table, part in (("leads", "table"), ("alone", "mixing"), ("effects", "changed"), ("fit", "table")):
        assert all(part in parts[id] for ids in item.made_by(table) for id in ids.split())
    assert item.made_by("draws") == [""] * len(item.tables["draws"])  # partitions are drawn, nothing is trained
    assert all(item.made_by("leads"))


SPECS = {
    ("sweep", 0.1, "a", 0): RunSpec("pfedsim", {"rho": 0.1}, seed=0),
    ("sweep", 0.1, "a", 1): RunSpec("pfedsim", {"rho": 0.1}, seed=5),  # the item counts from 0
    ("sweep", 0.5, "a", 0): RunSpec("pfedsim", {"rho": 0.5}, seed=0),
    ("other", "b", 0): RunSpec("fedavg", seed=0),
}
IDS = [spec.id[:DIGITS] for spec in SPECS.values()]


@pytest.mark.parametrize(
    ("row", "named"),
    [
        ({"rate": 0.1, "accuracy": 0.5}, IDS[:2]),
        ({"rho": 0.5, "accuracy": 0.1}, [IDS[2]]),  # a field of the run; what is measured may look like a label
        ({"seed": 1}, [IDS[1]]),
        ({"method": "fedavg", "round": 0}, [IDS[3]]),  # a count names nothing
        ({"row": "b", "accuracy": 0.7, "best other": "a"}, [IDS[3]]),  # behind a number no label is looked for
        ({"what": "a pair of clients"}, IDS),  # nothing is known: any of them
        ({"what": "both of a"}, IDS[:3]),  # said in other words
        ({"series": "paper", "row": "b"}, []),
        ({"series": "ours", "row": "b"}, [IDS[3]]),
    ],
)
def test_a_label_names_runs_by_parts_of_their_keys_seeds_and_fields(row, named):
    assert run_ids(pd.DataFrame([row]), SPECS, called={"both of a": ("sweep", "a")}) == [" ".join(named)]


def test_runs_that_are_not_there_are_not_named():
    frame = pd.DataFrame({"row": ["a", "b"], "accuracy": [0.1, 0.2]})  # 0.1 is a rate by chance
    there = [SPECS["other", "b", 0].id, SPECS["sweep", 0.5, "a", 0].id]
    assert run_ids(frame, SPECS, there) == [IDS[2], IDS[3]]
    assert run_ids(frame, SPECS, []) == ["", ""]


def test_labels_end_where_something_is_measured():
    frame = pd.DataFrame(
        {"task": ["x"], "seed": [0], "own": [True], "ours, %": ["80.1 [70.2, 90.0] (n=1)"], "z": ["x"]}
    )
    assert labels(frame, SPECS) == ["task", "seed"]
    frame = pd.DataFrame({"pair": ["i-j", "10 clients"], "entropy, %": ["3.2 (0.1)", "88 %"], "z": ["x", "y"]})
    assert labels(frame, SPECS) == ["pair"]
    assert labels(pd.DataFrame({"rho": [0.1, 0.5], "drawn": [0.25, 1.5]}), SPECS) == ["rho"]


@pytest.mark.parametrize("path", RESULTS, ids=lambda p: "/".join(p.parts[-3:]))
def test_every_row_of_a_committed_table_carries_runs_of_its_item(path):
    summary = json.loads(path.read_text())
    if not summary["runs"]:
        return
    ids, rows = {id[:DIGITS] for id in summary["runs"]}, 0
    assert len(ids) == len(summary["runs"])
    item = find(summary["item"])
    keys = list(OpenItem(item, summary["profile"], **summary["changed"]).runs)
    for file in path.parent.glob(f"{path.stem}.*csv"):
        table = file.name.removeprefix(f"{path.stem}.").removesuffix("csv").rstrip(".") or "tidy"
        frame = pd.read_csv(file, dtype=str, keep_default_na=False)
        if table == "origins":
            without = len(summary.get("missing", ())) + (0 if item.diverging else len(summary.get("diverged", ())))
            assert set(frame["run"]) <= set(summary["runs"]) and len(frame) == len(ids) - without
            continue
        assert {id for own in frame[COLUMN] for id in own.split()} <= ids
        ours = frame if "series" not in frame else frame[frame["series"] != "paper"]
        ours = ours[~ours.iloc[:, 0].str.startswith(NOT_RUN)]
        assert ours[COLUMN].ne("").all() == any(item.made_of(table, key) for key in keys) or ours.empty
        rows += (ours[COLUMN] != "").sum()
    assert rows
