"""Tables 4, 5 and 9: the data and the two networks of the experiments, as printed and as they are here."""

from __future__ import annotations

import pandas as pd

from fedlib import figures
from fedlib.analysis.tables import only, span
from fedlib.data import DATASETS
from fedlib.data.facts import class_sizes
from fedlib.experiments.claims import Claim, Verdict, implementation, not_tested, ours, verdict
from fedlib.experiments.item import Item
from fedlib.experiments.paper_numbers import paper_table, printed_cells
from fedlib.experiments.pfedsim.client_sizes import (
    CLIENTS,
    more_classes_less_spread,
    printed_sizes,
    printed_std_inside,
    same_mean,
    size_statistics,
    std_shrinks,
)
from fedlib.models import parameters_by_part, sizes
from fedlib.models.printed import beside_printed

DATA = ("cifar10", "cinic10", "emnist", "tiny_imagenet")
PRINTED = {"5": ("lenet5_bn", "cifar10"), "9": ("mobilenetv2", "tiny_imagenet")}  # which network a table describes
NETWORKS = {
    "LeNet5 (Table 5), CIFAR-10": (*PRINTED["5"], {}),
    "LeNet5 with two poolings (authors' code), CIFAR-10": (*PRINTED["5"], {"pools": 2}),
    "LeNet5 (Table 5), EMNIST": ("lenet5_bn", "emnist", {}),
    "MobileNetV2 (Table 9), Tiny-ImageNet": (*PRINTED["9"], {}),
}


def analyse(s: dict, results: list) -> dict[str, pd.DataFrame]:
    """stats: `size_statistics`; table5, table9: layers side by side; parameters: where the networks' numbers are."""
    stats = size_statistics([dataset for dataset in s["datasets"] if class_sizes(dataset)], s["seeds"], s["min_size"])
    lines, networks = table4(stats, s["datasets"]), {number: layers_of(number) for number in PRINTED}
    for table, layers in networks.items():
        for row in layers[layers["verdict"] != "same"].itertuples():
            lines.append((f"Table {table}", f"layer {row.layer}", row.printed, row.ours, row.verdict))
        same = (layers["verdict"] == "same").sum()
        lines.append((f"Table {table}", f"{same} of {len(layers)} layers", "as printed", "the same", ""))
    compare = pd.DataFrame(lines, columns=["table", "what", "paper", "ours", "difference"])
    named = {f"table{table}": layers for table, layers in networks.items()}
    return {"tidy": stats, "stats": stats, "compare": compare, **named, "parameters": parameter_table()}


def layers_of(number: str) -> pd.DataFrame:
    """Table 5 or 9 beside our network, one row a printed layer."""
    model, dataset = PRINTED[number]
    printed = printed_cells("pfedsim", number).to_dict("records")
    return pd.DataFrame(beside_printed(printed, model, DATASETS[dataset].shape, DATASETS[dataset].classes))


def parameter_table() -> pd.DataFrame:
    """Where the numbers of each network are. The paper prints no counts."""
    lines = []
    for title, (model, dataset, options) in NETWORKS.items():
        shape, classes = DATASETS[dataset].shape, DATASETS[dataset].classes
        size, parts = sizes(model, shape, classes, **options), parameters_by_part(model, shape, classes, **options)
        about = {"network": title, "input": "x".join(map(str, shape)), "classes": classes}
        lines.append({**about, **parts, "all": size["model"], "statistics": size["statistics"]})
    return pd.DataFrame(lines)


def table4(stats: pd.DataFrame, datasets: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Table 4 cell by cell."""
    printed, lines = paper_table("pfedsim", "4"), []
    for dataset in datasets:
        for metric, what, here in (
            ("num_samples", "images", DATASETS[dataset].images),
            ("num_classes", "classes", DATASETS[dataset].classes),
        ):
            (paper,) = only(printed, dataset=dataset, metric=metric)["value"]
            lines.append(("Table 4", f"{dataset}: {what}", f"{paper:,.0f}", f"{here:,}", f"{here - paper:+,.0f}"))
        for cell in only(printed_sizes(), dataset=dataset).itertuples():
            own = only(stats, dataset=dataset, alpha=cell.alpha, cap=True)
            for measure, value in (("mean", cell.value), ("std", cell.std)):
                drawn = own[f"{measure}_size"]
                texts = (span(drawn), f"{drawn.mean() - value:+.0f}") if len(drawn) else (needs(dataset), "")
                lines.append(
                    ("Table 4", f"{dataset}, Dir({cell.alpha:g}): per client, {measure}", f"{value:.0f}", *texts)
                )
    return lines


def needs(dataset: str) -> str:
    """What a cell says whose data set is not here."""
    return f"needs `fedlib data {dataset}`"


def printed_facts(tables) -> Verdict:
    facts = tables["compare"]
    facts = facts[facts["what"].str.contains("images|classes")]
    wrong = facts[facts["difference"] != "+0"]
    listing = "; ".join(
        f"{row.what}: printed {row.paper}, the public data set has {row.ours}" for row in wrong.itertuples()
    )
    return verdict(
        wrong.empty, f"{len(facts) - len(wrong)} of {len(facts)} numbers agree" + f" ({listing})" * bool(listing)
    )


def emnist_means(tables) -> Verdict:
    own, public = only(paper_table("pfedsim", "4"), dataset="emnist"), DATASETS["emnist"].images
    (total,), mean = only(own, metric="num_samples")["value"], only(own, metric="samples_per_client")["value"].iloc[0]
    evidence = f"printed mean {mean:.0f} for {CLIENTS} clients; {total:,.0f} images give {total / CLIENTS:.2f}, "
    evidence += f"EMNIST by class with {public:,} gives {public / CLIENTS:.2f}"
    return verdict(int(public / CLIENTS) == mean != int(total / CLIENTS), evidence)


def all_stds_inside(tables) -> Verdict:
    inside, stats = printed_std_inside(tables["stats"], cap=True), tables["stats"]
    evidence = f"{sum(inside.values())} of {len(inside)} cells inside the range of {stats['seed'].nunique()} draws"
    if outside := [cell for cell, fits in inside.items() if not fits]:
        return verdict(False, f"{evidence}; outside: {', '.join(outside)}")
    missing = sorted(set(printed_sizes()["dataset"]) - set(stats["dataset"]))
    return (
        not_tested(f"{evidence}; " + ", ".join(f"{d} {needs(d)}" for d in missing))
        if missing
        else verdict(True, evidence)
    )


def same_layers(table: str):
    def check(tables) -> Verdict:
        layers = tables[f"table{table}"]
        other = layers[layers["verdict"] != "same"]
        listing = "".join(f"; layer {row.layer}: {row.verdict}" for row in other.itertuples())
        return verdict(other.empty, f"{len(layers) - len(other)} of {len(layers)} printed layers{listing}")

    return check


def only_the_stem_differs(tables) -> Verdict:
    layers = pd.concat([tables["table5"].assign(table=5), tables["table9"].assign(table=9)])
    real, misprints = only(layers, verdict="differs"), layers["verdict"].str.startswith("misprint").sum()
    listing = "; ".join(
        f"Table {row.table}, layer {row.layer}: {row.printed}, ours {row.ours}" for row in real.itertuples()
    )
    holds = real[["table", "layer"]].values.tolist() == [[9, "1"]]
    return verdict(holds, f"{misprints} misprints; a network could be built with: {listing or 'none'}")


ITEM = Item(
    title="pFedSim Tables 4, 5 and 9: the data and the networks",
    claim="The printed data sets and networks are the public ones, up to a handful of misprints.",
    smaller="fewer draws of the partition; EMNIST's clients only where the data set is prepared",
    settings={
        "smoke": {"datasets": DATA, "seeds": 2, "min_size": 10},
        "quick": {"datasets": DATA, "seeds": 20, "min_size": 40},
        "paper": {"datasets": DATA, "seeds": 100, "min_size": 40},
    },
    minutes={"smoke": 0.1, "quick": 0.3, "paper": 1},
    specs=lambda s: [],
    analyse=analyse,
    figure=lambda tables: figures.data_and_networks(tables["stats"], printed_sizes(), tables["parameters"]),
    claims=(
        Claim("The data sets have the printed numbers of images and classes (Table 4).", printed_facts),
        implementation("The mean number of samples per client is the same for both alphas (Table 4).", same_mean),
        Claim("Its std over clients shrinks from alpha 0.1 to 0.5 (Table 4).", std_shrinks),
        Claim("Relative to the mean, the std shrinks with the number of classes (Table 4).", more_classes_less_spread),
        Claim("LeNet5 has the printed layers (Table 5).", same_layers("5")),
        Claim("MobileNetV2, torchvision's as the text says, has the printed layers (Table 9).", same_layers("9")),
        ours("All eight printed stds fit a partitioner that caps the clients' sizes.", all_stds_inside),
        ours("EMNIST's printed mean belongs to EMNIST by class, its printed total does not.", emnist_means),
        ours(
            "All printed layers but the first of MobileNetV2 are ours or could not be built as printed.",
            only_the_stem_differs,
        ),
    ),
)
