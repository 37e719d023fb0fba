"""Measurements on clients' classifiers after every round (PFedCS): how far apart, what they betray, who is chosen, and
whether a round did what the equations say. Functions (run, state, seen) -> one array, as in `each_round`.
"""

from __future__ import annotations

import numpy as np
import torch
from torch.nn import functional

from fedlib.base import tree
from fedlib.base.errors import BadValue
from fedlib.data.describe import same_classes

ALIKE = 1e-9  # distances that differ by no more are one group


def trained_heads(run, seen) -> tuple[torch.Tensor, torch.Tensor]:
    """Classifiers of all clients as trained in the round, on the CPU in float64: weights [N, C, d] and biases [N, C];
    NaN for who did not take part. Raises BadValue for a method whose clients have no classifier of their own."""
    for kept in (seen.clients, seen.uploads):
        leaves = {name.rpartition(".")[2]: leaf for name, leaf in tree.leaves(kept or {}) if name.startswith("head.")}
        if leaves:
            break
    else:
        raise BadValue(f"clients of {run.spec.method!r} train no classifier of their own")
    found = []
    for part in ("weight", "bias"):
        rows = leaves[part].detach().double().cpu()
        whole = torch.full((run.setting.num_clients, *rows.shape[1:]), torch.nan, dtype=torch.float64)
        whole[torch.as_tensor(seen.ids)] = rows
        found.append(whole)
    return found[0], found[1]


def head_distances(run, state, seen) -> np.ndarray:
    """Squared distances of the classifiers' weights as trained in the round, float64 [N, N]."""
    weight, _ = trained_heads(run, seen)
    flat = weight.flatten(1)
    return torch.cdist(flat, flat, compute_mode="donot_use_mm_for_euclid_dist").square().numpy()


def head_moves(run, state, seen) -> np.ndarray:
    """By how much every class vector of a client, with its bias, has moved since the initial classifier, summed over
    its components, float64 [N, C]. Features are not negative, so training on a class raises its number."""
    weight, bias = trained_heads(run, seen)
    first = {name: leaf.double().cpu() for name, leaf in run.work.model.theta0.items() if name.startswith("head.")}
    return ((weight - first["head.weight"]).sum(-1) + bias - first["head.bias"]).numpy()


def selection(run, state, seen) -> np.ndarray:
    """Whose classifiers PFedCS's server mixed for client i (row) in the round, int8 [N, N]: 2 for collaborators, 1 for
    candidates beyond the threshold, 0 for others, oneself, and all in stage 2."""
    server, N, method = seen.server, run.setting.num_clients, run.method
    found = np.zeros((N, N), dtype=np.int8)
    if server["round"] < server["last"] and method.select in ("adaptive", "random", "all"):
        ids = torch.as_tensor(seen.ids)
        pool = ids if method.pool == "active" else torch.arange(N)
        D, own = method.distances(server["heads"]["head.weight"], ids, pool), ids[:, None] == pool
        marks = method.candidates(D, ~own, method.generators(server, ids)).to(torch.int8)
        marks[method.collaborators(server, D, ids, own)] = 2
        found[np.ix_(seen.ids, pool.numpy())] = marks.numpy()
    return found


# a round by the paper's equations -----------------------------------------------------------------------------------


def by_equations(run, state, seen) -> np.ndarray:
    """What PFedCS did in the round beside the equations computed anew with NumPy, scikit-learn and autograd, for its
    defaults and full participation, float64 [N, 6]:

    - candidates, the nearer component of scikit-learn's mixture; collaborators within Eq. 4's threshold, and those of
      them with the same classes; 0 in stage 2
    - the largest difference of a received classifier from Eqs. 6 to 8; 0 in stage 2, in which none may be received
    - that of the received extractor from the mean of the latest uploads by samples
    - that of client 0's upload from its local training, Eqs. 9 to 12 as plain gradient steps; of others NaN
    """
    N, server = run.setting.num_clients, seen.server
    found = np.zeros((N, 6))
    sent = {name: leaf.double().cpu().numpy() for name, leaf in seen.messages.items()}
    if server["round"] < server["last"]:
        counts = np.asarray(run.setting.class_counts)
        weight, bias = (server["heads"][f"head.{part}"].double().cpu().numpy() for part in ("weight", "bias"))
        shares, chosen = teachers_by_hand(weight, counts.sum(1), server["round"] + 1, server["last"], run.method.lam)
        found[:, 0], found[:, 1] = (chosen > 0).sum(1), (chosen == 2).sum(1)
        found[:, 2] = ((chosen == 2) & same_classes(counts)).sum(1)
        wrong = [np.abs(np.tensordot(shares, mixed, 1) - sent[f"head.{part}"])
                 for part, mixed in (("weight", weight), ("bias", bias))]  # fmt: skip
        found[:, 3] = np.maximum(wrong[0].max((1, 2)), wrong[1].max(1))
    elif any(name.startswith("head.") for name in sent):
        found[:, 3] = np.inf
    sizes = run.sizes / run.sizes.sum()
    uploads = {name: leaf.double().cpu().numpy() for name, leaf in server["extractors"].items()}
    off = [np.abs(np.tensordot(sizes, uploads[name], 1) - sent[name]) for name in uploads]
    found[:, 4] = np.max([each.reshape(N, -1).max(1) for each in off], 0)
    found[:, 5] = np.nan
    found[0, 5] = difference_of_training(run, seen)
    return found


def teachers_by_hand(weight: np.ndarray, sizes: np.ndarray, t: int, last: int, lam: float):
    """Eqs. 4 to 8 and the distance matrix, client by client: p [N, N], and who is chosen, as in `selection`."""
    N = len(weight)
    shares, chosen = np.zeros((N, N)), np.zeros((N, N), dtype=np.int8)
    for k in range(N):
        d = np.array([((weight[k] - weight[j]) ** 2).sum() for j in range(N)])
        d = d / d.max() if d.max() > 0 else d
        others = np.array([j for j in range(N) if j != k])
        near = others[nearer_component(d[others])]
        chosen[k, near] = 1
        mean, least = d[others].mean(), d[others].min()
        threshold = mean + t / last * (least - mean)  # Eq. 4
        close = [j for j in near if d[j] <= threshold + 1e-12] or [j for j in others if d[j] <= least]  # Eq. 5
        chosen[k, close] = 2
        both = [*close, k]
        far, average = d[both].max(), d[both].mean()
        similarity = (far - d[both]) / (len(both) * (far - average)) if far - average > 1e-12 else 1 / len(both)
        shares[k, both] = lam * similarity + (1 - lam) * sizes[both] / sizes[both].sum()  # Eq. 7
    return shares, chosen


def nearer_component(distances: np.ndarray) -> np.ndarray:
    """Which of a client's distances [n] belong to the component with the smaller mean of scikit-learn's mixture of two
    Gaussians, bool [n], and with them whoever is as near; all where the distances are equal."""
    from sklearn.mixture import GaussianMixture  # here, because it takes a second that most runs need not wait

    if len(distances) < 2 or np.ptp(distances) <= ALIKE:
        return np.ones(len(distances), dtype=bool)
    fit = GaussianMixture(2, reg_covar=1e-6, n_init=10, init_params="k-means++", max_iter=500, tol=1e-6, random_state=0)
    group = fit.fit_predict(distances[:, None])
    if group.min() == group.max():
        return np.ones(len(distances), dtype=bool)
    low = min((0, 1), key=lambda g: distances[group == g].mean())
    return distances <= distances[group == low].max()


def difference_of_training(run, seen) -> float:
    """The largest difference between client 0's upload and what plain gradient descent on its minibatches gives."""
    k = int(np.flatnonzero(seen.ids == 0)[0])
    start = {name: leaf.detach().clone() for name, leaf in tree.rows(seen.messages, k).items()}
    own = {name: leaf.detach().clone() for name, leaf in tree.rows(seen.owned, k)["h"].items()}
    network, rate, passes = run.work.model.module, run.spec.lr, 0

    def scores(extractor: dict, head: dict, x):
        return torch.func.functional_call(network, {**extractor, **head}, x)

    def descend(values: dict, loss) -> dict:
        with torch.enable_grad():
            leaves = {name: value.detach().requires_grad_() for name, value in values.items()}
            slopes = torch.autograd.grad(loss(leaves), list(leaves.values()))
        return {name: value - rate * slope for (name, value), slope in zip(values.items(), slopes)}

    extractor = {name: leaf for name, leaf in start.items() if name.startswith("extractor.")}
    teacher = {name: leaf for name, leaf in start.items() if name.startswith("head.")}
    if teacher:  # Eq. 9, the extractor frozen

        def tuned(v: dict, batch) -> dict:
            return descend(v, lambda v: functional.cross_entropy(scores(extractor, v, batch.x), batch.y))

        for batch in run.minibatches(0, seen.t, run.method.E_ft):
            teacher = tuned(teacher, batch)
        passes = min(run.method.E_ft, 1)

    def guided(theta: dict, batch) -> dict:  # Eqs. 11 and 12
        def loss(theta):
            student = scores({}, theta, batch.x)
            total = functional.cross_entropy(student, batch.y)
            if teacher:
                q = scores(theta, teacher, batch.x).detach().softmax(-1)
                total = total + functional.kl_div(student.log_softmax(-1), q, reduction="batchmean")
            return total

        return descend(theta, loss)

    trained = {**extractor, **own}
    for batch in run.minibatches(0, seen.t, run.spec.local_epochs, passes):
        trained = guided(trained, batch)
    uploads = tree.rows(seen.uploads, k)
    return max(float((trained[name] - leaf).abs().max()) for name, leaf in uploads.items())
