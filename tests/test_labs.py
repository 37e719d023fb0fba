"""Labs: the solution gets full marks, an empty submission none, every plausible mistake costs marks, and what students
get holds neither solutions nor hidden tests."""

from __future__ import annotations

import contextlib
import io
import json
import re
import runpy
import socket
import sys
import textwrap
from functools import cache
from pathlib import Path

import pandas as pd
import psutil
import pytest
from helpers import call

from fedlib.base.errors import BadValue, FedlibError
from fedlib.lessons import labs, sandbox

WRONG = {
    path.stem: runpy.run_path(str(path))["WRONG"] for path in (Path(__file__).parent / "wrong_solutions").glob("*")
}
SOLUTION, HIDDEN = (
    re.compile(rf" *### BEGIN {what}\n(.*?)### END {what}", re.S) for what in ("SOLUTION", "HIDDEN TESTS")
)
POINTS = 20  # of every lab
LINES = 20  # of a cell at most, if students read it: tests may be longer, for most of them is hidden


@cache
def cells(lab: str) -> list[dict]:
    """A lab's cells with code."""
    text = (labs.SOURCE / f"{lab}.ipynb").read_text()
    return [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]


def source(cell: dict) -> str:
    return "".join(cell["source"])


def about(cell: dict) -> dict:
    return cell["metadata"].get("nbgrader", {})


def execute(code: str, names: dict) -> dict:
    """The names after some code has been run; what it prints is dropped."""
    names = dict(names)
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(code, "<cell>", "exec"), names)
    return names


@cache
def exercises(lab: str) -> dict[str, tuple[dict, list[str]]]:
    """By exercise: the names that are there before its solution, and its tests."""
    names, found, code = {"__name__": "__main__"}, {}, cells(lab)
    for i, cell in enumerate(code):
        if about(cell).get("solution"):
            following = [about(other).get("grade", False) for other in code[i + 1 :]]
            tests = code[i + 1 :][: following.index(False) if False in following else None]
            found[about(cell)["grade_id"]] = (names, [source(test) for test in tests])
        if i < last_exercise(lab):  # what comes later shows the functions at work
            names = execute(source(cell), names)
    return found


def last_exercise(lab: str) -> int:
    return max(i for i, cell in enumerate(cells(lab)) if about(cell).get("grade")) + 1


@cache
def loses(lab: str, exercise: str, solution: str) -> bool:
    """Whether a test of the exercise fails with this solution, or the solution itself does."""
    names, tests = exercises(lab)[exercise]
    try:
        names = execute(solution, names)
        for test in tests:
            execute(test, names)
    except Exception:
        return True
    return False


def changed(right: str, *changes: str) -> str:
    """A solution with other code: texts that stand in it once, each followed by what takes its place; or one text that
    takes the place of all of it."""
    code, (first, *rest) = textwrap.dedent(*SOLUTION.findall(right)), (text.strip("\n") for text in changes)
    if rest:
        new = dict(zip([first, *rest[1::2]], rest[::2], strict=True))
        assert all(code.count(old) == 1 for old in new), f"not once in the solution: one of {list(new)}"
        first = re.sub("|".join(map(re.escape, new)), lambda found: new[found[0]], code)
    return SOLUTION.sub(lambda _: textwrap.indent(first, "    "), right)


def test_labs_and_wrong_solutions_belong_together():
    assert set(WRONG) == set(labs.names()) and len(WRONG) >= 6
    for lab, wrong in WRONG.items():
        exercises = {about(cell)["grade_id"] for cell in cells(lab) if about(cell).get("solution")}
        assert set(wrong) == exercises and sum(map(len, wrong.values())) >= 8
        points = sum(about(cell).get("points", 0) for cell in cells(lab))
        assert points == POINTS, f"{lab} has {points} points; every lab has {POINTS}"


@pytest.mark.parametrize("lab", sorted(WRONG))
def test_a_cell_that_students_read_fits_on_the_screen(lab):
    read = [cell for cell in cells(lab) if not about(cell).get("grade")]
    longest = max(read, key=lambda cell: len(source(cell).splitlines()))
    assert len(source(longest).splitlines()) <= LINES, source(longest)


@pytest.mark.parametrize(
    ("lab", "exercise", "what", "changes"),
    [
        (lab, exercise, what, changes)
        for lab, wrong in sorted(WRONG.items())
        for exercise, each in wrong.items()
        for what, *changes in each
    ],
)
def test_a_wrong_solution_loses_marks(lab, exercise, what, changes):
    right = next(source(cell) for cell in cells(lab) if about(cell).get("grade_id") == exercise)
    wrong = changed(right, *changes)
    compile(wrong, "<cell>", "exec")  # a typing error of ours would cost marks too
    assert not loses(lab, exercise, right)
    assert loses(lab, exercise, wrong), what


# a course, from release to grades -------------------------------------------------------------------------------------


def submit(course: Path, student: str, lab: str, text: str) -> None:
    path = course / "submitted" / student / lab / f"{lab}.ipynb"
    path.parent.mkdir(parents=True)
    path.write_text(text)


def with_first_solution(released: str, code: str) -> str:
    """A released lab in which the first exercise is answered so."""
    notebook = json.loads(released)
    next(cell for cell in notebook["cells"] if about(cell).get("solution"))["source"] = code
    return json.dumps(notebook)


def without_marks(notebook: str) -> str:
    """As a program leaves it that keeps no metadata of cells."""
    loaded = json.loads(notebook)
    return json.dumps(loaded | {"cells": [cell | {"metadata": {}} for cell in loaded["cells"]]})


def with_accidents(solved: str) -> str:
    """A solved lab whose first answer is there twice, whose first test is gone, and whose last test is there twice."""
    notebook = json.loads(solved)
    answer = next(i for i, cell in enumerate(notebook["cells"]) if about(cell).get("solution"))
    last = max(i for i, cell in enumerate(notebook["cells"]) if about(cell).get("grade"))
    found = notebook["cells"]
    cells = [*found[: answer + 1], found[answer], *found[answer + 2 : last + 1], *found[last:]]
    return json.dumps(notebook | {"cells": [{k: v for k, v in cell.items() if k != "id"} for cell in cells]})


@pytest.fixture(scope="module")
def course(tmp_path_factory) -> Path:
    """All labs released; students who solved all of them, and nothing of the first."""
    folder = tmp_path_factory.mktemp("course")
    result = call("labs", "release", str(folder))
    assert result.exit_code == 0, result.output
    for lab in labs.names():
        submit(folder, "solver", lab, (labs.SOURCE / f"{lab}.ipynb").read_text())
    lab = labs.names()[0]
    submit(folder, "idler", lab, (folder / "release" / lab / f"{lab}.ipynb").read_text())
    return folder


@pytest.fixture(scope="module")
def grades(course) -> pd.DataFrame:
    result = call("labs", "grade", str(course))
    assert result.exit_code == 0, result.output
    return pd.read_csv(course / "points.csv", keep_default_na=False).set_index(["student", "lab"])


def test_a_file_is_no_folder_for_a_course(tmp_path):
    (tmp_path / "release").write_text("")
    for folder in (tmp_path, tmp_path / "release"):
        with pytest.raises(BadValue, match="folder = '.*/release' is not accepted; expected a folder"):
            labs.release(folder)


@pytest.mark.parametrize("lab", sorted(WRONG))
def test_a_released_lab_has_no_solution_and_no_hidden_test(course, lab):
    text = (course / "release" / lab / f"{lab}.ipynb").read_text()
    released = json.loads(text)
    shown = {line.strip() for cell in released["cells"] for line in "".join(cell["source"]).splitlines()}
    secrets = [found for cell in cells(lab) for what in (SOLUTION, HIDDEN) for found in what.findall(source(cell))]
    lines = {line.strip() for secret in secrets for line in secret.splitlines() if len(line.strip()) > 12}
    rest = [HIDDEN.sub("", SOLUTION.sub("", source(cell))) for cell in cells(lab)]
    given = {line.strip() for text in rest for line in text.splitlines()}
    assert len(secrets) >= 2 * len(exercises(lab)) and len(lines - given) > 50
    assert not (lines - given) & shown
    assert "### BEGIN" not in text and not any(cell.get("outputs") for cell in released["cells"])


@pytest.mark.parametrize("lab", sorted(WRONG))
def test_links_of_a_released_lab_lead_somewhere(course, lab):
    folder = course / "release" / lab
    links = re.findall(r"\]\(([^)#]+\.ipynb)", (folder / f"{lab}.ipynb").read_text())
    assert links and all((folder / link).is_file() for link in links)


@pytest.mark.parametrize("lab", sorted(WRONG))
def test_the_solution_gets_full_marks(grades, lab):
    assert grades.loc[("solver", lab)].tolist() == [POINTS, POINTS, ""]


def test_nothing_gets_none(grades):
    assert grades.loc[("idler", labs.names()[0])].tolist() == [0, POINTS, ""]


@pytest.mark.parametrize("lab", sorted(WRONG))
def test_no_test_passes_without_the_solution_of_its_exercise(lab):
    for names, tests in exercises(lab).values():
        for test in tests:
            with pytest.raises(NameError):
                execute(test, names)


@pytest.mark.parametrize("lab", sorted(WRONG))
def test_a_solved_lab_runs_without_errors_and_draws_its_figures(course, grades, lab):
    graded = json.loads((course / "autograded" / "solver" / lab / f"{lab}.ipynb").read_text())
    outputs = [output for cell in graded["cells"] for output in cell.get("outputs", ())]
    assert not [output for output in outputs if output["output_type"] == "error"]
    asked = sum("".join(cell["source"]).count("figures.show(") for cell in graded["cells"])
    assert sum("image/png" in output.get("data", {}) for output in outputs) == asked >= 1


def test_feedback_shows_what_was_lost(course, grades):
    lab = labs.names()[0]
    assert "NotImplementedError" in (course / "feedback" / "idler" / lab / f"{lab}.html").read_text()


def test_submissions_that_misbehave_cost_only_themselves_and_unchanged_ones_are_not_run_again(course, grades):
    """What reaches for the network, and notebooks with accidents; test_grading has more of them."""
    lab = labs.names()[0]
    released = (course / "release" / lab / f"{lab}.ipynb").read_text()
    before = {path: path.stat().st_mtime_ns for path in (course / "autograded").rglob("*.ipynb")}
    with socket.create_server(("127.0.0.1", 0)) as server:  # a stand-in for the internet: out of reach for students
        server.setblocking(False)
        port = server.getsockname()[1]
        submit(course, "caller", lab, with_first_solution(
            released, f"import socket; socket.create_connection(('127.0.0.1', {port}), 5)"
        ))  # fmt: skip
        submit(course, "unmarked", lab, without_marks(released))
        submit(course, "unlucky", lab, with_accidents((labs.SOURCE / f"{lab}.ipynb").read_text()))
        found = labs.grade(course, [lab], seconds=60).points.set_index("student")
        if sys.platform.startswith("linux"):
            with pytest.raises(BlockingIOError):
                server.accept()
    reached = found["points"][found["points"] > 0].to_dict()
    assert reached == {"solver": POINTS, "unlucky": POINTS} and len(found) == 5
    problems = found["problem"][found["problem"] != ""]
    assert list(problems.index) == ["unmarked"] and "mark" in problems["unmarked"]
    assert not (course / "feedback" / "unmarked").exists()
    kept = pd.read_csv(course / "points.csv").groupby("lab")["student"].nunique()
    assert kept[lab] == 5 and all(kept[other] == 1 for other in labs.names()[1:])  # other labs' rows are kept
    assert all(path.stat().st_mtime_ns == before[path] for path in before)


def test_a_graded_lab_is_not_released_again_with_other_exercises(course, grades, tmp_path, monkeypatch):
    lab = labs.names()[0]
    released = course / "release" / lab / f"{lab}.ipynb"
    before = released.read_text()
    monkeypatch.setattr(labs, "SOURCE", tmp_path)
    (tmp_path / f"{lab}.ipynb").write_text(
        before.replace('"test_accuracies"', '"test_means"')  # grade_id of a test
    )
    with pytest.raises(FedlibError, match="exercises or tests now .test_accuracies, test_means.: release it to"):
        labs.release(course, [lab])
    assert released.read_text() == before


@pytest.mark.parametrize(
    ("log", "said"),
    [("[INFO] x\nValueError: no  good\n[ERROR] y", "ValueError: no good"), ("a\nb\n", "b"), ("", "no reason given")],
)
def test_why_a_submission_was_not_graded_is_one_line(log, said):
    assert labs.explained(log).startswith(said) and "\n" not in labs.explained(log)


def test_a_test_that_is_missing_comes_back_where_it_was_and_strange_marks_go():
    from fedlib.lessons.whole import made_whole, mark

    def cell(name="", grade=False):
        return {"source": name, "metadata": {"nbgrader": {"grade_id": name, "grade": grade}} if name else {}}

    released = [cell("a"), cell("test_a", True), cell("b"), cell("test_b", True)]
    submitted = [cell("a"), cell("old"), cell(), cell("b"), cell(), cell("a")]
    assert [mark(c) for c in made_whole(submitted, released)] == ["", "", "", "test_a", "b", "", "a", "test_b"]
    assert [mark(c) for c in made_whole([cell("a"), cell()], released)] == ["a", "test_a", "test_b", ""]
    assert mark(submitted[0]) == "a"  # what was submitted stays as it is


def test_labs_bad_input(tmp_path, monkeypatch):
    with pytest.raises(BadValue, match="lab1"):
        labs.release(tmp_path, ["lab1"])
    with pytest.raises(FedlibError, match="no lab was released"):
        labs.grade(tmp_path)
    with pytest.raises(FedlibError, match=f"{labs.names()[1]} was not released"):
        labs.grade(tmp_path, [labs.names()[1]])
    for folder in ("release", "source"):
        (tmp_path / folder / (lab := labs.names()[0])).mkdir(parents=True)
        (tmp_path / folder / lab / f"{lab}.ipynb").write_text((labs.SOURCE / f"{lab}.ipynb").read_text())
    with pytest.raises(FedlibError, match="nothing to grade"):
        labs.grade(tmp_path)
    with pytest.raises(FedlibError, match="seconds"):
        labs.grade(tmp_path, seconds=0)
    monkeypatch.setitem(sys.modules, "nbgrader.apps", None)
    result = call("labs", "release", str(tmp_path))
    assert result.exit_code == 2 and "teach" in result.output


def test_a_grading_process_ends_with_all_that_it_has_started(monkeypatch, tmp_path):
    program = tmp_path / "python"  # in place of the one that runs notebooks: it starts another process, and waits
    program.write_text(f"#!/bin/sh\nsleep 10000 & echo $! > {tmp_path}/started\nwait\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    assert sandbox.run({"scratch": str(tmp_path)}, 2) == {"problem": "stopped after 2 s"}
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(int((tmp_path / "started").read_text())).wait(timeout=60)
