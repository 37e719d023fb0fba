"""Running the notebooks in batch: papermill, one parameters cell, results beside the runs they show."""

from __future__ import annotations

import ast
import hashlib
import json
import logging
import os
import re
import tempfile
import warnings
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from fedlib.algorithms.registered import spelled
from fedlib.base.errors import FedlibError
from fedlib.base.files import for_sockets, shipped_notebooks, source_hash
from fedlib.experiments import OpenItem
from fedlib.reports.saved import place_of

if TYPE_CHECKING:
    from nbformat import NotebookNode

TIMEOUT = 3600  # seconds for one cell
# of every notebook: what exporting needs, and nothing that is of one version of Python
METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"file_extension": ".py", "mimetype": "text/x-python", "name": "python"},
}
# what only lecturers should read, as nbgrader marks it
SOLUTION = re.compile(r"^( *)### BEGIN SOLUTION.*?### END SOLUTION", re.DOTALL | re.MULTILINE)
HIDDEN = re.compile(r"\n*### BEGIN HIDDEN TESTS.*?### END HIDDEN TESTS", re.DOTALL)


def source_path(name: str) -> Path:
    """The notebook of an item as it comes with fedlib, wherever results go (FEDLIB_HOME)."""
    return shipped_notebooks() / f"{name}.ipynb"


def output_path(item: OpenItem) -> Path:
    """Where an item's executed notebook goes."""
    return item.root / "results" / place_of(item) / "notebooks" / f"{item.item.name}.ipynb"


def execute_all(items: Iterable[OpenItem], jobs: int) -> dict[str, str]:
    """Execute the items' notebooks, `jobs` at a time; returns by name "executed", "unchanged",
    "skipped: why" or "failed: why".

    A notebook starts as soon as its item is there, while the iterable still works on the next one.
    """
    pool = ThreadPoolExecutor(max_workers=max(1, jobs))
    try:
        started = {item.item.name: pool.submit(_execute, item) for item in items}
        ends = {name: (run.exception(), run) for name, run in started.items()}  # one that fails does not stop the rest
        return {name: f"failed: {type(e).__name__}: {e}" if e else run.result() for name, (e, run) in ends.items()}
    finally:  # after Ctrl-C no further one is begun
        pool.shutdown(cancel_futures=True)


def _execute(item: OpenItem) -> str:
    try:
        source, output = source_path(item.item.name), output_path(item)
        known = _parameters_of(source)
    except (FedlibError, OSError, ValueError, KeyError, TypeError) as error:
        return f"failed: it is missing or damaged, {type(error).__name__}: {error}"
    parameters = {} if item.profile == "quick" else {"profile": item.profile}  # notebooks say quick themselves
    parameters |= {name: _plain(value) for name, value in item.changed.items()}
    unknown = [name for name in parameters if name not in known]
    if unknown:  # it would show the unchanged settings
        return f"skipped: the notebook has no parameter {', '.join(unknown)}"
    stamp = _stamp(source, parameters, item)
    if _stamp_of(output) == stamp:
        return "unchanged"
    import nbformat
    import papermill

    from fedlib.base.kernel import own_kernel

    os.environ["FEDLIB_PROFILE"] = item.profile  # what the kernels inherit
    # side by side, several threads each make small networks many times slower
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    output.parent.mkdir(parents=True, exist_ok=True)
    logging.getLogger("papermill").setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), tempfile.TemporaryDirectory(prefix="fedlib-", dir=for_sockets()) as place:
            warnings.simplefilter("ignore")
            papermill.execute_notebook(
                str(source), str(output), parameters, kernel_name="python3", progress_bar=False, log_output=False,
                execution_timeout=TIMEOUT, kernel_manager_class=own_kernel(place), shutdown_kernel="immediate",
                coalesce_streams=True,
            )  # fmt: skip
    except Exception as error:  # a cell's error, a dead kernel, a timeout: the others still run
        return f"failed: {type(error).__name__}: {str(error).strip().splitlines()[-1] if str(error).strip() else ''}"
    notebook = nbformat.read(output, as_version=4)
    notebook.metadata["fedlib"] = {"stamp": stamp}
    nbformat.write(notebook, output)
    return "executed"


def _parameters_of(source: Path) -> set[str]:
    """Names assigned in a notebook's parameters cell."""
    cells = json.loads(source.read_text("utf-8"))["cells"]
    text = "".join("".join(c["source"]) + "\n" for c in cells if "parameters" in c["metadata"].get("tags", []))
    return {target.id for node in ast.parse(text).body if isinstance(node, ast.Assign) for target in node.targets}


def _plain(value):
    return ",".join(str(spelled(each)) for each in value) if isinstance(value, tuple) else value


def _stamp(source: Path, parameters: dict, item: OpenItem) -> str:
    """Changes when fedlib, the notebook's cells, its parameters or the item's saved tables and claims change."""
    paper, name = item.item.name.split("/")
    cells = [cell["source"] for cell in json.loads(source.read_text("utf-8"))["cells"]]
    saved = (item.root / "results" / place_of(item) / paper / f"{name}.json").read_text("utf-8")
    tables = [frame.to_csv(index=False) for frame in item.tables.values()]
    return hashlib.sha256(json.dumps([source_hash(), cells, parameters, saved, tables]).encode()).hexdigest()[:16]


def _stamp_of(output: Path) -> str | None:
    try:
        return json.loads(output.read_text("utf-8"))["metadata"]["fedlib"]["stamp"]
    except (OSError, ValueError, KeyError):
        return None


def refresh_source(item: OpenItem) -> None:
    """Write the outputs of an executed notebook back to its source, without the traces of this execution."""
    import nbformat

    notebook = nbformat.read(output_path(item), as_version=4)
    notebook.metadata = nbformat.from_dict(METADATA)
    for cell in notebook.cells:
        tags = cell.metadata.get("tags", [])
        cell.metadata = nbformat.from_dict({"tags": tags} if tags else {})
    nbformat.write(notebook, source_path(item.item.name))


def without_solutions(notebook: NotebookNode) -> None:
    """Take solutions, hidden tests and outputs out of a lab, as its release does."""
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = []
            cell.source = HIDDEN.sub("", SOLUTION.sub(r"\1raise NotImplementedError()", cell.source))
