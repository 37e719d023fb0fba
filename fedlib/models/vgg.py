"""VGG-19, whose communication pFedSV counts.

K. Simonyan, A. Zisserman. "Very Deep Convolutional Networks for Large-Scale Image Recognition." ICLR 2015. It is
torchvision's; differences: see `fedlib.models.torchvision_nets`, in particular there is no dropout (torchvision: 0.5,
twice).
"""

from __future__ import annotations

from fedlib.models.parts import ExtractorHead
from fedlib.models.torchvision_nets import split, torchvision_models


def vgg19(shape: tuple[int, int, int], num_classes: int) -> ExtractorHead:
    """torchvision's VGG-19: sixteen 3x3 convolutions, fully connected 4096, 4096, classes.

    With 10 classes: 139,611,210 parameters, 119,586,826 of them in the three linear layers.
    """
    return split("vgg19", torchvision_models().vgg19(num_classes=num_classes), shape)
