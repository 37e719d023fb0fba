"""The lessons' drawings: their files are there, are what is drawn and are shown; the table of methods is the code's."""

from __future__ import annotations

import re
import runpy

import pandas as pd
import pytest
from matplotlib.figure import Figure

from fedlib import algorithms, figures
from fedlib.algorithms.api import Setting
from fedlib.base import tree
from fedlib.base.errors import BadValue
from fedlib.base.files import CHECKOUT
from fedlib.models import build

MADE = runpy.run_path(str(CHECKOUT / "notebooks" / "labs" / "drawings.py"))
DRAWINGS, FILES = MADE["DRAWINGS"], CHECKOUT / "figures" / "lessons"
LESSONS = sorted((CHECKOUT / "notebooks" / "lessons").glob("[0-9][0-9]_*.ipynb"))
SPLITS = MADE["SPLITS"]


def shapes(svg: str) -> list[float]:
    """The numbers of all boxes, arrows, lines and marks of a drawing, in points."""
    lines = re.findall(r'<g id="(?:patch|line2d|text)_\d+">.*?(?=<g id=)', svg, re.DOTALL)
    paths = [path for line in lines for path in re.findall(r' d="([^"]*)"', line)]
    return [float(number) for path in paths for number in re.findall(r"-?\d+\.?\d*", path)]


@pytest.mark.parametrize("draw", DRAWINGS, ids=lambda draw: draw.__name__)
def test_a_drawing_is_readable_on_any_page_and_cuts_nothing_off(draw):
    figure: Figure = draw()
    assert figure.get_facecolor() == (1, 1, 1, 1)
    assert figure.get_figwidth() <= 11 and figure.get_figheight() <= 4
    figure.canvas.draw()
    for ax in figure.axes:
        for text in (text for text in ax.texts if text.get_text()):
            found = text.get_window_extent()
            assert text.get_fontsize() >= 8
            assert figure.bbox.x0 <= found.x0 and found.x1 <= figure.bbox.x1, text.get_text()
            assert figure.bbox.y0 <= found.y0 and found.y1 <= figure.bbox.y1, text.get_text()


@pytest.mark.parametrize("draw", DRAWINGS, ids=lambda draw: draw.__name__)
def test_its_files_are_there_on_light_and_on_dark_ground_and_a_lesson_shows_them(draw, monkeypatch):
    name, made = draw.__name__, MADE["svg"](draw())
    light, dark = ((FILES / kind / f"{name}.svg").read_text("utf-8") for kind in ("light", "dark"))
    said, here = (re.findall(r"<!-- (.*?) -->", text) for text in (light, made))
    assert said == here == re.findall(r"<!-- (.*?) -->", dark)
    assert shapes(light) == pytest.approx(shapes(made), abs=1), "what the file shows is not what is drawn"
    assert "#ffffff" in light and "#ffffff" not in dark and "<dc:date>" not in light + dark + made
    assert MADE["on_dark"](light) == dark
    assert f"| {name} |" in (FILES / "README.md").read_text("utf-8")
    assert sum(f'figures.drawing(\\"{name}\\")' in path.read_text("utf-8") for path in LESSONS) == 1
    shown = []
    monkeypatch.setattr("IPython.display.display", lambda data, raw: shown.append(data))
    figures.drawing(name)
    assert shown[0]["text/plain"] == f"drawing: {name}" and shown[0]["image/svg+xml"].startswith("<svg ")


def test_there_are_no_other_files_and_none_is_shown():
    assert {path.stem for path in FILES.rglob("*.svg")} == {draw.__name__ for draw in DRAWINGS}
    with pytest.raises(BadValue, match="two_phases"):
        figures.drawing("two_phase")


@pytest.mark.parametrize("method", ["fedavg", "fedper", "fedrep", "fedbabu", "fedrod", "fedbn", "local"])
def test_the_table_of_who_shares_what_is_what_the_methods_send(method):
    """A part that is shared is in the message, one that stays is not; batch norm: its scale and shift."""
    model = build("lenet5_bn", (1, 16, 16), 10)
    server, states = (made := algorithms.make(method)).init(model, Setting(2, 1, 10))
    sent = {name.partition("/")[0] for name in (made.download(server, 0) or {})}
    row = next(own for name, own in SPLITS.items() if method in name.lower().replace(",", "").split())
    parts = dict(zip(("extractor", "norm", "head", "second"), row))
    norm = set(model.norm_names)
    of = {
        "extractor": {name for name in model.trainable if name.startswith("extractor.")} - norm,
        "norm": norm & set(model.trainable),
        "head": {name for name in model.trainable if name.startswith("head.")},
    }
    for part, names in of.items():
        assert names and (names <= sent) == (parts[part] == "shared"), part
        assert names <= sent or not names & sent
    assert (parts["second"] == "stays") == any("personal" in str(path) for path, _ in tree.leaves(states))


@pytest.mark.parametrize("number", [6, 7, 14])
def test_curves_of_many_names(number):
    """A seventh name once was a KeyError."""
    table = pd.DataFrame({f"curve {k}": [k, k + 1.0] for k in range(number)})
    (ax,) = figures.curves({"many": table}).axes
    assert len(ax.lines) == number
    assert len({line.get_color() for line in ax.lines}) == min(number, 10)
