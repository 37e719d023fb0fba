"""A pretended GPU that computes on the CPU, so that a GPU path can be tested where there is none.

Its tensors wrap CPU tensors and say that they are on the device "meta". Under `Emulator`

- an operation that mixes its tensors with the CPU's raises `DeviceMismatch` (single numbers on the CPU are allowed
  beside its tensors, as on CUDA);
- transfers and host syncs are counted in `log`, by what and where in fedlib; a transfer from pinned memory that nobody
  waits for has a name of its own;
- `torch.cuda.CUDAGraph` records the operations of a capture without carrying out what they change, refuses transfers
  and syncs with `CaptureRefused`, and replays what it recorded;
- memory pools and captures are counted, with the device that was current; memory is a number that a test sets.

What it cannot show: whether CUDA's kernels are right, fast, or short of memory.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections import Counter
from unittest import mock

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from fedlib.base import provenance
from fedlib.engine import cuda_graph

DEVICE = torch.device("meta:1")  # networks that are only measured are made on "meta"
aten = torch.ops.aten
SYNCS = {  # the host must see numbers before it can go on
    aten._local_scalar_dense.default,
    aten.nonzero.default,
    aten.is_nonzero.default,
    aten.equal.default,
    aten.masked_select.default,
    aten._unique2.default,
    aten.unique_dim.default,
    aten.bincount.default,
}
INDEXING = {  # the positions may lie on the CPU where the table does not
    aten.index.Tensor,
    aten.index_put.default,
    aten.index_put_.default,
    aten._index_put_impl_.default,
    aten._unsafe_index.Tensor,
}
NO_NUMBERS = {aten.cat.default, aten.stack.default, aten.index_select.default}  # where a number on the CPU is refused


class DeviceMismatch(RuntimeError):
    """An operation on tensors of both devices."""


class CaptureRefused(RuntimeError):
    """A transfer or sync while a graph is captured."""


class OnDevice(torch.Tensor):
    """A tensor of the pretended device; its numbers are in `inner`, on the CPU."""

    @staticmethod
    def __new__(cls, inner: torch.Tensor):
        layout = dict(strides=inner.stride(), storage_offset=inner.storage_offset(), layout=inner.layout)
        made = torch.Tensor._make_wrapper_subclass(cls, inner.size(), dtype=inner.dtype, device=DEVICE, **layout)
        made.inner = inner
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return Emulator.latest.run(func, args, kwargs or {})

    def __getitem__(self, index):
        return super().__getitem__(_as_tensor(index))

    def __setitem__(self, index, value):
        return super().__setitem__(_as_tensor(index), value)

    def __repr__(self):
        return f"OnDevice({self.inner})"


def _as_tensor(index):
    """A list or array as the CPU tensor that PyTorch makes of it ("meta" would lose its numbers)."""
    return torch.from_numpy(np.asarray(index)) if isinstance(index, (list, np.ndarray)) else index


def inner(node):
    """What an operation is given, with the CPU tensors in place of ours (torch's own tree functions are slow)."""
    if type(node) is OnDevice:
        return node.inner
    if type(node) in (list, tuple):
        return type(node)(map(inner, node))
    return {key: inner(value) for key, value in node.items()} if type(node) is dict else node


def outer(node):
    """What an operation gives, with its tensors on the device."""
    if isinstance(node, torch.Tensor):
        return OnDevice(node)
    return type(node)(map(outer, node)) if type(node) in (list, tuple) else node


def tensors_in(node) -> list[torch.Tensor]:
    """All tensors of an operation's arguments or results."""
    if isinstance(node, torch.Tensor):
        return [node]
    children = node.values() if type(node) is dict else node if type(node) in (list, tuple) else ()
    return [t for child in children for t in tensors_in(child)]


def place() -> str:
    """The innermost two lines of fedlib that are being carried out."""
    found, frame = [], sys._getframe(1)
    while frame is not None and len(found) < 2:
        if "/fedlib/" in frame.f_code.co_filename:
            found.append(f"{frame.f_code.co_filename.rsplit('/fedlib/', 1)[-1]}:{frame.f_code.co_name}")
        frame = frame.f_back
    return " < ".join(found) or "a test"


@functools.cache
def aliases(func) -> tuple[bool, list[tuple[int, str]]]:
    """Whether an operation's results share memory with its arguments; number and name of those that it changes."""
    named = [(k, s) for k, s in enumerate(func._schema.arguments) if s.alias_info is not None]
    return bool(named), [(k, s.name) for k, s in named if s.alias_info.is_write]


class Emulator(TorchDispatchMode):
    """The pretended device, while it is entered. `with Emulator() as gpu: simulate(spec, device="meta")`."""

    latest: Emulator

    def __init__(self, free: int = 10**11, reserved: int = 0, allocated: int = 0):
        super().__init__()
        self.log: Counter = Counter()  # (what, where) -> times
        self.captures: list[tuple] = []  # (memory pool, device that was current) of every graph
        self.replays = self.emptied = 0
        self.free, self.reserved, self.allocated = free, reserved, allocated  # bytes
        self.recording: list | None = None
        self.current = torch.device("cuda:0")
        self.patches = contextlib.ExitStack()
        Emulator.latest = self

    # entering ------------------------------------------------------------------------------------------------------

    def __enter__(self):
        tensor, as_tensor, new_tensor = torch.tensor, torch.as_tensor, torch.Tensor.new_tensor

        def here(make):
            def made(data, *args, device=None, **kwargs):
                if device is not None and torch.device(device) == DEVICE:
                    return make(data, *args, **kwargs).to(DEVICE)
                return make(data, *args, **kwargs) if device is None else make(data, *args, device=device, **kwargs)

            return made

        def new(like, data, *args, **kwargs):
            if like.device == DEVICE:
                return tensor(data, dtype=kwargs.get("dtype", like.dtype)).to(DEVICE)
            return new_tensor(like, data, *args, **kwargs)

        cuda = dict(
            CUDAGraph=lambda: Graph(self),
            Stream=lambda *_, **__: Stream(self),
            current_stream=lambda *_: Stream(self),
            stream=lambda _: contextlib.nullcontext(),
            device=self.made_current,
            graph_pool_handle=lambda: object(),
            mem_get_info=lambda *_: (self.free, 2 * self.free),
            memory_reserved=lambda *_: self.reserved,
            memory_allocated=lambda *_: self.allocated,
            max_memory_allocated=lambda *_: self.allocated,
            reset_peak_memory_stats=lambda *_: None,
            empty_cache=self.empty_cache,
            synchronize=lambda *_: self.note("synchronize"),
            get_device_name=lambda *_: "a pretended GPU",
        )
        for owner, changes in (
            (torch, dict(tensor=here(tensor), as_tensor=here(as_tensor))),
            (torch.Tensor, dict(new_tensor=new)),
            (torch.cuda, cuda),
        ):
            for name, value in changes.items():
                self.patches.enter_context(mock.patch.object(owner, name, value))
        self.patches.enter_context(mock.patch.object(provenance, "GPUS", {"cuda", "meta"}))
        self.patches.enter_context(mock.patch.object(cuda_graph, "_recorders", {}))
        return super().__enter__()

    def __exit__(self, *error):
        super().__exit__(*error)
        self.patches.close()

    @contextlib.contextmanager
    def made_current(self, device):
        before, self.current = self.current, torch.device(device)
        try:
            yield
        finally:
            self.current = before

    def empty_cache(self) -> None:
        self.emptied += 1
        self.reserved = self.allocated

    def note(self, what: str) -> None:
        """Count a transfer or sync. Raises CaptureRefused during a capture."""
        where = place()
        self.log[what, where] += 1
        if self.recording is not None:
            raise CaptureRefused(f"operation not permitted when stream is capturing: {what} at {where}")

    def counted(self, what: str) -> int:
        """How often something was noted whose description holds `what`."""
        return sum(times for (noted, _), times in self.log.items() if what in noted)

    # operations ----------------------------------------------------------------------------------------------------

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return self.run(func, args, kwargs or {})

    def run(self, func, args, kwargs):
        tensors = tensors_in(args) + tensors_in(kwargs)
        others = [t for t in tensors if not isinstance(t, OnDevice)]
        if kwargs.get("pin_memory"):
            made = func(*args, **{**kwargs, "pin_memory": False})
            made.pinned = True
            return made
        target = None if kwargs.get("device") is None else torch.device(kwargs["device"])
        if len(others) == len(tensors):
            if target != DEVICE:
                return func(*args, **kwargs)
            if func is aten._to_copy.default and tensors[0].numel():
                aside = kwargs.get("non_blocking") and getattr(tensors[0], "pinned", False)
                self.note("upload from pinned memory" if aside else "upload")
            return self.carried_out(func, args, {**kwargs, "device": torch.device("cpu")})
        if target is not None and target.type == "cpu":
            if func is aten._to_copy.default:
                self.note("download")
            return func(*inner(args), **inner(kwargs))
        if func is aten.copy_.default and isinstance(args[0], OnDevice) != isinstance(args[1], OnDevice):
            self.note("upload" if isinstance(args[0], OnDevice) else "download")
            func(*inner(args), **kwargs)
            return args[0]
        if func in SYNCS:
            self.note(f"sync {func}")
        elif func in INDEXING:
            self.check_indices(func, args, kwargs)
        else:
            for t in others:
                if t.dim() or func in NO_NUMBERS:
                    raise DeviceMismatch(f"{func} got {tuple(t.shape)} on the CPU beside the device, at {place()}")
        if "device" in kwargs and kwargs["device"] is not None:
            kwargs = {**kwargs, "device": torch.device("cpu")}
        return self.carried_out(func, args, kwargs)

    def check_indices(self, func, args, kwargs) -> None:
        for index in args[1]:
            if index is None:
                continue
            if index.dtype in (torch.bool, torch.uint8):
                self.note("sync for a boolean index")
            elif not isinstance(index, OnDevice):
                self.note("upload of an index")
        values = tensors_in(args[2:]) + tensors_in(kwargs)
        if not isinstance(args[0], OnDevice) or any(t.dim() and not isinstance(t, OnDevice) for t in values):
            raise DeviceMismatch(f"{func} of both devices, at {place()}")

    def carried_out(self, func, args, kwargs):
        """The operation on the CPU's tensors, its results on the device again; during a capture it is recorded."""
        plain_args, plain_kwargs = inner(args), inner(kwargs)
        aliased, written = aliases(func)
        changed = [args[k] if k < len(args) else kwargs.get(name) for k, name in written]
        if self.recording is not None and changed:
            self.recording.append((func, plain_args, plain_kwargs, None))  # only a replay changes anything
        else:
            out = func(*plain_args, **plain_kwargs)
        if changed:
            return changed[0] if isinstance(changed[0], torch.Tensor) else None
        if self.recording is not None and not aliased:  # a view needs no replay
            self.recording.append((func, plain_args, plain_kwargs, out))
        return outer(out)


class Graph:
    """In place of torch.cuda.CUDAGraph."""

    def __init__(self, gpu: Emulator):
        self.gpu = gpu

    def capture_begin(self, pool=None, capture_error_mode: str = "global"):
        self.gpu.captures.append((object() if pool is None else pool, self.gpu.current))
        self.operations = self.gpu.recording = []

    def capture_end(self):
        self.gpu.recording = None

    def replay(self):
        self.gpu.replays += 1
        for func, args, kwargs, out in self.operations:
            new = func(*args, **kwargs)
            for old, value in zip(tensors_in(out), tensors_in(new)):
                old.copy_(value)


class Stream:
    """In place of torch.cuda.Stream."""

    def __init__(self, gpu: Emulator):
        self.gpu = gpu

    def wait_stream(self, other) -> None:
        pass

    def synchronize(self) -> None:
        self.gpu.note("synchronize")
