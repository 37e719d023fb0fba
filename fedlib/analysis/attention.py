"""How spread Grad-CAM maps are, and how much of the object they cover; see `fedlib.measures.attention`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import torch

from fedlib.analysis.uncertainty import Interval, draws
from fedlib.engine.result import RunResult
from fedlib.measures.attention import NETWORKS, captum_attr

HALF = 0.5  # of a map's mass
NUMBERS = {  # columns of `map_rows`: what they are called, and the form in which they are printed
    "entropy": ("entropy, % of uniform", ".1f"),
    "area": ("smallest area with half of the heat map, %", ".1f"),
    "blobs": ("connected components of that area", ".2f"),
    "on_object": ("map on the object, %", ".1f"),
    "covered": ("object in that area, %", ".1f"),
}


def spread(maps: np.ndarray) -> pd.DataFrame:
    """One row a map; maps [M, h, w], at least 0 and none of them 0 everywhere.

    entropy: of the map as a distribution over its h w cells, in percent of the uniform one's. area: the smallest share
    of the cells that holds half of the map, in percent. blobs: their number of connected components; cells that
    touch at a corner are connected.
    """
    from scipy import ndimage  # here, because most commands need not wait for it

    flat = maps.reshape(len(maps), np.prod(maps.shape[1:])).astype(float)
    p = flat / flat.sum(1, keepdims=True)
    entropy = -(p * np.log(np.where(p > 0, p, 1))).sum(1) / np.log(flat.shape[1])
    inside = half(maps)
    blobs = [ndimage.label(one, np.ones((3, 3)))[1] for one in inside]
    return pd.DataFrame({"entropy": 100 * entropy, "area": 100 * inside.mean((1, 2)), "blobs": blobs})


def half(maps: np.ndarray) -> np.ndarray:
    """The fewest cells that hold half of each map, bool [M, h, w]; maps [M, h, w]."""
    flat = maps.reshape(len(maps), np.prod(maps.shape[1:])).astype(float)
    order = np.argsort(-flat, axis=1, kind="stable")
    ranked = np.take_along_axis(flat, order, 1)
    before = np.cumsum(ranked, 1) - ranked
    inside = np.zeros(flat.shape, dtype=bool)
    np.put_along_axis(inside, order, before < HALF * flat.sum(1, keepdims=True), 1)
    return inside.reshape(maps.shape)


def placed(maps: np.ndarray, stride: int, size: tuple[int, int]) -> np.ndarray:
    """Maps [M, h, w] at the size of the image, [M, H, W]: every cell where the middle of what it sees is.

    Convolutions without padding look at the border from the inside: the cells cover the image's middle, `stride` pixels
    each; between them it is interpolated, outside a map is 0. (Usually maps are stretched over the whole image, which
    moves them outwards by several pixels.)
    """
    h, w = (stride * side for side in maps.shape[1:])
    large = captum_attr().LayerAttribution.interpolate(torch.from_numpy(maps)[:, None].double(), (h, w), "bilinear")
    top, left = (size[0] - h) // 2, (size[1] - w) // 2
    return torch.nn.functional.pad(large, (left, size[1] - w - left, top, size[0] - h - top))[:, 0].numpy()


def on_object(maps: np.ndarray, objects: np.ndarray) -> pd.DataFrame:
    """One row a map; maps [M, H, W] at the size of the image, objects bool [M, H, W].

    on_object: share of the map that lies on the object. covered: share of the object in the smallest area that holds
    half of the map. Both in percent.
    """
    share, covered = (maps * objects).sum((1, 2)) / maps.sum((1, 2)), half(maps) & objects
    return pd.DataFrame({"on_object": 100 * share, "covered": 100 * covered.sum((1, 2)) / objects.sum((1, 2))})


def map_rows(r: RunResult) -> pd.DataFrame:
    """One row an image and network of a run that measured "attention": client, image (its number), network, right
    (whether the class that is explained is the image's), empty (nothing in the map is positive), and, 0 for empty maps,
    `spread` and, where objects are known, `on_object`."""
    a, frames = r.arrays, []
    for k, network in enumerate(NETWORKS[: a["attention"].shape[1]]):
        maps = a["attention"][:, k]
        seen = maps.sum((1, 2)) > 0
        about = {"client": a["attention_client"], "image": range(len(maps)), "network": network, "empty": ~seen,
                 "right": a["attention_label"] == a["attention_predicted"]}  # fmt: skip
        numbers = [spread(maps[seen])]
        if (objects := a.get("attention_object")) is not None:
            large = placed(maps[seen], int(a["attention_stride"][0]), objects.shape[1:])
            numbers.append(on_object(large, objects[seen]))
        known = pd.concat(numbers, axis=1).set_index(np.flatnonzero(seen))
        frames.append(pd.DataFrame(about).join(known).fillna(0))
    return pd.concat(frames, ignore_index=True)


def network_draws(tidy: pd.DataFrame, value: str, networks: Sequence[str]) -> pd.DataFrame:
    """Means of a column by network, [1 + DRAWS, networks]: over the images of which every one of these networks has a
    map, averaged by client. Empty without such an image.

    tidy: `map_rows` of several runs, with their seed.
    """
    own = tidy[tidy["network"].isin(networks) & ~tidy["empty"]]
    shared = own.groupby(["seed", "image"])["network"].transform("nunique") == len(set(networks))
    means = own[shared].groupby(["network", "seed", "client"], sort=False)[value].mean().reset_index()
    return draws(means, value, ["network"]) if len(means) else pd.DataFrame()


def described(tidy: pd.DataFrame, pairs: Mapping[str, tuple[str, str]]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Every network's numbers (network, number, mean, low, high), and the differences of pairs of networks, the first
    minus the second (pair, number, mean, low, high); see `network_draws`."""
    means, gaps = [], []
    for number in (name for name in NUMBERS if name in tidy):
        for network in tidy["network"].unique():
            if len(m := network_draws(tidy, number, [network])):
                means.append((network, number, *Interval.of(m[network]).row))
        for pair, (one, other) in pairs.items():
            if len(m := network_draws(tidy, number, [one, other])):
                gaps.append((pair, number, *Interval.of(m[one] - m[other]).row))
    numbers = ["number", "mean", "low", "high"]
    return pd.DataFrame(means, columns=["network", *numbers]), pd.DataFrame(gaps, columns=["pair", *numbers])


def in_words(rows: pd.DataFrame, what: str, sign: str = "") -> pd.DataFrame:
    """A table of `described` for reading: one row a network or pair, numbers with their intervals; sign: "+" for
    differences."""
    text = [Interval(r.mean, r.low, r.high).text(sign + NUMBERS[r.number][1]) for r in rows.itertuples()]
    wide = rows.assign(text=text).pivot(index=what, columns="number", values="text")
    order = [name for name in NUMBERS if name in wide]
    return (
        wide.loc[rows[what].unique(), order]
        .rename(columns={name: NUMBERS[name][0] for name in order})
        .rename_axis(columns=None)
    )


def shown(r: RunResult, number: int, classes: Sequence[str]) -> pd.DataFrame:
    """Images and maps of the trained networks for a figure, of the first clients in whose first image all of them see
    something: row (image, or a network's name), column, title, channels, pixels (0 to 255 in hexadecimal, the image's
    lines apart)."""
    a, lines, column = r.arrays, [], 0
    for k, image in zip(a["attention_pictured"], a["attention_pixels"]):
        maps = dict(zip(NETWORKS[::2], a["attention"][k][::2]))
        if column == number or not all(one.any() for one in maps.values()):
            continue
        large = {name: placed(one[None], int(a["attention_stride"][0]), image.shape[1:]) for name, one in maps.items()}
        label, predicted = (classes[a[f"attention_{name}"][k]] for name in ("label", "predicted"))
        title = label if label == predicted else f"{label}, predicted {predicted}"
        rows = {"image": image} | {name: (255 * m / m.max()).round().astype(np.uint8) for name, m in large.items()}
        for row, pixels in rows.items():
            text = " ".join(line.tobytes().hex() for line in pixels.reshape(-1, pixels.shape[-1]))
            lines.append((row, column, title, len(pixels), text))
        column += 1
    return pd.DataFrame(lines, columns=["row", "column", "title", "channels", "pixels"])
