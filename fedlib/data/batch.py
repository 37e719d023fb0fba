"""A minibatch: what a model is trained on in one step."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedlib.base.errors import BadValue


@dataclass(frozen=True)
class StoredImages:
    """Images as they are stored, before they are scaled. Compiled passes read them there.

    images: uint8 [n, h, w, c], one number after the other in memory; rows: int64 [B], which of them; scale, shift
    [c, 1, 1]: an input is a byte times `scale`, plus `shift`.
    """

    images: Tensor
    rows: Tensor
    scale: Tensor
    shift: Tensor

    def __len__(self) -> int:
        return len(self.rows)

    def index_select(self, dim: int, which: Tensor) -> StoredImages:
        """The images `which` int64 [b] of these, as `Tensor.index_select`; dim is 0."""
        return replace(self, rows=self.rows.index_select(dim, which))

    def copied(self) -> StoredImages:
        """The same in a memory of their own, one after the other."""
        return replace(self, images=self.images.index_select(0, self.rows), rows=torch.arange(len(self)))

    def split(self, size: int) -> Iterator[StoredImages]:
        """At most `size` images at a time, as `Tensor.split`."""
        return (replace(self, rows=rows) for rows in self.rows.split(size))

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """[B, c, h, w], of the images when they are scaled."""
        height, width, channels = self.images.shape[1:]
        return len(self.rows), channels, height, width

    def scaled(self) -> Tensor:
        """Standardised images [B, c, h, w]."""
        bytes = self.images.index_select(0, self.rows).permute(0, 3, 1, 2)  # half as long as indexing
        x = bytes.to(self.scale.dtype, memory_format=torch.contiguous_format)
        return x.mul_(self.scale).add_(self.shift)


@dataclass(frozen=True)
class Batch:
    """images: standardised [B, c, h, w], or as they are stored; y: int64 [B]; mask: bool [B], real rows of a padded
    batch, or None if all are; noise: independent standard normal numbers [B, k], where `fold` was asked for them."""

    images: Tensor | StoredImages
    y: Tensor
    mask: Tensor | None = None
    noise: Tensor | None = None

    @functools.cached_property
    def x(self) -> Tensor:
        """Standardised images [B, c, h, w]."""
        return self.images.scaled() if isinstance(self.images, StoredImages) else self.images

    def mean(self, values: Tensor) -> Tensor:
        """Mean of one number a sample, [B], over the real rows."""
        if self.mask is None:
            if values.shape != self.y.shape:
                found, expected = list(values.shape), len(self.y)
                raise BadValue(f"mean of {found} numbers is not accepted; expected one for each of {expected} samples")
            return values.mean()
        return torch.where(self.mask, values, 0).sum() / self.mask.sum()
