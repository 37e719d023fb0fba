"""Data sets: the embedded digits, prepared folders good and bad, and CIFAR-10 where it is present."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from fedlib import data
from fedlib.base.errors import BadValue, DataError
from fedlib.data import datasets, embedded
from fedlib.data.datasets import EMBEDDED, Dataset
from fedlib.data.embedded import LOOKS, SHARES
from fedlib.engine.privacy_budget import _training_sizes
from fedlib.engine.setup import set_up
from fedlib.engine.simulate import simulate
from fedlib.spec import RunSpec

CLASSES = ["cat", "dog", "owl"]


@pytest.fixture
def root(tmp_path, monkeypatch):
    """An empty data root, set by FEDLIB_DATA."""
    monkeypatch.setenv("FEDLIB_DATA", str(tmp_path))
    return tmp_path


def write(folder: Path, images=None, labels=None, owners=None, meta=None, **changes) -> np.ndarray:
    """A prepared folder of 12 random 3x5x4 images, or of what is given; meta: the text of meta.json, `changes` to it
    without that (None removes a key)."""
    folder.mkdir(parents=True, exist_ok=True)
    images = np.random.default_rng(0).integers(0, 256, (12, 5, 4, 3), dtype=np.uint8) if images is None else images
    labels = np.arange(len(images), dtype=np.int64) % 3 if labels is None else labels
    digest = hashlib.sha256(images.tobytes()).hexdigest()
    about = {"name": folder.name, "classes": CLASSES, "sha256": digest, **changes}
    arrays = {"images": images, "labels": labels, "is_test": np.zeros(len(images), dtype=bool), "groups": owners}
    for name, array in arrays.items():
        if array is not None:
            np.save(folder / f"{name}.npy", array)
    plain = json.dumps({key: value for key, value in about.items() if value is not None})
    (folder / "meta.json").write_text(plain if meta is None else meta)
    return images


# digits ---------------------------------------------------------------------------------------------------------------


def test_digits():
    digits = data.load("digits")
    assert digits.name == "digits" and digits.shape == (1, 16, 16) and digits.classes == tuple("0123456789")
    assert digits.images.shape == (1797, 1, 16, 16) and digits.images.dtype == torch.uint8
    assert digits.labels.shape == (1797,) and digits.labels.dtype == torch.int64
    assert digits.labels.bincount().tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert digits.images.min() == 0 and digits.images.max() == 255
    assert not digits.is_test.any() and digits.groups is None and digits.group_names == ()


def test_digits_are_the_original_ones_enlarged_and_the_same_everywhere():
    """Averages over 2x2 blocks of the 16x16 image stay close to the 8x8 original, the right way up. Enlarging needs
    only multiples of 255/256, exact in float64, so the bytes are the same on every machine."""
    from sklearn.datasets import load_digits

    digits, large = data.load("digits"), data.load("digits_large")
    small, halved = (torch.nn.functional.avg_pool2d(own.images.double(), 2).flatten() for own in (digits, large))
    assert np.corrcoef(small, load_digits().images.flatten())[0, 1] > 0.95
    assert digits.sha256.startswith("44e12699daba8cce")
    assert large.shape == (1, 32, 32) and torch.equal(large.labels, digits.labels)
    assert np.corrcoef(halved, digits.images.double().flatten())[0, 1] > 0.99
    for own in (digits, large):
        assert own.sha256 == hashlib.sha256(own.images.numpy().tobytes()).hexdigest()


def test_digits_need_no_data_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDLIB_DATA", str(tmp_path / "nowhere"))
    assert len(data.load("digits").labels) == 1797
    assert data.available() == [*EMBEDDED]


# four hospitals -------------------------------------------------------------------------------------------------------

HEART = dict(dataset="heart", scheme="writer", num_clients=4, join_ratio=1.0, test_part="official", model="mlp")


def test_heart_has_its_four_hospitals():
    table = data.load("heart")
    assert table.is_table and table.shape == (13, 1, 1) and table.classes == ("healthy", "heart disease")
    assert table.group_names == ("Cleveland", "Budapest", "Zurich and Basel", "Long Beach")
    ill, tests = [table.groups[which].bincount().tolist() for which in (table.labels == 1, table.is_test)]
    assert table.groups.bincount().tolist() == [303, 294, 123, 200]
    assert ill == [139, 106, 115, 149] and tests == [59, 58, 24, 39]
    assert datasets.class_sizes("heart") == [411, 509] and datasets.shape_and_classes("heart") == (table.shape, 2)
    partition, parts = RunSpec("local", **HEART).divide(table)
    assert partition.groups.tolist() == [0, 1, 2, 3] and [len(own["test"]) for own in parts] == tests
    assert all(table.is_test[own["test"]].all() and not table.is_test[own["train"]].any() for own in parts)


def test_missing_values_are_filled_by_hand():
    """Hospital 0 has the training values 1 and 3, hospital 1 has none of the first feature; the last two rows are for
    testing."""
    nan = float("nan")
    x = np.array([[1, 5], [3, nan], [nan, 7], [nan, 8], [nan, 100], [90, nan]], dtype=np.float32)
    hospital, is_test = np.array([0, 0, 0, 1, 0, 1]), np.array([0, 0, 0, 0, 1, 1], dtype=bool)
    expected = [[1, 5], [3, 6], [2, 7], [2, 8], [2, 100], [90, 8]]
    assert embedded.filled(x, hospital, is_test).tolist() == expected and np.isnan(x[1, 1])


def test_inputs_of_training_do_not_know_the_test_patients(monkeypatch):
    """Whatever test patients have, what models are trained on stays, to the bit; what they are tested on does not."""

    def inputs():
        data.datasets._heart.cache_clear()
        run = set_up(RunSpec("fedavg", **HEART))
        return [run.work.source.batch(torch.from_numpy(np.sort(rows))).x for rows in parts]

    recorded = embedded.patients()
    parts = [np.flatnonzero(recorded.is_test == part) for part in (False, True)]
    (train, test), wild = inputs(), recorded.x.copy()
    wild[recorded.is_test] = np.where(np.isnan(wild[recorded.is_test]), 1, np.nan)
    wild[np.flatnonzero(recorded.is_test)[:3]] = 1e4
    monkeypatch.setattr(embedded, "patients", lambda: recorded._replace(x=wild))
    (train_then, test_then) = inputs()
    data.datasets._heart.cache_clear()
    assert torch.equal(train, train_then) and not torch.equal(test, test_then)
    torch.testing.assert_close(train.mean(0).flatten(), torch.zeros(13), atol=1e-4, rtol=0)
    cholesterol = recorded.features.index("chol")  # which Zurich and Basel did not measure
    assert np.isnan(recorded.x[recorded.hospital == 2, cholesterol]).all()
    assert train[recorded.hospital[~recorded.is_test] == 2][:, cholesterol].abs().max() < 1e-4


def test_heart_is_divided_officially_and_trains_twice_alike():
    with pytest.raises(BadValue, match="test_part = 'drawn' is not accepted; expected official for heart"):
        simulate(RunSpec("local", **{**HEART, "test_part": "drawn"}))
    spec = RunSpec("fedavg", rounds=3, lr=0.05, **HEART)
    one, two = simulate(spec), simulate(spec)
    assert np.array_equal(one.arrays["correct"], two.arrays["correct"]) and one.final() > 0.8  # the larger class: 0.55


def test_privacy_counts_the_official_training_part():
    spec = RunSpec("local", privacy="client", noise_sigma=1.0, **HEART)
    assert _training_sizes(spec, np.array([303, 294, 123, 200])) == [244, 236, 99, 161]


# prepared folders -----------------------------------------------------------------------------------------------------


def test_prepared_folder(root):
    """Writing into the tensor does not reach the file."""
    images = write(root / "pets")
    pets = data.load("pets")
    assert pets.name == "pets" and pets.classes == ("cat", "dog", "owl") and pets.shape == (3, 5, 4)
    assert pets.images.dtype == torch.uint8 and torch.equal(pets.images, torch.from_numpy(images).permute(0, 3, 1, 2))
    assert pets.labels.dtype == torch.int64 and pets.labels.tolist() == [0, 1, 2] * 4
    assert pets.sha256 == hashlib.sha256(images.tobytes()).hexdigest()
    assert data.available() == [*EMBEDDED, "pets"]
    before = (root / "pets/images.npy").read_bytes()
    pets.images.zero_()
    assert (root / "pets/images.npy").read_bytes() == before


def test_folder_argument_comes_before_the_environment(root, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    write(elsewhere / "pets")
    assert len(data.load("pets", elsewhere).labels) == len(data.load("pets", str(elsewhere)).labels) == 12
    assert data.available(elsewhere) == [*EMBEDDED, "pets"] and data.available() == [*EMBEDDED]


def test_root(monkeypatch):
    monkeypatch.setenv("FEDLIB_DATA", "~/pictures")
    assert data.root() == Path.home() / "pictures"
    monkeypatch.setenv("FEDLIB_DATA", "")
    assert data.root() != Path("") and "fedlib" in str(data.root())


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs /proc/self/maps")
def test_images_are_memory_mapped(root):
    write(root / "mapped")
    kept = data.load("mapped")
    assert str(root / "mapped" / "images.npy") in Path("/proc/self/maps").read_text()
    assert len(kept.labels) == 12


def test_a_changed_folder_is_read_again(root):
    write(root / "pets")
    assert data.load("pets").labels.tolist() == [0, 1, 2] * 4
    write(root / "pets", labels=np.full(12, 2))
    for file in (root / "pets").iterdir():
        os.utime(file, ns=(1, 1))
    assert data.load("pets").labels.tolist() == [2] * 12


@pytest.mark.parametrize("file", ["images.npy", "labels.npy", "is_test.npy", "meta.json"])
def test_missing_file_is_named(root, file):
    write(root / "pets")
    (root / "pets" / file).unlink()
    refused(f"is not prepared: {file} missing in .*pets")


def test_unknown_name_lists_what_is_there(root):
    write(root / "pets")
    write(root / "birds")
    accepted, here = "digits, digits_looks, digits_large, heart, mnist,", "heart, birds, pets .*FEDLIB_DATA"
    with pytest.raises(BadValue, match=f"unknown dataset 'mars'.*accepted: {accepted}.*here now: digits, .*{here}"):
        data.load("mars")
    for name, near in [("petss", "pets"), ("cifer10", "cifar10"), ("tinyimagenet", "tiny_imagenet"), ("mnist ", None)]:
        with pytest.raises(BadValue, match=f"did you mean {near}" if near else "is not accepted"):
            data.load(name)


def test_folders_that_are_no_data_sets_are_not_listed(root):
    for name in (".locks", "_damaged", ".pets.tmp", "pets and more"):
        write(root / name)
    (root / "empty").mkdir()
    assert data.available() == [*EMBEDDED]


@pytest.mark.parametrize(
    "name",
    ["../pets", "..", ".", "", ".pets", "a/b", "a/../pets", "/pets", "a\\b", "pets/", "pets\n", "pe ts", "pe\0ts"],
)
def test_names_that_could_leave_the_folder(root, name):
    write(root / "pets")
    (root / "inner").mkdir()
    with pytest.raises(BadValue, match="dataset = "):
        data.load(name, root / "inner")


# damage ---------------------------------------------------------------------------------------------------------------


def refused(said: str) -> None:
    with pytest.raises(DataError, match=f"'pets'.*{said}"):
        data.load("pets")


@pytest.mark.parametrize("file", ["images.npy", "labels.npy", "is_test.npy", "meta.json"])
@pytest.mark.parametrize("keep", [0, 20, -1])
def test_truncated_file(root, file, keep):
    """Empty, cut in the header, and without the last byte: every file of the prepared format is verified."""
    write(root / "pets")
    path = root / "pets" / file
    path.write_bytes(path.read_bytes()[:keep])
    refused("prepare it again|'pets'.*not in the prepared format")


FORM = "not in the prepared format.*expected images uint8"


@pytest.mark.parametrize(
    "change, said",
    [
        (dict(images=np.zeros((6, 5, 4, 3), dtype=np.float64)), FORM),
        (dict(images=np.zeros((6, 5, 4, 3), dtype=np.int8)), FORM),
        (dict(images=np.zeros((6, 5, 4), dtype=np.uint8)), FORM),
        (dict(images=np.zeros((0, 5, 4, 3), dtype=np.uint8)), FORM),
        (dict(images=np.zeros((6, 0, 4, 3), dtype=np.uint8)), FORM),
        (dict(images=np.full((12, 5, 4, 3), np.nan, dtype=np.float32)), "images.npy holds numbers that are not finite"),
        (dict(labels=np.zeros(12, dtype=np.int32)), FORM),
        (dict(labels=np.zeros(12, dtype=np.float64)), FORM),
        (dict(labels=np.zeros(11, dtype=np.int64)), FORM),
        (dict(labels=np.zeros((12, 1), dtype=np.int64)), FORM),
        (dict(labels=np.full(12, 3)), "labels must lie in 0..2"),
        (dict(labels=np.arange(12) % 3 - 1), "labels must lie in 0..2"),
        (dict(classes=None), "damaged"),
        (dict(classes=3), "damaged"),
        (dict(classes=[]), "labels must lie in"),
        # meta.json may have the checksum of the image bytes; without one there is nothing to compare
        (dict(sha256="0" * 64), "fails its checksum: images.npy has .*prepare it again"),
        (dict(sha256=""), "fails its checksum"),
        (dict(sha256=5), "fails its checksum"),
        (dict(owners=np.arange(12), groups=["Ann", "Bob"]), "groups must lie in 0..1"),
        (dict(owners=np.arange(12) % 2 - 1, groups=["Ann", "Bob"]), "groups must lie in 0..1"),
        (dict(owners=np.zeros(11, dtype=np.int64), groups=["Ann"]), "groups.npy is int64.11.; .*groups int64"),
        (dict(owners=np.zeros(12, dtype=np.int32), groups=["Ann"]), "groups.npy is int32.12.; .*groups int64"),
        (dict(owners=np.zeros(12, dtype=np.int64)), "damaged"),
        (dict(owners=np.zeros(12, dtype=np.int64), groups="Ann"), "damaged.*list of names"),
        (dict(groups=["Ann"]), "damaged.*groups.npy"),
        *((dict(meta=text), "damaged") for text in ("[]", "3", "null", "{", "", '"text"')),
    ],
)
def test_not_the_prepared_form(root, change, said):
    write(root / "pets", **change)
    refused(said)


@pytest.mark.parametrize("file", ["images", "labels", "is_test", "groups"])
def test_one_changed_number_fails_the_checksum(root, file):
    """meta.json may have a second checksum, over labels, split and groups; data sets that fedlib prepares have it."""
    arrays = {"labels": np.arange(12) % 3, "is_test": np.arange(12) > 8, "groups": np.arange(12) // 5}
    digest = hashlib.sha256(b"".join(a.tobytes() for a in arrays.values())).hexdigest()
    names = ["Ann", "Bob", "Cy"]
    arrays["images"] = write(root / "pets", owners=arrays["groups"], groups=names, sha256_labels=digest)
    np.save(root / "pets/is_test.npy", arrays["is_test"])
    pets = data.load("pets")
    assert pets.is_test.tolist() == arrays["is_test"].tolist() and pets.is_test.dtype == torch.bool
    assert pets.groups.tolist() == [0] * 5 + [1] * 5 + [2] * 2 and pets.group_names == tuple(names)
    changed = arrays[file].copy()
    changed.flat[0] ^= 1
    np.save(root / f"pets/{file}.npy", changed)
    refused(f"fails its checksum: {'images.npy has' if file == 'images' else 'labels.npy, is_test.npy and groups.npy'}")


class Touch:
    """Unpickling this creates a file: what untrusted data must never do."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


@pytest.mark.parametrize("file", ["images.npy", "labels.npy", "is_test.npy"])
@pytest.mark.parametrize("form", ["object array", "bare pickle", "npz"])
def test_pickles_and_archives_are_refused_and_never_run(root, file, form):
    """np.load decides by content, not by name: an .npz is not an array."""
    write(root / "pets")
    trap, path = root / "trap", root / "pets" / file
    content = np.array([Touch(trap)] * 12, dtype=object)
    if form == "bare pickle":
        path.write_bytes(content.dumps())
    else:
        with open(path, "wb") as stream:
            np.savez(stream, a=np.zeros(12)) if form == "npz" else np.save(stream, content, allow_pickle=True)
    refused("")
    assert not trap.exists()


# channel statistics ---------------------------------------------------------------------------------------------------


def stats(images: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    labels = torch.zeros(len(images), dtype=torch.int64)
    return Dataset("x", torch.from_numpy(images), labels, ("a",), "").channel_stats


def test_channel_stats_directly():
    """5,000 images (more than one chunk) with different levels per channel, against numpy in float64."""
    images = np.random.default_rng(0).integers(0, (256, 40, 7), (5000, 4, 3, 3), dtype=np.uint8).transpose(0, 3, 1, 2)
    mean, std = stats(images)
    assert mean.shape == std.shape == (3, 1, 1) and mean.dtype == std.dtype == torch.float64
    pixels = images / 255
    np.testing.assert_allclose(mean.flatten(), pixels.mean((0, 2, 3)), rtol=1e-6)
    np.testing.assert_allclose(std.flatten(), pixels.std((0, 2, 3)), rtol=1e-5)


def test_channel_stats_of_constant_images_are_usable():
    """A constant channel has std 0 up to rounding; it is kept above zero, so that standardising stays finite."""
    mean, std = stats(np.full((10, 2, 3, 3), 77, dtype=np.uint8))
    assert mean.flatten().tolist() == pytest.approx([77 / 255] * 2, rel=1e-6)
    assert (std > 0).all() and (std < 1e-3).all()


def test_channel_stats_in_single_precision_are_those_of_the_pixels():
    """Stored results depend on these numbers to the last bit: sums of float32 pixels in float64,
    as before they were counted."""
    digits = data.load("digits")
    pixels = digits.images.float() / 255
    mean = pixels.double().mean()
    std = (pixels.square().double().mean() - mean**2).sqrt()
    for ours, plain in zip(digits.channel_stats, (mean, std)):
        assert ours.item() == pytest.approx(plain.item(), rel=1e-15) and ours.float().item() == plain.float().item()


# real data ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def cifar_folder():
    folder = Path(os.environ.get("FEDLIB_DATA") or "nowhere") / "cifar10"
    if not folder.is_dir():
        pytest.skip("REAL CIFAR-10 NOT TESTED: $FEDLIB_DATA/cifar10 is absent")
    return folder


def test_real_cifar10(cifar_folder):
    """60,000 images, 6,000 of each class; channel means and stds of the literature (training part: .491 .482 .447, .247
    .244 .262)."""
    cifar = data.load("cifar10")
    assert cifar.images.shape == (60000, 3, 32, 32) and cifar.images.dtype == torch.uint8
    assert cifar.labels.bincount().tolist() == [6000] * 10 and int(cifar.is_test.sum()) == 10000
    assert cifar.labels[cifar.is_test].bincount().tolist() == [1000] * 10
    assert cifar.classes == ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
    mean, std = cifar.channel_stats
    assert mean.flatten().tolist() == pytest.approx([0.4914, 0.4822, 0.4465], abs=0.003)
    assert std.flatten().tolist() == pytest.approx([0.2470, 0.2435, 0.2616], abs=0.003)


def test_real_cifar10_loads_quickly_and_within_its_bytes(cifar_folder):
    """In a fresh process: verified and with channel statistics in less than 2 s of computing,
    and no more memory than the images have bytes."""
    code = (
        "import resource, time\nfrom fedlib import data\n"
        "kilo = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "before, clock = kilo(), time.process_time()\ncifar = data.load('cifar10')\ncifar.channel_stats\n"
        "print(time.process_time() - clock, (kilo() - before) * 1024 / cifar.images.numel())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=600)
    seconds, share = map(float, done.stdout.split())
    assert seconds < 2 and share < 1.1


def test_other_processes_map_the_same_file(root):
    """A prepared data set is pickled as its place, an embedded one with its content."""
    import pickle

    write(root / "mine", images=np.zeros((400, 5, 4, 3), dtype=np.uint8))
    for dataset in (data.load("digits"), data.load("mine")):
        packed = pickle.dumps(dataset)
        again = pickle.loads(packed)
        assert torch.equal(again.images, dataset.images) and torch.equal(again.labels, dataset.labels)
        assert (again.name, again.classes, again.sha256) == (dataset.name, dataset.classes, dataset.sha256)
    assert len(packed) < 1000


# digits in six styles -------------------------------------------------------------------------------------------------


def test_looks_differ_in_images_and_not_in_labels():
    """Every image of the plain look is the digit itself, of the negative its complement;
    shares are those of DomainNet's domains."""
    plain, looks = data.load("digits"), data.load("digits_looks")
    assert torch.equal(plain.labels, looks.labels) and looks.group_names == tuple(LOOKS)
    assert torch.equal(looks.images[looks.groups == 0], plain.images[looks.groups == 0])
    assert torch.equal(looks.images[looks.groups == 1], 255 - plain.images[looks.groups == 1])
    sizes = looks.groups.bincount()
    assert (sizes - 1797 * torch.tensor(SHARES) / sum(SHARES)).abs().max() < 6
    shares = torch.stack([looks.labels[looks.groups == k].bincount(minlength=10) / sizes[k] for k in range(6)])
    assert (shares - shares.mean(0)).abs().max() < 0.02


def test_what_is_known_of_pacs_without_having_it():
    assert datasets.group_names("pacs") == ("art_painting", "cartoon", "photo", "sketch")
    assert datasets.known_class_sizes("pacs") == [1729, 1654, 1566, 1113, 1540, 943, 1446]
    assert datasets.shape_and_classes("pacs") == ((3, 64, 64), 7)


def test_looks_by_hand():
    """One bright pixel: its outline is its eight neighbours; tilted about the centre, a centred disc stays;
    checks are 0 or 110 outside."""
    x = torch.zeros(1, 1, 6, 6, dtype=torch.float64)
    x[0, 0, 3, 3] = 200
    edge = LOOKS["outline"](x)[0, 0]
    assert edge[3, 3] == 0 and edge.eq(200).sum() == 8 and edge[2:5, 2:5].sum() == 8 * 200
    assert LOOKS["faint"](x).unique().tolist() == [110.0, 170.0]
    board = LOOKS["checks"](x)[0, 0]
    assert board[3, 3] == 200 and board[0, 0] == 0 and board[0, 2] == 110 and board[2, 2] == 0
    row, column = torch.meshgrid(torch.arange(17.0) - 8, torch.arange(17.0) - 8, indexing="ij")
    disc = torch.exp(-(row**2 + column**2) / 20)[None, None].double()
    assert (LOOKS["tilted"](disc) - disc)[0, 0, 4:13, 4:13].abs().max() < 0.02
    bar = torch.zeros_like(disc)
    bar[0, 0, 8] = 1
    assert (LOOKS["tilted"](bar) - bar).abs().max() > 0.5
