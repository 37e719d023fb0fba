"""Data from anywhere: arrays, tables of features, data sets in Hugging Face's form, partitions as client numbers."""

from __future__ import annotations

import os
import shutil
import sys
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
import torch
from helpers import call, exact, tiny
from PIL import Image
from sklearn.datasets import load_breast_cancer

from fedlib import Dataset
from fedlib.base.errors import BadValue, DataError, InfeasiblePartition
from fedlib.data import load, make_partition, own
from fedlib.data.datasets import copies, known_class_sizes, shape_and_classes
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
    monkeypatch.setattr(own, "NAMES", {})
    monkeypatch.chdir(tmp_path)


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


@pytest.mark.parametrize("is_test", [None, Y == 2])
def test_other_numbers_are_standardised_as_they_are(is_test):
    """Without the official test part, if there is one."""
    data = Dataset.from_arrays(X, Y, name="floats", is_test=is_test)
    assert data.images.dtype == torch.float32 and data.shape == (1, 8, 7) and not data.is_table
    stored = X.astype(np.float32).astype(float)[~data.is_test]
    mean, std = (float(value) for value in data.channel_stats)
    assert (mean, std) == pytest.approx((stored.mean(), stored.std()))
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
    given = ((X, Y, None, None), (X + 1, Y, None, None), (X, 2 - Y, None, None), (X, Y, Y, None), (X, Y, None, "abc"))
    names = [Dataset.from_arrays(*arrays, name="own", classes=classes).name for *arrays, classes in given]
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


def test_a_byte_order_mark_in_the_prepared_form():
    data = Dataset.from_arrays(X, Y, name="own")
    about = data.place / "meta.json"
    about.write_text(about.read_text(encoding="utf-8"), encoding="utf-8-sig")
    assert load(data.name).classes == ("0", "1", "2")


def with_value(array, value, place):
    array = array.copy()
    array[place] = value
    return array


REFUSED = "is not accepted; expected"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"x": X[:50]}, rf"y = 'int64\[60\]' {REFUSED} numbers or names \[50\], one for each sample of x"),
        ({"y": Y / 2}, f"y = 0.5 {REFUSED} integers from 0, or names"),
        ({"y": [Decimal("0.5")] * 60}, rf"y = Decimal\('0.5'\) {REFUSED}"),
        ({"y": -Y}, f"y = -2 {REFUSED} integers from 0, or names"),
        ({"y": np.arange(60)}, f"y = '60 different values in 60 samples' {REFUSED} labels; or give classes"),
        ({"y": Y[:, None]}, rf"y = 'int64\[60, 1\]' {REFUSED} numbers or names \[60\]"),
        ({"y": [[1], [2, 3]] * 30}, rf"y = \[1\] {REFUSED} one number or name a sample"),
        ({"y": [object(), object()] * 30}, f"y = '<object object at .*' {REFUSED} one number or name"),
        ({"y": Y.astype(str), "classes": "abc"}, f"y = '0' {REFUSED} labels from 0 to 2, for the 3 classes, or"),
        ({"classes": ["a", "b"]}, f"y = 2 {REFUSED} labels from 0 to 1, for the 2 classes"),
        ({"classes": ["a", "b", "a"]}, rf"classes = \('a', 'b', 'a'\) {REFUSED} names that differ"),
        ({"classes": {0: "a", 1: "b", 2: "c"}}, "expected names in the order of their numbers"),
        ({"classes": set("abc")}, "expected names in the order of their numbers"),
        ({"classes": ["a", None, "c"]}, "expected a name for each"),
        ({"x": 1.7e9 + np.arange(60)[:, None]}, f"x = 'column 0 from 17.* to 17.*' {REFUSED} numbers that float32"),
        ({"x": np.ma.masked_greater(X, X.max() - 0.01)}, f"x = 'an array with 1 masked values' {REFUSED}"),
        ({"x": list(np.ma.masked_greater(X, X.max() - 0.01))}, f"x = 'an array with 1 masked values' {REFUSED}"),
        ({"x": [[1.0], [2.0, 3.0]] * 30}, "x is not accepted: .*inhomogeneous"),
        ({"x": with_value(X, np.nan, (7, 1, 2))}, rf"x\[7, 1, 2\] = nan {REFUSED} finite numbers"),
        ({"x": with_value(X, 1e300, (3, 0, 0))}, rf"x\[3, 0, 0\] = 1e\+300 {REFUSED}"),
        ({"x": np.array(["a"] * 60)}, "expected an array of numbers"),
        ({"x": np.zeros(60)}, rf"x = 'float64\[60\]' {REFUSED} features \[n, d\], or images"),
        ({"x": np.zeros((60, 4, 9, 3))}, "channels='first' or channels='last'"),
        ({"channels": "middle"}, "channels = 'middle'"),
        ({"groups": np.ones(59, int)}, rf"groups = 'int64\[59\]' {REFUSED} numbers or names \[60\]"),
        ({"groups": Y + 0.5}, f"groups = 0.5 {REFUSED} integers from 0, or names"),
        ({"groups": Y - 1}, f"groups = -1 {REFUSED} integers from 0, or names"),
        ({"is_test": Y}, rf"is_test = 'int64\[60\]' {REFUSED} bool \[60\]"),
        ({"name": "digits"}, f"name = 'digits' {REFUSED} a name that is free; taken are digits, "),
        ({"name": "a/b"}, f"name = 'a/b' {REFUSED} letters"),
    ],
)
def test_arrays_that_do_not_fit(changes, said):
    with pytest.raises(BadValue, match=said) as error:
        Dataset.from_arrays(**{"x": X, "y": Y, "name": "own", **changes})
    assert "\n" not in str(error.value) and not own.NAMES


TWICE = list("ab") * 3


@pytest.mark.parametrize(
    ("values", "classes", "numbers", "names"),
    [
        ([1, 2, 3, 1, 2, 3], None, [0, 1, 2, 0, 1, 2], "123"),
        (np.array([10**12, 9] * 3), None, [1, 0] * 3, ("9", "1000000000000")),
        (np.array([2**63 + 1, 1] * 3, dtype=np.uint64), None, [1, 0] * 3, ("1", "9223372036854775809")),
        ([10**30, 1] * 3, None, [1, 0] * 3, ("1", "1" + 30 * "0")),
        (["10", "9"] * 3, None, [0, 1] * 3, ("10", "9")),
        (np.array([0.0, 2.0] * 3), None, [0, 1] * 3, "02"),
        ([Decimal(0), Decimal("2.0")] * 3, None, [0, 1] * 3, "02"),
        ([True, False] * 3, None, [1, 0] * 3, ("False", "True")),
        ([True, False] * 3, ("no", "yes"), [1, 0] * 3, ("no", "yes")),
        (np.array([b"x", b"y"] * 3), None, [0, 1] * 3, "xy"),
        ([-1, 1] * 3, None, [0, 1] * 3, ("-1", "1")),
        ([1, "1", "x"] * 2, None, [0, 0, 1] * 2, "1x"),
        (pd.Series(TWICE, dtype="category"), None, [0, 1] * 3, "ab"),
        (pd.Series([1, 2] * 3, dtype="Int64"), None, [0, 1] * 3, "12"),
        ([torch.tensor(1), torch.tensor(2)] * 3, None, [0, 1] * 3, "12"),
        (np.array(["2020-01-01", "2019-01-01"] * 3, dtype="M8[D]"), None, [1, 0] * 3, ("2019-01-01", "2020-01-01")),
        (TWICE, "cba", [2, 1] * 3, "cba"),
        (TWICE, [b"b", np.bytes_(b"a")], [1, 0] * 3, "ba"),
        (["None", "b"] * 3, ("b", "None"), [1, 0] * 3, ("b", "None")),
        ([1, 2] * 3, "abc", [1, 2] * 3, "abc"),
    ],
)
def test_labels_and_owners_of_any_kind(values, classes, numbers, names):
    """Labels count the values that occur, so that those from 1 make no empty class; owners do the same."""
    data = Dataset.from_arrays(X[:6], values, None if classes else values, classes=classes)
    assert data.labels.tolist() == numbers and data.classes == tuple(names)
    assert classes or (data.groups.tolist() == numbers and data.group_names == tuple(names))


@pytest.mark.parametrize("what", ["y", "groups"])
@pytest.mark.parametrize(
    "values",
    [
        ["a", None, "b", "a", "b", np.nan],
        np.array(["a", "nan", "b", "a", "b", ""]),
        [0.0, np.nan, 1, 0, 1, np.nan],
        np.ma.masked_array([0, 1, 2, 0, 1, 2], mask=[0, 1, 0, 0, 0, 1]),
        list(np.ma.masked_array([0, 1, 2, 0, 1, 2], mask=[0, 1, 0, 0, 0, 1])),
        pd.Series([0, None, 1, 0, 1, None], dtype="Int64"),
        pd.Series(["a", None, "b", "a", "b", None], dtype="string"),
        pd.Series(pd.to_datetime(["2020", None, "2021", "2020", "2021", None])),
    ],
)
def test_missing_labels_and_owners_are_counted(values, what):
    given = {"y": TWICE, what: values}
    with pytest.raises(BadValue, match=f"{what} has no value for 2 of 6 samples, first for sample 1; expected"):
        Dataset.from_arrays(X[:6], **given)


def test_names_that_are_nearly_the_same_are_told(capsys):
    assert Dataset.from_arrays(X[:6], ["Cat", "cat ", "dog"] * 2, ["a", "A", "b", "B", "c", "c"]).classes[1] == "cat "
    said = capsys.readouterr().err
    assert "y: 'Cat' and 'cat ' are taken as different names\n" in said
    assert "groups: 'A' and 'a' are taken as different names, and 1 more pairs\n" in said


def test_images_that_are_there_twice_are_counted(capsys):
    pixels = RNG.integers(0, 256, (6, 4, 4), dtype=np.uint8)
    pixels[[1, 3]] = pixels[0]
    Dataset.from_arrays(pixels, [0, 0, 1, 1, 1, 0], is_test=np.arange(6) == 1, name="twins")
    line = "twins: 2 of 6 images are there already, 1 of them with another label, 1 in the other part\n"
    assert line in capsys.readouterr().err
    Dataset.from_arrays(np.zeros((6, 2)), [0, 1] * 3, name="table")
    assert capsys.readouterr().err == ""


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
    for option, wrong in (("hidden", 0), ("depth", -1)):
        with pytest.raises(BadValue, match=f"{option} = {wrong}"):
            build("mlp", (1, 4, 4), 3, **{option: wrong})


def test_logistic_regression_is_a_head_alone():
    """Nothing is left to share for FedPer, so that it is local-only training."""
    data = Dataset.from_arrays(X.reshape(60, -1), Y, Y, name="table")
    linear = dict(dataset=data.name, model="mlp", model_options={"depth": 0}, rounds=3, eval_points=())
    numbers = sizes("mlp", data.shape, 3, depth=0)
    assert numbers["model"] == numbers["head"] == 171 and numbers["extractor"] == 0
    local, fedper = (simulate(tiny(method, **linear)) for method in ("local", "fedper"))
    assert np.array_equal(local.arrays["correct"], fedper.arrays["correct"])


# client numbers -------------------------------------------------------------------------------------------------------


LABELS = np.arange(12) % 3
OWNERS = np.array([2, 0, 1, 0, -1, 1, 2, 2, 0, 1, 1, 0])


OWNED = [[1, 3, 8, 11], [2, 5, 9, 10], [0, 6, 7]]


def test_owners_from_an_array_and_an_npy_file(tmp_path):
    np.save(tmp_path / "owners.npy", OWNERS.astype(np.int16))
    for owners in (OWNERS, OWNERS.tolist(), "owners.npy", str(tmp_path / "owners.npy")):
        partition = make_partition(LABELS, 3, "owners", 0, owners=owners)
        assert [own.tolist() for own in partition.clients] == OWNED


@pytest.mark.parametrize("coding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("heading", ["", "client\r\n", '"c"\n'])
def test_owners_from_a_csv_file_in_any_coding(tmp_path, coding, heading):
    text = heading + "\r\n".join(map(str, OWNERS)) + "\r\n\r\n"
    (tmp_path / "owners.csv").write_bytes(text.encode(coding))
    partition = make_partition(LABELS, 3, "owners", 0, owners="owners.csv")
    assert [own.tolist() for own in partition.clients] == OWNED


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


LINE = "expected one client number a line"


@pytest.mark.parametrize(
    ("owners", "clients", "said"),
    [
        (None, 3, f"owners = None {REFUSED} a CSV or NPY file, or an array"),
        (OWNERS[:11], 3, "12 client numbers, one for each sample; it has 11"),
        (OWNERS, 4, f"num_clients = 4 {REFUSED} 3, the clients of"),
        (np.where(OWNERS == 1, 0, OWNERS), 3, "client 1 of .* has no samples; number the clients anew"),
        (OWNERS / 2, 3, rf"owners = 'an array of float64\[12\]' {REFUSED} integers \[n\]"),
        (OWNERS - 1, 3, "owners = 'an array with -2' is not accepted"),
        ("none.csv", 3, f"owners = 'none.csv' {REFUSED} a file that is there"),
        ("owners.txt", 3, "expected a file that ends in .csv or .npy"),
        ("bad.csv", 3, f"line 3 of owners = 'bad.csv' is 'two'; {LINE}"),
        ("bad.npy", 3, "owners = 'bad.npy' cannot be read"),
        ("objects.npy", 3, "owners = 'objects.npy' cannot be read: Object arrays cannot be loaded"),
        ("gap.csv", 3, f"line 3 of owners = 'gap.csv' is ''; {LINE}"),
        ("fractions.csv", 3, f"line 1 of owners = 'fractions.csv' is '0.0'; {LINE}"),
        ("large.csv", 3, "line 2 of owners = 'large.csv' is '1000000000000000000000'.* of at most 18 digits"),
        (OWNERS + 10**12, 3, f"with 1000000000002' {REFUSED} client numbers from 0 below the 12 samples"),
        (OWNERS.astype(np.uint64), 3, "an array with 18446744073709551615' is not accepted"),
        (np.ma.masked_array(OWNERS, OWNERS == 1), 3, "owners = 'an array with 4 masked values' is not accepted"),
    ],
)
def test_owners_that_do_not_fit(tmp_path, owners, clients, said):
    texts = {
        "bad": "client\n1\ntwo\n",
        "gap": "client\n1\n\n0\n",
        "fractions": "0.0\n1\n0\n",
        "large": f"1\n{10**21}\n",
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.csv").write_text(text)
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
    assert wrong.exit_code == 2
    assert "num_clients = 20 is not accepted; expected 4, the clients of own.csv" in wrong.output


# Hugging Face's form --------------------------------------------------------------------------------------------------


def saved(place, **splits):
    """What `save_to_disk` writes of splits, each (columns, their kinds or None)."""
    kinds = {part: hub.Features(kind) if kind else None for part, (_, kind) in splits.items()}
    hub.DatasetDict({part: hub.Dataset.from_dict(columns, kinds[part]) for part, (columns, _) in splits.items()}
                    ).save_to_disk(str(place))  # fmt: skip


def named(*names) -> dict:
    return {"a": hub.Value("float64"), "label": hub.ClassLabel(names=list(names))}


def pictured(place, *pictures) -> None:
    """A data set of pictures, or of their files {"bytes": ..., "path": ...}, of the classes a, b, ..."""
    kinds = {"image": hub.Image(), "label": hub.Value("string")}
    saved(place, train=({"image": list(pictures), "label": list("abc"[: len(pictures)])}, kinds))


@pytest.fixture
def tables(tmp_path):
    """What the library itself wrote: pictures by five writers in two splits, and a table of numbers."""
    pictures = [Image.fromarray(pixels) for pixels in RNG.integers(0, 256, (30, 12, 12), dtype=np.uint8)]
    columns = {
        "image": pictures,
        "character": [k % 3 for k in range(30)],
        "writer_id": [f"w{k % 5}" for k in range(30)],
    }
    kinds = {"image": hub.Image(), "character": hub.ClassLabel(names=list("abc")), "writer_id": hub.Value("string")}
    train, test = ({name: own[k:n] for name, own in columns.items()} for k, n in ((0, 20), (20, 30)))
    saved(tmp_path / "letters", train=(train, kinds), test=(test, kinds))
    (tmp_path / "table").mkdir()
    numbers = {"a": [1.0, 2.0] * 10, "b": [3, 4] * 10, "kind": ["x", "y"] * 10, "site": [7] * 10 + [9] * 10}
    hub.Dataset.from_dict(numbers).to_parquet(str(tmp_path / "table/train.parquet"))
    return pictures


@needs_hub
def test_pictures_by_writer(tables):
    data = load("hf:letters?groups=writer_id")
    assert data.shape == (1, 12, 12) and data.classes == ("a", "b", "c")
    assert data.is_test.tolist() == [False] * 20 + [True] * 10
    assert all(np.array_equal(data.images[k, 0], tables[k]) for k in range(30))
    assert data.group_names == ("w0", "w1", "w2", "w3", "w4") and data.groups.tolist() == [k % 5 for k in range(30)]
    spec = tiny("local", dataset=data.name, model="mlp", scheme="writer", num_clients=5, partition={})
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
    ("columns", "kind"),
    [
        ({"a": [3.0, 4.0], "label": [0, 1]}, named("dog", "cat")),
        ({"a": [3.0, 4.0], "label": ["dog", "cat"]}, None),
        ({"b": [1.0, 2.0], "label": [0, 1]}, None),
        ({"a": ["1", "x"], "label": [0, 1]}, None),
    ],
    ids=["other names", "no names", "another column", "text"],
)
def test_splits_that_do_not_fit_together(tmp_path, columns, kind):
    """Above all classes of the same numbers and other names."""
    saved(tmp_path / "pets", train=({"a": [1.0, 2.0], "label": [0, 1]}, named("cat", "dog")), more=(columns, kind))
    with pytest.raises(DataError, match="the splits train, more of hf:pets do not have the same columns: .+"):
        load("hf:pets")


@needs_hub
def test_owners_and_parts_of_two_splits(tmp_path):
    columns = {"a": [1.0, 2.0], "label": ["x", "y"], "who": [0, 1]}
    kinds = {"a": hub.Value("float64"), "label": hub.Value("string"), "who": hub.ClassLabel(names=["Bob", "Ann"])}
    saved(tmp_path / "owned", train=(columns, kinds), Test=(columns, kinds))
    data = load("hf:owned?y=label&groups=who")
    assert [data.group_names[k] for k in data.groups] == ["Bob", "Ann"] * 2
    assert data.is_test.tolist() == [False] * 2 + [True] * 2 and data.shape == (1, 1, 1)


@needs_hub
def test_columns_of_a_table_that_are_no_input_are_counted(tmp_path, capsys):
    columns = {"Unnamed: 0": [0, 1], "a": [1.0, 2.0], "kind": [0, 1], "town": ["q", "r"], "label": ["x", "y"]}
    saved(tmp_path / "towns", train=(columns, None))
    assert load("hf:towns?y=label").images.flatten().tolist() == [1, 0, 2, 1]
    line = "hf:towns?y=label, an index or no numbers: 2 columns left out: Unnamed: 0, town\n"
    assert line in capsys.readouterr().err


@needs_hub
def test_a_column_of_arrays_is_no_column_of_numbers(tmp_path):
    columns = {"a": np.zeros((2, 4, 4), np.uint8), "label": [0, 1]}
    kinds = {"a": hub.Array2D((4, 4), "uint8"), "label": hub.ClassLabel(names=["x", "y"])}
    saved(tmp_path / "arrays", train=(columns, kinds))
    with pytest.raises(BadValue, match="one column of images or columns of numbers, of a, label"):
        load("hf:arrays")


@needs_hub
def test_splits_without_samples_or_labels_are_left_out_and_counted(tmp_path, capsys):
    two, none, hidden = ({"a": [1.0, 2.0][: len(own)], "label": own} for own in ([0, 1], [], [-1, -1]))
    kinds = named("cat", "dog")
    saved(tmp_path / "parts", train=(two, kinds), test=(none, kinds), hidden=(hidden, kinds))
    assert load("hf:parts").labels.tolist() == [0, 1]
    line = "hf:parts, empty or without labels: 2 splits left out: test, hidden\n"
    assert line in capsys.readouterr().err


@needs_hub
@pytest.mark.parametrize(
    ("labels", "owners", "said"),
    [
        ([0, None, 1, -1], list("abab"), "y has no value for 2 of 4 samples, first for sample 1"),
        ([0, 1, 1, 0], ["a", None, "b", "a"], "groups has no value for 1 of 4 samples, first for sample 1"),
        ([0, 1, 1, 0], [7, None, 8, None], "groups has no value for 2 of 4 samples, first for sample 1"),
        ([0.5, 1.5, 0.5, 1.5], list("abab"), f"y = 0.5 {REFUSED}"),
        ([[0], [1], [0], [1]], list("abab"), f"y = .* {REFUSED} .*one for each"),
        ([[0], [1, 2], [0], [1]], list("abab"), f"y = .* {REFUSED}"),
    ],
)
def test_columns_that_are_no_labels_and_owners(tmp_path, labels, owners, said):
    kinds = named("cat", "dog") | {"who": hub.Value("string" if "a" in owners else "int64")}
    columns = {"a": [1.0, 2.0, 3.0, 4.0], "label": labels, "who": owners}
    saved(tmp_path / "odd", train=(columns, kinds if 1 in labels else None))
    with pytest.raises(BadValue, match=said):
        load("hf:odd?groups=who&x=a")


@needs_hub
def test_a_folder_that_is_called_like_a_reader_of_the_library(tmp_path, monkeypatch):
    monkeypatch.setattr(hub.config, "HF_DATASETS_CACHE", str(tmp_path / "hf"))
    (tmp_path / "train.csv").write_text("a,label\n9,z\n8,z\n")  # which the library would take
    (tmp_path / "csv").mkdir()
    (tmp_path / "csv/train.csv").write_text("\ufeffa,label\n1,x\n2,y\n", encoding="utf-8")
    (tmp_path / "csv/test.csv").write_text("a,label\n")  # a split without samples
    data = load("hf:csv")
    assert data.images.flatten().tolist() == [1, 2] and data.classes == ("x", "y")


# pictures -------------------------------------------------------------------------------------------------------------


def odd_pictures() -> dict[str, tuple]:
    """Pictures of one colour in every mode, and this colour as uint8."""
    palette = Image.new("P", (8, 8), 1)
    palette.putpalette([0, 0, 0, 10, 20, 30])
    lost = np.full((8, 8), 25_700, dtype=np.uint16)
    return {
        "bit": (Image.new("1", (8, 8), 1), [255]),
        "grey": (Image.new("L", (8, 8), 7), [7]),
        "16 bits": (Image.fromarray(lost), [100]),
        "32 bits": (Image.fromarray(lost.astype(np.int32)), [100]),
        "palette": (palette, [10, 20, 30]),
        "clear": (Image.new("RGBA", (8, 8), (0, 0, 0, 0)), [255, 255, 255]),
        "half clear": (Image.new("RGBA", (8, 8), (0, 0, 0, 51)), [204, 204, 204]),
        "clear grey": (Image.new("LA", (8, 8), (0, 0)), [255]),
        "print": (Image.new("CMYK", (8, 8), (0, 255, 255, 0)), [255, 0, 0]),
    }


@needs_hub
def test_a_picture_is_the_same_wherever_it_comes_from(tmp_path):
    """From a folder, from the library and from Pillow: 16 bits scaled, transparent pixels white."""
    for name, (picture, colour) in odd_pictures().items():
        place = tmp_path / name.replace(" ", "_")
        (place / "folder/a").mkdir(parents=True)
        picture.save(place / "folder/a/x.tif")
        pictured(place / "hub", picture)
        folder, library = load(f"folder:{place}/folder@8"), load(f"hf:{place}/hub")
        pillow = Dataset.from_arrays([picture], ["a"])
        assert library.images[0, :, 4, 4].tolist() == pillow.images[0, :, 4, 4].tolist() == colour, name
        assert folder.images[0, :, 4, 4].tolist() == colour * (3 // len(colour)), name


@needs_hub
def test_a_picture_of_the_library_is_turned_upright(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 8  # to be shown turned by 90 degrees to the left
    lying, file = Image.fromarray(np.array([[0, 1, 2], [3, 4, 5]], dtype=np.uint8)), tmp_path / "lying.png"
    lying.save(file, exif=exif)
    pictured(tmp_path / "turned", {"bytes": file.read_bytes(), "path": str(file)})
    assert load("hf:turned").images[0, 0].tolist() == [[2, 5], [1, 4], [0, 3]]


@needs_hub
def test_pictures_of_the_library_are_made_squares_as_a_folder_s_are(tables, tmp_path):
    for k, picture in enumerate(tables):
        (tmp_path / "same/x").mkdir(parents=True, exist_ok=True)
        picture.save(tmp_path / f"same/x/{k:02}.png")
    assert torch.equal(load("hf:letters?size=9").images.expand(-1, 3, -1, -1), load("folder:same@9").images)


def test_pillow_s_pictures_of_several_kinds():
    both = Dataset.from_arrays([Image.new("L", (8, 9), 7), Image.new("RGB", (8, 9), (1, 2, 3))], ["a", "b"])
    assert both.shape == (3, 9, 8) and both.images[:, :, 0, 0].tolist() == [[7, 7, 7], [1, 2, 3]]
    with pytest.raises(BadValue, match="x = 'images of 8x8, 8x9' is not accepted; expected pictures of one size"):
        Dataset.from_arrays([Image.new("L", (8, 8)), Image.new("L", (9, 8))], ["a", "b"])
    with pytest.raises(DataError, match="x: image 1 of 2 cannot be read as an image .* its pixels are fractions"):
        Dataset.from_arrays([Image.new("L", (8, 8)), Image.new("F", (8, 8))], ["a", "b"])
    deep = Image.fromarray(np.array([[-1, 70_000]], dtype=np.int32))
    with pytest.raises(DataError, match="its pixels go from -1 to 70000; expected 8 or 16 bits"):
        Dataset.from_arrays([deep], ["a"])


@needs_hub
def test_pictures_of_the_library_that_cannot_be_read_are_counted(tmp_path):
    pictured(tmp_path / "bad", *({"bytes": content, "path": None} for content in (b"none", b"")), None)
    said = "3 of 3 images cannot be read; the first: hf:bad: image 0 of 3 cannot be"
    with pytest.raises(DataError, match=said) as error:
        load("hf:bad")
    assert "\n" not in str(error.value)


# names of the hub -----------------------------------------------------------------------------------------------------


@needs_hub
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("hf:", "expected hf:NAME"),
        ("hf:letters?grups=writer_id", "unknown setting of hf:letters 'grups'; did you mean groups"),
        ("hf:letters?groups=writer", "unknown column of .* 'writer'; did you mean writer_id"),
        ("hf:letters?y=character&y=writer_id", "expected every setting once"),
        ("hf:table?y=kind&x=a,b,a", f"x of .* = 'a' {REFUSED} every column once, and neither the label"),
        ("hf:table?y=kind&groups=site&x=a,site", "x of .* = 'site' is not accepted"),
        ("hf:letters?groups=", "unknown column of .* ''; accepted: image"),
        ("hf:letters?size=3", f"size = '3' {REFUSED} 8 to 1024 pixels"),
        ("hf:letters?x=image,writer_id", "expected .x= with one column of images or columns of numbers, of image, ch"),
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
    assert shown.exit_code == 2
    assert "needs the library datasets (the extra 'hf'): pip install 'fedlib[hf]'" in shown.output
