"""The GPU path on a pretended GPU (`emulated_device`): all methods, noise, phases, stacked seeds, recorded steps.

What runs there is what would run on CUDA, with the CPU's arithmetic: so it must give the CPU's numbers in float64.
"""

from __future__ import annotations

import warnings
from collections import Counter

import helpers
import pytest
import torch
from emulated_device import DEVICE, CaptureRefused, DeviceMismatch, Emulator
from helpers import METHODS, POINTS, close, outcome, tensors, tiny, wide

from fedlib.attacks.spec import AttackSpec
from fedlib.base import tree
from fedlib.engine import backends, client_data
from fedlib.engine.batches import EVALUATE, TRAIN
from fedlib.engine.cuda_graph import UNRECORDED, repeated
from fedlib.engine.setup import first_state, set_up, set_up_together
from fedlib.engine.simulate import run_round, simulate, simulate_together
from fedlib.models import Model
from fedlib.runs.run import get_or_attack
from fedlib.runs.store import Store
from fedlib.runs.sweep import run_all

GPU = str(DEVICE)
NOISY = {"kind": "client", "clip": 1.0, "sigma": 0.1}


@pytest.fixture(autouse=True)
def few(monkeypatch):
    """Four clients of 2 to 14 samples; with batches of 4 and two epochs the largest makes 8 steps."""
    sizes = {"train": (2, 9, 3, 0, 14), "test": (1, 3, 2, 1, 5), "val": (1, 3, 2, 1, 3)}
    for part, counts in sizes.items():
        monkeypatch.setitem(helpers.SIZES, part, counts[:3] + counts[4:])


@pytest.fixture
def recorded():
    """Steps that could not be recorded are an error; other warnings are left alone."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=UNRECORDED)
        yield


def small(method: str, **changes):
    """A run of four clients, in float64."""
    return wide(method, **{"num_clients": 4, "batch_size": 4, "local_epochs": 2, **changes})


def agree(spec, backends=("vmap", "serial"), tolerance: float = 1e-12) -> Emulator:
    """The pretended device's numbers are the CPU's, by these backends; returns the device as the first left it."""
    reference, _ = outcome(spec, "serial")
    seen = []
    for backend in backends:
        with Emulator() as gpu:
            found, _ = outcome(spec, backend, GPU)
        close(found, reference, tolerance)
        seen.append(gpu)
    return seen[0]


# every method ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_a_method_agrees_with_the_cpu(method, recorded):
    """All states and every client's test; and its steps are recorded, none left out in silence. Client by client the
    same functions are given the same tensors: that is shown for methods that do most besides training."""
    points = POINTS[method] if method in ("fedavg", "fedem") else POINTS[method][:1]
    both = method in ("fedavg", "fedem", "fedgen", "ffedap", "fedsimsup", "pfedsv", "pfedsim", "pfedhn")
    gpu = agree(small(method, eval_points=points), ("vmap", "serial") if both else ("vmap",))
    assert gpu.captures and gpu.replays >= 2 * len(gpu.captures)


@pytest.mark.parametrize("kind", ["record", "client", "unclipped", "unclipped_relative"])
def test_noise_agrees_with_the_cpu(kind):
    model = {"model": "lenet5"} if kind == "record" else {}
    agree(small("fedavg", privacy=kind, noise_sigma=0.1, eval_points=("glob",), **model))


@pytest.mark.parametrize("precision", ["bf16"])
@pytest.mark.parametrize("method", ["fedavg", "fedrep", "fedpac", "fedsimsup"])
def test_bf16_stacked(method, precision):
    """Batch norm of a frozen extractor gets bfloat16 and has float32 weights; torch.func's gradient knew no such
    thing."""
    stacked, serial = (simulate(tiny(method, precision=precision, rounds=1), backend=b) for b in ("vmap", "serial"))
    assert stacked.final("loss") == pytest.approx(serial.final("loss"), abs=0.05)


def test_a_warm_up_and_what_follows_agree_with_the_cpu(recorded):
    """pFedSim: FedAvg's rounds, then its own, with evaluation after every round."""
    spec = small("pfedsim", rounds=2, eval_points=())
    expected = simulate(spec, backend="serial").history
    with Emulator():
        found = simulate(spec, device=GPU).history
    for a, b in zip(found, expected, strict=True):
        assert a["loss"] == pytest.approx(b["loss"], abs=1e-10) and a["pooled"] == b["pooled"]


# runs in one stack ----------------------------------------------------------------------------------------------------


def test_seeds_in_one_stack_agree_with_the_cpu(recorded):
    specs = [small("fedavg", seed=k, partition_seed=k, rounds=1, eval_points=()) for k in range(2)]
    expected = [simulate(spec, backend="serial").history for spec in specs]
    with Emulator() as gpu:
        results = simulate_together(specs, device=GPU)
    assert gpu.replays
    for result, history in zip(results, expected):
        assert [row["loss"] for row in result.history] == pytest.approx([row["loss"] for row in history], abs=1e-10)


def test_a_diverging_seed_is_named_and_leaves_the_others_alone():
    """Its client is replayed one by one, with several epochs: positions are drawn on the CPU, images kept on the
    GPU."""
    specs = [small("fedavg", seed=k) for k in range(2)]
    with Emulator(), torch.no_grad():
        runs = set_up_together(specs, "vmap", GPU)
        states = [first_state(run) for run in runs]
        states[1].server = tree.map(lambda leaf: leaf * float("nan"), states[1].server)
        run_round(runs, states, 1)
        assert states[1].diverged[1:] == (1, 0) and states[0].diverged is None
        found = tensors(states[0].server)
    assert states[0].round == 1 and all(torch.isfinite(leaf).all() for leaf in found)


def test_an_attack_agrees_with_the_cpu():
    """In float32, one step of Adam on the sign of the gradient: a sign may flip where the gradient is nearly 0."""
    spec = AttackSpec(images=2, kept=2, attack={"iterations": 1}, defences={"none": {}, "noisy": NOISY})
    rows, arrays = spec.carry_out()
    with Emulator():
        found, pixels = spec.carry_out(DEVICE)
    for one, other in zip(found, rows, strict=True):
        assert one["image"] == other["image"] and one["psnr"] == pytest.approx(other["psnr"], rel=0.1)
    away = abs(pixels["recovered"].astype(int) - arrays["recovered"])
    assert (away <= 1).mean() > 0.95


def test_a_stored_attack_is_computed_on_the_device_that_was_asked_for(monkeypatch, tmp_path):
    """As `fedlib sweep pfedsv/fig11_inversion --device` does it."""
    used, carry_out = [], AttackSpec.carry_out
    monkeypatch.setattr(AttackSpec, "carry_out", lambda spec, *device: used.append(device) or carry_out(spec, *device))
    specs = [AttackSpec(images=1, attack={"iterations": 1}, seed=seed) for seed in range(2)]
    with Emulator() as gpu:
        result = get_or_attack(specs[0], Store("t", tmp_path), GPU)
        assert gpu.counted("upload") and result.provenance["device"] == "a pretended GPU"
        run_all(specs, Store("t", tmp_path), device=GPU)
    assert used == [(DEVICE,), (DEVICE,)]


@pytest.fixture
def tf32_switches():
    """What has a switch allow_tf32; afterwards these are as before."""
    owners = torch.backends.cuda.matmul, torch.backends.cudnn
    before = [owner.allow_tf32 for owner in owners]
    yield owners
    for owner, on in zip(owners, before):
        owner.allow_tf32 = on


@pytest.mark.parametrize("precision", ["tf32", "float32"])
def test_tf32_is_on_in_steps_that_ask_for_it_and_only_there(monkeypatch, tf32_switches, precision):
    asked, seen, step = precision == "tf32", set(), Model.sgd_step

    def switches() -> tuple[bool, ...]:
        return tuple(owner.allow_tf32 for owner in tf32_switches)

    for owner in tf32_switches:
        owner.allow_tf32 = not asked
    monkeypatch.setattr(Model, "sgd_step", lambda *a, **k: seen.add(switches()) or step(*a, **k))
    with Emulator():
        simulate(small("fedavg", precision=precision, rounds=1), device=GPU)
    assert seen == {(asked, asked)} and switches() == (not asked, not asked)


def test_dp_sgd_waits_for_no_step(monkeypatch):
    """A step reads nothing back, wherever it is; all that it sends is its noise, from pinned memory. Threads that draw
    noise are started once."""
    started, make = [], client_data.ThreadPoolExecutor
    monkeypatch.setattr(client_data, "ThreadPoolExecutor", lambda *a, **k: started.append(a) or make(*a, **k))
    client_data.drawers.cache_clear()
    logs, repeat = [], client_data.repeated  # of every loop of private steps, before each step and at the end

    def watched(body, state, count, device, cuda_graph):
        if cuda_graph is not False:
            return repeat(body, state, count, device, cuda_graph)
        logs.append([])

        def step(state, s):
            logs[-1].append(Counter(gpu.log))
            return body(state, s)

        state = repeat(step, state, count, device, cuda_graph)
        logs[-1].append(Counter(gpu.log))
        return state

    monkeypatch.setattr(client_data, "repeated", watched)
    spec = small("fedavg", model="lenet5", privacy="record", noise_sigma=0.1, eval_points=("glob",))
    with Emulator() as gpu:
        simulate(spec, device=GPU)
    assert len(started) == 1
    steps = [after - before for loop in logs for before, after in zip(loop, loop[1:])]
    assert len(steps) >= 4
    for noted in steps:
        assert [what for what, _ in noted.elements()] == ["upload from pinned memory"]


# memory ---------------------------------------------------------------------------------------------------------------


def test_recordings_share_one_pool_and_are_made_on_their_device():
    """Every private pool stays reserved: memory would grow with every recording. And a recording is made on the device
    that is current, cuda:0 unless it is said."""
    with Emulator() as gpu:
        simulate(small("fedavg", rounds=3, eval_points=("ft(1)",)), device=GPU)
    pools, current = zip(*gpu.captures)
    assert len(pools) >= 3 and len({id(pool) for pool in pools}) == 1 and set(current) == {DEVICE}


def test_memory_that_is_only_held_for_later_counts_as_free():
    with Emulator(free=10**9, reserved=8 * 10**9, allocated=10**9):
        assert backends.free_memory(DEVICE) == 8 * 10**9


def test_stacks_are_planned_for_what_clients_do():
    """Tests have larger batches than training, DP-SGD holds gradients of single records."""
    with Emulator(free=10**8):
        run = set_up(small("fedavg", model="lenet5"), device=GPU)
        private = set_up(small("fedavg", model="lenet5", privacy="record", noise_sigma=1.0), device=GPU)
        train, test, dp = (
            backends.clients_that_fit(run.work.model, r.turn(0, purpose, 1), DEVICE)
            for r, purpose in ((run, TRAIN), (run, EVALUATE), (private, TRAIN))
        )
    assert train > 2 * test and train > dp >= 1


def test_large_networks_are_not_padded_to_save_launches():
    """LeNet5's step: as dear to start as several clients; McMahan's CNN on large batches: as one or two."""
    with Emulator():
        costs = []
        for model, batch in (("lenet5_bn", 32), ("mcmahan_cnn", 256)):
            run = set_up(tiny("fedavg", model=model, batch_size=batch), device=GPU)
            costs.append(backends.launch_cost(run.work.model, run.turn(0, TRAIN, 1), DEVICE))
    assert costs[0] >= 8 > 4 > costs[1] >= 1


@pytest.mark.parametrize("failures", [1, 2])
def test_out_of_memory_is_tried_again_before_the_stack_is_halved(monkeypatch, failures):
    """What earlier recordings hold may have been in the way; once they are gone the same stack often fits."""
    tried, stacked = [], backends.Vmap._stacked

    def short(self, fn, turns, trees):
        tried.append(len(turns))
        if len(tried) <= failures:
            raise torch.OutOfMemoryError("CUDA out of memory (simulated)")
        return stacked(self, fn, turns, trees)

    monkeypatch.setattr(backends.Vmap, "_stacked", short)
    monkeypatch.setattr(backends, "launch_cost", lambda *_: 1e9)  # one stack, if it fits
    with Emulator() as gpu:
        simulate(small("fedavg", rounds=2, join_ratio=1.0, eval_every=2, eval_points=("glob",)), device=GPU)
    assert tried[: failures + 1] == [4, 4, 2][: failures + 1] and gpu.emptied == failures
    assert (4 in tried[failures + 1 : -1]) == (failures == 1)


# the pretended device itself ------------------------------------------------------------------------------------------


def test_mixing_devices_is_refused():
    with Emulator() as gpu:
        a, b = torch.arange(3.0).to(DEVICE), torch.arange(3.0)
        rows = b.long()
        for mixed in (lambda: a + b, lambda: torch.cat([a, b]), lambda: b[a.long()], lambda: a.index_select(0, rows)):
            with pytest.raises(DeviceMismatch):
                mixed()
        assert (a + torch.tensor(1.0)).cpu().tolist() == [1, 2, 3] and a[b.long()].cpu().tolist() == [0, 1, 2]
        assert gpu.counted("upload") >= 2 and gpu.counted("download") == 2
        assert float(a.sum()) == 3 and gpu.counted("sync") == 1


def test_a_capture_carries_nothing_out_and_refuses_syncs():
    with Emulator() as gpu:
        x, graph = torch.ones(2, device=DEVICE), torch.cuda.CUDAGraph()
        graph.capture_begin()
        x.mul_(2).add_(1)
        for wait in (lambda: float(x[0]), lambda: x.cpu(), lambda: x[x > 0], lambda: torch.ones(2).to(DEVICE)):
            with pytest.raises(CaptureRefused):
                wait()
        graph.capture_end()
        assert x.cpu().tolist() == [1, 1]
        graph.replay()
        graph.replay()
        assert x.cpu().tolist() == [7, 7] and gpu.replays == 2


def test_a_step_that_cannot_be_recorded_runs_all_the_same_and_says_so():
    def body(state, s):
        return {"x": state["x"] * 2 + float(s)}

    with Emulator(), pytest.warns(UserWarning, match=UNRECORDED):
        assert repeated(body, {"x": torch.ones((), device=DEVICE)}, 5, DEVICE)["x"].cpu() == 58
