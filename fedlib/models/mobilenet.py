"""MobileNetV2, the backbone of pFedSim for Tiny-ImageNet and DomainNet.

M. Sandler, A. Howard, M. Zhu, A. Zhmoginov, L.-C. Chen. "MobileNetV2: Inverted Residuals and Linear Bottlenecks." CVPR
2018. pFedSim's Table 9 prints a stem of stride 1 and some impossible pairs of channels; its text says that
      torchvision's
network is meant, which is what is here.

Differences from torchvision: see `fedlib.models.torchvision_nets`. In particular there is no dropout (torchvision: 0.2
before the head). Images are standardised with the data set's own statistics, not with ImageNet's, also for pretrained
weights.
"""

from __future__ import annotations

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
