"""Checkpoints of a running simulation: kept outside the project, written atomically, read without unpickling code."""

from __future__ import annotations

import os
import time
import warnings
from pathlib import Path

import torch


def cache_root() -> Path:
    """Where checkpoints and locks live: $FEDLIB_CACHE, else the user's cache folder."""
    if os.environ.get("FEDLIB_CACHE"):
        return Path(os.environ["FEDLIB_CACHE"]).expanduser()
    import platformdirs

    return Path(platformdirs.user_cache_dir("fedlib"))


class Checkpoint:
    """The last saved state of one run. `every` seconds at least pass between two saves (0: save every round)."""

    def __init__(self, name: str, every: float = 15.0):
        self.path = cache_root() / "checkpoints" / f"{name}.pt"
        self.every, self.saved_at = every, time.monotonic()

    def load(self) -> dict | None:
        """The saved state, or None if there is none or it cannot be read (then it is removed and the run starts over)."""
        if not self.path.exists():
            return None
        try:
            return torch.load(self.path, weights_only=True, map_location="cpu")
        except Exception as error:  # whatever is wrong with the file, starting over is right
            warnings.warn(
                f"checkpoint {self.path.name} is damaged ({type(error).__name__}) and is ignored; the run starts over",
                stacklevel=2,
            )
            self.remove()
            return None

    def save(self, state: dict) -> None:
        """Write the state if `every` seconds have passed since the last save."""
        if time.monotonic() - self.saved_at < self.every:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.path.with_suffix(f".{os.getpid()}.tmp")
        try:
            torch.save(state, temporary)
            os.replace(temporary, self.path)
        except OSError as error:  # a full disk costs the checkpoint, not the run
            warnings.warn(f"checkpoint not written: {error}", stacklevel=2)
        finally:
            temporary.unlink(missing_ok=True)
        self.saved_at = time.monotonic()

    def remove(self) -> None:
        """Delete the saved state, after the run is finished."""
        self.path.unlink(missing_ok=True)
