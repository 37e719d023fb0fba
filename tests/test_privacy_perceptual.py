"""ST-LPIPS: equal pictures, more and more noise, pictures one by one; and Figure 11 without it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedlib.attacks import scores
from fedlib.base.errors import BadValue, FedlibError
from fedlib.data import load
from fedlib.engine.result import RunResult
from fedlib.experiments import find

computed = pytest.mark.skipif(
    not scores.can_be_computed(), reason="ST-LPIPS IS NOT INSTALLED: it was NOT tested; pip install 'fedlib[attack]'"
)


def digits(n: int) -> np.ndarray:
    return load("digits").images[:n].float().div(255).numpy()


@computed
def test_equal_pictures_have_no_distance_and_noise_adds_to_it():
    images, noise = digits(12), np.random.default_rng(0).normal(size=(12, 1, 16, 16)).astype("float32")
    assert not scores.distances(images, images).any()
    means = [scores.distances(images, (images + s * noise).clip(0, 1)).mean() for s in (0.01, 0.05, 0.2, 0.8)]
    assert all(b > 1.2 * a for a, b in zip(means, means[1:])) and 0 < means[0] < 0.05 and 0.5 < means[-1] < 1.5


@computed
def test_a_shift_of_a_pixel_matters_less_than_noise_of_the_same_error():
    """What the measure is for, and what needs its trained weights: by PSNR the two are equal."""
    images, rng = digits(30), np.random.default_rng(0)
    shifted = np.roll(images, 1, -1)
    noise = rng.permuted(shifted - images, axis=-1)  # the same differences elsewhere
    near, far = scores.distances(images, shifted), scores.distances(images, images + noise)
    assert (near < far).all() and near.mean() < 0.5 * far.mean()


@computed
def test_pictures_do_not_influence_each_other_and_grey_is_three_equal_channels(monkeypatch):
    images = torch.from_numpy(digits(7))
    whole = scores.distances(images, images.flip(0))
    assert whole.shape == (7,) and whole.dtype == np.float64
    monkeypatch.setattr(scores, "AT_ONCE", 3)
    np.testing.assert_allclose(scores.distances(images, images.flip(0)), whole, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(
        scores.distances(images.expand(-1, 3, -1, -1), images.flip(0).expand(-1, 3, -1, -1)),
        whole,
        rtol=1e-4,
        atol=1e-6,
    )


@computed
@pytest.mark.parametrize(
    ("a", "b"), [((2, 1, 16, 16), (3, 1, 16, 16)), ((2, 2, 16, 16),) * 2, ((1, 16, 16),) * 2, ((0, 1, 16, 16),) * 2]
)
def test_other_shapes_are_refused(a, b):
    with pytest.raises(BadValue, match="shapes"):
        scores.distances(np.zeros(a), np.zeros(b))


# where the extra is not installed -------------------------------------------------------------------------------------


@pytest.fixture
def absent(monkeypatch):
    monkeypatch.setattr(scores, "NEEDED", ("stlpips_pytorch", "a_package_that_nobody_has"))


def attacked() -> tuple:
    """Figure 11 and its tables, of the smallest run of its main attack."""
    item = find("pfedsv/fig11_inversion")
    settings = item.settings["smoke"]
    (run,) = [(key, spec) for key, spec in item.runs(settings).items() if key[0] == "cosine"]
    rows, arrays = run[1].carry_out()
    tables = item.analyse(settings, {run[0]: RunResult(run[1], "finished", rows, arrays=arrays)})
    return item.figure(tables).subfigs[1].axes, tables


def test_one_line_says_what_to_install(absent):
    with pytest.raises(FedlibError, match=r"^ST-LPIPS needs .*: pip install 'fedlib\[attack\]'$"):
        scores.distances(np.zeros((1, 1, 8, 8)), np.zeros((1, 1, 8, 8)))


def test_an_attack_goes_without_and_the_figure_says_so(absent):
    axes, tables = attacked()
    assert "lpips" not in tables["tidy"] and tables["tidy"]["psnr"].notna().all()
    assert set(tables["compare"]["ST-LPIPS"]) == {"not computed"}
    assert [text.get_text() for text in axes[2].texts] == ["not computed: needs fedlib[attack]"]
    assert np.isnan(axes[2].lines[0].get_ydata()).all() and not np.isnan(axes[1].lines[0].get_ydata()).any()


@computed
def test_with_it_the_figure_has_its_panel():
    axes, tables = attacked()
    assert tables["tidy"]["lpips"].between(0, 2).all() and "not computed" not in set(tables["compare"]["ST-LPIPS"])
    assert not axes[2].texts and not np.isnan(axes[2].lines[0].get_ydata()).any()
