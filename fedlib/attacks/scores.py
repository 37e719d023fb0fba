"""How good recovered images are: PSNR = 10 log10(1/MSE) in dB, and SSIM (11x11 Gaussian window, σ 1.5) by scikit-image,
on pixels in [0, 1], each recovered image matched to its original by least total MSE; and how different two pictures
look to people, as a trained network judges: ST-LPIPS.

LPIPS (R. Zhang, P. Isola, A. Efros, E. Shechtman, O. Wang, CVPR 2018, arXiv:1801.03924) compares the features that
AlexNet has of two pictures, weighted so that the distance agrees with human judgements. ST-LPIPS (A. Ghildyal, F. Liu,
ECCV 2022, arXiv:2207.13686) is less disturbed by shifts of a pixel; its authors' package brings all weights along,
where LPIPS would download AlexNet's. That package is the extra `fedlib[attack]`; without it nothing else is missing.
"""

from __future__ import annotations

import functools
import importlib.util
from types import ModuleType

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from fedlib.base.errors import FedlibError, needed, require

WINDOW = dict(channel_axis=0, data_range=1.0, gaussian_weights=True, sigma=1.5, use_sample_covariance=False)  # of SSIM
SIDE = 64  # pixels to which pictures are enlarged: smaller ones are less than AlexNet's filters ask for
AT_ONCE = 64  # pictures in one forward pass, which bounds the memory
NEEDED = ("stlpips_pytorch", "torchsummary")  # of the extra


def skimage_metrics() -> ModuleType:
    """scikit-image's measures of similarity. Raises FedlibError where it is not installed."""
    return needed("skimage.metrics", "scikit-image", "the SSIM of attacked images")


def score(originals: Tensor, recovered: Tensor) -> dict[str, np.ndarray]:
    """mse, psnr (dB), ssim of every original, float64 [A, b], and `order` int64 [A, b]:
    which recovered image is matched to it.

    originals, recovered: [A, b, c, h, w] in [0, 1]. ssim is nan for images smaller than its window of 11 pixels.
    """
    from scipy.optimize import linear_sum_assignment

    structural_similarity = skimage_metrics().structural_similarity
    true, ours = (images.double().cpu().numpy().clip(0, 1) for images in (originals, recovered))
    A, b = true.shape[:2]
    out = {name: np.full((A, b), np.nan) for name in ("mse", "psnr", "ssim")}
    out["order"] = np.zeros((A, b), dtype=np.int64)
    large = min(true.shape[-2:]) >= 11
    for k in range(A):
        costs = ((true[k][:, None] - ours[k][None]) ** 2).mean((2, 3, 4))
        out["order"][k] = linear_sum_assignment(costs)[1]
        for i, j in enumerate(out["order"][k]):
            out["mse"][k, i] = costs[i, j]
            if large:
                out["ssim"][k, i] = structural_similarity(true[k, i], ours[k, j], **WINDOW)
    with np.errstate(divide="ignore"):
        out["psnr"] = -10 * np.log10(out["mse"])
    return out


def can_be_computed() -> bool:
    """Whether the extra `fedlib[attack]` is installed."""
    return all(importlib.util.find_spec(name) for name in NEEDED)


def distances(originals, recovered) -> np.ndarray:
    """ST-LPIPS of every pair, float64 [n]: 0 for equal pictures, about 1 for a picture and noise.

    originals, recovered: arrays or tensors [n, c, h, w] in [0, 1], c 1 (grey) or 3. Pictures are enlarged to SIDE
    pixels first, so that only numbers of pictures of one size can be compared. Raises BadValue for other shapes, and
    FedlibError without the extra `fedlib[attack]`.
    """
    pair = [torch.as_tensor(images).float() for images in (originals, recovered)]
    a, b = (tuple(images.shape) for images in pair)
    alike = a == b and len(a) == 4 and a[0] and a[1] in (1, 3)
    require(alike, "shapes", (a, b), "twice [n, c, h, w], n of at least 1, c 1 or 3")
    if not can_be_computed():
        raise FedlibError("ST-LPIPS needs stlpips-pytorch and torchsummary: pip install 'fedlib[attack]'")
    with torch.no_grad():
        parts = zip(*(images.split(AT_ONCE) for images in pair))
        wide = dict(size=(SIDE, SIDE), mode="bilinear", align_corners=False)
        large = ([functional.interpolate(images, **wide).expand(-1, 3, -1, -1) for images in part] for part in parts)
        found = [_network()(*part, normalize=True).flatten() for part in large]
    return torch.cat(found).double().numpy()


@functools.cache
def _network():
    from stlpips_pytorch.stlpips import LPIPS

    return LPIPS(net="alex", variant="shift_tolerant", verbose=False)
