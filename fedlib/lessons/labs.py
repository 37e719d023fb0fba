"""Graded labs: what students get, and what comes back, with nbgrader (extra `fedlib[teach]`).

The labs with solutions and all tests are notebooks/labs/*.ipynb. A course is a folder:

    release/<lab>/<lab>.ipynb                  written by `release`, for students; beside it the notebooks that it
                                               links to, in release/lessons/ and so on
    submitted/                                 put there by the lecturer, in one of the layouts of `lessons.collect`
    students.csv                               the same, if a platform's import needs more than names
    points.csv, feedback/<student>/<lab>/      written by `grade`; feedback/<lab>.zip has the pages of all
    moodle.csv, canvas.csv                     the same, for these platforms

The other folders in it, gradebook.db and nbgrader_config.py are nbgrader's; `collected` has the notebooks as they ran.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import nbformat
import pandas as pd
from filelock import FileLock, Timeout
from tqdm import tqdm

from fedlib.base.errors import FedlibError, choose, require
from fedlib.base.files import SHIPPED, shipped_notebooks, write_atomically
from fedlib.lessons import export, sandbox
from fedlib.lessons.collect import Submission, collected
from fedlib.lessons.whole import is_test, made_whole, mark, with_canaries, without_canaries

SOURCE = SHIPPED / "notebooks" / "labs"
LINK = re.compile(r"\(\.\./([a-z]+/\w+\.ipynb)\)")  # to a notebook beside the labs
NOTEBOOKS = 10  # the time limit of a whole notebook, in those of a cell
COLUMNS = ["student", "lab", "points", "of", "problem"]
SECRET = ("source", "submitted", "collected", "autograded", "feedback", "gradebook.db", "students.csv", "points.csv")


@dataclass
class Grades:
    """points: a row a submission, with COLUMNS; `problem` says why it could not be graded, else it is empty.
    exercises: its parts, with student, lab, exercise, points, of. unchanged: how many submissions keep the points of
    an earlier grading. strange: a line for every file that is no submission. unknown: a line for every platform that
    does not know all students."""

    points: pd.DataFrame
    exercises: pd.DataFrame
    unchanged: int
    strange: list[str]
    unknown: list[str]


def names() -> tuple[str, ...]:
    """All labs, in the order of the course."""
    return tuple(sorted(path.stem for path in SOURCE.glob("lab*.ipynb")))


def release(folder: Path, labs: Sequence[str] = ()) -> list[Path]:
    """Write the students' versions of labs (default: all) to a course's folder: without solutions and hidden tests, and
    with the notebooks that they link to, so that the links lead somewhere.
    Raises BadValue for an unknown lab, FedlibError if nbgrader is missing or refuses, or if a lab that was graded here
    has other exercises now; what was released stays as it is then."""
    labs, api = _chosen(labs), course(folder)
    with _alone(Path(folder)):
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


def grade(folder: Path, labs: Sequence[str] = (), seconds: float = 60, again: bool = False) -> Grades:
    """Grade what was submitted of labs (default: all that were released), and write feedback, points.csv and the tables
    for learning platforms. Rows of other labs stay in these.

    Every submission is run in a process of its own, a cell for at most so many seconds and a notebook for ten times as
    long; what Linux keeps it from is in `fedlib.lessons.sandbox`. What can go wrong with a submission is said in its
    row. Submissions that were graded are not run again if neither they nor the lab nor `seconds` have changed, unless
    `again`. Raises BadValue for an unknown lab, FedlibError if nothing was released or submitted, if a table in the
    folder cannot be read, or while somebody else grades in this folder.
    """
    folder = Path(folder).resolve()
    require(seconds > 0, "seconds", seconds, "a positive number")
    released = [lab for lab in names() if (folder / "release" / lab).is_dir()]
    labs = _chosen(labs) if labs else released
    missing = [lab for lab in labs if lab not in released]
    if missing or not labs:
        which = f"{', '.join(missing)} was not" if missing else "no lab was"
        raise FedlibError(f"{which} released to {folder}: `fedlib labs release` first")
    with _alone(folder):
        before = _earlier(folder)  # what is wrong with tables is said before anything runs
        export.roster(folder)
        source = {lab: _source(folder, lab) for lab in released}
        everything, strange = collected(folder / "submitted", {lab: marks(cells) for lab, cells in source.items()})
        found = [one for one in everything if one.lab in labs]
        if not found:
            raise FedlibError("\n".join([
                f"nothing to grade: put submissions at {folder}/submitted/<student>/<lab>/<lab>.ipynb, or there as "
                "they come from Moodle or Canvas", *strange
            ]))  # fmt: skip
        grading = _Grading(_with_gradebook(course(folder), folder, labs), folder, source, float(seconds), again)
        lines = []
        for one in (bar := tqdm(found, desc="grade", unit="submission", leave=False, file=sys.stderr)):
            bar.set_postfix_str(f"{one.student}, {one.lab}")
            problem = grading.problem_of(one)
            parts = grading.exercises_of(one.student, one.lab, problem)
            reached, most = (sum(numbers) for numbers in list(zip(*parts))[-2:])
            lines.append((one.student, one.lab, reached, most, problem))
        graded = {one.lab for one in found}
        points = pd.concat([before[~before["lab"].isin(graded)], pd.DataFrame(lines, columns=COLUMNS)])
        points = points.astype({"points": float, "of": float}).sort_values(["student", "lab"], ignore_index=True)
        rows = [row for one in points.itertuples() for row in grading.exercises_of(one.student, one.lab, one.problem)]
        exercises = pd.DataFrame(rows, columns=["student", "lab", "exercise", "points", "of"])
        export.write_table(folder / "points.csv", points)
        unknown = export.write_exports(folder, points, exercises, everything)
        export.write_pages(folder, found)
    mine, parts = points["lab"].isin(graded), exercises["lab"].isin(graded)
    return Grades(points[mine].reset_index(drop=True), exercises[parts], grading.unchanged, strange, unknown)


def course(folder: Path):
    """nbgrader's interface to a course's folder. Raises FedlibError if nbgrader is not installed."""
    try:
        from nbgrader import preprocessors as steps
        from nbgrader.apps import NbGraderAPI
        from traitlets.config import Config
    except ImportError:
        raise FedlibError("labs need nbgrader: pip install 'fedlib[teach]'") from None
    from fedlib.lessons.feedback import Page  # slow to import

    warnings.filterwarnings("ignore", category=Warning, module="nbgrader")
    # nbgrader calls programs by name, which are beside this Python whether or not its environment is activated
    beside = os.path.dirname(sys.executable)
    if beside not in os.environ["PATH"].split(os.pathsep):
        os.environ["PATH"] = beside + os.pathsep + os.environ["PATH"]
    for place in (Path(folder), *(Path(folder) / name for name in ("source", "release", "submitted"))):
        require(place.is_dir() or not place.exists(), "folder", str(place), "a folder, or the name of a new one")
    Path(folder).mkdir(parents=True, exist_ok=True)
    root = str(Path(folder).resolve())
    if not (own := Path(root) / "nbgrader_config.py").exists():  # for nbgrader's own commands in this folder
        own.write_text(
            f"c = get_config()\nc.CourseDirectory.root = {root!r}\n"
            "c.CourseDirectory.submitted_directory = 'collected'\n",
            "utf-8",
        )
    config = Config()
    config.CourseDirectory.root = root
    config.CourseDirectory.submitted_directory = "collected"
    config.Autograde.sanitize_preprocessors = [steps.OverwriteKernelspec, steps.OverwriteCells, steps.CheckCellMetadata]
    config.Autograde.autograde_preprocessors = [steps.SaveAutoGrades, steps.AssignLatePenalties]  # nothing is run here
    config.GenerateFeedback.exporter_class = Page
    return NbGraderAPI(config=config)


def _chosen(labs: Sequence[str]) -> list[str]:
    shipped_notebooks()  # an error if they are missing
    return [choose("lab", lab, names()) for lab in labs] or list(names())


def _checked(answer: dict, what: str) -> None:
    if not answer["success"]:
        lines = (answer["log"] or answer["error"]).splitlines()
        reasons = [line for line in lines if "Error" in line or "[ERR" in line]
        raise FedlibError(f"{what}: {' '.join(reasons[:2]) or answer['error']}")


def marks(cells: list[dict]) -> set[str]:
    """The names of exercises and tests that a notebook's cells carry."""
    return {mark(cell) for cell in cells if mark(cell)}


def _source(folder: Path, lab: str) -> list[dict]:
    """The cells of a lab with solutions and hidden tests, as it was when it was released."""
    path = folder / "source" / lab / f"{lab}.ipynb"
    try:
        return nbformat.read(path, 4)["cells"]
    except Exception as error:
        raise FedlibError(f"{path} cannot be read ({type(error).__name__}): release {lab} again") from None


def _with_gradebook(api, folder: Path, labs: Sequence[str]):
    """nbgrader's interface. Raises FedlibError if its gradebook cannot be read or lacks one of these labs."""
    try:
        with api.gradebook as book:
            missing = set(labs) - {assignment.name for assignment in book.assignments}
    except Exception as error:  # SQLAlchemy has many
        why = type(error).__name__
        raise FedlibError(f"{folder / 'gradebook.db'} cannot be read ({why}): put a copy of it back") from None
    if missing:
        raise FedlibError(f"{folder / 'gradebook.db'} does not know {', '.join(sorted(missing))}: release it again")
    return api


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Raises FedlibError if another process releases or grades in this folder."""
    try:
        with FileLock(folder / ".lock", timeout=0):
            yield
    except Timeout:
        raise FedlibError(f"{folder} is being released to or graded by another process: wait for it") from None


def _require_same_exercises(api, lab: str, folder: Path) -> None:
    """nbgrader cannot give graded submissions other exercises; raise FedlibError before it has deleted the release."""
    from nbgrader.api import MissingEntry

    with api.gradebook as book:
        try:
            graded = book.find_notebook(lab, lab)
        except MissingEntry:
            return
        known = {cell.name for cell in graded.source_cells} if graded.submissions else set()
    if known and (changed := known ^ marks(nbformat.read(SOURCE / f"{lab}.ipynb", 4)["cells"])):
        raise FedlibError(
            f"{lab} was graded in {folder}, and has other exercises or tests now ({', '.join(sorted(changed))}): "
            "release it to a new folder, and put the submissions there"
        )


def _earlier(folder: Path) -> pd.DataFrame:
    """The rows of points.csv. Raises FedlibError if it is not such a table."""
    path = folder / "points.csv"
    if not path.exists():
        return pd.DataFrame(columns=COLUMNS)
    table = export.read_table(path, COLUMNS)[COLUMNS]
    try:
        for name in ("points", "of"):
            table[name] = [float(text.replace(",", ".")) for text in table[name]]
    except ValueError as error:
        raise FedlibError(f"{path} cannot be read: {error} in its column {name!r}; mend it or move it away") from None
    return table


@dataclass
class _Grading:
    """One grading of a course: what all its submissions share. source: by lab, its cells with all tests."""

    api: object
    folder: Path
    source: dict[str, list[dict]]
    seconds: float
    again: bool
    unchanged: int = 0
    open: str | None = None  # why student code cannot be shut in, empty if it is; None before the first submission

    def problem_of(self, one: Submission) -> str:
        """Grade one submission: what went wrong, or an empty text. Nothing that one submission does ends the others."""
        page = self.folder / "feedback" / one.student / one.lab
        try:
            record = self.folder / "autograded" / one.student / one.lab / "graded.txt"
            digest = one.digest(self.source[one.lab], self.seconds)
            if not one.problem and not self.again and record.is_file() and record.read_text() == digest:
                self.unchanged += 1
                return ""
            record.unlink(missing_ok=True)
            if not (problem := one.problem or self._run(one)):
                record.write_text(digest)
                return ""
        except Exception as error:
            problem = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        shutil.rmtree(page, ignore_errors=True)  # that of an earlier submission shows points that are no longer there
        return problem

    def _run(self, one: Submission) -> str:
        from fedlib.lessons.feedback import finished, tidied  # slow to import

        cells = with_canaries(made_whole(one.cells, self.source[one.lab]))
        self._probe()
        state = self._state()
        ran, problem = self._apart(one, cells)
        if changed := sorted({str(path.relative_to(self.folder)) for path, _, _ in state ^ self._state()}):
            return f"files of the course have changed while its code ran, look at them: {', '.join(changed[:5])}"
        if problem:
            return problem
        if [cell["source"] for cell in ran] != [cell["source"] for cell in cells]:
            return "its code has changed the notebook while it ran: no points"
        ran, failed = without_canaries(ran)
        if not failed:
            return "a test that must fail has passed: its code takes asserts away or replaces what tests use; no points"
        notebook = nbformat.v4.new_notebook(cells=[tidied(nbformat.from_dict(cell)) for cell in ran])
        place = self.folder / "collected" / one.student / one.lab / f"{one.lab}.ipynb"
        write_atomically(place, nbformat.writes(notebook).encode())
        for step in (self.api.autograde, self.api.generate_feedback):
            answer = step(one.lab, one.student, force=True)
            if not answer["success"]:
                if "KeyboardInterrupt" in str(answer["error"]):  # nbgrader catches it
                    raise KeyboardInterrupt
                return explained((answer.get("log") or "") + "\n" + str(answer["error"]))
        page = self.folder / "feedback" / one.student / one.lab / f"{one.lab}.html"
        write_atomically(page, finished(page.read_text("utf-8"), self.exercises(one.lab), one.student).encode())
        return ""

    def _probe(self) -> None:
        """Find out once whether code can be shut in here."""
        if self.open is None:
            with tempfile.TemporaryDirectory(prefix="fedlib-lab-") as scratch:
                self.open = sandbox.run({"scratch": scratch, "hidden": [], "shut": True}, 60).get("problem", "")
            if self.open:
                said = f"students' code cannot be shut in here ({self.open})"
                tqdm.write(f"{said}: it has the network, and can write your files", file=sys.stderr)

    def _state(self) -> set[tuple]:
        """What tells whether files of the course have changed; nothing if code that is shut in cannot change them."""
        files = (path for path in self.folder.rglob("*") if path.is_file()) if self.open else ()
        return {(path, stat.st_mtime_ns, stat.st_size) for path in files for stat in [path.stat()]}

    def _apart(self, one: Submission, cells: list[dict]) -> tuple[list[dict], str]:
        """The cells after they were run in a process of its own, or what went wrong."""
        with tempfile.TemporaryDirectory(prefix="fedlib-lab-", ignore_cleanup_errors=True) as scratch:
            for path in one.beside:
                shutil.copy(path, scratch)
            task = {"notebook": nbformat.v4.new_notebook(cells=cells), "seconds": self.seconds, "scratch": scratch}
            task |= {"hidden": [str(self.folder / name) for name in SECRET], "shut": not self.open}
            answer = sandbox.run(task, NOTEBOOKS * self.seconds)
        return answer.get("notebook", {}).get("cells", []), answer.get("problem", "")

    def exercises(self, lab: str) -> dict[str, str]:
        """By test, the exercise that it belongs to: the last one before it."""
        found, last = {}, ""
        for cell in filter(mark, self.source[lab]):
            last = last if is_test(cell) and last else mark(cell)
            if is_test(cell):
                found[mark(cell)] = last
        return found

    def exercises_of(self, student: str, lab: str, problem: str) -> list[tuple]:
        """The exercises of a submission: student, lab, exercise, points (0 if it could not be graded), of."""
        from nbgrader.api import MissingEntry

        if lab not in self.source:
            return []
        of_test = self.exercises(lab)
        reached = {exercise: [0.0, 0.0] for exercise in of_test.values()}
        with self.api.gradebook as book, contextlib.suppress(MissingEntry):
            for cell in book.find_notebook(lab, lab).grade_cells:
                reached[of_test[cell.name]][1] += cell.max_score
            grades = [] if problem else book.find_submission_notebook(lab, lab, student).grades
            for grade in grades:
                reached[of_test[grade.name]][0] += grade.score
        return [(student, lab, exercise, *numbers) for exercise, numbers in reached.items()]


def explained(log: str) -> str:
    """Why nbgrader did not grade, in one line, from what it wrote."""
    lines = [" ".join(line.split()) for line in log.splitlines() if line.strip()]
    return next((line for line in reversed(lines) if "Error" in line), lines[-1] if lines else "no reason given")[:200]
