"""What pFedSV's Figures 2, 3, 4 and 7 to 10 and the notes share: ten clients with two labels each, in three sizes."""

from fedlib.experiments.item import per_profile
from fedlib.spec import RunSpec

CLIENTS = 10

# By profile: smoke, quick, paper. Shares of test samples and batch sizes are unstated in the paper.
SETTINGS = per_profile(
    dataset=["digits", "digits", "cifar10"], model=["lenet5", "lenet5", "mcmahan_cnn"], rounds=[2, 10, 20],
    local_epochs=[1, 3, 5], batch_size=[32, 16, 32], lr=0.1, test_fraction=[0.5, 0.5, 0.2],
    overnight={"images": 10_000, "width": 0.125},
)  # fmt: skip
SMALLER_OVERNIGHT = (
    "CIFAR-10, a sixth of the images (10,000: with ten clients about 800 training images each), the CNN has an eighth "
    "of the channels and units, three seeds"
)
MNIST = {**SETTINGS["paper"], "dataset": "mnist", "lr": 0.01}  # the paper profile of the figures that use MNIST


def task_spec(s: dict, method: str, seed: int, hyper: dict | None = None, **fields) -> RunSpec:
    """One run; partition, weights and batches vary with the seed. McMahan's CNN is padded as its authors have it."""
    task = {"num_clients": CLIENTS, "join_ratio": 1.0, "stratified": True, "padding": "same", **s, **fields}
    return RunSpec.of_task({**task, "seed": seed, "partition_seed": seed}, method, **hyper or {})


def ring_spec(s: dict, method: str, seed: int, **fields) -> RunSpec:
    """One run in which every client shares one label with each of two others; evaluated at the end by default."""
    ring = {"scheme": "ring", "classes_per_client": 2, "eval_every": s["rounds"]}
    return task_spec(s, method, seed, **ring | fields)
