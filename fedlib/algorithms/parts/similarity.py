"""How alike are two clients? Measures on their models, their data and their activations (pFedSim §4.1).

theta: a model's parameters by name (`fedlib.models.Model`); counts: samples per class, int [C].
"""

from __future__ import annotations

import warnings

import numpy as np
import torch
from torch import Tensor

from fedlib.base.same_bits import square_root

# classifiers ---------------------------------------------------------------------------------------------------------


def class_vectors(theta: dict, bias: bool = False) -> Tensor:
    """The classifier as one vector per class [..., C, d]; with `bias` it is the last component [..., C, d + 1]."""
    weight = theta["head.weight"]
    return torch.cat([weight, theta["head.bias"].unsqueeze(-1)], dim=-1) if bias else weight


def class_cosines(a: Tensor, b: Tensor, eps: float = 1e-8) -> Tensor:
    """Cosine of the vectors of every class for all pairs; a [K, C, d], b [L, C, d] -> float64 [K, L, C]."""
    a, b = a.double(), b.double()
    products = torch.einsum("kcd,lcd->klc", a, b)
    norms = a.norm(dim=-1)[:, None] * b.norm(dim=-1)[None]
    return products / (norms + eps)


def classifier_similarity(theta_a: dict, theta_b: dict) -> Tensor:
    """CS of two clients (pFedSim Eq. 2) by class, float64 [C]; its mean is the similarity of the classifiers."""
    return class_cosines(class_vectors(theta_a)[None], class_vectors(theta_b)[None])[0, 0]


# whole models --------------------------------------------------------------------------------------------------------


def products(a: dict, b: dict, names) -> Tensor:
    """Scalar products of all pairs of models over the parameters `names`; a stacked [K, ...],
    b [L, ...] -> float64 [K, L]."""
    return sum(a[name].double().flatten(1) @ b[name].double().flatten(1).T for name in names)


def squared_distances(a: dict, b: dict, names) -> Tensor:
    """||a_k - b_l||^2 of all pairs over the parameters `names`, 0 for equal models.

    a stacked [K, ...], b [L, ...] -> float64 [K, L].
    """
    centre = {name: a[name].double().mean(0) for name in names}
    a, b = ({name: stacked[name] - centre[name] for name in names} for stacked in (a, b))
    squares_a, squares_b = (sum(leaf.flatten(1).square().sum(1) for leaf in stacked.values()) for stacked in (a, b))
    scale = squares_a[:, None] + squares_b
    distances = scale - 2 * products(a, b, names)
    return torch.where(distances > 1e-12 * scale, distances, 0.0)  # below is rounding


# data ----------------------------------------------------------------------------------------------------------------


def data_similarity(counts_a, counts_b) -> float:
    """Share of the samples of both clients whose label both own, in [0, 1] (1 minus pFedSim Eq. 1)."""
    counts_a, counts_b = np.asarray(counts_a), np.asarray(counts_b)
    both = counts_a + counts_b
    return float(both[(counts_a > 0) & (counts_b > 0)].sum() / both.sum())


# measures of other papers, compared in pFedSim Table 2 ------------------------------------------------------------


def model_difference_similarity(theta_a: dict, theta_b: dict, theta_0: dict, names) -> float:
    """MDB (clustered FL): cosine of the two updates theta - theta_0 over the parameters `names`, in [-1, 1]."""
    update_a, update_b = (
        torch.cat([(theta[k] - theta_0[k]).double().flatten() for k in names]) for theta in (theta_a, theta_b)
    )
    return float(update_a @ update_b / (update_a.norm() * update_b.norm()).clamp(min=1e-30))


def norm_statistics(model, theta: dict, x: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Mean and standard deviation per channel of every batch-norm layer's input on images x, float64,
    samples and positions pooled."""
    inputs = model.norm_inputs(theta, x).values()
    return [(z.double().mean((0, 2, 3)), z.double().std((0, 2, 3), correction=0)) for z in inputs]


def wasserstein_similarity(stats_a, stats_b) -> float:
    """WDB (FedAP): 1 / d, d the sum over batch-norm layers of the 2-Wasserstein distance of two diagonal Gaussians."""
    d = sum(
        float(square_root((mean_a - mean_b).square().sum() + (std_a - std_b).square().sum()))
        for (mean_a, std_a), (mean_b, std_b) in zip(stats_a, stats_b)
    )
    return 1 / max(d, 1e-12)


def loss_difference_similarity(loss_own: float, loss_other: float, theta_own: dict, theta_other: dict, names) -> float:
    """LDB (FedFomo): (L_a(theta_a) - L_a(theta_b)) / ||theta_b - theta_a||, L_a the loss on a's held-out data.
    Not symmetric."""
    squares = sum(float((theta_other[k] - theta_own[k]).double().square().sum()) for k in names)
    return (loss_own - loss_other) / max(squares**0.5, 1e-30)


# activations ---------------------------------------------------------------------------------------------------------


def centred_gram(activations: Tensor) -> Tensor:
    """Gram matrix [s, s] of column-centred activations [s, ...] in float64,
    divided by its Frobenius norm (zero if constant)."""
    raw = activations.flatten(1).double()
    flat = raw - raw.mean(0)
    gram = flat @ flat.T
    norm = gram.norm()
    return gram / norm if norm > 1e-26 * raw.square().sum() else torch.zeros_like(gram)


def gram_cka(gram_x: Tensor, gram_y: Tensor) -> float:
    """Linear CKA of two activations of the same inputs, from their matrices of `centred_gram`: ||Y'X||_F^2 / (||X'X||_F
    ||Y'Y||_F), in [0, 1] (Kornblith et al. 2019). If either is constant over the inputs it is undefined: 0, with a
    warning."""
    if not (gram_x.any() and gram_y.any()):
        warnings.warn(
            "CKA of an activation that is constant over the probe inputs is undefined; taken as 0", stacklevel=2
        )
    return float((gram_x * gram_y).sum())
