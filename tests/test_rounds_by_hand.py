"""Rounds of PFedCS, FedSimSup and pFedSim beside their papers' equations, computed anew with NumPy, scikit-learn and
plain gradient steps. No function of a method is asked for a weight, a choice or a step."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from helpers import tiny
from sklearn.mixture import GaussianMixture
from torch.func import functional_call
from torch.nn.functional import cross_entropy, kl_div

from fedlib.base import tree
from fedlib.engine.setup import first_state, set_up
from fedlib.engine.simulate import watched_round
from fedlib.measures.each_round import selection

CLOSE, TRAINED = 1e-5, 1e-4  # rounding of an aggregate, and of the steps of a round, in float32


def rounds(spec):
    """The run, its state after each round, and what travelled in it."""
    run = set_up(spec)
    state = first_state(run)
    for t in range(1, spec.rounds + 1):
        yield run, state, watched_round(run, state, t)


def descend(run, values: dict, loss, batches) -> dict:
    """Gradient descent, a step a minibatch; loss(values, minibatch)."""
    for batch in batches:
        values = stepped(values, run.spec.lr, lambda leaves, batch=batch: loss(leaves, batch))
    return values


def stepped(values: dict, rate: float, loss) -> dict:
    with torch.enable_grad():
        leaves = {name: value.detach().requires_grad_() for name, value in values.items()}
        slopes = torch.autograd.grad(loss(leaves), list(leaves.values()))
    return {name: value.detach() - rate * slope for (name, value), slope in zip(values.items(), slopes)}


def numbers(stacked: dict, start: str = "") -> np.ndarray:
    """Parameters of stacked models whose names start so, float64 [n, numbers]."""
    chosen = [stacked[name] for name in sorted(stacked) if name.startswith(start)]
    return torch.cat([leaf.double().flatten(1) for leaf in chosen], 1).cpu().numpy()


def equal(ours: dict, theirs: dict, k: int = 0) -> bool:
    """Whether these parameters are those of the k-th of stacked models, but for rounding of training."""
    return max(float((leaf - theirs[name][k]).abs().max()) for name, leaf in ours.items()) < TRAINED


# PFedCS ---------------------------------------------------------------------------------------------------------------

TWO_CLASSES = dict(
    scheme="pat_grouped", partition=dict(classes_per_client=2, min_size=4), num_clients=10, join_ratio=1.0, rounds=6
)


def nearer(d: np.ndarray) -> np.ndarray:
    """Which distances [n] are at most the largest of the component with the smaller mean; all if they are equal."""
    if np.ptp(d) < 1e-9:
        return np.ones(len(d), dtype=bool)
    fit = GaussianMixture(2, reg_covar=1e-6, n_init=10, init_params="k-means++", max_iter=500, tol=1e-6, random_state=0)
    group = fit.fit_predict(d[:, None])
    low = min(set(group), key=lambda g: d[group == g].mean())
    return d <= d[group == low].max()


def teachers(weight: np.ndarray, sizes: np.ndarray, s: float, lam: float) -> tuple[np.ndarray, np.ndarray]:
    """p of Eqs. 4 to 8 client by client, [N, N], and who collaborates with whom, bool [N, N]; s: t by the last round
    of stage 1."""
    shares, chosen = np.zeros((len(weight),) * 2), np.zeros((len(weight),) * 2, dtype=bool)
    for k, own in enumerate(weight):
        d = ((own - weight) ** 2).sum((1, 2))
        d = d / d.max() if d.max() > 0 else d
        others = np.delete(np.arange(len(d)), k)
        threshold = d[others].mean() + s * (d[others].min() - d[others].mean())  # Eq. 4
        close = [j for j in others[nearer(d[others])] if d[j] <= threshold + 1e-12]  # Eq. 5
        close = close or [j for j in others if d[j] <= d[others].min()]
        chosen[k, close] = True
        both = [*close, k]
        far, mean = d[both].max(), d[both].mean()
        similarity = (far - d[both]) / (len(both) * (far - mean)) if far - mean > 1e-12 else 1 / len(both)
        shares[k, both] = lam * similarity + (1 - lam) * sizes[both] / sizes[both].sum()  # Eq. 7
    return shares, chosen


def trained_by_pfedcs(run, seen, k: int) -> dict:
    """Client k's model after Eqs. 9 to 12 on its minibatches."""
    network = run.work.model.module
    received, own = tree.rows(seen.messages, k), tree.rows(seen.owned, k)["h"]
    extractor, teacher = (tree.select(received, part) for part in ("extractor.", "head."))

    def scores(extractor, head, x):
        return functional_call(network, {**extractor, **head}, (x,))

    if teacher:  # Eq. 9, the extractor frozen
        batches = run.minibatches(k, seen.t, run.method.E_ft)
        teacher = descend(run, teacher, lambda v, b: cross_entropy(scores(extractor, v, b.x), b.y), batches)

    def loss(theta, batch):  # Eqs. 11 and 12
        student = scores({}, theta, batch.x)
        entropy = cross_entropy(student, batch.y)
        if not teacher:
            return entropy
        target = scores(theta, teacher, batch.x).detach().softmax(-1)
        return entropy + kl_div(student.log_softmax(-1), target, reduction="batchmean")

    batches = run.minibatches(k, seen.t, run.spec.local_epochs, int(bool(teacher)))
    return descend(run, {**extractor, **own}, loss, batches)


def test_rounds_of_pfedcs():
    """Three rounds of each stage. In the first all classifiers are equal; in the third the threshold leaves the nearest
    client only."""
    for run, state, seen in rounds(tiny("pfedcs", **TWO_CLASSES, model="lenet5")):
        server, t = seen.server, seen.t
        sizes, uploads = run.sizes / run.sizes.sum(), numbers(server["extractors"])
        assert np.abs(sizes @ uploads - numbers(seen.messages, "extractor.")).max() < CLOSE
        if t <= 3:
            weight = server["heads"]["head.weight"].double().numpy()
            shares, chosen = teachers(weight, run.sizes, t / 3, run.method.lam)
            assert np.abs(shares @ numbers(server["heads"]) - numbers(seen.messages, "head.")).max() < CLOSE
            assert np.array_equal(selection(run, state, seen) == 2, chosen)
            assert t == 2 or (chosen.sum(1) == (9 if t == 1 else 1)).all()
        theta = trained_by_pfedcs(run, seen, t)  # a client in each round
        assert equal(tree.select(theta, "head."), seen.clients["h"], t)
        assert equal({name: theta[name] for name in seen.uploads}, seen.uploads, t)
        sent = {name.partition(".")[0] for name in (*seen.messages, *seen.uploads)}
        assert sent == ({"extractor", "head"} if t <= 3 else {"extractor"})


# FedSimSup ------------------------------------------------------------------------------------------------------------


def shares_by_equations(counts: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Eqs. 7 to 9: shares of all clients' models (columns) in those on the server after a round (rows), [N, N]."""
    sizes, shares = counts.sum(1), np.eye(len(counts))
    unit = counts / np.linalg.norm(counts, axis=1, keepdims=True)
    for i in np.setdiff1d(range(len(counts)), ids):
        similar = (unit @ unit.T)[i, ids]
        if similar.sum() > 0:  # else Eq. 8 is 0/0
            shares[i, i] = len(ids) * sizes[i] / (sizes[ids].sum() + len(ids) * sizes[i])  # Eq. 9
            shares[i, ids] = (1 - shares[i, i]) * similar / similar.sum()
    return shares


def trained_by_fedsimsup(run, seen, k: int) -> list[dict]:
    """What Eqs. 10 and 11 make of the supervisor and the model of the round's k-th participant."""
    kind, method = run.method.supervisors, run.method
    networks = run.work.model.sibling(kind).module, run.work.model.module
    values = [dict(tree.rows(stacked, k)) for stacked in (seen.owned[kind], seen.messages)]

    def loss(own, batch, phase):
        pair = [own if which == phase else value for which, value in enumerate(values)]
        return cross_entropy(sum(functional_call(net, v, (batch.x,)) for net, v in zip(networks, pair)), batch.y)

    for phase, epochs in enumerate((method.tau_s, method.tau_theta)):  # one is trained while the other is frozen
        batches = run.minibatches(int(seen.ids[k]), seen.t, epochs, phase)
        values[phase] = descend(run, values[phase], partial(loss, phase=phase), batches)
    return values


def test_rounds_of_fedsimsup():
    """With equal weights in place of similarities the server's models would be far off."""
    for run, state, seen in rounds(tiny("fedsimsup", num_clients=6, model="lenet5")):
        counts, before = np.asarray(run.setting.class_counts, dtype=float), numbers(seen.server["personal"])
        before[seen.ids] = numbers(seen.uploads)
        after, alike = numbers(state.server["personal"]), np.ones_like(counts) * counts.sum(1, keepdims=True)
        assert np.abs(shares_by_equations(counts, seen.ids) @ before - after).max() < CLOSE
        assert np.abs(shares_by_equations(alike, seen.ids) @ before - after).max() > 1e-3
        assert np.array_equal(after[seen.ids], before[seen.ids])  # Eq. 7
        for k in range(len(seen.ids)):
            supervisor, theta = trained_by_fedsimsup(run, seen, k)
            assert equal(supervisor, seen.clients[run.method.supervisors], k) and equal(theta, seen.uploads, k)


# pFedSim --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rho", [0.0, 0.4])
def test_extractors_that_pfedsim_sends(rho):
    """Eq. 4 with w = -ln(1 - min(phi, 1 - phi_cap)), and -ln(phi_cap) for the own one; in the first phase FedAvg."""
    for run, _, seen in rounds(tiny("pfedsim", hyper={"rho": rho}, rounds=5, num_clients=5, join_ratio=0.6)):
        trained = [name for name in run.work.model.trainable if name.startswith("extractor.")]
        sent = numbers({name: seen.messages[name] for name in trained})
        if seen.t <= 5 * rho:
            assert (sent == sent[0]).all()
            continue
        weights = -np.log(1 - np.minimum(seen.server["phi"].numpy()[seen.ids], 1 - run.method.phi_cap))
        weights[range(len(seen.ids)), seen.ids] = -np.log(run.method.phi_cap)
        kept = numbers({name: seen.server["models"][name] for name in trained})
        assert np.abs(weights / weights.sum(1, keepdims=True) @ kept - sent).max() < CLOSE
