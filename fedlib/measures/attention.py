"""Where networks look: Grad-CAM maps of every client's networks on some of its test images (FedSimSup's Figure 4).

R. R. Selvaraju et al., "Grad-CAM: Visual Explanations from Deep Networks via Gradient-based Localization", ICCV 2017,
as captum computes it: the gradients of a logit with respect to a layer's channels, averaged over the cells, weigh
these channels; what is positive in their weighted sum is the map. The layer is the ReLU after the last convolution.
"""

from __future__ import annotations

import copy
import warnings
from types import ModuleType

import numpy as np
import torch
from torch import Tensor, nn

from fedlib.base import tree
from fedlib.base.draws import rng
from fedlib.base.errors import needed, require
from fedlib.models import Model, layers

IMAGES = 100  # in all, or a few more: equally many of every client, as far as it has them
PICTURED = 16  # of so many clients the first image is kept
COARSEST = 4  # cells a side; a map of 2x2 cells cannot be spread, or scattered
BRIGHT = 128  # of 255: what belongs to the object in images of one channel, which are bright on dark
TRAINED, SUPERVISOR = "model", "supervisor"
NETWORKS = (TRAINED, f"{TRAINED}, untrained", SUPERVISOR, f"{SUPERVISOR}, untrained")  # a method without the last two


def attention(run, thetas: dict) -> dict[str, np.ndarray]:
    """Maps of M images: `attention` float32 [M, networks, h, w], at least 0, on the cells of the layer.

    networks: as in NETWORKS; untrained are the values that they began with. Of every image all of them explain one
    class, the client's prediction (of both networks together where there is a supervisor). attention_<name>, int64 [M]:
    client, sample (of the data set), label, predicted. attention_stride int64 [1]: pixels from a cell to the next.
    attention_pictured int64 [P]: whose pixels are in attention_pixels, uint8 [P, c, H, W]. attention_object bool
    [M, H, W]: the object's pixels, only for images of one channel. Raises BadValue for networks without such maps.
    """
    model, source, own, kinds = run.work.model, run.work.source, looked_at(run), {*run.groups}
    stride = check_networks(run.spec, model, kinds, source.dataset.shape, run.setting.num_classes)
    first = run.method.first_supervisors(model, run.setting.num_clients) if kinds else {}
    maps, predicted = [], []
    for i, index in enumerate(own):
        theta, x = tree.rows(thetas, i), source.batch(torch.from_numpy(index)).x
        predicted.append(run.method.predict(model, theta, x).argmax(1))
        networks = [(model, theta), (model, model.theta0)]
        for kind in kinds:
            supervisor = model.sibling(kind)
            networks += [(supervisor, theta["supervisor"][kind]), (supervisor, tree.rows(first[kind], i))]
        maps.append(torch.stack([grad_cam(network, values, x, predicted[-1]) for network, values in networks], 1))
    index, client = np.concatenate(own), np.repeat(range(len(own)), [len(each) for each in own])
    pictured = np.unique(client, return_index=True)[1][:PICTURED]
    pixels = source.dataset.images[torch.from_numpy(index)].numpy()
    return {
        "attention": torch.cat(maps).float().cpu().numpy(),
        "attention_client": client.astype(np.int64),
        "attention_sample": index.astype(np.int64),
        "attention_label": source.labels.cpu().numpy()[index],
        "attention_predicted": torch.cat(predicted).cpu().numpy(),
        "attention_stride": np.array([stride]),
        "attention_pictured": pictured.astype(np.int64),
        "attention_pixels": pixels[pictured],
    } | ({"attention_object": pixels[:, 0] >= BRIGHT} if pixels.shape[1] == 1 else {})


def looked_at(run) -> list[np.ndarray]:
    """By client the indices of some of its test images, sorted, the same for every method and seed of a partition."""
    most = -(-IMAGES // run.setting.num_clients)
    shuffled = [rng(run.spec.partition_seed, "images", i).permutation(p["test"]) for i, p in enumerate(run.work.parts)]
    return [np.sort(each[:most]) for each in shuffled]


def grad_cam(model: Model, theta: dict, x: Tensor, classes: Tensor) -> Tensor:
    """Grad-CAM of the network with the values theta, [B, h, w]; x: standardised images [B, c, H, W]; classes: whose
    scores are explained, int64 [B]."""
    network = loaded(model, theta)
    layer = network.get_submodule(layer_of_maps(model))
    return captum_attr().LayerGradCam(network, layer).attribute(x, classes, relu_attributions=True)[:, 0].detach()


def captum_attr() -> ModuleType:
    """captum's methods: imported when they are needed, and without the warning that its progress bars, which are not
    shown here, give in notebooks without widgets. Raises FedlibError where captum is not installed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return needed("captum.attr", "captum", "the measure 'attention'")


def loaded(model: Model, theta: dict) -> nn.Module:
    """A copy of the network as a module of its own, in evaluation mode, with theta's values."""
    network = copy.deepcopy(model.module).eval()
    network.load_state_dict({name: theta[name] for name in model.theta0}, strict=False)  # index tables stay
    return network


def layer_of_maps(model: Model) -> str:
    """The name of the ReLU after the last convolution.

    Raises BadValue unless the extractor is one sequence of layers that has both.
    """
    extractor = model.module.extractor
    named = list(extractor.named_children()) if isinstance(extractor, nn.Sequential) else []
    last = max((k for k, (_, layer) in enumerate(named) if isinstance(layer, nn.Conv2d)), default=len(named))
    found = [f"extractor.{name}" for name, layer in named[last:] if isinstance(layer, nn.ReLU)]
    require(bool(found), "measure", "attention", "a sequence of layers with a ReLU after the last convolution")
    return found[0]


def check_networks(spec, model: Model, kinds: set[str], shape: tuple[int, int, int], num_classes: int) -> int:
    """Pixels from one cell of the maps of a run's model to the next; kinds: its supervisors' networks.

    Raises BadValue unless all these networks have maps, of one size.
    """
    for network in (model, *map(model.sibling, kinds)):
        layer_of_maps(network)
    stride, size = grid_of_maps(spec.model, shape, num_classes, spec.model_options)
    sizes = {size, *(grid_of_maps(kind, shape, num_classes)[1] for kind in kinds)}
    require(len(sizes) == 1, "measure", "attention", "networks with maps of one size")
    return stride


def grid_of_maps(
    name: str, shape: tuple[int, int, int], num_classes: int, options: dict | None = None
) -> tuple[int, tuple[int, ...]]:
    """Pixels from one cell of the last convolution's output to the next, and how many cells it has, (h, w).

    Raises BadValue if there is no convolution, or if it makes maps that are too coarse of images of this shape.
    """
    rows = layers(name, shape, num_classes, **(options or {}))
    last = max((k for k, row in enumerate(rows) if row["kind"] == "Conv2D"), default=-1)
    require(last >= 0, "measure", "attention", f"a network with convolutions, which {name} has not")
    cells = tuple(rows[last]["output"][1:])
    makes = f"the last convolution of {name} makes {'x'.join(map(str, cells))} of images of {shape[1]}x{shape[2]}"
    require(min(cells) >= COARSEST, "measure", "attention", f"maps of {COARSEST}x{COARSEST} cells or more; {makes}")
    return int(np.prod([row["stride"] or 1 for row in rows[: last + 1]])), cells
