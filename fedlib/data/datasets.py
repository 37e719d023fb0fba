"""Data sets: four embedded, the others prepared on disk, all as images [n, c, h, w] and int64 labels [n].

Images are bytes, or float32 as they are; a table of d features has "images" of d channels and one pixel. The prepared
form of a data set is a folder `<root>/<name>/` with `images.npy` (uint8 or float32 [n, h, w, c]), `labels.npy` (int64
[n]), `is_test.npy` (bool [n], the official split), `meta.json` (name, classes, sha256 of the image bytes) and, where
images come in natural groups such as writers or domains, `groups.npy` (int64 [n]) and their names under "groups" in
meta.json. Images are memory-mapped, so loading costs no more memory than the pages that are read.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import os
import re
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fedlib.base.errors import BadValue, DataError, choose
from fedlib.base.files import cache_root, user_cache
from fedlib.base.same_bits import square_root
from fedlib.data import embedded, own
from fedlib.data.embedded import HOSPITALS, LOOKS, in_looks
from fedlib.data.own import copy_hub, full_name
from fedlib.data.prepare import copy_folder, hash_images, hash_labels, obtain
from fedlib.data.sources import DATASETS, DOMAINS, PACS

PREPARED_FILES = ("images.npy", "labels.npy", "is_test.npy", "meta.json")


@dataclass(frozen=True)
class Dataset:
    """images: uint8 [n, c, h, w] in 0..255, or float32; features are float32 [n, d, 1, 1]; labels: int64 [n] in 0..C-1;
    classes: C names; sha256 of the image bytes; is_test: bool [n], the official split (all False where there is none);
    groups: int64 [n], the writer or domain of every image as index into group_names, or None; fitted: whether inputs
    were made with statistics of the official training part, so that no other split is honest."""

    name: str
    images: Tensor
    labels: Tensor
    classes: tuple[str, ...]
    sha256: str
    is_test: Tensor | None = None
    groups: Tensor | None = None
    group_names: tuple[str, ...] = ()
    place: Path | None = None  # folder of the prepared format
    fitted: bool = False

    def __post_init__(self):
        if self.is_test is None:
            object.__setattr__(self, "is_test", torch.zeros(len(self.labels), dtype=torch.bool))

    @classmethod
    def from_arrays(cls, x, y, groups=None, *, name: str = "own", classes=None, is_test=None, channels: str = ""):
        """A data set of the user's own arrays, which a run can name: RunSpec(dataset=name).

        x: images [n, h, w], [n, h, w, c] or [n, c, h, w], uint8 or other numbers, features [n, d], or a list of Pillow
        pictures; y: numbers or names [n]; groups: numbers or names [n], who owns a sample (see the partition schemes
        domain and writer); classes: the names that y counts in from 0, without them the values of y; is_test: bool [n],
        an official test part; channels: "first" or "last", where the shape leaves it open. A copy is kept in the cache
        folder. The name that is returned, arrays:NAME@HASH, holds a hash of all this and is known in other processes of
        this machine, too; other arrays under the same name are another data set.

        Raises BadValue, naming the value, for arrays that do not fit and for a name that is taken, DataError if the
        copy cannot be written.
        """
        found = own.checked(x, y, groups, classes, is_test, channels)
        taken = [*DATASETS, *(known for known in available() if known not in DATASETS)]
        return load(own.keep(found, name, copies("arrays"), functools.partial(_sound, name), taken))

    def __reduce__(self):
        """Pickled as its place, where it has one: other processes map the same file instead of getting a copy."""
        if self.place is not None:
            return _open, (self.name, self.place)
        return Dataset, tuple(getattr(self, f.name) for f in dataclasses.fields(self))

    @property
    def shape(self) -> tuple[int, int, int]:
        """(channels, height, width) of one image."""
        return tuple(self.images.shape[1:])

    @property
    def largest(self) -> int:
        """What stands for 1: 255 where images are bytes, 1 where they are numbers already."""
        return 255 if self.images.dtype == torch.uint8 else 1

    @property
    def is_table(self) -> bool:
        """Whether samples are features, without height and width."""
        return self.largest == 1 and self.shape[1:] == (1, 1)

    @functools.cached_property
    def channel_stats(self) -> tuple[Tensor, Tensor]:
        """Mean and std of every channel over all pixels, bytes scaled to [0, 1], each float64 [c, 1, 1];
        inputs are standardised with them. Of numbers, the official test part is left out, if there is one, and the std
        is 1 where a channel is constant."""
        if self.largest == 1:
            every = (self.images if self.is_test.all() else self.images[~self.is_test]).double()
            mean, std = every.mean((0, 2, 3)), every.std((0, 2, 3), correction=0)
            std = torch.where(std > 1e-6 * mean.abs().clamp(min=1e-30), std, 1)
            return mean.view(-1, 1, 1), std.view(-1, 1, 1)
        counts = torch.zeros(self.shape[0], 256, dtype=torch.int64)  # how often every value occurs, by channel
        for chunk in self.images.split(1024):
            for k in range(self.shape[0]):
                counts[k] += chunk[:, k].flatten().bincount(minlength=256)
        pixels, total = torch.arange(256, dtype=torch.float32) / 255, self.images.numel() / self.shape[0]
        mean = (counts * pixels.double()).sum(1) / total
        std = square_root(((counts * pixels.square().double()).sum(1) / total - mean**2).clamp(min=1e-12))
        return mean.view(-1, 1, 1), std.view(-1, 1, 1)


def root() -> Path:
    """Where prepared data sets lie: $FEDLIB_DATA, else the user's cache folder."""
    return Path(os.environ["FEDLIB_DATA"]).expanduser() if os.environ.get("FEDLIB_DATA") else user_cache() / "data"


def copies(kind: str = "folders") -> Path:
    """Where the prepared copies of users' own data lie: $FEDLIB_CACHE/<kind>, else in the user's cache folder."""
    return cache_root() / kind


def _embedded(name: str, images: Tensor, labels: Tensor, classes: tuple[str, ...], **more) -> Dataset:
    """A data set that needs no file; more: other fields."""
    return Dataset(name, images, labels, classes, hashlib.sha256(images.numpy().tobytes()).hexdigest(), **more)


@functools.cache
def _digits(side: int = 16, name: str = "digits") -> Dataset:
    """scikit-learn's 1,797 handwritten digits (8x8, 16 grey levels), upscaled once to `side` x `side`.
    There is no official split."""
    from sklearn.datasets import load_digits

    raw = load_digits()
    small = torch.from_numpy(raw.images).unsqueeze(1) * (255 / 16)
    large = torch.nn.functional.interpolate(small, size=(side, side), mode="bilinear", align_corners=False)
    labels = torch.from_numpy(raw.target.astype(np.int64))
    return _embedded(name, large.round().to(torch.uint8), labels, tuple(str(d) for d in range(10)))


@functools.cache
def _digits_looks() -> Dataset:
    """The digits in six styles, see `fedlib.data.embedded`; the look of an image is its group."""
    plain = _digits()
    images, look = in_looks(plain.images, plain.labels)
    return _embedded("digits_looks", images, plain.labels, plain.classes, groups=look, group_names=tuple(LOOKS))


@functools.cache
def _heart() -> Dataset:
    """Heart disease in four hospitals, see `fedlib.data.embedded`; the hospital of a patient is the group."""
    x, y, hospital, is_test, _ = embedded.patients()
    table = embedded.filled(x, hospital, is_test)[:, :, None, None]
    images, labels, is_test, groups = map(torch.from_numpy, (table, y, is_test, hospital))
    about = {"is_test": is_test, "groups": groups, "group_names": HOSPITALS, "fitted": True}
    return _embedded("heart", images, labels, ("healthy", "heart disease"), **about)


EMBEDDED = {
    "digits": _digits,
    "digits_looks": _digits_looks,
    "digits_large": functools.partial(_digits, 32, "digits_large"),
    "heart": _heart,
}
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


def is_own(name: str) -> bool:
    """Whether a name is that of a user's own data, which is not in the data root."""
    return full_name(name).startswith(("folder:", "arrays:", "hf:"))


def available(folder: Path | str | None = None) -> list[str]:
    """Names of what is here now: the embedded data sets and the prepared folders under the data root."""
    folder = root() if folder is None else Path(folder)
    prepared = {p.parent.name for p in folder.glob("*/meta.json")} if folder.is_dir() else set()
    return [*EMBEDDED, *sorted(name for name in prepared - set(EMBEDDED) if NAME.fullmatch(name))]


def load(name: str, folder: Path | str | None = None, keep: bool = False) -> Dataset:
    """Load a data set: an embedded one, `<folder>/<name>` in the prepared format, or a user's own: "folder:<path>",
    "hf:<name>" (`fedlib.data.own`), or the name of `Dataset.from_arrays`.

    folder: the data root, by default `root()`. A data set of DATASETS that is absent or damaged is downloaded and
    prepared first, once; keep: do not remove the downloaded files afterwards. "folder:<path>" has one subfolder of
    images for each class, or has these in folders train and test; images become squares of 64 pixels, or of 32 with
    "folder:<path>@32".

    Raises BadValue for a malformed or unknown name, DataError if the data is incomplete, damaged or not to be had.
    """
    if name in EMBEDDED:
        return EMBEDDED[name]()
    name = full_name(name)
    sound = functools.partial(_sound, name)
    if name.startswith("folder:"):
        return _open(name, copy_folder(name, copies(), sound))
    if name.startswith("arrays:"):
        return _open(name, own.place_of(name, copies("arrays")))
    if name.startswith("hf:"):
        return _open(name, copy_hub(name, copies("hub"), sound))
    if not NAME.fullmatch(name):
        raise BadValue(
            f"dataset = {name!r} is not accepted; a name has letters, digits, '_', '-' and '.' only; folder:<path> "
            "takes your own images, hf:<name> a data set of the Hugging Face hub or a folder of that form"
        )
    base = root() if folder is None else Path(folder)
    try:
        if (base / name).exists():
            return _open(name, base / name)
    except Damaged as damage:
        if name not in DATASETS:
            raise
        warnings.warn(f"{damage}; it is made again, and what is there is moved to {base / '_damaged'}", stacklevel=2)
    _obtain(name, base, keep)
    return _open(name, base / name)


def _obtain(name: str, base: Path, keep: bool) -> None:
    """Download and prepare what is missing; errors also say what is here."""
    here = f"here now: {', '.join(available(base))} (in {base}; FEDLIB_DATA sets another folder)"
    try:
        choose("dataset", name, [*DATASETS, *(set(available(base)) - set(DATASETS)), "folder:<path>", "hf:<name>"])
        obtain(name, base, functools.partial(_sound, name), keep)
    except BadValue as error:
        raise BadValue(f"{error}; {here}") from None
    except DataError as error:
        raise DataError(f"{error}; {here}") from error


class Damaged(DataError):
    """A prepared folder whose content is not what it should be."""


def _sound(name: str, path: Path) -> bool:
    try:
        return bool(_open(name, path))
    except DataError:
        return False


def _open(name: str, path: Path) -> Dataset:
    """Open a prepared folder. Raises DataError if a file is missing, Damaged if the content fails a check."""
    missing = [f for f in PREPARED_FILES if not (path / f).is_file()]
    if missing:
        raise DataError(
            f"dataset {name!r} is not prepared: {', '.join(missing)} missing in {path}; complete it, or move this "
            "folder away"
        )
    files = [path / f for f in (*PREPARED_FILES, "groups.npy")]
    return _open_prepared(name, path, tuple(f.stat().st_mtime_ns for f in files if f.exists()))


@functools.lru_cache(maxsize=4)
def _open_prepared(name: str, path: Path, stamp: tuple[int, ...]) -> Dataset:
    """Open and verify one prepared folder; cached until one of its files changes."""
    try:
        meta = json.loads((path / "meta.json").read_text(encoding="utf-8-sig"))
        images = np.load(path / "images.npy", mmap_mode="c", allow_pickle=False)  # copy-on-write: never written back
        rest = ["labels", "is_test", *(["groups"] if (path / "groups.npy").exists() or "groups" in meta else [])]
        arrays = {"images": images, **{f: np.load(path / f"{f}.npy", allow_pickle=False) for f in rest}}
        classes, groups = _names(meta, "classes"), _names(meta, "groups") if "groups" in arrays else ()
    except (ValueError, KeyError, EOFError, OSError, TypeError) as error:
        raise Damaged(f"dataset {name!r} in {path} is damaged ({error}); prepare it again") from error
    _check_form(name, path, arrays, len(classes), len(groups))
    digest = _check_sums(name, path, meta, arrays)
    tensors = {f: torch.from_numpy(array) for f, array in arrays.items()}
    pixels = tensors.pop("images").permute(0, 3, 1, 2)
    return Dataset(name, pixels, classes=classes, sha256=digest, group_names=groups, place=path, **tensors)


def _names(meta: dict, field: str) -> tuple[str, ...]:
    if isinstance(meta[field], str):
        raise ValueError(f"{field} must be a list of names")
    return tuple(str(name) for name in meta[field])


def _check_form(name: str, path: Path, arrays: dict[str, np.ndarray], classes: int, groups: int) -> None:
    """Raise Damaged unless types, sizes and ranges are those of the prepared format."""
    numbers = np.float32 if getattr(arrays["images"], "dtype", None) == np.float32 else np.uint8
    form = {"images": (numbers, 4), "labels": (np.int64, 1), "is_test": (np.bool_, 1), "groups": (np.int64, 1)}
    for what, array in arrays.items():
        fits = isinstance(array, np.ndarray) and (array.dtype, array.ndim) == form[what] and array.size > 0
        if not fits or len(array) != len(arrays["images"]):
            found = f"{array.dtype}{list(array.shape)}" if isinstance(array, np.ndarray) else type(array).__name__
            raise Damaged(
                f"dataset {name!r} in {path} is not in the prepared format: {what}.npy is {found}; expected images "
                "uint8 or float32 [n, h, w, c], "
                "labels int64 [n], is_test bool [n] and, if there are groups, groups int64 [n], n >= 1"
            )
    if numbers is np.float32 and not np.isfinite(arrays["images"]).all():
        raise Damaged(f"dataset {name!r} in {path}: images.npy holds numbers that are not finite")
    for what, count in (("labels", classes), ("groups", groups)):
        if what in arrays and (arrays[what].min() < 0 or arrays[what].max() >= count):
            raise Damaged(f"dataset {name!r} in {path}: {what} must lie in 0..{count - 1}, one per image")


def _check_sums(name: str, path: Path, meta: dict, arrays: dict[str, np.ndarray]) -> str:
    """The sha256 of the image bytes. Raises Damaged if it, or that of labels, split and groups,
    is not what meta.json says."""
    images, *rest = arrays.values()
    sums = {"sha256": hash_images(images), "sha256_labels": hash_labels(*rest)}
    for field, found in sums.items():
        if meta.get(field) not in (None, found):
            files = "images.npy has" if field == "sha256" else "labels.npy, is_test.npy and groups.npy have"
            raise Damaged(
                f"dataset {name!r} in {path} fails its checksum: {files} {found[:12]}…, meta.json says "
                f"{str(meta[field])[:12]}…; prepare it again"
            )
    return sums["sha256"]


# what is known without having them ------------------------------------------------------------------------------------


BALANCED = ("fmnist", "cifar10", "cifar100", "cinic10", "tiny_imagenet")  # equally many images of every class
# Counted in the public label files, training and test part together: 5,923 + 980 zeros, ..., 5,949 + 1,009 nines.
MNIST = (6903, 7877, 6990, 7141, 6824, 6313, 6876, 7293, 6825, 6958)


def class_sizes(dataset: str) -> list[int] | None:
    """Images of every class, both official parts together; None if they are unequal and the data set is not prepared
    here."""
    if dataset in BALANCED:
        about = DATASETS[dataset]
        return [about.images // about.classes] * about.classes
    if dataset == "mnist":
        return list(MNIST)
    if dataset == "pacs":
        return [sum(images) for images in zip(*PACS.values())]
    here = dataset in available() or is_own(dataset)
    return np.bincount(load(dataset).labels.numpy()).tolist() if here else None


def known_class_sizes(dataset: str) -> list[int]:
    """Images of every class. Raises BadValue for an unknown data set,
    and for one whose classes can only be counted when it is prepared."""
    choose("dataset", dataset, [*dict.fromkeys([*DATASETS, *available()]), *[dataset] * is_own(dataset)])
    sizes = class_sizes(dataset)
    if sizes is None:
        raise BadValue(
            f"the classes of {dataset!r} are unequally large and it is not here; run `fedlib data {dataset}`"
        )
    return sizes


def shape_and_classes(dataset: str) -> tuple[tuple[int, int, int], int]:
    """Shape (channels, height, width) of the images and number of classes.
    A data set of the user's own is loaded for that."""
    if dataset in DATASETS:
        return DATASETS[dataset].shape, DATASETS[dataset].classes
    own = load(dataset)
    return own.shape, len(own.classes)


def group_names(dataset: str) -> tuple[str, ...]:
    """Names of a data set's natural groups (domains, writers, looks).
    Others than DomainNet's, PACS's and the digits' looks are loaded for that."""
    known = {"domainnet": tuple(DOMAINS), "pacs": tuple(PACS), "digits_looks": tuple(LOOKS)}
    return known[dataset] if dataset in known else load(dataset).group_names
