"""A small vision transformer, the supervisor of FedSimSup that is larger than the personalised model.

A. Dosovitskiy et al. "An Image is Worth 16x16 Words: Transformers for Image Recognition at Scale." ICLR 2021, with mean
pooling in place of the class token and without dropout. Sizes are ours: FedSimSup says only that it is the largest.

Letters in shapes: B images, T patches, w width, H heads.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fedlib.base.errors import BadValue
from fedlib.models.parts import ExtractorHead

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
