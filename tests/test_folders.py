"""The package's folders in one order, in which each imports from earlier ones only; no import hides a circle."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import fedlib

ROOT = Path(fedlib.__file__).parent
LINES, FILES = 32_773, 253  # at most; lower them when something is gone
LONGEST, COMMANDS = 400, 520  # lines of a file, and of cli.py
ORDER = [
    *("base", "data", "models", "algorithms", "privacy", "attacks", "measures", "spec", "engine", "checks", "runs"),
    *("analysis", "claims", "figures", "experiments", "reports", "benchmarks", "lessons", "cli", "__main__"),
]


def imported(path: Path) -> set[str]:
    """Folders that a file of the package imports from, wherever in the file."""
    names = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom | ast.Import)]
    plain = [each.name for node in names for each in node.names if isinstance(node, ast.Import)]
    plain += [f"{node.module}.{each.name}" for node in names if isinstance(node, ast.ImportFrom) for each in node.names]
    return {name.split(".")[1] for name in plain if name.startswith("fedlib.")}


@pytest.mark.parametrize("path", sorted(path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py"), ids=str)
def test_a_file_imports_from_its_own_folder_or_earlier_ones(path):
    here = ORDER.index(path.relative_to(ROOT).parts[0].removesuffix(".py"))
    assert imported(path) <= {*ORDER[: here + 1], "__version__"}


def test_no_paper_imports_another_one():
    """Only our own comparisons import from the papers, and nothing from them."""
    folders = {path.parent for path in (ROOT / "experiments").glob("*/__init__.py")}
    papers = {folder for folder in folders if (ROOT / "algorithms" / f"{folder.name}.py").exists()}
    assert {folder.name for folder in folders - papers} == {"evaluation", "head_to_head"} and len(papers) == 4
    for paper in papers:
        text = "".join(path.read_text() for path in paper.glob("*.py"))
        assert not [other.name for other in folders - {paper} if f"fedlib.experiments.{other.name}" in text]


def test_the_package_does_not_grow_unnoticed():
    lines = {str(path.relative_to(ROOT)): path.read_text().count("\n") for path in ROOT.rglob("*.py")}
    assert sum(lines.values()) <= LINES and len(lines) <= FILES
    assert lines.pop("cli.py") <= COMMANDS
    assert {name: count for name, count in lines.items() if count > LONGEST} == {}
