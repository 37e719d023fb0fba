"""A GPU step recorded once and replayed: small models keep a GPU waiting for Python, a recorded step does not.

On CUDA the second step of a loop is recorded as a CUDA graph and replayed for all that follow. What changes from step
to step is the number of the step, a tensor that the recording itself counts up; the state lives in buffers that it
overwrites. So a recording may be made inside torch.func.vmap, where Python sees one client and the device all of them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch

from fedlib.base import tree
from fedlib.base.devices import is_gpu

WORTH_IT = 4  # fewest steps for which a recording pays


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
        replay = recorded(step_in_place) if is_gpu(device) else step_in_place
    except RuntimeError as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise
        warnings.warn(f"the step could not be recorded, it runs unrecorded ({error})", stacklevel=2)
        replay = step_in_place
    for _ in range(count - 1):
        replay()
    if is_gpu(device):
        torch.cuda.current_stream().synchronize()  # a recording must outlive its last replay
    return buffers


def recorded(fn: Callable) -> Callable:
    """The CUDA kernels that fn() launches, as a function that launches them all at once.
    fn itself is not carried out."""
    graph, side, main = torch.cuda.CUDAGraph(), torch.cuda.Stream(), torch.cuda.current_stream()
    side.wait_stream(main)
    with torch.cuda.stream(side):
        graph.capture_begin()
        try:
            fn()
        finally:
            graph.capture_end()
    main.wait_stream(side)
    return graph.replay
