"""The lessons' drawings: their files are there and shown, they say what the methods do, and cut nothing off."""

from __future__ import annotations

import re
import runpy

import numpy as np
import pandas as pd
import pytest
from helpers import LESSONS
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle
from matplotlib.text import Annotation

from fedlib import algorithms, figures
from fedlib.algorithms.api import Setting
from fedlib.base import tree
from fedlib.base.errors import BadValue
from fedlib.base.files import CHECKOUT
from fedlib.figures.base import APART, INK
from fedlib.models import build

MADE = runpy.run_path(str(CHECKOUT / "notebooks" / "labs" / "drawings.py"))
DRAWINGS, FILES = MADE["DRAWINGS"], CHECKOUT / "figures" / "lessons"
IDLE, UP, STAYS, TEACHES = (MADE[name] for name in ("IDLE", "UP", "STAYS", "TEACHES"))
SPLITS = MADE["SPLITS"]


def panels(name: str) -> list:
    return MADE[name]().axes


def texts(ax) -> list[str]:
    return [text.get_text() for text in ax.texts if text.get_text()]


def arrows(ax, colour: str | None = None) -> list[Annotation]:
    every = [text for text in ax.texts if isinstance(text, Annotation)]
    return [a for a in every if colour in (None, a.arrowprops["color"])]


def down(ax, colour: str | None = None) -> list[Annotation]:
    return [a for a in arrows(ax, colour) if a.xy[1] < a.xyann[1]]


def boxes(ax) -> int:
    return sum(isinstance(patch, FancyBboxPatch) for patch in ax.patches)


def marked(ax, marker: str) -> list[np.ndarray]:
    return [line.get_xydata()[0] for line in ax.lines if line.get_marker() == marker]


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


def test_the_round_names_every_client_and_draws_arrows_for_participants_only():
    left, right = panels("federated_round")
    said = texts(left)
    assert all(f"client {i}\n{'3 train' if i in (0, 2, 3) else 'idle'}" in said for i in range(5))
    assert said.count("its images") == 5 and said.count("2") == said.count("4") == len(down(left)) == 3
    assert boxes(left) == 1 + 2 * 5 and len(arrows(left)) == 6 and len(down(left, INK)) == len(arrows(left, UP)) == 3
    steps = [text for text in right.texts if text.get_text() in dict(MADE["STEPS"])]
    assert [text.get_text() for text in steps] == [name for name, _ in MADE["STEPS"]]
    heights = [text.get_position()[1] for text in steps]
    assert heights == sorted(heights, reverse=True)
    assert [text.get_color() for text in steps if text.get_text()[0] in "24"] == [INK, UP]


def test_every_sample_is_in_its_class_and_with_its_client():
    left, right = panels("dealt_classes")
    counts, said = np.array([[2, 0, 0], [1, 3, 0], [1, 1, 4]]), texts(left)
    assert [said.count(str(c)) for c in range(3)] == (2 * counts.sum(0)).tolist()  # above, and below
    assert len([p for p in left.patches if type(p) is Rectangle]) == 2 * counts.sum()
    assert len(arrows(left)) == (counts > 0).sum() and boxes(left) == len(counts)
    assert len(left.lines) == ((counts > 0).sum(0) - 1).sum()  # a cut between two pieces of a class
    assert all(f"client {i}" in said for i in range(3))
    assert [text for text in texts(right) if text[0].isdigit()] == [name for name, _ in MADE["DEALING"]]


def test_the_average_lies_nearer_to_the_client_with_more_samples():
    left, right = panels("weighted_average")
    assert "server, new model\n1/4 $\\theta_A$ + 3/4 $\\theta_B$" in texts(left)
    assert len(arrows(left)) == 4 and texts(left).count("copy") == 2 and boxes(left) == 4
    assert len([p for p in left.patches if type(p) is Rectangle]) == 4
    ((where, _),) = marked(right, "D")
    assert where == 3 / 4


def test_the_average_stays_after_one_step_and_leaves_after_many():
    one, many = panels("drifting_clients")
    for ax in (one, many):
        assert {"best for A", "best for B", "best for all", "average"} <= set(texts(ax))
    assert marked(one, "D")[0] == pytest.approx(marked(one, "*")[0])
    assert marked(many, "D")[0] == pytest.approx(np.mean(marked(many, "x"), axis=0), abs=0.1)
    assert np.hypot(*(marked(many, "D")[0] - marked(many, "*")[0])) > 0.5
    assert len(arrows(one)) == 2 < len(arrows(many))


def test_extractors_travel_and_heads_stay():
    left, right = panels("split_model")
    assert boxes(left) == 1 + 2 * 3 and len(down(left)) == 3 and len(arrows(left)) == 6
    assert all(f"head $h_{i}$\nstays" in texts(left) for i in range(3))
    assert "server: the mean of the\nextractors $f_i$, called $f$" in texts(left)
    assert set(SPLITS) <= set(texts(right)) and texts(right).count("stays") == 1 + 1 + 1 + 3


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


def test_starts_and_makers_have_a_model_for_each_client_and_three_ways_to_it():
    found, ways = panels("starts_and_makers"), MADE["WAYS"]
    assert [ax.get_title() for ax in found] == list(ways)
    assert all(text in texts(ax) for ax, text in zip(found, ways.values()))
    for ax, symbol in zip(found, ("w'", r"\theta", r"\theta")):
        assert all(f"client {i}\n${symbol}_{i}$" in texts(ax) for i in (1, 2, 3))
    assert [len(arrows(ax)) for ax in found] == [6, 3, 6]  # pFedMe's lead is no arrow: nothing travels on it
    assert [len(ax.lines) for ax in found] == [0, 3, 0]
    assert [boxes(ax) for ax in found] == [7, 7, 7]


def test_the_matrix_shows_every_weight_and_one_mixture_in_words():
    left, right = panels("mixing_matrix")
    shades = [patch.get_alpha() for patch in left.patches if not isinstance(patch, FancyBboxPatch)]
    np.testing.assert_allclose(np.reshape(shades, (4, 4)).sum(1), 1)
    assert all(f"{weight:.2g}" in texts(left) for weight in shades)
    assert r"client 0 gets  0.6 $\theta_0$ + 0.3 $\theta_1$ + 0.05 $\theta_2$ + 0.05 $\theta_3$" in texts(left)
    assert len(arrows(left)) == 4 and boxes(left) == 4
    own = [text.get_text() for text in left.texts if text.get_color() == UP and "aggregate" in text.get_text()]
    assert own == ["aggregate for 0"]
    looks = MADE["LOOKS_AT"]
    assert set(looks) | set(looks.values()) <= set(texts(right))


def test_on_the_left_a_client_has_one_model_and_on_the_right_all_that_have_a_weight():
    left, right = panels("several_models")
    for ax in (left, right):
        assert all(f"model $\\theta_{k}$" in texts(ax) for k in range(3)) and "server" in texts(ax)
        assert all(f"client {i}" in texts(ax) for i in range(5)) and boxes(ax) == 3 + 5
    one, mixed = (  # client, model and width of every line
        [(round(line.get_xdata()[1]), APART.index(to_hex(line.get_color())), line.get_linewidth()) for line in ax.lines]
        for ax in (left, right)
    )
    assert [place[:2] for place in one] == [(0, 0), (1, 0), (2, 1), (3, 1), (4, 2)]
    assert [place[:2] for place in mixed] == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 1), (3, 1), (3, 2), (4, 0), (4, 2)]
    assert mixed[0][2] > mixed[1][2] and mixed[5][2] == mixed[6][2] < mixed[4][2]
    assert "IFCA, ClusterFL, FeSEM" in left.get_title() and "FedEM" in right.get_title()


def test_every_class_has_a_prototype_at_its_mean_and_prototypes_travel_both_ways():
    (ax,) = panels("prototypes_and_head")
    clouds = [line.get_xydata().mean(0) for line in ax.lines if line.get_marker() != "*"]
    np.testing.assert_allclose(marked(ax, "*"), clouds)
    assert len(clouds) == len(MADE["SAMPLES"]) == 3
    upright = [(a.xy[1] > a.xyann[1], a.arrowprops["color"]) for a in arrows(ax) if a.xy[0] == a.xyann[0]]
    assert sorted(upright) == [(False, INK), (False, INK), (True, UP)] and len(arrows(ax)) == 4 + 3
    said = " ".join(texts(ax))
    assert all(name in said for name in ("FedProto", "FedPAC", "FedGH", "extractor", "head", "prototypes up"))


def test_in_pfedsim_classifiers_are_compared_and_extractors_aggregated_in_the_second_phase_only():
    (ax,) = panels("two_phases")
    said = texts(ax)
    assert sum("one model" in text for text in said) == 1
    assert sum("extractor" in text for text in said) == sum("classifier $" in text for text in said) == 3
    assert len(arrows(ax, INK)) == len(arrows(ax, UP)) == 6  # three clients, two phases
    for colour in (STAYS, TEACHES):
        assert len(arrows(ax, colour)) == 2 and all(a.xy[0] > 3.5 for a in arrows(ax, colour))


def test_noise_goes_into_steps_or_into_what_is_uploaded_before_others_see_it():
    (ax,) = panels("where_noise_protects")
    (record,), (client,) = arrows(ax, INK), arrows(ax, TEACHES)
    assert record.xy[0] < client.xy[0] < ax.lines[0].get_xdata()[0]
    assert all(any(what in text for text in texts(ax)) for what in ("each gradient", "whole change"))


def test_in_pfedcs_extractor_and_classifier_go_both_ways_and_two_teach_the_student():
    (ax,) = panels("teacher_and_student")
    said = " ".join(texts(ax))
    for part in ("average of all extractors", "an aggregate for this client", "teacher", "student", "true labels"):
        assert said.count(part) == 1
    assert arrows(ax, INK) == down(ax, INK) and not down(ax, UP)
    assert len(arrows(ax, INK)) == len(arrows(ax, UP)) == 2 == texts(ax).count("down") == texts(ax).count("up")
    assert len(arrows(ax, TEACHES)) == len(arrows(ax, IDLE)) == 2


def test_in_fedsimsup_supervisors_stay_and_only_participants_send():
    (ax,) = panels("model_and_supervisor")
    said = texts(ax)
    assert said.count("supervisor\nstays") == 3 and said.count("logits are added") == 2
    assert said.count("model of client 2\naggregated by the server") == 1 == said.count("client 2: does not take part")
    assert len(arrows(ax, INK)) == len(arrows(ax, UP)) == 2
    from_supervisor = [a for a in arrows(ax) if any(abs(a.xyann[0] - (2.24 + 3.1 * k)) < 0.55 for k in range(3))]
    assert not [a for a in from_supervisor if a.xyann[1] < 2]
    mixing = arrows(ax, TEACHES)
    assert len(mixing) == 2 and all(a.xy[0] > 6.5 > a.xyann[0] for a in mixing)  # from participants to the idle one


def test_the_lattice_has_every_coalition_and_what_each_arrival_adds():
    (ax,) = panels("coalition_lattice")
    said = texts(ax)
    assert {"∅\nworth 0", "I\nworth 60", "I F\nworth 90", "I S\nworth 42", "I F S\nworth 72"} <= set(said)
    assert len([text for text in said if "worth" in text]) == 8 and len(arrows(ax)) == 12 and not down(ax)
    gains = sorted(int(text) for text in said if text[0] in "+-")
    assert gains == sorted([60, 42, 30, 36, 48, 30, 24, 30, 12, -18, -12, -18])


@pytest.mark.parametrize("number", [6, 7, 14])
def test_curves_of_many_names(number):
    """A seventh name once was a KeyError."""
    table = pd.DataFrame({f"curve {k}": [k, k + 1.0] for k in range(number)})
    (ax,) = figures.curves({"many": table}).axes
    assert len(ax.lines) == number
    assert len({line.get_color() for line in ax.lines}) == min(number, 10)
