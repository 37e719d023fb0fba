"""Figure 4: where the personalised model and its supervisor look, on many images and in numbers."""

from fedlib import figures
from fedlib.analysis.attention import NUMBERS, described, in_words, map_rows, network_draws, shown
from fedlib.analysis.tables import rows_of
from fedlib.claims import Claim, Verdict, apart, decided, not_tested, ours
from fedlib.data.datasets import shape_and_classes
from fedlib.experiments.fedsimsup import task
from fedlib.experiments.item import Found, Item, Runs, Tables, leaving_out, per_profile, runs_of
from fedlib.measures.attention import NETWORKS, grid_of_maps

MODEL, NEW_MODEL = "FedSimSup: model", "LeNet-5, untrained"
SUPERVISOR, NEW_SUPERVISOR = "FedSimSup: supervisor", "LeNet-5 of one sixth the size, untrained"
ALONE, SMALL_ALONE, AVERAGED = "Local: LeNet-5", "Local: LeNet-5 of one sixth the size", "FedAvg: LeNet-5"
RUNS = {  # method, network, and what the networks whose maps it keeps are called
    "fedsimsup": ("fedsimsup", "lenet5", (MODEL, NEW_MODEL, SUPERVISOR, NEW_SUPERVISOR)),
    "local": ("local", "lenet5", (ALONE,)),
    "local, a sixth": ("local", "supervisor_sixth", (SMALL_ALONE,)),
    "fedavg": ("fedavg", "lenet5", (AVERAGED,)),
}
ORDER = (MODEL, SUPERVISOR, ALONE, SMALL_ALONE, AVERAGED, NEW_MODEL, NEW_SUPERVISOR)
CALLED = {(run, own): name for run, (*_, names) in RUNS.items() for own, name in zip(NETWORKS, names)}
PAIRS = {  # the supervisor's network and LeNet-5
    "FedSimSup": (SUPERVISOR, MODEL),
    "local-only training": (SMALL_ALONE, ALONE),
    "untrained": (NEW_SUPERVISOR, NEW_MODEL),
}
BESIDE_ALONE = {"supervisor minus Local's LeNet-5": (SUPERVISOR, ALONE), "model minus Local's LeNet-5": (MODEL, ALONE)}
PAPER = {MODEL: "scattered details (a cat's eyes or nose)", SUPERVISOR: "the whole body"}
CLASSES = {"cifar10": ("airplane", "car", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")}
UNKNOWN = "needs object locations, which CIFAR-10 does not have"
SHOWN = 8  # images in the figure


def runs(s: dict) -> Runs:
    grid_of_maps("lenet5", *shape_and_classes(s["dataset"]))  # BadValue for data whose images are too small
    column = task.of_column(s, {"clients": "100"}) | {"measures": ("attention",)}
    rows = {name: {"method": method, "model": network} for name, (method, network, _) in RUNS.items()}
    return runs_of(column, rows, s["seeds"])


def analyse(s: dict, found: Found) -> Tables:
    """tidy: one row an image and network (`map_rows`); means and gaps, by network and by pair (`described`); pictures:
    of the first seed."""
    tidy = rows_of(found, ("run", "seed"), map_rows)
    tidy["network"] = [CALLED.get(key) for key in zip(tidy.pop("run"), tidy["network"])]
    tidy = tidy.dropna(subset="network").sort_values("network", key=lambda n: n.map(ORDER.index), kind="stable")
    means, gaps = described(tidy, PAIRS | BESIDE_ALONE)
    by_network = in_words(means, "network")
    maps = tidy.groupby("network")["empty"].agg(lambda empty: f"{(~empty).sum()} of {len(empty)}")
    compare = by_network.assign(paper=by_network.index.map(PAPER).fillna(""), maps=maps)[["paper", *by_network, "maps"]]
    compare = compare.rename(columns={"paper": "paper (one picture)", "maps": "maps that are not 0"})
    classes = CLASSES.get(s["dataset"], range(shape_and_classes(s["dataset"])[1]))
    return {
        "tidy": tidy.round(3),
        "compare": compare.rename_axis("network").reset_index(),
        "differences": in_words(gaps, "pair", "+").reset_index(),
        "means": means,
        "gaps": gaps,
        "pictures": shown(found["fedsimsup", 0], SHOWN, list(map(str, classes))),
    }


# claims --------------------------------------------------------------------------------------------------------------


def differs(number: str, high: str = SUPERVISOR, low: str = MODEL):
    """A check that a number is higher for one network than for another, on the same images."""

    def check(tables) -> Verdict:
        if number not in tables["tidy"]:
            return not_tested(UNKNOWN)
        m, (called, form) = network_draws(tables["tidy"], number, [high, low]), NUMBERS[number]
        if m.empty:
            return not_tested(f"needs an image of which {high} and {low} have maps")
        both = ", ".join(f"{name} {m[name].iloc[0]:{form}}" for name in (high, low))
        return decided({high: m[high] - m[low]}, f"{called}: {both}, {apart(m[high] - m[low], form)}")

    return check


def more_than_architecture(number: str):
    """A check that a number tells FedSimSup's networks apart more than both architectures without FedSimSup."""

    def check(tables) -> Verdict:
        if number not in tables["tidy"]:
            return not_tested(UNKNOWN)
        m, (called, form) = network_draws(tables["tidy"], number, sum(PAIRS.values(), ())), NUMBERS[number]
        if m.empty:
            return not_tested("needs an image of which all networks have maps")
        lead = {pair: m[small] - m[large] for pair, (small, large) in PAIRS.items()}
        evidence = ", ".join(f"{pair} {apart(gap, form)}" for pair, gap in lead.items())
        own = lead.pop("FedSimSup")
        lead = {pair: own - gap for pair, gap in lead.items()}
        return decided(lead, f"{called}, difference on images of which all six networks have maps: {evidence}")

    return check


ITEM = Item(
    title="FedSimSup Figure 4: where the model and its supervisor look",
    claim="The personalised model attends to scattered details, the supervisor to the whole object.",
    settings=per_profile(
        leaving_out(task.SETTINGS, "few_clients", "seeds_of_claims", "methods", "datasets", "fedavg_points"),
        reduced={},
        dataset=["digits_large", "digits_large", "cifar10"], alpha=0.1, seeds=[1, 3, 3],
    ),
    smaller="digits upscaled to CIFAR's 32x32 (from 16x16 the maps would have 2x2 cells); 30 % of 20 clients in "
    "a round (paper: 10 % of 100); 15 rounds (paper: 1,000); half of each client's data for testing",
    smaller_reduced=f"{task.LESS}; three seeds",
    minutes={"smoke": 0.2, "quick": 1, "reduced": 40, "paper": 300},
    runs=runs,
    analyse=analyse,
    figure=lambda tables: figures.attention_maps(
        tables["pictures"], tables["tidy"], tables["means"], tables["gaps"][tables["gaps"]["pair"].isin(PAIRS)], NUMBERS
    ),
    shown={"differences": "A supervisor's network minus LeNet-5, and FedSimSup's networks minus Local's, on images of "
                          "which both have a map."},
    claims=(
        Claim("The supervisor looks at more of the image: its maps have more entropy than the personalised model's.",
              differs("entropy")),
        Claim("The smallest area with half of the heat map is larger for the supervisor.", differs("area")),
        Claim("The personalised model looks at scattered details: half of its map is in more connected "
              "components.", differs("blobs", MODEL, SUPERVISOR)),
        Claim("The supervisor looks at the whole object: the smallest area with half of its map covers "
              "more of the object.", differs("covered")),
        ours("More of the supervisor's map lies on the object.", differs("on_object")),
        ours("The architecture alone does not explain the higher entropy of the supervisor's maps: the difference is "
             "larger than between the two networks with local-only training, and than between the two untrained.",
             more_than_architecture("entropy")),
        ours("Nor does the architecture alone explain that the supervisor's maps cover more of the object.",
             more_than_architecture("covered")),
        ours("The personalised model's maps have less entropy than those of LeNet-5 with local-only training.",
             differs("entropy", ALONE, MODEL)),
    ),
)  # fmt: skip
