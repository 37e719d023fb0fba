"""Measurements on the final models: functions (run, thetas) -> arrays by name.

run: `fedlib.engine.setup.Run`; thetas: all clients' models [N, ...], at the headline point of evaluation.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import combinations_with_replacement

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from fedlib.algorithms.parts import similarity
from fedlib.algorithms.parts.passes import count_correct
from fedlib.base import tree
from fedlib.base.draws import rng
from fedlib.base.errors import require
from fedlib.data.describe import label_cosine
from fedlib.measures.attention import attention, check_networks

PROBE = 2000  # most images on which activations are compared


def probe_images(run) -> np.ndarray:
    """Indices of at most PROBE images drawn from all clients' test parts: every class,
    and no client trained on any of them."""
    pool = np.concatenate([parts["test"] for parts in run.work.parts])
    pool = pool[np.sort(np.unique(pool, return_index=True)[1])]  # each image once, where clients share test images
    return np.sort(rng(run.spec.partition_seed, "probe").permutation(pool)[:PROBE])


def cka(run, thetas: dict) -> dict[str, np.ndarray]:
    """Linear CKA between all clients' models, layer by layer: `cka` [layers, N, N] (pFedSim Fig. 1)."""
    model, x, N = run.work.model, run.work.source.batch(torch.from_numpy(probe_images(run))).x, run.setting.num_clients
    outputs = [model.layer_outputs(tree.rows(thetas, i), x) for i in range(N)]
    matrix = np.zeros((len(outputs[0]), N, N))
    for layer, name in enumerate(outputs[0]):
        grams = [similarity.centred_gram(output[name]) for output in outputs]  # [s, s] each, one layer at a time
        for i, j in combinations_with_replacement(range(N), 2):
            matrix[layer, i, j] = matrix[layer, j, i] = similarity.gram_cka(grams[i], grams[j])
    return {"cka": matrix}


def client_similarity(run, thetas: dict) -> dict[str, np.ndarray]:
    """Measures between all pairs of clients, each [N, N] (pFedSim Table 2), and cosines by class [N, N, C] (Fig. 2).

    data (Eq. 1, on all of a client's samples), label_cosine (cosine of the class counts, a finer reference), cs (Eq.
    2), mdb, wdb (each model on its own training images), ldb (row a: on the test part of client a, which no model of
    this run was trained on).
    """
    model, source, N = run.work.model, run.work.source, run.setting.num_clients
    names, heads = model.trainable, similarity.class_vectors(thetas)
    by_class = similarity.class_cosines(heads, heads).cpu().numpy()
    each = [tree.rows(thetas, i) for i in range(N)]
    train, test = ([source.batch(torch.from_numpy(own[part])) for own in run.work.parts] for part in ("train", "test"))
    norms = [similarity.norm_statistics(model, theta, batch.x) for theta, batch in zip(each, train)]

    def loss(theta: dict, batch) -> float:
        return float(cross_entropy(model.logits(theta, batch.x).double(), batch.y))

    losses = [[loss(theta, batch) for theta in each] for batch in test]
    out = {name: np.full((N, N), np.nan) for name in ("data", "mdb", "wdb", "ldb")}
    for a in range(N):
        for b in range(N):
            out["data"][a, b] = similarity.data_similarity(run.partition.counts[a], run.partition.counts[b])
            if a != b:
                pair = each[a], each[b]
                out["mdb"][a, b] = similarity.model_difference_similarity(*pair, model.theta0, names)
                out["wdb"][a, b] = similarity.wasserstein_similarity(norms[a], norms[b])
                out["ldb"][a, b] = similarity.loss_difference_similarity(losses[a][a], losses[a][b], *pair, names)
    labels = label_cosine(run.partition.counts)
    return {**out, "label_cosine": labels, "cs": by_class.mean(-1), "cs_by_class": by_class}


def common_test(run, thetas: dict) -> dict[str, np.ndarray]:
    """Every client's model on the test parts of all clients together,
    which is `test_distribution="global"` without a second training.

    common_correct int64 [N, C] and common_tests int64 [C]: correct predictions and samples by class.
    """
    pool = np.unique(np.concatenate([parts["test"] for parts in run.work.parts]))
    correct = counted_on(run, thetas, [pool] * run.setting.num_clients)
    labels = run.work.source.labels.cpu()[torch.from_numpy(pool)].numpy()
    return {"common_correct": correct, "common_tests": np.bincount(labels, minlength=run.setting.num_classes)}


def validation(run, thetas: dict) -> dict[str, np.ndarray]:
    """Every client's model on its own validation part, which it was not trained on.

    val_correct and val_tests int64 [N]: correct predictions and samples.
    """
    parts = [own["val"] for own in run.work.parts]
    correct = counted_on(run, thetas, parts)
    return {"val_correct": correct.sum(1), "val_tests": np.array([len(own) for own in parts])}


def counted_on(run, thetas: dict, samples: Sequence[np.ndarray]) -> np.ndarray:
    """Correct predictions of every client's model by class, int64 [N, C], on samples of its own choice, N index
    arrays."""
    correct = np.zeros((run.setting.num_clients, run.setting.num_classes), dtype=np.int64)
    for i, own in enumerate(samples):
        scores = partial(run.method.scores, run.work.model, tree.rows(thetas, i))
        correct[i] = count_correct(scores, run.data_of(i, test=own), run.setting.num_classes)[0].cpu().numpy()
    return correct


def model_distances(run, thetas: dict) -> dict[str, np.ndarray]:
    """Between all clients' models, each [N, N]: `squared_distance` of all trainable parameters (pFedSV Fig. 3) and
    `squared_distance_head` of the classifiers; `classifier_cosine`, the mean cosine of class vectors (pFedSim Eq.
    2)."""
    names, heads = run.work.model.trainable, similarity.class_vectors(thetas)
    of_heads = [name for name in names if name.startswith("head.")]
    found = {
        "squared_distance": similarity.squared_distances(thetas, thetas, names),
        "squared_distance_head": similarity.squared_distances(thetas, thetas, of_heads),
        "classifier_cosine": similarity.class_cosines(heads, heads).mean(-1),
    }
    return {name: matrix.cpu().numpy() for name, matrix in found.items()}


MEASURES = (cka, client_similarity, model_distances, common_test, validation, attention)
FINAL_MEASURES = {measure.__name__: measure for measure in MEASURES}
ON_SAMPLES = ("common_test", "validation")  # these ask a method for predictions, the others look into models


def check_final_measures(spec, model, dataset, groups: Sequence[str]) -> None:
    """Raise BadValue unless clients have, and `eval_points` first names, models that the measures of a run (its spec)
    can look at; groups: what networks its clients have."""
    method, names = spec.algorithm, [name for name in spec.measures if name in FINAL_MEASURES]
    inside = [name for name in names if name not in ON_SAMPLES]
    require(len(set(groups)) <= 1 or not names, "measures", names, "none of final models of different networks")
    several = f"{' or '.join(ON_SAMPLES)}, for clients of {spec.method} have several models each"
    require(method.num_models is None or not inside, "measures", inside, several)
    generic = "glob" in spec.eval_points[:1] and method.generic_model is not None
    personal = f"personal models first, for the measures {', '.join(names)}"
    require(not generic or inside == names, "eval_points", spec.eval_points, personal)
    if "attention" in names:
        check_networks(spec, model, {*groups}, dataset.shape, len(dataset.classes))
