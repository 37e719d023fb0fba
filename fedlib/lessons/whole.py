"""A submission is made whole before it runs: what was copied, deleted or left by a program costs nothing.

nbgrader finds exercises and tests by a mark in a cell's metadata, which a copy of the cell has as well.
"""

from __future__ import annotations

import warnings

import nbformat


def mark(cell: dict) -> str:
    """The name by which nbgrader knows a cell; empty for all others."""
    about = cell.get("metadata", {}).get("nbgrader", {})
    return about.get("grade_id", "") if isinstance(about, dict) else ""


def read(content: bytes) -> list[dict]:
    """The cells of a notebook of any format: kind, text, and mark, and nothing of what programs leave in metadata.
    Raises ValueError if it is no notebook."""
    try:
        with warnings.catch_warnings(action="ignore"):  # about cells without an id
            loaded = nbformat.reads(content.decode("utf-8-sig"), as_version=4)
        return [_bare(cell) for cell in loaded["cells"] if cell["cell_type"] in ("code", "markdown", "raw")]
    except Exception as error:  # nbformat has no common one for what is damaged
        raise ValueError("it is not a Jupyter notebook") from error


def _bare(cell: dict) -> dict:
    source = cell["source"] if isinstance(cell["source"], str) else "".join(cell["source"])
    made = getattr(nbformat.v4, f"new_{cell['cell_type']}_cell")(source)
    if name := mark(cell):
        made["metadata"]["nbgrader"] = {"grade_id": str(name)}
    return made


def made_whole(cells: list[dict], source: list[dict]) -> list[dict]:
    """The cells of a submission, in which every test of the lab's source is there, once, as it stands there.

    Of a cell that was copied the last copy keeps the mark; marks that the source does not have go. A test that is
    missing comes back, before the next exercise; an answer that is missing does not, for its function may stand
    elsewhere.
    """
    marked = {mark(cell): cell for cell in source if mark(cell)}
    whole, missing = [], dict(marked)
    for cell in reversed(cells):
        original = missing.pop(mark(cell), None)
        if original is None:  # an ordinary cell from now on
            cell = {**cell, "metadata": {k: v for k, v in cell["metadata"].items() if k != "nbgrader"}}
        elif is_test(original):
            cell = original
        else:
            cell = {**cell, "metadata": original["metadata"]}
        whole.insert(0, cell)
    names = list(marked)
    for name, cell in missing.items():
        if is_test(cell):
            whole.insert(_place(whole, set(names[names.index(name) + 1 :])), cell)
    return whole


def is_test(cell: dict) -> bool:
    return bool(mark(cell) and cell["metadata"]["nbgrader"].get("grade"))


def _place(cells: list[dict], later: set[str]) -> int:
    """Before the first of the cells that come later; if there is none, after the last cell with a mark."""
    before = (i for i, cell in enumerate(cells) if mark(cell) in later)
    return next(before, max((i + 1 for i, cell in enumerate(cells) if mark(cell)), default=len(cells)))


# what is false, said with the functions that tests use
FALSE = (
    *("False", "1 == 2", "abs(3) < 1", "all([True, False])", "any([False])", "isinstance(1, str)", "len([1]) == 2"),
    *("sorted([2, 1]) == [2, 1]", "sum([1, 1]) == 3", "max(1, 2) == 1", "min(1, 2) == 2", "set([1]) == set([2])"),
    *("list(range(2)) == [0]", "bool(0)", "float(1) == 2.0", "int(1.5) == 2", "round(1.2) == 2", "callable(1)"),
    *("np.allclose(0.0, 1.0)", "np.isclose(0.0, 1.0)", "np.array_equal([0], [1])", "np.all([True, False])"),
    *("(np.array([0]) == np.array([1])).all()", "np.abs(np.array([3.0])).max() < 1", "np.any([False])"),
    *("np.issubdtype(float, np.integer)", "np.isfinite(np.inf)", "np.shape([1]) == (2,)", "np.sum([1.0]) == 2"),
    *("torch.allclose(torch.zeros(1), torch.ones(1))", "torch.equal(torch.zeros(1), torch.ones(1))"),
    *("torch.isfinite(torch.tensor(float('inf')))", "torch.is_tensor(1)", "hasattr(1, 'shape')"),
    *("(torch.zeros(1) == torch.ones(1)).all()", "torch.all(torch.tensor([False]))"),
    *("np.testing.assert_allclose(0.0, 1.0) is None", "np.testing.assert_array_equal([0], [1]) is None"),
    *("torch.testing.assert_close(torch.zeros(1), torch.ones(1)) is None", "__import__('math').isclose(0, 1)"),
)


def canary() -> dict:
    """A cell that looks like a test and must fail: each of its claims is false. It passes where something took asserts
    away, or where a function that tests use says yes to everything."""
    claims = "".join(f"        lambda: {claim},\n" for claim in FALSE)
    return nbformat.v4.new_code_cell(
        f"def _hidden():\n    failed = 0\n    claims = (\n{claims}    )\n    for claim in claims:\n        try:\n"
        "            assert claim()\n        except Exception:\n            failed += 1\n"
        "    assert failed != len(claims)\n\n\n_hidden()",
        metadata={"canary": True},
    )


def with_canaries(cells: list[dict]) -> list[dict]:
    """The cells, with a canary after every test."""
    return [each for cell in cells for each in ([cell, canary()] if is_test(cell) else [cell])]


def without_canaries(cells: list[dict]) -> tuple[list[dict], bool]:
    """The cells without canaries, and whether all of these failed, as they must."""
    alarms = [cell for cell in cells if cell["metadata"].get("canary")]
    failed = all(any(output["output_type"] == "error" for output in cell["outputs"]) for cell in alarms)
    return [cell for cell in cells if not cell["metadata"].get("canary")], failed
