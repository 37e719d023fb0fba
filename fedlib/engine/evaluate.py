"""Testing every client's model on its own test data, at the evaluation points of the specification.

| code | model tested |
|---|---|
| glob, recv, agg | what the client would hold after the next download: one for all, shared and own part, an aggregate |
| post | the model as it left the client's most recent local training (what it started from, if it never trained) |
| ft(k) | a copy of glob/recv/agg after k epochs on the client's training data |
| glob+bn, recv+bn, agg+bn, post+bn | the same, with batch-norm statistics of the client's training data |

At glob the models differ only by the running statistics that clients keep.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from fedlib.algorithms.api import Algorithm, ClientData
from fedlib.algorithms.parts.passes import count_correct
from fedlib.base import tree
from fedlib.engine.batches import EVALUATE, ClientTurn
from fedlib.engine.setup import Run
from fedlib.engine.state import State
from fedlib.models import Model
from fedlib.spec import RECOMPUTED

CHUNK = 64  # clients whose models are held at a time


def record(run: Run, state: State) -> None:
    """Evaluate all clients now, at the spec's points or the method's own, and append to the history."""
    with state.timed("evaluate"):
        for point in run.points(state):
            correct, loss = map(torch.from_numpy, evaluate(run, state, point))
            state.history.append({"round": state.round, "point": point, "correct": correct, "loss": loss})


def evaluate(run: Run, state: State, point: str, first: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Test all N clients: correct predictions per class int64 [N, C] and summed cross-entropy [N]. Changes nothing.

    first: leave the clients before this one out; their rows are zeros.
    """
    correct = np.zeros((run.setting.num_clients, run.setting.num_classes), dtype=np.int64)
    loss = np.zeros(run.setting.num_clients)
    for ids, fresh, messages, owned in chunks(run, state, point, first):
        fn = partial(tested, run.acting(state), point, fresh, run.setting.num_classes)
        hits, losses = run.backend(fn, evaluation_turns(run, state, ids), messages, owned)
        correct[ids], loss[ids] = hits.cpu().numpy(), losses.cpu().numpy()
    return correct, loss


def personal_models(run: Run, state: State, point: str, first: int = 0) -> Iterator[tuple[np.ndarray, dict]]:
    """Yield (client ids, their thetas stacked) until all N clients from `first` on are covered."""
    for ids, fresh, messages, owned in chunks(run, state, point, first):
        fn = partial(personal, run.acting(state), point, fresh)
        yield ids, run.backend(fn, evaluation_turns(run, state, ids), messages, owned)


def chunks(run: Run, state: State, point: str, first: int = 0) -> Iterator[tuple[np.ndarray, bool, Any, Any]]:
    """Yield, at most CHUNK clients at a time, from client `first` on: ids, whether their statistics must be computed
    first, messages, own states.

    A client that keeps its batch-norm statistics (by the run's policy, or because its method says so) but never trained
    has none yet: they are computed by one pass over its training data, as all are at points that end in RECOMPUTED.
    """
    anew = point.endswith(RECOMPUTED)
    trained = state.trained.numpy() & (not anew)
    own = any(name in run.work.model.running for name, _ in tree.leaves(state.clients))
    fresh = ~trained if run.transport.keeps_stats or own or anew else np.zeros_like(trained)
    for group in (np.flatnonzero(~fresh), np.flatnonzero(fresh)):
        group = group[group >= first]
        for ids in np.split(group, range(CHUNK, len(group), CHUNK)):
            if len(ids):
                messages, owned = evaluated_messages(run, state, point, ids), tree.rows(state.clients, ids)
                messages = run.transport.received(messages, tree.rows(state.stats, ids))
                yield ids, bool(fresh[ids[0]]), messages, owned


def evaluated_messages(run: Run, state: State, point: str, ids: Sequence[int]) -> Any:
    """What `personal_model` starts from: the next download, or for `post` the last upload. Stacked."""
    method = run.acting(state)
    if point.removesuffix(RECOMPUTED) != "post":
        return method.messages(state.server, ids)
    if method.stored_upload is not None:
        return tree.stack([method.stored_upload(state.server, int(i)) for i in ids])
    return tree.rows(state.uploads, ids)


def evaluation_turns(run: Run, state: State, ids: Sequence[int]) -> list[ClientTurn]:
    """What a backend needs to reach these clients outside of training."""
    return [run.turn(int(i), EVALUATE, state.round) for i in ids]


# one client ----------------------------------------------------------------------------------------------------------


def tested(method: Algorithm, point: str, fresh, num_classes: int, model: Model, message, client, data: ClientData):
    """One client's test: `count_correct` of its model."""
    theta = personal(method, point, fresh, model, message, client, data)
    scores = model.scores if is_generic(method, point) else partial(method.scores, model)
    return count_correct(partial(scores, theta), data, num_classes)


def personal(method: Algorithm, point: str, fresh: bool, model: Model, message, client, data: ClientData) -> dict:
    """theta of one client evaluated at `point`, fine-tuning included; fresh: with statistics of its own data."""
    if is_generic(method, point):
        theta = method.generic_model(model, message)
    else:
        theta = method.personal_model(model, message, client, data)
    theta = with_fresh_stats(method, model, theta, data) if fresh else theta
    if point.startswith("ft"):
        theta = method.fine_tune(model, theta, data, int(point[3:-1]))
    return theta


def is_generic(method: Algorithm, point: str) -> bool:
    """Whether what is evaluated at `point` is the single global model, while the method's `personal_model` is not."""
    return point.removesuffix(RECOMPUTED) == "glob" and method.generic_model is not None


def with_fresh_stats(method: Algorithm, model: Model, theta: dict, data: ClientData) -> dict:
    """theta with batch-norm statistics of the client's training data; of each of its models where it has several."""
    if method.num_models is None:
        return {**theta, **fresh_stats(model, theta, data)}
    stacked = {name: theta[name] for name in model.theta0}
    return {**theta, **tree.stack([fresh_stats(model, tree.rows(stacked, k), data) for k in range(method.num_models)])}


def fresh_stats(model: Model, theta: dict, data: ClientData) -> dict:
    """Batch-norm statistics computed by one pass over the client's training data (batches weighted by their size)."""

    def step(totals, batch):
        sums, seen = totals
        rows = torch.as_tensor(len(batch.y), device=batch.y.device) if batch.mask is None else batch.mask.sum()
        stats = model.batch_stats(theta, batch)
        return {name: sums[name] + rows * stats[name] for name in sums}, seen + rows

    zeros = {name: torch.zeros_like(theta[name]) for name in model.running}
    sums, seen = data.scan(step, (zeros, torch.zeros((), dtype=torch.int64, device=theta["head.bias"].device)), "train")
    return {name: total / seen for name, total in sums.items()}


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
