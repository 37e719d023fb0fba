"""A network as the list of blocks that network.cpp knows, and its forward pass as an operation that autograd knows."""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np
import torch
from torch import Tensor, nn

from fedlib.base import tree
from fedlib.base.same_bits import square_root
from fedlib.data.batch import StoredImages
from fedlib.models.fused import build
from fedlib.models.parts import BatchNorm2d, ExtractorHead

LARGEST_KERNEL, MOST_BLOCKS, BLOCK = 7, 64, 16  # of network.cpp; the last: samples whose sums are kept apart
MOST_SAMPLES = 4096  # in one batch; the memory of a step grows with it
CHUNK = 64  # samples at a time where nothing is trained

INPUTS = ("weight", "bias", "scale", "shift", "mean", "var")
ADDRESSES = (*INPUTS, "new_mean", "new_var", "d_weight", "d_bias", "d_scale", "d_shift")
WIDE, FULL = 400, 0.6  # inputs of a convolution's output; share of a batch's blocks that must hold samples there
calls = Counter()  # forward passes of training steps in this process: "fused", "torch"


class Block(ctypes.Structure):
    """The struct of this name in network.cpp."""

    _fields_ = [
        *((name, ctypes.c_int32) for name in ("channels", "height", "width", "out", "kernel", "border")),
        *((name, ctypes.c_int32) for name in ("norm", "relu", "pool")),
        *((name, ctypes.c_float) for name in ("eps", "momentum")),
        *((name, ctypes.c_void_p) for name in ADDRESSES),
    ]


class Images(ctypes.Structure):
    """The struct of this name in network.cpp."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("x", "bytes")),
        *((name, ctypes.c_int64) for name in ("count", "channels")),
        *((name, ctypes.c_void_p) for name in ("rows", "scale", "shift")),
    ]

    @classmethod
    def of(cls, x: Tensor | StoredImages) -> Images:
        if isinstance(x, StoredImages):
            rest = (each.data_ptr() for each in (x.rows, x.scale, x.shift))
            return cls(None, x.images.data_ptr(), len(x.images), x.images.shape[3], *rest)
        return cls(x.data_ptr())


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

    def shape(self, kind: str) -> torch.Size:
        """Of a tensor, by its name in network.cpp."""
        return self.layer.weight.shape if kind == "weight" else self.layer.weight.shape[:1]

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
        self.shapes = {name: block.shape(kind) for block in blocks for kind, name in block.names.items()}
        self.plans: dict[tuple, Plan | None] = {}
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
        return self.__dict__ | {"spare": [], "plans": {}}

    def accepts(self, theta: dict, x: Tensor | StoredImages) -> bool:
        """Whether these tensors can be given to compiled code: their types, device, sizes, and nothing else in play."""
        readable = _stored_well(x) if isinstance(x, StoredImages) else x.ndim == 4 and _own(x) and not x.requires_grad
        if not readable or not 0 < len(x) <= MOST_SAMPLES:
            return False
        if torch._C._functorch.peek_interpreter_stack() is not None:  # in torch.func.grad or vmap
            return False
        for name, shape in self.shapes.items():
            if (value := theta[name]).shape != shape or not _own(value):
                return False
        return self.available and self.plan(len(self.blocks), x.shape[1:], ()) is not None

    @property
    def available(self) -> bool:
        """Whether the code is compiled or could be; the first time it is."""
        return build.library() is not None

    def pays(self, batch: int) -> bool:
        """Whether compiled code is quicker than PyTorch for batches of this size (measured on an AMD EPYC).

        A batch is rounded up to whole blocks. Convolutions over many channels, which PyTorch does well, leave no room
        for that. The same answer on every CPU, for rounding hangs on it.
        """
        return self.always_pays or batch >= FULL * BLOCK * -(-batch // BLOCK)

    @functools.cached_property
    def always_pays(self) -> bool:
        """Whether compiled code is quicker whatever the size of a batch."""
        convolutions = (block.layer for block in self.blocks if isinstance(block.layer, nn.Conv2d))
        return all(layer.weight[0].numel() < WIDE for layer in convolutions)

    def plan(self, count: int, shape: Sequence[int], active: Collection[str]) -> Plan | None:
        """The first `count` blocks for images of this shape, None if these do not fit; active: as in `trained`."""
        momenta = tuple(block.norm.momentum for block in self.blocks if block.norm)
        key = (count, tuple(shape), tuple(active), momenta)
        if key not in self.plans:
            self.plans[key] = Plan.of(self.blocks[:count], tuple(shape), active)
        return self.plans[key]

    def evaluated(self, theta: dict, x: Tensor | StoredImages, features: bool = False) -> Tensor:
        """Scores [B, C] in evaluation mode, or with `features` the extractor's output [B, d]; it has no gradient."""
        plan = self.plan(self.features if features else len(self.blocks), x.shape[1:], ())
        return Pass(self, plan, theta, x, CHUNK).forward()

    def trained(
        self,
        theta: dict,
        x: Tensor | StoredImages,
        mask: Tensor | None,
        active: Collection[str],
        features: bool = False,
    ) -> tuple[Tensor, dict]:
        """Scores [B, C] (or the extractor's output [B, d]) as autograd needs them, and the new running statistics.

        mask: bool [B], the rows to compute, the others being 0; None: all. active: names of the batch-norm layers that
        are in training mode.
        """
        plan = self.plan(self.features if features else len(self.blocks), x.shape[1:], active)
        real = None if mask is None else mask.nonzero()[:, 0]
        one = Pass(self, plan, theta, x if real is None else x.index_select(0, real))
        values = _ForAutograd.apply(one, *(theta[name] for name in plan.trainable))
        if real is not None:
            values = values.new_zeros(len(x), values.shape[1]).index_copy(0, real, values)
        return values, one.stats

    def entropy_gradient(
        self, theta: dict, x: Tensor | StoredImages, y: Tensor, part: Collection[str], active: Collection[str]
    ) -> tuple[dict, dict]:
        """Gradient of the mean cross-entropy with respect to the parameters in `part`, and the new running statistics.

        What autograd would do, which takes longer than a pass through a small network.
        """
        one = Pass(self, self.plan(len(self.blocks), x.shape[1:], active), theta, x)
        return one.backward(_entropy_slopes(one.forward(), y), part), one.stats

    def entropy_step(
        self, theta: dict, x: Tensor | StoredImages, y: Tensor, part: dict, active: Collection[str], lr: float
    ) -> dict:
        """What a step of gradient descent on the mean cross-entropy renews: the parameters in `part`, a part of theta,
        and running statistics."""
        one = Pass(self, self.plan(len(self.blocks), x.shape[1:], active), theta, x)
        return one.step(y, part, lr) | one.stats

    def clipped_entropy_gradient(
        self, theta: dict, x: Tensor | StoredImages, y: Tensor, part: Collection[str], clip: float
    ) -> dict:
        """Sum over the records of the gradient of their cross-entropy with respect to the parameters in `part`, each
        scaled to a norm of at most `clip`; for networks without batch norm.

        A pass backwards for the norms alone, and one with the slopes of long ones shortened: no record's gradient is
        ever written down (J. Lee, D. Kifer, "Scaling up Differentially Private Deep Learning with Fast Per-Example
        Gradient Clipping", arXiv:2009.03106).
        """
        plan, parts = self.plan(len(self.blocks), x.shape[1:], ()), []
        for rows, labels in zip(x.split(BLOCK), y.split(BLOCK)):
            one = Pass(self, plan, theta, rows)
            slopes = _entropy_slopes(one.forward(), labels).mul_(len(rows))
            norms = square_root(one.squares(slopes, part))
            parts.append(one.backward(slopes * (clip / norms).clamp_(max=1)[:, None], part))
        return functools.reduce(lambda a, b: tree.map(torch.add, a, b), parts)


@dataclass
class Plan:
    """Some blocks for images of one shape. Tables are the structs of network.cpp, one a row, as int64 numbers."""

    table: np.ndarray  # without the addresses
    inputs: tuple[list[str], np.ndarray]  # names of all tensors, and their addresses' places in the flat table
    statistics: tuple[list[str], np.ndarray]  # those that are renewed
    trainable: dict[str, int]  # names of parameters, and places of their gradients
    numbers: int  # that are made of an image
    bytes: dict[int, int] = field(default_factory=dict)  # working memory by size of the batch

    @classmethod
    def of(cls, blocks: Sequence[Layers], shape: tuple[int, ...], active: Collection[str]) -> Plan | None:
        table, inputs, statistics, trainable = (Block * len(blocks))(), {}, {}, {}
        for k, (row, block) in enumerate(zip(table, blocks)):
            linear = isinstance(block.layer, nn.Linear)
            row.channels, row.height, row.width = (prod(shape), 1, 1) if linear else shape
            if (shape := block.fits(shape)) is None:
                return None
            row.out, row.relu, row.pool = shape[0], block.relu, block.pool
            row.kernel, row.border = (1, 0) if linear else (block.layer.kernel_size[0], block.layer.padding[0])
            start = {name: (k * ctypes.sizeof(Block) + getattr(Block, name).offset) // 8 for name in ADDRESSES}
            inputs |= {name: start[kind] for kind, name in block.names.items()}
            trainable |= {name: start[f"d_{kind}"] for kind, name in block.names.items() if f"d_{kind}" in start}
            if block.norm:
                in_training = block.names["scale"].rpartition(".")[0] in active
                row.norm, row.eps, row.momentum = (1 if in_training else 2), block.norm.eps, block.norm.momentum
                if in_training:
                    statistics |= {block.names[kind]: start[f"new_{kind}"] for kind in ("mean", "var")}
        places = [(list(each), np.array(list(each.values()), dtype=int)) for each in (inputs, statistics)]
        return cls(np.frombuffer(table, np.int64).copy(), *places, trainable, prod(shape))


class Pass:
    """One pass of a batch through a network. It holds all tensors of which compiled code is given addresses."""

    def __init__(
        self, network: FusedNetwork, plan: Plan, theta: dict, x: Tensor | StoredImages, at_once: int = MOST_SAMPLES
    ):
        """at_once: samples of which working memory holds the numbers; to train it must be the whole batch."""
        self.network, self.plan, self.x, self.batch, self.table = network, plan, x, len(x), plan.table.copy()
        self.at_once = min(at_once, self.batch)
        self.images = Images.of(x)
        self.count = self.table.nbytes // ctypes.sizeof(Block)
        (names, places), (renewed, new_places) = plan.inputs, plan.statistics
        self.held = [theta[name] for name in names]
        self.stats = {name: torch.empty_like(theta[name]) for name in renewed}
        self.table[places] = [value.data_ptr() for value in self.held]
        self.table[new_places] = [value.data_ptr() for value in self.stats.values()]
        self.address = self.table.ctypes.data
        self.work = self._memory()

    def _memory(self) -> Tensor:
        """Working memory, used again and again: fresh memory costs a fifth of a step."""
        if (size := self.plan.bytes.get(self.at_once)) is None:
            size = self.plan.bytes[self.at_once] = build.library().work_bytes(self.address, self.count, self.at_once)
        with contextlib.suppress(IndexError):
            if (work := self.network.spare.pop()).numel() >= size:
                return work
        return torch.empty(size, dtype=torch.uint8)

    def __del__(self):
        self.network.spare.append(self.work)

    def forward(self) -> Tensor:
        """What the blocks make of the batch, [B, numbers]; fills `stats`."""
        out, work = torch.empty(self.batch, self.plan.numbers), self.work.data_ptr()
        self._look(build.library().forward_in_parts, out.data_ptr(), work, self.at_once)
        return out

    def _look(self, function: Callable, *more) -> None:
        """Call a function that reads the images. Raises IndexError where there are fewer."""
        if not function(self.address, self.count, self.batch, ctypes.addressof(self.images), *more):
            raise IndexError(f"rows {self.x.rows.tolist()} are not accepted; expected 0 to {len(self.x.images) - 1}")

    def backward(self, d_out: Tensor, part: Collection[str]) -> dict:
        """Gradients with respect to the parameters in `part`, from that of what `forward` gave."""
        values = dict(zip(self.plan.inputs[0], self.held))
        gradients = {name: torch.empty_like(values[name]) for name in part}
        self._backward(d_out, {name: value.data_ptr() for name, value in gradients.items()}, None)
        return gradients

    def step(self, y: Tensor, part: dict, lr: float) -> dict:
        """The parameters in `part` after a step of gradient descent on the mean cross-entropy; fills `stats`."""
        new, labels = {name: torch.empty_like(value) for name, value in part.items()}, _labels(y, self.batch)
        self._ask({name: value.data_ptr() for name, value in new.items()})
        self._look(build.library().entropy_step, labels.data_ptr(), lr, self.work.data_ptr())
        return new

    def squares(self, d_out: Tensor, part: Collection[str]) -> Tensor:
        """Squared norm of every sample's own gradient with respect to the parameters in `part`, [B]; for at most one
        block of samples."""
        found = torch.zeros(self.batch)
        self._backward(d_out, dict.fromkeys(part, 1), found.data_ptr())  # any address: nothing is written there
        return found

    def _backward(self, d_out: Tensor, addresses: dict[str, int], squares: int | None) -> None:
        self._ask(addresses)
        if addresses:
            places = (d_out.data_ptr(), self.work.data_ptr(), squares)
            build.library().backward(self.address, self.count, self.batch, *places)

    def _ask(self, addresses: dict[str, int]) -> None:
        """Where compiled code writes the gradients of parameters, by name; of others it computes none."""
        for name, place in self.plan.trainable.items():
            self.table[place] = addresses.get(name, 0)


class _ForAutograd(torch.autograd.Function):
    @staticmethod
    def forward(ctx, one: Pass, *weights):
        ctx.one = one
        ctx.save_for_backward(*weights)  # so that autograd notices if one of them is changed between the passes
        return one.forward()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, d_out):
        _ = ctx.saved_tensors
        names, wanted = list(ctx.one.plan.trainable), ctx.needs_input_grad[1:]
        gradients = ctx.one.backward(d_out.contiguous(), [name for name, asked in zip(names, wanted) if asked])
        return None, *(gradients.get(name) for name in names)


def _entropy_slopes(scores: Tensor, y: Tensor) -> Tensor:
    """Gradient of the mean cross-entropy of scores [B, C] with respect to them."""
    labels, slopes = _labels(y, len(scores)), torch.empty_like(scores)
    build.library().entropy_slope(*scores.shape, scores.data_ptr(), labels.data_ptr(), slopes.data_ptr())
    return slopes


def _labels(y: Tensor, batch: int) -> Tensor:
    """As compiled code reads them."""
    return y.to(torch.int64).contiguous().view(batch)


def _own(value: Tensor) -> bool:
    """Whether a tensor is plain float32 numbers in this machine's memory, one after the other."""
    plain = type(value) is Tensor or type(value) is nn.Parameter
    return plain and value.is_cpu and value.dtype is torch.float32 and value.is_contiguous()


def _stored_well(x: StoredImages) -> bool:
    """Whether images that are still bytes lie as compiled code reads them."""
    whole = all(each.is_cpu and each.is_contiguous() for each in (x.images, x.rows, x.scale, x.shift))
    types = x.images.dtype is torch.uint8 and x.rows.dtype is torch.int64
    axes = (x.images.ndim, x.rows.ndim) == (4, 1)
    return whole and types and axes and all(_own(v) and v.numel() == x.images.shape[3] for v in (x.scale, x.shift))


def _plain(layer: nn.Conv2d) -> bool:
    """Whether a convolution has stride 1, a square kernel and zeros around the input, as many on all sides."""
    if isinstance(layer.padding, str) or layer.padding_mode != "zeros" or layer.groups != 1:
        return False
    (kernel, other), (border, beside) = layer.kernel_size, layer.padding
    square = kernel == other <= LARGEST_KERNEL and border == beside < kernel
    return square and layer.stride == (1, 1) and layer.dilation == (1, 1)


def _halves(layer: nn.Module) -> bool:
    """Whether this is 2x2 max-pooling."""
    if type(layer) is not nn.MaxPool2d or layer.ceil_mode or layer.return_indices:
        return False
    sizes = (layer.kernel_size, layer.stride, layer.padding, layer.dilation)
    return all(value in (one, (one, one)) for value, one in zip(sizes, (2, 2, 0, 1)))
