"""Small networks. LeNet-5: with batch norm as in pFedSim (Table 5), and plain as in FedSimSup and in pFedSV's count of
communication. The convolutional network of FedAvg's paper, used by PFedCS ("4-layer CNN") and pFedSV ("CNN"): B.
McMahan, E. Moore, D. Ramage, S. Hampson, B. Agüera y Arcas. "Communication-Efficient Learning of Deep Networks from
Decentralized Data." AISTATS 2017, arXiv:1602.05629, section 3. A network without convolutions, for tables of features;
it takes images as well.
"""

from __future__ import annotations

from collections import OrderedDict
from math import prod

from torch import nn

from fedlib.base.errors import choose, require
from fedlib.models.parts import BatchNorm2d, ExtractorHead, num_features


def lenet5_bn(shape: tuple[int, int, int], num_classes: int, pools: int = 1) -> ExtractorHead:
    """Two 5x5 convolutions (6 and 16 channels, batch norm, ReLU), max-pooling, fully connected 120, 84, classes.

    pools: 1 as the paper's Table 5 prints it (after the second convolution only); 2 as the authors' code has it (after
    both). No padding. With 3x32x32 inputs and 10 classes: 290,530 parameters for pools=1, 62,050 for pools=2.
    """
    require(pools in (1, 2), "pools", pools, "1 (the paper's table) or 2 (the authors' code)")
    layers = [("conv1", nn.Conv2d(shape[0], 6, 5)), ("bn1", BatchNorm2d(6)), ("relu1", nn.ReLU())]
    if pools == 2:
        layers.append(("pool1", nn.MaxPool2d(2)))
    layers += [
        ("conv2", nn.Conv2d(6, 16, 5)),
        ("bn2", BatchNorm2d(16)),
        ("relu2", nn.ReLU()),
        ("pool2", nn.MaxPool2d(2)),
        ("flatten", nn.Flatten()),
    ]
    flat = num_features(f"lenet5_bn with pools={pools}", nn.Sequential(OrderedDict(layers)), shape)
    layers += [("fc1", nn.Linear(flat, 120)), ("relu3", nn.ReLU()), ("fc2", nn.Linear(120, 84)), ("relu4", nn.ReLU())]
    return ExtractorHead(nn.Sequential(OrderedDict(layers)), nn.Linear(84, num_classes))


def lenet5(shape: tuple[int, int, int], num_classes: int, linear_layers: int = 2, hidden: int = 120) -> ExtractorHead:
    """Two 5x5 convolutions (6 and 16 channels), each with ReLU and max-pooling, and two linear layers: 120, classes.

    linear_layers: 2 as FedSimSup describes it (widths are ours, the paper gives none); 3 puts a layer of 84 before the
    head, the network of Y. LeCun et al. (1998) whose communication pFedSV counts. hidden: units of the first linear
    layer. No padding, no batch norm. With 3x32x32 inputs and 10 classes: 52,202 parameters for 2 linear layers, 62,006
    for 3.
    """
    require(hidden >= 1, "hidden", hidden, "an integer of at least 1")
    require(linear_layers in (2, 3), "linear_layers", linear_layers, "2 (FedSimSup) or 3 (LeCun et al., pFedSV)")
    layers = convolutions(shape[0], 6, 16)
    flat = num_features("lenet5", nn.Sequential(layers), shape)
    layers |= {"fc1": nn.Linear(flat, hidden), "relu3": nn.ReLU()}
    if linear_layers == 3:
        layers |= {"fc2": nn.Linear(hidden, 84), "relu4": nn.ReLU()}
    return ExtractorHead(nn.Sequential(layers), nn.Linear(hidden if linear_layers == 2 else 84, num_classes))


lenet5.added = ("hidden",)  # came after the first stored results, see `fedlib.spec`


def lenet_dlg(shape: tuple[int, int, int], num_classes: int) -> ExtractorHead:
    """The network that "Deep Leakage from Gradients" attacks: three 5x5 convolutions, sigmoids, one linear layer.

    L. Zhu, Z. Liu, S. Han, NeurIPS 2019, arXiv:1906.08935: smooth, so that its gradients can be matched by second-order
    methods. 12 channels, strides 2, 2, 1, padding 2, no pooling; initial values are uniform in (-0.5, 0.5) as in the
    authors' code. With 3x32x32 inputs and 10 classes: 15,826 parameters.
    """
    layers, channels = OrderedDict(), shape[0]
    for k, stride in enumerate((2, 2, 1), 1):
        layers |= {f"conv{k}": nn.Conv2d(channels, 12, 5, stride, padding=2), f"sigmoid{k}": nn.Sigmoid()}
        channels = 12
    layers["flatten"] = nn.Flatten()
    head = nn.Linear(num_features("lenet_dlg", nn.Sequential(layers), shape), num_classes)
    net = ExtractorHead(nn.Sequential(layers), head)
    for weights in net.parameters():
        nn.init.uniform_(weights, -0.5, 0.5)
    return net


def convolutions(channels: int, first: int, second: int, padding: int = 0) -> OrderedDict[str, nn.Module]:
    """The lower part of LeNet-5: two 5x5 convolutions to `first` and `second` channels,
    each with ReLU and 2x2 pooling."""
    return OrderedDict(
        conv1=nn.Conv2d(channels, first, 5, padding=padding),
        relu1=nn.ReLU(),
        pool1=nn.MaxPool2d(2),
        conv2=nn.Conv2d(first, second, 5, padding=padding),
        relu2=nn.ReLU(),
        pool2=nn.MaxPool2d(2),
        flatten=nn.Flatten(),
    )


def mcmahan_cnn(
    shape: tuple[int, int, int], num_classes: int, padding: str = "valid", width: float = 1.0
) -> ExtractorHead:
    """Two 5x5 convolutions (32 and 64 channels), each with ReLU and max-pooling, fully connected 512, classes.

    padding: "valid" (none, as in the code whose settings PFedCS shares) or "same" (as the original, which publishes
    1,663,370 parameters for 1x28x28 inputs and 10 classes; "valid" has 582,026). width: this share of the original's
    channels and units, rounded (0.25: 8, 16 and 128). No batch norm.
    """
    border = {"valid": 0, "same": 2}[choose("padding", padding, ("valid", "same"))]
    require(0 < width <= 4, "width", width, "a number above 0 and up to 4")
    first, second, units = (max(1, round(width * number)) for number in (32, 64, 512))
    layers = convolutions(shape[0], first, second, border)
    flat = num_features(f"mcmahan_cnn with padding={padding}", nn.Sequential(layers), shape)
    layers |= {"fc1": nn.Linear(flat, units), "relu3": nn.ReLU()}
    return ExtractorHead(nn.Sequential(layers), nn.Linear(units, num_classes))


mcmahan_cnn.added = ("width",)  # came after the first stored results, see `fedlib.spec`


def mlp(shape: tuple[int, int, int], num_classes: int, hidden: int = 100, depth: int = 1) -> ExtractorHead:
    """`depth` linear layers of `hidden` units, each with ReLU, and a linear classifier; depth 0: logistic regression.

    shape: (features, 1, 1) of a table; the pixels of an image are its features. No batch norm. With 30 features and 2
    classes: 3,302 parameters.
    """
    require(hidden >= 1, "hidden", hidden, "an integer of at least 1")
    require(depth >= 0, "depth", depth, "an integer of at least 0")
    layers, width = OrderedDict(flatten=nn.Flatten()), prod(shape)
    for k in range(1, depth + 1):
        layers |= {f"fc{k}": nn.Linear(width, hidden), f"relu{k}": nn.ReLU()}
        width = hidden
    return ExtractorHead(nn.Sequential(layers), nn.Linear(width, num_classes))
