"""How alike are two clients? Measures on their models, their data and their activations (pFedSim §4.1).

theta: a model's parameters by name (`fedlib.models.Model`); counts: samples per class, int [C].
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedlib.base.options import Options, option

TIE = 1e-12  # distances that differ by no more are equal

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


def class_distances(a: Tensor, b: Tensor, power: int = 2, norm: str = "row") -> Tensor:
    """D of PFedCS: sum over classes of the distances of class vectors to this power; a [K, C, d],
    b [L, C, d] -> float64 [K, L].

    Divided by the largest of its "row" or of all ("global"), so that it is in [0, 1]; zeros stay zeros.
    """
    a, b = (vectors.double().transpose(0, 1) for vectors in (a, b))  # [C, K, d]
    D = torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist")
    D = (D**power).sum(0).cpu()
    largest = D.max() if norm == "global" else D.amax(1, keepdim=True)
    return torch.where(largest > 0, D / largest.clamp(min=1e-300), 0)


def weights_by_distance(
    D: Tensor, sizes: Tensor, basis: Tensor, mixed: Tensor, lam: float, tie: str = "uniform"
) -> Tensor:
    """p of PFedCS's Eq. 7 for K clients and n others, float64 [K, n], rows sum to 1.

    p_j = lam (D_max - D_kj) / (|P| (D_max - D_avg)) + (1 - lam) N_j / sum of N over P, then divided by its sum over
    `mixed`. D: distances [K, n]; sizes: N [n]; basis, mixed: bool [K, n], P and the set that Eq. 6 sums over. Where
    D_max = D_avg the first term is 1 / |P| ("uniform"), or all weight goes to the second ("drop").
    """
    count, sizes = basis.sum(1, keepdim=True), sizes.double()
    largest = torch.where(basis, D, 0).amax(1, keepdim=True)
    gap = largest - (D * basis).sum(1, keepdim=True) / count
    near = largest - D
    alike = torch.where(gap > TIE, near / (count * gap.clamp(min=TIE)), 1 / count)
    lam = torch.where(gap > TIE, lam, lam if tie == "uniform" else 0.0)
    p = lam * alike + (1 - lam) * sizes / (sizes * basis).sum(1, keepdim=True)
    p = torch.where(mixed, p, 0)
    return p / p.sum(1, keepdim=True)


@dataclass(frozen=True)
class ByDistance(Options):
    """How far classifiers are apart in PFedCS, and what they weigh for it, as options of a method.

    dist_power: 2 sums squared distances of class vectors as in the formula, 1 distances as in the text. norm: D is
    divided by its row's maximum, or by the "global" one. A row of zeros, as in round 1 when all classifiers are equal,
    stays zero. lam: λ of Eq. 7, the share of likeness. weights: Eqs. 6-8 run over different sets. "closed" takes the
    collaborators and the client itself throughout, so that weights sum to 1; "literal_renorm" is Eq. 7 as printed, with
    D_kk = 0, divided by its sum; "no_self" leaves the client out. tie: if D_max = D_avg, Eq. 7 divides by zero: its
    first term is "uniform", or all weight goes to the second ("drop").
    """

    lam: float = option(0.5, 0, 1)
    dist_power: int = option(2, 1, 2)
    norm: str = option("row", "row", "global")
    weights: str = option("closed", "closed", "literal_renorm", "no_self")
    tie: str = option("uniform", "uniform", "drop")

    def distances(self, weight: Tensor, ids: Tensor, pool: Tensor) -> Tensor:
        """D of the clients `ids` and those of `pool`, for classifiers of all [N, C, d]; float64 [K, n] in [0, 1]."""
        return class_distances(weight[ids], weight[pool], self.dist_power, self.norm)

    def weights_of(self, D: Tensor, sizes: Tensor, chosen: Tensor, own: Tensor) -> Tensor:
        """p of Eq. 7 for the collaborators `chosen`, float64 [K, n]; rows sum to 1. own: who is the client itself;
        both bool [K, n]."""
        basis = chosen if self.weights != "closed" else chosen | own  # the set of Eq. 8
        mixed = chosen if self.weights == "no_self" else chosen | own  # the set of Eq. 6
        basis, mixed = (torch.where(some.any(1, keepdim=True), some, own) for some in (basis, mixed))
        return weights_by_distance(D, sizes, basis, mixed, self.lam, self.tie)


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
        float(((mean_a - mean_b).square().sum() + (std_a - std_b).square().sum()).sqrt())
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


def linear_cka(x: Tensor, y: Tensor) -> float:
    """Linear CKA of two activations [s, p] and [s, q] of the same s inputs (Kornblith et al. 2019), exact, in [0, 1].

    Extra axes are flattened. If either activation is constant over the inputs CKA is undefined: 0, with a warning.
    """
    return gram_cka(centred_gram(x), centred_gram(y))


def gram_cka(gram_x: Tensor, gram_y: Tensor) -> float:
    """Linear CKA from two matrices of `centred_gram`, ||Y'X||_F^2 / (||X'X||_F ||Y'Y||_F)."""
    if not (gram_x.any() and gram_y.any()):
        warnings.warn(
            "CKA of an activation that is constant over the probe inputs is undefined; taken as 0", stacklevel=2
        )
    return float((gram_x * gram_y).sum())
