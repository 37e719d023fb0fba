"""The drawings of lessons 9 to 11: what they say, and that arrows go where the methods send things."""

from __future__ import annotations

import pytest
from matplotlib.text import Annotation

from fedlib.figures.base import INK
from fedlib.figures.schematics import IDLE, UP
from fedlib.figures.schematics_papers import TEACHES, coalition_lattice, model_and_supervisor, teacher_and_student

GAME = {"": 0, "I": 60, "F": 48, "S": 12, "FI": 90, "IS": 42, "FS": 36, "FIS": 72}
DRAWINGS = {
    "pfedcs": teacher_and_student,
    "fedsimsup": model_and_supervisor,
    "pfedsv": lambda: coalition_lattice(GAME),
}


def texts(figure) -> list[str]:
    return [text.get_text() for text in figure.axes[0].texts if text.get_text()]


def arrows(figure) -> list[Annotation]:
    return [text for text in figure.axes[0].texts if isinstance(text, Annotation)]


def of_colour(figure, colour: str) -> list[Annotation]:
    return [a for a in arrows(figure) if a.arrowprops["color"] == colour]


def test_in_pfedcs_extractor_and_classifier_go_both_ways_and_two_teach_the_student():
    figure = teacher_and_student()
    said = " ".join(texts(figure))
    for part in ("average of all extractors", "a mixture for this client", "teacher", "student", "true labels"):
        assert said.count(part) == 1
    down, up = of_colour(figure, INK), of_colour(figure, UP)
    assert len(down) == len(up) == 2 == texts(figure).count("down") == texts(figure).count("up")
    assert all(a.xy[1] < a.xyann[1] for a in down) and all(a.xy[1] > a.xyann[1] for a in up)
    assert len(of_colour(figure, TEACHES)) == len(of_colour(figure, IDLE)) == 2


def test_in_fedsimsup_supervisors_stay_and_only_participants_send():
    figure = model_and_supervisor()
    said = texts(figure)
    assert said.count("supervisor\nstays") == 3 and said.count("class scores are added") == 2
    assert said.count("model of client 2\nmixed, while idle") == 1 == said.count("client 2: idle")
    assert len(of_colour(figure, INK)) == len(of_colour(figure, UP)) == 2
    from_supervisor = [a for a in arrows(figure) if any(abs(a.xyann[0] - (2.24 + 3.1 * k)) < 0.55 for k in range(3))]
    assert not [a for a in from_supervisor if a.xyann[1] < 2]
    mixing = of_colour(figure, TEACHES)
    assert len(mixing) == 2 and all(a.xy[0] > 6.5 > a.xyann[0] for a in mixing)  # from participants to the idle one


def test_the_lattice_has_every_coalition_and_what_each_arrival_adds():
    figure = coalition_lattice(GAME)
    said = texts(figure)
    assert {"nobody\nworth 0", "I\nworth 60", "I F\nworth 90", "I S\nworth 42", "I F S\nworth 72"} <= set(said)
    assert len([text for text in said if "worth" in text]) == 8 and len(arrows(figure)) == 12
    assert all(a.xy[1] > a.xyann[1] for a in arrows(figure))
    gains = sorted(int(text) for text in said if text[0] in "+-")
    assert gains == sorted([60, 42, 30, 36, 48, 30, 24, 30, 12, -18, -12, -18])
    assert "+90" in texts(coalition_lattice({**GAME, "F": 0})) and "+0" in texts(coalition_lattice({**GAME, "F": 0}))


@pytest.mark.parametrize("name", DRAWINGS)
def test_drawings_have_a_ground_of_their_own_fit_a_page_and_cut_nothing_off(name):
    figure = DRAWINGS[name]()
    assert figure.get_facecolor() == (1, 1, 1, 1)
    assert figure.get_figwidth() <= 11 and figure.get_figheight() <= 4
    figure.canvas.draw()
    inside = figure.bbox
    for text in (text for text in figure.axes[0].texts if text.get_text()):
        drawn = text.get_window_extent()
        assert text.get_fontsize() >= 8
        assert inside.x0 <= drawn.x0 and drawn.x1 <= inside.x1, text.get_text()
        assert inside.y0 <= drawn.y0 and drawn.y1 <= inside.y1, text.get_text()
