"""Tables 4, 5 and 9: the data, the clients' sizes and the two networks of the experiments, as printed and as they are
here; Figure 3 shows the sizes too."""

import pandas as pd

from fedlib import figures
from fedlib.analysis.partitions import size_statistics
from fedlib.analysis.tables import only, span
from fedlib.claims import Claim, Verdict, every_row, implementation, not_tested, ours, over_seeds, verdict
from fedlib.data import DATASETS
from fedlib.data.datasets import class_sizes
from fedlib.experiments.item import Found, Item, Tables, per_profile
from fedlib.experiments.paper_numbers import paper_table, printed_cells
from fedlib.experiments.pfedsim.task import ALPHAS
from fedlib.models import layers, parameters_by_part, sizes
from fedlib.models.layers import beside_printed

DATA = ("cifar10", "cinic10", "emnist", "tiny_imagenet")
CLIENTS = 100
PRINTED = {5: ("lenet5_bn", "cifar10"), 9: ("mobilenetv2", "tiny_imagenet")}  # which network a table describes
NETWORKS = {
    "LeNet-5 (Table 5), CIFAR-10": (*PRINTED[5], {}),
    "LeNet-5 with two max-pool layers (authors' code), CIFAR-10": (*PRINTED[5], {"pools": 2}),
    "LeNet-5 (Table 5), EMNIST": ("lenet5_bn", "emnist", {}),
    "MobileNetV2 (Table 9), Tiny-ImageNet": (*PRINTED[9], {}),
}


def analyse(s: dict, found: Found) -> Tables:
    """stats: the clients' sizes (`size_statistics`); table5, table9: layers side by side; parameters: where the
    networks' numbers are."""
    here = [dataset for dataset in s["datasets"] if class_sizes(dataset)]
    stats = size_statistics(here, CLIENTS, ALPHAS, s["seeds"], s["min_size"])
    facts = public_facts(s["datasets"])
    compare = table4(stats, facts)
    layers = pd.concat([layers_of(number) for number in PRINTED], ignore_index=True)
    for number, own in layers.groupby("table"):
        other, table = own[own["verdict"] != "same"], f"Table {number}"
        compare += [(table, f"layer {row.layer}", row.printed, row.ours, row.verdict) for row in other.itertuples()]
        compare.append((table, f"{len(own) - len(other)} of {len(own)} layers", "as reported", "the same", ""))
    compare = pd.DataFrame(compare, columns=["table", "what", "paper", "ours", "difference"])
    named = {f"table{number}": only(layers, table=number).drop(columns="table") for number in PRINTED}
    return {"tidy": stats, "stats": stats, "compare": compare, **named, "_facts": facts, "_layers": layers,
            "parameters": parameter_table()}  # fmt: skip


def printed_sizes() -> pd.DataFrame:
    """Table 4's means and stds of the clients' sizes: dataset, alpha, value, std."""
    cells = only(paper_table("pfedsim", "4"), metric="samples_per_client")
    return cells.rename(columns={"partition_param": "alpha"})[["dataset", "alpha", "value", "std"]]


def printed_std_inside(stats: pd.DataFrame, cap: bool) -> dict[str, bool]:
    """Per cell of Table 4: does the printed std lie within the range of our draws? By "data set, alpha"."""
    printed, inside = printed_sizes().set_index(["dataset", "alpha"])["std"], {}
    for (dataset, alpha, cell), own in only(stats, cap=cap).groupby(["dataset", "alpha", "cell"]):
        inside[cell] = own["std_size"].min() <= printed[dataset, alpha] <= own["std_size"].max()
    return inside


def public_facts(datasets: tuple[str, ...]) -> pd.DataFrame:
    """The data sets' numbers of images and classes, printed and public: dataset, what, paper, public."""
    printed, lines = paper_table("pfedsim", "4").set_index(["dataset", "metric"])["value"], []
    for name in datasets:
        public = DATASETS[name]
        lines.append((name, "images", int(printed[name, "num_samples"]), public.images))
        lines.append((name, "classes", int(printed[name, "num_classes"]), public.classes))
    return pd.DataFrame(lines, columns=["dataset", "what", "paper", "public"])


def table4(stats: pd.DataFrame, facts: pd.DataFrame) -> list[tuple[str, ...]]:
    """Table 4 cell by cell."""
    lines = []
    for dataset, own in facts.groupby("dataset", sort=False):
        for fact in own.itertuples():
            numbers = (f"{fact.paper:,}", f"{fact.public:,}", f"{fact.public - fact.paper:+,}")
            lines.append(("Table 4", f"{dataset}: {fact.what}", *numbers))
        for cell in only(printed_sizes(), dataset=dataset).itertuples():
            drawn = only(stats, dataset=dataset, alpha=cell.alpha, cap=True)
            for measure, value in (("mean", cell.value), ("std", cell.std)):
                here = drawn[f"{measure}_size"]
                texts = (span(here), f"{here.mean() - value:+.0f}") if len(here) else (needs(dataset), "")
                what = f"{dataset}, Dir({cell.alpha:g}): per client, {measure}"
                lines.append(("Table 4", what, f"{value:.0f}", *texts))
    return lines


def needs(dataset: str) -> str:
    """What a cell says whose data set is not here."""
    return f"needs `fedlib data {dataset}`"


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


# claims --------------------------------------------------------------------------------------------------------------


def same_mean(tables) -> Verdict:
    means = tables["stats"].groupby(["dataset", "alpha"])["mean_size"].mean().unstack()
    listing = ", ".join(f"{dataset} {row[0.1]:.0f} and {row[0.5]:.0f}" for dataset, row in means.iterrows())
    return verdict((means[0.1] - means[0.5]).abs().max() < 1e-9, listing)


def _shrinks(m: pd.DataFrame):
    small, large = ({cell.split(",")[0]: m[cell] for cell in m if cell.endswith(f", {alpha:g}")} for alpha in ALPHAS)
    listing = ", ".join(f"{dataset} {small[dataset].iloc[0]:.0f} to {large[dataset].iloc[0]:.0f}" for dataset in small)
    return {dataset: small[dataset] - large[dataset] for dataset in small}, listing


def _less_spread(m: pd.DataFrame):
    ten, many = ({f"alpha {a:g}": m[f"{dataset}, {a:g}"] for a in ALPHAS} for dataset in ("cifar10", "tiny_imagenet"))
    listing = (f"{a}: {ten[a].iloc[0]:.2f} with 10 classes, {many[a].iloc[0]:.2f} with 200" for a in ten)
    return {a: ten[a] - many[a] for a in ten}, f"std/mean, {'; '.join(listing)}"


def _more_classes(tables) -> Verdict:
    if "tiny_imagenet" not in set(tables["stats"]["dataset"]):
        return not_tested("needs Tiny-ImageNet's 200 classes, which this profile leaves out")
    return over_seeds("stats", "relative", "cell", _less_spread, cap=True)(tables)


def wrong_facts(facts: pd.DataFrame) -> str:
    wrong = facts[facts["paper"] != facts["public"]].itertuples()
    return "; ".join(f"{f.dataset}, {f.what}: reported {f.paper:,}, in the public data {f.public:,}" for f in wrong)


def emnist_means(tables) -> Verdict:
    own, public = only(paper_table("pfedsim", "4"), dataset="emnist"), DATASETS["emnist"].images
    (total,), mean = only(own, metric="num_samples")["value"], only(own, metric="samples_per_client")["value"].iloc[0]
    evidence = f"reported mean {mean:.0f} for {CLIENTS} clients; {total:,.0f} images give {total / CLIENTS:.2f}, "
    evidence += f"EMNIST by class with {public:,} gives {public / CLIENTS:.2f}"
    return verdict(int(public / CLIENTS) == mean != int(total / CLIENTS), evidence)


def all_stds_inside(tables) -> Verdict:
    inside, stats = printed_std_inside(tables["stats"], cap=True), tables["stats"]
    evidence = f"{sum(inside.values())} of {len(inside)} cells inside the range of {stats['seed'].nunique()} partitions"
    if outside := [cell for cell, fits in inside.items() if not fits]:
        return verdict(False, f"{evidence}; outside: {', '.join(outside)}")
    missing = sorted(set(printed_sizes()["dataset"]) - set(stats["dataset"]))
    lacks = ", ".join(f"{dataset} {needs(dataset)}" for dataset in missing)
    return not_tested(f"{evidence}; {lacks}") if missing else verdict(True, evidence)


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
    figure=lambda tables: figures.data_and_networks(tables["stats"], printed_sizes(), tables["parameters"]),
    claims=(
        Claim("The data sets have the reported numbers of images and classes (Table 4).",
              every_row("_facts", lambda t: t["paper"] == t["public"], "numbers", wrong_facts)),
        implementation("The mean number of samples per client is the same for both alphas (Table 4).", same_mean),
        Claim("The std of samples per client falls from alpha 0.1 to 0.5 (Table 4).",
              over_seeds("stats", "std_size", "cell", _shrinks, cap=True)),
        Claim("Relative to the mean, the std shrinks with the number of classes (Table 4).", _more_classes),
        Claim("LeNet-5 has the reported layers (Table 5).", same_layers(5)),
        Claim("MobileNetV2, torchvision's as the text says, has the reported layers (Table 9).", same_layers(9)),
        ours("All eight reported stds fit a Dirichlet sampler with a client-size cap.", all_stds_inside),
        ours("EMNIST's reported mean belongs to EMNIST by class, its reported total does not.", emnist_means),
        ours("All reported layers but the first of MobileNetV2 match ours, or could not be built.",
             only_the_stem_differs),
    ),
)  # fmt: skip
