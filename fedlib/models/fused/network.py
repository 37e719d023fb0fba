"""A network as the list of blocks that network.cpp knows, and its forward pass as an operation that autograd knows."""

from __future__ import annotations

import contextlib
import ctypes
from collections import Counter
from collections.abc import Collection

import torch
from torch import Tensor, nn

from fedlib.models.fused import build
from fedlib.models.norm import BatchNorm2d
from fedlib.models.parts import ExtractorHead
from fedlib.models.pool import MaxPool2x2

LARGEST_KERNEL, MOST_BLOCKS = 7, 64  # of network.cpp
MOST_SAMPLES = 4096  # in one batch; the memory of a step grows with it
CHUNK = 64  # samples at a time where nothing is trained

POINTERS = ("weight", "bias", "scale", "shift", "mean", "var")
GRADIENTS = dict(weight="d_weight", bias="d_bias", scale="d_scale", shift="d_shift")
calls = Counter()  # forward passes of training steps in this process: "fused", "torch"


class Block(ctypes.Structure):
    """The struct of this name in network.cpp."""

    _fields_ = [
        *((name, ctypes.c_int32) for name in ("channels", "height", "width", "out", "kernel", "border")),
        *((name, ctypes.c_int32) for name in ("norm", "relu", "pool")),
        *((name, ctypes.c_float) for name in ("eps", "momentum")),
        *((name, ctypes.c_void_p) for name in (*POINTERS, "new_mean", "new_var", *GRADIENTS.values())),
    ]


class Layers:
    """One block: a convolution or linear layer, and which of norm, ReLU and pooling follow it.

    names: of its tensors in theta, by the names in network.cpp.
    """

    def __init__(self, name: str, layer: nn.Conv2d | nn.Linear):
        self.layer, self.norm, self.relu, self.pool = layer, None, False, False
        self.names = {"weight": f"{name}.weight"} | ({} if layer.bias is None else {"bias": f"{name}.bias"})

    def add(self, name: str, layer: nn.Module) -> bool:
        """Whether this layer can follow; if so it now does."""
        if isinstance(layer, BatchNorm2d) and isinstance(self.layer, nn.Conv2d):
            if self.norm or self.relu or self.pool or not layer.affine or layer.momentum is None:
                return False
            self.norm = layer
            self.names |= {"scale": f"{name}.weight", "shift": f"{name}.bias"}
            self.names |= {"mean": f"{name}.running_mean", "var": f"{name}.running_var"}
        elif isinstance(layer, nn.ReLU) and not self.relu and not self.pool:
            self.relu = True
        elif _halves(layer) and isinstance(self.layer, nn.Conv2d) and not self.pool:
            self.pool = True
        else:
            return False
        return True

    def fits(self, shape: tuple[int, int, int]) -> tuple[int, int, int] | None:
        """The shape of the output for an input of this shape, None if that is not accepted."""
        channels, height, width = shape
        if isinstance(self.layer, nn.Linear):
            return (self.layer.out_features, 1, 1) if channels * height * width == self.layer.in_features else None
        (kernel, _), (border, _) = self.layer.kernel_size, self.layer.padding
        height, width = height + 2 * border - kernel + 1, width + 2 * border - kernel + 1
        if self.pool:
            height, width = height // 2, width // 2
        fine = channels == self.layer.in_channels and height > 0 and width > 0
        return (self.layer.out_channels, height, width) if fine else None


class FusedNetwork:
    """The blocks of a module. Picklable: what is compiled is found anew in every process."""

    def __init__(self, blocks: list[Layers], features: int):
        """features: how many of the blocks make the extractor."""
        self.blocks, self.features = blocks, features
        self.shapes: dict[tuple, tuple] = {}  # (count, shape of an image) -> shape of the output
        self.spare: list[Tensor] = []  # working memory that nobody uses

    @classmethod
    def of(cls, module: nn.Module) -> FusedNetwork | None:
        """None for a module with other layers, or in another order."""
        if type(module) is not ExtractorHead or type(module.extractor) is not nn.Sequential:
            return None
        blocks, flat, features = [], False, 0
        named = [(f"extractor.{name}", layer) for name, layer in module.extractor.named_children()]
        for name, layer in [*named, ("head", module.head)]:
            features = len(blocks)
            if type(layer) is nn.Flatten and (layer.start_dim, layer.end_dim) == (1, -1):
                flat = True
            elif type(layer) is nn.Linear and flat or type(layer) is nn.Conv2d and not flat and _plain(layer):
                blocks.append(Layers(name, layer))
            elif not blocks or not blocks[-1].add(name, layer):
                return None
        return cls(blocks, features) if len(blocks) <= MOST_BLOCKS and features else None

    def __getstate__(self):
        return self.__dict__ | {"spare": []}

    def accepts(self, theta: dict, x: Tensor) -> bool:
        """Whether these tensors can be given to compiled code: their types, device, sizes, and nothing else in play."""
        if not _own(x) or x.ndim != 4 or x.requires_grad or not 0 < len(x) <= MOST_SAMPLES:
            return False
        if self._output(len(self.blocks), tuple(x.shape[1:])) is None:
            return False
        for block in self.blocks:
            for kind, name in block.names.items():
                value = theta[name]
                if not _own(value) or value.shape != _wanted(block, kind):
                    return False
        return self.available

    @property
    def available(self) -> bool:
        """Whether the code is compiled or could be; the first time it is."""
        return build.library() is not None

    def evaluated(self, theta: dict, x: Tensor, features: bool = False) -> Tensor:
        """Scores [B, C] in evaluation mode, or with `features` the extractor's output [B, d]; it has no gradient."""
        count = self.features if features else len(self.blocks)
        table, values = self._table(theta, x, count, ()), []
        for rows in x.split(CHUNK):
            kept = _Kept(self, self._work(table, len(rows)))
            values.append(self._forward(table, rows, kept.work))
        return torch.cat(values)

    def trained(
        self, theta: dict, x: Tensor, mask: Tensor | None, active: Collection[str], features: bool = False
    ) -> tuple[Tensor, dict]:
        """Scores [B, C] (or the extractor's output [B, d]) as autograd needs them, and the new running statistics.

        mask: bool [B], the rows to compute, the others being 0; None: all. active: names of the batch-norm layers that
        are in training mode.
        """
        count, stats = self.features if features else len(self.blocks), {}
        names = [name for block in self.blocks[:count] for kind, name in block.names.items() if kind in GRADIENTS]
        weights = [theta[name] for name in names]
        if mask is None:
            return _Pass.apply(self, theta, x, count, active, stats, *weights), stats
        real = mask.nonzero()[:, 0]
        values = _Pass.apply(self, theta, x[real], count, active, stats, *weights)
        return values.new_zeros(len(x), values.shape[1]).index_copy(0, real, values), stats

    # ------------------------------------------------------------------------------------------------------------------

    def _output(self, count: int, shape: tuple[int, int, int]) -> tuple[int, int, int] | None:
        """The shape of what the first `count` blocks make of an image of this shape, None if they do not accept it."""
        if (count, shape) not in self.shapes:
            made = shape
            for block in self.blocks[:count]:
                made = made and block.fits(made)
            self.shapes[count, shape] = made
        return self.shapes[count, shape]

    def _table(self, theta: dict, x: Tensor, count: int, active) -> ctypes.Array:
        """The first `count` blocks with the addresses of their tensors, which theta must keep alive."""
        table, shape = (Block * count)(), tuple(x.shape[1:])
        for row, block in zip(table, self.blocks):
            linear = isinstance(block.layer, nn.Linear)
            row.channels, row.height, row.width = (shape[0] * shape[1] * shape[2], 1, 1) if linear else shape
            shape = block.fits(shape)
            row.out, row.relu, row.pool = shape[0], block.relu, block.pool
            row.kernel, row.border = (1, 0) if linear else (block.layer.kernel_size[0], block.layer.padding[0])
            if block.norm:
                in_training = block.names["scale"].rpartition(".")[0] in active
                row.norm, row.eps, row.momentum = (1 if in_training else 2), block.norm.eps, block.norm.momentum
            for kind, name in block.names.items():
                setattr(row, kind, theta[name].data_ptr())
        return table

    def _work(self, table: ctypes.Array, batch: int) -> Tensor:
        """Working memory for a batch. It is used again and again: fresh memory costs a fifth of a step."""
        size = build.library().work_bytes(table, len(table), batch)
        with contextlib.suppress(IndexError):
            if (work := self.spare.pop()).numel() >= size:
                return work
        return torch.empty(size, dtype=torch.uint8)

    def _forward(self, table: ctypes.Array, x: Tensor, work: Tensor) -> Tensor:
        numbers = self._output(len(table), tuple(x.shape[1:]))
        out = torch.empty(len(x), numbers[0] * numbers[1] * numbers[2])
        build.library().forward(table, len(table), len(x), x.data_ptr(), out.data_ptr(), work.data_ptr())
        return out


class _Kept:
    """Working memory that goes back when it is not needed any more."""

    def __init__(self, network: FusedNetwork, work: Tensor):
        self.network, self.work = network, work

    def __del__(self):
        self.network.spare.append(self.work)


class _Pass(torch.autograd.Function):
    """A training pass through the first `count` blocks."""

    @staticmethod
    def forward(ctx, network, theta, x, count, active, stats, *weights):
        table = network._table(theta, x, count, active)
        for row, block in zip(table, network.blocks):
            if row.norm == 1:
                for kind in ("mean", "var"):
                    stats[block.names[kind]] = new = torch.empty_like(theta[block.names[kind]])
                    setattr(row, f"new_{kind}", new.data_ptr())
        ctx.kept = _Kept(network, network._work(table, len(x)))
        out = network._forward(table, x, ctx.kept.work)
        ctx.table, ctx.batch, ctx.network = table, len(x), network
        ctx.alive = [theta[name] for block in network.blocks[:count] for name in block.names.values()]
        ctx.save_for_backward(*weights)  # so that autograd notices if one of them is changed between the passes
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, d_out):
        weights, wanted, gradients = ctx.saved_tensors, ctx.needs_input_grad[6:], []
        each = zip(weights, wanted)
        for row, block in zip(ctx.table, ctx.network.blocks):
            for kind in block.names:
                if kind in GRADIENTS:
                    weight, asked = next(each)
                    gradients.append(torch.empty_like(weight) if asked else None)
                    setattr(row, GRADIENTS[kind], gradients[-1].data_ptr() if asked else None)
        d_out = d_out.contiguous()
        work = ctx.kept.work
        build.library().backward(ctx.table, len(ctx.table), ctx.batch, d_out.data_ptr(), work.data_ptr())
        return *[None] * 6, *gradients


def _own(value: Tensor) -> bool:
    """Whether a tensor is plain float32 numbers in memory, one after the other."""
    plain = type(value) in (Tensor, nn.Parameter) and value.device.type == "cpu" and value.dtype == torch.float32
    return plain and not torch._C._functorch.is_functorch_wrapped_tensor(value) and value.is_contiguous()


def _wanted(block: Layers, kind: str) -> torch.Size:
    layer = block.layer
    return layer.weight.shape if kind == "weight" else layer.weight.shape[:1]


def _plain(layer: nn.Conv2d) -> bool:
    """Whether a convolution has stride 1, a square kernel and zeros around the input, as many on all sides."""
    if isinstance(layer.padding, str) or layer.padding_mode != "zeros" or layer.groups != 1:
        return False
    (kernel, other), (border, beside) = layer.kernel_size, layer.padding
    square = kernel == other <= LARGEST_KERNEL and border == beside < kernel
    return square and layer.stride == (1, 1) and layer.dilation == (1, 1)


def _halves(layer: nn.Module) -> bool:
    """Whether this is 2x2 max-pooling."""
    if type(layer) is MaxPool2x2:
        return True
    if type(layer) is not nn.MaxPool2d or layer.ceil_mode or layer.return_indices:
        return False
    sizes = (layer.kernel_size, layer.stride, layer.padding, layer.dilation)
    return all(value in (one, (one, one)) for value, one in zip(sizes, (2, 2, 0, 1)))
