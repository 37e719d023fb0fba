"""Hashes of the states in which short float32 runs of every method end: `python tests/final_states.py [METHOD ...]`.

`test_same_bits.py` runs it under what may vary between machines, and compares with final_states.json. Under an emulated
processor (Debian's qemu-user), where starting PyTorch alone takes minutes, the compiler must be told what that has:

    qemu-x86_64 -cpu EPYC-Rome .venv/bin/python tests/final_states.py --flags="-mavx2 -mfma" fedavg fedgen

--step torch: without compiled steps. --flags: for the compiler in place of its usual -march. --write: renew what was
run in the file, which is for changes of arithmetic that are meant.
"""

import argparse
import hashlib
import json
import sys
from pathlib import Path

from fedlib.base import tree  # isort: skip  # first: it holds what PyTorch would choose by processor
import numpy as np
import torch

from fedlib import algorithms
from fedlib.data.partition import make_partition
from fedlib.engine.simulate import simulate
from fedlib.models.fused import build
from fedlib.spec import RunSpec

FILE = Path(__file__).with_suffix(".json")
OPTIONS = {
    "pfedsim": {"rho": 0.5},
    "clusterfl": {"eps_mode": "relative", "eps1": 1.1, "eps2": 0.1, "t0": 1},
    "pfedsv": {"k": 2},
    "fedsimsup": {"tau_s": 1, "tau_theta": 1},
    "fesem": {"K": 2},
    "fedem": {"M": 2},
    "pfedme": {"K": 2},
    "pfedcs": {"beta": 1},
}
NETS = {"lenet5": {}, "mcmahan_cnn": {"width": 0.25}, "mlp": {}}  # beside lenet5_bn, which all methods train


def runs(names: list[str]) -> dict[str, RunSpec]:
    """By name of a method, or of a network that FedAvg trains."""
    task = dict(
        num_clients=5, join_ratio=0.8, rounds=3, local_epochs=1, lr=0.05, partition=dict(alpha=0.5, min_size=20)
    )
    made = {name: RunSpec(name, hyper=OPTIONS.get(name, {}), **task) for name in algorithms.names()}
    made |= {net: RunSpec("fedavg", model=net, model_options=options, **task) for net, options in NETS.items()}
    return {name: made[name] for name in names or made}


def ending(spec: RunSpec, **options) -> str:
    """Hash of the server's and the clients' last states and of every client's tests."""
    digest = hashlib.sha256()

    def look(_, state) -> None:
        for name, leaf in tree.leaves((state.server, state.clients, state.stats)):
            if isinstance(leaf, torch.Tensor):
                digest.update(f"{name} {leaf.dtype} {list(leaf.shape)}".encode() + leaf.contiguous().numpy().tobytes())

    result = simulate(spec, at_end=look, **options)
    for name in sorted(result.arrays):
        digest.update(name.encode() + np.ascontiguousarray(result.arrays[name]).tobytes())
    digest.update(json.dumps(result.history, sort_keys=True).encode())
    return digest.hexdigest()[:16]


def partition() -> bytes:
    labels = np.random.default_rng(0).integers(10, size=5000)
    return np.concatenate(make_partition(labels, 20, "dirichlet", 0, alpha=0.1, min_size=10).clients).tobytes()


def mixture() -> bytes:
    from sklearn.mixture import GaussianMixture

    x = np.random.default_rng(0).standard_normal((60, 40))
    return GaussianMixture(3, random_state=0).fit(x).means_.tobytes()


def algebra() -> bytes:
    x = np.random.default_rng(0).standard_normal((600, 400))
    return (x @ x.T).tobytes() + np.linalg.svd(x)[1].tobytes() + np.exp(x).tobytes() + np.log(np.abs(x)).tobytes()


def table() -> bytes:
    """A table of accuracies with its intervals, of made-up results."""
    from helpers import analysed, made_up

    drawn = iter(np.random.default_rng(0).random(10_000))
    made = analysed(
        "pfedcs/table1_pathological",
        lambda _, spec: made_up(spec, {p: 0.5 + 0.3 * next(drawn) for p in ("recv", "ft(1)")}),
        seeds=3,
    )
    return "".join(frame.to_csv() for frame in made.values()).encode()


TABLES = {"numpy: partition": partition, "numpy: mixture": mixture, "numpy: algebra": algebra, "numpy: table": table}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--backend", default="serial")
    parser.add_argument("--step", default="auto")
    parser.add_argument("--flags")
    parser.add_argument(
        "--tables", action="store_true", help="what NumPy, SciPy and scikit-learn make, in place of runs"
    )
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    if given.flags:
        usual = tuple(flag for flag in build.FLAGS if not flag.startswith("-march"))
        build.FLAGS = (*usual, *given.flags.split())
    options = dict(backend=given.backend, step=given.step) | ({"workers": 2} if given.backend == "process" else {})
    made = TABLES if given.tables or given.write and not given.names else {}
    found = {name: hashlib.sha256(make()).hexdigest()[:16] for name, make in made.items()}
    if not given.tables:
        found = {name: ending(spec, **options) for name, spec in runs(given.names).items()} | found
    print(json.dumps(found, indent=1))
    expected = json.loads(FILE.read_text())
    if given.write:
        FILE.write_text(json.dumps(expected | found, indent=1) + "\n")
        return
    differ = [name for name in found if found[name] != expected[name]]
    if differ:
        sys.exit(f"other bits than in {FILE.name}: {', '.join(differ)}")


if __name__ == "__main__":
    main()
