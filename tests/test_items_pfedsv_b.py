"""pFedSV's tables of accuracies, its noise and the attacks on it: the paper's settings, claims that go both ways, numbers done again by hand."""

from __future__ import annotations

import io
import json
import pickle
from math import inf

import numpy as np
import pandas as pd
import pytest
import torch
from fedlib.experiments.items import NOT_REPRODUCED, NOT_TESTED, REPRODUCED
from helpers import tiny

from fedlib import figures
from fedlib.base.errors import BadValue, FedlibError
from fedlib.data import load
from fedlib.engine.simulate import simulate
from fedlib.experiments import ITEMS, OpenItem, at_paper_scale, paper_table
from fedlib.experiments.pfedsv import accuracy, inversion, privacy, task
from fedlib.experiments.pfedsv.accounting import budgets
from fedlib.privacy import accounting

TABLE = {1: "pfedsv/table1_pathological", 2: "pfedsv/table2_dirichlet", 3: "pfedsv/table3_dp", 4: "pfedsv/table4_dp_budget"}
CIFAR = {"dataset": "cifar10", "methods": task.METHODS, "few_clients": 10, "many_clients": 100}


def statuses(name: str, tables: dict) -> list[str]:
    return [claim.check(tables).status for claim in ITEMS[name].claims]


# settings --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", TABLE)
def test_paper_profile_has_the_papers_settings(number):
    scales = {"few": (10, 1.0, 20), "many": (100, 0.1, 100)}
    specs = OpenItem(ITEMS[TABLE[number]], "paper").specs
    for spec in specs:
        assert (spec.dataset, spec.local_epochs, spec.lr, spec.model) == ("cifar10", 5, 0.1, "mcmahan_cnn")
        assert (spec.num_clients, spec.join_ratio, spec.rounds) == scales[task.scale_of(spec)]
        assert spec.partition_seed == spec.seed and spec.test_distribution == "matched"
        parameters = {"ring": {"classes_per_client": 2}, "dirichlet": {"alpha": 0.1}}[spec.scheme]
        assert parameters.items() <= spec.partition.items()
        if spec.method == "pfedsv":
            assert (spec.hyper["k"], spec.hyper["samples"], spec.hyper["variant"]) == (5, 0, "D")  # samples 0: 3 |S|
    assert {s.seed for s in specs} == set(range(5)) and {s.model_options["padding"] for s in specs} == {"same"}
    assert {s.scheme for s in specs} == {1: {"ring"}, 2: {"ring", "dirichlet"}, 3: {"dirichlet"}, 4: {"ring"}}[number]


def test_noise_of_the_paper_profile_and_runs_that_items_share():
    opened = {number: OpenItem(ITEMS[name], "paper") for number, name in TABLE.items()}
    ids = {number: {spec.id for spec in item.specs} for number, item in opened.items()}
    assert len(ids[1]) == 11 * 2 * 5 and len(ids[2] - ids[1]) == 11 * 2 * 5 and ids[1] < ids[2]
    assert len(ids[3] & ids[2]) == 5 * 2 * 5 and len(ids[3] - ids[2]) == 3 * 2 * 5
    assert len(ids[4] & ids[1]) == 2 * 5  # FedAvg and pFedSV without noise
    noisy = [spec for spec in opened[4].specs if spec.privacy != "none"]
    assert {(s.method, s.noise_sigma) for s in noisy} == {(m, sigma) for m in ("fedavg", "pfedsv") for sigma in (1.0, 2.0)}
    assert {s.noise_sigma for s in opened[3].specs if s.privacy != "none"} == {1.0}


def test_bad_settings_are_refused_before_training():
    settings = ITEMS[TABLE[1]].settings["smoke"]
    with pytest.raises(BadValue, match="some"):
        task.run_spec(settings, "fedavg", "some", "ring", 0)
    with pytest.raises(BadValue, match="shards"):
        task.run_spec(settings, "fedavg", "few", "shards", 0)
    with pytest.raises(BadValue, match="pfedsv"):
        OpenItem(ITEMS[TABLE[1]], "smoke", methods="pfedsw")
    with pytest.raises(BadValue, match="noise_sigma"):
        task.run_spec(settings, "fedavg", "few", "ring", 0, {"noise_sigma": 1.0})
    with pytest.raises(BadValue, match="images = 3"):
        OpenItem(ITEMS["pfedsv/fig11_inversion"], "smoke", images=3).compare()


# Tables 1 and 2 --------------------------------------------------------------------------------------------------------


def accuracy_tables(table: str, value, both=None) -> dict:
    """Tables of one seed with accuracies value(scale, method) in percent at every point and on both test parts; unreadable cells: 90."""
    rows = [
        {"scale": scale, "clients": 10, "seed": 0, "method": m, "point": point, "headline": point == "headline", "tested_on": on, "accuracy": value(scale, m) / 100}
        for scale in task.SCALES for m in task.METHODS for point, on in (("headline", "own"), ("headline", "all"), ("post", "own"))
    ]
    tidy = pd.DataFrame(rows)
    return {"tidy": tidy, "ranks": accuracy.ranks(tidy, CIFAR, table), "both": both if both is not None else pd.DataFrame()}


def printed_value(table: str, unreadable: float = 83.0):
    def value(scale: str, method: str) -> float:
        cell = task.printed(table, CIFAR, scale, method)
        return unreadable if cell is None else cell["value"]

    return value


def test_claims_of_table_1_on_the_papers_own_columns_and_upside_down():
    value = printed_value("1")
    paper = accuracy_tables("1", value)
    assert statuses(TABLE[1], paper) == [REPRODUCED] * 7
    turned = accuracy_tables("1", lambda scale, method: 150 - value(scale, method) + (scale == "many") * 30)
    assert statuses(TABLE[1], turned) == [NOT_REPRODUCED] * 4 + [NOT_REPRODUCED] * 3


def partition_table(change: float) -> pd.DataFrame:
    rows = [(m, scale, "own", 80.0, 80.0 + change) for m in task.METHODS for scale in task.SCALES]
    return pd.DataFrame(rows, columns=["method", "scale", "tested_on", "ring", "dirichlet"])


def test_claims_of_table_2_on_the_papers_own_columns_and_upside_down():
    value = printed_value("2")
    paper = accuracy_tables("2", value, partition_table(-5.0))
    gains = 6  # the claim that compares test parts: equal here, so not reproduced
    found = statuses(TABLE[2], paper)
    assert found.pop(gains) == NOT_REPRODUCED and found == [REPRODUCED] * 8
    turned = accuracy_tables("2", lambda scale, method: 100 - value(scale, method), partition_table(+5.0))
    assert statuses(TABLE[2], turned) == [NOT_REPRODUCED] * 9
    tidy = paper["tidy"]
    better = tidy.assign(accuracy=tidy["accuracy"] + 0.1 * ((tidy["tested_on"] == "all") & (tidy["method"] == "pfedsv")))
    assert ITEMS[TABLE[2]].claims[gains].check({**paper, "tidy": better}).status == REPRODUCED


def test_claims_say_what_they_miss():
    tables = accuracy_tables("2", printed_value("2"), partition_table(0.0).drop(columns="ring"))
    tables["tidy"] = tables["tidy"].query("method not in ('pfedhn', 'fedem')")
    claims = {c.text[:20]: c.check(tables) for c in ITEMS[TABLE[2]].claims}
    assert claims["pFedSV is the most a"].evidence == "without fedem, pfedhn"
    assert claims["Dirichlet shares are"].status == NOT_TESTED and claims["FedAvg is lowest at "].status == REPRODUCED


def test_unreadable_cells_stay_empty_and_other_data_sets_have_their_own_column():
    assert task.printed("1", CIFAR, "few", "pfedsim") is None and task.printed("1", CIFAR, "few", "fedamp") is None
    assert task.printed("1", CIFAR, "many", "pfedsv")["value"] == 80.65
    assert task.printed("1", {"dataset": "mnist"}, "few", "pfedsv")["value"] == 98.01
    assert task.beside(None, pd.Series([50.0])) == ("", "50.00 (n=1)", "")
    text = task.beside(task.printed("1", CIFAR, "few", "pfedsv"), pd.Series([80.0, 82.0]))
    assert text == ("89.64 (1.88)", "81.00 (1.41, n=2)", "-8.64")


@pytest.mark.parametrize("method", ["fedem", "fedavg_ft", "pfedsv"])
def test_common_test_is_a_run_with_global_test_parts(method):
    """A mixture of models with its own `predict`, fine-tuned models, and mixtures of the clients' models."""
    spec = tiny(method, model="lenet5", rounds=1, join_ratio=1.0)
    measured, trained_again = simulate(spec.but(measures=("common_test",))), simulate(spec.but(test_distribution="global"))
    assert np.array_equal(measured.arrays["common_correct"], trained_again.arrays["correct"])
    assert np.array_equal(np.tile(measured.arrays["common_tests"], (4, 1)), trained_again.arrays["tests"])
    row = next(row for row in task.final_rows(measured) if row["tested_on"] == "all")
    assert row["accuracy"] == pytest.approx(trained_again.final("client_mean")) and row["headline"]
    assert [r["accuracy"] for r in task.final_rows(measured) if r["headline"] and r["tested_on"] == "own"] == [measured.final("client_mean")]


def test_common_test_refuses_what_it_cannot_test():
    with pytest.raises(BadValue, match="eval_points"):
        simulate(tiny("fedrod", rounds=1, eval_points=("glob",), measures=("common_test",)))


# Table 3 ---------------------------------------------------------------------------------------------------------------


def noise_tables(values: dict[str, float], released: float, epsilons: dict[str, float]) -> dict:
    rows = [
        {"row": row, "scale": scale, "seed": 0, "method": row.partition("_")[0], "accuracy": value / 100, "epsilon_max": epsilons.get(row, inf)}
        for scale in task.SCALES for row, value in values.items()
    ]
    sent = [{"row": row, "scale": scale, "released": released / 100} for scale in task.SCALES for row in ("pfedsv", *privacy.NOISY)]
    return {"tidy": pd.DataFrame(rows), "released": pd.DataFrame(sent)}


def test_claims_of_table_3_on_the_papers_cifar10_column_and_upside_down():
    table = paper_table("pfedsv", "3").query("dataset == 'cifar10' and clients == 10").set_index("method")["value"]
    values = {**table.to_dict(), "pfedsv_dp, client": 58.0, "pfedsv_dp, unclipped": 50.0}
    assert set(values) == set(privacy.ROWS)
    right = noise_tables(values, 20.0, {"pfedsv_dp": 9.0, "pfedsv_dp, client": 28.0})
    assert statuses(TABLE[3], right) == [REPRODUCED] * 4
    wrong = noise_tables({**values, "pfedsv_dp": 50.0}, 57.0, {"pfedsv_dp, client": 28.0})
    assert statuses(TABLE[3], wrong) == [NOT_REPRODUCED] * 4


def test_rows_of_table_3_and_their_budgets():
    """ε of a run is that of the accounting; local training releases nothing; noise without a bound guarantees nothing."""
    settings = ITEMS[TABLE[3]].settings["smoke"]
    specs = {privacy.row_of(spec): spec for spec in privacy.table3_specs({**settings, "seeds": 1}) if task.scale_of(spec) == "few"}
    assert tuple(specs) == privacy.ROWS
    noisy = specs["pfedsv_dp"]
    assert (noisy.privacy, noisy.noise_sigma, noisy.noise_clip) == ("record", settings["sigma"], settings["clip"])
    row = privacy.final_row(simulate(noisy))
    spent = budgets(noisy)
    assert (row["epsilon"], row["epsilon_max"]) == (pytest.approx(spent.mean()), pytest.approx(spent.max())) and row["epsilon_max"] < inf
    assert privacy.final_row(simulate(specs["local"]))["epsilon_max"] == 0
    assert set(budgets(specs["pfedsv_dp, unclipped"])) == {inf}
    texts = [privacy.spent(pd.DataFrame({"epsilon": [1.0, 3.0], "epsilon_max": [2.0, last]})) for last in (4.0, inf)]
    assert texts == ["2.00 (max 4.00)", "∞"]


# Table 4 ---------------------------------------------------------------------------------------------------------------


def budget_tables(accuracies: dict[str, tuple], epsilons: dict[str, tuple], readings: pd.DataFrame) -> dict:
    rows = [
        {"method": m, "sigma": sigma, "seed": 0, "accuracy": accuracies[m][k] / 100, "epsilon": epsilons[m][k], "epsilon_max": epsilons[m][k]}
        for m in privacy.COMPARED for k, sigma in enumerate(privacy.SIGMAS)
    ]
    return {"tidy": pd.DataFrame(rows), "readings": readings}


def test_claims_of_table_4_on_the_printed_numbers_and_upside_down():
    fits = pd.DataFrame({"method": privacy.COMPARED, "off": 0.5, "reading": "batches, 20 x 5 epochs, rdp"})
    printed = privacy.printed_accuracies("cifar10")
    values = {m: tuple(printed[printed["method"] == m].sort_values("sigma")["value"]) for m in privacy.COMPARED}
    assert values["pfedsv"] == (84.73, 82.16, 78.29)
    right = budget_tables(values, {"fedavg": (inf, 11.28, 3.64), "pfedsv": (inf, 8.42, 1.82)}, fits)
    assert statuses(TABLE[4], right) == [REPRODUCED] * 5
    turned = budget_tables({"fedavg": values["pfedsv"], "pfedsv": values["fedavg"]}, {"fedavg": (inf, 4, 5), "pfedsv": (inf, 4, 5)}, fits.assign(off=2.0))
    assert statuses(TABLE[4], turned) == [NOT_REPRODUCED] * 5


def test_no_accounting_yields_the_printed_budgets_of_both_methods_as_stated():
    best = privacy.best_readings()
    assert len(best) == 8 and (best["off"] >= 0).all()
    fedavg = best.query("method == 'fedavg' and dataset == 'cifar10' and printed_1 == 11.28").iloc[0]
    assert fedavg["epsilon_2"] == pytest.approx(accounting.epsilon(2.0, fedavg["rate"], int(fedavg["steps"])), rel=0.05)
    assert ITEMS[TABLE[4]].claims[4].check({"readings": best}).status == NOT_REPRODUCED


def test_printed_budgets_keep_what_is_lost():
    assert privacy.printed_epsilons("fedavg", 1.0, "cifar10") == "11.28 (0.32) or 8.47 (0.67)"
    assert privacy.printed_epsilons("pfedsv", 2.0, "cifar100") == "1.8 (0.16)" and privacy.printed_epsilons("pfedsv", 0.0, "cifar10") == "∞"


def test_budgets_by_round_end_where_the_accounting_does(monkeypatch):
    """Ten clients of 120 samples: 60 to train on, 48 without validation, 3 steps of 16 an epoch."""
    monkeypatch.setattr(privacy, "PLOTTED", (4, 20))
    spec = OpenItem(ITEMS[TABLE[4]], "quick").specs[0]

    class Result:
        arrays = {"counts": np.full((10, 10), 12)}

    Result.spec = spec
    table = privacy.by_round([Result])
    own = table[table["setting"] == "this run: 16 of 48 records a step"].query("sigma == 2 and round == 4")["epsilon"].item()
    assert own == pytest.approx(accounting.epsilon(2.0, 1 / 3, 4 * spec.local_epochs * 3))
    release = table[table["setting"].str.startswith("one release")].query("sigma == 1 and round == 20")["epsilon"].item()
    assert release == pytest.approx(28.373, abs=2e-3)


# Figure 11 -------------------------------------------------------------------------------------------------------------


def attack_tables(none: dict, clipping: dict, level_1: float) -> dict:
    rows = [("none", 0.0, a, p) for a, p in none.items()] + [("clipping", 0.0, a, p) for a, p in clipping.items()]
    rows += [(f"σ = {s:g}", s, a, level_1) for s in (0.1, 1.0) for a in none]
    tidy = pd.DataFrame(rows, columns=["defence", "sigma", "attack", "psnr"])
    return {"tidy": tidy.assign(success=tidy["psnr"] >= 20), "levels": pd.DataFrame({"name": ["mean image"], "psnr": [12.0]})}


def test_claims_of_figure_11_follow_the_numbers():
    names = ["DLG", "iDLG", "cosine", "cosine, 4 local steps", "cosine, lenet5"]
    right = attack_tables(dict(zip(names, (40, 50, 24, 22, 14))), dict(zip(names, (5, 5, 24, 22, 14))), 6.0)
    assert statuses("pfedsv/fig11_inversion", right) == [REPRODUCED] * 6
    wrong = attack_tables(dict.fromkeys(names, 15), dict.fromkeys(names, 15), 21.0)
    assert statuses("pfedsv/fig11_inversion", wrong) == [NOT_REPRODUCED] * 6
    without = {**right, "tidy": right["tidy"].query("attack != 'DLG'")}
    assert ITEMS["pfedsv/fig11_inversion"].claims[3].check(without).status == NOT_TESTED


def first_attempt(**changes) -> inversion.Attempt:
    settings = {**ITEMS["pfedsv/fig11_inversion"].settings["smoke"], **changes}
    return next(a for a in inversion.attempts(settings) if a.case.name == "cosine")


def test_a_finished_attack_is_read_and_a_damaged_one_is_made_again(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDLIB_CACHE", str(tmp_path))
    attempt = first_attempt()
    rows, recovered, originals = attempt.outcome()
    made = []
    study = inversion.study
    monkeypatch.setattr(inversion, "study", lambda *a, **k: made.append(1) or study(*a, **k))
    again = attempt.outcome()
    assert not made and again[0].equals(rows) and np.array_equal(again[1], recovered) and np.array_equal(again[2], originals)
    attempt.path.write_bytes(attempt.path.read_bytes()[:40])
    repeated = attempt.outcome()
    assert made == [1] and np.array_equal(repeated[1], recovered) and len(list(tmp_path.rglob("*.npz"))) == 1
    assert first_attempt(adam_iterations=5).path != attempt.path != first_attempt(clip=2.0).path


def test_attacks_travel_to_processes_and_finished_ones_are_not_made_again(monkeypatch, tmp_path):
    """Processes are played by calls on pickled copies; outcomes are those made in turn."""
    class Pool:
        def __init__(self, count):
            used.append(count)

        def map(self, fn, jobs, done):
            for key, arguments in jobs.items():
                done(key, pickle.loads(pickle.dumps(fn))(*pickle.loads(pickle.dumps(arguments))))

        def stop(self):
            used.append("stopped")

    used, outcomes = [], []
    settings = {**ITEMS["pfedsv/fig11_inversion"].settings["smoke"], "adam_iterations": 2}
    few = [a for a in inversion.attempts(settings) if a.case.name in ("cosine", "iDLG")]
    monkeypatch.setattr(inversion, "WorkerProcesses", Pool)
    for workers in (1, 8):
        monkeypatch.setenv("FEDLIB_CACHE", str(tmp_path / str(workers)))
        inversion.attack_all(few, workers)
        outcomes.append([a.outcome() for a in few])
    assert used == [2, "stopped"]
    monkeypatch.setattr(inversion, "study", lambda *a, **k: pytest.fail("made again"))
    for (rows, recovered, _), (others, again, _) in zip(*outcomes):
        assert rows.equals(others) and np.array_equal(recovered, again)
    assert all(a.outcome()[0].equals(o[0]) for a, o in zip(few, outcomes[1]))


def test_attacked_images_and_their_scores(monkeypatch, tmp_path):
    """Pixels are the data set's; the rows' errors are those of the images that are kept; seeds attack other images."""
    monkeypatch.setenv("FEDLIB_CACHE", str(tmp_path))
    rows, recovered, originals = first_attempt().outcome()
    pixels = load("digits").images[torch.tensor(rows["image"].tolist())].float().div(255).numpy()
    np.testing.assert_allclose(originals, pixels, atol=1e-6)
    np.testing.assert_allclose(rows["mse"], ((recovered - originals) ** 2).mean((1, 2, 3)), atol=1e-6)
    parts = [inversion.attacked_images(1797, 6, seed) for seed in range(3)]
    assert len(set(np.concatenate(parts))) == 18 and len(inversion.attacked_images(4, 4, 9)) == 4


@pytest.mark.parametrize("channels", [1, 3])
def test_pixels_survive_their_table_and_are_drawn_where_they_belong(channels):
    """To the nearest of 256 levels; also where a pixel is out of range by rounding."""
    images = np.random.default_rng(0).random((2, channels, 4, 5))
    images[0, 0, 0, :2] = 1.0000001, -1e-7
    table = inversion.pixels([("a", images[:, :, ::-1]), ("b", images)])
    assert len(table) == 4 and list(table.columns) == ["row", "column", "channels", "pixels"]
    tidy = pd.DataFrame([dict(attack="cosine", defence=d, sigma=s, psnr=9.0, ssim=0.5, lpips=0.4, success=False) for d, s in (("none", 0.0), ("σ = 1", 1.0))])
    levels = pd.DataFrame({"name": ["mean image"], "psnr": [12.0]})
    read = pd.read_csv(io.StringIO(table.to_csv(index=False)))
    axes = [ax for ax in figures.inversion(tidy, read, levels).axes if ax.images]
    assert [ax.get_ylabel() for ax in axes] == ["a", "", "b", ""]
    for ax, image in zip(axes[2:], images):
        drawn = np.asarray(ax.images[0].get_array()).reshape(4, 5, channels).transpose(2, 0, 1)
        np.testing.assert_allclose(drawn / 255, image, atol=0.5 / 255 + 1e-6)


def test_a_study_is_shown_from_its_tables_where_nothing_may_be_computed(monkeypatch, tmp_path, capsys):
    """The same tables, figure, verdicts and origin; not with other settings; not before it was made; never made by looking."""
    monkeypatch.setenv("FEDLIB_CACHE", str(tmp_path / "cache"))
    item, few = ITEMS["pfedsv/fig11_inversion"], dict(root=tmp_path, adam_iterations=2)
    shown = OpenItem(item, "smoke", finished=True, **few)
    assert shown.missing == ["its study"] and not shown.can_be_shown
    with pytest.raises(FedlibError, match="its study was not made yet"):
        shown.compare()
    made = OpenItem(item, "smoke", **few)
    summary = made.save()
    summary["provenance"][0]["commit"] = "of the study"
    (tmp_path / "results" / made.place / "pfedsv" / "fig11_inversion.json").write_text(json.dumps(summary))
    monkeypatch.setattr(inversion, "study", lambda *a, **k: pytest.fail("made again"))
    monkeypatch.setenv("FEDLIB_CACHE", str(tmp_path / "other"))
    shown = OpenItem(item, "smoke", finished=True, **few)
    assert not shown.missing and shown.tables.keys() == made.tables.keys()
    for name, table in made.tables.items():
        pd.testing.assert_frame_equal(shown.tables[name], table, check_dtype=False, rtol=1e-5)
    assert [v.status for _, v in shown.verdicts()] == [v.status for _, v in made.verdicts()] == [NOT_TESTED] * 6  # smoke
    assert shown.save()["provenance"][0]["commit"] == "of the study" and (tmp_path / "figures" / made.place / "pfedsv").exists()
    assert OpenItem(item, "smoke", finished=True, root=tmp_path, adam_iterations=3).missing == ["its study"]
    (tmp_path / "results" / made.place / "pfedsv" / "fig11_inversion.levels.csv").unlink()
    assert OpenItem(item, "smoke", finished=True, **few).missing == ["its study"]
    monkeypatch.setenv("FEDLIB_HOME", str(tmp_path))
    assert at_paper_scale("pfedsv/fig11_inversion") is None
    assert capsys.readouterr().out == "the study at the paper's settings is not made yet\n"


def test_guesses_by_hand():
    settings = ITEMS["pfedsv/fig11_inversion"].settings["smoke"]
    images = load("digits").images.double() / 255
    where = torch.from_numpy(inversion.attacked_images(len(images), settings["images"], 0))
    errors = ((images[where] - images.mean(0)) ** 2).mean((1, 2, 3))
    found = inversion.guesses(settings).set_index("name")["psnr"]
    assert found["mean image"] == pytest.approx(float((-10 * errors.log10()).mean())) and found["uniform noise"] < found["mean image"]


def test_figures_of_accuracies_show_each_method_once():
    tables = accuracy_tables("1", printed_value("1"))
    figure = figures.accuracies_by_scale(tables["tidy"], paper_table("pfedsv", "1"), task.METHODS)
    assert [ax.get_title() for ax in figure.axes] == ["10 clients (paper: 10)", "10 clients (paper: 100)"]
    assert [t.get_text() for t in figure.axes[0].get_yticklabels()] == list(task.METHODS)
    dots = [len(container[0].get_xdata()) for container in figure.axes[0].containers]
    assert sorted(dots) == [6, 11, 11]  # five of the paper's cells cannot be read
