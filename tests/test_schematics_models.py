"""The drawings of split, started, made and mixed models say what the methods do."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.patches import FancyBboxPatch
from matplotlib.text import Annotation

from fedlib import algorithms
from fedlib.algorithms.api import Setting
from fedlib.base import tree
from fedlib.figures import schematics_models
from fedlib.figures.schematics import UP
from fedlib.figures.schematics_models import LOOKS_AT, SHARED, SPLITS, STAYS, WAYS
from fedlib.models import build

WEIGHTS = [[0.6, 0.3, 0.1], [0.25, 0.75, 0.0], [0.0, 0.0, 1.0]]
DRAWN = {
    "split": schematics_models.split_model,
    "starts": schematics_models.starts_and_makers,
    "matrix": lambda: schematics_models.mixing_matrix(WEIGHTS),
}


def texts(ax) -> list[str]:
    return [text.get_text() for text in ax.texts if text.get_text()]


def arrows(ax) -> list[Annotation]:
    return [text for text in ax.texts if isinstance(text, Annotation)]


def boxes(ax) -> int:
    return sum(isinstance(patch, FancyBboxPatch) for patch in ax.patches)


@pytest.mark.parametrize("name", DRAWN)
def test_it_has_a_ground_of_its_own_and_readable_words_inside_a_small_picture(name):
    figure = DRAWN[name]()
    assert figure.get_facecolor() == (1, 1, 1, 1)
    assert all(size <= most for size, most in zip(figure.get_size_inches(), (11, 4)))
    figure.canvas.draw()
    whole = figure.bbox
    for ax in figure.axes:
        for text in (text for text in ax.texts if text.get_text()):
            found = text.get_window_extent()
            assert text.get_fontsize() >= 8
            assert whole.x0 <= found.x0 and found.x1 <= whole.x1 and whole.y0 <= found.y0, text.get_text()


@pytest.mark.parametrize("clients", [2, 4])
def test_extractors_travel_and_heads_stay(clients):
    left, right = schematics_models.split_model(clients).axes
    assert boxes(left) == 1 + 2 * clients
    down = [a for a in arrows(left) if a.xy[1] < a.xyann[1]]
    assert len(down) == clients and len(arrows(left)) == 2 * clients
    assert [f"head $h_{i}$\nstays" in texts(left) for i in range(clients)] == [True] * clients
    assert [text for text in texts(left) if "server" in text] == [
        "server: the mean of the\nextractors $f_i$, called $f$"
    ]
    assert set(SPLITS) <= set(texts(right)) and texts(right).count(STAYS) == 1 + 1 + 1 + 3


@pytest.mark.parametrize("method", ["fedavg", "fedper", "fedrep", "fedbabu", "fedrod", "fedbn", "local"])
def test_the_table_of_who_shares_what_is_what_the_methods_send(method):
    """A part that is shared is in the message, one that stays is not; batch norm: its scale and shift."""
    model = build("lenet5_bn", (1, 16, 16), 10)
    server, states = (made := algorithms.make(method)).init(model, Setting(2, 1, 10))
    sent = {name.partition("/")[0] for name in (made.download(server, 0) or {})}
    parts = dict(zip(("extractor", "norm", "head", "second"), next(v for k, v in SPLITS.items() if _is(k, method))))
    norm = set(model.norm_names)
    of = {
        "extractor": {name for name in model.trainable if name.startswith("extractor.")} - norm,
        "norm": norm & set(model.trainable),
        "head": {name for name in model.trainable if name.startswith("head.")},
    }
    for part, names in of.items():
        assert names and (names <= sent) == (parts[part] == SHARED), part
        assert names <= sent or not names & sent
    assert (parts["second"] == STAYS) == any("personal" in str(path) for path, _ in tree.leaves(states))


def _is(row: str, method: str) -> bool:
    return method in row.lower().replace(",", "").split()


def test_starts_and_makers_have_a_model_for_each_client_and_three_ways_to_it():
    panels = schematics_models.starts_and_makers(2).axes
    assert [ax.get_title() for ax in panels] == list(WAYS)
    assert all(text in texts(ax) for ax, text in zip(panels, WAYS.values()))
    for ax, symbol in zip(panels, ("w'", r"\theta", r"\theta")):
        assert all(f"client {i}\n${symbol}_{i}$" in texts(ax) for i in (1, 2))
    assert [len(arrows(ax)) for ax in panels] == [4, 2, 4]  # pFedMe's lead is no arrow: nothing travels on it
    assert [len(ax.lines) for ax in panels] == [0, 2, 0]
    assert [boxes(ax) for ax in panels] == [5, 5, 5]


def test_the_matrix_shows_every_weight_and_one_mixture_in_words():
    left, right = schematics_models.mixing_matrix(WEIGHTS, shown=1).axes
    said = texts(left)
    assert [f"{weight:.2g}" in said for row in WEIGHTS for weight in row] == [True] * 9
    assert r"client 1 gets  0.25 $\theta_0$ + 0.75 $\theta_1$" in said  # a weight of 0 is not named
    assert len(arrows(left)) == 3 and boxes(left) == 3
    marked = [text.get_text() for text in left.texts if text.get_color() == UP and "mixture" in text.get_text()]
    assert marked == ["mixture for 1"]
    shades = [patch.get_alpha() for patch in left.patches if not isinstance(patch, FancyBboxPatch)]
    np.testing.assert_allclose(shades, np.ravel(WEIGHTS))
    assert set(LOOKS_AT) | set(LOOKS_AT.values()) <= set(texts(right))


def test_rows_that_are_no_shares_are_not_drawn():
    with pytest.raises(AssertionError):
        schematics_models.mixing_matrix([[0.6, 0.6], [0.5, 0.5]])
