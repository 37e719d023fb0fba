"""A submission is made whole before it is graded: what was copied or deleted by accident costs nothing.

nbgrader finds exercises and tests by a mark in a cell's metadata, which a copy of the cell has as well.
"""

from __future__ import annotations

from nbformat import from_dict, read
from nbgrader.preprocessors import NbGraderPreprocessor
from traitlets import Unicode


def mark(cell: dict) -> str:
    """The name by which nbgrader knows a cell; empty for all others."""
    return cell["metadata"].get("nbgrader", {}).get("grade_id", "")


def made_whole(cells: list[dict], released: list[dict]) -> list[dict]:
    """The cells of a submission, in which every test of the release is there, once.

    Of a cell that was copied the last copy keeps the mark; marks that the release does not have go. A test that is
    missing comes back, before the next exercise; an answer that is missing does not, for its function may stand
    elsewhere.
    """
    marked = [cell for cell in released if mark(cell)]
    whole, missing = [], {mark(cell) for cell in marked}
    for cell in reversed(cells):
        if mark(cell) not in missing:  # an ordinary cell from now on
            cell = {**cell, "metadata": {k: v for k, v in cell["metadata"].items() if k != "nbgrader"}}
        missing.discard(mark(cell))
        whole.insert(0, cell)
    for k, cell in enumerate(marked):
        if mark(cell) in missing and cell["metadata"]["nbgrader"].get("grade"):
            whole.insert(_place(whole, {mark(other) for other in marked[k + 1 :]}), cell)
    return whole


def _place(cells: list[dict], later: set[str]) -> int:
    """Before the first of the cells that come later; if there is none, after the last cell with a mark."""
    before = (i for i, cell in enumerate(cells) if mark(cell) in later)
    return next(before, max((i + 1 for i, cell in enumerate(cells) if mark(cell)), default=len(cells)))


class MakeWhole(NbGraderPreprocessor):
    """`made_whole` as a step of nbgrader, in place of its own, which leaves copies with a mark that it then refuses."""

    released = Unicode(help="Path of the lab as it was released.").tag(config=True)

    def preprocess(self, nb, resources):
        nb.cells = [from_dict(cell) for cell in made_whole(nb.cells, read(self.released, 4).cells)]
        return nb, resources
