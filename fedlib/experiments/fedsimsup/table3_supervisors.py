"""Table 3: three architectures of supervisors in one federation."""

import dataclasses

import numpy as np

from fedlib.algorithms.api import Setting
from fedlib.analysis.readings import Reading
from fedlib.claims import Claim, below, both, ours
from fedlib.engine.result import RunResult
from fedlib.experiments.fedsimsup import task

TRANSFORMER, CNN, LENET = "clients with a transformer", "clients with a small CNN", "clients with a small LeNet-5"
GROUPS = {TRANSFORMER: "supervisor_transformer", CNN: "supervisor_cnn", LENET: "supervisor_sixth"}
MIXED, SAME = "all three kinds together", "small LeNet-5 for all"  # all clients of the mixed run; another run
PRINTED = dict(zip(("transformer", "cnn", "lenet5", "mixed", "lenet5_homogeneous"), (*GROUPS, MIXED, SAME)))
COLUMNS = task.columns_of(cifar10=(0.1, 0.5), cifar100=(0.1, 0.5))


def rows(s: dict) -> dict[str, dict]:
    """Four rows are read off one run."""
    one = {"method": "fedsimsup", "supervisors": "+".join(GROUPS.values())}
    return dict.fromkeys((*GROUPS, MIXED), one) | {SAME: {"method": "fedsimsup"}}


def of_group(r: RunResult, row: str, read: list[Reading]) -> list[Reading]:
    """The accuracy of those clients whose supervisor is of the row's architecture; the others count 0."""
    if row not in GROUPS:
        return read
    spec = r.spec
    drawn = spec.algorithm.groups(Setting(spec.num_clients, spec.rounds, 0, spec.seed))
    own = np.array([name == GROUPS[row] for name in drawn], dtype=float)
    if not own.any():
        return []
    mean = [float(np.average(one.values, weights=one.weights * own)) for one in read]
    return [dataclasses.replace(one, accuracy=accuracy) for one, accuracy in zip(read, mean)]


TABLE = task.table(
    "3", COLUMNS, rows, row_of=lambda cell: PRINTED[cell["supervisor"]], chosen=of_group,
    seeds=lambda s, row, column: max(s["seeds"], s["seeds_of_claims"]),
)  # fmt: skip

ITEM = TABLE.item(
    title="FedSimSup Table 3: different architectures of supervisors",
    claim="Clients whose supervisors differ in architecture can be trained in one federation, at a small cost.",
    minutes={"smoke": 0.5, "quick": 1, "reduced": 480, "paper": 2400},
    claims=(
        Claim("Clients with a transformer supervisor are more accurate than those with a CNN or LeNet-5 as one.",
              below([CNN, LENET], [TRANSFORMER])),
        Claim("The clients of the mixed run are, on average, less accurate than where every client has a small "
              "LeNet-5.",
              below([MIXED], [SAME])),
        Claim("Clients with a transformer supervisor are more accurate than if every client has a small LeNet-5 at "
              "Dir(0.1), and less accurate at Dir(0.5).",
              both(below([SAME], [TRANSFORMER], columns=lambda name: "Dir(0.1)" in name),
                   below([TRANSFORMER], [SAME], columns=lambda name: "Dir(0.5)" in name))),
        ours("Mixed architectures reduce accuracy by less than 2 points (paper: 0.6 to 6.3).",
             below([SAME], [MIXED], by=-2)),
    ),
    **{**task.COMMON, "smaller_reduced": f"{task.LESS}; three seeds"},
)  # fmt: skip
