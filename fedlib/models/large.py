"""Large backbones: torchvision's, without dropout and with random parameters (see `fedlib.models.torchvision_nets`).
MobileNetV2 (M. Sandler et al., CVPR 2018): pFedSim's for Tiny-ImageNet and DomainNet. Its Table 9 prints a stem of
stride 1 and some impossible pairs of channels; its text says that torchvision's network is meant. Images are
standardised with the data set's own statistics, also for pretrained weights.
ResNet (K. He et al., CVPR 2016): ResNet-18 is PFedCS's for Tiny-ImageNet. pFedSV counts the communication of ResNet-34
and of VGG-19 (K. Simonyan, A. Zisserman, ICLR 2015).
"""

from __future__ import annotations

from torch import nn

from fedlib.base.errors import choose
from fedlib.models.parts import ExtractorHead
from fedlib.models.torchvision_nets import load_imagenet, split, torchvision_models


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
