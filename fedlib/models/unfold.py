"""Convolutions of stacked clients as one batched matrix product, to be timed against cuDNN's grouped convolutions."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from torch import Tensor, nn
from torch.nn import functional


def by_matrix_product(layer: nn.Conv2d, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """What a convolution without groups gives, [B, out, h', w'], from x [B, in, h, w]: patches times weights.

    Under torch.func.vmap, where the weights are every client's own, this is one batched matrix product.
    """
    (kh, kw), (sh, sw), (dh, dw) = layer.kernel_size, layer.stride, layer.dilation
    ph, pw = layer.padding if layer.padding != "same" else (dh * (kh - 1) // 2, dw * (kw - 1) // 2)
    height = (x.shape[2] + 2 * ph - dh * (kh - 1) - 1) // sh + 1
    width = (x.shape[3] + 2 * pw - dw * (kw - 1) - 1) // sw + 1
    patches = functional.unfold(x, layer.kernel_size, layer.dilation, (ph, pw), layer.stride)  # [B, in kh kw, h' w']
    count, depth, places = patches.shape
    columns = patches.transpose(0, 1).reshape(depth, count * places)
    out = (weight.reshape(len(weight), depth) @ columns).reshape(len(weight), count, height, width).transpose(0, 1)
    return out if bias is None else out + bias.view(1, -1, 1, 1)


@contextlib.contextmanager
def unfolded_convolutions() -> Iterator[None]:
    """Within this context convolutions without groups are computed by `by_matrix_product`, in this process."""
    usual = nn.Conv2d._conv_forward

    def forward(layer, x, weight, bias):
        fits = layer.groups == 1 and layer.padding_mode == "zeros" and layer.padding != "valid"
        return by_matrix_product(layer, x, weight, bias) if fits else usual(layer, x, weight, bias)

    nn.Conv2d._conv_forward = forward
    try:
        yield
    finally:
        nn.Conv2d._conv_forward = usual
