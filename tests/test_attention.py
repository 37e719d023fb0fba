"""Grad-CAM maps: by hand, where they lie on the image, how spread they are, what a run keeps of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers import analysed, signs, smoke_item, tiny
from PIL import Image
from pytest import approx

from fedlib import models
from fedlib.analysis import attention as analysis
from fedlib.base import tree
from fedlib.base.errors import BadValue
from fedlib.checks.plays import TINY
from fedlib.data import load
from fedlib.engine.result import RunResult
from fedlib.engine.setup import first_state, set_up
from fedlib.engine.simulate import simulate, watched
from fedlib.experiments import OpenItem, find
from fedlib.measures import attention
from fedlib.measures.attention import NETWORKS, grad_cam, grid_of_maps, layer_of_maps

LARGE = dict(TINY, dataset="digits_large", model="lenet5", measures=("attention",))


def by_hand(module, depth: int, x, classes):
    """Grad-CAM without captum: everything up to a layer of the extractor, then the rest, cut there."""
    layers = list(module.extractor)
    activations = torch.nn.Sequential(*layers[:depth])(x).detach().requires_grad_()
    scores = module.head(torch.nn.Sequential(*layers[depth:])(activations))
    (slopes,) = torch.autograd.grad(scores.gather(1, classes[:, None]).sum(), activations)
    return (slopes.mean((2, 3), keepdim=True) * activations).sum(1).clamp(min=0).detach()


@pytest.mark.parametrize(("name", "depth"), [("lenet5", 5), ("supervisor_sixth", 5), ("supervisor_cnn", 5)])
def test_maps_are_those_made_by_hand(name, depth):
    model = models.build(name, (3, 32, 32), 10, seed=1).to(torch.device("cpu"), torch.float64)
    draw = torch.Generator().manual_seed(0)
    theta = {k: v + 0.1 * torch.randn(v.shape, generator=draw, dtype=v.dtype) for k, v in model.theta0.items()}
    x, classes = torch.randn(6, 3, 32, 32, generator=draw, dtype=torch.float64), torch.tensor([0, 3, 3, 9, 5, 1])
    before = {k: v.clone() for k, v in model.module.state_dict().items()}
    with torch.no_grad():
        found = grad_cam(model, theta, x, classes)
    expected = by_hand(attention.loaded(model, theta), depth, x, classes)
    assert layer_of_maps(model) == "extractor.relu2" and expected.any()
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(model.logits(theta, x), attention.loaded(model, theta)(x))
    assert all(torch.equal(v, before[k]) for k, v in model.module.state_dict().items())  # a copy, not the network


def test_cells_are_placed_in_the_middle_of_what_they_see():
    """What a cell of LeNet-5's second convolution depends on, found by a gradient through convolutions of ones."""
    net = attention.loaded(model := models.build("lenet5", (1, 32, 32), 10), model.theta0).extractor
    for name in ("conv1", "conv2"):
        torch.nn.init.ones_(getattr(net, name).weight)
    pool = torch.nn.AvgPool2d(2)  # sees all of its window
    stride = grid_of_maps("lenet5", (1, 32, 32), 10)[0]
    assert stride == 2
    assert grid_of_maps("lenet5_bn", (1, 32, 32), 10)[0] == 1  # no pooling before its second convolution
    for cell in ((0, 0), (3, 7), (9, 9)):
        x = torch.ones(1, 1, 32, 32, requires_grad=True)
        (seen,) = torch.autograd.grad(net.conv2(pool(net.conv1(x)))[0, 0][cell], x)
        centre = torch.nonzero(seen[0, 0]).double().mean(0)
        one = np.zeros((1, 10, 10), dtype=np.float32)
        one[0][cell] = 1
        large = analysis.placed(one, stride, (32, 32))[0]
        assert large.shape == (32, 32) and not large[:6].any() and not large[:, 26:].any()
        middle = np.argwhere(large == large.max()).mean(0)
        assert np.abs(middle - centre.numpy()).max() <= 0.5


def test_spread_of_maps_on_paper():
    """Four maps of 16 cells: uniform, one cell, four unequal cells in a row, four of which the two that hold half of
    the map touch at a corner or do not."""
    uniform, one, row = np.ones((4, 4)), np.zeros((4, 4)), np.zeros((4, 4))
    one[1, 2], row[0] = 5, [4, 2, 1, 1]
    touching, apart = np.diag([2.0, 2, 0, 1]), np.diag([2.0, 0, 0, 2])
    touching[0, 3] = apart[0, 3] = 1
    found = analysis.spread(np.stack([uniform, one, row, touching, apart]).astype(np.float32))
    bit = 100 * np.log(2) / np.log(16)  # two equal cells of sixteen
    last = -sum(p * np.log(p) for p in (0.4, 0.4, 0.2)) / np.log(16)
    assert found["entropy"].tolist()[:3] == approx([100, 0, 1.75 * bit])  # of 1/2, 1/4, 1/8, 1/8
    assert found["entropy"].iloc[4] == approx(100 * last, rel=1e-5)
    assert found["area"].tolist() == approx([50, 6.25, 6.25, 12.5, 12.5])
    assert found["blobs"].tolist() == [1, 1, 1, 1, 2]
    assert analysis.spread(np.zeros((0, 4, 4))).empty


def test_maps_on_objects_on_paper():
    objects = np.zeros((2, 4, 4), dtype=bool)
    objects[:, :2] = True
    maps = np.ones((2, 4, 4))
    maps[1, :2] = 3
    found = analysis.on_object(maps, objects)
    assert found["on_object"].tolist() == approx([50, 75])
    assert found["covered"].tolist() == approx(
        [100, 75]
    )  # ties go from the top; 6 cells of weight 3 are over half of 32


@pytest.fixture(scope="module")
def kept() -> RunResult:
    return simulate(tiny("fedsimsup", **LARGE), backend="serial")


def test_a_run_keeps_maps_of_all_its_networks(kept):
    a = kept.arrays
    number = len(a["attention_client"])
    assert a["attention"].shape == (number, 4, 10, 10) and (a["attention"] >= 0).all() and number == 100
    assert np.bincount(a["attention_client"]).tolist() == [25] * 4
    digits = load("digits_large")
    assert (digits.labels.numpy()[a["attention_sample"]] == a["attention_label"]).all()
    assert (a["attention_object"] == (digits.images.numpy()[a["attention_sample"], 0] >= 128)).all()
    assert a["attention_client"][a["attention_pictured"]].tolist() == [0, 1, 2, 3]
    pictured = a["attention_sample"][a["attention_pictured"]]
    assert (a["attention_pixels"] == digits.images.numpy()[pictured]).all()
    assert a["attention_stride"].tolist() == [2] and all(v.dtype != object for v in a.values())


def test_kept_maps_are_of_the_tested_networks_and_of_those_they_began_as(kept):
    """From the states of the same run walked through: mixed models, kept supervisors, first values; every class is the
    prediction of the sum."""
    spec, a = tiny("fedsimsup", **LARGE), kept.arrays
    for run, state in watched(spec):  # noqa: B007, the last state
        pass
    start = first_state(run)
    model, kind = run.work.model, run.method.supervisors
    supervisor = model.sibling(kind)
    for i in range(spec.num_clients):
        own = a["attention_client"] == i
        x = run.work.source.batch(torch.from_numpy(a["attention_sample"][own])).x
        assert set(a["attention_sample"][own]) <= set(run.work.parts[i]["test"])
        theta, u = (tree.rows(part, i) for part in (state.server["personal"], state.clients[kind]))
        classes = (model.logits(theta, x) + supervisor.logits(u, x)).argmax(1)
        assert classes.tolist() == a["attention_predicted"][own].tolist()
        first = tree.rows(start.clients[kind], i)
        values = [(model, theta), (model, model.theta0), (supervisor, u), (supervisor, first)]
        for k, (network, own_values) in enumerate(values):
            maps = by_hand(attention.loaded(network, own_values), 5, x, classes)
            np.testing.assert_allclose(a["attention"][own, k], maps, rtol=1e-4, atol=1e-6)


def test_other_methods_look_at_the_same_images_and_training_is_the_same(kept):
    other = simulate(tiny("fedavg", **LARGE, seed=3), backend="serial")
    assert (other.arrays["attention_sample"] == kept.arrays["attention_sample"]).all()
    assert other.arrays["attention"].shape == (100, 2, 10, 10)
    plain = simulate(tiny("fedsimsup", **{**LARGE, "measures": ()}), backend="serial")
    assert plain.history == kept.history


def test_rows_of_maps(kept):
    rows = analysis.map_rows(kept)
    assert len(rows) == 400 and rows["network"].unique().tolist() == list(NETWORKS) and not rows.isna().any(axis=None)
    a, k = kept.arrays, 17
    own = rows[(rows["network"] == "supervisor") & (rows["image"] == k)].iloc[0]
    if not own["empty"]:
        assert own["entropy"] == approx(analysis.spread(a["attention"][k, 2][None])["entropy"].item())
    right = a["attention_label"] == a["attention_predicted"]
    assert rows.loc[rows["network"] == "model", "right"].tolist() == right.tolist()


def test_a_network_that_sees_nothing_is_counted_and_left_out(kept):
    maps = kept.arrays["attention"].copy()
    maps[:40, 0] = 0
    blind = RunResult(kept.spec, "finished", arrays={**kept.arrays, "attention": maps})
    rows = analysis.map_rows(blind).assign(seed=0)
    own = rows[rows["network"] == "model"]
    assert own["empty"][:40].all() and own.loc[own["empty"], "entropy"].eq(0).all()
    means = analysis.network_draws(rows, "area", ["model", "supervisor"])
    seen = rows[~rows["empty"]]
    seen = seen[seen["network"].isin(["model", "supervisor"]) & (seen.groupby("image")["network"].transform(
        lambda names: {"model", "supervisor"} <= set(names)))]  # fmt: skip
    expected = seen.groupby(["network", "client"])["area"].mean().groupby("network").mean()
    assert means.iloc[0].to_dict() == approx(expected.to_dict())
    maps[:, 0] = 0
    none = RunResult(kept.spec, "finished", arrays={**kept.arrays, "attention": maps})
    rows = analysis.map_rows(none).assign(seed=0)
    assert analysis.network_draws(rows, "area", ["model", "supervisor"]).empty
    assert analysis.shown(none, 8, list("0123456789")).empty


def test_of_colour_images_no_object_is_known(tmp_path):
    draw = np.random.default_rng(0)
    for name in "ab":
        (tmp_path / name).mkdir()
        for k in range(30):
            Image.fromarray(draw.integers(0, 256, (32, 32, 3), dtype=np.uint8)).save(tmp_path / name / f"{k}.png")
    own = {**LARGE, "dataset": f"folder:{tmp_path}@32", "rounds": 1}
    arrays = simulate(tiny("fedsimsup", **own), backend="serial").arrays
    assert "attention_object" not in arrays and arrays["attention_pixels"].shape == (4, 3, 32, 32)
    rows = analysis.map_rows(RunResult(tiny("local", **own), "finished", arrays=arrays))
    assert set(rows) == {"client", "image", "network", "empty", "right", "entropy", "area", "blobs"}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"dataset": "digits"}, "4x4 cells or more; the last convolution of lenet5 makes 2x2 of images of 16x16"),
        ({"hyper": {"supervisors": "supervisor_none"}}, "a ReLU after the last convolution"),
        ({"hyper": {"supervisors": "supervisor_cnn"}}, "maps of one size"),
        ({"model": "resnet18"}, "a sequence of layers"),
        ({"method": "fedem"}, r"\['attention'\] is not accepted; .* clients of fedem have several models"),
    ],
)
def test_networks_without_maps_are_refused(changes, said):
    with pytest.raises(BadValue, match=said):  # before any training
        set_up(tiny(**{"method": "fedsimsup", **LARGE, **changes}))


def test_the_stride_needs_a_convolution():
    with pytest.raises(BadValue, match="convolutions, which supervisor_none has not"):
        grid_of_maps("supervisor_none", (1, 32, 32), 10)


def test_pictures_come_back_from_their_text(kept):
    shown = analysis.shown(kept, 3, [f"class {k}" for k in range(10)])
    assert shown["row"].unique().tolist() == ["image", "model", "supervisor"] and shown["column"].nunique() <= 3
    one = shown.iloc[0]
    pixels = np.array([list(bytes.fromhex(line)) for line in one["pixels"].split()])
    a = kept.arrays
    assert any((pixels == image[0]).all() for image in a["attention_pixels"]) and one["title"].startswith("class")


# the item -------------------------------------------------------------------------------------------------------------

ITEM = "fedsimsup/fig4_attention"
DETAILS = np.zeros((10, 10), dtype=np.float32)  # four cells at the sides
DETAILS[[0, 4, 4, 9], [4, 0, 9, 4]] = 1
WHOLE = np.zeros((10, 10), dtype=np.float32)  # a block in the middle
WHOLE[2:8, 2:8] = 1


def seeing(of_network):
    """Runs whose networks see what `of_network` says, map [10, 10] by method, network and image (+ 100 seed); a square
    in the middle is the object."""
    objects = np.zeros((40, 32, 32), dtype=bool)
    objects[:, 8:24, 8:24] = True

    def make(key, spec):
        names = NETWORKS if spec.method == "fedsimsup" else NETWORKS[:2]
        maps = np.stack([[of_network(key[0], name, k + 100 * spec.seed) for name in names] for k in range(40)])
        labels = np.arange(40) % 10
        arrays = {
            "attention": maps, "attention_client": np.arange(40) // 2, "attention_label": labels,
            "attention_predicted": labels, "attention_stride": np.array([2]), "attention_object": objects,
            "attention_pictured": np.arange(0, 32, 2), "attention_pixels": np.zeros((16, 1, 32, 32), dtype=np.uint8),
        }  # fmt: skip
        return RunResult(spec, "finished", arrays=arrays)

    return analysed(ITEM, make)


def test_claims_go_both_ways():
    """As the paper has it; the other way round; and as much with both networks trained alone, or untrained."""

    def paper(run, network, k):
        return DETAILS if (run, network) == ("fedsimsup", "model") else WHOLE

    def turned(run, network, k):
        return DETAILS if network.startswith("supervisor") or run == "local" else WHOLE

    def architecture(run, network, k):
        return DETAILS if network.startswith("model") and run != "local, a sixth" else WHOLE

    assert signs(ITEM, seeing(paper)) == "++++++++"
    assert signs(ITEM, seeing(turned)) == "--------"
    assert signs(ITEM, seeing(architecture)) == "+++++---"
    mixed = seeing(lambda run, network, k: DETAILS if (k // 100 + network.startswith("supervisor")) % 2 else WHOLE)
    assert "+" not in signs(ITEM, mixed) and mixed["pictures"]["column"].nunique() == 8


def test_claims_that_need_objects_or_maps_are_not_tested_without_them():
    tables = seeing(lambda run, network, k: WHOLE)
    without = {**tables, "tidy": tables["tidy"].drop(columns=["on_object", "covered"])}
    found = [claim.check(without) for claim in find(ITEM).claims]
    assert [v.status == "not tested" for v in found] == [False, False, False, True, True, False, True, False]
    assert "needs object locations" in found[3].evidence
    blind = {**tables, "tidy": tables["tidy"].assign(empty=True)}
    assert signs(ITEM, blind) == "........"


def test_the_item_compares_seven_networks():
    tables = smoke_item(ITEM).tables
    assert tables["compare"]["network"].tolist()[:2] == ["FedSimSup: model", "FedSimSup: supervisor"]
    assert len(tables["compare"]) == 7
    beside = ["supervisor minus Local's LeNet-5", "model minus Local's LeNet-5"]
    assert tables["differences"]["pair"].tolist() == ["FedSimSup", "local-only training", "untrained", *beside]
    assert tables["tidy"].groupby("network")["image"].nunique().eq(104).all()


def test_images_that_are_too_small_are_refused_before_anything_is_trained():
    with pytest.raises(BadValue, match="2x2 of images of 16x16"):
        OpenItem(find(ITEM), "quick", dataset="digits")
