"""Data from anywhere: arrays, tables of features, data sets in Hugging Face's form, partitions as client numbers."""

from __future__ import annotations

import os
import shutil
import sys

import numpy as np
import pytest
import torch
from helpers import exact, tiny
from sklearn.datasets import load_breast_cancer
from typer.testing import CliRunner

from fedlib import Dataset, cli
from fedlib.base.errors import BadValue, DataError, InfeasiblePartition
from fedlib.data import arrays, load, make_partition
from fedlib.data.datasets import copies
from fedlib.data.facts import known_class_sizes, shape_and_classes
from fedlib.engine.setup import set_up
from fedlib.engine.simulate import simulate
from fedlib.engine.worker_processes import WorkerProcesses
from fedlib.models import build, sizes
from fedlib.spec import RunSpec

try:
    import datasets as hub
except ImportError:
    hub = None
needs_hub = pytest.mark.skipif(
    hub is None, reason="THE LIBRARY datasets IS NOT INSTALLED: hf: was NOT tested; pip install 'fedlib[hf]'"
)
RNG = np.random.default_rng(0)
X, Y = RNG.normal(5, 2, (60, 8, 7)), np.arange(60) % 3


@pytest.fixture(autouse=True)
def own_folders(tmp_path, monkeypatch):
    for name in ("HOME", "CACHE", "DATA"):
        monkeypatch.setenv(f"FEDLIB_{name}", str(tmp_path / name.lower()))
    monkeypatch.setattr(arrays, "NAMES", {})
    monkeypatch.chdir(tmp_path)


def call(*args):
    return CliRunner().invoke(cli.app, [str(a) for a in args])


# arrays ---------------------------------------------------------------------------------------------------------------


def test_bytes_stay_bytes():
    pixels = RNG.integers(0, 256, (60, 8, 7, 3), dtype=np.uint8)
    data = Dataset.from_arrays(pixels, Y, np.repeat(["Bob", "Ann"], 30), name="pictures", classes="abc", is_test=Y == 2)
    assert data.images.dtype == torch.uint8 and data.shape == (3, 8, 7)
    assert np.array_equal(data.images.permute(0, 2, 3, 1), pixels) and data.labels.tolist() == Y.tolist()
    assert data.classes == ("a", "b", "c") and data.is_test.tolist() == (Y == 2).tolist()
    assert data.group_names == ("Ann", "Bob") and data.groups.tolist() == [1] * 30 + [0] * 30
    first = Dataset.from_arrays(np.moveaxis(pixels, 3, 1), Y, name="first")
    assert torch.equal(first.images, data.images)
    assert torch.equal(Dataset.from_arrays(data.images, data.labels, name="tensors").images, data.images)


def test_other_numbers_are_standardised_as_they_are():
    data = Dataset.from_arrays(X, Y, name="floats")
    assert data.images.dtype == torch.float32 and data.shape == (1, 8, 7) and not data.is_table
    mean, std = (float(value) for value in data.channel_stats)
    stored = X.astype(np.float32).astype(float)
    assert mean == pytest.approx(stored.mean()) and std == pytest.approx(stored.std())
    run = set_up(tiny("fedavg", dataset="floats", model="mlp"))
    batch = run.work.source.batch(torch.arange(5))
    torch.testing.assert_close(batch.x[:, 0].double(), torch.from_numpy((X[:5] - mean) / std), rtol=1e-5, atol=1e-5)
    assert torch.equal(run.work.source.images, load("floats").images)  # the batch was made from a copy


def test_constant_features_are_no_noise():
    table = np.column_stack([np.full(60, 3.3), np.arange(60.0), np.full(60, 1e-3)])
    data = Dataset.from_arrays(table, Y, name="table")
    assert data.is_table and data.shape == (3, 1, 1)
    assert data.channel_stats[1].flatten().tolist() == pytest.approx([1.0, np.arange(60.0).std(), 1.0])


def test_a_table_of_features_is_trained_on_in_every_way():
    """Scikit-learn's 569 tumours of 30 features: better than always the larger class (63 %), the same in all backends,
    and compiled."""
    raw = load_breast_cancer()
    Dataset.from_arrays(raw.data, raw.target, name="tumours", classes=raw.target_names)
    assert shape_and_classes("tumours") == ((30, 1, 1), 2) and known_class_sizes("tumours") == [212, 357]
    spec = tiny("fedavg", dataset="tumours", model="mlp", partition={"alpha": 1.0, "min_size": 20}, join_ratio=1.0,
                precision="float64", test_fraction=0.5)  # fmt: skip
    serial, stacked, processes = (simulate(spec, backend=b, workers=1) for b in ("serial", "vmap", "process"))
    assert serial.final() > 0.8 and exact(processes) == exact(serial)
    assert stacked.final("loss") == pytest.approx(serial.final("loss"), abs=1e-9)
    single = spec.but(precision="float32")
    plain, fused = (simulate(single, backend="serial", step=step).final("loss") for step in ("torch", "auto"))
    assert fused == pytest.approx(plain, abs=1e-4)


def test_the_name_stands_for_the_content():
    """Other numbers, labels, owners or names of classes are another data set, and another run."""
    names = [
        Dataset.from_arrays(x, y, groups, name="own", classes=classes).name
        for x, y, groups, classes in (
            (X, Y, None, None),
            (X + 1, Y, None, None),
            (X, 2 - Y, None, None),
            (X, Y, Y, None),
            (X, Y, None, "abc"),
        )
    ]
    specs = [tiny("fedavg", dataset=name) for name in names]
    assert len(set(names)) == len({spec.id for spec in specs}) == 5
    assert Dataset.from_arrays(X, Y, name="own").name == names[0] == RunSpec("fedavg", dataset="own").dataset
    assert RunSpec.from_dict(specs[0].to_dict()).id == specs[0].id
    assert names[0].startswith("arrays:own@") and torch.equal(load(names[1]).labels, load("own").labels)


def test_another_process_finds_it():
    data = Dataset.from_arrays(X, Y, name="own")
    workers = WorkerProcesses(1)
    (found,) = workers.map(load, {0: (data.name,)}).values()
    workers.stop()
    assert found.sha256 == data.sha256 and found.place == data.place


def test_a_copy_that_was_removed_is_missed_and_made_again():
    name = Dataset.from_arrays(X, Y, name="own").name
    shutil.rmtree(copies("arrays"))
    with pytest.raises(DataError, match="call Dataset.from_arrays with the same arrays again"):
        load(name)
    assert Dataset.from_arrays(X, Y, name="own").name == name and len(load(name).labels) == 60


def with_value(array, value, place):
    array = array.copy()
    array[place] = value
    return array


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"x": X[:50]}, r"y = 'int64\[60\]' is not accepted; expected labels \[50\], one for each sample of x"),
        ({"y": Y / 2}, r"y = 'float64\[60\] with 0.5' is not accepted; expected integers from 0"),
        ({"y": Y.astype(str)}, "integers from 0"),
        ({"y": -Y}, "y = -2 is not accepted; expected labels from 0"),
        ({"y": Y + 100}, "y = 102 is not accepted; expected labels from 0, fewer than the 60 samples; or give classes"),
        ({"classes": ["a", "b"]}, "y = 2 is not accepted; expected labels from 0 to 1, for the 2 classes"),
        ({"x": with_value(X, np.nan, (7, 1, 2))}, r"x\[7, 1, 2\] = nan is not accepted; expected finite numbers"),
        ({"x": with_value(X, 1e300, (3, 0, 0))}, r"x\[3, 0, 0\] = 1e\+300 is not accepted"),
        ({"x": np.array(["a"] * 60)}, "expected an array of numbers"),
        ({"x": np.zeros(60)}, r"x = 'float64\[60\]' is not accepted; expected features \[n, d\], or images"),
        ({"x": np.zeros((60, 4, 9, 3))}, "channels='first' or channels='last'"),
        ({"channels": "middle"}, "channels = 'middle'"),
        ({"groups": np.ones(59, int)}, r"groups = 'int64\[59\]' is not accepted; expected numbers or names \[60\]"),
        ({"groups": np.ones(60)}, r"groups = 'float64\[60\]'"),
        ({"is_test": Y}, r"is_test = 'int64\[60\]' is not accepted; expected bool \[60\]"),
        ({"name": "digits"}, "name = 'digits' is not accepted; expected a name that is free; taken are digits, "),
        ({"name": "a/b"}, "name = 'a/b' is not accepted; expected letters"),
    ],
)
def test_arrays_that_do_not_fit(changes, said):
    with pytest.raises(BadValue, match=said) as error:
        Dataset.from_arrays(**{"x": X, "y": Y, "name": "own", **changes})
    assert "\n" not in str(error.value) and not arrays.NAMES


def test_what_a_table_cannot_do_is_said():
    Dataset.from_arrays(X.reshape(60, -1), Y, name="table")
    with pytest.raises(BadValue, match="too small for lenet5_bn.*; a table of features takes model=mlp"):
        simulate(tiny("fedavg", dataset="table"))
    with pytest.raises(BadValue, match="pixels = 'reference' is not accepted; expected standardised"):
        simulate(tiny("fedavg", dataset="table", model="mlp", pixels="reference"))
    with pytest.raises(BadValue, match="expected arrays:NAME@HASH"):
        load("arrays:table")
    shown = call("data", load("table").name)
    assert "60 samples of 56 features, 3 classes" in shown.stdout


def test_mlp():
    """30 * 4 + 4 in the first layer, 4 * 4 + 4 in the second, 4 * 2 + 2 in the classifier."""
    assert sizes("mlp", (30, 1, 1), 2, hidden=4, depth=2)["model"] == 124 + 20 + 10
    assert sizes("mlp", (30, 1, 1), 2)["model"] == 3_302
    model = build("mlp", (1, 4, 4), 3, hidden=5)
    assert model.features(model.theta0, torch.zeros(2, 1, 4, 4)).shape == (2, 5)
    for option in ("hidden", "depth"):
        with pytest.raises(BadValue, match=f"{option} = 0"):
            build("mlp", (1, 4, 4), 3, **{option: 0})


# client numbers -------------------------------------------------------------------------------------------------------


LABELS = np.arange(12) % 3
OWNERS = np.array([2, 0, 1, 0, -1, 1, 2, 2, 0, 1, 1, 0])


def test_owners_from_an_array_a_csv_and_an_npy_file(tmp_path):
    np.save(tmp_path / "owners.npy", OWNERS.astype(np.int16))
    (tmp_path / "owners.csv").write_text("client\n" + "\n".join(map(str, OWNERS)) + "\n")
    for owners in (OWNERS, OWNERS.tolist(), "owners.csv", "owners.npy", str(tmp_path / "owners.npy")):
        partition = make_partition(LABELS, 3, "owners", 0, owners=owners)
        assert [own.tolist() for own in partition.clients] == [[1, 3, 8, 11], [2, 5, 9, 10], [0, 6, 7]]


def test_owners_are_in_the_identity_of_a_run(tmp_path):
    spec = tiny("fedavg", scheme="owners", partition={"owners": np.arange(1797) % 4})
    assert len(spec.partition["checksum"]) == 16 and spec.from_dict(spec.to_dict()).id == spec.id
    assert simulate(spec).partition["checksum"] == spec.divide(load("digits"))[0].checksum
    np.savetxt(tmp_path / "own.csv", np.arange(1797) % 4, fmt="%d")
    written = tiny("fedavg", scheme="owners", partition={"owners": "own.csv"})
    assert written.partition["checksum"] == spec.partition["checksum"]
    np.savetxt(tmp_path / "own.csv", np.arange(1797) % 3, fmt="%d")
    assert tiny("fedavg", scheme="owners", partition={"owners": "own.csv"}).id != written.id
    with pytest.raises(BadValue, match="owners = 'own.csv' is not what it was: checksum"):
        written.but(seed=1)


@pytest.mark.parametrize(
    ("owners", "clients", "said"),
    [
        (None, 3, "owners = None is not accepted; expected a CSV or NPY file, or an array"),
        (OWNERS[:11], 3, "12 client numbers, one for each sample; it has 11"),
        (OWNERS, 4, "num_clients = 4 is not accepted; expected 3, the clients of"),
        (np.where(OWNERS == 1, 0, OWNERS), 3, "client 1 of .* has no samples; number the clients anew"),
        (OWNERS / 2, 3, r"owners = 'an array of float64\[12\]' is not accepted; expected integers \[n\]"),
        (OWNERS - 1, 3, "owners = 'an array with -2' is not accepted"),
        ("none.csv", 3, "owners = 'none.csv' is not accepted; expected a file that is there"),
        ("owners.txt", 3, "expected a file that ends in .csv or .npy"),
        ("bad.csv", 3, "line 3 of owners = 'bad.csv' is 'two'; expected one client number a line"),
        ("bad.npy", 3, "owners = 'bad.npy' cannot be read"),
        ("objects.npy", 3, "owners = 'objects.npy' cannot be read: Object arrays cannot be loaded"),
    ],
)
def test_owners_that_do_not_fit(tmp_path, owners, clients, said):
    (tmp_path / "bad.csv").write_text("client\n1\ntwo\n")
    (tmp_path / "bad.npy").write_bytes(b"no array")
    np.save(tmp_path / "objects.npy", np.array([{}] * 12), allow_pickle=True)
    with pytest.raises((BadValue, InfeasiblePartition), match=said) as error:
        make_partition(LABELS, clients, "owners", 0, owners=owners)
    assert "\n" not in str(error.value)


def test_owners_on_the_command_line(tmp_path):
    np.savetxt(tmp_path / "own.csv", np.arange(1797) % 4, fmt="%d")
    options = ("--set", "scheme=owners", "--set", 'partition={"owners": "own.csv"}', "--rounds", 1)
    done = call("run", "local", "--clients", 4, *options)
    assert done.exit_code == 0 and "round    1:" in done.stdout, done.output
    wrong = call("run", "local", *options)
    assert (
        wrong.exit_code == 2 and "num_clients = 20 is not accepted; expected 4, the clients of own.csv" in wrong.output
    )


# Hugging Face's form --------------------------------------------------------------------------------------------------


@pytest.fixture
def tables(tmp_path):
    """What the library itself wrote: pictures by five writers in two splits, and a table of numbers."""
    from PIL import Image

    pictures = [Image.fromarray(pixels) for pixels in RNG.integers(0, 256, (30, 12, 12), dtype=np.uint8)]
    columns = {
        "image": pictures,
        "character": np.arange(30) % 3,
        "writer_id": [f"w{k % 5}" for k in range(30)],
    }
    kinds = hub.Features(
        image=hub.Image(), character=hub.ClassLabel(names=["a", "b", "c"]), writer_id=hub.Value("string")
    )
    whole = hub.Dataset.from_dict(columns, kinds)
    parts = {"train": whole.select(range(20)), "test": whole.select(range(20, 30))}
    hub.DatasetDict(parts).save_to_disk(str(tmp_path / "letters"))
    (tmp_path / "table").mkdir()
    numbers = {"a": [1.0, 2.0] * 10, "b": [3, 4] * 10, "kind": ["x", "y"] * 10, "site": [7] * 10 + [9] * 10}
    hub.Dataset.from_dict(numbers).to_parquet(str(tmp_path / "table/train.parquet"))
    return pictures


@needs_hub
def test_pictures_by_writer(tables):
    data = load("hf:letters?groups=writer_id")
    assert (
        data.shape == (1, 12, 12)
        and data.classes == ("a", "b", "c")
        and data.is_test.tolist() == [False] * 20 + [True] * 10
    )
    assert all(np.array_equal(data.images[k, 0], tables[k]) for k in range(30))
    assert data.group_names == ("w0", "w1", "w2", "w3", "w4") and data.groups.tolist() == [k % 5 for k in range(30)]
    spec = tiny(
        "local", dataset="hf:letters?groups=writer_id", model="mlp", scheme="writer", num_clients=5, partition={}
    )
    assert [len(own) for own in spec.divide(data)[0].clients] == [6] * 5 and simulate(spec).final("loss") > 0
    assert load("hf:letters?size=16").shape == (1, 16, 16)
    assert os.listdir(copies("hub")) and load("hf:letters?groups=writer_id").place == data.place


@needs_hub
def test_numbers_of_a_parquet_file(tables, tmp_path, monkeypatch):
    monkeypatch.setattr(hub.config, "HF_DATASETS_CACHE", str(tmp_path / "hf"))
    data = load("hf:table?y=kind&groups=site")
    assert data.is_table and data.images[:2].flatten().tolist() == [1, 3, 2, 4] and data.classes == ("x", "y")
    assert data.group_names == ("7", "9") and data.labels.tolist() == [0, 1] * 10
    assert load("hf:table?y=kind&x=b").shape == (1, 1, 1)


@needs_hub
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("hf:", "expected hf:NAME"),
        ("hf:letters?grups=writer_id", "unknown setting of hf:letters 'grups'; did you mean groups"),
        ("hf:letters?groups=writer", "unknown column of .* 'writer'; did you mean writer_id"),
        ("hf:letters?size=3", "size = '3' is not accepted; expected 8 to 1024 pixels"),
        (
            "hf:letters?x=image,character",
            "expected .x= with one column of images or columns of numbers, of image, char",
        ),
        ("hf:table", "does not say which column is the label; add .y=COLUMN with one of a, b, kind, site"),
        ("hf:no/such", "dataset 'hf:no/such' is not here, and FEDLIB_OFFLINE is set"),
    ],
)
def test_data_sets_of_the_hub_that_cannot_be_used(tables, name, said, tmp_path, monkeypatch):
    monkeypatch.setattr(hub.config, "HF_DATASETS_CACHE", str(tmp_path / "hf"))
    with pytest.raises((BadValue, DataError), match=said) as error:
        load(name)
    assert "\n" not in str(error.value)


def test_without_the_library_it_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "datasets", None)
    shown = call("data", "hf:flwrlabs/femnist?y=character&groups=writer_id")
    assert (
        shown.exit_code == 2 and "needs the library datasets (the extra 'hf'): pip install 'fedlib[hf]'" in shown.output
    )
