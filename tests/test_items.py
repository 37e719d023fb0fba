"""Every item opens, runs, is analysed, drawn, checked and saved; what README, pages and notebooks promise is there."""

from __future__ import annotations

import ast
import copy
import functools
import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from threading import Event
from types import SimpleNamespace

import matplotlib.pyplot
import numpy as np
import pandas as pd
import pytest
import typer
from helpers import LESSONS, analysed, call, cells, made_up, prose, smoke_item
from matplotlib.colors import to_hex

from fedlib import cli, figures
from fedlib.base.errors import BadValue, FedlibError
from fedlib.claims import INCONCLUSIVE, NOT_REPRODUCED, NOT_TESTED, ONE_SEED, REPRODUCED, Verdict
from fedlib.engine.result import RunResult
from fedlib.experiments import PROFILES, OpenItem, about, find, names, open_item, stored
from fedlib.experiments.item import joined, leaving_out, part, runs_of, stand_in
from fedlib.experiments.paper_numbers import paper_table
from fedlib.figures.base import COLUMN, OTHERS, PAGE, SIZE
from fedlib.reports import notebooks, papers, report, reproduce
from fedlib.reports.compare import MACHINES
from fedlib.reports.saved import escaped, latex, save
from fedlib.reports.show import head, status

PROJECT = Path(__file__).parent.parent
ITEMS = names()
TWICE = ("pfedsim/fig4_workflow", "pfedsim/notes", "pfedsv/fig7_relevance", "pfedsv/fig11_inversion")  # saved again
WATCHED = ("pfedsim/fig4_workflow", "fedsimsup/fig1_framework", "pfedcs/fig2_framework")  # one run
SEEDED = [
    name
    for name in ITEMS
    if smoke_item(name).specs and "seeds" in find(name).settings["smoke"]
    and name not in (*WATCHED, "pfedsim/table3_draws")  # its draws are of the clients
]  # fmt: skip

opened = functools.cache(lambda name, profile: OpenItem(find(name), profile))


def test_no_claim_is_counted_twice():
    """What items of a paper say in the same words is each about the cells of a table of its own."""
    items: dict[tuple[str, str], list] = {}
    for item in map(find, ITEMS):
        for claim in item.claims:
            items.setdefault((item.name.split("/")[0], claim.text), []).append(item)
    for (_, text), own in items.items():
        tables = {item.table and item.table.numbers for item in own}
        assert len(own) == 1 or (None not in tables and len(tables) == len(own)), (text, [item.name for item in own])


# settings -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("name", ITEMS)
def test_an_item_opens_in_every_profile(name, profile):
    item = find(name)
    assert {"smoke", "quick", "paper"} <= set(item.settings) == set(item.minutes) <= set(PROFILES)
    assert bool(item.smaller_reduced) == ("reduced" in item.settings)
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


def test_table_8_reduced_is_on_pacs():
    """All else is as at the paper's settings; what holds there is not said to hold on DomainNet."""
    item = opened("pfedsim/table8_domainnet", "reduced")
    for field, value in (
        TRAINING | dict(dataset="pacs", num_clients=80, clients_per_domain=20, model="lenet5_bn", partition_seed=0)
    ).items():
        assert values(item.specs, field) == {value}, field
    assert len(item.specs) == 12 * 3 and item.item.table.shown(item.settings)[0] == "average"
    tables = analysed(item.item.name, lambda key, spec: by_domain(spec), "reduced")
    assert "average: paper, domainnet" in tables["compare"] and "average: ours, pacs" in tables["compare"]
    assert not [name for name in tables["compare"] if "difference" in name]
    claim, other = item.item.claims[0], stand_in(item.settings)
    assert other == "PACS" and claim.said(Verdict(REPRODUCED, ""), other, "")[1].status == "holds on PACS"


def by_domain(spec) -> RunResult:
    """A run in which every client has half of its images right."""
    tests = np.full((spec.num_clients, 1), 20)
    arrays = {"correct": tests // 2, "tests": tests, "counts": 2 * tests}
    history = [{"round": spec.rounds, "point": "post", "headline": True, "pooled": 0.5}]
    return RunResult(spec, "finished", history, arrays=arrays)


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
    """Clients, share of them and rounds at pFedSV's two scales; classes per client and learning rates of PFedCS's data;
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


def drawn_as_all(figure) -> bool:
    """A figure has one of two widths, says in its title what it shows, and no two named lines look alike but grey ones,
    which have their names beside them."""
    for ax in figure.axes:
        named = [line for line in ax.lines if not line.get_label().startswith("_")]
        looks = [
            (to_hex(line.get_color()), line.get_linestyle(), line.get_marker(), to_hex(line.get_markerfacecolor()))
            for line in named
            if to_hex(line.get_color()) != OTHERS
        ]
        assert len(set(looks)) == len(looks), ax.get_title()
    assert all(text.get_fontsize() <= SIZE for text in figure.texts)
    return figure.get_figwidth() in (COLUMN, PAGE) and len(figure.get_suptitle()) > 20


@pytest.mark.parametrize("name", ITEMS)
def test_a_smoke_run_gives_tables_verdicts_and_a_figure_that_come_back_from_their_files(name, tmp_path, monkeypatch):
    item, decided = copy.copy(smoke_item(name)), {REPRODUCED, NOT_REPRODUCED, INCONCLUSIVE}
    of_a_paper = bool(about(name.split("/")[0])[2])
    assert len(item.tables["tidy"]) and (any("paper" in c for c in item.compare().columns) or not of_a_paper)
    assert "paper" not in item.compare().columns or of_a_paper  # no column that says on every row that there is none
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
    assert drawn_as_all(item.figure())
    if name in TWICE:
        save(item)
        assert first == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert [claim["claim"] for claim in summary["claims"]] == [text for text, _ in item.verdicts()]
    for table, frame in item.tables.items():
        assert isinstance(frame, pd.DataFrame), table  # notebooks are executed again if one of them changes
        path = tmp_path / "results" / "own" / "smoke" / f"{name}{'' if table == 'tidy' else f'.{table}'}.csv"
        assert path.exists() != table.startswith("_")
        if path.exists():
            read = pd.read_csv(path, keep_default_na=False)
            assert list(read.columns) == [*map(str, frame.columns)] and len(read) == len(frame)
    (read,) = report.saved_items("own/smoke")
    assert {**read, "path": None} == {**json.loads(json.dumps(summary)), "path": None}
    text = report.write_report("own/smoke").read_text()
    assert (f"`fedlib why {name} --profile own/smoke`" in text) == bool(item.specs)
    assert all(claim["evidence"].replace("|", "\\|") in text for claim in summary["claims"]) and item.item.title in text


@pytest.mark.parametrize(
    "name", ["pfedsim/table3_accuracy", "pfedsim/fig2_classifier_similarity", "pfedsv/fig11_inversion"]
)
def test_a_table_in_latex_has_as_many_cells_in_every_row_and_no_open_group(name):
    text = latex(smoke_item(name))
    inside = re.search(r"\\begin{tabular}{(\w+)}\n(.*)\\end{tabular}", text, re.DOTALL)
    for line in inside[2].splitlines():
        if not line.startswith("\\"):
            spans = sum(int(n) - 1 for n in re.findall(r"\\multicolumn{(\d+)}", line))
            assert len(re.findall(r"(?<!\\)&", line)) + 1 + spans == len(inside[1]) and line.endswith(r"\\")
    bare = re.sub(r"\\[{}$\\]", "", text)
    assert bare.count("{") == bare.count("}") and bare.count("$") % 2 == 0
    assert [text.count(rule) for rule in (r"\toprule", r"\midrule", r"\bottomrule")] == [1, 1, 1]
    assert not re.search(r"(?<!\\)[%#_]", text.partition(r"\label")[0])


def test_a_table_of_accuracies_in_latex_has_the_best_of_a_column_in_bold_and_proper_names():
    item = smoke_item("pfedsim/table3_accuracy")
    cells, text = item.tables["cells"], latex(item)
    ours = cells[cells["series"] == "ours"]
    for _, own in ours.groupby("column"):
        assert rf"\textbf{{{own['mean'].max():.1f}}}" in text
    assert "FedAvg &" in text and "fedavg" not in text and "n: one seed" in text
    assert escaped(r"a_b & 5 % {x}\~") == r"a\_b \& 5 \% \{x\}\textbackslash{}\textasciitilde{}"


def test_without_results_there_is_no_picture_and_pages_say_so(tmp_path, monkeypatch, capsys):
    item = copy.copy(smoke_item("pfedsim/fig3_partitions"))
    item.root, item.item = tmp_path, replace(item.item, figure=lambda tables: None)
    left = tmp_path / "figures/own/smoke/pfedsim/fig3_partitions.png"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"of an earlier run")
    monkeypatch.setenv("FEDLIB_HOME", str(tmp_path))
    assert save(item)["figure"] == "" and not left.exists()
    assert "No picture: no runs, or too few." in report.write_report("own/smoke").read_text()
    figures.show(item.figure())
    assert "not run yet" in capsys.readouterr().out


def smoke_runs(name: str) -> dict:
    """The results of an item's smoke runs by key."""
    item = smoke_item(name)
    by_id = {r.spec.id: r for r in item.results}
    return {key: by_id[spec.id] for key, spec in item.runs.items()}


@pytest.mark.parametrize("name", [name for name in ITEMS if smoke_item(name).specs])
def test_all_that_seconds_decide_is_left_out(name):
    """On a machine that takes otherwise long, at another hour: only MACHINES' columns and claims on times change."""
    item = smoke_item(name)
    other = copy.copy(item)
    slow = {"load": 0.9, "date": "2000-01-01T00:00Z"}
    vars(other)["results"] = [
        replace(r, seconds={n: s * (2 + k) for n, s in r.seconds.items()}, provenance=r.provenance | slow)
        for k, r in enumerate(item.results)
    ]
    for cached in ("tables", "checked"):
        vars(other).pop(cached, None)
    for table in (name for name in item.tables if not name.startswith("_")):
        for column in item.tables[table]:
            same = item.tables[table][column].equals(other.tables[table][column])
            assert same or MACHINES.fullmatch(column), (table, column)
    if not item.item.timed:
        assert item.verdicts() == other.verdicts() and item.answer() == other.answer()


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
        any(word in why for word in ("missing runs", "without", "need", "fewer", "nothing", "not all", "not DomainNet"))
        for why in lacking
    )
    assert "nan" not in (item.item.answer(tables) if item.item.answer else "")
    # one run decides nothing; partitions are drawn without any, and what papers print needs none
    decided = {text for text, v in checked.items() if v.status != NOT_TESTED and not v.anywhere}
    assert all(text.startswith("Our partition 0") for text in decided)


TAKING = [name for name in ITEMS if "methods" in find(name).settings["smoke"]]
IN_NOTEBOOKS = [name for name in TAKING if "methods" in notebooks._parameters_of(notebooks.source_path(name))]


def with_methods(name: str, *methods: str) -> OpenItem:
    return OpenItem(find(name), "smoke", jobs=1, root=smoke_item(name).root, methods=methods)


@pytest.mark.parametrize("which", [0, -1], ids=["the first", "the last"])
@pytest.mark.parametrize("name", TAKING)
def test_an_item_runs_with_one_of_its_methods_or_always_with_the_same(name, which):
    run = list(dict.fromkeys(spec.method for spec in smoke_item(name).specs))
    try:
        item = with_methods(name, run[which])
    except BadValue as error:
        assert f"expected none, for it always runs {', '.join(sorted(run))}" in str(error)
        assert len(run) > 1 and name not in IN_NOTEBOOKS
        return
    own = {spec.method for spec in item.specs}
    assert own == {run[which]} or name == "pfedsim/notes"
    save(item)
    assert all(v.status == NOT_TESTED for _, v in item.checked)
    assert all(claim.check(item.tables).status in (NOT_TESTED, ONE_SEED) for claim in item.item.claims
               if claim.kind == "paper" and not claim.check(item.tables).anywhere)  # fmt: skip


def run_cells(path: Path, **parameters) -> None:
    """A notebook's code in this process, with other parameters; of what its cells show only that it can be shown."""
    names = {"__name__": "__main__", "display": lambda *shown, **_: [repr(one) for one in shown]}
    for cell in cells(path, "code"):
        *rest, last = ast.parse("".join(cell["source"])).body
        shown = isinstance(last, ast.Expr)
        exec(compile(ast.Module(rest if shown else [*rest, last], []), str(path), "exec"), names)
        if shown:
            repr(eval(compile(ast.Expression(last.value), str(path), "eval"), names))
        if "parameters" in cell["metadata"].get("tags", []):
            names |= parameters


@pytest.mark.parametrize("name", IN_NOTEBOOKS)
def test_a_notebook_runs_with_one_method(name, monkeypatch):
    monkeypatch.setenv("FEDLIB_HOME", str(with_methods(name, "fedavg").root))
    with matplotlib.rc_context(), pd.option_context("display.max_rows", 60):
        run_cells(notebooks.source_path(name), methods="fedavg")
    matplotlib.pyplot.close("all")


def test_methods_are_a_list_or_a_text_and_variants_have_a_comma_of_their_own():
    name, variant = "head_to_head/table2_accuracy", "pfedsv, D+C"
    for methods in (["local", variant], f"local, {variant}", f"local,{variant}"):
        assert OpenItem(find(name), "smoke", methods=methods).settings["methods"] == ("local", variant)
    for nothing in ((), [], "", None):
        assert not OpenItem(find(name), "smoke", methods=nothing).changed
    parts = OpenItem(find("head_to_head/notes"), "smoke", methods="fedper,pfedsim").specs  # not of smoke's own
    assert {spec.method for spec in parts} == {"fedper", "pfedsim"}


def test_a_page_says_what_is_missing_and_smaller_and_the_picture_does_not(tmp_path, monkeypatch):
    name = "pfedsim/table3_accuracy"
    whole, part = smoke_item(name), OpenItem(find(name), "smoke", root=tmp_path, finished=True)
    for result in whole.results[:3]:
        part.store.put(result)
    save(part, formats=("svg",))
    monkeypatch.setenv("FEDLIB_HOME", str(tmp_path))
    page, drawn = report.write_report("own/smoke"), tmp_path / f"figures/own/smoke/{name}.svg"
    assert f"**{len(part.specs) - 3} of {len(part.specs)} runs are missing.**" in page.read_text()
    assert "Scaled down from the paper:" in page.read_text() and "Scaled" not in drawn.read_text()


def test_a_method_that_one_column_lacks_is_named_and_what_needs_the_other_column_only_is_decided():
    def but(**lacking):
        return lambda key, spec: (
            None if lacking.items() <= dict(zip(("row", "column"), key)).items()
            else made_up(spec, leading if spec.method == "pfedsim" else 0.8)
        )  # fmt: skip

    claims, leading = find("pfedsim/table3_accuracy").claims, 0.85
    tables = analysed("pfedsim/table3_accuracy", but(row="fedbn", column="Dir(0.5)"))
    found = "Dir(0.1): pfedsim 85.0, minus local: +5.0 (one seed)"
    other = found.replace("Dir(0.1)", "Dir(0.5)")  # of what is there
    assert claims[0].check(tables).evidence == f"{found}; {other}; missing runs: fedbn (in Dir(0.5))"
    assert claims[1].check(tables).status != NOT_TESTED
    row = tables["compare"].set_index("method").loc["fedbn"]
    assert row["Dir(0.5): ours, digits"] == "not run" and row["Dir(0.1): ours, digits"].startswith("80.00 (n=1)")


def test_a_damaged_run_of_what_is_finished_is_missing_and_not_done_again(tmp_path):
    name = "pfedsim/table3_accuracy"
    whole, part = smoke_item(name), OpenItem(find(name), "smoke", root=tmp_path, finished=True)
    for result in whole.results[:2]:
        part.store.put(result)
    part.store.path(whole.results[0].spec).with_suffix(".npz").unlink()
    with pytest.warns(UserWarning, match="damaged"):
        assert [r.spec.id for r in part.run()] == [whole.results[1].spec.id]
    assert len(part.missing) == len(part.specs) - 1


def test_runs_that_failed_are_told_apart_though_they_are_called_alike():
    item = smoke_item("pfedsim/table3_accuracy")
    one, other = item.specs[0], item.specs[0].but(lr=0.3)
    assert one.label == other.label
    opened = SimpleNamespace(item=SimpleNamespace(name="x", partial=False), specs=[one, other], store=item.store)
    for whys in (("lost", ""), ("", "lost")):
        outcomes = {item.store.path(spec): (spec, why) for spec, why in zip((one, other), whys)}
        assert reproduce.failed_items([opened], outcomes) == {"x": f"run {one.label}: lost"}


def test_an_item_that_needs_all_its_runs_says_how_many_are_missing(tmp_path):
    item = OpenItem(find("pfedsim/table7_overhead"), "smoke", root=tmp_path, finished=True)
    with pytest.raises(FedlibError, match="table7_overhead: 4 of 4 runs are missing"):
        item.compare()
    assert not item.can_be_shown and len(item.missing) == 4


def test_the_largest_scale_that_is_stored_is_shown_without_training_and_its_absence_is_told(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("FEDLIB_HOME", str(PROJECT))
    item = stored("pfedsim/table6_rho")
    assert len(item.compare()) >= 7 and capsys.readouterr().out == "54 of 54 runs of profile paper are stored\n"
    assert stored("fedsimsup/notes").profile == "paper" and "206 runs" in capsys.readouterr().out  # saved of a part
    monkeypatch.setenv("FEDLIB_HOME", str(tmp_path))
    assert stored("pfedsim/table6_rho") is None
    assert capsys.readouterr().out == "no table at a larger scale is stored yet\n"
    name = "fedsimsup/fig4_attention"
    reduced, paper = (OpenItem(find(name), profile) for profile in ("reduced", "paper"))
    for opened in (reduced, paper):
        path = opened.store.path(opened.specs[0])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert stored(name) is None  # one run of several, of which nothing was saved
    for spec in reduced.specs:
        reduced.store.path(spec).touch()
    assert stored(name).profile == "reduced"  # a whole before a part of the paper's
    with pytest.raises(BadValue, match="table66"):
        stored("pfedsim/table66")


def test_runs_that_are_timed_are_done_one_at_a_time(monkeypatch, tmp_path):
    seen = {}

    def run_all(specs, store, **options):
        seen.update(options)
        raise InterruptedError

    monkeypatch.setattr("fedlib.experiments.item.run_all", run_all)
    for name, jobs in (("pfedsim/table7_overhead", 1), ("pfedsim/table3_accuracy", 2)):
        with pytest.raises(InterruptedError):
            OpenItem(find(name), "smoke", jobs=2, root=tmp_path).run()
        assert seen["jobs"] == jobs


def test_verdicts_are_called_by_what_the_data_can_tell():
    """Digits refute no paper; an implementation's checks pass or fail anywhere; intervals say what they are over."""
    item = OpenItem(find("pfedsim/table6_rho"), "quick")
    item.__dict__["tables"] = analysed(item.item.name, lambda key, spec: made_up(spec, 0.8))
    found = dict(item.verdicts())
    first = found["Accuracy rises from rho = 0 to the range [0.3, 0.7]."]
    assert first.status == "no verdict (one seed)" and "(one seed)" in first.evidence
    assert found["A larger model needs a smaller rho."].status == NOT_TESTED


# notebooks, README, pages ---------------------------------------------------------------------------------------------

OF_THE_COURSE = ("labs", "solutions")  # folders of notebooks with rules of their own, see test_labs.py and below
NOTEBOOKS = sorted(p for p in (PROJECT / "notebooks").rglob("*.ipynb") if p.parent.name not in OF_THE_COURSE)


OF_ITEMS = [p for p in NOTEBOOKS if f"{p.parent.name}/{p.stem}" in ITEMS]


@pytest.mark.parametrize("path", OF_ITEMS, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_a_committed_notebook_has_the_committed_verdicts(path, monkeypatch):
    monkeypatch.setenv("FEDLIB_HOME", str(PROJECT))
    (cell,) = [c for c in cells(path) if "status(" in "".join(c["source"])]
    shown = ["".join(o["data"]["text/markdown"]) for o in cell["outputs"] if "text/markdown" in o.get("data", {})]
    assert shown == [status(f"{path.parent.name}/{path.stem}")], "run the notebook again"


def only_defines(source: str) -> bool:
    """Whether a cell imports and defines functions, and does nothing that could be seen."""
    quiet = (ast.Import, ast.ImportFrom, ast.FunctionDef)
    return not source.startswith(("%", "!")) and all(isinstance(node, quiet) for node in ast.parse(source).body)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_committed_notebook_is_complete(path):
    every, code = cells(path), cells(path, "code")
    guide, lesson = (path.parent.name == kind for kind in ("guides", "lessons"))
    assert guide or [c for c in code if "parameters" in c["metadata"].get("tags", [])], "no parameters cell"
    waiting = re.compile(r"\blarger\b")  # for runs that are not there yet
    silent = ["".join(c["source"]) for c in code if not c["outputs"]]
    silent = [source for source in silent if not waiting.search(source) and not only_defines(source)]
    assert len(silent) <= 2, "outputs are missing"
    assert not [source for source in silent if "print(" in source and "def " not in source], "it prints nothing"
    assert not [o for c in code for o in c["outputs"] if o["output_type"] == "error"]
    assert max(len(c["source"]) for c in code) <= 20
    assert len(prose(path).split()) >= sum(len("".join(c["source"]).split()) for c in code)
    text = "".join("".join(c["source"]) for c in every)
    assert "@@" not in text
    if guide:
        first = "".join(every[0]["source"])
        assert first.startswith("# Guide: ") and "**Purpose.**" in first
        assert len(every) <= 15 and "/tmp/" not in path.read_text()
    else:
        purpose = "**Question.**" if path.stem == "notes" else "**Claim.**"
        assert (purpose in text or lesson) and "## Exercises" in text


@pytest.mark.parametrize("path", OF_ITEMS, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_an_items_notebook_is_short(path):
    """A student reads it from top to bottom: what teaches a method stands in a lesson, what is open in the notes."""
    assert len(prose(path).split()) <= 1_100


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda p: p.stem)
def test_a_lesson_has_worked_solutions_that_were_run(lesson):
    path = PROJECT / "notebooks" / "solutions" / lesson.name
    code = cells(path, "code")
    assert code and not [o for c in code for o in c["outputs"] if o["output_type"] == "error"]
    assert f"(../lessons/{lesson.name})" in "".join(cells(path)[0]["source"])


def test_every_item_has_a_notebook_and_the_other_notebooks_are_guides_and_lessons():
    own = {str(p.relative_to(PROJECT / "notebooks").with_suffix("")) for p in NOTEBOOKS}
    others = {name for name in own if name.startswith(("guides/", "lessons/"))}
    assert own - others == set(ITEMS)
    first = PROJECT / "notebooks" / "guides" / "start_here.ipynb"
    linked = {(first.parent / to).resolve() for to in re.findall(r"\]\((\S+\.ipynb)\)", prose(first))}
    assert {PROJECT / "notebooks" / f"{name}.ipynb" for name in others} - linked == {first}


GUIDES = [p for p in NOTEBOOKS if p.parent.name == "guides"]
PAGES = [PROJECT / "README.md", PROJECT / "results" / "scoreboard.md", *GUIDES]
FRONT = PROJECT / "results" / "README.md"


@pytest.mark.parametrize("path", [*PAGES, FRONT], ids=lambda p: p.stem)
def test_links_lead_to_files_that_are_there(path):
    links = re.findall(r"\]\(([^)\s]+)\)", prose(path))
    broken = [to for to in links if not to.startswith("http") and not (path.parent / to).exists()]
    assert links and not broken


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.stem)
def test_commands_on_pages_exist_with_their_options(path):
    """Every `fedlib COMMAND --option` of the text, in lines of code and within sentences, and of a guide's cells."""
    commands = typer.main.get_command(cli.app).commands
    source = path.read_text() if path.suffix == ".ipynb" else prose(path)
    found = re.findall(r"(?<![\w/.])(?:\.venv/bin/)?fedlib ([a-z][\w-]*)((?: +[^\s`#&|\\]+)*)", source)
    for command, words in found:
        if command in commands and not hasattr(commands[command], "commands"):  # "fedlib reads ..." is a sentence
            options = {option for p in commands[command].params for option in [*p.opts, *p.secondary_opts]} | {"--help"}
            assert {w for w in words.split() if re.fullmatch(r"--[a-z-]+", w)} <= options, f"fedlib {command} {words}"
    assert path.stem in ("scoreboard", "privacy", "keep_models") or len({c for c, _ in found if c in commands}) >= 2


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
        assert begun.wait(timeout=600), "the first notebook waits for the second item"
        if interrupted:
            raise KeyboardInterrupt
        yield second

    assert notebooks.execute_all(made(False), 1) == {"a": "executed", "b": "executed"}
    with pytest.raises(KeyboardInterrupt):
        notebooks.execute_all(made(True), 1)
    assert executed == ["a", "b", "a"]


def test_a_notebook_that_fails_in_an_unforeseen_way_does_not_stop_the_others(monkeypatch):
    ends = {"a": lambda: {}["no such key"], "b": lambda: "executed"}
    monkeypatch.setattr(notebooks, "_execute", lambda item: ends[item.item.name]())
    items = [SimpleNamespace(item=SimpleNamespace(name=name)) for name in ends]
    assert notebooks.execute_all(items, 1) == {"a": "failed: KeyError: 'no such key'", "b": "executed"}


def test_a_notebook_that_cannot_show_a_changed_setting_is_not_run(tmp_path, monkeypatch):
    monkeypatch.setattr(notebooks, "source_path", lambda name: PROJECT / "notebooks" / f"{name}.ipynb")
    item = OpenItem(find("pfedsim/fig2_classifier_similarity"), "smoke", root=tmp_path, lr=0.1)
    assert notebooks.execute_all([item], 1) == {item.item.name: "skipped: the notebook has no parameter lr"}
    assert not notebooks.output_path(item).exists()


def test_readme_is_short_and_says_what_ci_runs():
    readme, ci = (PROJECT / "README.md").read_text(), (PROJECT / ".ci" / "run").read_text()
    assert len(readme.split()) <= 650
    assert "python3 -m venv .venv && .venv/bin/pip install -e . && .venv/bin/fedlib reproduce" in readme
    assert ".venv/bin/pip install -e '.[test]' && .venv/bin/pytest" in readme
    assert "pip install --quiet -e '.[test]'" in ci and ".venv/bin/pytest" in ci


def test_the_readmes_program_prints_what_the_readme_says():
    program, printed = re.search(r"```python\n(.*?)```\n\n```text\n(.*?)```", PAGES[0].read_text(), re.DOTALL).groups()
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == printed


def test_the_committed_front_page_and_the_readmes_table_are_what_the_results_say(monkeypatch):
    monkeypatch.setenv("FEDLIB_HOME", str(PROJECT))
    assert papers.page() == FRONT.read_text(), "run `fedlib report --scoreboard`"
    assert papers.table("results/") in PAGES[0].read_text(), "run `fedlib report --scoreboard`"


def test_a_papers_counts_leave_out_digits_and_what_is_no_claim_of_it(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDLIB_HOME", str(tmp_path))
    said = (
        ("paper", "holds on digits", "reproduced"),
        ("paper", "not reproduced", "not reproduced"),  # of no data
        ("own", "holds", "reproduced"),
        ("paper", "inconclusive", "inconclusive"),
    )
    claims = [{"claim": "A.", "kind": kind, "verdict": verdict, "status": status} for kind, verdict, status in said]
    item = {"item": "pfedcs/table1_pathological", "claims": claims, "runs": ["a"]}
    for profile, dataset, scale, counts, on in (
        ("quick", "digits", "digits only", "0 | 0 | 1 | 0", ", on digits"),
        ("reduced", "pacs", "1 reduced of 9", "0 | 0 | 1 | 0", ""),  # stands in for a paper's
        ("paper", "cifar10", "1 full of 9", "1 | 0 | 1 | 1", ""),
    ):
        path = tmp_path / "results" / profile / "pfedcs" / "table1_pathological.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps({**item, "profile": profile, "settings": {"dataset": dataset}}))
        row = f"| [PFedCS](pfedcs.md) | {scale} | {counts} | A: **holds on digits**{on} |"
        assert papers.table().splitlines()[-1] == row


def test_missing_runs_are_named_by_setting_and_only_the_first():
    titles = [f"fedavg cifar10 Dir({alpha})" for alpha in range(report.MOST + 2) for _ in (0, 1)]
    text = report.with_counts(["local mnist", *titles])
    assert text.startswith("Local MNIST, FedAvg CIFAR-10 Dir(0) (2 runs), FedAvg CIFAR-10 Dir(1) (2 runs), ")
    assert text.endswith("Dir(10) (2 runs), and 3 other settings")
    assert report.with_counts(titles[:2]) == "FedAvg CIFAR-10 Dir(0) (2 runs)"


@pytest.mark.parametrize(
    ("margin", "status", "listed"),
    [
        ([2.0, -0.1, 4.1], "inconclusive", True),  # 1.9 standard errors
        ([2.0, -0.1, 4.1], "underpowered", True),
        ([-2.0, -4.1, 0.1], "reproduced", False),
        ([0.5, -1.6, 2.6], "inconclusive", False),
        ([2.0, 0.9, 3.1], "inconclusive", False),
    ],
)
def test_seeds_are_declared_where_a_difference_is_near(tmp_path, monkeypatch, margin, status, listed):
    monkeypatch.setenv("FEDLIB_HOME", str(tmp_path))
    claims = [
        {"claim": "A leads.", "status": status, "margin": margin, "over": "3 seeds"},
        {"claim": "B.", "status": status},
    ]
    for profile in ("quick", "reduced"):
        path = tmp_path / "results" / profile / "pfedsim" / "fig9.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps({"item": "pfedsim/fig9", "profile": profile, "seeds": "", "claims": claims}))
    rows = papers.seeds_to_come().splitlines()[2:]
    assert len(rows) == listed
    assert not listed or rows[0].startswith("| `pfedsim/fig9`, reduced | A leads. |")


def test_the_committed_scoreboard_is_what_the_results_say(monkeypatch):
    monkeypatch.setenv("FEDLIB_HOME", str(PROJECT))
    page = (PROJECT / "results" / "scoreboard.md").read_text()
    assert papers.scoreboard_page() == page, "run `fedlib report --scoreboard`"
    assert page.count("| 12 of 216 runs |") == 1  # too few to be shown, and not nothing


def test_a_report_renews_the_scoreboard_where_it_is_asked_to(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDLIB_HOME", str(tmp_path))
    shutil.copytree(PROJECT / "results" / "quick" / "pfedcs", tmp_path / "results" / "quick" / "pfedcs")
    page = tmp_path / "results" / "scoreboard.md"
    assert call("report").exit_code == 0 and not page.exists()
    result = call("report", "--scoreboard")
    away = page.with_name("distances.md")
    front = page.with_name("README.md")
    assert result.exit_code == 0 and f"renewed: {front}, {page} and {away}" in result.output
    assert "| [PFedCS](pfedcs.md) | digits only |" in front.read_text() and "## pFedSim" not in front.read_text()
    assert away.read_text().count("| not run (0 of ") == away.read_text().count("| [`") > 0
    rows = [line for line in page.read_text().splitlines() if line.startswith("| [`")]
    assert len(rows) == sum(name.startswith("pfedcs/") for name in ITEMS)
    assert all("digits: " in row and row.endswith("| not run yet |") for row in rows)


def test_a_row_of_the_report_says_what_its_margins_interval_is_over():
    """An item of three seeds has a first claim that two of them can judge: its row must not say three."""
    claim = {"claim": "A.", "kind": "own", "verdict": "holds", "evidence": "first", "over": "2 seeds"}
    claim |= {"margin": [1.0, 0.5, 1.5]}
    item = {"item": "a/b", "title": "B", "settings": {"dataset": "digits"}, "seeds": "3 seeds", "claims": [claim]}
    row = report.scoreboard([item]).splitlines()[-1]
    assert row.endswith("| +1.0 [+0.5, +1.5] | 2 seeds |")


@pytest.mark.parametrize("paper", ["fedsimsup", "pfedcs", "pfedsim", "pfedsv"])
def test_the_committed_page_of_a_paper_is_what_the_results_say(monkeypatch, paper):
    monkeypatch.setenv("FEDLIB_HOME", str(PROJECT))
    page = report.page(paper)
    assert page == (PROJECT / "results" / f"{paper}.md").read_text(), f"run `fedlib report {paper}`"
    assert "****" not in page  # a title without its part behind a colon


def test_the_largest_scale_is_shown_but_rather_a_smaller_whole_than_a_part_of_the_papers_runs():
    def made(profile, missing=(), status="reproduced"):
        return {"profile": profile, "missing": list(missing), "claims": [{"status": status}]}

    quick, reduced, part, paper = made("quick"), made("reduced"), made("paper", ["a run"]), made("paper")
    assert report.largest({}) is None
    assert report.largest({"quick": quick}) is quick and report.largest({"quick": quick, "paper": part}) is part
    assert report.largest({"quick": quick, "reduced": reduced, "paper": part}) is reduced
    assert report.largest({"reduced": reduced, "paper": paper}) is paper
    assert report.largest({"quick": quick, "paper": made("paper", ["a run"], "not tested")}) is quick  # it says nothing


def test_status_box(monkeypatch, tmp_path):
    """What the largest scale says, a verdict a line; checks of the code are left out; nothing run yet is said."""
    monkeypatch.setenv("FEDLIB_HOME", str(PROJECT))
    box, saved = status("pfedsim/table6_rho"), report.saved_items("paper", "pfedsim/table6_rho")[0]
    assert box.startswith("**Results so far, profile `paper`** (the paper's settings): ")
    assert f"The paper's main claim: **{saved['claims'][0]['verdict']}**." in box and "cannot refute" not in box
    assert all(f"| {claim['verdict']} | {claim['claim']} |" in box for claim in saved["claims"])
    same = [claim for claim in saved["claims"] if claim["over"] == "3 seeds, same partition"]
    assert box.count("| 3 seeds, same partition |") == len(same) > 3
    assert 0 < box.index("<details>") < box.index("| verdict |") < box.index("</details>")
    assert "fedlib reproduce pfedsim/table6_rho --profile paper --finished" in box
    assert "is stored yet" not in box
    small = status("pfedcs/table1_pathological")
    assert (
        "**No finished result at `reduced` or `paper` is stored yet.**" in small
        and "about 21 hours (41.7 core-hours)" in small
    )
    shrunk = {"item": "pfedcs/table1_pathological", "profile": "reduced", "runs": ["a"], "claims": [], "settings": {}}
    assert "from the paper:** LeNet-5 instead" in head(shrunk) and "cannot contradict the paper at its" in head(shrunk)
    assert "(on the paper's images" in head(shrunk) and "on other" in head({**shrunk, "settings": {"dataset": "pacs"}})
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
    assert said["quick"].startswith("digits") and said["reduced"].startswith("200 rounds (paper: 1,000)")
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
