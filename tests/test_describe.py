"""Tables and pictures of a partition."""

import io

import numpy as np
import pytest

from fedlib import figures
from fedlib.base.errors import BadValue
from fedlib.data import describe, make_partition
from fedlib.data.describe import label_cosine, label_entropy
from fedlib.figures.base import PAGE
from fedlib.figures.clients import BUBBLE

LABELS = np.repeat([0, 1, 2], [4, 4, 2])
SETS = [[0], [0, 1], [1, 2]]  # counts [[2, 0, 0], [2, 2, 0], [0, 2, 2]]


def test_tables_by_hand():
    """Entropies 0 and ln 2; cosines 1/sqrt 2, 1/2 and 0."""
    tables = describe(make_partition(LABELS, 3, "manual", 0, label_sets=SETS), ["cat", "dog", "emu"])
    clients, counts, half = tables["clients"], tables["counts"], np.sqrt(0.5)
    assert counts.columns.tolist() == ["cat", "dog", "emu"]
    assert counts.to_numpy().tolist() == [[2, 0, 0], [2, 2, 0], [0, 2, 2]]
    assert clients.index.name == "client"
    assert clients.columns.tolist() == ["size", "classes", "entropy", "largest_share"]
    assert clients["size"].tolist() == [2, 4, 4] and clients["classes"].tolist() == [1, 2, 2]
    assert clients["entropy"].tolist() == pytest.approx([0, np.log(2), np.log(2)])
    assert clients["largest_share"].tolist() == [1, 0.5, 0.5]
    assert tables["similarity"].to_numpy() == pytest.approx(np.array([[1, half, 0], [half, 1, 0.5], [0, 0.5, 1]]))


def test_groups_and_classes_without_samples():
    """Where there are groups, so is a column for them; a data set may name a fourth class that has no sample."""
    groups = np.array([0] * 4 + [1] * 6)
    tables = describe(make_partition(LABELS, 2, "domain", 0, groups=groups, clients_per_domain=1), "abcd")
    assert tables["clients"]["group"].tolist() == [0, 1]
    assert tables["counts"].loc[0].tolist() == [4, 0, 0, 0] and tables["counts"]["d"].tolist() == [0, 0]
    with pytest.raises(BadValue, match="classes = .*at least 3 names"):
        describe(make_partition(LABELS, 2, "iid", 0), ["one", "two"])


def test_label_cosine_and_entropy_of_an_empty_client_are_zero():
    """Shares 1/4 and 3/4: ln 4 - 3/4 ln 3."""
    assert np.allclose(label_cosine(np.array([[0, 0], [3, 4]])), [[0, 0], [0, 1]])
    assert label_entropy(np.array([[1, 3], [0, 0]])) == pytest.approx([np.log(4) - 0.75 * np.log(3), 0], abs=1e-12)


# pictures -------------------------------------------------------------------------------------------------------------


def picture(figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=40, metadata={"Software": None})
    return buffer.getvalue()


def test_area_is_the_number_of_samples_on_one_scale():
    figure = figures.partitions({"a": np.array([[100, 50], [0, 25]]), "b": np.array([[10, 0], [0, 1]])})
    areas = [ax.collections[0].get_sizes() for ax in figure.axes]
    assert areas[0] == pytest.approx(np.array([1, 0.5, 0.25]) * areas[0][0])
    assert areas[1] == pytest.approx([areas[0][0] / 10, max(areas[0][0] / 100, 2)])
    assert [ax.collections[0].get_offsets().data.tolist() for ax in figure.axes] == [
        [[0, 0], [0, 1], [1, 1]],
        [[0, 0], [1, 1]],
    ]


def test_the_key_has_round_numbers_and_their_areas():
    figure = figures.partitions({"a": np.array([[5913, 0], [17, 90]])})
    (key,) = figure.legends
    assert [text.get_text() for text in key.get_texts()] == ["5,000", "1,000", "300"]
    assert [handle.get_markersize() ** 2 / BUBBLE * 5913 for handle in key.legend_handles] == pytest.approx(
        [5000, 1000, 300]
    )


@pytest.mark.parametrize(
    "clients, classes, bubbles", [(40, 20, True), (41, 20, False), (40, 21, False), (120, 200, False), (1, 1, True)]
)
def test_many_clients_or_classes_become_a_heat_map(clients, classes, bubbles):
    counts = np.random.default_rng(0).integers(0, 50, (clients, classes)) + 1
    figure = figures.partitions({"many": counts})
    ax = figure.axes[0]
    assert (len(ax.images), len(ax.collections)) == ((0, 1) if bubbles else (1, 0))
    if not bubbles:
        assert np.array_equal(ax.images[0].get_array(), counts.T)
        assert len(ax.get_xticks()) <= 12 and len(ax.get_yticks()) <= 20
    assert picture(figure) == picture(figures.partitions({"many": counts}))


def test_no_sample_is_white_on_a_heat_map():
    counts = np.zeros((50, 3), dtype=int)
    counts[0] = 7
    shown = figures.partitions({"few": counts}).axes[0].images[0].get_array()
    assert shown.mask[:, 1:].all() and not shown.mask[:, 0].any()


def test_panels_wrap_and_classes_are_named():
    counts = np.ones((20, 3), dtype=int)
    figure = figures.partitions({f"panel {k}": counts for k in range(5)}, classes=("cat", "dog", "emu"))
    assert [ax.get_title() for ax in figure.axes] == [f"panel {k}" for k in range(5)]
    assert figure.get_figwidth() == PAGE and len({round(ax.get_subplotspec().rowspan.start) for ax in figure.axes}) == 3
    assert [tick.get_text() for tick in figure.axes[0].get_yticklabels()] == ["cat", "dog", "emu"]


def test_similarity_matrices():
    tables = describe(make_partition(LABELS, 3, "manual", 0, label_sets=SETS))
    figure = figures.client_matrices({"by hand": tables["similarity"], "again": np.eye(60)}, "cosine of the labels")
    assert np.array_equal(figure.axes[0].images[0].get_array(), tables["similarity"])
    assert [ax.get_title() for ax in figure.axes[:2]] == ["by hand", "again"] and len(figure.axes[1].get_xticks()) <= 12
    assert len(picture(figure)) > 1000
