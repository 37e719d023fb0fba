"""Checkpoints of a running simulation: kept outside the project, written atomically, read without unpickling code."""

from __future__ import annotations

import contextlib
import hashlib
import time
import warnings
import zipfile
from collections.abc import Sequence

import torch

from fedlib.base.files import cache_root, source_hash, written_atomically
from fedlib.base.same_bits import arithmetic
from fedlib.engine.setup import Run
from fedlib.engine.state import State
from fedlib.spec import RunSpec

SHARE = 0.05  # of the wall time that may go into saving


class Checkpoint:
    """The last saved states of runs that are trained together.

    At least `every` seconds pass between two saves, and so many that saving takes at most SHARE of the time; with 0
    every state is saved.

    A file is torch's archive of the states as plain dicts, a zip file with checksums. The name carries a hash of
    fedlib's source, so that a state is never continued by other code than the one that wrote it.
    """

    def __init__(self, name: str, every: float = 15.0):
        self.path = cache_root() / "checkpoints" / f"{name}-{source_hash()}.pt"
        self.every, self.saved_at, self.cost = every, time.monotonic(), 0.0

    def load(self) -> list[State] | None:
        """The saved states, or None if there are none or they are damaged (then removed, and the runs start over)."""
        try:
            with zipfile.ZipFile(self.path) as archive:
                sound = archive.testzip() is None  # torch.load does not look at the checksums
            if sound:
                return [State(**fields) for fields in torch.load(self.path, weights_only=True)]
        except OSError:
            return None
        except MemoryError:  # says nothing of the file, which stays
            raise
        except Exception:  # zipfile, pickle and torch have a dozen kinds for what is damaged
            pass
        message = f"checkpoint {self.path.name} is damaged and is ignored; the run starts over"
        warnings.warn(message, stacklevel=2)
        self.remove()
        return None

    def save(self, states: Sequence[State], now: bool = False) -> None:
        """Write the states if it is time to, or `now`. A full disk costs the checkpoint, not the runs."""
        start = time.monotonic()
        if not now and self.every and start - self.saved_at < max(self.every, self.cost / SHARE):
            return
        try:
            with written_atomically(self.path) as file:
                torch.save([vars(state) for state in states], file)  # one tensor after the other, no copy of all
        except (OSError, RuntimeError) as error:
            if isinstance(error.__context__, KeyboardInterrupt):  # torch's writer closes an archive that is cut short
                raise error.__context__ from None
            # of an error of the file system torch's writer keeps only this
            full = isinstance(error.__context__, OSError) or "PytorchStreamWriter" in str(error)
            if isinstance(error, RuntimeError) and not full:
                raise
            warnings.warn(f"checkpoint not written: {error}", stacklevel=2)
        self.saved_at = time.monotonic()
        self.cost = self.saved_at - start

    def remove(self) -> None:
        """Delete the saved state, and what is left of one that a process was killed while it wrote."""
        for leftover in (self.path, *self.path.parent.glob(f".{self.path.name}.*.tmp")):
            with contextlib.suppress(OSError):
                leftover.unlink()


def saved_as(run: Run, id: str, every: float) -> Checkpoint:
    """The checkpoint called `id` of a run's data, backend, device, arithmetic and kind of training steps.

    Others continue no run, for it would end with slightly different numbers.
    """
    how = (run.backend.name, run.backend.model.step_used, str(run.device).replace(":", ""), arithmetic())
    return Checkpoint("-".join((id, run.data_checksum[:8], *how)), every)


def group_id(specs: Sequence[RunSpec]) -> str:
    """The id of one run, or one for several runs that are trained together."""
    if len(specs) == 1:
        return specs[0].id
    return hashlib.sha256("".join(spec.id for spec in specs).encode()).hexdigest()[:16]


def remove_checkpoints(specs: Sequence[RunSpec]) -> None:
    """Delete what is left of finished runs."""
    for leftover in (cache_root() / "checkpoints").glob(f"*{group_id(specs)}-*"):
        with contextlib.suppress(OSError):
            leftover.unlink()
