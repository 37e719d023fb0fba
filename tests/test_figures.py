"""What figures share: names and colours of methods."""

from __future__ import annotations

import importlib
import io
from collections import Counter
from pkgutil import iter_modules

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from fedlib import algorithms, figures
from fedlib.analysis.names import proper, proper_name, titled
from fedlib.figures import lessons
from fedlib.figures.accuracy import leaders
from fedlib.figures.base import APART, COLUMN, HOME, SHARP, axes_of, headline, looks, png

METHODS = [name for name in algorithms.names() if name != "pfedsv_known"]  # which asks a question about pFedSV


@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_a_name_of_its_own_and_a_colour(method):
    """Names are those of the papers: with capitals, and without underscores."""
    name = proper_name(method)
    assert name != method and "_" not in name and name.lower().replace("-", "").replace("+", "_") == method
    assert sum(method in methods for methods in HOME) == 1


def test_rows_that_are_no_methods_keep_their_names():
    assert proper("pfedsim, rho = 0") == "pFedSim, rho = 0" and proper("fedavg") == "FedAvg"
    for row in ("K-means", "oracle", "with the cap", "../secret", ""):
        assert proper(row) == row


@pytest.mark.parametrize(("internal", "written"), [
    ("pfedsv_dp, client", "pFedSV, client-level DP"), ("fixed_threshold", "fixed threshold"),
    ("kmeans", "k-means"), ("cosine, mcmahan_cnn", "cosine, McMahan's CNN"),
])  # fmt: skip
def test_internal_names_are_written_for_readers(internal, written):
    assert (
        proper(internal) == written
        and titled("cifar10, few") == "CIFAR-10, 10 clients"
        and titled("few") == "few clients"
    )
    assert titled("cifar10, 2 classes, 100", "digits") == "digits for 'CIFAR-10, 2 classes, 100 clients'"


def test_a_method_has_its_colour_in_the_lessons_curves_too():
    table = pd.DataFrame(np.random.rand(5, 4), columns=["oracle", "IFCA, k = 2", "FedPer", "IFCA, k = 3"])
    lines = {line.get_label(): line for line in lessons.curves({"accuracy": table}).axes[0].lines}
    assert lines["IFCA, k = 2"].get_color() == lines["IFCA, k = 3"].get_color() == looks(["ifca"])["ifca"][0]
    assert len({lines[name].get_color() for name in ("oracle", "FedPer", "IFCA, k = 2")}) == 3


def test_a_method_looks_the_same_in_every_figure_and_no_two_rows_look_alike():
    few, many = looks(["pfedsim", "local"]), looks([*METHODS, "pfedsim, rho = 0", "an oracle"])
    assert few["pfedsim"][0] == many["pfedsim"][0] == many["pfedsim, rho = 0"][0] != few["local"][0]
    assert len(set(many.values())) == len(many)
    free = looks(["fedavg", "one thing", "another"])
    assert len({colour for colour, _ in free.values()}) == 3 and {colour for colour, _ in free.values()} <= set(APART)


def test_a_figure_is_found_by_its_name_so_no_two_have_the_same():
    found = Counter(
        name
        for file in iter_modules(figures.__path__)
        for name, value in vars(importlib.import_module(f"{figures.__name__}.{file.name}")).items()
        if callable(value) and not name.startswith("_") and value.__module__ == f"{figures.__name__}.{file.name}"
    )
    assert [name for name, count in found.items() if count > 1] == [] and len(found) > 40


def test_the_title_counts_settings_in_which_the_method_was_run():
    def cells(series, **by_column):
        return pd.DataFrame(
            [(series, column, row, mean) for column, rows in by_column.items() for row, mean in rows.items()],
            columns=["series", "column", "row", "mean"],
        ).assign(low=np.nan, high=np.nan)

    ours = cells(
        "ours", a={"pfedsim": 80, "fedper": 70}, b={"pfedsim": 60, "fedper": 70}, c={"fedper": 50, "local": 40}
    )
    paper = cells(
        "paper", a={"pfedsim": 80, "fedper": 70}, b={"pfedsim": 71, "fedper": 70}, c={"pfedsim": 9, "local": 1}
    )
    said = figures.accuracies(pd.concat([ours, paper]), "pfedsim").get_suptitle()
    expected = "pFedSim has the highest mean accuracy in 1 of 2 settings (paper: 2 of 2), FedPer in 1"
    assert said.replace("\n", " ") == expected
    assert leaders(ours[ours["column"] == "c"]) == "Highest mean accuracy: FedPer"
    assert leaders(ours[ours["row"] == "local"]) == "No two rows to compare were run yet"


def test_a_picture_in_a_notebook_has_two_pixels_for_one_of_the_page_on_white():
    figure, ((ax,),) = axes_of(2.0, width=COLUMN)
    ax.plot([0, 1], [0, 1])
    picture = Image.open(io.BytesIO(png(figure)))
    assert picture.size == (round(COLUMN * SHARP), 2 * SHARP) and picture.convert("RGB").getpixel((2, 2)) == (255,) * 3
    assert headline(figure, "word " * 30).get_suptitle().count("\n") == 2


@pytest.mark.parametrize(
    ("best", "said"),
    [((1, 1), "pFedSV, client-level DP throughout"), ((1, 3), "pFedSV, client-level DP at 10, FedPer at 20")],
)
def test_who_is_most_accurate_has_its_whole_name(best, said):
    rows = [("pfedsv, client-level DP", n, 2.0) for n in (10, 20)] + [("fedper", n, b) for n, b in zip((10, 20), best)]
    cells = pd.DataFrame(rows, columns=["row", "clients", "mean"]).assign(low=0.0, high=4.0)
    title = figures.by_number_of_clients(cells).get_suptitle()
    assert " ".join(title.split()) == f"Most accurate: {said}"
