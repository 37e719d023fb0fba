"""Backbones. `build(name, shape, num_classes, **options)` returns a `Model`; every model is an extractor and a head.

A name is a key of MODELS or `torchvision:<name>`, any classifier of torchvision (see `fedlib.models.torchvision_nets`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import nn

from fedlib.base.draws import torch_seeded
from fedlib.base.errors import choose, like
from fedlib.base.options import signature
from fedlib.models.layers import layer_rows
from fedlib.models.model import Model
from fedlib.models.small import lenet5, lenet5_bn, lenet_dlg, mcmahan_cnn, mlp
from fedlib.models.supervisors import supervisor_cnn, supervisor_none, supervisor_sixth, supervisor_transformer
from fedlib.models.torchvision_nets import PREFIX, check_classifier, classifier, mobilenetv2, resnet18, resnet34, vgg19

NETWORKS = (lenet5_bn, lenet5, lenet_dlg, mcmahan_cnn, mlp, mobilenetv2, resnet18, resnet34, vgg19)
SUPERVISORS = (supervisor_sixth, supervisor_cnn, supervisor_none, supervisor_transformer)
MODELS = {make.__name__: make for make in (*NETWORKS, *SUPERVISORS)}

# Their steps take 1.45 times as long with the same bits everywhere (`fedlib.base.same_bits`; measured with AVX-512).
SLOWED = {"resnet18", "resnet34"}


def build(name: str, shape: tuple[int, int, int], num_classes: int, seed: int = 0, **options) -> Model:
    """shape: (channels, height, width) of an input. Initial weights are a function of `seed` alone.

    Raises BadValue for an unknown model or option, an option out of range and an input that is too small.
    """
    options = checked_options(check_model(name), options)
    model = Model(_drawn(name, shape, num_classes, seed, options))
    model.remake = functools.partial(_drawn, name, shape, num_classes, seed, options)
    model.make_sibling = functools.partial(build, shape=shape, num_classes=num_classes, seed=seed)
    return model


def _drawn(name, shape, num_classes, seed, options, number: int = 0) -> nn.Module:
    """The network with its initial parameters, or with independent ones for another number."""
    purpose = f"initial weights {number}" if number else "initial weights"  # the name of the draw: never renamed
    return torch_seeded(seed, purpose, lambda: maker(name)(shape, num_classes, **options))


def sizes(name: str, shape: tuple[int, int, int], num_classes: int, **options) -> dict[str, int]:
    """How many numbers a model has, counted without making them: trainable in `extractor`, `head`, `model` (both) and
    `linear` (all linear layers, head included); `statistics` are batch norm's running means and variances.

    Raises BadValue as `build`.
    """
    options = checked_options(check_model(name), options)
    model = Model(_without_numbers(name, shape, num_classes, options))
    linear = [layer for layer in model.module.modules() if isinstance(layer, nn.Linear)]
    return {
        **model.num_parameters,
        "linear": sum(p.numel() for layer in linear for p in layer.parameters()),
        "statistics": sum(model.theta0[name].numel() for name in model.running),
    }


def layers(name: str, shape: tuple[int, int, int], num_classes: int, **options) -> list[dict]:
    """One dict for each convolution, batch norm, pooling and linear layer (see `layer_rows`),
    without making any weights.

    Raises BadValue as `build`.
    """
    return layer_rows(_without_numbers(name, shape, num_classes, checked_options(check_model(name), options)), shape)


def parameters_by_part(name: str, shape: tuple[int, int, int], num_classes: int, **options) -> dict[str, int]:
    """Where the trainable parameters of a model are, counted without making them. Raises BadValue as `build`."""
    size, kinds = sizes(name, shape, num_classes, **options), {"Conv2D": 0, "BatchNorm2D": 0}
    for layer in layers(name, shape, num_classes, **options):
        kinds[layer["kind"]] = kinds.get(layer["kind"], 0) + (layer["parameters"] or 0)
    return {
        "convolutions": kinds["Conv2D"],
        "batch norm": kinds["BatchNorm2D"],
        "linear layers of the extractor": size["linear"] - size["head"],
        "classifier": size["head"],
    }


def check_model(name: str) -> str:
    """Return `name` if it names a backbone. Raises BadValue otherwise, with the nearest names."""
    if not str(name).startswith(PREFIX):
        return choose("model", name, [*MODELS, f"{PREFIX}<name>"])
    check_classifier(name.removeprefix(PREFIX))
    return name


def maker(name: str) -> Callable[..., nn.Module]:
    """The function (shape, num_classes, **options) -> network behind a name."""
    return functools.partial(classifier, name.removeprefix(PREFIX)) if name.startswith(PREFIX) else MODELS[name]


def checked_options(name: str, given: dict) -> dict:
    """`given` completed by the model's defaults. Raises BadValue for an unknown option or a value out of range."""
    defaults = options_of(name)
    for option in given:
        choose(f"option of model {name!r}", option, defaults)
    full = {option: like(default, option, given.get(option, default)) for option, default in defaults.items()}
    _check_values(name, tuple(full.items()))
    return full


@functools.cache
def _check_values(name: str, options: tuple) -> None:
    _without_numbers(name, (3, 224, 224), 10, dict(options))


def _without_numbers(name: str, shape: tuple[int, int, int], num_classes: int, options: dict) -> nn.Module:
    """The network on the meta device: layers and shapes, no numbers; so it takes neither time nor memory."""
    try:
        with torch.device("meta"):
            return maker(name)(shape, num_classes, **options)
    except NotImplementedError:  # torchvision's RegNets compute their widths with tensors
        return maker(name)(shape, num_classes, **options)


def options_of(name: str) -> dict[str, object]:
    """The options of a model and their defaults."""
    return {p.name: p.default for p in list(signature(maker(name)).parameters.values())[2:]}
