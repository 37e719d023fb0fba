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
from fedlib.data.datasets import EMBEDDED, Dataset
from fedlib.data.looks import LOOKS, SHARES

CLASSES = ["cat", "dog", "owl"]


@pytest.fixture
def root(tmp_path, monkeypatch):
    """An empty data root, set by FEDLIB_DATA."""
    monkeypatch.setenv("FEDLIB_DATA", str(tmp_path))
    return tmp_path


def write(folder: Path, images=None, labels=None, **changes) -> np.ndarray:
    """A prepared folder of 12 random 3x5x4 images, or of what is given; `changes` to meta.json (None removes a key)."""
    folder.mkdir(parents=True, exist_ok=True)
    images = np.random.default_rng(0).integers(0, 256, (12, 5, 4, 3), dtype=np.uint8) if images is None else images
    labels = np.arange(len(images), dtype=np.int64) % 3 if labels is None else labels
    meta = {"name": folder.name, "classes": CLASSES, "sha256": hashlib.sha256(images.tobytes()).hexdigest(), **changes}
    np.save(folder / "images.npy", images)
    np.save(folder / "labels.npy", labels)
    np.save(folder / "is_test.npy", np.zeros(len(images), dtype=bool))
    (folder / "meta.json").write_text(json.dumps({k: v for k, v in meta.items() if v is not None}))
    return images


# digits ---------------------------------------------------------------------------------------------------------------


def test_digits():
    digits = data.load("digits")
    assert digits.name == "digits" and digits.shape == (1, 16, 16) and digits.classes == tuple("0123456789")
    assert digits.images.shape == (1797, 1, 16, 16) and digits.images.dtype == torch.uint8
    assert digits.labels.shape == (1797,) and digits.labels.dtype == torch.int64
    assert digits.labels.bincount().tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert digits.images.min() == 0 and digits.images.max() == 255
    assert digits.sha256 == hashlib.sha256(digits.images.numpy().tobytes()).hexdigest()


def test_digits_are_the_original_ones_enlarged():
    """Averages over 2x2 blocks of the 16x16 image stay close to the 8x8 original (correlation above 0.95),
    the right way up."""
    from sklearn.datasets import load_digits

    small = torch.nn.functional.avg_pool2d(data.load("digits").images.double(), 2).flatten().numpy()
    assert np.corrcoef(small, load_digits().images.flatten())[0, 1] > 0.95


def test_digits_are_the_same_everywhere():
    """Enlarging needs only multiples of 255/256, exact in float64, so the bytes are the same on every machine."""
    assert data.load("digits").sha256.startswith("44e12699daba8cce")


def test_large_digits_are_the_same_images_larger():
    large, small = data.load("digits_large"), data.load("digits")
    assert large.shape == (1, 32, 32) and torch.equal(large.labels, small.labels)
    halved = torch.nn.functional.avg_pool2d(large.images.double(), 2)
    assert np.corrcoef(halved.flatten(), small.images.double().flatten())[0, 1] > 0.99
    assert large.sha256 == hashlib.sha256(large.images.numpy().tobytes()).hexdigest()


def test_digits_need_no_data_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDLIB_DATA", str(tmp_path / "nowhere"))
    assert len(data.load("digits").labels) == 1797
    assert data.available() == [*EMBEDDED]


# prepared folders -----------------------------------------------------------------------------------------------------


def test_prepared_folder(root):
    images = write(root / "pets")
    pets = data.load("pets")
    assert pets.name == "pets" and pets.classes == ("cat", "dog", "owl") and pets.shape == (3, 5, 4)
    assert pets.images.dtype == torch.uint8 and torch.equal(pets.images, torch.from_numpy(images).permute(0, 3, 1, 2))
    assert pets.labels.dtype == torch.int64 and pets.labels.tolist() == [0, 1, 2] * 4
    assert pets.sha256 == hashlib.sha256(images.tobytes()).hexdigest()
    assert data.available() == [*EMBEDDED, "pets"]


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


def test_writing_into_the_tensor_does_not_reach_the_file(root):
    write(root / "pets")
    before = (root / "pets" / "images.npy").read_bytes()
    data.load("pets").images.zero_()
    assert (root / "pets" / "images.npy").read_bytes() == before


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
    with pytest.raises(DataError, match=f"'pets' is not prepared: {file} missing in .*pets"):
        data.load("pets")


def test_unknown_name_lists_what_is_there(root):
    write(root / "pets")
    write(root / "birds")
    with pytest.raises(
        BadValue,
        match=r"unknown dataset 'mars'.*accepted: digits, digits_looks, digits_large, mnist,.*"
        r"here now: digits, digits_looks, digits_large, birds, pets .*FEDLIB_DATA",
    ):
        data.load("mars")
    for name, near in [("petss", "pets"), ("cifer10", "cifar10"), ("tinyimagenet", "tiny_imagenet"), ("mnist ", None)]:
        with pytest.raises(BadValue, match=f"did you mean {near}" if near else "is not accepted"):
            data.load(name)


def test_absent_data_set_without_network(root):
    """FEDLIB_OFFLINE=1 is set for all tests: nothing is downloaded, and what could be done by hand is said."""
    with pytest.raises(
        DataError,
        match=r"'cifar100' is not prepared: FEDLIB_OFFLINE is set.*_downloads/cifar100: cifar-100-python.tar.gz",
    ):
        data.load("cifar100")
    assert data.available() == [*EMBEDDED]


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


@pytest.mark.parametrize("file", ["images.npy", "labels.npy", "is_test.npy", "meta.json"])
@pytest.mark.parametrize("keep", [0, 20, -1])
def test_truncated_file(root, file, keep):
    """Empty, cut in the header, and without the last byte: every file of the prepared form is verified."""
    write(root / "pets")
    path = root / "pets" / file
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(DataError, match="pets.*prepare it again|pets.*not in the prepared form"):
        data.load("pets")


@pytest.mark.parametrize("sha256", ["0" * 64, "", 5])
def test_checksum_that_does_not_match(root, sha256):
    """meta.json may have the checksum of the image bytes; without one there is nothing to compare."""
    write(root / "pets", sha256=sha256)
    with pytest.raises(DataError, match="pets"):
        data.load("pets")


def test_one_changed_pixel_fails_the_checksum(root):
    images = write(root / "pets")
    images = images.copy()
    images[7, 3, 2, 1] ^= 1
    np.save(root / "pets" / "images.npy", images)
    with pytest.raises(DataError, match="pets.*fails its checksum.*prepare it again"):
        data.load("pets")


FORM = "not in the prepared form.*expected images uint8"


@pytest.mark.parametrize(
    "change, message",
    [
        (dict(images=np.zeros((6, 5, 4, 3), dtype=np.float64)), FORM),
        (dict(images=np.zeros((6, 5, 4, 3), dtype=np.int8)), FORM),
        (dict(images=np.zeros((6, 5, 4), dtype=np.uint8)), FORM),
        (dict(labels=np.zeros(12, dtype=np.int32)), FORM),
        (dict(labels=np.zeros(12, dtype=np.float64)), FORM),
        (dict(labels=np.zeros(11, dtype=np.int64)), FORM),
        (dict(labels=np.zeros((12, 1), dtype=np.int64)), FORM),
        (dict(labels=np.full(12, 3)), "labels must lie in 0..2"),
        (dict(labels=np.arange(12) % 3 - 1), "labels must lie in 0..2"),
        (dict(images=np.zeros((0, 5, 4, 3), dtype=np.uint8)), "pets"),
        (dict(images=np.zeros((6, 0, 4, 3), dtype=np.uint8)), "pets"),
        (dict(classes=None), "damaged"),
        (dict(classes=3), "damaged"),
        (dict(classes=[]), "labels must lie in"),
    ],
)
def test_not_the_prepared_form(root, change, message):
    write(root / "pets", **change)
    with pytest.raises(DataError, match=f"'pets'.*{message}|{message}"):
        data.load("pets")


@pytest.mark.parametrize("text", ["[]", "3", "null", "{", "", '"text"'])
def test_meta_that_is_no_object(root, text):
    write(root / "pets")
    (root / "pets" / "meta.json").write_text(text)
    with pytest.raises(DataError, match="'pets'.*damaged"):
        data.load("pets")


# official split and groups --------------------------------------------------------------------------------------------


def test_official_split(root):
    write(root / "pets")
    marks = np.arange(12) % 4 == 3
    np.save(root / "pets/is_test.npy", marks)
    pets = data.load("pets")
    assert pets.is_test.dtype == torch.bool and pets.is_test.tolist() == marks.tolist()
    assert data.load("digits").is_test.tolist() == [False] * 1797


def test_groups(root):
    write(root / "pets", groups=["Ann", "Bob", "Cy"])
    np.save(root / "pets/groups.npy", np.arange(12) // 5)
    pets = data.load("pets")
    assert pets.groups.dtype == torch.int64 and pets.groups.tolist() == [0] * 5 + [1] * 5 + [2] * 2
    assert pets.group_names == ("Ann", "Bob", "Cy")
    assert data.load("digits").groups is None and data.load("digits").group_names == ()


@pytest.mark.parametrize(
    "groups, names, message",
    [
        (np.arange(12), ["Ann", "Bob"], "groups must lie in 0..1"),
        (np.arange(12) % 2 - 1, ["Ann", "Bob"], "groups must lie in 0..1"),
        (np.zeros(11, dtype=np.int64), ["Ann"], "groups.npy is int64.11.; .*groups int64"),
        (np.zeros(12, dtype=np.int32), ["Ann"], "groups.npy is int32.12.; .*groups int64"),
        (np.zeros(12, dtype=np.int64), None, "damaged"),
        (np.zeros(12, dtype=np.int64), "Ann", "damaged.*list of names"),
        (None, ["Ann"], "damaged.*groups.npy"),
    ],
)
def test_groups_that_do_not_fit(root, groups, names, message):
    write(root / "pets", groups=names)
    if groups is not None:
        np.save(root / "pets/groups.npy", groups)
    with pytest.raises(DataError, match=f"'pets'.*{message}"):
        data.load("pets")


@pytest.mark.parametrize("file", ["labels", "is_test", "groups"])
def test_one_changed_label_fails_the_checksum(root, file):
    """meta.json may have a second checksum, over labels, split and groups; data sets that fedlib prepares have it."""
    arrays = {"labels": np.arange(12) % 3, "is_test": np.arange(12) > 8, "groups": np.arange(12) // 5}
    digest = hashlib.sha256(b"".join(a.tobytes() for a in arrays.values())).hexdigest()
    write(root / "pets", groups=["Ann", "Bob", "Cy"], sha256_labels=digest)
    for name, array in arrays.items():
        np.save(root / f"pets/{name}.npy", array)
    assert data.load("pets").is_test.sum() == 3
    changed = arrays[file].copy()
    changed[0] = 1
    np.save(root / f"pets/{file}.npy", changed)
    with pytest.raises(DataError, match="pets.*fails its checksum: labels.npy, is_test.npy and groups.npy have"):
        data.load("pets")


class Touch:
    """Unpickling this creates a file: what untrusted data must never do."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


@pytest.mark.parametrize("file", ["images.npy", "labels.npy", "is_test.npy"])
@pytest.mark.parametrize("form", ["object array", "bare pickle"])
def test_pickles_are_refused_and_never_run(root, file, form):
    write(root / "pets")
    trap, path = root / "trap", root / "pets" / file
    content = np.array([Touch(trap)] * 12, dtype=object)
    if form == "object array":
        np.save(path, content, allow_pickle=True)
    else:
        path.write_bytes(content.dumps())
    try:
        with pytest.raises(DataError, match="'pets'"):
            data.load("pets")
    finally:
        assert not trap.exists()


@pytest.mark.parametrize("file", ["images.npy", "labels.npy"])
def test_archive_under_the_name_of_an_array(root, file):
    """np.load decides by content, not by name: an .npz is not an array."""
    write(root / "pets")
    with open(root / "pets" / file, "wb") as stream:
        np.savez(stream, a=np.zeros(12))
    with pytest.raises(DataError, match="'pets'"):
        data.load("pets")


# channel statistics ---------------------------------------------------------------------------------------------------


def test_channel_stats_directly():
    """5,000 images (more than one chunk) with different levels per channel, against numpy in float64."""
    images = np.random.default_rng(0).integers(0, (256, 40, 7), (5000, 4, 3, 3), dtype=np.uint8).transpose(0, 3, 1, 2)
    mean, std = Dataset("x", torch.from_numpy(images), torch.zeros(5000, dtype=torch.int64), ("a",), "").channel_stats
    assert mean.shape == std.shape == (3, 1, 1) and mean.dtype == std.dtype == torch.float64
    pixels = images / 255
    np.testing.assert_allclose(mean.flatten(), pixels.mean((0, 2, 3)), rtol=1e-6)
    np.testing.assert_allclose(std.flatten(), pixels.std((0, 2, 3)), rtol=1e-5)


def test_channel_stats_of_constant_images_are_usable():
    """A constant channel has std 0 up to rounding; it is kept above zero, so that standardising stays finite."""
    images = torch.full((10, 2, 3, 3), 77, dtype=torch.uint8)
    mean, std = Dataset("x", images, torch.zeros(10, dtype=torch.int64), ("a",), "").channel_stats
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
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
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


# digits in six looks --------------------------------------------------------------------------------------------------


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
