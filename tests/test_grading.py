"""Grading a class: what students and platforms hand in, and what code does that should not. One small lab stands for
all of them; `test_labs` grades the real ones."""

from __future__ import annotations

import json
import os
import shutil
import sys
import zipfile
from pathlib import Path

import nbformat
import numpy as np
import pandas as pd
import pytest
import torch
from filelock import FileLock
from helpers import call

from fedlib.base.errors import FedlibError
from fedlib.lessons import export, labs, sandbox
from fedlib.lessons.collect import collected
from fedlib.lessons.feedback import LINES, Page, finished, tidied
from fedlib.lessons.sandbox import OUTPUT
from fedlib.lessons.whole import FALSE, canary, mark, read, without_canaries

LAB = "lab1_small"
SHUT = sys.platform.startswith("linux") and hasattr(os, "fork")
DOUBLE, HALF = "def double(x):\n    return 2 * x", "def half(x):\n    return x / 2"
NOTHING = "raise NotImplementedError()"


def marked(source: str, name: str, points: int = 0) -> dict:
    about = {"grade_id": name, "grade": bool(points), "solution": not points, "locked": bool(points), "task": False}
    about |= {"schema_version": 3} | ({"points": points} if points else {})
    return nbformat.v4.new_code_cell(source, metadata={"nbgrader": about})


def lab(double: str = DOUBLE, half: str = HALF, before: str = "", **metadata: object) -> dict:
    """The small lab: two exercises of 3 and 2 points."""
    return nbformat.v4.new_notebook(
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}, **metadata},
        cells=[
            nbformat.v4.new_markdown_cell("# A small lab: $x^2$"),
            nbformat.v4.new_code_cell(f"import numpy as np\n{before}"),
            marked(f"### BEGIN SOLUTION\n{double}\n### END SOLUTION", "double"),
            marked(
                "assert np.allclose(double(1.0), 2.0)\n### BEGIN HIDDEN TESTS\nassert np.allclose(double(3.0), 6.0)\n"
                "### END HIDDEN TESTS",
                "test_double",
                3,
            ),
            marked(f"### BEGIN SOLUTION\n{half}\n### END SOLUTION", "half"),
            marked("assert half(4) == 2", "test_half", 2),
        ],
    )


def put(folder: Path, place: str, notebook: dict | str) -> Path:
    path = folder / "submitted" / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(notebook if isinstance(notebook, str) else json.dumps(notebook))
    return path


def made_course(folder: Path) -> Path:
    (folder / "labs").mkdir(parents=True)
    (folder / "labs" / f"{LAB}.ipynb").write_text(json.dumps(lab()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(labs, "SOURCE", folder / "labs")
        labs.release(folder / "course")
    return folder / "course"


@pytest.fixture(scope="module")
def released(tmp_path_factory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(labs, "names", lambda: (LAB,))
        return made_course(tmp_path_factory.mktemp("released"))


@pytest.fixture
def small(monkeypatch, tmp_path, released) -> Path:
    """A course to which the small lab was released, and nothing submitted."""
    monkeypatch.setattr(labs, "names", lambda: (LAB,))
    return Path(shutil.copytree(released, tmp_path / "course"))


NO_ASSERTS = """import ast
class Gone(ast.NodeTransformer):
    def visit_Assert(self, node):
        return ast.copy_location(ast.Pass(), node)
get_ipython().ast_transformers.append(Gone())"""
NO_DEBUG = """import builtins
compiles = builtins.compile
builtins.compile = lambda *values, **named: compiles(*values, **(named | {"optimize": 1}))"""
CAUGHT = "a test that must fail has passed"
COLAB = {"widgets": {"application/vnd.jupyter.widget-state+json": {"abc": {"model_name": "HTMLModel"}}}}


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    """A class in all layouts, graded once: the course, the grades, and what was printed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(labs, "names", lambda: (LAB,))
        course = made_course(tmp_path_factory.mktemp("class"))
        colab = lab(**COLAB)
        for cell in colab["cells"]:
            cell["metadata"]["tags"] = ["skip-execution"]
        put(course, "Müller Anna_123_assignsubmission_file_/Lab 1 final.ipynb", colab)
        put(course, "mulleranna_LATE_12345_67890_lab1-1.ipynb", lab(half=NOTHING))
        put(course, "lab1 - Ben.ipynb", lab())
        put(course, f"Zoë [b] *  /{LAB}/{LAB} (1).ipynb", lab(double=NOTHING, half=NOTHING))
        skips = lab(double=NOTHING, half=NOTHING)
        for cell in skips["cells"]:
            cell["metadata"]["tags"] = ["skip-execution"]
        put(course, f"skips/{LAB}/{LAB}.ipynb", skips)
        put(course, f"transforms/{LAB}/{LAB}.ipynb", lab(NOTHING, NOTHING, NO_ASSERTS))
        only_once = NO_ASSERTS + "\n" + NOTHING
        after = "get_ipython().ast_transformers.clear()\n" + HALF
        put(course, f"transforms once/{LAB}/{LAB}.ipynb", lab(only_once, after))
        yes = "np.allclose = lambda *a, **k: True\ndef double(x): return 0"
        put(course, f"optimizes/{LAB}/{LAB}.ipynb", lab(NOTHING, NOTHING, NO_DEBUG))
        put(course, f"replaces/{LAB}/{LAB}.ipynb", lab(yes))
        put(course, f"exits/{LAB}/{LAB}.ipynb", lab("import sys\ndef double(x): sys.exit(0)"))
        put(course, f"loops/{LAB}/{LAB}.ipynb", lab("def double(x):\n    while True: pass"))
        put(course, f"ends/{LAB}/{LAB}.ipynb", lab("import os\nos._exit(0)"))
        put(course, f"kills/{LAB}/{LAB}.ipynb", lab("import os\nos.kill(os.getppid(), 9)"))
        put(course, f"prints/{LAB}/{LAB}.ipynb", lab(before=f"while True: print('y' * {OUTPUT // 50})"))
        put(
            course,
            f"warns/{LAB}/{LAB}.ipynb",
            lab("import warnings\ndef double(x):\n    warnings.warn('x'); return 2 * x"),
        )
        put(course, f"writes/{LAB}/{LAB}.ipynb", lab(before=f"open({str(course / 'points.csv')!r}, 'w').write('1')"))
        put(course, f"imports/{LAB}/{LAB}.ipynb", lab("from mine import double"))
        put(course, f"imports/{LAB}/mine.py", DOUBLE)
        put(course, f"blocked/{LAB}/{LAB}.ipynb", lab())
        (course / "autograded").mkdir()
        (course / "autograded" / "blocked").write_text("a file where a folder should be")
        put(course, f"damaged/{LAB}/{LAB}.ipynb", "{")
        put(course, f"twice/{LAB}/a.ipynb", lab())
        put(course, f"twice/{LAB}/b.ipynb", lab(NOTHING))
        for strange in (f"filed/{LAB}", f"{LAB}.ipynb", "lab1 - Cem.pdf", "other/x.ipynb"):
            put(course, strange, json.dumps(nbformat.v4.new_notebook()) if "other" in strange else json.dumps(lab()))
        for system in (".DS_Store", "__MACOSX/._lab1 - Ben.ipynb", f"exits/{LAB}/.ipynb_checkpoints/{LAB}.ipynb"):
            put(course, system, "")
        result = call("labs", "grade", str(course), "--seconds", "20")
        assert result.exit_code == 1, result.output
        yield course, pd.read_csv(course / "points.csv", keep_default_na=False).set_index("student"), result.output


def test_every_layout_is_understood_and_what_a_program_left_costs_nothing(graded):
    points = graded[1]["points"]
    right = {"Müller Anna": 5, "Ben": 5, "mulleranna": 3, "Zoë (b) _": 0, "skips": 0, "imports": 5}
    assert points[list(right)].to_dict() == right


def test_every_file_that_is_not_understood_is_named_and_counted(graded):
    said = graded[2].splitlines()
    first = said.index("4 files in submitted/ were not graded:")
    lines = dict(line.split(": ", 1) for line in said[first + 1 : first + 5])
    assert set(lines) == {f"filed/{LAB}", f"{LAB}.ipynb", "lab1 - Cem.pdf", "other/x.ipynb"}
    assert lines[f"{LAB}.ipynb"].startswith("whose is it?") and lines["other/x.ipynb"].startswith("it is of none")


@pytest.mark.parametrize(
    ("student", "points", "problem"),
    [
        ("transforms", 0, CAUGHT),
        ("transforms once", 0, CAUGHT),
        ("optimizes", 0, CAUGHT),
        ("replaces", 0, CAUGHT),
        ("exits", 2, ""),
        ("loops", 2, ""),
        ("ends", 0, "Python itself ended"),
        ("kills", 0, "ended with status"),
        ("prints", 5, ""),
        ("warns", 5, ""),
        ("blocked", 0, "Error: "),
        ("damaged", 0, "not a Jupyter notebook"),
        ("twice", 0, "several notebooks, keep one: a.ipynb, b.ipynb"),
    ],
)
def test_what_a_submission_does_costs_that_submission_only(graded, student, points, problem):
    row = graded[1].loc[student]
    assert row["points"] == points and problem in row["problem"] and bool(problem) == bool(row["problem"])


@pytest.mark.skipif(not SHUT, reason="needs Linux's namespaces")
def test_student_code_writes_nothing_outside_of_its_own_folder(graded):
    course, points, said = graded
    # its cell failed, and its answers are right
    assert "cannot be shut in" in said or points.loc["writes", "problem"] == ""
    assert points.loc["writes", "points"] in (0, 5) and len(points) == 20


def test_the_exercise_that_cost_most_is_said_and_pages_are_short(graded):
    course, _, said = graded
    assert f"{LAB}: double cost most, " in said
    page = (course / "feedback" / "prints" / LAB / f"{LAB}.html").read_text()
    assert "OutputLimitError" in page and "<script" not in page and len(page) < 500_000
    assert '<a href="#test_double">double</a>' in page and "<math" in page and "Test cell" not in page
    assert not (course / "feedback" / "transforms").exists()


def test_a_page_says_whose_it_is_and_goes_back_as_the_platform_wants_it(graded):
    course = graded[0]
    assert f"<h4>Müller Anna: {LAB} (Score: 5.0" in (course / f"feedback/Müller Anna/{LAB}/{LAB}.html").read_text()
    with zipfile.ZipFile(course / "feedback" / f"{LAB}.zip") as archive:
        names = archive.namelist()
    assert {
        f"Müller Anna_123_assignsubmission_file/{LAB}.html",
        f"mulleranna_LATE_12345_67890_{LAB}.html",
        f"Zoë (b) _/{LAB}.html",
    } < set(names)
    assert len(names) == len(list((course / "feedback").glob("*/*/*.html")))


def test_students_whom_a_platform_does_not_know_are_counted_and_named(graded):
    said = [line for line in graded[2].splitlines() if "will not take" in line]
    assert said[0] == (
        "Moodle will not take the points of 20 of 20 students: no ID number or Email address in moodle.csv, "
        "for students.csv is missing"
    )
    assert said[1].startswith("Canvas will not take the points of 19 of 20 students: no ID or SIS User ID or SIS Login")
    assert ": Ben, Müller Anna, " in said[1] and "mulleranna" not in said[1] and len(said) == 2


def test_exports_have_a_row_a_student_and_a_column_an_exercise(graded):
    course = graded[0]
    assert all((course / f"{name}.csv").read_bytes().startswith(b"\xef\xbb\xbf") for name in ("canvas", "moodle"))
    canvas = pd.read_csv(course / "canvas.csv", dtype=str, keep_default_na=False)
    columns = [*export.CANVAS, LAB, f"{LAB}: double", f"{LAB}: half"]
    assert list(canvas) == columns and len(canvas) == 21
    assert canvas.iloc[0].tolist() == ["    Points Possible", "", "", "", "", "5.0", "3.0", "2.0"]
    row = canvas[canvas["Student"] == "mulleranna"].iloc[0]
    assert row.tolist() == ["mulleranna", "12345", "", "", "", "3.0", "3.0", "0.0"]


# an unchanged submission, tables, two gradings at once ----------------------------------------------------------------


def test_a_corrected_notebook_is_graded_again_whatever_its_time_stamp(small, monkeypatch):
    path = put(small, f"a/{LAB}/{LAB}.ipynb", lab(half=NOTHING))
    put(small, f"b/{LAB}/{LAB}.ipynb", lab())
    assert labs.grade(small).points["points"].tolist() == [3, 5]
    path.write_text(json.dumps(lab()))
    os.utime(path, (0, 0))
    found = labs.grade(small)
    assert found.points["points"].tolist() == [5, 5] and found.unchanged == 1
    os.utime(path)  # a new time stamp alone runs nothing
    monkeypatch.setattr(sandbox, "run", None)
    assert labs.grade(small).unchanged == 2


@pytest.fixture
def nothing_runs(small, monkeypatch) -> Path:
    """A course with one submission, in which code must not run."""
    put(small, f"a/{LAB}/{LAB}.ipynb", "{")
    monkeypatch.setattr(sandbox, "run", None)
    return small


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "no column 'student'"),
        (b"hello", "no column 'student'"),
        (b"student,lab,points,of,problem\na,b,many,5,\n", "'many' in its column 'points'"),
        (b"student,lab,points,of,problem\na,b,3\n", "has 3 of 5 columns"),
        (b"\x00\xff\x81\n", "not a table of texts"),
    ],
)
def test_a_damaged_table_is_said_before_anything_runs(nothing_runs, content, said):
    (nothing_runs / "points.csv").write_bytes(content)
    with pytest.raises(FedlibError, match=r"points\.csv cannot be read") as error:
        labs.grade(nothing_runs)
    assert said in str(error.value) and "\n" not in str(error.value)
    assert (nothing_runs / "points.csv").read_bytes() == content


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_a_table_that_a_spreadsheet_saved_is_read(nothing_runs, separator, encoding):
    rows = ["student,lab,points,of,problem", 'Zoë,lab0_old,"2.5",5,']
    text = "\r\n".join(rows).replace(",", separator)
    (nothing_runs / "points.csv").write_bytes(text.replace("2.5", "2,5").encode(encoding))
    labs.grade(nothing_runs)
    table = pd.read_csv(nothing_runs / "points.csv", keep_default_na=False)
    assert table[table["lab"] == "lab0_old"].values.tolist() == [["Zoë", "lab0_old", 2.5, 5.0, ""]]


def test_a_damaged_gradebook_is_said_before_anything_runs(nothing_runs):
    (nothing_runs / "gradebook.db").write_bytes(b"no data base" * 100)
    with pytest.raises(FedlibError, match=r"gradebook\.db cannot be read"):
        labs.grade(nothing_runs)
    (nothing_runs / "gradebook.db").unlink()
    with pytest.raises(FedlibError, match="does not know lab1_small: release it again"):
        labs.grade(nothing_runs)


def test_a_second_grading_of_a_course_waits_outside(nothing_runs):
    with FileLock(nothing_runs / ".lock"), pytest.raises(FedlibError, match="another process: wait"):
        labs.grade(nothing_runs)


def test_tampering_is_found_where_code_cannot_be_shut_in(small, monkeypatch):
    run = sandbox.run
    refuses = lambda task, seconds: run(task, seconds) if "notebook" in task else {"problem": "refused"}  # noqa: E731
    monkeypatch.setattr(sandbox, "run", refuses)
    put(small, f"a/{LAB}/{LAB}.ipynb", lab(before=f"open({str(small / 'points.csv')!r}, 'w').write('a,5')"))
    assert labs.grade(small).points["problem"].tolist() == [
        "files of the course have changed while its code ran, look at them: points.csv"
    ]
    assert pd.read_csv(small / "points.csv")["points"].tolist() == [0]


def test_a_moodle_table_takes_addresses_from_the_list_of_participants(tmp_path):
    (tmp_path / "students.csv").write_bytes(
        "First name;Last name;ID number;Email address\nAnna;Müller;s1;a@x.org\nBen;Ott;s2;b@x.org".encode("cp1252")
    )
    points = pd.DataFrame([["Muller Anna", "lab1_a", 4.0, 5.0]], columns=["student", "lab", "points", "of"])
    parts = pd.DataFrame(
        [["Muller Anna", "lab1_a", "z", 3.0, 3.0], ["Muller Anna", "lab1_a", "b", 1.0, 2.0]],
        columns=["student", "lab", "exercise", "points", "of"],
    )
    assert export.write_exports(tmp_path, points, parts) == []
    table = pd.read_csv(tmp_path / "moodle.csv")
    assert list(table) == ["Full name", "ID number", "Email address", "lab1_a", "lab1_a: z", "lab1_a: b"]
    assert table.values.tolist() == [["Muller Anna", "s1", "a@x.org", 4.0, 3.0, 1.0]]
    two = pd.concat([points, points.assign(student="Cem Öz")])
    assert export.write_exports(tmp_path, two, parts) == [
        "Moodle will not take the points of 1 of 2 students: no ID number or Email address in moodle.csv, "
        "for students.csv does not know them: Cem Öz"
    ]
    assert export.costliest(points.assign(problem="stopped"), parts) == []
    assert export.costliest(points.assign(problem=""), parts) == [
        "lab1_a: b cost most, 1.0 of 2 points on average over 1 students"
    ]


# parts ----------------------------------------------------------------------------------------------------------------

ONE = {LAB: {"double", "test_double"}, "lab2_other": {"other"}}


@pytest.mark.parametrize(
    ("place", "student", "of"),
    [
        (f"anna/{LAB}/{LAB}.ipynb", "anna", LAB),
        (f"week 1/anna/{LAB}/x.ipynb", "anna", LAB),
        ("lab1/anna/x.ipynb", "anna", LAB),
        ("anna/x.ipynb", "anna", LAB),
        ("Mu\u0308ller  Anna _9_assignsubmission_file/sub/x.ipynb", "Müller Anna", LAB),
        ("Müller Anna_9_assignsubmission_file_lab1.ipynb", "Müller Anna", LAB),
        ("FL-Lab-77/Müller Anna_9_assignsubmission_file_/lab1.ipynb", "Müller Anna", LAB),
        ("Müller Anna_9_assignsubmission_file/hw_2026_11_26.ipynb", "Müller Anna", LAB),
        ("Participant_87_assignsubmission_file/x.ipynb", "Participant 87", LAB),  # anonymous
        ("mulleranna_12_34_lab1-2.ipynb", "mulleranna", LAB),
        ("mulleranna_LATE_12_34_Untitled.ipynb", "mulleranna", LAB),
        (f"student1_101_9001_{LAB}.ipynb", "student1", LAB),
        (f"{LAB}_anna.ipynb", "anna", LAB),
        ("Anna Müller - Lab 01.ipynb.json", "Anna Müller", LAB),
        ("lab1_x.ipynb", "x", LAB),
        ("lab1 - Anna (2).IPYNB", "Anna", LAB),
        ("lab2/anna.ipynb", "anna", "lab2_other"),  # the folder says what the marks do not
    ],
)
def test_whose_and_which_lab(tmp_path, place, student, of):
    put(tmp_path, place, lab())
    (found,), strange = collected(tmp_path / "submitted", ONE)
    assert (found.student, found.lab, strange) == (student, of, [])


def test_what_lies_beside_a_notebook_is_used_or_named(tmp_path):
    for place in ("anna/mine.py", "anna/lab2.zip", "anna/report.pdf", " ../x.py"):
        put(tmp_path, place, "x")
    put(tmp_path, "anna/lab1.ipynb", lab())
    put(tmp_path, " ../lab1.ipynb", lab())
    os.mkfifo(tmp_path / "submitted" / "anna" / "pipe.py")
    os.symlink("nowhere", tmp_path / "submitted" / "anna" / "lab2.ipynb")
    (found,), strange = collected(tmp_path / "submitted", ONE)
    assert [path.name for path in found.beside] == ["mine.py"] and found.student == "anna"
    said = dict(line.split(": ", 1) for line in strange)
    assert said["anna/lab2.zip"] == "unpack it" and said["anna/pipe.py"] == "it is no ordinary file"
    assert set(said) == {
        " ../lab1.ipynb",
        " ../x.py",
        *(f"anna/{x}" for x in ["lab2.ipynb", "lab2.zip", "pipe.py", "report.pdf"]),
    }


def test_two_people_of_one_name_are_told_apart_and_copies_are_one(tmp_path):
    put(tmp_path, "Kim Lee_1_assignsubmission_file_/lab1.ipynb", lab())
    put(tmp_path, "Kim Lee_2_assignsubmission_file_/lab1.ipynb", lab(NOTHING))
    put(tmp_path, "copy/a.ipynb", content := json.dumps(lab()))
    put(tmp_path, "copy/b.ipynb", content)
    put(tmp_path, f"late/{LAB}.ipynb", lab())
    put(tmp_path, f"late/{LAB}_v2.ipynb", lab(NOTHING))
    found, strange = collected(tmp_path / "submitted", ONE)
    assert [one.student for one in found] == ["Kim Lee (1)", "Kim Lee (2)", "copy", "late"]
    assert strange == [f"late/{LAB}_v2.ipynb: another one beside it, called as the lab is, was graded"]
    assert not any(one.problem for one in found)


def test_a_notebook_is_read_without_what_programs_leave_in_it():
    notebook = lab(**COLAB)
    notebook["cells"][2]["metadata"] |= {"tags": ["skip-execution"], "id": 1, "colab": {"x": None}}
    notebook["cells"][1] |= {"outputs": [{"output_type": "strange"}], "execution_count": "many"}
    cells = read(b"\xef\xbb\xbf" + json.dumps(notebook).encode())
    assert [mark(cell) for cell in cells] == ["", "", "double", "test_double", "half", "test_half"]
    assert cells[2]["metadata"] == {"nbgrader": {"grade_id": "double"}} and cells[1]["outputs"] == []
    for damaged in (b"", b"[]", b"{}", b'{"cells": 1}', b"\xff\xfe\x00", json.dumps({"cells": [{}]}).encode()):
        with pytest.raises(ValueError, match="not a Jupyter notebook"):
            read(damaged)


@pytest.mark.parametrize("claim", FALSE)
def test_a_canary_claims_what_is_false(claim):
    with pytest.raises(AssertionError):
        assert eval(claim, {"np": np, "torch": torch})


@pytest.mark.parametrize("changed", [{}, {"all": lambda _: True}, {"abs": 3}, {"isinstance": lambda *_: True}])
def test_a_canary_passes_only_if_a_function_says_yes_to_everything(changed):
    names = {"np": np, "torch": torch, **changed}
    if any(map(callable, changed.values())):
        exec(canary()["source"], names)
    else:
        with pytest.raises(AssertionError):
            exec(canary()["source"], names)


def test_canaries_go_and_one_that_passed_is_noticed():
    bad, good = canary(), canary()
    good["outputs"] = [nbformat.v4.new_output("error", ename="AssertionError", evalue="", traceback=[])]
    assert without_canaries([good]) == ([], True) and without_canaries([good, bad]) == ([], False)


def test_long_outputs_are_cut_and_what_runs_in_browsers_goes():
    cell = nbformat.v4.new_code_cell("x")
    data = {"text/plain": "9" * 10_000, "text/html": "<p>\n" * 900, "application/javascript": "x", "image/png": "iVBO"}
    cell["outputs"] = [
        nbformat.v4.new_output("stream", name="stdout", text="\n".join(map(str, range(10_000)))),
        nbformat.v4.new_output("display_data", data=data),
    ]
    stream, shown = tidied(cell)["outputs"]
    assert len(stream["text"].splitlines()) == LINES + 1 and "9940 lines are left out" in stream["text"]
    assert set(shown["data"]) == {"text/plain", "image/png"} and len(shown["data"]["text/plain"]) < 600


@pytest.mark.parametrize(
    ("formula", "shown"),
    [
        ("$x^2$", "<math"),
        (r"$\strange{x}$", "<code>\\strange"),
        ("$$a$$", "<math"),
        ("$(-2)$", '<mo form="prefix">&#x02212;</mo>'),  # a sign
        ("$a-2$", "<mo>&#x02212;</mo>"),
        (r"$\hat y\overline{e\,v}$", 'border-top: 0.06em solid; padding-top: 0.1em"><mi>e</mi>'),  # a bar over both
    ],
)
def test_formulas_need_no_script_and_none_breaks_the_page(formula, shown):
    page = Page(template_name="basic").markdown2html(None, f"a {formula} <script src='https://x'></script>")
    assert shown in page and "<script" not in finished(page, {}, "Anna")
