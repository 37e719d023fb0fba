"""How busy a machine is with other things while something is timed on it."""

from __future__ import annotations

import time

try:
    import psutil
except ImportError:  # on a bare PyTorch machine
    psutil = None


class OtherPrograms:
    """The share of a machine's processor time that other programs take while a block runs.

    `with OtherPrograms() as others: ...`, and then `others.share`, from 0 (nothing else runs) to 1 (all cores are
    taken); None where psutil is not installed. Processes that this one has started count as its own.
    """

    share: float | None = None

    def __enter__(self) -> OtherPrograms:
        self._before = _taken() if psutil else None
        return self

    def __exit__(self, *_) -> None:
        if self._before is None:
            return
        others, seconds = (now - then for now, then in zip(_taken(), self._before))
        self.share = round(min(max(others / max(seconds, 1e-3), 0.0), 1.0), 3)


def _taken() -> tuple[float, float]:
    """Seconds of processor time that others have taken since the machine was started, and seconds that there were."""
    times, me = psutil.cpu_times(), psutil.Process()
    own = me.cpu_times()
    mine = own.user + own.system + own.children_user + own.children_system
    for child in me.children(recursive=True):
        try:
            mine += sum(child.cpu_times()[:2])
        except psutil.Error:  # it has ended meanwhile, and is among this one's children's
            continue
    free = times.idle + getattr(times, "iowait", 0.0)
    busy = sum(times) - free - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)  # guests are in user
    return busy - mine, time.monotonic() * (psutil.cpu_count() or 1)
