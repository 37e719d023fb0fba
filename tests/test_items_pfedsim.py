"""pFedSim's tables of accuracies and costs, and its workflow: claims go both ways, numbers agree with sums done by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from fedlib.experiments.items import NOT_REPRODUCED, NOT_TESTED, REPRODUCED
from helpers import tiny

from fedlib.base.draws import participants
from fedlib.engine.result import RunResult
from fedlib.experiments import ITEMS, OpenItem, paper_table
from fedlib.experiments.pfedsim import accuracy, domains, overhead, rho, workflow
from fedlib.models import build
from fedlib.runs import sweep


def accuracy_tables(cells) -> dict:
    """Tables of one seed in which methods have the accuracies cells(alpha, method) in percent, at the headline and at `post`."""
    rows = [
        (alpha, 0, method, point, point == "headline", cells(alpha, method) / 100, 0.0)
        for alpha in accuracy.ALPHAS for method in accuracy.METHODS for point in ("headline", "post")
    ]
    tidy = pd.DataFrame(rows, columns=["alpha", "seed", "method", "point", "headline", "pooled", "client_mean"])
    return {"tidy": tidy, "ranks": accuracy.ranks(tidy)}


def test_claims_of_table_3_on_the_papers_own_cifar10_columns_and_upside_down():
    """Printed: pFedSim leads by 1.8 at Dir(0.1) and by 2.7 at Dir(0.5), so that the text's "more at 0.1" fails on the table."""
    claims = ITEMS["pfedsim/table3_accuracy"].claims
    paper = accuracy_tables(lambda alpha, method: accuracy.printed(method, alpha)["value"])
    assert [c.check(paper).status for c in claims] == [REPRODUCED] * 5 + [NOT_REPRODUCED] + [REPRODUCED] * 2
    turned = accuracy_tables(lambda alpha, method: 100 - accuracy.printed(method, alpha)["value"])
    assert [c.check(turned).status for c in claims if c is not claims[5]] == [NOT_REPRODUCED] * 7


def test_claims_that_need_all_methods_say_which_are_missing():
    tables = accuracy_tables(lambda alpha, method: 50.0 + len(method))
    tables["tidy"] = tables["tidy"].query("method not in ('fedgen', 'fedbn')")
    checked = [c.check(tables) for c in ITEMS["pfedsim/table3_accuracy"].claims]
    assert checked[0].status == NOT_TESTED and checked[0].evidence == "without fedbn, fedgen"
    assert checked[3].status == NOT_REPRODUCED  # needs neither of them


def test_table_3_marks_what_is_compared():
    tables = accuracy_tables(lambda alpha, method: 42.0 if method == "pfedsim" else len(method))
    row = accuracy.compared(tables["tidy"], {"methods": ("pfedsim",), "dataset": "digits"}).iloc[0]
    assert row["Dir(0.1) paper, CIFAR-10"].startswith("86.") and row["Dir(0.1) ours, digits"] == "42.00 (n=1)"
    assert float(row["Dir(0.1) difference"]) == pytest.approx(42 - accuracy.printed("pfedsim", 0.1)["value"])
    assert accuracy.printed("ifca", 0.1) is None


def test_tables_3_and_6_share_their_runs():
    table3, table6 = (OpenItem(ITEMS[f"pfedsim/{name}"], "paper") for name in ("table3_accuracy", "table6_rho"))
    shared = {s.id for s in table3.specs} & {s.id for s in table6.specs}
    assert len(shared) == 2 * 3  # Local, FedPer and pFedSim at rho = 0.5


def test_who_was_personalised():
    """T = 10, rho = 0.9: one round after T_g, in which 2 of 10 clients take part. They have 9 of 10 right, the others 5: 0.2 * 90 + 0.8 * 50 = 58.
    With rho = 0.5 the two who are drawn in five rounds are counted from the draws. rho = 0 and 1 have nobody to tell apart."""
    base = tiny("pfedsim", num_clients=10, join_ratio=0.2, rounds=10, partition={"alpha": 0.1, "min_size": 10})
    specs = [base.but(hyper={"rho": value}) for value in (0.0, 0.5, 0.9, 1.0)]
    drawn = participants(base.seed, 10, 10, 0.2)
    correct, tests = np.full((10, 2), (2, 3)), np.full((10, 2), 5)
    correct[drawn] = 4, 5
    arrays = {"correct": correct, "tests": tests}
    found = rho.personalised([RunResult(spec, "finished", arrays=arrays) for spec in specs]).set_index("rho")
    assert found.index.tolist() == [0.5, 0.9]
    last = found.loc[0.9]
    assert (last["drawn"], last["expected to be"]) == pytest.approx((20, 20))
    assert (last["accuracy, drawn"], last["accuracy, others"], last["if as expected"]) == pytest.approx((90, 50, 58))
    since = set().union(*(participants(base.seed, t, 10, 0.2).tolist() for t in range(6, 11)))
    assert found.loc[0.5, "drawn"] == 10 * len(since) and found.loc[0.5, "expected to be"] == pytest.approx(100 * (1 - 0.8**5))
    assert last["paper, CIFAR-10"] == 79.05
    everybody = rho.personalised([RunResult(base.but(join_ratio=1.0), "finished", arrays=arrays)])
    assert everybody["accuracy, others"].isna().all() and everybody["drawn"].tolist() == [100]


# costs -----------------------------------------------------------------------------------------------------------------


def overhead_tables(seconds: dict[str, float], down: dict[str, float]) -> dict:
    rows = [(seed, m, seconds[m] * (1 + seed / 100), down[m], 1.0) for seed in range(3) for m in overhead.METHODS]
    return {"tidy": pd.DataFrame(rows, columns=["seed", "method", "seconds_ratio", "down_ratio", "up_ratio"])}


def test_claims_of_table_7_follow_the_numbers():
    claims = ITEMS["pfedsim/table7_overhead"].claims
    paper = overhead.printed_ratios().loc["cifar10"].to_dict()
    assert paper["fedfomo"] == pytest.approx(1.30, abs=0.005) and paper["pfedsim"] == pytest.approx(1.00, abs=0.005)
    right = overhead_tables(paper, {"fedavg": 1, "fedfomo": 4.75, "fedgen": 1.1, "pfedsim": 1})
    wrong = overhead_tables({"fedavg": 1, "fedfomo": 0.9, "fedgen": 1.0, "pfedsim": 1.3}, dict.fromkeys(overhead.METHODS, 1.5))
    assert [c.check(right).status for c in claims] == [REPRODUCED] * 4
    assert [c.check(wrong).status for c in claims] == [NOT_REPRODUCED] * 4


def test_runs_that_are_timed_are_done_one_at_a_time(monkeypatch, tmp_path):
    seen = {}
    def run_all(specs, store, **options):
        seen.update(options)
        raise InterruptedError
    monkeypatch.setattr("fedlib.experiments.items.run_all", run_all)
    for name, jobs in (("pfedsim/table7_overhead", 1), ("pfedsim/table3_accuracy", 2)):
        with pytest.raises(InterruptedError):
            OpenItem(ITEMS[name], "smoke", jobs=2, root=tmp_path).run()
        assert (seen["jobs"], seen["share"]) == (jobs, jobs == 2)
    assert sweep.run_all is not run_all


# workflow --------------------------------------------------------------------------------------------------------------


def test_pairs_meet_as_often_as_expected():
    """2 of 4 clients: 2*1/(4*3) = 1/6 a round; over 300 draws of one round the mean is that exactly, for one pair meets in each."""
    once = workflow.meetings(4, 0.5, 1)
    assert once["drawn"].item() == pytest.approx(1 / 6) and once["expected"].item() == pytest.approx(1 / 6)
    many = workflow.meetings(100, 0.1, 100)
    assert many["expected"].iloc[-1] == pytest.approx(1 - (1 - 90 / 9900) ** 100) and abs(many["drawn"].iloc[-1] - many["expected"].iloc[-1]) < 0.02


def test_walk_notices_a_wrong_mixture_and_a_changed_classifier():
    model = build("lenet5_bn", (1, 16, 16), 10)
    models = {name: torch.stack([model.theta0[name], 3 * model.theta0[name]]) for name in model.trainable}
    weights = torch.tensor([[0.25, 0.75]], dtype=torch.float64)
    right = {name: (0.25 * rows[0] + 0.75 * rows[1])[None] for name, rows in models.items()}
    assert workflow.mixture_error(models, weights, right, model) < 1e-6
    wrong = {**right, "extractor.fc2.bias": right["extractor.fc2.bias"] + 0.5}
    assert workflow.mixture_error(models, weights, wrong, model) == pytest.approx(0.5, abs=1e-6)
    changed = {**models, "head.bias": models["head.bias"] + torch.tensor([[0.0], [1.0]])}
    assert workflow.heads_changed(models, models) == 0 and workflow.heads_changed(models, changed) == 1


def test_the_walk_is_the_run():
    """Rounds that are watched are those of `simulate`; with T = 3 and rho = 0.5 there is one round of FedAvg."""
    from fedlib.engine.simulate import simulate

    spec = tiny("pfedsim", hyper={"rho": 0.5})
    tidy, phis = workflow.walk(spec)
    assert tidy["phase"].tolist() == ["generalisation", "personalisation", "personalisation"] and list(phis) == [2, 3]
    sent = simulate(spec).communication
    assert (2 * tidy[["down", "up"]].sum()).tolist() == [sent["down"]["floats"], sent["up"]["floats"]]
    assert tidy["mixture_error"].max() < 1e-6 and np.array_equal(phis[3], phis[3].T)


@pytest.mark.parametrize(
    ("claim", "change"),
    [(0, {"down": 1}), (1, {"heads_changed": 1}), (2, {"mixture_error": 0.1}), (3, {"pairs": 0.5})],
)
def test_claims_of_the_workflow_follow_the_numbers(claim, change):
    tidy = pd.DataFrame({"phase": ["generalisation", "personalisation", "personalisation"], "down": 9, "up": 9, "pairs": [0, 0.1, 0.2], "mixture_error": 0.0, "heads_changed": [4, 2, 2]})
    tables = {"tidy": tidy, "task": pd.DataFrame([{"model": 9, "participants": 2}]), "meetings": workflow.meetings(100, 0.1, 100)}
    claims = ITEMS["pfedsim/fig4_workflow"].claims
    assert [c.check(tables).status for c in claims] == [REPRODUCED] * 5
    assert claims[claim].check({**tables, "tidy": tidy.assign(**change)}).status == NOT_REPRODUCED
    assert claims[4].check({**tables, "meetings": workflow.meetings(10, 1.0, 3)}).status == NOT_REPRODUCED


# domains ---------------------------------------------------------------------------------------------------------------


def domain_tables(cells) -> dict:
    names = ("clipart", "infograph", "painting", "quickdraw", "real", "sketch", "average")
    rows = [(0, m, "post", d, cells(m, d) / 100) for m in accuracy.METHODS for d in names]
    sizes = paper_table("pfedsim", "fig5b")[["domain", "value"]].rename(columns={"value": "samples"})
    return {"tidy": pd.DataFrame(rows, columns=["seed", "method", "point", "domain", "accuracy"]), "sizes": sizes}


def test_claims_of_table_8_on_the_papers_own_numbers_and_upside_down():
    claims = ITEMS["pfedsim/table8_domainnet"].claims
    paper = domain_tables(lambda method, domain: domains.printed(method, domain)["value"])
    assert [c.check(paper).status for c in claims] == [REPRODUCED] * 5
    turned = domain_tables(lambda method, domain: 100 - domains.printed(method, domain)["value"])
    turned["sizes"] = turned["sizes"].assign(samples=1)
    assert [c.check(turned).status for c in claims] == [NOT_REPRODUCED] * 5
    assert claims[4].check({"sizes": pd.DataFrame({"domain": ["plain"], "samples": [3]})}).status == NOT_TESTED


def test_accuracy_by_domain_is_correct_over_tests():
    """Six clients, one a domain: client 0 has 3 of 4 right; the average weighs domains by their test samples."""
    correct, tests = np.zeros((6, 10), dtype=int), np.ones((6, 10), dtype=int)
    tests[0, 0], correct[0, 0] = 4, 3
    tests[0, 1:] = 0
    spec = OpenItem(ITEMS["pfedsim/table8_domainnet"], "smoke").specs[0]
    entry = {"round": spec.rounds, "point": "post", "headline": True, "pooled": 3 / 54}
    result = RunResult(spec, "finished", [entry], arrays={"correct": correct, "tests": tests, "counts": 2 * tests})
    settings = {**ITEMS["pfedsim/table8_domainnet"].settings["smoke"], "methods": (spec.method,)}
    tables = domains.analyse_domains(settings, [result])
    values = tables["tidy"].set_index("domain")["accuracy"]
    assert values["plain"] == 0.75 and values["negative"] == 0 and values["average"] == 3 / 54
    assert tables["sizes"].set_index("domain")["samples"].tolist() == [8, 20, 20, 20, 20, 20]
