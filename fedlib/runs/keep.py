"""A run of the store, trained again to keep its clients' models: results are stored without the models."""

from __future__ import annotations

from pathlib import Path

from fedlib.base.errors import BadValue, FedlibError
from fedlib.base.files import home
from fedlib.engine.checkpoint import remove_checkpoints
from fedlib.engine.export import checked_folder, export
from fedlib.engine.result import RunResult
from fedlib.engine.simulate import simulate
from fedlib.runs.store import Store
from fedlib.spec import RunSpec


def find_run(name: str) -> RunResult:
    """A stored run by its file, or by its id or the beginning of it, looked for under results/*/runs.

    Raises BadValue for a name that is no run's, or several runs', FedlibError for one that is damaged or has no models.
    """
    path = Path(name).expanduser()
    given = [path] if path.suffix == ".json" and path.is_file() else []
    known = len(name) >= 4 and name.isalnum()
    found = {p.stem: p for p in given or (sorted(home().glob(f"results/**/runs/{name}*.json")) if known else ())}
    if len(found) != 1:
        expected = "a run's file, or at least 4 of its id's 16 hex digits"
        which = f"{len(found)} runs begin so: {', '.join(found)}" if found else "there is none"
        raise BadValue(f"run = {name!r} is not accepted; expected {expected}; {which}")
    (path,) = found.values()
    try:
        result = Store("", path.parent).read(path)
    except (ValueError, KeyError, OSError, TypeError) as error:
        raise FedlibError(f"stored run {path} is damaged: {error}") from None
    if not isinstance(result.spec, RunSpec) or result.status != "finished":
        raise FedlibError(f"run {path.stem} has no models: {result.error or 'it is an attack'}")
    return result


def train_and_export(stored: RunResult, folder: Path | str, point: str | None = None, **options) -> RunResult:
    """Train a stored run again and export its clients' models; the new result. options: as in `simulate_together`.

    Raises BadValue as `export`, the folder's before training.
    """
    folder = checked_folder(folder)
    points = [h["point"] for h in stored.last]
    if point is not None and point not in points:
        raise BadValue(f"point = {point!r} is not accepted; this run was evaluated at {', '.join(points)}")
    again = simulate(stored.spec, at_end=lambda run, state: export(run, state, folder, point), **options)
    remove_checkpoints([stored.spec])
    return again


def differing(stored: RunResult, again: RunResult) -> int:
    """Of how many clients the number of right answers differs, at the headline point."""
    return int((stored.arrays["correct"].sum(1) != again.arrays["correct"].sum(1)).sum())
