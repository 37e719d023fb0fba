"""How far accuracies lie from printed ones, on tables whose numbers are known, and columns that were not run."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pandas as pd
import pytest
from helpers import made_up
from scipy import stats

from fedlib.analysis.accuracies import folded
from fedlib.analysis.tables import spearman
from fedlib.base.provenance import provenance
from fedlib.engine.result import RunResult
from fedlib.experiments import OpenItem, find
from fedlib.experiments.item import per_profile
from fedlib.reports import distances

PROJECT = Path(__file__).parent.parent
TABLE = find("pfedsim/table3_accuracy").table
PRINTED = {  # of pFedSim's Table 3, CIFAR-10: Dir(0.1), Dir(0.5)
    column: TABLE.printed({**find("pfedsim/table3_accuracy").settings["paper"]})
    .query("column == @column").set_index("row")["value"].to_dict()
    for column in ("Dir(0.1)", "Dir(0.5)")
}  # fmt: skip
CHOSEN = ("local", "fedavg", "fedper", "pfedsim")


@pytest.fixture
def opened(tmp_path):
    """Four methods at the paper's settings, one seed, in an empty store."""

    def of(**settings) -> OpenItem:
        item = find("pfedsim/table3_accuracy")
        small = per_profile(item.settings) | {"paper": {**item.settings["paper"], "methods": CHOSEN, "seeds": 1}}
        small["paper"] |= settings
        return OpenItem(dataclasses.replace(item, settings=small), "paper", root=tmp_path)

    return of


def put(item: OpenItem, accuracy) -> None:
    """Store what `accuracy` says, by row, column and seed, in percent: "diverged", or None for no run."""
    for key, spec in item.runs.items():
        found = accuracy(*key)
        if found == "diverged":
            item.store.put(RunResult(spec, "diverged", error="it did", provenance=provenance_of()))
        elif found is not None:
            point = "glob" if spec.method == "fedavg" else "post"
            made = made_up(spec, {point: found / 100})
            item.store.put(dataclasses.replace(made, provenance=provenance_of()))


def provenance_of() -> dict:
    import torch

    return provenance(torch.device("cpu"), "serial")


def test_distances_by_hand(opened):
    """Two points above the paper in one column and four below in the other: median 3, mean -1, the same order."""
    item = opened()
    put(item, lambda row, column, seed: PRINTED[column][row] + {"Dir(0.1)": 2, "Dir(0.5)": -4}[column])
    found = distances.line(item)
    assert (found["reported"], found["ours"], found["distance"], found["mean"]) == ("96", "8", "3.0", "-1.0")
    assert found["ranks, all"] == found["ranks, personalised"] == "1.00 (1.00 to 1.00)"
    assert (found["runs"], found["diverged"]) == ("8 of 8", "0")
    assert (
        found["not run"] == "CINIC-10, Tiny-ImageNet, EMNIST"
        and found["smaller than in the paper"] == "data sets not run"
    )


def test_order_of_the_personalised_methods_and_of_all(opened):
    """Printed: local < fedavg < fedper < pfedsim, or so; ours has FedPer and pFedSim exchanged in one column."""
    item = opened()
    order = {column: sorted(CHOSEN, key=lambda row: PRINTED[column][row]) for column in PRINTED}
    exchanged = {"fedper": "pfedsim", "pfedsim": "fedper"}
    put(
        item,
        lambda row, column, seed: 50 + order[column].index(row if column[4:7] == "0.1" else exchanged.get(row, row)),
    )
    places = [abs(order["Dir(0.5)"].index(a) - order["Dir(0.5)"].index(b)) for a, b in exchanged.items()]
    rho = 1 - 6 * sum(d**2 for d in places) / (4 * 15)
    assert distances.line(item)["ranks, all"] == f"{(1 + rho) / 2:.2f} ({rho:.2f} to 1.00)"
    own = [row for row in order["Dir(0.5)"] if row != "fedavg"]
    among = 1 - 6 * 2 * (own.index("fedper") - own.index("pfedsim")) ** 2 / (3 * 8)
    assert distances.line(item)["ranks, personalised"] == f"{(1 + among) / 2:.2f} ({among:.2f} to 1.00)"


def test_a_run_that_diverged_is_a_loss_and_is_counted(opened):
    """pFedSim, printed first, diverges in one column: last there, and one cell less."""
    item = opened()
    gone = ("pfedsim", "Dir(0.1)", 0)
    put(item, lambda *key: "diverged" if key == gone else PRINTED[key[1]][key[0]])
    found = distances.line(item)
    assert max(PRINTED["Dir(0.1)"][row] for row in CHOSEN) == PRINTED["Dir(0.1)"]["pfedsim"]
    rho = 1 - 6 * (3**2 + 3 * 1**2) / (4 * 15)  # from the first place to the last, the three others one up
    assert found["ranks, all"] == f"{(1 + rho) / 2:.2f} ({rho:.2f} to 1.00)"
    assert (found["ours"], found["distance"], found["runs"], found["diverged"]) == ("7", "0.0", "7 of 8", "1")
    assert item.compare().set_index("method").loc["pfedsim"].tolist().count("diverged") == 1 and not item.not_run


def test_a_servers_model_that_diverged_is_not_among_the_personalised_ones(opened):
    """FedAvg diverges everywhere: as the last of all it would change their ranks, and it is none of them."""
    item = opened()
    put(item, lambda row, column, seed: "diverged" if row == "fedavg" else 100 - PRINTED[column][row])
    assert distances.line(item)["ranks, personalised"] == "-1.00 (-1.00 to -1.00)"


def test_one_seed_of_two_that_diverged_counts_half_in_the_ranks_and_not_in_the_distance(opened):
    item = opened(seeds=2)
    put(item, lambda row, column, seed: "diverged" if (row, seed) == ("pfedsim", 1) else PRINTED[column][row])
    found = distances.line(item)
    assert (found["ours"], found["distance"], found["runs"], found["diverged"]) == ("8", "0.0", "14 of 16", "2")
    half = {c: [(0.5 if row == "pfedsim" else 1) * own[row] for row in CHOSEN] for c, own in PRINTED.items()}
    rhos = sorted(spearman(half[c], [PRINTED[c][row] for row in CHOSEN]) for c in PRINTED)
    assert rhos[1] < 1 and found["ranks, all"] == f"{sum(rhos) / 2:.2f} ({rhos[0]:.2f} to {rhos[1]:.2f})"


def test_nothing_stored_and_other_data(opened):
    found = distances.line(opened())
    assert (found["runs"], found["ours"], found["distance"], found["ranks, all"]) == ("not run (0 of 8)", "0", "", "")
    assert found["core-hours"] == "3.3"
    other = opened(dataset="digits", num_clients=20, min_size=10, join_ratio=0.5)
    put(other, lambda row, column, seed: 50)
    found = distances.line(other)
    assert (found["runs"], found["ours"], found["distance"]) == ("8 of 8", "0 (digits, not CIFAR-10)", "")


# columns that were not run --------------------------------------------------------------------------------------------


def test_columns_that_were_not_run_are_one_row(opened):
    """The other column has no run; of the first one each has diverged, which is not the same."""
    item = opened()
    put(item, lambda row, column, seed: {"Dir(0.1)": 50 if row == "local" else "diverged"}.get(column))
    item.finished = True
    table = item.compare()
    assert item.not_run == {"Dir(0.5)": "cifar10"}
    assert table["method"].tolist() == [*CHOSEN, "not run: Dir(0.5) (cifar10)"]
    assert not [name for name in table if "0.5" in name] and (table["Dir(0.1): difference"].iloc[1:] == "").all()
    assert table.filter(like="ours").iloc[1:4, 0].tolist() == ["diverged"] * 3


def test_a_method_all_of_whose_runs_diverged_keeps_its_row(opened):
    item = opened()
    put(item, lambda row, column, seed: "diverged" if row == "fedper" else 50)
    line = item.compare().set_index("method").loc["fedper"]
    assert line["evaluated at"] == "" and line.filter(like="ours").tolist() == ["diverged", "diverged"]


def test_names_of_columns_by_data_set():
    table = pd.DataFrame({"method": ["a"], "evaluated at": ["post"], "x: ours, p": ["1"], "x, 2: ours, p": ["2"]})
    assert folded(table, {}) is table
    less = folded(table, {"x": "emnist", "y": "emnist", "z": "femnist"})
    assert less["method"].tolist() == ["a", "not run: x (emnist); y (emnist); z (femnist)"]
    assert list(less) == ["method", "evaluated at", "x, 2: ours, p"]


def test_the_committed_page_is_what_the_runs_say(monkeypatch):
    monkeypatch.setenv("FEDLIB_HOME", str(PROJECT))
    page = (PROJECT / "results" / "distances.md").read_text()
    assert distances.page() == page, "run `fedlib report --scoreboard`"


def test_what_the_page_on_fedsimsup_says_without_decimals():
    """Distances from the reported accuracies in whole points, and a plain t interval that includes 0."""
    folder = PROJECT / "results/reduced/fedsimsup"
    table = pd.read_csv(folder / "table1_dirichlet.compare.csv").set_index("method")
    table = table.filter(regex="cifar10,.*difference")
    assert (table.loc["local"].abs() < 2).all() and table.shape[1] == 4
    strong = table.filter(regex="0.5").mean(axis=1)
    assert strong[["fedrep", "fedsimsup", "fedpac"]].round().tolist() == [-10, -6, 6]
    means = 100 * pd.read_csv(folder / "fig3_similarity.csv").groupby(["column", "row", "seed"])["accuracy"].mean()
    gain = (means["Dir(0.5)", "label cosines"] - means["Dir(0.5)", "uniform weights"]).to_numpy()
    low, high = stats.ttest_1samp(gain, 0).confidence_interval()
    assert len(gain) == 3 and low < 0 < high


def test_what_the_page_on_table_2_says_without_decimals():
    folder = PROJECT / "results/reduced/fedsimsup"
    table = pd.read_csv(folder / "table2_pathological.compare.csv").set_index("method")
    gap = table["cifar10, 2 classes, 100: difference"].dropna()
    assert abs(gap["fedsimsup"]) < 1 and (gap[["fedrep", "fedpac"]].abs() < 2).all() and round(gap["local"]) == -2
    post = pd.read_csv(folder / "table2_pathological.points.csv").query("point == 'post'").set_index("method")
    assert len(post) == len(gap) == 4 and post["cifar10, 2 classes, 100"].idxmax() == "fedpac"
