"""Testing every client's model on its own test data, at the evaluation points of the specification.

| code | model tested |
|---|---|
| glob, recv, agg | what the client would hold after the next download (one model for all but for running statistics that clients keep, shared part + own part, own mixture) |
| post | the model as it left the client's most recent local training (what it started from, if it never trained) |
| ft(k) | a copy of glob/recv/agg after k epochs on the client's training data |
"""

from __future__ import annotations

import numpy as np
import torch
from torch.nn import functional

from fedlib import tree
from fedlib.engine.fold import local_sgd

CHUNK = 64  # clients whose models are held at a time
FINETUNE = 1  # first number of a draw; 0 is training


def evaluate(run, state: dict, point: str) -> tuple[np.ndarray, np.ndarray]:
    """Test all N clients: correct predictions per class int64 [N, C] and summed cross-entropy [N]. Changes nothing."""
    epochs = int(point[3:-1]) if point.startswith("ft") else 0

    def tested(model, theta, data):
        theta = local_sgd(model, theta, data, epochs) if epochs else theta
        return count_correct(model, theta, data, run.setting.num_classes)

    correct = np.zeros((run.setting.num_clients, run.setting.num_classes), dtype=np.int64)
    loss = np.zeros(run.setting.num_clients)
    for ids, thetas in personal_models(run, state, point):
        hits, losses = run.backend(run.work, tested, ids, thetas, draw=(FINETUNE, state["round"]))
        correct[ids], loss[ids] = hits.cpu().numpy(), losses.cpu().numpy()
    return correct, loss


def personal_models(run, state: dict, point: str):
    """Yield (client ids, their thetas stacked) until all N clients are covered.

    A client that keeps its batch-norm statistics but never trained has none yet: they are computed by one pass over its
    training data.
    """

    def plain(model, message, client, data):
        return run.method.personal_model(model, message, client, data)

    def recalibrated(model, message, client, data):
        return with_fresh_stats(model, run.method.personal_model(model, message, client, data), data)

    trained = state["trained"].numpy()
    fresh = ~trained if run.transport.keeps_stats else np.zeros_like(trained)
    for group, fn in ((np.flatnonzero(~fresh), plain), (np.flatnonzero(fresh), recalibrated)):
        for ids in np.split(group, range(CHUNK, len(group), CHUNK)):
            if len(ids):
                messages, owned = evaluated_messages(run, state, point, ids), tree.rows(state["clients"], ids)
                messages = run.transport.received(messages, tree.rows(state["stats"], ids), training=False)
                yield ids, run.backend(run.work, fn, ids, messages, owned, draw=(FINETUNE, state["round"]))


def evaluated_messages(run, state: dict, point: str, ids):
    """What `personal_model` starts from: the next download, or for `post` the last upload. Stacked."""
    if point != "post":
        return tree.stack([run.method.download(state["server"], int(i)) for i in ids])
    if hasattr(run.method, "stored_upload"):
        stored = [run.method.stored_upload(state["server"], int(i)) for i in ids]
        if stored[0] is not None:
            return tree.stack(stored)
    return tree.rows(state["uploads"], ids)


def count_correct(model, theta: dict, data, num_classes: int):
    """Correct predictions per class int64 [C] and the summed cross-entropy on the client's test data."""
    classes = torch.arange(num_classes, device=theta["head.bias"].device)

    def step(totals, batch):
        logits = model.logits(theta, batch.x)
        hit = logits.argmax(1) == batch.y
        loss = functional.cross_entropy(logits, batch.y, reduction="none").double()
        if batch.mask is not None:
            hit, loss = hit & batch.mask, torch.where(batch.mask, loss, 0)
        per_class = (hit[:, None] & (batch.y[:, None] == classes)).sum(0)
        return totals[0] + per_class, totals[1] + loss.sum()

    return data.scan(
        step, (torch.zeros_like(classes), torch.zeros((), dtype=torch.float64, device=classes.device)), "test"
    )


def with_fresh_stats(model, theta: dict, data) -> dict:
    """theta with batch-norm statistics computed by one pass over the client's training data (batches weighted by size)."""

    def step(totals, batch):
        sums, seen = totals
        rows = torch.as_tensor(len(batch.y), device=batch.y.device) if batch.mask is None else batch.mask.sum()
        stats = model.batch_stats(theta, batch)
        return {name: sums[name] + rows * stats[name] for name in sums}, seen + rows

    zeros = {name: torch.zeros_like(theta[name]) for name in model.running}
    sums, seen = data.scan(step, (zeros, torch.zeros((), dtype=torch.int64, device=theta["head.bias"].device)), "train")
    return {**theta, **{name: total / seen for name, total in sums.items()}}


def summarise(correct: np.ndarray, loss: np.ndarray, tests: np.ndarray) -> dict[str, float]:
    """Accuracies as fractions. correct, tests: int [N, C] by client and class; loss: summed [N].

    pooled: over all test samples; client_mean, client_std, client_p10: over clients; balanced: mean over clients of the
    mean recall of the classes in a client's test set; loss: per test sample.
    """
    sizes = tests.sum(1)
    accuracy = correct.sum(1) / sizes
    present = tests > 0
    recall = np.divide(correct, tests, out=np.zeros(tests.shape), where=present)
    return {
        "pooled": float(correct.sum() / sizes.sum()),
        "client_mean": float(accuracy.mean()),
        "client_std": float(accuracy.std()),
        "client_p10": float(np.percentile(accuracy, 10)),
        "balanced": float((recall.sum(1) / present.sum(1)).mean()),
        "loss": float(loss.sum() / sizes.sum()),
    }
