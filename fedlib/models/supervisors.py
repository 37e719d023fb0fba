"""Supervisors of FedSimSup: small networks whose logits are added to those of a client's personalised model.

"Personalized Federated Learning with Similarity Information Supervisor." Submitted to ICLR 2025 (OpenReview
7rq2OzkJg3). The paper says how large they are compared with the personalised model (one sixth; a smaller CNN; a larger
transformer), not how they are built: all widths here are ours. The transformer has a file of its own.
"""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import nn

from fedlib.models.lenet import convolutions, lenet5
from fedlib.models.parts import ExtractorHead, num_features


def supervisor_sixth(shape: tuple[int, int, int], num_classes: int) -> ExtractorHead:
    """A LeNet-5 with 2 and 6 channels and as many hidden units as bring it closest to a sixth of lenet5's parameters.

    With 3x32x32 inputs and 10 classes: 51 hidden units, 8,679 parameters. (Dividing every width by six would leave a
    thirtieth of the parameters.)
    """
    layers = convolutions(shape[0], 2, 6)
    flat = num_features("supervisor_sixth", nn.Sequential(layers), shape)
    with torch.device("meta"):
        target = count(lenet5(shape, num_classes)) / 6
    fixed = count(nn.Sequential(layers)) + num_classes  # and every hidden unit adds flat + 1 + num_classes
    hidden = max(1, round((target - fixed) / (flat + 1 + num_classes)))
    layers |= {"fc1": nn.Linear(flat, hidden), "relu3": nn.ReLU()}
    return ExtractorHead(nn.Sequential(layers), nn.Linear(hidden, num_classes))


def supervisor_cnn(shape: tuple[int, int, int], num_classes: int) -> ExtractorHead:
    """Two padded 3x3 convolutions (8 and 16 channels), each with ReLU and max-pooling, global average, classes.

    With 3x32x32 inputs and 10 classes: 1,562 parameters.
    """
    layers = OrderedDict(
        conv1=nn.Conv2d(shape[0], 8, 3, padding=1),
        relu1=nn.ReLU(),
        pool1=nn.MaxPool2d(2),
        conv2=nn.Conv2d(8, 16, 3, padding=1),
        relu2=nn.ReLU(),
        pool2=nn.MaxPool2d(2),
        average=nn.AdaptiveAvgPool2d(1),
        flatten=nn.Flatten(),
    )
    extractor = nn.Sequential(layers)
    return ExtractorHead(extractor, nn.Linear(num_features("supervisor_cnn", extractor, shape), num_classes))


def supervisor_none(shape: tuple[int, int, int], num_classes: int) -> ExtractorHead:
    """No supervisor: all logits are 0, as long as it is not trained."""
    extractor = nn.Sequential(OrderedDict(average=nn.AdaptiveAvgPool2d(1), flatten=nn.Flatten()))
    net = ExtractorHead(extractor, nn.Linear(num_features("supervisor_none", extractor, shape), num_classes))
    for weights in net.parameters():
        nn.init.zeros_(weights)
    return net


def count(net: nn.Module) -> int:
    """Trainable parameters of a network."""
    return sum(p.numel() for p in net.parameters())
