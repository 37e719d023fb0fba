"""A run of the store, trained again to keep its clients' models: results are stored without the models."""

from __future__ import annotations

import re
from pathlib import Path

from fedlib.base.errors import BadValue, FedlibError
from fedlib.base.files import home
from fedlib.engine.checkpoint import remove_checkpoints
from fedlib.engine.export import checked_folder, export
from fedlib.engine.result import RunResult
from fedlib.engine.simulate import simulate
from fedlib.runs.store import Store
from fedlib.spec import RunSpec


def find_run(name: str, results: Path | None = None) -> RunResult:
    """A stored run by its file, or by its id or the beginning of it, looked for under results/*/runs.

    Raises BadValue for a name that is no run's, or several runs', FedlibError for one that is damaged or cannot be
    exported.
    """
    results = home() / "results" if results is None else results
    path = Path(name).expanduser()
    if path.suffix == ".json" and path.is_file():
        found = {path.stem: path}
    elif not re.fullmatch(r"[0-9a-f]{4,16}", name):
        raise BadValue(
            f"run = {name!r} is not accepted; expected a run's file, or at least 4 of its id's 16 hex digits"
        )
    else:
        found = {path.stem: path for path in sorted(results.glob(f"**/runs/{name}*.json"))}
    if len(found) != 1:
        which = f"{len(found)} runs begin so: {', '.join(found)}" if found else f"there is none under {results}"
        raise BadValue(f"run = {name!r} is not accepted; {which}; `fedlib run` and `fedlib why` name runs")
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
        raise BadValue(f"point = {point!r} is not accepted; this run was tested at {', '.join(points)}")
    again = simulate(stored.spec, at_end=lambda run, state: export(run, state, folder, point), **options)
    remove_checkpoints([stored.spec])
    return again


def differing(stored: RunResult, again: RunResult) -> int:
    """Of how many clients the number of right answers differs, at the headline point."""
    return int((stored.arrays["correct"].sum(1) != again.arrays["correct"].sum(1)).sum())
