"""Notebooks, results and figures as they are handed out: a folder to work in, for who installed fedlib from a wheel,
and a site that needs no network (Jupyter Book, with a MathJax of its own)."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from fedlib import __version__
from fedlib.base.errors import BadValue, FedlibError
from fedlib.base.files import CHECKOUT, MARK, SHIPPED, home, shipped_notebooks
from fedlib.experiments import about, names
from fedlib.reports.notebooks import without_solutions

COPIED = ("notebooks", "results", "figures")
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)#:]+)(#[^)]*)?\)")  # to a file; pictures are all there
FEW = 3  # names of other files that an error tells


def lay_out(folder: Path) -> int:
    """Copy the notebooks, and the results and figures that they show, to a folder that is new or empty; hidden files
    may lie there. Labs come without solutions. Links to what is not copied, as the source, become text.

    Returns the number of notebooks. Raises BadValue for a folder with other files, and in a checkout, which has all of
    it; FedlibError if what comes with fedlib is missing or damaged, or if it cannot be written.
    """
    if SHIPPED == CHECKOUT:
        raise BadValue(f"this fedlib runs from its checkout: open the notebooks in {CHECKOUT / 'notebooks'}")
    require_room(folder)
    made = handed_out()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".fedlib-", dir=folder) as place:
            for path, notebook in made.items():
                (place / path).parent.mkdir(parents=True, exist_ok=True)
                nbformat.write(notebook, place / path)
            for name in COPIED[1:]:
                shutil.copytree(SHIPPED / name, Path(place) / name)
            for name in COPIED:  # all of it is there, or nothing
                os.replace(Path(place) / name, folder / name)
        (folder / MARK).write_text(f"{__version__}\n", "utf-8")
    except (OSError, shutil.Error) as error:
        raise FedlibError(f"{folder} could not be filled: {error}") from error
    return len(made)


def prepare() -> str:
    """Fill the working directory before the main job's first run in it, where fedlib was installed from a wheel, and
    say so in a line; else an empty text. Raises as `lay_out`."""
    if SHIPPED == CHECKOUT or os.environ.get("FEDLIB_HOME"):
        return ""
    mark = home() / MARK
    if not mark.exists():
        return f"{lay_out(home())} notebooks, and the results and figures that come with fedlib, are now in {home()}"
    version = mark.read_text("utf-8").strip()
    if version == __version__:
        return ""
    return f"{home()} was made by fedlib {version}, and this is {__version__}: `fedlib report --notebooks` lays one"


def require_room(folder: Path) -> None:
    """Raise BadValue unless the folder is new, or has nothing but hidden files."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise BadValue(f"{folder} is a file; expected a folder that is new or empty")
    if others := sorted(path.name for path in folder.iterdir() if not path.name.startswith(".")):
        few = ", ".join(others[:FEW]) + (f" and {len(others) - FEW} more" if len(others) > FEW else "")
        raise BadValue(f"{folder} has other files: {few}; expected a folder that is new or empty")


def handed_out() -> dict[Path, NotebookNode]:
    """All notebooks as they are handed out, by their places in the folder. Raises FedlibError if one is missing or
    damaged."""
    source, made = shipped_notebooks(), {}
    if lacking := [name for name in names() if not (source / f"{name}.ipynb").exists()]:
        raise FedlibError(f"notebooks that come with fedlib are missing: {', '.join(lacking)}; install it again")
    for path in sorted(source.rglob("*.ipynb")):
        try:
            notebook = nbformat.read(path, as_version=4)
        except (OSError, ValueError, AttributeError, KeyError) as error:  # nbformat's own errors are ValueErrors
            raise FedlibError(f"{path} is damaged ({type(error).__name__}): install fedlib again") from error
        if path.parent.name == "labs" and path.stem.startswith("lab"):
            without_solutions(notebook)
        _unlink(notebook, path)
        made[path.relative_to(SHIPPED)] = notebook
    return made


def _unlink(notebook: NotebookNode, path: Path) -> None:
    """Turn links to files that are not copied into text; path: where the notebook comes from."""

    def kept(link: re.Match) -> str:
        target = (path.parent / link[2]).resolve()
        if target.exists() and any(target.is_relative_to(SHIPPED.resolve() / name) for name in COPIED):
            return link[0]
        label, file = link[1].replace("\\", ""), link[2].removeprefix("../../").removesuffix("/")
        return f"`{file}`" if label in file else f"{label} (`{file}`)"

    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = LINK.sub(kept, cell.source)


# a site ---------------------------------------------------------------------------------------------------------------

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
