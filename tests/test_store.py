"""Run specifications, the store, and runs that are killed: nothing wrong gets in, nothing finished gets lost."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from helpers import exact, get_or_run, tiny

from fedlib.base.errors import BadValue, InfeasiblePartition
from fedlib.checks.plays import stop
from fedlib.engine import checkpoint
from fedlib.engine.result import RunResult
from fedlib.engine.simulate import simulate
from fedlib.runs.run import get_or_run_together
from fedlib.runs.store import Store
from fedlib.spec import RunSpec


@pytest.fixture(autouse=True)
def folders(tmp_path, monkeypatch):
    """Results and checkpoints of every test in folders of its own."""
    monkeypatch.setenv("FEDLIB_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("FEDLIB_CACHE", str(tmp_path / "cache"))
    return tmp_path


# specifications ------------------------------------------------------------------------------------------------------

NAN, INF = float("nan"), float("inf")
WRONG = [
    *(("num_clients", v, "integer") for v in (0, -1, 2.5, "4", True, None, NAN, INF)),
    *((name, v, "integer") for name in ("rounds", "local_epochs", "batch_size", "eval_every") for v in (0, 1.5, "1")),
    *((name, v, "integer") for name in ("seed", "partition_seed") for v in (-1, 1.5, "a", True, None)),
    *(("test_fraction", v, "number between 0 and 1") for v in (0, 1, -0.5)),
    *(("test_fraction", v, "number") for v in (NAN, "a", None)),
    *(("join_ratio", v, "number above 0 and up to 1") for v in (0, 1.01)),
    *(("join_ratio", v, "number") for v in (NAN, "x", None)),
    *(("lr", v, "positive number") for v in (0, -0.1)),
    *(("lr", v, "number") for v in (NAN, INF, "a", None)),
    ("bn_stats", "none", "local, global"),
    ("precision", "float16", "float32, float64"),
    ("method", "fedsgd", "fedavg"),
    ("method", None, ""),
    ("scheme", "dirichlte", "dirichlet"),
    ("model", "lenet", "lenet5_bn"),
    ("measures", ("ckaa",), "cka"),
    ("eval_points", ("recv",), "glob, agg, post, ft(K)"),
    ("eval_points", ("ft",), "ft(K)"),
    ("eval_points", ("ft+bn",), "ft(K)"),
    ("eval_points", ("ft(0)",), "ft(K)"),
    ("eval_points", ("post", "ft(x)"), "ft(K)"),
    ("hyper", {"rhoo": 0.5}, "rho"),
    ("hyper", {"rho": 1.5}, "0 to 1"),
    ("hyper", {"rho": "x"}, "number"),
    ("hyper", {"rho": None}, "number"),
    ("hyper", {"max_age": "old"}, "an integer or none"),
    ("hyper", {"phi_cap": "x"}, "number"),
    ("hyper", {"phi_self": [1]}, "a number or a name or none"),
    ("hyper", {"phi_bias": 1}, "true or false"),
    ("partition", {"alhpa": 0.1}, "alpha"),
    ("partition", {"alpha": "x"}, "number"),
    ("model_options", {"pool": 2}, "pools"),
    ("model_options", {"pools": 1.5}, "integer"),
    ("model_options", {"pools": 3}, "1 (the paper's table) or 2"),
    ("partition", {"alpha": -1}, ""),
    ("partition", {"min_size": -3}, ""),
    ("partition", {"on_fail": "cry"}, ""),
]


@pytest.mark.parametrize(("field", "value", "accepted"), WRONG, ids=[f"{field}={value!r}" for field, value, _ in WRONG])
def test_wrong_fields_are_refused_at_once(field, value, accepted):
    """The message names the value and what is accepted."""
    with pytest.raises(BadValue) as error:
        RunSpec(**{"method": "pfedsim", field: value})
    inner = next(iter(value)) if isinstance(value, dict) and next(iter(value)) in ("rhoo", "alhpa", "pool") else value
    inner = next(iter(inner.values())) if isinstance(inner, dict) else inner[-1] if isinstance(inner, tuple) else inner
    assert repr(inner) in str(error.value) and accepted in str(error.value)
    assert "\n" not in str(error.value)


def test_more_clients_than_samples_are_refused_before_training():
    with pytest.raises((BadValue, InfeasiblePartition)):
        simulate(tiny("fedavg", num_clients=1798), progress=lambda _: pytest.fail("training began"))


def test_unknown_fields_name_the_nearest():
    with pytest.raises(BadValue, match="did you mean rounds"):
        RunSpec.from_dict({"method": "fedavg", "rouns": 3})
    with pytest.raises(BadValue, match="local_epochs"):
        RunSpec("fedavg").but(local_epoch=1)


def test_hyper_parameters_are_filled_in_and_part_of_the_id():
    assert RunSpec("pfedsim").hyper["rho"] == 0.5 and RunSpec("fedavg").hyper == {}
    assert RunSpec("pfedsim", {"rho": 0.5}).id == RunSpec("pfedsim").id != RunSpec("pfedsim", {"rho": 0.25}).id


def test_every_field_is_part_of_the_id():
    other = dict(
        method="fedper",
        hyper={},
        dataset="mnist",
        scheme="iid",
        partition={},
        num_clients=5,
        test_fraction=0.5,
        model_options={"pools": 2},
        join_ratio=0.25,
        rounds=4,
        local_epochs=2,
        batch_size=8,
        lr=0.1,
        bn_stats="global",
        precision="float64",
        eval_every=2,
        eval_points=("post",),
        measures=("cka",),
        seed=1,
        partition_seed=1,
    )
    base = tiny("local")
    changed = [
        base.but(**{"partition": {}, name: value} if name == "scheme" else {name: value})
        for name, value in other.items()
        if name != "hyper"
    ]
    assert len({base.id, *(spec.id for spec in changed)}) == len(other)


def test_the_id_is_the_same_in_another_process_and_in_another_order():
    """Another hash seed, fields and parameters in reverse order."""
    spec = tiny(
        "pfedsim",
        hyper={"rho": 0.25, "phi": "eq3"},
        partition={"alpha": 0.5, "min_size": 2, "cap": False},
        model_options={"pools": 2},
    )
    values = spec.to_dict()
    reverse = {k: dict(reversed(v.items())) if isinstance(v, dict) else v for k, v in reversed(values.items())}
    assert RunSpec.from_dict(reverse).id == spec.id
    code = f"from fedlib.spec import RunSpec; print(RunSpec.from_dict({reverse!r}).id)"
    child = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": "77"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert child.stdout.strip() == spec.id


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (dict(hyper={"rho": 1}), dict(hyper={"rho": 1.0})),
        (dict(hyper={"phi_self": 2}), dict(hyper={"phi_self": 2.0})),
        (dict(hyper={"max_age": 2}), dict(hyper={"max_age": 2.0})),
        (dict(rounds=20), dict(rounds=20.0)),
        (dict(partition={"alpha": 1}), dict(partition={"alpha": 1.0})),
        (dict(join_ratio=1), dict(join_ratio=1.0)),
        (dict(lr=1), dict(lr=1.0)),
        (
            dict(scheme="manual", partition={"label_sets": [(0, 1)]}, num_clients=1),
            dict(scheme="manual", partition={"label_sets": ([0, 1],)}, num_clients=1),
        ),
        *(
            (
                dict(scheme="manual", partition={"label_sets": [own]}, num_clients=1),
                dict(scheme="manual", partition={"label_sets": [[0, 1]]}, num_clients=1),
            )
            for own in ({1, 0}, range(2), np.arange(2))
        ),
    ],
    ids=str,
)
def test_equal_settings_have_equal_ids(a, b):
    """1 and 1.0, a list and a tuple: the same run, so the same name."""
    assert RunSpec("pfedsim", **a).id == RunSpec("pfedsim", **b).id


def test_specifications_survive_json():
    for spec in (
        RunSpec("local"),
        tiny("pfedsim", hyper={"phi_self": "eq3", "max_age": 3}, eval_points=("agg", "ft(2)"), measures=("cka",)),
    ):
        again = RunSpec.from_dict(json.loads(json.dumps(spec.to_dict())))
        assert again == spec and again.id == spec.id and again.eval_points == spec.eval_points


def test_a_specification_does_not_follow_the_callers_dicts():
    parameters, hyper = {"alpha": 0.5}, {"rho": 0.5}
    spec = RunSpec("pfedsim", hyper, partition=parameters)
    before = spec.id
    parameters["alpha"], hyper["rho"] = 0.1, 0.1
    assert spec.id == before


# store ---------------------------------------------------------------------------------------------------------------


def fake(spec: RunSpec) -> RunResult:
    arrays = {"correct": np.arange(6).reshape(2, 3), "cka": np.array([[1.0, np.nan]])}
    history = [{"round": spec.rounds, "point": "post", "headline": True, "pooled": 1 / 3, "loss": NAN}]
    return RunResult(
        spec,
        "finished",
        history,
        {"checksum": "ab"},
        {"up": {"floats": 10**12, "bytes": 4}},
        {"wall": 0.1},
        {"commit": "c"},
        arrays,
    )


def test_put_and_get(tmp_path):
    store, spec = Store("quick", tmp_path), tiny("pfedsim", hyper={"phi_self": "eq3"})
    assert store.get(spec) is None
    store.put(fake(spec))
    found = store.get(spec)
    assert found.spec == spec and found.final() == 1 / 3 and np.isnan(found.final("loss"))
    assert (found.communication, found.partition, found.seconds, found.provenance) == (
        fake(spec).communication,
        {"checksum": "ab"},
        {"wall": 0.1},
        {"commit": "c"},
    )
    for name, array in fake(spec).arrays.items():
        np.testing.assert_array_equal(found.arrays[name], array)
        assert found.arrays[name].dtype == array.dtype
    assert sorted(p.suffix for p in store.folder.iterdir()) == [".json", ".npz"]
    assert store.get(spec.but(seed=9)) is None and Store("paper", tmp_path).get(spec) is None


def test_runs_of_another_profile_count_and_are_left_alone(tmp_path, monkeypatch):
    """More seeds of a profile do not train again what the profile has, and nothing is written into its folder."""
    base, more = Store("paper", tmp_path), Store("paper+seeds=2", tmp_path, also=("paper", "reduced"))
    first, second = (tiny("local", rounds=1, seed=seed) for seed in (0, 1))
    base.put(fake(first))
    before = {path: path.read_bytes() for path in base.folder.iterdir()}
    monkeypatch.setattr("fedlib.runs.run.simulate_together", lambda specs, **_: [fake(spec) for spec in specs])
    assert more.path(first).parent == base.folder and more.path(second).parent == more.folder
    assert [r.spec for r in get_or_run_together([first, second], more)] == [first, second]
    assert sorted(path.name for path in more.folder.iterdir() if path.is_file()) == [
        f"{second.id}.json",
        f"{second.id}.npz",
    ]
    assert {path: path.read_bytes() for path in base.folder.iterdir()} == before
    assert base.get(second) is None
    truncated(base.path(first))  # damaged: it is done again in the own folder
    cut = base.path(first).read_bytes()
    with pytest.warns(UserWarning, match="damaged"):
        assert more.get(first) is None
    assert [path.name for path in base.folder.glob(f"{first.id}*")] == [f"{first.id}.json", f"{first.id}.npz"]
    more.put(fake(first))
    assert more.path(first).parent == more.folder and base.path(first).read_bytes() == cut
    third, reduced = second.but(seed=2), Store("reduced", tmp_path)
    reduced.put(fake(third))
    assert more.path(third) == reduced.path(third) and more.get(third).spec == third and base.get(third) is None


def test_get_or_run_runs_once(tmp_path, monkeypatch):
    store, spec = Store("quick", tmp_path), tiny("local", rounds=1)
    first = get_or_run(spec, store)
    assert exact(first) == exact(simulate(spec)) and first.provenance["commit"]
    stamp = store.path(spec).stat().st_mtime_ns
    monkeypatch.setattr("fedlib.runs.run.simulate_together", lambda *_, **__: pytest.fail("ran again"))
    assert exact(get_or_run(spec, store)) == exact(first) and store.path(spec).stat().st_mtime_ns == stamp
    assert not list((tmp_path / "cache" / "checkpoints").glob("*"))


def truncated(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flipped(path):
    """One bit in the middle of the file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(bytes(content))


def rewritten(path):
    """A number changed by hand: still JSON."""
    path.write_text(path.read_text().replace('"status": "finished"', '"status": "diverged"'))


def replaced(content):
    return lambda path: path.write_bytes(content)


@pytest.mark.parametrize(
    "damage",
    [
        truncated,
        flipped,
        rewritten,
        *map(replaced, (b"", b"\xff\xfe\x00", b"[]", b"{}", b"null", b"3", b'"x"', b'{"sha256": "0"}')),
    ],
    ids=lambda d: getattr(d, "__name__", "x") if getattr(d, "__name__", "") != "<lambda>" else "content",
)
def test_damaged_json_is_kept_aside_and_run_again(tmp_path, damage):
    store, spec = Store("quick", tmp_path), tiny("local", rounds=1)
    store.put(fake(spec))
    damage(store.path(spec))
    content = store.path(spec).read_bytes()
    with pytest.warns(UserWarning, match="damaged"):
        again = get_or_run(spec, store)
    assert again.final() != 1 / 3 and exact(store.get(spec)) == exact(again)
    aside = list(store.folder.glob("*.damaged*"))
    assert [p.read_bytes() for p in aside if ".json" in p.name] == [content]


@pytest.mark.parametrize(
    "damage", [truncated, flipped, os.unlink, replaced(b"")], ids=["truncated", "flipped", "missing", "empty"]
)
def test_damaged_arrays_are_noticed_and_run_again(tmp_path, damage):
    store, spec = Store("quick", tmp_path), tiny("local", rounds=1)
    store.put(fake(spec))
    damage(store.path(spec).with_suffix(".npz"))
    with pytest.warns(UserWarning, match="damaged"):
        assert store.get(spec) is None
    assert store.get(spec) is None  # without another warning
    again = get_or_run(spec, store)
    assert "cka" not in again.arrays and exact(store.get(spec)) == exact(again)
    assert list(store.folder.glob("*.damaged*"))


def test_damage_twice_keeps_both(tmp_path):
    store, spec = Store("quick", tmp_path), tiny("local", rounds=1)
    for content in (b"first", b"second"):
        store.put(fake(spec))
        store.path(spec).write_bytes(content)
        with pytest.warns(UserWarning, match="damaged"):
            store.get(spec)
    assert {p.read_bytes() for p in store.folder.glob("*.json.damaged*")} == {b"first", b"second"}


def test_pickled_arrays_are_not_loaded(tmp_path):
    """Arrays are untrusted: an object array is refused even with a matching checksum."""
    store, spec = Store("quick", tmp_path), tiny("local", rounds=1)
    store.put(RunResult(spec, "finished", arrays={"x": np.array([{"a": 1}], dtype=object)}))
    with pytest.warns(UserWarning, match="damaged"):
        assert store.get(spec) is None


def test_a_result_is_there_whole_or_not_at_all(tmp_path, monkeypatch):
    """The disk is full at the last step, the renaming of the JSON: no result, no rubbish,
    and the run can be stored later."""
    store, spec = Store("quick", tmp_path), tiny("local", rounds=1)

    def full(source, target, rename=os.replace):
        if str(target).endswith(".json"):
            raise OSError(28, "No space left on device")
        rename(source, target)

    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space"):
        patch.setattr(os, "replace", full)
        store.put(fake(spec))
    assert store.get(spec) is None and not list(store.folder.glob(".*"))
    store.put(fake(spec))
    assert store.get(spec).final() == 1 / 3


CHILD = """
import json, sys
from fedlib.runs.run import get_or_run_together
from fedlib.runs.store import Store
from fedlib.spec import RunSpec
rounds = []
spec, store = RunSpec.from_dict(json.loads(sys.argv[1])), Store("quick", sys.argv[2])
(result,) = get_or_run_together([spec], store, progress=rounds.append)
print(json.dumps([rounds, result.history]))
"""


def test_two_processes_do_a_run_once(tmp_path):
    spec = tiny("local", rounds=4)
    command = [sys.executable, "-c", CHILD, json.dumps(spec.to_dict()), str(tmp_path)]
    children = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    (rounds_a, history_a), (rounds_b, history_b) = (json.loads(child.communicate(timeout=600)[0]) for child in children)
    assert sorted([rounds_a, rounds_b]) == [[], [0, 1, 2, 3, 4]] and history_a == history_b


# killed runs ---------------------------------------------------------------------------------------------------------

KILLER = """
import json, os, random, signal, sys, time, warnings
import torch
torch.set_num_threads(1)
from fedlib.runs.run import get_or_run_together
from fedlib.runs.store import Store
from fedlib.spec import RunSpec
warnings.simplefilter("error", UserWarning)  # a checkpoint that cannot be read is a failure here
signal.signal(signal.SIGINT, signal.default_int_handler)
root, seed, jobs = json.loads(sys.argv[1])
store, chance, report = Store("quick", root), random.Random(seed), []
for values, kills, name in jobs:
    spec, starts, rounds = RunSpec.from_dict(values), [], []
    for _ in range(kills):
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(read)
            try:
                get_or_run_together([spec], store, checkpoint_every=0, progress=lambda t: os.write(write, bytes([t])))
            except KeyboardInterrupt:
                os._exit(3)
            except BaseException:
                import traceback
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        os.close(write)
        first = os.read(read, 1)
        starts += first[:1]
        for _ in range(chance.randint(1, 2)):  # at least a round of progress, then any moment of the next
            os.read(read, 1)
        time.sleep(chance.uniform(0, 0.08))
        os.kill(child, getattr(signal, name))
        status = os.waitpid(child, 0)[1]
        os.close(read)
        assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) in (0, 3), status
    (result,) = get_or_run_together([spec], store, checkpoint_every=0, progress=rounds.append)
    arrays = {key: array.tolist() for key, array in result.arrays.items()}
    numbers = [result.status, result.history, result.partition, result.communication, arrays]
    report.append([starts + rounds[:1], numbers])
print(json.dumps(report))
"""

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="NO FORK ON THIS SYSTEM: killed runs were NOT tested")


def killed(root, *jobs: tuple[RunSpec, int, str]) -> list:
    """For every (run, kills, signal): the rounds at which it was (re)started, and its final numbers."""
    command = [
        sys.executable,
        "-c",
        KILLER,
        json.dumps([str(root), 1, [(spec.to_dict(), kills, signal) for spec, kills, signal in jobs]]),
    ]
    child = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert child.returncode == 0, child.stderr[-3000:]
    return json.loads(child.stdout)


def numbers_of(result: RunResult) -> list:
    arrays = {key: array.tolist() for key, array in result.arrays.items()}
    return [result.status, result.history, result.partition, result.communication, arrays]


def test_a_finished_run_leaves_nothing_that_a_killed_process_wrote():
    saved = checkpoint.Checkpoint("finished")
    saved.path.parent.mkdir(parents=True, exist_ok=True)
    half, other = (saved.path.with_name(f".{name}.1.tmp") for name in (saved.path.name, "other.pt"))
    for path in (saved.path, half, other):
        path.write_bytes(b"half")
    saved.remove()
    assert not saved.path.exists() and not half.exists() and other.exists()
    other.unlink()


@forks
def test_a_killed_run_ends_with_the_same_numbers(tmp_path):
    """SIGKILL three times, or Ctrl-C, at random moments of different rounds; every restart goes on where a checkpoint
    was left, and no checkpoint is left of a run that is finished."""
    fedper, local = (tiny(method, rounds=8, eval_every=3) for method in ("fedper", "local"))
    pfedsim = tiny("pfedsim", hyper={"rho": 0.34}, rounds=8, eval_every=3)
    jobs = (fedper, 3, "SIGKILL"), (pfedsim, 3, "SIGKILL"), (local, 3, "SIGKILL"), (pfedsim.but(seed=1), 2, "SIGINT")
    for (spec, kills, name), (starts, numbers) in zip(jobs, killed(tmp_path, *jobs), strict=True):
        assert starts[0] == 0 and starts == sorted(starts) and starts[-1] >= kills - 1, (spec.method, name)
        assert numbers == numbers_of(simulate(spec)), (spec.method, name)
    assert not list((tmp_path / "cache" / "checkpoints").glob("*"))


def stopped(spec: RunSpec, after: int, **options):
    """Leave a checkpoint of `after` rounds; its path."""
    stop(spec, after, **options)
    (path,) = (checkpoint.cache_root() / "checkpoints").iterdir()
    return path


@pytest.mark.parametrize("method", ["fedavg", "fedper", "local", "pfedsim"])
def test_a_stopped_run_goes_on_at_its_checkpoint(method):
    """In one process, without a warning, with every round counted once."""
    spec, seen = tiny(method, rounds=4, eval_every=2, bn_stats="local", eval_points=("post",)), []
    stopped(spec, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = simulate(spec, checkpoint_every=0, progress=seen.append)
    assert seen == [2, 3, 4] and exact(result) == exact(simulate(spec))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="NO CUDA DEVICE: resuming on CUDA was NOT tested")
@pytest.mark.parametrize("method", ["fedper", "pfedsim", "local"])
def test_a_stopped_run_goes_on_at_its_checkpoint_on_cuda(method):
    """Everything restored must be on the device where the method left it."""
    spec, seen = tiny(method, hyper={"rho": 0.25} if method == "pfedsim" else {}, rounds=4), []
    stopped(spec, 2, device="cuda")
    result = simulate(spec, device="cuda", checkpoint_every=0, progress=seen.append)
    assert seen == [2, 3, 4]
    assert result.final("loss") == pytest.approx(simulate(spec, device="cuda").final("loss"), abs=1e-4)


def test_a_checkpoint_is_used_by_its_own_run_only(monkeypatch):
    """Another seed, another backend, another arithmetic: another checkpoint."""
    spec, seen = tiny("local", rounds=3), []
    stopped(spec, 2)
    simulate(spec.but(seed=1), checkpoint_every=0, progress=seen.append)
    simulate(spec, backend="vmap", checkpoint_every=0, progress=seen.append)
    with monkeypatch.context() as other:
        other.setenv("FEDLIB_FAST", "1")
        simulate(spec, checkpoint_every=0, progress=seen.append)
    assert seen == [0, 1, 2, 3] * 3


@pytest.mark.parametrize(
    "damage",
    [
        truncated,
        flipped,
        replaced(b""),
        replaced(b"not a checkpoint"),
        lambda path: torch.save({"round": 2}, path),
        lambda path: torch.save([1], path),
    ],
    ids=["truncated", "one bit", "empty", "rubbish", "other entries", "a list"],
)
def test_a_damaged_checkpoint_is_ignored_with_a_warning(damage):
    spec = tiny("local", rounds=3)
    damage(stopped(spec, 2))
    seen = []
    with pytest.warns(UserWarning, match="checkpoint .* is damaged"):
        result = simulate(spec, checkpoint_every=0, progress=seen.append)
    assert seen == [0, 1, 2, 3] and exact(result) == exact(simulate(spec))


def test_a_checkpoint_that_memory_does_not_suffice_for_stays(monkeypatch):
    spec = tiny("local", rounds=3)
    path = stopped(spec, 2)

    def full(*_, **options):
        raise MemoryError

    with monkeypatch.context() as patched, pytest.raises(MemoryError):
        patched.setattr(torch, "load", full)
        simulate(spec, checkpoint_every=0)
    seen = []
    assert path.exists() and exact(simulate(spec, checkpoint_every=0, progress=seen.append)) == exact(simulate(spec))
    assert seen == [2, 3]


def test_a_checkpoint_cannot_run_code():
    """A pickle that would call a function on loading is refused."""
    spec, hits = tiny("local", rounds=2), []
    path = stopped(spec, 1)
    torch.save({"round": Call()}, path)
    with pytest.warns(UserWarning, match="damaged"):
        simulate(spec, checkpoint_every=0, progress=hits.append)
    assert hits == [0, 1, 2] and "FEDLIB_CALLED" not in os.environ


class Call:
    def __reduce__(self):
        return os.putenv, ("FEDLIB_CALLED", "1")


def test_an_unwritable_checkpoint_folder_does_not_stop_the_run(tmp_path, monkeypatch):
    """A file is where the folder should be: a warning, and the same numbers."""
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("FEDLIB_CACHE", str(tmp_path / "file" / "cache"))
    spec = tiny("local", rounds=2)
    with pytest.warns(UserWarning, match="checkpoint not written"):
        result = simulate(spec, checkpoint_every=0)
    assert exact(result) == exact(simulate(spec))


def test_checkpoints_are_as_far_apart_as_asked(monkeypatch):
    saved = []
    monkeypatch.setattr(torch, "save", lambda states, out: saved.append(states[0]["round"]))
    for seed, (every, expected) in enumerate(((0, [1, 2, 3]), (3600.0, []), (None, []))):
        saved.clear()
        simulate(tiny("local", rounds=4, seed=seed), checkpoint_every=every)
        assert saved == expected


def test_saving_takes_a_bounded_share_of_the_time(monkeypatch):
    """A state that takes 2 seconds to save is saved every 40 seconds, whatever is asked; a quick one as asked."""
    now, saved = [0.0], []
    monkeypatch.setattr(checkpoint.time, "monotonic", lambda: now[0])
    for cost, times in ((2.0, 3), (0.125, 10)):
        now[0] = 0.0
        place = checkpoint.Checkpoint(f"costs-{cost}", every=9.0)

        def save(states, out, cost=cost):
            saved.append(round(now[0]))
            now[0] += cost

        monkeypatch.setattr(torch, "save", save)
        saved.clear()
        for second in range(1, 100):
            now[0] = max(now[0], second)
            place.save([])
        assert len(saved) == times and min(np.diff(saved)) >= max(9, cost / checkpoint.SHARE), saved


def written_by(monkeypatch, write):
    """States are streamed into a file whose pieces are written by write(file, data)."""

    @contextlib.contextmanager
    def to(path, real=checkpoint.written_atomically):
        with real(path) as file:
            yield SimpleNamespace(write=lambda data: write(file, data), flush=file.flush)

    monkeypatch.setattr(checkpoint, "written_atomically", to)


@pytest.mark.parametrize("room", [0, 5], ids=["flushed", "streamed"])
def test_a_full_disk_costs_the_checkpoint_only(monkeypatch, room):
    """When the file is flushed, or while the archive is streamed piece by piece; no half-written file stays."""
    calls = []

    def full(*given):
        calls.append(given)
        if len(calls) > room:
            raise OSError(28, "No space left on device")
        file, data = given
        return file.write(data)

    if room:
        written_by(monkeypatch, full)
    else:
        monkeypatch.setattr(os, "fsync", full)
    with pytest.warns(UserWarning, match="checkpoint not written"):
        result = simulate(tiny("local", rounds=2), checkpoint_every=0)
    assert result.status == "finished" and len(calls) > room
    assert not list((checkpoint.cache_root() / "checkpoints").iterdir())


def test_ctrl_c_while_a_state_is_streamed_ends_the_run(monkeypatch):
    """torch's writer answers an interrupt in the middle of a piece with an error of its own."""
    pieces = []

    def interrupted(file, data):
        pieces.append(len(data))
        written = file.write(bytes(data)[: len(data) // 2] if len(pieces) == 7 else data)
        if len(pieces) == 7:
            raise KeyboardInterrupt
        return written

    written_by(monkeypatch, interrupted)
    with pytest.raises(KeyboardInterrupt):
        simulate(tiny("local", rounds=2), checkpoint_every=0)
    assert len(pieces) >= 7 and not list((checkpoint.cache_root() / "checkpoints").iterdir())
