"""Every data set from archives in its real layout, tiny and local: reading, downloading, faults, interruptions. No
network."""

from __future__ import annotations

import dataclasses
import functools
import gzip
import hashlib
import http.server
import io
import json
import os
import pickle
import shutil
import struct
import subprocess
import sys
import tarfile
import threading
import urllib.request
import zipfile
from pathlib import Path

import numpy as np
import pytest
from helpers import call
from PIL import Image

from fedlib import data
from fedlib.base.errors import BadValue, DataError
from fedlib.data import DATASETS, download, prepare, readers, sources
from fedlib.data.datasets import EMBEDDED
from fedlib.data.download import RemoteFile

RNG = np.random.default_rng(0)


@pytest.fixture
def root(tmp_path, monkeypatch):
    """An empty data root; downloads are allowed, and only from this machine."""
    for name in ("data", "cache"):
        monkeypatch.setenv(f"FEDLIB_{name.upper()}", str(tmp_path / name))
    monkeypatch.delenv("FEDLIB_OFFLINE", raising=False)
    real = urllib.request.urlopen

    def local(request, *rest, **options):
        url = getattr(request, "full_url", request)
        assert url.startswith(("file:", "http://127.0.0.1:")), f"a test asked for {url}"
        return real(request, *rest, **options)

    for place in ("urllib.request", "torch.hub"):
        monkeypatch.setattr(f"{place}.urlopen", local)
    return tmp_path / "data"


@pytest.fixture
def offer(root, monkeypatch, tmp_path):
    """offer(name, {file: content}, **changes): let `name` come from these files, with right checksums,
    counts unchecked; reader: changed options of its reader."""

    def put(name: str, contents: dict[str, bytes], reader=(), **changes) -> Path:
        server = tmp_path / "server"
        server.mkdir(exist_ok=True)
        remote = []
        for file, content in contents.items():
            (server / file).write_bytes(content)
            url = (server / file).as_uri()
            remote.append(RemoteFile(file, (url,), f"md5:{hashlib.md5(content).hexdigest()}"))
        source = DATASETS[name]
        read = functools.partial(source.read, **dict(reader))
        changes = dict(files=tuple(remote), exact=False, megabytes=0, read=read) | changes
        monkeypatch.setitem(DATASETS, name, dataclasses.replace(source, **changes))
        return server

    return put


def tar(members, mode: str = "w:gz") -> bytes:
    """A tar archive of {name: content} or of (TarInfo, content) pairs."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:
        for member, content in members.items() if isinstance(members, dict) else members:
            info = tarfile.TarInfo(member) if isinstance(member, str) else member
            info.size = len(content) if info.isreg() else 0
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def zipped(members) -> bytes:
    """A zip archive of {name: content} or of (name or ZipInfo, content) pairs."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, content in members.items() if isinstance(members, dict) else members:
            archive.writestr(member, content)
    return out.getvalue()


def encoded(image, form: str = "PNG", mode: str | None = None, **options) -> bytes:
    """An image file of an array or a PIL image."""
    image = Image.fromarray(image) if isinstance(image, np.ndarray) else image
    out = io.BytesIO()
    (image.convert(mode) if mode else image).save(out, form, **options)
    return out.getvalue()


def one_colour(*rgb: int, size=(8, 8)) -> bytes:
    return encoded(Image.new("RGB", size, rgb))


def random_images(*shape) -> np.ndarray:
    return RNG.integers(0, 256, shape, dtype=np.uint8)


def flipped(path: Path) -> None:
    """Change the last bit of a file."""
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


def pixels(dataset) -> np.ndarray:
    """The images as they lie in files: [n, h, w, c]."""
    return dataset.images.permute(0, 2, 3, 1).numpy()


def nothing_but(root: Path, *names: str) -> None:
    """In the data root there is nothing half-made: only `names` and the lock files."""
    there = root.iterdir() if root.is_dir() else ()
    assert sorted(p.name for p in there if p.name not in (".locks", "_downloads")) == sorted(names)
    assert not [p for p in root.rglob("*") if p.name.endswith((".part", ".tmp"))]


def copies(tmp_path: Path) -> list[Path]:
    """The prepared copies of users' folders."""
    return [path for path in (tmp_path / "cache/folders").iterdir() if path.name != ".locks"]


def refused(name: str, said: str, error: type[Exception] = DataError) -> str:
    """Loading raises this error, in one line, and leaves nothing half-made in the data root; returns the line."""
    with pytest.raises(error, match=said) as caught:
        data.load(name)
    assert "\n" not in str(caught.value)
    nothing_but(data.root())
    return str(caught.value)


# what torchvision has -------------------------------------------------------------------------------------------------


@pytest.fixture
def web(tmp_path):
    """A web server on this machine: web.files = {path: content}; web.asked lists the requests."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            if self.command == "GET":
                self.server.asked.append(self.path)
            content = self.server.files.get(self.path)
            if content is None:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content)

        do_HEAD = do_GET

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.files, server.asked = {}, []
    server.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def publish(root, web, monkeypatch):
    """publish(name, {file: content}): torchvision finds `name` on this machine, with right checksums, counts
    unchecked."""
    import torchvision

    def put(name: str, contents: dict[str, bytes], **changes) -> None:
        kind = getattr(torchvision.datasets, DATASETS[name].torchvision)
        web.files |= {f"/{file}": content for file, content in contents.items()}
        sums = {file: hashlib.md5(content).hexdigest() for file, content in contents.items()}
        ((file, md5), *_) = sums.items()
        new = {"mirrors": [f"{web.url}/"], "resources": list(sums.items()), "url": f"{web.url}/{file}", "md5": md5}
        for attribute, value in (new | {"tgz_md5": md5}).items():
            if hasattr(kind, attribute):
                monkeypatch.setattr(kind, attribute, value)
        monkeypatch.setattr(torchvision.datasets.cifar, "check_integrity", lambda path, md5=None: os.path.isfile(path))
        monkeypatch.setitem(DATASETS, name, dataclasses.replace(DATASETS[name], **{"exact": False} | changes))

    return put


def idx(array: np.ndarray) -> bytes:
    return gzip.compress(struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes())


def mnist_files(train: int = 7, test: int = 3) -> tuple[dict[str, bytes], np.ndarray, np.ndarray]:
    images, labels = random_images(train + test, 28, 28), np.arange(train + test, dtype=np.uint8) % 10
    parts = (images[:train], labels[:train], images[train:], labels[train:])
    return dict(zip(sources.IDX_NAMES, map(idx, parts))), images, labels


@pytest.mark.parametrize("name, classes", [("mnist", ("0", "9")), ("fmnist", ("T-shirt/top", "Ankle boot"))])
def test_mnist_and_fashion_mnist(publish, root, web, name, classes):
    files, images, labels = mnist_files()
    publish(name, files)
    got = data.load(name)
    assert got.shape == (1, 28, 28) and (got.classes[0], got.classes[-1]) == classes and len(got.classes) == 10
    assert np.array_equal(got.images[:, 0].numpy(), images) and got.labels.tolist() == labels.tolist()
    assert got.is_test.tolist() == [False] * 7 + [True] * 3 and got.groups is None and got.group_names == ()
    meta = json.loads((root / name / "meta.json").read_text())
    assert meta["sha256"] == got.sha256 == hashlib.sha256(images.tobytes()).hexdigest()
    nothing_but(root, name)
    assert not list((root / "_downloads").iterdir()), "what was downloaded is removed"
    asked = len(web.asked)
    assert data.load(name).sha256 == got.sha256 and len(web.asked) == asked, "the second time nothing is downloaded"


def test_emnist_is_upright(publish):
    """EMNIST's files have rows and columns exchanged; a picture with an ink column at the left must come out like
    that."""
    upright = np.zeros((5, 28, 28), dtype=np.uint8)
    upright[:, :, 3] = 200
    upright[:, 2, 20] = 90
    labels = np.array([0, 10, 36, 61, 9], dtype=np.uint8)
    stored = upright.transpose(0, 2, 1)
    members = {
        f"gzip/emnist-{kind}-{part}-{what}-ubyte.gz": idx(array)
        for kind in ("byclass", "letters")
        for part, rows in (("train", slice(0, 3)), ("test", slice(3, 5)))
        for what, array in (("images-idx3", np.ascontiguousarray(stored[rows])), ("labels-idx1", labels[rows]))
    }
    publish("emnist", {"gzip.zip": zipped(members)})
    emnist = data.load("emnist")
    assert np.array_equal(emnist.images[:, 0].numpy(), upright)
    assert [emnist.classes[label] for label in emnist.labels] == ["0", "A", "a", "z", "9"] and len(emnist.classes) == 62
    assert emnist.is_test.tolist() == [False] * 3 + [True] * 2


def cifar_files(number: int) -> tuple[dict[str, bytes], np.ndarray, list[int]]:
    """The archive of CIFAR-10 or CIFAR-100 with ten training and two test images."""
    if number == 10:
        folder, kind, meta = "cifar-10-batches-py", "", "batches.meta"
        parts = {**{f"data_batch_{k}": 2 for k in range(1, 6)}, "test_batch": 2}
    else:
        folder, kind, meta, parts = "cifar-100-python", "fine_", "meta", {"train": 10, "test": 2}
    images, labels, members = random_images(12, 32, 32, 3), [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8], {}
    done = 0
    for name, n in parts.items():
        flat = images[done : done + n].transpose(0, 3, 1, 2).reshape(n, 3072)
        batch = {f"{kind}labels": labels[done : done + n], "coarse_labels": [0] * n, "data": flat}
        members[f"{folder}/{name}"] = pickle.dumps(batch, protocol=2)
        done += n
    names = {f"{kind}label_names": [f"thing {k}" for k in range(10)], "coarse_label_names": ["x"] * 20}
    members[f"{folder}/{meta}"] = pickle.dumps(names, protocol=2)
    return {f"cifar-{number}-python.tar.gz": tar(members)}, images, labels


@pytest.mark.parametrize("number", [10, 100])
def test_cifar(publish, number):
    """Of CIFAR-100 the fine labels."""
    files, images, labels = cifar_files(number)
    publish(f"cifar{number}", files)
    cifar = data.load(f"cifar{number}")
    assert np.array_equal(pixels(cifar), images) and cifar.labels.tolist() == labels
    assert cifar.is_test.tolist() == [False] * 10 + [True] * 2
    assert cifar.classes[3] == "thing 3" and len(cifar.classes) == 10


@pytest.mark.parametrize(
    "change, said",
    [
        ({"t10k-images-idx3-ubyte.gz": b"<html>not found</html>"}, "not prepared: .*put into .*MNIST/raw/t10k-images"),
        ({"t10k-images-idx3-ubyte.gz": gzip.compress(b"short")}, "not prepared: .*put into"),
        ({}, "10 images of 10 classes, expected 70000 of 10"),
    ],
    ids=["html", "short", "another size"],
)
def test_files_of_torchvision_that_do_not_fit(publish, change, said):
    """Such a file has the right checksum here, as if the publisher had changed it."""
    publish("mnist", mnist_files()[0] | change, exact=True)
    refused("mnist", said)


def test_no_network_says_what_to_fetch_and_accepts_it_by_hand(publish, root, web, monkeypatch):
    """File, address and place are named, and a file put there is used and kept, also offline."""
    files, images, _ = cifar_files(10)
    ((name, content),) = files.items()
    publish("cifar10", files)
    web.files.clear()
    place = root / "_downloads/cifar10"
    said = refused("cifar10", "'cifar10' is not prepared: .*404")
    for words in (f"{name} from https://www.cs.toronto.edu", str(place), "here now: digits", "FEDLIB_DATA"):
        assert words in said
    monkeypatch.setenv("FEDLIB_OFFLINE", "1")
    web.asked.clear()
    refused("cifar10", "'cifar10' is not prepared: FEDLIB_OFFLINE is set")
    place.mkdir(parents=True, exist_ok=True)
    (place / name).write_bytes(content)
    assert np.array_equal(pixels(data.load("cifar10")), images)
    assert [path.name for path in place.iterdir()] == [name] and not web.asked


def test_names_agree_with_torchvision():
    """Files, addresses and classes of the data sets that torchvision reads."""
    import torchvision

    for name, source in DATASETS.items():
        if source.torchvision:
            kind = getattr(torchvision.datasets, source.torchvision)
            urls = [kind.mirrors[0] + file for file, _ in kind.resources] if name in ("mnist", "fmnist") else [kind.url]
            assert [file.urls[0] for file in source.files] == urls
            assert [file.name for file in source.files] == [
                f"{source.torchvision}/raw/" * (source.shape[0] == 1) + url.rpartition("/")[2] for url in urls
            ]
    assert tuple(torchvision.datasets.EMNIST.classes_split_dict["byclass"]) == readers.CHARACTERS


# CINIC-10 and Tiny ImageNet -------------------------------------------------------------------------------------------


def cinic_files(skip: str = "no such", **more) -> tuple[dict[str, bytes], dict[str, np.ndarray]]:
    """Two classes, three parts; one grey and one transparent image among them."""
    images = {
        f"{p}/{c}/{p}-{k}.png": random_images(32, 32, 3)
        for p in ("train", "valid", "test")
        for c in ("cat", "airplane")
        for k in range(2)
    }
    images = {name: image for name, image in images.items() if not name.startswith(skip)}
    members = {f"./{name}": encoded(image) for name, image in images.items()}
    if "train/cat/train-0.png" in images:
        grey = random_images(32, 32)
        members["./train/cat/train-0.png"], images["train/cat/train-0.png"] = encoded(grey), np.stack([grey] * 3, -1)
        members["./train/cat/train-1.png"] = encoded(images["train/cat/train-1.png"], mode="RGBA")
    members |= {"./README.md": b"text", "./train/cat/._train-0.png": b"macOS", "./imagenet-contributors.csv": b"a,b"}
    return {"CINIC-10.tar.gz": tar(members | more)}, images


@pytest.mark.parametrize("folder", ["", "CINIC-10/"])
def test_cinic10(offer, root, folder):
    """Also with the same content one folder deeper, as some copies have it."""
    files, images = cinic_files()
    below = {f"{folder}{name}": encoded(image) for name, image in images.items()}
    offer("cinic10", {"CINIC-10.tar.gz": tar(below)} if folder else files)
    cinic = data.load("cinic10")
    order = sorted(images)  # test, train, valid
    assert cinic.classes == ("airplane", "cat") and cinic.labels.tolist() == [0, 0, 1, 1] * 3
    assert cinic.is_test.tolist() == [name.startswith("test") for name in order]
    assert np.array_equal(pixels(cinic), in_order(images))


def in_order(images: dict[str, np.ndarray]) -> np.ndarray:
    """By part, class and name."""
    return np.stack([images[name] for name in sorted(images)])


UNREADABLE = "train/cat/bad.png in CINIC-10.tar.gz cannot be read as an image"


@pytest.mark.parametrize(
    "skip, more, said",
    [
        ("valid/cat", {}, "no images of class 'cat' in its part 'valid'"),
        ("test", {}, "no images of class 'airplane' in its part 'test'"),
        ("-", {"./train/cat/bad.png": b""}, UNREADABLE),
        ("-", {"./train/cat/bad.png": b"\x89PNG\r\n\x1a\n"}, UNREADABLE),
        ("-", {"./train/cat/bad.png": encoded(random_images(32, 32, 3))[:-200]}, UNREADABLE),
        ("-", {"./train/cat/bad.png": b"GIF89a" + b"\0" * 40}, UNREADABLE),
    ],
)
def test_cinic10_that_does_not_fit(offer, skip, more, said):
    offer("cinic10", cinic_files(skip, **more)[0])
    refused("cinic10", said)


def tiny_files(**replaced) -> dict[str, bytes]:
    """Three classes, two of which share their first word; JPEGs of one colour each, one of them grey."""

    def jpeg(level):
        return encoded(np.full((64, 64, 3), level, dtype=np.uint8), "JPEG")

    members = {
        f"train/{w}/images/{w}_{k}.JPEG": jpeg(40 * c + k)
        for c, w in enumerate(("n01", "n02", "n03"))
        for k in range(2)
    }
    members["train/n02/images/n02_1.JPEG"] = encoded(np.full((64, 64), 41, dtype=np.uint8), "JPEG")
    members |= {f"val/images/val_{k}.JPEG": jpeg(200 + k) for k in range(3)}
    members |= {"test/images/test_0.JPEG": b"has no label", "train/n01/n01_boxes.txt": b"n01_0.JPEG\t0\t0\t1\t1"}
    marks = (f"val_{k}.JPEG\t{wnid}\t0\t0\t9\t9\n" for k, wnid in enumerate(("n03", "n01", "n02")))
    members["val/val_annotations.txt"] = "".join(marks).encode()
    members["wnids.txt"] = b"n03\nn01\nn02\n"
    members["words.txt"] = b"n00\tentity\nn01\tcrane\nn02\tcrane, bird\nn03\tgoldfish, Carassius auratus\n"
    members |= replaced
    return {"tiny-imagenet-200.zip": zipped({f"tiny-imagenet-200/{n}": c for n, c in members.items() if c is not None})}


def test_tiny_imagenet(offer, root):
    offer("tiny_imagenet", tiny_files())
    tiny = data.load("tiny_imagenet")
    assert tiny.shape == (3, 64, 64) and tiny.classes == ("crane (n01)", "crane (n02)", "goldfish")
    assert tiny.labels.tolist() == [0, 0, 1, 1, 2, 2, 2, 0, 1] and tiny.is_test.tolist() == [False] * 6 + [True] * 3
    levels = tiny.images.double().mean((1, 2, 3)).tolist()
    assert levels == pytest.approx([0, 1, 40, 41, 80, 81, 200, 201, 202], abs=1)


@pytest.mark.parametrize(
    "replaced, said",
    [
        ({"val/val_annotations.txt": None}, "lacks one of"),
        ({"wnids.txt": b"n01\nn02\n"}, "belongs to no class"),
        ({"wnids.txt": b"n01\nn02\nn03\nn04\n"}, r"no training images of class n04 \(no name\)"),
        ({"val/val_annotations.txt": b"val_0.JPEG\tn03\t0\t0\t9\t9\n"}, "val_1.JPEG in .* belongs to no class"),
        ({"train/n01/images/n01_1.JPEG": b"\xff\xd8\xff"}, "n01_1.JPEG in tiny-imagenet-200.zip cannot be read"),
    ],
)
def test_tiny_imagenet_with_something_missing(offer, replaced, said):
    offer("tiny_imagenet", tiny_files(**replaced))
    refused("tiny_imagenet", said)


# FEMNIST --------------------------------------------------------------------------------------------------------------


def place_leaf(root: Path, files: dict[str, dict[str, tuple[list, list[int]]]], **wrong) -> Path:
    """Put LEAF's JSON where a person would: {file: {writer: (images of one level, or of 784, labels)}}."""
    folder = root / "_downloads/femnist"
    folder.mkdir(parents=True, exist_ok=True)
    for name, writers in files.items():
        user_data = {
            writer: {"x": [(np.broadcast_to(image, 784) / 255).tolist() for image in images], "y": labels}
            for writer, (images, labels) in writers.items()
        }
        sizes = [len(labels) for _, labels in writers.values()]
        body = {"users": list(writers), "num_samples": sizes, "user_data": user_data}
        (folder / name).write_text(json.dumps(body | wrong))
    return folder


def test_femnist_by_writer(root):
    """All writers are kept, also one with a single sample; file 2 comes before file 10; images are not transposed;
    LEAF's files are not removed."""
    image = np.arange(784) % 256
    writers = {"f1": ([image, 1, 0], [61, 0, 36]), "none": ([], []), "f2": ([100, 101], [10, 10])}
    folder = place_leaf(root, {"all_data_10.json": {"f0003_07": ([7], [9])}, "all_data_2.json": writers})
    femnist = data.load("femnist")
    assert femnist.group_names == ("f1", "f2", "f0003_07") and femnist.groups.tolist() == [0, 0, 0, 1, 1, 2]
    assert femnist.labels.tolist() == [61, 0, 36, 10, 10, 9] and femnist.classes[10] == "A"
    assert femnist.images[1:, 0, 5, 5].tolist() == [1, 0, 100, 101, 7] and femnist.shape == (1, 28, 28)
    assert femnist.images[0].flatten().tolist() == image.tolist()
    assert not femnist.is_test.any() and len(list(folder.iterdir())) == 2


ONE = {"a": ([1], [1])}  # a writer with an image


@pytest.mark.parametrize(
    "files, wrong, said",
    [
        ([{"a": ([1], [62])}], {}, "all_data_0.json is not as LEAF writes it.*writer 'a'"),
        ([{"a": ([1], [0.5])}], {}, "writer 'a'"),
        ([{"a": ([256], [1])}], {}, "writer 'a'"),
        ([{"a": ([1, 2], [1])}], {}, "writer 'a'"),
        ([ONE], {"users": ["b"]}, "KeyError: 'b'"),
        ([{}], {}, "no writer has a sample"),
        ([ONE, ONE], {}, "'a' is in all_data_0.json and again in all_data_1.json"),
        ([], {}, r"no direct download.*_downloads/femnist: all_data_\*.json.*preprocess.sh"),
    ],
)
def test_femnist_files_that_are_wrong(root, files, wrong, said):
    place_leaf(root, {f"all_data_{k}.json": writers for k, writers in enumerate(files)}, **wrong)
    refused("femnist", said)


def test_femnist_truncated_file(root):
    file = place_leaf(root, {"all_data_0.json": ONE}) / "all_data_0.json"
    file.write_text(file.read_text()[:-30])
    refused("femnist", "all_data_0.json is not as LEAF writes it")


# DomainNet ------------------------------------------------------------------------------------------------------------

DOMAINS = ("clipart", "infograph", "painting", "quickdraw", "real", "sketch")


def domainnet_files(drop: str = "no such", **replaced) -> dict[str, bytes]:
    """Six domains, four classes of ten images (the last 3 in the test list); `sketch` lacks the class zebra.
    Blue = domain, green = class."""
    files = {}
    for d, domain in enumerate(DOMAINS):
        names = ["ant", "bee", "cow"] if domain == "sketch" else ["ant", "bee", "cow", "zebra"]
        images = {f"{domain}/{c}/{domain}_{k:03}.png": (k, 10 * n, d) for n, c in enumerate(names) for k in range(10)}
        drawn = {path: one_colour(*rgb, size=(80, 50)) for path, rgb in images.items() if path != drop}
        files[f"{domain}.zip"] = zipped(drawn)
        for part, kept in (("train", range(7)), ("test", range(7, 10))):
            lines = [f"{p} {n}" for p, (k, n, _) in images.items() if k in kept]
            files[f"{domain}_{part}.txt"] = "\n".join(lines + [""]).encode()
    return files | replaced


def test_domainnet(offer, root):
    """The same 2 classes in all domains, none that a domain lacks, 3 of 10 images of each class and domain, 64x64."""
    asked = DATASETS["domainnet"].read.keywords
    assert (asked["classes"], asked["share"], asked["size"]) == (20, 0.3, 64)
    offer("domainnet", domainnet_files(), {"classes": 2})
    net = data.load("domainnet")
    assert net.shape == (3, 64, 64) and net.group_names == DOMAINS
    assert len(net.classes) == 2 and "zebra" not in net.classes
    assert net.groups.tolist() == [d for d in range(6) for _ in range(6)]
    assert net.labels.tolist() == [0, 0, 0, 1, 1, 1] * 6
    number, level, domain = net.images[:, :, 30, 30].unbind(1)
    assert domain.tolist() == net.groups.tolist()
    assert [("ant", "bee", "cow")[n // 10] for n in level.tolist()] == [net.classes[y] for y in net.labels]
    assert net.is_test.tolist() == (number >= 7).tolist() and net.is_test.any() and not net.is_test.all()
    assert len(set(map(tuple, number.view(-1, 3).tolist()))) > 1, "another draw for every class and domain"
    before = net.sha256
    shutil.rmtree(root / "domainnet")
    assert data.load("domainnet").sha256 == before, "classes and images are drawn from a fixed seed"


def test_domainnet_in_full(offer, root):
    offer("domainnet", domainnet_files(), {"classes": 3, "share": 1.0})
    net = data.load("domainnet")
    assert net.labels.bincount().tolist() == [60] * 3 and int(net.is_test.sum()) == 6 * 3 * 3


@pytest.mark.parametrize(
    "change, classes, said",
    [
        ({}, 4, "share 3 classes; 4 are needed"),
        ({"real_test.txt": b"real/ant/real_001.png"}, 2, "real_test.txt is not a list"),
        ({"real_test.txt": b"../../etc/passwd 3"}, 2, "real_test.txt is not a list"),
        ({"real_test.txt": b"sketch/ant/sketch_001.png 0"}, 2, "real_test.txt is not a list of images of real"),
        ({"drop": "real/bee/real_004.png"}, 3, "real.zip has no member 'real/bee/real_004.png'"),
    ],
)
def test_domainnet_that_does_not_fit(offer, change, classes, said):
    offer("domainnet", domainnet_files(**change), {"classes": classes, "share": 1.0})
    refused("domainnet", said)


# PACS -----------------------------------------------------------------------------------------------------------------

PACS_IMAGES = {"photo": (2, 1), "sketch": (1, 2)}  # by class
PARQUET = "train-00000-of-00001.parquet"


def pacs_images() -> dict[tuple[str, str], list[bytes]]:
    """A few images by domain and class; red = number, green = class, blue = domain, larger than 64x64."""
    return {
        (domain, name): [one_colour(k, 10 * c, 20 * d, size=(80, 90)) for k in range(n)]
        for d, (domain, own) in enumerate(PACS_IMAGES.items())
        for c, (name, n) in enumerate(zip(("dog", "horse"), own))
    }


def pacs_parquet(images=None, **renamed: str) -> bytes:
    """The hub's file, the rows of the last domain first."""
    import pyarrow as pa
    from pyarrow import parquet

    rows = [(own, *place) for place, all_ in (images or pacs_images()).items() for own in all_]
    rows.sort(key=lambda row: row[1], reverse=True)
    table = {
        "image": [{"bytes": own, "path": "pic_001.jpg"} for own, _, _ in rows],
        "domain": [domain for _, domain, _ in rows],
        "label": [("dog", "horse").index(name) for _, _, name in rows],
    }
    out = io.BytesIO()
    parquet.write_table(pa.table({renamed.get(name, name): column for name, column in table.items()}), out)
    return out.getvalue()


@pytest.fixture
def offer_pacs(offer, root):
    """offer_pacs(content of the Parquet file, content of PACS.zip where a person placed it)."""

    def put(parquet: bytes, by_hand: bytes | None = None) -> None:
        offer("pacs", {PARQUET: parquet}, {"images": PACS_IMAGES, "classes": ("dog", "horse")})
        if by_hand is not None:
            (root / "_downloads/pacs").mkdir(parents=True)
            (root / "_downloads/pacs/PACS.zip").write_bytes(by_hand)

    return put


def pacs_zip(left_out: str = "-", old: str = "", new: str = "") -> bytes:
    """An archive of the images without those whose names begin with `left_out`, `old` in their names replaced."""
    files = {f"kfold/{d}/{c}/pic_{k}.png": own for (d, c), all_ in pacs_images().items() for k, own in enumerate(all_)}
    files = {name.replace(old, new): own for name, own in files.items() if not name.startswith(left_out)}
    return zipped(files | {"kfold/readme.txt": b"no image", "__MACOSX/kfold/photo/dog/._pic_0.png": b""})


@pytest.mark.parametrize("by_hand", [False, True])
def test_pacs(offer_pacs, root, by_hand):
    """From the hub's file or, which then is not asked for, from an archive that a person placed: the same."""
    offer_pacs(*((b"no Parquet", pacs_zip()) if by_hand else (pacs_parquet(),)))
    pacs = data.load("pacs")
    assert pacs.shape == (3, 64, 64) and pacs.group_names == ("photo", "sketch") and pacs.classes == ("dog", "horse")
    assert pacs.groups.tolist() == [0, 0, 0, 1, 1, 1] and pacs.labels.tolist() == [0, 0, 1, 0, 1, 1]
    number, level, domain = pacs.images[:, :, 30, 30].unbind(1)
    assert number.tolist() == [0, 1, 0, 0, 0, 1] and not pacs.is_test.any()
    assert level.tolist() == (10 * pacs.labels).tolist() and domain.tolist() == (20 * pacs.groups).tolist()
    assert (root / "_downloads/pacs/PACS.zip").exists() == by_hand, "what a person placed stays"


@pytest.mark.parametrize(
    "change, said",
    [
        (["kfold/sketch/horse/"], "PACS.zip has 0 images in 'sketch/horse', expected 2"),
        (["kfold/sketch/horse/pic_1"], "PACS.zip has 1 images in 'sketch/horse', expected 2"),
        (["kfold/sketch/"], "no images of the domain 'sketch'; expected DOMAIN/CLASS with photo, sketch and dog"),
        (["kfold"], "no images of the domain 'photo'; expected DOMAIN/CLASS"),
        (["-", "photo", "photos"], "in 'photos/dog'; expected DOMAIN/CLASS with photo, sketch and dog, horse"),
        (["-", "dog", "cat"], "images in 'photo/cat'; expected DOMAIN/CLASS"),
        (["-", "kfold/photo/dog/", ""], "images in no folder; expected DOMAIN/CLASS"),
        (["-", "kfold/photo/dog", "dog"], "images in 'dog'; expected DOMAIN/CLASS"),
    ],
)
def test_an_archive_of_pacs_that_does_not_fit(offer_pacs, change, said):
    offer_pacs(b"", pacs_zip(*change))
    refused("pacs", said)


@pytest.mark.parametrize(
    "content, said",
    [
        (b"PAR1 and nothing else", "has no columns image, domain and label"),
        (pacs_parquet(domain="style"), "has no columns image, domain and label"),
        (pacs_parquet({**pacs_images(), ("photo", "dog"): [b"a", b"b"]}), "image 3 in .*parquet cannot be read as"),
        (pacs_parquet({("photo", "dog"): pacs_images()["photo", "dog"]}), "no images of the domain 'sketch'"),
    ],
)
def test_a_file_of_pacs_that_does_not_fit(offer_pacs, content, said):
    offer_pacs(content)
    refused("pacs", said)


def test_pacs_without_a_network_or_without_pyarrow(offer_pacs, monkeypatch):
    monkeypatch.setenv("FEDLIB_OFFLINE", "1")
    refused("pacs", r"OFFLINE is set.*parquet \(sha256:.*or instead PACS.zip.*DOMAIN/CLASS")
    monkeypatch.delenv("FEDLIB_OFFLINE")
    offer_pacs(pacs_parquet())
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    refused("pacs", r"needs pyarrow \(the extra 'hf'\): pip install 'fedlib\[hf\]'", BadValue)


# archives -------------------------------------------------------------------------------------------------------------


both_kinds = pytest.mark.parametrize("name, pack", [("a.tar.gz", tar), ("a.zip", zipped)])


@both_kinds
def test_archives_are_read_in_memory(tmp_path, name, pack):
    """A name that leads out of the folder writes nothing, for nothing is written."""
    (tmp_path / name).write_bytes(pack({"./a/b.txt": b"bee", "c.txt": b"sea", "../evil": b"x"}))
    assert download.member_names(tmp_path / name) == ["a/b.txt", "c.txt", "../evil"]
    assert list(download.read_members(tmp_path / name, ["a/b.txt"])) == [("a/b.txt", b"bee")]
    with pytest.raises(DataError, match="has no member 'd.txt'"):
        list(download.read_members(tmp_path / name, ["a/b.txt", "d.txt"]))
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("keep", [0, 100, -1000])
@both_kinds
def test_truncated_archives(tmp_path, name, pack, keep):
    (tmp_path / name).write_bytes(pack({f"{k}.bin": random_images(1000).tobytes() for k in range(20)})[:keep])
    with pytest.raises(DataError, match=f"{name} is damaged"):
        list(download.read_members(tmp_path / name, {"19.bin"}))


# a user's own folders -------------------------------------------------------------------------------------------------


def laid_out(folder: Path, files: dict[str, bytes]) -> Path:
    """A folder with these files."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


@pytest.fixture
def pets(root, tmp_path):
    """Three classes with odd names and images of every kind, and things that are to be ignored."""
    files = {
        "grey cats/a.png": encoded(np.full((10, 20), 100, dtype=np.uint8)),
        "grey cats/deep/er/b.PNG": encoded(np.full((5, 5), 40_000, dtype=np.uint16)),
        "köter 犬/palette.gif": encoded(Image.new("RGB", (30, 9), (200, 10, 20)).quantize(4), "GIF"),
        "köter 犬/cmyk.jpg": encoded(Image.new("CMYK", (16, 16), (0, 255, 255, 0)), "JPEG"),
        "köter 犬/clear.png": encoded(Image.new("RGBA", (8, 8), (0, 0, 0, 0))),
        "köter 犬/one bit.png": encoded(Image.new("1", (8, 8), 1)),
        "z [x] #1/photo.jpeg": encoded(Image.new("RGB", (40, 20), (255, 255, 255)), "JPEG"),
    }
    ignored = ("notes.txt", ".hidden.png", ".thumbs/x.png")
    files |= dict.fromkeys([*(f"z [x] #1/{name}" for name in ignored), ".git/x.png", "loose.png"], b"not an image")
    return laid_out(tmp_path / "My pets ünd more", files)


def test_folder_of_images(pets, root):
    got = data.load(f"folder:{pets}")
    assert got.shape == (3, 64, 64) and got.classes == ("grey cats", "köter 犬", "z [x] #1")
    assert got.labels.tolist() == [0, 0, 1, 1, 1, 1, 2] and not got.is_test.any() and got.groups is None
    names = ("grey", "16 bit", "clear", "cmyk", "one bit", "palette", "photo")
    colours = dict(zip(names, got.images[:, :, 32, 32].tolist()))
    near = functools.partial(pytest.approx, abs=3)
    assert colours["grey"] == [100] * 3 and colours["16 bit"] == near([156] * 3)
    assert colours["clear"] == [255] * 3 and colours["one bit"] == [255] * 3 and colours["photo"] == near([255] * 3)
    assert colours["palette"] == near([200, 10, 20]) and colours["cmyk"] == near([255, 0, 0])
    assert not root.exists() or data.available() == [*EMBEDDED], "the copy goes to the cache, not to the data root"


def test_folder_names_that_are_no_text(root, tmp_path):
    try:
        os.makedirs(os.fsencode(tmp_path / "odd") + b"/caf\xe9")
    except OSError:
        pytest.skip("this file system takes only text as names")
    with open(os.fsencode(tmp_path / "odd") + b"/caf\xe9/\xff.png", "wb") as out:
        out.write(encoded(random_images(8, 8, 3)))
    assert data.load(f"folder:{tmp_path / 'odd'}").classes == ("caf?",)


def test_folder_on_a_full_disk(pets, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    refused(f"folder:{pets}", "cannot be prepared in .*No space left")
    assert not copies(tmp_path)


def test_folder_sizes(pets):
    assert data.load(f"folder:{pets}@16").shape == (3, 16, 16)
    refused(f"folder:{pets}@4", "@4' is not accepted; expected .*8 to 1024 pixels", BadValue)
    literal = pets.rename(pets.with_name("set@20"))
    assert data.load(f"folder:{literal}").shape == (3, 64, 64)
    assert data.load(f"folder:{literal}@20").shape == (3, 20, 20)


def test_folder_images_are_stretched_and_turned_upright(tmp_path, root):
    """Left half black, right half white; the second one is stored lying on its side, with the mark that cameras set."""
    wide = np.zeros((20, 40), dtype=np.uint8)
    wide[:, 20:] = 255
    exif = Image.Exif()
    exif[0x0112] = 8  # to be shown turned by 90 degrees to the left
    lying = encoded(np.ascontiguousarray(np.rot90(wide, -1)), exif=exif)
    folder = laid_out(tmp_path / "x", {"a/1.png": encoded(wide), "a/2.png": lying})
    for image in data.load(f"folder:{folder}@32").images:
        assert image[:, :, :15].max() == 0 and image[:, :, 17:].min() == 255


def test_folder_paths(pets, monkeypatch, tmp_path):
    """Relative, through "~" and through a link: one folder, one copy."""
    absolute = data.load(f"folder:{pets}@8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "link").symlink_to(pets)
    (tmp_path / "x").mkdir()
    for path in (pets.name, f"~/{pets.name}", "link", f"./x/../{pets.name}"):
        assert data.load(f"folder:{path}@8").sha256 == absolute.sha256
    assert len(copies(tmp_path)) == 1


def test_folder_is_prepared_once_until_it_changes(pets, tmp_path, monkeypatch):
    builds, real = [], prepare.build
    monkeypatch.setattr(prepare, "build", lambda *args, **kw: (builds.append(1), real(*args, **kw)))
    first = data.load(f"folder:{pets}@8")
    assert data.load(f"folder:{pets}@8").sha256 == first.sha256 and len(builds) == 1
    (pets / "grey cats/new.png").write_bytes(encoded(random_images(8, 8)))
    assert len(data.load(f"folder:{pets}@8").labels) == 8 and len(builds) == 2
    (pets / "grey cats/new.png").unlink()
    assert data.load(f"folder:{pets}@8").sha256 == first.sha256 and len(builds) == 3
    os.utime(pets / "grey cats/a.png", ns=(1, 1))  # another image of the same size would look like this
    assert data.load(f"folder:{pets}@8").sha256 == first.sha256 and len(builds) == 4
    assert len(copies(tmp_path)) == 1, "old copies are removed"


def test_folder_copy_that_is_damaged_is_made_again(pets, tmp_path):
    before = data.load(f"folder:{pets}@8").sha256
    (copy,) = copies(tmp_path)
    flipped(copy / "images.npy")
    assert data.load(f"folder:{pets}@8").sha256 == before
    (copy / "labels.npy").unlink()
    assert data.load(f"folder:{pets}@8").sha256 == before


@pytest.mark.parametrize(
    "contents, said",
    [
        ([b""], "grey cats/0.jpg cannot be read as an image"),
        ([b"hello"], r"0.jpg cannot be read as an image \(of no known kind\)"),
        ([encoded(random_images(64, 64, 3), "JPEG")[:700]], "0.jpg cannot be read as an image"),
        ([b"%PDF-1.4"], "0.jpg cannot be read as an image"),
        ([b"hello", b"hello"], "2 of 9 images cannot be read; the first: .*0.jpg cannot be .* .of no known kind"),
    ],
    ids=["empty", "text", "half", "pdf", "two"],
)
def test_folder_with_unreadable_images(pets, contents, said, tmp_path):
    laid_out(pets, {f"grey cats/{k}.jpg": content for k, content in enumerate(contents)})
    refused(f"folder:{pets}", said)
    assert not copies(tmp_path)


def test_folder_says_what_it_leaves_out(pets, capsys):
    """In one line, counted; a link to a folder is not followed, for it may lead back."""
    (pets / "grey cats/again").symlink_to(pets)
    for name in ("gone", "gone too"):
        (pets / f"grey cats/{name}.png").symlink_to("/nowhere/gone.png")
    photo = (pets / "z [x] #1/photo.jpeg").read_bytes()
    more = {"photo": b"", "read me.TXT": b"", "q.jfif": photo, "q.jpe": photo, "q.apng": photo}
    laid_out(pets / "z [x] #1", more)
    got = data.load(f"folder:{pets}@8")
    assert got.labels.tolist() == [0, 0, 1, 1, 1, 1, 2, 2, 2, 2]
    said = capsys.readouterr().err
    assert f"{pets}: 7 files left out: loose.png, again, gone too.png, gone.png, notes.txt, ...\n" in said
    assert f"{pets}: images in folders below a class belong to it, 1 of 10, such as those in er\n" in said
    laid_out(pets, {"no pictures/a.heic": b""})
    refused(f"folder:{pets}@8", "class folder .*no pictures has no images .*; 5 files left out: loose.png, again")


def test_folder_with_parts(root, tmp_path, capsys):
    """Folders train and test are no classes."""
    shades = {"train/Cat/1": 1, "train/dog/1": 2, "Test/dog/1": 3, "Test/cat/1": 4, "val/Cat/2": 5}
    folder = laid_out(tmp_path / "x", {f"{name}.png": one_colour(k, k, k) for name, k in shades.items()})
    got = data.load(f"folder:{folder}@8")
    assert got.classes == ("Cat", "cat", "dog") and got.labels.tolist() == [0, 0, 1, 2, 2]
    assert got.images[:, 0, 0, 0].tolist() == [1, 5, 4, 3, 2]
    assert got.is_test.tolist() == [False, False, True, True, False]
    assert "classes: 'Cat' and 'cat' are taken as different names" in capsys.readouterr().err
    laid_out(folder / "val/Cat", {"\n.1": b"", "scan.2": b""})
    assert len(data.load(f"folder:{folder}@9").labels) == 5
    assert "x: 2 files left out:  .1, scan.2\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    "place, said",
    [
        ("nowhere", "there is no folder .*nowhere"),
        ("loose.png", "there is no folder .*loose.png"),
        ("", "class folder .*empty class has no images"),
        ("empty class", "there are no subfolders of .*; expected one"),
        ("flat", "there are no subfolders of .*flat; expected one"),
    ],
)
def test_folder_errors(pets, place, said):
    for name in ("empty class", "flat/train"):
        (pets / name).mkdir(parents=True)
    refused(f"folder:{pets / place}", said)


def test_a_run_on_a_folder(root, tmp_path):
    """RunSpec takes folder:<path>; the data checksum is stored with the run, and results go to one folder,
    not to a tree."""
    from helpers import get_or_run, tiny

    from fedlib.engine.simulate import simulate
    from fedlib.experiments import OpenItem, find
    from fedlib.runs.store import Store

    images = {f"{c}/{k}.png": encoded(random_images(16, 16, 3)) for c in "ab" for k in range(20)}
    name = f"folder:{laid_out(tmp_path / 'pics', images)}@16"
    spec = tiny("fedavg", dataset=name, num_clients=2, rounds=1, partition=dict(alpha=10.0, min_size=2))
    assert simulate(spec).partition["data"] == data.load(name).sha256[:16]
    store = Store("own", tmp_path)
    before = get_or_run(spec, store)
    assert store.get(spec).final() == before.final()
    laid_out(tmp_path / "pics", {f"b/{k}.png": encoded(random_images(16, 16, 3)) for k in range(20, 30)})
    with pytest.warns(UserWarning, match="holds other images now; kept aside"):
        again = get_or_run(spec, store)
    assert again.partition["data"] == data.load(name).sha256[:16] != before.partition["data"]
    (tmp_path / "pics").rename(tmp_path / "moved")  # what is done can still be read
    assert store.get(spec).final() == again.final()
    place = OpenItem(find("pfedsim/fig1_cka"), "smoke", dataset=name).place
    assert place.startswith("smoke+dataset=folder__") and "/" not in place


# downloading ----------------------------------------------------------------------------------------------------------


CONTENT = random_images(3_000_000).tobytes()


@pytest.fixture
def remote(root, web):
    """A file with two mirrors, the right content of which is CONTENT."""
    mirrors = tuple(f"{web.url}/{mirror}/x.bin" for mirror in ("first", "second"))
    return RemoteFile("x.bin", mirrors, f"md5:{hashlib.md5(CONTENT).hexdigest()}")


@pytest.mark.parametrize("first", [None, CONTENT[:-1000]], ids=["absent", "breaks off"])
def test_second_mirror_serves_when_the_first_does_not(web, remote, tmp_path, capsys, first):
    """With a bar on stderr."""
    web.files |= {"/second/x.bin": CONTENT} | ({"/first/x.bin": first} if first else {})
    (path,) = download.fetch([remote], tmp_path / "here").values()
    assert path.read_bytes() == CONTENT and web.asked == ["/first/x.bin", "/second/x.bin"]
    assert [p.name for p in (tmp_path / "here").iterdir()] == ["x.bin"]
    shown = capsys.readouterr()
    assert "2.86M" in shown.err and shown.out == ""


def test_every_mirror_fails(web, remote, tmp_path):
    """What went wrong at each of them is said, and nothing is left."""
    web.files["/second/x.bin"] = CONTENT[:-1] + b"?"
    wrong = hashlib.md5(web.files["/second/x.bin"]).hexdigest()
    with pytest.raises(DataError, match=f"first/x.bin: HTTP Error 404.*it has md5:{wrong}, expected {remote.checksum}"):
        download.fetch([remote], tmp_path / "here")
    assert not list((tmp_path / "here").iterdir())


def test_a_person_s_file_with_a_wrong_checksum_is_named_and_left_alone(offer, root):
    offer("cinic10", cinic_files()[0])
    place = root / "_downloads/cinic10"
    place.mkdir(parents=True)
    (place / "CINIC-10.tar.gz").write_bytes(b"another")
    refused("cinic10", "CINIC-10.tar.gz is not the file it should be: it has md5:.*, expected md5:.*replace it")
    assert (place / "CINIC-10.tar.gz").read_bytes() == b"another"


def test_only_what_is_missing_is_downloaded_and_removed(offer, root):
    """Also what arrived before a failure is not asked for again."""
    server = offer("domainnet", domainnet_files(), {"classes": 2})
    placed, last = root / "_downloads/domainnet/clipart.zip", server / "sketch_test.txt"
    placed.parent.mkdir(parents=True)
    (server / placed.name).rename(placed)
    last.rename(server / "away")
    refused("domainnet", f"put into .*: {last.name}")
    for file in server.iterdir():
        if file.name != "away":
            file.unlink()
    (server / "away").rename(last)
    assert len(data.load("domainnet").labels) == 36
    assert placed.exists() and not (placed.parent / last.name).exists()


def test_downloads_are_kept_on_request(offer, root):
    files, _ = cinic_files()
    offer("cinic10", files)
    data.load("cinic10", keep=True)
    assert {p.name: p.read_bytes() for p in (root / "_downloads/cinic10").iterdir()} == files


def test_no_space(offer, monkeypatch):
    offer("cinic10", cinic_files()[0], megabytes=688)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10**9, 10**9, 10**9))
    refused("cinic10", "1.0 GB free; preparing the data set needs up to 1.5 GB")


def test_root_that_cannot_be_written(offer, root):
    offer("cinic10", cinic_files()[0])
    root.write_text("a file where a folder should be")
    refused("cinic10", "'cinic10' cannot be prepared in")


# interruptions, several processes, damage -----------------------------------------------------------------------------


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, OSError])
def test_interrupted_preparation_leaves_nothing(offer, monkeypatch, error):
    files, images = cinic_files()
    offer("cinic10", files)
    whole = DATASETS["cinic10"]

    def read(paths, allocate):
        whole.read(paths, allocate)
        raise error("in the middle")

    monkeypatch.setitem(DATASETS, "cinic10", dataclasses.replace(whole, read=read))
    refused("cinic10", "in the middle", DataError if error is OSError else error)
    monkeypatch.setitem(DATASETS, "cinic10", whole)
    assert np.array_equal(pixels(data.load("cinic10")), in_order(images))


CHILD = """
import dataclasses, os, pathlib, signal, sys, time
from fedlib import data
from fedlib.data.datasets import EMBEDDED
from fedlib.data import DATASETS
from fedlib.data.download import RemoteFile
assert not {"PIL", "torchvision"} & set(sys.modules), "imported only where used"
server, how, log = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
source = DATASETS["cinic10"]
def read(paths, allocate):
    with open(log, "a") as out:
        out.write("built\\n")
    content = source.read(paths, allocate)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.5)
    return content
files = tuple(RemoteFile(f.name, ((server / f.name).as_uri(),)) for f in source.files)
DATASETS["cinic10"] = dataclasses.replace(source, files=files, read=read, exact=False)
print("ready", flush=True)
sys.stdin.readline()
print(data.load("cinic10").sha256)
"""


def start(server: Path, how: str, log: Path):
    command = [sys.executable, "-c", CHILD, str(server), how, str(log)]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "ready\n", child.stderr.read()
    return child


def test_killed_preparation_and_two_processes_at_once(offer, root, tmp_path):
    """One process is killed while preparing; then two ask at the same moment, and the data set is prepared once."""
    files, images = cinic_files()
    server, log = offer("cinic10", files), tmp_path / "log"
    children = [start(server, how, log) for how in ("kill", "wait", "wait")]
    children[0].communicate("go\n", timeout=600)
    assert children[0].returncode == -9 and (root / ".cinic10.tmp").exists() and data.available() == [*EMBEDDED]
    for child in children[1:]:
        child.stdin.write("go\n")
        child.stdin.flush()
    answers = [child.communicate(timeout=600) for child in children[1:]]
    assert [out for out, _ in answers] == [hashlib.sha256(in_order(images).tobytes()).hexdigest() + "\n"] * 2, answers
    assert log.read_text() == "built\n" * 2
    nothing_but(root, "cinic10")


def test_damaged_data_set_is_made_again_and_kept_aside(offer, root):
    files, images = cinic_files()
    offer("cinic10", files)
    data.load("cinic10")
    flipped(root / "cinic10/images.npy")
    with pytest.warns(UserWarning, match="'cinic10' .* fails its checksum.*made again.*_damaged"):
        assert np.array_equal(pixels(data.load("cinic10")), in_order(images))
    assert [p.name for p in (root / "_damaged").iterdir()] == ["cinic10.0"]
    assert data.available() == [*EMBEDDED, "cinic10"]


def test_damaged_data_set_without_network_is_left_where_it_is(offer, root, monkeypatch):
    offer("cinic10", cinic_files()[0])
    data.load("cinic10")
    (root / "cinic10/labels.npy").write_bytes(b"")
    monkeypatch.setenv("FEDLIB_OFFLINE", "1")
    with pytest.warns(UserWarning, match="damaged"), pytest.raises(DataError, match="FEDLIB_OFFLINE is set"):
        data.load("cinic10")
    assert (root / "cinic10/images.npy").exists() and not (root / "_damaged").exists()


def test_a_folder_in_the_way_is_not_touched(publish, root):
    """Someone's own files under the name of a data set: an error, not a replacement."""
    publish("cifar10", cifar_files(10)[0])
    (root / "cifar10/cifar-10-batches-py").mkdir(parents=True)
    with pytest.raises(DataError, match="images.npy.* missing in .*cifar10; complete it, or move this folder away"):
        data.load("cifar10")
    assert (root / "cifar10/cifar-10-batches-py").is_dir()


# facts and the command line -------------------------------------------------------------------------------------------


def test_registry():
    prepared = "mnist fmnist emnist femnist cifar10 cifar100 cinic10 tiny_imagenet domainnet pacs"
    assert list(DATASETS) == [*EMBEDDED, *prepared.split()]
    for name, source in DATASETS.items():
        assert source.terms and source.citation and source.images > 900 and source.classes >= 2
        assert (source.read is None) == (name in EMBEDDED) and bool(source.by_hand) == (name in ("femnist", "pacs"))
        for file in source.files:
            assert file.urls or source.by_hand
            kind, _, digits = (file.checksum or "md5:" + "0" * 32).partition(":")
            assert len(digits) == {"md5": 32, "sha256": 64}[kind] and set(digits) <= set("0123456789abcdef")
    sums = [file.checksum for source in DATASETS.values() for file in source.files if file.checksum]
    assert len(set(sums)) == len(sums) == 21
    pacs = DATASETS["pacs"].read.keywords["images"]
    assert sum(map(sum, pacs.values())) == DATASETS["pacs"].images and list(pacs) == sorted(pacs)


def test_data_command(publish, root, pets, tmp_path):
    """Prepares what is absent, says what it is; --list shows all; --root is another place; --keep keeps."""
    place_leaf(root, {"all_data_0.json": {"w1": ([1, 2], [0, 1]), "w2": ([3], [2])}})
    shown = call("data", "femnist")
    assert shown.exit_code == 0, shown.output
    assert "3 images of (1, 28, 28)" in shown.stdout and "2 groups: w1 2, w2 1" in shown.stdout
    publish("mnist", mnist_files()[0])
    assert "3 are in the official test set" in call("data", "mnist", "--root", tmp_path / "other", "--keep").stdout
    assert len(list((tmp_path / "other/_downloads/mnist/MNIST/raw").glob("*.gz"))) == 4
    assert "3 classes" in call("data", f"folder:{pets}@8").stdout
    for listed in (call("data", "--list").stdout, call("data").stdout):
        rows = {line.split()[0]: line for line in listed.splitlines() if line.startswith("  ")}
        assert list(DATASETS) == [name for name in rows if name in DATASETS]
        assert rows["femnist"].endswith("LEAF: BSD 2-clause; images derived from NIST Special Database 19")
        assert "184 MB  no" in listed and "641 MB  yes" in listed and "Learning Multiple Layers" in listed
    assert "cifar10" in call("data", "cifer10").stderr
