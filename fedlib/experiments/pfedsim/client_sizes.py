"""Table 4: the data sets' numbers and the clients' sizes, printed and drawn; Figure 3 shows them too."""

from collections.abc import Iterable

import pandas as pd

from fedlib.analysis.partitions import size_statistics
from fedlib.analysis.tables import only, span
from fedlib.claims import Claim, Verdict, every_row, implementation, not_tested, ours, over_seeds, verdict
from fedlib.data import DATASETS
from fedlib.experiments.paper_numbers import paper_table
from fedlib.experiments.pfedsim.task import ALPHAS

CLIENTS = 100


def drawn_sizes(datasets: Iterable[str], s: dict) -> pd.DataFrame:
    """The clients' sizes of Table 4, drawn `seeds` times: `size_statistics`."""
    return size_statistics(datasets, CLIENTS, ALPHAS, s["seeds"], s["min_size"])


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


# claims, about the tables "stats" and "_facts" ------------------------------------------------------------------------


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


FACTS = Claim(
    "The data sets have the reported numbers of images and classes (Table 4).",
    every_row("_facts", lambda t: t["paper"] == t["public"], "numbers", wrong_facts),
)
OF_TABLE_4 = (
    implementation("The mean number of samples per client is the same for both alphas (Table 4).", same_mean),
    Claim("The std of samples per client falls from alpha 0.1 to 0.5 (Table 4).",
          over_seeds("stats", "std_size", "cell", _shrinks, cap=True)),
    Claim("Relative to the mean, the std shrinks with the number of classes (Table 4).", _more_classes),
)  # fmt: skip
MORE = (
    ours("All eight reported stds fit a Dirichlet sampler with a client-size cap.", all_stds_inside),
    ours("EMNIST's reported mean belongs to EMNIST by class, its reported total does not.", emnist_means),
)
