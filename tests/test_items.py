"""Every item opens, runs, is analysed, drawn, checked and saved; what README, pages and notebooks promise is there."""

from __future__ import annotations

import copy
import functools
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from threading import Event
from types import SimpleNamespace

import pandas as pd
import pytest
import typer
from helpers import analysed, made_up, smoke_item
from typer.testing import CliRunner

from fedlib import cli, figures
from fedlib.base.errors import BadValue, FedlibError
from fedlib.claims import NOT_REPRODUCED, NOT_TESTED, REPRODUCED, UNDECIDED
from fedlib.experiments import PROFILES, OpenItem, at_paper_scale, find, names, open_item
from fedlib.experiments.item import joined, leaving_out, part, runs_of
from fedlib.experiments.paper_numbers import paper_table
from fedlib.reports import notebooks, report
from fedlib.reports.saved import save
from fedlib.reports.status import status

PROJECT = Path(__file__).parent.parent
ITEMS = names()
TWICE = ("pfedsim/fig4_workflow", "pfedsim/notes", "pfedsv/fig7_relevance", "pfedsv/fig11_inversion")  # saved again
FINISHED = [name for name in ITEMS if not find(name).draft]
WATCHED = ("pfedsim/fig4_workflow", "fedsimsup/fig1_framework", "pfedcs/fig2_framework")  # one run
SEEDED = [
    name
    for name in ITEMS
    if OpenItem(find(name), "smoke").specs and name not in WATCHED and name != "pfedsim/table3_draws"
]  # its draws are of the clients

opened = functools.cache(lambda name, profile: OpenItem(find(name), profile))

# settings -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("name", ITEMS)
def test_an_item_opens_in_every_profile(name, profile):
    item = find(name)
    assert {"smoke", "quick", "paper"} <= set(item.settings) == set(item.minutes) <= set(PROFILES)
    assert bool(item.smaller_overnight) == ("overnight" in item.settings)
    if profile not in item.settings:
        with pytest.raises(BadValue, match=f"profile of {name}"):
            opened(name, profile)
        return
    for spec in opened(name, profile).specs:
        assert type(spec).from_dict(json.loads(json.dumps(spec.to_dict()))).id == spec.id


def values(specs, name: str) -> set:
    """What runs have as a field of this name, or as a parameter of their partition, network or method."""
    parts = [{**s.hyper, **s.model_options, **s.partition, **vars(s)} for s in specs]  # alpha: the partition's
    return {tuple(map(tuple, v)) if isinstance(v := own[name], list) else v for own in parts if name in own}


TWELVE = {"fedprox": {"mu": 1.0}, "feddyn": {"alpha": 0.01}, "fedgen": {"noise": 32, "steps": 5, "decay": 0.98},
          "perfedavg": {"alpha": 0.01, "beta": 0.001, "variant": "FO"}, "fedrep": {"E_f": 1},
          "fedfomo": {"M": 5, "val_fraction": 0.2}, "ffedap": {"rho": 0.5, "mu": 0.5},
          "pfedsim": {"rho": 0.5}}  # fmt: skip
TRAINING = dict(num_clients=100, join_ratio=0.1, rounds=200, local_epochs=5, batch_size=32, lr=0.01, test_fraction=0.5)
PFEDSIM = TRAINING | dict(dataset="cifar10", model="lenet5_bn", partition_seed=0)
ALONE = dict(dataset="cifar10", model="lenet5_bn", rounds=20, seed={*range(5)})
PFEDSV = dict(
    dataset="cifar10", local_epochs=5, lr=0.1, model="mcmahan_cnn", padding="same", seed={*range(5)},
    partition_seed={*range(5)}, num_clients={10, 100}, join_ratio={0.1, 1.0}, rounds={20, 100},
)  # fmt: skip
RING = PFEDSV | dict(num_clients=10, join_ratio=1.0, rounds=20)
PFEDCS = dict(
    num_clients=20, join_ratio=1.0, rounds=200, local_epochs=5, batch_size=100, test_fraction=0.25, seed={0, 1, 2},
    lr={0.005, 0.1}, model={"mcmahan_cnn", "resnet18"}, dataset={"cifar10", "cifar100", "tiny_imagenet"},
)  # fmt: skip
ON_CIFAR100 = PFEDCS | dict(dataset="cifar100", lr=0.005, model="mcmahan_cnn")
CLOSE = dict(dataset="cifar10", classes_per_client=2, local_epochs=5, batch_size=100, lr=0.005, model="mcmahan_cnn")
SETS = {"pfedsim": ((0, 1, 2, 3, 4), (0, 1, 2, 3, 4), (2, 3, 4, 5, 6), (5, 6, 7, 8, 9)),
        "A to C": ((0, 2, 4, 6, 8), (0, 2, 4), (6, 8)), "D, E": ((1, 3, 5), (7, 9))}  # fmt: skip
OWN_CLIENTS = dict(scheme="dirichlet_reference", partition_seed=42, test_fraction=0.5, seed={0, 1, 2}, alpha={0.1, 0.5})
STATED = {  # literally, from the papers
    "pfedsim/fig1_cka": ALONE | dict(num_clients=10, alpha=0.1),
    "pfedsim/fig2_classifier_similarity": ALONE | dict(num_clients=4, label_sets=SETS["pfedsim"]),
    "pfedsim/table2_similarity_metrics": ALONE | dict(num_clients={4, 10}, label_sets=SETS["pfedsim"]),
    "pfedsim/fig4_workflow": PFEDSIM | dict(rounds=20, rho=0.5),
    "pfedsim/table3_accuracy": PFEDSIM | OWN_CLIENTS,
    "pfedsim/table6_rho": PFEDSIM | OWN_CLIENTS | dict(rho={0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0}, alpha={0.1, 0.5}),
    "pfedsim/table7_overhead": PFEDSIM | dict(rounds=20, seed={*range(5)}),
    "pfedsim/table8_domainnet": TRAINING | dict(
        dataset="domainnet", num_clients=120, clients_per_domain=20, model="mobilenetv2", weights="pretrained",
        seed={*range(5)},
    ),
    "fedsimsup/fig1_framework": dict(
        dataset="cifar10", model="lenet5", num_clients=100, join_ratio=0.1, rounds=20, batch_size=32, lr=0.1,
        tau_s=2, tau_theta=3, scheme="dirichlet", alpha=0.1,
    ),
    "pfedsv/fig2_domain_relevance": RING | dict(
        dataset="mnist", lr=0.01, num_clients={3, 5}, label_sets={SETS["A to C"], SETS["A to C"] + SETS["D, E"]},
    ),
    "pfedsv/fig3_model_difference": RING | dict(rounds={1, 5, 20}),
    "pfedsv/fig4_multiwise": RING | dict(k=2, classes_per_client=2),
    "pfedsv/fig7_relevance": RING | dict(dataset="mnist", lr=0.01, classes_per_client=2, k=5, M=5, samples=0),
    "pfedsv/figs8_10_communication": RING | dict(dataset="mnist", lr=0.01, k=5, M=5, rounds={2, 20}),
    "pfedsv/table1_pathological": PFEDSV | dict(scheme="ring", classes_per_client=2, k=5, samples=0),
    "pfedsv/table2_dirichlet": PFEDSV | dict(scheme={"ring", "dirichlet"}),
    "pfedsv/table3_dp": PFEDSV | dict(scheme="dirichlet", alpha=0.1, noise_sigma={0.0, 1.0}),
    "pfedsv/table4_dp_budget": RING | dict(
        scheme="ring", noise_sigma={0.0, 1.0, 2.0, 3.404, 8.447}, method={"local", "fedavg", "pfedsv"},
    ),
    "pfedsv/notes": RING | dict(seed={0, 1}, partition_seed=0),
    "fedsimsup/fig4_attention": dict(
        dataset="cifar10", num_clients=100, join_ratio=0.1, rounds=1000, batch_size=32, lr=0.1, seed={0, 1, 2},
        model={"lenet5", "supervisor_sixth"}, method={"fedsimsup", "local", "fedavg"}, tau_s=2, tau_theta=3,
    ),
    "pfedcs/table1_pathological": PFEDCS | dict(classes_per_client={2, 3, 4, 10, 15, 20, 30, 40}),
    "pfedcs/table2_practical": PFEDCS | dict(alpha={0.01, 0.05, 0.1}),
    "pfedcs/table3_selection": ON_CIFAR100 | dict(classes_per_client={10, 15, 20}, random_size=3),
    "pfedcs/table4_clustering": PFEDCS | dict(classes_per_client={2, 10, 20}, group={"kmeans", "hier", "fix", "gmm"}),
    "pfedcs/table5_finetuning": ON_CIFAR100 | dict(alpha=0.05, E_ft={0, 1, 2, 3, 5, 10}),
    "pfedcs/fig1_distances": CLOSE | dict(rounds=10, seed={*range(5)}, num_clients=20),
    "pfedcs/fig2_framework": CLOSE | dict(rounds=20, method="pfedcs"),
    "pfedcs/fig3_clients": ON_CIFAR100 | dict(alpha=0.05, num_clients={10, 20, 30, 50, 100}),
}  # fmt: skip


@pytest.mark.parametrize("name", STATED)
def test_the_paper_profile_has_the_papers_settings(name):
    specs = opened(name, "paper").specs
    for field, value in STATED[name].items():
        assert values(specs, field) == (value if isinstance(value, set) else {value}), field


def test_runs_by_row_and_seed_are_joined_and_taken_apart():
    rows = {"own": {"method": "fedper"}, "tuned": {"method": "fedper", "head_epochs": 1, "batch_size": 8}}
    runs = runs_of({"dataset": "digits", "alpha": 0.5, "seeds": 9}, rows, 2)
    assert list(runs) == [("own", 0), ("tuned", 0), ("own", 1), ("tuned", 1)]
    assert {(spec.seed, spec.partition_seed, spec.partition["alpha"]) for spec in runs.values()} == {
        (0, 0, 0.5),
        (1, 1, 0.5),
    }
    assert (runs["tuned", 1].hyper["head_epochs"], runs["tuned", 1].batch_size) == (1, 8)
    both = joined({"a": runs, 0.1: {("own", 0): runs["own", 0]}})
    assert len(both) == 5 and part(both, "a") == runs and list(part(both, 0.1)) == [("own", 0)]
    assert part(both, "own") == {}


def test_settings_that_are_left_out():
    small = {"quick": {"a": 1, "b": 2}, "paper": {"a": 3}}
    assert leaving_out(small, "b", "c") == {"quick": {"a": 1}, "paper": {"a": 3}} and "b" in small["quick"]


def test_paper_settings_that_go_together():
    """Clients, share of them and rounds at pFedSV's two scales; classes a client and learning rates of PFedCS's data;
    hyper-parameters of pFedSim's twelve methods; partitions and attacks, which train nothing."""
    sv, cs, sim = (
        opened(name, "paper").specs
        for name in ("pfedsv/table2_dirichlet", "pfedcs/table1_pathological", "pfedsim/table3_accuracy")
    )
    assert {(s.num_clients, s.join_ratio, s.rounds) for s in sv} == {(10, 1.0, 20), (100, 0.1, 100)}
    assert {s.hyper["variant"] for s in sv if s.method == "pfedsv"} == {"D"}  # whole models, as many as are relevant
    assert {s.partition["alpha"] for s in sv if s.scheme == "dirichlet"} == {0.1} and len({s.method for s in sv}) == 11
    assert {(s.dataset, s.lr, s.model) for s in cs} == {
        ("cifar10", 0.005, "mcmahan_cnn"), ("cifar100", 0.005, "mcmahan_cnn"), ("tiny_imagenet", 0.1, "resnet18"),
    }  # fmt: skip
    classes = {
        data: values([s for s in cs if s.dataset == data], "classes_per_client") for data in values(cs, "dataset")
    }
    assert classes == {"cifar10": {2, 3, 4}, "cifar100": {10, 15, 20}, "tiny_imagenet": {20, 30, 40}}
    assert len({s.method for s in cs}) == 13 + 1 and len({s.method for s in sim}) == 12
    for spec in sim:
        assert TWELVE.get(spec.method, {}).items() <= spec.hyper.items()
    attack = opened("pfedsv/fig11_inversion", "paper").specs[0]
    assert attack.dataset == "cifar10" and attack.defences["σ = 1"]["sigma"] == 1
    drawn = ("fedsimsup/fig5_partitions", "pfedsv/fig6_partitions", "pfedsim/fig3_partitions")
    five, six, three = (find(name).settings["paper"] for name in drawn)
    assert (five["dataset"], six["dataset"]) == ("cifar10", "mnist")
    assert three["datasets"] == ("cifar10", "cinic10", "tiny_imagenet")


@pytest.mark.parametrize("name", SEEDED)
def test_more_seeds_are_more_runs_beside_those_that_there_are(name):
    one, two = (OpenItem(find(name), "quick", seeds=seeds).specs for seeds in (1, 2))
    assert {0, 1} <= {spec.seed for spec in two} and len(two) > len(one)
    if not name.endswith("notes"):  # there chance is tried with the next seed
        assert {spec.seed for spec in one} == {0} and {spec.id for spec in one} < {spec.id for spec in two}


def test_settings_are_checked_before_anything_is_trained():
    for name, change, said in (
        ("pfedsim/table3_accuracy", {"methods": "pfedsin"}, "pfedsim"),
        ("pfedsv/fig7_relevance", {"lr": -1.0}, "lr = -1.0"),
        ("pfedsv/fig7_relevance", {"test_fraction": 1.5}, "test_fraction"),
        ("pfedsv/fig7_relevance", {"epochs": 3}, "epochs"),
        ("pfedsv/fig11_inversion", {"images": 3}, "images = 3"),
        ("head_to_head/table1_rates", {"rates": "0.1,x"}, "rates = 'x'"),
        ("head_to_head/table1_rates", {"rates": -1}, "rates = -1.0"),
        ("head_to_head/table2_accuracy", {"methods": "fedprox"}, "pfedsim"),
    ):
        with pytest.raises(BadValue, match=said):
            OpenItem(find(name), "smoke", **change)
    for name, dataset, said in (
        ("pfedsv/fig6_partitions", "emnist", "fedlib data emnist"),
        ("fedsimsup/fig5_partitions", "cifar01", "cifar10"),
    ):
        with pytest.raises(BadValue, match=said):
            OpenItem(find(name), "smoke", dataset=dataset).compare()


def test_an_environment_variable_wins_over_the_notebooks_parameter(monkeypatch):
    monkeypatch.setenv("FEDLIB_PROFILE", "smoke")
    assert open_item("pfedsim/fig1_cka", "quick").profile == "smoke"


def test_printed_numbers_are_found_by_what_they_are_of():
    table = paper_table("pfedsim", "6").query("dataset == 'cifar10' and partition_param == 0.5 and rho == '0.7'")
    assert table["value"].item() == 68.09
    pairs = paper_table("pfedsim", "2").set_index(["measure", "pair"])["value"].astype(float)
    assert pairs["cs"].to_dict() == {"i-i'": 0.92, "i-j": 0.53, "j-k": 0.41, "i-k": 0.22}
    assert pairs["wdb", "j-k"] == 1.5e-3
    with pytest.raises(BadValue, match="pfedsim table 66"):
        paper_table("pfedsim", "66")


# results --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ITEMS)
def test_a_smoke_run_gives_tables_verdicts_and_a_figure_that_come_back_from_their_files(name, tmp_path, monkeypatch):
    item, decided = copy.copy(smoke_item(name)), {REPRODUCED, NOT_REPRODUCED, UNDECIDED}
    assert len(item.tables["tidy"]) and any("paper" in column for column in item.compare().columns)
    assert not item.tables["tidy"].isna().any(axis=None) and len(item.compare())
    raw = [claim.check(item.tables) for claim in item.item.claims]
    assert raw and all(v.evidence for v in raw)
    shown = {v.status for _, v in item.checked}
    assert shown == {NOT_TESTED} if item.specs else shown == {v.status for v in raw} and shown & decided
    item.root = tmp_path  # the runs stay where they are
    monkeypatch.setenv("FEDLIB_HOME", str(tmp_path))
    summary = save(item)
    first = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert first[tmp_path / summary["figure"]].startswith(b"\x89PNG")
    if name in TWICE:
        save(item)
        assert first == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert [claim["claim"] for claim in summary["claims"]] == [text for text, _ in item.verdicts()]
    for table, frame in item.tables.items():
        path = tmp_path / "results" / "own" / "smoke" / f"{name}{'' if table == 'tidy' else f'.{table}'}.csv"
        assert path.exists() != table.startswith("_")
        if path.exists():
            read = pd.read_csv(path, dtype={"run_ids": str}, keep_default_na=False)
            with_ids = [*map(str, frame.columns), *(["run_ids"] if item.specs else [])]
            assert list(read.columns) == with_ids and len(read) == len(frame)
            assert {id for ids in read.get("run_ids", ()) for id in ids.split()} <= {s.id[:8] for s in item.specs}
    (read,) = report.saved_items("own/smoke")
    assert {**read, "path": None} == {**json.loads(json.dumps(summary)), "path": None}
    text = report.write_report("own/smoke").read_text()
    assert "run_ids |" not in text and (f"`fedlib why {name} ROW --profile own/smoke`" in text) == bool(item.specs)
    assert all(claim["evidence"].replace("|", "\\|") in text for claim in summary["claims"]) and item.item.title in text


def smoke_runs(name: str) -> dict:
    """The results of an item's smoke runs by key."""
    item = smoke_item(name)
    by_id = {r.spec.id: r for r in item.results}
    return {key: by_id[spec.id] for key, spec in item.runs.items()}


PARTIAL = [name for name in ITEMS if find(name).partial]


@pytest.mark.parametrize("which", [slice(0, 1), slice(-1, None)], ids=["all but the first", "all but the last"])
@pytest.mark.parametrize("name", PARTIAL)
def test_where_runs_are_missing_the_rest_is_shown_and_nothing_is_decided_that_needs_them(name, which):
    item, found = smoke_item(name), smoke_runs(name)
    tables = item.item.analyse(item.settings, {key: found[key] for key in list(found)[which]})
    item.item.figure(tables)
    assert "nan" not in tables["compare"].to_string().lower()
    checked = {claim.text: claim.check(tables) for claim in item.item.claims}
    lacking = [v.evidence for v in checked.values() if v.status == NOT_TESTED]
    assert lacking and all(
        any(word in why for word in ("without", "need", "fewer", "nothing", "not all")) for why in lacking
    )
    assert "nan" not in (item.item.answer(tables) if item.item.answer else "")
    # one run decides nothing; partitions are drawn without any, and what papers print needs none
    decided = {text for text, v in checked.items() if v.status != NOT_TESTED and not v.anywhere}
    assert all(text.startswith("Partition 0") for text in decided)


def test_a_method_that_one_column_lacks_is_named_and_what_needs_the_other_column_only_is_decided():
    def but(**lacking):
        return lambda key, spec: (
            None if lacking.items() <= dict(zip(("row", "column"), key)).items()
            else made_up(spec, leading if spec.method == "pfedsim" else 0.8)
        )  # fmt: skip

    claims, leading = find("pfedsim/table3_accuracy").claims, 0.85
    tables = analysed("pfedsim/table3_accuracy", but(row="fedbn", column="Dir(0.5)"))
    assert claims[0].check(tables).evidence == "without fedbn (Dir(0.5))"
    assert claims[1].check(tables).status != NOT_TESTED
    row = tables["compare"].set_index("method").loc["fedbn"]
    assert row["Dir(0.5): ours, digits"] == "none finished" and row["Dir(0.1): ours, digits"].startswith("80.00 [")


def test_an_item_that_needs_all_its_runs_says_how_many_are_missing(tmp_path):
    item = OpenItem(find("pfedsim/table7_overhead"), "smoke", root=tmp_path, finished=True)
    with pytest.raises(FedlibError, match="table7_overhead: 4 of 4 runs are missing"):
        item.compare()
    assert not item.can_be_shown and len(item.missing) == 4


def test_committed_results_are_shown_without_training_and_their_absence_is_told(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("FEDLIB_HOME", str(PROJECT))
    item = at_paper_scale("pfedsim/table6_rho")
    assert len(item.compare()) >= 7 and capsys.readouterr().out.endswith(
        "of 54 runs at the paper's settings are here\n"
    )
    monkeypatch.setenv("FEDLIB_HOME", str(tmp_path))
    assert at_paper_scale("pfedsim/table6_rho") is None
    assert capsys.readouterr().out == "0 of 54 runs at the paper's settings are here\n"
    with pytest.raises(BadValue, match="table66"):
        at_paper_scale("pfedsim/table66")


def test_runs_that_are_timed_are_done_one_at_a_time_from_beginning_to_end(monkeypatch, tmp_path):
    seen = {}

    def run_all(specs, store, **options):
        seen.update(options)
        raise InterruptedError

    monkeypatch.setattr("fedlib.experiments.item.run_all", run_all)
    for name, jobs in (("pfedsim/table7_overhead", 1), ("pfedsim/table3_accuracy", 2)):
        with pytest.raises(InterruptedError):
            OpenItem(find(name), "smoke", jobs=2, root=tmp_path).run()
        assert (seen["jobs"], seen["share"]) == (jobs, jobs == 2)


def test_verdicts_are_called_by_what_the_data_can_tell():
    """Digits refute no paper; an implementation's checks pass or fail anywhere; intervals say what they are over."""
    item = OpenItem(find("pfedsim/table6_rho"), "quick")
    item.__dict__["tables"] = analysed(item.item.name, lambda key, spec: made_up(spec, 0.8))
    found = dict(item.verdicts())
    first = found["Accuracy rises from rho = 0 to the range [0.3, 0.7]."]
    assert first.status == "does not hold on digits" and first.evidence.endswith(
        "[95 % intervals over 20 clients (1 seed)]"
    )
    assert found["A larger model wants a smaller rho."].status == NOT_TESTED


# notebooks, README, pages ---------------------------------------------------------------------------------------------

OF_THE_COURSE = ("labs", "solutions")  # folders of notebooks with rules of their own, see test_labs.py and below
NOTEBOOKS = sorted(p for p in (PROJECT / "notebooks").rglob("*.ipynb") if p.parent.name not in OF_THE_COURSE)


OF_ITEMS = [p for p in NOTEBOOKS if f"{p.parent.name}/{p.stem}" in ITEMS]


@pytest.mark.parametrize("path", OF_ITEMS, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_a_committed_notebook_has_the_committed_verdicts(path, monkeypatch):
    monkeypatch.setenv("FEDLIB_HOME", str(PROJECT))
    (cell,) = [c for c in json.loads(path.read_text())["cells"] if "status(" in "".join(c["source"])]
    shown = ["".join(o["data"]["text/markdown"]) for o in cell["outputs"] if "text/markdown" in o.get("data", {})]
    assert shown == [status(f"{path.parent.name}/{path.stem}")], "run the notebook again"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_committed_notebook_is_complete(path):
    cells = json.loads(path.read_text())["cells"]
    code = [c for c in cells if c["cell_type"] == "code"]
    guide, lesson = (path.parent.name == kind for kind in ("guides", "lessons"))
    assert guide or [c for c in code if "parameters" in c["metadata"].get("tags", [])], "no parameters cell"
    assert all(c["execution_count"] for c in code), "a cell was never executed"
    assert sum(bool(c["outputs"]) for c in code) >= len(code) - 2, "outputs are missing"
    assert not [o for c in code for o in c["outputs"] if o["output_type"] == "error"]
    assert [c for c in code if "nbval-check-output" in c["metadata"].get("tags", [])], "nothing is compared"
    assert max(len(c["source"]) for c in code) <= 20
    kinds = ("markdown", "code")
    prose, lines = (sum(len("".join(c["source"]).split()) for c in cells if c["cell_type"] == kind) for kind in kinds)
    assert prose >= lines
    text = "".join("".join(c["source"]) for c in cells)
    assert "@@" not in text
    if guide:
        assert "".join(cells[0]["source"]).startswith("# Guide: ") and "**Purpose.**" in "".join(cells[0]["source"])
        assert len(cells) <= 15 and "/tmp/" not in path.read_text()
    else:
        purpose = "**Question.**" if path.stem == "notes" else "**Claim.**"
        assert (purpose in text or lesson) and "## Exercises" in text


@pytest.mark.parametrize("lesson", sorted((PROJECT / "notebooks" / "lessons").glob("*.ipynb")), ids=lambda p: p.stem)
def test_a_lesson_has_worked_solutions_that_were_run(lesson):
    """All but the first and the last one, whose exercises check themselves."""
    path = PROJECT / "notebooks" / "solutions" / lesson.name
    if lesson.stem[:2] in ("00", "12"):
        return
    cells = json.loads(path.read_text())["cells"]
    code = [c for c in cells if c["cell_type"] == "code"]
    assert code and all(c["execution_count"] for c in code), "a cell was never executed"
    assert not [o for c in code for o in c["outputs"] if o["output_type"] == "error"]
    assert f"(../lessons/{lesson.name})" in "".join(cells[0]["source"])


def test_every_item_has_a_notebook_and_the_other_notebooks_are_guides_and_lessons():
    own = {str(p.relative_to(PROJECT / "notebooks").with_suffix("")) for p in NOTEBOOKS}
    others = {name for name in own if name.startswith(("guides/", "lessons/"))}
    assert own - others == set(FINISHED)
    readme = (PROJECT / "README.md").read_text()
    assert others and all(f"(notebooks/{name}.ipynb)" in readme for name in others)


def prose(path: Path) -> str:
    """The text of a page, or of a notebook's Markdown cells."""
    if path.suffix != ".ipynb":
        return path.read_text()
    cells = json.loads(path.read_text())["cells"]
    return "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")


GUIDES = [p for p in NOTEBOOKS if p.parent.name == "guides"]
PAGES = [PROJECT / "README.md", PROJECT / "results" / "scoreboard.md", *GUIDES]


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.stem)
def test_links_lead_to_files_that_are_there(path):
    links = re.findall(r"\]\(([^)\s]+)\)", prose(path))
    broken = [to for to in links if not to.startswith("http") and not (path.parent / to).exists()]
    assert links and not broken


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.stem)
def test_commands_on_pages_exist_with_their_options(path):
    """Every `fedlib COMMAND --option` of the text, in lines of code and within sentences, and of a guide's cells."""
    commands = typer.main.get_command(cli.app).commands
    source = path.read_text() if path.suffix == ".ipynb" else prose(path)
    found = re.findall(r"(?<![\w/.])fedlib ([a-z][\w-]*)((?: +[^\s`#&|\\]+)*)", source)
    for command, words in found:
        if command in commands and not hasattr(commands[command], "commands"):  # "fedlib reads ..." is a sentence
            options = {option for p in commands[command].params for option in [*p.opts, *p.secondary_opts]} | {"--help"}
            assert {w for w in words.split() if re.fullmatch(r"--[a-z-]+", w)} <= options, f"fedlib {command} {words}"
    assert path.stem in ("scoreboard", "privacy") or len({c for c, _ in found if c in commands}) >= 2


def test_a_notebook_in_batch_runs_once_and_then_only_when_something_changed(tmp_path, monkeypatch):
    monkeypatch.setattr(notebooks, "source_path", lambda name: PROJECT / "notebooks" / f"{name}.ipynb")
    monkeypatch.setenv("FEDLIB_HOME", str(tmp_path))
    item = OpenItem(find("pfedsim/fig3_partitions"), "smoke", root=tmp_path)
    save(item)
    assert notebooks.execute_all([item], 1) == {item.item.name: "executed"}
    done = json.loads(notebooks.output_path(item).read_text())
    assert all(c["execution_count"] for c in done["cells"] if c["cell_type"] == "code")
    assert "profile smoke" in json.dumps(done)
    assert notebooks.execute_all([item], 1) == {item.item.name: "unchanged"}


def test_a_notebook_starts_while_the_next_item_is_still_made_and_none_after_an_interrupt(monkeypatch):
    begun, executed = Event(), []
    monkeypatch.setattr(
        notebooks, "_execute", lambda item: executed.append(item.item.name) or begun.set() or "executed"
    )
    first, second = (SimpleNamespace(item=SimpleNamespace(name=name)) for name in "ab")

    def made(interrupted):
        yield first
        assert begun.wait(timeout=30), "the first notebook waits for the second item"
        if interrupted:
            raise KeyboardInterrupt
        yield second

    assert notebooks.execute_all(made(False), 1) == {"a": "executed", "b": "executed"}
    with pytest.raises(KeyboardInterrupt):
        notebooks.execute_all(made(True), 1)
    assert executed == ["a", "b", "a"]


def test_a_notebook_that_cannot_show_a_changed_setting_is_not_run(tmp_path, monkeypatch):
    monkeypatch.setattr(notebooks, "source_path", lambda name: PROJECT / "notebooks" / f"{name}.ipynb")
    item = OpenItem(find("pfedsim/fig2_classifier_similarity"), "smoke", root=tmp_path, lr=0.1)
    assert notebooks.execute_all([item], 1) == {item.item.name: "skipped: the notebook has no parameter lr"}
    assert not notebooks.output_path(item).exists()


def test_readme_is_short_and_says_what_ci_runs():
    readme, ci = (PROJECT / "README.md").read_text(), (PROJECT / ".ci" / "run").read_text()
    assert len(readme.splitlines()) <= 130
    assert "python3 -m venv .venv && .venv/bin/pip install -e . && .venv/bin/fedlib reproduce" in readme
    assert ".venv/bin/pip install -e '.[test]' && .venv/bin/pytest" in readme
    assert "pip install --quiet -e '.[test]'" in ci and ".venv/bin/pytest" in ci


@pytest.mark.parametrize("paper", ["fedsimsup", "pfedcs", "pfedsim", "pfedsv"])
def test_the_intervals_of_the_readmes_answers_are_those_of_the_results(monkeypatch, paper):
    """Each [low, high] of a paper's answer is, rounded, one that the paper's saved results tell, or its opposite."""
    monkeypatch.setenv("FEDLIB_HOME", str(PROJECT))
    number = r"([-+]?\d+\.\d+)"
    pair = re.compile(rf"\[{number},\s+{number}\]")
    answer = next(part for part in prose(PROJECT / "README.md").split("\n* ") if f"(results/{paper}.md)" in part)
    told = [item for scale in report.SCALES for item in report.saved_items(scale, f"{paper}/*")]
    texts = [text for i in told for text in (i.get("answer") or "", *(claim["evidence"] for claim in i["claims"]))]
    known = [tuple(map(float, ends)) for text in texts for ends in pair.findall(text)]
    known += [(-high, -low) for low, high in known]
    shown = pair.findall(answer)
    for ends in shown:
        off = 0.5 / 10 ** len(ends[0].partition(".")[2]) + 1e-9
        assert any(all(abs(float(a) - b) <= off for a, b in zip(ends, each)) for each in known), ends
    assert len(shown) >= (0 if paper == "pfedsv" else 2)


def test_the_committed_scoreboard_is_what_the_results_say(monkeypatch):
    monkeypatch.setenv("FEDLIB_HOME", str(PROJECT))
    page = (PROJECT / "results" / "scoreboard.md").read_text()
    assert report.scoreboard_page() == page, "run `fedlib report --scoreboard`"


def test_a_report_renews_the_scoreboard_where_it_is_asked_to(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDLIB_HOME", str(tmp_path))
    shutil.copytree(PROJECT / "results" / "quick" / "pfedcs", tmp_path / "results" / "quick" / "pfedcs")
    page = tmp_path / "results" / "scoreboard.md"
    assert CliRunner().invoke(cli.app, ["report"]).exit_code == 0 and not page.exists()
    result = CliRunner().invoke(cli.app, ["report", "--scoreboard"])
    assert result.exit_code == 0 and f"renewed: {page}" in result.output
    rows = [line for line in page.read_text().splitlines() if line.startswith("| [`")]
    assert len(rows) == sum(name.startswith("pfedcs/") for name in ITEMS)
    assert all("digits: " in row and row.endswith("| not run yet | not run yet |") for row in rows)


def test_a_row_of_the_report_says_what_its_margins_interval_is_over():
    """An item of three seeds has a first claim that only one seed can judge: its row must not say three."""
    said = "first. [95 % intervals over 20 clients (1 seed)]"
    claim = {"claim": "A.", "kind": "own", "verdict": "holds", "evidence": said, "margin": [1.0, 0.5, 1.5]}
    item = {"item": "a/b", "title": "B", "settings": {"dataset": "digits"}, "seeds": "3 seeds", "claims": [claim]}
    row = report.scoreboard([item]).splitlines()[-1]
    assert row.endswith("| +1.0 [+0.5, +1.5] | 20 clients (1 seed) |")


@pytest.mark.parametrize("paper", ["fedsimsup", "pfedcs", "pfedsim", "pfedsv"])
def test_the_committed_page_of_a_paper_is_what_the_results_say(monkeypatch, paper):
    monkeypatch.setenv("FEDLIB_HOME", str(PROJECT))
    page = report.page(paper)
    assert page == (PROJECT / "results" / f"{paper}.md").read_text(), f"run `fedlib report {paper}`"
    assert "****" not in page  # a title without its part behind a colon


def test_the_largest_scale_is_shown_but_rather_a_whole_night_than_a_part_of_the_papers_runs():
    def made(missing=()):
        return {"missing": list(missing)}

    quick, night, part, paper = made(), made(), made(["a run"]), made()
    assert report.largest({}) is None
    assert report.largest({"quick": quick}) is quick and report.largest({"quick": quick, "paper": part}) is part
    assert report.largest({"quick": quick, "overnight": night, "paper": part}) is night
    assert report.largest({"overnight": night, "paper": paper}) is paper
    assert report.largest({"quick": quick, "overnight": part}) is part


def test_status_box(monkeypatch, tmp_path):
    """What the largest scale says, a verdict a line; checks of the code are left out; nothing run yet is said."""
    monkeypatch.setenv("FEDLIB_HOME", str(PROJECT))
    box, saved = status("pfedsim/table6_rho"), report.saved_items("paper", "pfedsim/table6_rho")[0]
    assert box.startswith("**Found so far, profile `paper`** (settings of the paper): ")
    assert f"The paper's main claim is **{saved['claims'][0]['verdict']}**." in box and "cannot refute" not in box
    assert all(f"| {claim['verdict']} | {claim['claim']} |" in box for claim in saved["claims"])
    assert box.count("| 3 seeds and 100 clients |") == sum("[95 % intervals" in c["evidence"] for c in saved["claims"])
    assert "fedlib reproduce pfedsim/table6_rho --profile paper --finished" in box
    night = status("pfedcs/table1_pathological")
    assert "cannot refute the paper at its own settings: a third" in night and "| 3 seeds and 20 clients |" in night
    assert "2 passed" in status("fedsimsup/fig5_partitions") and "same number of classes" not in status(
        "fedsimsup/fig5_partitions"
    )
    monkeypatch.setenv("FEDLIB_HOME", str(tmp_path))
    assert "fedlib reproduce pfedsim/table6_rho" in status("pfedsim/table6_rho")
    with pytest.raises(BadValue, match="table66"):
        status("pfedsim/table66")


def test_what_a_profile_has_smaller_is_said_and_at_the_papers_settings_nothing_is():
    item = find("fedsimsup/table1_dirichlet")
    said = {profile: item.smaller_at(profile) for profile in item.settings}
    assert said["quick"].startswith("digits") and said["overnight"].startswith("a third of the images")
    assert said["smoke"] and said["paper"] == ""


# what is imported -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("begin", "do", "heavy"),
    [
        ("", "from fedlib.experiments import open_item; open_item('pfedsim/table3_accuracy', 'smoke').specs[0].id",
         ["matplotlib", "seaborn", "scipy.stats", "sympy", "torch._dynamo"]),
        ("sys.modules['torchvision'] = None",
         "import fedlib.engine.simulate, fedlib.spec, fedlib.algorithms.pfedsim, fedlib.data",
         ["pandas", "matplotlib", "sklearn", "papermill", "IPython", "typer"]),
    ],
    ids=["an item opens", "a run starts"],
)  # fmt: skip
def test_nothing_waits_for_packages_that_it_does_not_need(begin, do, heavy):
    script = f"import sys\n{begin}\n{do}\nprint([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_figures_are_found_by_name_and_nothing_else_is():
    assert callable(figures.accuracies) and callable(figures.inversion)
    for name in ("histogram", "np", "Figure"):
        with pytest.raises(AttributeError, match=name):
            getattr(figures, name)
