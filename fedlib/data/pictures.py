"""Image files to arrays: CINIC-10, Tiny ImageNet, DomainNet and a user's own folders. Pillow is imported only here."""

from __future__ import annotations

import io
import itertools
import os
import stat
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from fedlib.base.errors import DataError
from fedlib.data.archives import member_names, read_members
from fedlib.data.readers import Allocate, Content, progress

FORMATS = ("JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF", "PPM")
SUFFIXES = (".jpg", ".jpeg", ".png", ".gif", ".bmp", ".webp", ".tif", ".tiff", ".ppm", ".pgm")


def picture(content: bytes | Path, size: int, name: str) -> np.ndarray:
    """An image file as uint8 [size, size, 3]: turned upright, on white where it is transparent, stretched to a square.

    Raises DataError that names the file if it cannot be read.
    """
    from PIL import Image, ImageOps

    try:
        with Image.open(io.BytesIO(content) if isinstance(content, bytes) else content, formats=FORMATS) as image:
            image = _rgb(ImageOps.exif_transpose(image))
            if image.size != (size, size):
                image = image.resize((size, size), Image.Resampling.BILINEAR)
            return np.asarray(image)
    except Exception as error:  # damaged files make the decoders fail in every way
        raise DataError(f"{name} cannot be read as an image ({type(error).__name__}: {error})") from error


def _rgb(image):
    """Grey (8 and 16 bits), palette, transparent and CMYK images as RGB."""
    from PIL import Image

    if image.mode.startswith("I"):
        image = Image.fromarray((np.asarray(image).clip(0, 65535) // 256).astype(np.uint8))
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image.convert("RGB")


def _fill(path: Path, rows: dict[str, int], out: np.ndarray, bar) -> None:
    """Decode members of an archive into rows of `out`, uint8 [n, size, size, 3]."""
    for name, content in read_members(path, rows):
        out[rows[name]] = picture(content, out.shape[1], f"{name} in {path.name}")
        bar.update()


def _visible(names: Iterable[str]) -> list[str]:
    """Image files among `names`, without hidden ones and macOS's doubles, sorted."""
    parts = ((name, name.split("/")) for name in names if name.lower().endswith(SUFFIXES))
    return sorted(name for name, split in parts if not any(p.startswith((".", "__MACOSX")) for p in split))


def read_cinic(files: dict[str, Path], allocate: Allocate) -> Content:
    """CINIC-10: train/, valid/ and test/ with a folder for each class. The validation part counts as training data."""
    ((_, path),) = files.items()
    parts = ("train", "valid", "test")
    names = [name for name in _visible(member_names(path)) if name.split("/")[-3:-2] and name.split("/")[-3] in parts]
    placed = [tuple(name.split("/")[-3:-1]) for name in names]  # (part, class) of every image
    classes, present = sorted({name for _, name in placed}), set(placed)
    for part, name in itertools.product(parts, classes or ["any class"]):
        if (part, name) not in present:
            raise DataError(f"{path} has no images of class {name!r} in its part {part!r}")
    out = allocate(len(names), 32, 32, 3)
    with progress(None, len(names)) as bar:
        _fill(path, {name: k for k, name in enumerate(names)}, out, bar)
    labels = np.array([classes.index(name) for _, name in placed], dtype=np.int64)
    return Content(labels, np.array([part == "test" for part, _ in placed]), tuple(classes))


def read_tiny_imagenet(files: dict[str, Path], allocate: Allocate) -> Content:
    """Tiny ImageNet: train/<wnid>/images/, and val/images/ with val_annotations.txt,
    which is the test part (the real one has no labels)."""
    ((_, path),) = files.items()
    names = member_names(path)
    texts = {
        end: name
        for name in names
        for end in ("wnids.txt", "words.txt", "val_annotations.txt")
        if name.endswith("/" + end)
    }
    if len(texts) < 3:
        raise DataError(f"{path} lacks one of wnids.txt, words.txt, val/val_annotations.txt")
    text = {name: content.decode(errors="replace") for name, content in read_members(path, set(texts.values()))}
    wnids = sorted(text[texts["wnids.txt"]].split())
    words = dict(line.split("\t")[:2] for line in text[texts["words.txt"]].splitlines() if "\t" in line)
    lines = text[texts["val_annotations.txt"]].splitlines()
    annotated = dict(line.split("\t")[:2] for line in lines if "\t" in line)
    chosen = {}  # path -> (wnid, test?)
    for name in _visible(names):
        split = name.split("/")
        if split[-4:-3] == ["train"]:
            chosen[name] = (split[-3], False)
        elif split[-3:-1] == ["val", "images"]:
            chosen[name] = (annotated.get(split[-1]), True)
    if strange := [name for name, (wnid, _) in chosen.items() if wnid not in wnids]:
        raise DataError(f"{strange[0]} in {path} belongs to no class of wnids.txt and val_annotations.txt")
    if empty := sorted(set(wnids) - {wnid for wnid, test in chosen.values() if not test}):
        raise DataError(f"{path} has no training images of class {empty[0]} ({words.get(empty[0], 'no name')})")
    out = allocate(len(chosen), 64, 64, 3)
    with progress(None, len(chosen)) as bar:
        _fill(path, {name: k for k, name in enumerate(chosen)}, out, bar)
    rank = {wnid: k for k, wnid in enumerate(wnids)}
    labels = np.array([rank[wnid] for wnid, _ in chosen.values()], dtype=np.int64)
    return Content(labels, np.array([test for _, test in chosen.values()]), _class_names(wnids, words))


def _class_names(wnids: list[str], words: dict[str, str]) -> tuple[str, ...]:
    """The first word for every class, with the WordNet id where two classes share it."""
    first = [words.get(wnid, wnid).split(",")[0].strip() for wnid in wnids]
    return tuple(name if first.count(name) == 1 else f"{name} ({wnid})" for name, wnid in zip(first, wnids))


def read_domainnet(
    files: dict[str, Path],
    allocate: Allocate,
    domains: tuple[str, ...],
    classes: int,
    share: float,
    size: int,
    seed: int,
) -> Content:
    """A part of DomainNet (pFedSim's): the same `classes` random classes in all domains,
    `share` of the images of every class and domain.

    The groups are the domains. is_test is the official split of the images, which comes from the lists.
    """
    from fedlib.base.draws import rng

    lists = {domain: _domain_lists(files, domain) for domain in domains}
    common = sorted(set.intersection(*(set(by_class) for by_class in lists.values())))
    if len(common) < classes:
        raise DataError(f"the lists of {', '.join(domains)} share {len(common)} classes; {classes} are needed")
    chosen = sorted(common[k] for k in rng(seed, "domainnet classes").choice(len(common), classes, replace=False))
    picked = []  # (domain, class, path in the archive, test?)
    for d, domain in enumerate(domains):
        for c, name in enumerate(chosen):
            images = sorted(lists[domain][name].items())
            kept = rng(seed, "domainnet images", d, c).permutation(len(images))[: max(1, round(share * len(images)))]
            picked += [(d, c, *images[k]) for k in sorted(kept)]
    out = allocate(len(picked), size, size, 3)
    with progress(None, len(picked)) as bar:
        for d, domain in enumerate(domains):
            rows = {path: k for k, (owner, _, path, _) in enumerate(picked) if owner == d}
            _fill(files[f"{domain}.zip"], rows, out, bar)
    groups, labels, _, is_test = zip(*picked)
    as_int = dict(dtype=np.int64)
    return Content(np.array(labels, **as_int), np.array(is_test), tuple(chosen), np.array(groups, **as_int), domains)


def _domain_lists(files: dict[str, Path], domain: str) -> dict[str, dict[str, bool]]:
    """Class -> path of an image -> is it of the test part. Lines are "domain/class/file number"."""
    by_class: dict[str, dict[str, bool]] = {}
    for part in ("test", "train"):  # an image in both lists counts as training data
        path = files[f"{domain}_{part}.txt"]
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            image, _, number = line.strip().rpartition(" ")
            split = image.split("/")
            if line.strip() and (len(split) != 3 or split[0] != domain or not number.isdigit()):
                raise DataError(f"{path} is not a list of images of {domain}: {line[:80]!r}")
            if image:
                by_class.setdefault(split[1], {})[image] = part == "test"
    return by_class


# a user's own images --------------------------------------------------------------------------------------------------


def folder_images(path: Path) -> dict[str, list[tuple[Path, os.stat_result]]]:
    """Images by class of a folder with one subfolder for each class;
    hidden files and folders and other files are left out.

    Raises DataError if there is no folder, no class, or a class without images.
    """
    if not path.is_dir():
        raise DataError(f"there is no folder {path}; expected one with a subfolder of images for each class")
    found = {}
    for sub in sorted(path.iterdir()):
        if sub.is_dir() and not sub.name.startswith("."):
            files = _visible(file.relative_to(sub).as_posix() for file in sub.rglob("*"))
            stats = [(sub / file, (sub / file).stat()) for file in files]
            found[sub.name] = [(file, stats) for file, stats in stats if stat.S_ISREG(stats.st_mode)]
            if not found[sub.name]:
                raise DataError(f"class folder {sub} has no images ({', '.join(SUFFIXES)})")
    if not found:
        raise DataError(f"{path} has no subfolders; expected one subfolder of images for each class")
    return found


def read_folder(files: dict[str, Path], allocate: Allocate, size: int) -> Content:
    """A user's images, `files = {"": folder}`: every subfolder is a class, every image becomes [size, size, 3]."""
    found = folder_images(files[""])
    total = sum(map(len, found.values()))
    out = allocate(total, size, size, 3)
    paths = [path for images in found.values() for path, _ in images]
    for k, path in enumerate(progress(paths, total)):
        out[k] = picture(path, size, str(path))
    labels = np.repeat(np.arange(len(found)), [len(images) for images in found.values()]).astype(np.int64)
    classes = tuple(name.encode(errors="replace").decode() for name in found)  # a file name may be no text
    return Content(labels, np.zeros(total, dtype=bool), classes)
