"""Checkpoints of a running simulation: kept outside the project, written atomically, read without unpickling code."""

from __future__ import annotations

import contextlib
import hashlib
import io
import time
import warnings
from collections.abc import Sequence

import torch

from fedlib.base.files import cache_root, source_hash, write_atomically
from fedlib.engine.setup import Run
from fedlib.engine.state import State
from fedlib.spec import RunSpec


class Checkpoint:
    """The last saved states of runs that are trained together. `every` seconds at least pass between two saves.

    A file holds 64 hex digits, the sha256 of what follows, and torch's archive of the states as plain dicts. The name
    carries a hash of fedlib's source, so that a state is never continued by other code than the one that wrote it.
    """

    def __init__(self, name: str, every: float = 15.0):
        self.path = cache_root() / "checkpoints" / f"{name}-{source_hash()}.pt"
        self.every, self.saved_at = every, time.monotonic()

    def load(self) -> list[State] | None:
        """The saved states, or None if there are none or they are damaged (then removed, and the runs start over)."""
        try:
            content = self.path.read_bytes()
        except OSError:
            return None
        if hashlib.sha256(content[64:]).hexdigest().encode() != content[:64]:
            message = f"checkpoint {self.path.name} is damaged and is ignored; the run starts over"
            warnings.warn(message, stacklevel=2)
            self.remove()
            return None
        return [State(**fields) for fields in torch.load(io.BytesIO(content[64:]), weights_only=True)]

    def save(self, states: Sequence[State]) -> None:
        """Write the states if `every` seconds have passed since. A full disk costs the checkpoint, not the runs."""
        if time.monotonic() - self.saved_at < self.every:
            return
        archive = io.BytesIO()
        torch.save([vars(state) for state in states], archive)
        content = archive.getvalue()
        try:
            write_atomically(self.path, hashlib.sha256(content).hexdigest().encode() + content)
        except OSError as error:
            warnings.warn(f"checkpoint not written: {error}", stacklevel=2)
        self.saved_at = time.monotonic()

    def remove(self) -> None:
        """Delete the saved state."""
        with contextlib.suppress(OSError):
            self.path.unlink()


def saved_as(run: Run, id: str, every: float = 0) -> Checkpoint:
    """The checkpoint called `id` of a run's backend and device.

    Another backend or device continues no run, for it would end with slightly different numbers.
    """
    return Checkpoint(f"{id}-{run.backend.name}-{str(run.device).replace(':', '')}", every)


def group_id(specs: Sequence[RunSpec]) -> str:
    """The id of one run, or one for several runs that are trained together."""
    if len(specs) == 1:
        return specs[0].id
    return hashlib.sha256("".join(spec.id for spec in specs).encode()).hexdigest()[:16]


def remove_checkpoints(specs: Sequence[RunSpec]) -> None:
    """Delete what is left of finished runs."""
    for leftover in (cache_root() / "checkpoints").glob(f"{group_id(specs)}-*"):
        with contextlib.suppress(OSError):
            leftover.unlink()
