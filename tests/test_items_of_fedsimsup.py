"""Claims of FedSimSup's figures, Table 3 and notes go both ways on results that are made up."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from helpers import analysed, changed_fields, made_up, signs
from pytest import approx

from fedlib.algorithms.api import Setting
from fedlib.analysis.groups import label_secrets
from fedlib.base.errors import Diverged
from fedlib.engine.result import RunResult
from fedlib.experiments import OpenItem, find
from fedlib.experiments.fedsimsup import fig3_similarity, notes, table3_supervisors
from fedlib.models import build

NOTES, TABLE3 = "fedsimsup/notes", "fedsimsup/table3_supervisors"


def curve(spec, accuracies) -> RunResult:
    """A finished run with these accuracies at its evaluated rounds."""
    rounds = [t for t in range(1, spec.rounds + 1) if t % spec.eval_every == 0 or t == spec.rounds]
    history = [
        {"round": t, "point": "agg", "headline": True, "client_mean": value, "pooled": value}
        for t, value in zip(rounds, np.resize(accuracies, len(rounds)))
    ]
    return RunResult(spec, "finished", history)


@pytest.mark.parametrize("name", ["table1_dirichlet", "table2_pathological"])
def test_settings_of_the_tables(name):
    """The paper's settings."""
    paper = OpenItem(find(f"fedsimsup/{name}"), "paper").runs
    one = next(spec for (row, column, _), spec in paper.items() if row == "fedsimsup" and "100" in column)
    assert (one.rounds, one.local_epochs, one.batch_size, one.lr, one.join_ratio) == (1000, 5, 32, 0.1, 0.1)
    assert (one.model, one.test_fraction, one.hyper["tau_s"], one.hyper["tau_theta"]) == ("lenet5", 0.2, 2, 3)
    own = {spec.method: spec.hyper for spec in paper.values()}
    assert own["fedprox"]["mu"] == own["fedproto"]["lam"] == own["fedpac"]["lam"] == 1
    assert (own["fedrep"]["E_h"], own["fedrep"]["E_f"]) == (2, 3)
    assert {k: own["perfedavg"][k] for k in ("variant", "alpha", "tau", "ft_epochs")} == {
        "variant": "HF", "alpha": 0.001, "tau": 4, "ft_epochs": 3}  # fmt: skip


@pytest.mark.parametrize("name", ["table1_dirichlet", "table2_pathological"])
def test_reduced_settings_of_the_tables(name):
    """All images and the printed task: what is smaller is what is said to be."""
    item = find(f"fedsimsup/{name}")
    paper, reduced = (OpenItem(item, profile).runs for profile in ("paper", "reduced"))
    less = {"rounds": 200, "eval_every": 20, "lr": 0.05, "pixels": "symmetric"}
    for key, spec in reduced.items():
        points = {"eval_points"} if key[0] == "fedavg" else set()
        assert changed_fields(spec, paper[key]) == {*less, *points}
        assert {name: getattr(spec, name) for name in less} == less
    assert {c for _, c, _ in reduced} == {c for _, c, _ in paper if "femnist" not in c}
    often = {key[:2] for key in reduced if key[2] == 2}
    assert often == {key[:2] for key in reduced if key[0] in ("local", "fedavg", "fedrep", "fedpac", "fedsimsup")}


def test_reduced_is_read_pooled():
    """The mean over clients stands beside it."""

    def make(key, spec):
        r = made_up(spec, 0.5)
        return dataclasses.replace(r, history=[{**h, "pooled": 0.49} for h in r.history])

    name = "fedsimsup/table1_dirichlet"
    cells = analysed(name, make, "reduced")["cells"].set_index(["series", "row"])["mean"]
    assert cells["ours", "fedsimsup"].tolist() == approx([49] * 8, abs=0.01)
    assert cells["ours, client mean", "fedsimsup"].tolist() == approx([50] * 8, abs=0.01)
    assert {*analysed(name, make, "paper", seeds=1, seeds_of_claims=1)["cells"]["series"]} == {"ours", "paper"}


def test_femnist_keeps_its_writers():
    runs = OpenItem(find("fedsimsup/table1_dirichlet"), "paper").runs
    own = {row: spec for (row, column, seed), spec in runs.items() if "femnist" in column and seed == 0}
    assert {spec.scheme for spec in own.values()} == {"writer"} and {s.num_clients for s in own.values()} == {3597}
    assert own["local"].join_ratio == 0.1 and own["fedsimsup"].join_ratio == 0.01


# Table 3 --------------------------------------------------------------------------------------------------------------


def mixed(by_kind: dict, same: float):
    """Runs in which a client's accuracy follows from its supervisor."""

    def make(key, spec):
        if key[0] == table3_supervisors.SAME:
            return made_up(spec, same)
        kinds = spec.algorithm.groups(Setting(spec.num_clients, spec.rounds, 10, spec.seed))
        share = np.array([by_kind[kind] for kind in kinds])
        r = made_up(spec, float(share.mean()))
        r.arrays["correct"] = r.arrays["correct"] + np.rint((share - share.mean())[:, None] * 10**6).astype(int)
        return r

    return make


def test_groups_of_supervisors_are_read_off_one_run():
    kinds = dict(zip(table3_supervisors.GROUPS.values(), (0.8, 0.6, 0.7)))
    tables = analysed(TABLE3, mixed(kinds, 0.75), seeds=2)
    own = tables["tidy"].groupby("row")["accuracy"].mean()
    assert own[list(table3_supervisors.GROUPS)].tolist() == approx([0.8, 0.6, 0.7], abs=0.02)
    assert 0.6 < own[table3_supervisors.MIXED] < 0.8 and own[table3_supervisors.SAME] == 0.75
    assert signs(TABLE3, tables)[0] == "+"
    worse = dict(zip(table3_supervisors.GROUPS.values(), (0.5, 0.6, 0.7)))
    assert signs(TABLE3, analysed(TABLE3, mixed(worse, 0.9), seeds=2)) == "-+--"
    level = dict.fromkeys(table3_supervisors.GROUPS.values(), 0.8)
    near, far = (analysed(TABLE3, mixed(level, same), seeds=5) for same in (0.805, 0.84))
    assert signs(TABLE3, far)[1] == "+" and signs(TABLE3, near)[3] == "+"


# Figures 2 and 3 ------------------------------------------------------------------------------------------------------


def test_convergence():
    name = "fedsimsup/fig2_convergence"

    def make(lead, restless):
        def of(key, spec):
            alpha = spec.partition["alpha"]
            ours = spec.method == "fedsimsup"
            swing = 0.05 if ours and (alpha == 0.5) == restless else 0.01
            return curve(spec, np.array([0.5, 0.5 + swing]) + lead * ours + 0.001 * spec.seed)

        return of

    good = analysed(name, make(0.1, True), seeds=3, seeds_of_claims=3, rounds=40, eval_every=1)
    bad = analysed(name, make(-0.1, False), seeds=3, seeds_of_claims=3, rounds=40, eval_every=1)
    assert signs(name, good) == "+.+" and signs(name, bad) == "-.-"  # CIFAR-100 is not there on digits
    slow = analysed(name, make(-0.1, True), "reduced", seeds=2, seeds_of_claims=2)
    assert signs(name, slow)[1] == "+" and signs(name, analysed(name, make(0.1, True), "reduced"))[1] == "1"
    ends = good["compare"].set_index("row").loc["fedsimsup"]
    assert ends["ours, last round, %"].tolist() == approx([65, 65], abs=6)


def test_worth_of_similarity():
    name, rows = "fedsimsup/fig3_similarity", list(fig3_similarity.WEIGHTS.values())

    def make(order):
        heights = dict(zip(order, (0.8, 0.7, 0.6, 0.5, 0.4)))
        return lambda key, spec: curve(spec, [heights[spec.hyper["similarity"]] + 0.01 * spec.seed])

    assert signs(name, analysed(name, make(["labels", "nearest", "uniform", "shuffled", "none"]))) == "+++++"
    assert signs(name, analysed(name, make(rows[::-1]))) == "-----"  # none, shuffled, uniform, nearest, labels


# notes ----------------------------------------------------------------------------------------------------------------


def accuracies(**costs):
    """FedSimSup at 80 % and FedRep at 70, minus what a choice costs, by hyper-parameter."""

    def make(key, spec):
        if key[0] == "rate":
            return made_up(spec, 0.3)
        value = 0.8 if spec.method == "fedsimsup" else 0.7
        value -= sum(cost for name, (of, cost) in costs.items() if spec.method == "fedsimsup" and of(spec))
        return made_up(spec, {"agg" if spec.method == "fedsimsup" else "recv": value, "post": value + 0.01})

    return make


def test_claims_of_the_notes():
    costs = {
        "supervisor": (lambda s: s.hyper["supervisors"] == "supervisor_none", 0.05),
        "alone": (lambda s: s.hyper["learn"] == "alone", 0.03),
        "mixing": (lambda s: s.hyper["similarity"] != "labels", 0.02),
    }
    good = analysed(NOTES, accuracies(**costs), seeds=2, further=(0.5,))
    assert signs(NOTES, good)[:7] == "+++++++"
    bad = {name: (of, -cost) for name, (of, cost) in costs.items()}
    assert signs(NOTES, analysed(NOTES, accuracies(**bad), seeds=2))[:7] == "-----+."
    weak = accuracies(all=(lambda s: True, 0.2))
    assert signs(NOTES, analysed(NOTES, weak, seeds=2, further=(0.5,)))[5:7] == "--"
    open_ones = accuracies(**costs, order=(lambda s: s.hyper["order"] == "model", 0.3))
    assert signs(NOTES, analysed(NOTES, open_ones, seeds=2))[7] == "-"  # Algorithm 1 says which learns first
    open_ones = accuracies(**costs, combine=(lambda s: s.hyper["combine"] == "prob", 0.3))
    assert signs(NOTES, analysed(NOTES, open_ones, seeds=2))[7] == "+"
    some = {key[0] for key in find(NOTES).runs(find(NOTES).settings["paper"])}  # the printed rate, a lower one, inputs
    lower = {"0.05", "0.05, pixels scaled to [-1, 1]"}
    assert some == {"choice", "part", "rate", "0.1", "0.1, pixels scaled to [-1, 1]", *lower}

    def without_controls(key, spec):
        return None if spec.hyper.get("supervisors") == "supervisor_none" else accuracies(**costs)(key, spec)

    assert signs(NOTES, analysed(NOTES, without_controls, seeds=2))[:2] == ".."
    text = find(NOTES).answer(good)
    for place in (
        "FedSimSup minus FedRep at Dir(0.1), in points: +10.0",
        "FedSimSup minus FedRep at Dir(0.5), in points: +10.0",
    ):
        assert place in text
    assert "in points: +5.0 [+5.0, +5.0] without the supervisor" in text
    assert "+2.0 [+2.0, +2.0] without aggregation for non-participating clients" in text
    fedrep = good["parts"].set_index(["task", "arm"])["the method's lead over it"]
    for name in ("Dir(0.1)", "Dir(0.5)"):
        assert fedrep[name, "FedRep before local training"].startswith("+10.00")


def test_every_choice_of_the_notes_changes_what_it_says():
    s = find(NOTES).settings["paper"]
    base = next(spec for spec in notes.bases(s, 0.1) if spec.method == "fedsimsup")
    found = [changed_fields(notes.SENSITIVITY.otherwise(choice, s, base), base) for choice in notes.CHOICES]
    alone = {"hyper.supervisors", "hyper.tau_s", "hyper.tau_theta"}
    assert found == [
        alone, alone | {"model_options.hidden"}, {"hyper.learn"}, {"hyper.tau_s", "hyper.tau_theta"},
        {"hyper.similarity"}, {"hyper.similarity"}, {"hyper.zero_sim"}, {"hyper.scale_by_sim"},
        {"hyper.participants_mix"}, {"hyper.shared_sup_init"}, {"hyper.order"}, {"hyper.combine"},
        {"hyper.supervisors"}, {"hyper.supervisors"}, {"seed"},
    ]  # fmt: skip
    sizes = [build(name, (3, 32, 32), 10).num_parameters["model"] for name in ("lenet5", "supervisor_sixth")]
    wider = build("lenet5", (3, 32, 32), 10, hidden=notes.WIDER).num_parameters["model"]
    assert abs(wider - sum(sizes)) < 250


def test_runs_that_diverge_are_counted():
    """At the printed rate FedAvg diverges with every second seed, and FedSimSup always."""

    def make(key, spec):
        bad = spec.method == "fedsimsup" or (spec.method == "fedavg" and spec.seed == 1)
        bad = bad and spec.lr == 0.1 and spec.pixels == "standardised"
        points = {"fedsimsup": ("agg", "post"), "fedrep": ("recv", "post")}.get(spec.method, ("post",))
        made = made_up(spec, dict.fromkeys(points, 0.4))
        return RunResult(spec, "diverged", error=str(Diverged(3, 17, 2))) if bad else made

    found = analysed(NOTES, make, "paper", seeds=2)["stability"].set_index(["rate", "method"])
    columns = ["runs", "of them diverged", "in round", "client mean, %"]
    assert found.loc[("0.1", "fedsimsup"), columns].values.tolist() == [[2, 2, "17, 17", ""]] * 2
    assert found.loc[("0.1", "fedavg"), columns].values.tolist() == [[2, 1, "17", "40.0"]] * 2
    assert set(found.loc[("0.1", "local"), "pooled, %"]) == {"40.0 (40.0, 40.0)"}
    text = notes.ends_of_training(found.reset_index())
    assert "At the learning rate 0.1, 6 of 20 runs diverged (1 of 2 of FedAvg" in text and "2 of 2 of FedSimSup" in text
    ends = "the others end, pooled over test images, with Local 40.0 (40.0, 40.0) %"
    assert f"At the learning rate 0.05, 0 of 20 runs diverged; {ends}" in text
    for how in ("0.05", "0.1, pixels scaled to [-1, 1]"):
        assert found.loc[(how, "fedsimsup")]["of them diverged"].tolist() == [0, 0]


def test_label_counts_tell_labels():
    """Two clients of one class each, and of the same two classes in equal parts."""

    known = label_secrets([np.array([[8, 0], [0, 4]])]).set_index("what is known")
    assert known.loc["the client's own counts"].tolist() == ["100.0", "0.00"]
    assert known.loc["the counts of all clients together"].tolist() == ["66.7", "0.92"]
    same = label_secrets([np.array([[8, 8], [4, 4]])]).set_index("what is known")
    assert same.loc["the counts of all clients together"].tolist() == ["50.0", "1.00"]
    unlike = label_secrets([np.array([[9, 1], [5, 5]]), np.array([[7, 3], [5, 5]])]).set_index("what is known")
    right = unlike.loc["the client's own counts", "label guessed correctly, %"]
    low, high = map(float, right.partition("[")[2].rstrip("]").split(","))
    # clients of one class with 9 of 10 and 5 of 10 images: 70 %; 7 and 5 of 10: 60 %; 65 +- 5 t(1) = 63.5
    assert right.startswith("65.0 [") and (low, high) == approx((1.5, 128.5), abs=3)
