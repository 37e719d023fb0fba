"""Clients that come later: after the last round newcomers join a copy of the state, and the others stay as they are.

They are tested as they come, and again after one further round in which exactly they take part, with `join_epochs`
local epochs in place of E. What a newcomer has is what the method begins with: its own state as before round 1, and its
rows of the server's tables; after a warm-up, what everybody had at its end. Class counts are told when it comes. Batch
norm's running statistics, where they stay on the client, begin as those of its training images under what it is sent.

| tested | points |
|---|---|
| before | those of the run but post, and recv and agg where the method has them; post where there are no others |
| after | post, recv and agg, where the method has them; those of the run where it has none of these |

After the round the server has mixed uploads of newcomers, so that agg and recv depend on how many came together.
A method with epochs of its own (FedRep, FedPAC) does them besides. The round's messages are not in the communication.
Of the newcomers the others' training depends on two things only, as they are drawn and scaled with the whole data set:
who owns what, and the mean and std of each channel. A method that cannot take newcomers says why (`no_newcomers`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedlib.base import tree
from fedlib.engine.evaluate import evaluate, personal_models
from fedlib.engine.rounds import run_round
from fedlib.engine.setup import Run, first_state
from fedlib.engine.state import State


def join(runs: Sequence[Run], states: Sequence[State]) -> None:
    """Let the newcomers of runs that are at their end join, all together, and note their tests in `states`.

    A run in which training a newcomer diverges gets no tests after it.
    """
    ended = [k for k, state in enumerate(states) if state.round == runs[k].spec.rounds and not state.diverged]
    members, whole = [states[k] for k in ended], [runs[k].joined for k in ended]
    copies = [with_newcomers(run, state) for run, state in zip(whole, members)]
    for run, state, copy in zip(whole, members, copies):
        note(run, state, copy, "before")
    if ended and whole[0].spec.join_epochs:
        for run, copy in zip(whole, copies):
            measure_statistics(run, copy)
        run_round(whole, copies, members[0].round + 1, newcomers)
        for run, state, copy in zip(whole, members, copies):
            if not copy.diverged:
                note(run, state, copy, "after")


def newcomers(run: Run, t: int) -> np.ndarray:
    """Who takes part in the round of joining, int64 [U]: the last clients."""
    return np.arange(run.spec.num_members, run.spec.num_clients)


def note(run: Run, state: State, copy: State, when: str) -> None:
    """Test the newcomers of `copy` "before" or "after" they have joined, and append it to the tests in `state`."""
    first, here, possible = run.spec.num_members, run.points(copy), run.acting(copy).points
    received = [point for point in ("recv", "agg") if point in possible]
    before = [*(point for point in here if not point.startswith("post")), *received] or ["post"]
    after = ["post"] * ("post" in possible) + received or here
    with state.timed("evaluate"):
        for point in dict.fromkeys(before if when == "before" else after):
            correct, loss = (torch.from_numpy(part[first:]) for part in evaluate(run, copy, point, first))
            state.newcomers.append({"when": when, "point": point, "correct": correct, "loss": loss})


def measure_statistics(whole: Run, copy: State) -> None:
    """Give newcomers the running statistics with which they are tested as they come, where they keep some.

    A few steps from the initial ones would leave them where they were; members have had many rounds.
    """
    for ids, thetas in personal_models(whole, copy, "recv", whole.spec.num_members):
        for name, leaf in tree.leaves((copy.stats, copy.clients)):
            if name in whole.work.model.running:
                leaf[torch.as_tensor(ids, device=leaf.device)] = thetas[name]


# the state -----------------------------------------------------------------------------------------------------------


def with_newcomers(whole: Run, state: State) -> State:
    """A copy of the members' state that has rows for the newcomers too; `state` shares nothing that is written to."""
    fresh, method = at_same_phase(whole, state), whole.acting(state)
    grown = {part: with_room(getattr(state, part), getattr(fresh, part), whole) for part in ("clients", "stats")}
    if state.released is not None:
        grown["released"] = with_room(state.released, fresh.released, whole)
    server = with_room(state.server, fresh.server, whole)
    if method.stored_upload is None and "post" in method.points:
        everyone = range(whole.setting.num_clients)
        grown["uploads"] = tree.map(torch.clone, method.messages(server, everyone))
    trained = torch.cat([state.trained, fresh.trained[len(state.trained) :]])
    return replace(fresh, server=server, trained=trained, round=state.round, **grown)


def at_same_phase(whole: Run, state: State) -> State:
    """What all clients would begin with in the phase in which the members are: before round 1, or after the warm-up."""
    fresh = first_state(whole)
    if not fresh.warming_up or state.warming_up:
        return fresh
    server = with_room(state.warmed, fresh.server, whole)
    server, clients = whole.method.switch_phase(whole.work.model, whole.setting, server, fresh.clients, None)
    return replace(fresh, server=server, clients=clients, warming_up=False)


def with_room(old: Any, fresh: Any, whole: Run) -> Any:
    """A tree of the members with the newcomers' rows (and columns) of the same tree of all clients, `fresh`.

    A table is known by its shape: what is as long as there are members in `old`, and as there are clients in `fresh`.
    What is no table stays as it is. Raises TypeError for a tensor that grows with the number of clients otherwise.
    """
    if isinstance(old, dict):
        return {name: with_room(node, fresh[name], whole) for name, node in old.items()}
    if isinstance(old, tuple):
        return tuple(with_room(*nodes, whole) for nodes in zip(old, fresh, strict=True))
    if not isinstance(old, Tensor) or old.shape == fresh.shape:
        return old
    sizes = whole.spec.num_members, whole.spec.num_clients
    if any(a != b and (a, b) != sizes for a, b in zip(old.shape, fresh.shape, strict=True)):
        method = type(whole.method).__name__
        raise TypeError(f"{method} keeps {tuple(old.shape)} numbers that are no table of clients; say no_newcomers")
    table = fresh.clone()
    table[tuple(slice(length) for length in old.shape)] = old
    return table
