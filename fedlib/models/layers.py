"""The layers of a network as a table, from its module tree, to be laid beside the tables that papers print."""

from __future__ import annotations

import torch
from torch import nn

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
