"""pFedSV's replication notes: one thing is changed at a time; searches and effects agree with sums done by hand; claims go both ways."""

from __future__ import annotations

import numpy as np
import pytest
from fedlib.experiments.items import NOT_REPRODUCED, NOT_TESTED, REPRODUCED
from helpers import changed_fields

from fedlib.engine.result import RunResult
from fedlib.experiments import ITEMS, OpenItem
from fedlib.experiments.pfedsv import notes

ITEM = ITEMS["pfedsv/notes"]
RING = np.eye(10, dtype=int) + np.roll(np.eye(10, dtype=int), 1, axis=1)  # client i owns labels i and i + 1
NEIGHBOURS = np.roll(np.eye(10), 1, axis=1) + np.roll(np.eye(10), -1, axis=1)  # who shares one


def made_up(spec, accuracy: float, relevance=NEIGHBOURS, downloads=NEIGHBOURS) -> RunResult:
    history = [{"round": spec.rounds, "point": "agg", "headline": True, "client_mean": accuracy}]
    arrays = {"counts": RING, "relevance": np.stack([relevance] * 2), "downloads": np.stack([downloads > 0] * 2)}
    return RunResult(spec, "finished", history, arrays=arrays)


def tables_of(make) -> dict:
    s = ITEM.settings["smoke"]
    return notes.analyse_notes(s, [make(spec) for spec in ITEM.specs(s)])


def test_every_choice_changes_what_it_says_and_nothing_else():
    s = ITEM.settings["paper"]
    base = notes.base_specs(s)[0]
    found = [changed_fields(notes.STUDY.otherwise(choice, s, base), base) for choice in notes.CHOICES]
    assert found == [
        {"hyper.v_empty"}, {"hyper.utility"}, {"hyper.utility_part"}, {"hyper.sv"}, *[{"hyper.self_distance"}] * 3,
        {"hyper.alpha"}, {"hyper.alpha"}, {"hyper.download_rule"}, {"hyper.k_max"}, {"hyper.reexplore_prob"}, {"hyper.variant"},
        {"hyper.variant"}, {"seed"},
    ]  # fmt: skip


def test_the_papers_profile_is_the_papers_and_no_run_is_asked_for_twice():
    specs = OpenItem(ITEM, "paper").specs
    for spec in specs:
        assert (spec.dataset, spec.model, spec.num_clients, spec.join_ratio, spec.rounds, spec.local_epochs, spec.lr) == (
            "cifar10", "mcmahan_cnn", 10, 1.0, 20, 5, 0.1)  # fmt: skip
    assert len({spec.id for spec in specs}) == len(specs) == 2 * (1 + len(notes.CHOICES))


def test_searches_are_counted():
    """The unchanged run gets its two neighbours in each round; with k fixed everybody gets all nine."""
    everybody = 1 - np.eye(10)
    tables = tables_of(
        lambda spec: made_up(spec, 0.5, downloads=everybody) if spec.hyper["variant"] == "W" else made_up(spec, 0.5)
    )
    found = tables["search"].query("task == 'two labels each'").set_index("choice")
    assert found.loc[notes.BASE, ["finds", "complete", "models"]].tolist() == [1, 1, 2]
    assert found.loc[notes.FIXED, ["complete", "models"]].tolist() == [1, 9]


def test_finding_is_auc_for_two_labels_and_rank_correlation_for_dirichlet_shares():
    ring, dirichlet = notes.base_specs(ITEM.settings["smoke"])[:2]
    assert notes.finding(made_up(ring, 0.5, relevance=-NEIGHBOURS)) == 0
    assert notes.finding(made_up(ring, 0.5, relevance=np.zeros((10, 10)))) == 0.5
    assert notes.finding(made_up(dirichlet, 0.5)) == pytest.approx(1)  # label cosine is 1/2 for neighbours, else 0
    assert notes.finding(made_up(dirichlet, 0.5, relevance=-NEIGHBOURS)) == pytest.approx(-1)
    assert notes.finding(made_up(dirichlet, 0.5, relevance=np.zeros((10, 10)))) == 0  # no order at all


def good(spec) -> RunResult:
    """k fixed downloads all; literally read, k finds nobody; the own distance costs 20 points, another seed 1."""
    h = spec.hyper
    downloads = 1 - np.eye(10) if h["variant"] == "W" else np.zeros((10, 10)) if h["download_rule"] == "literal" else NEIGHBOURS
    return made_up(spec, 0.9 - 0.2 * (h["self_distance"] != "min_other") - 0.01 * spec.seed, downloads=downloads)


def bad(spec) -> RunResult:
    """k fixed is better and downloads no more; exact values help; the own distance changes nothing; chance moves a point."""
    h = spec.hyper
    return made_up(spec, 0.5 + 0.02 * (h["variant"] == "W") + 0.02 * (h["sv"] == "exact") + 0.01 * spec.seed)


def test_claims_go_both_ways():
    assert [c.check(tables_of(good)).status for c in ITEM.claims] == [REPRODUCED] * 5
    assert [c.check(tables_of(bad)).status for c in ITEM.claims] == [REPRODUCED] + [NOT_REPRODUCED] * 4
    even = tables_of(lambda spec: made_up(spec, 0.5 + 0.01 * spec.seed))
    assert ITEM.claims[0].check(even).status == NOT_REPRODUCED


def test_missing_choices_are_named_and_nothing_is_decided():
    s = ITEM.settings["smoke"]
    tables = notes.analyse_notes(s, [good(spec) for spec in ITEM.specs(s) if spec.hyper["sv"] != "exact"])
    assert [c.check(tables).status for c in ITEM.claims] == [NOT_TESTED] * 5
    assert ITEM.claims[0].check(tables).evidence == "without exact Shapley values"
    assert "13 choices tried so far (of 14)" in ITEM.answer(tables)


def test_where_only_a_changed_run_is_there_nothing_is_said():
    s = ITEM.settings["smoke"]
    tables = notes.analyse_notes(s, [good(spec) for spec in ITEM.specs(s) if spec.hyper["sv"] == "exact"])
    ITEM.figure(tables)
    assert tables["compare"].empty and ITEM.answer(tables) == "No choice was tried yet."
    assert {c.check(tables).status for c in ITEM.claims} == {NOT_TESTED}


def test_the_answer_is_made_of_the_tables_numbers():
    text = ITEM.answer(tables_of(good))
    assert "-20.00" in text and "chance moves it by 1.00" in text
    assert "leaves 2.0 (two labels each), 2.0 (Dir(0.1)) downloads" in text
