"""Table 3: three architectures of supervisors in one federation."""

import dataclasses

import numpy as np

from fedlib.algorithms.api import Setting
from fedlib.analysis.readings import Reading
from fedlib.claims import Claim, apart, below, both, in_columns, ours
from fedlib.engine.result import RunResult
from fedlib.experiments.fedsimsup import task

TRANSFORMER, CNN, LENET = "with a transformer", "with a small CNN", "with a small LeNet-5"
GROUPS = {TRANSFORMER: "supervisor_transformer", CNN: "supervisor_cnn", LENET: "supervisor_sixth"}
MIXED, SAME = "all three kinds together", "small LeNet-5 for all"  # all clients of the mixed run; another run
PRINTED = dict(zip(("transformer", "cnn", "lenet5", "mixed", "lenet5_homogeneous"), (*GROUPS, MIXED, SAME)))
COLUMNS = task.columns_of(cifar10=(0.1, 0.5), cifar100=(0.1, 0.5))


def rows(s: dict) -> dict[str, dict]:
    """Four rows are read off one run."""
    one = {"method": "fedsimsup", "supervisors": "+".join(GROUPS.values())}
    return dict.fromkeys((*GROUPS, MIXED), one) | {SAME: {"method": "fedsimsup"}}


def of_group(r: RunResult, row: str, read: list[Reading]) -> list[Reading]:
    """The mean over those clients whose supervisor is of the row's architecture; the others count 0."""
    if row not in GROUPS:
        return read
    spec = r.spec
    drawn = spec.algorithm.groups(Setting(spec.num_clients, spec.rounds, 0, spec.seed))
    own = np.array([name == GROUPS[row] for name in drawn], dtype=float)
    if not own.any():
        return []
    return [dataclasses.replace(one, accuracy=float(one.values @ own / own.sum()), weights=own) for one in read]


def repeated(s: dict, row: str, column: str) -> int:
    """Seeds of a cell: another one overnight where the run with small LeNet-5s alone diverges."""
    more = min(s["repeats"], s["seeds"] + 1) if column == task.DIVERGES else 0
    return max(s["seeds"], more)


def costs_little(m):
    cost = m[SAME] - m[MIXED]
    return {"cost": 2 - cost}, f"{apart(cost)} points"


TABLE = task.table("3", COLUMNS, rows, row_of=lambda cell: PRINTED[cell["supervisor"]], chosen=of_group, seeds=repeated)

SMALLER_OVERNIGHT = (
    f"{task.SMALLER_OVERNIGHT.partition('; three seeds')[0]}; one seed, two with 50 clients on CIFAR-10 at Dir(0.5), "
    "where the first run without other architectures diverges"
)
ITEM = TABLE.item(
    title="FedSimSup Table 3: different architectures of supervisors",
    claim="Clients whose supervisors differ in architecture can be trained in one federation, at a small cost.",
    minutes={"smoke": 0.5, "quick": 1, "overnight": 40, "paper": 1500},
    claims=(
        Claim("Clients with a transformer are more accurate than those with a small CNN or LeNet-5.",
              below([CNN, LENET], [TRANSFORMER])),
        Claim("All clients of the mixed run together are less accurate than where everybody has a small LeNet-5.",
              below([MIXED], [SAME])),
        Claim("Those with a transformer are above that run at Dir(0.1), and below it at Dir(0.5).",
              both(below([SAME], [TRANSFORMER], columns=lambda name: "Dir(0.1)" in name),
                   below([TRANSFORMER], [SAME], columns=lambda name: "Dir(0.5)" in name))),
        ours("The mixed run costs less than 2 points (the paper: 0.6 to 6.3).",
             in_columns(costs_little, (SAME, MIXED))),
    ),
    **{**task.COMMON, "smaller_overnight": SMALLER_OVERNIGHT},
)  # fmt: skip
