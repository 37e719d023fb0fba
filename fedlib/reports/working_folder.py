"""A folder to work in, for who installed fedlib from a wheel: notebooks, results and figures as a checkout has them."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from fedlib import __version__
from fedlib.base.errors import BadValue, FedlibError
from fedlib.base.files import CHECKOUT, MARK, SHIPPED, home, shipped_notebooks
from fedlib.experiments import names
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
