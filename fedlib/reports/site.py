"""A site that needs no network: notebooks and reports as a book (Jupyter Book, with a MathJax of its own)."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import nbformat

from fedlib.base.errors import BadValue, FedlibError
from fedlib.base.files import SHIPPED
from fedlib.experiments import about, names
from fedlib.reports.working_folder import handed_out, require_room

PARTS = {"guides": "Guides", "lessons": "Lessons", "solutions": "Solutions of the lessons' exercises", "labs": "Labs"}
CONFIG = {
    "title": "fedlib",
    "author": "",
    "copyright": "",
    "logo": "",
    "execute": {"execute_notebooks": "off"},
    "only_build_toc_files": True,
    "html": {"home_page_in_navbar": False},
    "sphinx": {"extra_extensions": ["sphinx-mathjax-offline"], "config": {"suppress_warnings": ["myst.header"]}},
}
BUILD = "from jupyter_book.cli.main import main; main()"


def build(folder: Path) -> int:
    """Write the site to a folder that is new or empty; returns the number of its pages.

    Raises BadValue for another folder, and where Jupyter Book is not installed; FedlibError if it fails.
    """
    require_room(folder)
    if not all(map(importlib.util.find_spec, ("jupyter_book", "sphinx-mathjax-offline"))):
        raise BadValue("--site needs the extra 'site': pip install 'jupyter-book<2' sphinx-mathjax-offline")
    with tempfile.TemporaryDirectory(prefix="fedlib-") as place:
        write_sources(book := Path(place))
        done = subprocess.run([sys.executable, "-c", BUILD, "build", place], capture_output=True, text=True)
        if done.returncode:
            raise FedlibError(f"Jupyter Book failed: {(done.stderr or done.stdout).strip().splitlines()[-1]}")
        shutil.copytree(book / "_build" / "html", folder, dirs_exist_ok=True)
    return sum(1 for _ in (folder / "notebooks").rglob("*.html")) + sum(1 for _ in (folder / "results").glob("*.html"))


def write_sources(book: Path) -> None:
    """What Jupyter Book reads: the notebooks and reports with their figures, and their order; it reads YAML, of which
    JSON is a part."""
    for path, notebook in handed_out().items():
        (book / path).parent.mkdir(parents=True, exist_ok=True)
        outputs = (output for cell in notebook.cells for output in cell.get("outputs", ()))
        for shown in (output.data for output in outputs if "text/markdown" in output.get("data", ())):
            shown["text/markdown"] = shown["text/markdown"].replace(".ipynb)", ".html)")  # as in Markdown cells
        nbformat.write(notebook, book / path)
    shutil.copytree(SHIPPED / "figures", book / "figures")
    shutil.copytree(SHIPPED / "results", book / "results", ignore=shutil.ignore_patterns("runs", "own", "*.json"))
    (book / "_config.yml").write_text(json.dumps(CONFIG), "utf-8")
    (book / "_toc.yml").write_text(json.dumps(contents(book)), "utf-8")


def contents(book: Path) -> dict:
    """The order of the pages: a part for each kind of notebooks, and for each paper, with its report first."""
    root = "notebooks/guides/start_here"
    folders = [*PARTS, *dict.fromkeys(name.split("/")[0] for name in names())]
    files = {"Results": [f"results/{name}" for name in ("README", "scoreboard", "distances")]}
    for folder in folders:
        notebooks = sorted((book / "notebooks" / folder).glob("*.ipynb"))
        files[PARTS.get(folder) or about(folder)[0]] = [
            f"results/{folder}",
            *(f"notebooks/{folder}/{path.stem}" for path in notebooks),
        ]
    there = {part: [f for f in own if f != root and list(book.glob(f"{f}.*"))] for part, own in files.items()}
    parts = [{"caption": part, "chapters": [{"file": f} for f in own]} for part, own in there.items() if own]
    return {"format": "jb-book", "root": root, "parts": parts}
