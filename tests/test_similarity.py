"""Similarities of clients: hand-computed small cases, invariances, and the measures of a run from end to end."""

import math

import numpy as np
import pytest
import torch
from helpers import many
from hypothesis import given
from hypothesis import strategies as st

from fedlib.algorithms.parts.similarity import (
    centred_gram,
    class_cosines,
    class_vectors,
    classifier_similarity,
    data_similarity,
    gram_cka,
    loss_difference_similarity,
    model_difference_similarity,
    norm_statistics,
    products,
    squared_distances,
    wasserstein_similarity,
)
from fedlib.base import tree
from fedlib.data.describe import label_cosine
from fedlib.data.partition import make_partition
from fedlib.engine.setup import set_up
from fedlib.engine.simulate import simulate
from fedlib.measures import final_models as measures
from fedlib.spec import RunSpec

FOUR = [[0, 1, 2, 3, 4], [0, 1, 2, 3, 4], [2, 3, 4, 5, 6], [5, 6, 7, 8, 9]]  # clients i, i', j, k of pFedSim Fig. 2


def tensor(*values):
    return torch.tensor(values, dtype=torch.float64)


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# CKA ------------------------------------------------------------------------------------------------------------------

sizes = st.tuples(st.integers(3, 20), st.integers(1, 12), st.integers(1, 12), st.integers(0, 10**6))


def linear_cka(x, y):
    return gram_cka(centred_gram(x), centred_gram(y))


def feature_cka(x, y):
    """||Y'X||_F^2 / (||X'X||_F ||Y'Y||_F) of column-centred features, with numpy."""
    x, y = (z.flatten(1).numpy() - z.flatten(1).numpy().mean(0) for z in (x, y))
    return np.linalg.norm(y.T @ x) ** 2 / (np.linalg.norm(x.T @ x) * np.linalg.norm(y.T @ y))


@many(200)
@given(sizes)
def test_gram_form_is_the_feature_form(case):
    """s samples, p and q features, s < p and s > p: same value, in [0, 1], symmetric."""
    s, p, q, seed = case
    x, y = 3 + normal(s, p, seed=seed), normal(s, q, seed=seed + 1)
    value = linear_cka(x, y)
    assert value == pytest.approx(feature_cka(x, y), rel=1e-9, abs=1e-12)
    assert -1e-12 <= value <= 1 + 1e-12 and linear_cka(y, x) == pytest.approx(value, rel=1e-12)


def test_cka_sees_what_is_not_a_rotation():
    """x = (1, -1, 0, 0), y = (0, 0, 1, -1) are orthogonal: 0. z = x + y: <x, z>^2 / (|x|^2 |z|^2) = 4 / 8 = 1/2."""
    x, y = tensor(1, -1, 0, 0)[:, None], tensor(0, 0, 1, -1)[:, None]
    assert linear_cka(x, y) == pytest.approx(0, abs=1e-15)
    assert linear_cka(x, x + y) == pytest.approx(0.5)
    stretched = normal(50, 4) * tensor(1, 1, 1, 30)
    assert linear_cka(normal(50, 4), stretched) < 0.7


def test_cka_flattens_maps_and_computes_in_float64():
    x, y = normal(30, 4, 3, 2).float(), normal(30, 7, seed=1).float()
    assert linear_cka(x, y) == pytest.approx(feature_cka(x.double(), y.double()), rel=1e-12)


@pytest.mark.parametrize("level", [0.0, 0.1, 7.0, 1e4])
@pytest.mark.parametrize("wide", [3, 4000])
def test_constant_activations_give_zero_and_warn(level, wide):
    """Undefined (zero norm): 0 with a warning, on either side and on both,
    whatever the constant and its rounding errors."""
    constant = (level * normal(1, wide)).expand(101, wide)
    for x, y in ((constant, normal(101, 5)), (normal(101, 5), constant), (constant, constant)):
        with pytest.warns(UserWarning, match="constant"):
            assert linear_cka(x, y) == 0


def test_small_activations_are_not_constant():
    """CKA does not depend on the unit of the activations, however small."""
    x = normal(20, 5)
    assert linear_cka(x, 1e-12 * x) == pytest.approx(1)


# classifiers ----------------------------------------------------------------------------------------------------------


def test_class_cosines_are_pytorch_s():
    a, b = normal(3, 4, 6), normal(2, 4, 6, seed=1)
    cosines = class_cosines(a, b)
    assert cosines.shape == (3, 2, 4) and cosines.dtype == torch.float64
    torch.testing.assert_close(
        cosines, torch.nn.functional.cosine_similarity(a[:, None], b[None], dim=-1), rtol=1e-7, atol=1e-9
    )
    torch.testing.assert_close(
        class_cosines(a.float(), b.float()), class_cosines(a.float().double(), b.float().double()), rtol=0, atol=0
    )


def test_class_cosines_by_hand():
    """(3, 4) and (4, 3): 24/25. (1, 0) and (-2, 0): -1. A zero row has cosine 0 with everything, by eps."""
    a, b = tensor((3, 4), (1, 0), (0, 0)), tensor((4, 3), (-2, 0), (1, 1))
    assert class_cosines(a[None], b[None])[0, 0].tolist() == pytest.approx([0.96, -1, 0], abs=1e-7)
    theta_a, theta_b = ({"head.weight": w, "head.bias": tensor(1, 2, 3)} for w in (a, b))
    assert classifier_similarity(theta_a, theta_b).tolist() == pytest.approx([0.96, -1, 0], abs=1e-7)


def test_class_vectors_with_and_without_bias():
    theta = {"head.weight": normal(5, 3, 4), "head.bias": normal(5, 3, seed=1)}
    assert torch.equal(class_vectors(theta), theta["head.weight"])
    vectors = class_vectors(theta, bias=True)
    assert vectors.shape == (5, 3, 5) and torch.equal(vectors[..., :4], theta["head.weight"])
    assert torch.equal(vectors[..., 4], theta["head.bias"])


# data -----------------------------------------------------------------------------------------------------------------


def test_data_similarity_of_the_four_clients():
    """pFedSim Eq. 1 with 60 samples of each class, divided equally.

    i, i' own {0..4}, j {2..6}, k {5..9}: classes 0, 1 are shared by 2 clients (30 each), 2..4 by 3 (20), 5, 6 by 2
    (30), 7..9 are k's (60). So i and i' have 2*30 + 3*20 = 120, j 3*20 + 2*30 = 120, k 2*30 + 3*60 = 240. Common
    labels: (i, i') all: 1. (i, j) {2, 3, 4}: 6*20 / 240 = 1/2. (j, k) {5, 6}: 4*30 / 360 = 1/3. (i, k) none: 0.
    """
    counts = make_partition(np.repeat(np.arange(10), 60), 4, "manual", 0, label_sets=FOUR).counts
    i, i2, j, k = counts
    for a, b, expected in ((i, i2, 1), (i, j, 1 / 2), (i2, j, 1 / 2), (j, k, 1 / 3), (i, k, 0), (j, j, 1)):
        assert data_similarity(a, b) == data_similarity(b, a) == pytest.approx(expected, abs=1e-15)


def test_data_similarity_counts_samples_not_labels():
    """(8, 1, 0) and (0, 3, 4): label 1 is common, 1 + 3 of 16 samples."""
    assert data_similarity([8, 1, 0], [0, 3, 4]) == 4 / 16


# measures of other papers ---------------------------------------------------------------------------------------------


def test_model_difference_by_hand():
    """Updates from theta_0 = (1, 1 | 1): a (3, 0 | -4) of norm 5, b (0, 2 | -1) of norm sqrt 5, dot product 4.

    One cosine over both parameters, 4 / (5 sqrt 5), not the mean of two; over "w" alone 0. Statistics do not count.
    """
    zero = {"w": tensor(1, 1), "v": tensor(1), "running": tensor(0)}
    a = {"w": tensor(4, 1), "v": tensor(-3), "running": tensor(100)}
    b = {"w": tensor(1, 3), "v": tensor(0), "running": tensor(-100)}
    for x, y in ((a, b), (b, a)):
        assert model_difference_similarity(x, y, zero, ("w", "v")) == pytest.approx(4 / (5 * math.sqrt(5)))
    assert model_difference_similarity(a, b, zero, ("w",)) == 0
    assert model_difference_similarity(a, a, zero, ("w", "v")) == pytest.approx(1)
    assert model_difference_similarity(zero, a, zero, ("w", "v")) == 0


def test_wasserstein_by_hand():
    """Layer 1: means differ by (3, 0), stds by (0, 4): sqrt(9 + 16) = 5. Layer 2: mean 2, std 0: 2. The layers add up:
    1 / 7."""
    a = [(tensor(1, 1), tensor(2, 5)), (tensor(0), tensor(1))]
    b = [(tensor(4, 1), tensor(2, 1)), (tensor(-2), tensor(1))]
    assert wasserstein_similarity(a, b) == wasserstein_similarity(b, a) == pytest.approx(1 / 7)
    assert wasserstein_similarity(a, a) == pytest.approx(1e12)


def test_loss_difference_by_hand():
    """Own loss 0.5, the other model's 2 on the same data; models (0, 0 | 1) and (2, -1 | 3) are sqrt(4 + 1 + 4)
    = 3 apart: -1/2."""
    own, other = (
        {"w": tensor(0, 0), "v": tensor(1), "running": tensor(0)},
        {"w": tensor(2, -1), "v": tensor(3), "running": tensor(50)},
    )
    assert loss_difference_similarity(0.5, 2.0, own, other, ("w", "v")) == pytest.approx(-0.5)
    assert loss_difference_similarity(2.0, 0.5, own, other, ("w", "v")) == pytest.approx(0.5)
    assert loss_difference_similarity(1.0, 1.0, own, own, ("w", "v")) == 0


def test_norm_statistics_pool_samples_and_positions():
    """Population std over samples and positions, of the inputs of both norms."""
    run = set_up(RunSpec("local", **TINY), "serial")
    model, x = run.work.model, run.work.source.batch(torch.arange(9)).x
    stats = norm_statistics(model, model.theta0, x)
    outputs = model.layer_outputs(model.theta0, x)
    assert len(stats) == 2
    for (mean, std), name in zip(stats, ("extractor.conv1", "extractor.conv2")):
        z = outputs[name].double().numpy()
        np.testing.assert_allclose(mean, z.mean((0, 2, 3)), rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(std, z.std((0, 2, 3)), rtol=1e-9)


# end to end -----------------------------------------------------------------------------------------------------------

TINY = dict(
    num_clients=4,
    scheme="manual",
    partition={"label_sets": FOUR},
    rounds=1,
    join_ratio=1.0,
    local_epochs=1,
    eval_every=1,
)
SPEC = RunSpec("local", measures=("cka", "client_similarity"), **TINY)


@pytest.fixture(scope="module")
def result():
    return simulate(SPEC, backend="serial")


def test_cka_of_a_run(result):
    """Five layers, 1 on the diagonal, symmetric, in [0, 1], and clients that trained on different labels are not the
    same."""
    cka = result.arrays["cka"]
    assert cka.shape == (5, 4, 4)
    np.testing.assert_allclose(np.diagonal(cka, axis1=1, axis2=2), 1, rtol=1e-12)
    assert np.array_equal(cka, cka.transpose(0, 2, 1))
    off = cka[:, ~np.eye(4, dtype=bool)]
    assert (off > 0).all() and (off < 1).all()


def test_client_similarity_of_a_run(result):
    """Shapes, diagonals, symmetry (all but ldb), ranges; the data similarity is that of the partition."""
    out, own = result.arrays, np.eye(4, dtype=bool)
    assert all(out[name].shape == (4, 4) for name in ("data", "cs", "mdb", "wdb", "ldb"))
    assert out["cs_by_class"].shape == (4, 4, 10)
    for name in ("data", "cs", "mdb", "wdb"):
        np.testing.assert_allclose(out[name], out[name].T, rtol=1e-12)
    assert np.abs(out["ldb"] - out["ldb"].T)[~own].min() > 0
    assert (out["data"][own] == 1).all() and out["cs"][own] == pytest.approx([1] * 4, abs=1e-6)
    assert all(np.isnan(out[name][own]).all() and np.isfinite(out[name][~own]).all() for name in ("mdb", "wdb", "ldb"))
    np.testing.assert_allclose(out["cs"], out["cs_by_class"].mean(-1), rtol=1e-12)
    assert (np.abs(out["mdb"][~own]) <= 1).all() and (out["wdb"][~own] > 0).all()
    assert (np.abs(out["cs_by_class"]) <= 1 + 1e-9).all()
    expected = [[data_similarity(a, b) for b in result.arrays["counts"]] for a in result.arrays["counts"]]
    np.testing.assert_allclose(out["data"], expected)
    assert out["data"][0, 1] == 1 and out["data"][0, 3] == 0 and 0 < out["data"][2, 3] < out["data"][0, 2] < 1


def test_measures_do_not_change_the_run_and_repeat(result):
    """The same accuracies without measures, the same arrays again."""
    plain, again = simulate(SPEC.but(measures=()), backend="serial"), simulate(SPEC, backend="serial")
    assert plain.history == result.history and "cka" not in plain.arrays
    for name in ("cka", "data", "cs", "mdb", "wdb", "ldb"):
        assert np.array_equal(result.arrays[name], again.arrays[name], equal_nan=True)


@pytest.fixture(scope="module")
def two_models():
    """A run that was only set up, and four models of which clients 0 and 2 hold the same."""
    run = set_up(SPEC, "serial")
    other = set_up(SPEC.but(seed=1), "serial").work.model.theta0
    first = run.work.model.sgd_step(run.work.model.theta0, run.work.source.batch(torch.arange(32)), 0.1)
    second = run.work.model.sgd_step(other, run.work.source.batch(torch.arange(32, 64)), 0.1)
    third = run.work.model.sgd_step(first, run.work.source.batch(torch.arange(64, 96)), 0.1)
    return run, [first, second, first, third]


def test_cka_measure_is_linear_cka_of_layer_outputs(two_models):
    run, thetas = two_models
    cka = measures.cka(run, tree.stack(thetas))["cka"]
    x = run.work.source.batch(torch.from_numpy(measures.probe_images(run))).x
    outputs = [list(run.work.model.layer_outputs(theta, x).values()) for theta in thetas]
    for layer in range(5):
        assert cka[layer, 0, 2] == pytest.approx(1, abs=1e-9)
        for i, j in ((0, 1), (3, 1), (2, 3)):
            assert cka[layer, i, j] == pytest.approx(
                feature_cka(outputs[i][layer].double(), outputs[j][layer].double()), rel=1e-6
            )


def test_client_similarity_measure_directly(two_models):
    """ldb[a, b] = (loss of a's model - loss of b's model, on a's test part) / distance;
    wdb on each client's own training part."""
    run, thetas = two_models
    out = measures.client_similarity(run, tree.stack(thetas))
    model = run.work.model
    for a, b in ((0, 1), (1, 0), (3, 2)):
        test = run.work.source.batch(torch.from_numpy(run.work.parts[a]["test"]))
        losses = [torch.nn.functional.cross_entropy(model.logits(thetas[i], test.x), test.y).item() for i in (a, b)]
        flat = [torch.cat([thetas[i][name].flatten() for name in model.trainable]).double() for i in (a, b)]
        start = torch.cat([model.theta0[name].flatten() for name in model.trainable]).double()
        assert out["ldb"][a, b] == pytest.approx((losses[0] - losses[1]) / (flat[0] - flat[1]).norm().item(), rel=1e-3)
        assert out["mdb"][a, b] == pytest.approx(
            torch.nn.functional.cosine_similarity(flat[0] - start, flat[1] - start, dim=0).item(), rel=1e-5
        )
        stats = [
            norm_statistics(model, thetas[i], run.work.source.batch(torch.from_numpy(run.work.parts[i]["train"])).x)
            for i in (a, b)
        ]
        assert out["wdb"][a, b] == pytest.approx(wasserstein_similarity(*stats), rel=1e-6)
    assert out["cs"][0, 2] == pytest.approx(1, abs=1e-6) and out["mdb"][0, 2] == pytest.approx(1)
    assert out["ldb"][0, 2] == 0
    assert out["cs"][0, 1] < 0.9 and out["wdb"][0, 2] < 1e6


def test_probe_images_are_nobody_s_training_images(two_models):
    """Sorted, distinct, from the test parts only, every class present, the same for every seed of a spec."""
    run, _ = two_models
    probe = measures.probe_images(run)
    assert np.array_equal(probe, np.unique(probe))
    assert len(probe) == min(measures.PROBE, sum(len(p["test"]) for p in run.work.parts))
    assert not np.isin(probe, np.concatenate([p["train"] for p in run.work.parts])).any()
    assert set(run.work.source.labels[torch.from_numpy(probe)].tolist()) == set(range(10))
    assert np.array_equal(probe, measures.probe_images(set_up(SPEC.but(seed=5), "serial")))


def test_probe_is_limited(two_models, monkeypatch):
    monkeypatch.setattr(measures, "PROBE", 50)
    assert len(measures.probe_images(two_models[0])) == 50


# whole models ---------------------------------------------------------------------------------------------------------


def test_products_and_distances_of_models_by_hand():
    """a = (3, 4 | 0), (0, 0 | 1), b = (0, 4 | 2) in two leaves; a third leaf is not named: products 16, 2;
    distances 9 + 0 + 4, 0 + 16 + 1."""
    a = {"x": tensor([3, 4], [0, 0]), "y": tensor([0], [1]), "z": tensor([7], [8])}
    b = {"x": tensor([0, 4]), "y": tensor([2]), "z": tensor([9])}
    assert products(a, b, ("x", "y")).tolist() == [[16], [2]]
    np.testing.assert_allclose(squared_distances(a, b, ("x", "y")), [[13], [17]], rtol=1e-12)


def test_distances_of_equal_models_are_exactly_zero():
    """Far from the origin, where rounding would show; the others as computed directly."""
    a = {"x": 1000 + normal(4, 3, 5)}
    a["x"][2] = a["x"][0]
    d = squared_distances(a, a, ("x",))
    assert d[0, 2] == d[2, 0] == 0 and (d.diagonal() == 0).all() and (d > 0).sum() == 10
    np.testing.assert_allclose(d, (a["x"][:, None] - a["x"]).square().sum((2, 3)), rtol=1e-9)


def test_cosines_of_labels():
    """(3, 4) and (4, 3): 24/25; (3, 4) and (0, 5): 20/25; never above 1, though (1, 1) divided by its norm is."""
    found = label_cosine(np.array([[3, 4], [4, 3], [0, 5]]))
    assert found[0].tolist() == pytest.approx([1, 24 / 25, 20 / 25])
    assert label_cosine(np.random.default_rng(0).integers(1, 99, (50, 7))).max() <= 1
