"""What Figures 1 and 2 and Table 2 share: clients that train alone from one initialisation, and are then compared."""

from fedlib.experiments.item import per_profile
from fedlib.spec import RunSpec

LABEL_SETS = {"i": [0, 1, 2, 3, 4], "i'": [0, 1, 2, 3, 4], "j": [2, 3, 4, 5, 6], "k": [5, 6, 7, 8, 9]}
PAIRS = {"i-i'": (0, 1), "i-j": (0, 2), "j-k": (2, 3), "i-k": (0, 3)}  # in the data's order of similarity
SETTINGS = per_profile(
    dataset=["digits", "digits", "cifar10"], seeds=[1, 5, 5], epochs=[2, 20, 20], lr=[0.05, 0.05, 0.01],
    min_size=[10, 10, 40], pools=1,
)  # fmt: skip
SMALLER = (
    "digits (16x16) instead of CIFAR-10; 180 to 360 training images per client instead of 6,000 to 12,000; "
    "lr 0.05 instead of 0.01"
)


def alone(s: dict, kind: str, **what) -> dict[tuple[str, int], RunSpec]:
    """One run a seed in which all clients train alone for so many epochs, counted as rounds of one local epoch."""
    training = dict(join_ratio=1.0, rounds=s["epochs"], local_epochs=1, lr=s["lr"], eval_every=s["epochs"])
    common = dict(dataset=s["dataset"], model_options={"pools": s["pools"]}, **training, **what)
    return {(kind, seed): RunSpec("local", seed=seed, partition_seed=seed, **common) for seed in range(s["seeds"])}


def ten_clients(s: dict) -> dict[tuple[str, int], RunSpec]:
    """Ten clients by Dir(0.1)."""
    dirichlet = {"alpha": 0.1, "min_size": s["min_size"]}
    return alone(s, "ten clients", num_clients=10, partition=dirichlet, measures=("cka", "client_similarity"))


def four_subsets(s: dict) -> dict[tuple[str, int], RunSpec]:
    """The four hand-made subsets i, i', j, k."""
    sets = {"label_sets": list(LABEL_SETS.values())}
    return alone(s, "four subsets", num_clients=4, scheme="manual", partition=sets, measures=("client_similarity",))
