"""vmap and process give what serial gives: chunking, workers that die, phases, padding, precision; method by method in
test_every_method."""

from __future__ import annotations

import dataclasses
import itertools
import os
import signal
import subprocess
import sys
import time
import warnings
from multiprocessing import connection, forkserver

import numpy as np
import pytest
import torch
from helpers import METHODS, SIZES, close, computed, exact, outcome, played, same, tensors, tiny, uneven, wide

from fedlib.algorithms.parts.passes import local_sgd
from fedlib.base import tree
from fedlib.base.errors import BadValue, FedlibError
from fedlib.engine import backends, worker_processes
from fedlib.engine.batches import ClientTurn, Training
from fedlib.engine.client_data import PlainData
from fedlib.engine.cuda_graph import UNRECORDED, repeated
from fedlib.engine.setup import first_state, set_up, set_up_together
from fedlib.engine.simulate import run_round, simulate, simulate_together
from fedlib.engine.worker_processes import WorkerProcesses

CORE = ("fedavg", "fedper", "local", "pfedsim")  # every method is compared once, these under every circumstance


def test_uneven_clients_are_trained_at_all():
    """With everyone in every round only the client with one sample keeps its model (its one batch is skipped)."""
    *_, (run, state, _) = played(wide("local", join_ratio=1.0, rounds=1), "vmap", uneven)
    moved = [
        not torch.equal(state.clients["theta"]["head.weight"][i], run.work.model.theta0["head.weight"])
        for i in range(6)
    ]
    assert moved == [False, True, True, True, True, True]


@pytest.mark.parametrize("stack", [3, 4])
def test_chunking_changes_no_number(monkeypatch, stack):
    """Chunks pad to their own longest client; padding must not be seen in the result."""
    spec = wide("fedavg", join_ratio=1.0, rounds=1, eval_points=("glob",))
    whole, _ = outcome(spec, "vmap")
    monkeypatch.setattr(backends, "STACK", stack)
    parts, _ = outcome(spec, "vmap")
    close(parts, whole, 1e-13)


# worker processes -----------------------------------------------------------------------------------------------------


def test_the_number_of_workers_changes_no_number():
    spec = tiny("fedper", num_clients=6, join_ratio=1.0, rounds=2)
    reference = exact(simulate(spec, backend="serial"))
    assert all(exact(simulate(spec, backend="process", workers=count)) == reference for count in (1, 3))


def half_an_answer(folder, number):
    """The first time: no more than the beginning of a result, and death."""
    if number == 1 and not (folder / "died").exists():
        (folder / "died").touch()
        frame = sys._getframe()
        while "parent" not in frame.f_locals:
            frame = frame.f_back
        os.write(frame.f_locals["parent"].fileno(), (1_000).to_bytes(4, "big") + b"half")
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def test_a_worker_killed_while_it_sends_a_result_holds_up_nobody(tmp_path):
    workers = WorkerProcesses(2)
    try:
        assert workers.map(half_an_answer, {i: (tmp_path, i) for i in range(4)}) == {i: i for i in range(4)}
    finally:
        workers.stop()
    assert (tmp_path / "died").exists()


def dead_at_once(folder, number, large):
    """The first time it dies, while the next job, which no pipe holds, is on its way."""
    if not (folder / "died").exists():
        (folder / "died").touch()
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def test_a_worker_killed_before_it_has_read_its_next_job_holds_up_nobody(tmp_path):
    workers = WorkerProcesses(1)
    try:
        jobs = {i: (tmp_path, i, bytes(10_000_000)) for i in range(4)}
        assert workers.map(dead_at_once, jobs) == {i: i for i in range(4)}
    finally:
        workers.stop()
    assert (tmp_path / "died").exists()


def test_a_killed_worker_is_replaced_and_its_clients_are_done_again(monkeypatch):
    """SIGKILL to a worker in the middle of round 2, when half of its jobs are handed out; the numbers are those of an
    undisturbed run."""
    spec, killed = tiny("fedavg", num_clients=6, join_ratio=1.0, rounds=3), []
    run = set_up(spec, "process", workers=2)
    state = first_state(run)

    def kill_once(busy):
        if t == 2 and not killed and next(waited) == 1:
            killed.append(run.backend.workers.running[next(iter(busy))].pid)
            os.kill(killed[0], signal.SIGKILL)
        return connection.wait(busy)

    waited = itertools.count()
    monkeypatch.setattr(worker_processes, "wait", kill_once)
    with torch.no_grad():
        for t in range(1, 4):
            run_round([run], [state], t)
            workers = {process.pid for process in run.backend.workers.running.values()}
    run.backend.close()
    assert killed and len(workers) == 2 and not workers & set(killed)
    *_, (_, undisturbed, _) = played(spec, "serial")
    assert same(state.server, undisturbed.server) and same(state.stats, undisturbed.stats)


def dead_or_not(dead):
    return os._exit(1) if dead else "alive"


def test_workers_that_keep_dying_are_an_error_not_a_hang():
    workers = WorkerProcesses(1)
    with pytest.raises(FedlibError, match="died 3 times"):
        workers.map(os._exit, {0: (1,)})
    found = workers.map(dead_or_not, {"a": (True,), "b": (False,)}, lambda key, error: f"{key}: {error}")
    assert found == {"a": "a: its worker process died 3 times (killed, or out of memory?)", "b": "alive"}
    assert workers.map(pow, {"a": (2, 3), "b": (2, 5)}) == {"a": 8, "b": 32}
    workers.stop()


def test_an_error_in_a_worker_arrives_and_ends_the_workers():
    workers = WorkerProcesses(2)
    with pytest.raises(ZeroDivisionError):
        workers.map(divmod, {0: (1, 0), 1: (1, 1)})
    assert not workers.running


def test_workers_have_the_environment_of_now(monkeypatch):
    """The server that they are forked from was started earlier, with another one."""
    workers = WorkerProcesses(1)
    for value in ("first", "second"):
        monkeypatch.setenv("FEDLIB_TEST_VALUE", value)
        assert workers.map(os.getenv, {0: ("FEDLIB_TEST_VALUE",)}) == {0: value}
        workers.stop()


def cuda_was_touched() -> bool:
    return torch.cuda.is_initialized() or torch.cuda._is_in_bad_fork()


def test_workers_can_use_a_gpu():
    """CUDA does not survive a fork: neither the server nor a worker may have touched it before a job does."""
    workers = WorkerProcesses(2)
    assert workers.map(cuda_was_touched, {0: (), 1: ()}) == {0: False, 1: False}
    workers.stop()


FORKED = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="NO FORK SERVER HERE: it was NOT killed")


@FORKED
def test_a_killed_fork_server_is_replaced():
    workers = WorkerProcesses(2)
    workers.map(pow, {0: (2, 3)})
    os.kill(forkserver._forkserver._forkserver_pid, signal.SIGKILL)
    time.sleep(0.5)  # until it is gone
    assert workers.map(pow, {"a": (2, 3), "b": (2, 5)}) == {"a": 8, "b": 32}
    workers.stop()


PARENT = """
import os, time
from fedlib.engine.worker_processes import WorkerProcesses
if __name__ == "__main__":
    workers = WorkerProcesses(2)
    workers.map(time.sleep, {0: (0.5,), 1: (0.5,)})
    print(*(process.pid for process in workers.running.values()), flush=True)
    workers.map(time.sleep, {0: (600,), 1: (600,)})
"""


@FORKED
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_workers_leave_with_their_parent(tmp_path, how):
    """Within seconds, in the middle of their jobs."""
    (tmp_path / "parent.py").write_text(PARENT)
    parent = subprocess.Popen(
        [sys.executable, tmp_path / "parent.py"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    workers = list(map(int, parent.stdout.readline().split()))
    assert len(workers) == 2
    parent.send_signal(how)
    parent.wait(timeout=600)
    end = time.monotonic() + 300
    while any(os.path.exists(f"/proc/{pid}") for pid in workers):
        assert time.monotonic() < end, "they stay"
        time.sleep(0.05)


def test_process_on_a_gpu_is_refused():
    with pytest.raises(BadValue, match="serial or vmap"):
        backends.make("process", None, torch.device("cuda"))


# stacks ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "most", "launch", "expected"),
    [
        ([5, 1, 9], 32, 1e9, [[2, 0, 1]]),  # starting a step is dear: one stack, largest first
        ([100, 1, 100, 1], 32, 0.0, [[0, 2], [1, 3]]),  # it is free: clients of one size each
        ([3, 3, 3, 3, 3], 2, 1e9, [[0], [1, 2], [3, 4]]),  # no more than two at a time
        ([7], 4, 1.0, [[0]]),
    ],
)
def test_stacks_are_cut_at_the_least_cost(sizes, most, launch, expected):
    stacks = [stack.tolist() for stack in backends.cut(sizes, most, launch)]
    assert sorted(map(len, stacks)) == sorted(map(len, expected))
    if most > 2:
        assert stacks == expected
    assert sorted(k for stack in stacks for k in stack) == list(range(len(sizes)))


def test_the_cut_is_optimal():
    """Against all divisions of the sorted clients into consecutive stacks."""
    sizes, launch, most = [40, 33, 20, 19, 5, 2, 1], 2.5, 4

    def cost(stacks):
        return sum((max(sizes[k] for k in stack) + 1) * (launch + len(stack)) for stack in stacks)

    best = min(
        cost(stacks)
        for mask in range(2**6)
        for stacks in [np.split(np.arange(7), [i + 1 for i in range(6) if mask >> i & 1])]
        if max(map(len, stacks)) <= most
    )
    assert cost(backends.cut(sizes, most, launch)) == pytest.approx(best)


def test_out_of_memory_halves_the_stack(monkeypatch):
    """A GPU on which at most two clients fit, simulated: the results are the same, and the size is remembered."""
    spec, tried, stacked = wide("fedavg", join_ratio=1.0, rounds=1, eval_points=("glob",)), [], backends.Vmap._stacked
    whole, _ = outcome(spec, "vmap")

    def small(self, fn, turns, trees):
        tried.append(len(turns))
        if len(turns) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory (simulated)")
        return stacked(self, fn, turns, trees)

    monkeypatch.setattr(backends.Vmap, "_stacked", small)
    monkeypatch.setitem(backends.LAUNCH, "cpu", 1e9)  # one stack, if it fits
    halved, _ = outcome(spec, "vmap")
    close(halved, whole, 1e-13)
    assert max(tried) == 6 and tried.count(6) == 4 and min(tried) <= 2  # trained and tested, each tried twice


def test_a_client_that_does_not_fit_alone_is_an_error(monkeypatch):
    def none(*_):
        raise torch.OutOfMemoryError("CUDA out of memory (simulated)")

    monkeypatch.setattr(backends.Vmap, "_stacked", none)
    with pytest.raises(torch.OutOfMemoryError):
        outcome(wide("fedavg", rounds=1), "vmap")


def test_runs_that_differ_in_more_than_their_seeds_are_not_stacked():
    with pytest.raises(BadValue, match="differ in seed"):
        simulate_together([tiny("fedavg"), tiny("fedavg", lr=0.1)])


def test_a_diverging_seed_leaves_the_others_alone():
    """In one stack with a run whose first participant's images are not finite from round 1 on."""
    specs = [wide("fedavg", seed=k) for k in range(2)]
    runs = set_up_together(specs, "vmap", "cpu")
    states = [first_state(run) for run in runs]
    states[1].server = tree.map(lambda leaf: leaf * float("nan"), states[1].server)
    with torch.no_grad():
        for t in (1, 2):
            run_round(runs, states, t)
    assert states[1].diverged[1] == 1 and states[1].round == 0
    *_, (_, alone, _) = played(specs[0], "vmap")
    close(states[0].server, alone.server)


# recorded steps -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", CORE)
def test_the_recorded_loop_gives_what_the_plain_loop_gives(method):
    """On a CPU the recording is the Python function: buffers,
    counter and selection of padded steps are the same as on a GPU."""
    spec = wide(method, rounds=2, seed=1)

    def recording(run):
        return dataclasses.replace(uneven(run), backend=backends.Vmap(run.work.model, run.device, cuda_graph=True))

    def plain(run):
        return dataclasses.replace(uneven(run), backend=backends.Vmap(run.work.model, run.device, cuda_graph=False))

    with torch.no_grad():
        ends = [list(played(spec, "vmap", change))[-1][1] for change in (recording, plain)]
    for key in ("server", "clients", "stats"):
        assert same(vars(ends[0])[key], vars(ends[1])[key])


@pytest.mark.parametrize("count", [0, 1, 2, 3, 9])
def test_repeated_counts_its_steps(count):
    """x <- 2 x + s for s = 0 .. count-1, under vmap, with a leaf that is not batched at first and an integer."""

    def run(cuda_graph):
        def one(slot):
            def body(state, s):
                return {"x": 2 * state["x"] + s[0] + slot, "n": state["n"] + 1 + 0 * slot}

            return repeated(
                body,
                {"x": torch.tensor(1.0, dtype=torch.float64) + slot, "n": torch.tensor(0)},
                count,
                torch.device("cpu"),
                cuda_graph,
            )

        return torch.func.vmap(one)(torch.arange(3)) if count else one(torch.tensor(0))

    expected = []
    for slot in range(3 if count else 1):
        x = 1.0 + slot
        for s in range(count):
            x = 2 * x + s + slot
        expected.append(x)
    for cuda_graph in (True, False, None):
        out = run(cuda_graph)
        assert torch.atleast_1d(out["x"]).tolist() == expected and set(torch.atleast_1d(out["n"]).tolist()) == {count}


# precision ------------------------------------------------------------------------------------------------------------


def test_mixed_precision_only_when_asked():
    """bf16 computes the forward pass in bfloat16 and keeps float32 parameters; tf32 exists on GPUs only."""
    full, mixed = (simulate(tiny("fedavg", precision=precision)) for precision in ("float32", "bf16"))
    assert full.final("loss") != mixed.final("loss")
    assert mixed.final("loss") == pytest.approx(full.final("loss"), abs=0.05)
    assert mixed.communication == full.communication
    *_, (_, state, _) = played(tiny("fedavg", precision="bf16"))
    assert all(leaf.dtype == torch.float32 for leaf in tensors(state.server))
    with pytest.raises(BadValue, match="tf32"):
        simulate(tiny("fedavg", precision="tf32"))


# fold and scan, directly ----------------------------------------------------------------------------------------------


def both(fn, *trees, min_batch=2, epochs=1, draw=(0, 1)):
    """fn for all six uneven clients, by serial and by vmap."""
    run = uneven(set_up(tiny("fedavg", num_clients=6, precision="float64", local_epochs=epochs)))
    run = dataclasses.replace(
        run, work=dataclasses.replace(run.work, training=dataclasses.replace(run.work.training, min_batch=min_batch))
    )
    return run.work, *(computed(run, name, fn, np.arange(6), *trees, draw=draw) for name in ("serial", "vmap"))


@pytest.mark.parametrize(("min_batch", "steps"), [(2, (0, 1, 1, 1, 5, 2)), (1, (1, 1, 2, 1, 5, 2))])
def test_padded_steps_keep_the_old_state(min_batch, steps):
    """The step shrinks its state by a tenth without looking at the data, so a step on padding would be seen: 0.9^steps.

    Minibatches of 32: 33 samples are a full one and a single sample, which is skipped for models with batch norm
    (min_batch 2).
    """

    def shrink(model, start, data):
        return data.fold(lambda s, batch: {"value": 0.9 * s["value"], "steps": s["steps"] + 1}, start, 2)

    start = {"value": torch.ones(6, dtype=torch.float64), "steps": torch.zeros(6, dtype=torch.int64)}
    _, serial, stacked = both(shrink, start, min_batch=min_batch)
    assert serial["steps"].tolist() == stacked["steps"].tolist() == [2 * s for s in steps]
    torch.testing.assert_close(
        stacked["value"], 0.9 ** (2 * torch.tensor(steps, dtype=torch.float64)), rtol=1e-12, atol=0
    )
    close(stacked, serial)


def test_several_phases_agree_and_draw_anew():
    """Two folds and two scans in one client's round, the second fold with other epochs;
    sample counts are seen by the method."""

    def phases(model, theta, data):
        theta = local_sgd(model, theta, data)
        head = local_sgd(model, theta, data, 2, train=("head.weight", "head.bias"))
        seen = data.scan(
            lambda n, batch: n + (torch.ones_like(batch.y) if batch.mask is None else batch.mask).sum(),
            torch.tensor(0),
            "test",
        )
        total = data.scan(
            lambda s, batch: (
                s + torch.where(torch.ones_like(batch.y).bool() if batch.mask is None else batch.mask, batch.y, 0).sum()
            ),
            torch.tensor(0),
        )
        return theta, head, {"tests": seen, "labels": total, "n": torch.as_tensor(data.num_samples)}

    model = set_up(tiny("fedavg", precision="float64")).work.model
    work, serial, stacked = both(phases, tree.repeat(model.theta0, 6))
    close(stacked, serial)
    assert stacked[2]["tests"].tolist() == list(SIZES["test"]) and stacked[2]["n"].tolist() == list(SIZES["train"])
    assert stacked[2]["labels"].tolist() == [int(work.source.labels[parts["train"]].sum()) for parts in work.parts]
    data = PlainData(ClientTurn(work.source, work.training, work.parts[4], (0, 1, 4)))
    first, second = (torch.cat(data.fold(lambda seen, batch: (*seen, batch.y), ())).tolist() for _ in range(2))
    assert first != second and sorted(first) == sorted(second)


@pytest.mark.parametrize("part", ["head.", "extractor."])
def test_only_the_named_parameters_are_trained(part):
    """`train=`: every other parameter is bitwise what it was, in both backends, and the named ones move."""
    model = set_up(tiny("fedavg", precision="float64")).work.model
    named = [name for name in model.trainable if name.startswith(part)]
    _, serial, stacked = both(
        lambda model, theta, data: local_sgd(model, theta, data, train=named), tree.repeat(model.theta0, 6)
    )
    close(stacked, serial)
    for result in (serial, stacked):
        for name in model.running if part == "head." else ():  # batch norm of a frozen block is in evaluation mode
            assert torch.equal(result[name], model.theta0[name].expand_as(result[name])), name
        for name in model.trainable:
            if name not in named:
                assert torch.equal(result[name], model.theta0[name].expand_as(result[name])), name
            elif name.endswith(("fc1.weight", "head.weight")):
                assert all(not torch.equal(result[name][i], model.theta0[name]) for i in range(1, 6)), name


def test_batches_of_an_epoch_are_a_shuffled_division():
    """Every epoch: all samples once, in a new order, the last partial batch kept,
    a single sample left out only where asked."""

    def flat(count, epochs, min_batch, *draw):
        return [batch for (batch,) in planned(count, epochs, min_batch, *draw)]

    def planned(count, epochs, min_batch, *draw):
        return ClientTurn(None, Training(1, 32, 0.1, 7, min_batch), {"train": np.arange(count)}, draw).plan(0, epochs)

    drawn = flat(70, 3, 2, 0, 4, 5)
    assert [len(b) for b in drawn] == [32, 32, 6] * 3
    epochs = [np.concatenate(drawn[k : k + 3]) for k in (0, 3, 6)]
    assert all(sorted(e) == list(range(70)) for e in epochs)
    assert not np.array_equal(epochs[0], epochs[1]) and not np.array_equal(epochs[0], np.arange(70))
    assert [len(b) for b in flat(33, 1, 2, 0)] == [32]
    assert [len(b) for b in flat(33, 1, 1, 0)] == [32, 1]


def test_batches_in_a_fixed_order_are_the_same_in_every_epoch_and_round():
    """That of the training part, which need not be sorted."""
    run = set_up(tiny("fedavg", scheme="dirichlet_reference", partition={"min_size": 40},
                      batch_order="fixed", test_fraction=0.5))  # fmt: skip
    for client, parts in enumerate(run.work.parts):
        own = run.work.source.labels[torch.from_numpy(parts["train"])].split(run.spec.batch_size)
        own = [labels for labels in own if len(labels) >= run.work.training.min_batch]
        for t in (1, 2):
            seen = [batch.y for batch in run.minibatches(client, t, 2)]
            assert len(seen) == 2 * len(own) and all(torch.equal(a, b) for a, b in zip(seen, own * 2))
    shuffled = set_up(run.spec.but(batch_order="shuffled"))
    assert not torch.equal(next(shuffled.minibatches(0, 1, 1)).y, next(run.minibatches(0, 1, 1)).y)


def test_pixels_as_in_the_reference_code():
    """255 times as large before the mean is taken off; in all processes."""
    spec = tiny("fedavg", rounds=1, pixels="reference", lr=1e-4)
    run, index = set_up(spec), torch.arange(7)
    mean, std = run.work.source.dataset.channel_stats
    images, mean, std = run.work.source.images[index].float(), mean.float(), std.float()
    torch.testing.assert_close(run.work.source.batch(index).x, (images - mean) / std)
    torch.testing.assert_close(set_up(spec.but(pixels="standardised")).work.source.batch(index).x,
                               (images / 255 - mean) / std)  # fmt: skip
    serial, process = (simulate(spec, backend=name, workers=2) for name in ("serial", "process"))
    assert serial.history == process.history


def test_symmetric_pixels_go_from_minus_one_to_one():
    run = set_up(tiny("fedavg", rounds=1, pixels="symmetric"))
    images = run.work.source.images
    x = run.work.source.batch(torch.arange(len(images))).x
    torch.testing.assert_close(x, images.float() / 127.5 - 1)
    assert x.min() == -1 and x.max() == 1


def test_backends_leave_their_arguments_alone():
    model = set_up(tiny("fedavg", precision="float64")).work.model
    thetas = tree.repeat(model.theta0, 6)
    before = tree.map(torch.clone, thetas)
    both(lambda model, theta, data: local_sgd(model, theta, data), thetas)
    assert same(thetas, before)


@pytest.mark.skipif(
    not torch.cuda.is_available(), reason="NO CUDA DEVICE: vmap on CUDA was NOT compared with serial on the CPU"
)
@pytest.mark.parametrize("method", METHODS)
def test_vmap_on_cuda_agrees_with_serial_on_the_cpu(method):
    """float64; the order of summation differs between the devices, so a little more than rounding is allowed."""
    spec = wide(method, seed=1)
    close(outcome(spec, "vmap", "cuda")[0], outcome(spec, "serial")[0], 1e-9)
    on_gpu, on_cpu = (simulate(tiny(method), device=device).history for device in ("cuda", "cpu"))
    assert all(a["loss"] == pytest.approx(b["loss"], abs=1e-3) for a, b in zip(on_gpu, on_cpu, strict=True))


@pytest.mark.skipif(
    not torch.cuda.is_available(), reason="NO CUDA DEVICE: recorded steps were NOT compared with plain ones"
)
@pytest.mark.parametrize("method", METHODS)
def test_recorded_steps_on_cuda(method):
    """The same kernels in the same order: equal up to rounding, and the recording was really used (no warning)."""
    spec = wide(method, seed=1)
    ends = []
    for cuda_graph in (True, False):

        def change(run, cuda_graph=cuda_graph):
            return dataclasses.replace(uneven(run), backend=backends.Vmap(run.work.model, run.device, cuda_graph))

        with torch.no_grad(), warnings.catch_warnings():
            warnings.filterwarnings("error", message=UNRECORDED)
            ends.append(list(played(spec, "vmap", change, "cuda"))[-1][1])
    for key in ("server", "clients", "stats"):
        close(vars(ends[0])[key], vars(ends[1])[key], 1e-10)


@pytest.mark.skipif(
    not torch.cuda.is_available(), reason="NO CUDA DEVICE: seeds in one stack were NOT compared on CUDA"
)
def test_seeds_in_one_stack_on_cuda():
    specs = [wide("fedavg", seed=k) for k in range(3)]
    for result, spec in zip(simulate_together(specs, device="cuda"), specs):
        alone = simulate(spec, backend="serial")
        assert all(
            a["loss"] == pytest.approx(b["loss"], abs=1e-7) for a, b in zip(result.history, alone.history, strict=True)
        )
