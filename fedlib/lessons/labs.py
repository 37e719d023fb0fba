"""Graded labs: what students get, and what comes back, with nbgrader (extra `fedlib[teach]`).

The labs with solutions and all tests are notebooks/labs/*.ipynb. A course is a folder:

    release/<lab>/<lab>.ipynb                  written by `release`, for students; beside it the notebooks that it
                                               links to, in release/lessons/ and so on
    submitted/<student>/<lab>/<lab>.ipynb      put there by the lecturer
    points.csv, feedback/<student>/<lab>/      written by `grade`

The other folders in it, gradebook.db and nbgrader_config.py are nbgrader's.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import psutil
from tqdm import tqdm

from fedlib.base.errors import FedlibError, choose, require
from fedlib.base.files import SHIPPED, shipped_notebooks, write_atomically

SOURCE = SHIPPED / "notebooks" / "labs"
LINK = re.compile(r"\(\.\./([a-z]+/\w+\.ipynb)\)")  # to a notebook beside the labs
NOTEBOOKS = 10  # the time limit of a whole notebook, in those of a cell
COLUMNS = ["student", "lab", "points", "of", "problem"]


def names() -> tuple[str, ...]:
    """All labs, in the order of the course."""
    return tuple(sorted(path.stem for path in SOURCE.glob("lab*.ipynb")))


def release(folder: Path, labs: Sequence[str] = ()) -> list[Path]:
    """Write the students' versions of labs (default: all) to a course's folder: without solutions and hidden tests, and
    with the notebooks that they link to, so that the links lead somewhere.
    Raises BadValue for an unknown lab, FedlibError if nbgrader is missing or refuses, or if a lab that was graded here
    has other exercises now; what was released stays as it is then."""
    labs, api = _chosen(labs), course(folder)
    for lab in labs:
        _require_same_exercises(api, lab, Path(folder))
    for lab in tqdm(labs, desc="release", unit="lab", leave=False, file=sys.stderr):
        source = Path(folder) / "source" / lab
        source.mkdir(parents=True, exist_ok=True)
        shutil.copy(SOURCE / f"{lab}.ipynb", source)
        _checked(api.generate_assignment(lab, force=True), f"{lab} cannot be released")
        for linked in sorted(set(LINK.findall((SOURCE / f"{lab}.ipynb").read_text("utf-8")))):
            (Path(folder) / "release" / linked).parent.mkdir(exist_ok=True)
            shutil.copy(SOURCE.parent / linked, Path(folder) / "release" / linked)
    return [Path(folder) / "release" / lab / f"{lab}.ipynb" for lab in labs]


def grade(folder: Path, labs: Sequence[str] = (), seconds: float = 60, again: bool = False) -> pd.DataFrame:
    """Grade what was submitted of labs (default: all that were released), and write points.csv and feedback. Rows of
    other labs stay in that file.

    Every submission is run in a process of its own, a cell for at most so many seconds and a notebook for ten times as
    long, without the network where the system allows it (`fedlib.lessons.sandbox`). Submissions that were graded and
    have not changed are not run again, unless `again`. Returns one row a submission: student, lab, points, of, problem
    (why it could not be graded, else empty). Raises BadValue for an unknown lab, FedlibError if nothing was released.
    """
    folder = Path(folder).resolve()
    require(seconds > 0, "seconds", seconds, "a positive number")
    released = [lab for lab in names() if (folder / "release" / lab).is_dir()]
    labs = _chosen(labs) if labs else released
    missing = [lab for lab in labs if lab not in released]
    if missing or not labs:
        which = f"{', '.join(missing)} was not" if missing else "no lab was"
        raise FedlibError(f"{which} released to {folder}: `fedlib labs release` first")
    found = sorted(place / f"{place.name}.ipynb" for lab in labs for place in (folder / "submitted").glob(f"*/{lab}"))
    if not found:
        raise FedlibError(f"nothing to grade: put submissions at {folder}/submitted/<student>/<lab>/<lab>.ipynb")
    api, lines = course(folder), []
    for path in tqdm(found, desc="grade", unit="submission", leave=False, file=sys.stderr):
        student, lab = path.parts[-3:-1]
        problem = _unfit(path, folder / "release" / lab / path.name)
        if not problem and (again or not _is_graded(folder, path)):
            problem = _run_apart(folder, lab, student, seconds)
        if problem:  # a page from an earlier submission would show points that are no longer there
            shutil.rmtree(folder / "feedback" / student / lab, ignore_errors=True)
        lines.append((student, lab, *_points(api, lab, student, problem), problem))
    grades = pd.DataFrame(lines, columns=COLUMNS).sort_values(["student", "lab"], ignore_index=True)
    write_atomically(folder / "points.csv", _with_other_labs(folder, grades).to_csv(index=False).encode())
    return grades


def course(folder: Path):
    """nbgrader's interface to a course's folder. Raises FedlibError if nbgrader is not installed."""
    try:
        from nbgrader.apps import NbGraderAPI
        from traitlets.config import Config
    except ImportError:
        raise FedlibError("labs need nbgrader: pip install 'fedlib[teach]'") from None
    warnings.filterwarnings("ignore", category=Warning, module="nbgrader")
    # nbgrader calls programs by name, which are beside this Python whether or not its environment is activated
    beside = os.path.dirname(sys.executable)
    if beside not in os.environ["PATH"].split(os.pathsep):
        os.environ["PATH"] = beside + os.pathsep + os.environ["PATH"]
    Path(folder).mkdir(parents=True, exist_ok=True)
    root = str(Path(folder).resolve())
    if not (own := Path(root) / "nbgrader_config.py").exists():  # for nbgrader's own commands in this folder
        own.write_text(f"c = get_config()\nc.CourseDirectory.root = {root!r}\n", "utf-8")
    config = Config()
    config.CourseDirectory.root = root
    return NbGraderAPI(config=config)


def _chosen(labs: Sequence[str]) -> list[str]:
    shipped_notebooks()  # an error if they are missing
    return [choose("lab", lab, names()) for lab in labs] or list(names())


def _checked(answer: dict, what: str) -> None:
    if not answer["success"]:
        reasons = [
            line for line in (answer["log"] or answer["error"]).splitlines() if "Error" in line or "[ERR" in line
        ]
        raise FedlibError(f"{what}: {' '.join(reasons[:2]) or answer['error']}")


def _marks(path: Path) -> set[str]:
    """The names of exercises and tests that a notebook's cells carry. Raises ValueError if it is no notebook."""
    cells = json.loads(path.read_text("utf-8"))["cells"]
    return {about["grade_id"] for cell in cells if "grade_id" in (about := cell["metadata"].get("nbgrader", {}))}


def _require_same_exercises(api, lab: str, folder: Path) -> None:
    """nbgrader cannot give graded submissions other exercises; raise FedlibError before it has deleted the release."""
    from nbgrader.api import MissingEntry

    with api.gradebook as book:
        try:
            graded = book.find_notebook(lab, lab)
        except MissingEntry:
            return
        known = {cell.name for cell in graded.source_cells} if graded.submissions else set()
    if known and (changed := known ^ _marks(SOURCE / f"{lab}.ipynb")):
        raise FedlibError(
            f"{lab} was graded in {folder}, and has other exercises or tests now ({', '.join(sorted(changed))}): "
            "release it to a new folder, and put the submissions there"
        )


def _unfit(path: Path, released: Path) -> str:
    """Why a submission cannot be graded, as far as its file tells, or an empty text."""
    if not path.is_file():
        others = ", ".join(sorted(other.name for other in path.parent.iterdir())) or "nothing"
        return f"there is no {path.name}, but {others}: rename it"
    try:
        if _marks(path).isdisjoint(_marks(released)):
            return "no cell carries nbgrader's mark of an exercise: copy the answers into the lab as it was released"
    except (ValueError, KeyError, TypeError, AttributeError):
        return "it is not a Jupyter notebook"
    return ""


def _with_other_labs(folder: Path, grades: pd.DataFrame) -> pd.DataFrame:
    """The grades, and those of labs that were graded earlier."""
    file = folder / "points.csv"
    if not file.exists():
        return grades
    before = pd.read_csv(file, keep_default_na=False)
    kept = before[~before["lab"].isin(grades["lab"])]
    return pd.concat([kept, grades]).sort_values(["student", "lab"], ignore_index=True)


def _is_graded(folder: Path, path: Path) -> bool:
    """Whether a submission was graded after it, and the released lab, were last changed."""
    student, lab = path.parts[-3:-1]
    graded = folder / "autograded" / student / lab / path.name
    release = folder / "release" / lab / path.name
    return graded.exists() and graded.stat().st_mtime > max(path.stat().st_mtime, release.stat().st_mtime)


def _run_apart(folder: Path, lab: str, student: str, seconds: float) -> str:
    """Grade one submission in a process of its own; what went wrong, or an empty text."""
    command = [sys.executable, "-m", "fedlib.lessons.sandbox", str(folder), lab, student, str(seconds)]
    environment = os.environ | {"FEDLIB_OFFLINE": "1"}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            said, log = process.communicate(timeout=NOTEBOOKS * seconds)
        except subprocess.TimeoutExpired:
            _kill(process)  # the notebook's kernel ends when its parent is gone
            return f"stopped after {NOTEBOOKS * seconds:g} s"
        except BaseException:
            _kill(process)
            raise
    try:
        answer = json.loads(said.strip().splitlines()[-1])
    except (json.JSONDecodeError, IndexError):
        return f"the grading process ended with status {process.returncode}: {log.strip()[-200:]}"
    if answer["network"]:
        tqdm.write(f"{student}, {lab}: the network could not be cut off ({answer['network']})", file=sys.stderr)
    return answer["problem"]


def _kill(process: subprocess.Popen) -> None:
    """End a process that was started in a session of its own, and all that it has started."""
    if hasattr(os, "killpg"):
        os.killpg(process.pid, signal.SIGKILL)
        return
    for child in psutil.Process(process.pid).children(recursive=True):  # Windows
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()
    process.kill()


def _points(api, lab: str, student: str, problem: str) -> tuple[float, float]:
    """What a submission reached, 0 if it could not be graded, and what can be reached."""
    from nbgrader.api import MissingEntry

    with api.gradebook as book:
        most = book.find_assignment(lab).max_score
        try:
            return (0.0 if problem else book.find_submission(lab, student).score), most
        except MissingEntry:
            return 0.0, most
