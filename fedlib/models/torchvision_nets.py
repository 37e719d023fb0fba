"""torchvision's classifiers as extractor + head. torchvision is imported when one of them is asked for, not before.

Differences from torchvision, so that a run is a function of its seed and every backend computes the same:
- no dropout and no stochastic depth;
- batch norm with explicit statistics (`fedlib.models.norm`), same momentum and eps;
- no module works in place; GoogLeNet and Inception have no auxiliary heads; the head always has a bias;
- a grey image goes through the first convolution as if all three colours were that grey.

Small images: networks that reduce them 32 times (ResNet, MobileNet) leave one pixel of 32 or fewer. Batch norm there
sees one value per image, and a last minibatch of two or three images amplifies rounding errors enormously: in float64 a
relative change of the weights by 1e-15 became one of order 1 after such a step (MobileNetV2, 16x16 digits). Backends
then differ as much. Take larger images (the papers: 64x64), or ResNet's `stem="cifar"`.
"""

from __future__ import annotations

import difflib
import hashlib
import http.client
import re
from pathlib import Path

import torch
from torch import nn

from fedlib.base.errors import BadValue, DataError, require
from fedlib.data.datasets import root
from fedlib.data.download import offline
from fedlib.models.norm import BatchNorm2d
from fedlib.models.parts import ExtractorHead, num_features

PREFIX = "torchvision:"


def torchvision_models():
    """The module torchvision.models. Raises BadValue if torchvision is missing or does not fit the installed torch."""
    try:
        with torch.device("cpu"):  # also where it is first asked for on the meta device
            import torchvision.models
    except (ImportError, RuntimeError) as error:
        raise BadValue(f"this model needs torchvision, which cannot be imported here: {error}") from error
    return torchvision.models


def check_classifier(name: str) -> None:
    """Raise BadValue, with the nearest names, unless torchvision has a classifier of this name."""
    tv = torchvision_models()
    names = tv.list_models(module=tv)
    if name not in names:
        near = [PREFIX + n for n in difflib.get_close_matches(name, names, n=3, cutoff=0.5)]
        hint = f"did you mean {' or '.join(near)}? " if near else ""
        raise BadValue(f"unknown model {PREFIX + name!r}; {hint}accepted: the {len(names)} classifiers of torchvision")


def classifier(name: str, shape: tuple[int, int, int], num_classes: int) -> ExtractorHead:
    """torchvision's classifier `name` with random initial parameters.

    Raises BadValue for an unknown name, a network whose last layer is not linear, and an input that it does not accept.
    """
    check_classifier(name)
    fixed = {}
    if name in ("googlenet", "inception_v3"):
        fixed = {"aux_logits": False, "init_weights": True}
    elif name.startswith("vit_"):  # transformers with a fixed number of patches
        require(shape[1] == shape[2], "input size", f"{shape[1]}x{shape[2]}", f"a square for {PREFIX}{name}")
        fixed = {"image_size": shape[1]}
    elif name.startswith("maxvit_"):
        fixed = {"input_size": tuple(shape[1:])}
    try:
        net = torchvision_models().get_model(name, weights=None, num_classes=num_classes, **fixed)
    except (ValueError, AssertionError) as error:
        reason = " ".join(str(error).split())
        raise BadValue(f"input size {shape[1]}x{shape[2]} is not accepted by {PREFIX}{name}: {reason}") from error
    return split(PREFIX + name, net, shape)


def split(name: str, net: nn.Module, shape: tuple[int, int, int]) -> ExtractorHead:
    """A network of torchvision with 3 input channels as extractor and head, changed as this file's first lines say.

    The head is the network's last linear layer; the extractor is all that comes before it. `name` is for messages.
    """
    require(shape[0] in (1, 3), "input channels", shape[0], f"1 (grey) or 3 (colour) for {name}")
    linear = [path for path, layer in net.named_modules() if isinstance(layer, nn.Linear)]
    if not linear:
        raise BadValue(f"{name} cannot be divided into extractor and head: it has no linear layer")
    head = net.get_submodule(linear[-1])
    replace(net, linear[-1], nn.Identity())
    if head.bias is None:
        head.bias = nn.Parameter(torch.zeros_like(head.weight[:, 0]))
    for path, layer in list(net.named_modules()):
        if isinstance(layer, nn.BatchNorm2d):
            replace(net, path, BatchNorm2d.like(layer))
        elif type(layer).__name__ in ("Dropout", "StochasticDepth"):
            replace(net, path, nn.Identity())
        elif getattr(layer, "inplace", False):
            layer.inplace = False
    if shape[0] == 1:
        first = next(layer for layer in net.modules() if isinstance(layer, nn.Conv2d))
        first.in_channels, first.weight = 1, nn.Parameter(first.weight.detach().sum(1, keepdim=True))
    found = num_features(name, net, shape)
    require(found == head.in_features, f"output of the extractor of {name}", found, str(head.in_features))
    return ExtractorHead(net, head)


def replace(net: nn.Module, path: str, layer: nn.Module) -> None:
    """Put `layer` at the place of net that `path` names."""
    parent, _, child = path.rpartition(".")
    setattr(net.get_submodule(parent), child, layer)


def load_imagenet(net: nn.Module, url: str, head: str) -> None:
    """Copy the weights published by torchvision at `url` into net, all but the ones whose names start with `head`.

    Raises DataError if they are neither in the weights folder (see `weights_file`) nor can be downloaded.
    """
    state = torch.load(weights_file(url), map_location="cpu", weights_only=True)
    own = net.state_dict()
    net.load_state_dict({k: own[k] if k.startswith(head) and k in own else v for k, v in state.items()})


def weights_file(url: str) -> Path:
    """`<data root>/weights/<file name of url>`, downloaded if it is not there, verified by the hash in its name.

    The data root is $FEDLIB_DATA, else the user's cache folder. Raises DataError if the file cannot be had or is
    damaged.
    """
    name = url.rpartition("/")[2]
    file, digest = root() / "weights" / name, re.search(r"-([0-9a-f]{8,})\.", name)[1]
    if not file.exists():
        try:
            if offline():
                raise ConnectionError("FEDLIB_OFFLINE is set")
            file.parent.mkdir(parents=True, exist_ok=True)
            torch.hub.download_url_to_file(url, str(file), hash_prefix=digest, progress=False)
        except (OSError, RuntimeError, http.client.HTTPException) as error:
            raise DataError(
                f"pretrained weights {name} cannot be downloaded ({error}); get {url} by hand and put it into "
                f"{file.parent}, or choose weights='random'"
            ) from error
    if not hashlib.sha256(file.read_bytes()).hexdigest().startswith(digest):
        raise DataError(
            f"pretrained weights {file} are damaged: their sha256 does not start with {digest}; remove the file"
        )
    return file
