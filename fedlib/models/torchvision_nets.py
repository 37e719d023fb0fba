"""torchvision's classifiers as extractor + head. torchvision is imported when one of them is asked for, not before.

Differences from torchvision, so that a run is a function of its seed and every backend computes the same:
- no dropout and no stochastic depth;
- batch norm with explicit statistics (`fedlib.models.parts`), same momentum and eps;
- no module works in place; GoogLeNet and Inception have no auxiliary heads; the head always has a bias;
- a grey image goes through the first convolution as if all three colours were that grey.

Small images: networks that reduce them 32 times (ResNet, MobileNet) leave one pixel of 32 or fewer. Batch norm there
sees one value per image, and a last minibatch of two or three images amplifies rounding errors enormously: in float64 a
relative change of the weights by 1e-15 became one of order 1 after such a step (MobileNetV2, 16x16 digits). Backends
then differ as much. Take larger images (the papers: 64x64), or ResNet's `stem="cifar"`.

MobileNetV2 (M. Sandler et al., CVPR 2018) is pFedSim's for Tiny-ImageNet and DomainNet. Its Table 9 prints a stem of
stride 1 and some impossible pairs of channels; its text says that torchvision's network is meant. Images are
standardised with the data set's own statistics, also for pretrained weights. ResNet (K. He et al., CVPR 2016):
ResNet-18 is PFedCS's for Tiny-ImageNet. pFedSV counts the communication of ResNet-34 and of VGG-19 (K. Simonyan, A.
Zisserman, ICLR 2015).
"""

from __future__ import annotations

import difflib
import re
from pathlib import Path

import torch
from torch import nn

from fedlib.base.errors import BadValue, DataError, choose, require
from fedlib.data.datasets import root
from fedlib.data.download import RemoteFile, fetch
from fedlib.models.parts import BatchNorm2d, ExtractorHead, num_features

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
    begins = re.search(r"-([0-9a-f]{8,})\.", name)[1]
    try:
        return fetch([RemoteFile(name, (url,), f"sha256:{begins}")], root() / "weights")[name]
    except DataError as error:
        raise DataError(f"pretrained weights cannot be had: {error}; or choose weights='random'") from error


# large backbones of the papers ----------------------------------------------------------------------------------------


def mobilenetv2(shape: tuple[int, int, int], num_classes: int, weights: str = "random") -> ExtractorHead:
    """torchvision's MobileNetV2 of width 1.0: inverted residuals, 1280 features, classes.

    weights: "random", or "pretrained" as in pFedSim: the extractor starts from torchvision's default ImageNet weights,
    the head from random ones. They are downloaded once, or put by hand into the folder `weights` of the data root.
    With 10 classes: 2,236,682 parameters. Raises DataError if pretrained weights cannot be had; never falls back.
    """
    choose("weights", weights, ("random", "pretrained"))
    tv = torchvision_models()
    net = tv.mobilenet_v2(num_classes=num_classes)
    if weights == "pretrained" and not net.classifier[1].weight.is_meta:  # on the meta device there is nothing to load
        load_imagenet(net, tv.MobileNet_V2_Weights.DEFAULT.url, head="classifier.")
    return split("mobilenetv2", net, shape)


def resnet18(shape: tuple[int, int, int], num_classes: int, stem: str = "imagenet") -> ExtractorHead:
    """torchvision's ResNet-18: a stem, eight residual blocks of two 3x3 convolutions, 512 features, classes.

    stem: "imagenet" (7x7 convolution of stride 2 and max-pooling) or "cifar" (3x3 convolution of stride 1, no pooling:
    for small images). With 10 classes: 11,181,642 parameters, 11,173,962 with the cifar stem.
    """
    return _with_stem("resnet18", torchvision_models().resnet18(num_classes=num_classes), shape, stem)


def resnet34(shape: tuple[int, int, int], num_classes: int, stem: str = "imagenet") -> ExtractorHead:
    """torchvision's ResNet-34: as ResNet-18, with sixteen residual blocks.

    With 10 classes: 21,289,802 parameters.
    """
    return _with_stem("resnet34", torchvision_models().resnet34(num_classes=num_classes), shape, stem)


def _with_stem(name: str, net: nn.Module, shape: tuple[int, int, int], stem: str) -> ExtractorHead:
    if choose("stem", stem, ("imagenet", "cifar")) == "cifar":
        net.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
        nn.init.kaiming_normal_(net.conv1.weight, mode="fan_out", nonlinearity="relu")  # as every other convolution
        net.maxpool = nn.Identity()
    return split(name, net, shape)


def vgg19(shape: tuple[int, int, int], num_classes: int) -> ExtractorHead:
    """torchvision's VGG-19: sixteen 3x3 convolutions, fully connected 4096, 4096, classes.

    With 10 classes: 139,611,210 parameters, 119,586,826 of them in the three linear layers.
    """
    return split("vgg19", torchvision_models().vgg19(num_classes=num_classes), shape)
