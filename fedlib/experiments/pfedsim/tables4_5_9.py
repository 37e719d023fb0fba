"""Tables 4, 5 and 9: the data and the two networks of the experiments, as printed and as they are here."""

import pandas as pd

from fedlib import figures
from fedlib.analysis.tables import only
from fedlib.claims import Claim, Verdict, every_row, ours, verdict
from fedlib.data import DATASETS
from fedlib.data.datasets import class_sizes
from fedlib.experiments.item import Item, per_profile
from fedlib.experiments.paper_numbers import printed_cells
from fedlib.experiments.pfedsim import client_sizes
from fedlib.models import layers, parameters_by_part, sizes
from fedlib.models.layers import beside_printed

DATA = ("cifar10", "cinic10", "emnist", "tiny_imagenet")
PRINTED = {5: ("lenet5_bn", "cifar10"), 9: ("mobilenetv2", "tiny_imagenet")}  # which network a table describes
NETWORKS = {
    "LeNet-5 (Table 5), CIFAR-10": (*PRINTED[5], {}),
    "LeNet-5 with two max-pool layers (authors' code), CIFAR-10": (*PRINTED[5], {"pools": 2}),
    "LeNet-5 (Table 5), EMNIST": ("lenet5_bn", "emnist", {}),
    "MobileNetV2 (Table 9), Tiny-ImageNet": (*PRINTED[9], {}),
}


def analyse(s: dict, found: dict) -> dict[str, pd.DataFrame]:
    """stats: `drawn_sizes`; table5, table9: layers side by side; parameters: where the networks' numbers are."""
    here = [dataset for dataset in s["datasets"] if class_sizes(dataset)]
    stats, facts = client_sizes.drawn_sizes(here, s), client_sizes.public_facts(s["datasets"])
    compare = client_sizes.table4(stats, facts)
    layers = pd.concat([layers_of(number) for number in PRINTED], ignore_index=True)
    for number, own in layers.groupby("table"):
        other, table = own[own["verdict"] != "same"], f"Table {number}"
        compare += [(table, f"layer {row.layer}", row.printed, row.ours, row.verdict) for row in other.itertuples()]
        compare.append((table, f"{len(own) - len(other)} of {len(own)} layers", "as reported", "the same", ""))
    compare = pd.DataFrame(compare, columns=["table", "what", "paper", "ours", "difference"])
    named = {f"table{number}": only(layers, table=number).drop(columns="table") for number in PRINTED}
    return {"tidy": stats, "stats": stats, "compare": compare, **named, "_facts": facts, "_layers": layers,
            "parameters": parameter_table()}  # fmt: skip


def layers_of(number: int) -> pd.DataFrame:
    """Table 5 or 9 beside our network, one row a printed layer."""
    model, dataset = PRINTED[number]
    printed = printed_cells("pfedsim", str(number)).to_dict("records")
    about = DATASETS[dataset]
    rows = beside_printed(printed, layers(model, about.shape, about.classes), model, about.classes)
    return pd.DataFrame(rows).assign(table=number)


def parameter_table() -> pd.DataFrame:
    """Where the numbers of each network are. The paper prints no counts."""
    lines = []
    for title, (model, dataset, options) in NETWORKS.items():
        shape, classes = DATASETS[dataset].shape, DATASETS[dataset].classes
        size, parts = sizes(model, shape, classes, **options), parameters_by_part(model, shape, classes, **options)
        about = {"network": title, "input": "x".join(map(str, shape)), "classes": classes}
        lines.append({**about, **parts, "all": size["model"], "statistics": size["statistics"]})
    return pd.DataFrame(lines)


def same_layers(number: int):
    def others(layers: pd.DataFrame) -> str:
        other = layers[layers["verdict"] != "same"]
        return "; ".join(f"layer {row.layer}: {row.verdict}" for row in other.itertuples())

    return every_row("_layers", lambda t: t["verdict"] == "same", "reported layers", others, table=number)


def only_the_stem_differs(tables) -> Verdict:
    layers = tables["_layers"]
    real, misprints = only(layers, verdict="differs"), layers["verdict"].str.startswith("misprint").sum()
    listing = "; ".join(f"Table {r.table}, layer {r.layer}: {r.printed}, ours {r.ours}" for r in real.itertuples())
    evidence = f"{misprints} misprints; a network could be built with: {listing or 'none'}"
    return verdict(real[["table", "layer"]].values.tolist() == [[9, "1"]], evidence)


ITEM = Item(
    title="pFedSim Tables 4, 5 and 9: the data and the networks",
    claim="The reported data sets and networks are the public ones, up to a handful of misprints.",
    smaller="fewer partition seeds; EMNIST's partition only where the data set is prepared",
    settings=per_profile(datasets=DATA, seeds=[2, 20, 100], min_size=[10, 40, 40]),
    minutes={"smoke": 0.1, "quick": 0.3, "paper": 1},
    analyse=analyse,
    figure=lambda tables: figures.data_and_networks(
        tables["stats"], client_sizes.printed_sizes(), tables["parameters"]
    ),
    claims=(
        client_sizes.FACTS,
        *client_sizes.OF_TABLE_4,
        Claim("LeNet-5 has the reported layers (Table 5).", same_layers(5)),
        Claim("MobileNetV2, torchvision's as the text says, has the reported layers (Table 9).", same_layers(9)),
        *client_sizes.MORE,
        ours("All reported layers but the first of MobileNetV2 match ours, or could not be built.",
             only_the_stem_differs),
    ),
)  # fmt: skip
