"""What an error advises makes it go away: every piece of advice is followed here."""

from __future__ import annotations

import json
import re
import time

import numpy as np
import pytest
import torch
from helpers import tiny

from fedlib import Dataset
from fedlib.base.errors import BadValue, Diverged, InfeasiblePartition
from fedlib.data import load
from fedlib.data.partition import dirichlet_counts, make_partition
from fedlib.data.split import carve_validation, split_client
from fedlib.engine.simulate import simulate

DIGITS = load("digits").labels.numpy()
SIZES = np.bincount(DIGITS).tolist()
LARGE = [6000] * 10


@pytest.mark.parametrize(
    ("sizes", "asked", "advised"),
    [
        (LARGE, dict(num_clients=1000, alpha=0.1), ["alpha", "clients"]),
        (LARGE, dict(num_clients=1000, alpha=0.1, on_fail="relax"), ["alpha", "clients"]),
        (SIZES, dict(num_clients=1000, alpha=0.1, min_size=1), ["clients"]),
        (SIZES, dict(num_clients=200, alpha=1e9, min_size=8), ["clients"]),
        (SIZES, dict(num_clients=40, alpha=0.1, min_size=40), ["min_size", "alpha", "clients"]),
        (SIZES, dict(num_clients=60, alpha=0.01, min_size=25), ["alpha", "clients"]),
        (LARGE, dict(num_clients=1000, alpha=1e9, min_size=60), ["min_size", "clients"]),
    ],
)
def test_dirichlet(sizes, asked, advised):
    started = time.process_time()
    with pytest.raises(InfeasiblePartition) as caught:
        dirichlet_counts(sizes, seed=0, **asked)
    assert time.process_time() - started < 30
    ways = str(caught.value).rpartition(": use ")[2].split(", or ")
    settings = [re.sub(r"^(\d+) clients$", r"num_clients = \1", way).split(" = ") for way in ways]
    assert [name.removeprefix("num_") for name, _ in settings] == advised
    for name, value in settings:
        counts, _ = dirichlet_counts(sizes, seed=0, **asked | {name: json.loads(value)})
        assert counts.sum(1).min() >= (asked | {name: json.loads(value)}).get("min_size", 40)


def divided(scheme: str, num_clients: int, labels=DIGITS, **options):
    return make_partition(labels, num_clients, scheme, 0, **options)


def drawn(**options):
    return divided("dirichlet_reference", **dict(alpha=0.1, num_clients=60, max_tries=20) | options)


def grouped(**options):
    return divided("pat_grouped", **dict(num_clients=10, classes_per_client=2, min_size=900) | options)


def domains(**options):
    return make_partition(DIGITS[:20], scheme="domain", seed=0, groups=np.repeat([0, 1], [17, 3]), **options)


def trained(**options):
    return simulate(tiny("fedavg", rounds=2, **options))


def own(x, y=None, **options):
    return Dataset.from_arrays(x, np.arange(20) % 2 if y is None else y, name="advice", **options)


TENSOR = torch.rand(20, 3, requires_grad=True)
FOLLOWED = {
    "a class cut unequally": (
        grouped,
        {},
        "use fewer clients, fewer classes per client, or equal shares",
        [dict(num_clients=5), dict(classes_per_client=1), dict(balance=True)],
    ),
    "more owners than samples": (
        lambda **o: divided("pat_balanced", labels=np.arange(30) % 10, **o),
        dict(num_clients=20),
        "use fewer clients",
        [dict(num_clients=15)],
    ),
    "classes without an owner": (
        lambda **o: divided("pat_grouped", classes_per_client=1, **o),
        dict(num_clients=12),
        "use another number of clients, or fair = true",
        [dict(num_clients=20), dict(num_clients=12, fair=True)],
    ),
    "classes that nobody draws": (
        lambda **o: divided("random_classes", max_tries=1, **o),
        dict(num_clients=10, classes_per_client=1),
        "use more clients or classes",
        [dict(num_clients=100, classes_per_client=1), dict(num_clients=10, classes_per_client=9)],
    ),
    "domains": (
        domains,
        dict(num_clients=8, clients_per_domain=4),
        "lower clients_per_domain, and num_clients with it",
        [dict(num_clients=6, clients_per_domain=3)],
    ),
    "the reference": (drawn, {}, "2: lower min_size to 2, or use fewer", [dict(min_size=2), dict(num_clients=5)]),
    "the reference, of many": (drawn, dict(num_clients=400), "0: use fewer clients", [dict(num_clients=5)]),
    "a single sample": (
        lambda n: split_client(divided("iid", n).clients[-1], 0.5, 0, 0),
        dict(n=1700),
        "use fewer clients",
        [dict(n=800)],
    ),
    "a single training sample": (
        lambda n: carve_validation(split_client(divided("iid", n).clients[0], 0.5, 0, 0)[0], 0.5, 0, 0),
        dict(n=800),
        "use fewer clients",
        [dict(n=300)],
    ),
    "divergence": (trained, dict(lr=1e30), "try a smaller lr", [dict(lr=0.01)]),
    "a tensor with gradients": (own, dict(x=TENSOR), "Use tensor.detach", [dict(x=TENSOR.detach().numpy())]),
    "axes that look alike": (
        own,
        dict(x=np.ones((20, 3, 8, 3))),
        "channels='first' or channels='last'",
        [dict(x=np.ones((20, 3, 8, 3)), channels=where) for where in ("first", "last")],
    ),
}


@pytest.mark.parametrize("case", FOLLOWED)
def test_advice(case):
    call, asked, said, ways = FOLLOWED[case]
    with pytest.raises((BadValue, Diverged, InfeasiblePartition), match=said):
        call(**asked)
    for way in ways:
        call(**way)
