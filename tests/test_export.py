"""Trained clients that are kept: what is loaded answers as what was tested, damage is found, nothing is half there."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from helpers import METHODS, call, get_or_run, tiny
from torch import nn

import fedlib
from fedlib.base.errors import BadValue, DataError, FedlibError
from fedlib.engine.export import ABOUT, NUMBERS, export, load_client
from fedlib.engine.simulate import simulate, watched
from fedlib.runs.run import find_run
from fedlib.runs.store import Store


def exported(folder, method="pfedsim", point=None, **changes):
    """A tiny run that is exported: (run, folder)."""
    *_, (run, state) = watched(tiny(method, rounds=2, **changes))
    return run, export(run, state, folder, point)


def right_answers(run, model, client: int) -> float:
    """The accuracy of a module on a client's test images, as they are stored."""
    rows = torch.from_numpy(run.work.parts[client]["test"])
    dataset = run.work.source.dataset
    with torch.no_grad():
        said = model(dataset.images[rows]).argmax(1)
    return float((said == dataset.labels[rows]).double().mean())


@pytest.mark.parametrize("method", METHODS)
def test_a_loaded_client_answers_as_the_one_that_was_tested(tmp_path, method):
    run, folder = exported(tmp_path / "kept", method)
    clients = json.loads((folder / ABOUT).read_text())["clients"]
    assert len(clients) == run.setting.num_clients
    for i, client in enumerate(clients):
        model = fedlib.load_client(folder, i)
        assert right_answers(run, model, i) == pytest.approx(client["accuracy"], abs=1e-12)
        assert (model.client, model.classes, model.training) == (i, tuple("0123456789"), False)
        assert model.about == client and client["train"] == run.sizes[i]


@pytest.mark.parametrize(("method", "point"), [("fedper", "post"), ("pfedsim", "agg"), ("fedavg", "ft(1)")])
def test_models_are_taken_at_the_point_that_is_asked_for(tmp_path, method, point):
    run, folder = exported(tmp_path / "kept", method, point, eval_points=(point,))
    assert json.loads((folder / ABOUT).read_text())["point"] == point
    assert (
        right_answers(run, load_client(folder, 2), 2)
        == json.loads((folder / ABOUT).read_text())["clients"][2]["accuracy"]
    )


def test_a_loaded_network_is_made_of_pytorchs_own_layers_and_can_be_trained(tmp_path):
    _, folder = exported(tmp_path / "kept")
    model = load_client(folder, 1)
    assert all(
        type(layer).__module__.startswith("torch.nn") for layer in model.network.modules() if not list(layer.children())
    )
    images, labels = torch.rand(8, 1, 16, 16), torch.arange(8)
    norm = next(layer for layer in model.modules() if isinstance(layer, nn.BatchNorm2d))
    mean, optimiser = norm.running_mean.clone(), torch.optim.SGD(model.parameters(), lr=0.5)
    model.train()
    first = nn.functional.cross_entropy(model(images), labels)
    first.backward()
    optimiser.step()
    assert nn.functional.cross_entropy(model(images), labels) < first
    assert not torch.equal(mean, norm.running_mean)


def test_bytes_and_shares_of_white_are_the_same_pixels(tmp_path):
    run, folder = exported(tmp_path / "kept", pixels="reference")
    model, images = load_client(folder, 0), run.work.source.dataset.images[:5]
    with torch.no_grad():
        torch.testing.assert_close(model(images), model(images.float() / 255))


def test_numbers_of_all_clients_are_in_one_stack_of_the_runs_type(tmp_path):
    run, folder = exported(tmp_path / "kept", "fedsimsup", precision="float64")
    model = load_client(folder, 3)
    assert next(iter(model.buffers())).dtype == torch.float64
    assert (folder / NUMBERS).stat().st_size > 8 * 4 * run.work.model.num_parameters["model"]


def test_a_client_of_data_of_ones_own_is_loaded_where_these_are_not(tmp_path):
    draw = np.random.default_rng(0)
    y = draw.integers(0, 3, 200)
    x = (draw.standard_normal((200, 5)) + 3 * np.eye(5)[y]).astype(np.float32)
    data = fedlib.Dataset.from_arrays(x, y, name="points")
    run, folder = exported(tmp_path / "kept", "fedper", dataset=data.name, model="mlp", partition={"alpha": 5.0})
    assert right_answers(run, load_client(folder, 2), 2) == load_client(folder, 2).about["accuracy"]
    script = (
        f"import fedlib, torch; m = fedlib.load_client({str(folder)!r}, 2); print(m(torch.zeros(4, 5, 1, 1)).argmax(1))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    with torch.no_grad():
        expected = str(load_client(folder, 2)(torch.zeros(4, 5, 1, 1)).argmax(1))
    assert done.stdout.strip() == expected, done.stderr


def test_damage_and_wrong_values_are_said_in_one_line(tmp_path):
    run, folder = exported(tmp_path / "kept")
    for client in (4, -1, True, "0"):
        with pytest.raises(BadValue, match="an integer from 0 to 3"):
            load_client(folder, client)
    with pytest.raises(BadValue, match="a folder that is new or empty"):
        exported(folder)
    with pytest.raises(BadValue, match="unknown evaluation point|unknown point"):
        exported(tmp_path / "other", point="glob")
    assert not (tmp_path / "other").exists()
    with pytest.raises(DataError, match="holds no export"):
        load_client(tmp_path, 0)
    about = (folder / ABOUT).read_text()
    for damage in ("{", "[]", "{}"):
        (folder / ABOUT).write_text(damage)
        with pytest.raises(DataError, match="damaged export"):
            load_client(folder, 0)
    (folder / ABOUT).write_text(about)
    numbers = bytearray((folder / NUMBERS).read_bytes())
    numbers[-1] ^= 1
    (folder / NUMBERS).write_bytes(numbers)
    with pytest.raises(DataError, match="checksum"):
        load_client(folder, 0)
    (folder / NUMBERS).unlink()
    with pytest.raises(DataError, match="models.pt is missing"):
        load_client(folder, 0)


def test_an_export_that_fails_is_none(tmp_path, monkeypatch):
    with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
        patch.setattr("fedlib.engine.export.checksum", lambda path: 1 / 0)
        exported(tmp_path / "kept")
    with pytest.raises(DataError, match="holds no export: export.json is missing"):
        load_client(tmp_path / "kept", 0)


def test_clients_with_different_networks_are_refused(tmp_path):
    with pytest.raises(FedlibError, match="different networks"):
        exported(tmp_path / "kept", "fedsimsup", hyper={"supervisors": "supervisor_sixth+supervisor_cnn"})
    assert not list(tmp_path.iterdir())


def test_the_command_trains_a_stored_run_again(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDLIB_HOME", str(tmp_path))
    store = Store("single")
    stored = get_or_run(tiny("fedper", rounds=2), store)
    short = stored.spec.id[:8]
    said = call("run", short, "--keep", str(tmp_path / "kept"))
    assert said.exit_code == 0 and "4 models in" in said.output and "with the stored run's accuracies" in said.output
    model = load_client(tmp_path / "kept", 1)
    right, tests = stored.by_client()
    assert model.about["accuracy"] == pytest.approx(float(np.asarray(right)[1] / np.asarray(tests)[1]))
    assert find_run(str(store.path(stored.spec))).spec == stored.spec
    for bad, expected in (("zz", "at least 4"), ("0000", "there is none"), ("", "at least 4")):
        said = call("run", bad, "--keep", str(tmp_path / "more"))
        assert said.exit_code == 2 and expected in said.stderr and len(said.stderr.splitlines()) == 1
    said = call("run", short, "--keep", str(tmp_path / "more"), "--point", "agg")
    assert said.exit_code == 2 and "one at which this run was evaluated: recv" in said.stderr
    assert not (tmp_path / "more").exists()


def test_what_is_called_at_the_end_does_not_change_the_run():
    seen, spec = [], tiny("pfedsim", rounds=2)
    result = simulate(spec, at_end=lambda run, state: seen.append(state.round))
    assert seen == [2] and result.history == simulate(spec).history
