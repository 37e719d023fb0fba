"""What every method must show, one function each; a function raises Broken, which says in words what is wrong."""

from __future__ import annotations

import json
import os
import random
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from unittest import mock

import numpy as np
import torch

from fedlib.algorithms import find
from fedlib.base import tree
from fedlib.checks.plays import (
    Broken,
    difference,
    ending,
    exact,
    rounds_that_leave_inputs_alone,
    rounds_with_tests,
    shorter,
    stop,
    tiny,
    wide,
)
from fedlib.engine.rounds import switch_phase
from fedlib.engine.setup import arithmetic, first_state, set_up
from fedlib.engine.simulate import simulate, simulate_together, watched_round
from fedlib.spec import RunSpec

ROUNDING = 1e-12  # of one backend and another in float64
# Five of six clients take part, so that something is mixed; what is shared by many begins in later rounds.
MANY = {"join_ratio": 0.84, "rounds": 3}


def options_can_be_stored(method: str, hyper: dict) -> None:
    """A run's settings survive a round trip through JSON."""
    spec = tiny(method, hyper=hyper)
    try:
        again = RunSpec.from_dict(json.loads(json.dumps(spec.to_dict())))
    except TypeError as error:
        raise Broken(f"options are numbers, names, true, false or none; {error}") from None
    if found := difference(again.hyper, spec.hyper):
        raise Broken(f"an option is another one when it is read again: {found}")


def inputs_stay(method: str, hyper: dict) -> None:
    """No function modifies its arguments."""
    for _ in rounds_that_leave_inputs_alone(shorter(set_up(tiny(method, num_clients=3, hyper=hyper))), 3):
        pass


def travel_is_counted(method: str, hyper: dict) -> None:
    """Messages are tensors; the method counts some or all of their values as communication."""
    run = shorter(set_up(tiny(method, hyper=hyper, join_ratio=1.0), "serial"))
    state, counted, held = first_state(run), Counter(), Counter()
    for t in range(1, run.spec.rounds + 1):
        acting = run.acting(state)
        seen = watched_round(run, state, t)
        for way, count, stacked in (
            ("down", acting.floats_down, seen.messages),
            ("up", acting.floats_up, seen.uploads),
        ):
            for k in range(len(seen.ids)):
                there, number = _numbers(run, way, count, tree.rows(stacked, k))
                held[way] += there
                counted[way] += number
    for way in ("down", "up"):
        if held[way] and not counted[way]:
            raise Broken(f"floats_{way} counts none of the {held[way]} numbers that went {way}")
        if counted[way] != state.floats[way]:
            raise Broken(f"{counted[way]} numbers went {way}, but the run counted {state.floats[way]}")


def _numbers(run, way: str, count: Callable, message) -> tuple[int, int]:
    """How many numbers a message holds, and how many of them the method counts (fewer where some are padding)."""
    held = run.transport.travelling(message)
    strange = [name for name, leaf in tree.leaves(held) if not isinstance(leaf, torch.Tensor)]
    if strange:
        raise Broken(f"what goes {way} must be tensors; these are none: {', '.join(map(str, strange))}")
    there, number = run.transport.floats(held), run.transport.floats(count(held))
    if number > there:
        raise Broken(f"floats_{way} counts {number} numbers of a message that holds {there}")
    return there, number


def points_exist(method: str, hyper: dict) -> None:
    """It can be evaluated at each of its evaluation points, and at no others."""
    points = find(method).points
    if not points:
        raise Broken("points is empty; it says at which of glob, recv, agg, post and ft the method can be tested")
    run = shorter(set_up(tiny(method, hyper=hyper)))
    state = first_state(run)
    for t in range(run.spec.rounds + 1):
        if t:
            watched_round(run, state, t)
            switch_phase(run, state)
        named, own = run.acting(state).eval_points(state.server), run.acting(state).points
        if not named or not {point.partition("(")[0] for point in named} <= set(own):
            raise Broken(f"eval_points returns {named!r} after round {t}, but points has {tuple(own)!r}")
    for row in simulate(wide(method, hyper=hyper)).history:
        if not np.isfinite(row["loss"]):
            raise Broken(f"the loss at {row['point']} after round {row['round']} is {row['loss']}")


def testing_changes_nothing(method: str, hyper: dict) -> None:
    """Evaluation changes neither the state nor later rounds."""
    spec = tiny(method, hyper=hyper, eval_points=wide(method, hyper=hyper).eval_points)
    for _ in rounds_with_tests(spec, shorter):
        pass


def seed_decides(method: str, hyper: dict) -> None:
    """The same seed gives the same numbers, whatever random numbers were drawn before."""
    found = []
    for state in (0, 1):
        random.seed(state)
        np.random.seed(state)
        torch.manual_seed(state)
        found.append(exact(simulate(tiny(method, hyper=hyper))))
    if where := difference(*reversed(found)):
        raise Broken(f"two runs with one seed differ: {where}; draw with fedlib.base.draws.rng(setting.seed, ...), or "
                     "data.fold(..., noise=)")  # fmt: skip


def stack_agrees(method: str, hyper: dict) -> None:
    """Stacked clients (vmap), with 1 to 130 samples, give the results of the serial backend."""
    backend_agrees(wide(method, hyper=hyper, **MANY), "vmap")


def processes_agree(method: str, hyper: dict) -> None:
    """Clients in worker processes give the results of the serial backend, bit for bit."""
    backend_agrees(wide(method, hyper=hyper, **MANY), "process", 0.0)


def backend_agrees(spec: RunSpec, backend: str, tolerance: float = ROUNDING) -> np.ndarray:
    """Another backend gives what serial gives on uneven clients: all states, and every client's tests.

    Returns who ever trained, bool [N]. Raises Broken.
    """
    (serial, trained), (other, _) = (ending(spec, name) for name in ("serial", backend))
    if where := difference(other, serial, tolerance):
        raise Broken(f"backend {backend} does not give what serial gives: {where}")
    return trained


def seeds_stack(method: str, hyper: dict) -> None:
    """Stacked runs with several seeds give the results of single runs."""
    specs = [wide(method, hyper=hyper, seed=k, partition_seed=k, eval_points=(), **MANY) for k in range(2)]
    together = simulate_together(specs, backend="vmap")
    for spec, result in zip(specs, together):
        if where := difference(result.history, simulate(spec, backend="serial").history, 1e-9):
            raise Broken(f"two seeds in one stack differ from one alone: {where}; model.theta0 is for init only")


def resuming_changes_nothing(method: str, hyper: dict) -> None:
    """An interrupted run continues and ends with the same numbers."""
    spec = tiny(method, hyper=hyper, rounds=4, eval_every=2)
    with tempfile.TemporaryDirectory(prefix="fedlib-check-") as place, mock.patch.dict(os.environ, FEDLIB_CACHE=place):
        stop(spec, 2)
        resumed = simulate(spec, checkpoint_every=0)
    if where := difference(exact(resumed), exact(simulate(spec))):
        raise Broken(f"a run that was stopped after round 2 ends with other numbers: {where}")


CHECKS = (
    options_can_be_stored, inputs_stay, travel_is_counted, points_exist, testing_changes_nothing, seed_decides,
    stack_agrees, processes_agree, seeds_stack, resuming_changes_nothing,
)  # fmt: skip


def check(method: str, hyper: dict, checks=CHECKS) -> Iterator[tuple[str, str]]:
    """Yield (what is asked, what is wrong or ""), check by check.

    Raises BadValue for an unknown method, hyper-parameter or value.
    """
    tiny(method, hyper=hyper)
    for one in checks:
        try:
            with arithmetic("float64"):  # one thread, as the engine does it
                one(method, hyper)
        except Broken as error:
            yield one.__doc__, str(error)
        except Exception as error:
            yield one.__doc__, _said(method, error)
        else:
            yield one.__doc__, ""


def _said(method: str, error: Exception) -> str:
    """An error in one line, with the place in the method's own functions where it came up."""
    code = [f.__code__ for part in find(method).__mro__ for f in vars(part).values() if hasattr(f, "__code__")]
    own = [(frame, line) for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code in code]
    where = f" (in {own[-1][0].f_code.co_name}, line {own[-1][1]})" if own else ""
    text = " ".join(str(error).split())[:300]
    return f"{type(error).__name__}: {text}{where}"
