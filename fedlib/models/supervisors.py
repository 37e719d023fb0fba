"""Supervisors of FedSimSup: networks whose logits are added to those of a client's personalised model.

"Personalized Federated Learning with Similarity Information Supervisor." Submitted to ICLR 2025 (OpenReview
7rq2OzkJg3). The paper says how large they are compared with the personalised model (one sixth; a smaller CNN; a larger
transformer), not how they are built: all sizes here are ours. The transformer: A. Dosovitskiy et al. "An Image is Worth
16x16 Words: Transformers for Image Recognition at Scale." ICLR 2021, with mean pooling in place of the class token and
without dropout. Letters in shapes: B images, T patches, w width, H heads.
"""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor, nn

from fedlib.base.errors import BadValue
from fedlib.models.parts import ExtractorHead, num_features
from fedlib.models.small import convolutions, lenet5


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


# the transformer ------------------------------------------------------------------------------------------------------


PATCH, WIDTH, HEADS, HIDDEN, LAYERS = 4, 64, 4, 128, 2


def supervisor_transformer(shape: tuple[int, int, int], num_classes: int) -> ExtractorHead:
    """A transformer of 2 layers on 4x4 patches (width 64, 4 heads, learned positions), mean over patches, classes.

    Height and width must be multiples of 4. With 3x32x32 inputs and 10 classes: 74,954 parameters.
    """
    _, height, width = shape
    if height < PATCH or width < PATCH:
        raise BadValue(
            f"input size {height}x{width} is too small for supervisor_transformer; expected at least {PATCH}x{PATCH}"
        )
    if height % PATCH or width % PATCH:
        raise BadValue(
            f"input size {height}x{width} cannot be cut into patches by supervisor_transformer; expected multiples of "
            f"{PATCH}"
        )
    return ExtractorHead(PatchEncoder(shape), nn.Linear(WIDTH, num_classes))


class PatchEncoder(nn.Module):
    """Images [B, c, h, w] -> features [B, w]: patches, positions, layers, mean over patches, layer norm."""

    def __init__(self, shape: tuple[int, int, int]):
        super().__init__()
        channels, height, width = shape
        self.patches = nn.Conv2d(channels, WIDTH, PATCH, stride=PATCH)
        self.positions = nn.Parameter(torch.empty((height // PATCH) * (width // PATCH), WIDTH).normal_(std=0.02))
        self.layers = nn.Sequential(*(Layer() for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patches(x).flatten(2).transpose(1, 2) + self.positions  # [B, T, w]
        return self.norm(self.layers(tokens).mean(1))


class Layer(nn.Module):
    """Attention and an MLP, each of the layer norm of its input, to which it is added."""

    def __init__(self):
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(WIDTH), Attention()
        self.norm2 = nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Attention(nn.Module):
    """softmax(Q K^T / sqrt(w/H)) V for every head, the heads' results side by side, and a linear layer. x:
    [B, T, w]."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        heads = self.qkv(x).unflatten(-1, (3, HEADS, WIDTH // HEADS))  # [B, T, 3, H, w/H]
        q, k, v = heads.permute(2, 0, 3, 1, 4)  # each [B, H, T, w/H]
        weights = (q @ k.transpose(-2, -1) / (WIDTH // HEADS) ** 0.5).softmax(-1)  # [B, H, T, T]
        return self.out((weights @ v).transpose(1, 2).flatten(2))
