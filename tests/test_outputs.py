"""Notebooks as JupyterLab and papermill find them. Their outputs are compared when they are tested: one digit that
changes is found, and little is left out."""

from __future__ import annotations

import functools
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import matplotlib.pyplot as plt
import nbformat
import pandas as pd
import papermill
import pytest
from helpers import cells, prose
from nbconvert import ScriptExporter
from nbval.plugin import get_sanitize_patterns

from fedlib.base.files import CHECKOUT
from fedlib.figures.base import drawn
from fedlib.reports import notebooks
from fedlib.reports.notebooks import METADATA

NOTEBOOKS = sorted((CHECKOUT / "notebooks").rglob("*.ipynb"))
LEFT_OUT = {"pfedsim/table7_overhead": 5, "head_to_head/table2_accuracy": 1}  # that show seconds of this machine
WIDE = 100
LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)")
PICTURES = ("image/png", "image/svg+xml")
VARIES = get_sanitize_patterns((CHECKOUT / "tests" / "nbval.cfg").read_text())


def texts(cell: dict) -> list[str]:
    """What a cell shows, but pictures and progress bars."""
    data = [output.get("data", {output.get("name"): output.get("text", "")}) for output in cell["outputs"]]
    return ["".join(text) for one in data for kind, text in one.items() if kind not in (*PICTURES, "stderr")]


def sanitized(text: str) -> str:
    for what, instead in VARIES:
        text = re.sub(what, instead, text)
    return text


def test_few_cells_are_left_out_and_each_for_a_reason():
    own = {}
    for path in NOTEBOOKS:
        tags = [tag for cell in cells(path, "code") for tag in cell["metadata"].get("tags", []) if tag != "parameters"]
        assert set(tags) <= {"nbval-ignore-output"} and "# NBVAL" not in path.read_text()
        own |= {f"{path.parent.name}/{path.stem}": len(tags)} if tags else {}
    assert own == LEFT_OUT


def test_what_varies_is_little_and_in_no_table():
    shown = [text for path in NOTEBOOKS for cell in cells(path, "code") for text in texts(cell)]
    digits, compared = (len(re.findall(r"\d", "".join(own))) for own in (shown, map(sanitized, shown)))
    assert 0.98 * digits < compared < digits
    assert all(sanitized(text) == text for text in shown if "<table" in text)
    # a line that ends in the number of threads begins with the processor
    assert not [text for text in shown if re.search(r"(?m)^(CPU|NVIDIA|AMD) .* threads?$", sanitized(text))]
    # whoever runs a notebook again sees another one
    assert not [text for text in shown if re.search(r" at 0x[0-9a-f]{6}|/tmp/|/home/", text)]


each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: f"{path.parent.name}/{path.stem}")


@each_notebook
def test_a_cell_and_what_it_shows_need_no_scrolling(path):
    """JupyterLab shows so many characters of code; pandas hides columns of a wide table. In labs it is the height that
    counts: a cell that students read has 20 lines at most."""
    read = () if path.parent.name == "labs" else cells(path, "code")
    lines = [line for cell in read for line in "".join(cell["source"]).split("\n")]
    assert not [line for line in lines if len(line) > WIDE]
    tables = [text for cell in cells(path, "code") for text in texts(cell) if "<table" in text]
    assert not [text for text in tables if "<th>...</th>" in text.partition("</thead>")[0]]


@each_notebook
def test_links_in_jupyterlab_lead_to_files(path):
    """It cannot open a folder."""
    assert not [to for to in LINK.findall(prose(path)) if not (path.parent / to).is_file()]


@each_notebook
def test_metadata_name_the_kind_of_file_and_no_version_of_python(path):
    notebook = nbformat.read(path, as_version=4)
    assert notebook.metadata == METADATA
    assert ScriptExporter().from_notebook_node(notebook)[1]["output_extension"] == ".py"


def test_publishing_a_notebook_keeps_its_metadata(tmp_path, monkeypatch):
    done, source = nbformat.v4.new_notebook(), tmp_path / "source.ipynb"
    done.metadata = {"papermill": {"duration": 1}, "language_info": {"name": "python", "version": "3.99"}}
    nbformat.write(done, tmp_path / "done.ipynb")
    monkeypatch.setattr(notebooks, "output_path", lambda item: tmp_path / "done.ipynb")
    monkeypatch.setattr(notebooks, "source_path", lambda name: source)
    notebooks.refresh_source(SimpleNamespace(item=SimpleNamespace(name="a")))
    assert nbformat.read(source, as_version=4).metadata == METADATA


def test_the_first_guide_shows_the_figure_that_it_makes():
    (cell,) = [cell for cell in cells(CHECKOUT / "notebooks/guides/start_here.ipynb", "code")
               if "fedlib reproduce" in "".join(cell["source"])]  # fmt: skip
    assert [output for output in cell["outputs"] if "image/png" in output.get("data", {})]


@each_notebook
def test_papermill_knows_every_parameter_and_warns_of_others_only(path, tmp_path, caplog):
    caplog.set_level("WARNING", "papermill")  # a notebook that was run by this process has made it quieter
    known = notebooks._parameters_of(path)
    assert set(papermill.inspect_notebook(str(path))) == known
    if known:
        for name in sorted(known) + ["profil"]:
            papermill.execute_notebook(str(path), str(tmp_path / "made.ipynb"), {name: "smoke"}, prepare_only=True)
        assert [r.message for r in caplog.records if r.levelname == "WARNING"] == ["Passed unknown parameter: profil"]


@each_notebook
def test_every_cell_was_executed_in_order(path):
    """nbval compares nothing where a cell was not."""
    counts = [cell["execution_count"] for cell in cells(path, "code")]
    assert counts == list(range(1, len(counts) + 1))


def picture(line=0.3, bar=0.3, point=0.3, pixel=0.3, word="pfedsim", size=4) -> str:
    figure, axes = plt.subplots(1, 4, figsize=(size, 2))
    axes[0].plot([1, 2], [0.2, line])
    axes[1].bar(["a"], [bar])
    axes[2].scatter([0.1], [point])
    axes[3].imshow([[0.1, pixel]])
    axes[3].text(0, 0, word)
    plt.close(figure)
    return drawn(figure)


def test_a_picture_stands_for_its_numbers_and_words_not_for_its_size():
    assert picture(size=5) == picture(line=0.3 + 1e-12) == picture()
    changes = [{}, {"word": "fedper"}, *({kind: 0.30001} for kind in ("line", "bar", "point", "pixel"))]
    assert len({picture(**change) for change in changes}) == len(changes)


# one digit ------------------------------------------------------------------------------------------------------------

TABLE = pd.DataFrame({"method": ["local", "pfedsim"], "ours": [93.67, 95.71]})
FIGURE, AX = plt.subplots()
AX.plot([1, 2, 3], [0.1, 0.25, 0.5])
plt.close(FIGURE)
SECONDS = "seconds: data 0.1, steps 1.1, aggregation 0.1, evaluation 0.4, in all 1.9; 0.066 ms per training sample\n"
CHANGES = {  # of outputs: what is there, what instead, and whether nbval finds it
    "nothing": ("", "", False),
    "a_cell_of_a_table": ("<td>93.67</td>", "<td>93.68</td>", True),
    "a_table_as_text": ("local  93.67", "local  93.66", True),
    "a_printed_number": ("lead 2.04", "lead 2.03", True),
    "a_printed_line_less": ("lead 2.04\n", "", True),
    "a_number_of_a_picture": (drawn(FIGURE)[-8:], "00000000", True),
    "another_profile": ("in quick", "in smoke", True),
    "seconds": ("steps 1.1", "steps 1.3", False),
    "a_commit": ("commit ba337e92", "commit 0123abcd", False),
    "seeds_beside_the_commit": ("seeds [0]", "seeds [1]", True),
    "a_processor": ("CPU AMD EPYC", "CPU Some Xeon", False),
    "threads_beside_the_processor": ("1 thread", "2 threads", True),
    "a_progress_bar": ("50 %", "90 %", False),
}


def write(path: Path, old: str, new: str) -> None:
    """A notebook with outputs of every kind, of which one is changed."""
    make = nbformat.v4
    origin = "commit ba337e92, seeds [0]\nCPU AMD EPYC, 1 thread\n"
    printed = f"lead 2.04\n{SECONDS}{origin}"
    shown = {"text/html": TABLE._repr_html_(), "text/plain": repr(TABLE)}
    sources = {
        # the kernel of the notebook before, emptied
        "import os\nprint('in', os.environ['FEDLIB_PROFILE'], 'after' in dir())\nafter = 1": [
            make.new_output("stream", name="stdout", text="in quick False\n")
        ],
        f"import pandas as pd\npd.DataFrame({TABLE.to_dict('list')})": make.new_output(
            "execute_result", shown, execution_count=1
        ),
        f"import sys\nprint({printed!r}, end='')\nprint('50 %', file=sys.stderr)": [
            make.new_output("stream", name="stdout", text=printed),
            make.new_output("stream", name="stderr", text="50 %\n"),
        ],
        "import matplotlib.pyplot as plt\nfrom fedlib.figures import show\n"
        "figure, ax = plt.subplots()\nax.plot([1, 2, 3], [0.1, 0.25, 0.5])\nshow(figure)\nplt.close(figure)": [
            make.new_output("display_data", {"image/png": "", "text/plain": drawn(FIGURE)})
        ],
    }
    notebook = make.new_notebook()
    for k, (source, outputs) in enumerate(sources.items(), 1):
        outputs = outputs if isinstance(outputs, list) else [outputs]
        notebook.cells.append(make.new_code_cell(source, execution_count=k, outputs=outputs))
    for output in (output for cell in notebook.cells for output in cell.outputs):
        changed = output.get("data", output)
        for kind in set(changed) & {"text", "text/html", "text/plain"}:
            changed[kind] = changed[kind].replace(old, new) if old else changed[kind]
    nbformat.write(notebook, path)


def test_a_changed_digit_is_found_and_another_second_is_not_and_notebooks_are_renewed(tmp_path):
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "notebooks" / "conftest.py").symlink_to(CHECKOUT / "notebooks" / "conftest.py")
    for name, (old, new, _) in CHANGES.items():
        write(tmp_path / "notebooks" / f"{name}.ipynb", old, new)
    command = [sys.executable, "-m", "pytest", "-n0", "-q", "-rf", "--color=no", "--tb=line", "-p", "no:cacheprovider"]
    command += ["-c", str(CHECKOUT / "pyproject.toml"), "--rootdir", str(tmp_path)]
    tested = functools.partial(subprocess.run, cwd=tmp_path, capture_output=True, text=True)
    done = tested([*command, "notebooks"])
    found = set(re.findall(r"FAILED notebooks/(\w+)\.ipynb", done.stdout))
    assert found == {name for name, (*_, finds) in CHANGES.items() if finds}, done.stdout + done.stderr

    changed, right = (tmp_path / "notebooks" / f"{name}.ipynb" for name in ("a_printed_number", "nothing"))
    assert tested([*command, "--renew", changed]).returncode == 0
    assert list(map(texts, cells(changed, "code"))) == list(map(texts, cells(right, "code")))
