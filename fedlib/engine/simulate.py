"""The round loop: RunSpec in, RunResult out."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence

from fedlib.base.errors import Diverged, OutOfTime
from fedlib.engine.checkpoint import group_id, saved_as
from fedlib.engine.evaluate import record
from fedlib.engine.join import join, with_newcomers
from fedlib.engine.result import RunResult, final_measures, finished
from fedlib.engine.rounds import Round, follow, run_round, switch_phase
from fedlib.engine.setup import Run, arithmetic, first_state, set_up, set_up_together
from fedlib.engine.state import State
from fedlib.measures import check_packages
from fedlib.spec import RunSpec


def simulate(spec: RunSpec, **options) -> RunResult:
    """Train and evaluate one run; options as in `simulate_together`. Raises Diverged besides."""
    (result,) = simulate_together([spec], **options)
    if isinstance(result, Diverged):
        raise result
    return result


def simulate_together(
    specs: Sequence[RunSpec],
    *,
    backend: str = "auto",
    device: str = "cpu",
    workers: int | None = None,
    step: str = "auto",
    progress: Callable[[int], None] | None = None,
    checkpoint_every: float | None = None,
    until: float | None = None,
    at_end: Callable[[Run, State], object] | None = None,
) -> list[RunResult | Diverged]:
    """Train and evaluate runs that differ in their seeds only, round by round, all their clients in one stack.

    backend: auto, serial, vmap or process (`fedlib.engine.backends`), process with `workers` processes. device: "cpu",
    "cuda", "cuda:1", ... or "auto". step: what computes training steps, auto, torch or fused (`fedlib.models.Model`).
    progress: called with the number of rounds done. checkpoint_every: seconds between checkpoints, None for none; a run
    that was killed continues from its last checkpoint and ends with the numbers of an uninterrupted one. until: when to
    stop, in seconds since 1970: before a round that would probably end later (as long as the longest so far) the state
    is saved as a checkpoint, if there are any, and OutOfTime is raised. at_end: called with every run that did not
    diverge and its last state, for example to export the models.

    Raises BadValue for values that do not fit the data, DataError, InfeasiblePartition, and FedlibError where a package
    is not installed that a measure needs.
    """
    if until is not None and time.time() >= until:
        raise OutOfTime("not begun")
    check_packages(specs[0].measures)
    with contextlib.ExitStack() as stack:
        stack.enter_context(arithmetic(specs[0].precision))
        started, longest = time.monotonic(), 0.0
        runs = set_up_together(specs, backend, device, workers, step)
        stack.callback(runs[0].backend.close)
        checkpoint = None
        if checkpoint_every is not None:
            checkpoint = saved_as(runs[0], group_id(specs), checkpoint_every)
        if runs[0].joined:  # what cannot be done after the last round is said now
            with_newcomers(runs[0].joined, first_state(runs[0]))
        states = (checkpoint and checkpoint.load()) or [first_state(run) for run in runs]
        first = max(state.round for state in states) + 1
        for t in range(first, specs[0].rounds + 1):
            if all(state.diverged for state in states):
                break
            if progress:
                progress(t - 1)
            begun = time.monotonic()
            seen = run_round(runs, states, t)
            end_round(runs, states, seen)
            del seen  # whole models: not to be held during the next round
            longest = max(longest, time.monotonic() - begun)
            over = until is not None and time.time() + longest > until
            if t == specs[0].rounds:
                break
            if checkpoint:
                started = book_wall_time(states, started)
                checkpoint.save(states, now=over)
            if over:
                raise OutOfTime(f"stopped after round {t} of {specs[0].rounds}")
        measures = [final_measures(run, state) for run, state in zip(runs, states)]
        for run, state in zip(runs, states):
            if at_end and not state.diverged:
                at_end(run, state)
        book_wall_time(states, started)
        if progress:
            progress(specs[0].rounds)
        return [finished(*each) for each in zip(runs, states, measures)]


def end_round(runs: Sequence[Run], states: Sequence[State], seen: Sequence[Round | None]) -> None:
    """What follows a round: the change from warm-up to the run's own method, evaluation where it is due, measures, and
    after the last round the newcomers. seen: what travelled, None for a run that diverged."""
    for run, state, travelled in zip(runs, states, seen):
        if not state.diverged:
            switch_phase(run, state)
            if state.round % run.spec.eval_every == 0 or state.round == run.spec.rounds:
                record(run, state)
            follow(run, state, travelled)
    if runs[0].joined:
        join(runs, states)


# for looking at ------------------------------------------------------------------------------------------------------


def watched(spec: RunSpec) -> Iterator[tuple[Run, State]]:
    """Play a run and yield (run, state) before round 1 and after every round: what its server and its clients keep.

    The state is the run's own, not a copy: what is changed in it takes part from there on, and what is to be kept of it
    must be copied. `finished(run, state, {})` is the result at the end, that of `simulate(spec)` if nothing was
    changed.
    """
    run = set_up(spec, "serial")
    state = first_state(run)
    yield run, state
    for t in range(1, spec.rounds + 1):
        with arithmetic(spec.precision):
            end_round([run], [state], run_round([run], [state], t))
        yield run, state


def watched_round(run: Run, state: State, t: int) -> Round:
    """Round t of a single run, without the evaluation: what travelled in it. Changes `state`. Raises Diverged."""
    with arithmetic(run.spec.precision):
        (seen,) = run_round([run], [state], t)
        if seen is None:
            raise Diverged(*state.diverged)
        switch_phase(run, state)
    return seen


def book_wall_time(states: Sequence[State], started: float) -> float:
    """Add the time since `started` to the runs, in equal parts; returns the time now."""
    now = time.monotonic()
    for state in states:
        state.seconds["wall"] += (now - started) / len(states)
    return now
