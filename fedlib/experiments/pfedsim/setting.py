"""Tables 4, 5 and 9: the data and the two networks of the experiments, as printed and as they are here."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pandas as pd

from fedlib import figures, models
from fedlib.base.errors import BadValue
from fedlib.data import DATASETS
from fedlib.engine.result import RunResult
from fedlib.experiments.items import NOT_REPRODUCED, NOT_TESTED, Claim, Item, Verdict, only, paper_table, verdict
from fedlib.experiments.partition_draws import class_sizes, span
from fedlib.experiments.pfedsim.partitions import (
    ALPHAS,
    CLIENTS,
    check_more_classes_less_spread,
    check_same_mean,
    check_std_shrinks,
    printed_std_inside,
    size_statistics,
)

LENET, MOBILENET = ("lenet5_bn", "cifar10"), ("mobilenetv2", "tiny_imagenet")  # as Tables 5 and 9 describe them
NETWORKS = {
    "LeNet5 (Table 5), CIFAR-10": (*LENET, {}),
    "LeNet5 with two poolings (authors' code), CIFAR-10": (*LENET, {"pools": 2}),
    "LeNet5 (Table 5), EMNIST": ("lenet5_bn", "emnist", {}),
    "MobileNetV2 (Table 9), Tiny-ImageNet": (*MOBILENET, {}),
}

# Table 4 -------------------------------------------------------------------------------------------------------------


def statistics_rows(stats: pd.DataFrame, datasets: tuple[str, ...]) -> list[dict]:
    """Table 4 cell by cell."""
    printed = paper_table("pfedsim", "4")
    rows = []
    for dataset in datasets:
        own = only(printed, dataset=dataset)
        for metric, ours in (("num_samples", DATASETS[dataset].images), ("num_classes", DATASETS[dataset].classes)):
            (paper,) = only(own, metric=metric)["value"]
            what = f"{dataset}: {'images' if metric == 'num_samples' else 'classes'}"
            rows.append(_row("Table 4", what, f"{paper:,.0f}", f"{ours:,}", f"{ours - paper:+,.0f}"))
        for alpha in ALPHAS:
            (paper,) = only(own, metric="samples_per_client", partition_param=alpha).itertuples()
            ours, what = only(stats, dataset=dataset, alpha=alpha, cap=True), f"{dataset}, Dir({alpha:g}): per client,"
            for measure, value in (("mean", paper.value), ("std", paper.std)):
                drawn = ours[f"{measure}_size"]
                texts = (span(drawn), f"{drawn.mean() - value:+.0f}") if len(drawn) else (needs(dataset), "")
                rows.append(_row("Table 4", f"{what} {measure}", f"{value:.0f}", *texts))
    return rows


def needs(dataset: str) -> str:
    """What a cell says whose data set is not here."""
    return f"needs `fedlib data {dataset}`"


def _row(table: str, what: str, paper: str, ours: str, difference: str) -> dict:
    return {"table": table, "what": what, "paper": paper, "ours": ours, "difference": difference}


# Tables 5 and 9 ------------------------------------------------------------------------------------------------------

FIELDS = ("in", "out", "kernel", "stride", "pad", "groups")


def printed_layers(table: str) -> list[dict]:
    """The printed rows as dicts of FIELDS with numbers (None if not printed), layer_type, printed, and `times` they repeat."""
    path = Path(__file__).parent.parent / "paper_tables" / f"pfedsim_table{table}.csv"
    frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    rows = []
    for row in frame.to_dict("records"):
        numbers = {name: int(row[name]) if row[name].isdigit() else row[name] or None for name in FIELDS}
        times = int(row["repetition"] or 1)
        rows.append({**row, **numbers, "times": times, "block": row["block"] or row["layer_index"]})
    return rows


def in_order(rows: list[dict]) -> list[dict]:
    """The layers that the printed rows stand for: every block as often as it is repeated."""
    blocks: dict[str, list[dict]] = {}
    for row in rows:
        blocks.setdefault(row["block"], []).append(row)
    return [row for block in blocks.values() for _ in range(block[0]["times"]) for row in block]


def impossible(layers: list[dict], channels: int) -> dict[str, str]:
    """Why printed layers cannot follow each other, by layer_index: each must take what the one before it gives."""
    why, before = {}, channels
    for layer in layers:
        if isinstance(layer["in"], int) and layer["in"] != before:
            why.setdefault(layer["layer_index"], f"in={layer['in']} after a layer with out={before}")
        before = layer["out"] if isinstance(layer["out"], int) else before
    return why


def side_by_side(table: str, model: str, dataset: str) -> pd.DataFrame:
    """Printed rows beside our network's layers, in order; batch norm and activation belong to the row of their convolution.

    Columns: layer, times, printed, ours, verdict ("same", "misprint: why" if the printed layers do not fit each other,
    else "differs").
    """
    about, printed = DATASETS[dataset], printed_layers(table)
    ours = [r for r in models.layers(model, about.shape, about.classes) if r["kind"] != "BatchNorm2D"]
    layers = in_order(printed)
    why = impossible(layers, about.shape[0])
    found = {row["layer_index"]: [] for row in printed}
    built = iter(pairwise([*ours, None]))
    here = None
    for layer in layers:
        if layer["layer_type"] in ("Flatten", "AvgPool2D") and layer["kernel"] is None:
            found[layer["layer_index"]].append(_between(layer, *here))
        else:
            here = next(built, None)
            if here is None:
                raise BadValue(f"{model} has fewer layers than Table {table} prints")
            found[layer["layer_index"]].append((_text(here[0]), _agree(layer, here[0], about.classes)))
    if next(built, None):
        raise BadValue(f"{model} has more layers than Table {table} prints")
    rows = []
    for row in printed:
        texts, same = zip(*found[row["layer_index"]])
        reason = why.get(row["layer_index"])
        judged = "same" if all(same) else f"misprint: {reason}" if reason else "differs"
        rows.append((row["layer_index"], row["times"], row["printed"], " / ".join(dict.fromkeys(texts)), judged))
    return pd.DataFrame(rows, columns=["layer", "times", "printed", "ours", "verdict"])


def _agree(printed: dict, ours: dict, classes: int) -> bool:
    """Is every number that the paper prints ours? Padding and groups that are not printed are 0 and 1."""
    expected = {name: printed[name] for name in FIELDS if printed[name] is not None}
    if printed["layer_type"] == "Conv2D":
        expected = {"pad": 0, "groups": 1} | expected
    expected = {name: classes if value == "num_classes" else value for name, value in expected.items()}
    return ours["kind"] == printed["layer_type"] and all(ours[name] == value for name, value in expected.items())


def _between(printed: dict, before: dict, after: dict) -> tuple[str, bool]:
    """What happens between two of our layers without a layer of its own, read off their shapes: flattening or pooling."""
    shape, given = before["output"], after["in"]
    pooled = given == shape[0]
    text = f"{'x'.join(map(str, shape))} -> {given}"
    if printed["layer_type"] == "AvgPool2D":
        return f"mean of each channel, {text}", pooled
    return ("Flatten()" if pooled else f"Flatten(), {text}"), pooled or given == shape[0] * shape[1] * shape[2]


def _text(layer: dict) -> str:
    """A layer in the paper's notation."""
    names = {"Conv2D": ("in", "out", "kernel", "stride"), "FC": ("in", "out")}.get(layer["kind"], ("kernel", "stride"))
    names += ("pad",) if layer["kind"] == "Conv2D" and layer["kernel"] > 1 else ()
    names += ("groups",) if (layer["groups"] or 1) > 1 else ()
    return f"{layer['kind']}({', '.join(f'{name}={layer[name]}' for name in names)})"


def parameter_table() -> pd.DataFrame:
    """Where the numbers of each network are. The paper prints no counts."""
    rows = []
    for title, (name, dataset, options) in NETWORKS.items():
        about = DATASETS[dataset]
        kinds = pd.DataFrame(models.layers(name, about.shape, about.classes, **options))
        of_kind = kinds.groupby("kind")["parameters"].sum()
        sizes = models.sizes(name, about.shape, about.classes, **options)
        parts = {
            "convolutions": of_kind["Conv2D"],
            "batch norm": of_kind["BatchNorm2D"],
            "linear layers of the extractor": sizes["linear"] - sizes["head"],
            "classifier": sizes["head"],
        }
        shape = {"input": "x".join(map(str, about.shape)), "classes": about.classes}
        rows.append({"network": title, **shape, **parts, "all": sizes["model"], "statistics": sizes["statistics"]})
    return pd.DataFrame(rows)


# the item ------------------------------------------------------------------------------------------------------------


def analyse_setting(s: dict, results: list[RunResult]) -> dict[str, pd.DataFrame]:
    known = [dataset for dataset in s["datasets"] if class_sizes(dataset)]
    stats = size_statistics(known, s["seeds"], s["min_size"])
    networks = {"5": side_by_side("5", *LENET), "9": side_by_side("9", *MOBILENET)}
    rows = statistics_rows(stats, s["datasets"])
    for table, layers in networks.items():
        for row in layers[layers["verdict"] != "same"].itertuples():
            rows.append(_row(f"Table {table}", f"layer {row.layer}", row.printed, row.ours, row.verdict))
        same = (layers["verdict"] == "same").sum()
        rows.append(_row(f"Table {table}", f"{same} of {len(layers)} layers", "as printed", "the same", ""))
    compare = pd.DataFrame(rows)
    named = {f"table{table}": layers for table, layers in networks.items()}
    return {"tidy": stats, "compare": compare, **named, "parameters": parameter_table()}


def check_printed_facts(tables) -> Verdict:
    facts = tables["compare"]
    facts = facts[facts["what"].str.contains("images|classes")]
    wrong = facts[facts["difference"] != "+0"]
    listed = "; ".join(
        f"{row.what}: printed {row.paper}, the public data set has {row.ours}" for row in wrong.itertuples()
    )
    return verdict(
        wrong.empty, f"{len(facts) - len(wrong)} of {len(facts)} numbers agree" + f" ({listed})" * bool(listed)
    )


def check_emnist_means(tables) -> Verdict:
    own = only(paper_table("pfedsim", "4"), dataset="emnist")
    (total,), mean = only(own, metric="num_samples")["value"], only(own, metric="samples_per_client")["value"].iloc[0]
    public = DATASETS["emnist"].images
    holds = int(public / CLIENTS) == mean != int(total / CLIENTS)
    return verdict(
        holds,
        f"printed mean {mean:.0f} for {CLIENTS} clients; {total:,.0f} images give {total / CLIENTS:.2f}, "
        f"EMNIST by class with {public:,} gives {public / CLIENTS:.2f}",
    )


def check_all_stds(tables) -> Verdict:
    inside = printed_std_inside({"stats": tables["tidy"]}, cap=True)
    printed = only(paper_table("pfedsim", "4"), metric="samples_per_client")
    missing = sorted(set(printed["dataset"]) - set(tables["tidy"]["dataset"]))
    evidence = (
        f"{sum(inside.values())} of {len(inside)} cells inside the range of {tables['tidy']['seed'].nunique()} draws"
    )
    outside = [cell for cell, fits in inside.items() if not fits]
    if outside:
        return Verdict(NOT_REPRODUCED, f"{evidence}; outside: {', '.join(outside)}")
    if missing:
        return Verdict(NOT_TESTED, f"{evidence}; " + ", ".join(f"{d} {needs(d)}" for d in missing))
    return verdict(True, evidence)


def same_layers(table: str):
    def check(tables) -> Verdict:
        layers = tables[f"table{table}"]
        other = layers[layers["verdict"] != "same"]
        listed = "; ".join(f"layer {row.layer}: {row.verdict}" for row in other.itertuples())
        return verdict(
            other.empty, f"{len(layers) - len(other)} of {len(layers)} printed layers" + f"; {listed}" * bool(listed)
        )

    return check


def check_only_the_stem_differs(tables) -> Verdict:
    both = pd.concat([tables["table5"].assign(table=5), tables["table9"].assign(table=9)])
    real, misprints = only(both, verdict="differs"), both[both["verdict"].str.startswith("misprint")]
    listed = "; ".join(
        f"Table {row.table}, layer {row.layer}: {row.printed}, ours {row.ours}" for row in real.itertuples()
    )
    holds = real[["table", "layer"]].values.tolist() == [[9, "1"]]
    return verdict(holds, f"{len(misprints)} misprints; a network could be built with: {listed or 'none'}")


def _of_draws(check):
    return lambda tables: check({"stats": tables["tidy"]})


DATASETS4 = ("cifar10", "cinic10", "emnist", "tiny_imagenet")

TABLES4_5_9 = Item(
    name="pfedsim/tables4_5_9",
    title="pFedSim Tables 4, 5 and 9: the data and the networks",
    claim="The printed data sets and networks are the public ones, up to a handful of misprints.",
    smaller="fewer draws of the partition; EMNIST's clients only where the data set is prepared",
    settings={
        "smoke": {"datasets": DATASETS4, "seeds": 2, "min_size": 10},
        "quick": {"datasets": DATASETS4, "seeds": 20, "min_size": 40},
        "paper": {"datasets": DATASETS4, "seeds": 100, "min_size": 40},
    },
    minutes={"smoke": 0.1, "quick": 0.3, "paper": 1},
    specs=lambda s: [],
    analyse=analyse_setting,
    figure=lambda tables: figures.data_and_networks(
        tables["tidy"], only(paper_table("pfedsim", "4"), metric="samples_per_client"), tables["parameters"]
    ),
    claims=(
        Claim("The data sets have the printed numbers of images and classes (Table 4).", check_printed_facts),
        Claim(
            "The mean number of samples per client is the same for both alphas (Table 4).", _of_draws(check_same_mean)
        ),
        Claim("Its std over clients shrinks from alpha 0.1 to 0.5 (Table 4).", _of_draws(check_std_shrinks)),
        Claim(
            "Relative to the mean, the std shrinks with the number of classes (Table 4).",
            _of_draws(check_more_classes_less_spread),
        ),
        Claim("LeNet5 has the printed layers (Table 5).", same_layers("5")),
        Claim("MobileNetV2, torchvision's as the text says, has the printed layers (Table 9).", same_layers("9")),
        Claim("(Ours) All eight printed stds fit a partitioner that caps the clients' sizes.", check_all_stds),
        Claim(
            "(Ours) EMNIST's printed mean belongs to EMNIST by class, its printed total does not.", check_emnist_means
        ),
        Claim(
            "(Ours) All printed layers but the first of MobileNetV2 are ours or could not be built as printed.",
            check_only_the_stem_differs,
        ),
    ),
)

ITEMS = (TABLES4_5_9,)
