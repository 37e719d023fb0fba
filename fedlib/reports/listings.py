"""What there is, as printed lists: items, methods, data sets, partition schemes and backbones."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tqdm import tqdm

from fedlib import algorithms
from fedlib.data import DATASETS, Dataset, available
from fedlib.data import root as default_root
from fedlib.data.partition import SCHEMES
from fedlib.experiments import PROFILES, OpenItem, find, names
from fedlib.models import MODELS
from fedlib.reports.methods_table import methods_table


def list_items(count: bool = True) -> None:
    """Items: the time they take, and with `count`, which takes seconds, the runs that are there, of those needed."""
    print(f"items ({'runs finished / needed, ' if count else ''}minutes on 2 cores)")
    for name in names():
        cells, item = [], find(name)
        for profile in [p for p in PROFILES[1:] if p in item.settings]:
            opened = OpenItem(item, profile) if count else None
            done = f"{len(opened.specs) - len(opened.missing)}/{len(opened.specs)}, " if opened else ""
            cells.append(f"{profile} {done}{item.minutes[profile]:g} min")
        print(f"  {name:<40} {'; '.join(cells)}\n      {item.claim}")


def show(part: str, count: bool) -> None:
    """The items, the data sets, or the methods, partition schemes or backbones, a sentence each."""
    if part in ("items", "data sets"):
        return list_items(count) if part == "items" else list_datasets()
    any_other = {"torchvision:<name>": "Any classifier of torchvision, with random initial parameters."}
    texts = {name: algorithms.text(name) for name in algorithms.names()} if part == "methods" else {}
    lines = {"methods": texts, "partition schemes": SCHEMES, "backbones": MODELS | any_other}[part]
    print(f"\n{part}")
    for name, thing in lines.items():
        first = (thing if isinstance(thing, str) else thing.__doc__).strip().split("\n\n")[0]
        print(f"  {name:<{max(map(len, lines))}}  {' '.join(first.split())}")


def compare_methods(chosen: Sequence[str]) -> None:
    """What travels, what stays on a client, where methods are tested, who published them; found out by two rounds of
    six clients on digits."""
    patterns = [algorithms.named(name) for name in chosen] if "all" not in chosen else algorithms.names()
    found = methods_table(tqdm(patterns, leave=False, file=sys.stderr, unit="method")).drop(columns="title")
    padded = {column: f"{{:<{max(map(len, [column, *found[column]]))}}}".format for column in found}
    print(found.to_string(index=False, justify="left", formatters=padded))


def list_datasets(root: str | None = None, terms: bool = False) -> None:
    """Data sets: their sizes and whether they are here; terms: and on what terms, with the papers."""
    here = available(root)
    print(f"\ndata sets (in {root or default_root()}; FEDLIB_DATA or --root sets another folder)")
    print(f"  {'name':<14} {'images':>8}  {'pixels':<8} {'classes':>7} {'download':>9} {'on disk':>8}  here")
    for name, source in DATASETS.items():
        c, h, w = source.shape
        images = f"{'' if source.exact else '~'}{source.images:,}"
        download = f"{source.megabytes:,} MB" if source.megabytes else "by hand" if source.by_hand else "none"
        size = f"{max(1, round(source.images * c * h * w / 1e6)):,} MB"
        print(
            f"  {name:<14} {images:>8}  {f'{h}x{w}x{c}':<8} {source.classes:>7} {download:>9} {size:>8}  "
            f"{'yes' if name in here else 'no'}"
        )
    others = [name for name in here if name not in DATASETS]
    print(f"  folder:PATH    your own images, one folder for each class; also here: {', '.join(others) or 'no others'}")
    print("  hf:NAME        a data set of the Hugging Face hub, or a folder in its format (the extra 'hf')")
    if terms:
        print("\nterms and papers (look at the sources' own pages before you use or pass on the images)")
        for name, source in DATASETS.items():
            print(f"  {name:<14} {source.terms}\n{'':<17}{source.citation}")


def describe(name: str, dataset: Dataset) -> None:
    """Print what a data set holds."""
    sizes = dataset.labels.bincount(minlength=len(dataset.classes)).tolist()
    images = f"images of {dataset.shape} (channels, height, width)"
    form = f"samples of {dataset.shape[0]} features" if dataset.is_table else images
    print(f"{name}: {len(dataset.labels)} {form}, {len(dataset.classes)} classes, checksum verified")
    what = "features" if dataset.is_table else "images"
    print(f"sha256 of the {what} {dataset.sha256}; {int(dataset.is_test.sum())} are in the official test set")
    print("samples per class: " + ", ".join(f"{c} {n}" for c, n in zip(dataset.classes, sizes)))
    if dataset.groups is not None:
        owned = dataset.groups.bincount(minlength=len(dataset.group_names)).tolist()
        shown = [f"{group} {n}" for group, n in zip(dataset.group_names, owned)]
        few = f": {', '.join(shown)}" if len(shown) <= 20 else f" of {min(owned)} to {max(owned)} samples"
        print(f"{len(shown)} groups{few}")
    if not dataset.is_table:
        mean, std = ([round(float(v), 4) for v in values] for values in dataset.channel_stats)
        print(f"channel mean {mean}, std {std}")
    if name in DATASETS:
        print(f"terms: {DATASETS[name].terms}; source: {DATASETS[name].citation}")
