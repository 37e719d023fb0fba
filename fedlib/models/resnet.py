"""ResNet-18, the backbone of PFedCS for Tiny-ImageNet, and ResNet-34, whose communication pFedSV counts.

K. He, X. Zhang, S. Ren, J. Sun. "Deep Residual Learning for Image Recognition." CVPR 2016. Both are torchvision's, with
random initial parameters; differences from torchvision: see `fedlib.models.torchvision_nets`.
"""

from __future__ import annotations

from torch import nn

from fedlib.base.errors import choose
from fedlib.models.parts import ExtractorHead
from fedlib.models.torchvision_nets import split, torchvision_models


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
