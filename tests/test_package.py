"""What is installed: the wheel's files, the folder that it lays out, the command line as others find it."""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
import zipfile
from email import message_from_string
from pathlib import Path

import nbformat
import pytest

import fedlib
from fedlib.base import files, provenance
from fedlib.base.errors import BadValue, FedlibError
from fedlib.base.files import CHECKOUT
from fedlib.experiments import OpenItem, find
from fedlib.reports import notebooks as batch
from fedlib.reports import working_folder

PACKAGED = CHECKOUT / "pyproject.toml"
CI = CHECKOUT / ".ci" / "run"
BUILD = CHECKOUT / ".build" / "fedlib_build.py"
BUILD_IT = "import sys; sys.path.insert(0, '.build'); import fedlib_build; fedlib_build.build_wheel(sys.argv[1])"
LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)")
MEGABYTES = 40  # of a wheel at most: who only wants the methods downloads the results, too


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """The wheel, built without the network; nothing is written to the checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    done = subprocess.run([sys.executable, "-c", BUILD_IT, str(folder)], cwd=CHECKOUT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    (path,) = folder.iterdir()
    return path


@pytest.fixture(scope="module")
def installed(wheel) -> Path:
    """The folder of an environment's packages, with fedlib from the wheel."""
    folder = wheel.parent / "packages"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def call(installed: Path, folder: Path, *words: str) -> subprocess.CompletedProcess:
    """A command of the installed fedlib, given in a folder."""
    environment = {name: value for name, value in os.environ.items() if name != "FEDLIB_HOME"}
    environment["PYTHONPATH"] = str(installed)
    return subprocess.run(
        [sys.executable, "-m", "fedlib", *words], cwd=folder, env=environment, capture_output=True, text=True
    )


# the wheel ------------------------------------------------------------------------------------------------------------


def test_the_wheel_has_what_the_project_has_and_nothing_of_a_users_own(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if not name.startswith("fedlib-")}
    build = runpy.run_path(str(BUILD))
    every = build["project_files"](CHECKOUT)
    shipped = [path for path in every if path.suffix in build["KINDS"].get(path.parts[0], ())]
    package = [path for path in every if path.parts[0] == "fedlib"]
    assert names - {build["COMMIT"].as_posix()} == {
        *(f"fedlib/shipped/{path.as_posix()}" for path in shipped), *(path.as_posix() for path in package)
    }  # fmt: skip
    assert {"fedlib/py.typed", "fedlib/models/fused/network.cpp"} <= names
    for kept in ("notebooks/lessons/02_fedavg_by_hand.ipynb", "results/quick/pfedsim/table6_rho.compare.csv",
                 "results/constraints.txt", "figures/quick/pfedsim/table6_rho.png"):  # fmt: skip
        assert f"fedlib/shipped/{kept}" in names
    assert not [name for name in names if re.search(r"conftest|/own/|__pycache__|checkpoints|quick/runs|^tests", name)]
    assert wheel.stat().st_size < MEGABYTES * 2**20


def test_the_metadata_is_complete_and_invents_nothing(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        about = message_from_string(archive.read(name).decode())
    assert about["Version"] == fedlib.__version__ and about["License-Expression"] == "MIT"
    assert set(about.get_all("Provides-Extra")) == {"attack", "cluster", "hf", "site", "teach", "test"}
    always = [text for text in about.get_all("Requires-Dist") if "extra ==" not in text]
    assert len(always) > 10 and not [text for text in always if re.match("stlpips|torchsummary", text)]
    assert about.get_all("Project-URL") is None  # nobody knows one yet


def test_only_what_git_does_not_ignore_is_packed(tmp_path):
    project_files = runpy.run_path(str(BUILD))["project_files"]
    for name in ("pyproject.toml", "results/quick/a.csv", "results/own/a.csv", "fedlib/new.py", "diary.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / ".gitignore").write_text("results/own/\n")
    known = {"pyproject.toml", "results/quick/a.csv", "results/own/a.csv", "fedlib/new.py"}
    assert {path.as_posix() for path in project_files(tmp_path)} == known  # an unpacked archive: known places
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    found = {path.as_posix() for path in project_files(tmp_path)}
    assert found == known - {"results/own/a.csv"} | {"diary.txt", ".gitignore"}


# a folder to work in --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(installed, tmp_path_factory) -> Path:
    """What `fedlib report --notebooks DIR` makes, of a folder with a hidden file."""
    place = tmp_path_factory.mktemp("somewhere")
    (place / "work").mkdir()
    (place / "work" / ".venv").touch()
    done = call(installed, place, "report", "--notebooks", "work")
    assert done.returncode == 0, done.stderr
    guide = place / "work/notebooks/guides/start_here.ipynb"
    assert f"begin with {guide}\njupyter lab --ServerApp.root_dir={place / 'work'} {guide}\n" in done.stdout
    return place / "work"


def texts(path: Path, kind: str) -> str:
    return "\n".join(cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == kind)


def test_all_notebooks_are_copied_and_their_links_lead_somewhere(folder):
    names = {path.relative_to(folder).as_posix() for path in (folder / "notebooks").rglob("*") if path.is_file()}
    assert names == {path.relative_to(CHECKOUT).as_posix() for path in (CHECKOUT / "notebooks").rglob("*.ipynb")
                     if ".ipynb_checkpoints" not in path.parts}  # fmt: skip
    links = [(path, link) for path in (folder / "notebooks").rglob("*.ipynb")
             for link in LINK.findall(texts(path, "markdown"))]  # fmt: skip
    assert len(links) > 200 and not [(path.name, link) for path, link in links if not (path.parent / link).exists()]
    assert "one file, such as `fedlib/algorithms/fedper.py`" in texts(
        folder / "notebooks/guides/start_here.ipynb", "markdown"
    )
    assert not list(folder.glob(".fedlib-*")) and (folder / ".fedlib").read_text() == f"{fedlib.__version__}\n"


def test_jupyter_opens_the_project_and_not_a_files_folder_from_which_links_lead_nowhere():
    pages = [CHECKOUT / "README.md", *(CHECKOUT / "notebooks").rglob("*.ipynb")]
    commands = [line for page in pages for line in page.read_text().split("\n") if "jupyter lab " in line]
    assert commands and all("jupyter lab --ServerApp.root_dir=. notebooks/" in line for line in commands)


def test_labs_are_copied_without_solutions(folder):
    labs = sorted((folder / "notebooks/labs").glob("lab*.ipynb"))
    assert len(labs) == 6
    for path in labs:
        code = texts(path, "code")
        assert "raise NotImplementedError()" in code and "SOLUTION" not in code and "HIDDEN TESTS" not in code
    assert "### BEGIN SOLUTION" in texts(CHECKOUT / f"notebooks/labs/{labs[0].name}", "code")


def test_the_main_job_runs_in_an_empty_folder_with_its_notebook(installed, tmp_path):
    name = "pfedsim/fig2_classifier_similarity"
    done = call(installed, tmp_path, "reproduce", name, "--profile", "smoke", "--jobs", "1")
    assert done.returncode == 0, done.stderr[-2000:]
    assert f"are now in {tmp_path}\n" in done.stderr
    assert (tmp_path / f"figures/own/smoke/{name}.png").exists()
    shown = (tmp_path / f"results/own/smoke/notebooks/{name}.ipynb").read_text("utf-8")
    assert "5 of 5 runs of profile paper are stored" in shown and '"output_type": "error"' not in shown
    summary = json.loads((tmp_path / f"results/own/smoke/{name}.json").read_text())
    assert {origin["commit"] for origin in summary["provenance"]} == {provenance.commit()[0]}


def test_the_main_job_leaves_a_folder_with_other_files_alone(installed, tmp_path):
    (tmp_path / "thesis.tex").touch()
    done = call(installed, tmp_path, "reproduce", "pfedsim/fig3_partitions", "--profile", "smoke")
    assert done.returncode == 2 and os.listdir(tmp_path) == ["thesis.tex"]
    assert done.stderr == f"error: {tmp_path} has other files: thesis.tex; expected a folder that is new or empty\n"


@pytest.fixture
def shipped(tmp_path, monkeypatch) -> Path:
    """What comes with an installed fedlib that has one item only."""
    place = tmp_path / "shipped"
    for name in ("notebooks/pfedsim/fig1_cka.ipynb", "results/scoreboard.md", "figures/quick/pfedsim/fig1_cka.png"):
        (place / name).parent.mkdir(parents=True)
        shutil.copy(CHECKOUT / name, place / name)
    for module in (files, working_folder):
        monkeypatch.setattr(module, "SHIPPED", place)
    monkeypatch.setattr(working_folder, "names", lambda: ["pfedsim/fig1_cka"])
    return place


def spoil(path: Path, how: str) -> None:
    if how == "gone":
        shutil.rmtree(path.parents[1])
    elif how == "one gone":
        path.unlink()
    else:
        path.write_text({"cut": path.read_text()[:1000], "other": "[1, 2]"}[how])


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("gone", "the notebooks that come with fedlib are missing, there is no .*notebooks: install it again"),
        ("one gone", "notebooks that come with fedlib are missing: pfedsim/fig1_cka; install it again"),
        ("cut", "fig1_cka.ipynb is damaged .*: install fedlib again"),
        ("other", "fig1_cka.ipynb is damaged .*: install fedlib again"),
    ],
)
def test_missing_and_damaged_notebooks_are_said_and_nothing_is_written(shipped, tmp_path, how, said):
    spoil(shipped / "notebooks/pfedsim/fig1_cka.ipynb", how)
    with pytest.raises(FedlibError, match=said):
        working_folder.lay_out(tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("how", ["gone", "one gone", "cut", "other"])
def test_the_main_job_goes_on_without_a_notebook(shipped, tmp_path, how):
    spoil(shipped / "notebooks/pfedsim/fig1_cka.ipynb", how)
    item = OpenItem(find("pfedsim/fig1_cka"), "smoke", root=tmp_path)
    (said,) = batch.execute_all([item], 1).values()
    assert said.startswith("failed: it is missing or damaged, ") and "\n" not in said


def test_a_copy_that_fails_leaves_nothing_half_done(shipped, tmp_path):
    shutil.rmtree(shipped / "figures")
    with pytest.raises(FedlibError, match="new could not be filled"):
        working_folder.lay_out(tmp_path / "new")
    assert not list((tmp_path / "new").iterdir())


def test_only_a_new_or_empty_folder_will_do_and_a_checkout_needs_none(shipped, tmp_path, monkeypatch):
    (tmp_path / "full").mkdir()
    for name in "abcde":
        (tmp_path / "full" / name).touch()
    with pytest.raises(BadValue, match="full has other files: a, b, c and 2 more; expected a folder that is new or"):
        working_folder.lay_out(tmp_path / "full")
    with pytest.raises(BadValue, match="a is a file; expected a folder that is new or empty"):
        working_folder.lay_out(tmp_path / "full" / "a")
    assert sorted(os.listdir(tmp_path / "full")) == list("abcde")
    monkeypatch.setattr(working_folder, "SHIPPED", CHECKOUT)
    with pytest.raises(BadValue, match="runs from its checkout: open the notebooks in "):
        working_folder.lay_out(tmp_path / "new")


def test_where_results_go(shipped, tmp_path, monkeypatch):
    monkeypatch.delenv("FEDLIB_HOME")
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    assert files.home() == tmp_path / "work"  # nothing was laid out
    assert working_folder.prepare() == (
        f"1 notebooks, and the results and figures that come with fedlib, are now in {tmp_path / 'work'}"
    )
    monkeypatch.chdir(tmp_path / "work" / "notebooks" / "pfedsim")
    assert files.home() == tmp_path / "work" and working_folder.prepare() == ""
    (tmp_path / "work" / ".fedlib").write_text("0.0.1\n")
    assert f"was made by fedlib 0.0.1, and this is {fedlib.__version__}" in working_folder.prepare()
    monkeypatch.setenv("FEDLIB_HOME", str(tmp_path / "elsewhere"))
    assert files.home() == tmp_path / "elsewhere" and working_folder.prepare() == ""
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize(
    ("written", "known"),
    [('["0123456789ab", false]', ("0123456789ab", False)), ("[]", ("unknown", True)), (None, ("unknown", True))],
)
def test_results_of_a_wheel_name_the_commit_that_it_was_built_from(tmp_path, monkeypatch, written, known):
    """And not the one of a repository in which somebody has installed it."""
    monkeypatch.setattr(provenance, "SHIPPED", tmp_path)
    if written:
        (tmp_path / "commit.json").write_text(written)
    assert provenance.commit.__wrapped__() == known


# the command line -----------------------------------------------------------------------------------------------------


def command_line(*words: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "fedlib", *words], env=os.environ | environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_place_says_the_same_version():
    assert command_line("--version") == f"fedlib {fedlib.__version__}\n"
    assert tomllib.loads(PACKAGED.read_text())["project"]["version"] == fedlib.__version__
    assert f"\nversion: {fedlib.__version__}\n" in (CHECKOUT / "CITATION.cff").read_text()
    assert f"## {fedlib.__version__}" in (CHECKOUT / ".github" / "CHANGELOG.md").read_text()


def test_the_shell_completes_commands_and_options():
    asked = dict(_FEDLIB_COMPLETE="complete_bash", COMP_CWORD="1")
    assert command_line(COMP_WORDS="fedlib re", **asked).split() == ["reproduce", "report"]
    asked["COMP_CWORD"] = "2"
    assert command_line(COMP_WORDS="fedlib reproduce --pro", **asked).split() == ["--profile"]
    assert "_FEDLIB_COMPLETE=complete_" in command_line("--show-completion", SHELL="/bin/bash")


def test_the_tests_ask_for_every_extra_and_for_one_ruff():
    about = tomllib.loads(PACKAGED.read_text())["project"]
    extras = about["optional-dependencies"]
    asked = re.fullmatch(r"fedlib\[(.*)\]", extras["test"][0])[1].split(",")
    assert sorted([*asked, "test"]) == sorted(extras)
    assert [text for text in extras["test"] if re.fullmatch(r"ruff==[\d.]+", text)]
    assert "ruff check ." in CI.read_text() and "ruff format --check ." in CI.read_text()
