"""What happens in one round: download, local training, upload, aggregation,
and the change from the warm-up to the method.

`fedlib.engine.simulate` puts these together. Where several runs are played together each function is about one of them,
but for `local_training`, which trains the clients of all in one stack.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from fedlib.algorithms.api import Algorithm
from fedlib.base import draws, tree
from fedlib.base.errors import Diverged
from fedlib.engine import backends
from fedlib.engine.batches import SURVEY, TRAIN
from fedlib.engine.setup import Run, remember_uploads
from fedlib.engine.state import State
from fedlib.measures import ROUND_MEASURES
from fedlib.privacy import noise


@dataclass(frozen=True)
class Round:
    """What travelled in a round of one run. Trees are stacked, leaves [K, ...], one row for each participant.

    numbers: how many went "down" and "up", all participants together. What has not happened yet is None.
    """

    t: int
    ids: np.ndarray  # the participants, int64 [K], sorted
    server: dict[str, Any]  # what the server held before the round
    messages: dict[str, Any]  # as received: with the running statistics that the clients keep
    owned: dict[str, Any]  # what the participants kept before
    numbers: dict[str, int]
    uploads: dict[str, Any] | None = None  # what the participants send
    clients: dict[str, Any] | None = None  # what they keep now
    arrived: dict[str, Any] | None = None  # uploads as the server gets them: without statistics that stay, with noise


def run_round(
    runs: Sequence[Run], states: Sequence[State], t: int, who: Callable[[Run, int], np.ndarray] | None = None
) -> list[Round | None]:
    """Round t of all runs, up to the server's update, everyone's clients trained at once; changes `states`.

    who: says who takes part, default `sample`. A run whose training diverges notes it in its state and takes no further
    part: None.
    """
    seen: list[Round | None] = [None] * len(runs)
    going = [k for k, state in enumerate(states) if not state.diverged]
    if going:
        active, own = [runs[k] for k in going], [states[k] for k in going]
        rounds = [download(run, state, t, (who or sample)(run, t)) for run, state in zip(active, own)]
        rounds = local_training(active, own, rounds)
        for k, run, state, trained in zip(going, active, own, rounds):
            try:
                seen[k] = upload(run, state, trained)
            except Diverged as error:
                state.diverged = (error.client, error.round, error.step)
            else:
                aggregate(run, state, seen[k])
    return seen


def sample(run: Run, t: int) -> np.ndarray:
    """S_t, the participants of round t, int64 [K]."""
    return draws.participants(run.spec.seed, t, run.setting.num_clients, run.spec.join_ratio)


def download(run: Run, state: State, t: int, ids: np.ndarray) -> Round:
    """Round t up to what the participants receive, and what they own."""
    with state.timed("server"):
        method = run.acting(state)
        messages = method.messages(state.server, ids)
        down = travelled(run, method.floats_down, messages, len(ids))
        state.floats["down"] += down
        received = run.transport.received(messages, tree.rows(state.stats, ids))
    return Round(t, ids, state.server, received, tree.rows(state.clients, ids), {"down": down})


def local_training(runs: Sequence[Run], states: Sequence[State], rounds: Sequence[Round]) -> list[Round]:
    """The rounds with what the participants return, the clients of all runs trained together."""
    backend, start = runs[0].backend, time.monotonic()
    before = dict(backend.seconds)
    turns = [run.turn(int(i), TRAIN, each.t) for run, each in zip(runs, rounds) for i in each.ids]
    messages, owned = tree.concat([each.messages for each in rounds]), tree.concat([each.owned for each in rounds])
    uploads, clients = backend(runs[0].acting(states[0]).client_update, turns, messages, owned)
    seconds = {"train": time.monotonic() - start}
    seconds |= {purpose: backend.seconds[purpose] - before.get(purpose, 0.0) for purpose in ("data", "step")}
    trained, first = [], 0
    for state, each in zip(states, rounds):
        for purpose, value in seconds.items():
            state.seconds[purpose] += value / len(rounds)
        mine = slice(first, first + len(each.ids))
        trained.append(replace(each, uploads=tree.rows(uploads, mine), clients=tree.rows(clients, mine)))
        first = mine.stop
    return trained


def check_finite(run: Run, method: Algorithm, seen: Round) -> None:
    """Raise Diverged, naming client, round and step, if what a participant returned is not finite.

    The step is found by a second, watched run.
    """
    finite = torch.ones(len(seen.ids), dtype=torch.bool, device=run.device)
    for _, leaf in tree.leaves((seen.uploads, seen.clients)):
        finite &= torch.isfinite(leaf).reshape(len(seen.ids), -1).all(1)
    if finite.all():
        return
    k = int((~finite).nonzero()[0])
    i = int(seen.ids[k])

    def watch(step, state):
        if not all(torch.isfinite(leaf).all() for _, leaf in tree.leaves((state,))):
            raise Diverged(i, seen.t, step)

    again = backends.Serial(run.work.model, run.device, watch)
    again(method.client_update, [run.turn(i, TRAIN, seen.t)], tree.rows(seen.messages, [k]), tree.rows(seen.owned, [k]))
    raise Diverged(i, seen.t, None)


def upload(run: Run, state: State, seen: Round) -> Round:
    """The round with what arrives at the server; what the participants keep is kept. Raises Diverged."""
    with state.timed("server"):
        method, ids = run.acting(state), seen.ids
        check_finite(run, method, seen)
        arrived, stats = run.transport.sent(seen.uploads)
        if run.spec.mechanism.in_uploads:
            arrived = released(run, state, seen, arrived)
        up = travelled(run, method.floats_up, arrived, len(ids))
        state.floats["up"] += up
        state.samples += int(run.sizes[ids].sum()) * run.spec.local_epochs
        write_rows(state.clients, ids, seen.clients)
        write_rows({name: state.stats[name] for name in stats}, ids, stats)
        if state.uploads is not None:
            write_rows(state.uploads, ids, arrived)
    return replace(seen, arrived=arrived, numbers={**seen.numbers, "up": up})


def released(run: Run, state: State, seen: Round, uploads: Any) -> Any:
    """What the participants let out in place of their uploads, which is remembered."""
    last = tree.rows(state.released, seen.ids)
    passing = run.work.model.running if run.transport.keeps_stats else ()
    mechanism, seed = run.spec.mechanism, run.spec.seed
    uploads, theta = noise.release(mechanism, seed, seen.t, seen.ids, uploads, seen.messages, last, passing)
    write_rows({name: state.released[name] for name in theta}, seen.ids, theta)
    return uploads


def aggregate(run: Run, state: State, seen: Round) -> None:
    """The server's update; with it the round is done."""
    with state.timed("server"):
        n = run.sizes[seen.ids]
        state.server = run.acting(state).server_update(state.server, seen.ids, seen.arrived, n)
        state.trained[seen.ids] = True
        state.round = seen.t


def switch_phase(run: Run, state: State) -> None:
    """At the end of the warm-up, unless the run ends with it: the run's own method continues from its state."""
    if state.warming_up and state.round == run.warm_up[1] < run.spec.rounds:
        state.warmed = state.server if run.joined else None
        reports = survey(run, state) if run.method.survey is not None else None
        state.server, state.clients = run.method.switch_phase(
            run.work.model, run.setting, state.server, state.clients, reports
        )
        state.warming_up = False
        remember_uploads(run, state)


def survey(run: Run, state: State) -> Any:
    """What all N clients report once, stacked; counted apart from the rounds."""
    everyone = range(run.setting.num_clients)
    messages = run.acting(state).messages(state.server, everyone)
    received = run.transport.received(messages, state.stats)
    turns = [run.turn(i, SURVEY, state.round) for i in everyone]
    reports = run.backend(run.method.survey, turns, received, state.clients)
    state.floats["once"] += len(everyone) * run.transport.floats(tree.rows(reports, 0))
    return reports


def follow(run: Run, state: State, seen: Round | None) -> None:
    """Keep what the spec's measures of every round say now."""
    for name in run.spec.measures:
        if name in ROUND_MEASURES:
            state.followed.setdefault(name, []).append(torch.from_numpy(ROUND_MEASURES[name](run, state, seen)))


def travelled(run: Run, counted: Callable[[Any], Any], stacked: Any, clients: int) -> int:
    """Numbers in the messages of a round; counted: the method's `floats_down` or `floats_up`."""
    stacked = run.transport.travelling(stacked)
    return sum(run.transport.floats(counted(tree.rows(stacked, k))) for k in range(clients))


def write_rows(table: Any, ids: np.ndarray, rows: Any) -> None:
    """Overwrite rows of a stacked tree that the engine owns."""
    for (_, old), (_, new) in zip(tree.leaves(table), tree.leaves(rows), strict=True):
        old[torch.as_tensor(ids, device=old.device)] = new
