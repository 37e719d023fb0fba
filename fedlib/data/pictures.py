"""Image files to arrays: CINIC-10, Tiny ImageNet, DomainNet, PACS and a user's own folders. Pillow is imported only
here."""

from __future__ import annotations

import contextlib
import io
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedlib.base.errors import BadValue, DataError, require
from fedlib.data.download import member_names, read_members
from fedlib.data.readers import Allocate, Content, left_out, progress, say, say_alike

FORMATS = ("JPEG", "PNG", "GIF", "BMP", "DIB", "WEBP", "TIFF", "PPM")
SUFFIXES = (".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".apng", ".gif", ".bmp", ".dib", ".webp", ".tif", ".tiff", ".ppm",
            ".pgm", ".pbm", ".pnm")  # fmt: skip
PARTS = {"train": False, "training": False, "val": False, "valid": False, "validation": False, "test": True,
         "testing": True}  # names of folders that hold a part, not a class, and whether it is the test part # fmt: skip


def picture(content, size: int, name: str, colour: bool = True) -> np.ndarray:
    """A picture (a file, its bytes, or one of Pillow) as uint8 [h, w, 3], or [h, w, 1] if it is grey and not `colour`.

    It is turned upright, on white where it is transparent, with the upper 8 of 16 bits, and stretched to a square of
    `size` pixels unless that is 0; of several frames it is the first. Raises DataError that names what cannot be read.
    """
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        if content is None:
            raise ValueError("it is missing")
        source = io.BytesIO(content) if isinstance(content, bytes) else content
        of_pillow = isinstance(content, Image.Image)
        with contextlib.nullcontext(content) if of_pillow else Image.open(source, formats=FORMATS) as image:
            image = _eight_bits(ImageOps.exif_transpose(image), colour)
            if size and image.size != (size, size):
                image = image.resize((size, size), Image.Resampling.BILINEAR)
            return np.atleast_3d(np.asarray(image))
    except Exception as error:  # damaged files make the decoders fail in every way
        unknown = isinstance(error, UnidentifiedImageError)
        why = "of no known kind" if unknown else f"{type(error).__name__}: {error}"
        raise DataError(f"{name} cannot be read as an image ({why})") from error


def _eight_bits(image, colour: bool):
    """Any picture as RGB, a grey one as L unless `colour`."""
    from PIL import Image

    if image.mode == "F":
        raise ValueError("its pixels are fractions; expected 8 or 16 bits")
    if image.mode.startswith("I"):
        wide, clear = np.asarray(image), image.info.get("transparency")
        if wide.min() < 0 or wide.max() > 65535:
            raise ValueError(f"its pixels go from {wide.min()} to {wide.max()}; expected 8 or 16 bits")
        image = Image.fromarray(np.where(wide == clear, 255, wide // 256).astype(np.uint8))
    kind = "RGB" if colour or image.mode not in ("1", "L", "LA", "La") else "L"
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
        image = (image.convert("LA") if image.mode == "La" else image).convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image.convert(kind)


def decoded(contents: Iterable, names: Iterable[str], total: int, size: int, colour: bool) -> Iterator[np.ndarray]:
    """Every picture in turn. Raises one DataError at the end that counts what cannot be read."""
    errors = []
    for content, name in progress(zip(contents, names), total):
        try:
            yield picture(content, size, name, colour)
        except DataError as error:
            errors.append(error)
    if errors:
        many = f"{len(errors)} of {total} images cannot be read; the first: " if len(errors) > 1 else ""
        raise DataError(f"{many}{errors[0]}") from errors[0]


def stacked(contents: Sequence, what: str, size: int, accepted: str) -> np.ndarray:
    """Pictures as uint8 [n, h, w, 1] where all are grey, else [n, h, w, 3]. Raises BadValue if their sizes differ."""
    names = (f"{what}: image {k} of {len(contents)}" for k in range(len(contents)))
    done = list(decoded(contents, names, len(contents), size, colour=False))
    sizes = sorted({one.shape[:2] for one in done})
    require(len(sizes) == 1, what, f"images of {', '.join(f'{h}x{w}' for h, w in sizes[:5])}", accepted)
    channels = max(one.shape[2] for one in done)
    return np.stack([np.broadcast_to(one, (*sizes[0], channels)) for one in done])


def _places(values: Iterable, names: Sequence) -> np.ndarray:
    """The place of every value in `names`, int64 [n]."""
    place = {name: k for k, name in enumerate(names)}
    return np.array([place[value] for value in values], dtype=np.int64)


def _fill(archives: Mapping[Path, Mapping[str, int]], out: np.ndarray) -> None:
    """Decode members of archives into rows of `out`, uint8 [n, size, size, 3]; archives: by path rows of members."""
    with progress(None, len(out)) as bar:
        for path, rows in archives.items():
            for name, content in read_members(path, rows):
                out[rows[name]] = picture(content, out.shape[1], f"{name} in {path.name}")
                bar.update()


def _hidden(name: str) -> bool:
    return name.startswith((".", "__MACOSX"))


def _visible(names: Iterable[str]) -> list[str]:
    """Image files among `names`, without hidden ones and macOS's doubles, sorted."""
    parts = ((name, name.split("/")) for name in names if name.lower().endswith(SUFFIXES))
    return sorted(name for name, split in parts if not any(map(_hidden, split)))


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
    _fill({path: {name: k for k, name in enumerate(names)}}, allocate(len(names), 32, 32, 3))
    labels = _places((name for _, name in placed), classes)
    return Content(labels, np.array([part == "test" for part, _ in placed]), tuple(classes))


def read_tiny_imagenet(files: dict[str, Path], allocate: Allocate) -> Content:
    """Tiny ImageNet: train/<wnid>/images/, and val/images/ with val_annotations.txt,
    which is the test part (the real one has no labels)."""
    ((_, path),) = files.items()
    names = member_names(path)
    lists = ("/wnids.txt", "/words.txt", "/val_annotations.txt")
    texts = {end: name for name in names for end in lists if name.endswith(end)}
    if len(texts) < 3:
        raise DataError(f"{path} lacks one of wnids.txt, words.txt, val/val_annotations.txt")
    content = dict(read_members(path, set(texts.values())))
    wnids, *tables = (content[texts[end]].decode(errors="replace") for end in lists)
    wnids = sorted(wnids.split())
    words, annotated = (dict(row.split("\t")[:2] for row in table.splitlines() if "\t" in row) for table in tables)
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
    _fill({path: {name: k for k, name in enumerate(chosen)}}, allocate(len(chosen), 64, 64, 3))
    labels = _places((wnid for wnid, _ in chosen.values()), wnids)
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
    rows = ({path: k for k, (owner, _, path, _) in enumerate(picked) if owner == d} for d in range(len(domains)))
    _fill(dict(zip((files[f"{domain}.zip"] for domain in domains), rows)), allocate(len(picked), size, size, 3))
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


def read_domains(
    files: dict[str, Path], allocate: Allocate, images: Mapping[str, Sequence[int]], classes: tuple[str, ...], size: int
) -> Content:
    """PACS: of a Parquet file with the columns image, domain and label, or of an archive with folders DOMAIN/CLASS.

    The groups are the domains; images: how many there are of every domain, by class. There is no official split.
    Images are sorted by domain and class, within these as in the file, or by their names.
    """
    ((_, path),) = files.items()
    rows = None if path.suffix == ".zip" else _parquet_rows(path, classes)
    if rows is None:
        place = {name: tuple(name.split("/")[-3:-1]) for name in _visible(member_names(path))}
    else:
        place = {k: (domain, label) for k, (_, domain, label) in enumerate(rows)}
    _check_domains(path, Counter(place.values()), images, classes)
    order = {key: k for k, key in enumerate(sorted(place, key=place.get))}
    out = allocate(len(order), size, size, 3)
    if rows is None:
        _fill({path: order}, out)
    for k, (content, _, _) in enumerate(progress(rows) if rows else ()):
        out[order[k]] = picture(content, size, f"image {k} in {path.name}")
    domains, labels = zip(*(place[key] for key in order))
    no_test = np.zeros(len(order), dtype=bool)
    return Content(_places(labels, classes), no_test, classes, _places(domains, tuple(images)), tuple(images))


def _parquet_rows(path: Path, classes: tuple[str, ...]) -> list[tuple[bytes, str, str]]:
    """(image file, domain, class) of every row. Raises BadValue without pyarrow, DataError for another file."""
    import pandas as pd

    columns = ["image", "domain", "label"]
    try:
        rows = pd.read_parquet(path, columns=columns)[columns].itertuples(index=False)
        return [(image["bytes"], domain, classes[k]) for image, domain, k in rows]
    except ImportError:
        raise BadValue(f"{path.name} needs pyarrow (the extra 'hf'): pip install 'fedlib[hf]'") from None
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        why = " ".join(str(error).split())[:200]
        raise DataError(f"{path} has no columns image, domain and label ({type(error).__name__}: {why})") from error


def _check_domains(
    path: Path, found: Mapping[tuple, int], images: Mapping[str, Sequence[int]], classes: Sequence[str]
) -> None:
    """Raise DataError unless every domain has the known number of images of every class."""
    expected = {(domain, name): n for domain, own in images.items() for name, n in zip(classes, own)}
    accepted = f"DOMAIN/CLASS with {', '.join(images)} and {', '.join(classes)}"
    if strange := next((place for place in found if place not in expected), None):
        raise DataError(f"{path} has images in {'/'.join(strange)!r}; expected {accepted}")
    if () in found:
        raise DataError(f"{path} has images in no folder; expected {accepted}")
    if empty := set(images) - {domain for domain, _ in found}:
        raise DataError(f"{path} has no images of the domain {min(empty)!r}; expected {accepted}")
    for (domain, name), n in expected.items():
        if found.get((domain, name), 0) != n:
            raise DataError(f"{path} has {found.get((domain, name), 0)} images in '{domain}/{name}', expected {n}")


# a user's own images --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Picture:
    """An image file of a user's folder."""

    label: str
    path: Path
    is_test: bool


def folder_images(path: Path) -> tuple[list[Picture], list[str]]:
    """Images of a folder with one subfolder for each class, or with parts such as train and test that have these, by
    class and name; and the names of files that are left out. Hidden files and folders are none of both.

    Raises DataError if there is no folder, no class, or a class without images.
    """
    if not path.is_dir():
        raise DataError(f"there is no folder {path}; expected one with a subfolder of images for each class")
    folders, left = _below(path)
    if folders and all(folder.name.lower() in PARTS for folder in folders):
        within = [_below(part) for part in folders]
        folders, left = [one for own, _ in within for one in own], left + [name for _, own in within for name in own]
    if not folders:
        raise DataError(f"there are no subfolders of {path}; expected one subfolder of images for each class")
    found = []
    for folder in sorted(folders, key=lambda folder: folder.name):
        files = [file for file in sorted(folder.rglob("*")) if not any(map(_hidden, file.relative_to(folder).parts))]
        images = [file for file in files if file.suffix.lower() in SUFFIXES and file.is_file()]
        chosen = set(images)
        left += [file.name for file in files if file not in chosen and (file.is_symlink() or not file.is_dir())]
        if not images:
            why = f"; {left_out(left, 'file')}" if left else ""
            raise DataError(f"class folder {folder} has no images ({', '.join(SUFFIXES)}){why}")
        is_test = folder.parent != path and PARTS[folder.parent.name.lower()]
        found += [Picture(folder.name, file, is_test) for file in images]
    return found, left


def _below(path: Path) -> tuple[list[Path], list[str]]:
    """Subfolders, and the names of what lies beside them."""
    seen = [one for one in sorted(path.iterdir()) if not _hidden(one.name)]
    return [one for one in seen if one.is_dir()], [one.name for one in seen if not one.is_dir()]


def read_folder(files: dict[str, Path], allocate: Allocate, size: int) -> Content:
    """A user's images, `files = {"": folder}`: every subfolder is a class, every image becomes [size, size, 3]."""
    found, left = folder_images(files[""])
    if left:
        say(f"{files['']}: {left_out(left, 'file')}")
    if nested := [one for one in found if one.path.parent.name != one.label]:
        say(f"{files['']}: images in folders below a class belong to it, {len(nested)} of {len(found)}, such as those "
            f"in {nested[0].path.parent.name}")  # fmt: skip
    paths = [one.path for one in found]
    out = allocate(len(found), size, size, 3)
    for k, pixels in enumerate(decoded(paths, map(str, paths), len(found), size, colour=True)):
        out[k] = pixels
    names = sorted({one.label for one in found})
    labels = _places((one.label for one in found), names)
    say_alike(names, "classes")
    classes = tuple(name.encode(errors="replace").decode() for name in names)  # a file name may be no text
    return Content(labels, np.array([one.is_test for one in found]), classes)
