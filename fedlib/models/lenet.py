"""LeNet5 with batch norm, the backbone of pFedSim for CIFAR-10, CINIC-10 and EMNIST (pFedSim, Table 5)."""

from __future__ import annotations

from collections import OrderedDict

from torch import nn

from fedlib.errors import BadValue, require
from fedlib.models.norm import BatchNorm2d
from fedlib.models.pool import MaxPool2x2


class ExtractorHead(nn.Module):
    """theta = (f, h): f maps an image to a feature vector z, the linear head h maps z to class scores."""

    def __init__(self, extractor: nn.Module, head: nn.Linear):
        super().__init__()
        self.extractor = extractor
        self.head = head

    def forward(self, x):
        return self.head(self.extractor(x))


def lenet5_bn(shape: tuple[int, int, int], num_classes: int, pools: int = 1) -> ExtractorHead:
    """Two 5x5 convolutions (6 and 16 channels, batch norm, ReLU), max-pooling, fully connected 120, 84, classes.

    pools: 1 as the paper's Table 5 prints it (after the second convolution only); 2 as the authors' code has it (after
    both). No padding. With 3x32x32 inputs and 10 classes: 290,530 parameters for pools=1, 62,050 for pools=2.
    """
    require(pools in (1, 2), "pools", pools, "1 (the paper's table) or 2 (the authors' code)")
    channels, height, width = shape

    def remaining(size: int) -> int:
        after_conv1 = (size - 4) // (2 if pools == 2 else 1)
        return (after_conv1 - 4) // 2

    if min(remaining(height), remaining(width)) < 1:
        smallest = {1: 10, 2: 16}[pools]
        raise BadValue(
            f"input size {height}x{width} is too small for lenet5_bn with pools={pools}; expected at least {smallest}x{smallest}"
        )
    flat = 16 * remaining(height) * remaining(width)
    layers = [("conv1", nn.Conv2d(channels, 6, 5)), ("bn1", BatchNorm2d(6)), ("relu1", nn.ReLU())]
    if pools == 2:
        layers.append(("pool1", MaxPool2x2()))
    layers += [
        ("conv2", nn.Conv2d(6, 16, 5)),
        ("bn2", BatchNorm2d(16)),
        ("relu2", nn.ReLU()),
        ("pool2", MaxPool2x2()),
        ("flatten", nn.Flatten()),
    ]
    layers += [("fc1", nn.Linear(flat, 120)), ("relu3", nn.ReLU()), ("fc2", nn.Linear(120, 84)), ("relu4", nn.ReLU())]
    return ExtractorHead(nn.Sequential(OrderedDict(layers)), nn.Linear(84, num_classes))
