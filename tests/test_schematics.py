"""Drawings without data say what they are about: who takes part, what travels, the steps in words."""

from __future__ import annotations

import pytest
from matplotlib.patches import FancyBboxPatch
from matplotlib.text import Annotation

from fedlib import figures
from fedlib.figures.base import INK
from fedlib.figures.schematics import STEPS, UP


def texts(figure) -> list[str]:
    return [text.get_text() for ax in figure.axes for text in ax.texts]


@pytest.mark.parametrize("taking_part", [(0, 2, 3), (), (1,)])
def test_the_round_names_every_client_and_draws_arrows_for_participants_only(taking_part):
    figure = figures.federated_round(num_clients=4, participants=taking_part)
    said = texts(figure)
    for i in range(4):
        assert f"client {i}\n{'3 train' if i in taking_part else 'idle'}" in said
    assert said.count("its images") == 4 and len([x for x in said if x.startswith("server")]) == 1
    assert said.count("2") == said.count("4") == len(taking_part)
    left = figure.axes[0]
    assert len([patch for patch in left.patches if isinstance(patch, FancyBboxPatch)]) == 1 + 2 * 4
    arrows = [text for text in left.texts if isinstance(text, Annotation)]
    down = [a for a in arrows if a.xy[1] < a.xyann[1]]
    up = [a for a in arrows if a.xy[1] > a.xyann[1]]
    assert len(down) == len(up) == len(taking_part)
    assert {a.arrow_patch.get_edgecolor() for a in down} != {a.arrow_patch.get_edgecolor() for a in up} or not arrows


def test_the_five_steps_are_in_order_and_nothing_is_cut_off():
    figure = figures.federated_round()
    right = figure.axes[1]
    shown = [text for text in right.texts if text.get_text() in dict(STEPS)]
    assert [text.get_text() for text in shown] == [name for name, _ in STEPS]
    heights = [text.get_position()[1] for text in shown]
    assert heights == sorted(heights, reverse=True)
    assert [text.get_color() for text in shown if text.get_text()[0] in "24"] == [INK, UP]
    figure.canvas.draw()
    for ax in figure.axes:
        inside = ax.get_window_extent()
        for text in (text for text in ax.texts if text.get_text()):
            box = text.get_window_extent()
            assert inside.y0 <= box.y0 and box.y1 <= inside.y1 and inside.x0 <= box.x0, text.get_text()


def test_it_has_a_ground_of_its_own():
    """Legible on dark pages: the picture is white behind the lines, whatever the page."""
    assert figures.federated_round().get_facecolor() == (1, 1, 1, 1)
