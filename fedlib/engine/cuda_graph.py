"""A GPU step recorded once and replayed: small models keep a GPU waiting for Python, a recorded step does not.

On CUDA the second step of a loop is recorded as a CUDA graph and replayed for all that follow. What changes from step
to step is the number of the step, a tensor that the recording itself counts up; the state lives in buffers that it
overwrites. So a recording may be made inside torch.func.vmap, where Python sees one client and the device all of them.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable

import torch

from fedlib.base import tree
from fedlib.base.provenance import is_gpu

WORTH_IT = 4  # fewest steps for which a recording pays
UNRECORDED = "the step could not be recorded"


def repeated(body: Callable, state, count: int, device: torch.device, cuda_graph: bool | None = None):
    """state = body(state, s) for s = 0 .. count-1; s is an int64 tensor [1] on `device`. Returns the last state.

    cuda_graph: True and False force the recorded and the plain loop; None records on CUDA from WORTH_IT steps on.
    Forced on a CPU the "recording" is the Python function itself, so that buffers and counter are tested there.
    """
    if cuda_graph is None:
        cuda_graph = is_gpu(device) and count >= WORTH_IT
    steps = torch.arange(count, device=device).split(1) if count else ()
    if not cuda_graph or count < 3:
        for s in steps:
            state = body(state, s)
        return state
    state = body(state, steps[0])  # as a warm-up, and so that every leaf has its final shape
    buffers, number = tree.map(torch.clone, state), torch.ones(1, dtype=torch.int64, device=device)

    def step_in_place():
        for (_, buffer), (_, new) in zip(list(tree.leaves((buffers,))), list(tree.leaves((body(buffers, number),)))):
            buffer.copy_(new)
        number.add_(1)

    try:
        replay = recorder(device).recorded(step_in_place) if is_gpu(device) else step_in_place
    except RuntimeError as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise
        warnings.warn(f"{UNRECORDED}, it runs unrecorded ({error})", stacklevel=2)
        replay = step_in_place
    for _ in range(count - 1):
        replay()
    return buffers


class Recorder:
    """What all recordings on one device share: a stream, and the pool of memory that they compute in.

    With a pool for each, memory would grow with every recording: nothing but an emptied cache gives a pool back, and a
    recording cannot empty it. The last recording is kept until the next one is made, because a pool without one is
    left behind; and so that it outlives its last replay, which is only queued.
    """

    def __init__(self, device: torch.device):
        self.device, self.last, self.made = device, None, 0
        with torch.cuda.device(device):
            self.stream, self.pool = torch.cuda.Stream(device), torch.cuda.graph_pool_handle()

    def recorded(self, fn: Callable) -> Callable:
        """The CUDA kernels that fn() launches, as a function that launches them all at once.
        fn itself is not carried out."""
        with torch.cuda.device(self.device):  # a recording belongs to the device that is current, not to its tensors'
            main, graph = torch.cuda.current_stream(self.device), torch.cuda.CUDAGraph()
            self.stream.wait_stream(main)
            with torch.cuda.stream(self.stream):
                graph.capture_begin(pool=self.pool)
                try:
                    fn()
                except BaseException:
                    with contextlib.suppress(RuntimeError):  # of a recording that is broken already
                        graph.capture_end()
                    raise
                graph.capture_end()
            main.wait_stream(self.stream)
        if self.last is not None:
            main.synchronize()
        self.last, self.made = graph, self.made + 1
        return graph.replay


_recorders: dict[torch.device, Recorder] = {}


def recorder(device: torch.device) -> Recorder:
    """The one recorder of a device."""
    if device not in _recorders:
        _recorders[device] = Recorder(device)
    return _recorders[device]


def give_back(device: torch.device) -> None:
    """Let go of the device's recordings and of memory that is held for later."""
    _recorders.pop(device, None)
    torch.cuda.empty_cache()
