"""Backbones. `build(name, shape, num_classes, **options)` returns a `Model`; every model is an extractor and a head."""

from __future__ import annotations

import inspect

from torch import nn

from fedlib.draws import torch_seeded
from fedlib.errors import choose
from fedlib.models.lenet import lenet5_bn
from fedlib.models.model import Model

MODELS = {"lenet5_bn": lenet5_bn}


def build(name: str, shape: tuple[int, int, int], num_classes: int, seed: int = 0, **options) -> Model:
    """shape: (channels, height, width) of an input. Initial weights are a function of `seed` alone.

    Raises BadValue for an unknown model or option, an option out of range and an input that is too small.
    """
    make = MODELS[choose("model", name, MODELS)]
    for option in options:
        choose(f"option of model {name!r}", option, options_of(name))
    module: nn.Module = torch_seeded(seed, "initial weights", lambda: make(shape, num_classes, **options))
    return Model(module)


def options_of(name: str) -> dict[str, object]:
    """The options of a model and their defaults."""
    return {p.name: p.default for p in list(inspect.signature(MODELS[name]).parameters.values())[2:]}


__all__ = ["MODELS", "Model", "build", "options_of"]
