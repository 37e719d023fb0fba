"""Backbones. `build(name, shape, num_classes, **options)` returns a `Model`; every model is an extractor and a head."""

from __future__ import annotations

import functools
import inspect

import torch
from torch import nn

from fedlib.draws import torch_seeded
from fedlib.errors import choose, like
from fedlib.models.lenet import lenet5_bn
from fedlib.models.model import Model

MODELS = {"lenet5_bn": lenet5_bn}


def build(name: str, shape: tuple[int, int, int], num_classes: int, seed: int = 0, **options) -> Model:
    """shape: (channels, height, width) of an input. Initial weights are a function of `seed` alone.

    Raises BadValue for an unknown model or option, an option out of range and an input that is too small.
    """
    make = MODELS[choose("model", name, MODELS)]
    options = checked_options(name, options)
    model = Model(torch_seeded(seed, "initial weights", lambda: make(shape, num_classes, **options)))
    model.remake = functools.partial(_remake, name, shape, num_classes, seed, options)
    model.make_sibling = functools.partial(_sibling, shape, num_classes, seed)
    return model


def _remake(name, shape, num_classes, seed, options, number: int) -> nn.Module:
    return torch_seeded(seed, f"initial weights {number}", lambda: MODELS[name](shape, num_classes, **options))


def _sibling(shape, num_classes, seed, name: str, **options) -> Model:
    return build(name, shape, num_classes, seed, **options)


def checked_options(name: str, given: dict) -> dict:
    """`given` completed by the model's defaults. Raises BadValue for an unknown option or a value out of range."""
    defaults = options_of(name)
    for option in given:
        choose(f"option of model {name!r}", option, defaults)
    full = {option: like(default, option, given.get(option, default)) for option, default in defaults.items()}
    with torch.device("meta"):  # builds nothing, checks everything
        MODELS[name]((3, 64, 64), 10, **full)
    return full


def options_of(name: str) -> dict[str, object]:
    """The options of a model and their defaults."""
    return {p.name: p.default for p in list(inspect.signature(MODELS[name]).parameters.values())[2:]}


__all__ = ["MODELS", "Model", "build", "checked_options", "options_of"]
