"""The benchmark: its plain loops do the work that fedlib does, its tables hold what they should.
No timing is tested."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from helpers import tiny
from typer.testing import CliRunner

from fedlib import cli
from fedlib.base.draws import participants
from fedlib.benchmarks.speed import (
    FedlibRuns,
    PlainLoop,
    Variant,
    cpu_variants,
    gpu_variants,
    plain_batches,
    plain_net,
    plain_training,
    random_data,
    summary,
    trained_samples,
    write_plain_data,
)
from fedlib.data import load
from fedlib.engine.setup import first_state, set_up
from fedlib.engine.simulate import run_round

CPU = torch.device("cpu")
WORK = dict(model_options={"pools": 2}, num_clients=4, join_ratio=0.25, local_epochs=3, batch_size=8)


def clients_of(run, rounds) -> dict[int, list[np.ndarray]]:
    ids = {t: participants(run.spec.seed, t, run.spec.num_clients, run.spec.join_ratio) for t in rounds}
    return {t: [run.work.parts[i]["train"] for i in ids[t]] for t in rounds}


def test_given_the_same_batches_the_plain_loop_ends_with_fedlibs_weights(tmp_path):
    """One client a round, so that the server's new model is that client's: FedAvg in float64 on digits."""
    run = set_up(tiny("fedavg", precision="float64", **WORK), "serial")
    state, theta0 = first_state(run), run.work.model.theta0
    (client,) = participants(0, 1, 4, 0.25)
    own = torch.from_numpy(run.work.parts[client]["train"])
    batches = [own[torch.from_numpy(rows)] for (rows,) in run.turn(int(client), 0, 1).plan(0, 3)]
    with torch.no_grad():
        run_round([run], [state], 1)

    write_plain_data(tmp_path, load("digits"))
    images, labels = (torch.from_numpy(np.load(tmp_path / f"{name}.npy")) for name in ("floats", "labels"))
    dataset = run.work.source.dataset
    mean, std = dataset.channel_stats
    exact = (dataset.images.double() / 255 - mean) / std
    torch.testing.assert_close(images.double(), exact, atol=1e-5, rtol=1e-5)
    net = plain_net(dataset.shape, 10).double()
    ours = {name: value for name, value in net.state_dict().items() if "num_batches" not in name}
    for mine, theirs in zip([n for n in ours if "running" not in n], run.work.model.trainable, strict=True):
        ours[mine].copy_(theta0[theirs])
    assert plain_training(net, exact, labels, batches, lr=run.spec.lr) == trained_samples(run, 1)
    for name, parameter in zip(run.work.model.trainable, net.parameters(), strict=True):
        torch.testing.assert_close(state.server["theta"][name], parameter.detach(), rtol=0, atol=1e-12)
        assert not torch.equal(parameter, theta0[name])
    for name, buffer in zip(run.work.model.running, [v for n, v in ours.items() if "running" in n], strict=True):
        torch.testing.assert_close(state.stats[name][client], buffer, rtol=0, atol=1e-12)


@pytest.mark.parametrize("count", [31, 32, 33, 64, 65, 100])
def test_plain_minibatches_have_fedlibs_sizes(count):
    run = set_up(tiny("fedavg"), "serial")
    turn = run.turn(0, 0, 1)
    turn.parts["train"] = np.arange(100, 100 + count)
    ours = list(plain_batches(torch.arange(100, 100 + count), epochs=2, size=32))
    assert [len(batch) for batch in ours] == [len(rows) for (rows,) in turn.plan(0, 2)]
    first = torch.cat(ours[: len(ours) // 2])
    assert len(first.unique()) == len(first) == count - (count % 32 == 1) and first.min() >= 100
    assert not torch.equal(first, torch.cat(ours[len(ours) // 2 :]))


def test_all_players_train_on_the_same_samples(tmp_path):
    """Plain loop, serial, vmap and several seeds in one stack, on clients of 33 samples whose last batch is skipped."""
    with random_data(tmp_path, "r", 4 * 66, (16, 16, 1), 10):
        specs = [
            tiny("fedavg", dataset="r", scheme="iid", partition={}, test_fraction=0.5, seed=seed) for seed in (0, 1)
        ]
        specs = [spec.but(local_epochs=3, model_options={"pools": 2}) for spec in specs]
        run = set_up(specs[0], "serial")
        assert run.sizes.tolist() == [33] * 4
        write_plain_data(tmp_path, load("r"))
        plain = PlainLoop(str(tmp_path), specs[0], clients_of(run, (1, 2)), CPU)
        expected = 2 * 3 * 32
        assert plain(1) == plain(2) == trained_samples(run, 1) == expected
        assert FedlibRuns(specs[:1], "serial", CPU)(1) == expected
        assert FedlibRuns(specs, "vmap", CPU)(1) == 2 * expected


def test_plain_rounds_average_and_test_everybody(tmp_path):
    """One batch an epoch, so that the order of the samples does not matter. Ten images tested of each client."""
    write_plain_data(tmp_path, load("digits"))
    clients, tests = [np.arange(20), np.arange(100, 110)], [np.arange(k, k + 10) for k in (300, 400, 500)]
    torch.manual_seed(0)
    rounds = PlainLoop(str(tmp_path), tiny("fedavg", local_epochs=3), {1: clients}, CPU, tests)
    ends, initial = [], {name: value.clone() for name, value in rounds.initial.items()}
    for own in rounds.clients[1]:
        rounds.net.load_state_dict(initial)
        plain_training(rounds.net, rounds.images, rounds.labels, [own] * 3, rounds.spec.lr)
        ends.append({name: value.clone() for name, value in rounds.net.state_dict().items()})
    assert rounds(1) == 3 * 30
    for name, value in rounds.initial.items():
        if "num_batches" not in name:
            torch.testing.assert_close(value, (2 * ends[0][name] + ends[1][name]) / 3, atol=1e-5, rtol=1e-4)
    rounds.net.load_state_dict(rounds.initial)
    with torch.no_grad():
        scores = rounds.net.eval()(rounds.images[np.concatenate(tests)])
    hit = scores.argmax(1) == rounds.labels[np.concatenate(tests)]
    assert rounds.hits == hit.reshape(3, 10).sum(1).tolist() and 0 < sum(rounds.hits) < 30


def test_rounds_with_and_without_evaluation_train_on_the_same_samples():
    spec = tiny("fedavg", **WORK)
    players = [FedlibRuns([spec], "serial", CPU, evaluated=evaluated) for evaluated in (False, True)]
    assert players[0](1) == players[1](1)
    assert not players[0].states[0].history and players[1].states[0].history


def test_variants_that_a_gpu_gets_play_on_a_cpu_too(tmp_path):
    write_plain_data(tmp_path, load("digits"))
    spec = tiny("fedavg", **WORK)
    run = set_up(spec, "serial")
    variants = gpu_variants(spec, partial(PlainLoop, str(tmp_path), spec, clients_of(run, (1,)), CPU), CPU)
    plain, alone, seeds = (variant.player()(1) for variant in variants)
    everyone = [spec.but(seed=seed) for seed in range(5)]
    assert plain == alone == trained_samples(run, 1)
    assert seeds == sum(trained_samples(set_up(each, "serial"), 1) for each in everyone)


def test_summary_takes_ratios_within_a_repeat():
    """The machine is twice as slow in the second of three repeats: rates 100, 50, 90 beside 200, 100, 90."""
    variants = [Variant("a", int, ratio="x a"), Variant("b", int)]
    rates = {"a": (100, 50, 90), "b": (200, 100, 90)}
    rows = [(k, name, 2, 100 * rate[k - 1], 100.0) for name, rate in rates.items() for k in (1, 2, 3)]
    table = summary(pd.DataFrame(rows, columns=["repeat", "variant", "rounds", "samples", "seconds"]), variants)
    assert table["variant"].tolist() == ["a", "b"]
    assert table[["samples/s", "min", "max"]].values.tolist() == [[90, 50, 100], [100, 90, 200]]
    assert table["x a"].tolist() == [1, 2]
    assert table["s/round"].tolist() == [50, 50]


def test_random_data_is_prepared_balanced_and_gone_afterwards(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDLIB_DATA", "elsewhere")
    with random_data(tmp_path, "noise", 30, (8, 12, 3), 10):
        dataset = load("noise")
        assert dataset.shape == (3, 8, 12) and dataset.labels.bincount().tolist() == [3] * 10
    assert os.environ["FEDLIB_DATA"] == "elsewhere"


# the command ----------------------------------------------------------------------------------------------------------


def call(*args):
    return CliRunner().invoke(cli.app, ["bench", *(str(a) for a in args)])


def test_command_prints_and_writes_every_row(home, monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    result = call("--quick", "--repeats", 1, "--device", "cpu")
    assert result.exit_code == 0, result.output
    assert "400 random images of CIFAR-10's shape" in result.output and "2 cores" in result.output
    names = [variant.name for variant in cpu_variants(tiny("fedavg"), int, int, 2)]
    assert len(names) == 13 and all(name in result.output for name in names)
    table = pd.read_csv(home / "results/bench+quick/bench.csv")
    assert table["variant"].tolist() == names
    columns = [
        "samples/s",
        "min",
        "max",
        "x plain, 1 thread",
        "x plain, side by side",
        "x FedAvg",
        "x plain, evaluated",
        "s/round",
    ]
    assert table.columns.tolist() == ["variant", *columns] and (table[columns] > 0).all().all()
    assert table.loc[0, "x plain, 1 thread"] == table.loc[2, "x plain, side by side"] == 1
    about = json.loads((home / "results/bench+quick/bench.json").read_text())
    assert about["versions"]["torch"] and about["cores"] == 2 and "commit" in about
    turns = pd.DataFrame(about["turns"])
    twice = turns["variant"].str.startswith("2 ")
    assert turns.loc[twice, "samples"].nunique() == turns.loc[~twice, "samples"].nunique() == 1
    assert turns.loc[twice, "samples"].iloc[0] == 2 * turns.loc[~twice, "samples"].iloc[0] > 0
    assert "error" not in result.output


ERRORS = [
    (("--rounds", 0), ["rounds = 0", "at least 1"]),
    (("--repeats", 0), ["repeats = 0", "at least 1"]),
    (("--device", "tpu"), ["'tpu'", "auto, cpu"]),
]


@pytest.mark.parametrize(("args", "said"), ERRORS, ids=[" ".join(map(str, a)) for a, _ in ERRORS])
def test_bad_input_is_one_clear_line_and_status_2(home, args, said):
    result = call(*args)
    assert result.exit_code == 2, result.output
    (line,) = result.stderr.strip().splitlines()
    assert line.startswith("error: ") and all(words in line for words in said)
    assert not (home / "results").exists()


LONG = """
from functools import partial
import torch
from fedlib.benchmarks.speed import FedlibRuns, Variant, measure
from fedlib.spec import RunSpec
if __name__ == "__main__":
    spec = RunSpec("fedavg", num_clients=4, partition={"alpha": 1.0, "min_size": 10}, rounds=10_000)
    measure([Variant("process", partial(FedlibRuns, [spec], "process", torch.device("cpu"), 1))], 1, 9_000)
"""


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for processes in /proc")
def test_interrupted_it_leaves_no_process_behind(home, tmp_path):
    """Ctrl-C while a variant measures that has worker processes of its own.
    A mark in the environment tells which are meant."""
    script = tmp_path / "long.py"
    script.write_text(LONG)
    mark = f"FEDLIB_CACHE={home.parent / 'cache'}".encode()

    def left() -> list[int]:
        found = []
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit() and int(folder.name) != os.getpid():
                try:
                    found += [int(folder.name)] * (mark in (folder / "environ").read_bytes().split(b"\0"))
                except OSError:
                    continue
        return found

    job = subprocess.Popen([sys.executable, script], stderr=subprocess.PIPE, start_new_session=True)
    while b"2/" not in job.stderr.read1():  # a turn was measured: both layers of processes are up
        assert job.poll() is None
    assert len(left()) >= 3
    os.killpg(job.pid, signal.SIGINT)
    job.communicate(timeout=600)
    assert job.returncode != 0
    deadline = time.monotonic() + 600
    while left() and time.monotonic() < deadline:
        time.sleep(0.2)
    assert left() == []
