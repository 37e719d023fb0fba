"""The package's folders in one order, in which each imports from earlier ones only; no import hides a circle."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import fedlib

ROOT = Path(fedlib.__file__).parent
ORDER = (
    "base", "data", "models", "algorithms", "privacy", "attacks", "measures", "spec", "engine", "runs", "figures",
    "experiments", "reports", "benchmarks", "lessons", "cli",
)  # fmt: skip
FILES = sorted(
    path.relative_to(ROOT) for path in ROOT.rglob("*.py") if path.name != "__init__.py" or path.parent != ROOT
)
LAZY = {"runs/cluster.py"}  # says why


def folder(path: Path) -> str:
    return path.parts[0].removesuffix(".py")


def imports(path: Path) -> list[tuple[str, bool]]:
    """(module, whether at the top of the file) of everything of fedlib's that a file imports."""
    found, source = [], ast.parse((ROOT / path).read_text())
    for node in ast.walk(source):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "fedlib":
            names = [f"fedlib.{each.name}" for each in node.names] if node.module == "fedlib" else [node.module]
            found += [(name, node in source.body) for name in names]
        elif isinstance(node, ast.Import):
            found += [(each.name, node in source.body) for each in node.names if each.name.split(".")[0] == "fedlib"]
    return found


def test_every_folder_has_its_place():
    assert {folder(path) for path in FILES} == set(ORDER)


@pytest.mark.parametrize("name", ORDER)
def test_a_folder_imports_from_earlier_ones_only(name):
    here = ORDER.index(name)
    wrong = [
        f"{path} imports {module}"
        for path in FILES
        if folder(path) == name
        for module, _ in imports(path)
        if module.count(".") and ORDER.index(module.split(".")[1]) > here
    ]
    assert not wrong


def test_what_trains_imports_fedlib_at_the_top_of_its_files():
    """An import inside a function would hide a circle."""
    inside = [
        f"{path}: {module}"
        for path in FILES
        if folder(path) in ("algorithms", "measures", "engine", "runs") and path.as_posix() not in LAZY
        for module, at_the_top in imports(path)
        if not at_the_top
    ]
    assert not inside
