"""fedlib: personalised federated learning, replicated.

Folders in the order in which they build on each other; each imports only from those above it (`tests/test_folders.py`):

    base/         trees of tensors, all random draws, options, errors, paths, provenance
    data/         data sets, partitions over clients (`partition/`), the split inside a client, descriptions of both
    models/       backbones: every model is a feature extractor and a classifier
    algorithms/   one file per method, to be read alongside its paper; `api.py`: the contract; `parts/`: shared code
    privacy/      noise that clients add, and what it guarantees
    attacks/      what an attacker recovers from an upload
    measures/     measurements during a run: similarities, distances, traffic
    spec.py       RunSpec: everything that determines the numbers of a run
    engine/       RunSpec in, RunResult out: set-up, rounds, minibatches, backends, evaluation, checkpoints
    checks/       whether a method keeps the contract: for `fedlib run --check` and the tests
    runs/         stored results, many runs in parallel, clusters
    analysis/     from results to tables; confidence intervals over seeds
    claims/       from tables to verdicts
    figures/      from tables to pictures
    experiments/  one file per table or figure of a paper: its runs, tables and claims
    reports/      the main job: figures, tables, notebooks, pages; `fedlib why`
    benchmarks/   speed measurements
    lessons/      toy examples of the lessons; labs
    cli.py        the command line
"""

from fedlib.base.same_bits import settle

settle()  # before anything loads PyTorch

__version__ = "0.1.0"

_AT_TOP = {  # what a notebook begins with; loads PyTorch
    "register": "fedlib.algorithms",
    "Dataset": "fedlib.data",
    "load_client": "fedlib.engine.export",
}


def __getattr__(name: str):
    """The names of _AT_TOP, imported when they are first used: importing fedlib takes no time."""
    if name not in _AT_TOP:
        raise AttributeError(f"module 'fedlib' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_AT_TOP[name]), name)
