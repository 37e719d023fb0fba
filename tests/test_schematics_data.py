"""Drawings of the first lessons show what their numbers say: pieces and owners, weights, where an average goes."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from matplotlib.patches import FancyBboxPatch, Rectangle
from matplotlib.text import Annotation

from fedlib.figures.lessons import curves
from fedlib.figures.schematics_data import DEALING, dealt_classes, drifting_clients, weighted_average


def texts(ax) -> list[str]:
    return [text.get_text() for text in ax.texts if text.get_text()]


def arrows(ax) -> list[Annotation]:
    return [text for text in ax.texts if isinstance(text, Annotation)]


def boxes(ax) -> int:
    return len([patch for patch in ax.patches if isinstance(patch, FancyBboxPatch)])


@pytest.mark.parametrize("counts", [[[2, 0, 0], [1, 3, 0], [1, 1, 4]], [[1, 2], [3, 1]], [[4, 0, 1], [0, 4, 1]]])
def test_every_sample_is_in_its_class_and_with_its_client(counts):
    counts = np.array(counts)
    left, right = dealt_classes(counts).axes
    said = texts(left)
    assert [said.count(str(c)) for c in range(counts.shape[1])] == (2 * counts.sum(0)).tolist()  # above, and below
    assert len([p for p in left.patches if type(p) is Rectangle]) == 2 * counts.sum()
    assert len(arrows(left)) == (counts > 0).sum() and boxes(left) == len(counts)
    assert len(left.lines) == ((counts > 0).sum(0) - 1).sum()  # a cut between two pieces of a class
    for i in range(len(counts)):
        assert f"client {i}" in said
    assert [text for text in texts(right) if text[0].isdigit()] == [name for name, _ in DEALING]


@pytest.mark.parametrize("samples", [(1, 3), (2, 2), (5, 1)])
def test_the_average_lies_nearer_to_the_client_with_more_samples(samples):
    left, right = weighted_average(samples).axes
    n = sum(samples)
    assert f"server, new model\n{samples[0]}/{n} $\\theta_A$ + {samples[1]}/{n} $\\theta_B$" in texts(left)
    assert len(arrows(left)) == 4 and texts(left).count("copy") == 2 and boxes(left) == 4
    assert len([p for p in left.patches if type(p) is Rectangle]) == n
    (average,) = [line for line in right.lines if line.get_marker() == "D"]
    assert average.get_xdata()[0] == samples[1] / n


def test_the_average_stays_after_one_step_and_leaves_after_many():
    figure = drifting_clients(many=40)
    where = []
    for ax in figure.axes:
        assert {"best for A", "best for B", "best for all", "average"} <= set(texts(ax))
        (best,) = [line for line in ax.lines if line.get_marker() == "*"]
        (average,) = [line for line in ax.lines if line.get_marker() == "D"]
        crosses = [line.get_xydata()[0] for line in ax.lines if line.get_marker() == "x"]
        where.append((best.get_xydata()[0], average.get_xydata()[0], np.mean(crosses, axis=0)))
    (best, one, _), (_, many, mean) = where
    assert one == pytest.approx(best) and many == pytest.approx(mean, abs=0.01)
    assert np.hypot(*(many - best)) > 0.5
    assert len(arrows(figure.axes[0])) == 2 < len(arrows(figure.axes[1]))


@pytest.mark.parametrize("draw", [dealt_classes, weighted_average, drifting_clients])
def test_they_are_legible_on_any_page(draw):
    figure = draw()
    assert figure.get_facecolor() == (1, 1, 1, 1)
    assert (figure.get_size_inches() <= (11, 4)).all()
    figure.canvas.draw()
    for ax in figure.axes:
        inside = ax.get_window_extent()
        for text in (text for text in ax.texts if text.get_text()):
            box = text.get_window_extent()
            assert text.get_size() >= 8
            assert inside.x0 <= box.x0 and box.x1 <= inside.x1 and inside.y0 <= box.y0 and box.y1 <= inside.y1, text


@pytest.mark.parametrize("number", [6, 7, 14])
def test_curves_of_many_names(number):
    """A seventh name once was a KeyError."""
    table = pd.DataFrame({f"curve {k}": [k, k + 1.0] for k in range(number)})
    (ax,) = curves({"many": table}).axes
    assert len(ax.lines) == number
    assert len({line.get_color() for line in ax.lines}) == min(number, 10)
