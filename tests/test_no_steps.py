"""Runs in which nobody, or hardly anybody, would take a training step are refused before they begin."""

from __future__ import annotations

import warnings

import pytest
from helpers import call, tiny

from fedlib.base.errors import BadValue
from fedlib.engine.setup import set_up
from fedlib.engine.simulate import simulate


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        (dict(batch_size=1), r"4 of 4 clients have no minibatch of 2 or more .*batch_size = 1.*a larger batch_size"),
        (dict(batch_size=1), "or a model without batch norm"),
        (dict(num_clients=890, partition={}, scheme="iid"), r"890 of 890 .*client 0: 1,.*more samples a client"),
        (dict(scheme="iid", partition={}, images=40, num_clients=20), r"20 of 20 .*client 0: 1, client 1: 1"),
        (dict(scheme="iid", partition={}, images=40, holdout=0.9, test_fraction=0.5), r"4 of 4 clients"),
        (dict(method="fedfomo", scheme="iid", partition={}, images=24, hyper=dict(val_fraction=0.9)), "4 of 4 clients"),
        (dict(batch_size=1, num_clients=5, unseen=2), "5 of 5 clients"),
        (dict(method="fedrep", hyper=dict(E_h=0, E_f=0)), "fedrep with .*'E_h': 0.* takes no training step"),
        (dict(method="fedsimsup", hyper=dict(tau_s=0, tau_theta=0)), "takes no training step"),
    ],
)
def test_runs_without_a_training_step(changes, named):
    spec = tiny(**{"method": "fedavg", **changes})
    for begin in (set_up, simulate):
        with pytest.raises(BadValue, match=named) as error:
            begin(spec)
        assert "\n" not in str(error.value)


def test_the_command_ends_with_one_line_and_stores_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDLIB_HOME", str(tmp_path))
    done = call("run", "fedavg", "--set", "batch_size=1", "--set", "num_clients=10")
    assert done.exit_code == 2 and "no minibatch of 2 or more samples" in done.output and "Traceback" not in done.output
    assert not [path for path in tmp_path.rglob("*") if path.suffix in (".json", ".npz")]


@pytest.mark.parametrize(
    "changes",
    [
        dict(batch_size=1, model="lenet5"),
        dict(batch_size=2),
        dict(num_clients=890, partition={}, scheme="iid", model="lenet5", rounds=1),
        dict(method="fedrep", hyper=dict(E_h=0)),
        dict(method="perfedavg"),  # which does not state its passes
    ],
)
def test_runs_with_training_steps_begin(changes):
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        set_up(tiny(**{"method": "fedavg", "scheme": "iid", **changes, "partition": {}}))


def few_idle(**changes):
    """Digits by Dirichlet: some of 12 clients have a single training sample."""
    fields = dict(num_clients=12, partition=dict(alpha=0.1, min_size=2), images=100, **changes)
    return tiny("fedavg", **fields)


def idle_of(spec):
    return [i for i, n in enumerate(set_up(spec).sizes) if n < 2]


def test_a_few_clients_that_cannot_train_are_said():
    with pytest.warns(UserWarning, match=r"of 12 clients have no minibatch .*they keep what they have"):
        idle = idle_of(few_idle())
    assert 0 < len(idle) <= 6


@pytest.mark.filterwarnings("ignore:.*no minibatch")
def test_a_run_whose_participants_are_all_idle_is_refused():
    """One of 12 takes part in the only round: a run with another seed trains, this one does not."""
    idle, found = idle_of(few_idle()), set()
    for seed in range(12):
        spec = few_idle(rounds=1, join_ratio=0.01, seed=seed)
        try:
            set_up(spec)
            found.add("begins")
        except BadValue as error:
            found.add("refused")
            assert f"{len(idle)} of 12" in str(error)
    assert found == {"begins", "refused"}
