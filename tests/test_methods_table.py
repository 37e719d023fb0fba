"""The table of methods says what the code does."""

from __future__ import annotations

import re

import pytest
from helpers import call

from fedlib import algorithms
from fedlib.data import load
from fedlib.models import build
from fedlib.reports.methods_table import citation, methods_table


def test_what_travels_and_what_stays():
    """Closed forms of the methods' papers, with the sizes that the network itself counts."""
    data = load("digits")
    size = build("lenet5_bn", data.shape, 10).num_parameters
    table = methods_table(["fedper", "fedavg", "local", "fedbn", "fedproto", "pfedsv"]).set_index("method")
    body = f"{size['extractor'] / size['model']:.2f}"
    assert table.loc["fedavg", ["down", "up", "kept", "tested"]].tolist() == [
        "1.00 (model)",
        "1.00 (model)",
        "nothing",
        "glob",
    ]
    assert table.loc["fedper", ["down", "up", "kept"]].tolist() == [
        f"{body} (extractor)",
        f"{body} (extractor)",
        "head",
    ]
    assert table.loc["local", ["down", "up", "kept", "published"]].tolist() == ["nothing", "nothing", "model", ""]
    assert table.loc["fedbn", "up"].endswith("(model without batch norm)")
    assert table.loc["fedbn", "kept"] == "batch norm"
    assert table.loc["fedproto", "up"].endswith("(prototypes)") and float(table.loc["fedproto", "up"].split()[0]) < 0.05
    assert table.loc["pfedsv", "down"] == "5.00 (model)"  # all five others
    years = [int(place[-4:]) for place in table["published"] if place]
    assert years == sorted(years) and years[0] == 2017


@pytest.mark.parametrize("name", sorted(set(algorithms.names()) - {"local"}))
def test_every_file_begins_with_its_citation(name):
    place, title = citation(name)
    assert re.search(r"\b20\d\d$", place) and len(title) > 20


def test_the_command():
    result = call("list", "fedper", "fedavg")
    header, *rows = result.stdout.strip().splitlines()
    assert header.split() == ["method", "down", "up", "kept", "tested", "step", "published"]
    assert [row.split()[0] for row in rows] == ["fedavg", "fedper"]
    unknown = call("list", "fedpear")
    assert unknown.exit_code == 2 and "fedper" in unknown.stderr
