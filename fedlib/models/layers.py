"""The layers of a network as a table, from its module tree, and beside the table of layers that a paper prints."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import nn

from fedlib.base.errors import BadValue

KINDS = {
    nn.Conv2d: "Conv2D",
    nn.BatchNorm2d: "BatchNorm2D",
    nn.MaxPool2d: "MaxPool2D",
    nn.AvgPool2d: "AvgPool2D",
    nn.Linear: "FC",
}


def layer_rows(net: nn.Module, shape: tuple[int, int, int]) -> list[dict]:
    """One dict for each convolution, batch norm, pooling and linear layer, in the order of execution;
    nothing is computed.

    net: a network on the meta device; shape: (channels, height, width) of an image. Keys: name, kind ("Conv2D",
    "BatchNorm2D", "MaxPool2D", "AvgPool2D", "FC"), in, out (channels or features), kernel, stride, pad, groups (None
    where there is none), parameters (trainable numbers), output (shape for one image).
    """
    rows = []

    def watch(name: str):
        return lambda layer, inputs, output: rows.append(_row(name, layer, inputs[0], output))

    hooks = [
        layer.register_forward_hook(watch(name))
        for name, layer in net.named_modules()
        if isinstance(layer, tuple(KINDS))
    ]
    try:
        net.eval()(torch.empty(1, *shape, device="meta"))
    finally:
        for hook in hooks:
            hook.remove()
    return rows


def _row(name: str, layer: nn.Module, before: torch.Tensor, after: torch.Tensor) -> dict:
    window = not isinstance(layer, (nn.Linear, nn.BatchNorm2d))
    return {
        "name": name,
        "kind": next(kind for layer_type, kind in KINDS.items() if isinstance(layer, layer_type)),
        "in": before.shape[1],
        "out": after.shape[1],
        "kernel": _side(layer.kernel_size) if window else None,
        "stride": _side(layer.stride) if window else None,
        "pad": _side(layer.padding) if window else None,
        "groups": getattr(layer, "groups", None),
        "parameters": sum(p.numel() for p in layer.parameters()),
        "output": tuple(after.shape[1:]),
    }


def _side(size: int | tuple[int, int]) -> int | tuple[int, int]:
    """One number for a square."""
    return size[0] if isinstance(size, tuple) and size[0] == size[1] else size


# beside a printed table -----------------------------------------------------------------------------------------------


FIELDS = ("in", "out", "kernel", "stride", "pad", "groups")


def _with_numbers(row: dict) -> dict:
    """A printed row with numbers in FIELDS (None if not printed), how many `times` it is repeated, and its block."""
    numbers = {name: int(row[name]) if row[name].isdigit() else row[name] or None for name in FIELDS}
    return {**row, **numbers, "times": int(row["repetition"] or 1), "block": row["block"] or row["layer_index"]}


def _in_order(rows: list[dict]) -> list[dict]:
    """The layers that the printed rows stand for: every block as often as it is repeated."""
    blocks: dict[str, list[dict]] = {}
    for row in rows:
        blocks.setdefault(row["block"], []).append(row)
    return [row for block in blocks.values() for _ in range(block[0]["times"]) for row in block]


def _impossible(layers: list[dict], channels: int) -> dict[str, str]:
    """Why printed layers cannot follow each other, by layer_index: each must take what the one before it gives."""
    why, before = {}, channels
    for layer in layers:
        if isinstance(layer["in"], int) and layer["in"] != before:
            why.setdefault(layer["layer_index"], f"in={layer['in']} after a layer with out={before}")
        before = layer["out"] if isinstance(layer["out"], int) else before
    return why


def beside_printed(printed: list[dict], ours: list[dict], model: str, classes: int) -> list[dict]:
    """Printed rows beside a network's layers, in order; batch norm and activation belong to the row of their
    convolution.

    printed: texts layer_index, layer_type, block, repetition, printed and FIELDS, empty where nothing is printed; ours:
    the `layer_rows` of the network called `model`.
    Returns for each layer, times, printed, ours, verdict: "same", "misprint: why" if the printed layers do not fit each
    other, else "differs". Raises BadValue for a network with more or fewer layers.
    """
    printed = [_with_numbers(row) for row in printed]
    built = iter(pairwise([*(row for row in ours if row["kind"] != "BatchNorm2D"), None]))
    layers, found, here = _in_order(printed), {row["layer_index"]: [] for row in printed}, None
    for layer in layers:
        if layer["layer_type"] in ("Flatten", "AvgPool2D") and layer["kernel"] is None:
            found[layer["layer_index"]].append(_between(layer, *here))
        else:
            here = next(built, None)
            if here is None:
                raise BadValue(f"{model} has fewer layers than are printed")
            found[layer["layer_index"]].append((_text(here[0]), _agree(layer, here[0], classes)))
    if next(built, None):
        raise BadValue(f"{model} has more layers than are printed")
    why, rows = _impossible(layers, ours[0]["in"]), []
    for row in printed:
        texts, same = zip(*found[row["layer_index"]])
        reason = why.get(row["layer_index"])
        judged = "same" if all(same) else f"misprint: {reason}" if reason else "differs"
        about = {"layer": row["layer_index"], "times": row["times"], "printed": row["printed"]}
        rows.append({**about, "ours": " / ".join(dict.fromkeys(texts)), "verdict": judged})
    return rows


def _agree(printed: dict, ours: dict, classes: int) -> bool:
    """Is every number that the paper prints ours? Padding and groups that are not printed are 0 and 1."""
    expected = {name: printed[name] for name in FIELDS if printed[name] is not None}
    if printed["layer_type"] == "Conv2D":
        expected = {"pad": 0, "groups": 1} | expected
    expected = {name: classes if value == "num_classes" else value for name, value in expected.items()}
    return ours["kind"] == printed["layer_type"] and all(ours[name] == value for name, value in expected.items())


def _between(printed: dict, before: dict, after: dict) -> tuple[str, bool]:
    """What happens between two of our layers without a layer of its own, read off their shapes:
    flattening or pooling."""
    shape, given = before["output"], after["in"]
    pooled = given == shape[0]
    text = f"{'x'.join(map(str, shape))} -> {given}"
    if printed["layer_type"] == "AvgPool2D":
        return f"mean of each channel, {text}", pooled
    return ("Flatten()" if pooled else f"Flatten(), {text}"), pooled or given == shape[0] * shape[1] * shape[2]


def _text(layer: dict) -> str:
    """A layer in the paper's notation."""
    names = {"Conv2D": ("in", "out", "kernel", "stride"), "FC": ("in", "out")}.get(layer["kind"], ("kernel", "stride"))
    names += ("pad",) if layer["kind"] == "Conv2D" and layer["kernel"] > 1 else ()
    names += ("groups",) if (layer["groups"] or 1) > 1 else ()
    return f"{layer['kind']}({', '.join(f'{name}={layer[name]}' for name in names)})"
