"""The drawings of lessons 7 and 8 say who has which model, and what travels."""

from __future__ import annotations

import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import FancyBboxPatch
from matplotlib.text import Annotation

from fedlib.figures.base import APART, INK
from fedlib.figures.schematics import UP
from fedlib.figures.schematics_groups import SAMPLES, prototypes_and_head, several_models


def texts(ax) -> list[str]:
    return [text.get_text() for text in ax.texts]


def lines(ax) -> list[tuple[int, str, float]]:
    """Client, colour and width of every line between a model and a client."""
    return [(round(line.get_xdata()[1]), to_hex(line.get_color()), line.get_linewidth()) for line in ax.lines]


def test_on_the_left_a_client_has_one_model_and_on_the_right_all_that_have_a_weight():
    weights = ((0.75, 0.25, 0), (0, 1, 0), (0.5, 0, 0.5), (0, 0, 1))
    left, right = several_models(chosen=(0, 2, 2, 1), weights=weights).axes
    for ax in (left, right):
        said = texts(ax)
        assert [f"model $\\theta_{k}$" in said for k in range(4)] == [True, True, True, False]
        assert [f"client {i}" in said for i in range(5)] == [True] * 4 + [False] and "server" in said
        assert len([patch for patch in ax.patches if isinstance(patch, FancyBboxPatch)]) == 3 + 4
    assert [(i, colour) for i, colour, _ in lines(left)] == [(0, APART[0]), (1, APART[2]), (2, APART[2]), (3, APART[1])]
    mixed = lines(right)
    expected = [(i, APART[k]) for i, own in enumerate(weights) for k, share in enumerate(own) if share]
    assert [(i, colour) for i, colour, _ in mixed] == expected
    assert mixed[0][2] > mixed[1][2] and mixed[3][2] == mixed[4][2] < mixed[2][2]
    assert "IFCA, ClusterFL, FeSEM" in left.get_title() and "FedEM" in right.get_title()


def test_every_class_has_a_prototype_at_its_mean_and_prototypes_travel_both_ways():
    (ax,) = prototypes_and_head().axes
    stars = [line for line in ax.lines if line.get_marker() == "*"]
    clouds = [line for line in ax.lines if line.get_marker() != "*"]
    assert len(stars) == len(clouds) == len(SAMPLES)
    for star, cloud in zip(stars, clouds):
        assert star.get_xdata()[0] == pytest.approx(cloud.get_xdata().mean())
        assert star.get_ydata()[0] == pytest.approx(cloud.get_ydata().mean())
    arrows = [text for text in ax.texts if isinstance(text, Annotation)]
    upright = [(a.xy[1] > a.xyann[1], to_hex(a.arrow_patch.get_edgecolor())) for a in arrows if a.xy[0] == a.xyann[0]]
    assert sorted(upright) == [(False, INK), (False, INK), (True, UP)] and len(arrows) == 4 + 3
    said = " ".join(texts(ax))
    assert all(name in said for name in ("FedProto", "FedPAC", "FedGH", "extractor", "head", "prototypes up"))


@pytest.mark.parametrize("draw", [several_models, prototypes_and_head])
def test_all_texts_are_inside_readable_and_on_white(draw):
    figure = draw()
    figure.canvas.draw()
    assert figure.get_facecolor() == (1, 1, 1, 1) and tuple(figure.get_size_inches()) <= (11, 4)
    for ax in figure.axes:
        inside = ax.get_window_extent()
        for text in (text for text in ax.texts if text.get_text()):
            box = text.get_window_extent()
            assert text.get_fontsize() >= 8
            assert inside.y0 <= box.y0 and box.y1 <= inside.y1, text.get_text()
            assert inside.x0 <= box.x0 and box.x1 <= inside.x1, text.get_text()
