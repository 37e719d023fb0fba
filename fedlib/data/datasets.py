"""Image data sets: one embedded, any number prepared on disk, all as uint8 images [n, c, h, w] and int64 labels [n].

The prepared form of a data set is a folder `<root>/<name>/` with `images.npy` (uint8 [n, h, w, c]), `labels.npy`
(int64 [n]), `is_test.npy` (bool [n], the official split) and `meta.json` (name, classes, sha256 of the image bytes).
Images are memory-mapped, so loading costs no more memory than the pages that are read.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fedlib.errors import BadValue, DataError

PREPARED_FILES = ("images.npy", "labels.npy", "is_test.npy", "meta.json")


@dataclass(frozen=True)
class Dataset:
    """images: uint8 [n, c, h, w] in 0..255; labels: int64 [n] in 0..C-1; classes: C names; sha256 of the image bytes."""

    name: str
    images: Tensor
    labels: Tensor
    classes: tuple[str, ...]
    sha256: str
    folder: str = ""  # of its prepared form

    def __reduce__(self):
        """Pickled as its place, where it has one: other processes map the same file instead of getting a copy."""
        if self.folder:
            return load, (self.name, self.folder)
        return Dataset, (self.name, self.images, self.labels, self.classes, self.sha256)

    @property
    def shape(self) -> tuple[int, int, int]:
        """(channels, height, width) of one image."""
        return tuple(self.images.shape[1:])

    @functools.cached_property
    def channel_stats(self) -> tuple[Tensor, Tensor]:
        """Mean and std of every channel over all pixels in [0, 1], each float64 [c, 1, 1]; inputs are standardised with them."""
        total = torch.zeros(self.shape[0], dtype=torch.float64)
        squares = total.clone()
        for chunk in self.images.split(4096):
            pixels = chunk.to(torch.float32) / 255
            total += pixels.sum((0, 2, 3), dtype=torch.float64)
            squares += pixels.square().sum((0, 2, 3), dtype=torch.float64)
        mean = total / (self.images.numel() / self.shape[0])
        std = (squares / (self.images.numel() / self.shape[0]) - mean**2).clamp(min=1e-12).sqrt()
        return mean.view(-1, 1, 1), std.view(-1, 1, 1)


def root() -> Path:
    """Where prepared data sets lie: $FEDLIB_DATA, else the user's cache folder."""
    if os.environ.get("FEDLIB_DATA"):
        return Path(os.environ["FEDLIB_DATA"]).expanduser()
    import platformdirs

    return Path(platformdirs.user_cache_dir("fedlib")) / "data"


@functools.cache
def _digits() -> Dataset:
    """scikit-learn's 1,797 handwritten digits (8x8, 16 grey levels), upscaled once to 16x16."""
    from sklearn.datasets import load_digits

    raw = load_digits()
    small = torch.from_numpy(raw.images).unsqueeze(1) * (255 / 16)
    large = torch.nn.functional.interpolate(small, size=(16, 16), mode="bilinear", align_corners=False)
    images = large.round().to(torch.uint8)
    labels = torch.from_numpy(raw.target.astype(np.int64))
    digest = hashlib.sha256(images.numpy().tobytes()).hexdigest()
    return Dataset("digits", images, labels, tuple(str(d) for d in range(10)), digest)


EMBEDDED = {"digits": _digits}


def available(folder: Path | None = None) -> list[str]:
    """Names that `load` accepts now: the embedded ones and the prepared folders under the data root."""
    folder = root() if folder is None else Path(folder)
    prepared = [p.parent.name for p in folder.glob("*/meta.json")] if folder.is_dir() else []
    return [*EMBEDDED, *sorted(set(prepared) - set(EMBEDDED))]


def load(name: str, folder: Path | str | None = None) -> Dataset:
    """Load a data set by name, from the package or from `<folder>/<name>`; `folder` defaults to `root()`.

    Raises BadValue for a malformed name, DataError if the data set is absent, incomplete or fails its checksum.
    """
    if name in EMBEDDED:
        return EMBEDDED[name]()
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name):
        raise BadValue(f"dataset = {name!r} is not accepted; a name has letters, digits, '_', '-' and '.' only")
    path = (root() if folder is None else Path(folder)) / name
    missing = [f for f in PREPARED_FILES if not (path / f).is_file()]
    if missing:
        raise DataError(
            f"dataset {name!r} is not prepared: {', '.join(missing)} missing in {path}; "
            f"here now: {', '.join(available(folder))}. Put the prepared files there or set FEDLIB_DATA to the folder that holds {name}/"
        )
    stamp = tuple((path / f).stat().st_mtime_ns for f in PREPARED_FILES)
    return _load_prepared(name, path, stamp)


@functools.lru_cache(maxsize=4)
def _load_prepared(name: str, path: Path, stamp: tuple[int, ...]) -> Dataset:
    """Open and verify one prepared folder; cached until one of its files changes."""
    try:
        meta = json.loads((path / "meta.json").read_text(encoding="utf-8"))
        images = np.load(path / "images.npy", mmap_mode="c", allow_pickle=False)  # copy-on-write: never written back
        labels = np.load(path / "labels.npy", allow_pickle=False)
        is_test = np.load(path / "is_test.npy", allow_pickle=False)
        if isinstance(meta["classes"], str):
            raise ValueError("classes must be a list of names")
        classes, expected = tuple(str(c) for c in meta["classes"]), meta.get("sha256")
    except (ValueError, KeyError, EOFError, OSError, TypeError) as error:
        raise DataError(f"dataset {name!r} in {path} is damaged ({error}); prepare it again") from error
    arrays = {"images": (images, np.uint8, 4), "labels": (labels, np.int64, 1), "is_test": (is_test, np.bool_, 1)}
    for what, (array, dtype, axes) in arrays.items():
        fits = isinstance(array, np.ndarray) and array.dtype == dtype and array.ndim == axes and array.size > 0
        if not fits or len(array) != len(labels):
            found = f"{array.dtype}{list(array.shape)}" if isinstance(array, np.ndarray) else type(array).__name__
            raise DataError(
                f"dataset {name!r} in {path} is not in the prepared form: {what}.npy is {found}; "
                "expected images uint8 [n, h, w, c], labels int64 [n] and is_test bool [n], n >= 1"
            )
    if labels.min() < 0 or labels.max() >= len(classes):
        raise DataError(f"dataset {name!r} in {path}: labels must lie in 0..{len(classes) - 1}, one per image")
    digest = hashlib.sha256(memoryview(np.ascontiguousarray(images)).cast("B")).hexdigest()
    if expected is not None and expected != digest:
        raise DataError(
            f"dataset {name!r} in {path} fails its checksum: images.npy has {digest[:12]}…, meta.json says "
            f"{str(expected)[:12]}…; prepare it again"
        )
    pixels = torch.from_numpy(images).permute(0, 3, 1, 2)
    return Dataset(name, pixels, torch.from_numpy(labels), classes, digest, str(path.parent))
