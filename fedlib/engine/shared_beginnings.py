"""Runs that begin alike compute their common beginning once.

pFedSim's first rounds are FedAvg's, whatever its rho: a sweep over rho trains FedAvg once and keeps its state at the
rounds where the others take over (`milestones` of `simulate_together`). A run that finds no such state computes it
itself, with the same numbers.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Sequence

from fedlib import algorithms
from fedlib.algorithms.api import Setting
from fedlib.engine.checkpoint import saved_as
from fedlib.engine.setup import Run
from fedlib.engine.state import State
from fedlib.measures import ROUND_MEASURES, SEE_ROUNDS
from fedlib.spec import RunSpec


def beginning(spec: RunSpec) -> tuple[str, int]:
    """(key, rounds): runs with the same key do the same in their first rounds, this one up to `rounds`.

    The key covers everything but what comes into play later: the method that takes over, and the measures of the final
    models. rounds is 0 where nothing is shared; so it is for measures of what travels, which no state holds, and for a
    warm-up that is the user's own.
    """
    method = spec.algorithm
    first, rounds = method.warm_up(Setting(spec.num_clients, spec.rounds, num_classes=0))
    if first is None:
        first, rounds = method, spec.rounds
    named = {"method": spec.method, "method_source": spec.method_source}
    if first is not method:
        name = type(first).__module__.rpartition(".")[2]
        known = name in algorithms.of_fedlib() and algorithms.find(name) is type(first)
        named = {"method": name} if known else named
        rounds = rounds if known else 0
    if any(measure in SEE_ROUNDS for measure in spec.measures):
        rounds = 0
    each_round = [measure for measure in spec.measures if measure in ROUND_MEASURES]
    task = spec.to_dict() | {"hyper": dataclasses.asdict(first), "measures": each_round}
    task.pop("method_source", None)
    task |= {name: value for name, value in named.items() if value}
    task["validation"] = method.val_fraction
    task.pop("join_epochs", None)
    return hashlib.sha256(json.dumps(task, sort_keys=True).encode()).hexdigest()[:16], rounds


def beginning_id(spec: RunSpec, rounds: int) -> str:
    """Id of the state after `rounds` common rounds."""
    return f"beginning-{beginning(spec)[0]}-{rounds}"


def leaders(specs: Sequence[RunSpec]) -> dict[str, tuple[list[int], list[str]]]:
    """Which runs to do first: {id of the leader: (its milestones, ids of the runs that wait for it)}.

    Of runs that begin alike the one that stays in their common beginning longest leads.
    """
    alike: dict[str, list[tuple[int, str]]] = {}
    for spec in specs:
        key, rounds = beginning(spec)
        if rounds:
            alike.setdefault(key, []).append((rounds, spec.id))
    plan = {}
    for group in alike.values():
        (_, leader), *others = sorted(group, reverse=True)
        if others:
            plan[leader] = sorted({rounds for rounds, _ in others}), [id for _, id in others]
    return plan


def keep_beginning(runs: Sequence[Run], states: Sequence[State]) -> None:
    """Leave the states of this round, before anything follows it, to other runs."""
    for run, state in zip(runs, states):
        if not state.diverged:
            saved_as(run, beginning_id(run.spec, state.round)).save([state])


def shared_states(runs: Sequence[Run]) -> list[State] | None:
    """The states after the last round of the common beginning, if other runs have left them;
    what follows it is to be done."""
    rounds = beginning(runs[0].spec)[1]
    found = [rounds and saved_as(run, beginning_id(run.spec, rounds)).load() for run in runs]
    if not all(found):
        return None
    states = [state for (state,) in found]
    for run, state in zip(runs, states):
        state.warming_up, state.shared_rounds = run.warm_up[1] > 0, rounds
    return states
